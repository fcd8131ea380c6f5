//! What comes before the first claim: recovery is committed, and what a runner may still have is known.

use std::time::Duration;

use tokio::time::sleep;

use crate::model::Name;
use crate::retry::Policy;
use crate::store::{Error, Jobs, Running};

/// What an earlier receiver left.
pub(super) struct Left {
    /// The attempts that only a runner can tell of.
    pub(super) running: Vec<Running>,
    /// The number of this receiver.
    pub(super) epoch: u64,
}

/// Settles what a crash cut off. Returns once that is committed, however long it takes: to claim
/// before would be to run a job whose last attempt nobody has judged. Tries again every `pause`.
pub(super) async fn recover(store: &Jobs, policies: Vec<(Name, Policy)>, pause: Duration) -> Left {
    loop {
        match once(store, policies.clone()).await {
            Ok(left) => return left,
            Err(error) => tracing::error!(%error, "failed to recover: no job can run"),
        }
        sleep(pause).await;
    }
}

async fn once(store: &Jobs, policies: Vec<(Name, Policy)>) -> Result<Left, Error> {
    let recovered = store.recover(policies).await?;
    for (job, attempt, state) in recovered.unknown {
        tracing::warn!(%job, attempt, %state, "the outcome of an attempt that was cut off is unknown");
    }
    if recovered.orphaned > 0 {
        tracing::warn!(jobs = recovered.orphaned, "held: their handler is not configured");
    }
    Ok(Left { running: store.running().await?, epoch: store.raise_epoch().await? })
}
