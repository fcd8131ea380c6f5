//! SHOW: everything about the events with an id.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension};

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
    let bytes = usize::try_from(event.body_bytes).unwrap_or(0);
    let is_wanted = variant.is_none_or(|variant| variant == event.variant);
    // None once retention has deleted it.
    let payload = conn
        .prepare_cached("SELECT headers, CASE WHEN ?2 THEN body END FROM payload WHERE event = ?1")?
        .query_row((row, is_wanted), |found| {
            let headers = codec::header_lines(found.get_ref(0)?.as_blob()?);
            let Some(body) = found.get_ref(1)?.as_blob_or_null()? else {
                return Ok((headers, None));
            };
            let body = codec::decompress_now(body, bytes)
                .map_err(|error| codec::unreadable(1, Type::Blob, error))?;
            Ok((headers, Some(Blob(body))))
        })
        .optional()?;
    let (headers, body) = payload.unwrap_or_default();
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
    Ok(EventDetail { event, digest, headers, body, jobs, twins, restores, key })
}
