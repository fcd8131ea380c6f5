//! Writes the files of the package that are generated from the sources: `man/`, `completions/` and
//! `copyright` in one folder.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use hooklatch::cli::Cli;

use super::{commands, configuration, copyright};

/// The document that describes every key and that a test compares with the code.
const CONFIGURATION: &str = include_str!("../../docs/configuration.md");

/// Writes all files; creates `folder` if it does not exist.
pub(crate) fn write(folder: &Path) -> io::Result<()> {
    let man = folder.join("man");
    fs::create_dir_all(&man)?;
    for (name, text) in commands::pages(Cli::command()) {
        fs::write(man.join(format!("{name}.1")), text)?;
    }
    fs::write(man.join("hooklatch.toml.5"), configuration::page(CONFIGURATION))?;

    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut command = Cli::command();
        clap_complete::generate_to(shell, &mut command, "hooklatch", &completions)?;
    }
    fs::write(folder.join("copyright"), copyright::text(include_str!("../../LICENSE"))?)
}
