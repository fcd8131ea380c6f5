//! The three handles of an open store. A caller holds only the handle it needs. Each verb has a file;
//! the short ones are here.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::claim::Takers;
use super::engine::Engine;
use super::notice::Notice;
use super::quarantine;
use super::recent::Recent;
use super::types::Refused;
use super::waiters::Waiters;

/// For `http`: accepts deliveries, asks for stored answers, keeps failed deliveries.
#[derive(Clone)]
pub struct Intake {
    pub(super) engine: Engine,
    pub(super) waiters: Arc<Waiters>,
    pub(super) recent: Arc<Recent>,
    pub(super) quarantine: Arc<quarantine::Handle>,
}

/// For `dispatcher`: claims and completes jobs, recovers them at a start, deletes what is expired.
#[derive(Clone)]
pub struct Jobs {
    pub(super) engine: Engine,
    pub(super) waiters: Arc<Waiters>,
    pub(super) takers: Arc<Takers>,
}

/// For `control`, `scrape` and `serve`: looks at everything, and carries out the operator's verbs.
#[derive(Clone)]
pub struct Admin {
    pub(super) engine: Engine,
    /// Accepts quarantined deliveries that verify now.
    pub(super) intake: Intake,
}

impl Intake {
    /// Fails with the reason while accepts are refused.
    pub fn ready(&self) -> Result<(), Refused> {
        self.engine.ready()
    }

    /// Stores a notice behind the requests that are queued, and retries until it is committed. Returns
    /// at once.
    pub fn notify(&self, notice: Notice) {
        self.engine.notify(notice);
    }
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
}

impl Admin {
    /// The store's random identity.
    pub fn id(&self) -> Uuid {
        self.engine.id
    }

    /// Fails with the reason while accepts are refused.
    pub fn ready(&self) -> Result<(), Refused> {
        self.engine.ready()
    }

    /// Changes when [`Jobs::wake`] is notified, and when the store starts or stops refusing accepts. Any
    /// number of tasks may listen.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.engine.stirred.subscribe()
    }

    /// Waits for a sign of life from the writer's thread: between two batches, on a full disk or in the
    /// pauses of a repair. Never returns while the thread hangs. False once the store is closed.
    pub async fn writer_answers(&self) -> bool {
        match self.engine.queue.ask() {
            Some(answer) => answer.await.is_ok(),
            None => false,
        }
    }
}
