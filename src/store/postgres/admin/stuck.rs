//! STUCK: what stands still, by cause: held and dead jobs of the same handler and reason whose last attempts ended with
//! the same text.
//!
//! Walks the newest jobs of each of the two states by its index, a bounded number: a page may ask every second.

use crate::limits::STUCK_ROWS;
use crate::model::State;
use crate::store::border::{Error, StuckGroup, StuckJobs};
use crate::store::columns::{FromRow, from_row};

use super::handle::Admin;
use super::rows::{job_columns, job_joins};

/// The newest $2 jobs in state $1 in groups, each with its newest job, by the primary key.
const GROUPS: &str = concat!(
    "SELECT g.jobs, g.oldest_at, ",
    job_columns!(),
    " FROM (
        SELECT max(row) AS newest, count(*) AS jobs, min(created_at) AS oldest_at FROM (
            SELECT j.row, j.handler, j.reason, j.created_at, coalesce(a.detail, '') AS last_detail
            FROM (SELECT * FROM job WHERE state = $1 ORDER BY row DESC LIMIT $2) j
            LEFT JOIN attempt a ON a.job = j.row AND a.number = j.attempt) newest
        GROUP BY handler, reason, last_detail) g
    JOIN job j ON j.row = g.newest",
    job_joins!(),
    "ORDER BY j.row DESC"
);

const MORE: &str = "SELECT row FROM job WHERE state = $1 ORDER BY row DESC OFFSET $2 LIMIT 1";

from_row! {
    StuckGroup { jobs, oldest_at; columns => newest: FromRow::from_row(columns)? }
}

impl Admin {
    /// What stands still, by cause.
    pub async fn stuck(&self) -> Result<StuckJobs, Error> {
        let mut reading = self.listing(STUCK_ROWS).await?;
        let mut stuck = StuckJobs::default();
        for state in [State::Held, State::Dead] {
            stuck.groups.extend(reading.all(GROUPS, &[&state, &STUCK_ROWS]).await?);
            let more: Option<(i64,)> = reading.one(MORE, &[&state, &STUCK_ROWS]).await?;
            stuck.more.extend(more.map(|_| state));
        }
        Ok(stuck)
    }
}
