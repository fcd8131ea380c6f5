//! One job, for a client that watches it or cancels its running attempt.

use rusqlite::OptionalExtension;

use crate::model::{JobId, State};
use crate::store::rows::JobRow;
use crate::store::tables::codec;
use crate::store::types::Error;

use super::handle::Admin;
use super::list::{JOB, job_row};

/// The attempt of a job that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// Its number.
    pub attempt: u32,
    /// It was claimed for a runner; where not, the receiver runs it itself.
    pub by_runner: bool,
}

impl Admin {
    /// One job as it is listed.
    pub async fn job(&self, job: JobId) -> Result<JobRow, Error> {
        // By the unique id.
        let sql = format!("{JOB} WHERE j.id = ?1");
        let found = self
            .engine
            .read(move |conn| {
                conn.prepare_cached(&sql)?.query_row([job.as_bytes()], job_row).optional()
            })
            .await?;
        found.ok_or(Error::NoJob(job))
    }

    /// The running attempt of a job; a job that does not run is in the wrong state for `verb`, a
    /// participle.
    pub async fn live(&self, job: JobId, verb: &'static str) -> Result<Live, Error> {
        let found = self
            .engine
            .read(move |conn| {
                // By the unique id, with its last attempt where it has one.
                conn.prepare_cached(
                    "SELECT j.state, j.attempt, a.incarnation IS NOT NULL
                     FROM job j LEFT JOIN attempt a ON a.job = j.row AND a.number = j.attempt
                     WHERE j.id = ?1",
                )?
                .query_row([job.as_bytes()], |row| {
                    let live = Live { attempt: row.get(1)?, by_runner: row.get(2)? };
                    Ok((codec::text::<State>(row, 0)?, live))
                })
                .optional()
            })
            .await?;
        match found {
            Some((State::Running, live)) => Ok(live),
            Some((state, _)) => Err(Error::WrongState { job, state, verb }),
            None => Err(Error::NoJob(job)),
        }
    }
}
