//! SHOW: everything about the events with an id.

use std::collections::HashMap;

use tokio_postgres::Row;

use crate::model::{Blob, EventId, Name, Timestamp};
use crate::store::border::{
    AttemptRow, Error, EventDetail, FormerKey, JobDetail, JobRow, KeyRow, OutputExcerpt, Record,
    RestoredRow, SameBodyEvent, Usage,
};
use crate::store::codec;

use super::super::columns::{Columns, unreadable};
use super::super::reader::Reading;
use super::find::sources;
use super::handle::Admin;
use super::rows::{
    ListedEvent, event_columns, event_row, job_columns, job_joins, job_row, with_jobs,
};

/// An event's variants, the first one first, of source $1 or of all. By the unique (source, id, variant), which cannot
/// find an id without its source.
const EVENTS: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM ",
    sources!(),
    " JOIN event e ON e.source = s.source AND e.event_id = $2 ORDER BY e.source, e.variant"
);

/// None once retention has deleted it.
const PAYLOAD: &str = "SELECT headers, body FROM payload WHERE event = $1";

/// In the order of their making.
const JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM job j",
    job_joins!(),
    "WHERE j.event = $1 ORDER BY j.row"
);

const ATTEMPTS: &str = "
    SELECT job, number, started_at, finished_at, outcome, detail, exit_code, signal, http_status,
        stdout_head, stdout_tail, stdout_total, stderr_head, stderr_tail, stderr_total, cpu_millis, memory_bytes
    FROM attempt WHERE job = ANY ($1) ORDER BY job, number";

/// All that the jobs ever had but their present ones; two are never replaced after the same attempt at the same moment,
/// and keys are in the order of their making.
const FORMER_KEYS: &str = "SELECT job, id, attempt, replaced_at FROM former_key WHERE job = ANY ($1) ORDER BY attempt, id";

/// The oldest events other than $3 with the body of digest $2: the first one, and of those that repeat it the oldest
/// of 1,000. None where the guard does not look at $3.
const TWINS: &str = "
    SELECT event_id, type, received_at FROM (
        (SELECT * FROM event WHERE source = $1 AND digest = $2 AND guarded AND NOT repeated)
        UNION ALL (SELECT * FROM event WHERE source = $1 AND digest = $2 AND guarded AND repeated LIMIT 1000)) same
    WHERE row <> $3 AND (SELECT guarded FROM event WHERE row = $3) ORDER BY row LIMIT 5";

/// The changes of the history since time $1, and in the last $2 milliseconds, in the order in which they came.
const RESTORES: &str = "
    SELECT from_store, restored_at, held FROM restored
    WHERE restored_at >= $1 AND ($2::bigint IS NULL OR restored_at >= now_ms() - $2) ORDER BY row";

/// By the primary key.
const KEY: &str = "
    SELECT caller, request, created_at, expires_at, answered_at, status, headers, body, body_bytes, error_until
    FROM answer WHERE event = $1";

impl Admin {
    /// Everything about the events with this id (several: variants, or several sources), but the payloads of other
    /// variants than the one that is given.
    pub async fn show(
        &self,
        source: Option<Name>,
        event: EventId,
        variant: Option<u32>,
    ) -> Result<Vec<EventDetail>, Error> {
        let source = source.as_ref().map(Name::as_str);
        let mut reading = self.look().snapshot().await?;
        let found = reading.all(EVENTS, &[&source, &event.as_str()], event_row).await?;
        let mut shown = Vec::with_capacity(found.len());
        for event in found {
            shown.push(detail(&mut reading, event, variant).await?);
        }
        Ok(shown)
    }
}

async fn detail(
    reading: &mut Reading<'_>,
    listed: ListedEvent,
    variant: Option<u32>,
) -> Result<EventDetail, Error> {
    let (row, digest) = (listed.row, listed.digest);
    let event = with_jobs(reading, vec![listed]).await?.pop();
    let event = event.ok_or_else(|| unreadable("event", "it is gone"))?;
    let (mut headers, mut body) = (Vec::new(), None);
    if variant.is_none_or(|variant| variant == event.variant)
        && let Some(payload) = reading.row(PAYLOAD, &[&row]).await?
    {
        headers = codec::header_lines(payload.value("headers")?);
        body = Some(unpacked(payload.value("body")?, event.body_bytes).await?);
    }
    let jobs = jobs(reading, row).await?;
    let twins = reading
        .all(TWINS, &[&event.source.as_str(), &&digest.0[..], &row], |row| {
            Ok(SameBodyEvent {
                event_id: row.word("event_id")?,
                event_type: row.value("type")?,
                received_at: row.time("received_at")?,
            })
        })
        .await?;
    let restores = restores(reading, event.received_at, None).await?;
    let key = match reading.row(KEY, &[&row]).await? {
        Some(row) => Some(key_row(&row).await?),
        None => None,
    };
    let digest = digest.to_string();
    Ok(EventDetail { event, digest, headers, body, jobs, twins, restores, key })
}

async fn unpacked(body: Vec<u8>, bytes: u64) -> Result<Blob, Error> {
    let body = codec::decompress(body, usize::try_from(bytes).unwrap_or(usize::MAX)).await;
    body.map(Blob).map_err(|error| unreadable("body", error))
}

async fn jobs(reading: &mut Reading<'_>, event: i64) -> Result<Vec<JobDetail>, Error> {
    let read = |row: &Row| Ok((row.value("row")?, job_row(row)?));
    let jobs: Vec<(i64, JobRow)> = reading.all(JOBS, &[&event], read).await?;
    let rows: Vec<i64> = jobs.iter().map(|(row, _)| *row).collect();
    let mut attempts: HashMap<i64, Vec<AttemptRow>> = HashMap::new();
    for row in reading.rows(ATTEMPTS, &[&rows]).await? {
        attempts.entry(row.value("job")?).or_default().push(attempt_row(&row)?);
    }
    let mut former_keys: HashMap<i64, Vec<FormerKey>> = HashMap::new();
    for row in reading.rows(FORMER_KEYS, &[&rows]).await? {
        former_keys.entry(row.value("job")?).or_default().push(FormerKey {
            key: row.job_id("id")?,
            attempt: row.number("attempt")?,
            replaced_at: row.time("replaced_at")?,
        });
    }
    let detail = |(row, job)| {
        let (attempts, former_keys) = (attempts.remove(&row), former_keys.remove(&row));
        JobDetail {
            job,
            attempts: attempts.unwrap_or_default(),
            former_keys: former_keys.unwrap_or_default(),
        }
    };
    Ok(jobs.into_iter().map(detail).collect())
}

fn attempt_row(row: &Row) -> Result<AttemptRow, Error> {
    let output = |head: &str, tail: &str, total: &str| -> Result<OutputExcerpt, Error> {
        let (head, tail) = (Blob(row.value(head)?), Blob(row.value(tail)?));
        Ok(OutputExcerpt { head, tail, total: row.number(total)? })
    };
    let used = row.maybe_number("cpu_millis")?.zip(row.maybe_number("memory_bytes")?);
    let usage = used.map(|(cpu_millis, memory_bytes)| Usage { cpu_millis, memory_bytes });
    let record = Record {
        ended_at: None,
        detail: row.value("detail")?,
        exit_code: row.value("exit_code")?,
        signal: row.value("signal")?,
        http_status: status(row, "http_status")?,
        stdout: output("stdout_head", "stdout_tail", "stdout_total")?,
        stderr: output("stderr_head", "stderr_tail", "stderr_total")?,
        usage,
    };
    Ok(AttemptRow {
        number: row.number("number")?,
        started_at: row.time("started_at")?,
        finished_at: row.maybe_time("finished_at")?,
        outcome: row.maybe_word("outcome")?,
        record,
    })
}

/// A status of HTTP.
fn status(row: &Row, column: &str) -> Result<Option<u16>, Error> {
    let status = row.value::<Option<i32>>(column)?.map(u16::try_from);
    status.transpose().map_err(|error| unreadable(column, error))
}

/// The event's key for people.
async fn key_row(row: &Row) -> Result<KeyRow, Error> {
    let headers: Option<&[u8]> = row.value("headers")?;
    let body = match row.value::<Option<Vec<u8>>>("body")? {
        Some(body) => Some(unpacked(body, row.number("body_bytes")?).await?),
        None => None,
    };
    Ok(KeyRow {
        caller: row.value("caller")?,
        request: row.digest("request")?.to_string(),
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
        answered_at: row.maybe_time("answered_at")?,
        error_until: row.maybe_time("error_until")?,
        status: status(row, "status")?,
        headers: codec::header_lines(headers.unwrap_or_default()),
        body,
    })
}

/// The changes of the history since then, and in the last `millis` milliseconds where that is given. Of a change it is
/// not known how long before it the last commit was that is left.
pub(super) async fn restores(
    reading: &mut Reading<'_>,
    since: Timestamp,
    millis: Option<i64>,
) -> Result<Vec<RestoredRow>, Error> {
    let read = |row: &Row| {
        let restored_at = row.time("restored_at")?;
        Ok(RestoredRow {
            from_store: row.value("from_store")?,
            made_at: restored_at,
            restored_at,
            held: row.number("held")?,
        })
    };
    reading.all(RESTORES, &[&since.0, &millis], read).await
}
