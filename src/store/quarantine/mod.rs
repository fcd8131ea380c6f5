//! The quarantine: deliveries that failed verification, kept apart, judged again once the secret is
//! right, and then accepted. GitHub never sends again, so a wrong secret would lose them.
//!
//! `http` hands failures over and never waits; `control` asks for the rest. It is a file of its own
//! (`PATH.quarantine`) with a thread of its own, bounded in bytes, age and rate, and no promise: what it
//! costs the genuine deliveries is nothing. What must stay true: only `verify` makes what is accepted,
//! judged at the time of arrival; one is forgotten here only after its event is committed, so a crash
//! between the two makes a duplicate and no loss.

mod file;
mod judge;
mod keeper;
mod look;
mod rate;
mod rows;
mod tally;
#[cfg(test)]
mod tests;
mod types;

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::limits::Limits;

use super::Store;
use super::connection::beside;
use super::lock;
use super::lock::Lock;
use super::space::Space;
use super::types::{Error, OpenError, Refused};

use keeper::{Keeper, Message};
use rate::Rate;
use tally::Counts;

pub use types::{
    Judge, Judged, Judging, Kept, LeftOut, Quarantine, QuarantineFilter, Quarantined,
    QuarantinedRow, Verdicts,
};

/// What a waiting delivery takes beside its body, roughly; also what the smallest costs of the rate.
const ITEM_BYTES: usize = 4096;

/// What waits for the thread.
#[derive(Default)]
struct Waiting {
    bytes: AtomicUsize,
}

/// What a delivery takes of the queue.
fn weight(failed: &Quarantined) -> usize {
    let headers: usize = failed.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    ITEM_BYTES + failed.path.len() + headers + failed.body.as_ref().map_or(0, bytes::Bytes::len)
}

/// The store's end of the thread.
pub(super) struct Handle {
    sender: Sender<Message>,
    waiting: Arc<Waiting>,
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
    ) -> Result<Handle, OpenError> {
        let (sender, messages) = mpsc::channel();
        let (waiting, counts) = (Arc::<Waiting>::default(), Arc::<Mutex<Counts>>::default());
        let keeper = Keeper {
            path: beside(path, ".quarantine"),
            limits: limits.clone(),
            clock,
            space,
            waiting: Arc::clone(&waiting),
            counts: Arc::clone(&counts),
            file: None,
            not_before: Duration::ZERO,
            _lock: lock,
        };
        let (done, closed) = watch::channel(false);
        let run = move || {
            keeper.run(&messages);
            done.send_replace(true);
        };
        std::thread::Builder::new().name("quarantine".to_owned()).spawn(run).map_err(|error| {
            OpenError::Io {
                path: path.to_owned(),
                detail: format!("failed to start a thread: {error}"),
            }
        })?;
        let rate = Mutex::new(Rate::new(limits.quarantine_rate_bytes_per_second));
        Ok(Handle { sender, waiting, counts, rate, judge: RwLock::default(), closed })
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

impl Store {
    /// Keeps a failed delivery, or only counts it: where there are too many of them, and where the disk
    /// is short. Never waits.
    pub fn quarantine(&self, mut failed: Quarantined) {
        let (handle, limits) = (&self.inner.quarantine, &self.inner.settings.limits);
        if limits.quarantine_bytes == 0 {
            return;
        }
        if failed.body.as_ref().is_some_and(|body| body.len() as u64 > limits.quarantine_body_bytes)
        {
            failed.body = None;
        }
        let (holder, weight) = (holder(failed.address), weight(&failed));
        let now = self.inner.clock.monotonic();
        let left_out = |why| lock(&handle.counts).add(&failed.source, why, 1);
        if !lock(&handle.rate).take(&failed.source, &holder, weight as u64, now) {
            return left_out(LeftOut::OverRate);
        }
        let most = usize::try_from(limits.quarantine_queue_bytes).unwrap_or(usize::MAX);
        if handle.waiting.bytes.fetch_add(weight, Ordering::Relaxed) + weight > most {
            handle.waiting.bytes.fetch_sub(weight, Ordering::Relaxed);
            return left_out(LeftOut::Busy);
        }
        // A store that is closed keeps nothing.
        let _ = handle.sender.send(Message::Keep(Box::new(failed), holder));
    }

    /// What is kept: the newest of what is meant, and the counts of all.
    pub async fn quarantined(&self, filter: QuarantineFilter) -> Result<Quarantine, Error> {
        let limit = self.list_limit(filter.limit);
        self.ask_keeper(move |keeper| {
            keeper.expire();
            let counts = lock(&keeper.counts).clone();
            let listed = keeper.look(|file| file.list(&filter, limit));
            let mut listed = listed.unwrap_or_default();
            // What could not be written to the file.
            for (source, why, deliveries) in counts.iter() {
                let counted = listed.left_out.entry(source.clone()).or_default();
                *counted.entry(why).or_default() += deliveries;
            }
            listed
        })
        .await
    }

    /// Forgets what is meant; returns how many.
    pub async fn drop_quarantined(&self, filter: QuarantineFilter) -> Result<u64, Error> {
        self.ask_keeper(move |keeper| keeper.look(|file| file.drop_meant(&filter)).unwrap_or(0))
            .await
    }

    /// The newest of each source, with the number of those that can be judged again.
    pub(super) async fn newest_quarantined(&self) -> Result<Vec<(QuarantinedRow, u64)>, Error> {
        self.ask_keeper(|keeper| {
            keeper.expire();
            keeper.look(|file| file.latest()).unwrap_or_default()
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
        self.inner.quarantine.sender.send(ask).map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())
    }
}

impl Keeper {
    /// Does `work` where there is a file; none is made to be looked at.
    fn look<T>(&mut self, work: impl FnMut(&mut file::File) -> rusqlite::Result<T>) -> Option<T> {
        if self.is_there() { self.with_file(work) } else { None }
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
