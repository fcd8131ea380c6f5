//! The dispatcher: takes what is due from the store, has its handler run, and records the end.
//!
//! Made by `serve`; it meets HTTP in the store only. What must stay true:
//!
//! - Recovery is committed before the first job is claimed, and what a runner may still have of an
//!   earlier receiver is awaited.
//! - A job is claimed only where a slot is free now, and a command only for its runner, where that has admitted
//!   this receiver and takes attempts: what is claimed and not begun at a power cut is `unknown`.
//! - One broken or slow handler or runner never delays another: each has its own slots, its own pause, and a
//!   slot of the whole is kept for each that is idle.
//! - It sleeps until the store is changed, an attempt ends, or a job is due; a tick makes up for a
//!   lost wake-up and a moved clock.
//!
//! In a stop nothing more is claimed. Commands go on under the runner, and the next receiver records
//! their ends. Forwards are waited for; when the wait is over, those without an answer are `unknown`.

mod attempt;
mod backoff;
mod flow;
mod retention;
mod slots;
mod start;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::handler::{Handler, RunnerPool};
use crate::limits::Limits;
use crate::model::Name;
use crate::retry::Policy;
use crate::store::Jobs;
use crate::traffic::Traffic;

use flow::Reload;

/// A handler with what the dispatcher must know of it.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its name, which its jobs carry.
    pub name: Name,
    /// What runs.
    pub handler: Handler,
    /// What becomes of a job after an attempt.
    pub policy: Policy,
    /// Attempts of it at once, at least 1.
    pub concurrency: usize,
}

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

/// The dispatcher has ended before it was stopped, which its log says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no job runs any more: the dispatcher has ended (restart the receiver; its log says why)")]
pub struct Ended;

impl Dispatcher {
    /// Starts it; returns at once. Needs a tokio runtime's context. It is the store's one listener,
    /// and the only one that claims. It connects to the runners that are needed, and tells `traffic` of every end of an attempt.
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
    /// These are the handlers from now on, within these limits. Returns once nothing more is claimed for the
    /// handlers before, and no job of a new one can be held for lack of its handler. Attempts go on as they
    /// were claimed. What becomes of a job after its attempt is decided by its handler as it is configured
    /// then, as after a restart; the jobs of a handler that was removed are held.
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

    /// Claims nothing more, waits for forwards up to `wait` or until `hurry` resolves (the operator's
    /// second signal), ends what is left of them then, and returns when every end that came is recorded.
    /// The store must be closed after it, not before.
    pub async fn stop(self, wait: Duration, hurry: impl Future<Output = ()>) {
        self.retention.abort();
        // Refused only where the flow has ended, which is found below.
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
