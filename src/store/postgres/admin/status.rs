//! STATUS and GAUGES: jobs that wait, by handler, and the last word of each source.
//!
//! What must stay true: they are asked for every second, so each statement looks at a bounded number of rows of each
//! handler. A state is a literal, which its partial index needs.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use crate::limits::{COUNTED_JOBS, COUNTED_READY, LOOK_BACK_ROWS};
use crate::model::{EventId, Name, State, Timestamp};
use crate::store::border::{
    Backlog, BlockedGroups, Disk, Error, Gauges, JobCounts, PausedRow, SourceActivity, StoppedJobs,
    StoreStatus,
};
use crate::store::codec;

use super::super::columns::Columns;
use super::super::reader::Reading;
use super::handle::Admin;
use super::list::secrets;
use super::rows::next_values;
use super::show::restores;

/// The jobs of a state by handler: of each the first $1 of their index at most, and of $1 jobs that are behind others of
/// their groups those in the state. If the statement asked for an order, the server might walk the whole table in it.
macro_rules! backlog {
    ($state:literal, $time:literal) => {
        concat!(
            "SELECT h.handler, c.jobs, c.since FROM (SELECT value AS handler FROM (",
            next_values!("handler", "job", concat!("state = '", $state, "' AND NOT behind")),
            ") claimable UNION SELECT value FROM (",
            next_values!("handler", "job", "behind"),
            ") others) h CROSS JOIN LATERAL (
                SELECT count(*) AS jobs, min(at) AS since FROM (
                    (SELECT ",
            $time,
            " AS at FROM job WHERE state = '",
            $state,
            "' AND NOT behind AND handler = h.handler LIMIT $1) UNION ALL (SELECT at FROM (SELECT state, ",
            $time,
            " AS at FROM job WHERE behind AND handler = h.handler LIMIT $1) b WHERE b.state = '",
            $state,
            "')) found) c WHERE c.jobs > 0 ORDER BY h.handler"
        )
    };
}

const READY: &str = backlog!("ready", "since");
const WAITING: &str = backlog!("waiting", "due_at");

/// Of jobs that run there are few.
const RUNNING: &str = "
    SELECT j.handler, count(*) AS jobs, min(a.started_at) AS since
    FROM job j JOIN attempt a ON a.job = j.row AND a.number = j.attempt
    WHERE j.state = 'running' GROUP BY j.handler ORDER BY j.handler";

/// Of $1 held and of $1 dead jobs.
const STUCK: &str = "
    SELECT state, handler, reason, count(*) AS jobs, min(created_at) AS oldest_at FROM (
        (SELECT state, handler, reason, created_at FROM job WHERE state = 'held' LIMIT $1)
        UNION ALL (SELECT state, handler, reason, created_at FROM job WHERE state = 'dead' LIMIT $1)) f
    GROUP BY state, handler, reason ORDER BY state DESC, handler, reason";

/// The same, each with one look at the index of those behind. Nothing is looked at where no job is behind.
const BLOCKED: &str = "
    SELECT handler, count(*) AS groups, (array_agg(id ORDER BY row))[1] AS job FROM (
        (SELECT handler, group_key, id, row, holds, behind FROM job WHERE state = 'held' LIMIT $1)
        UNION ALL (SELECT handler, group_key, id, row, holds, behind FROM job WHERE state = 'dead' LIMIT $1)) f
    WHERE (SELECT true FROM job WHERE behind LIMIT 1) AND holds AND NOT behind AND (SELECT true FROM job n
        WHERE n.handler = f.handler AND n.group_key = f.group_key AND n.behind LIMIT 1)
    GROUP BY handler ORDER BY handler";

/// By their indexes alone, $1 of each at most.
const STUCK_COUNTS: &str = "
    SELECT (SELECT count(*) FROM (SELECT FROM job WHERE state = 'held' LIMIT $1) f) AS held,
        (SELECT count(*) FROM (SELECT FROM job WHERE state = 'dead' LIMIT $1) f) AS dead";

/// A row for each handler.
const PAUSED: &str =
    "SELECT handler, paused_at FROM lane WHERE paused_at IS NOT NULL ORDER BY handler";

const NEWEST: &str = "SELECT received_at FROM event ORDER BY row DESC LIMIT 1";

/// The newest event of each source that has one among the newest $1 of all.
const LAST_EVENTS: &str = "
    SELECT DISTINCT ON (source) source, event_id, received_at
    FROM (SELECT source, event_id, received_at, row FROM event ORDER BY row DESC LIMIT $1) e
    ORDER BY source, row DESC";

/// A few rows: one per secret.
const LAST_MATCHES: &str =
    "SELECT source, max(last_matched_at) AS last_matched_at FROM secret_use GROUP BY source";

impl Admin {
    /// How the store stands, in one snapshot. Up to 10,000 jobs of a handler and state and 100,000 held and dead ones
    /// are counted. `sources`: those to look for. A node knows its last commit and its quarantine; the server shows
    /// nothing of its disk.
    pub async fn status(&self, sources: Vec<Name>) -> Result<StoreStatus, Error> {
        let keep_ids = codec::size(self.limits().keep_ids_millis);
        let mut reading = self.look().snapshot().await?;
        let JobCounts { ready, waiting, running, stuck, blocked } =
            counts(&mut reading, COUNTED_READY).await?;
        Ok(StoreStatus {
            ready,
            waiting,
            running,
            stuck,
            blocked,
            paused: paused(&mut reading).await?,
            sources: last_words(&mut reading, sources).await?,
            newest_event_at: match reading.row(NEWEST, &[]).await? {
                Some(row) => Some(row.time("received_at")?),
                None => None,
            },
            last_commit_at: None,
            disk: Disk::default(),
            restores: restores(&mut reading, Timestamp(i64::MIN), Some(keep_ids)).await?,
        })
    }

    /// Gauges of the store's content. Up to 100,000 jobs of a handler and state are counted.
    pub async fn gauges(&self) -> Result<Gauges, Error> {
        let mut reading = self.look().snapshot().await?;
        let jobs = counts(&mut reading, COUNTED_JOBS).await?;
        let paused = paused(&mut reading).await?.into_iter().map(|row| row.handler).collect();
        let secrets = secrets(&mut reading).await?;
        Ok(Gauges { jobs, paused, secrets, free_page_bytes: 0 })
    }

    /// How many jobs are held and how many dead: those that wait for a person. Up to 100,000 of each are counted.
    pub async fn stuck_counts(&self) -> Result<(u64, u64), Error> {
        let row = self.look().read().await?.row(STUCK_COUNTS, &[&COUNTED_JOBS]).await?;
        let Some(row) = row else { return Ok((0, 0)) };
        Ok((row.number("held")?, row.number("dead")?))
    }

    /// How many jobs each handler has that are to run or running, by name: what a configuration without
    /// that handler would hold. Up to 100,000 of each state are counted.
    pub async fn unfinished(&self) -> Result<Vec<(Name, u64)>, Error> {
        let mut reading = self.look().snapshot().await?;
        let mut jobs = BTreeMap::new();
        for (sql, most) in BACKLOGS {
            for backlog in backlogs(&mut reading, sql, most.then_some(COUNTED_JOBS)).await? {
                *jobs.entry(backlog.handler).or_default() += backlog.jobs;
            }
        }
        Ok(jobs.into_iter().collect())
    }

    /// The paused handlers by name, configured or not.
    pub async fn paused(&self) -> Result<Vec<PausedRow>, Error> {
        paused(&mut self.look().read().await?).await
    }
}

/// The statements of [`backlogs`], and whether they count up to a bound.
const BACKLOGS: [(&str, bool); 3] = [(READY, true), (WAITING, true), (RUNNING, false)];

/// Counts up to so many jobs of each handler and state.
async fn counts(reading: &mut Reading<'_>, most: i64) -> Result<JobCounts, Error> {
    let stopped = |row: &Row| {
        Ok(StoppedJobs {
            handler: row.word("handler")?,
            state: row.word::<State>("state")?,
            reason: row.value("reason")?,
            jobs: row.number("jobs")?,
            oldest_at: row.time("oldest_at")?,
        })
    };
    let blocked = |row: &Row| {
        let (handler, groups) = (row.word("handler")?, row.number("groups")?);
        Ok(BlockedGroups { handler, groups, job: row.job_id("job")? })
    };
    let [mut ready, mut waiting, mut running] = [const { Vec::new() }; 3];
    let all = [&mut ready, &mut waiting, &mut running];
    for ((sql, bounded), found) in BACKLOGS.into_iter().zip(all) {
        *found = backlogs(reading, sql, bounded.then_some(most)).await?;
    }
    Ok(JobCounts {
        ready,
        waiting,
        running,
        stuck: reading.all(STUCK, &[&COUNTED_JOBS], stopped).await?,
        blocked: reading.all(BLOCKED, &[&COUNTED_JOBS], blocked).await?,
    })
}

async fn backlogs(
    reading: &mut Reading<'_>,
    sql: &'static str,
    most: Option<i64>,
) -> Result<Vec<Backlog>, Error> {
    let read = |row: &Row| {
        let (handler, jobs) = (row.word("handler")?, row.number("jobs")?);
        Ok(Backlog { handler, jobs, since: row.time("since")? })
    };
    match most {
        Some(most) => reading.all(sql, &[&most], read).await,
        None => reading.all(sql, &[], read).await,
    }
}

async fn paused(reading: &mut Reading<'_>) -> Result<Vec<PausedRow>, Error> {
    let read =
        |row: &Row| Ok(PausedRow { handler: row.word("handler")?, since: row.time("paused_at")? });
    reading.all(PAUSED, &[], read).await
}

async fn last_words(
    reading: &mut Reading<'_>,
    mut sources: Vec<Name>,
) -> Result<Vec<SourceActivity>, Error> {
    sources.sort();
    sources.dedup();
    let mut events: BTreeMap<Name, (EventId, Timestamp)> = BTreeMap::new();
    // Mostly every source has an event among a few.
    for rows in [LOOK_BACK_ROWS / 20, LOOK_BACK_ROWS] {
        let read = |row: &Row| {
            let event = (row.word("event_id")?, row.time("received_at")?);
            Ok((row.word("source")?, event))
        };
        events = reading.all(LAST_EVENTS, &[&rows], read).await?.into_iter().collect();
        if sources.iter().all(|source| events.contains_key(source)) {
            break;
        }
    }
    let read = |row: &Row| Ok((row.word("source")?, row.time("last_matched_at")?));
    let matches: Vec<(Name, Timestamp)> = reading.all(LAST_MATCHES, &[], read).await?;
    let matches: BTreeMap<Name, Timestamp> = matches.into_iter().collect();
    let last_word = |source: Name| SourceActivity {
        event: events.remove(&source),
        secret_matched_at: matches.get(&source).copied(),
        failure: None,
        quarantined: 0,
        source,
    };
    Ok(sources.into_iter().map(last_word).collect())
}
