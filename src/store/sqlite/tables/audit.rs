//! The rows of the audit list, as the transactions of the changes write them.

use rusqlite::{Connection, params};

use crate::limits::{AUDIT_ROWS, BATCH_JOBS};
use crate::model::{AuditVerb, Timestamp};
use crate::store::border::{AuditPlace, AuditSubject, By, Caller};

use super::codec;

impl Caller {
    /// Writes a row, and deletes the oldest where there are too many. Returns the new row's place.
    pub(crate) fn write(
        &self,
        tx: &Connection,
        now: Timestamp,
        (verb, subject, count): (AuditVerb, &AuditSubject, u64),
        result: &str,
    ) -> rusqlite::Result<AuditPlace> {
        let subject = serde_json::to_string(subject)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        let By { name, via, reason } = &self.by;
        tx.prepare_cached(
            "INSERT INTO audit (at, verb, subject, count, result, reason, uid, name, via)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            now.0,
            verb.as_str(),
            subject,
            codec::size(count),
            result,
            reason,
            self.uid,
            name,
            via.as_str(),
        ])?;
        let row = tx.last_insert_rowid();
        // At most one row, by the primary key.
        tx.prepare_cached("DELETE FROM audit WHERE row <= ?1")?.execute([row - AUDIT_ROWS])?;
        Ok(AuditPlace(row))
    }
}

/// One more, of a change that takes several transactions.
pub(crate) fn count_one(tx: &Connection, row: AuditPlace) -> rusqlite::Result<()> {
    codec::change_one(tx, "UPDATE audit SET count = count + 1 WHERE row = ?1", [row.0])
}

/// Deletes rows from before then, the oldest first and at most [`BATCH_JOBS`] at once. Returns how many.
pub(crate) fn expire(tx: &Connection, before: Timestamp) -> rusqlite::Result<usize> {
    // In the order of time but for corrections of the clock.
    tx.prepare_cached(
        "DELETE FROM audit WHERE at < ?1 AND row IN (SELECT row FROM audit ORDER BY row LIMIT ?2)",
    )?
    .execute(params![before.0, codec::size(BATCH_JOBS)])
}

/// The SELECT of an [`AuditRow`].
pub(crate) const COLUMNS: &str =
    "SELECT a.at, a.verb, a.subject, a.count, a.result, a.reason, a.uid, a.name, a.via, a.row AS row
    FROM audit a";
