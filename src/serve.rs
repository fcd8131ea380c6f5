//! The flow of the receiver: what starts in which order, and what stops.
//!
//! ```text
//! start: configuration ─▶ secrets ─▶ ports (bound) ─▶ store (lock, recovery of the log) ─▶ admin API
//!        ─▶ HTTP ─▶ metrics ─▶ dispatcher (recover, connections to the runners, then claims) ─▶ systemd
//! stop:  HTTP ─▶ dispatcher ─▶ admin API ─▶ metrics ─▶ store
//! ```
//!
//! HTTP and dispatcher never call each other; they meet in the store. The ports are bound first, so that a busy
//! port changes nothing on disk; connections wait in the kernel's queue until the store is open, so every answer
//! comes from a receiver that can keep its promise. The dispatcher starts last: a start that fails has begun no
//! command, whose outcome would be unknown.

mod reload;
mod service;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::admin;
use crate::clock::Clock;
use crate::config::{Config, Environment};
use crate::dispatcher::{Dispatcher, DispatcherHandle};
use crate::document::Problem;
use crate::handler::runner_client::RunnerStatus;
use crate::handler::runner_pool::{PoolSettings, RunnerPool};
use crate::http;
use crate::limits::Limits;
use crate::memory;
use crate::metrics::Runner;
use crate::model::Name;
use crate::scrape::{self, Gatherer};
use crate::store::{self, Admin, OpenError, Settings, Store};
use crate::systemd::Manager;
use crate::traffic::Traffic;
use crate::verify::Signer;

pub use crate::handler::Runners;
pub use reload::ReloadError;
pub use service::Service;

/// Why the receiver does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Secrets that cannot be read, all of them, or runners that cannot be reached.
    #[error("the configuration is wrong")]
    Config(Vec<Problem>),
    /// Two sources on one path, which loading the configuration refuses first.
    #[error(transparent)]
    Sources(#[from] http::PathTaken),
    /// The port.
    #[error("failed to listen on {address}: {error}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// A socket unit says what the configuration is not allowed to say.
    #[error(
        "source '{name}' takes events from anybody, and {address} is not only this machine: let \
         the socket unit listen on 127.0.0.1, or give the source a provider that verifies"
    )]
    Exposed {
        /// The source.
        name: Name,
        /// Where the inherited socket listens.
        address: SocketAddr,
    },
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The sockets of the admin API.
    #[error(transparent)]
    Admin(#[from] admin::ListenError),
}

/// A receiver that serves.
pub struct Serving {
    store: Store,
    dispatcher: DispatcherHandle,
    admin: admin::Listener,
    http: http::Server,
    metrics: Option<scrape::Listener>,
    manager: Manager,
    /// Tells the manager how the receiver is.
    tending: JoinSet<()>,
    /// What is in force: what a reload is compared with.
    config: Config,
    /// Whether the default runner is the only one there can be.
    one_runner: bool,
    pool: RunnerPool,
    receiver: admin::ReceiverState,
    /// How long a stop waits for attempts in flight.
    wait: Duration,
}

/// Resolves on the second stop signal; pends if the sender is gone.
async fn second_signal(mut hurry: watch::Receiver<bool>) {
    if hurry.wait_for(|hurry| *hurry).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Starts everything; returns when deliveries are being answered.
///
/// # Errors
/// Whatever keeps a part from starting; the parts started before it are stopped by being dropped,
/// which no promise depends on.
pub async fn start(
    config: Config,
    environment: &Environment,
    clock: Clock,
    runners: Runners,
    service: Service,
) -> Result<Serving, Error> {
    let one_runner = matches!(runners, Runners::BesideStore(_));
    if one_runner {
        let unreached = config.other_runners();
        if !unreached.is_empty() {
            return Err(Error::Config(unreached));
        }
    }
    let parts = config.resolve(environment).map_err(Error::Config)?;
    for unwise in config.warnings().iter().chain(&parts.warnings) {
        tracing::warn!("{unwise}");
    }
    let (signers, without_secret) = (signers(&parts.sources), without_secret(&parts.sources));
    let Service { sockets, manager } = service;
    let listeners = service::listeners(sockets, config.server(), &parts.sources)?;
    let sources =
        http::Sources::new(parts.sources)?.with_proxies(config.server().trusted_proxies.clone());
    let traffic = Traffic::default();
    let (settings, limits) = (config.store(), config.limits().clone());
    if let Err(error) = http::raise_file_limit() {
        tracing::warn!(%error, "the file limit stays as it is");
    }

    let address = config.server().listen;
    let addresses = listeners.iter().filter_map(|one| one.local_addr().ok()).collect();
    let scraped = |address| match listen(address) {
        Ok(listener) => Ok((address, listener)),
        Err(error) => Err(Error::Listen { address, error }),
    };
    let scraped = config.metrics().map(scraped).transpose()?;
    let store = open(settings.clone(), clock.clone()).await?;
    store.admin.set_interest(config.interest());
    store.admin.set_judge(sources.judge());
    warn_of_paused(&store.admin).await;
    let wait = Limits::duration(limits.stop_wait_millis);
    let pool = RunnerPool::new(PoolSettings {
        runners,
        database: settings.path.clone(),
        store: store.admin.id(),
        limits: limits.clone(),
    });
    let receiver = admin::ReceiverState::new(pool.clone(), traffic.clone(), clock.clone());
    receiver.set_listeners(admin::ListenerInfo { addresses, signers, without_secret });
    let admin = admin::listen(&settings.path, store.admin.clone(), receiver.clone())?;
    let http = http::Server::start(
        listeners,
        sources,
        store.intake.clone(),
        traffic.clone(),
        clock.clone(),
        limits.clone(),
    )
    .map_err(|error| Error::Listen { address, error })?;
    let metrics = scraped.map(|(address, listener)| {
        let (store, traffic, clock) = (store.admin.clone(), traffic.clone(), clock.clone());
        let gatherer = Gatherer::new(store, traffic, clock, http.front(), runners_of(&pool));
        let scraped = scrape::serve(listener, gatherer, &limits);
        scraped.map_err(|error| Error::Listen { address, error })
    });
    let metrics = metrics.transpose()?;
    let (workers, jobs) = (parts.workers, store.jobs.clone());
    let dispatcher = Dispatcher::start(jobs, workers, pool.clone(), &traffic, limits, clock);
    for address in http.addresses() {
        tracing::info!(%address, store = %settings.path.display(), "serving");
    }
    if let Some(metrics) = &metrics {
        tracing::info!(address = %metrics.address(), "serving metrics");
    }
    let tending = service::tend(&manager, &store.admin).await;
    memory::give_back_code();
    Ok(Serving {
        store,
        dispatcher,
        admin,
        http,
        metrics,
        manager,
        tending,
        config,
        one_runner,
        pool,
        receiver,
        wait,
    })
}

/// Looks at the runners that are needed, for the metrics.
fn runners_of(pool: &RunnerPool) -> impl Fn() -> Vec<Runner> + Send + Sync + 'static {
    let pool = pool.clone();
    move || {
        let statuses = pool.statuses().into_iter();
        let runner = |RunnerStatus { name, connected, running, room, .. }| Runner {
            name: name.to_string(),
            connected,
            running,
            room: room.unwrap_or(0),
        };
        statuses.map(runner).collect()
    }
}

/// Connections that wait in the kernel's queue. The standard library asks for 128, and whoever found
/// them taken waited a second to try again: more than half of 2,000 at once. The kernel itself allows
/// 4,096 by default (listen(2)).
const BACKLOG: i32 = 4096;

/// Binds the port before the store is touched, so that a busy port changes nothing on disk.
/// Connections wait in the kernel's queue until the server accepts them.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What signs as each source: any secret of it will do.
fn signers(sources: &[http::Source]) -> Vec<(Name, Signer)> {
    let signer = |source: &http::Source| {
        let signer = Signer::new(Arc::clone(&source.scheme), source.keys.first().cloned());
        (source.name.clone(), signer)
    };
    sources.iter().map(signer).collect()
}

/// The sources that can prove no delivery, because their secrets are empty.
fn without_secret(sources: &[http::Source]) -> Vec<Name> {
    let none = |source: &&http::Source| source.keys.is_empty() && !source.scheme.is_unsigned();
    sources.iter().filter(none).map(|source| source.name.clone()).collect()
}

/// A pause outlives restarts and is easily forgotten: nothing fails while jobs pile up.
async fn warn_of_paused(store: &Admin) {
    match store.paused().await {
        Ok(paused) => {
            for store::PausedRow { handler, since } in paused {
                tracing::warn!(%handler, %since, "paused by the operator: `hooklatch resume`");
            }
        }
        Err(error) => tracing::warn!(%error, "failed to look for paused handlers"),
    }
}

/// Opening blocks: it takes the lock and may read and rewrite a whole log.
async fn open(settings: Settings, clock: Clock) -> Result<Store, Error> {
    let opened = tokio::task::spawn_blocking(move || Store::open(&settings, clock)).await;
    Ok(opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?)
}

impl Serving {
    /// Where reloads are asked for through the admin API; called once. Until then, and once it is dropped,
    /// they are refused.
    pub fn reloads(&self) -> mpsc::Receiver<admin::ReloadAsked> {
        self.receiver.reloads()
    }

    /// Stops gracefully: requests in flight are answered, attempts in flight waited for and
    /// recorded, the store closed. Once `hurry` is true every wait is short.
    pub async fn stop(mut self, hurry: watch::Receiver<bool>) {
        let _stopping = self.manager.stopping().await;
        if !self.http.stop(second_signal(hurry.clone())).await {
            tracing::warn!("stopped before every request was answered");
        }
        self.dispatcher.stop(self.wait, second_signal(hurry)).await;
        self.admin.stop().await;
        if let Some(metrics) = self.metrics {
            metrics.stop().await;
        }
        self.store.close().await;
        self.tending.abort_all();
        tracing::info!("stopped");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_burst_of_connections_waits_in_the_queue() {
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let burst = 500.min(allowed.trim().parse().unwrap());
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        // Nobody accepts; a connection without a place would be tried again after a second.
        let short = Duration::from_millis(900);
        let waiting = (0..burst).map(|_| TcpStream::connect_timeout(&address, short));
        assert_eq!(waiting.collect::<Result<Vec<_>, _>>().unwrap().len(), burst);
    }
}
