//! The handle of `admin`, `scrape` and `serve` on PostgreSQL.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustix::process::geteuid;
use tokio::sync::watch;
use uuid::Uuid;

use crate::clock::Clock;
use crate::limits::{LISTINGS, Limits};
use crate::measure::Distribution;
use crate::routing::Router;
use crate::store::border::{By, Caller, Disk, Error, Refused, Stall, WriterGauges};
use crate::store::decide::listing::list_time;
use crate::store::decide::notice::NoticeSubscribers;
use crate::store::node::commits::Commits;
use crate::store::node::space::Space;
use crate::store::quarantine::handle::QuarantineHandle;

use super::super::connection::Target;
use super::super::notices::NodeNotices;
use super::super::operate::change::Changer;
use super::super::reader::{Reader, Reading};
use super::super::writer::Writer;

/// The store as operators use it, from a receiver or without one: nothing here belongs to a node's session.
#[derive(Clone)]
pub struct Admin {
    pub target: Target,
    readers: Arc<Readers>,
    /// Makes the changes of the verbs.
    pub(in super::super) changer: Arc<Changer>,
    /// The routes by which a job is decided again before it is put back.
    pub(in super::super) router: Arc<ArcSwap<Router>>,
    pub(in super::super) caller: Arc<Caller>,
    store: Uuid,
    /// The writer of the open store; `None` in a handle of [`Admin::new`].
    pub(in super::super) own: Option<Writer>,
    /// The disk space of the node's state folder; `None` without a folder.
    pub(in crate::store) space: Option<Arc<Space>>,
    pub(in crate::store) quarantine: Arc<QuarantineHandle>,
}

struct Readers {
    /// The reader of look-ups, which do not wait for listings.
    look: Reader,
    lists: [Reader; LISTINGS],
    limits: Limits,
}

impl Admin {
    /// Makes the handle of a guest, which has no state folder. It connects when it is first asked for something. The
    /// schema must exist by then.
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
            store: Uuid::nil(),
            own: None,
        }
    }

    /// Completes the handle with the parts of a store that is open.
    pub(in super::super) fn of(
        self,
        store: Uuid,
        writer: Writer,
        space: Arc<Space>,
        quarantine: Arc<QuarantineHandle>,
    ) -> Self {
        Admin { store, own: Some(writer), space: Some(space), quarantine, ..self }
    }

    /// Connects, where it is not connected.
    pub(in super::super) async fn connect(&self) -> Result<(), Error> {
        self.changer.connect().await?;
        self.readers.look.read().await?;
        for list in &self.readers.lists {
            list.read().await?;
        }
        Ok(())
    }

    /// Returns the id by which runners know the store. A change of the history keeps it, so that they go on with the
    /// attempts that they have.
    pub fn id(&self) -> Uuid {
        self.store
    }

    pub fn ready(&self) -> Result<(), Refused> {
        self.own.as_ref().map_or(Ok(()), Writer::ready)
    }

    pub fn stalls(&self) -> Vec<Stall> {
        self.own.as_ref().map(Writer::stalls).unwrap_or_default()
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        match &self.own {
            Some(writer) => writer.stirred().subscribe(),
            None => watch::Sender::new(0).subscribe(),
        }
    }

    /// The server has the log, and checkpoints by itself.
    pub fn writer_gauges(&self) -> WriterGauges {
        let idle = (Arc::<Commits>::default(), (0, 0));
        let writer = self.own.as_ref();
        let (commits, (queue_items, queue_bytes)) =
            writer.map_or(idle, |writer| (Arc::clone(&writer.commits), writer.queue.waiting()));
        WriterGauges {
            queue_items,
            queue_bytes,
            batch_items: commits.items.get(),
            batch_seconds: commits.seconds.get(),
            checkpoint_seconds: Distribution { buckets: Vec::new(), sum: 0.0 },
            disk: Disk::default(),
            log_used_bytes: 0,
            log_bound_bytes: 0,
        }
    }

    /// A restart fixes nothing that the writer's task waits for, and a process that another one has replaced must not
    /// start again, or the two would replace each other without end (N3). A panic of the task ends the process (S13).
    pub async fn writer_answers(&self) -> bool {
        true
    }

    /// Which handlers take notices: none where no receiver runs.
    pub(in super::super) fn notices(&self) -> NodeNotices {
        self.own.as_ref().map(|writer| writer.notices.clone()).unwrap_or_default()
    }

    pub fn set_interest(&self, interest: NoticeSubscribers) {
        if let Some(writer) = &self.own {
            writer.notices.set(interest);
        }
    }

    /// Returns a handle whose changes are in the audit list as those of this user. Otherwise they are this process's.
    #[must_use]
    pub fn by(&self, uid: u32, by: By) -> Self {
        Admin { caller: Arc::new(Caller { uid, by }), ..self.clone() }
    }

    /// From now on replays go by these routes.
    pub fn set_router(&self, router: Router) {
        self.router.store(Arc::new(router));
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
