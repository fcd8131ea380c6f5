//! Starts and stops the HTTP server, and sends each request to where it belongs.
//!
//! Only `serve` and tests start one. actix's own stop loses requests (it drops what it has accepted
//! and not yet read, and closes idle connections that are about to be used), so [`Server::stop`]
//! first stops accepting, then says `Connection: close` on every answer for a while.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_http::body::BoxBody;
use actix_http::error::DispatchError;
use actix_http::{HttpMessage, HttpService, Request, Response};
use actix_service::{
    IntoServiceFactory, Service, ServiceFactoryExt, apply_fn_factory, fn_service, map_config,
};
use actix_web::App;
use actix_web::dev::{
    AppConfig, RequestHead, Server as Workers, ServerHandle, ServiceRequest, ServiceResponse,
};
use actix_web::http::Method;
use arc_swap::ArcSwap;
use futures_util::StreamExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::warn;

use super::connection::{Connection, Gate, Open};
use super::rate::Rates;
use super::reply::{Answer, Unread};
use super::snapshot::Snapshot;
use super::{ServedSource, Sources, files, health, receive, sums};
use crate::clock::Clock;
use crate::crash;
use crate::limits::Limits;
use crate::memory;
use crate::metrics::Front;
use crate::model::Name;
use crate::panics::contained;
use crate::store::Intake;
use crate::traffic::Traffic;
use crate::verify;

/// Connections per worker that wait for a place.
const WAITING: usize = 64;

/// What every request of every worker needs.
pub(super) struct Shared {
    /// Looked at once for each request.
    pub(super) snapshot: ArcSwap<Snapshot>,
    pub(super) store: Intake,
    /// What is told of every delivery.
    pub(super) traffic: Traffic,
    pub(super) clock: Clock,
    pub(super) open: Arc<Open>,
    /// One turn for each large body that is hashed at the moment: what is not proven yet must not take
    /// every core. All that the budget lets in is through within a tenth of a second all the same.
    pub(super) hashing: Semaphore,
    /// How often each caller asks, of sources whose handlers answer.
    pub(super) rates: Rates,
    /// A place for each request that waits for a handler's answer.
    pub(super) waiting: Semaphore,
    /// Set once at the beginning of a stop: every answer then asks for a new connection.
    pub(super) closing: AtomicBool,
}

/// A running HTTP server. It serves until [`Server::stop`].
pub struct Server {
    shared: Arc<Shared>,
    handle: ServerHandle,
    task: JoinHandle<io::Result<()>>,
    sums: JoinHandle<()>,
    trims: JoinHandle<()>,
    addresses: Vec<SocketAddr>,
    linger: Duration,
    wait: Duration,
}

impl Server {
    /// Serves `sources` on every listener, with one worker per available core. To be called inside
    /// a tokio runtime. Fails where a listener cannot be used or a thread cannot be made.
    pub fn start(
        listeners: Vec<TcpListener>,
        sources: Sources,
        store: Intake,
        traffic: Traffic,
        clock: Clock,
        limits: Limits,
    ) -> io::Result<Server> {
        let workers = std::thread::available_parallelism().map_or(1, Into::into);
        let connections = files::connections(limits.connections_count, WAITING * workers);
        let shared = Arc::new(Shared {
            snapshot: ArcSwap::from_pointee(Snapshot::new(sources.counted_by(&traffic), &limits)),
            store,
            traffic,
            clock,
            open: Open::new(connections),
            hashing: Semaphore::new((workers / 2).max(1)),
            rates: Rates::default(),
            waiting: Semaphore::new(
                usize::try_from(limits.callers_waiting_count).unwrap_or(Semaphore::MAX_PERMITS),
            ),
            closing: AtomicBool::new(false),
        });
        let wait = Limits::duration(limits.stop_wait_millis);
        let mut server = Workers::build()
            .workers(workers)
            .disable_signals()
            // `Open` has the limit; beyond it so many at once wait for another connection to give way.
            .max_concurrent_connections(connections.div_ceil(workers) + WAITING)
            // `stop` watches the time itself; actix's own bound only must not be shorter.
            .shutdown_timeout(wait.as_secs() + 60);
        let keep_alive = coarse(limits.keep_alive_millis);
        let head_time = coarse(limits.header_read_millis);
        let head_bytes = limits.head_bytes;
        // For so long the rest of a refused body is thrown away, so that its sender sees the answer
        // and not a reset.
        let drain_time = coarse(limits.body_grace_millis);
        let mut addresses = Vec::with_capacity(listeners.len());
        for listener in listeners {
            let address = listener.local_addr()?;
            addresses.push(address);
            let (shared, stopping) = (Arc::clone(&shared), server.graceful_shutdown_signal());
            server = server.listen(address.to_string(), listener, move || {
                let (shared, stopping) = (Arc::clone(&shared), stopping.clone());
                let counted = Arc::clone(&shared);
                let expecting = Arc::clone(&shared);
                let app = App::new().default_service(fn_service(move |request| {
                    let answered = answer(Arc::clone(&shared), request);
                    async { Ok::<_, actix_web::Error>(answered.await) }
                }));
                let app = app.into_factory().map_err(|error| error.error_response());
                let http = HttpService::build()
                    .keep_alive(keep_alive)
                    .client_request_timeout(head_time)
                    .client_disconnect_timeout(drain_time)
                    .graceful_shutdown_signal(move || {
                        let stopping = stopping.clone();
                        async move { stopping.notified().await }
                    })
                    .expect(fn_service(move |request| {
                        std::future::ready(may_send(&expecting, request))
                    }))
                    .on_connect_ext(|connection: &Connection, data| {
                        data.insert(connection.gate());
                    })
                    .h1(map_config(app, |()| AppConfig::default()));
                let (all, seen) = (Arc::clone(&counted), counted.traffic.clone());
                let served = fn_service(move |stream: TcpStream| {
                    let all = Arc::clone(&all);
                    async move {
                        let peer = stream.peer_addr().ok();
                        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
                        let place = all.open.enter().await.ok_or_else(refused)?;
                        let connection =
                            Connection::new(stream, place, head_bytes, head_time, keep_alive);
                        Ok::<_, DispatchError>((connection, peer))
                    }
                })
                .and_then(http)
                .map_err(move |error| {
                    // A connection's mere end is another error.
                    if matches!(error, DispatchError::Parse(_)) {
                        unreadable(&seen, "bad_request", "not HTTP/1.1");
                    }
                    error
                });
                apply_fn_factory(served, |stream: TcpStream, served| contained(served.call(stream)))
            })?;
        }
        let running = server.run();
        let handle = running.handle();
        let linger = Limits::duration(limits.stop_linger_millis);
        let sums = tokio::spawn(sums::run(shared.traffic.clone(), sums::EVERY));
        let falls = Arc::clone(&shared.open).after_each_fall(memory::give_back_heap);
        let trims = tokio::spawn(falls);
        let task = tokio::spawn(running);
        Ok(Server { shared, handle, task, sums, trims, addresses, linger, wait })
    }

    /// Looks at what the server holds, now and whenever it is called.
    pub fn front(&self) -> impl Fn() -> Front + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            let snapshot = shared.snapshot.load();
            Front {
                connections: shared.open.count(),
                body_bytes: snapshot.budget.used(),
                body_bound_bytes: snapshot.budget.bytes(),
                ready: !shared.closing.load(Ordering::Relaxed) && shared.store.ready().is_ok(),
            }
        }
    }

    /// The addresses served, in the order of the listeners.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether this secret is one of a source's as it is served now.
    pub fn has_secret(&self, source: &Name, secret: &verify::Key) -> bool {
        self.shared.snapshot.load().sources.has_secret(source, secret)
    }

    /// Serves these sources within these limits from the next request on; what is in flight goes on as
    /// it began. Limits of connections are those of the start. Returns at once.
    pub fn reload(&self, sources: Sources, limits: &Limits) {
        let sources = sources.counted_by(&self.shared.traffic);
        let next = self.shared.snapshot.load().next(sources, limits);
        self.shared.snapshot.store(Arc::new(next));
    }

    /// Stops: accepts no more, asks every client for a new connection, waits for `stop_linger_millis`,
    /// then lets what is in flight end, for at most `stop_wait_millis`. When `hurry` resolves (a
    /// second signal), the waiting is over at once. Returns whether everything in flight was
    /// answered. What was queued in the store is committed either way.
    pub async fn stop(self, hurry: impl Future<Output = ()>) -> bool {
        let Server { shared, handle, mut task, sums, trims, linger, wait, .. } = self;
        let gracefully = async {
            handle.pause().await;
            shared.closing.store(true, Ordering::Relaxed);
            tokio::time::sleep(linger).await;
            tokio::time::timeout(wait, handle.stop(true)).await.is_ok()
        };
        let drained = tokio::select! {
            drained = gracefully => drained,
            () = hurry => false,
        };
        if !drained {
            // Dropping actix's server is its forced stop; it takes no second command while it drains.
            task.abort();
        }
        let _ = (&mut task).await;
        sums.abort();
        trims.abort();
        sums::tell(&shared.traffic);
        drained
    }
}

/// A time for actix's own timers. They count from a clock that is up to half a second old, and one
/// that is over before it is first looked at never fires; so none is shorter than a second.
fn coarse(millis: u64) -> Duration {
    Limits::duration(millis.max(1000))
}

/// Answers one request, whatever it is.
async fn answer(shared: Arc<Shared>, mut request: ServiceRequest) -> ServiceResponse {
    crash::point("request.panic");
    let gate = request.conn_data::<Rc<Gate>>().cloned();
    let mut payload = request.take_payload();
    if let Some(gate) = &gate {
        gate.begin(&request);
    }
    let answer = if gate.as_ref().is_some_and(|gate| gate.is_over_bound()) {
        unreadable(&shared.traffic, Answer::HeadTooLarge.name(), "a request head over its bound");
        Answer::HeadTooLarge
    } else {
        let snapshot = shared.snapshot.load_full();
        match route(&shared, &snapshot, request.head()) {
            Ok(served) => {
                let gate = gate.as_deref();
                receive::receive(&shared, &snapshot, &served, &mut request, gate, &mut payload)
                    .await
            }
            Err(answer) => answer,
        }
    };
    // A refused body that is here costs nothing, and unread it would cost the connection.
    if gate.as_ref().is_some_and(|gate| gate.rest_is_here()) {
        while payload.next().await.is_some() {}
    }
    let close = shared.closing.load(Ordering::Relaxed)
        || shared.open.is_crowded()
        || gate.as_ref().is_some_and(|gate| gate.has_rest());
    request.into_response(answer.respond(Unread::new(payload, gate), close))
}

/// Whether a client that waits for "100 Continue" is to send its body, or the answer that it gets instead.
fn may_send(shared: &Shared, mut request: Request) -> Result<Request, Response<BoxBody>> {
    let snapshot = shared.snapshot.load();
    let declared = receive::declared(&request);
    let refused = route(shared, &snapshot, request.head())
        .and_then(|served| receive::admit(shared, &snapshot, &served, request.head(), declared));
    let Err(answer) = refused else { return Ok(request) };
    let gate = request.conn_data::<Rc<Gate>>().cloned();
    if let Some(gate) = &gate {
        gate.begin(&request);
    }
    let payload = request.take_payload();
    Err(answer.respond(Unread::new(payload, gate), true).into())
}

/// The source that a request is for, or its answer where it is for none. Paths are compared as they were
/// sent: no decoding, no trailing slash, no case.
fn route(
    shared: &Shared,
    snapshot: &Snapshot,
    head: &RequestHead,
) -> Result<Arc<ServedSource>, Answer> {
    let path = head.uri.path();
    let reads = matches!(head.method, Method::GET | Method::HEAD);
    match path {
        health::ALIVE | health::READY if !reads => return Err(Answer::Method("GET, HEAD")),
        health::ALIVE => return Err(Answer::Alive),
        health::READY => return Err(health::ready(shared)),
        _ => {}
    }
    let address = || receive::address(snapshot, head);
    match snapshot.sources.at(path) {
        None => {
            if shared.traffic.unknown_path(path, shared.clock.now()) {
                let address = address().map(tracing::field::display);
                // Not which: it may hold a token of somebody's, and `status` has the last ones.
                warn!(
                    answer = "not_found",
                    reason = "unknown_path",
                    address,
                    "a request to no source"
                );
                shared.traffic.begin_summing();
            }
            Err(Answer::NotFound)
        }
        Some(served) if head.method != Method::POST => {
            let answer = Answer::Method("POST");
            Err(receive::refuse(shared, served, answer, "method", "only POST", address()))
        }
        Some(served) => Ok(Arc::clone(served)),
    }
}

/// Counts a request that could not be read. actix's own line about each is off (`log`).
fn unreadable(traffic: &Traffic, answer: &str, what: &str) {
    if traffic.unreadable() {
        warn!(answer, reason = "unreadable", detail = what, "a request that cannot be read");
        traffic.begin_summing();
    }
}
