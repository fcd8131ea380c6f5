//! STUCK: what stands still, by cause: held and dead jobs of the same handler and reason whose last attempts ended with
//! the same text.
//!
//! Walks the newest jobs of each of the two states by its index, a bounded number: a page may ask every second.

use rusqlite::Connection;

use crate::limits::STUCK_ROWS;
use crate::model::State;
use crate::store::border::{Error, StuckGroup, StuckJobs};
use crate::store::sqlite::tables::codec;

use super::handle::Admin;
use super::list::JOB;

impl Admin {
    pub async fn stuck(&self) -> Result<StuckJobs, Error> {
        self.engine.list(STUCK_ROWS, stuck).await
    }
}

/// The newest ?1 jobs in this state, by the index of that state, each with its last attempt by its primary key; then in
/// groups. A state is a literal, which a partial index needs.
pub(crate) fn groups_sql(state: State) -> String {
    format!(
        "SELECT max(row), count(*), min(created_at) FROM (
             SELECT j.row, j.handler, j.reason, j.created_at, coalesce(a.detail, '') AS last_detail
             FROM job j LEFT JOIN attempt a ON a.job = j.row AND a.number = j.attempt
             WHERE j.state = '{state}' ORDER BY j.row DESC LIMIT ?1)
         GROUP BY handler, reason, last_detail ORDER BY max(row) DESC"
    )
}

fn stuck(conn: &Connection) -> rusqlite::Result<StuckJobs> {
    let mut stuck = StuckJobs::default();
    for state in [State::Held, State::Dead] {
        let groups = conn
            .prepare_cached(&groups_sql(state))?
            .query_map([STUCK_ROWS], |row| {
                Ok((row.get::<_, i64>(0)?, codec::count(row, 1)?, codec::time(row, 2)?))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for (newest, jobs, oldest_at) in groups {
            // By the primary key.
            let newest = conn
                .prepare_cached(&format!("{JOB} WHERE j.row = ?1"))?
                .query_row([newest], codec::read)?;
            stuck.groups.push(StuckGroup { newest, jobs, oldest_at });
        }
        // One more than were walked, by the same index.
        let next = format!("SELECT 1 FROM job WHERE state = '{state}' LIMIT 1 OFFSET ?1");
        if conn.prepare_cached(&next)?.exists([STUCK_ROWS])? {
            stuck.more.push(state);
        }
    }
    Ok(stuck)
}
