//! The row of a job: makes it, and finds it by its id.

use rusqlite::{Connection, OptionalExtension, params};

use crate::model::{HeldReason, JobId, Name, State, Timestamp};

use super::codec::{self, change_one};

/// Makes a job that is `ready`, or `held` for a reason. Returns its id.
pub(crate) fn insert_job(
    tx: &Connection,
    event: i64,
    handler: &Name,
    state: State,
    reason: Option<HeldReason>,
    now: Timestamp,
) -> rusqlite::Result<JobId> {
    let job = crate::random::job_id(now);
    // One job per event and handler: the unique index refuses a second.
    tx.prepare_cached(
        "INSERT INTO job (id, event, handler, state, reason, since, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
    )?
    .execute(params![
        job.as_bytes(),
        event,
        handler.as_str(),
        state.as_str(),
        reason.map(HeldReason::as_str),
        now.0,
    ])?;
    Ok(job)
}

/// The job's row number, state, attempt and event, by its id.
pub(crate) fn find_job(
    tx: &Connection,
    job: JobId,
) -> rusqlite::Result<Option<(i64, State, u32, i64)>> {
    // By the unique id.
    tx.prepare_cached("SELECT row, state, attempt, event FROM job WHERE id = ?1")?
        .query_row([job.as_bytes()], |row| {
            Ok((row.get(0)?, codec::text(row, 1)?, row.get(2)?, row.get(3)?))
        })
        .optional()
}

/// Whether a job had this key before it was put back under another.
pub(crate) fn was_key(tx: &Connection, job: JobId) -> rusqlite::Result<bool> {
    // By the primary key.
    tx.prepare_cached("SELECT 1 FROM former_key WHERE id = ?1")?.exists([job.as_bytes()])
}

/// Back to ready, for another attempt.
pub(crate) fn put_back(tx: &Connection, row: i64, now: Timestamp) -> rusqlite::Result<()> {
    // From these three states only; attempts are counted anew and their numbers go on.
    change_one(
        tx,
        "UPDATE job SET state = 'ready', reason = NULL, due_at = NULL, settled_at = NULL,
                 counted = 0, since = ?2, replays = replays + 1
             WHERE row = ?1 AND state IN ('held', 'dead', 'succeeded')",
        params![row, now.0],
    )
}
