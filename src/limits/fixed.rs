//! The limits that a process reads at its start only. A reload that changes one of them is refused.
//!
//! `tests/it/fixed_limits.rs` compares the lists with where the code reads each limit.

use serde::{Deserialize, Serialize};

use super::{Limits, TABLE, limit};

/// What `serve` reads at its start: what the HTTP server, the clients of the runners and the store are made with.
pub const OF_RECEIVER: &[&str] = &[
    "body_grace_millis",
    "header_read_millis",
    "head_bytes",
    "keep_alive_millis",
    "connections_count",
    "callers_waiting_count",
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

/// What `runner` reads at its start.
pub const OF_RUNNER: &[&str] = &[
    "runner_attempts_count",
    "runner_connections_count",
    "runner_wait_millis",
    "runner_idle_millis",
    "runner_drain_millis",
];

/// A value that differs between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The limit's key, or the configuration's dotted one.
    pub key: String,
    /// What it is in the configuration in force.
    pub from: String,
    /// What it is in the new one.
    pub to: String,
}

impl Limits {
    /// The values that differ in `new`, in the order of the table.
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
    fn every_fixed_limit_is_a_limit_and_its_change_is_found() {
        let (start, mut new) = (Limits::default(), Limits::default());
        for key in OF_RECEIVER.iter().chain(OF_RUNNER) {
            let least = *limit(key).unwrap_or_else(|| panic!("{key} is no limit")).range.start();
            assert!(new.set(key, least));
        }
        assert_eq!(start.changes_of_fixed(&new, OF_RECEIVER).len(), OF_RECEIVER.len());
        assert_eq!(start.changes_of_fixed(&new, OF_RUNNER).len(), OF_RUNNER.len());
        let new = Limits { tick_millis: 100, ..start.clone() };
        let change = Change { key: "tick_millis".into(), from: "15s".into(), to: "100ms".into() };
        assert_eq!(start.changes(&new), [change]);
        assert_eq!(start.changes_of_fixed(&new, OF_RECEIVER), []);
    }
}
