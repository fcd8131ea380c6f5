//! STATUS: the snapshot that `status` shows: jobs that wait, by handler, the last word of each source,
//! the disk. One snapshot for all of it.
//!
//! What must stay true: it is asked every minute by monitors, so no statement of it walks the whole
//! store; what it costs grows with the jobs that are not settled, or that wait for a person.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use crate::limits::{LOOK_BACK_ROWS, Limits, MENDED_MILLIS};
use crate::model::{EventId, Name, Timestamp};
use crate::store::border::{Disk, Error, JobCounts, MendedPayloads, SourceActivity, StoreStatus};
use crate::store::decide::listing;
use crate::store::mutex::lock;
use crate::store::node::path::beside;
use crate::store::sqlite::tables::restored::restores;
use crate::store::sqlite::tables::{codec, paused};

use super::counts::{self, READY, RUNNING, WAITING, backlogs};
use super::handle::Admin;

impl Admin {
    pub async fn status(&self, sources: Vec<Name>) -> Result<StoreStatus, Error> {
        let disk = self.disk();
        let last_commit_at = *lock(&self.engine.commits.last);
        // Without an answer of the quarantine the rest is still shown.
        let failed = self.quarantine.newest().await.unwrap_or_default();
        let sources = listing::sources(sources, failed);
        let keep_ids = Limits::duration(self.engine.settings.limits.keep_ids_millis);
        let now = self.engine.clock.now();
        let remembered = now.before(keep_ids);
        self.engine
            .read(move |conn| {
                let JobCounts { ready, waiting, running, stuck, blocked } =
                    counts::read(conn, None)?;
                Ok(StoreStatus {
                    ready,
                    waiting,
                    running,
                    stuck,
                    blocked,
                    paused: paused::paused(conn)?,
                    sources: last_words(conn, sources)?,
                    // The last row of the table.
                    newest_event_at: conn
                        .prepare_cached("SELECT received_at FROM event ORDER BY row DESC LIMIT 1")?
                        .query_row([], |row| codec::time(row, 0))
                        .optional()?,
                    last_commit_at,
                    disk,
                    mended: mended(conn, now)?,
                    awaited: Vec::new(),
                    restores: restores(conn, Timestamp(i64::MIN), Some(remembered))?,
                    nodes: Vec::new(),
                    server_warning: None,
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

    pub async fn unfinished(&self) -> Result<Vec<(Name, u64)>, Error> {
        self.engine
            .read(|conn| {
                let mut jobs = BTreeMap::new();
                for sql in [READY, WAITING, RUNNING] {
                    for backlog in backlogs(conn, sql)? {
                        *jobs.entry(backlog.handler).or_default() += backlog.jobs;
                    }
                }
                Ok(jobs.into_iter().collect())
            })
            .await
    }
}

fn mended(conn: &Connection, now: Timestamp) -> rusqlite::Result<Option<MendedPayloads>> {
    // The one row.
    conn.prepare_cached(
        "SELECT mended AS payloads, mended_at AS last_at FROM meta WHERE one = 1 AND mended_at > ?1",
    )?
    .query_row([now.0 - MENDED_MILLIS], codec::read)
    .optional()
}

/// Reads a file's size from the file system's metadata: opening and closing the file here would drop SQLite's locks
/// (S11).
fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

fn last_words(
    conn: &Connection,
    mut sources: Vec<SourceActivity>,
) -> rusqlite::Result<Vec<SourceActivity>> {
    let mut newest = newest_events(conn, &sources)?;
    for row in &mut sources {
        row.event = newest.remove(row.source.as_str());
        // A few rows: one per secret of the source.
        row.secret_matched_at = conn
            .prepare_cached("SELECT max(last_matched_at) FROM secret_use WHERE source = ?1")?
            .query_row([row.source.as_str()], |row| codec::maybe_time(row, 0))?;
    }
    Ok(sources)
}

/// The newest event of each of these sources that has one among the newest of all.
fn newest_events(
    conn: &Connection,
    sources: &[SourceActivity],
) -> rusqlite::Result<BTreeMap<String, (EventId, Timestamp)>> {
    let mut found = BTreeMap::new();
    // One walk for all sources, back from the newest event: a walk for each would take milliseconds for each source
    // that is silent.
    let mut newest = conn.prepare_cached(
        "SELECT source, event_id, received_at FROM event
         WHERE row > (SELECT max(row) FROM event) - ?1 ORDER BY row DESC",
    )?;
    let mut rows = newest.query([LOOK_BACK_ROWS])?;
    while found.len() < sources.len()
        && let Some(row) = rows.next()?
    {
        let source = row.get_ref(0)?.as_str()?;
        if !found.contains_key(source) && sources.iter().any(|own| own.source.as_str() == source) {
            let event = (codec::readable(row, 1)?, codec::time(row, 2)?);
            found.insert(source.to_owned(), event);
        }
    }
    Ok(found)
}
