//! The handle of `admin`, `scrape` and `serve` on SQLite.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use uuid::Uuid;

use crate::routing::Router;
use crate::store::border::{By, Caller, Refused, Stall};
use crate::store::decide::notice::NoticeSubscribers;
use crate::store::quarantine::handle::QuarantineHandle;
use crate::store::sqlite::engine::handle::Engine;
use crate::store::sqlite::intake::handle::Intake;

/// What its verbs promise is in `handles`.
#[derive(Clone)]
pub struct Admin {
    pub(crate) engine: Engine,
    /// Accepts quarantined deliveries that verify now.
    pub(crate) intake: Intake,
    pub(crate) quarantine: Arc<QuarantineHandle>,
    /// The routes by which a job is decided again before it is put back.
    pub(crate) router: Arc<ArcSwap<Router>>,
    /// The user whose changes it makes.
    pub(crate) caller: Arc<Caller>,
}

impl Admin {
    pub fn id(&self) -> Uuid {
        self.engine.id
    }

    pub fn by(&self, uid: u32, by: By) -> Admin {
        Admin { caller: Arc::new(Caller { uid, by }), ..self.clone() }
    }

    pub fn ready(&self) -> Result<(), Refused> {
        self.engine.ready()
    }

    pub fn stalls(&self) -> Vec<Stall> {
        self.engine.stalls.all()
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.engine.stirred.subscribe()
    }

    pub async fn writer_answers(&self) -> bool {
        match self.engine.queue.ask() {
            Some(answer) => answer.await.is_ok(),
            None => false,
        }
    }

    pub fn set_interest(&self, interest: NoticeSubscribers) {
        self.engine.notices.set(interest);
    }
}
