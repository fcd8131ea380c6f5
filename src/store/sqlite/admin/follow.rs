//! FOLLOW: events in the order of arrival, for clients that follow them.
//!
//! Row numbers grow in the order of the writer's commits and are never reused, so an event after a place
//! comes after it for good: nothing is missed and nothing seen twice.

use rusqlite::Connection;

use crate::limits::PAGE_LOOK_ROWS;
use crate::store::border::{Error, EventFilter, EventRow, FollowCursor};
use crate::store::decide::listing::{ListedEvent, list_limit};
use crate::store::sqlite::tables::codec;

use super::clauses::Clauses;
use super::handle::Admin;
use super::list::{EVENT, newest_events, with_jobs};

impl Admin {
    pub async fn new_events(
        &self,
        filter: EventFilter,
        after: Option<FollowCursor>,
    ) -> Result<(Vec<EventRow>, FollowCursor), Error> {
        let limit = list_limit(&self.engine.settings.limits, filter.limit);
        self.engine.list(limit, move |conn| new_events(conn, &filter, after, limit)).await
    }
}

fn new_events(
    conn: &Connection,
    filter: &EventFilter,
    after: Option<FollowCursor>,
    limit: i64,
) -> rusqlite::Result<(Vec<EventRow>, FollowCursor)> {
    // The newest event of all: those before it need no second look.
    let newest: i64 =
        conn.query_row("SELECT coalesce(max(row), 0) FROM event", [], |row| row.get(0))?;
    let (found, place) = match after {
        Some(FollowCursor(after)) => {
            let upto = newest.min(after.saturating_add(PAGE_LOOK_ROWS));
            let mut clauses = Clauses::default();
            clauses.event(conn, filter)?;
            clauses.after("e.row", after);
            clauses.raw(&format!("e.row <= {upto}"));
            // The next in the order of arrival.
            let sql = format!("{EVENT} {} ORDER BY e.row LIMIT {limit}", clauses.sql());
            let found: Vec<ListedEvent> = codec::all(conn, &sql, clauses.values().as_slice())?;
            let is_full = found.len() as i64 == limit;
            let place = found.last().filter(|_| is_full).map_or(upto.max(after), |last| last.row);
            (found, place)
        }
        None => (newest_events(conn, filter, limit)?.rows.into_iter().rev().collect(), newest),
    };
    let events =
        found.into_iter().map(|event| with_jobs(conn, event)).collect::<rusqlite::Result<_>>()?;
    Ok((events, FollowCursor(place)))
}
