//! STATUS and GAUGES: jobs that wait, by handler, and the last word of each source.
//!
//! What must stay true: they are asked for every second, so each statement looks at a bounded number of rows of each
//! handler.

use std::collections::BTreeMap;

use crate::limits::{COUNTED_JOBS, COUNTED_READY, LOOK_BACK_ROWS, MENDED_MILLIS};
use crate::model::{EventId, Name, State, Timestamp};
use crate::store::border::{
    Backlog, Disk, Error, Gauges, JobCounts, PausedRow, SourceActivity, StoreStatus,
};
use crate::store::codec;
use crate::store::columns::{column, readable};
use crate::store::decide::listing;
use crate::store::mutex::lock;

use super::super::reader::Reading;
use super::handle::Admin;
use super::history::{AWAITED, MOST_AWAITED};
use super::list::SECRETS;
use super::nodes::nodes;
use super::show::RESTORES;

/// The jobs of the state $2, ready or waiting, by handler: of each the first $1 of their index at most, and of $1 jobs
/// that are behind others of their groups those in the state. One look at the indexes leads from one handler to the
/// next. If the statement asked for an order of jobs, the server might walk the whole table in it.
const CLAIMABLE: &str = r#"
    WITH RECURSIVE next (handler) AS (
        SELECT '' COLLATE "C"
        UNION ALL SELECT least(
            (SELECT min(j.handler) FROM job j
                WHERE j.state = $2 AND NOT j.behind AND j.handler > next.handler),
            (SELECT min(j.handler) FROM job j WHERE j.behind AND j.handler > next.handler))
        FROM next WHERE next.handler IS NOT NULL
    )
    SELECT next.handler, c.jobs, c.since FROM next CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(coalesce(due_at, f.since)) AS since FROM (
            (SELECT * FROM job WHERE state = $2 AND NOT behind AND handler = next.handler LIMIT $1)
            UNION ALL (SELECT * FROM (
                SELECT * FROM job WHERE behind AND handler = next.handler LIMIT $1) b
                WHERE b.state = $2)) f) c
    WHERE c.jobs > 0 ORDER BY next.handler"#;

/// How many jobs run, by handler, counting $1 at most: few jobs run at once.
const RUNNING: &str = "
    SELECT j.handler, count(*) AS jobs, min(a.started_at) AS since
    FROM (SELECT * FROM job WHERE state = $2 LIMIT $1) j
    JOIN attempt a ON a.job = j.row AND a.number = j.attempt
    GROUP BY j.handler ORDER BY j.handler";

const BACKLOGS: [(State, &str); 3] =
    [(State::Ready, CLAIMABLE), (State::Waiting, CLAIMABLE), (State::Running, RUNNING)];

/// How many jobs are held and dead, by handler and reason, among $1 of each state.
const STUCK: &str = "
    SELECT state, handler, reason, count(*) AS jobs, min(created_at) AS oldest_at FROM (
        (SELECT * FROM job WHERE state = 'held' LIMIT $1)
        UNION ALL (SELECT * FROM job WHERE state = 'dead' LIMIT $1)) f
    GROUP BY state, handler, reason ORDER BY state DESC, handler, reason";

/// How many groups a held or dead job blocks, by handler, among $1 jobs of each state. Each takes one look at the index
/// of the jobs behind; nothing is looked at where no job is behind.
const BLOCKED: &str = "
    SELECT handler, count(*) AS groups, (array_agg(id ORDER BY row))[1] AS job FROM (
        (SELECT * FROM job WHERE state = 'held' LIMIT $1)
        UNION ALL (SELECT * FROM job WHERE state = 'dead' LIMIT $1)) f
    WHERE (SELECT true FROM job WHERE behind LIMIT 1) AND holds AND NOT behind
        AND (SELECT true FROM job n
            WHERE n.handler = f.handler AND n.group_key = f.group_key AND n.behind LIMIT 1)
    GROUP BY handler ORDER BY handler";

/// How many jobs are held and how many dead, $1 of each at most, by their indexes alone.
const STUCK_COUNTS: &str = "
    SELECT (SELECT count(*) FROM (SELECT FROM job WHERE state = 'held' LIMIT $1) f),
        (SELECT count(*) FROM (SELECT FROM job WHERE state = 'dead' LIMIT $1) f)";

/// A row for each handler.
const PAUSED: &str =
    "SELECT handler, paused_at AS since FROM lane WHERE paused_at IS NOT NULL ORDER BY handler";

/// The newest event's arrival, and the bytes of the database.
const TOTALS: &str = "
    SELECT (SELECT received_at FROM event ORDER BY row DESC LIMIT 1),
        pg_database_size(current_database())";

/// The one row.
const MENDED: &str = "
    SELECT mended AS payloads, mended_at AS last_at FROM meta WHERE mended_at > now_ms() - $1";

/// The newest event of each source that has one among the newest $1 of all.
const LAST_EVENTS: &str = "
    SELECT DISTINCT ON (source) source, event_id, received_at
    FROM (SELECT source, event_id, received_at, row FROM event ORDER BY row DESC LIMIT $1) e
    ORDER BY source, row DESC";

/// A few rows: one per secret.
const LAST_MATCHES: &str = "SELECT source, max(last_matched_at) FROM secret_use GROUP BY source";

impl Admin {
    /// How the store stands, in one snapshot. Up to 10,000 jobs of a handler and state and 100,000 held and dead ones
    /// are counted. `sources`: those to look for beside the ones with a failed delivery, which are this node's own, as
    /// is the free space: that of the state folder. The log is the server's, and its size is not shown.
    pub async fn status(&self, sources: Vec<Name>) -> Result<StoreStatus, Error> {
        // Without an answer of the quarantine the rest is still shown.
        let failed = self.quarantine.newest().await.unwrap_or_default();
        let keep_ids = codec::size(self.limits().keep_ids_millis);
        let mut reading = self.look().snapshot(None).await?;
        let JobCounts { ready, waiting, running, stuck, blocked } =
            counts(&mut reading, COUNTED_READY).await?;
        let totals: Option<(Option<Timestamp>, u64)> = reading.one(TOTALS, &[]).await?;
        let (newest_event_at, database_bytes) = totals.unwrap_or_default();
        Ok(StoreStatus {
            ready,
            waiting,
            running,
            stuck,
            blocked,
            paused: reading.all(PAUSED, &[]).await?,
            sources: last_words(&mut reading, listing::sources(sources, failed)).await?,
            newest_event_at,
            last_commit_at: self.own.as_ref().and_then(|writer| *lock(&writer.commits.last)),
            disk: Disk {
                free_bytes: self.space.as_ref().and_then(|space| space.free_bytes()),
                floor_bytes: self.limits().disk_floor_bytes,
                database_bytes,
                log_bytes: 0,
            },
            mended: reading.one(MENDED, &[&MENDED_MILLIS]).await?,
            awaited: reading.all(AWAITED, &[&MOST_AWAITED]).await?,
            restores: reading.all(RESTORES, &[&i64::MIN, &Some(keep_ids)]).await?,
            nodes: nodes(&mut reading).await?,
            server_warning: self.target.remark(),
        })
    }

    /// Gauges of the store's content. Up to 100,000 jobs of a handler and state are counted.
    pub async fn gauges(&self) -> Result<Gauges, Error> {
        let mut reading = self.look().snapshot(None).await?;
        let jobs = counts(&mut reading, COUNTED_JOBS).await?;
        let paused: Vec<PausedRow> = reading.all(PAUSED, &[]).await?;
        let paused = paused.into_iter().map(|row| row.handler).collect();
        let secrets = reading.all(SECRETS, &[]).await?;
        let nodes = nodes(&mut reading).await?;
        Ok(Gauges { jobs, paused, secrets, free_page_bytes: 0, nodes })
    }

    /// How many jobs are held and how many dead: those that wait for a person. Up to 100,000 of each are counted.
    pub async fn stuck_counts(&self) -> Result<(u64, u64), Error> {
        let mut reading = self.look().read().await?;
        Ok(reading.one(STUCK_COUNTS, &[&COUNTED_JOBS]).await?.unwrap_or_default())
    }

    /// How many jobs each handler has that are to run or running, by name: what a configuration without
    /// that handler would hold. Up to 100,000 of each state are counted.
    pub async fn unfinished(&self) -> Result<Vec<(Name, u64)>, Error> {
        let mut reading = self.look().snapshot(None).await?;
        let mut jobs = BTreeMap::new();
        let backlogs = backlogs(&mut reading, COUNTED_JOBS).await?;
        for backlog in backlogs.into_iter().flatten() {
            *jobs.entry(backlog.handler).or_default() += backlog.jobs;
        }
        Ok(jobs.into_iter().collect())
    }

    /// The paused handlers by name, configured or not.
    pub async fn paused(&self) -> Result<Vec<PausedRow>, Error> {
        self.look().read().await?.all(PAUSED, &[]).await
    }
}

/// Counts up to so many jobs of each handler and state.
async fn counts(reading: &mut Reading<'_>, most: i64) -> Result<JobCounts, Error> {
    let [ready, waiting, running] = backlogs(reading, most).await?;
    let stuck = reading.all(STUCK, &[&COUNTED_JOBS]).await?;
    let blocked = reading.all(BLOCKED, &[&COUNTED_JOBS]).await?;
    Ok(JobCounts { ready, waiting, running, stuck, blocked })
}

/// Reads the backlogs of the states of [`BACKLOGS`], in their order, counting `most` jobs of a handler at most.
async fn backlogs(reading: &mut Reading<'_>, most: i64) -> Result<[Vec<Backlog>; 3], Error> {
    let mut backlogs = [const { Vec::new() }; 3];
    for ((state, sql), found) in BACKLOGS.into_iter().zip(&mut backlogs) {
        *found = reading.all(sql, &[&most, &state]).await?;
    }
    Ok(backlogs)
}

async fn last_words(
    reading: &mut Reading<'_>,
    mut sources: Vec<SourceActivity>,
) -> Result<Vec<SourceActivity>, Error> {
    // Mostly every source has an event among a few.
    for rows in [LOOK_BACK_ROWS / 20, LOOK_BACK_ROWS] {
        for event in reading.rows(LAST_EVENTS, &[&rows]).await? {
            let source: Name = readable(&event, "source")?;
            if let Some(row) = sources.iter_mut().find(|row| row.source == source) {
                let id: EventId = readable(&event, "event_id")?;
                row.event = Some((id, column(&event, "received_at")?));
            }
        }
        if sources.iter().all(|row| row.event.is_some()) {
            break;
        }
    }
    for (source, at) in reading.all::<(Name, Timestamp)>(LAST_MATCHES, &[]).await? {
        if let Some(row) = sources.iter_mut().find(|row| row.source == source) {
            row.secret_matched_at = Some(at);
        }
    }
    Ok(sources)
}
