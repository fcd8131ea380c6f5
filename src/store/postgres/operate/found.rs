//! The jobs and events that a verb is about, locked in the order of N8 and read behind the locks (N36).

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::str::FromStr;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{EventId, GroupRule, JobId, Name};
use crate::store::border::{NewJob, Newer};
use crate::store::decide::group;
use crate::store::decide::job_move::{FoundEvent, FoundJob};
use crate::store::decide::key::KeyOf;

use super::super::claim::uuid;
use super::super::flight::{Flight, Param};
use super::super::group::LOCK;
use super::change::{Stop, ask};

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
    SELECT row, id, event, handler, state, attempt, state = 'held' AND attempt = 0 AND detail IS NOT NULL, group_key,
        group_rule
    FROM job WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE";

/// The jobs of an event ($1), or its one job of a handler.
pub(super) const JOBS_OF_EVENT: &str = r#"
    SELECT id FROM job WHERE event = $1 AND ($2::text IS NULL OR handler = $2::text COLLATE "C")
        AND ($2::text IS NOT NULL OR state IN ('held', 'dead'))"#;

/// The events of this id in one source, or in all: one look at an index for each source.
const EVENTS_BY_ID: &str = r#"
    WITH RECURSIVE known (source) AS (
        SELECT coalesce($1::text COLLATE "C", (SELECT min(source) FROM event))
        UNION ALL
        SELECT (SELECT min(e.source) FROM event e WHERE e.source > known.source) FROM known
        WHERE $1::text IS NULL AND known.source IS NOT NULL
    )
    SELECT e.row, e.source, e.event_id, EXISTS (SELECT FROM payload p WHERE p.event = e.row),
        e.removed_succeeded + e.removed_dropped > 0
    FROM known JOIN event e ON e.source = known.source AND e.event_id = $2
    ORDER BY e.source, e.variant"#;

/// An event with its key, the newest later job of a group ($2 handler, $3 key) that has begun or is to begin, and the
/// newest event of which retention removed such a job: all of one snapshot.
const FACTS: &str = r#"
    SELECT e.row, e.source, e.event_id, EXISTS (SELECT FROM payload p WHERE p.event = e.row),
        e.removed_succeeded + e.removed_dropped > 0, e.has_key, a.event IS NOT NULL, a.answered_at IS NOT NULL,
        (SELECT n.id FROM job n WHERE n.handler = $2 AND n.group_key = $3::text COLLATE "C" AND n.event > e.row
            AND (n.attempt > 0 OR n.holds) ORDER BY n.event DESC LIMIT 1),
        (SELECT newest_removed FROM meta)
    FROM event e LEFT JOIN answer a ON a.event = e.row WHERE e.row = $1"#;

/// A column that holds a word, name or id in its text form.
pub(super) fn text<T>(row: &Row, column: usize) -> Result<T, Stop>
where
    T: FromStr<Err: StdError>,
{
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|error: T::Err| Stop::Broken(error.to_string()))
}

pub(super) fn job_id(row: &Row, column: usize) -> Result<JobId, Stop> {
    Ok(JobId::from_bytes(*row.try_get::<_, Uuid>(column)?.as_bytes()))
}

/// A locked job.
pub(super) struct LockedJob {
    pub(super) found: FoundJob,
    /// The key of its group, of which the latest wins.
    pub(super) latest: Option<String>,
}

/// Handlers and keys of groups, sorted as their locks are.
pub(super) type Groups = BTreeSet<(String, String)>;

/// The group of a new job.
pub(super) fn group_of(job: &NewJob) -> Option<(String, String)> {
    let group = job.group.as_ref()?;
    Some((job.handler.as_str().to_owned(), group.key.as_str().to_owned()))
}

/// Locks these groups, and the events in these rows.
pub(super) async fn lock_rows(flight: &mut Flight, groups: &Groups, events: Vec<i64>) {
    lock_groups(flight, groups).await;
    flight.send(LOCK_EVENT_ROWS, vec![Box::new(events)]).await;
}

async fn lock_groups(flight: &mut Flight, groups: &Groups) {
    if !groups.is_empty() {
        let (handlers, keys): (Vec<String>, Vec<String>) = groups.iter().cloned().unzip();
        flight.send(LOCK, vec![Box::new(handlers), Box::new(keys)]).await;
    }
}

/// Locks jobs with their groups, the groups in `joined`, and their events. Returns the jobs in the order of `ids`;
/// none of an id that no job has.
pub(super) async fn lock_jobs(
    flight: &mut Flight,
    ids: &[JobId],
    mut groups: Groups,
) -> Result<Vec<Option<LockedJob>>, Stop> {
    let uuids: Vec<Uuid> = ids.iter().map(uuid).collect();
    let params = || -> Vec<Param> { vec![Box::new(uuids.clone())] };
    for row in ask(flight, GROUPS, params()).await? {
        groups.insert((row.try_get(0)?, row.try_get(1)?));
    }
    lock_groups(flight, &groups).await;
    flight.send(LOCK_EVENTS, params()).await;
    let mut found: Vec<Option<LockedJob>> = ids.iter().map(|_| None).collect();
    for row in ask(flight, LOCK_JOBS, params()).await? {
        let attempt: i64 = row.try_get(5)?;
        let key: Option<String> = row.try_get(7)?;
        let handler: Name = text(row, 3)?;
        // A replay has put it into the group meanwhile.
        if let Some(key) = &key
            && !groups.contains(&(handler.as_str().to_owned(), key.clone()))
        {
            return Err(Stop::Changed);
        }
        let job = FoundJob {
            row: row.try_get(0)?,
            job: job_id(row, 1)?,
            event: row.try_get(2)?,
            handler,
            state: text(row, 4)?,
            attempt: u32::try_from(attempt).map_err(|error| Stop::Broken(error.to_string()))?,
            grouped: key.is_some(),
            undecided: row.try_get(6)?,
        };
        let is_latest = row.try_get::<_, Option<&str>>(8)? == Some(GroupRule::Latest.as_str());
        let place = ids.iter().position(|id| *id == job.job);
        let Some(place) = place.and_then(|place| found.get_mut(place)) else { continue };
        *place = Some(LockedJob { found: job, latest: key.filter(|_| is_latest) });
    }
    Ok(found)
}

/// What an event allows.
pub(super) struct EventFacts {
    pub(super) event: FoundEvent,
    pub(super) key: KeyOf,
    /// What makes the event out of date in the group that was asked for.
    pub(super) newer: Option<Newer>,
}

/// The facts of an event that exists. `latest` is the key of the handler's group of which the latest wins.
pub(super) async fn facts(
    flight: &mut Flight,
    event: i64,
    handler: &Name,
    latest: Option<&str>,
) -> Result<EventFacts, Stop> {
    let params: Vec<Param> = vec![
        Box::new(event),
        Box::new(handler.as_str().to_owned()),
        Box::new(latest.map(str::to_owned)),
    ];
    let rows = ask(flight, FACTS, params).await?;
    let row = rows.first().ok_or(Stop::Changed)?;
    let newest: Option<Uuid> = row.try_get(8)?;
    let newest = newest.map(|id| JobId::from_bytes(*id.as_bytes()));
    Ok(EventFacts {
        event: read_event(row)?,
        key: KeyOf::of(row.try_get(5)?, row.try_get(6)?, row.try_get(7)?),
        newer: match latest {
            Some(_) => group::newer(newest, event, row.try_get(9)?),
            None => None,
        },
    })
}

fn read_event(row: &Row) -> Result<FoundEvent, Stop> {
    Ok(FoundEvent {
        row: row.try_get(0)?,
        source: text(row, 1)?,
        event: text(row, 2)?,
        payload_kept: row.try_get(3)?,
        removed: row.try_get(4)?,
    })
}

/// The one event with this id, in this source or in all of them.
pub(super) async fn find_event(
    flight: &mut Flight,
    source: Option<&Name>,
    event: &EventId,
) -> Result<FoundEvent, Stop> {
    let source = source.map(|source| source.as_str().to_owned());
    let rows =
        ask(flight, EVENTS_BY_ID, vec![Box::new(source), Box::new(event.as_str().to_owned())]);
    let found = rows.await?.iter().map(read_event).collect::<Result<_, Stop>>()?;
    FoundEvent::only(found, event).map_err(Stop::Refused)
}
