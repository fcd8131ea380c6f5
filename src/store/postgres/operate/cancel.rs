//! CANCEL of an attempt that another process has: a mark in the attempt's row, and a wake-up (N21). The next attempt of the
//! job has another row.

use crate::model::{AuditVerb, JobId, Timestamp};
use crate::store::border::{AuditSubject, Error};

use super::super::admin::handle::Admin;
use super::super::flight::Flight;
use super::super::params::params;
use super::super::stop::ask;
use super::audit::{Operated, Operation};

/// Marks the attempt while it is live. Behind its lock, a completion that was under way has won.
const MARK: &str = "
    UPDATE attempt SET cancel_asked = true FROM job, node
    WHERE job.id = $1 AND attempt.job = job.row AND attempt.number = $2 AND attempt.outcome IS NULL
        AND node.id = attempt.node
    RETURNING node.name";

struct Mark {
    job: JobId,
    attempt: u32,
}

impl Operation for Mark {
    type Done = Option<String>;

    async fn operate(&self, flight: &mut Flight, _: Timestamp) -> Operated<Option<String>> {
        let marked = ask(flight, MARK, params![&self.job, self.attempt]).await?;
        let node: Option<String> = marked.first().map(|row| row.try_get(0)).transpose()?;
        let (job, attempt) = (Some(self.job), Some(self.attempt));
        let count = u64::from(node.is_some());
        let subject = AuditSubject { job, attempt, node: node.clone(), ..AuditSubject::default() };
        Ok((node, subject, count))
    }
}

impl Admin {
    /// Marks a running attempt that this process does not have. Returns the name of the node that runs it; none where this
    /// process has it.
    ///
    /// # Errors
    /// It has ended meanwhile, or it is not known whether it is marked.
    pub async fn cancel_elsewhere(
        &self,
        job: JobId,
        attempt: u32,
    ) -> Result<Option<String>, Error> {
        let own = self.own.as_ref();
        if own.is_some_and(|writer| writer.live.claimant((job, attempt)).is_some()) {
            return Ok(None);
        }
        match self.change(AuditVerb::Cancel, Mark { job, attempt }).await? {
            Some(node) => Ok(Some(node)),
            None => {
                self.running_attempt(job, Some(attempt), "cancelled").await?;
                Err(Error::Unavailable(format!("attempt {attempt} of job {job} cannot be marked")))
            }
        }
    }
}
