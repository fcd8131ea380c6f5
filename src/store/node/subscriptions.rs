//! Subscriptions to a job's final state. The writer notifies them after the flush.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::model::JobId;
use crate::store::mutex::lock;

#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<JobId, watch::Sender<()>>>);

/// Ends when it is dropped.
pub(crate) struct Subscription {
    subscriptions: Arc<Subscriptions>,
    job: JobId,
    ended: watch::Receiver<()>,
}

impl Subscriptions {
    /// Notifies of the end of an attempt of this job.
    pub(crate) fn notify(&self, job: JobId) {
        if let Some(subscribed) = lock(&self.0).get(&job) {
            subscribed.send_replace(());
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    pub(crate) fn subscribe(self: &Arc<Self>, job: JobId) -> Subscription {
        let ended = lock(&self.0).entry(job).or_default().subscribe();
        Subscription { subscriptions: Arc::clone(self), job, ended }
    }
}

impl Subscription {
    /// Waits for the end of an attempt since the last call.
    pub(crate) async fn changed(&mut self) {
        // The sender stays in the map as long as this subscription.
        let _ = self.ended.changed().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscriptions = lock(&self.subscriptions.0);
        // The only receiver left is this one.
        if subscriptions.get(&self.job).is_some_and(|subscribed| subscribed.receiver_count() == 1) {
            subscriptions.remove(&self.job);
        }
    }
}
