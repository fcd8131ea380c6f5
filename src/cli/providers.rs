//! What the operator types about providers.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Format, Options};
use crate::model::Name;

/// `hooklatch providers`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Providers {
    /// What to do; without it they are listed
    #[command(subcommand)]
    pub command: Option<ProvidersCommand>,
    /// Only those with this text in their name or title
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch providers …`
#[derive(Debug, Subcommand)]
pub enum ProvidersCommand {
    /// Show how to set one up, and what its guarantees are worth
    #[command(after_help = "\
Prints the steps at the provider, the stanza for conf.d, who is proven, what a captured request can do when \
it is sent again, and how long the provider re-sends. `hooklatch init` writes the stanza and the secret.

Example:
  hooklatch providers show gitlab")]
    Show(ProvidersShow),

    /// Check a provider file, and run its vectors
    #[command(after_help = "\
Reports every mistake in the file. Then judges each vector of this provider: a request with the verdict that it \
must get (docs/providers.md, \"Vectors\"). Every accepted one is judged again with each byte of its signed \
content, signature, time and secret changed, and must be refused each time; of a body over 4 KiB some bytes \
are left as they are.

Exits with 0 if all is as expected, with 1 if not, and with 78 if the file is wrong.

Examples:
  hooklatch providers test providers/ferry.toml
  hooklatch providers test providers/ferry.toml --vectors ferry.jsonl")]
    Test(ProvidersTest),
}

/// `hooklatch providers show`
#[derive(Debug, Args)]
pub struct ProvidersShow {
    /// The provider: a built-in one, or the name of a file in providers/
    #[arg(value_name = "NAME")]
    pub name: Name,
    #[command(flatten)]
    pub options: Options,
}

/// `hooklatch providers test`
#[derive(Debug, Args)]
pub struct ProvidersTest {
    /// The provider file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Its vectors, if not the file that its `vectors` names
    #[arg(long, value_name = "FILE")]
    pub vectors: Option<PathBuf>,
    #[command(flatten)]
    pub format: Format,
}
