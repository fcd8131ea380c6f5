//! The rate of a handler's starts as it is stored: when the shares taken so far end.
//!
//! What must stay true: what is taken is written in the transaction that makes the attempts, so neither a restart nor a
//! claim that is tried again gives more.

use rusqlite::{Connection, OptionalExtension, params};

use crate::model::{Name, Timestamp};
use crate::store::border::Rate;
use crate::store::decide::pace::Pace;

use super::codec::change_one;

pub(crate) fn read_pace(
    tx: &Connection,
    handler: &Name,
    rate: Rate,
    now: Timestamp,
) -> rusqlite::Result<Pace> {
    // By the primary key.
    let busy_to = tx
        .prepare_cached("SELECT busy_to FROM pace WHERE handler = ?1")?
        .query_row([handler.as_str()], |row| row.get(0))
        .optional()?;
    Ok(Pace::of(busy_to, rate, now))
}

/// Takes the shares of attempts that this transaction starts.
pub(crate) fn take_shares(
    tx: &Connection,
    handler: &Name,
    pace: Pace,
    starts: usize,
) -> rusqlite::Result<()> {
    let Some(busy_to) = pace.after(starts) else { return Ok(()) };
    change_one(
        tx,
        "INSERT INTO pace (handler, busy_to) VALUES (?1, ?2)
         ON CONFLICT (handler) DO UPDATE SET busy_to = excluded.busy_to",
        params![handler.as_str(), busy_to],
    )
}
