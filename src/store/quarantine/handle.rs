//! The store's end of the quarantine's thread.

use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::limits::{Limits, QUARANTINE_BODY_BYTES};
use crate::measure::Level;
use crate::store::border::{
    DiscardReason, Error, FailedDelivery, PageCursor, Quarantine, QuarantineFilter, QuarantinedRow,
    Refused, Reverifier, Settings,
};
use crate::store::mutex::lock;
use crate::store::node::lock::StoreLock;
use crate::store::node::path::beside;
use crate::store::node::space::Space;

use super::discards::{DiscardCounts, count};
use super::keeper::{KeeperTask, QuarantineKeeper, weight};
use super::rate::Rate;

/// The store's end of the thread.
pub struct QuarantineHandle {
    limits: Limits,
    clock: Clock,
    stirred: watch::Sender<u64>,
    sender: Sender<KeeperTask>,
    waiting_bytes: Arc<Level>,
    counts: Arc<Mutex<DiscardCounts>>,
    rate: Mutex<Rate>,
    pub(crate) judge: Mutex<Option<Reverifier>>,
    closed: watch::Receiver<bool>,
}

impl QuarantineHandle {
    /// Starts the thread beside the file that the settings name, whose lock it shares. Opens nothing yet. `stirred` counts what
    /// is kept.
    pub(crate) fn start(
        settings: &Settings,
        clock: Clock,
        space: Arc<Space>,
        lock: Arc<StoreLock>,
        stirred: watch::Sender<u64>,
    ) -> io::Result<QuarantineHandle> {
        let (sender, tasks) = mpsc::channel();
        let waiting_bytes = Arc::<Level>::default();
        let counts = Arc::<Mutex<DiscardCounts>>::default();
        let keeper = QuarantineKeeper {
            path: beside(&settings.path, ".quarantine"),
            limits: settings.limits.clone(),
            clock: clock.clone(),
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
        let closed_one = QuarantineHandle::closed(&settings.limits, clock);
        Ok(QuarantineHandle { stirred, sender, waiting_bytes, counts, closed, ..closed_one })
    }

    /// Keeps nothing and answers nothing, as after the end of the thread.
    pub(crate) fn closed(limits: &Limits, clock: Clock) -> QuarantineHandle {
        QuarantineHandle {
            limits: limits.clone(),
            clock,
            stirred: watch::Sender::default(),
            sender: mpsc::channel().0,
            waiting_bytes: Arc::default(),
            counts: Arc::default(),
            rate: Mutex::new(Rate::new(limits.quarantine_rate_bytes_per_second)),
            judge: Mutex::default(),
            closed: watch::channel(true).1,
        }
    }

    /// Ends the thread behind the queued messages, and waits for its end.
    pub(crate) async fn close(&self) {
        // Where it is gone there is nothing to wait for.
        let _ = self.sender.send(None);
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Queues a failed delivery for the folder, or only counts it. Never waits.
    pub(crate) fn keep(&self, mut failed: FailedDelivery) {
        if self.limits.quarantine_bytes == 0 {
            return;
        }
        if failed.body.as_ref().is_some_and(|body| body.len() as u64 > QUARANTINE_BODY_BYTES) {
            failed.body = None;
        }
        let (holder, now) = (holder(failed.address), self.clock.monotonic());
        let weight = weight(&failed);
        let left_out = |why| count(&mut lock(&self.counts), &failed.source, why, 1);
        if !lock(&self.rate).take(&failed.source, &holder, weight as u64, now) {
            return left_out(DiscardReason::OverRate);
        }
        let most = usize::try_from(self.limits.quarantine_queue_bytes).unwrap_or(usize::MAX);
        if self.waiting_bytes.add(weight) > most {
            self.waiting_bytes.subtract(weight);
            return left_out(DiscardReason::Busy);
        }
        let stirred = self.stirred.clone();
        let sent = self.sender.send(Some(Box::new(move |keeper| {
            keeper.keep(&failed, holder);
            stirred.send_modify(|mark| *mark += 1);
        })));
        if sent.is_err() {
            // A store that is closed keeps nothing.
            self.waiting_bytes.subtract(weight);
        }
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
    /// The newest deliveries that `filter` selects, and the counts of all.
    pub(crate) async fn page(&self, filter: QuarantineFilter) -> Result<Quarantine, Error> {
        let most = usize::try_from(self.limits.list_count).unwrap_or(usize::MAX);
        let limit = filter.limit.map_or(most, |asked| asked.min(most));
        self.ask(move |keeper| {
            keeper.expire();
            let left_out = lock(&keeper.counts).clone();
            let Some(folder) = keeper.folder() else {
                return Quarantine { left_out, ..Quarantine::default() };
            };
            let is_next = |id: &i64| filter.before.is_none_or(|before| *id < before.0);
            let mut newest = folder.select(&filter).rev().filter(is_next);
            let page: Vec<i64> = newest.by_ref().take(limit).collect();
            let next = newest.next().and(page.last().copied()).map(PageCursor);
            let deliveries = page.into_iter().filter_map(|id| folder.row(id)).collect();
            let matching = folder.select(&filter).count() as u64;
            Quarantine { deliveries, next, matching, bytes: folder.bytes(), left_out }
        })
        .await
    }

    /// The newest of each source, with the number of those that can be judged again.
    pub(crate) async fn newest(&self) -> Result<Vec<(QuarantinedRow, u64)>, Error> {
        self.ask(|keeper| {
            keeper.expire();
            keeper.folder().map(|folder| folder.newest()).unwrap_or_default()
        })
        .await
    }
}

/// The client that a delivery counts for. One client has a whole /64 of IPv6 addresses (RFC 6177).
pub(crate) fn holder(address: Option<IpAddr>) -> String {
    match address.map(|address| address.to_canonical()) {
        None => "unknown".to_owned(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}
