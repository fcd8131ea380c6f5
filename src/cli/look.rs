//! What the operator types to look at the whole.

use clap::{Args, ValueEnum};

use super::{ConfigFile, Format};
use crate::model::{EventId, Name};

/// `hooklatch status`, `doctor`, `config show` and `reload`
#[derive(Debug, Args)]
pub struct Overview {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// The event or one job of it: its id, or as many characters of its beginning as no other has
    #[arg(value_name = "EVENT|JOB")]
    pub event: EventId,
    /// The source, where several have an event of this id
    #[arg(long, value_name = "NAME")]
    pub source: Option<Name>,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// A half of the configuration: the two processes read it as different users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The sources and their secrets.
    Receiver,
    /// The commands and what their variables refer to.
    Runner,
}
