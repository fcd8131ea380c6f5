//! Accepting: rate, latency, duplicates.

use std::cell::Cell;

use super::ceiling::{UNSTORED, Verifier, flushes};
use super::load::{flood, pace, quantile};
use super::requests::{Kind, requests};
use super::site::{HANDLER, Receiver, Site};
use super::table::{Bounds, Good, Table};

/// Connections of a flood.
const CONNECTIONS: usize = 64;

/// Events of one round: at 15,000 a second some seconds, in which the log comes round.
const EVENTS: usize = 60_000;

/// Numbers no event has had.
#[derive(Default)]
pub(crate) struct Fresh(Cell<u64>);

impl Fresh {
    pub(crate) fn take(&self, kind: Kind, count: usize) -> Vec<Vec<u8>> {
        let first = self.0.replace(self.0.get() + count as u64);
        requests(kind, first, count)
    }
}

/// A receiver whose one handler wants every event of `kind`, and is paused.
pub(crate) fn paused(kind: Kind) -> (Site, Receiver) {
    let site = Site::new(&HANDLER.replace("SOURCE", kind.path().trim_start_matches('/')));
    let receiver = site.start();
    site.pause();
    (site, receiver)
}

pub(crate) fn measure(table: &Table) {
    let fresh = Fresh::default();
    for (kind, name) in [
        (Kind::GitHub, "durable accepts, 7 KB GitHub pushes, 64 connections"),
        (Kind::Stripe, "durable accepts, 2.5 KB Stripe events, 64 connections"),
    ] {
        if table.wants(name) {
            rate(table, &fresh, kind, name);
        }
    }
}

fn rate(table: &Table, fresh: &Fresh, kind: Kind, name: &str) {
    let verifier = Verifier::start();
    let (_site, receiver) = paused(kind);
    let events = EVENTS / table.effort.divide;
    let bounds = Bounds { good: Good::High, floor: 0.35, aim: 0.5 };
    let ceiling = || {
        let requests = fresh.take(kind, events);
        flood(verifier.receiver.address, &requests, CONNECTIONS, UNSTORED).rate()
    };
    let measured = || {
        let requests = fresh.take(kind, events);
        flood(receiver.address, &requests, CONNECTIONS, 200).rate()
    };
    table.compare(name, bounds, "/s", ceiling, measured);
}
