//! Measures accepts: their rate, their latency, and the rate of duplicates.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use super::ceiling::{UNSTORED, Verifier, flushes};
use super::load::{flood, pace, quantile};
use super::requests::{Kind, requests};
use super::site::{HANDLER, Receiver, Site};
use super::table::{Bounds, Good, REPORTED_LOW, Table, median};

/// The number of concurrent connections.
const CONNECTIONS: usize = 64;

/// The events of one round: some seconds at 15,000 per second, in which the log restarts at least once.
const EVENTS: usize = 60_000;

/// The flushes of a round, and the accepts on one connection: enough for a p99.
const FLUSHES: usize = 4_000;

/// How often the log's size is checked.
const LOOK: Duration = Duration::from_millis(20);

/// Gives out event numbers that were not used before.
#[derive(Default)]
pub(crate) struct Fresh(Cell<u64>);

impl Fresh {
    pub(crate) fn take(&self, kind: Kind, count: usize) -> Vec<Vec<u8>> {
        let first = self.0.replace(self.0.get() + count as u64);
        requests(kind, first, count)
    }
}

/// A receiver with one handler, which wants every event of `kind` and is paused.
pub(crate) fn paused(kind: Kind) -> (Site, Receiver) {
    let site = Site::new(&HANDLER.replace("SOURCE", kind.path().trim_start_matches('/')));
    let receiver = site.start();
    site.pause();
    (site, receiver)
}

pub(crate) fn measure(table: &Table) {
    let fresh = Fresh::default();
    let mut full = None;
    for (kind, name) in [
        (Kind::GitHub, "durable accepts, 7 KB GitHub pushes, 64 connections"),
        (Kind::Stripe, "durable accepts, 2.5 KB Stripe events, 64 connections"),
    ] {
        if table.wants(name) {
            let rate = rate(table, &fresh, kind, name);
            full.get_or_insert(rate);
        }
    }
    // A tail latency needs seconds of load and an otherwise idle machine.
    if table.wants(P99) && !table.is_short() {
        p99(table, &fresh, full);
    }
    if table.wants(P50) {
        p50(table, &fresh);
    }
    if table.wants(DUPLICATES) {
        duplicates(table, &fresh);
    }
}

/// Measures the rate of accepts, and returns it.
fn rate(table: &Table, fresh: &Fresh, kind: Kind, name: &str) -> f64 {
    let verifier = Verifier::start();
    let (_site, receiver) = paused(kind);
    let events = EVENTS / table.effort.divide;
    let bounds = Bounds { good: Good::High, floor: 0.30, aim: 0.5 };
    let rates = RefCell::new(Vec::new());
    let ceiling = || {
        let requests = fresh.take(kind, events);
        flood(verifier.receiver.address, &requests, CONNECTIONS, UNSTORED).rate()
    };
    let measured = || {
        let requests = fresh.take(kind, events);
        let rate = flood(receiver.address, &requests, CONNECTIONS, 200).rate();
        rates.borrow_mut().push(rate);
        rate
    };
    table.compare(name, bounds, "/s", ceiling, measured);
    median(rates.into_inner())
}

const P99: &str = "p99 of an accept at 70 % of that load, beside that of fdatasync";

/// The largest allowed log: its limit plus the largest batch (`limits.log_bytes`, `limits.batch_bytes`).
const LOG_BYTES: u64 = (64 + 16) << 20;

/// Sends GitHub pushes at 70 % of the rate `full` for some seconds, and watches the size of the log.
fn p99(table: &Table, fresh: &Fresh, full: Option<f64>) {
    let (site, receiver) = paused(Kind::GitHub);
    let events = EVENTS / table.effort.divide;
    let full = full.unwrap_or_else(|| {
        let requests = fresh.take(Kind::GitHub, events);
        flood(receiver.address, &requests, CONNECTIONS, 200).rate()
    });
    let log = AtomicU64::new(0);
    let bounds = Bounds { good: Good::Low, floor: REPORTED_LOW, aim: 10.0 };
    let ceiling = || quantile(&flushes(&site, FLUSHES / table.effort.divide), 0.99);
    let measured = || {
        let requests = fresh.take(Kind::GitHub, events);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    log.fetch_max(site.log_bytes(), Relaxed);
                    std::thread::sleep(LOOK);
                }
            });
            let paced = pace(receiver.address, &requests, CONNECTIONS, 200, full * 0.7);
            done.store(true, Relaxed);
            paced.quantile(0.99)
        })
    };
    table.compare(P99, bounds, "ms", ceiling, measured);
    let log = log.into_inner();
    table.remark(&format!("  the log at most: {:.1} MiB", log as f64 / f64::from(1 << 20)));
    assert!(log <= LOG_BYTES, "the log is over its bound and a batch: {log} bytes");
}

const P50: &str = "p50 of an accept on one connection, beside a round trip and an fdatasync";

fn p50(table: &Table, fresh: &Fresh) {
    let verifier = Verifier::start();
    let (site, receiver) = paused(Kind::GitHub);
    let events = FLUSHES / table.effort.divide;
    let bounds = Bounds { good: Good::Low, floor: 2.0, aim: 1.5 };
    let ceiling = || {
        let requests = fresh.take(Kind::GitHub, events);
        let trip = flood(verifier.receiver.address, &requests, 1, UNSTORED).quantile(0.5);
        trip + quantile(&flushes(&site, events), 0.5)
    };
    let measured = || {
        let requests = fresh.take(Kind::GitHub, events);
        flood(receiver.address, &requests, 1, 200).quantile(0.5)
    };
    table.compare(P50, bounds, "ms", ceiling, measured);
}

const DUPLICATES: &str = "duplicates, 7 KB GitHub pushes, 64 connections";

/// Sends each event once, and then measures sending all of them again.
fn duplicates(table: &Table, fresh: &Fresh) {
    let verifier = Verifier::start();
    let (_site, receiver) = paused(Kind::GitHub);
    let requests = fresh.take(Kind::GitHub, EVENTS / table.effort.divide);
    flood(receiver.address, &requests, CONNECTIONS, 200);
    let bounds = Bounds { good: Good::High, floor: 0.45, aim: 0.8 };
    let ceiling = || flood(verifier.receiver.address, &requests, CONNECTIONS, UNSTORED).rate();
    let measured = || flood(receiver.address, &requests, CONNECTIONS, 200).rate();
    table.compare(DUPLICATES, bounds, "/s", ceiling, measured);
}
