//! What the handles of one store and its writer thread share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rusqlite::Connection;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::clock::Clock;
use crate::limits::LISTINGS;
use crate::store::border::Settings;
use crate::store::decide::notice::Notice;
use crate::store::node::commits::Commits;
use crate::store::node::space::Space;
use crate::store::node::stalls::Stalls;
use crate::store::sqlite::tables::notice::Notices;
use crate::store::sqlite::tables::paused::Paused;
use crate::store::sqlite::tables::secret_use::SecretUses;

use super::checkpoint::Checkpoints;
use super::open::Opened;
use super::queue::{Priority, Queue, WriteRequest};
use super::readers::Readers;

/// The parts of an open store. The connections are absent while the store is repaired, and after its end.
pub(crate) struct EngineState {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// The store's random identity.
    pub(crate) id: Uuid,
    pub(crate) queue: Arc<Queue>,
    pub(crate) space: Arc<Space>,
    /// The readers of look-ups.
    pub(crate) readers: Arc<Readers>,
    /// The readers of listings, which may take long.
    pub(crate) lists: [Arc<Readers>; LISTINGS],
    /// The readers of the keys of requests: an HTTP worker must not wait for a listing.
    pub(crate) keys: Readers,
    pub(crate) checkpoints: Arc<Checkpoints>,
    /// Rung after each commit that changed something; one listener.
    pub(crate) wake: Arc<Notify>,
    /// Counts these commits, the changes of readiness, and the kept failed deliveries, for any number of listeners.
    pub(crate) stirred: watch::Sender<u64>,
    /// What that counted at the last mark.
    pub(crate) marked: AtomicU64,
    pub(crate) commits: Commits,
    pub(crate) notices: Notices,
    pub(crate) paused: Arc<Paused>,
    pub(crate) secret_uses: Arc<SecretUses>,
    pub(crate) stalls: Stalls,
}

impl EngineState {
    /// The parts of a store that was just opened, and the writer's connection.
    pub(crate) fn new(
        settings: Settings,
        clock: Clock,
        space: Arc<Space>,
        opened: Opened,
    ) -> rusqlite::Result<(Self, Connection)> {
        let shared = EngineState {
            id: opened.id,
            queue: Arc::new(Queue::new(&settings.limits)),
            settings,
            clock,
            space,
            readers: Arc::default(),
            lists: Default::default(),
            keys: Readers::default(),
            checkpoints: Arc::default(),
            wake: Arc::default(),
            stirred: watch::Sender::new(0),
            marked: AtomicU64::default(),
            commits: Commits::default(),
            notices: Notices::default(),
            paused: Arc::default(),
            secret_uses: Arc::default(),
            stalls: Stalls::default(),
        };
        let writer = shared.put(opened)?;
        Ok((shared, writer))
    }

    /// Sets the connections of a store that was just opened, and reads the paused handlers. Returns the writer's
    /// connection.
    pub(crate) fn put(&self, opened: Opened) -> rusqlite::Result<Connection> {
        let Opened { writer, checkpointer, reader, lists, keys, id: _ } = opened;
        self.paused.load(&writer)?;
        self.checkpoints.put(checkpointer);
        self.readers.put(reader);
        self.lists.iter().zip(lists).for_each(|(place, list)| place.put(list));
        self.keys.put(keys);
        Ok(writer)
    }

    /// Counts a change.
    pub(crate) fn stir(&self) {
        self.stirred.send_modify(|mark| *mark += 1);
    }

    /// Waits for running reads and closes their connections.
    pub(crate) fn close_readers(&self) {
        self.readers.close();
        self.lists.iter().for_each(|list| list.close());
        self.keys.close();
    }

    /// Stores a notice behind the requests that are queued, and retries until it is committed.
    pub(crate) fn notify(&self, notice: Notice) {
        if !self.notices.want(notice.kind) {
            return;
        }
        let (notices, clock) = (self.notices.clone(), self.clock.clone());
        let (request, _) = WriteRequest::new(
            Priority::Kept,
            move |tx| notices.note(tx, &notice, clock.now()),
            |&()| (),
        );
        // Refused only where the receiver stops.
        let _ = self.queue.push(request);
    }
}
