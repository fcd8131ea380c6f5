//! The handle of `dispatcher` on SQLite.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::model::{JobId, Name, RunnerName, Timestamp};
use crate::retry::Policy;
use crate::store::border::{Error, Stalled};
use crate::store::decide::notice::Notice;
use crate::store::node::subscriptions::Subscriptions;
use crate::store::sqlite::engine::handle::Engine;

use super::claim_dedup::ClaimDedup;
use super::vain_reads::VainReads;

/// What its verbs promise is in `handles`.
#[derive(Clone)]
pub struct Jobs {
    pub(crate) engine: Engine,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) claim_dedup: Arc<ClaimDedup>,
    pub(crate) vain_reads: Arc<VainReads>,
    /// The events that retention passes over, because they are in pages that cannot be read.
    pub(crate) unreadable: Arc<Mutex<BTreeSet<i64>>>,
}

impl Jobs {
    pub fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.engine.wake)
    }

    pub fn notify(&self, notice: Notice) {
        self.engine.notify(notice);
    }

    pub fn stalled(&self, what: Stalled, why: String) {
        self.engine.stalls.set(what, why, self.engine.clock.now());
    }

    pub fn moves(&self, what: Stalled) {
        self.engine.stalls.clear(what);
    }

    pub fn paused_now(&self) -> Arc<BTreeSet<Name>> {
        self.engine.paused.get()
    }

    pub async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.engine.clock.now())
    }

    pub fn may_begin(&self, _job: JobId, _attempt: u32) -> bool {
        true
    }

    /// The store knows its end.
    pub fn note_stray(&self, _job: JobId, _attempt: u32) {}

    pub fn unlisted(&self) -> Option<BTreeSet<RunnerName>> {
        None
    }

    pub fn answer_roll_call(&self, _listed: BTreeSet<RunnerName>) {}

    pub async fn policy_elsewhere(&self, _handler: &Name) -> Result<Option<Policy>, Error> {
        Ok(None)
    }

    /// A claim waits for the disk alone.
    pub fn end_claims(&self) {}

    pub fn cancel_asked(&self) -> Vec<(JobId, u32)> {
        Vec::new()
    }
}
