//! `/healthz` and `/readyz`: is the process alive, and can it make an event durable now.
//!
//! For load balancers and monitors; both answer GET and HEAD and tell nothing that needs a secret.

use std::sync::atomic::Ordering;

use super::reply::Answer;
use super::server::Shared;

/// Answers as long as the process serves at all.
pub(super) const ALIVE: &str = "/healthz";

/// Answers 200 only while accepts are taken.
pub(super) const READY: &str = "/readyz";

/// Whether the store takes accepts and the server is not about to go.
pub(super) fn ready(shared: &Shared) -> Answer {
    if shared.closing.load(Ordering::Relaxed) {
        return Answer::Unready("stopping");
    }
    match shared.store.ready() {
        Ok(()) => Answer::Ready,
        Err(refused) => Answer::Unready(super::reply::word(&refused)),
    }
}
