//! COMPLETE: settles the running attempt, guarded by its number.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, ready};
use rusqlite::types::Null;
use rusqlite::{Connection, Row, params};
use tokio::time::sleep;

use crate::crash;
use crate::model::{JobId, Runner, RunnerName, State};
use crate::retry::Next;
use crate::store::answer::StoredAnswer;
use crate::store::border::{
    Claim, Claims, ClaimsFuture, Completion, Error, Refused, RunningAttempt,
};
use crate::store::decide::end::{End, EndAnswer, JobAfter, may_be_superseded};
use crate::store::decide::job_move::FoundJob;
use crate::store::decide::key::KeyOf;
use crate::store::decide::notice::of_state;
use crate::store::sqlite::engine::handle::heard;
use crate::store::sqlite::engine::queue::{Priority, WriteReply, WriteRequest};
use crate::store::sqlite::tables::answer::{self, key_of};
use crate::store::sqlite::tables::codec;
use crate::store::sqlite::tables::codec::change_one;
use crate::store::sqlite::tables::group;
use crate::store::sqlite::tables::job::was_key;
use crate::store::sqlite::tables::notice::Notices;

use super::handle::Jobs;

/// The pause between two tries of an end that alone cannot be committed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

impl Jobs {
    pub async fn complete(&self, done: impl Into<Arc<Completion>>) -> Result<bool, Error> {
        let done = done.into();
        loop {
            match self.complete_once(&done).await {
                Err(Refused::Failed(error)) => {
                    tracing::error!(job = %done.job, error, "failed to record an end; trying again");
                    sleep(FAILED_PAUSE).await;
                }
                found => return completed(done.job, found),
            }
        }
    }

    /// Records an end, in one try: an end that alone cannot be committed is given up.
    async fn complete_once(&self, done: &Arc<Completion>) -> Result<Option<bool>, Refused> {
        let (item, answer) = self.completion(done).await;
        self.engine.push(item, answer).await
    }

    pub(crate) async fn complete_soon(&self, done: Completion) {
        let done = Arc::new(done);
        if self.complete_once(&done).await.is_err() {
            let store = self.clone();
            tokio::spawn(async move { store.complete(done).await });
        }
    }

    pub async fn complete_and_claim(
        &self,
        ends: &[Arc<Completion>],
        claim: Option<Claim>,
    ) -> (Vec<Result<bool, Error>>, ClaimsFuture) {
        let (mut items, mut answers) = (Vec::new(), Vec::new());
        for done in ends {
            let (item, answer) = self.completion(done).await;
            items.push(item);
            answers.push((done.job, answer));
        }
        // After the ends in the batch: what they put back may be claimed with them.
        let claim = claim.filter(|claim| claim.limit > 0).map(|claim| {
            let (item, answer) = self.claiming(claim);
            items.push(item);
            answer
        });
        self.engine.queue.push_kept(items);
        // It is answered last, so one wait covers all.
        let claimed = match claim {
            Some(answer) => Some(heard(answer).await),
            None => None,
        };
        let mut ended = Vec::with_capacity(answers.len());
        for (job, answer) in answers {
            ended.push(completed(job, heard(answer).await));
        }
        let claims = match claimed {
            Some(Ok(taken)) => Ok(self.claimed(taken).await),
            Some(Err(refused)) => Err(refused.into()),
            None => Ok(Claims::default()),
        };
        (ended, ready(claims).boxed())
    }

    /// The request that settles an attempt, and keeps its answer if a caller waits for one (I1). Its reply is `None` if
    /// no such job exists.
    async fn completion(&self, done: &Arc<Completion>) -> (WriteRequest, WriteReply<Option<bool>>) {
        let (job, notices, done) = (done.job, self.engine.notices.clone(), Arc::clone(done));
        let kept = match done.answer.clone() {
            Some(answer) => StoredAnswer::of(answer).await.map(Some).unwrap_or_else(|error| {
                tracing::error!(%job, attempt = done.attempt, %error, "an answer cannot be stored");
                None
            }),
            None => None,
        };
        let settle = move |tx: &Connection| match FoundJob::find(tx, done.job)? {
            Some(job) if job.state == State::Running && job.attempt == done.attempt => {
                settle(tx, &job, &done, kept.as_ref(), &notices)?;
                crash::point("complete.commit.before");
                Ok(Some(true))
            }
            Some(_) => Ok(Some(false)),
            // What carried a key that was replaced since is settled too.
            None => Ok(was_key(tx, done.job)?.then_some(false)),
        };
        let subscriptions = Arc::clone(&self.subscriptions);
        WriteRequest::new(Priority::Kept, settle, move |_| subscriptions.notify(job))
    }

    pub async fn running(&self) -> Result<Vec<RunningAttempt>, Error> {
        self.engine
            .read(|conn| {
                conn.prepare_cached(RUNNING)?.query_map([Null], running_attempt)?.collect()
            })
            .await
    }
}

/// The running attempts, each with its job, by the index of live attempts: of all jobs, or of job ?1.
pub(crate) const RUNNING: &str =
    "SELECT j.id, j.attempt, j.handler, e.source, e.event_id, j.counted, j.since, a.incarnation, a.runner
     FROM attempt a JOIN job j ON j.row = a.job AND j.attempt = a.number LEFT JOIN event e ON e.row = j.event
     WHERE a.outcome IS NULL AND j.state = 'running' AND (?1 IS NULL OR j.id = ?1) ORDER BY a.job";

pub(crate) fn running_attempt(row: &Row<'_>) -> rusqlite::Result<RunningAttempt> {
    let incarnation = codec::maybe_text(row, 7)?;
    let name: Option<RunnerName> = codec::maybe_text(row, 8)?;
    let runner =
        incarnation.map(|incarnation| Runner { name: name.unwrap_or_default(), incarnation });
    Ok(RunningAttempt {
        job: codec::job_id(row, 0)?,
        attempt: row.get(1)?,
        handler: codec::text(row, 2)?,
        source: codec::readable(row, 3)?,
        event_id: codec::readable(row, 4)?,
        counted: row.get(5)?,
        since: codec::time(row, 6)?,
        runner,
    })
}

/// The answer of a [`Jobs::completion`].
fn completed(job: JobId, found: Result<Option<bool>, Refused>) -> Result<bool, Error> {
    let found = found?;
    crash::point("complete.commit.after");
    found.ok_or(Error::NoJob(job))
}

/// Settles the live attempt of a job, which the caller found running with this number, as its event's key allows, and
/// keeps the answer for that. A job that would run again is dropped where a newer one takes its place. Lets the next job
/// of its group go on. Returns the job's state after it.
pub(crate) fn settle(
    tx: &Connection,
    &FoundJob { row, event, grouped, .. }: &FoundJob,
    done: &Completion,
    answer: Option<&StoredAnswer>,
    notices: &Notices,
) -> rusqlite::Result<State> {
    // A job that goes back to ready keeps its key, whatever it is.
    let key = match done.next {
        Next::Ready => KeyOf::Nobody,
        _ => key_of(tx, event)?,
    };
    let end = End::of(done.outcome, done.next, key, answer.is_some());
    if let (Some(answer), EndAnswer::Stored | EndAnswer::StoredAsError) = (answer, end.answer) {
        let is_error = end.answer == EndAnswer::StoredAsError;
        answer::write(tx, event, answer, is_error, done.finished_at)?;
    }
    let mut successor = None;
    if grouped && may_be_superseded(end.next) {
        successor = group::successor(tx, row)?;
    }
    let after = JobAfter::of(end.next, successor);
    // From running with this attempt's number only: a late result of an older attempt changes nothing.
    change_one(
        tx,
        "UPDATE job SET state = ?3, reason = ?4, due_at = ?5, settled_at = ?6, counted = counted + ?7,
                 superseded_by = ?8, due_from = ?9
             WHERE row = ?1 AND state = 'running' AND attempt = ?2",
        params![
            row,
            done.attempt,
            after.state.as_str(),
            after.reason,
            after.due_at.map(|time| time.0),
            after.is_settled().then_some(done.finished_at.0),
            done.counts,
            after.superseded_by.as_ref().map(JobId::as_bytes),
            done.finished_at.0,
        ],
    )?;
    end_attempt(tx, row, done, end)?;
    if grouped {
        group::release(tx, row)?;
    }
    if of_state(after.state).is_some() {
        notices.job(tx, row, done.finished_at)?;
    }
    Ok(after.state)
}

fn end_attempt(tx: &Connection, row: i64, done: &Completion, end: End) -> rusqlite::Result<()> {
    let Completion { record, finished_at, .. } = done;
    // A live attempt only: an outcome, once there, is never changed. Its runner matters while
    // its outcome is not known (R5), and takes more than the rest of the row.
    change_one(
        tx,
        "UPDATE attempt SET outcome = ?3, finished_at = ?4, detail = ?5, exit_code = ?6, signal = ?7,
             http_status = ?8, stdout_head = ?9, stdout_tail = ?10, stdout_total = ?11,
             stderr_head = ?12, stderr_tail = ?13, stderr_total = ?14, cpu_millis = ?15, memory_bytes = ?16,
             incarnation = NULL, runner = NULL
         WHERE job = ?1 AND number = ?2 AND outcome IS NULL",
        params![
            row,
            done.attempt,
            end.outcome.as_str(),
            record.ended_at.map_or(*finished_at, |ended_at| ended_at.min(*finished_at)).0,
            end.detail(&record.detail),
            record.exit_code,
            record.signal,
            record.http_status,
            record.stdout.head.0,
            record.stdout.tail.0,
            codec::size(record.stdout.total),
            record.stderr.head.0,
            record.stderr.tail.0,
            codec::size(record.stderr.total),
            record.usage.map(|usage| codec::size(usage.cpu_millis)),
            record.usage.map(|usage| codec::size(usage.memory_bytes)),
        ],
    )
}
