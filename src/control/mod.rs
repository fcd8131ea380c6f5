//! What the command line asks of a store, whether its receiver runs or not.
//!
//! For `cmd` and `serve`. A running store is changed only through its receiver, over a Unix socket
//! beside the database; a stopped one is opened under its lock ([`Door`] finds out which). Both ways
//! end in [`perform`], so a command does the same either way. Only the socket's owner and root can
//! connect; nothing here is reachable from the network.

mod backup;
mod client;
mod door;
mod front;
mod reload;
mod server;
mod status;
pub(crate) mod wire;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::handler::{CannotAsk, RunnerPool};
use crate::model::{EventId, JobId, Name, State};
use crate::runner::message::{Key, Stream};
use crate::store::{
    self, Admin, Captured, EventDetail, EventFilter, EventRow, JobFilter, JobRow, PausedRow,
    SecretUse,
};

pub use backup::{Backup, Stage};
pub use client::{BackupError, CallError, Client, connect};
pub use door::{Door, DoorError};
pub use front::{Front, Signed, Unsigned};
pub use reload::{Names, ReloadAsked, Reloaded, RunnerTold, SecretRead};
pub use server::{ListenError, Listener, listen};
pub use status::{Receiver, ReceiverStatus, Refusal, Status};

/// One request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Events, newest first.
    Events(EventFilter),
    /// Everything about the events with this id.
    Show {
        /// Only those of this source.
        source: Option<Name>,
        /// The id.
        event: EventId,
    },
    /// The event or job that is meant by what an operator typed.
    Find(store::IdQuery),
    /// How many characters of each of these ids are enough to find it.
    Shorten {
        /// What they are to be found as.
        kind: store::IdKind,
        /// Whole ids.
        ids: Vec<String>,
    },
    /// Jobs, newest first.
    Jobs(JobFilter),
    /// One job.
    Job(JobId),
    /// Put jobs back.
    Replay(store::Replay),
    /// Make the jobs that the next stored events lack.
    MakeMissing(store::Missing),
    /// Say how a held job ended: `"succeeded"`, `"failed"`, or `{"answered": …}` with what its caller gets.
    Resolve {
        /// Which job.
        job: JobId,
        /// The last attempt of it that the operator saw: the job is held after that one, or left alone.
        attempt: u32,
        /// What the operator found out.
        how: store::Resolution,
    },
    /// Take a job out.
    Drop(JobId),
    /// Ask the running command of a job to end.
    Cancel(JobId),
    /// Look at what an attempt has printed so far.
    Peek {
        /// Which attempt.
        key: Key,
        /// Which output.
        stream: Stream,
    },
    /// Claim nothing of this handler until it is resumed.
    Pause(Name),
    /// Claim this handler's jobs again.
    Resume(Name),
    /// The paused handlers.
    Paused,
    /// When each secret last matched.
    Secrets,
    /// Failed deliveries, newest first.
    Quarantined(store::QuarantineFilter),
    /// Who answers, and whether accepts are taken.
    Info,
    /// Where the receiver takes deliveries.
    Listening,
    /// Sign a delivery as a source's provider would.
    Sign(Unsigned),
    /// How everything stands.
    Status {
        /// The sources to tell of where no receiver runs, which knows its own.
        sources: Vec<Name>,
    },
    /// How many jobs of each handler are to run or running.
    Unfinished,
    /// Events after a place, oldest first.
    Arrived {
        /// Which of them.
        filter: EventFilter,
        /// Where the last answer ended.
        after: Option<store::Mark>,
    },
    /// The next jobs that a bulk verb means.
    Select(store::Select),
    /// Put back or drop a batch of them.
    MoveBatch(store::Batch),
    /// Verify the next failed deliveries again, and perhaps accept them.
    JudgeQuarantined(store::Judging),
    /// Forget failed deliveries.
    DropQuarantined(store::QuarantineFilter),
    /// Read the configuration again.
    Reload,
    /// Copy the store and send the copy: an answer of several parts, of a running receiver only.
    Backup,
}

/// The answer to the [`Request`] of the same name.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The events listed.
    Events(Vec<EventRow>),
    /// At least one event.
    Show(Vec<EventDetail>),
    /// The one that is meant.
    Find(store::IdMatch),
    /// In the order of the ids.
    Shorten(Vec<usize>),
    /// The jobs listed.
    Jobs(Vec<JobRow>),
    /// The job as listed.
    Job(Box<JobRow>),
    /// The jobs put back.
    Replay(Vec<JobId>),
    /// What was made, and where to go on.
    MakeMissing(store::Made),
    /// The job's state now.
    Resolve(State),
    /// The state the job was in.
    Drop(State),
    /// It was asked, or is when it has begun.
    Cancel {
        /// The attempt that runs.
        attempt: u32,
    },
    /// What is there; nothing where the runner has no such attempt.
    Peek(Option<Captured>),
    /// The handler is paused.
    Pause {
        /// It was not before.
        changed: bool,
    },
    /// The handler is not paused.
    Resume {
        /// It was before.
        changed: bool,
    },
    /// The paused handlers by name.
    Paused(Vec<PausedRow>),
    /// The secrets that ever matched.
    Secrets(Vec<SecretUse>),
    /// The failed deliveries listed.
    Quarantined(store::Quarantine),
    /// Who answered.
    Info(Info),
    /// At least one address.
    Listening(Vec<SocketAddr>),
    /// The delivery's headers.
    Sign(Signed),
    /// How everything stands.
    Status(Box<Status>),
    /// By the handlers' names.
    Unfinished(Vec<(Name, u64)>),
    /// What came, and where to go on.
    Arrived(store::Arrived),
    /// What is meant, and where to go on.
    Select(store::Selected),
    /// What became of the batch.
    MoveBatch(store::Moved),
    /// What became of them, and where to go on.
    JudgeQuarantined(store::Judged),
    /// How many were forgotten.
    DropQuarantined(u64),
    /// What is in force now.
    Reload(Box<Reloaded>),
    /// The next part of a backup.
    Backup(Backup),
}

/// Who answers for a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The program's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The store's random identity.
    pub store: String,
    /// Why accepts are refused, where they are.
    pub refused: Option<String>,
}

/// Why a request was not carried out: one sentence, and a kind that exit codes are made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What sort of failure it is.
    pub kind: FailureKind,
    /// One sentence for people.
    pub message: String,
}

/// The kinds of failures; stable, since exit codes and `--json` name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Nothing has that name.
    NotFound,
    /// It is not in a state from which this can be done, what it needs is no longer kept, or the answer for its
    /// caller is missing, or not wanted.
    WrongState,
    /// Several things have that name: say which.
    Ambiguous,
    /// The store or the receiver cannot do it now.
    Unavailable,
    /// The configuration is wrong, of the receiver or of its runner.
    Config,
}

impl Failure {
    fn unavailable(message: impl Into<String>) -> Self {
        Failure { kind: FailureKind::Unavailable, message: message.into() }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        let kind = match error {
            store::Error::NoEvent(_) | store::Error::NoJob(_) | store::Error::NoId { .. } => {
                FailureKind::NotFound
            }
            store::Error::WrongState { .. }
            | store::Error::NewerAttempt { .. }
            | store::Error::PayloadGone { .. }
            | store::Error::JobsGone { .. }
            | store::Error::Answered { .. }
            | store::Error::AnswerNeeded { .. }
            | store::Error::NobodyWaits { .. }
            | store::Error::OneHandler { .. } => FailureKind::WrongState,
            store::Error::Ambiguous { .. }
            | store::Error::Variants { .. }
            | store::Error::SeveralIds { .. } => FailureKind::Ambiguous,
            store::Error::Unavailable(_) | store::Error::TooSlow(_) => FailureKind::Unavailable,
        };
        Failure { kind, message: error.to_string() }
    }
}

impl From<CannotAsk> for Failure {
    fn from(why: CannotAsk) -> Self {
        Failure::unavailable(why.to_string())
    }
}

/// Carries out one request on an open store. `receiver`: whose store it is, where one runs.
pub async fn perform(
    store: &Admin,
    receiver: Option<&Receiver>,
    request: Request,
) -> Result<Reply, Failure> {
    let links = receiver.map(|receiver| &receiver.links);
    Ok(match request {
        Request::Events(filter) => Reply::Events(store.events(filter).await?),
        Request::Show { source, event } => {
            let mut found = store.show(source, event.clone()).await?;
            if found.is_empty() {
                return Err(store::Error::NoEvent(event).into());
            }
            status::mark_broken(
                receiver,
                found.iter_mut().flat_map(|event| &mut event.jobs).map(|job| &mut job.job),
            );
            Reply::Show(found)
        }
        Request::Find(typed) => Reply::Find(store.find(typed).await?),
        Request::Shorten { kind, ids } => Reply::Shorten(store.shorten(kind, ids).await?),
        Request::Jobs(filter) => {
            let mut jobs = store.jobs(filter).await?;
            status::mark_broken(receiver, &mut jobs);
            Reply::Jobs(jobs)
        }
        Request::Job(job) => {
            let mut job = Box::new(store.job(job).await?);
            status::mark_broken(receiver, [&mut *job]);
            Reply::Job(job)
        }
        Request::Replay(what) => Reply::Replay(store.replay(what).await?),
        Request::MakeMissing(ask) => Reply::MakeMissing(store.make_missing(ask).await?),
        Request::Resolve { job, attempt, how } => {
            Reply::Resolve(store.resolve(job, attempt, how).await?)
        }
        Request::Drop(job) => Reply::Drop(store.drop_job(job).await?),
        Request::Cancel(job) => cancel(store, links, job).await?,
        Request::Peek { key, stream } => {
            let links = links.ok_or_else(|| Failure::unavailable(NO_RECEIVER))?;
            Reply::Peek(links.peek(key, stream).await?)
        }
        Request::Pause(handler) => Reply::Pause { changed: store.pause(&handler).await? },
        Request::Resume(handler) => Reply::Resume { changed: store.resume(&handler).await? },
        Request::Paused => Reply::Paused(store.paused().await?),
        Request::Secrets => Reply::Secrets(store.secrets().await?),
        Request::Quarantined(filter) => Reply::Quarantined(store.quarantined(filter).await?),
        Request::Unfinished => Reply::Unfinished(store.unfinished().await?),
        Request::Info => Reply::Info(Info {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            store: store.id().simple().to_string(),
            refused: store.ready().err().map(|refused| refused.to_string()),
        }),
        Request::Listening => Reply::Listening(front(receiver)?.addresses.clone()),
        Request::Sign(unsigned) => Reply::Sign(front(receiver)?.sign(&unsigned)?),
        Request::Status { sources } => {
            Reply::Status(Box::new(status::look(store, receiver, sources).await?))
        }
        Request::Arrived { filter, after } => Reply::Arrived(store.arrived(filter, after).await?),
        Request::Select(ask) => Reply::Select(store.select(ask).await?),
        Request::MoveBatch(batch) => Reply::MoveBatch(store.move_batch(batch).await?),
        Request::JudgeQuarantined(ask) => {
            Reply::JudgeQuarantined(store.judge_quarantined(ask).await?)
        }
        Request::DropQuarantined(filter) => {
            Reply::DropQuarantined(store.drop_quarantined(filter).await?)
        }
        Request::Reload => {
            let receiver = receiver.ok_or_else(|| {
                Failure::unavailable("no receiver runs: it reads the configuration when it starts")
            })?;
            Reply::Reload(Box::new(receiver.reload().await?))
        }
        // The socket's own part takes it before this, and a stopped store has a way of its own.
        Request::Backup => return Err(Failure::unavailable("a backup has no single answer")),
    })
}

/// Why a stopped store's runners are asked nothing.
const NO_RECEIVER: &str = "no receiver runs, and only a receiver can reach its runner";

fn front(receiver: Option<&Receiver>) -> Result<Arc<Front>, Failure> {
    let front = receiver.map(Receiver::front);
    front.ok_or_else(|| Failure::unavailable("no receiver runs, and only a receiver can tell"))
}

async fn cancel(store: &Admin, links: Option<&RunnerPool>, job: JobId) -> Result<Reply, Failure> {
    let live = store.live(job, "cancelled").await?;
    if !live.by_runner {
        // Whatever the request has brought about cannot be taken back, and is not known.
        let message = format!("job {job} runs a forward, which cannot be called back");
        return Err(Failure { kind: FailureKind::WrongState, message });
    }
    let links = links.ok_or_else(|| Failure::unavailable(NO_RECEIVER))?;
    links.cancel(Key { job, attempt: live.attempt })?;
    Ok(Reply::Cancel { attempt: live.attempt })
}

/// Where the receiver of the store at `database` listens: the same path with `.sock` added.
pub fn socket_path(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push(".sock");
    PathBuf::from(path)
}
