//! Which limits a process takes at its start and keeps, and which a reload changes in it.
//!
//! Every limit is in exactly one list; `tests/it/fixed_limits.rs` compares the lists with where the code
//! reads each. What a reload cannot change is named to the operator where it differs, and never taken
//! in part: [`Limits::keeping`] is what goes on in the process.

use serde::{Deserialize, Serialize};

use super::{Limits, TABLE, limit};

/// What `serve` keeps from its start on: what the HTTP server, the admin socket, the link to a runner
/// and the store are made with.
pub const OF_RECEIVER: &[&str] = &[
    "body_grace_millis",
    "header_read_millis",
    "head_bytes",
    "keep_alive_millis",
    "connections_count",
    "callers_waiting_count",
    "control_request_bytes",
    "control_answer_bytes",
    "control_connections_count",
    "control_wait_millis",
    "writer_queue_count",
    "writer_queue_bytes",
    "batch_count",
    "batch_bytes",
    "log_bytes",
    "disk_floor_bytes",
    "ballast_bytes",
    "evidence_count",
    "quarantine_bytes",
    "quarantine_body_bytes",
    "quarantine_age_millis",
    "quarantine_rate_bytes_per_second",
    "quarantine_queue_bytes",
    "runner_wait_millis",
    "stop_wait_millis",
    "stop_linger_millis",
    "metrics_connections_count",
    "metrics_wait_millis",
    "list_count",
    "list_millis",
];

/// What `runner` keeps from its start on.
pub const OF_RUNNER: &[&str] = &[
    "runner_attempts_count",
    "runner_connections_count",
    "runner_wait_millis",
    "runner_idle_millis",
    "runner_drain_millis",
];

/// A value that is another one now, or would be after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The limit's key, or the configuration's dotted one.
    pub key: String,
    /// What it was, or still is.
    pub from: String,
    /// What it is now, or would be.
    pub to: String,
}

impl Limits {
    /// These limits, but for those that a process which started with `start` keeps of them.
    pub fn keeping(&self, start: &Limits, fixed: &[&str]) -> Limits {
        let mut kept = self.clone();
        for key in fixed {
            // A value that is in force is in its range.
            let _set = start.get(key).is_some_and(|value| kept.set(key, value));
        }
        kept
    }

    /// What is another value in `new`, in the order of the table.
    pub fn changes(&self, new: &Limits) -> Vec<Change> {
        let keys = TABLE.iter().map(|limit| limit.key);
        self.changes_of(new, keys)
    }

    /// The same of those in `fixed` alone.
    pub fn changes_of_fixed(&self, new: &Limits, fixed: &'static [&'static str]) -> Vec<Change> {
        self.changes_of(new, fixed.iter().copied())
    }

    fn changes_of(&self, new: &Limits, keys: impl Iterator<Item = &'static str>) -> Vec<Change> {
        let change = |key: &'static str| {
            let unit = limit(key)?.unit;
            let (from, to) = (self.get(key)?, new.get(key)?);
            let show = |value| unit.show(value);
            (from != to).then(|| Change { key: key.to_owned(), from: show(from), to: show(to) })
        };
        keys.filter_map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_fixed_is_a_limit_and_keeps_the_value_of_the_start() {
        let (start, mut new) = (Limits::default(), Limits::default());
        for key in OF_RECEIVER.iter().chain(OF_RUNNER) {
            let least = *limit(key).unwrap_or_else(|| panic!("{key} is no limit")).range.start();
            assert!(new.set(key, least));
        }
        new.tick_millis = 100;
        let kept = new.keeping(&start, OF_RECEIVER).keeping(&start, OF_RUNNER);
        assert_eq!(kept, Limits { tick_millis: 100, ..start.clone() });
        let change = Change { key: "tick_millis".into(), from: "15s".into(), to: "100ms".into() };
        assert_eq!(start.changes(&kept), [change]);
        assert_eq!(start.changes_of_fixed(&new, OF_RUNNER).len(), OF_RUNNER.len());
    }
}
