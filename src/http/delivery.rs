//! A delivery to a source whose head has been read, and how it is refused: the answer is one of a few fixed ones, the
//! details go to the log, the counters and quarantine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::RequestHead;
use actix_web::http::header::{HeaderMap, HeaderValue};
use bytes::Bytes;
use tokio::time::timeout;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::cause::Cause;
use super::client;
use super::problem::Problem;
use super::reply::Answer;
use super::shared::{Shared, Snapshot};
use super::source::ServedSource;
use crate::model::{Headers, Timestamp};
use crate::notify;
use crate::payload::{one, parameters};
use crate::registration;
use crate::store::FailedDelivery;
use crate::traffic::Refusal;
use crate::verify::{self, Answered, Challenge, Rejection};

/// A delivery whose head has arrived.
pub(super) struct Delivery {
    pub(super) shared: Arc<Shared>,
    pub(super) served: Arc<ServedSource>,
    pub(super) begun: Instant,
    pub(super) method: String,
    /// Path and query, as sent; the path alone where nothing reads the query, which may contain secrets.
    pub(super) target: String,
    /// The query as sent, where a challenge may be in it; it may contain the secret too.
    challenge_query: Option<String>,
    /// The client's address, as a trusted proxy reports it if there is one.
    address: Option<IpAddr>,
    /// The peer is a trusted proxy, which may name its client's certificate.
    pub(super) by_proxy: bool,
    /// Only those that are needed later, because a stalled body keeps them in memory.
    pub(super) headers: Headers,
    /// Whether it may be a challenge without a signature.
    pub(super) may_be_challenge: bool,
    /// The most bytes of its body.
    pub(super) body_limit_bytes: u64,
    /// The size of its body as the head says, which the sender chooses; `None` if it says none.
    pub(super) declared_bytes: Option<u64>,
}

/// The client's address, as a trusted proxy reports it if there is one.
pub(super) fn address(snapshot: &Snapshot, head: &RequestHead) -> Option<IpAddr> {
    let forwarded = headers(&head.headers, |name| name == "x-forwarded-for");
    head.peer_addr.map(|peer| client::address(peer.ip(), &forwarded, &snapshot.proxies))
}

fn headers(map: &HeaderMap, wanted: impl Fn(&str) -> bool) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in map.iter().filter(|(name, _)| wanted(name.as_str())) {
        headers.push(name.as_str(), value.as_bytes());
    }
    headers
}

impl Delivery {
    pub(super) fn new(
        shared: &Arc<Shared>,
        snapshot: &Snapshot,
        served: &Arc<ServedSource>,
        head: &RequestHead,
    ) -> Self {
        let needs = verify::needs(&served.source.scheme, |name| {
            head.headers.get(name).map(HeaderValue::as_bytes)
        });
        let reply = served.source.reply.as_ref();
        let names_the_caller = |name: &str| {
            let named = reply.map(|reply| [&reply.caller_header, &reply.certificate_header]);
            let mut named = named.into_iter().flatten().flatten();
            named.any(|known| known.eq_ignore_ascii_case(name))
        };
        let by_proxy = |peer: SocketAddr| client::is_proxy(peer.ip(), &snapshot.proxies);
        let mut headers = headers(&head.headers, |name| needs(name) || names_the_caller(name));
        let scheme = &served.source.scheme;
        verify::add_parameters(scheme, head.uri.query().unwrap_or_default(), &mut headers);
        let is_challenged = scheme.challenge().methods().next().is_some();
        let challenge_query = head.uri.query().filter(|_| is_challenged).map(str::to_owned);
        let reads_query = reply.is_some() || scheme.proof().covers_url();
        let target = match reads_query && !scheme.proof().carries_secret_in_url() {
            true => head.uri.to_string(),
            false => head.uri.path().to_owned(),
        };
        Delivery {
            shared: Arc::clone(shared),
            served: Arc::clone(served),
            begun: Instant::now(),
            method: head.method.to_string(),
            target,
            challenge_query,
            address: address(snapshot, head),
            by_proxy: head.peer_addr.is_some_and(by_proxy),
            headers,
            may_be_challenge: false,
            body_limit_bytes: served.source.body_limit_bytes,
            declared_bytes: None,
        }
    }

    /// The query of the target, as sent.
    pub(super) fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The delivery as a challenge.
    pub(super) fn as_challenge<'a>(&'a self, body: &'a [u8]) -> Challenge<'a> {
        let source = &self.served.source;
        Challenge {
            method: &self.method,
            is_delivery: source.methods.contains(&self.method.as_str()),
            query: self.challenge_query.as_deref(),
            headers: &self.headers,
            body,
        }
    }

    /// Answers a challenge, at any rate: a stranger must not use up what a provider needs. Without a signature it is
    /// logged at a bounded rate. The value is not logged.
    pub(super) async fn answer_challenge(&self, answered: Answered) -> Result<Answer, Cause> {
        let source = &self.served.source.name;
        let answer = answered.answer.map_err(|Rejection { reason, detail, malformed }| {
            let answer = match reason {
                "bad_token" => Answer::Refused("the verify token is wrong"),
                _ if malformed => Answer::Malformed(reason),
                _ => Answer::Rejected,
            };
            Cause { answer, reason, detail: detail.into() }
        })?;
        if answered.signed {
            self.served.traffic.verified();
        } else if let Some(secret) = answered.secret {
            self.register(secret).await?;
        }
        self.served.traffic.handshake();
        let (signed, status) = (answered.signed, answer.status);
        let now = self.shared.clock.monotonic();
        if signed || self.shared.challenge_lines.take_line(source.to_string(), now) {
            info!(%source, answer = "handshake", signed, status, "delivery");
        }
        Ok(Answer::Handshake(answer))
    }

    /// Hands the provider's secret to the operator who waits for it. Returns once the source has it: if the provider
    /// waits no longer, nothing is registered.
    async fn register(&self, secret: Zeroizing<String>) -> Result<(), Cause> {
        let source = &self.served.source;
        let key = verify::key(&source.scheme, "registration", &secret);
        let key = key.map_err(|_| {
            Cause::new(
                Answer::Malformed("bad_challenge"),
                "bad_challenge",
                "it is not a secret of the provider",
            )
        })?;
        let query = self.challenge_query.as_deref().unwrap_or_default();
        let word = one(parameters(query.as_bytes(), registration::WORD)).ok().flatten();
        let (all, now) = (&self.shared.registrations, self.shared.clock.monotonic());
        let is_given = || word.is_some_and(|word| all.give(&source.name, &word, secret, now));
        if !source.keys.is_empty() || !is_given() {
            let detail = match source.keys.is_empty() {
                true => {
                    "a request brings a secret, and no operator waits for it at its URL: give the provider the one that `hooklatch register` prints"
                }
                false => "the source has a secret, which another one does not replace",
            };
            return Err(Cause::new(
                Answer::Refused("registration is not open"),
                "not_open",
                detail,
            ));
        }
        let mut reloads = self.shared.reloads.subscribe();
        let taken = async {
            while !self.shared.has_secret(&source.name, &key) && reloads.changed().await.is_ok() {}
        };
        let late = |_| Cause::unavailable("not_registered", "the secret was not in force in time");
        timeout(source.accept_wait, taken).await.map_err(late)
    }

    /// Counts and logs a refusal, and returns its answer.
    pub(super) fn refuse(&self, cause: Cause) -> Answer {
        self.record(&cause, &cause.detail, false);
        cause.answer
    }

    /// Counts a genuine delivery: a new event's, or a duplicate. Returns how many milliseconds it took.
    pub(super) fn count_good(&self, stored_before: bool, received_at: Timestamp) -> u64 {
        let took = self.begun.elapsed();
        self.served.traffic.good(stored_before, received_at, took);
        u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
    }

    /// Counts a refusal, logs it if it is the first of a burst, and notifies of a source that begins to fail.
    /// `shown` is what `status` shows of it, and has no text from the request. `unproven`: its proof is what failed.
    fn record(&self, cause: &Cause, shown: &str, unproven: bool) {
        let (source, now) = (&self.served.source.name, self.shared.clock.now());
        let (answer, reason) = (cause.answer.name(), cause.reason);
        let refusal = Refusal { answer, reason, shown, unproven };
        let refused = self.served.traffic.refused(refusal, now);
        if matches!(cause.answer, Answer::TooLarge(_)) {
            self.served.traffic.too_large(self.declared_bytes, now);
        }
        if refused.first {
            let address = self.address.map(tracing::field::display);
            warn!(%source, answer, reason, detail = &*cause.detail, address, "delivery");
            self.shared.traffic.wake_refusal_log();
        }
        if let Some((count, first_at)) = refused.failing {
            notify::failing(&self.shared.store, source, reason, count, first_at, now);
        }
    }

    /// Rejects a delivery that is not proven, whose client learns only that, or whose id is malformed. The log gets the
    /// reason. Quarantine gets it too, with the headers that prove, and with the body and the time when it was complete,
    /// if the body was `read`.
    pub(super) fn reject(&self, rejection: Rejection, read: Option<(Timestamp, Bytes)>) -> Answer {
        let source = &self.served.source;
        let Rejection { reason, detail, malformed } = rejection;
        let answer = match malformed {
            true if source.reply.is_some() => Answer::Problem(Problem::Malformed(reason)),
            true => match source.scheme.identity().id_header().filter(|_| reason == "missing_id") {
                Some(header) => Answer::NoId(header.to_owned()),
                None => Answer::Malformed(reason),
            },
            false => Answer::Rejected,
        };
        let cause = Cause { answer, reason, detail: detail.clone().into() };
        self.record(&cause, reason, !malformed);
        // A caller that waits for an answer gets the refusal, and can repeat the request.
        if source.scheme.proof().is_absent() || source.reply.is_some() {
            return cause.answer;
        }
        let (received_at, body) = match read {
            Some((received_at, body)) => (received_at, Some(body)),
            None => (self.shared.clock.now(), None),
        };
        // The query is kept only if the provider signs the URL.
        let query = self.query().filter(|_| source.scheme.proof().covers_url());
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        self.shared.store.quarantine(FailedDelivery {
            source: source.name.clone(),
            scheme: Arc::clone(&source.scheme),
            received_at,
            address: self.address,
            reason,
            detail,
            path: source.path.clone() + &query,
            headers: verify::evidence(&source.scheme, &self.headers),
            body_bytes: body.as_ref().map_or(0, |body| body.len() as u64),
            // A body that no secret can prove later is not kept.
            body: body.filter(|_| verify::can_be_judged_again(&source.scheme)),
        });
        cause.answer
    }
}
