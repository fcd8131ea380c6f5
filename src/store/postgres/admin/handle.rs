//! The handle of `control` and `metrics` on PostgreSQL.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustix::process::geteuid;

use crate::clock::Clock;
use crate::routing::Router;
use crate::store::border::{By, Caller};

use super::super::connection::Target;
use super::super::operate::change::Changer;

/// For operators, from a receiver or without one: nothing here belongs to a node's session.
#[derive(Clone)]
pub struct Admin {
    #[expect(dead_code, reason = "the reading verbs connect to it")]
    pub(in super::super) target: Target,
    /// Of the verbs that change something.
    pub(in super::super) changer: Arc<Changer>,
    /// By which a job is decided again before it is put back.
    pub(in super::super) router: Arc<ArcSwap<Router>>,
    /// The user whose changes it makes, and what he says of them.
    pub(in super::super) caller: Arc<Caller>,
}

impl Admin {
    pub fn new(target: Target, clock: Clock) -> Self {
        Admin {
            changer: Changer::new(target.clone(), clock),
            target,
            router: Arc::default(),
            caller: Arc::new(Caller { uid: geteuid().as_raw(), by: By::default() }),
        }
    }

    /// The same handle, whose changes are in the audit list as those of this user. Without it they are this process's.
    #[must_use]
    pub fn by(&self, uid: u32, by: By) -> Self {
        Admin { caller: Arc::new(Caller { uid, by }), ..self.clone() }
    }

    /// From now on replays go by these routes.
    pub fn set_router(&self, router: Router) {
        self.router.store(Arc::new(router));
    }
}
