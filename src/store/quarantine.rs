//! Deliveries that failed verification: the newest few of each source, for people.
//!
//! Nobody waits for them, and they must never cost a genuine delivery its place or its time: they are
//! dropped when the queue is crowded.

use rusqlite::{Connection, Row, params};

use crate::model::Name;

use super::queue::{Item, Lane};
use super::rows::QuarantinedRow;
use super::types::{Error, Quarantined};
use super::{Store, codec};

impl Store {
    /// Keeps a failed delivery; dropped silently when the queue is crowded or the store is not ready.
    pub fn quarantine(&self, failed: Quarantined) {
        let limits = &self.inner.settings.limits;
        let most = i64::try_from(limits.quarantine_count).unwrap_or(i64::MAX);
        if most == 0 || self.ready().is_err() || self.inner.queue.is_crowded() {
            return;
        }
        let body = match failed.body.len() as u64 {
            bytes if bytes > limits.quarantine_body_bytes => None,
            _ => codec::compress_now(&failed.body).ok(),
        };
        let headers = failed.headers.to_wire();
        let bytes = headers.len() + failed.detail.len() + body.as_ref().map_or(0, Vec::len);
        let body_bytes = codec::size(failed.body.len());
        let Quarantined { source, received_at, reason, detail, .. } = failed;
        let (item, _) = Item::new(Lane::Accept { bytes }, move |tx| {
            // One more of this source.
            tx.prepare_cached(
                "INSERT INTO quarantine (source, received_at, reason, detail, headers, body_bytes, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                source.as_str(),
                received_at.0,
                reason,
                detail,
                headers,
                body_bytes,
                body
            ])?;
            forget(tx, &source, most)
        });
        // A refusal is the silence that was promised.
        let _ = self.inner.queue.push(item);
    }

    /// Failed deliveries, newest first.
    pub async fn quarantined(
        &self,
        source: Option<Name>,
        limit: usize,
    ) -> Result<Vec<QuarantinedRow>, Error> {
        let limit = self.list_limit(Some(limit));
        self.read(move |conn| {
            // Newest first by row, which is the order of arrival.
            conn.prepare_cached(
                "SELECT source, received_at, reason, detail, body_bytes FROM quarantine
                 WHERE ?1 IS NULL OR source = ?1 ORDER BY row DESC LIMIT ?2",
            )?
            .query_map(params![source.as_ref().map(Name::as_str), limit], quarantined_row)?
            .collect()
        })
        .await
    }
}

/// A failed delivery from its five columns.
pub(super) fn quarantined_row(row: &Row<'_>) -> rusqlite::Result<QuarantinedRow> {
    Ok(QuarantinedRow {
        source: codec::text(row, 0)?,
        received_at: codec::time(row, 1)?,
        reason: row.get(2)?,
        detail: row.get(3)?,
        body_bytes: codec::count(row, 4)?,
    })
}

fn forget(tx: &Connection, source: &Name, most: i64) -> rusqlite::Result<()> {
    // All of the source but its newest.
    tx.prepare_cached(
        "DELETE FROM quarantine WHERE source = ?1 AND row <= (SELECT row FROM quarantine
             WHERE source = ?1 ORDER BY row DESC LIMIT 1 OFFSET ?2)",
    )?
    .execute(params![source.as_str(), most])
    .map(drop)
}
