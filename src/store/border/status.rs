//! How the store stands: for `status` and the metrics.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::Distribution;
use crate::model::{EventId, JobId, Name, Timestamp, shell_word};

use super::counts::{Backlog, BlockedGroups, JobCounts, StoppedJobs};
use super::node::NodeRow;
use super::quarantine::QuarantinedRow;
use super::rows::{PausedRow, RestoredRow, SecretUse};

/// How a store stands.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Jobs that may be claimed, by handler.
    pub ready: Vec<Backlog>,
    /// Jobs that wait for another attempt, by handler.
    pub waiting: Vec<Backlog>,
    /// Jobs with a live attempt, by handler.
    pub running: Vec<Backlog>,
    /// Held and dead jobs by handler and reason, held ones first.
    pub stuck: Vec<StoppedJobs>,
    /// Groups that stand still behind a held or dead job, by handler.
    #[serde(default)]
    pub blocked: Vec<BlockedGroups>,
    /// The paused handlers by name.
    pub paused: Vec<PausedRow>,
    /// The last word of each source that was ever heard of, by name.
    pub sources: Vec<SourceActivity>,
    /// The newest event's arrival.
    pub newest_event_at: Option<Timestamp>,
    /// The last commit of this process that changed anything; none yet, or a stopped store.
    pub last_commit_at: Option<Timestamp>,
    /// Space and sizes.
    pub disk: Disk,
    /// Damaged payloads that later deliveries have mended in the last day; none where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mended: Option<MendedPayloads>,
    /// What a roll call waits for since the database's history has changed (N40): until then nothing is replayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<AwaitedNode>,
    /// The restores whose gap still matters: an event that arrived in it would still be remembered by its id.
    pub restores: Vec<RestoredRow>,
    /// The nodes by name, also those that were declared lost; none on SQLite.
    #[serde(default)]
    pub nodes: Vec<NodeRow>,
    /// What the database's server has warned of in the last ten minutes, on connections of this process. None on SQLite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_warning: Option<String>,
}

/// Payloads that were damaged, and are again what was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MendedPayloads {
    /// How many, with no more than a day between two.
    pub payloads: u64,
    /// When the last one.
    pub last_at: Timestamp,
}

/// A node that a roll call waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedNode {
    pub node: String,
    /// It was declared lost before the change, and may have come back since.
    #[serde(default)]
    pub lost: bool,
    /// Its runners list this attempt, which the database has lost; none while it has not said what they list.
    pub job: Option<JobId>,
    pub attempt: Option<u32>,
}

impl AwaitedNode {
    /// What an operator can do about it.
    pub fn help(&self) -> String {
        let lost = format!("hooklatch node lost {}", shell_word(&self.node));
        match (self.job, self.lost) {
            (Some(_), _) => "wait for its end, or end it there".to_owned(),
            (None, true) => format!("if nothing of it runs any more: {lost}"),
            (None, false) => {
                format!("start it with all its runners, or, if its machine is gone: {lost}")
            }
        }
    }
}

impl fmt::Display for AwaitedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AwaitedNode { node, job, attempt, .. } = self;
        match (job, attempt) {
            (Some(job), Some(attempt)) => {
                write!(
                    f,
                    "node {node} runs attempt {attempt} of job {job}, which the database has lost"
                )
            }
            _ => write!(f, "node {node} has not said since the failover what it runs"),
        }
    }
}

/// The last event, secret match and failure of one source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceActivity {
    pub source: Name,
    /// Its newest stored event, where it is among the newest of all.
    pub event: Option<(EventId, Timestamp)>,
    /// When one of its secrets last matched, to the minute: duplicates count too.
    pub secret_matched_at: Option<Timestamp>,
    /// Its newest failed delivery that is kept.
    pub failure: Option<QuarantinedRow>,
    /// How many of its failed deliveries are kept with a body, to be judged again.
    pub quarantined: u64,
}

/// Where the store lies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Free for this user; none where the file system does not say.
    pub free_bytes: Option<u64>,
    /// Below this accepts are refused (`disk_floor_bytes`).
    pub floor_bytes: u64,
    /// The database file.
    pub database_bytes: u64,
    /// The write-ahead log.
    pub log_bytes: u64,
}

/// The store as its metrics show it.
#[derive(Debug, Clone)]
pub struct Gauges {
    /// Held and dead jobs up to a bound, the others exactly.
    pub jobs: JobCounts,
    /// The paused handlers.
    pub paused: Vec<Name>,
    /// When each secret last matched, to the minute.
    pub secrets: Vec<SecretUse>,
    /// Bytes of the database's free pages.
    pub free_page_bytes: u64,
    /// The nodes; none on SQLite.
    pub nodes: Vec<NodeRow>,
}

/// What the writer shows of itself.
#[derive(Debug, Clone)]
pub struct WriterGauges {
    /// Items waiting.
    pub queue_items: u64,
    /// Bytes of the accepts among them.
    pub queue_bytes: u64,
    /// Items of the batches committed.
    pub batch_items: Distribution,
    /// Seconds that their commits took.
    pub batch_seconds: Distribution,
    /// Seconds that checkpoints took.
    pub checkpoint_seconds: Distribution,
    /// Space and sizes.
    pub disk: Disk,
    /// How much of the log was in use after the last batch, in bytes.
    pub log_used_bytes: u64,
    /// The bound of the log (`log_bytes`).
    pub log_bound_bytes: u64,
}
