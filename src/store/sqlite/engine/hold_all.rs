//! What a store forgets that was put back: it gets a new identity, and every unfinished job is held.

use rusqlite::{Connection, TransactionBehavior, params};

use crate::model::{HeldReason, Timestamp};
use crate::store::border::RestoredRow;
use crate::store::sqlite::tables::codec::change_one;
use crate::store::sqlite::tables::job::handlers_with_work;
use crate::store::sqlite::tables::{answer, codec, group};

/// The detail of its live attempts.
const CUT_OFF: &str = "it ran when the backup was made";

/// A new identity; nothing in it is live; nothing in it starts by itself.
pub(super) fn hold_all(conn: &mut Connection, gap: RestoredRow) -> rusqlite::Result<RestoredRow> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let now = gap.restored_at.0;
    // R16: no runner takes it for the store whose attempts it has.
    change_one(
        &tx,
        "UPDATE meta SET store_id = randomblob(16), copied_at = NULL WHERE one = 1",
        [],
    )?;
    // By the index of live ones. Their outcome is unknown.
    tx.execute(
        "UPDATE attempt SET outcome = 'unknown', finished_at = max(?1, started_at), detail = ?2,
             incarnation = NULL, runner = NULL
         WHERE outcome IS NULL",
        params![now, CUT_OFF],
    )?;
    // An attempt that ran counts. Every unfinished job is held.
    tx.execute(
        "UPDATE job SET counted = min(attempt, counted + 1), state = 'ready' WHERE state = 'running'",
        [],
    )?;
    let mut held = 0;
    for handler in handlers_with_work(&tx)? {
        held += group::hold_all(&tx, handler.as_str(), HeldReason::Restored)?;
    }
    // Requests with keys whose jobs had failed: a repeat would begin them again, and one may have done so since. A
    // stored error would be forgotten after a while, so it is forgotten now.
    answer::forget_errors(&tx, Timestamp(i64::MAX), -1)?;
    let failed = tx.execute(
        "UPDATE job SET state = 'held', reason = 'restored', settled_at = NULL
         WHERE state = 'dead' AND event IN (SELECT event FROM answer WHERE answered_at IS NULL)",
        [],
    )?;
    held += failed;
    // A redelivery leaves jobs alone that were dead before this time (accept.rs), also where the other machine's clock was ahead.
    tx.execute("UPDATE job SET settled_at = min(settled_at, ?1) WHERE state = 'dead'", [now])?;
    tx.execute(
        "INSERT INTO restored (from_store, made_at, restored_at, held) VALUES (?1, ?2, ?3, ?4)",
        params![gap.from_store.as_bytes(), gap.made_at.0, now, codec::size(held)],
    )?;
    tx.commit()?;
    Ok(RestoredRow { held: held as u64, ..gap })
}
