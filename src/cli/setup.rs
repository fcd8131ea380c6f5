//! What the operator types to set an endpoint up and to try it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};

use super::options::ConfigFile;
use super::{Format, Options};
use crate::model::{EventId, Name};

/// `hooklatch send`
#[derive(Debug, Args)]
pub struct Send {
    /// The source whose provider is played
    #[arg(value_name = "SOURCE")]
    pub source: Name,
    /// The event's type, both levels where the provider has two: pull_request.opened
    #[arg(value_name = "TYPE")]
    pub event_type: String,
    /// Send this file, byte for byte, instead of a sample
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// The event's id; a new one where not given
    #[arg(long, value_name = "ID")]
    pub id: Option<EventId>,
    /// Send it twice: the second must be answered as a duplicate
    #[arg(long)]
    pub duplicate: bool,
    /// Sign it with another secret: it must be refused
    #[arg(long, conflicts_with = "duplicate")]
    pub forge: bool,
    /// Sign an old time: it must be refused
    #[arg(long, conflicts_with_all = ["duplicate", "forge"])]
    pub stale: bool,
    /// Where the receiver listens, if not at server.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub to: Option<SocketAddr>,
    /// Send it to this URL, through DNS, TLS and the proxy
    #[arg(long, value_name = "URL", conflicts_with = "to")]
    pub url: Option<String>,
    /// How long to wait for the handlers
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    pub wait: Duration,
    /// Look at the answer only, not at what the handlers do
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
    #[command(flatten)]
    pub options: Options,
}

impl Send {
    /// One genuine delivery, whose handlers are not waited for.
    pub fn once(source: Name, event_type: String, config: &Path) -> Self {
        let file = ConfigFile { config: config.to_owned() };
        Send {
            source,
            event_type,
            body: None,
            id: None,
            duplicate: false,
            forge: false,
            stale: false,
            to: None,
            url: None,
            wait: Duration::ZERO,
            no_wait: true,
            options: Options { file, format: Format { json: false } },
        }
    }
}

/// `hooklatch doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Compare every stored payload with what was accepted, too
    #[arg(long)]
    pub deep: bool,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch register`
#[derive(Debug, Args)]
pub struct Register {
    /// The source
    #[arg(value_name = "SOURCE")]
    pub source: Name,
    /// How long to wait for the provider
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = humantime::parse_duration)]
    pub wait: Duration,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch try`
#[derive(Debug, Args)]
pub struct Try {
    /// The handler
    #[arg(value_name = "HANDLER")]
    pub handler: Name,
    /// A stored event: its id, or as many characters of its beginning as no other has
    #[arg(long, value_name = "ID", value_parser = super::options::event, required_unless_present = "body")]
    pub event: Option<EventId>,
    /// A file with the body, byte for byte; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "event")]
    pub body: Option<PathBuf>,
    /// The event's type, where the body does not say it
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "event")]
    pub event_type: Option<String>,
    /// A header of the delivery: "NAME: VALUE"; may be repeated
    #[arg(long = "header", value_name = "HEADER", conflicts_with = "event")]
    pub headers: Vec<String>,
    /// The source, where the handler has several, or several have an event of this id
    #[arg(long, value_name = "NAME")]
    pub source: Option<Name>,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch init`
#[derive(Debug, Args)]
pub struct Init {
    /// What the source is called; a provider's name says the provider too
    #[arg(long, value_name = "NAME")]
    pub source: Name,
    /// The provider: a built-in one, or the name of a file in providers/
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<Name>,
    /// The path of the URL; /hooks/NAME where not given
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// The folder of hooklatch.toml, instead of --config
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The URL at which the provider reaches the proxy: https://hooks.example.org
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Print the generated secret, even where standard output is not a terminal
    #[arg(long)]
    pub show_secret: bool,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch import`
#[derive(Debug, Subcommand)]
pub enum Import {
    /// The hooks of adnanh/webhook, in JSON or YAML
    #[command(after_help = "\
Writes a folder with hooklatch.toml, and for each hook a source with its secret and a handler with its \
condition. What restricts a hook and cannot be said here leaves that hook commented out; so does a rule \
without a signature or token, since nothing proves who calls such a hook. Exits with 1 if there is one. Changes no file \
that is there, and prints no secret.

Example:
  hooklatch import adnanh /etc/webhook.conf --out hooklatch")]
    Adnanh(ImportAdnanh),
}

/// `hooklatch import adnanh`
#[derive(Debug, Args)]
pub struct ImportAdnanh {
    /// The file that `webhook -hooks` reads
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The new folder
    #[arg(long, value_name = "DIR", default_value = "hooklatch")]
    pub out: PathBuf,
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch keys`
#[derive(Debug, Args)]
pub struct Keys {
    /// The source whose provider publishes its keys
    #[arg(value_name = "SOURCE")]
    pub source: Name,
    /// Fetch this key, at a host that the provider's file names
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch confirm`
#[derive(Debug, Args)]
pub struct Confirm {
    /// The source whose provider asks
    #[arg(value_name = "SOURCE")]
    pub source: Name,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub options: Options,
}
