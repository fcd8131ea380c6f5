//! A job of a stored event, made later than the event.

use uuid::Uuid;

use crate::limits::BATCH_JOBS;
use crate::model::{GroupRule, HeldReason, JobId, Timestamp};
use crate::random;
use crate::store::border::NewJob;
use crate::store::codec;
use crate::store::decide::group::{first_wait, keeps_place};
use crate::store::decide::new_job;

use super::super::claim::uuid;
use super::super::flight::{Flight, Param};
use super::super::group::RELEASE_OF_JOBS;
use super::change::{Stop, ask};

/// Drops the job that holds the group ($1 handler, $2 key), and at most $5 of those behind it, the newest first, where
/// they do not run and are of older events than $3. $4 takes their place.
const SUPERSEDE: &str = r#"
    UPDATE job SET state = 'dropped', reason = 'superseded', due_at = NULL, settled_at = now_ms(), behind = false,
        superseded_by = $4
    WHERE row IN (SELECT row FROM job WHERE handler = $1 AND group_key = $2 AND holds AND NOT behind
            UNION ALL (SELECT row FROM job WHERE handler = $1 AND group_key = $2 AND behind AND event < $3
                ORDER BY event DESC LIMIT $5))
        AND event < $3 AND state IN ('ready', 'waiting') AND group_rule = 'latest'
    RETURNING id, attempt, wait_since"#;

/// $13: it takes part in the order of its group.
const INSERT: &str = r#"
    INSERT INTO job (id, event, handler, state, reason, detail, since, created_at, due_at, wait_since, group_key,
        group_rule, behind)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
        $13 AND EXISTS (SELECT FROM job h WHERE h.handler = $3 AND h.group_key = $11 AND h.holds AND NOT h.behind))"#;

/// The key of the group of a new job, if the latest of it wins.
pub(super) fn latest(job: &NewJob) -> Option<&str> {
    let group = job.group.as_ref().filter(|group| group.rule == GroupRule::Latest)?;
    Some(group.key.as_str())
}

/// Makes a job of an event: `held` for a reason, or because it cannot be decided. Else it takes the place of older
/// events' jobs of its group, where the latest wins, and is `ready`, or waits for its delay. Group and event are
/// locked, and the event has no job of this handler. Returns its id.
pub(super) async fn insert_job(
    flight: &mut Flight,
    event: i64,
    job: &NewJob,
    held: Option<HeldReason>,
    now: Timestamp,
) -> Result<JobId, Stop> {
    let id = random::job_id(now);
    let handler = job.handler.as_str().to_owned();
    let held = new_job::held(job, held);
    let mut first = None;
    if let (None, Some(key)) = (held, latest(job)) {
        let params: Vec<Param> = vec![
            Box::new(handler.clone()),
            Box::new(key.to_owned()),
            Box::new(event),
            Box::new(uuid(&id)),
            Box::new(codec::size(BATCH_JOBS - 1)),
        ];
        let (mut dropped, mut replaced) = (Vec::<Uuid>::new(), Vec::new());
        for row in ask(flight, SUPERSEDE, params).await? {
            dropped.push(row.try_get(0)?);
            let attempt: i64 = row.try_get(1)?;
            let since: Option<i64> = row.try_get(2)?;
            replaced.push((u32::try_from(attempt).unwrap_or(u32::MAX), since.map(Timestamp)));
        }
        if !dropped.is_empty() {
            flight.send(RELEASE_OF_JOBS, vec![Box::new(dropped)]).await;
        }
        first = first_wait(&replaced);
    }
    let start = new_job::start(held, job.delay, first, now);
    let group = job.group.as_ref();
    let params: Vec<Param> = vec![
        Box::new(uuid(&id)),
        Box::new(event),
        Box::new(handler),
        Box::new(start.state.as_str()),
        Box::new(held.map(HeldReason::as_str)),
        // PostgreSQL's text cannot have NUL, which the detail may quote.
        Box::new(job.undecided.as_ref().map(|why| why.replace('\0', "\u{fffd}"))),
        Box::new(start.since.0),
        Box::new(now.0),
        Box::new(start.due_at.map(|due| due.0)),
        Box::new(start.wait_since.map(|since| since.0)),
        Box::new(group.map(|group| group.key.as_str().to_owned())),
        Box::new(group.map(|group| group.rule.as_str())),
        Box::new(group.is_some_and(|group| keeps_place(group.rule, held))),
    ];
    flight.send(INSERT, params).await;
    Ok(id)
}
