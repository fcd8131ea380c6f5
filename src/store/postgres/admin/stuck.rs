//! STUCK: what stands still, by cause: held and dead jobs of the same handler and reason whose last attempts ended with
//! the same text.
//!
//! Walks the newest jobs of each of the two states by its index, a bounded number: a page may ask every second.

use std::collections::HashMap;

use crate::limits::STUCK_ROWS;
use crate::model::State;
use crate::store::border::{Error, JobRow, StuckGroup, StuckJobs};

use super::super::columns::Columns;
use super::handle::Admin;
use super::rows::{job_columns, job_joins, job_row};

/// The newest $2 jobs in state $1 in groups, and whether there are more of them.
const GROUPS: &str = "
    SELECT max(row) AS newest, count(*) AS jobs, min(created_at) AS oldest_at,
        (SELECT true FROM job WHERE state = $1 ORDER BY row DESC OFFSET $2 LIMIT 1) IS NOT NULL AS is_more
    FROM (
        SELECT j.row, j.handler, j.reason, j.created_at, coalesce(a.detail, '') AS last_detail
        FROM (SELECT * FROM job WHERE state = $1 ORDER BY row DESC LIMIT $2) j
        LEFT JOIN attempt a ON a.job = j.row AND a.number = j.attempt) newest
    GROUP BY handler, reason, last_detail ORDER BY max(row) DESC";

/// By the primary key.
const NEWEST: &str =
    concat!("SELECT ", job_columns!(), " FROM job j", job_joins!(), "WHERE j.row = ANY ($1)");

impl Admin {
    /// What stands still, by cause.
    pub async fn stuck(&self) -> Result<StuckJobs, Error> {
        let mut reading = self.listing(STUCK_ROWS).await?;
        let mut stuck = StuckJobs::default();
        for state in [State::Held, State::Dead] {
            let groups = reading.rows(GROUPS, &[&state.as_str(), &STUCK_ROWS]).await?;
            let newest = groups.iter().map(|row| row.value("newest"));
            let newest: Vec<i64> = newest.collect::<Result<_, _>>()?;
            let read = |row: &_| Ok((Columns::value(row, "row")?, job_row(row)?));
            let rows: Vec<(i64, JobRow)> = reading.all(NEWEST, &[&newest], read).await?;
            let mut rows: HashMap<i64, JobRow> = rows.into_iter().collect();
            for (row, newest) in groups.iter().zip(newest) {
                if let Some(newest) = rows.remove(&newest) {
                    let (jobs, oldest_at) = (row.number("jobs")?, row.time("oldest_at")?);
                    stuck.groups.push(StuckGroup { newest, jobs, oldest_at });
                }
            }
            if groups.first().map_or(Ok(false), |row| row.value("is_more"))? {
                stuck.more.push(state);
            }
        }
        Ok(stuck)
    }
}
