//! RESOLVE: the operator says how a held job ended. Its attempts keep their outcomes: what was
//! unknown stays so in the record. Where a caller waits for the job's answer, the operator gives it, or frees
//! its key (I5).

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::model::{Answer, DeadReason, JobId, State, Timestamp};
use crate::store::engine::queue::Priority;
use crate::store::tables::answer::{KeyOf, StoredAnswer, free, key_of, write};
use crate::store::tables::codec::exactly_one;
use crate::store::tables::job::find_job;
use crate::store::types::Error;

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

impl Resolution {
    /// The job's state after it, and the reason of that.
    fn after(&self) -> (State, Option<DeadReason>) {
        match self {
            Resolution::Succeeded | Resolution::Answered(_) => (State::Succeeded, None),
            Resolution::Failed => (State::Dead, Some(DeadReason::Resolved)),
        }
    }
}

impl Admin {
    /// RESOLVE: held after this attempt to succeeded, or to dead. Returns the state after it; an error has
    /// changed nothing: what the operator found out about one attempt says nothing of a newer one. Of
    /// several at once one does it, and the others find the job in another state.
    pub async fn resolve(&self, job: JobId, attempt: u32, how: Resolution) -> Result<State, Error> {
        let clock = self.engine.clock.clone();
        let answer = match &how {
            Resolution::Answered(answer) => {
                let stored = StoredAnswer::of(answer.clone()).await;
                Some(stored.map_err(|error| Error::Unavailable(error.to_string()))?)
            }
            Resolution::Succeeded | Resolution::Failed => None,
        };
        let resolve =
            move |tx: &Connection| resolve(tx, (job, attempt), &how, answer.as_ref(), clock.now());
        self.engine.submit(Priority::Verb, resolve).await?
    }
}

fn resolve(
    tx: &Connection,
    (job, seen): (JobId, u32),
    how: &Resolution,
    answer: Option<&StoredAnswer>,
    now: Timestamp,
) -> rusqlite::Result<Result<State, Error>> {
    let (row, attempt, event) = match find_job(tx, job)? {
        None => return Ok(Err(Error::NoJob(job))),
        Some((_, State::Held, attempt, _)) if attempt != seen => {
            return Ok(Err(Error::NewerAttempt { job, seen, attempt }));
        }
        Some((row, State::Held, attempt, event)) => (row, attempt, event),
        Some((_, state, ..)) => {
            return Ok(Err(Error::WrongState { job, state, verb: "resolved" }));
        }
    };
    match (how, answer, key_of(tx, event)?) {
        (Resolution::Succeeded, _, KeyOf::Unanswered) => {
            return Ok(Err(Error::AnswerNeeded { job }));
        }
        (Resolution::Failed, _, KeyOf::Unanswered) => free(tx, event)?,
        (_, Some(answer), KeyOf::Unanswered) => write(tx, event, answer, false, now)?,
        (_, Some(_), _) => return Ok(Err(Error::NobodyWaits { job })),
        (_, None, _) => {}
    }
    let (state, reason) = how.after();
    // From held after this attempt only.
    let moved = tx
        .prepare_cached(
            "UPDATE job SET state = ?3, reason = ?4, settled_at = ?5
             WHERE row = ?1 AND state = 'held' AND attempt = ?2",
        )?
        .execute(params![row, attempt, state.as_str(), reason.map(DeadReason::as_str), now.0])?;
    exactly_one(moved)?;
    Ok(Ok(state))
}
