//! SELECT: the held and dead jobs that a bulk verb means, by a filter.
//!
//! A call looks at a bounded number of rows, and says how far it looked and where to go on. It changes nothing:
//! the mover checks each job again, so the walk may end at any call, and the same walk again finds the rest.

use rusqlite::Connection;

use crate::limits::{PAGE_LOOK_ROWS, SELECTED_JOBS};
use crate::model::State;
use crate::store::border::{Error, JobSelection, SelectedJob, SelectedJobs};
use crate::store::decide::listing::{self, Selectable};
use crate::store::sqlite::tables::answer::key_of;
use crate::store::sqlite::tables::codec;

use super::clauses::Clauses;
use super::handle::Admin;

impl Admin {
    pub async fn select(&self, ask: JobSelection) -> Result<SelectedJobs, Error> {
        self.engine.list(codec::size(SELECTED_JOBS), move |conn| select(conn, &ask)).await
    }
}

fn select(conn: &Connection, ask: &JobSelection) -> rusqlite::Result<SelectedJobs> {
    let after = ask.after.map_or(0, |cursor| cursor.0);
    // A literal state, which a partial index needs: only these two wait for a person.
    let waits = match ask.filter.state {
        Some(state @ (State::Held | State::Dead)) => format!("state = '{state}'"),
        _ => "state IN ('held', 'dead')".to_owned(),
    };
    // By the index of that state, in the order of rows.
    let (looked_at, last): (u64, i64) = conn
        .prepare_cached(&format!(
            "SELECT count(*), coalesce(max(row), 0) FROM
                 (SELECT row FROM job WHERE {waits} AND row > ?1 ORDER BY row LIMIT ?2)"
        ))?
        .query_row([after, PAGE_LOOK_ROWS], |row| Ok((codec::count(row, 0)?, row.get(1)?)))?;
    let mut clauses = Clauses::default();
    clauses.job(conn, &ask.filter)?;
    clauses.raw("j.state IN ('held', 'dead')");
    clauses.raw(&format!("j.row <= {last}"));
    clauses.after("j.row", after);
    // The next in the order of their making, so that a page ends where the following one begins.
    let sql = format!(
        "SELECT j.row, j.id, j.attempt, j.handler, coalesce(j.reason, ''), j.event FROM job j
         LEFT JOIN event e ON e.row = j.event {} ORDER BY j.row LIMIT {SELECTED_JOBS}",
        clauses.sql()
    );
    let found = conn
        .prepare(&sql)?
        .query_map(clauses.values().as_slice(), |row| {
            let (job, handler) = (codec::job_id(row, 1)?, codec::text(row, 3)?);
            let job = SelectedJob { job, attempt: row.get(2)?, handler };
            Ok(Selectable { row: row.get(0)?, job, reason: row.get(4)?, key: row.get(5)? })
        })?
        .collect::<rusqlite::Result<_>>()?;
    listing::select(ask, (looked_at, last), found, |event| key_of(conn, event))
}
