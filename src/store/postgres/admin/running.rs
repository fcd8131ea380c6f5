//! One job, for a client that watches it or cancels its running attempt.

use crate::model::JobId;
use crate::store::border::{Error, JobRow, RunningAttempt};

use super::handle::Admin;
use super::rows::find_job;

/// The live attempt of a job, by the unique id, on whatever node it runs.
const RUNNING: &str = "
    SELECT j.id AS job, j.attempt, j.handler, e.source, e.event_id, j.counted, j.since, a.incarnation, a.runner
    FROM job j JOIN attempt a ON a.job = j.row AND a.number = j.attempt LEFT JOIN event e ON e.row = j.event
    WHERE j.id = $1 AND j.state = 'running' AND a.outcome IS NULL";

impl Admin {
    /// One job as it is listed.
    pub async fn job(&self, job: JobId) -> Result<JobRow, Error> {
        find_job(&mut self.look().read().await?, job).await
    }

    /// The running attempt of a job, which must be `seen` where that is given; a job that does not run is in the wrong
    /// state for `verb`, such as "cancelled".
    pub async fn running_attempt(
        &self,
        job: JobId,
        seen: Option<u32>,
        verb: &'static str,
    ) -> Result<RunningAttempt, Error> {
        let mut reading = self.look().snapshot(None).await?;
        let running: Option<RunningAttempt> = reading.one(RUNNING, &[&job]).await?;
        let found = find_job(&mut reading, job).await?;
        if let Some(seen) = seen.filter(|seen| *seen != found.attempt) {
            return Err(Error::NewerAttempt { job, seen, attempt: found.attempt });
        }
        let wrong = Error::WrongState { job, state: found.state, verb };
        running.ok_or(wrong)
    }
}
