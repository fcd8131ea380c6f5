//! A real HTTP server on a real socket with a real store, and deliveries that are signed as the real
//! providers sign. The clock is manual, so that a test controls the age of a signature.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use hooklatch::clock::Clock;
use hooklatch::http::{Server, Source, Sources};
use hooklatch::limits::Limits;
use hooklatch::model::Timestamp;
use hooklatch::pattern::Pattern;
use hooklatch::provider::Scheme;
use hooklatch::registration::Registrations;
use hooklatch::routing::{Route, Routes};
use hooklatch::store::{EventDetail, EventFilter, EventRow, JobFilter, Settings, Store};
use hooklatch::traffic::Traffic;
use hooklatch::verify;
use sha2::Sha256;

use super::raw::{Answer, Raw, post};

/// The clock's time at the start of every test.
pub(crate) const START: Timestamp = Timestamp(1_767_225_600_000);

/// The largest body that GitHub sends.
pub(crate) const GITHUB_BYTES: u64 = 25 * 1024 * 1024;

/// The verify token of every source that has one.
pub(crate) const VERIFY_TOKEN: &str = "not a token: made for tests";

const SECRET: &str = "not a secret: made for tests";

/// A server with the sources `/github`, `/stripe` and `/none`; each has the handler `all` for every type.
pub(crate) struct Front {
    pub(crate) server: Option<Server>,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) address: SocketAddr,
    /// A second handle of the listening socket, as systemd keeps one over a restart.
    pub(crate) listener: TcpListener,
    pub(crate) limits: Limits,
    pub(crate) registrations: Registrations,
    pub(crate) traffic: Traffic,
    _dir: tempfile::TempDir,
}

impl Front {
    /// Starts with the default limits.
    pub(crate) fn start() -> Front {
        Front::with(|_| ())
    }

    /// Starts with changed limits.
    pub(crate) fn with(change: impl FnOnce(&mut Limits)) -> Front {
        let mut limits = Limits { disk_floor_bytes: 0, ..Limits::default() };
        change(&mut limits);
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::manual(START);
        let settings = Settings { path: dir.path().join("t.db"), limits: limits.clone() };
        let store = Store::open(&settings, clock.clone()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let registrations = Registrations::default();
        let mut front = Front {
            server: None,
            store,
            clock,
            address,
            listener,
            limits,
            registrations,
            traffic: Traffic::default(),
            _dir: dir,
        };
        front.serve();
        front
    }

    /// Starts a server on the same socket and store, as the next receiver does after a stop.
    pub(crate) fn serve(&mut self) {
        let sources = [
            source("github", "all", GITHUB_BYTES, &self.limits),
            source("stripe", "all", 64 * 1024, &self.limits),
            source("none", "all", 64 * 1024, &self.limits),
        ];
        let server = Server::start(
            vec![self.listener.try_clone().unwrap()],
            Sources::new(sources, Vec::new()),
            self.store.intake.clone(),
            self.traffic.clone(),
            self.registrations.clone(),
            self.clock.clone(),
            self.limits.clone(),
        );
        self.server = Some(server.unwrap());
    }

    /// Reloads with only the source `/github`, for this handler.
    pub(crate) fn reload(&self, handler: &str) {
        let sources = [source("github", handler, GITHUB_BYTES, &self.limits)];
        self.server.as_ref().unwrap().reload(Sources::new(sources, Vec::new()), &self.limits);
    }

    /// Reloads with these providers' sources, each at `/NAME` with the verify token [`VERIFY_TOKEN`].
    pub(crate) fn reload_with(&self, providers: &[&str], change: impl Fn(&mut Source)) {
        let sources = providers.iter().map(|provider| {
            let mut source = source(provider, "all", 64 * 1024, &self.limits);
            let token = source.scheme.challenge().needs_verify_token();
            source.verify_token = token.then(|| verify::verify_token("literal:test", VERIFY_TOKEN));
            change(&mut source);
            source
        });
        self.server.as_ref().unwrap().reload(Sources::new(sources, Vec::new()), &self.limits);
    }

    /// Sends one request on a new connection and reads the answer.
    pub(crate) async fn ask(&self, request: &[u8]) -> Answer {
        let mut raw = Raw::connect(self.address).await;
        raw.send(request).await;
        raw.answer().await
    }

    /// Waits until the number of open connections satisfies `wanted`.
    pub(crate) async fn open_when(&self, wanted: impl Fn(u64) -> bool) {
        let front = self.server.as_ref().unwrap().front();
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while !wanted(front().connections) {
            assert!(std::time::Instant::now() < end, "{} are open", front().connections);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) async fn events(&self) -> Vec<EventRow> {
        self.store.admin.events(EventFilter::default()).await.unwrap().rows
    }

    pub(crate) async fn jobs(&self) -> usize {
        self.store.admin.jobs(JobFilter::default()).await.unwrap().rows.len()
    }

    /// The only event with this id.
    pub(crate) async fn event(&self, id: &str) -> EventDetail {
        let mut found = self.store.admin.show(None, id.parse().unwrap(), None).await.unwrap();
        assert_eq!(found.len(), 1, "{id}");
        found.remove(0)
    }
}

fn source(provider: &str, handler: &str, body_limit_bytes: u64, limits: &Limits) -> Source {
    let scheme = Scheme::embedded(provider).unwrap().with_max_body(body_limit_bytes);
    let unsigned = scheme.proof().is_absent();
    let patterns = vec![Pattern::new("*", false)];
    let triggers = scheme.identity().has_triggers();
    let route = Route { triggers, ..Route::new(handler.parse().unwrap(), patterns) };
    let keys = match unsigned {
        true => Vec::new(),
        false => vec![verify::key(&scheme, "literal:test", SECRET).unwrap()],
    };
    Source {
        name: provider.parse().unwrap(),
        path: format!("/{provider}"),
        scheme: Arc::new(scheme),
        keys,
        verify_token: None,
        methods: vec!["POST"],
        public_url: None,
        body_limit_bytes,
        accept_wait: Duration::from_millis(limits.accept_wait_millis),
        refuse_proxied: unsigned,
        on_redelivery: hooklatch::model::OnRedelivery::Ignore,
        reply: None,
        routes: Arc::new(Routes {
            source: provider.parse().unwrap(),
            form_field: None,
            inflated_bytes: body_limit_bytes,
            kept_bytes: limits.condition_kept_bytes as usize,
            routes: vec![route],
        }),
    }
}

pub(crate) fn hmac(content: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(content);
    data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes())
}

/// GitHub's signature of `body`, in the form of its header.
pub(crate) fn github_signature(body: &[u8]) -> String {
    format!("sha256={}", hmac(body))
}

/// A delivery as GitHub makes it.
pub(crate) fn github(id: &str, body: &[u8]) -> Vec<u8> {
    github_with(id, body, &[])
}

/// A delivery as GitHub makes it, with the additional headers `more`.
pub(crate) fn github_with(id: &str, body: &[u8], more: &[(&str, &[u8])]) -> Vec<u8> {
    let signature = github_signature(body);
    let mut headers: Vec<(&str, &[u8])> = vec![
        ("Content-Type", b"application/json"),
        ("X-GitHub-Event", b"push"),
        ("X-GitHub-Delivery", id.as_bytes()),
        ("X-Hub-Signature-256", signature.as_bytes()),
    ];
    headers.extend_from_slice(more);
    post("/github", &headers, body)
}

/// A delivery as Stripe makes it, stamped `seconds` after [`START`].
pub(crate) fn stripe(body: &str, seconds: i64) -> Vec<u8> {
    let stamp = START.seconds() + seconds;
    let signature = hmac(format!("{stamp}.{body}").as_bytes());
    let header = format!("t={stamp},v1={signature}");
    post("/stripe", &[("Stripe-Signature", header.as_bytes())], body.as_bytes())
}

/// A well-formed Stripe header with a wrong signature: the receiver reads the body before it refuses.
pub(crate) fn unproven_stripe() -> String {
    format!("t={},v1={}", START.seconds(), "0".repeat(64))
}
