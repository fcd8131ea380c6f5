//! The jobs and events that a verb is about, locked in the order of N8 and read behind the locks (N36).

use tokio_postgres::Row;

use crate::model::{EventId, GroupRule, JobId, Name};
use crate::store::border::{Error, Newer};
use crate::store::columns::{column, readable};
use crate::store::decide::group;
use crate::store::decide::job_move::{FoundEvent, FoundJob};
use crate::store::decide::key::KeyOf;

use super::super::answer::LOCK_KEY;
use super::super::flight::Flight;
use super::super::new_event::{Groups, lock};
use super::super::params::params;
use super::super::stop::{Stop, ask};

/// The groups of jobs, which are to be locked before the jobs.
const GROUPS: &str =
    "SELECT handler, group_key FROM job WHERE id = ANY ($1::uuid[]) AND group_key IS NOT NULL";

/// Keeps the events from being deleted, and their dead jobs from being put back by a duplicate.
const LOCK_EVENTS: &str = "
    SELECT FROM event WHERE row IN (SELECT event FROM job WHERE id = ANY ($1::uuid[]))
    ORDER BY source, event_id, variant FOR NO KEY UPDATE";

const LOCK_EVENT_ROWS: &str = "
    SELECT FROM event WHERE row = ANY ($1::bigint[]) ORDER BY source, event_id, variant FOR NO KEY UPDATE";

/// A claim that is under way has committed, or takes none of them.
const LOCK_JOBS: &str = "
    SELECT row, id, event, handler, state, attempt, group_key, group_rule,
        state = 'held' AND attempt = 0 AND detail IS NOT NULL AS undecided
    FROM job WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE";

/// The held and dead jobs of an event ($1), the oldest first, or its one job of a handler.
const JOBS_OF_EVENT: &str = r#"
    SELECT id FROM job WHERE event = $1 AND ($2::text IS NULL OR handler = $2::text COLLATE "C")
        AND ($2::text IS NOT NULL OR state IN ('held', 'dead'))
    ORDER BY row"#;

/// What [`read_event`] reads of an event `e`.
macro_rules! event_columns {
    () => {
        "e.row, e.source, e.event_id, e.removed_succeeded + e.removed_dropped > 0 AS removed,
        EXISTS (SELECT FROM payload p WHERE p.event = e.row) AS payload_kept"
    };
}

/// The events of this id in one source, or in all: one look at an index for each source.
const EVENTS_BY_ID: &str = concat!(
    r#"WITH RECURSIVE known (source) AS (
        SELECT coalesce($1::text COLLATE "C", (SELECT min(source) FROM event))
        UNION ALL
        SELECT (SELECT min(e.source) FROM event e WHERE e.source > known.source) FROM known
        WHERE $1::text IS NULL AND known.source IS NOT NULL
    )
    SELECT "#,
    event_columns!(),
    " FROM known JOIN event e ON e.source = known.source AND e.event_id = $2 ORDER BY e.source, e.variant"
);

/// An event with its key, the newest later job of a group ($2 handler, $3 key) that has begun or is to begin, and the
/// newest event of which retention removed such a job: all of one snapshot.
const FACTS: &str = concat!(
    "SELECT ",
    event_columns!(),
    r#", e.has_key, a.event IS NOT NULL AS in_use, a.answered_at IS NOT NULL AS answered,
        (SELECT n.id FROM job n WHERE n.handler = $2 AND n.group_key = $3::text COLLATE "C" AND n.event > e.row
            AND (n.attempt > 0 OR n.holds) ORDER BY n.event DESC LIMIT 1) AS newest,
        (SELECT newest_removed FROM meta)
    FROM event e LEFT JOIN answer a ON a.event = e.row WHERE e.row = $1"#
);

/// A locked job.
pub(super) struct LockedJob {
    pub(super) found: FoundJob,
    /// The key of its group, of which the latest wins.
    pub(super) latest: Option<String>,
}

/// Locks these groups, and the events in these rows.
pub(super) async fn lock_rows(flight: &mut Flight, groups: &Groups, events: Vec<i64>) {
    lock(flight, groups).await;
    flight.send(LOCK_EVENT_ROWS, params![events]).await;
}

/// Locks jobs with their groups, the groups in `groups`, and their events. Returns the jobs in the order of `ids`;
/// none of an id that no job has.
pub(super) async fn lock_jobs(
    flight: &mut Flight,
    ids: &[JobId],
    mut groups: Groups,
) -> Result<Vec<Option<LockedJob>>, Stop> {
    for row in ask(flight, GROUPS, params![ids.to_vec()]).await? {
        groups.insert((column(row, "handler")?, column(row, "group_key")?));
    }
    lock(flight, &groups).await;
    flight.send(LOCK_EVENTS, params![ids.to_vec()]).await;
    let mut found: Vec<Option<LockedJob>> = ids.iter().map(|_| None).collect();
    for row in ask(flight, LOCK_JOBS, params![ids.to_vec()]).await? {
        let key: Option<String> = column(row, "group_key")?;
        // A replay has put it into the group meanwhile.
        if let Some(key) = &key
            && !groups.contains(&(column(row, "handler")?, key.clone()))
        {
            return Err(Stop::Changed);
        }
        let job = FoundJob {
            row: column(row, "row")?,
            job: column(row, "id")?,
            event: column(row, "event")?,
            handler: column(row, "handler")?,
            state: column(row, "state")?,
            attempt: column(row, "attempt")?,
            grouped: key.is_some(),
            undecided: column(row, "undecided")?,
        };
        let is_latest = column::<Option<GroupRule>>(row, "group_rule")? == Some(GroupRule::Latest);
        if let Some(place) = ids.iter().position(|id| *id == job.job) {
            let latest = key.filter(|_| is_latest);
            found[place] = Some(LockedJob { found: job, latest });
        }
    }
    Ok(found)
}

/// Locks one job.
pub(super) async fn lock_job(flight: &mut Flight, job: JobId) -> Result<LockedJob, Stop> {
    let found = lock_jobs(flight, &[job], Groups::new()).await?.pop().flatten();
    Ok(found.ok_or(Error::NoJob(job))?)
}

/// The held and dead jobs of an event, or its one job of a handler.
pub(super) async fn jobs_of(
    flight: &mut Flight,
    event: i64,
    handler: Option<&Name>,
) -> Result<Vec<JobId>, Stop> {
    let mut jobs = Vec::new();
    for row in ask(flight, JOBS_OF_EVENT, params![event, handler]).await? {
        jobs.push(column(row, "id")?);
    }
    Ok(jobs)
}

/// What an event allows.
pub(super) struct EventFacts {
    pub(super) event: FoundEvent,
    pub(super) key: KeyOf,
    /// What makes the event out of date in the group that was asked for.
    pub(super) newer: Option<Newer>,
}

/// The facts of an event that exists, whose key is locked. `latest` is the key of the handler's group of which the latest wins.
pub(super) async fn facts(
    flight: &mut Flight,
    event: i64,
    handler: &Name,
    latest: Option<&str>,
) -> Result<EventFacts, Stop> {
    flight.send(LOCK_KEY, params![event]).await;
    let rows = ask(flight, FACTS, params![event, handler, latest]).await?;
    let row = rows.first().ok_or(Stop::Changed)?;
    let (newest, removed) = (column(row, "newest")?, column(row, "newest_removed")?);
    Ok(EventFacts {
        event: read_event(row)?,
        key: KeyOf::of(column(row, "has_key")?, column(row, "in_use")?, column(row, "answered")?),
        newer: latest.and_then(|_| group::newer(newest, event, removed)),
    })
}

fn read_event(row: &Row) -> Result<FoundEvent, Error> {
    Ok(FoundEvent {
        row: column(row, "row")?,
        source: readable(row, "source")?,
        event: readable(row, "event_id")?,
        payload_kept: column(row, "payload_kept")?,
        removed: column(row, "removed")?,
    })
}

/// The one event with this id, in this source or in all of them.
pub(super) async fn find_event(
    flight: &mut Flight,
    source: Option<&Name>,
    event: &EventId,
) -> Result<FoundEvent, Stop> {
    let rows = ask(flight, EVENTS_BY_ID, params![source, event]).await?;
    let found = rows.iter().map(read_event).collect::<Result<_, _>>()?;
    Ok(FoundEvent::only(found, event)?)
}
