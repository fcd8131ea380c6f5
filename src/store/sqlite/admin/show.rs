//! SHOW: everything about the events with an id.

use rusqlite::{Connection, ErrorCode, OptionalExtension};

use crate::model::{Blob, EventId, Name};
use crate::store::border::{Error, EventDetail, JobDetail, JobRow};
use crate::store::columns::Numbered;
use crate::store::decide::listing::ListedEvent;
use crate::store::sqlite::tables::{answer, codec, replay_index, restored};

use super::handle::Admin;
use super::list::{EVENT, JOB, find_by_id, with_jobs};

/// All that the job ever had but its present one; two are never replaced after the same attempt at the same moment, and
/// keys are in the order of their making.
const FORMER_KEYS: &str =
    "SELECT id AS key, attempt, replaced_at FROM former_key WHERE job = ?1 ORDER BY attempt, id";

/// All attempts of one job by number.
const ATTEMPTS: &str = "SELECT *, NULL AS late_outcome, NULL AS late_detail, NULL AS received_at
    FROM attempt WHERE job = ?1 ORDER BY number";

impl Admin {
    pub async fn show(
        &self,
        source: Option<Name>,
        event: EventId,
        variant: Option<u32>,
    ) -> Result<Vec<EventDetail>, Error> {
        self.engine
            .read(move |conn| {
                let events = find_by_id(conn, source, &event, (EVENT, codec::read))?;
                events.into_iter().map(|event| detail(conn, event, variant)).collect()
            })
            .await
    }
}

fn detail(
    conn: &Connection,
    listed: ListedEvent,
    variant: Option<u32>,
) -> rusqlite::Result<EventDetail> {
    let (row, digest) = (listed.row, listed.digest);
    let event = with_jobs(conn, listed)?;
    let is_wanted = variant.is_none_or(|variant| variant == event.variant);
    // None once retention has deleted it.
    let headers = conn
        .prepare_cached("SELECT headers FROM payload WHERE event = ?1")?
        .query_row([row], |found| Ok(codec::header_lines(found.get_ref(0)?.as_blob()?)))
        .optional()?;
    let is_read = is_wanted && headers.is_some();
    let body = if is_read { body(conn, row, codec::size(event.body_bytes))? } else { None };
    let damaged = is_read && body.is_none();
    let headers = headers.unwrap_or_default();
    // Its jobs in the order of their making.
    let select = format!("{JOB} WHERE j.event = ?1 ORDER BY j.row");
    let jobs: Vec<Numbered<JobRow>> = codec::all(conn, &select, [row])?;
    let jobs = jobs
        .into_iter()
        .map(|Numbered { row, of: job }| {
            let attempts = codec::all(conn, ATTEMPTS, [row])?;
            let former_keys = codec::all(conn, FORMER_KEYS, [row])?;
            Ok(JobDetail { job, attempts, former_keys })
        })
        .collect::<rusqlite::Result<_>>()?;
    let twins = replay_index::twins(conn, &event.source, digest, row)?;
    // Those of a backup in which the event was.
    let restores = restored::restores(conn, event.received_at, None)?;
    let key = answer::key_row(conn, row)?;
    let digest = digest.to_string();
    Ok(EventDetail { event, digest, headers, body, damaged, jobs, twins, restores, key })
}

/// The body of a kept payload; `None` where it is damaged.
fn body(conn: &Connection, event: i64, bytes: i64) -> rusqlite::Result<Option<Blob>> {
    // By the primary key.
    let found = conn
        .prepare_cached("SELECT body FROM payload WHERE event = ?1")?
        .query_row([event], |found| codec::body(found.get_ref(0)?.as_blob()?, bytes));
    match found {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => Ok(None),
        found => found,
    }
}
