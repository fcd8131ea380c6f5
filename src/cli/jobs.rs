//! Which jobs a command means: the filters that listings and bulk verbs share.

use clap::Args;

use super::{ConfigFile, Format, Since};
use crate::model::{DeadReason, DropReason, HeldReason, Name, State};

/// What jobs must have in common.
#[derive(Debug, Clone, Default, Args)]
pub struct Filter {
    /// Only jobs of this handler
    #[arg(long, value_name = "NAME")]
    pub handler: Option<Name>,
    /// Only jobs of this source's events
    #[arg(long, value_name = "NAME")]
    pub source: Option<Name>,
    /// Only jobs of events of this type, exactly or with * for any run of characters
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// Only jobs that are held, dead or dropped for this reason
    #[arg(long, value_name = "REASON", value_parser = reason)]
    pub reason: Option<String>,
    /// Only jobs made since then: 2h, 3d, a date, or RFC 3339
    #[arg(long, value_name = "TIME")]
    pub since: Option<Since>,
}

/// How much of a listing is printed, and how.
#[derive(Debug, Args)]
pub struct Listing {
    /// Most rows
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Shorten no column, however long the lines become
    #[arg(long)]
    pub wide: bool,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch jobs`
#[derive(Debug, Args)]
pub struct Jobs {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// Only jobs in this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<State>,
    /// Which of them
    #[command(flatten)]
    pub filter: Filter,
    /// How much of it, and how
    #[command(flatten)]
    pub listing: Listing,
}

/// `hooklatch held` and `hooklatch dead`
#[derive(Debug, Args)]
pub struct Stopped {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// Which of them
    #[command(flatten)]
    pub filter: Filter,
    /// How much of it, and how
    #[command(flatten)]
    pub listing: Listing,
}

/// One of the fixed reasons; a misspelt one would match nothing and look like good news.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let text = text.replace(['-', '_'], " ");
    let known = HeldReason::ALL.iter().map(|word| word.as_str());
    let known = known.chain(DeadReason::ALL.iter().map(|word| word.as_str()));
    let known: Vec<&str> = known.chain(DropReason::ALL.iter().map(|word| word.as_str())).collect();
    match known.contains(&text.as_str()) {
        true => Ok(text),
        false => Err(format!("must be one of: {}", known.join(", "))),
    }
}
