//! The handle of `admin`, `scrape` and `serve`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use uuid::Uuid;

use crate::routing::Router;
use crate::store::border::{By, Refused};
use crate::store::decide::notice::NoticeSubscribers;
use crate::store::engine::handle::Engine;
use crate::store::intake::handle::Intake;
use crate::store::tables::audit::Caller;

/// For `admin`, `scrape` and `serve`: looks at everything, and carries out the operator's verbs.
#[derive(Clone)]
pub struct Admin {
    pub(crate) engine: Engine,
    /// Accepts quarantined deliveries that verify now.
    pub(crate) intake: Intake,
    /// By which a job is decided again before it is put back.
    pub(crate) router: Arc<ArcSwap<Router>>,
    /// The user whose changes it makes.
    pub(crate) caller: Arc<Caller>,
}

impl Admin {
    /// The store's random identity.
    pub fn id(&self) -> Uuid {
        self.engine.id
    }

    /// The same handle, whose changes are in the audit list as those of this user. Without it they are this process's.
    #[must_use]
    pub fn by(&self, uid: u32, by: By) -> Admin {
        Admin { caller: Arc::new(Caller { uid, by }), ..self.clone() }
    }

    /// Fails with the reason while accepts are refused.
    pub fn ready(&self) -> Result<(), Refused> {
        self.engine.ready()
    }

    /// Counts the times when [`Jobs::wake`](crate::store::jobs::handle::Jobs::wake) is notified, when the store starts
    /// or stops refusing accepts, and when a failed delivery is kept, since the store was opened. Any number of tasks
    /// may listen.
    pub fn changes(&self) -> watch::Receiver<u64> {
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

    /// Says which handlers take the receiver's own events from the next transaction on. First before
    /// anything is accepted or recovered.
    pub fn set_interest(&self, interest: NoticeSubscribers) {
        self.engine.notices.set(interest);
    }
}
