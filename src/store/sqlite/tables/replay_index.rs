//! The replay guard: finds other events of a source that have the same signed body.
//!
//! Where a signature does not cover the event id, a captured delivery can come again under another id.
//! `event.guarded` says that the guard looks at an event, `event.repeated` that another event of its source had
//! its body when it came. Two indexes find a body: `event_first` its first event, by 4 bytes of the digest, and
//! `event_repeated` the later ones. The guard keeps nothing else: a rollback, a restart and the deletion of an
//! event leave the indexes right by themselves.

use rusqlite::{Connection, params};

use crate::model::{Digest, Name};
use crate::store::border::SameBodyEvent;

use super::codec;
use super::codec::change_one;

/// The first event of source ?1 with the body of digest ?2. The whole digest is compared in the row, since 4 bytes
/// of two digests may be equal; the plus keeps SQLite from walking the index of the source's ids.
macro_rules! first {
    () => {
        "SELECT row FROM event WHERE substr(digest, 1, 4) = substr(?2, 1, 4) AND guarded = 1 AND repeated = 0
            AND digest = ?2 AND +source = ?1"
    };
}

/// The events of source ?1 that repeat the body of digest ?2.
macro_rules! repeated {
    () => {
        "SELECT row FROM event WHERE digest = ?2 AND source = ?1 AND guarded = 1 AND repeated = 1"
    };
}

/// Whether an event other than ?3, which is not marked yet, has the body.
pub(crate) const REPEATS: &str =
    concat!("SELECT EXISTS (", first!(), " AND row <> ?3) OR EXISTS (", repeated!(), ")");

/// Whether an event of another type than ?3 has the body. The index of repeats has the type last, so this takes
/// three look-ups however often the body came.
pub(crate) const UNDER_ANOTHER_TYPE: &str = concat!(
    "SELECT EXISTS (",
    first!(),
    " AND type <> ?3) OR EXISTS (",
    repeated!(),
    " AND type < ?3) OR EXISTS (",
    repeated!(),
    " AND type > ?3)"
);

/// The oldest ?4 events other than ?3 with the body; none where the guard does not look at ?3.
pub(crate) const TWINS: &str = concat!(
    "SELECT event_id, type AS event_type, received_at FROM event WHERE row IN (",
    first!(),
    " UNION ALL ",
    repeated!(),
    ") AND row <> ?3 AND (SELECT guarded FROM event WHERE row = ?3) = 1 ORDER BY row LIMIT ?4"
);

/// Most twins that one event is shown with: the first one is the one that matters.
const TWINS_SHOWN: i64 = 5;

/// Whether another event of `source` has the body of `event`, which this transaction has just stored. Marks
/// `event` if so.
pub(crate) fn repeats(
    tx: &Connection,
    source: &Name,
    digest: Digest,
    event: i64,
) -> rusqlite::Result<bool> {
    // One look-up in each index.
    let repeats = tx
        .prepare_cached(REPEATS)?
        .query_row(params![source.as_str(), digest.0, event], |row| row.get(0))?;
    if repeats {
        // The row is this transaction's own.
        change_one(tx, "UPDATE event SET repeated = 1 WHERE row = ?1", [event])?;
    }
    Ok(repeats)
}

/// Whether the body came to `source` under another type than `own`.
pub(crate) fn is_under_another_type(
    tx: &Connection,
    source: &Name,
    digest: Digest,
    own: &str,
) -> rusqlite::Result<bool> {
    // One look-up for each of the three conditions.
    tx.prepare_cached(UNDER_ANOTHER_TYPE)?
        .query_row(params![source.as_str(), digest.0, own], |row| row.get(0))
}

/// The other events with the body of `event`, oldest first.
pub(crate) fn twins(
    conn: &Connection,
    source: &Name,
    digest: Digest,
    event: i64,
) -> rusqlite::Result<Vec<SameBodyEvent>> {
    // By the guard's own indexes, and by rows.
    codec::all(conn, TWINS, params![source.as_str(), digest.0, event, TWINS_SHOWN])
}
