//! An end that is tried until it is committed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::model::{Outcome, Timestamp};
use crate::retry::Next;
use crate::store::border::{Completion, Record, Refused};

use super::claim::NodeAttempt;
use super::complete::{AttemptEnd, EndResult, PreparedEnd};
use super::queue::Queue;
use super::request::Request;

/// Between two tries of an end that alone cannot be committed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// Records an end, tried again after any error until it is committed. Fails only where the writer ends.
pub(super) async fn settle(queue: &Queue, end: AttemptEnd) -> Result<EndResult, Refused> {
    let job = end.done.job;
    loop {
        let (answer, answered) = oneshot::channel();
        queue.push_kept(vec![Request::End(PreparedEnd::new(end.clone()).await, answer)])?;
        match answered.await.unwrap_or(Err(Refused::Stopping)) {
            Err(Refused::Failed(error) | Refused::Unconfirmed(error)) => {
                tracing::error!(%job, error, "failed to record an end; trying again");
                sleep(FAILED_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Settles an attempt that no runner was asked to start. If the writer ends first, the next process does.
pub(super) fn settle_unstarted(
    queue: &Arc<Queue>,
    NodeAttempt { running, claimant, .. }: &NodeAttempt,
    next: Next,
    detail: &str,
    now: Timestamp,
) {
    let done = Completion {
        job: running.job,
        attempt: running.attempt,
        outcome: Outcome::NotStarted,
        counts: false,
        next,
        finished_at: now,
        record: Record { detail: detail.to_owned(), ..Record::default() },
        answer: None,
    };
    let (queue, claimant) = (Arc::clone(queue), *claimant);
    let end = AttemptEnd { done: Arc::new(done), claimant };
    tokio::spawn(async move { settle(&queue, end).await });
}
