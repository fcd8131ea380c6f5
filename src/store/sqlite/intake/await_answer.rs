//! AWAIT: waits for the answer to a stored request.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::model::JobId;
use crate::store::answer::{Fate, unreadable};
use crate::store::border::{KeyState, Refused};
use crate::store::sqlite::tables::answer::find_fate;

use super::handle::Intake;

/// The pause between two looks of a caller who has not been notified: if a job is settled without a notification, the
/// caller learns of it after that time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Intake {
    pub async fn await_answer(&self, job: JobId, wait: Duration) -> Result<KeyState, Refused> {
        let deadline = Instant::now() + wait;
        // Subscribes before it reads: a commit in between notifies it.
        let mut waiting = self.subscriptions.subscribe(job);
        loop {
            let found = self.engine.keys.look(|conn| find_fate(conn, job));
            let left = deadline.saturating_duration_since(Instant::now());
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
            let _ = timeout(left.min(LOOK_AGAIN), waiting.changed()).await;
        }
    }
}
