//! The page that Prometheus reads. Pure: [`Facts`] in, text out.
//!
//! `scrape` collects the facts. What must stay true: a label's value comes from the configuration or is one of a few
//! fixed words, so that a request cannot add a series; every family is in [`FAMILIES`], and the page has its type
//! even without a sample.

mod families;
mod page;

use crate::model::{Name, State, Timestamp};
use crate::store::{Gauges, WriterGauges};
use crate::traffic::{HandlerCounts, SourceCounts};

use families::*;
use page::Page;

pub use families::{FAMILIES, Family, Kind};
pub use page::CONTENT_TYPE;

/// The answers to deliveries.
const ANSWERS: [&str; 11] = [
    "accepted",
    "duplicate",
    "rejected",
    "malformed",
    "refused",
    "method_not_allowed",
    "too_slow",
    "too_large",
    "conflict",
    "limited",
    "unavailable",
];

/// The states whose jobs the store counts.
const STATES: [State; 5] = [State::Ready, State::Waiting, State::Running, State::Held, State::Dead];

/// The state of the HTTP server.
#[derive(Debug, Clone, Copy)]
pub struct Front {
    /// Open.
    pub connections: u64,
    /// In use.
    pub body_bytes: u64,
    pub body_bound_bytes: u64,
    /// Whether deliveries are accepted.
    pub ready: bool,
}

/// A runner of a configured handler or a running attempt, and its connection.
#[derive(Debug, Clone)]
pub struct Runner {
    pub name: String,
    /// It has accepted this receiver.
    pub connected: bool,
    /// Attempts that run or whose end is not recorded yet.
    pub running: u64,
    /// Most attempts that it runs; 0 if it accepts none.
    pub room: u64,
}

#[derive(Debug, Clone)]
pub struct Facts {
    /// Wall clock.
    pub now: Timestamp,
    pub started_at: Timestamp,
    pub front: Front,
    pub sources: Vec<SourceCounts>,
    pub handlers: Vec<HandlerCounts>,
    pub unknown_path_requests: u64,
    /// Malformed requests.
    pub unreadable_requests: u64,
    pub writer: WriterGauges,
    /// `None` while the store cannot be read.
    pub store: Option<Gauges>,
    pub runners: Vec<Runner>,
    pub log_lines_lost: u64,
}

pub fn page(facts: &Facts) -> String {
    let mut page = Page::default();
    process(&mut page, facts);
    sources(&mut page, facts);
    writer(&mut page, facts);
    handlers(&mut page, facts);
    runners(&mut page, facts);
    page.family(&LOG_LINES_LOST).count(&[], facts.log_lines_lost);
    page.into_text()
}

fn process(page: &mut Page, facts: &Facts) {
    let front = &facts.front;
    page.family(&BUILD_INFO).count(&[env!("CARGO_PKG_VERSION")], 1);
    page.family(&START_TIME).value(&[], seconds(facts.started_at));
    page.family(&READY).count(&[], front.ready.into());
    page.family(&OPEN_CONNECTIONS).count(&[], front.connections);
    page.family(&BODY_BYTES).count(&[], front.body_bytes);
    page.family(&BODY_BOUND_BYTES).count(&[], front.body_bound_bytes);
}

fn sources(page: &mut Page, facts: &Facts) {
    let all = &facts.sources;
    let mut family = page.family(&DELIVERIES);
    for source in all {
        for answer in ANSWERS {
            let refused = source.refused.iter().filter(|(one, ..)| *one == answer);
            let count = match answer {
                "accepted" => source.accepted,
                "duplicate" => source.duplicates,
                _ => refused.map(|(.., count)| count).sum(),
            };
            family.count(&[source.name.as_str(), answer], count);
        }
    }
    let mut family = page.family(&REFUSALS);
    for source in all {
        for (answer, reason, count) in &source.refused {
            family.count(&[source.name.as_str(), answer, reason], *count);
        }
    }
    let mut family = page.family(&KEYED);
    for source in all {
        for (result, count) in &source.keyed {
            family.count(&[source.name.as_str(), result], *count);
        }
    }
    page.family(&UNKNOWN_PATHS).count(&[], facts.unknown_path_requests);
    page.family(&UNREADABLE).count(&[], facts.unreadable_requests);
    let mut family = page.family(&ACCEPT_SECONDS);
    for source in all {
        family.histogram(&[source.name.as_str()], &source.seconds);
    }
    let mut family = page.family(&DEADLINE_RATIO);
    for source in all {
        if let Some(shares) = &source.shares {
            family.histogram(&[source.name.as_str()], shares);
        }
    }
    let mut family = page.family(&LAST_ACCEPTED);
    for source in all {
        if let Some(at) = source.last_good_at {
            family.value(&[source.name.as_str()], seconds(at));
        }
    }
    let mut family = page.family(&SECRET_MATCH);
    for used in facts.store.iter().flat_map(|store| &store.secrets) {
        // The store also has sources that are not configured any more.
        let configured = |source: &SourceCounts| {
            source.name == used.source && source.secrets.contains(&used.reference)
        };
        if all.iter().any(configured) {
            let labels = [used.source.as_str(), used.reference.as_str()];
            family.value(&labels, seconds(used.last_matched_at));
        }
    }
}

fn writer(page: &mut Page, facts: &Facts) {
    let writer = &facts.writer;
    page.family(&QUEUE_ITEMS).count(&[], writer.queue_items);
    page.family(&QUEUE_BYTES).count(&[], writer.queue_bytes);
    page.family(&BATCH_ITEMS).histogram(&[], &writer.batch_items);
    page.family(&BATCH_SECONDS).histogram(&[], &writer.batch_seconds);
    page.family(&CHECKPOINT_SECONDS).histogram(&[], &writer.checkpoint_seconds);
    page.family(&DATABASE_BYTES).count(&[], writer.disk.database_bytes);
    let mut family = page.family(&FREE_PAGE_BYTES);
    if let Some(store) = &facts.store {
        family.count(&[], store.free_page_bytes);
    }
    page.family(&LOG_BYTES).count(&[], writer.disk.log_bytes);
    page.family(&LOG_USED_BYTES).count(&[], writer.log_used_bytes);
    page.family(&LOG_BOUND_BYTES).count(&[], writer.log_bound_bytes);
    let mut family = page.family(&DISK_FREE_BYTES);
    if let Some(free) = writer.disk.free_bytes {
        family.count(&[], free);
    }
    page.family(&DISK_FLOOR_BYTES).count(&[], writer.disk.floor_bytes);
}

fn handlers(page: &mut Page, facts: &Facts) {
    let configured = || facts.handlers.iter().map(|handler| &handler.name);
    let mut family = page.family(&JOBS);
    if let Some(store) = &facts.store {
        // A handler that is not configured any more may still have jobs.
        let mut names: Vec<&Name> =
            configured().chain(store.jobs.iter().map(|(handler, ..)| handler)).collect();
        names.sort();
        names.dedup();
        for name in names {
            for state in STATES {
                let found =
                    store.jobs.iter().find(|(of, in_state, _)| of == name && *in_state == state);
                family.count(&[name.as_str(), state.as_str()], found.map_or(0, |(.., jobs)| *jobs));
            }
        }
    }
    let mut family = page.family(&SETTLED);
    for handler in &facts.handlers {
        for (state, count) in &handler.settled {
            family.count(&[handler.name.as_str(), state.as_str()], *count);
        }
    }
    let mut family = page.family(&ATTEMPTS);
    for handler in &facts.handlers {
        for (outcome, count) in &handler.outcomes {
            family.count(&[handler.name.as_str(), outcome.as_str()], *count);
        }
    }
    let mut family = page.family(&ATTEMPT_SECONDS);
    for handler in &facts.handlers {
        family.histogram(&[handler.name.as_str()], &handler.seconds);
    }
    let mut family = page.family(&OLDEST_READY);
    if let Some(store) = &facts.store {
        for name in configured() {
            let since = store.oldest_ready.iter().find(|(handler, _)| handler == name);
            let age = since.map(|(_, since)| facts.now.since(*since).as_secs_f64());
            family.value(&[name.as_str()], age.unwrap_or(0.0));
        }
    }
    let mut family = page.family(&PAUSED);
    if let Some(store) = &facts.store {
        for name in configured() {
            family.count(&[name.as_str()], store.paused.contains(name).into());
        }
    }
    let mut family = page.family(&BROKEN);
    for handler in &facts.handlers {
        family.count(&[handler.name.as_str()], handler.broken.into());
    }
}

fn runners(page: &mut Page, facts: &Facts) {
    let mut each = |family, value: fn(&Runner) -> u64| {
        let mut family = page.family(family);
        for runner in &facts.runners {
            family.count(&[&runner.name], value(runner));
        }
    };
    each(&RUNNER_CONNECTED, |runner| runner.connected.into());
    each(&RUNNER_RUNNING, |runner| runner.running);
    each(&RUNNER_ROOM, |runner| runner.room);
}

/// Unix time in seconds.
fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1000.0
}
