//! The page that Prometheus reads: facts in, text out.
//!
//! For `scrape`, which gathers the [`Facts`]. What must stay true: a label's value comes from the
//! configuration or is one of a few fixed words, so that no request adds a series; every family is in
//! [`FAMILIES`], and is on the page with its type also where it has no sample.

mod families;
mod page;

use crate::model::{Name, State, Timestamp};
use crate::store::{Gauges, WriterGauges};
use crate::traffic::{HandlerCounts, SourceCounts};

use families::*;
use page::Page;

pub use families::{FAMILIES, Family, Kind};
pub use page::CONTENT_TYPE;

/// How a delivery to a source can be answered.
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

/// The states that are counted in the store.
const STATES: [State; 5] = [State::Ready, State::Waiting, State::Running, State::Held, State::Dead];

/// What the HTTP server holds.
#[derive(Debug, Clone, Copy)]
pub struct Front {
    /// Open connections.
    pub connections: u64,
    /// Bytes taken by bodies.
    pub body_bytes: u64,
    pub body_bound_bytes: u64,
    /// Whether deliveries are accepted.
    pub ready: bool,
}

/// A runner that is needed, and how the link to it stands.
#[derive(Debug, Clone)]
pub struct Runner {
    pub name: String,
    /// It has admitted this receiver.
    pub connected: bool,
    /// Attempts that it has, or whose end is not recorded yet.
    pub running: u64,
    /// Attempts that it can have; 0 where it takes none.
    pub room: u64,
}

/// All that a page shows.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Now, by the wall clock.
    pub now: Timestamp,
    /// When the receiver started.
    pub started_at: Timestamp,
    /// The server.
    pub front: Front,
    pub sources: Vec<SourceCounts>,
    pub handlers: Vec<HandlerCounts>,
    /// Requests to paths that no source has.
    pub unknown_path_requests: u64,
    /// What came and was no HTTP request.
    pub unreadable_requests: u64,
    /// The writer and the disk.
    pub writer: WriterGauges,
    /// The store; none while it cannot be read.
    pub store: Option<Gauges>,
    /// The runners that are needed.
    pub runners: Vec<Runner>,
    /// Log lines dropped.
    pub log_lines_lost: u64,
}

/// Writes the page.
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
        // The store remembers those that are not configured any more.
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
        // A handler that is gone from the configuration may have left jobs.
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
