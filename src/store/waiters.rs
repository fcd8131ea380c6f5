//! Who waits for a job to come to rest. Told by the writer, after the flush.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::model::JobId;

use super::answer::{Fate, find_fate, unreadable};
use super::types::{KeyState, Refused};
use super::{Intake, lock};

/// Between two looks of one who has heard nothing: what settles a job without telling costs that much.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Waiters(Mutex<HashMap<JobId, watch::Sender<()>>>);

/// One who waits; dropping it is the end of that.
struct Waiting {
    waiters: Arc<Waiters>,
    job: JobId,
    told: watch::Receiver<()>,
}

impl Waiters {
    /// An attempt of this job has ended.
    pub(super) fn tell(&self, job: JobId) {
        if let Some(waiting) = lock(&self.0).get(&job) {
            waiting.send_replace(());
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    fn wait(self: &Arc<Self>, job: JobId) -> Waiting {
        let told = lock(&self.0).entry(job).or_default().subscribe();
        Waiting { waiters: Arc::clone(self), job, told }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiters = lock(&self.waiters.0);
        // It is the last one where there is no other than its own.
        if waiters.get(&self.job).is_some_and(|waiting| waiting.receiver_count() == 1) {
            waiters.remove(&self.job);
        }
    }
}

impl Intake {
    /// Waits until the job of a key does not run any more and is not to run, at most `wait`, and says what
    /// has become of it. What it says is flushed (I1).
    ///
    /// # Errors
    /// Where there is no such job, or where the store could not be read until the end.
    pub async fn await_answer(&self, job: JobId, wait: Duration) -> Result<KeyState, Refused> {
        let until = Instant::now() + wait;
        // First this, then the look: what is committed in between is told.
        let mut waiting = self.waiters.wait(job);
        loop {
            let found = self.engine.keys.look(|conn| find_fate(conn, job));
            let left = until.saturating_duration_since(Instant::now());
            match found {
                Ok(None) => return Err(Refused::Failed(format!("no such job: {job}"))),
                Ok(Some(Fate::Other(KeyState::Pending))) if left.is_zero() => {
                    return Ok(KeyState::Pending);
                }
                Ok(Some(Fate::Other(KeyState::Pending))) => {}
                Ok(Some(fate)) => {
                    let opened = fate.open().await;
                    return opened.map_err(|error| Refused::Failed(unreadable(&error)));
                }
                // Closed for repair, or for good.
                Err(error) if left.is_zero() || self.engine.queue.is_closed() => {
                    self.engine.queue.door()?;
                    return Err(Refused::Degraded(error.to_string()));
                }
                Err(_) => {}
            }
            // An elapsed time says no more than a word.
            let _ = timeout(left.min(LOOK_AGAIN), waiting.told.changed()).await;
        }
    }
}
