//! The store: one SQLite file, one writer thread, one file here per verb.
//!
//! All SQL lives in this folder. At its border stand domain types only: no row, connection or SQL
//! text passes it. (CONTRACT STUB: the store's author replaces this file, keeping the API.)

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::*;
use crate::retry::{Next, Policy};
use crate::verify::Verified;

/// Where the store lies and what it keeps.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The database file. Beside it lie `.lock`, `.sock`, `.ballast` and SQLite's own files.
    pub path: PathBuf,
    /// The limits in force.
    pub limits: Limits,
}

/// A handle to the running store; clones share the one writer.
#[derive(Clone)]
pub struct Store {/* private */}

/// A genuine delivery with the jobs that the configuration makes of it, matched by one snapshot.
#[derive(Debug)]
pub struct Accept {
    /// The source it came through.
    pub source: Name,
    /// When it arrived.
    pub received_at: Timestamp,
    /// What `verify` proved.
    pub delivery: Verified,
    /// The handlers that want it.
    pub handlers: Vec<Name>,
}

/// What became of a genuine delivery. All of them are on disk when this is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// A new event with this many jobs.
    Created { jobs: usize, held: Option<HeldReason>, flagged: bool },
    /// The event exists. `conflict`: the body differs under a signed id; kept as evidence.
    Duplicate { state: Option<State>, first_received_at: Timestamp, conflict: bool },
}

/// Why a delivery cannot be made durable now; each is a 503 with Retry-After.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The writer's queue is full, in number or bytes.
    #[error("the writer's queue is full")]
    QueueFull,
    /// The disk is full or below its floor.
    #[error("too little space: {0}")]
    NoSpace(String),
    /// The store is closed for repair after an I/O error.
    #[error("the store is closed after an I/O error: {0}")]
    Degraded(String),
    /// The receiver is stopping.
    #[error("the receiver is stopping")]
    Stopping,
    /// This item could not be stored, although others can.
    #[error("failed to store: {0}")]
    Failed(String),
}

/// A job that is now `running`, with what its handler needs.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// What the handler is told.
    pub facts: Facts,
    /// Counted attempts before this one, since made or last replayed.
    pub counted: u32,
    /// When the job was made or last replayed.
    pub since: Timestamp,
}

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct Completion {
    /// Which job.
    pub job: JobId,
    /// Which attempt; a completion of any other changes nothing.
    pub attempt: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it counts against the handler's limit.
    pub counts: bool,
    /// Where the job goes.
    pub next: Next,
    /// When it ended.
    pub finished_at: Timestamp,
    /// What is recorded with it.
    pub record: Record,
}

/// What an attempt leaves behind for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// One sentence: "exit status 3", "HTTP 503", "killed by signal 9".
    pub detail: String,
    /// A command's exit status.
    pub exit_code: Option<i32>,
    /// The signal that killed a command.
    pub signal: Option<i32>,
    /// A forward's status.
    pub http_status: Option<u16>,
    /// Standard output, or a forward's answer.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
}

/// Head and tail of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// Its beginning.
    #[serde(with = "crate::model::base64")]
    pub head: Vec<u8>,
    /// Its end, where head did not hold all.
    #[serde(with = "crate::model::base64")]
    pub tail: Vec<u8>,
    /// All bytes there were.
    pub total: u64,
}

/// Errors of the verbs other than accept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing has this name.
    #[error("no such {what}: {name}")]
    NotFound { what: &'static str, name: String },
    /// The job is not in a state from which this may be done.
    #[error("job {job} is {state}, which cannot be {verb}")]
    WrongState { job: JobId, state: State, verb: &'static str },
    /// Several sources have an event of this id.
    #[error("event {event} came through several sources: {sources}; name one")]
    Ambiguous { event: EventId, sources: String },
    /// The body is no longer kept, so nothing can run.
    #[error("the payload of event {event} of source {source_name} has been deleted by retention")]
    PayloadGone { source_name: Name, event: EventId },
    /// The store cannot be used now.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

/// Why a store cannot be opened. (Lock held by another, newer schema, not a database, read-only, no permission, I/O...)
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the store.
    #[error("{path} is in use by {holder}")]
    Locked { path: PathBuf, holder: String },
}

/// What recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Attempts settled as unknown: (job, attempt, state after).
    pub unknown: Vec<(JobId, u32, State)>,
    /// Jobs held because their handler is gone.
    pub orphaned: u64,
}

impl Store {
    /// Takes the lock, opens under S2, migrates, starts writer and checkpointer. Blocking.
    pub fn open(_settings: &Settings, _clock: Clock) -> Result<Store, OpenError> {
        unimplemented!()
    }
    /// Rung after every commit; carries nothing. One listener.
    pub fn wake(&self) -> Arc<Notify> {
        unimplemented!()
    }
    /// The store's random identity.
    pub fn id(&self) -> String {
        unimplemented!()
    }
    /// Why accepts are refused now, or nothing: readiness.
    pub fn ready(&self) -> Result<(), Refused> {
        unimplemented!()
    }
    /// ACCEPT: the event and its jobs in one transaction; returns after its flush (S3 for duplicates too).
    pub async fn accept(&self, _new: Accept) -> Result<Accepted, Refused> {
        unimplemented!()
    }
    /// Keeps a failed delivery; dropped silently when the queue is half full.
    pub fn quarantine(&self, _failed: Quarantined) {
        unimplemented!()
    }
    /// CLAIM: up to `limit` jobs of `handler` that are ready, or waiting and due, oldest first.
    /// Each has a new attempt, number + 1, committed before this returns. Jobs whose payload is gone
    /// become dead instead.
    pub async fn claim(&self, _handler: &Name, _limit: usize) -> Result<Vec<Claimed>, Error> {
        unimplemented!()
    }
    /// COMPLETE: settles a running attempt. `false` where that attempt is settled already (changes
    /// no row, R9). Retried inside over a full disk or a closed store until it is committed: never lost while
    /// the process lives.
    pub async fn complete(&self, _done: Completion) -> Result<bool, Error> {
        unimplemented!()
    }
    /// The attempts that are `running` in the store (at start: those a crash cut off).
    pub async fn running(&self) -> Result<Vec<(JobId, u32, Name)>, Error> {
        unimplemented!()
    }
    /// RECOVER: before the first claim. Every running attempt becomes `unknown` and follows its
    /// handler's policy (hold where the handler is gone); due times are clamped to now + backoff max (K1);
    /// ready and waiting jobs of handlers not in `policies` are held: handler gone.
    pub async fn recover(&self, _policies: Vec<(Name, Policy)>) -> Result<Recovered, Error> {
        unimplemented!()
    }
    /// K1: no due time later than now + `most`, for one handler.
    pub async fn clamp_due(&self, _handler: &Name, _most: Duration) -> Result<u64, Error> {
        unimplemented!()
    }
    /// When the next waiting job of any of `handlers` is due.
    pub async fn next_due(&self, _handlers: &[Name]) -> Result<Option<Timestamp>, Error> {
        unimplemented!()
    }
    /// REPLAY: held, dead or succeeded to ready. Returns the jobs put back.
    pub async fn replay(&self, _what: Replay) -> Result<Vec<JobId>, Error> {
        unimplemented!()
    }
    /// Deletes payloads of settled events older than `payloads` and whole events older than `ids`,
    /// in small batches; the caller has checked the clock (K2). Returns (payloads, events).
    pub async fn expire(&self, _payloads: Timestamp, _ids: Timestamp) -> Result<(u64, u64), Error> {
        unimplemented!()
    }
    /// Events, newest first.
    pub async fn events(&self, _filter: EventFilter) -> Result<Vec<EventRow>, Error> {
        unimplemented!()
    }
    /// Everything about the events with this id (several: variants, or several sources).
    pub async fn show(&self, _source: Option<Name>, _event: EventId) -> Result<Vec<EventDetail>, Error> {
        unimplemented!()
    }
    /// Jobs, newest first.
    pub async fn jobs(&self, _filter: JobFilter) -> Result<Vec<JobRow>, Error> {
        unimplemented!()
    }
    /// When each secret last matched.
    pub async fn secrets(&self) -> Result<Vec<SecretUse>, Error> {
        unimplemented!()
    }
    /// Failed deliveries, newest first.
    pub async fn quarantined(&self, _source: Option<Name>, _limit: usize) -> Result<Vec<QuarantinedRow>, Error> {
        unimplemented!()
    }
    /// Refuses new accepts, answers what is queued, commits, closes. Afterwards everything is refused.
    pub async fn close(&self) {
        unimplemented!()
    }
}

/// What to put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// One job, from held, dead or succeeded.
    Job(JobId),
    /// The held and dead jobs of one event; with `handler`, only that handler's job, which is made
    /// if there is none, and which may have succeeded.
    Event { source: Option<Name>, event: EventId, handler: Option<Name> },
}

/// A delivery that failed verification.
#[derive(Debug, Clone)]
pub struct Quarantined {
    pub source: Name,
    pub received_at: Timestamp,
    /// The rejection's fixed word.
    pub reason: &'static str,
    /// The rejection's sentence.
    pub detail: String,
    /// The headers the scheme reads and keeps (never a static token).
    pub headers: Headers,
    pub body: bytes::Bytes,
}

/// A kept failed delivery, as listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QuarantinedRow {
    pub source: Name,
    pub received_at: Timestamp,
    pub reason: String,
    pub detail: String,
    pub body_bytes: u64,
}

/// Which events to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EventFilter {
    pub source: Option<Name>,
    pub event_type: Option<String>,
    pub limit: Option<usize>,
}

/// One event as listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventRow {
    pub source: Name,
    pub event_id: EventId,
    /// 0, or the number of a later body under the same unsigned id.
    pub variant: u32,
    pub event_type: String,
    pub raw_type: Option<String>,
    pub received_at: Timestamp,
    pub body_bytes: u64,
    /// Deliveries after the first.
    pub duplicates: u64,
    pub last_duplicate_at: Option<Timestamp>,
    /// Deliveries under the same signed id whose body differed.
    pub conflicts: u64,
    /// Marked by the replay guard.
    pub flagged: bool,
    /// Whether body and headers are still kept.
    pub payload_kept: bool,
    /// (state, how many) of its jobs.
    pub jobs: Vec<(State, u64)>,
}

/// One event with its jobs, attempts and payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EventDetail {
    pub event: EventRow,
    /// SHA-256 of the body without volatile fields, in hex.
    pub digest: String,
    /// Header lines (lossy UTF-8, for people).
    pub headers: Vec<(String, String)>,
    #[serde(with = "crate::model::base64::optional")]
    pub body: Option<Vec<u8>>,
    pub jobs: Vec<JobDetail>,
}

/// Which jobs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct JobFilter {
    pub state: Option<State>,
    pub handler: Option<Name>,
    pub source: Option<Name>,
    pub limit: Option<usize>,
}

/// One job as listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobRow {
    pub job: JobId,
    pub source: Name,
    pub event_id: EventId,
    pub event_type: String,
    pub handler: Name,
    pub state: State,
    /// Why it is held, dead or dropped.
    pub reason: Option<String>,
    /// Number of the last attempt; 0 before the first.
    pub attempt: u32,
    pub replays: u32,
    pub created_at: Timestamp,
    pub due_at: Option<Timestamp>,
    pub settled_at: Option<Timestamp>,
}

/// A job with its attempts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobDetail {
    pub job: JobRow,
    pub attempts: Vec<AttemptRow>,
}

/// One attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptRow {
    pub number: u32,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// None while it runs.
    pub outcome: Option<Outcome>,
    pub record: Record,
}

/// When a secret last matched.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SecretUse {
    pub source: Name,
    pub reference: String,
    pub last_matched_at: Timestamp,
}
