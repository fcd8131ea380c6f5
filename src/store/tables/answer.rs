//! The keys of requests and their answers: how they are stored, and what they say of a job.
//!
//! What must stay true: an answer is written once, by the transaction that settles its job (I1); the job of
//! a key that has none never becomes `succeeded`, or rejected by its handler, since its answer would be unknown; and
//! while a key is in use its event has this one job.

use std::io;

use bytes::Bytes;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::model::{Answer, Blob, Digest, EventId, Headers, JobId, Name, Timestamp};
use crate::store::border::{KeyRow, KeyState};
use crate::store::decide::key::{KeyOf, Repeat, repeat, unanswered};

use super::codec;
use super::codec::change_one;

/// An answer as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) body_bytes: usize,
}

impl StoredAnswer {
    /// The stored form, off the writer's thread.
    pub(crate) async fn of(answer: Answer) -> io::Result<StoredAnswer> {
        let Answer { status, headers, body } = answer;
        let (headers, body_bytes) = (headers.to_wire(), body.len());
        Ok(StoredAnswer { status, headers, body: codec::compress(body).await?, body_bytes })
    }

    /// The answer, byte for byte.
    async fn open(mut self) -> io::Result<Answer> {
        let body = codec::decompress(std::mem::take(&mut self.body), self.body_bytes).await?;
        Ok(self.with(body))
    }

    /// The same here and now; none where that would take long, or where it cannot be read.
    pub(crate) fn open_now(self) -> Option<Answer> {
        let short = self.body_bytes <= codec::INLINE_BYTES;
        let body = short.then(|| codec::decompress_now(&self.body, self.body_bytes).ok())??;
        Some(self.with(body))
    }

    fn with(self, body: Vec<u8>) -> Answer {
        let headers = Headers::from_wire(&self.headers);
        Answer { status: self.status, headers, body: Bytes::from(body) }
    }
}

/// The stored state of a job whose caller waits for an answer.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    Answered(StoredAnswer),
    /// Without an answer.
    Other(KeyState),
}

impl Fate {
    /// The same with its answer's body, which is got back off the caller's thread where it is large.
    pub(crate) async fn open(self) -> io::Result<KeyState> {
        match self {
            Fate::Answered(stored) => stored.open().await.map(KeyState::Answered),
            Fate::Other(state) => Ok(state),
        }
    }

    /// Of a row whose first columns are those of [`fate!`].
    fn read(row: &Row<'_>) -> rusqlite::Result<Fate> {
        if let Some(status) = row.get(2)? {
            let (headers, body) = (row.get(3)?, row.get(4)?);
            let body_bytes = usize::try_from(codec::count(row, 5)?).unwrap_or(usize::MAX);
            return Ok(Fate::Answered(StoredAnswer { status, headers, body, body_bytes }));
        }
        Ok(Fate::Other(unanswered(codec::text(row, 0)?, codec::maybe_text(row, 1)?)))
    }
}

/// What an answer's error says where its body cannot be got back.
pub(crate) fn unreadable(error: &io::Error) -> String {
    format!("the stored answer cannot be read: {error}")
}

/// The columns of [`Fate::read`]: of a job `j`, its last attempt `t`, and its event's key `a`.
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
        Ok(UsedKey { request, row: row.get(7)?, job, fate: Fate::read(row)? })
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
    .query_row([job.as_bytes()], Fate::read)
    .optional()
}

/// Whether the event is a request whose key is in use, and whether it is answered.
pub(crate) fn key_of(tx: &Connection, event: i64) -> rusqlite::Result<KeyOf> {
    // By the primary keys.
    tx.prepare_cached(
        "SELECT e.has_key, a.event IS NOT NULL, a.answered_at IS NOT NULL
         FROM event e LEFT JOIN answer a ON a.event = e.row WHERE e.row = ?1",
    )?
    .query_row([event], |row| Ok(KeyOf::of(row.get(0)?, row.get(1)?, row.get(2)?)))
}

/// The event's key for people, where it has one.
pub(crate) fn key_row(conn: &Connection, event: i64) -> rusqlite::Result<Option<KeyRow>> {
    // By the primary key.
    conn.prepare_cached(
        "SELECT caller, request, created_at, expires_at, answered_at, status, headers, body, body_bytes,
             error_until
         FROM answer WHERE event = ?1",
    )?
    .query_row([event], |row| {
        let body = match row.get_ref(7)?.as_blob_or_null()? {
            Some(body) => {
                let bytes = usize::try_from(codec::count(row, 8)?).unwrap_or(usize::MAX);
                let body = codec::decompress_now(body, bytes);
                Some(Blob(body.map_err(|error| codec::unreadable(7, Type::Blob, error))?))
            }
            None => None,
        };
        Ok(KeyRow {
            caller: row.get(0)?,
            request: Digest(row.get(1)?).to_string(),
            created_at: codec::time(row, 2)?,
            expires_at: codec::time(row, 3)?,
            answered_at: codec::maybe_time(row, 4)?,
            error_until: codec::maybe_time(row, 9)?,
            status: row.get(5)?,
            headers: codec::header_lines(row.get_ref(6)?.as_blob_or_null()?.unwrap_or_default()),
            body,
        })
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
