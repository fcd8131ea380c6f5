//! What the handles of one store and its writer thread share.

use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use crate::clock::Clock;

use super::checkpoint::Checkpoints;
use super::commits::Commits;
use super::notice::Notices;
use super::open::Opened;
use super::pause::Paused;
use super::queue::Queue;
use super::readers::Readers;
use super::secrets::SecretUses;
use super::space::Space;
use super::types::Settings;

/// The parts of an open store. The connections are absent while the store is repaired, and after its end.
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    /// The store's random identity.
    pub(super) id: Uuid,
    pub(super) queue: Arc<Queue>,
    pub(super) space: Arc<Space>,
    /// For look-ups.
    pub(super) readers: Arc<Readers>,
    /// For listings, which may take long.
    pub(super) lists: Arc<Readers>,
    /// For the keys of requests: an HTTP worker must not wait for a listing.
    pub(super) keys: Readers,
    pub(super) checkpoints: Arc<Checkpoints>,
    /// Rung after each commit that changed something; one listener.
    pub(super) wake: Arc<Notify>,
    /// The same for any number of listeners, and for a change of readiness.
    pub(super) stirred: watch::Sender<()>,
    pub(super) commits: Commits,
    pub(super) notices: Notices,
    pub(super) paused: Arc<Paused>,
    pub(super) secret_uses: Arc<SecretUses>,
}

impl Shared {
    /// The parts of a store that was just opened, and the writer's connection.
    pub(super) fn new(
        settings: Settings,
        clock: Clock,
        space: Arc<Space>,
        opened: Opened,
    ) -> rusqlite::Result<(Self, Connection)> {
        let shared = Shared {
            id: opened.id,
            queue: Arc::new(Queue::new(&settings.limits)),
            settings,
            clock,
            space,
            readers: Arc::default(),
            lists: Arc::default(),
            keys: Readers::default(),
            checkpoints: Arc::default(),
            wake: Arc::default(),
            stirred: watch::Sender::new(()),
            commits: Commits::default(),
            notices: Notices::default(),
            paused: Arc::default(),
            secret_uses: Arc::default(),
        };
        let writer = shared.put(opened)?;
        Ok((shared, writer))
    }

    /// Sets the connections of a store that was just opened, and reads the paused handlers. Returns the writer's
    /// connection.
    pub(super) fn put(&self, opened: Opened) -> rusqlite::Result<Connection> {
        let Opened { writer, checkpointer, reader, lists, keys, id: _ } = opened;
        self.paused.load(&writer)?;
        self.checkpoints.put(checkpointer);
        self.readers.put(reader);
        self.lists.put(lists);
        self.keys.put(keys);
        Ok(writer)
    }

    /// Waits for running reads and closes their connections.
    pub(super) fn close_readers(&self) {
        self.readers.close();
        self.lists.close();
        self.keys.close();
    }
}
