//! RESOLVE: the operator says how a held job ended. Its attempts keep their outcomes: what was
//! unknown stays so in the record.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::model::{DeadReason, JobId, State, Timestamp};

use super::accept::find_job;
use super::queue::Lane;
use super::types::Error;
use super::{Store, exactly_one};

/// What the operator found out about a held job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// What its handler should do is done.
    Succeeded,
    /// It is not done, and shall not be.
    Failed,
}

impl Resolution {
    /// The job's state after it, and the reason of that.
    fn after(self) -> (State, Option<DeadReason>) {
        match self {
            Resolution::Succeeded => (State::Succeeded, None),
            Resolution::Failed => (State::Dead, Some(DeadReason::Resolved)),
        }
    }
}

impl Store {
    /// RESOLVE: held to succeeded, or to dead. Returns the state after it; an error has changed
    /// nothing. Of several at once one does it, and the others find the job in another state.
    pub async fn resolve(&self, job: JobId, how: Resolution) -> Result<State, Error> {
        let clock = self.inner.clock.clone();
        self.submit(Lane::Verb, move |tx| resolve(tx, job, how, clock.now())).await?
    }
}

fn resolve(
    tx: &Connection,
    job: JobId,
    how: Resolution,
    now: Timestamp,
) -> rusqlite::Result<Result<State, Error>> {
    let (row, attempt) = match find_job(tx, job)? {
        None => return Ok(Err(Error::NoJob(job))),
        Some((row, State::Held, attempt, _)) => (row, attempt),
        Some((_, state, ..)) => {
            return Ok(Err(Error::WrongState { job, state, verb: "resolved" }));
        }
    };
    let (state, reason) = how.after();
    // From held after this attempt only.
    let moved = tx
        .prepare_cached(
            "UPDATE job SET state = ?3, reason = ?4, settled_at = ?5
             WHERE row = ?1 AND state = 'held' AND attempt = ?2",
        )?
        .execute(params![row, attempt, state.as_str(), reason.map(DeadReason::as_str), now.0])?;
    exactly_one(moved)?;
    Ok(Ok(state))
}
