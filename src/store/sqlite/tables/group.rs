//! The groups of jobs: which job of a group may run, which are behind it, and which takes another's place (I6, I7).
//!
//! A job holds its group while the schema's `holds` is 1 and it is not `behind`. What must stay true: at most one job
//! holds a group, as a unique index ensures; and while no job holds it, none is behind. So whoever moves a job of a group
//! calls [`release`] in the same transaction. Each look-up is one by an index, however many jobs are behind or settled.

use rusqlite::{Connection, OptionalExtension, params};

use crate::limits::BATCH_JOBS;
use crate::model::{GroupRule, HeldReason, JobId, Timestamp};
use crate::store::border::{NewJob, Newer};
use crate::store::decide::group;

use super::codec;

/// Lets the oldest job behind go on, if none holds the group.
pub(crate) const RELEASE: &str = "UPDATE job SET behind = 0 WHERE row = (
         SELECT row FROM job WHERE handler = ?1 AND group_key = ?2 AND behind = 1 ORDER BY event LIMIT 1)
     AND NOT EXISTS (SELECT 1 FROM job INDEXED BY job_holder
         WHERE handler = ?1 AND group_key = ?2 AND holds = 1 AND behind = 0)";

/// The newest job of a later event that has begun or is to begin, behind another one or not: the end of the index of
/// such jobs.
pub(crate) const NEWER: &str = "SELECT id FROM job INDEXED BY job_begun
     WHERE handler = ?1 AND group_key = ?2 AND event > ?3 AND (attempt > 0 OR holds = 1)
     ORDER BY event DESC LIMIT 1";

/// Drops the job that holds the group, found by the unique index, and at most `?6` of those behind it, the newest first.
pub(crate) const SUPERSEDE: &str = "UPDATE job SET state = 'dropped', reason = 'superseded', due_at = NULL,
         settled_at = ?5, behind = 0, superseded_by = ?4
     WHERE row IN (SELECT row FROM job INDEXED BY job_holder
                 WHERE handler = ?1 AND group_key = ?2 AND holds = 1 AND behind = 0
             UNION ALL SELECT * FROM (SELECT row FROM job INDEXED BY job_behind
                 WHERE handler = ?1 AND group_key = ?2 AND behind = 1 AND event < ?3 ORDER BY event DESC LIMIT ?6))
         AND event < ?3 AND (state = 'ready' OR state = 'waiting') AND group_rule = 'latest'
     RETURNING attempt, wait_since";

/// The groups that a handler's ready and waiting jobs leave when these are held: by the indexes of those jobs.
pub(crate) const LEFT_WHEN_HELD: &str = "SELECT group_key FROM job
     WHERE handler = ?1 AND behind = 0 AND (state = 'ready' OR state = 'waiting') AND group_rule = 'latest'";

/// The group of a job, with its handler.
struct GroupOf {
    handler: String,
    key: String,
}

impl GroupOf {
    /// The group of a job that is to be made, where the latest of it wins.
    fn latest(job: &NewJob) -> Option<GroupOf> {
        let group = job.group.as_ref().filter(|group| group.rule == GroupRule::Latest)?;
        let (handler, key) = (job.handler.as_str().to_owned(), group.key.as_str().to_owned());
        Some(GroupOf { handler, key })
    }

    /// The group of the job in this row, with the job's event and rule.
    fn of(tx: &Connection, job: i64) -> rusqlite::Result<Option<(GroupOf, i64, GroupRule)>> {
        // By the row.
        tx.prepare_cached(
            "SELECT handler, group_key, event, group_rule FROM job WHERE row = ?1 AND group_key IS NOT NULL",
        )?
        .query_row([job], |row| {
            let group = GroupOf { handler: row.get(0)?, key: row.get(1)? };
            Ok((group, row.get(2)?, codec::text(row, 3)?))
        })
        .optional()
    }

    fn newer_than(&self, tx: &Connection, event: i64) -> rusqlite::Result<Option<Newer>> {
        let newest = tx
            .prepare_cached(NEWER)?
            .query_row(params![self.handler, self.key, event], |row| codec::job_id(row, 0))
            .optional()?;
        // The only row.
        let removed = tx
            .prepare_cached("SELECT newest_removed FROM meta")?
            .query_row([], |row| row.get(0))?;
        Ok(group::newer(newest, event, removed))
    }

    /// Lets the first job behind go on, where none holds the group any more.
    fn release(&self, tx: &Connection) -> rusqlite::Result<()> {
        tx.prepare_cached(RELEASE)?.execute([&self.handler, &self.key])?;
        Ok(())
    }
}

/// Lets the next job of this job's group go on, if this one was moved out of its way.
pub(crate) fn release(tx: &Connection, job: i64) -> rusqlite::Result<()> {
    GroupOf::of(tx, job)?.map_or(Ok(()), |(group, ..)| group.release(tx))
}

/// Holds all ready and waiting jobs of a handler, and lets the groups go on that they leave. Returns how many.
pub(crate) fn hold_all(
    tx: &Connection,
    handler: &str,
    reason: HeldReason,
) -> rusqlite::Result<usize> {
    let left = tx
        .prepare_cached(LEFT_WHEN_HELD)?
        .query_map([handler], |row| Ok(GroupOf { handler: handler.to_owned(), key: row.get(0)? }))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    // Only what could be claimed: a held or settled job stays as it is. Each state has an index, which IN would not
    // find.
    let held = tx
        .prepare_cached(
            "UPDATE job SET state = 'held', reason = ?2, due_at = NULL,
                 behind = behind AND group_rule IS NOT 'latest'
             WHERE (state = 'ready' OR state = 'waiting') AND handler = ?1",
        )?
        .execute([handler, reason.as_str()])?;
    left.iter().try_for_each(|group| group.release(tx))?;
    Ok(held)
}

/// Drops the jobs that the new job `by` of this event replaces, before it is made: where the latest of the group wins,
/// those of older events that do not run. At most 200 ([`BATCH_JOBS`]), so that the transaction stays short; the job of
/// the next event drops the rest. Returns when the first of those came that have made no attempt.
pub(crate) fn supersede(
    tx: &Connection,
    (by, event): (JobId, i64),
    job: &NewJob,
    now: Timestamp,
) -> rusqlite::Result<Option<Timestamp>> {
    let Some(group) = GroupOf::latest(job) else { return Ok(None) };
    let most_behind = codec::size(BATCH_JOBS - 1);
    let replaced = tx
        .prepare_cached(SUPERSEDE)?
        .query_map(
            params![group.handler, group.key, event, by.as_bytes(), now.0, most_behind],
            |row| Ok((row.get::<_, u32>(0)?, codec::maybe_time(row, 1)?)),
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    if !replaced.is_empty() {
        group.release(tx)?;
    }
    Ok(group::first_wait(&replaced))
}

/// The newest job that waits behind this one and will run in its place, where the latest of the group wins.
pub(crate) fn successor(tx: &Connection, job: i64) -> rusqlite::Result<Option<JobId>> {
    // By the row, and by the index of jobs behind from its end.
    tx.prepare_cached(
        "SELECT n.id FROM job o JOIN job n ON n.handler = o.handler AND n.group_key = o.group_key AND n.behind = 1
         WHERE o.row = ?1 AND n.event > o.event AND o.group_rule = 'latest' AND n.group_rule = 'latest'
             AND (n.state = 'ready' OR n.state = 'waiting')
         ORDER BY n.event DESC LIMIT 1",
    )?
    .query_row([job], |row| codec::job_id(row, 0))
    .optional()
}

/// What makes this job out of date, where the latest of its group wins: a newer event's job that has begun or is to
/// begin. Retention may have removed that job, of this group or another: then every older event counts as out of date.
pub(crate) fn newer(tx: &Connection, job: i64) -> rusqlite::Result<Option<Newer>> {
    match GroupOf::of(tx, job)? {
        Some((group, event, GroupRule::Latest)) => group.newer_than(tx, event),
        _ => Ok(None),
    }
}

/// What makes a job out of date that is to be made of the event with this row number.
pub(crate) fn newer_than(
    tx: &Connection,
    job: &NewJob,
    event: i64,
) -> rusqlite::Result<Option<Newer>> {
    GroupOf::latest(job).map_or(Ok(None), |group| group.newer_than(tx, event))
}
