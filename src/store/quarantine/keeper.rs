//! The thread that has the quarantine's folder to itself.
//!
//! What must stay true: it takes neither the main writer's queue nor its connection, and writes nothing
//! while the disk has less than twice the floor below which accepts are refused. A folder that cannot be
//! used costs nothing but what it would keep.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::measure::Level;
use crate::model::Timestamp;
use crate::store::border::{DiscardReason, FailedDelivery};
use crate::store::mutex::lock;
use crate::store::node::lock::StoreLock;
use crate::store::node::space::Space;
use crate::verify;

use super::discards::{DiscardCounts, add_counts, count};
use super::folder::QuarantineFolder;

/// How often an idle folder is searched for deliveries that are too old.
const EXPIRE_EVERY: Duration = Duration::from_secs(3600);

/// The pause between two tries to open a folder that cannot be used: each may read thousands of files.
const TRY_EVERY: Duration = Duration::from_secs(60);

/// What the thread is to do; `None` ends it, after everything before it.
pub(crate) type KeeperTask = Option<Box<dyn FnOnce(&mut QuarantineKeeper) + Send>>;

/// What the thread owns and shares.
pub(crate) struct QuarantineKeeper {
    pub(crate) path: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    pub(crate) space: Arc<Space>,
    /// Bytes that wait in the queue.
    pub(crate) waiting_bytes: Arc<Level>,
    pub(crate) counts: Arc<Mutex<DiscardCounts>>,
    pub(crate) folder: Option<QuarantineFolder>,
    /// No try to open the folder before then (monotonic).
    pub(crate) not_before: Duration,
    /// The store's lock stays until this thread ends too: the folder belongs to one process (R1).
    pub(crate) _lock: Arc<StoreLock>,
}

impl QuarantineKeeper {
    /// The thread's body, until it is asked to close or the store is gone.
    pub(crate) fn run(mut self, tasks: &Receiver<KeeperTask>) {
        loop {
            match tasks.recv_timeout(EXPIRE_EVERY) {
                Ok(Some(task)) => task(&mut self),
                Err(RecvTimeoutError::Timeout) => self.expire(),
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Keeps a delivery of this holder.
    pub(super) fn keep(&mut self, delivery: &FailedDelivery, holder: String) {
        self.waiting_bytes.subtract(weight(delivery));
        match self.write(delivery, holder) {
            Ok(evicted) => add_counts(&mut lock(&self.counts), evicted),
            Err(error) => {
                // The operator sees the counts; a log line for each delivery would be a second flood.
                tracing::debug!(%error, folder = %self.path.display(), "a failed delivery is not kept");
                count(&mut lock(&self.counts), &delivery.source, DiscardReason::NoSpace, 1);
            }
        }
    }

    fn write(
        &mut self,
        delivery: &FailedDelivery,
        holder: String,
    ) -> std::io::Result<DiscardCounts> {
        let needed = self.limits.disk_floor_bytes.saturating_mul(2);
        if self.space.free_bytes().is_some_and(|free| free < needed) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        // Off the workers' threads: it parses an unproven body.
        let claimed_id = delivery.body.as_ref().and_then(|body| {
            verify::claimed_id(&delivery.scheme, &delivery.headers, body).map(|id| id.to_string())
        });
        let max_bytes = self.limits.quarantine_bytes;
        let folder = self.open(true).ok_or(std::io::ErrorKind::NotFound)?;
        folder.keep(delivery, holder, claimed_id)?;
        Ok(folder.evict(max_bytes))
    }

    /// The folder, where anything was ever kept: none is made for a listing.
    pub(crate) fn folder(&mut self) -> Option<&mut QuarantineFolder> {
        self.open(false)
    }

    fn open(&mut self, make: bool) -> Option<&mut QuarantineFolder> {
        let now = self.clock.monotonic();
        if self.folder.is_none() && now >= self.not_before && (make || self.path.exists()) {
            match QuarantineFolder::open(self.path.clone()) {
                Ok(mut folder) => {
                    // A kill may have come between a write and its eviction. Zero only stops the writes.
                    if self.limits.quarantine_bytes > 0 {
                        let evicted = folder.evict(self.limits.quarantine_bytes);
                        add_counts(&mut lock(&self.counts), evicted);
                    }
                    self.folder = Some(folder);
                }
                Err(error) => {
                    tracing::warn!(%error, folder = %self.path.display(), "the quarantine cannot be used now");
                    self.not_before = now + TRY_EVERY;
                }
            }
        }
        self.folder.as_mut()
    }

    /// Deletes the deliveries that are too old.
    pub(crate) fn expire(&mut self) {
        let oldest = self.oldest();
        if let Some(folder) = self.folder() {
            let expired = folder.expire(oldest);
            add_counts(&mut lock(&self.counts), expired);
        }
    }

    /// No older delivery is kept. An id is remembered for `keep_ids`: a delivery accepted after that could make its event
    /// a second time.
    pub(crate) fn oldest(&self) -> Timestamp {
        let age = self.limits.quarantine_age_millis.min(self.limits.keep_ids_millis);
        self.clock.now().before(Limits::duration(age))
    }
}

/// What a waiting delivery takes beside its body, roughly; also what the smallest costs of the rate.
const ITEM_BYTES: usize = 4096;

/// What a delivery takes of the queue.
pub(super) fn weight(failed: &FailedDelivery) -> usize {
    let headers = failed.headers.bytes();
    ITEM_BYTES + failed.path.len() + headers + failed.body.as_ref().map_or(0, bytes::Bytes::len)
}
