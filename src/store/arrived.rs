//! Events as they arrive, for whoever follows them.
//!
//! Rows are given in the order of the writer's commits and never again, so what is after a place now
//! comes after it for good: nothing is missed and nothing seen twice.

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::Store;
use super::read::{Clauses, EVENT, event_row, with_jobs};
use super::rows::{EventFilter, EventRow};
use super::types::Error;

/// A place in the order of arrival: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark(i64);

/// What came.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Arrived {
    /// Oldest first.
    pub events: Vec<EventRow>,
    /// Where to go on.
    pub mark: Mark,
}

impl Store {
    /// The events after a place; where none is given, the newest ones. Both oldest first, and no more
    /// than the filter's limit: the rest comes with the next call.
    pub async fn arrived(
        &self,
        filter: EventFilter,
        after: Option<Mark>,
    ) -> Result<Arrived, Error> {
        let limit = self.list_limit(filter.limit);
        self.read(move |conn| arrived(conn, &filter, after, limit)).await
    }
}

fn arrived(
    conn: &Connection,
    filter: &EventFilter,
    after: Option<Mark>,
    limit: i64,
) -> rusqlite::Result<Arrived> {
    let mut clauses = Clauses::default();
    clauses.event(filter);
    clauses.after("e.row", after.map(|mark| mark.0));
    // The next in the order of arrival; at the beginning the newest ones.
    let order = if after.is_some() { "ASC" } else { "DESC" };
    let sql = format!("{EVENT} {} ORDER BY e.row {order} LIMIT {limit}", clauses.sql());
    let mut found = conn
        .prepare_cached(&sql)?
        .query_map(clauses.values().as_slice(), event_row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    if after.is_none() {
        found.reverse();
    }
    let mark = match found.last() {
        Some(last) if after.is_some() && found.len() as i64 == limit => last.row,
        // The newest event, whoever it is for: those before it need no second look.
        _ => conn.query_row("SELECT coalesce(max(row), 0) FROM event", [], |row| row.get(0))?,
    };
    let events =
        found.into_iter().map(|event| with_jobs(conn, event)).collect::<rusqlite::Result<_>>()?;
    Ok(Arrived { events, mark: Mark(mark) })
}
