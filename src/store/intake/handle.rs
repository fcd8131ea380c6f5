//! The handle of `http`.

use std::sync::Arc;

use crate::store::border::Refused;
use crate::store::decide::notice::Notice;
use crate::store::engine::handle::Engine;
use crate::store::engine::subscriptions::Subscriptions;
use crate::store::quarantine::handle::QuarantineHandle;

use super::recent::Recent;

/// For `http`: accepts deliveries, asks for stored answers, keeps failed deliveries.
#[derive(Clone)]
pub struct Intake {
    pub(crate) engine: Engine,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) recent: Arc<Recent>,
    pub(crate) quarantine: Arc<QuarantineHandle>,
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
