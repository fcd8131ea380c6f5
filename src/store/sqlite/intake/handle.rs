//! The handle of `http` on SQLite.

use std::sync::Arc;

use crate::store::border::{Refused, Stall};
use crate::store::decide::notice::Notice;
use crate::store::node::recent::Recent;
use crate::store::node::subscriptions::Subscriptions;
use crate::store::quarantine::handle::QuarantineHandle;
use crate::store::sqlite::engine::handle::Engine;

/// What its verbs promise is in `handles`.
#[derive(Clone)]
pub struct Intake {
    pub(crate) engine: Engine,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) recent: Arc<Recent>,
    pub(crate) quarantine: Arc<QuarantineHandle>,
}

impl Intake {
    pub fn ready(&self) -> Result<(), Refused> {
        self.engine.ready()
    }

    pub fn stalls(&self) -> Vec<Stall> {
        self.engine.stalls.all()
    }

    pub fn notify(&self, notice: Notice) {
        self.engine.notify(notice);
    }
}
