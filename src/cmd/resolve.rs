//! `hooklatch resolve`: the operator says how a held job ended, and what its caller is answered.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::json;

use crate::admin::ResolveJob;
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::limits::Unit;
use crate::model::Answer;
use crate::store::Resolution;

use super::{ids, output, store};

/// Settles a held job and prints its state.
pub(super) fn run(args: &cli::Resolve) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    // Before the answer is read, which may take as long as a person types: what is resolved is the attempt
    // that there was when the command was given.
    let seen = store::with_client(&config, async |client| ids::job(client, &args.job).await)?;
    // The command line has exactly one of the two, and an answer with the first alone.
    let how = match &args.answer {
        Some(file) => Resolution::Answered(read(file, config.limits().answer_whole_bytes)?),
        None if args.succeeded => Resolution::Succeeded,
        None => Resolution::Failed,
    };
    let (job, attempt) = (seen.job, seen.attempt);
    let resolved = store::ask_of(&config, ResolveJob { job, attempt, how });
    let resolved = resolved.map_err(|failure| match failure.exit {
        Exit::WrongState => failure.help("those that can be resolved: hooklatch jobs --state held"),
        _ => failure,
    })?;
    let state = resolved.state;
    let json = json!({ "job": job, "state": state });
    output::answer(&args.format, json, format_args!("job {job} is {state}"))
}

/// The answer in a file, or from standard input; never a part of it.
fn read(file: &Path, most: u64) -> Result<Answer, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Io, format!("failed to read {}: {error}", file.display()))
    };
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(most + 1).read_to_end(&mut bytes),
        false => File::open(file).and_then(|file| file.take(most + 1).read_to_end(&mut bytes)),
    };
    read.map_err(failed)?;
    if bytes.len() as u64 > most {
        let most = Unit::Bytes.show(most);
        let message = format!("{} is longer than an answer may be ({most})", file.display());
        return Err(
            Failure::new(Exit::WrongState, message).help("limits.answer_whole_bytes is the limit")
        );
    }
    Answer::printed(&bytes.into(), 200).map_err(|wrong| {
        let message = format!("{} is not an answer: {wrong}", file.display());
        Failure::new(Exit::WrongState, message).help(
            "an answer is a body, behind header lines where it begins with 'Status: 201' or 'Content-Type: ...'",
        )
    })
}
