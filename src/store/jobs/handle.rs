//! The handle of `dispatcher`.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::model::{JobId, Name};
use crate::store::decide::notice::Notice;
use crate::store::engine::handle::Engine;
use crate::store::engine::subscriptions::Subscriptions;

use super::claim_dedup::ClaimDedup;

/// For `dispatcher`: claims and completes jobs, recovers them at a start, deletes expired rows.
#[derive(Clone)]
pub struct Jobs {
    pub(crate) engine: Engine,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) claim_dedup: Arc<ClaimDedup>,
}

impl Jobs {
    /// Notified after every commit that changed something, and after a repair. One task may wait for it.
    pub fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.engine.wake)
    }

    /// Stores a notice behind the requests that are queued, and retries until it is committed. Returns
    /// at once.
    pub fn notify(&self, notice: Notice) {
        self.engine.notify(notice);
    }

    /// The paused handlers, from memory. A claim may still find one that is not among them paused; one that
    /// is among them needs no claim until [`Jobs::wake`] is notified.
    pub fn paused_now(&self) -> Arc<BTreeSet<Name>> {
        self.engine.paused.get()
    }

    /// Whether a claimed attempt may begin. On SQLite always: no other node can have its job.
    pub fn may_begin(&self, _job: JobId, _attempt: u32) -> bool {
        true
    }
}
