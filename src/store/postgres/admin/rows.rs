//! Events and jobs as they are listed.

use std::collections::HashMap;

use tokio_postgres::Row;

use crate::model::{Digest, JobId, State};
use crate::store::border::{Error, EventRow, HandlerJob, JobRow};

use super::super::claim::uuid;
use super::super::columns::Columns;
use super::super::reader::Reading;

/// The columns of [`event_row`], of an event `e`.
macro_rules! event_columns {
    () => {
        "e.row, e.source, e.event_id, e.variant, e.type, e.raw_type, e.digest, e.received_at, e.body_bytes,
        e.duplicates, e.last_duplicate_at, e.conflicts, e.flagged, e.removed_succeeded, e.removed_dropped,
        coalesce((SELECT true FROM payload p WHERE p.event = e.row), false) AS payload_kept"
    };
}
pub(super) use event_columns;

/// The columns of [`job_row`], of a job `j` with [`job_joins!`].
macro_rules! job_columns {
    () => {
        "j.row, j.id, e.source, e.event_id, e.type, j.handler, j.state, j.reason, j.detail, j.group_key, j.behind,
        j.superseded_by, j.attempt, j.replays, j.created_at, j.due_at, j.settled_at,
        coalesce((SELECT l.paused_at IS NOT NULL FROM lane l WHERE l.handler = j.handler), false) AS paused,
        CASE j.state WHEN 'dead' THEN j.settled_at WHEN 'held' THEN greatest(j.since, a.finished_at) END AS stopped_at,
        nullif(a.detail, '') AS last_detail"
    };
}
pub(super) use job_columns;

/// The event and the last attempt of a job `j`, each by its primary key.
macro_rules! job_joins {
    () => {
        " JOIN event e ON e.row = j.event LEFT JOIN attempt a ON a.job = j.row AND a.number = j.attempt "
    };
}
pub(super) use job_joins;

/// Each value of an index's first column once, by one look-up each; `$of` is the index's condition.
macro_rules! next_values {
    ($column:literal, $table:literal, $of:expr) => {
        concat!(
            "WITH RECURSIVE next AS ((SELECT ",
            $column,
            " AS value FROM ",
            $table,
            " WHERE ",
            $of,
            " ORDER BY ",
            $column,
            " LIMIT 1) UNION ALL SELECT (SELECT ",
            $column,
            " FROM ",
            $table,
            " WHERE ",
            $of,
            " AND ",
            $column,
            " > next.value ORDER BY ",
            $column,
            " LIMIT 1) FROM next WHERE next.value IS NOT NULL)
            SELECT value FROM next WHERE value IS NOT NULL"
        )
    };
}
pub(super) use next_values;

/// By the unique id.
const JOB: &str =
    concat!("SELECT ", job_columns!(), " FROM job j", job_joins!(), "WHERE j.id = $1");

/// By the unique (event, handler); none where they were removed.
const HANDLERS: &str =
    "SELECT event, handler, state FROM job WHERE event = ANY ($1) ORDER BY event, handler";

/// An event with its row number and digest, for the queries that follow.
pub(super) struct ListedEvent {
    pub(super) row: i64,
    pub(super) digest: Digest,
    event: EventRow,
}

pub(super) fn event_row(row: &Row) -> Result<ListedEvent, Error> {
    let removed = [
        (State::Succeeded, row.number("removed_succeeded")?),
        (State::Dropped, row.number("removed_dropped")?),
    ];
    let raw_type: Option<&[u8]> = row.value("raw_type")?;
    let event = EventRow {
        source: row.word("source")?,
        event_id: row.word("event_id")?,
        variant: row.number("variant")?,
        event_type: row.value("type")?,
        raw_type: raw_type.map(|raw| String::from_utf8_lossy(raw).into_owned()),
        received_at: row.time("received_at")?,
        body_bytes: row.number("body_bytes")?,
        duplicates: row.number("duplicates")?,
        last_duplicate_at: row.maybe_time("last_duplicate_at")?,
        conflicts: row.number("conflicts")?,
        flagged: row.value("flagged")?,
        payload_kept: row.value("payload_kept")?,
        jobs: removed.into_iter().filter(|&(_, jobs)| jobs > 0).collect(),
        handlers: Vec::new(),
    };
    Ok(ListedEvent { row: row.value("row")?, digest: row.digest("digest")?, event })
}

/// The events with their jobs, in the same order.
pub(super) async fn with_jobs(
    reading: &mut Reading<'_>,
    listed: Vec<ListedEvent>,
) -> Result<Vec<EventRow>, Error> {
    let events: Vec<i64> = listed.iter().map(|listed| listed.row).collect();
    let mut of_events: HashMap<i64, Vec<HandlerJob>> = HashMap::new();
    for row in reading.rows(HANDLERS, &[&events]).await? {
        let job = HandlerJob { handler: row.word("handler")?, state: row.word("state")? };
        of_events.entry(row.value("event")?).or_default().push(job);
    }
    let with_jobs = |ListedEvent { row, mut event, .. }: ListedEvent| {
        event.handlers = of_events.remove(&row).unwrap_or_default();
        for job in &event.handlers {
            *event.jobs.entry(job.state).or_default() += 1;
        }
        event
    };
    Ok(listed.into_iter().map(with_jobs).collect())
}

pub(super) async fn find_job(
    reading: &mut Reading<'_>,
    job: JobId,
) -> Result<Option<JobRow>, Error> {
    reading.row(JOB, &[&uuid(&job)]).await?.as_ref().map(job_row).transpose()
}

pub(super) fn job_row(row: &Row) -> Result<JobRow, Error> {
    let superseded_by: Option<uuid::Uuid> = row.value("superseded_by")?;
    Ok(JobRow {
        job: row.job_id("id")?,
        source: row.word("source")?,
        event_id: row.word("event_id")?,
        event_type: row.value("type")?,
        handler: row.word("handler")?,
        state: row.word("state")?,
        reason: row.value("reason")?,
        detail: row.value("detail")?,
        group: row.value("group_key")?,
        behind: row.value("behind")?,
        superseded_by: superseded_by.map(|id| JobId::from_bytes(id.into_bytes())),
        attempt: row.number("attempt")?,
        replays: row.number("replays")?,
        created_at: row.time("created_at")?,
        due_at: row.maybe_time("due_at")?,
        settled_at: row.maybe_time("settled_at")?,
        paused: row.value("paused")?,
        broken: None,
        stopped_at: row.maybe_time("stopped_at")?,
        last_detail: row.value("last_detail")?,
    })
}
