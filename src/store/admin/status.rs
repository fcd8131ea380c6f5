//! STATUS: the snapshot that `status` shows: jobs that wait, by handler, the last word of each source,
//! the disk. One snapshot for all of it.
//!
//! What must stay true: it is asked every minute by monitors, so no statement of it walks the whole
//! store; what it costs grows with the jobs that are not settled, or that wait for a person.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::model::{EventId, Name, State, Timestamp};
use crate::store::engine::path::beside;
use crate::store::quarantine::types::QuarantinedRow;
use crate::store::rows::{PausedRow, RestoredRow};
use crate::store::tables::restored::restores;
use crate::store::tables::{codec, paused};
use crate::store::types::Error;

use super::handle::Admin;

/// So far back among all events, in rows, a source's newest one is looked for: a look that costs
/// milliseconds. For one that was silent for longer the use of its secret says when.
const LOOK_BACK_ROWS: i64 = 100_000;

/// How a store stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Standing {
    /// Jobs that may be claimed, by handler.
    pub ready: Vec<Backlog>,
    /// Jobs that wait for another attempt, by handler.
    pub waiting: Vec<Backlog>,
    /// Jobs with a live attempt, by handler.
    pub running: Vec<Backlog>,
    /// Held and dead jobs by handler and reason, held ones first.
    pub stuck: Vec<Stuck>,
    /// The paused handlers by name.
    pub paused: Vec<PausedRow>,
    /// The last word of each source that was ever heard of, by name.
    pub sources: Vec<LastWord>,
    /// The newest event's arrival.
    pub newest_event_at: Option<Timestamp>,
    /// The last commit of this process that changed anything; none yet, or a stopped store.
    pub last_commit_at: Option<Timestamp>,
    /// Space and sizes.
    pub disk: Disk,
    /// The restores whose gap still matters: an event that arrived in it would still be remembered by its id.
    #[serde(default)]
    pub restores: Vec<RestoredRow>,
}

/// Unsettled jobs of one handler in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    pub handler: Name,
    pub jobs: u64,
    /// Since when the oldest is ready or running; for waiting ones when the next is due.
    pub since: Timestamp,
}

/// Jobs of one handler that wait for a person for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    pub handler: Name,
    /// `held` or `dead`.
    pub state: State,
    pub reason: String,
    pub jobs: u64,
    /// The oldest one's event arrived then.
    pub oldest_at: Timestamp,
}

/// The last event, secret match and failure of one source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LastWord {
    pub source: Name,
    /// Its newest stored event, where it is among the newest of all.
    pub event: Option<(EventId, Timestamp)>,
    /// When one of its secrets last matched, to the minute: duplicates count too.
    pub secret_matched_at: Option<Timestamp>,
    /// Its newest failed delivery that is kept.
    pub failure: Option<QuarantinedRow>,
    /// How many of its failed deliveries are kept with a body, to be judged again.
    pub quarantined: u64,
}

/// Where the store lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Free for this user; none where the file system does not say.
    pub free_bytes: Option<u64>,
    /// Below this accepts are refused (`disk_floor_bytes`).
    pub floor_bytes: u64,
    /// The database file.
    pub database_bytes: u64,
    /// The write-ahead log.
    pub log_bytes: u64,
}

impl Admin {
    /// How the store stands. `sources`: those to look for beside the ones with a failed delivery.
    pub async fn standing(&self, sources: Vec<Name>) -> Result<Standing, Error> {
        let disk = self.disk();
        let last_commit_at = self.engine.commits.last();
        // Without an answer of the quarantine the rest is still shown.
        let failed = self.newest_quarantined().await.unwrap_or_default();
        let keep_ids = Limits::duration(self.engine.settings.limits.keep_ids_millis);
        let remembered = self.engine.clock.now().before(keep_ids);
        self.engine
            .read(move |conn| {
                Ok(Standing {
                    ready: ready(conn)?,
                    waiting: waiting(conn)?,
                    running: running(conn)?,
                    stuck: stuck(conn)?,
                    paused: paused::paused(conn)?,
                    sources: last_words(conn, sources.clone(), failed.clone())?,
                    newest_event_at: newest_event(conn)?,
                    last_commit_at,
                    disk,
                    restores: restores(conn, Timestamp(i64::MIN), Some(remembered))?,
                })
            })
            .await
    }

    pub(crate) fn disk(&self) -> Disk {
        let path = &self.engine.settings.path;
        Disk {
            free_bytes: self.engine.space.free_bytes(),
            floor_bytes: self.engine.settings.limits.disk_floor_bytes,
            database_bytes: size_of(path),
            log_bytes: size_of(&beside(path, "-wal")),
        }
    }
}

impl Admin {
    /// How many jobs are held and how many dead: those that wait for a person. By their indexes alone.
    pub async fn stuck_counts(&self) -> Result<(u64, u64), Error> {
        self.engine
            .read(|conn| {
                // A literal state each, which a partial index needs.
                conn.prepare_cached(
                    "SELECT (SELECT count(*) FROM job WHERE state = 'held'),
                        (SELECT count(*) FROM job WHERE state = 'dead')",
                )?
                .query_row([], |row| Ok((codec::count(row, 0)?, codec::count(row, 1)?)))
            })
            .await
    }
}

/// From the file system's metadata: opening and closing the file here would drop SQLite's locks (S11).
fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

fn ready(conn: &Connection) -> rusqlite::Result<Vec<Backlog>> {
    // By the index of what may be claimed, which has them by handler.
    backlog(
        conn,
        "SELECT handler, count(*), min(since) FROM job WHERE state = 'ready' GROUP BY handler",
    )
}

fn waiting(conn: &Connection) -> rusqlite::Result<Vec<Backlog>> {
    // By the index of due times.
    backlog(
        conn,
        "SELECT handler, count(*), min(due_at) FROM job WHERE state = 'waiting' GROUP BY handler",
    )
}

fn running(conn: &Connection) -> rusqlite::Result<Vec<Backlog>> {
    backlog(conn, RUNNING)
}

/// By the index of live attempts, of which there are few.
pub(crate) const RUNNING: &str =
    "SELECT j.handler, count(*), min(a.started_at) FROM attempt a JOIN job j ON j.row = a.job
     WHERE a.outcome IS NULL GROUP BY j.handler";

fn backlog(conn: &Connection, sql: &str) -> rusqlite::Result<Vec<Backlog>> {
    conn.prepare_cached(sql)?
        .query_map([], |row| {
            Ok(Backlog {
                handler: codec::text(row, 0)?,
                jobs: codec::count(row, 1)?,
                since: codec::time(row, 2)?,
            })
        })?
        .collect()
}

fn stuck(conn: &Connection) -> rusqlite::Result<Vec<Stuck>> {
    // By the indexes of held and of dead jobs: a literal state each, which a partial index needs.
    conn.prepare_cached(
        "SELECT 'held', handler, reason, count(*), min(created_at) FROM job
             WHERE state = 'held' GROUP BY handler, reason
         UNION ALL
         SELECT 'dead', handler, reason, count(*), min(created_at) FROM job
             WHERE state = 'dead' GROUP BY handler, reason",
    )?
    .query_map([], |row| {
        Ok(Stuck {
            state: codec::text(row, 0)?,
            handler: codec::text(row, 1)?,
            reason: row.get(2)?,
            jobs: codec::count(row, 3)?,
            oldest_at: codec::time(row, 4)?,
        })
    })?
    .collect()
}

fn newest_event(conn: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    // The last row of the table.
    conn.prepare_cached("SELECT received_at FROM event ORDER BY row DESC LIMIT 1")?
        .query_row([], |row| codec::time(row, 0))
        .optional()
}

fn last_words(
    conn: &Connection,
    mut sources: Vec<Name>,
    failed: Vec<(QuarantinedRow, u64)>,
) -> rusqlite::Result<Vec<LastWord>> {
    sources.extend(failed.iter().map(|(newest, _)| newest.source.clone()));
    sources.sort();
    sources.dedup();
    let word = |source: Name| {
        let newest = failed.iter().find(|(newest, _)| newest.source == source);
        last_word(conn, source, newest.cloned())
    };
    sources.into_iter().map(word).collect()
}

fn last_word(
    conn: &Connection,
    source: Name,
    failed: Option<(QuarantinedRow, u64)>,
) -> rusqlite::Result<LastWord> {
    // Backwards through the newest events of all until one is its own. The plus keeps the unique index
    // out of it, by which all of the source's events would be read and sorted.
    let event = conn
        .prepare_cached(
            "SELECT event_id, received_at FROM event
             WHERE row > (SELECT max(row) FROM event) - ?2 AND +source = ?1
             ORDER BY row DESC LIMIT 1",
        )?
        .query_row((source.as_str(), LOOK_BACK_ROWS), |row| {
            Ok((codec::event_id(row, 0)?, codec::time(row, 1)?))
        })
        .optional()?;
    // A few rows: one per secret of the source.
    let secret_matched_at = conn
        .prepare_cached("SELECT max(last_matched_at) FROM secret_use WHERE source = ?1")?
        .query_row([source.as_str()], |row| codec::maybe_time(row, 0))?;
    let (failure, quarantined) = failed.unzip();
    let quarantined = quarantined.unwrap_or(0);
    Ok(LastWord { source, event, secret_matched_at, failure, quarantined })
}

impl Admin {
    /// How many jobs each handler has that are to run or running, by name: what a configuration without
    /// that handler would hold.
    pub async fn unfinished(&self) -> Result<Vec<(Name, u64)>, Error> {
        self.engine
            .read(|conn| {
                conn.prepare_cached(UNFINISHED)?
                    .query_map([], |row| Ok((codec::text(row, 0)?, codec::count(row, 1)?)))?
                    .collect()
            })
            .await
    }
}

/// Each part by an index, so that a store of a million settled jobs costs no more; running jobs by their live
/// attempts.
pub(crate) const UNFINISHED: &str = "SELECT handler, sum(jobs) FROM (
         SELECT handler, count(*) AS jobs FROM job WHERE state = 'ready' GROUP BY handler
         UNION ALL
         SELECT handler, count(*) FROM job WHERE state = 'waiting' GROUP BY handler
         UNION ALL
         SELECT j.handler, count(*) FROM attempt a JOIN job j ON j.row = a.job
             WHERE a.outcome IS NULL GROUP BY j.handler)
     GROUP BY handler ORDER BY handler";
