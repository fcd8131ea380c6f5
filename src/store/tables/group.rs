//! The groups of jobs: which job of a group may run, which are behind it, and which takes another's place (I6, I7).
//!
//! What must stay true: at most one job holds a group, which a unique index ensures; where none holds it none is
//! behind. So whoever moves a job of a group calls [`release`] in the same transaction. Each look-up is one
//! by an index, however many jobs are behind or settled; SQLite would look for the one that holds in the larger index.

use rusqlite::{Connection, OptionalExtension, params};

use crate::model::{GroupRule, JobId, Name, Timestamp};
use crate::store::border::{Group, NewJob, Newer};

use super::codec;

/// The job that is next: by the index of groups the first one behind, and by the unique index whether one holds.
pub(crate) const RELEASE: &str = "UPDATE job SET behind = 0 WHERE row = (
         SELECT row FROM job WHERE handler = ?1 AND group_key = ?2 AND behind = 1 ORDER BY event LIMIT 1)
     AND NOT EXISTS (SELECT 1 FROM job INDEXED BY job_holder
         WHERE handler = ?1 AND group_key = ?2 AND holds = 1 AND behind = 0)";

/// The group of a job, with its handler.
#[derive(Debug, Clone)]
pub(crate) struct GroupOf {
    handler: String,
    key: String,
}

impl GroupOf {
    /// The group of a job that is to be made, where the latest of it wins.
    pub(crate) fn latest(job: &NewJob) -> Option<GroupOf> {
        let group = job.group.as_ref().filter(|group| group.rule == GroupRule::Latest)?;
        let (handler, key) = (job.handler.as_str().to_owned(), group.key.as_str().to_owned());
        Some(GroupOf { handler, key })
    }

    /// As [`newer`], of an event in the row `event`.
    pub(crate) fn newer_than(
        &self,
        tx: &Connection,
        event: i64,
    ) -> rusqlite::Result<Option<Newer>> {
        let newest = |behind: u8| {
            // By the index of groups from its end.
            format!(
                "SELECT id, event FROM job WHERE handler = ?1 AND group_key = ?2 AND behind = {behind}
                     AND event > ?3 AND (attempt > 0 OR holds = 1) ORDER BY event DESC LIMIT 1"
            )
        };
        let found = tx
            .prepare_cached(&format!(
                "SELECT id FROM (SELECT * FROM ({}) UNION ALL SELECT * FROM ({}))
                 ORDER BY event DESC LIMIT 1",
                newest(0),
                newest(1)
            ))?
            .query_row(params![self.handler, self.key, event], |row| codec::job_id(row, 0))
            .optional()?;
        if let Some(job) = found {
            return Ok(Some(Newer::Job(job)));
        }
        // The only row.
        let removed: i64 = tx
            .prepare_cached("SELECT newest_removed FROM meta")?
            .query_row([], |row| row.get(0))?;
        Ok((event < removed).then_some(Newer::Removed))
    }

    /// Lets the first job behind go on, where none holds the group any more.
    pub(crate) fn release(&self, tx: &Connection) -> rusqlite::Result<()> {
        tx.prepare_cached(RELEASE)?.execute([&self.handler, &self.key])?;
        Ok(())
    }
}

/// Lets the next job of this job's group go on, if this one was moved out of its way.
pub(crate) fn release(tx: &Connection, job: i64) -> rusqlite::Result<()> {
    // By the row.
    let group = tx
        .prepare_cached(
            "SELECT handler, group_key FROM job WHERE row = ?1 AND group_key IS NOT NULL",
        )?
        .query_row([job], |row| Ok(GroupOf { handler: row.get(0)?, key: row.get(1)? }))
        .optional()?;
    group.map_or(Ok(()), |group| group.release(tx))
}

/// The same for all groups of a handler, of which many jobs were moved at once. Looks at every job that is behind.
pub(crate) fn release_all(tx: &Connection, handler: &str) -> rusqlite::Result<()> {
    let mut after = String::new();
    // One look-up in the index of groups leads from one group to the next.
    let mut next =
        tx.prepare_cached("SELECT min(group_key) FROM job WHERE handler = ?1 AND group_key > ?2")?;
    while let Some(key) =
        next.query_row([handler, &after], |row| row.get::<_, Option<String>>(0))?
    {
        let group = GroupOf { handler: handler.to_owned(), key };
        group.release(tx)?;
        after = group.key;
    }
    Ok(())
}

/// Drops the jobs whose place the new job `by` takes: those of its group whose latest wins and that do not run. Returns
/// since when the first of them waited, of those that have made no attempt.
pub(crate) fn supersede(
    tx: &Connection,
    handler: &Name,
    group: &Group,
    by: JobId,
    now: Timestamp,
) -> rusqlite::Result<Option<Timestamp>> {
    if group.rule != GroupRule::Latest {
        return Ok(None);
    }
    let group_of =
        GroupOf { handler: handler.as_str().to_owned(), key: group.key.as_str().to_owned() };
    // The one that holds, by the unique index, and those behind it, by the index of groups.
    let replaced = tx
        .prepare_cached(
            "UPDATE job SET state = 'dropped', reason = 'superseded', due_at = NULL, settled_at = ?4,
                 behind = 0, superseded_by = ?3
             WHERE row IN (SELECT row FROM job INDEXED BY job_holder
                         WHERE handler = ?1 AND group_key = ?2 AND holds = 1 AND behind = 0
                     UNION ALL SELECT row FROM job WHERE handler = ?1 AND group_key = ?2 AND behind = 1)
                 AND (state = 'ready' OR state = 'waiting') AND group_rule = 'latest'
             RETURNING attempt, wait_since",
        )?
        .query_map(params![group_of.handler, group_of.key, by.as_bytes(), now.0], |row| {
            Ok((row.get::<_, u32>(0)?, codec::maybe_time(row, 1)?))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    if !replaced.is_empty() {
        group_of.release(tx)?;
    }
    let never_begun = replaced.into_iter().filter(|(attempt, _)| *attempt == 0);
    Ok(never_begun.filter_map(|(_, since)| since).min())
}

/// The newest job that waits behind this one and takes its place, where their latest wins.
pub(crate) fn successor(tx: &Connection, job: i64) -> rusqlite::Result<Option<JobId>> {
    // By the row, and by the index of groups from its end.
    tx.prepare_cached(
        "SELECT n.id FROM job o JOIN job n ON n.handler = o.handler AND n.group_key = o.group_key AND n.behind = 1
         WHERE o.row = ?1 AND n.event > o.event AND o.group_rule = 'latest' AND n.group_rule = 'latest'
             AND (n.state = 'ready' OR n.state = 'waiting')
         ORDER BY n.event DESC LIMIT 1",
    )?
    .query_row([job], |row| codec::job_id(row, 0))
    .optional()
}

/// What makes this job out of date, where the latest of its group wins: a newer event's job that has ever begun or
/// holds the group. Retention may have removed it: then every older event counts as out of date.
pub(crate) fn newer(tx: &Connection, job: i64) -> rusqlite::Result<Option<Newer>> {
    // By the row.
    let group = tx
        .prepare_cached(
            "SELECT handler, group_key, event FROM job WHERE row = ?1 AND group_rule = 'latest'",
        )?
        .query_row([job], |row| {
            Ok((GroupOf { handler: row.get(0)?, key: row.get(1)? }, row.get(2)?))
        })
        .optional()?;
    group.map_or(Ok(None), |(group, event)| group.newer_than(tx, event))
}
