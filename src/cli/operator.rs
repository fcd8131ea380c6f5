//! What the operator types to change jobs and handlers.

use clap::{ArgGroup, Args};

use super::{ConfigFile, Format, Since};
use crate::model::{EventId, JobId, Name};

/// `hooklatch replay`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["event", "job", "since"]).required(true))]
pub struct Replay {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// The event whose held and dead jobs are put back
    #[arg(value_name = "EVENT")]
    pub event: Option<EventId>,
    /// The event's source, where several have an event of this id; with --since only this source
    #[arg(long, value_name = "NAME", conflicts_with = "job")]
    pub source: Option<Name>,
    /// Only this handler's job, which may have succeeded, and is made if there is none
    #[arg(long, value_name = "NAME", conflicts_with = "job")]
    pub handler: Option<Name>,
    /// One job, which may have succeeded
    #[arg(long, value_name = "JOB")]
    pub job: Option<JobId>,
    /// Make the handler's missing jobs of all stored events since then that it wants: 2h, 3d, a date, or RFC 3339
    #[arg(long, value_name = "TIME", requires = "handler")]
    pub since: Option<Since>,
    /// With --since, only events of this type, written as in a handler's `events`
    #[arg(long = "type", value_name = "TYPE", requires = "since")]
    pub event_type: Option<String>,
    /// With --since, make nothing and say how many it would be
    #[arg(long, requires = "since")]
    pub dry_run: bool,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch resolve`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("how").args(["succeeded", "failed"]).required(true))]
pub struct Resolve {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// The held job
    #[arg(value_name = "JOB")]
    pub job: JobId,
    /// What it should do is done: it counts as succeeded
    #[arg(long)]
    pub succeeded: bool,
    /// It is not done: it becomes a dead letter
    #[arg(long)]
    pub failed: bool,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch cancel`
#[derive(Debug, Args)]
pub struct Cancel {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// The running job
    #[arg(value_name = "JOB")]
    pub job: JobId,
    /// Return once its command is asked, and do not wait for its end
    #[arg(long)]
    pub no_wait: bool,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch drop`
#[derive(Debug, Args)]
pub struct Drop {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// The ready, waiting, held or dead job
    #[arg(value_name = "JOB")]
    pub job: JobId,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch pause`
#[derive(Debug, Args)]
pub struct Pause {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// The handler; where not given, list those that are paused
    #[arg(value_name = "HANDLER")]
    pub handler: Option<Name>,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch resume`
#[derive(Debug, Args)]
pub struct Resume {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// The paused handler
    #[arg(value_name = "HANDLER")]
    pub handler: Name,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}
