//! Every family of metrics: name, type, labels, meaning. `docs/metrics.md` has the same table.

use std::fmt;

/// What a family's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0 at the start of the receiver.
    Counter,
    Gauge,
    /// How values are spread over buckets.
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Its name: base units, `_total` for what is counted.
    pub name: &'static str,
    /// What its numbers are.
    pub kind: Kind,
    /// The names of its labels. Their values come from the configuration or are fixed words.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(pub(super) const $constant: Family = Family {
            name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help,
        };)+

        /// Every family, in the order of the page.
        pub const FAMILIES: &[Family] = &[$($constant),+];
    };
}

families! {
    BUILD_INFO: Gauge "hooklatch_build_info" ["version"]
        "Always 1; the label is the program's version.";
    START_TIME: Gauge "hooklatch_start_time_seconds" []
        "When the receiver started, in Unix time.";
    READY: Gauge "hooklatch_ready" []
        "Whether deliveries are accepted now: 1 or 0, as /readyz says.";
    OPEN_CONNECTIONS: Gauge "hooklatch_open_connections" []
        "Open connections to the deliveries' port.";
    BODY_BYTES: Gauge "hooklatch_body_bytes" []
        "Bytes that the bodies in flight take of their budget.";
    BODY_BOUND_BYTES: Gauge "hooklatch_body_bound_bytes" []
        "The budget of all bodies in flight together.";
    DELIVERIES: Counter "hooklatch_deliveries_total" ["source", "answer"]
        "Deliveries to a source by how they were answered. One that was answered too late and is committed all the same counts as both.";
    REFUSALS: Counter "hooklatch_refusals_total" ["source", "answer", "reason"]
        "Refused deliveries by answer and reason; answer unavailable is a 503.";
    KEYED: Counter "hooklatch_keyed_requests_total" ["source", "result"]
        "Requests to a source whose handler answers, by what they were told. Absent for other sources.";
    UNKNOWN_PATHS: Counter "hooklatch_unknown_path_requests_total" []
        "Requests to paths that no source has.";
    UNREADABLE: Counter "hooklatch_unreadable_requests_total" []
        "What came to the deliveries' port and was no HTTP request.";
    ACCEPT_SECONDS: Histogram "hooklatch_accept_duration_seconds" ["source"]
        "Seconds from the head of a genuine delivery to its answer.";
    DEADLINE_RATIO: Histogram "hooklatch_accept_deadline_ratio" ["source"]
        "The same as a part of the time that the provider waits, where its file gives one; over 1 it has given up.";
    LAST_ACCEPTED: Gauge "hooklatch_last_delivery_timestamp_seconds" ["source"]
        "The last accepted or duplicate delivery since the start, in Unix time.";
    SECRET_MATCH: Gauge "hooklatch_secret_last_match_timestamp_seconds" ["source", "secret"]
        "When a configured secret last matched, to the minute, in Unix time; the label is its reference. Absent until it first matches.";
    QUEUE_ITEMS: Gauge "hooklatch_writer_queue_items" []
        "Items that wait for the writer.";
    QUEUE_BYTES: Gauge "hooklatch_writer_queue_bytes" []
        "Bytes of the events among them.";
    BATCH_ITEMS: Histogram "hooklatch_writer_batch_items" []
        "Items of one transaction.";
    BATCH_SECONDS: Histogram "hooklatch_writer_batch_duration_seconds" []
        "Seconds of one transaction with its flush.";
    CHECKPOINT_SECONDS: Histogram "hooklatch_checkpoint_duration_seconds" []
        "Seconds of one pass that copies the log into the database.";
    DATABASE_BYTES: Gauge "hooklatch_store_database_bytes" []
        "Size of the database file.";
    FREE_PAGE_BYTES: Gauge "hooklatch_store_free_page_bytes" []
        "Bytes of pages in it that hold nothing.";
    LOG_BYTES: Gauge "hooklatch_store_log_bytes" []
        "Size of the write-ahead log's file, which is kept and written anew.";
    LOG_USED_BYTES: Gauge "hooklatch_store_log_used_bytes" []
        "How much of the log was in use after the last batch.";
    LOG_BOUND_BYTES: Gauge "hooklatch_store_log_bound_bytes" []
        "The log's bound (limits.log_bytes).";
    DISK_FREE_BYTES: Gauge "hooklatch_disk_free_bytes" []
        "Free space for the receiver's user where the store lies.";
    DISK_FLOOR_BYTES: Gauge "hooklatch_disk_floor_bytes" []
        "Below this deliveries are answered 503 (limits.disk_floor_bytes).";
    JOBS: Gauge "hooklatch_jobs" ["handler", "state"]
        "Jobs that are ready, waiting or running, and those that wait for a person (held, dead: at most 100000 counted).";
    SETTLED: Counter "hooklatch_jobs_settled_total" ["handler", "state"]
        "Jobs that the end of an attempt has made succeeded, held or dead.";
    ATTEMPTS: Counter "hooklatch_attempts_total" ["handler", "outcome"]
        "Attempts that have ended.";
    ATTEMPT_SECONDS: Histogram "hooklatch_attempt_duration_seconds" ["handler"]
        "Seconds of the attempts that began and ended under this receiver.";
    OLDEST_READY: Gauge "hooklatch_oldest_ready_age_seconds" ["handler"]
        "For how long the job is ready that is claimed next; 0 where none is.";
    PAUSED: Gauge "hooklatch_handler_paused" ["handler"]
        "Whether the operator has paused the handler: 1 or 0.";
    BROKEN: Gauge "hooklatch_handler_broken" ["handler"]
        "Whether the handler could not run when it was last tried, and backs off: 1 or 0.";
    RUNNER_CONNECTED: Gauge "hooklatch_runner_connected" ["runner"]
        "Whether the runner has admitted this receiver: 1 or 0. Absent where no command is configured or runs still.";
    RUNNER_RUNNING: Gauge "hooklatch_runner_running_attempts" ["runner"]
        "Attempts that the runner has, or whose end is not recorded yet.";
    RUNNER_ROOM: Gauge "hooklatch_runner_room_attempts" ["runner"]
        "Attempts that the runner can have; 0 where it takes none.";
    LOG_LINES_LOST: Counter "hooklatch_log_lines_lost_total" []
        "Log lines that were dropped because the log stalled.";
}
