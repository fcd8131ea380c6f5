//! The port of the metrics, and the collection of what the page shows.
//!
//! `serve` starts it where `metrics.listen` is configured. What must stay true: a slow or hostile client occupies one
//! of a few connections for a few seconds, is closed for another one that needs its room, and delays no delivery; the store is asked at most once in [`FRESH`]; a web
//! page cannot read the metrics through a browser, under another name for this machine; and the deliveries' port does
//! not serve them.

mod answer;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive, Request};
use actix_service::{Service, ServiceFactoryExt, apply_fn_factory, fn_service};
use actix_web::HttpResponse;
use actix_web::dev::{Server as Workers, ServerHandle};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::http::{Bounds, Connection, Door};
use crate::limits::{CONNECTION_BYTES, Limits, METRICS_CONNECTIONS, METRICS_WAIT};
use crate::log;
use crate::metrics::{self, Facts, Front, Runner};
use crate::model::Timestamp;
use crate::panics::contained;
use crate::store::{Admin, Gauges};
use crate::traffic::Traffic;

/// How long the store's values are used again, so that frequent scrapes do not read the store more often.
const FRESH: Duration = Duration::from_secs(1);

/// How long an answered client may take to close its end.
const DISCONNECT: Duration = Duration::from_secs(1);

/// Reads the state of another part.
type Look<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Collects the facts.
pub struct Gatherer {
    store: Admin,
    runners: Look<Vec<Runner>>,
    traffic: Traffic,
    clock: Clock,
    front: Look<Front>,
    started_at: Timestamp,
    /// The store's last values, and when they were read.
    gauges: Mutex<Option<(Instant, Gauges)>>,
}

impl Gatherer {
    /// Makes the gatherer of a receiver that starts now.
    pub fn new(
        store: Admin,
        traffic: Traffic,
        clock: Clock,
        front: impl Fn() -> Front + Send + Sync + 'static,
        runners: impl Fn() -> Vec<Runner> + Send + Sync + 'static,
    ) -> Self {
        let started_at = clock.now();
        let (front, runners) = (Box::new(front), Box::new(runners));
        let gauges = Mutex::default();
        Gatherer { store, runners, traffic, clock, front, started_at, gauges }
    }

    async fn gather(&self) -> Facts {
        Facts {
            store: self.gauges().await,
            now: self.clock.now(),
            started_at: self.started_at,
            front: (self.front)(),
            traffic: self.traffic.clone(),
            writer: self.store.writer_gauges(),
            stalls: self.store.stalls().into_iter().map(|stall| stall.what).collect(),
            runners: (self.runners)(),
            log_lines_lost: log::lost_lines(),
        }
    }

    /// Concurrent scrapes wait for the same values.
    async fn gauges(&self) -> Option<Gauges> {
        let mut kept = self.gauges.lock().await;
        if let Some((at, gauges)) = &*kept
            && at.elapsed() < FRESH
        {
            return Some(gauges.clone());
        }
        let gauges = self.store.gauges().await.ok()?;
        *kept = Some((Instant::now(), gauges.clone()));
        Some(gauges)
    }
}

/// The metrics' server. It serves until [`Listener::stop`].
pub struct Listener {
    address: SocketAddr,
    handle: ServerHandle,
    task: JoinHandle<io::Result<()>>,
}

/// Serves the page on `listener`. Call it in a tokio runtime.
///
/// # Errors
/// The listener cannot be used, or the thread cannot be started.
pub fn serve(listener: TcpListener, gatherer: Gatherer, limits: &Limits) -> io::Result<Listener> {
    let address = listener.local_addr()?;
    let gatherer = Arc::new(gatherer);
    let head_time = Limits::duration(limits.header_read_millis);
    let bounds = Bounds {
        head_bytes: limits.head_bytes,
        head_time,
        ends_with_client: false,
        are_deliveries: false,
    };
    // A long head takes the room of several connections.
    let long_head = (2 * limits.head_bytes).div_ceil(CONNECTION_BYTES);
    let connections = METRICS_CONNECTIONS + usize::try_from(long_head).unwrap_or(0);
    let door = Door::new(connections, METRICS_CONNECTIONS, bounds);
    let server = Workers::build()
        .workers(1)
        .disable_signals()
        .max_concurrent_connections(door.accepted())
        .listen("metrics", listener, move || {
            let gatherer = Arc::clone(&gatherer);
            let (door, turns) = (door.clone(), door.clone());
            let http = HttpService::build()
                // One request for each connection, so that no client keeps its place.
                .keep_alive(KeepAlive::Disabled)
                .client_request_timeout(head_time)
                .client_disconnect_timeout(DISCONNECT)
                .on_connect_ext(|connection: &Connection<TcpStream>, data| {
                    data.insert(connection.gate());
                })
                .h1(fn_service(move |request: Request| {
                    let gatherer = Arc::clone(&gatherer);
                    let (turn, request) = turns.begin(request);
                    turn.end(request.map(|request| page(gatherer, request)))
                }));
            let connected = fn_service(move |stream: TcpStream| {
                let admitted = door.clone().admit(stream);
                async { Ok::<_, DispatchError>((admitted.await?, None)) }
            });
            apply_fn_factory(connected.and_then(http), |stream: TcpStream, served| {
                let conversation = timeout(METRICS_WAIT, served.call(stream));
                contained(async { conversation.await.unwrap_or(Ok(())) })
            })
        })?
        .run();
    Ok(Listener { address, handle: server.handle(), task: tokio::spawn(server) })
}

async fn page(gatherer: Arc<Gatherer>, request: Request) -> Result<HttpResponse, Infallible> {
    if let Some(refusal) = answer::refusal(request.head()) {
        return Ok(refusal);
    }
    let page = metrics::page(&gatherer.gather().await);
    Ok(HttpResponse::Ok().content_type(metrics::CONTENT_TYPE).body(page))
}

impl Listener {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops at once: a scraper asks again, and gets its answer from the next receiver.
    pub async fn stop(self) {
        self.handle.stop(false).await;
        // The server ends without an error, or was not running any more.
        let _ = self.task.await;
    }
}
