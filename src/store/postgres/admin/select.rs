//! SELECT: the held and dead jobs that a bulk verb means, by a filter.
//!
//! A call looks at a bounded number of rows, and says how far it looked and where to go on. It changes nothing:
//! the move checks each job again, so the walk may end at any call, and the same walk again finds the rest.

use tokio_postgres::Row;

use crate::limits::{PAGE_LOOK_ROWS, SELECTED_JOBS};
use crate::model::{HeldReason, State};
use crate::store::border::{Error, JobSelection, SelectedJob, SelectedJobs, SelectionCursor, Verb};
use crate::store::codec;
use crate::store::decide::key::KeyOf;

use super::super::columns::Columns;
use super::filter::{JobValues, job_filters};
use super::handle::Admin;
use super::rows::job_joins;

/// The held and dead jobs behind row $1, of state $4 where that is given: $2 at most by the index of each state, and $3
/// together.
macro_rules! waiting {
    () => {
        "(SELECT * FROM ((SELECT * FROM job WHERE state = 'held' AND row > $1 AND ($4::text IS NULL OR $4 = 'held')
                ORDER BY row LIMIT $2)
            UNION ALL (SELECT * FROM job WHERE state = 'dead' AND row > $1 AND ($4::text IS NULL OR $4 = 'dead')
                ORDER BY row LIMIT $2)) both_states
            ORDER BY row LIMIT $3) j"
    };
}

const LOOKED_AT: &str =
    concat!("SELECT count(*) AS looked_at, coalesce(max(row), 0) AS last FROM ", waiting!());

/// In the order of their making, so that a page ends where the following one begins.
const SELECT: &str = concat!(
    "SELECT j.row, j.id, j.attempt, j.handler, coalesce(j.reason, '') AS reason, e.has_key, k.event IS NOT NULL AS in_use,
        k.answered_at IS NOT NULL AS answered FROM ",
    waiting!(),
    job_joins!(),
    "LEFT JOIN answer k ON k.event = j.event",
    job_filters!(),
    "ORDER BY j.row LIMIT $12"
);

impl Admin {
    /// The next jobs that a bulk verb means. Call again with the answer's `next` until it is none.
    pub async fn select(&self, ask: JobSelection) -> Result<SelectedJobs, Error> {
        let most = codec::size(SELECTED_JOBS);
        let mut reading = self.listing(most).await?;
        let after = ask.after.map_or(0, |cursor| cursor.0);
        let waits = ask.filter.state.filter(|state| matches!(state, State::Held | State::Dead));
        let waits = waits.map(State::as_str);
        let of = JobValues::of(&ask.filter);
        let mut values = of.values();
        values.splice(0..0, [&after as _, &PAGE_LOOK_ROWS as _, &PAGE_LOOK_ROWS as _, &waits as _]);
        values.push(&most);
        let found = reading.rows(SELECT, &values).await?;
        let seen = reading.row(LOOKED_AT, &values[..4]).await?;
        let mut selected = SelectedJobs::default();
        let mut last = 0;
        if let Some(seen) = seen {
            (selected.looked_at, last) = (seen.number("looked_at")?, seen.value("last")?);
        }
        if let Some(row) = found.get(SELECTED_JOBS - 1) {
            selected.next = Some(SelectionCursor(row.value("row")?));
        } else if selected.looked_at == PAGE_LOOK_ROWS.unsigned_abs() {
            selected.next = Some(SelectionCursor(last));
        }
        let guarded = ask.verb == Verb::Replay && ask.filter.reason.is_none();
        // What may be a forgery must not run because others are put back.
        let suspected = [HeldReason::SuspectedReplay, HeldReason::IdReused].map(HeldReason::as_str);
        for row in &found {
            if guarded && suspected.contains(&row.value("reason")?) {
                selected.suspected += 1;
            } else if ask.verb == Verb::Replay && !key_of(row)?.may_run() {
                selected.answered += 1;
            } else {
                selected.jobs.push(SelectedJob {
                    job: row.job_id("id")?,
                    attempt: row.number("attempt")?,
                    handler: row.word("handler")?,
                });
            }
        }
        Ok(selected)
    }
}

fn key_of(row: &Row) -> Result<KeyOf, Error> {
    Ok(KeyOf::of(row.value("has_key")?, row.value("in_use")?, row.value("answered")?))
}
