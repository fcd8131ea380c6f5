//! RESOLVE: the operator says how a held job ended. Its attempts keep their outcomes: what was
//! unknown stays so in the record. Where a caller waits for the job's answer, the operator gives it, or frees
//! its key (I5).

use rusqlite::{Connection, params};

use crate::model::{AuditVerb, DeadReason, JobId, State, Timestamp};
use crate::store::answer::StoredAnswer;
use crate::store::border::{AuditSubject, Error};
use crate::store::decide::job_move::FoundJob;
use crate::store::decide::resolve::{self, KeyChange, Resolution, Resolved};
use crate::store::sqlite::engine::verb::VerbError;
use crate::store::sqlite::tables::answer::{free, key_of, write};
use crate::store::sqlite::tables::codec::change_one;
use crate::store::sqlite::tables::group;

use super::handle::Admin;

impl Admin {
    pub async fn resolve(&self, job: JobId, attempt: u32, how: Resolution) -> Result<State, Error> {
        let answer = StoredAnswer::given(how.answer()).await?;
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
    let resolved = resolve::resolve(&found, seen, how, key_of(tx, found.event)?)?;
    let FoundJob { row, attempt, event, grouped, .. } = found;
    match (resolved.key, answer) {
        (KeyChange::Freed, _) => free(tx, event)?,
        (KeyChange::Answered, Some(answer)) => write(tx, event, answer, false, now)?,
        (KeyChange::Answered | KeyChange::None, _) => {}
    }
    let Resolved { state, reason, .. } = resolved;
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
