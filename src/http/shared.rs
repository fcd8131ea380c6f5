//! What the requests of one server share, and the snapshot of the configuration that each of them goes by.
//!
//! `server` replaces the snapshot as a whole at a reload. A request reads it once, without a lock, and keeps it to its
//! end. What must stay true: the source of a request, its limits and the handlers that match its event are of one
//! snapshot (S6).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};

use super::body::Pace;
use super::budget::Budget;
use super::client::Proxies;
use super::open::Open;
use super::rate::Rates;
use super::source::{ServedSource, Sources};
use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::Name;
use crate::registration::Registrations;
use crate::store::Intake;
use crate::traffic::Traffic;
use crate::verify;

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
    /// The rates of log lines of challenges without a signature, by source.
    pub(super) challenge_lines: Rates,
    pub(super) registrations: Registrations,
    /// Changes with each reload.
    pub(super) reloads: watch::Sender<()>,
    /// Bounds how many requests wait for a handler's answer.
    pub(super) waiting: Semaphore,
    /// Set when a stop begins: every answer then asks the client for a new connection.
    pub(super) closing: AtomicBool,
}

impl Shared {
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Whether the source has this secret in the current snapshot.
    pub(super) fn has_secret(&self, source: &Name, secret: &verify::Key) -> bool {
        let snapshot = self.snapshot.load();
        let sources = snapshot.sources.values().map(|served| &served.source);
        let mut keys = sources.filter(|one| one.name == *source).flat_map(|one| &one.keys);
        keys.any(|key| key.is_same(secret))
    }
}

/// What a reload changes of the HTTP server.
pub(super) struct Snapshot {
    /// The sources by their paths.
    pub(super) sources: HashMap<String, Arc<ServedSource>>,
    pub(super) proxies: Proxies,
    pub(super) budget: Arc<Budget>,
    pub(super) pace: Pace,
}

impl Snapshot {
    /// From now on `traffic` counts for these sources and no others.
    pub(super) fn new(sources: Sources, traffic: &Traffic, limits: &Limits) -> Self {
        Snapshot {
            proxies: sources.proxies.clone(),
            sources: sources.served(traffic),
            budget: Budget::new(limits),
            pace: Pace::new(limits),
        }
    }

    /// Keeps the budget of the snapshot before a reload if it has the same limits: bodies in memory stay in the budget
    /// that admitted them, so consecutive reloads would multiply it.
    pub(super) fn keep_budget(mut self, before: &Snapshot) -> Self {
        if self.budget.is_like(&before.budget) {
            self.budget = Arc::clone(&before.budget);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reload_keeps_the_budget_unless_its_limits_change() {
        let limits = Limits::default();
        let of = |limits: &Limits| Snapshot::new(Sources::default(), &Traffic::default(), limits);
        let first = of(&limits);
        let mut held = first.budget.permit();
        assert!(held.make_room(1000).await);
        let other = Limits { body_rate_bytes_per_second: 1, ..limits.clone() };
        let second = of(&other).keep_budget(&first);
        assert!(Arc::ptr_eq(&first.budget, &second.budget));
        let other = Limits { bodies_in_flight_bytes: limits.bodies_in_flight_bytes * 2, ..limits };
        assert!(!Arc::ptr_eq(&second.budget, &of(&other).keep_budget(&second).budget));
    }
}
