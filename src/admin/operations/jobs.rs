//! Jobs: list, show, replay, resolve, cancel, drop, many at once, and what an attempt has printed.

use serde::{Deserialize, Serialize};

use super::super::failure::{Failure, FailureKind};
use super::super::operation::operation;
use super::super::receiver::mark_broken;
use super::receiver::NO_RUNNER;
use crate::limits;
use crate::model::{AuditVerb, JobId, State};
use crate::runner::message::{Key, Stream};
use crate::store::{self, AuditSubject, JobFilter, JobRow, OutputExcerpt, Page};

operation! {
    /// Jobs, newest first.
    Get "/v1/jobs" Reads;
    for JobFilter => Page<JobRow>,
    |filter, context| {
        let mut page = context.store.jobs(filter).await?;
        mark_broken(context.receiver.as_ref(), &mut page.rows);
        Ok(page)
    }
}

operation! {
    /// What stands still, by cause: held and dead jobs by handler, reason and what their last attempts said.
    Get "/v1/stuck" Reads;
    ListStuck {} -> store::StuckJobs,
    |ListStuck {}, context| Ok(context.store.stuck().await?)
}

operation! {
    /// One job as it is listed.
    Get "/v1/jobs/{job}" Reads;
    ShowJob { job: JobId } -> JobRow,
    |ShowJob { job }, context| {
        let mut row = context.store.job(job).await?;
        mark_broken(context.receiver.as_ref(), [&mut row]);
        Ok(row)
    }
}

operation! {
    /// Put one held, dead or succeeded job back.
    Post "/v1/jobs/{job}/replay" Changes;
    ReplayJob {
        job: JobId,
        /// Whether the job gets a new key; the old one is recorded.
        #[serde(default)]
        new_key: bool,
        /// The last attempt that the operator saw: if it is another now, the job is left alone.
        attempt: Option<u32>,
        /// Whether the job is put back also if its condition does not hold or cannot be decided, or a newer event of
        /// its group has run or will run.
        #[serde(default)]
        regardless: bool,
    } -> store::Replayed,
    |ReplayJob { job, new_key, attempt, regardless }, context| {
        let what = match new_key {
            true => store::Replay::NewKey(job, attempt),
            false => store::Replay::Job(job, attempt),
        };
        Ok(context.store.replay(what, regardless).await?)
    }
}

operation! {
    /// Say how a held job ended: `"succeeded"`, `"failed"`, or `{"answered": …}` with what its caller gets.
    Post "/v1/jobs/{job}/resolve" Changes limits::ADMIN_RESOLVE_BYTES;
    ResolveJob {
        job: JobId,
        /// The last attempt that the operator saw: the job is held after that one, or left alone.
        attempt: u32,
        /// What the operator found out.
        how: store::Resolution,
    } -> ChangedJob,
    |ResolveJob { job, attempt, how }, context| {
        Ok(ChangedJob { state: context.store.resolve(job, attempt, how).await? })
    }
}

/// A job's state after a change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangedJob {
    pub state: State,
}

operation! {
    /// Take a job out, unless it runs or has succeeded.
    Post "/v1/jobs/{job}/drop" Changes;
    DropJob {
        job: JobId,
        /// The last attempt that the operator saw: if it is another now, the job is left alone.
        attempt: Option<u32>,
    } -> DroppedJob,
    |DropJob { job, attempt }, context| {
        Ok(DroppedJob { was: context.store.drop_job(job, attempt).await? })
    }
}

/// A job that was dropped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DroppedJob {
    /// Its state before.
    pub was: State,
}

operation! {
    /// Ask the running command of a job to end, also at another node of a database. The answer does not wait for its end.
    Post "/v1/jobs/{job}/cancel" Changes;
    CancelJob {
        job: JobId,
        /// The attempt that the operator saw: if another one runs now, it is left alone.
        attempt: Option<u32>,
    } -> CancelledAttempt,
    |CancelJob { job, attempt }, context| {
        let running = context.store.running_attempt(job, attempt, "cancelled").await?;
        if running.runner.is_none() {
            // What the request has caused cannot be taken back, and is not known.
            let message = format!("job {job} runs a forward, which cannot be called back");
            return Err(Failure::new(FailureKind::WrongState, message));
        }
        let attempt = running.attempt;
        if let Some(node) = context.store.cancel_elsewhere(job, attempt).await? {
            return Ok(CancelledAttempt { attempt, node: Some(node) });
        }
        let links = context.receiver(NO_RUNNER)?.links.clone();
        let subject =
            AuditSubject { job: Some(job), attempt: Some(attempt), ..AuditSubject::default() };
        let cancel = async move {
            links.cancel(Key { job, attempt }).map_err(Failure::unavailable)?;
            Ok::<_, Failure>((CancelledAttempt { attempt, node: None }, 1))
        };
        context.store.surround(AuditVerb::Cancel, subject, 1, cancel).await
    }
}

/// The cancelled attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CancelledAttempt {
    pub attempt: u32,
    /// The other node that runs it: it is asked as soon as that node's receiver reaches the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

operation! {
    /// What a running attempt has printed so far.
    Get "/v1/jobs/{job}/attempts/{attempt}/output" Reads;
    ReadOutput {
        job: JobId,
        attempt: u32,
        /// `stdout` or `stderr`.
        stream: Stream,
    } -> AttemptOutput,
    |ReadOutput { job, attempt, stream }, context| {
        let links = &context.receiver(NO_RUNNER)?.links;
        let output = links.peek(Key { job, attempt }, stream).await;
        Ok(AttemptOutput { output: output.map_err(Failure::unavailable)? })
    }
}

/// What an attempt has printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptOutput {
    /// The output; none where the runner does not have the attempt: it has not begun, or its end is being recorded.
    pub output: Option<OutputExcerpt>,
}

operation! {
    /// The next jobs that a replay or drop of many means.
    Post "/v1/jobs/select" Reads;
    for store::JobSelection => store::SelectedJobs,
    |select, context| Ok(context.store.select(select).await?)
}

operation! {
    /// Put back or drop a batch of selected jobs.
    Post "/v1/jobs/move" Changes;
    for store::JobBatch => store::BatchResult,
    |batch, context| Ok(context.store.move_batch(batch).await?)
}
