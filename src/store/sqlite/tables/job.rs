//! The row of a job: makes it, finds it by its id, and puts it back.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::model::{HeldReason, JobId, Name, Timestamp};
use crate::store::border::NewJob;
use crate::store::decide::group::keeps_place;
use crate::store::decide::job_move::FoundJob;
use crate::store::decide::new_job;

use super::codec::{self, change_one};
use super::group;

/// Makes a job of an event: `held` for a reason, or because it cannot be decided. Else it takes the place of older
/// events' jobs of its group, where the latest wins, and is `ready`, or waits for its delay. Returns its id.
pub(crate) fn insert_job(
    tx: &Connection,
    event: i64,
    job: &NewJob,
    held: Option<HeldReason>,
    now: Timestamp,
) -> rusqlite::Result<JobId> {
    let id = crate::random::job_id(now);
    let held = new_job::held(job, held);
    let first = match held {
        None => group::supersede(tx, (id, event), job, now)?,
        Some(_) => None,
    };
    let start = new_job::start(held, job.delay, first, now);
    // One job per event and handler: the unique index refuses a second.
    tx.prepare_cached(
        "INSERT INTO job (id, event, handler, state, reason, detail, since, created_at, due_at, due_from,
             wait_since, group_key, group_rule, behind)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?8, ?10, ?11, ?12,
             ?13 AND EXISTS (SELECT 1 FROM job INDEXED BY job_holder WHERE handler = ?3 AND group_key = ?11 AND holds = 1 AND behind = 0))",
    )?
    .execute(params![
        id.as_bytes(),
        event,
        job.handler.as_str(),
        start.state.as_str(),
        held.map(HeldReason::as_str),
        job.undecided,
        start.since.0,
        now.0,
        start.due_at.map(|due| due.0),
        start.wait_since.map(|since| since.0),
        job.group.as_ref().map(|group| group.key.as_str()),
        job.group.as_ref().map(|group| group.rule.as_str()),
        job.group.as_ref().is_some_and(|group| keeps_place(group.rule, held)),
    ])?;
    Ok(id)
}

impl FoundJob {
    /// The first columns of [`FoundJob::read`], of a job `j`.
    pub(crate) const COLUMNS: &str =
        "j.row, j.id, j.event, j.handler, j.state, j.attempt, j.group_key IS NOT NULL,
        j.state = 'held' AND j.attempt = 0 AND j.detail IS NOT NULL";

    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<FoundJob> {
        Ok(FoundJob {
            row: row.get(0)?,
            job: codec::job_id(row, 1)?,
            event: row.get(2)?,
            handler: codec::text(row, 3)?,
            state: codec::text(row, 4)?,
            attempt: row.get(5)?,
            grouped: row.get(6)?,
            undecided: row.get(7)?,
        })
    }

    pub(crate) fn find(tx: &Connection, job: JobId) -> rusqlite::Result<Option<FoundJob>> {
        // By the unique id.
        tx.prepare_cached(&format!("SELECT {} FROM job j WHERE id = ?1", FoundJob::COLUMNS))?
            .query_row([job.as_bytes()], FoundJob::read)
            .optional()
    }

    /// The event's jobs, or its one job of this handler.
    pub(crate) fn of_event(
        tx: &Connection,
        event: i64,
        handler: Option<&Name>,
    ) -> rusqlite::Result<Vec<FoundJob>> {
        tx.prepare_cached(&format!(
            "SELECT {} FROM job j WHERE event = ?1 AND (?2 IS NULL OR handler = ?2) ORDER BY row",
            FoundJob::COLUMNS
        ))?
        .query_map(params![event, handler.map(Name::as_str)], FoundJob::read)?
        .collect()
    }
}

/// Whether a job had this key before it was put back under another.
pub(crate) fn was_key(tx: &Connection, job: JobId) -> rusqlite::Result<bool> {
    // By the primary key.
    tx.prepare_cached("SELECT 1 FROM former_key WHERE id = ?1")?.exists([job.as_bytes()])
}

/// The handlers that have ready or waiting jobs. This is asked at each tick, and a million jobs may wait: one
/// look-up each in the indexes of such jobs leads from one handler to the next.
pub(crate) fn handlers_with_work(tx: &Connection) -> rusqlite::Result<BTreeSet<Name>> {
    let mut found = BTreeSet::new();
    for next in [
        "SELECT min(handler) FROM job WHERE state = 'ready' AND handler > ?1",
        "SELECT min(handler) FROM job WHERE state = 'waiting' AND handler > ?1",
    ] {
        found.extend(codec::names(tx, next)?);
    }
    Ok(found)
}

/// Puts a job back to ready, for another attempt; behind the job that holds its group, where another one does.
pub(crate) fn put_back(tx: &Connection, row: i64, now: Timestamp) -> rusqlite::Result<()> {
    // From these three states only; attempts are counted anew and their numbers go on.
    change_one(
        tx,
        "UPDATE job SET state = 'ready', reason = NULL, detail = NULL, due_at = NULL, settled_at = NULL,
                 counted = 0, since = ?2, replays = replays + 1, wait_since = NULL,
                 behind = group_key IS NOT NULL AND EXISTS (SELECT 1 FROM job h INDEXED BY job_holder WHERE h.handler = job.handler
                     AND h.group_key = job.group_key AND h.holds = 1 AND h.behind = 0 AND h.row <> job.row)
             WHERE row = ?1 AND state IN ('held', 'dead', 'succeeded')",
        params![row, now.0],
    )
}
