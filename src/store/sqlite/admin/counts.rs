//! Counts of the jobs that are not settled, or that wait for a person: for `status`, `metrics` and the handlers.
//!
//! What must stay true: monitors ask for them every few seconds, so no statement walks settled jobs. A state is a
//! literal, which its partial index needs.

use rusqlite::{Connection, params};

use crate::limits::COUNTED_READY;
use crate::model::Name;
use crate::store::border::{Backlog, JobCounts};
use crate::store::sqlite::tables::codec;

/// How many jobs are ready, by handler, and since when the next one to be claimed is ready. It reads the index of the
/// jobs that may be claimed, which has them by handler in the order in which they are claimed.
pub(crate) const READY: &str = "SELECT handler, count(*) AS jobs,
         coalesce((SELECT n.since FROM job n WHERE n.state = 'ready' AND n.handler = j.handler AND n.behind = 0
             ORDER BY n.row LIMIT 1), (SELECT n.since FROM job n WHERE n.state = 'ready' AND n.handler = j.handler
             AND n.behind = 1 ORDER BY n.row LIMIT 1)) AS since
     FROM job j WHERE state = 'ready' GROUP BY handler";

/// The next handler by name that has ready jobs.
pub(crate) const NEXT_READY: &str =
    "SELECT min(handler) FROM job WHERE state = 'ready' AND handler > ?1";

/// How many ready jobs handler ?1 has, ?2 at most, and since when the oldest is ready of the first ?3 in the order of
/// arrival. By the index of the jobs that may be claimed, which has all of it but the times. A job that was replayed
/// is younger than those behind it.
pub(crate) const SOME_READY: &str =
    "SELECT (SELECT count(*) FROM (SELECT 1 FROM job WHERE state = 'ready' AND handler = ?1 LIMIT ?2)),
         min(since) FROM (
             SELECT * FROM (SELECT since FROM job WHERE state = 'ready' AND handler = ?1 AND behind = 0
                 ORDER BY row LIMIT ?3)
             UNION ALL
             SELECT * FROM (SELECT since FROM job WHERE state = 'ready' AND handler = ?1 AND behind = 1
                 ORDER BY row LIMIT ?3))";

/// So many ready jobs of a handler are looked at for the oldest.
const FIRST_READY: i64 = 1_000;

/// How many jobs wait for their due time, by handler, by the index of due times.
pub(crate) const WAITING: &str = "SELECT handler, count(*) AS jobs, min(due_at) AS since FROM job
     WHERE state = 'waiting' GROUP BY handler";

/// How many jobs run, by handler, by the index of live attempts, of which there are few.
pub(crate) const RUNNING: &str =
    "SELECT j.handler, count(*) AS jobs, min(a.started_at) AS since FROM attempt a JOIN job j ON j.row = a.job
     WHERE a.outcome IS NULL GROUP BY j.handler";

/// How many jobs are held and dead, by handler and reason, by the indexes of their causes, which have the groups in
/// order.
pub(crate) const STUCK: &str =
    "SELECT 'held' AS state, handler, reason, count(*) AS jobs, min(created_at) AS oldest_at
         FROM job INDEXED BY job_held_cause
         WHERE state = 'held' GROUP BY handler, reason
     UNION ALL
     SELECT 'dead', handler, reason, count(*), min(created_at) FROM job INDEXED BY job_dead_cause
         WHERE state = 'dead' GROUP BY handler, reason";

/// How many jobs are held and dead, by handler and reason, by their indexes, among ?1 of each state.
pub(crate) const SOME_STUCK: &str = "
     SELECT 'held' AS state, handler, reason, count(*) AS jobs, min(created_at) AS oldest_at
         FROM (SELECT handler, reason, created_at FROM job WHERE state = 'held' LIMIT ?1) GROUP BY handler, reason
     UNION ALL
     SELECT 'dead', handler, reason, count(*), min(created_at)
         FROM (SELECT handler, reason, created_at FROM job WHERE state = 'dead' LIMIT ?1) GROUP BY handler, reason";

/// How many groups a held or dead job blocks, by handler, among ?1 jobs of each state that have a group. Each takes one
/// look at the index of groups. It names the indexes of causes, because SQLite would take the index of all jobs with a
/// group.
pub(crate) const BLOCKED: &str = "SELECT handler, count(*) AS groups, id AS job FROM (
         SELECT * FROM (SELECT handler, group_key, id, holds, behind FROM job INDEXED BY job_held_cause
             WHERE state = 'held' AND group_key IS NOT NULL LIMIT ?1)
         UNION ALL
         SELECT * FROM (SELECT handler, group_key, id, holds, behind FROM job INDEXED BY job_dead_cause
             WHERE state = 'dead' AND group_key IS NOT NULL LIMIT ?1)) f
     WHERE holds = 1 AND behind = 0 AND EXISTS (SELECT 1 FROM job n
         WHERE n.handler = f.handler AND n.group_key = f.group_key AND n.behind = 1)
     GROUP BY handler";

/// Whether any job waits behind another of its group: by their index, where mostly there is none.
const ANY_BEHIND: &str = "SELECT 1 FROM job WHERE behind = 1 LIMIT 1";

/// Without a bound counts all jobs but the ready ones, of which it counts [`COUNTED_READY`] of each handler at most.
/// With a bound counts so many held and dead jobs at most, each, and all ready ones, and has the time of the ready
/// job that is claimed next in place of the oldest.
pub(super) fn read(conn: &Connection, bound: Option<i64>) -> rusqlite::Result<JobCounts> {
    // SQLite takes a negative limit for none.
    let most = bound.unwrap_or(-1);
    let stuck = if bound.is_some() { SOME_STUCK } else { STUCK };
    let stuck = codec::all(conn, stuck, rusqlite::params_from_iter(bound))?;
    let blocked = match conn.prepare_cached(ANY_BEHIND)?.exists([])? {
        true => codec::all(conn, BLOCKED, [most])?,
        false => Vec::new(),
    };
    Ok(JobCounts {
        ready: if bound.is_some() { backlogs(conn, READY)? } else { some_ready(conn)? },
        waiting: backlogs(conn, WAITING)?,
        running: backlogs(conn, RUNNING)?,
        stuck,
        blocked,
    })
}

/// The ready jobs of each handler, [`COUNTED_READY`] at most.
fn some_ready(conn: &Connection) -> rusqlite::Result<Vec<Backlog>> {
    let mut ready = conn.prepare_cached(SOME_READY)?;
    let of = |handler: Name| {
        ready.query_row(params![handler.as_str(), COUNTED_READY, FIRST_READY], |row| {
            let (jobs, since) = (codec::count(row, 0)?, codec::time(row, 1)?);
            Ok(Backlog { handler: handler.clone(), jobs, since })
        })
    };
    codec::names(conn, NEXT_READY)?.into_iter().map(of).collect()
}

/// The jobs of each handler in one state, by this statement.
pub(super) fn backlogs(conn: &Connection, sql: &str) -> rusqlite::Result<Vec<Backlog>> {
    codec::all(conn, sql, [])
}
