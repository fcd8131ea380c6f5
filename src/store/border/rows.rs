//! What the store lists: for people, for `--json` and for the admin API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::{Blob, Broken, EventId, JobId, Name, Outcome, State, Timestamp};

use super::completion::Record;

/// Which events to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventFilter {
    /// Only of this source.
    pub source: Option<Name>,
    /// Only of this type, exactly or with `*` for any run of characters.
    pub event_type: Option<String>,
    /// Only those that arrived then or later.
    pub since: Option<Timestamp>,
    /// Only with a job in this state, one that was removed with the payload too.
    pub state: Option<State>,
    /// Only with a job of this handler; with `state` too, only with such a job in that state. Jobs that were removed
    /// with the payload have lost their handler.
    pub handler: Option<Name>,
    /// At least 1; a page never has more rows than the limit `list_count`.
    pub limit: Option<usize>,
    /// The `next` of the last page; the newest come first without it.
    pub before: Option<PageCursor>,
}

/// Where the next page of a listing begins: handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCursor(pub(in crate::store) i64);

/// A place in the order of arrival: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowCursor(pub(in crate::store) i64);

/// A page of a listing. It looks at a bounded number of rows, so it may be empty and have a next one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// The `before` of the next page; none where nothing is left to look at.
    pub next: Option<PageCursor>,
    /// Where there is a next page: when the oldest row that was looked at was made.
    pub looked_back_to: Option<Timestamp>,
}

/// One event as listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventRow {
    /// The source it came through.
    pub source: Name,
    pub event_id: EventId,
    /// 0, or the number of a later body under the same unsigned id.
    pub variant: u32,
    /// Its type, or `?`.
    pub event_type: String,
    /// The provider's own text where it could not be a type.
    pub raw_type: Option<String>,
    /// When its first delivery arrived.
    pub received_at: Timestamp,
    /// The raw body's size.
    pub body_bytes: u64,
    /// Deliveries after the first.
    pub duplicates: u64,
    /// When the last of them arrived.
    pub last_duplicate_at: Option<Timestamp>,
    /// Deliveries under the same signed id whose body differed.
    pub conflicts: u64,
    /// Marked by the replay guard.
    pub flagged: bool,
    /// Whether body and headers are still kept.
    pub payload_kept: bool,
    /// How many of its jobs are in each state; states without one are left out. Those that were removed
    /// with its payload are counted too.
    pub jobs: BTreeMap<State, u64>,
    /// Its jobs by handler, without those that were removed with its payload.
    #[serde(default)]
    pub handlers: Vec<HandlerJob>,
}

/// The job of one handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerJob {
    pub handler: Name,
    pub state: State,
}

/// One event with its jobs, attempts and payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventDetail {
    /// The event as listed.
    pub event: EventRow,
    /// SHA-256 of the body without volatile fields, in hex.
    pub digest: String,
    /// Header lines (lossy UTF-8, for people).
    pub headers: Vec<(String, String)>,
    /// The raw body while it is kept.
    pub body: Option<Blob>,
    /// The body was asked for, and is not here because it is damaged.
    #[serde(default)]
    pub damaged: bool,
    /// Its jobs in the order of their making; none once they were removed with the payload.
    pub jobs: Vec<JobDetail>,
    /// Other events with the same signed body that the replay guard looks at, the oldest few.
    pub twins: Vec<SameBodyEvent>,
    /// The restores that carried it over, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restores: Vec<RestoredRow>,
    /// Its key, while that is kept, where it is a request that its handler answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyRow>,
}

/// The key of a request, and its answer; the key itself is the event's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    /// Whose key it is; empty where the source has one caller.
    pub caller: String,
    /// SHA-256 of what makes it this request and no other, in hex.
    pub request: String,
    /// When the request arrived.
    pub created_at: Timestamp,
    /// From then on the next request with the key is a new one, once retention has found it and its job is
    /// settled.
    pub expires_at: Timestamp,
    /// When it was answered; none of what follows is there before.
    pub answered_at: Option<Timestamp>,
    /// When it is forgotten, where it says "not now"; the key stays.
    pub error_until: Option<Timestamp>,
    /// The answer's status.
    pub status: Option<u16>,
    /// Its header lines (lossy UTF-8, for people).
    pub headers: Vec<(String, String)>,
    pub body: Option<Blob>,
    /// The body is not here because it is damaged.
    #[serde(default)]
    pub damaged: bool,
}

/// A restore of the store from a backup; on PostgreSQL any change of the database's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredRow {
    /// The identity of the store that the backup was made of.
    pub from_store: Uuid,
    /// Since then nothing was known when it was restored. PostgreSQL does not say since when: then it is `restored_at`.
    pub made_at: Timestamp,
    pub restored_at: Timestamp,
    /// Jobs that were not finished in the backup, and were held.
    pub held: u64,
    /// How many accepted events the nodes have missed since. Their logs name them. 0 on SQLite, which cannot tell.
    #[serde(default)]
    pub lost: u64,
}

impl RestoredRow {
    /// What happened and when, for people.
    pub fn event(&self, print: impl Fn(Timestamp) -> String) -> String {
        let at = print(self.restored_at);
        match self.made_at == self.restored_at {
            true => format!("{at}, as the database was put back or another server took its place"),
            false => format!("{at} from a backup of {}", print(self.made_at)),
        }
    }
}

/// Another event with the same signed body, under another id or type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameBodyEvent {
    pub event_id: EventId,
    /// Its type, or `?`.
    pub event_type: String,
    /// When it arrived.
    pub received_at: Timestamp,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFilter {
    /// Only in this state.
    pub state: Option<State>,
    /// Only of this handler.
    pub handler: Option<Name>,
    /// Only of this source's events.
    pub source: Option<Name>,
    /// Only of events of this type, exactly or with `*` for any run of characters.
    pub event_type: Option<String>,
    /// Only held, dead or dropped for this reason.
    pub reason: Option<String>,
    /// Only those whose last attempt said exactly this at its end; an empty text: those without such a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_detail: Option<String>,
    /// Only made then or later.
    pub since: Option<Timestamp>,
    /// At least 1; a page never has more rows than the limit `list_count`.
    pub limit: Option<usize>,
    /// The `next` of the last page; the newest come first without it.
    pub before: Option<PageCursor>,
}

/// One job as listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobRow {
    /// Its id and idempotency key.
    pub job: JobId,
    /// Its event's source.
    pub source: Name,
    /// Its event's id.
    pub event_id: EventId,
    /// Its event's type, or `?`.
    pub event_type: String,
    pub handler: Name,
    /// Where it stands.
    pub state: State,
    /// Why it is held, dead or dropped.
    pub reason: Option<String>,
    /// What more there is to say of the reason: why the handler's condition could not be decided. Untrusted text.
    #[serde(default)]
    pub detail: Option<String>,
    /// The group in which it keeps its place.
    #[serde(default)]
    pub group: Option<String>,
    /// An earlier job of its group keeps it waiting.
    #[serde(default)]
    pub behind: bool,
    /// The newer job of its group that took its place.
    #[serde(default)]
    pub superseded_by: Option<JobId>,
    /// Number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// How often the operator has put it back.
    pub replays: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it may be claimed again, while it waits.
    pub due_at: Option<Timestamp>,
    /// When it succeeded, died or was dropped.
    pub settled_at: Option<Timestamp>,
    /// Its handler is paused: nothing of it is claimed. A receiver that cannot pause does not say so.
    pub paused: bool,
    /// Its handler cannot run: nothing of it begins before its next try. Only a running receiver knows.
    pub broken: Option<Broken>,
    /// Since when it is held or dead: the end of its last attempt, or its making or last replay.
    pub stopped_at: Option<Timestamp>,
    /// What its last attempt said at its end.
    pub last_detail: Option<String>,
}

/// A key that a job had before it was put back under a new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerKey {
    pub key: JobId,
    /// The last attempt that carried it.
    pub attempt: u32,
    pub replaced_at: Timestamp,
}

/// A job with its attempts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobDetail {
    /// The job as listed.
    pub job: JobRow,
    /// Its attempts by number.
    pub attempts: Vec<AttemptRow>,
    /// The keys it had before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<FormerKey>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptRow {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// When it was claimed.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How it ended; none while it runs.
    pub outcome: Option<Outcome>,
    /// What it left behind.
    pub record: Record,
    /// What its node reported after it was settled without that node. It has changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_end: Option<LateEnd>,
}

/// The report of an attempt whose node was declared lost, or whose claim the database has lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateEnd {
    pub outcome: Outcome,
    /// One sentence, as in `Record`.
    pub detail: String,
    pub received_at: Timestamp,
}

/// A paused handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedRow {
    /// Its name; the configuration may no longer have it.
    pub handler: Name,
    /// When it was paused.
    pub since: Timestamp,
}

/// When a secret last matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretUse {
    /// The source it belongs to.
    pub source: Name,
    /// Where the secret was read from; never the secret.
    pub reference: String,
    /// When it last matched, to the minute.
    pub last_matched_at: Timestamp,
}
