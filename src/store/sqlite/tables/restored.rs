//! The restores in the store's history.

use rusqlite::{Connection, params};

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
    codec::all(
        conn,
        "SELECT from_store, made_at, restored_at, held FROM restored
         WHERE made_at >= ?1 AND (?2 IS NULL OR restored_at >= ?2) ORDER BY row",
        params![made_from.0, restored_from.map(|at| at.0)],
    )
}
