//! The keys of requests and their answers: how they are stored, and what they say of a job.
//!
//! What must stay true: an answer is written once, by the transaction that settles its job (I1); the job of
//! a key that has none never becomes `succeeded`, or rejected by its handler, since its answer would be unknown; and
//! while a key is in use its event has this one job.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::model::{Digest, EventId, JobId, Name, Timestamp};
use crate::store::answer::{Fate, StoredAnswer};
use crate::store::border::{KeyRow, KeyState};
use crate::store::decide::key::{KeyOf, Repeat, repeat, unanswered};

use super::codec;
use super::codec::change_one;

/// Reads a row whose first columns are those of [`fate!`].
fn read_fate(row: &Row<'_>) -> rusqlite::Result<Fate> {
    if let Some(status) = row.get(2)? {
        let (headers, body) = (row.get(3)?, row.get(4)?);
        let body_bytes = usize::try_from(codec::count(row, 5)?).unwrap_or(usize::MAX);
        return Ok(Fate::Answered(StoredAnswer { status, headers, body, body_bytes }));
    }
    Ok(Fate::Other(unanswered(codec::text(row, 0)?, codec::maybe_text(row, 1)?)))
}

/// The columns of [`read_fate`]: of a job `j`, its last attempt `t`, and its event's key `a`.
macro_rules! fate {
    () => {
        "j.state, t.outcome, a.status, a.headers, a.body, a.body_bytes"
    };
}

/// A key that is in use.
#[derive(Debug, Clone)]
pub(crate) struct UsedKey {
    pub(crate) request: Digest,
    /// Its job's row.
    pub(crate) row: i64,
    pub(crate) job: JobId,
    pub(crate) fate: Fate,
}

impl UsedKey {
    /// What a request with this digest gets that has the key.
    pub(crate) fn repeat(&self, request: Digest) -> Repeat {
        repeat(request, self.request, matches!(self.fate, Fate::Other(KeyState::Failed)))
    }
}

/// The caller's key, where it is in use: also one that should have expired, until retention has deleted it.
pub(crate) fn find_key(
    conn: &Connection,
    source: &Name,
    caller: &str,
    key: &EventId,
) -> rusqlite::Result<Option<UsedKey>> {
    // By the unique (source, caller, key), and the job by its unique (event, handler).
    conn.prepare_cached(concat!(
        "SELECT ",
        fate!(),
        ", a.request, j.row, j.id
         FROM answer a JOIN job j ON j.event = a.event
             LEFT JOIN attempt t ON t.job = j.row AND t.number = j.attempt
         WHERE a.source = ?1 AND a.caller = ?2 AND a.key = ?3"
    ))?
    .query_row(params![source.as_str(), caller, codec::stored_id(key)], |row| {
        let (request, job) = (Digest(row.get(6)?), codec::job_id(row, 8)?);
        Ok(UsedKey { request, row: row.get(7)?, job, fate: read_fate(row)? })
    })
    .optional()
}

/// The state of a job; none if no job has this id.
pub(crate) fn find_fate(conn: &Connection, job: JobId) -> rusqlite::Result<Option<Fate>> {
    // By the unique id, and the key by its event.
    conn.prepare_cached(concat!(
        "SELECT ",
        fate!(),
        " FROM job j LEFT JOIN answer a ON a.event = j.event
             LEFT JOIN attempt t ON t.job = j.row AND t.number = j.attempt
         WHERE j.id = ?1"
    ))?
    .query_row([job.as_bytes()], read_fate)
    .optional()
}

/// Whether the event is a request whose key is in use, and whether it is answered. Nobody waits for one that is none.
pub(crate) fn key_of(tx: &Connection, event: i64) -> rusqlite::Result<KeyOf> {
    // By the primary keys.
    tx.prepare_cached(
        "SELECT e.has_key, a.event IS NOT NULL, a.answered_at IS NOT NULL
         FROM event e LEFT JOIN answer a ON a.event = e.row WHERE e.row = ?1",
    )?
    .query_row([event], |row| Ok(KeyOf::of(row.get(0)?, row.get(1)?, row.get(2)?)))
    .optional()
    .map(|key| key.unwrap_or(KeyOf::Nobody))
}

/// The event's key for people, where it has one.
pub(crate) fn key_row(conn: &Connection, event: i64) -> rusqlite::Result<Option<KeyRow>> {
    // By the primary key.
    conn.prepare_cached("SELECT * FROM answer WHERE event = ?1")?
        .query_row([event], |row| {
            let stored = row.get_ref("body")?.as_blob_or_null()?;
            let body = match stored {
                Some(stored) => codec::body(stored, row.get("body_bytes")?)?,
                None => None,
            };
            let damaged = stored.is_some() && body.is_none();
            let headers = row.get_ref("headers")?.as_blob_or_null()?.unwrap_or_default();
            let headers = codec::header_lines(headers);
            Ok(KeyRow { headers, body, damaged, ..codec::read(row)? })
        })
        .optional()
}

/// Writes the answer of the event's job, where its key waits for one. `is_error`: the job is dead with it, and
/// may run again once it is forgotten.
pub(crate) fn write(
    tx: &Connection,
    event: i64,
    answer: &StoredAnswer,
    is_error: bool,
    now: Timestamp,
) -> rusqlite::Result<()> {
    // Into an unanswered row only: what callers were told is never changed.
    change_one(
        tx,
        "UPDATE answer SET answered_at = ?2, status = ?3, headers = ?4, body = ?5, body_bytes = ?6,
                 error_until = CASE WHEN ?7 THEN ?2 + keep_errors END
             WHERE event = ?1 AND answered_at IS NULL",
        params![
            event,
            now.0,
            answer.status,
            answer.headers,
            answer.body,
            codec::size(answer.body_bytes),
            is_error,
        ],
    )
}

/// Frees the unanswered key of an event: the next request that has it is a new one.
pub(crate) fn free(tx: &Connection, event: i64) -> rusqlite::Result<()> {
    change_one(tx, "DELETE FROM answer WHERE event = ?1 AND answered_at IS NULL", [event])
}

/// Forgets the next answers that said "not now", and that were to be kept until before then: the same request
/// may have its job run again, which is the same job to its handler. A negative count is no limit. Returns how many.
pub(crate) fn forget_errors(
    tx: &Connection,
    before: Timestamp,
    count: i64,
) -> rusqlite::Result<usize> {
    // By the index of their times. The job is dead, by the completion that wrote the answer.
    tx.prepare_cached(
        "UPDATE answer SET answered_at = NULL, status = NULL, headers = NULL, body = NULL, body_bytes = NULL,
             error_until = NULL
         WHERE event IN (SELECT event FROM answer WHERE error_until < ?1 ORDER BY error_until LIMIT ?2)",
    )?
    .execute(params![before.0, count])
}
