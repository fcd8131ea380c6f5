//! Why a request to the store fails.

use std::time::Duration;

use crate::model::{EventId, JobId, Name, State};

/// Shortest beginning that is taken for an id.
pub const LEAST_CHARS: usize = 4;

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
    /// The database on another machine cannot be used now.
    #[error("the database cannot be used: {0}")]
    Unreachable(String),
    /// It is not known whether it is stored. When it is delivered again, it is stored or found.
    #[error("not known to be stored: {0}")]
    Unconfirmed(String),
    /// The receiver is stopping.
    #[error("the receiver is stopping")]
    Stopping,
    /// This item could not be stored, although others can.
    #[error("failed to store: {0}")]
    Failed(String),
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
    NoId { text: String, noun: &'static str },
    /// More than one id begins so.
    #[error("several ids begin with '{text}': {ids}; type more of the one you mean")]
    SeveralIds { text: String, ids: String },
    /// The job is not in a state from which this may be done.
    #[error("job {job} is {state}, which cannot be {verb}")]
    WrongState {
        job: JobId,
        state: State,
        /// The verb as a participle, such as "replayed".
        verb: &'static str,
    },
    /// The job's last attempt is not the one that the operator saw.
    #[error(
        "the job has changed: {job} was looked at after attempt {seen}, and its last attempt is now {attempt}; look at that one (`hooklatch show {job}`), then ask again"
    )]
    NewerAttempt {
        job: JobId,
        /// The attempt that the operator knows of.
        seen: u32,
        attempt: u32,
    },
    /// Several sources have an event of this id.
    #[error("event {event} came through several sources: {sources}; name one")]
    Ambiguous { event: EventId, sources: String },
    /// Several bodies came under the one id: which of them is meant must be said.
    #[error(
        "event {event} came with {bodies} different bodies; look at them (`show`) and name one job (`--job`)"
    )]
    Variants { event: EventId, bodies: usize },
    /// The body is deleted, so no attempt can run.
    #[error(
        "the payload of event {event} of source {source_name} has been deleted by retention; it cannot be run again"
    )]
    PayloadGone { source_name: Name, event: EventId },
    /// Its jobs were removed with its payload, so nothing can run.
    #[error(
        "the jobs and the payload of event {event} of source {source_name} have been deleted by retention; it cannot be run again"
    )]
    JobsGone { source_name: Name, event: EventId },
    /// Its handler wants the latest event of a group only, and a newer one has run or is to run.
    #[error(
        "job {job} is of an event that is out of date: {newer}; run it all the same with `--regardless`"
    )]
    Superseded { job: JobId, newer: Newer },
    /// A job is to be made whose handler wants the latest event of a group only, and a newer one has run or is to run.
    #[error(
        "event {event} is out of date for handler {handler}: {newer}; run it all the same with `--regardless`"
    )]
    OutOfDate { handler: Name, event: EventId, newer: Newer },
    /// Its handler's condition or key cannot be decided, with the configuration of now either.
    #[error(
        "job {job} still cannot be decided: {why}; correct `when`, or run it all the same with `--regardless`"
    )]
    Undecided { job: JobId, why: String },
    /// A job is to be made whose handler's condition or key cannot be decided.
    #[error(
        "whether handler {handler} wants event {event} cannot be decided: {why}; run it all the same with `--regardless`"
    )]
    UndecidedEvent { handler: Name, event: EventId, why: String },
    /// The handler's condition does not hold for the event.
    #[error(
        "handler {handler} does not want event {event}: its condition does not hold (`hooklatch explain {event}`)"
    )]
    Unwanted { handler: Name, event: EventId },
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
    OneHandler { source_name: Name, event: EventId },
    /// The history of the database has changed, and attempts may run that it does not know.
    #[error("nothing is replayed yet, because it may still run: {0}")]
    Awaited(String),
    /// A listing of no rows was asked for.
    #[error("the limit is 0 rows; it must be 1 to {most}")]
    NoRows { most: i64 },
    /// A batch has more jobs than one transaction moves.
    #[error("the batch has {jobs} jobs; {most} is the limit")]
    LargeBatch { jobs: usize, most: usize },
    /// A listing looked through the store for so long, and was interrupted.
    #[error(
        "the listing took longer than {} s and was stopped, because others wait for it; narrow it: a short time (`--since 2h`), held or dead jobs only (`--state`), fewer rows (`--limit`)", .0.as_secs_f64()
    )]
    TooSlow(Duration),
    /// What is stored of a body is not what was stored, or is in a page that cannot be read.
    #[error("the stored body is damaged: {0}")]
    Damaged(String),
    /// The store cannot be used now. After an I/O error the request may have been carried out: look before you repeat it.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The database was asked for the change, and did not say in a valid way whether it is made.
    #[error(
        "it is not known whether this was done ({0}); look with `hooklatch audit`, then ask again"
    )]
    Unconfirmed(String),
}

/// What makes an event out of date for a handler that wants the latest of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Newer {
    #[error("job {0} of the same group is newer")]
    Job(JobId),
    #[error("retention has removed newer jobs, which may have been of the same group")]
    Removed,
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
