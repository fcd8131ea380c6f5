//! SELECT: the held and dead jobs that a bulk verb means, by a filter.
//!
//! A call looks at a bounded number of rows, and says how far it looked and where to go on. It changes nothing:
//! the move checks each job again, so the walk may end at any call, and the same walk again finds the rest.

use crate::limits::{PAGE_LOOK_ROWS, SELECTED_JOBS};
use crate::model::State;
use crate::store::border::{Error, JobSelection, SelectedJob, SelectedJobs};
use crate::store::columns::{Cells, FromRow, column, from_row};
use crate::store::decide::key::KeyOf;
use crate::store::decide::listing::{Selectable, select};

use super::filter::{Value, for_jobs, job_filters, job_values};
use super::handle::Admin;
use super::rows::job_joins;

/// The held and dead jobs behind row $1, of state $4 where that is given: $2 at most by the index of each state, and $3
/// together.
macro_rules! waiting {
    () => {
        "(SELECT * FROM ((SELECT * FROM job WHERE state = 'held' AND row > $1
                AND ($4::text IS NULL OR $4 = 'held') ORDER BY row LIMIT $2)
            UNION ALL (SELECT * FROM job WHERE state = 'dead' AND row > $1
                AND ($4::text IS NULL OR $4 = 'dead') ORDER BY row LIMIT $2)) both_states
            ORDER BY row LIMIT $3) j"
    };
}

/// How many they are, and the last of them.
const LOOKED_AT: &str = concat!("SELECT count(*), coalesce(max(row), 0) FROM ", waiting!());

/// The jobs that are meant, in the order of their making, so that a page ends where the following one begins.
const SELECT: &str = concat!(
    "SELECT j.row, j.id AS job, j.attempt, j.handler, coalesce(j.reason, '') AS reason,
        coalesce(e.has_key, false) AS has_key, k.event IS NOT NULL AS in_use,
        k.answered_at IS NOT NULL AS answered FROM ",
    waiting!(),
    job_joins!(),
    "LEFT JOIN answer k ON k.event = j.event",
    job_filters!(),
    "ORDER BY j.row LIMIT $12"
);

const MOST: i64 = SELECTED_JOBS as i64;

from_row! {
    SelectedJob { job, attempt, handler }
}

impl FromRow for Selectable<KeyOf> {
    fn from_row(row: &impl Cells) -> Result<Self, Error> {
        let [had_key, in_use, answered] =
            ["has_key", "in_use", "answered"].map(|of| column(row, of));
        Ok(Selectable {
            row: column(row, "row")?,
            job: SelectedJob::from_row(row)?,
            reason: column(row, "reason")?,
            key: KeyOf::of(had_key?, in_use?, answered?),
        })
    }
}

impl Admin {
    /// The next jobs that a bulk verb means. Call again with the answer's `next` until it is none.
    pub async fn select(&self, ask: JobSelection) -> Result<SelectedJobs, Error> {
        let mut reading = self.listing(MOST).await?;
        let after = ask.after.map_or(0, |cursor| cursor.0);
        let waits = ask.filter.state.filter(|state| matches!(state, State::Held | State::Dead));
        let window: [Value<'_>; 4] = [&after, &PAGE_LOOK_ROWS, &PAGE_LOOK_ROWS, &waits];
        let filter = for_jobs(ask.filter.clone());
        let values = [&window[..], &job_values(&filter), &[&MOST]].concat();
        let found: Vec<Selectable<KeyOf>> = reading.all(SELECT, &values).await?;
        let looked_at: Option<(u64, i64)> = reading.one(LOOKED_AT, &window).await?;
        select(&ask, looked_at.unwrap_or_default(), found, Ok)
    }
}
