//! The dispatcher: claims due jobs from the store, has their handlers run, and records the ends.
//!
//! `serve` starts it; it meets `http` in the store only. Must stay true:
//!
//! - Recovery is committed before the first job is claimed, and the attempts that a runner may have of an
//!   earlier receiver are awaited.
//! - A job is claimed only if a slot is free now, and for a command only if its runner has admitted this receiver
//!   and takes attempts: a job that is claimed and not begun at a power cut is `unknown`.
//! - A broken or slow handler or runner never delays another one: each has its own slots and its own pause, and
//!   one slot of the total is reserved for each idle handler.
//! - It sleeps until the store changes, an attempt ends, or a job is due. A tick makes up for a lost wake-up and
//!   a clock change.
//!
//! In a stop no more jobs are claimed. Commands go on under the runner, and the next receiver records their
//! ends. The stop waits for forwards; those without an answer at the end of the wait are `unknown`.

mod attempt;
mod backoff;
mod flow;
mod retention;
mod slots;
mod start;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::handler::RunnerPool;
use crate::limits::Limits;
use crate::store::Jobs;
use crate::traffic::Traffic;

use flow::Reload;
pub use worker::Worker;

/// Starts the dispatcher.
#[derive(Debug)]
pub struct Dispatcher;

/// A running dispatcher. Dropping it stops nothing.
#[derive(Debug)]
pub struct DispatcherHandle {
    stop: oneshot::Sender<Duration>,
    hurry: Arc<Notify>,
    flow: JoinHandle<()>,
    retention: JoinHandle<()>,
    reloads: mpsc::Sender<Reload>,
    limits: watch::Sender<Limits>,
}

/// The dispatcher has ended before it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no job runs any more: the dispatcher has ended (restart the receiver; its log says why)")]
pub struct Ended;

impl Dispatcher {
    /// Starts it and returns at once. Needs a tokio runtime's context. No other code may claim from the store or
    /// wait for its wake-ups. It connects to the runners that are needed, and counts every end in `traffic`.
    pub fn start(
        store: Jobs,
        workers: Vec<Worker>,
        pool: RunnerPool,
        traffic: &Traffic,
        limits: Limits,
        clock: Clock,
    ) -> DispatcherHandle {
        let (stop, stopped) = oneshot::channel();
        let hurry = Arc::new(Notify::new());
        let (reloads, reloaded) = mpsc::channel(1);
        let (watched, retained) = watch::channel(limits.clone());
        let retention = retention::run(store.clone(), retained, clock.clone());
        let flow = flow::Flow::new(store, workers, pool, traffic, limits, clock, reloaded);
        let flow = flow.run(stopped, hurry.clone());
        DispatcherHandle {
            stop,
            hurry,
            flow: tokio::spawn(flow),
            retention: tokio::spawn(retention),
            reloads,
            limits: watched,
        }
    }
}

impl DispatcherHandle {
    /// Replaces the handlers and the limits. Returns once no more claims are made for the old handlers, and no job
    /// of a new one can be held because its handler is not configured. Attempts go on as they were claimed,
    /// also those of a claim that is under way. The handler as it is configured when an attempt ends decides
    /// what follows for its job, as after a restart; the jobs of a removed handler are held.
    ///
    /// # Errors
    /// The dispatcher has ended.
    pub async fn reload(&self, workers: Vec<Worker>, limits: Limits) -> Result<(), Ended> {
        self.limits.send_replace(limits.clone());
        let (done, is_done) = oneshot::channel();
        let sent = self.reloads.send(Reload { workers, limits, done }).await;
        sent.map_err(|_| Ended)?;
        is_done.await.map_err(|_| Ended)
    }

    /// Claims no more jobs, waits for forwards up to `wait` or until `hurry` resolves (the operator's second
    /// signal), cancels those that still run then, and returns when their ends are recorded, or some seconds
    /// later. Close the store after it, not before.
    pub async fn stop(self, wait: Duration, hurry: impl Future<Output = ()>) {
        self.retention.abort();
        // Fails only if the flow has ended, which is found below.
        let _ended = self.stop.send(wait);
        let mut flow = self.flow;
        let ended = tokio::select! {
            ended = &mut flow => ended,
            () = hurry => {
                self.hurry.notify_one();
                flow.await
            }
        };
        if let Err(error) = ended {
            tracing::error!(%error, "the dispatcher ended before it was stopped");
        }
    }
}
