//! GAUGES: what `metrics` asks of the store every few seconds.

use std::sync::atomic::Ordering;

use crate::limits::COUNTED_JOBS;
use crate::store::border::{Error, Gauges, WriterGauges};
use crate::store::sqlite::tables::{codec, paused};

use super::counts;
use super::handle::Admin;

impl Admin {
    pub async fn gauges(&self) -> Result<Gauges, Error> {
        let secrets = self.secrets().await?;
        self.engine
            .read(move |conn| {
                let jobs = counts::read(conn, Some(COUNTED_JOBS))?;
                let paused = paused::paused(conn)?.into_iter().map(|row| row.handler).collect();
                // Both stand in the database's first page.
                let free_pages = "SELECT f.freelist_count * s.page_size
                     FROM pragma_freelist_count f, pragma_page_size s";
                let free_page_bytes =
                    conn.prepare_cached(free_pages)?.query_row([], |row| codec::count(row, 0))?;
                Ok(Gauges { jobs, paused, secrets, free_page_bytes, nodes: Vec::new() })
            })
            .await
    }

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
