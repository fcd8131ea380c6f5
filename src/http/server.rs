//! Starts and stops the HTTP server, and routes each request.
//!
//! Only `serve` and tests start one. actix's own stop loses requests: it drops connections that it has accepted and
//! not yet read, and closes idle connections that a client is about to use. So [`Server::stop`] first stops
//! accepting, then sends `Connection: close` with every answer for a while.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_http::body::BoxBody;
use actix_http::error::DispatchError;
use actix_http::{HttpService, Request, Response};
use actix_service::{Service, ServiceFactoryExt, apply_fn_factory, fn_service};
use actix_web::dev::{Server as Workers, ServerHandle};
use actix_web::http::Method;
use arc_swap::ArcSwap;
use futures_util::StreamExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::warn;

use super::connection::{Bounds, Connection, Gate, bound_answers};
use super::delivery::{Delivery, address};
use super::open::Open;
use super::rate::Rates;
use super::reply::Answer;
use super::shared::{Shared, Snapshot};
use super::source::{ServedSource, Sources};
use super::unread::UnreadBody;
use super::{files, health, receive, refusal_log};
use crate::clock::Clock;
use crate::limits::{Limits, STOP_LINGER};
use crate::memory;
use crate::metrics::Front;
use crate::model::Name;
use crate::panics::contained;
use crate::registration::Registrations;
use crate::store::Intake;
use crate::traffic::Traffic;
use crate::verify;

/// Connections per worker that wait for admission.
const WAITING: usize = 64;

/// A running HTTP server. It serves until [`Server::stop`].
pub struct Server {
    shared: Arc<Shared>,
    handle: ServerHandle,
    task: JoinHandle<io::Result<()>>,
    /// Logs counts of refusals, and trims the heap. Dropping it ends both.
    background: JoinSet<()>,
    addresses: Vec<SocketAddr>,
    wait: Duration,
}

impl Server {
    /// Serves `sources` on every listener, with one worker for each core. Call it in a tokio runtime.
    ///
    /// # Errors
    /// A listener cannot be used, or a thread cannot be started.
    pub fn start(
        listeners: Vec<TcpListener>,
        sources: Sources,
        store: Intake,
        traffic: Traffic,
        registrations: Registrations,
        clock: Clock,
        limits: Limits,
    ) -> io::Result<Server> {
        let workers = std::thread::available_parallelism().map_or(1, Into::into);
        let connections = files::connections(limits.connections_count, WAITING * workers);
        let shared = Arc::new(Shared {
            snapshot: ArcSwap::from_pointee(Snapshot::new(sources, &traffic, &limits)),
            store,
            traffic,
            clock,
            open: Open::new(connections),
            hashing: Semaphore::new((workers / 2).max(1)),
            rates: Rates::default(),
            challenge_lines: Rates::default(),
            registrations,
            reloads: watch::Sender::default(),
            waiting: Semaphore::new(
                usize::try_from(limits.callers_waiting_count).unwrap_or(Semaphore::MAX_PERMITS),
            ),
            closing: AtomicBool::new(false),
        });
        let wait = Limits::duration(limits.stop_wait_millis);
        let mut server = Workers::build()
            .workers(workers)
            .disable_signals()
            // `Open` has the limit. This many more connections wait until another one is evicted.
            .max_concurrent_connections(connections.div_ceil(workers) + WAITING)
            // `stop` has its own time-out, and actix's must not be shorter.
            .shutdown_timeout(wait.as_secs() + 60);
        let keep_alive = coarse(limits.keep_alive_millis);
        let head_time = coarse(limits.header_read_millis);
        let bounds = Bounds {
            head_bytes: limits.head_bytes,
            head_time,
            ends_with_client: false,
            are_deliveries: true,
        };
        // The rest of a refused body is discarded for this time, so that its sender gets the answer and not a
        // reset.
        let drain_time = coarse(limits.body_grace_millis);
        let mut addresses = Vec::with_capacity(listeners.len());
        for listener in listeners {
            let address = listener.local_addr()?;
            addresses.push(address);
            let (shared, stopping) = (Arc::clone(&shared), server.graceful_shutdown_signal());
            server = server.listen(address.to_string(), listener, move || {
                let (shared, stopping) = (Arc::clone(&shared), stopping.clone());
                let (open, traffic) = (Arc::clone(&shared.open), shared.traffic.clone());
                let expecting = Arc::clone(&shared);
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
                    .on_connect_ext(|connection: &Connection<TcpStream>, data| {
                        data.insert(connection.gate());
                    })
                    .h1(fn_service(move |request| {
                        let answered = answer(Arc::clone(&shared), request);
                        async { Ok::<_, Infallible>(answered.await) }
                    }));
                let served = fn_service(move |stream: TcpStream| {
                    let open = Arc::clone(&open);
                    async move {
                        let peer = stream.peer_addr().ok();
                        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
                        let place = open.enter().await.ok_or_else(refused)?;
                        bound_answers(&stream, keep_alive);
                        Ok::<_, DispatchError>((Connection::new(stream, place, bounds), peer))
                    }
                })
                .and_then(http)
                .map_err(move |error| {
                    // The end of a connection is another error.
                    if matches!(error, DispatchError::Parse(_)) {
                        unreadable(&traffic, "bad_request", "not HTTP/1.1");
                    }
                    error
                });
                apply_fn_factory(served, |stream: TcpStream, served| contained(served.call(stream)))
            })?;
        }
        let running = server.run();
        let handle = running.handle();
        let mut background = JoinSet::new();
        background.spawn(refusal_log::run(shared.traffic.clone(), refusal_log::EVERY));
        background.spawn(Arc::clone(&shared.open).after_each_fall(memory::give_back_heap));
        let task = tokio::spawn(running);
        Ok(Server { shared, handle, task, background, addresses, wait })
    }

    /// Returns a function that reads the state of the server.
    pub fn front(&self) -> impl Fn() -> Front + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            let snapshot = shared.snapshot.load();
            Front {
                connections: shared.open.count(),
                body_bytes: snapshot.budget.used(),
                body_bound_bytes: snapshot.budget.bytes(),
                ready: !shared.is_closing() && shared.store.ready().is_ok(),
            }
        }
    }

    /// The addresses of the listeners, in their order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether the source has this secret in the current snapshot.
    pub fn has_secret(&self, source: &Name, secret: &verify::Key) -> bool {
        self.shared.has_secret(source, secret)
    }

    /// Serves these sources within these limits from the next request on. Requests in flight keep the snapshot
    /// that they began with. The limits of connections do not change. Returns at once.
    pub fn reload(&self, sources: Sources, limits: &Limits) {
        let snapshot = &self.shared.snapshot;
        let next = Snapshot::new(sources, &self.shared.traffic, limits);
        let next = next.keep_budget(&snapshot.load());
        snapshot.store(Arc::new(next));
        self.shared.reloads.send_replace(());
    }

    /// Stops accepting, asks every client for a new connection for [`STOP_LINGER`], then waits for requests in
    /// flight, for at most `stop_wait_millis`. When `hurry` resolves (a second signal), it stops waiting. Returns
    /// whether every request in flight was answered. The store commits its queue either way.
    pub async fn stop(mut self, hurry: impl Future<Output = ()>) -> bool {
        let gracefully = async {
            self.handle.pause().await;
            self.shared.closing.store(true, Ordering::Relaxed);
            tokio::time::sleep(STOP_LINGER).await;
            tokio::time::timeout(self.wait, self.handle.stop(true)).await.is_ok()
        };
        let drained = tokio::select! {
            drained = gracefully => drained,
            () = hurry => false,
        };
        if !drained {
            // Dropping actix's server forces its stop; it accepts no second command while it drains.
            self.task.abort();
        }
        let _ = (&mut self.task).await;
        drop(self.background);
        refusal_log::log_counts(&self.shared.traffic);
        drained
    }
}

/// A time for actix's timers, which count from a clock that is up to half a second old. A timer that has expired
/// before its first poll never fires, so none is shorter than a second.
fn coarse(millis: u64) -> Duration {
    Limits::duration(millis.max(1000))
}

async fn answer(shared: Arc<Shared>, mut request: Request) -> Response<BoxBody> {
    let Some(gate) = request.conn_data::<Rc<Gate>>().cloned() else {
        // Cannot happen: every connection has one.
        return Response::internal_server_error();
    };
    let mut payload = request.take_payload();
    gate.begin(&request);
    let mut served = None;
    let answer = if gate.is_over_bound() {
        let answer = Answer::HeadTooLarge;
        unreadable(&shared.traffic, answer.name(), "a request head over its bound");
        answer
    } else {
        let snapshot = shared.snapshot.load_full();
        served = snapshot.sources.get(request.path()).cloned();
        match route(&shared, &snapshot, served.as_ref(), &request) {
            Ok(delivery) => {
                receive::receive(delivery, &snapshot, &mut request, &gate, &mut payload).await
            }
            Err(answer) => answer,
        }
    };
    // Reading a refused body that has arrived costs nothing; unread, it would cost the connection.
    if gate.rest_is_here() {
        while payload.next().await.is_some() {}
    }
    let close = shared.is_closing() || shared.open.is_crowded() || gate.has_rest();
    let answers = served.as_ref().map(|served| served.source.scheme.answers());
    answer.respond(answers, UnreadBody::new(payload, gate), close)
}

/// Decides whether a client that waits for "100 Continue" may send its body. The error is the answer that it gets
/// instead.
fn may_send(shared: &Arc<Shared>, mut request: Request) -> Result<Request, Response<BoxBody>> {
    let snapshot = shared.snapshot.load();
    let served = snapshot.sources.get(request.path());
    let Err(answer) = route(shared, &snapshot, served, &request) else { return Ok(request) };
    let Some(gate) = request.conn_data::<Rc<Gate>>().cloned() else {
        return Err(Response::internal_server_error());
    };
    gate.begin(&request);
    let payload = request.take_payload();
    let answers = served.map(|served| served.source.scheme.answers());
    Err(answer.respond(answers, UnreadBody::new(payload, gate), true))
}

/// The delivery that a request begins to `served`, the source of its path, or the answer to a request that is refused by
/// its head. Paths are compared as sent: without decoding, trailing slashes or case folding.
fn route(
    shared: &Arc<Shared>,
    snapshot: &Snapshot,
    served: Option<&Arc<ServedSource>>,
    request: &Request,
) -> Result<Delivery, Answer> {
    let path = request.path();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    match path {
        health::ALIVE | health::READY if !reads => return Err(Answer::Method("GET, HEAD".into())),
        health::ALIVE => return Err(Answer::Alive),
        health::READY => return Err(health::ready(&shared.store, shared.is_closing())),
        _ => {}
    }
    if let Some(served) = served {
        return receive::admit(shared, snapshot, served, request);
    }
    if shared.traffic.unknown_path(path, shared.clock.now()) {
        let address = address(snapshot, request.head()).map(tracing::field::display);
        // The path is not logged, because it may contain a token. `status` has the last ones.
        warn!(answer = "not_found", reason = "unknown_path", address, "a request to no source");
        shared.traffic.wake_refusal_log();
    }
    Err(Answer::NotFound)
}

/// Counts a malformed request. `log` switches off actix's own line for each.
fn unreadable(traffic: &Traffic, answer: &str, what: &str) {
    if traffic.unreadable() {
        warn!(answer, reason = "unreadable", detail = what, "a request that cannot be read");
        traffic.wake_refusal_log();
    }
}
