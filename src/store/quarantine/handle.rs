//! The store's end of the quarantine's thread.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::limits::Limits;
use crate::store::border::{DiscardReason, Error, FailedDelivery, Refused, Reverifier};
use crate::store::engine::lock::StoreLock;
use crate::store::engine::path::beside;
use crate::store::engine::space::Space;
use crate::store::mutex::lock;

use super::discards::{DiscardCounts, count};
use super::keeper::{KeeperTask, QuarantineKeeper, weight};
use super::rate::Rate;

/// The store's end of the thread.
pub(crate) struct QuarantineHandle {
    sender: Sender<KeeperTask>,
    waiting_bytes: Arc<AtomicUsize>,
    counts: Arc<Mutex<DiscardCounts>>,
    rate: Mutex<Rate>,
    pub(crate) judge: Mutex<Option<Reverifier>>,
    closed: watch::Receiver<bool>,
}

impl QuarantineHandle {
    /// Starts the thread for the database at `path`, whose lock it shares. Opens nothing yet.
    pub(crate) fn start(
        path: &Path,
        limits: &Limits,
        clock: Clock,
        space: Arc<Space>,
        lock: Arc<StoreLock>,
    ) -> io::Result<QuarantineHandle> {
        let (sender, tasks) = mpsc::channel();
        let waiting_bytes = Arc::<AtomicUsize>::default();
        let counts = Arc::<Mutex<DiscardCounts>>::default();
        let keeper = QuarantineKeeper {
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
            keeper.run(&tasks);
            done.send_replace(true);
        };
        std::thread::Builder::new().name("quarantine".to_owned()).spawn(run)?;
        let rate = Mutex::new(Rate::new(limits.quarantine_rate_bytes_per_second));
        Ok(QuarantineHandle {
            sender,
            waiting_bytes,
            counts,
            rate,
            judge: Mutex::default(),
            closed,
        })
    }

    /// Ends the thread behind the queued messages, and waits for its end.
    pub(crate) async fn close(&self) {
        // Where it is gone there is nothing to wait for.
        let _ = self.sender.send(None);
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Queues a failed delivery of this holder for the folder, or only counts it. Never waits. `kept` is called once it
    /// is in the folder.
    pub(crate) fn keep(
        &self,
        failed: FailedDelivery,
        holder: String,
        limits: &Limits,
        now: Duration,
        kept: impl FnOnce() + Send + 'static,
    ) {
        let weight = weight(&failed);
        let left_out = |why| count(&mut lock(&self.counts), &failed.source, why, 1);
        if !lock(&self.rate).take(&failed.source, &holder, weight as u64, now) {
            return left_out(DiscardReason::OverRate);
        }
        let most = usize::try_from(limits.quarantine_queue_bytes).unwrap_or(usize::MAX);
        if self.waiting_bytes.fetch_add(weight, Ordering::Relaxed) + weight > most {
            self.waiting_bytes.fetch_sub(weight, Ordering::Relaxed);
            return left_out(DiscardReason::Busy);
        }
        // A store that is closed keeps nothing.
        let _ = self.sender.send(Some(Box::new(move |keeper| {
            keeper.keep(&failed, holder);
            kept();
        })));
    }

    /// Runs `work` on the thread behind the queued messages.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut QuarantineKeeper) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let task: KeeperTask = Some(Box::new(move |keeper| {
            // The caller may be gone.
            let _ = answer.send(work(keeper));
        }));
        let stopping = || Error::from(Refused::Stopping);
        self.sender.send(task).map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())
    }
}
