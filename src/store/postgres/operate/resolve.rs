//! RESOLVE: the operator says how a held job ended. Its attempts keep their outcomes. Where a caller waits for the
//! job's answer, the operator gives it, or frees its key (I5).

use crate::model::{AuditVerb, DeadReason, JobId, State, Timestamp};
use crate::store::answer::StoredAnswer;
use crate::store::border::{AuditSubject, Error};
use crate::store::decide::resolve::{self, KeyChange, Resolution, Resolved};

use super::super::admin::handle::Admin;
use super::super::flight::Flight;
use super::super::params::params;
use super::super::stop::change_one;
use super::audit::{Operated, Operation};
use super::found::{facts, lock_job};
use super::job_move::release;

/// Settles a job that is held after this attempt, and no other.
const RESOLVE: &str = "
    UPDATE job SET state = $3, reason = $4, settled_at = now_ms(), behind = false
    WHERE row = $1 AND state = 'held' AND attempt = $2 RETURNING row";

/// Writes the answer into an unanswered row only: an answer that callers have got is never changed.
const ANSWER: &str = "
    UPDATE answer SET answered_at = now_ms(), status = $2, headers = $3, body = $4, body_bytes = $5
    WHERE event = $1 AND answered_at IS NULL RETURNING event";

/// The next request that has the key is a new one.
const FREE: &str = "DELETE FROM answer WHERE event = $1 AND answered_at IS NULL RETURNING event";

impl Admin {
    /// RESOLVE: held after this attempt to succeeded, or to dead. Returns the state after it; a refusal has changed
    /// nothing: what the operator found out about one attempt says nothing of a newer one. Of several at once one does
    /// it, and the others find the job in another state.
    pub async fn resolve(&self, job: JobId, attempt: u32, how: Resolution) -> Result<State, Error> {
        let answer = StoredAnswer::given(how.answer()).await?;
        self.change(AuditVerb::Resolve, ResolutionOf { job, attempt, how, answer }).await
    }
}

struct ResolutionOf {
    job: JobId,
    attempt: u32,
    how: Resolution,
    answer: Option<StoredAnswer>,
}

impl Operation for ResolutionOf {
    type Done = State;

    async fn operate(&self, flight: &mut Flight, _: Timestamp) -> Operated<State> {
        let found = lock_job(flight, self.job).await?.found;
        let key = facts(flight, found.event, &found.handler, None).await?.key;
        let Resolved { state, reason, key } =
            resolve::resolve(&found, self.attempt, &self.how, key)?;
        match (key, &self.answer) {
            (KeyChange::Freed, _) => change_one(flight, FREE, params![found.event]).await?,
            (KeyChange::Answered, Some(answer)) => {
                let StoredAnswer { status, headers, body, body_bytes } = answer.clone();
                let status = i32::from(status);
                let told = params![found.event, status, headers, body, body_bytes];
                change_one(flight, ANSWER, told).await?;
            }
            (KeyChange::Answered | KeyChange::None, _) => {}
        }
        let reason = reason.map(DeadReason::as_str);
        let resolved = params![found.row, found.attempt, state.as_str(), reason];
        change_one(flight, RESOLVE, resolved).await?;
        release(flight, vec![self.job]).await;
        let (job, attempt) = (Some(self.job), Some(self.attempt));
        let subject = AuditSubject { job, attempt, state: Some(state), ..AuditSubject::default() };
        Ok((state, subject, 1))
    }
}
