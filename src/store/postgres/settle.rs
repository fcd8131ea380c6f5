//! An end that is tried until it is committed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::store::border::Refused;

use super::complete::{AttemptEnd, EndResult, PreparedEnd};
use super::queue::Queue;
use super::request::Request;

/// The pause between two tries of an end that alone cannot be committed.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// Spawns [`settle`]. If the writer ends first, the next process settles the attempt.
pub(super) fn settle_soon(queue: &Arc<Queue>, end: AttemptEnd) {
    let queue = Arc::clone(queue);
    tokio::spawn(async move { settle(&queue, end).await });
}

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
