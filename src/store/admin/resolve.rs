//! RESOLVE: the operator says how a held job ended. Its attempts keep their outcomes: what was
//! unknown stays so in the record. Where a caller waits for the job's answer, the operator gives it, or frees
//! its key (I5).

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::model::{Answer, AuditVerb, DeadReason, JobId, State, Timestamp};
use crate::store::border::{AuditSubject, Error};
use crate::store::engine::verb::VerbError;
use crate::store::tables::answer::{KeyOf, StoredAnswer, free, key_of, write};
use crate::store::tables::codec::change_one;
use crate::store::tables::group;
use crate::store::tables::job::FoundJob;

use super::handle::Admin;

/// What the operator found out about a held job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// What its handler should do is done. No caller waits for its answer.
    Succeeded,
    /// The same, and this is the answer that its caller gets.
    Answered(Answer),
    /// It is not done, and shall not be. Where a caller waits for its answer the key is free again: the next
    /// request that has it is a new one.
    Failed,
}

impl Admin {
    /// RESOLVE: held after this attempt to succeeded, or to dead. Returns the state after it; an error has
    /// changed nothing: what the operator found out about one attempt says nothing of a newer one. Of
    /// several at once one does it, and the others find the job in another state.
    pub async fn resolve(&self, job: JobId, attempt: u32, how: Resolution) -> Result<State, Error> {
        let answer = match &how {
            Resolution::Answered(answer) => {
                let stored = StoredAnswer::of(answer.clone()).await;
                Some(stored.map_err(|error| Error::Unavailable(error.to_string()))?)
            }
            Resolution::Succeeded | Resolution::Failed => None,
        };
        self.change(AuditVerb::Resolve, move |tx, now| {
            let state = resolve(tx, (job, attempt), &how, answer.as_ref(), now)?;
            let (job, attempt) = (Some(job), Some(attempt));
            let subject = AuditSubject { job, attempt, state: Some(state), ..Default::default() };
            Ok((state, subject, 1))
        })
        .await
    }
}

fn resolve(
    tx: &Connection,
    (job, seen): (JobId, u32),
    how: &Resolution,
    answer: Option<&StoredAnswer>,
    now: Timestamp,
) -> Result<State, VerbError> {
    let found = FoundJob::find(tx, job)?.ok_or(Error::NoJob(job))?;
    let FoundJob { row, state, attempt, event, grouped, .. } = found;
    if state != State::Held {
        return Err(Error::WrongState { job, state, verb: "resolved" }.into());
    }
    found.is_as(Some(seen))?;
    match (how, answer, key_of(tx, event)?) {
        (Resolution::Succeeded, _, KeyOf::Unanswered) => {
            return Err(Error::AnswerNeeded { job }.into());
        }
        (Resolution::Failed, _, KeyOf::Unanswered) => free(tx, event)?,
        (_, Some(answer), KeyOf::Unanswered) => write(tx, event, answer, false, now)?,
        (_, Some(_), _) => return Err(Error::NobodyWaits { job }.into()),
        (_, None, _) => {}
    }
    let (state, reason) = match how {
        Resolution::Succeeded | Resolution::Answered(_) => (State::Succeeded, None),
        Resolution::Failed => (State::Dead, Some(DeadReason::Resolved)),
    };
    // From held after this attempt only.
    change_one(
        tx,
        "UPDATE job SET state = ?3, reason = ?4, settled_at = ?5,
                 behind = 0
             WHERE row = ?1 AND state = 'held' AND attempt = ?2",
        params![row, attempt, state.as_str(), reason.map(DeadReason::as_str), now.0],
    )?;
    if grouped {
        group::release(tx, row)?;
    }
    Ok(state)
}
