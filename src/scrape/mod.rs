//! Where Prometheus reads the metrics: a port of its own, and what is gathered when it asks.
//!
//! For `serve`, where `metrics.listen` is configured. What must stay true: a slow or hostile client costs
//! one of a few places for a few seconds, and nobody who delivers events anything; the store is asked at
//! most once in [`FRESH`]; the page cannot be read through a browser that was led to another name for this
//! machine, nor on the deliveries' port.

mod answer;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::limits::Limits;
use crate::log;
use crate::metrics::{self, Facts, Front, Runner};
use crate::model::Timestamp;
use crate::store::{Admin, Gauges};
use crate::traffic::Traffic;

/// The longest head, in bytes: the least that hyper takes. Prometheus sends some 300.
const HEAD_BYTES: usize = 8 * 1024;

/// How long what the store has said is good for, so that it does not matter how often it is asked.
const FRESH: Duration = Duration::from_secs(1);

/// Between two tries to accept, where the system refused.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Looks at something that another part owns.
type Look<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Where the facts come from.
pub struct Gatherer {
    store: Admin,
    runners: Look<Vec<Runner>>,
    traffic: Traffic,
    clock: Clock,
    front: Look<Front>,
    started_at: Timestamp,
    /// What the store has said, and when.
    gauges: Mutex<Option<(Instant, Gauges)>>,
}

impl Gatherer {
    /// Of a receiver that starts now.
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

    /// Everything as it is now.
    async fn gather(&self) -> Facts {
        let sources = self.traffic.sources();
        let handlers = self.traffic.handlers();
        Facts {
            store: self.gauges().await,
            now: self.clock.now(),
            started_at: self.started_at,
            front: (self.front)(),
            sources: sources.iter().map(|source| source.counts()).collect(),
            handlers: handlers.iter().map(|handler| handler.counts()).collect(),
            unknown_path_requests: self.traffic.unknown_path_requests(),
            unreadable_requests: self.traffic.unreadable_requests(),
            writer: self.store.writer_gauges(),
            runners: (self.runners)(),
            log_lines_lost: log::lost_lines(),
        }
    }

    /// Who asks meanwhile waits for the same answer.
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

/// The listening port. Dropping it stops nothing; [`Listener::stop`] does.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    task: JoinHandle<()>,
}

/// Answers on `listener`, which does not block, within the `metrics_` limits. To be called inside a tokio
/// runtime.
///
/// # Errors
/// The system's, where the socket cannot be used.
pub fn serve(listener: TcpListener, gatherer: Gatherer, limits: &Limits) -> io::Result<Listener> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    Ok(Listener {
        address,
        task: tokio::spawn(accept(listener, Arc::new(gatherer), limits.clone())),
    })
}

impl Listener {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops at once: who asks again asks the next receiver.
    pub async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn accept(listener: tokio::net::TcpListener, gatherer: Arc<Gatherer>, limits: Limits) {
    let most = usize::try_from(limits.metrics_connections_count).unwrap_or(Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(most));
    let wait = Limits::duration(limits.metrics_wait_millis);
    let head_wait = Limits::duration(limits.header_read_millis);
    loop {
        // A place first, so that further clients wait in the kernel's queue.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let gatherer = Arc::clone(&gatherer);
                tokio::spawn(async move {
                    // Too slow is over.
                    let _ = timeout(wait, converse(stream, gatherer, head_wait)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "failed to accept a scrape");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One request and its answer; a second one comes on another connection, so that nobody keeps a place.
async fn converse(
    stream: TcpStream,
    gatherer: Arc<Gatherer>,
    head_wait: Duration,
) -> hyper::Result<()> {
    let service = service_fn(|request| {
        let gatherer = Arc::clone(&gatherer);
        async move {
            Ok::<_, std::convert::Infallible>(match answer::refusal(&request) {
                Some(refusal) => refusal,
                None => answer::page(metrics::page(&gatherer.gather().await)),
            })
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_wait)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}
