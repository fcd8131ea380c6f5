//! Compares stored payloads with what was accepted.

use rusqlite::types::Type;
use rusqlite::{Connection, ErrorCode, MAIN_DB, OptionalExtension, Row};

use crate::limits::CHECKED_EVENTS;
use crate::store::border::{CheckedPayloads, PayloadCursor};
use crate::store::check::{event_of, is_whole, together};

use super::codec;

/// The payloads of the next events. Each is read by itself, so that one in a damaged page hides no other.
pub(crate) fn check(
    conn: &Connection,
    after: Option<PayloadCursor>,
) -> rusqlite::Result<CheckedPayloads> {
    let after = after.map_or(0, |after| after.0);
    // The next ones by the primary key. What is no number is compared too.
    let found = conn
        .prepare_cached("SELECT row, body_bytes FROM event WHERE row > ?1 ORDER BY row LIMIT ?2")?
        .query_map([after, codec::size(CHECKED_EVENTS)], |row| {
            Ok((row.get(0)?, row.get(1).unwrap_or(0)))
        })?
        .collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
    let (rows, next) = together(&found);
    let (mut checked, mut damaged) = (0, Vec::new());
    for &row in &rows {
        if let Some(whole) = compare(conn, row)? {
            checked += 1;
            if !whole {
                damaged.push(name(conn, row));
            }
        }
    }
    // The last row of the table.
    let newest: i64 =
        conn.query_row("SELECT coalesce(max(row), 0) FROM event", [], |row| row.get(0))?;
    let last = rows.last().copied().unwrap_or(after);
    let left = u64::try_from(newest.saturating_sub(last)).unwrap_or(0);
    Ok(CheckedPayloads { checked, damaged, left, next })
}

/// Whether an event's payload is whole; none where it has none.
fn compare(conn: &Connection, row: i64) -> rusqlite::Result<Option<bool>> {
    // By the primary keys. The sum is behind the body, so this has seen each of its pages.
    let mut select = conn.prepare_cached(
        "SELECT e.source, e.event_id, e.type, e.raw_type, e.received_at, e.body_bytes, p.headers, p.sum
         FROM event e JOIN payload p ON p.event = e.row WHERE e.row = ?1",
    )?;
    let whole = |found: &Row<'_>| {
        match conn.blob_open(MAIN_DB, "payload", "body", row, true) {
            Ok(stored) => {
                is_whole(found, stored).map_err(|error| codec::unreadable(0, Type::Blob, error))
            }
            // SQLite's general error: the value is of another kind.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => Ok(false),
            Err(error) => Err(error),
        }
    };
    match select.query_row([row], whole).optional() {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            Ok(Some(false))
        }
        compared => compared,
    }
}

fn name(conn: &Connection, row: i64) -> String {
    // By the primary key.
    let named =
        conn.query_row("SELECT source, event_id FROM event WHERE row = ?1", [row], |found| {
            Ok(event_of(row, Some(found)))
        });
    named.unwrap_or_else(|_| format!("row {row}"))
}
