//! What the operator types to change jobs, handlers and the store.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::options::{event, job, reason};
use super::{Filter, Note, Options, Since};
use crate::model::{EventId, Name, State};

/// A state whose jobs a command can change in bulk.
fn stopped(text: &str) -> Result<State, String> {
    match text.parse() {
        Ok(state @ (State::Held | State::Dead)) => Ok(state),
        _ => Err("must be 'held' or 'dead'".to_owned()),
    }
}

/// `hooklatch replay`
///
/// Conflicts are declared in addition to requirements, because clap does not require an argument that conflicts
/// with a given one.
#[derive(Debug, Args)]
#[command(override_usage = "hooklatch replay [OPTIONS] <EVENT>
       hooklatch replay [OPTIONS] --job <JOB>
       hooklatch replay [OPTIONS] --state <STATE>
       hooklatch replay [OPTIONS] --handler <NAME> --since <TIME>")]
#[command(group = ArgGroup::new("what").args(["event", "job", "since", "state"]).multiple(true).required(true))]
#[command(group = ArgGroup::new("many").args(["since", "state"]).multiple(true))]
#[command(group = ArgGroup::new("stored").args(["event", "job", "state"]).multiple(true))]
pub struct Replay {
    /// The event whose held and dead jobs are put back: its id, or its beginning
    #[arg(value_name = "EVENT", value_parser = event, conflicts_with_all = ["job", "many", "yes", "reason", "new_key", "dry_run", "event_type"])]
    pub event: Option<EventId>,
    /// The event's source, where several have an event of this id; with --since or --state only this source
    #[arg(long, value_name = "NAME", conflicts_with = "job")]
    pub source: Option<Name>,
    /// Only this handler's job, which may have succeeded, and is made if there is none
    #[arg(long, value_name = "NAME", conflicts_with = "job")]
    pub handler: Option<Name>,
    /// One job, which may have succeeded: its id, or its beginning
    #[arg(long, value_name = "JOB", value_parser = job, conflicts_with_all = ["many", "yes", "reason", "dry_run", "event_type"])]
    pub job: Option<String>,
    /// With --job: under a new idempotency key, so that a handler that remembers the old one does not ignore it
    #[arg(long, requires = "job")]
    pub new_key: bool,
    /// With an event, --job or --state: also where a newer event has taken a job's place, or its
    /// handler's condition does not hold or cannot be decided
    #[arg(long, requires = "stored")]
    pub regardless: bool,
    /// All held (or dead) jobs that match the filters
    #[arg(long, value_name = "STATE", value_parser = stopped)]
    pub state: Option<State>,
    /// With --handler, make its missing jobs of all events since then that it wants; with --state, only jobs
    /// made since then: 2h, 3d, a date, or RFC 3339
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    /// With --since, only events of this type, written as in a handler's `events`; with --state, exactly or with *
    #[arg(long = "type", value_name = "TYPE", requires = "many")]
    pub event_type: Option<String>,
    /// With --state, only what is held or dead for this reason
    #[arg(long, value_name = "REASON", requires = "state", value_parser = reason)]
    pub reason: Option<String>,
    /// With --since or --state, change nothing and say how many it would be
    #[arg(long, requires = "many")]
    pub dry_run: bool,
    /// With --state, do not ask
    #[arg(long, requires = "state")]
    pub yes: bool,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch resolve`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("how").args(["succeeded", "failed"]).required(true))]
pub struct Resolve {
    /// The held job: its id, or its beginning
    #[arg(value_name = "JOB", value_parser = job)]
    pub job: String,
    /// What it should do is done: it counts as succeeded
    #[arg(long)]
    pub succeeded: bool,
    /// It is not done: it becomes a dead letter, and where a caller waits for its answer, its key is free again
    #[arg(long)]
    pub failed: bool,
    /// With --succeeded, where a caller waits for the answer: the answer, as its command would print it; - reads
    /// standard input
    #[arg(long, value_name = "FILE", requires = "succeeded")]
    pub answer: Option<PathBuf>,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch cancel`
#[derive(Debug, Args)]
pub struct Cancel {
    /// The running job: its id, or its beginning
    #[arg(value_name = "JOB", value_parser = job)]
    pub job: String,
    /// Return once its command is asked, and do not wait for its end
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch drop`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["job", "state"]).required(true))]
#[command(group = ArgGroup::new("filters").args(["handler", "source", "event_type", "reason", "since"])
    .multiple(true).requires("state"))]
pub struct Drop {
    /// The ready, waiting, held or dead job: its id, or its beginning
    #[arg(value_name = "JOB", value_parser = job, conflicts_with_all = ["filters", "dry_run", "yes"])]
    pub job: Option<String>,
    /// All held (or dead) jobs that match the filters
    #[arg(long, value_name = "STATE", value_parser = stopped)]
    pub state: Option<State>,
    #[command(flatten)]
    pub filter: Filter,
    /// With --state, change nothing and say how many it would be
    #[arg(long, requires = "state")]
    pub dry_run: bool,
    /// With --state, do not ask
    #[arg(long, requires = "state")]
    pub yes: bool,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch pause`
#[derive(Debug, Args)]
pub struct Pause {
    /// The handler; where not given, list those that are paused
    #[arg(value_name = "HANDLER")]
    pub handler: Option<Name>,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch resume`
#[derive(Debug, Args)]
pub struct Resume {
    /// The paused handler
    #[arg(value_name = "HANDLER")]
    pub handler: Name,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch reload`
#[derive(Debug, Args)]
pub struct Reload {
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// The file to be made; nothing may have its name
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// A file that `backup` has made, or the copy before a migration; it is not changed
    #[arg(value_name = "FILE")]
    pub from: PathBuf,
    /// Where there is a store, move it aside first; nothing of it is deleted
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch node lost`
#[derive(Debug, Args)]
pub struct NodeLost {
    /// The active node, as `node list` shows it
    #[arg(value_name = "NAME")]
    pub name: Name,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Also where it has a connection to the database, so that something of it runs
    #[arg(long)]
    pub connected: bool,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch store move`
#[derive(Debug, Args)]
pub struct StoreMove {
    /// The database's address, without a password
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// Where the password is: file:PATH, credential:NAME or env:NAME
    #[arg(long, value_name = "REFERENCE")]
    pub password_from: Option<String>,
    /// The authorities that sign the server's certificate, in place of the machine's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Done means that a standby has it too
    #[arg(long)]
    pub require_synchronous_standby: bool,
    #[command(flatten)]
    pub options: Options,
}
