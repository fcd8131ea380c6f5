//! The statistics that `status` shows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Broken, Name, Timestamp};

use super::oversized::TooLarge;

/// The statistics that `status` shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Every configured source.
    pub sources: BTreeMap<Name, SourceSeen>,
    /// Paths that no source has, the most recent first.
    pub unknown_paths: Vec<UnknownPath>,
    /// Handlers that cannot run, by name. A receiver of an earlier version omits them.
    #[serde(default)]
    pub broken: Vec<Broken>,
    /// Every configured handler.
    #[serde(default)]
    pub handlers: BTreeMap<Name, HandlerSeen>,
}

/// What a handler's attempts came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HandlerSeen {
    /// Attempts by outcome; outcomes that none had are left out.
    pub outcomes: BTreeMap<String, u64>,
    /// Half of the attempts took at most so long, in milliseconds and rounded up to one of a few bounds. None without an
    /// attempt, or where it is over an hour.
    pub half_within: Option<u64>,
    /// 95 of 100 attempts took at most so long, given as in `half_within`.
    pub most_within: Option<u64>,
    /// Events by what its condition decided: `true`, `false`, `undecided`.
    pub decided: BTreeMap<String, u64>,
    /// How many attempts may run at once (`concurrency`); the store's status has how many do.
    #[serde(default)]
    pub slots: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSeen {
    pub path: String,
    /// New events.
    pub accepted: u64,
    /// Deliveries of events that were stored before.
    pub duplicates: u64,
    /// Challenges that were answered.
    #[serde(default)]
    pub handshakes: u64,
    /// Refused for any reason.
    pub refused: u64,
    /// Refused since the last good delivery.
    #[serde(default)]
    pub refused_in_a_row: u64,
    /// Refused because the body was over the source's limit.
    #[serde(default)]
    pub too_large: u64,
    /// Refused deliveries whose body was over the limit, by hour and declared size, the latest first: at most a day of
    /// hours. They are not proven: any client can send one.
    #[serde(default)]
    pub unproven_too_large: Vec<TooLarge>,
    /// The last accepted or duplicate delivery.
    pub last_good_at: Option<Timestamp>,
    /// The last refused delivery, and a fixed word or sentence that says why.
    pub last_refused: Option<(Timestamp, String)>,
}

/// Requests to a path that no source has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownPath {
    /// The path as it was sent, but truncated.
    pub path: String,
    pub requests: u64,
    pub last_at: Timestamp,
    /// The most similar path of a source.
    pub nearest: Option<String>,
}
