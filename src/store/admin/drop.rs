//! DROP: the operator takes a job out. A running one is never dropped: its attempt would end unseen
//! (R19). Only after it may retention delete the payload of a dead or held job (S12).

use rusqlite::{Connection, params};

use crate::model::{DropReason, JobId, State, Timestamp};
use crate::store::engine::queue::Priority;
use crate::store::tables::codec::exactly_one;
use crate::store::tables::job::find_job;
use crate::store::types::Error;

use super::handle::Admin;

impl Admin {
    /// DROP: ready, waiting, held or dead to dropped. Returns the state it was in; an error has
    /// changed nothing.
    pub async fn drop_job(&self, job: JobId) -> Result<State, Error> {
        let clock = self.engine.clock.clone();
        self.engine.submit(Priority::Verb, move |tx| drop_job(tx, job, clock.now())).await?
    }
}

fn can_be_dropped(state: State) -> bool {
    matches!(state, State::Ready | State::Waiting | State::Held | State::Dead)
}

fn drop_job(tx: &Connection, job: JobId, now: Timestamp) -> rusqlite::Result<Result<State, Error>> {
    let (row, state, attempt) = match find_job(tx, job)? {
        None => return Ok(Err(Error::NoJob(job))),
        Some((row, state, attempt, _)) => (row, state, attempt),
    };
    if !can_be_dropped(state) {
        return Ok(Err(Error::WrongState { job, state, verb: "dropped" }));
    }
    take_out(tx, row, state, attempt, now)?;
    Ok(Ok(state))
}

/// Drops the job in `row`, which the caller found in this state after this attempt.
pub(crate) fn take_out(
    tx: &Connection,
    row: i64,
    state: State,
    attempt: u32,
    now: Timestamp,
) -> rusqlite::Result<()> {
    // From the state just read, after this attempt, and from none that runs or has succeeded.
    let moved = tx
        .prepare_cached(
            "UPDATE job SET state = 'dropped', reason = ?4, due_at = NULL, settled_at = ?5
             WHERE row = ?1 AND state = ?2 AND attempt = ?3
               AND state IN ('ready', 'waiting', 'held', 'dead')",
        )?
        .execute(params![row, state.as_str(), attempt, DropReason::Operator.as_str(), now.0])?;
    exactly_one(moved)
}
