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

mod error;
mod plan;
mod ports;
mod reload;
mod service;
mod serving;

use tokio::sync::{mpsc, watch};

use crate::admin;
use crate::clock::Clock;
use crate::config::{Config, Environment};
use crate::dispatcher::Dispatcher;
use crate::handler::runner_client::RunnerStatus;
use crate::handler::runner_pool::{PoolSettings, RunnerPool};
use crate::http;
use crate::limits::Limits;
use crate::memory;
use crate::metrics::Runner;
use crate::scrape::{self, Gatherer};
use crate::store::{self, Admin, Settings, Store};
use crate::traffic::Traffic;

use plan::Plan;
use ports::Ports;

pub use crate::handler::Runners;
pub use error::Error;
pub use reload::ReloadError;
pub use service::Service;
pub use serving::Serving;

/// Starts everything; returns when deliveries are being answered, with the reloads that the admin API asks for. It
/// refuses them once the receiver of those is dropped.
///
/// # Errors
/// What keeps a part from starting. Parts that were started before it may run until the process exits; no promise
/// depends on their end.
pub async fn start(
    config: Config,
    environment: &Environment,
    clock: Clock,
    runners: Runners,
    service: Service,
) -> Result<(Serving, mpsc::Receiver<admin::ReloadAsked>), Error> {
    let one_runner = matches!(runners, Runners::BesideStore(_));
    let unreached = if one_runner { config.other_runners() } else { Vec::new() };
    if !unreached.is_empty() {
        return Err(Error::Config(unreached));
    }
    let mut resolved = config.resolve(environment).map_err(Error::Config)?;
    let node = resolved.node.take();
    let Service { sockets, manager } = service;
    let ports = Ports::bind(sockets, &config)?;
    let plan = Plan::new(&config, resolved, &ports.addresses).map_err(Error::Config)?;
    if let Err(error) = http::raise_file_limit() {
        tracing::warn!(%error, "the file limit stays as it is");
    }

    let (settings, limits) = (config.store(), config.limits().clone());
    let store = match node {
        None => open(settings.clone(), clock.clone()).await?,
        Some(node) => Store::connect(&settings, node, plan.published, clock.clone()).await?,
    };
    store.admin.set_interest(config.interest());
    store.admin.set_judge(plan.sources.judge());
    store.admin.set_router(config.router());
    warn_of_paused(&store.admin).await;

    let traffic = Traffic::default();
    let pool = RunnerPool::new(PoolSettings {
        runners,
        database: settings.path.clone(),
        store: store.admin.id(),
    });
    let (receiver, reloads) =
        admin::ReceiverState::new(pool.clone(), traffic.clone(), clock.clone());
    receiver.set_listeners(plan.listeners);
    let admin = admin::listen(&settings.path, store.admin.clone(), receiver.clone())?;

    let http = http::Server::start(
        ports.deliveries,
        plan.sources,
        store.intake.clone(),
        traffic.clone(),
        receiver.registrations.clone(),
        clock.clone(),
        limits.clone(),
    )
    .map_err(|error| Error::of_sockets(&ports.addresses, error))?;

    let metrics = ports.metrics.map(|(address, listener)| {
        let (store, traffic, clock) = (store.admin.clone(), traffic.clone(), clock.clone());
        let gatherer = Gatherer::new(store, traffic, clock, http.front(), runners_of(&pool));
        scrape::serve(listener, gatherer, &limits)
            .map_err(|error| Error::of_sockets(&[address], error))
    });
    let metrics = metrics.transpose()?;

    let wait = Limits::duration(limits.stop_wait_millis);
    let jobs = store.jobs.clone();
    let dispatcher = Dispatcher::start(jobs, plan.workers, pool.clone(), &traffic, limits, clock);

    for address in http.addresses() {
        tracing::info!(%address, store = %settings.path.display(), "serving");
    }
    if let Some(metrics) = &metrics {
        tracing::info!(address = %metrics.address(), "serving metrics");
    }
    let tending = service::tend(&manager, &store.admin).await;
    memory::give_back_code();
    let serving = Serving {
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
    };
    Ok((serving, reloads))
}

impl Serving {
    /// Stops gracefully: answers requests in flight, waits for forwards in flight and records them, and
    /// closes the store. Commands go on. Once `hurry` is true, the waits for requests, forwards and the database are short.
    pub async fn stop(mut self, hurry: watch::Receiver<bool>) {
        let _stopping = self.manager.stopping().await;
        if !self.http.stop(second_signal(hurry.clone())).await {
            tracing::warn!("stopped before every request was answered");
        }
        self.dispatcher.stop(self.wait, second_signal(hurry.clone())).await;
        self.admin.stop().await;
        if let Some(metrics) = self.metrics {
            metrics.stop().await;
        }
        self.store.stop(second_signal(hurry)).await;
        self.tending.abort_all();
        tracing::info!("stopped");
    }
}

/// The state of each runner, for the metrics.
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

/// Resolves on the second stop signal; pends if the sender is gone.
async fn second_signal(mut hurry: watch::Receiver<bool>) {
    if hurry.wait_for(|hurry| *hurry).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Opening blocks: it takes the lock and may read and rewrite a whole log.
async fn open(settings: Settings, clock: Clock) -> Result<Store, Error> {
    let opened = tokio::task::spawn_blocking(move || Store::open(&settings, clock)).await;
    Ok(opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?)
}

/// Warns of paused handlers: a pause outlives restarts, and jobs wait without a failure.
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
