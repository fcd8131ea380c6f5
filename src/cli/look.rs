//! What the operator types to look at jobs and at one event.

use clap::{Args, ValueEnum};

use super::{Filter, Listing, Options, Since};
use crate::model::{AuditVerb, EventId, Name, State};

/// `hooklatch jobs`
#[derive(Debug, Args)]
pub struct Jobs {
    /// Only jobs in this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<State>,
    #[command(flatten)]
    pub filter: Filter,
    #[command(flatten)]
    pub listing: Listing,
}

/// `hooklatch held` and `hooklatch dead`
#[derive(Debug, Args)]
pub struct Stopped {
    #[command(flatten)]
    pub filter: Filter,
    #[command(flatten)]
    pub listing: Listing,
}

/// `hooklatch audit`
#[derive(Debug, Args)]
pub struct Audit {
    /// Only changes of this kind
    #[arg(long, value_name = "VERB")]
    pub verb: Option<AuditVerb>,
    /// Only changes made since then: 2h, 3d, a date, or RFC 3339
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
    #[command(flatten)]
    pub listing: Listing,
}

/// `hooklatch explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// The event or one job of it: its id, or as many characters of its beginning as no other has
    #[arg(value_name = "EVENT|JOB", value_parser = super::options::event)]
    pub event: EventId,
    /// The source, where several have an event of this id
    #[arg(long, value_name = "NAME")]
    pub source: Option<Name>,
    #[command(flatten)]
    pub options: Options,
}

/// A half of the configuration: the two processes read it as different users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The sources and their secrets.
    Receiver,
    /// The commands and what their variables refer to.
    Runner,
}
