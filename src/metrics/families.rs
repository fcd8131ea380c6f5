//! Every family of metrics: name, type, labels, meaning, samples. `docs/metrics.md` has the same table.

use std::collections::BTreeSet;
use std::fmt;

use crate::model::{Name, State, Timestamp};
use crate::store::{NodeRow, Stalled};
use crate::traffic::{UNKNOWN_PATH, UNREADABLE};

use super::facts::{Facts, Runner};
use super::samples::Samples;

/// What a family's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0 at the start of the receiver.
    Counter,
    Gauge,
    /// How values are spread over buckets.
    Histogram,
}

/// The word of Prometheus' text format.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name: base units, `_total` for what is counted.
    pub name: &'static str,
    pub kind: Kind,
    /// The names of its labels. Their values come from the configuration or are fixed words.
    pub labels: &'static [&'static str],
    pub help: &'static str,
    pub(super) samples: fn(&Facts, &mut Samples<'_>),
}

macro_rules! families {
    ($($kind:ident $name:literal [$($label:literal),*] $help:literal $samples:expr;)+) => {
        /// Every family, in the order of the page.
        pub const FAMILIES: &[Family] = &[$(Family {
            name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help, samples: $samples,
        }),+];
    };
}

families! {
    Gauge "hooklatch_build_info" ["version"]
        "Always 1; the label is the program's version."
        |_, out| out.count(&[env!("CARGO_PKG_VERSION")], 1);
    Gauge "hooklatch_start_time_seconds" []
        "When the receiver started, in Unix time."
        |facts, out| out.value(&[], seconds(facts.started_at));
    Gauge "hooklatch_ready" []
        "Whether deliveries are accepted now: 1 or 0, as /readyz says."
        |facts, out| out.count(&[], facts.front.ready.into());
    Gauge "hooklatch_stalled" ["what"]
        "Whether this stands still: 1 or 0. pages: a page of the database is damaged; commits: no delivery is stored; recovery, claims: no job can run; payloads: claimed jobs do not begin; wake_ups: a resume or a cancel, and jobs of other nodes, are not heard of."
        |facts, out| for what in Stalled::ALL {
            out.count(&[what.as_str()], facts.stalls.contains(&what).into());
        };
    Gauge "hooklatch_open_connections" []
        "Open connections to the deliveries' port."
        |facts, out| out.count(&[], facts.front.connections);
    Gauge "hooklatch_body_bytes" []
        "Bytes that the bodies in flight take of their budget."
        |facts, out| out.count(&[], facts.front.body_bytes);
    Gauge "hooklatch_body_bound_bytes" []
        "The budget of all bodies in flight together."
        |facts, out| out.count(&[], facts.front.body_bound_bytes);
    Counter "hooklatch_deliveries_total" ["source", "answer"]
        "Deliveries to a source by how they were answered. One that is committed after it was answered 503 counts as unavailable and as accepted."
        |facts, out| for source in facts.traffic.sources() {
            out.counts(source.name(), source.counts.answers.get());
        };
    Counter "hooklatch_refusals_total" ["source", "answer", "reason"]
        "Refused deliveries by answer and reason; answer unavailable is a 503."
        refusals;
    Counter "hooklatch_keyed_requests_total" ["source", "result"]
        "Requests to a source whose handler answers, by their result. Absent for other sources."
        |facts, out| for source in facts.traffic.sources() {
            out.counts(source.name(), source.keyed_counts());
        };
    Counter "hooklatch_unknown_path_requests_total" []
        "Requests to paths that no source has."
        |facts, out| out.count(&[], facts.traffic.no_source_requests(UNKNOWN_PATH));
    Counter "hooklatch_unreadable_requests_total" []
        "Requests on the deliveries' port that cannot be read as HTTP."
        |facts, out| out.count(&[], facts.traffic.no_source_requests(UNREADABLE));
    Histogram "hooklatch_accept_duration_seconds" ["source"]
        "Seconds from the head of a genuine delivery to its answer."
        |facts, out| for source in facts.traffic.sources() {
            out.histogram(&[source.name()], &source.counts.seconds.get());
        };
    Histogram "hooklatch_accept_deadline_ratio" ["source"]
        "The same as a part of the time that the provider waits, where its file gives one; over 1 it has given up."
        |facts, out| for source in facts.traffic.sources() {
            if source.configured.deadline.is_some() {
                out.histogram(&[source.name()], &source.counts.shares.get());
            }
        };
    Gauge "hooklatch_last_delivery_timestamp_seconds" ["source"]
        "The last accepted or duplicate delivery since the start, in Unix time."
        |facts, out| for source in facts.traffic.sources() {
            if let Some(at) = source.last_good_at() {
                out.value(&[source.name()], seconds(at));
            }
        };
    Gauge "hooklatch_secret_last_match_timestamp_seconds" ["source", "secret"]
        "When a configured secret last matched, to the minute, in Unix time; the label is its reference. Absent until it first matches."
        secret_matches;
    Gauge "hooklatch_writer_queue_items" []
        "Items that wait for the writer."
        |facts, out| out.count(&[], facts.writer.queue_items);
    Gauge "hooklatch_writer_queue_bytes" []
        "Bytes of the events among them."
        |facts, out| out.count(&[], facts.writer.queue_bytes);
    Histogram "hooklatch_writer_batch_items" []
        "Items of one transaction."
        |facts, out| out.histogram(&[], &facts.writer.batch_items);
    Histogram "hooklatch_writer_batch_duration_seconds" []
        "Seconds of one transaction with its flush."
        |facts, out| out.histogram(&[], &facts.writer.batch_seconds);
    Histogram "hooklatch_checkpoint_duration_seconds" []
        "Seconds of one pass that copies the log into the database."
        |facts, out| out.histogram(&[], &facts.writer.checkpoint_seconds);
    Gauge "hooklatch_store_database_bytes" []
        "Size of the database file."
        |facts, out| out.count(&[], facts.writer.disk.database_bytes);
    Gauge "hooklatch_store_free_page_bytes" []
        "Bytes of pages in it that hold nothing."
        |facts, out| if let Some(store) = &facts.store {
            out.count(&[], store.free_page_bytes);
        };
    Gauge "hooklatch_store_log_bytes" []
        "Size of the write-ahead log's file, which is kept and written anew."
        |facts, out| out.count(&[], facts.writer.disk.log_bytes);
    Gauge "hooklatch_store_log_used_bytes" []
        "How much of the log was in use after the last batch."
        |facts, out| out.count(&[], facts.writer.log_used_bytes);
    Gauge "hooklatch_store_log_bound_bytes" []
        "The log's bound (limits.log_bytes)."
        |facts, out| out.count(&[], facts.writer.log_bound_bytes);
    Gauge "hooklatch_disk_free_bytes" []
        "Free space for the receiver's user where the store lies."
        |facts, out| if let Some(free) = facts.writer.disk.free_bytes {
            out.count(&[], free);
        };
    Gauge "hooklatch_disk_floor_bytes" []
        "Below this deliveries are answered 503 (limits.disk_floor_bytes)."
        |facts, out| out.count(&[], facts.writer.disk.floor_bytes);
    Counter "hooklatch_conditions_total" ["handler", "result"]
        "New events of a handler's types by what its condition and its key came to: true, false (no job), or failed (the job is held). Absent for handlers without either."
        |facts, out| for (name, decisions) in facts.traffic.decisions() {
            out.counts(name.as_str(), decisions.get());
        };
    Gauge "hooklatch_jobs" ["handler", "state"]
        "Jobs that are ready, waiting or running, and those that wait for a person (held, dead). Of each of these two states the first 100000 are counted, over all handlers."
        jobs;
    Gauge "hooklatch_groups_blocked" ["handler"]
        "Groups that stand still: their first job is held or dead, and others are behind it. Of held and of dead jobs the first 100000 are looked at."
        |facts, out| if let Some(store) = &facts.store {
            for name in facts.traffic.handlers().keys() {
                let blocked = store.jobs.blocked.iter().find(|of| of.handler == *name);
                out.count(&[name.as_str()], blocked.map_or(0, |of| of.groups));
            }
        };
    Counter "hooklatch_jobs_settled_total" ["handler", "state"]
        "Jobs that the end of an attempt has made succeeded, held or dead."
        |facts, out| for (name, handler) in facts.traffic.handlers() {
            out.counts(name.as_str(), handler.settled.get());
        };
    Counter "hooklatch_attempts_total" ["handler", "outcome"]
        "Attempts that have ended."
        |facts, out| for (name, handler) in facts.traffic.handlers() {
            out.counts(name.as_str(), handler.outcomes.get());
        };
    Histogram "hooklatch_attempt_duration_seconds" ["handler"]
        "Seconds of the attempts that began and ended under this receiver."
        |facts, out| for (name, handler) in facts.traffic.handlers() {
            out.histogram(&[name.as_str()], &handler.seconds.get());
        };
    Gauge "hooklatch_oldest_ready_age_seconds" ["handler"]
        "How long the next job to be claimed has been ready; 0 if there is none."
        oldest_ready;
    Gauge "hooklatch_handler_paused" ["handler"]
        "Whether the operator has paused the handler: 1 or 0."
        |facts, out| if let Some(store) = &facts.store {
            for name in facts.traffic.handlers().keys() {
                out.count(&[name.as_str()], store.paused.contains(name).into());
            }
        };
    Gauge "hooklatch_handler_broken" ["handler"]
        "Whether the handler could not run when it was last tried, and backs off: 1 or 0."
        |facts, out| for (name, handler) in facts.traffic.handlers() {
            out.count(&[name.as_str()], handler.broken().is_some().into());
        };
    Gauge "hooklatch_runner_connected" ["runner"]
        "Whether the runner has admitted this receiver: 1 or 0. Absent if it has no configured command and no running attempt."
        |facts, out| runners(facts, out, |runner| runner.connected.into());
    Gauge "hooklatch_runner_running_attempts" ["runner"]
        "Attempts that the runner has, or whose end is not recorded yet."
        |facts, out| runners(facts, out, |runner| runner.running);
    Gauge "hooklatch_runner_room_attempts" ["runner"]
        "Attempts that the runner can have in all; 0 if it takes none."
        |facts, out| runners(facts, out, |runner| runner.room);
    Gauge "hooklatch_node_silent_seconds" ["node"]
        "Since an active node last looked at the database; 2 or less where it works. Absent on SQLite, as are the next three."
        |facts, out| nodes(facts, out, |node| node.silence().as_secs_f64());
    Gauge "hooklatch_node_connections" ["node"]
        "Connections of the node to the database."
        |facts, out| nodes(facts, out, |node| node.connections as f64);
    Gauge "hooklatch_node_running_attempts" ["node"]
        "Attempts that run under the node. They stay so if it dies, until it is back or declared lost."
        |facts, out| nodes(facts, out, |node| node.running as f64);
    Gauge "hooklatch_nodes_awaited" []
        "Nodes that have not said since a failover what they run, or run what the database has lost: no job is replayed, and none of a group starts."
        |facts, out| if let Some(store) = facts.store.as_ref().filter(|store| !store.nodes.is_empty()) {
            out.count(&[], store.nodes.iter().filter(|node| node.awaited).count() as u64);
        };
    Counter "hooklatch_log_lines_lost_total" []
        "Log lines that were dropped because the log stalled."
        |facts, out| out.count(&[], facts.log_lines_lost);
}

/// The states whose jobs the store counts.
const STATES: [State; 5] = [State::Ready, State::Waiting, State::Running, State::Held, State::Dead];

fn refusals(facts: &Facts, out: &mut Samples<'_>) {
    for source in facts.traffic.sources() {
        for (answer, reason, count) in source.refused_counts() {
            out.count(&[source.name(), answer, reason], count);
        }
    }
}

/// The last match of each configured secret. The store also has those that are not configured any more.
fn secret_matches(facts: &Facts, out: &mut Samples<'_>) {
    let sources = facts.traffic.sources();
    for used in facts.store.iter().flat_map(|store| &store.secrets) {
        let is_configured = sources.iter().any(|source| {
            source.configured.name == used.source
                && source.configured.secrets.contains(&used.reference)
        });
        if is_configured {
            out.value(&[used.source.as_str(), &used.reference], seconds(used.last_matched_at));
        }
    }
}

/// The jobs of each handler by state. A handler that is not configured any more may still have some.
fn jobs(facts: &Facts, out: &mut Samples<'_>) {
    let Some(store) = &facts.store else { return };
    let handlers = facts.traffic.handlers();
    let names: BTreeSet<&Name> = handlers.keys().chain(store.jobs.handlers()).collect();
    for name in names {
        for state in STATES {
            out.count(&[name.as_str(), state.as_str()], store.jobs.count(name, state));
        }
    }
}

fn oldest_ready(facts: &Facts, out: &mut Samples<'_>) {
    let Some(store) = &facts.store else { return };
    for name in facts.traffic.handlers().keys() {
        let ready = store.jobs.ready.iter().find(|backlog| backlog.handler == *name);
        let age = ready.map(|ready| facts.now.since(ready.since).as_secs_f64());
        out.value(&[name.as_str()], age.unwrap_or(0.0));
    }
}

/// Writes a value of each active node.
fn nodes(facts: &Facts, out: &mut Samples<'_>, value: fn(&NodeRow) -> f64) {
    for node in facts.store.iter().flat_map(|store| &store.nodes) {
        if node.state == "active" {
            out.value(&[&node.name], value(node));
        }
    }
}

fn runners(facts: &Facts, out: &mut Samples<'_>, value: fn(&Runner) -> u64) {
    for runner in &facts.runners {
        out.count(&[&runner.name], value(runner));
    }
}

/// Unix time in seconds.
fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1000.0
}
