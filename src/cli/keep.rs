//! What the operator types to keep a store safe.

use std::path::PathBuf;

use clap::Args;

use super::{ConfigFile, Format};

/// `hooklatch backup`
#[derive(Debug, Args)]
pub struct Backup {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// The file to be made; nothing may have its name
    #[arg(value_name = "FILE")]
    pub to: PathBuf,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}

/// `hooklatch restore`
#[derive(Debug, Args)]
pub struct Restore {
    /// Where the configuration is
    #[command(flatten)]
    pub file: ConfigFile,
    /// A file that `backup` has made, or the copy before a migration; it is not changed
    #[arg(value_name = "FILE")]
    pub from: PathBuf,
    /// Where there is a store, move it aside first; nothing of it is deleted
    #[arg(long)]
    pub replace: bool,
    /// How it is printed
    #[command(flatten)]
    pub format: Format,
}
