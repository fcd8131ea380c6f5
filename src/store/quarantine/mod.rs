//! The quarantine: deliveries that failed verification, kept apart, judged again once the secret is
//! right, and then accepted. GitHub never sends again, so a wrong secret would lose them.
//!
//! `http` hands failures over and never waits; `control` asks for the rest. It is a folder of its own
//! (`PATH.quarantine`) with a thread of its own, bounded in files, bytes, age and rate, and no promise: it
//! costs the genuine deliveries nothing. What must stay true: only `verify` makes what is accepted,
//! judged at the time of arrival; a delivery is deleted here only after its event is committed, so a
//! crash between the two makes a duplicate and no loss.

mod folder;
mod judge;
mod keeper;
mod rate;
#[cfg(test)]
mod tests;
mod types;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::limits::Limits;

use super::lock;
use super::lock::Lock;
use super::path::beside;
use super::space::Space;
use super::types::{Error, Refused};
use super::{Admin, Intake};

use keeper::{Keeper, Message};
use rate::Rate;
use types::{Counts, count};

pub use types::{
    Judge, Judged, Judging, Kept, LeftOut, Quarantine, QuarantineFilter, Quarantined,
    QuarantinedRow, Verdicts,
};

/// What a waiting delivery takes beside its body, roughly; also what the smallest costs of the rate.
const ITEM_BYTES: usize = 4096;

/// What a delivery takes of the queue.
fn weight(failed: &Quarantined) -> usize {
    let headers: usize = failed.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    ITEM_BYTES + failed.path.len() + headers + failed.body.as_ref().map_or(0, bytes::Bytes::len)
}

/// The store's end of the thread.
pub(super) struct Handle {
    sender: Sender<Message>,
    waiting_bytes: Arc<AtomicUsize>,
    counts: Arc<Mutex<Counts>>,
    rate: Mutex<Rate>,
    judge: RwLock<Option<Judge>>,
    closed: watch::Receiver<bool>,
}

impl Handle {
    /// Starts the thread for the database at `path`, whose lock it shares. Opens nothing yet.
    pub(super) fn start(
        path: &Path,
        limits: &Limits,
        clock: Clock,
        space: Arc<Space>,
        lock: Arc<Lock>,
    ) -> io::Result<Handle> {
        let (sender, messages) = mpsc::channel();
        let waiting_bytes = Arc::<AtomicUsize>::default();
        let counts = Arc::<Mutex<Counts>>::default();
        let keeper = Keeper {
            path: beside(path, ".quarantine"),
            limits: limits.clone(),
            clock,
            space,
            waiting_bytes: Arc::clone(&waiting_bytes),
            counts: Arc::clone(&counts),
            folder: None,
            not_before: Duration::ZERO,
            _lock: lock,
        };
        let (done, closed) = watch::channel(false);
        let run = move || {
            keeper.run(&messages);
            done.send_replace(true);
        };
        std::thread::Builder::new().name("quarantine".to_owned()).spawn(run)?;
        let rate = Mutex::new(Rate::new(limits.quarantine_rate_bytes_per_second));
        Ok(Handle { sender, waiting_bytes, counts, rate, judge: RwLock::default(), closed })
    }

    /// Ends the thread, after what is queued already, and waits for it.
    pub(super) async fn close(&self) {
        // Where it is gone there is nothing to wait for.
        let _ = self.sender.send(Message::Close);
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    fn judge(&self) -> Option<Judge> {
        self.judge.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Intake {
    /// Keeps a failed delivery, or only counts it: where there are too many of them, and where the disk
    /// is short. Never waits.
    pub fn quarantine(&self, mut failed: Quarantined) {
        let (handle, limits) = (&*self.quarantine, &self.engine.settings.limits);
        if limits.quarantine_bytes == 0 {
            return;
        }
        if failed.body.as_ref().is_some_and(|body| body.len() as u64 > limits.quarantine_body_bytes)
        {
            failed.body = None;
        }
        let (holder, weight) = (holder(failed.address), weight(&failed));
        let now = self.engine.clock.monotonic();
        let left_out = |why| count(&mut lock(&handle.counts), &failed.source, why, 1);
        if !lock(&handle.rate).take(&failed.source, &holder, weight as u64, now) {
            return left_out(LeftOut::OverRate);
        }
        let most = usize::try_from(limits.quarantine_queue_bytes).unwrap_or(usize::MAX);
        if handle.waiting_bytes.fetch_add(weight, Ordering::Relaxed) + weight > most {
            handle.waiting_bytes.fetch_sub(weight, Ordering::Relaxed);
            return left_out(LeftOut::Busy);
        }
        // A store that is closed keeps nothing.
        let _ = handle.sender.send(Message::Keep(Box::new(failed), holder));
    }
}

impl Admin {
    /// What is kept: the newest of what is meant, and the counts of all.
    pub async fn quarantined(&self, filter: QuarantineFilter) -> Result<Quarantine, Error> {
        let limit = usize::try_from(self.engine.list_limit(filter.limit)).unwrap_or(usize::MAX);
        self.ask_keeper(move |keeper| {
            keeper.expire();
            let left_out = lock(&keeper.counts).clone();
            let Some(folder) = keeper.folder() else {
                return Quarantine { left_out, ..Quarantine::default() };
            };
            let newest = folder.select(&filter).rev().take(limit);
            let deliveries = newest.filter_map(|id| folder.row(id)).collect();
            let matching = folder.select(&filter).count() as u64;
            Quarantine { deliveries, matching, bytes: folder.bytes(), left_out }
        })
        .await
    }

    /// Deletes what `filter` selects; returns how many.
    pub async fn drop_quarantined(&self, filter: QuarantineFilter) -> Result<u64, Error> {
        self.ask_keeper(move |keeper| {
            let Some(folder) = keeper.folder() else { return 0 };
            let selected: Vec<i64> = folder.select(&filter).collect();
            selected.into_iter().filter_map(|id| folder.remove(id)).count() as u64
        })
        .await
    }

    /// The newest of each source, with the number of those that can be judged again.
    pub(super) async fn newest_quarantined(&self) -> Result<Vec<(QuarantinedRow, u64)>, Error> {
        self.ask_keeper(|keeper| {
            keeper.expire();
            keeper.folder().map(|folder| folder.newest()).unwrap_or_default()
        })
        .await
    }

    async fn ask_keeper<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Keeper) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let ask = Message::Ask(Box::new(move |keeper| {
            // Whoever asked may be gone.
            let _ = answer.send(work(keeper));
        }));
        let stopping = || Error::from(Refused::Stopping);
        self.intake.quarantine.sender.send(ask).map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())
    }
}

/// Whom a delivery's bytes count for. One client has a whole /64 of IPv6 addresses (RFC 6177).
fn holder(address: Option<IpAddr>) -> String {
    match address.map(|address| address.to_canonical()) {
        None => "unknown".to_owned(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

/// What a [`Judge`] says of a source that the configuration has not got.
pub const NO_SUCH_SOURCE: &str = "no_such_source";
