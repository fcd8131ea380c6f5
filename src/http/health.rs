//! `/healthz` and `/readyz`: is the process alive, and does the store take events.
//!
//! Load balancers and monitors ask for both. Both answer GET and HEAD and reveal nothing secret.

use super::reply::{self, Answer};
use crate::store::Intake;

/// Answers 200 while the process serves.
pub(super) const ALIVE: &str = "/healthz";

/// Answers 200 only while deliveries are accepted, with a reason where something else stands still.
pub(super) const READY: &str = "/readyz";

pub(super) fn ready(store: &Intake, is_closing: bool) -> Answer {
    if is_closing {
        return Answer::Unready("stopping");
    }
    match store.ready() {
        Ok(()) => Answer::Ready(store.stalls().first().map(|stall| stall.what.sentence())),
        Err(refused) => Answer::Unready(reply::word(&refused)),
    }
}
