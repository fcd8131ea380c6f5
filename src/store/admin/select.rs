//! REPLAY and DROP of many: first which jobs are meant, then batch by batch what was chosen.
//!
//! The choice is a read that the operator confirms. Each batch is one transaction, so accepts wait no
//! longer than for a usual one, and takes nothing but what was chosen: a job that is not in the same
//! state after the same attempt any more is passed over and counted. Where the caller breaks off,
//! what is done is done, and the same choice again finds the rest.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use crate::model::{HeldReason, JobId, Name, State, Timestamp};
use crate::store::engine::queue::Priority;
use crate::store::rows::JobFilter;
use crate::store::tables::answer::key_of;
use crate::store::tables::codec;
use crate::store::tables::job::put_back;
use crate::store::types::Error;

use super::drop::take_out;
use super::handle::Admin;
use super::list::Clauses;

/// Jobs read at once while they are chosen.
const PAGE: usize = 1_000;

/// Most jobs of one batch: a transaction no longer than those that accepts are used to, and a request
/// that fits into `control_request_bytes`.
pub const BATCH_COUNT: usize = 200;

/// What is done to many jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Held or dead to ready.
    Replay,
    /// Held or dead to dropped.
    Drop,
}

/// Which jobs are meant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Select {
    /// Its state must be held or dead; its limit has no meaning here.
    pub filter: JobFilter,
    /// Where the last answer said to go on; the beginning otherwise.
    pub after: Option<Cursor>,
    /// For a replay: what a person has to look at first is left out unless its reason is named.
    pub verb: Verb,
}

/// A place in the walk over the jobs: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(i64);

/// One chosen job, as it was when it was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    pub job: JobId,
    /// Its last attempt.
    pub attempt: u32,
    pub handler: Name,
}

/// The next of the jobs that are meant.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Selected {
    /// Oldest first.
    pub jobs: Vec<Chosen>,
    /// Left out: suspected replays and reused ids, which might be forged.
    pub suspected: u64,
    /// Left out of a replay: they have answered their callers, who get those answers again.
    #[serde(default)]
    pub answered: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<Cursor>,
}

/// A batch of chosen jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Batch {
    /// What is done to them.
    pub verb: Verb,
    /// The state they were chosen in: held or dead.
    pub state: State,
    /// At most [`BATCH_COUNT`], each with its last attempt when it was chosen.
    pub jobs: Vec<(JobId, u32)>,
}

/// What came of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Jobs put back or dropped, by handler.
    pub done: BTreeMap<Name, u64>,
    /// Passed over: in another state, after another attempt, answered, or gone.
    pub changed: u64,
    /// Passed over: retention has deleted the payload.
    pub payload_gone: u64,
}

impl Admin {
    /// The next jobs that a bulk verb means. Call again with the answer's `next` until there is none.
    pub async fn select(&self, ask: Select) -> Result<Selected, Error> {
        self.engine.list(codec::size(PAGE), move |conn| select(conn, &ask)).await
    }

    /// REPLAY or DROP of a batch, in one transaction. What has changed since it was chosen is left as
    /// it is.
    pub async fn move_batch(&self, batch: Batch) -> Result<Moved, Error> {
        let clock = self.engine.clock.clone();
        Ok(self
            .engine
            .submit(Priority::Verb, move |tx| move_batch(tx, &batch, clock.now()))
            .await?)
    }
}

fn select(conn: &Connection, ask: &Select) -> rusqlite::Result<Selected> {
    let mut clauses = Clauses::default();
    clauses.job(conn, &ask.filter)?;
    // Only these two wait for a person; each has an index by row.
    clauses.raw("j.state IN ('held', 'dead')");
    clauses.after("j.row", ask.after.map(|cursor| cursor.0));
    // The next in the order of their making, so that a page ends where the following one begins.
    let sql = format!(
        "SELECT j.row, j.id, j.attempt, j.handler, coalesce(j.reason, ''), j.event FROM job j
         JOIN event e ON e.row = j.event {} ORDER BY j.row LIMIT {PAGE}",
        clauses.sql()
    );
    let found = conn
        .prepare_cached(&sql)?
        .query_map(clauses.values().as_slice(), |row| {
            let chosen = Chosen {
                job: codec::job_id(row, 1)?,
                attempt: row.get(2)?,
                handler: codec::text(row, 3)?,
            };
            Ok((row.get(0)?, chosen, row.get(4)?, row.get(5)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, Chosen, String, i64)>>>()?;
    let mut selected = Selected::default();
    if found.len() == PAGE {
        selected.next = found.last().map(|(row, ..)| Cursor(*row));
    }
    let guarded = ask.verb == Verb::Replay && ask.filter.reason.is_none();
    for (_, chosen, reason, event) in found {
        if guarded && is_suspected(&reason) {
            selected.suspected += 1;
        } else if ask.verb == Verb::Replay && !key_of(conn, event)?.may_run() {
            selected.answered += 1;
        } else {
            selected.jobs.push(chosen);
        }
    }
    Ok(selected)
}

/// Whether what is held so may be a forgery: it must not run because others are put back.
fn is_suspected(reason: &str) -> bool {
    [HeldReason::SuspectedReplay, HeldReason::IdReused].iter().any(|held| held.as_str() == reason)
}

/// A job of a batch as it is now.
struct Found {
    row: i64,
    event: i64,
    handler: Name,
    state: State,
    attempt: u32,
    payload_kept: bool,
}

fn move_batch(tx: &Connection, batch: &Batch, now: Timestamp) -> rusqlite::Result<Moved> {
    let mut moved = Moved::default();
    for (job, attempt) in batch.jobs.iter().take(BATCH_COUNT) {
        let found = find(tx, *job)?.filter(|found| {
            found.state == batch.state
                && found.attempt == *attempt
                && matches!(found.state, State::Held | State::Dead)
        });
        let Some(found) = found else {
            moved.changed += 1;
            continue;
        };
        match batch.verb {
            Verb::Replay if !found.payload_kept => {
                moved.payload_gone += 1;
                continue;
            }
            Verb::Replay if !key_of(tx, found.event)?.may_run() => {
                moved.changed += 1;
                continue;
            }
            Verb::Replay => put_back(tx, found.row, now)?,
            Verb::Drop => take_out(tx, found.row, found.state, found.attempt, now)?,
        }
        *moved.done.entry(found.handler).or_default() += 1;
    }
    Ok(moved)
}

fn find(tx: &Connection, job: JobId) -> rusqlite::Result<Option<Found>> {
    // By the unique id.
    tx.prepare_cached(
        "SELECT row, event, handler, state, attempt,
             EXISTS (SELECT 1 FROM payload WHERE payload.event = job.event)
         FROM job WHERE id = ?1",
    )?
    .query_row(params![job.as_bytes()], |row| {
        Ok(Found {
            row: row.get(0)?,
            event: row.get(1)?,
            handler: codec::text(row, 2)?,
            state: codec::text(row, 3)?,
            attempt: row.get(4)?,
            payload_kept: row.get(5)?,
        })
    })
    .optional()
}
