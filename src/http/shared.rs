//! What the requests of one server share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

use super::open::Open;
use super::rate::Rates;
use super::snapshot::Snapshot;
use crate::clock::Clock;
use crate::store::Intake;
use crate::traffic::Traffic;

/// What every request of every worker needs.
pub(super) struct Shared {
    /// Read once for each request.
    pub(super) snapshot: ArcSwap<Snapshot>,
    pub(super) store: Intake,
    pub(super) traffic: Traffic,
    pub(super) clock: Clock,
    pub(super) open: Arc<Open>,
    /// Bounds how many large bodies are hashed at a time, because unproven bodies must not occupy every core.
    /// Hashing all that the budget admits still takes a tenth of a second at most.
    pub(super) hashing: Semaphore,
    /// The request rates of callers, for sources that return their handler's answer.
    pub(super) rates: Rates,
    /// Bounds how many requests wait for a handler's answer.
    pub(super) waiting: Semaphore,
    /// Set when a stop begins: every answer then asks the client for a new connection.
    pub(super) closing: AtomicBool,
}
