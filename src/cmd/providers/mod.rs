//! `hooklatch providers`: the providers that a source can name, what one is worth, and a test of a file.

mod list;
mod show;
mod test;
mod worth;

use crate::cli::{Providers, ProvidersCommand};
use crate::exit::{Exit, Failure};

/// Lists providers, shows one, or tests a file.
pub(super) fn run(args: &Providers) -> Result<Exit, Failure> {
    match &args.command {
        None => list::run(args),
        Some(ProvidersCommand::Show(args)) => show::run(args),
        Some(ProvidersCommand::Test(args)) => test::run(args),
    }
}
