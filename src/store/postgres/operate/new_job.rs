//! Jobs of stored events, made later than the events.

use crate::model::{GroupRule, HeldReason, JobId, State, Timestamp};
use crate::random;
use crate::store::border::NewJob;
use crate::store::decide::group::keeps_place;
use crate::store::decide::new_job;

use super::super::claim::uuid;
use super::super::flight::Flight;
use super::super::new_event::GroupedJobs;
use super::super::notices::NodeNotices;
use super::super::params::params;
use super::super::stop::Stop;

/// A delay counts from the event's arrival, so such a job has none.
const INSERT: &str = "
    INSERT INTO job (id, event, handler, state, reason, detail, since, created_at, group_key, group_rule, behind)
    VALUES ($1, $2, $3, $4, $5, $6, now_ms(), now_ms(), $7, $8, $9)";

/// The key of the group of a new job, if the latest of it wins.
pub(super) fn latest(job: &NewJob) -> Option<&str> {
    let group = job.group.as_ref().filter(|group| group.rule == GroupRule::Latest)?;
    Some(group.key.as_str())
}

/// Makes jobs, each of the event in its row: `held` for a reason, or because it cannot be decided. Else each takes the
/// place of older events' jobs of its group, where the latest wins, and is `ready`. Groups and events are locked, and
/// no event has a job of its handler. Returns their ids.
pub(super) async fn insert_jobs(
    flight: &mut Flight,
    new: &[(i64, NewJob, Option<HeldReason>)],
    now: Timestamp,
    notices: &NodeNotices,
) -> Result<Vec<JobId>, Stop> {
    let (mut ids, mut grouped) = (Vec::with_capacity(new.len()), GroupedJobs::default());
    for (event, job, held) in new {
        let (id, held) = (random::job_id(now), new_job::held(job, *held));
        grouped.add(job, uuid(&id), held);
        let state = held.map_or(State::Ready, |_| State::Held).as_str();
        let reason = held.map(HeldReason::as_str);
        // PostgreSQL's text cannot have NUL, which the detail may quote.
        let detail = job.undecided.as_ref().map(|why| why.replace('\0', "\u{fffd}"));
        let (group, handler) = (job.group.as_ref(), &job.handler);
        let (key, rule) = group.map(|group| (group.key.as_str(), group.rule.as_str())).unzip();
        let behind = group.is_some_and(|group| keeps_place(group.rule, held));
        let row = params![id, *event, handler, state, reason, detail, key, rule, behind];
        flight.send(INSERT, row).await;
        ids.push(id);
    }
    grouped.settle(flight, notices).await?;
    Ok(ids)
}
