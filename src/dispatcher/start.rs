//! What comes before the first claim: leftovers are ended, then recovery is committed.

use std::time::Duration;

use tokio::time::sleep;

use crate::handler;
use crate::model::{JobId, Name};
use crate::retry::Policy;
use crate::store::{Error, Store};

/// Settles what a crash cut off. Returns once that is committed, however long it takes: to claim
/// before would be to run a job whose last attempt may still live. Tries again every `pause`.
pub(super) async fn recover(store: &Store, policies: Vec<(Name, Policy)>, pause: Duration) {
    loop {
        match once(store, policies.clone()).await {
            Ok(alive) if alive.is_empty() => return,
            Ok(alive) => {
                for (job, attempt) in alive {
                    tracing::error!(%job, attempt, "its processes cannot be ended: no job can run");
                }
            }
            Err(error) => tracing::error!(%error, "failed to recover: no job can run"),
        }
        sleep(pause).await;
    }
}

/// One try. Returns the attempts of which something still lives: then nothing was settled, since
/// nobody may guess how they end.
async fn once(store: &Store, policies: Vec<(Name, Policy)>) -> Result<Vec<(JobId, u32)>, Error> {
    let running = store.running().await?;
    let attempts = running.into_iter().map(|(job, attempt, _)| (job, attempt)).collect();
    let alive = handler::end_leftovers(attempts).await;
    if !alive.is_empty() {
        return Ok(alive);
    }
    let recovered = store.recover(policies).await?;
    for (job, attempt, state) in recovered.unknown {
        tracing::warn!(%job, attempt, %state, "the outcome of an attempt that was cut off is unknown");
    }
    if recovered.orphaned > 0 {
        tracing::warn!(jobs = recovered.orphaned, "held: their handler is not configured");
    }
    Ok(Vec::new())
}
