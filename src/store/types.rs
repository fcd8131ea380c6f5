//! What goes over the store's border with its verbs, and how they fail. Domain types only.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::model::{
    Answer, Blob, Digest, EventId, Facts, HeldReason, JobId, Name, OnRedelivery, Outcome, Runner,
    State, Timestamp,
};
use crate::retry::Next;
use crate::verify::Verified;

/// Shortest beginning that is taken for an id.
pub const LEAST_CHARS: usize = 4;

/// Where the store lies and what it keeps.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The database file. Beside it lie `.lock`, `.ballast`, `.quarantine` and SQLite's own files.
    pub path: PathBuf,
    /// The limits in force.
    pub limits: Limits,
}

/// A genuine delivery with the jobs that the configuration makes of it, matched by one snapshot.
#[derive(Debug)]
pub struct Accept {
    /// The source it came through.
    pub source: Name,
    /// When it arrived.
    pub received_at: Timestamp,
    /// What `verify` proved.
    pub delivery: Verified,
    /// The handlers that want it, each once.
    pub handlers: Vec<Name>,
    /// What it does where it is a duplicate.
    pub on_redelivery: OnRedelivery,
}

/// What became of a genuine delivery. All of it is on disk when this is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// A new event.
    Created {
        jobs: usize,
        /// Why they are held, where they are.
        held: Option<HeldReason>,
        /// Whether the replay guard marked it and let it run.
        flagged: bool,
    },
    /// The event exists.
    Duplicate {
        /// The state that matters most among its jobs; none where it has no job.
        state: Option<State>,
        /// Its jobs were removed with its payload: this was their state.
        removed: bool,
        /// Its dead jobs that this delivery has put back, as its source's `on_redelivery` says.
        replayed: usize,
        /// When the first delivery arrived.
        first_received_at: Timestamp,
        /// The body differs under a signed id; it is kept as evidence.
        conflict: bool,
    },
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
    /// Further commits would be lost: the open database has lost its name.
    #[error("{0}")]
    Gone(String),
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
    /// The facts that the handler gets.
    pub facts: Facts,
    /// Counted attempts before this one, since made or last replayed.
    pub counted: u32,
    /// When the job was made or last replayed.
    pub since: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whose jobs.
    pub handler: Name,
    /// How many at most.
    pub limit: usize,
    /// Who will be asked to start them; none where the receiver runs them itself.
    pub runner: Option<Runner>,
}

/// What a claim has brought.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// Higher than that of every claim that was committed before it, since the store was opened.
    pub number: u64,
    /// The jobs that run now, oldest first.
    pub jobs: Vec<Claimed>,
    /// When the next waiting job of the handler is due. None where there is none, where the handler is
    /// paused, and where as many were claimed as were asked for: there may be more at once.
    pub due: Option<Timestamp>,
}

/// An attempt that is `running` in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub job: JobId,
    pub attempt: u32,
    pub handler: Name,
    /// Its event's source.
    pub source: Name,
    /// Its event's id.
    pub event_id: EventId,
    /// Counted attempts before this one, since made or last replayed.
    pub counted: u32,
    /// When the job was made or last replayed.
    pub since: Timestamp,
    /// The runner it was claimed for; none where the receiver runs it itself.
    pub runner: Option<Runner>,
}

/// The end of an attempt.
#[derive(Debug, Clone)]
pub struct Completion {
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
    pub record: Record,
    /// The whole answer of its handler, if a caller may wait for it.
    pub answer: Option<Answer>,
}

/// A request whose answer is kept under its key, which is the delivery's event id.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The source it came through.
    pub source: Name,
    /// Whose key it is: keys of one caller are nothing to another. Empty where the source has one caller.
    pub caller: String,
    /// Of all that makes it this request and no other.
    pub request: Digest,
    /// When it arrived.
    pub received_at: Timestamp,
    /// What `verify` proved.
    pub delivery: Verified,
    /// The source's one handler.
    pub handler: Name,
    /// How long the key is kept, from now on.
    pub keep: Duration,
    /// How long an answer is kept that says "not now", from the answer on.
    pub keep_errors: Duration,
}

/// What a request with a key has come to. All of it is on disk when this is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The key is new, or its last run is known to have failed: its job is ready because of this request.
    Begun {
        job: JobId,
        /// It had run before, and failed.
        again: bool,
    },
    /// An earlier request has the key.
    Known {
        job: JobId,
        /// Its state.
        state: KeyState,
    },
    /// An earlier request has the key, and is another request.
    Conflict,
}

/// The state of a key's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// Answered: every repeat gets this answer.
    Answered(Answer),
    /// Its job is to run, or runs.
    Pending,
    /// Its handler is known to have failed, without an answer.
    Failed,
    /// Its outcome is unknown; a person has to resolve it.
    Unknown {
        /// Its time-out ended it.
        timed_out: bool,
    },
    /// The operator has dropped its job.
    Dropped,
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
    /// What a command used, where a runner saw its end.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// When its runner saw the end, which may be long before the receiver hears of it.
    #[serde(skip)]
    pub ended_at: Option<Timestamp>,
}

/// What a command used of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of it and the children it waited for, in milliseconds.
    pub cpu_millis: u64,
    /// The largest resident set of one of them, in bytes.
    pub memory_bytes: u64,
}

/// Head and tail of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// Its beginning.
    pub head: Blob,
    /// Its end, where head did not hold all.
    pub tail: Blob,
    /// All bytes there were.
    pub total: u64,
}

/// Most characters of an output's last line where it is quoted: enough for an error message with a path.
const LAST_LINE_CHARS: usize = 200;

impl Captured {
    /// The last line that is not blank, cut to 200 characters. Untrusted text.
    pub fn last_line(&self) -> Option<String> {
        [&self.tail, &self.head].into_iter().find_map(|part| {
            let lines = part.0.rsplit(|byte| *byte == b'\n').map(String::from_utf8_lossy);
            let mut lines = lines.map(|line| line.trim().chars().take(LAST_LINE_CHARS).collect());
            lines.find(|line: &String| !line.is_empty())
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Attempts settled as unknown: (job, attempt, state after).
    pub unknown: Vec<(JobId, u32, State)>,
    /// Jobs held because their handler is gone.
    pub orphaned: u64,
}

/// What to put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// One job, from held, dead or succeeded.
    Job(JobId),
    /// The same under a new key; the old one is recorded.
    NewKey(JobId),
    /// The held and dead jobs of one event, its variants included.
    Event {
        /// The source, needed where several have an event of this id.
        source: Option<Name>,
        /// The event's id.
        event: EventId,
        /// Only this handler's job, which is made if there is none, and which may have succeeded.
        handler: Option<Name>,
    },
}

/// Errors of the verbs other than accept.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("no such event: {0}")]
    NoEvent(EventId),
    /// No job has this key.
    #[error("no such job: {0}, or retention has removed it with its event's payload")]
    NoJob(JobId),
    /// Nothing has this id, or one that begins so.
    #[error("no {noun} begins with '{text}'{}", too_short(text))]
    NoId {
        /// What was typed.
        text: String,
        /// What was looked for.
        noun: &'static str,
    },
    /// More than one id begins so.
    #[error("several ids begin with '{text}': {ids}; type more of the one you mean")]
    SeveralIds {
        /// What was typed.
        text: String,
        /// The first of them.
        ids: String,
    },
    /// The job is not in a state from which this may be done.
    #[error("job {job} is {state}, which cannot be {verb}")]
    WrongState {
        job: JobId,
        state: State,
        /// The verb, as a participle.
        verb: &'static str,
    },
    /// The job has made another attempt since the operator looked at it.
    #[error(
        "job {job} was looked at after attempt {seen} and has made attempt {attempt} since; look at that one (`hooklatch show {job}`), then ask again"
    )]
    NewerAttempt {
        job: JobId,
        /// The attempt that the operator knows of.
        seen: u32,
        /// The last one.
        attempt: u32,
    },
    /// Several sources have an event of this id.
    #[error("event {event} came through several sources: {sources}; name one")]
    Ambiguous {
        event: EventId,
        /// The sources, separated by commas.
        sources: String,
    },
    /// Several bodies came under the one id: which of them is meant must be said.
    #[error(
        "event {event} came with {bodies} different bodies; look at them (`show`) and name one job (`--job`)"
    )]
    Variants { event: EventId, bodies: usize },
    /// The body is deleted, so no attempt can run.
    #[error(
        "the payload of event {event} of source {source_name} has been deleted by retention; it cannot be run again"
    )]
    PayloadGone {
        /// The event's source.
        source_name: Name,
        /// The event's id.
        event: EventId,
    },
    /// Its jobs were removed with its payload, so nothing can run.
    #[error(
        "the jobs and the payload of event {event} of source {source_name} have been deleted by retention; it cannot be run again"
    )]
    JobsGone {
        /// The event's source.
        source_name: Name,
        /// The event's id.
        event: EventId,
    },
    /// Its caller has the answer of its handler, and gets it again whenever he asks.
    #[error(
        "the caller of job {job} has its answer, or was told to ask anew; it cannot be replayed"
    )]
    Answered { job: JobId },
    /// Its caller waits for an answer, and would never get one.
    #[error(
        "the caller of job {job} waits for its answer; give it with `--answer FILE`, or resolve the job as failed, which frees the caller's key"
    )]
    AnswerNeeded { job: JobId },
    /// No caller waits for an answer of this job.
    #[error("no caller waits for an answer of job {job}; resolve it without `--answer`")]
    NobodyWaits { job: JobId },
    /// The event is a request whose answer is its one handler's.
    #[error(
        "event {event} of source {source_name} is a request that its one handler answers; no other handler can have a job of it while its key is kept"
    )]
    OneHandler {
        /// The event's source.
        source_name: Name,
        /// The event's id.
        event: EventId,
    },
    /// A listing looked through the store for so long, and was interrupted.
    #[error(
        "the listing took longer than {} s and was stopped, because others wait for it; narrow it: a short time (`--since 2h`), held or dead jobs only (`--state`), fewer rows (`--limit`)", .0.as_secs_f64()
    )]
    TooSlow(Duration),
    /// The store cannot be used now. What was asked for may still have been done where this follows
    /// an I/O error: look before asking again.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

fn too_short(text: &str) -> String {
    match text.len() < LEAST_CHARS {
        true => format!(" (type at least {LEAST_CHARS} characters of an id)"),
        false => String::new(),
    }
}

impl From<Refused> for Error {
    fn from(why: Refused) -> Self {
        Error::Unavailable(why.to_string())
    }
}

/// Why a store cannot be opened. Each text ends with what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds the store.
    #[error("{path} is in use by {holder}; one process at a time may have it: stop that one first")]
    Locked {
        /// The database file.
        path: PathBuf,
        /// What the holder wrote into the lock file.
        holder: String,
    },
    /// A newer hooklatch has migrated it. There is no way back.
    #[error(
        "{path} was written by a newer hooklatch ({by}, schema {schema}; this one knows {known}); install that version or a newer one"
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The program that wrote it, by name and version.
        by: String,
        /// Its schema's number.
        schema: i64,
        /// The newest schema this program knows.
        known: i64,
    },
    /// A store of a development build.
    #[error(
        "{path}: made by a development build; nothing reads it: keep it, start with a new path"
    )]
    Development {
        /// The database file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{path} is not a SQLite database; name another file as storage.path or move this one away"
    )]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// A database, but not ours.
    #[error("{path} is a database of another program; name another file as storage.path")]
    Foreign {
        /// The database file.
        path: PathBuf,
    },
    /// The path names a directory.
    #[error("{path} is a directory; storage.path names a file")]
    IsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The directory that should hold it does not exist.
    #[error(
        "the directory of {path} does not exist; create it, owned by the receiver's user, mode 0700"
    )]
    DirectoryMissing {
        /// The database file.
        path: PathBuf,
    },
    /// This user may not write there.
    #[error("no permission to write {path}; give it and its directory to the receiver's user")]
    NoPermission {
        /// The database file, or one beside it.
        path: PathBuf,
    },
    /// The file or its file system cannot be written.
    #[error("{path} is read-only; make the file and its file system writable")]
    ReadOnly {
        /// The database file, or one beside it.
        path: PathBuf,
    },
    /// SQLite found it damaged.
    #[error("{path} is damaged ({detail}); restore a backup, and check the disk")]
    Damaged {
        /// The database file.
        path: PathBuf,
        /// SQLite's words.
        detail: String,
    },
    /// The disk has no room for the store's own files.
    #[error("no space to open {path}; free some on its file system")]
    NoSpace {
        /// The database file.
        path: PathBuf,
    },
    /// A migration, or the copy before it, does not fit. Nothing is changed.
    #[error(
        "{path} is of an earlier schema and is copied before it is changed: {} are needed in its folder (the copy, where it is still to be made; as much again for the change; and the floor of limits.disk_floor_bytes), {} are free; free some there, or go back to the earlier version", ByteSize(*needed), ByteSize(*free)
    )]
    NoSpaceToMigrate {
        /// The database file.
        path: PathBuf,
        /// Bytes of what is still to be written, and the floor.
        needed: u64,
        /// Bytes that this user may write.
        free: u64,
    },
    /// The database cannot grow by what a migration wrote. The migration is committed.
    #[error(
        "{path} has the new schema, and the log of that change is still to be copied into it: up to {} are needed in its folder, {} are free; free some there", ByteSize(*needed), ByteSize(*free)
    )]
    NoSpaceForLog {
        /// The database file.
        path: PathBuf,
        /// Bytes of the log.
        needed: u64,
        /// Bytes that this user may write.
        free: u64,
    },
    /// Anything else the system said.
    #[error("failed to open {path}: {detail}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's or SQLite's words.
        detail: String,
    },
}
