//! Recovery, which comes before the first claim.

use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::select;
use tokio::time::{sleep, timeout};

use crate::model::Name;
use crate::notify;
use crate::retry::Policy;
use crate::store::{Error, Jobs, RunningAttempt, Stalled};

/// Least time between two tries: each that fails is logged, and the store may change often.
const PAUSE: Duration = Duration::from_millis(250);

/// Settles the attempts that a crash cut off. Returns once that is committed, however long it takes: a claim
/// before that could run a job whose last attempt is not settled. Tries again when the store changes, and at least every
/// `tick`. Returns the attempts whose ends only a runner knows, and the number of this receiver (R3).
pub(super) async fn recover(
    store: &Jobs,
    policies: Vec<(Name, Policy)>,
    tick: Duration,
) -> (Vec<RunningAttempt>, u64) {
    let (wake, mut last) = (store.wake(), String::new());
    loop {
        match once(store, policies.clone()).await {
            Ok(left) => {
                store.moves(Stalled::Recovery);
                return left;
            }
            Err(error) => {
                let why = error.to_string();
                if why != last {
                    tracing::error!(why, "failed to recover: no job can run");
                    last.clone_from(&why);
                }
                store.stalled(Stalled::Recovery, why);
            }
        }
        let change = async {
            sleep(PAUSE).await;
            wake.notified().await;
        };
        // It may take as long as a connection does.
        let told = notify::tick(store).then(|()| pending::<()>());
        let _changed = timeout(tick, async {
            select! {
                () = change => {}
                () = told => {}
            }
        })
        .await;
    }
}

async fn once(
    store: &Jobs,
    policies: Vec<(Name, Policy)>,
) -> Result<(Vec<RunningAttempt>, u64), Error> {
    let recovered = store.recover(policies).await?;
    for (job, attempt, state) in recovered.unknown {
        tracing::warn!(%job, attempt, %state, "the outcome of an attempt that was cut off is unknown");
    }
    if recovered.orphaned > 0 {
        tracing::warn!(jobs = recovered.orphaned, "held: their handler is not configured");
    }
    Ok((store.running().await?, store.raise_epoch().await?))
}
