//! GAUGES: what `metrics` asks of the store every few seconds.

use std::sync::atomic::Ordering;

use crate::limits::COUNTED_JOBS;
use crate::measure::Distribution;
use crate::model::Name;
use crate::store::border::{Error, SecretUse};
use crate::store::tables::{codec, paused};

use super::counts::JobCounts;
use super::handle::Admin;
use super::status::Disk;

/// The store as its metrics show it.
#[derive(Debug, Clone)]
pub struct Gauges {
    /// Held and dead jobs up to a bound, the others exactly.
    pub jobs: JobCounts,
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
                let jobs = JobCounts::read(conn, Some(COUNTED_JOBS))?;
                let paused = paused::paused(conn)?.into_iter().map(|row| row.handler).collect();
                // Both stand in the database's first page.
                let free_pages = "SELECT f.freelist_count * s.page_size
                     FROM pragma_freelist_count f, pragma_page_size s";
                let free_page_bytes =
                    conn.prepare_cached(free_pages)?.query_row([], |row| codec::count(row, 0))?;
                Ok(Gauges { jobs, paused, secrets, free_page_bytes })
            })
            .await
    }

    /// What the writer does, which asks no database.
    pub fn writer_gauges(&self) -> WriterGauges {
        let (queue_items, queue_bytes) = self.engine.queue.waiting();
        let commits = &self.engine.commits;
        WriterGauges {
            queue_items,
            queue_bytes,
            batch_items: commits.items.get(),
            batch_seconds: commits.seconds.get(),
            checkpoint_seconds: self.engine.checkpoints.seconds.get(),
            disk: self.disk(),
            log_used_bytes: commits.log_bytes.load(Ordering::Relaxed),
            log_bound_bytes: self.engine.settings.limits.log_bytes,
        }
    }
}
