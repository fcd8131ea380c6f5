//! What the operator types about deliveries that failed verification.

use clap::{ArgGroup, Args, Subcommand};

use super::{Listing, Note, Options, Since};
use crate::model::Name;
use crate::verify;

/// Which kept deliveries are meant.
#[derive(Debug, Clone, Default, Args)]
pub struct Kept {
    /// Only deliveries to this source
    #[arg(long, value_name = "NAME")]
    pub source: Option<Name>,
    /// Only deliveries that were refused for this reason
    #[arg(long, value_name = "REASON", value_parser = reason)]
    pub reason: Option<String>,
    /// Only deliveries that arrived since then: 2h, 3d, a date, or RFC 3339
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
}

/// A misspelt reason would match nothing and look like good news.
fn reason(text: &str) -> Result<String, String> {
    let text = text.replace([' ', '-'], "_");
    match verify::REASONS.contains(&text.as_str()) {
        true => Ok(text),
        false => Err(format!("must be one of: {}", verify::REASONS.join(", "))),
    }
}

/// `hooklatch quarantine`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Quarantine {
    /// What to do with them; without it they are listed
    #[command(subcommand)]
    pub command: Option<QuarantineCommand>,
    #[command(flatten)]
    pub which: Kept,
    #[command(flatten)]
    pub listing: Listing,
}

/// `hooklatch quarantine …`
#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// Verify each again with today's secrets, and say how many would be accepted; changes nothing
    #[command(after_help = "\
Each is judged at the time it arrived, so it has not become too old since. A running receiver judges with the \
secrets that it has.

Examples:
  hooklatch quarantine verify
  hooklatch quarantine verify --source github --since 3d")]
    Verify(VerifyAgain),

    /// Verify each again, and accept those that are genuine as if they came now
    #[command(after_help = "\
Each that verifies becomes an event with the jobs that today's handlers make of it, or is counted as a duplicate, \
and is then forgotten here. What still fails stays. Whatever was signed with a secret that the source has now is \
accepted: with a secret that leaked, that may be a forgery.

Examples:
  hooklatch quarantine accept --source github --yes
  hooklatch quarantine accept --since 3d --dry-run")]
    Accept(AcceptAgain),

    /// Forget failed deliveries: all, or those that match the filters
    #[command(after_help = "\
Examples:
  hooklatch quarantine drop --reason stale_timestamp --dry-run
  hooklatch quarantine drop --all --yes")]
    Drop(DropKept),
}

/// `hooklatch quarantine verify`
#[derive(Debug, Args)]
pub struct VerifyAgain {
    #[command(flatten)]
    pub which: Kept,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch quarantine accept`
#[derive(Debug, Args)]
pub struct AcceptAgain {
    /// Change nothing and say how many it would be: the same as `verify`
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub verify: VerifyAgain,
}

/// `hooklatch quarantine drop`
#[derive(Debug, Args)]
#[command(override_usage = "hooklatch quarantine drop [OPTIONS] --all
       hooklatch quarantine drop [OPTIONS] --source <NAME>
       hooklatch quarantine drop [OPTIONS] --reason <REASON>
       hooklatch quarantine drop [OPTIONS] --since <TIME>")]
#[command(group = ArgGroup::new("kept").args(["source", "reason", "since"]).multiple(true))]
#[command(group = ArgGroup::new("what").args(["all", "source", "reason", "since"]).multiple(true).required(true))]
pub struct DropKept {
    /// Every one
    #[arg(long, conflicts_with = "kept")]
    pub all: bool,
    #[command(flatten)]
    pub which: Kept,
    /// Change nothing and say how many it would be
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub note: Note,
    #[command(flatten)]
    pub options: Options,
}
