//! The dispatcher's handle: what `serve` reloads and stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::limits::Limits;

use super::worker::Worker;

/// A running dispatcher. Dropping it stops nothing.
#[derive(Debug)]
pub struct Dispatcher {
    pub(super) stop: oneshot::Sender<Duration>,
    pub(super) hurry: Arc<Notify>,
    pub(super) flow: JoinHandle<()>,
    pub(super) retention: JoinHandle<()>,
    pub(super) reloads: mpsc::Sender<Reload>,
    pub(super) limits: watch::Sender<Limits>,
}

/// A new configuration of the handlers.
#[derive(Debug)]
pub(super) struct Reload {
    pub(super) workers: Vec<Worker>,
    pub(super) limits: Limits,
    /// Notified once it is in force.
    pub(super) done: oneshot::Sender<()>,
}

/// The dispatcher has ended before it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no job runs any more: the dispatcher has ended (restart the receiver; its log says why)")]
pub struct Ended;

impl Dispatcher {
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
