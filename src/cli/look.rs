//! What the operator types to look at the whole.

use clap::Args;

use super::{ConfigFile, Format};

/// `hooklatch status`
#[derive(Debug, Args)]
pub struct Status {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}
