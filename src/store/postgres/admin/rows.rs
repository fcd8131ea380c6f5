//! Events and jobs as they are listed.

use std::collections::HashMap;

use crate::model::JobId;
use crate::store::border::{Error, EventRow, JobRow};
use crate::store::decide::listing::ListedEvent;

use super::super::reader::Reading;

/// The columns of a [`ListedEvent`], of an event `e`.
macro_rules! event_columns {
    () => {
        "e.*, e.type AS event_type,
        (SELECT true FROM payload p WHERE p.event = e.row) IS NOT NULL AS payload_kept"
    };
}
pub(super) use event_columns;

/// The columns of a [`JobRow`], of a job `j` with [`job_joins!`].
macro_rules! job_columns {
    () => {
        "j.*, j.id AS job, e.source, e.event_id, e.type AS event_type, j.group_key AS group,
        (SELECT l.paused_at FROM lane l WHERE l.handler = j.handler) IS NOT NULL AS paused,
        CASE j.state WHEN 'dead' THEN j.settled_at
            WHEN 'held' THEN greatest(j.since, a.finished_at) END AS stopped_at,
        nullif(a.detail, '') AS last_detail"
    };
}
pub(super) use job_columns;

/// The event and the last attempt of a job `j`, each by its primary key, where they are there.
macro_rules! job_joins {
    () => {
        " LEFT JOIN event e ON e.row = j.event
        LEFT JOIN attempt a ON a.job = j.row AND a.number = j.attempt "
    };
}
pub(super) use job_joins;

/// The job with the id $1, by the unique id.
const JOB: &str =
    concat!("SELECT ", job_columns!(), " FROM job j", job_joins!(), "WHERE j.id = $1");

/// The jobs of the events $1, by the unique (event, handler); no row for an event whose jobs were removed.
const HANDLERS: &str =
    "SELECT event AS row, handler, state FROM job WHERE event = ANY ($1) ORDER BY event, handler";

/// The events with their jobs, in the same order.
pub(super) async fn with_jobs(
    reading: &mut Reading<'_>,
    listed: Vec<ListedEvent>,
) -> Result<Vec<EventRow>, Error> {
    let rows: Vec<i64> = listed.iter().map(|listed| listed.row).collect();
    let mut jobs: HashMap<i64, _> = reading.by_row(HANDLERS, &[&rows]).await?;
    let with_jobs = |listed: ListedEvent| {
        let jobs = jobs.remove(&listed.row);
        listed.with_jobs(jobs.unwrap_or_default())
    };
    Ok(listed.into_iter().map(with_jobs).collect())
}

pub(super) async fn find_job(reading: &mut Reading<'_>, job: JobId) -> Result<JobRow, Error> {
    reading.one(JOB, &[&job]).await?.ok_or(Error::NoJob(job))
}
