//! GAUGES: what `metrics` asks of the store every few seconds.
//!
//! What must stay true: no statement walks settled jobs, and none walks more than
//! [`COUNTED`] jobs that wait for a person: those are few, or their exact count does not help.

use rusqlite::{Connection, OptionalExtension};

use crate::measure::Distribution;
use crate::model::{Name, State, Timestamp};
use crate::store::rows::SecretUse;
use crate::store::tables::{codec, paused};
use crate::store::types::Error;

use super::handle::Admin;
use super::status::Disk;

/// Held and dead jobs counted at most, each.
const COUNTED: i64 = 100_000;

/// The store as its metrics show it.
#[derive(Debug, Clone)]
pub struct Gauges {
    /// Jobs by handler and state: the live states exactly, held and dead ones up to a bound.
    pub jobs: Vec<(Name, State, u64)>,
    /// Of each handler that has any, since when the ready job is ready that is claimed next.
    pub oldest_ready: Vec<(Name, Timestamp)>,
    /// The paused handlers.
    pub paused: Vec<Name>,
    /// When each secret last matched, to the minute.
    pub secrets: Vec<SecretUse>,
    /// Bytes of the database's free pages.
    pub free_page_bytes: u64,
}

/// What the writer shows of itself.
#[derive(Debug, Clone)]
pub struct WriterGauges {
    /// Items waiting.
    pub queue_items: u64,
    /// Bytes of the accepts among them.
    pub queue_bytes: u64,
    /// Items of the batches committed.
    pub batch_items: Distribution,
    /// Seconds that their commits took.
    pub batch_seconds: Distribution,
    /// Seconds that checkpoints took.
    pub checkpoint_seconds: Distribution,
    /// Space and sizes.
    pub disk: Disk,
    /// How much of the log was in use after the last batch, in bytes.
    pub log_used_bytes: u64,
    /// The bound of the log (`log_bytes`).
    pub log_bound_bytes: u64,
}

impl Admin {
    /// Gauges of the store's content.
    pub async fn gauges(&self) -> Result<Gauges, Error> {
        let secrets = self.secrets().await?;
        self.engine
            .read(move |conn| {
                let jobs = jobs(conn)?;
                let ready = jobs.iter().filter(|(_, state, _)| *state == State::Ready);
                let oldest_ready = ready
                    .filter_map(|(handler, ..)| {
                        let since = next_ready(conn, handler).transpose()?;
                        Some(since.map(|since| (handler.clone(), since)))
                    })
                    .collect::<rusqlite::Result<_>>()?;
                let paused = paused::paused(conn)?.into_iter().map(|row| row.handler).collect();
                let free_page_bytes = free_page_bytes(conn)?;
                Ok(Gauges { jobs, oldest_ready, paused, secrets, free_page_bytes })
            })
            .await
    }

    /// What the writer does, which asks no database.
    pub fn writer_gauges(&self) -> WriterGauges {
        let (queue_items, queue_bytes) = self.engine.queue.waiting();
        let (batch_items, batch_seconds) = self.engine.commits.batches();
        WriterGauges {
            queue_items,
            queue_bytes,
            batch_items,
            batch_seconds,
            checkpoint_seconds: self.engine.checkpoints.seconds(),
            disk: self.disk(),
            log_used_bytes: self.engine.commits.log_bytes(),
            log_bound_bytes: self.engine.settings.limits.log_bytes,
        }
    }
}

/// Each state by its own partial index, which needs it as a literal: the first two hold the handler too,
/// of running jobs, which the live attempts lead to, there are few, and of those that wait for a person a bounded
/// number is read.
pub(crate) const JOBS: &str =
    "SELECT handler, 'ready', count(*) FROM job WHERE state = 'ready' GROUP BY handler
     UNION ALL
     SELECT handler, 'waiting', count(*) FROM job WHERE state = 'waiting' GROUP BY handler
     UNION ALL
     SELECT j.handler, 'running', count(*) FROM attempt a JOIN job j ON j.row = a.job
         WHERE a.outcome IS NULL GROUP BY j.handler
     UNION ALL
     SELECT handler, 'held', count(*)
         FROM (SELECT handler FROM job WHERE state = 'held' LIMIT ?1) GROUP BY handler
     UNION ALL
     SELECT handler, 'dead', count(*)
         FROM (SELECT handler FROM job WHERE state = 'dead' LIMIT ?1) GROUP BY handler";

/// The first entry of the index by which jobs are claimed.
pub(crate) const NEXT_READY: &str =
    "SELECT since FROM job WHERE state = 'ready' AND handler = ?1 ORDER BY row LIMIT 1";

fn jobs(conn: &Connection) -> rusqlite::Result<Vec<(Name, State, u64)>> {
    conn.prepare_cached(JOBS)?
        .query_map([COUNTED], |row| {
            Ok((codec::text(row, 0)?, codec::text(row, 1)?, codec::count(row, 2)?))
        })?
        .collect()
}

fn next_ready(conn: &Connection, handler: &Name) -> rusqlite::Result<Option<Timestamp>> {
    conn.prepare_cached(NEXT_READY)?
        .query_row([handler.as_str()], |row| codec::time(row, 0))
        .optional()
}

fn free_page_bytes(conn: &Connection) -> rusqlite::Result<u64> {
    // Both stand in the database's first page.
    conn.prepare_cached(
        "SELECT f.freelist_count * s.page_size FROM pragma_freelist_count f, pragma_page_size s",
    )?
    .query_row([], |row| codec::count(row, 0))
}
