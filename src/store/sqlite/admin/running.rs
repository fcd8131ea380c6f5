//! One job, for a client that watches it or cancels its running attempt.

use rusqlite::OptionalExtension;

use crate::model::JobId;
use crate::store::border::{Error, JobRow, RunningAttempt};
use crate::store::decide::job_move::FoundJob;
use crate::store::sqlite::jobs::complete::{RUNNING, running_attempt};

use super::handle::Admin;
use super::list::find_row;

impl Admin {
    pub async fn job(&self, job: JobId) -> Result<JobRow, Error> {
        let found = self.engine.read(move |conn| find_row(conn, job)).await?;
        found.ok_or(Error::NoJob(job))
    }

    pub async fn running_attempt(
        &self,
        job: JobId,
        seen: Option<u32>,
        verb: &'static str,
    ) -> Result<RunningAttempt, Error> {
        self.engine
            .look_up(move |conn| {
                let running = conn
                    .prepare_cached(RUNNING)?
                    .query_row([job.as_bytes()], running_attempt)
                    .optional()?;
                if let Some(running) = running {
                    let attempt = running.attempt;
                    return match seen.filter(|seen| *seen != attempt) {
                        Some(seen) => Err(Error::NewerAttempt { job, seen, attempt }.into()),
                        None => Ok(running),
                    };
                }
                let found = FoundJob::find(conn, job)?.ok_or(Error::NoJob(job))?;
                found.is_as(seen)?;
                Err(found.wrong_state(verb).into())
            })
            .await
    }

    pub async fn cancel_elsewhere(&self, _: JobId, _: u32) -> Result<Option<String>, Error> {
        Ok(None)
    }
}
