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
        "SELECT from_store, made_at, restored_at, held, 0 AS lost FROM restored
         WHERE made_at >= ?1 AND (?2 IS NULL OR restored_at >= ?2) ORDER BY row",
        params![made_from.0, restored_from.map(|at| at.0)],
    )
}

/// When the store was last restored. The clock may have been behind that of the backup.
pub(crate) fn last(tx: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let at: Option<i64> = tx
        .prepare_cached("SELECT max(max(made_at, restored_at)) FROM restored")?
        .query_row([], |row| row.get(0))?;
    Ok(at.map(Timestamp))
}
