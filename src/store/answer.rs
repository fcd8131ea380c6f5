//! ANSWERS: the keys of requests, and what was answered under them.

use std::time::Duration;

use crate::model::{Digest, EventId, JobId, Name};

use super::Store;
use super::types::{Ask, Asked, KeyState, Refused};

impl Store {
    /// ASK: the event, its job and the key in one transaction where the key is new; the job put back where
    /// its last run is known to have failed; else what is known of the key. Returns after the flush, as
    /// [`Store::accept`] does.
    pub async fn ask(&self, ask: Ask) -> Result<Asked, Refused> {
        let _ = ask;
        Err(Refused::Failed("not yet".to_owned()))
    }

    /// What is known of a key that was used before, by a look at flushed commits: nothing to be written, and
    /// no queue. None where [`Store::ask`] has something to do, or where the store cannot be read.
    pub fn known_key(
        &self,
        source: &Name,
        caller: &str,
        key: &EventId,
        request: Digest,
    ) -> Option<Asked> {
        let _ = (source, caller, key, request);
        None
    }

    /// Waits until the job of a key does not run any more and is not to run, at most `wait`, and says what
    /// has become of it.
    pub async fn await_answer(&self, job: JobId, wait: Duration) -> Result<KeyState, Refused> {
        let _ = (job, wait);
        Err(Refused::Failed("not yet".to_owned()))
    }
}
