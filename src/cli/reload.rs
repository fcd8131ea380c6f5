//! What the operator types after a change of the configuration.

use clap::Args;

use super::{ConfigFile, Format};

/// `hooklatch reload`
#[derive(Debug, Args)]
pub struct Reload {
    /// Where the configuration is: of its files the running receiver reads those it was started with
    #[command(flatten)]
    pub file: ConfigFile,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}
