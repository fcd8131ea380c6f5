//! The restores in the store's history.

use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::model::Timestamp;
use crate::store::border::RestoredRow;

use super::codec;

/// The restores from backups made after `made_from`, and since `restored_from` where that is given.
pub(crate) fn restores(
    conn: &Connection,
    made_from: Timestamp,
    restored_from: Option<Timestamp>,
) -> rusqlite::Result<Vec<RestoredRow>> {
    // A few rows, in the order in which it was done.
    conn.prepare_cached(
        "SELECT from_store, made_at, restored_at, held FROM restored
         WHERE made_at >= ?1 AND (?2 IS NULL OR restored_at >= ?2) ORDER BY row",
    )?
    .query_map(params![made_from.0, restored_from.map(|at| at.0)], |row| {
        Ok(RestoredRow {
            from_store: row.get(0).map(Uuid::from_bytes)?,
            made_at: codec::time(row, 1)?,
            restored_at: codec::time(row, 2)?,
            held: codec::count(row, 3)?,
        })
    })?
    .collect()
}
