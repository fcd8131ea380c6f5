//! Writes the manual pages, the shell completions and the licences: `cargo run --example pages FOLDER`.
//!
//! Only the package needs them. It is an example so that its dependencies are not in the product's binary.

mod commands;
mod configuration;
mod copyright;
mod pages;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        return said("usage: pages FOLDER");
    };
    match pages::write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => said(&format!("failed to write {}: {error}", Path::new(&folder).display())),
    }
}

#[allow(clippy::print_stderr, reason = "a tool of the build says why it fails")]
fn said(what: &str) -> ExitCode {
    eprintln!("pages: {what}");
    ExitCode::FAILURE
}
