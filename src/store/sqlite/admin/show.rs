//! SHOW: everything about the events with an id.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension};

use crate::model::{Blob, EventId, Name};
use crate::store::border::{
    AttemptRow, Error, EventDetail, FormerKey, JobDetail, JobRow, OutputExcerpt, Record, Usage,
};
use crate::store::decide::listing::ListedEvent;
use crate::store::sqlite::tables::{answer, codec, replay_index, restored};

use super::handle::Admin;
use super::list::{EVENT, JOB, event_row, find_by_id, job_row, with_jobs};

impl Admin {
    pub async fn show(
        &self,
        source: Option<Name>,
        event: EventId,
        variant: Option<u32>,
    ) -> Result<Vec<EventDetail>, Error> {
        self.engine
            .read(move |conn| {
                let events = find_by_id(conn, source, &event, (EVENT, event_row))?;
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
        .prepare_cached("SELECT headers, body FROM payload WHERE event = ?1 AND ?2")?
        .query_row((row, is_wanted), |found| {
            let body = codec::decompress_now(found.get_ref(1)?.as_blob()?, bytes)
                .map_err(|error| codec::unreadable(1, Type::Blob, error))?;
            Ok((codec::header_lines(found.get_ref(0)?.as_blob()?), Blob(body)))
        })
        .optional()?;
    let (headers, body) = payload.unzip();
    // Its jobs in the order of their making.
    let jobs = conn
        .prepare_cached(&format!("{JOB} WHERE j.event = ?1 ORDER BY j.row"))?
        .query_map([row], |found| Ok((job_row(found)?, found.get("row")?)))?
        .collect::<rusqlite::Result<Vec<(JobRow, i64)>>>()?;
    let jobs = jobs
        .into_iter()
        .map(|(job, row)| {
            let (attempts, former_keys) = (attempts(conn, row)?, former_keys(conn, row)?);
            Ok(JobDetail { job, attempts, former_keys })
        })
        .collect::<rusqlite::Result<_>>()?;
    let twins = replay_index::twins(conn, &event.source, digest, row)?;
    // Those of a backup in which the event was.
    let restores = restored::restores(conn, event.received_at, None)?;
    let (headers, key) = (headers.unwrap_or_default(), answer::key_row(conn, row)?);
    let digest = digest.to_string();
    Ok(EventDetail { event, digest, headers, body, jobs, twins, restores, key })
}

fn former_keys(conn: &Connection, job: i64) -> rusqlite::Result<Vec<FormerKey>> {
    // All that the job ever had but its present one; two are never replaced after the same attempt
    // at the same moment, and keys are in the order of their making.
    conn.prepare_cached(
        "SELECT id, attempt, replaced_at FROM former_key WHERE job = ?1 ORDER BY attempt, id",
    )?
    .query_map([job], |row| {
        Ok(FormerKey {
            key: codec::job_id(row, 0)?,
            attempt: row.get(1)?,
            replaced_at: codec::time(row, 2)?,
        })
    })?
    .collect()
}

fn attempts(conn: &Connection, job: i64) -> rusqlite::Result<Vec<AttemptRow>> {
    // All attempts of one job by number.
    conn.prepare_cached(
        "SELECT number, started_at, finished_at, outcome, detail, exit_code, signal, http_status,
             stdout_head, stdout_tail, stdout_total, stderr_head, stderr_tail, stderr_total,
             cpu_millis, memory_bytes
         FROM attempt WHERE job = ?1 ORDER BY number",
    )?
    .query_map([job], |row| {
        let captured = |from: usize| {
            Ok::<_, rusqlite::Error>(OutputExcerpt {
                head: Blob(row.get(from)?),
                tail: Blob(row.get(from + 1)?),
                total: codec::count(row, from + 2)?,
            })
        };
        let usage = match row.get::<_, Option<i64>>(14)? {
            Some(_) => {
                let (cpu_millis, memory_bytes) = (codec::count(row, 14)?, codec::count(row, 15)?);
                Some(Usage { cpu_millis, memory_bytes })
            }
            None => None,
        };
        Ok(AttemptRow {
            number: row.get(0)?,
            started_at: codec::time(row, 1)?,
            finished_at: codec::maybe_time(row, 2)?,
            outcome: codec::maybe_text(row, 3)?,
            record: Record {
                ended_at: None,
                detail: row.get(4)?,
                exit_code: row.get(5)?,
                signal: row.get(6)?,
                http_status: row.get(7)?,
                stdout: captured(8)?,
                stderr: captured(11)?,
                usage,
            },
            late_end: None,
        })
    })?
    .collect()
}
