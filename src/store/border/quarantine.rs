//! Deliveries that failed verification: as they come, as they are kept and listed, and as they are verified again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::model::{Headers, Name, Timestamp};
use crate::provider::Scheme;

use super::accept::Accept;
use super::rows::PageCursor;

/// A delivery that failed verification.
#[derive(Debug, Clone)]
pub struct FailedDelivery {
    /// The source it came through.
    pub source: Name,
    /// How its provider signs.
    pub scheme: Arc<Scheme>,
    /// When it arrived.
    pub received_at: Timestamp,
    /// The client, where it is known.
    pub address: Option<IpAddr>,
    /// The rejection's fixed word.
    pub reason: &'static str,
    /// The rejection's sentence.
    pub detail: String,
    /// The path, and the query where the provider signs the URL.
    pub path: String,
    /// The headers the scheme reads and keeps (never a static token).
    pub headers: Headers,
    /// The raw body's size, where it was read.
    pub body_bytes: u64,
    /// The raw body; none where it was not read, or nothing could make it good.
    pub body: Option<Bytes>,
}

/// Which kept deliveries are meant: all that satisfy everything that is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuarantineFilter {
    /// Only those of this source.
    pub source: Option<Name>,
    /// Only those that failed for this reason.
    pub reason: Option<String>,
    /// Only those that arrived since then.
    pub since: Option<Timestamp>,
    /// Only those up to this one: later ones were not counted.
    pub upto: Option<i64>,
    /// At most so many are listed; `list_count` where nothing is said.
    pub limit: Option<usize>,
    /// List from here: the `next` of the last answer; the newest come first without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<PageCursor>,
}

/// A kept failed delivery, as listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedRow {
    /// Its number, in the order of arrival.
    pub id: i64,
    /// The source it came through.
    pub source: Name,
    /// When it arrived.
    pub received_at: Timestamp,
    /// The client, where it is known.
    pub address: Option<String>,
    /// The rejection's fixed word.
    pub reason: String,
    /// The rejection's sentence.
    pub detail: String,
    /// The event id it claims, which nothing proves.
    pub unproven_event_id: Option<String>,
    /// The raw body's size, kept or not.
    pub body_bytes: u64,
    /// Whether the body is kept, so that it can be verified again.
    pub body_kept: bool,
}

/// Why deliveries were not kept, or not for their whole time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscardReason {
    /// The delivery is over `quarantine_rate_bytes_per_second`.
    OverRate,
    /// The delivery is over `quarantine_queue_bytes`: too many came at once.
    Busy,
    /// The disk is short of space, or the folder cannot be written.
    NoSpace,
    /// Given up for newer ones of other addresses, over `quarantine_bytes`.
    Evicted,
    /// Older than `quarantine_age_millis`.
    Expired,
}

/// The kept deliveries, as listed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// The newest of those that were meant, newest first.
    pub deliveries: Vec<QuarantinedRow>,
    /// The `before` of the next page; none where no more of them are kept.
    #[serde(default)]
    pub next: Option<PageCursor>,
    /// How many were meant, listed or not.
    pub matching: u64,
    /// What all kept ones take of `quarantine_bytes`.
    pub bytes: u64,
    /// Deliveries that were not kept, by source and reason, since the store was opened.
    pub left_out: BTreeMap<Name, BTreeMap<DiscardReason, u64>>,
}

/// A kept delivery with all that verifying it again needs.
#[derive(Debug, Clone)]
pub struct QuarantinedDelivery {
    /// Its number.
    pub id: i64,
    /// The source it came through.
    pub source: Name,
    /// When it arrived, at which it is judged.
    pub received_at: Timestamp,
    /// The path, and the query where the provider signs the URL.
    pub path: String,
    /// The kept headers.
    pub headers: Headers,
    /// The raw body.
    pub body: Bytes,
}

/// Verifies a kept delivery with the configuration in force, as of its arrival; with published keys, where some are given,
/// in place of the source's. Returns the events to accept, or the rejection's fixed word.
pub type Reverifier = Arc<
    dyn Fn(QuarantinedDelivery, Option<&str>) -> Result<Vec<Accept>, &'static str> + Send + Sync,
>;

/// What became of some kept deliveries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReverifyResult {
    pub sources: BTreeMap<Name, ReverifyCounts>,
    pub looked_at: u64,
    /// Where to go on; none at the end.
    pub next: Option<i64>,
    /// Why the rest of them could not be accepted now; they stay.
    pub refused: Option<String>,
}

/// What became of one source's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReverifyCounts {
    /// Deliveries that verify now.
    pub good: u64,
    /// Good deliveries with a new event.
    pub accepted: u64,
    /// Good deliveries with a new event that is held by the replay guard, or because its id was used.
    pub held: u64,
    /// Good deliveries whose event was there already.
    pub duplicates: u64,
    /// Still bad, by the rejection's fixed word, or `no_such_source`.
    pub bad: BTreeMap<String, u64>,
    /// Kept without a body, which can never be judged.
    pub bodiless: u64,
}

impl ReverifyCounts {
    pub fn add(&mut self, more: ReverifyCounts) {
        self.good += more.good;
        self.accepted += more.accepted;
        self.held += more.held;
        self.duplicates += more.duplicates;
        self.bodiless += more.bodiless;
        for (reason, deliveries) in more.bad {
            *self.bad.entry(reason).or_default() += deliveries;
        }
    }
}

/// What a [`Reverifier`] says of a source that the configuration has not got.
pub const NO_SUCH_SOURCE: &str = "no_such_source";
