//! The options and filters that several commands share.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use super::Since;
use crate::model::{
    DEFAULT_CONFIG, DeadReason, DropReason, EventId, HeldReason, Name, config_option,
};
use crate::store::{BadBy, By};

/// Where the configuration is.
#[derive(Debug, Clone, Args)]
pub struct ConfigFile {
    /// The configuration file; conf.d/*.toml and providers/*.toml beside it are read too
    #[arg(long, short, value_name = "FILE", env = "HOOKLATCH_CONFIG", default_value = DEFAULT_CONFIG,
          value_parser = OsStringValueParser::new().map(or_default))]
    pub config: PathBuf,
}

/// An empty variable is as good as an unset one.
fn or_default(text: OsString) -> PathBuf {
    if text.is_empty() { DEFAULT_CONFIG.into() } else { text.into() }
}

/// How an answer is printed.
#[derive(Debug, Clone, Args)]
pub struct Format {
    /// Print JSON (times in UTC, one document) instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The options of almost every command.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub file: ConfigFile,
    #[command(flatten)]
    pub format: Format,
}

impl Options {
    /// The path of the configuration.
    pub fn config(&self) -> &Path {
        &self.file.config
    }

    /// Whether the answer is for a program.
    pub fn json(&self) -> bool {
        self.format.json
    }

    /// The `--config` option for a printed command, so that it finds the configuration of this run.
    pub fn suffix(&self) -> String {
        config_option(self.config())
    }
}

/// What a command that changes something says of it.
#[derive(Debug, Default, Args)]
pub struct Note {
    /// Why, for the audit list: at most 500 bytes
    #[arg(long, value_name = "TEXT", value_parser = note)]
    pub note: Option<String>,
}

fn note(text: &str) -> Result<String, BadBy> {
    let by = By { reason: Some(text.to_owned()), ..By::default() };
    by.check().map(|()| text.to_owned())
}

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
    #[command(flatten)]
    pub options: Options,
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

/// An event's id, its beginning, or the sender's own id where that is not the event's.
#[expect(clippy::unnecessary_wraps, reason = "clap's form of a parser")]
pub(super) fn event(text: &str) -> Result<EventId, Infallible> {
    Ok(EventId::asked(text))
}

/// A job's id or its beginning.
pub(super) fn job(text: &str) -> Result<String, String> {
    match text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        true if !text.is_empty() => Ok(text.to_ascii_lowercase()),
        _ => Err(format!(
            "'{text}' does not begin a job id (they look like 0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b; `hooklatch jobs` lists them)"
        )),
    }
}
