//! The handle of `control` and `metrics` on PostgreSQL.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustix::process::geteuid;
use uuid::Uuid;

use crate::clock::Clock;
use crate::limits::{LISTINGS, Limits};
use crate::routing::Router;
use crate::store::border::{By, Caller, Error};
use crate::store::decide::listing::list_time;
use crate::store::node::space::Space;
use crate::store::quarantine::handle::QuarantineHandle;

use super::super::connection::Target;
use super::super::operate::change::Changer;
use super::super::reader::{Reader, Reading};

/// For operators, from a receiver or without one: nothing here belongs to a node's session.
#[derive(Clone)]
pub struct Admin {
    pub target: Target,
    readers: Arc<Readers>,
    /// Of the verbs that change something.
    pub(in super::super) changer: Arc<Changer>,
    /// By which a job is decided again before it is put back.
    pub(in super::super) router: Arc<ArcSwap<Router>>,
    pub(in super::super) caller: Arc<Caller>,
    /// Of the state folder of its node.
    pub(in crate::store) space: Option<Arc<Space>>,
    pub(in crate::store) quarantine: Arc<QuarantineHandle>,
}

struct Readers {
    /// Of look-ups, which do not wait for listings.
    look: Reader,
    lists: [Reader; LISTINGS],
    limits: Limits,
}

impl Admin {
    /// Of a guest, which has no state folder. Connects when it is first asked for something. The schema must exist by
    /// then.
    pub fn new(target: Target, limits: &Limits, clock: Clock) -> Admin {
        let reader = || Reader::new(target.clone());
        let lists = std::array::from_fn(|_| reader());
        let readers = Readers { look: reader(), lists, limits: limits.clone() };
        Admin {
            readers: Arc::new(readers),
            quarantine: Arc::new(QuarantineHandle::closed(limits, clock.clone())),
            space: None,
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

    /// The store's random identity; another one after a change of the history that held its jobs (N27).
    pub async fn id(&self) -> Result<Uuid, Error> {
        let found = self.look().read().await?.one("SELECT store_id FROM meta", &[]).await?;
        found
            .map(|(id,)| id)
            .ok_or_else(|| Error::Unavailable("its identity is missing".to_owned()))
    }

    pub(super) fn look(&self) -> &Reader {
        &self.readers.look
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.readers.limits
    }

    /// A listing of at most `rows` rows.
    pub(super) async fn listing(&self, rows: i64) -> Result<Reading<'_>, Error> {
        // A connection that is free; where none is, the first one's page is soon over.
        let lists = &self.readers.lists;
        let reader = lists.iter().find(|list| list.is_free()).unwrap_or(&lists[0]);
        reader.snapshot(Some(list_time(self.limits(), rows))).await
    }
}
