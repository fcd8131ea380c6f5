//! `hooklatch resolve`: the operator says how a held job ended, and what its caller is answered.

use std::io::Read;
use std::path::Path;

use crate::cli;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};
use crate::limits;
use crate::model::Answer;
use crate::store::Resolution;

use super::{output, store};

/// Settles a held job and prints its state.
pub(super) fn run(args: &cli::Resolve) -> Result<Exit, Failure> {
    // The command line has exactly one of the two, and an answer with the first alone.
    let how = match &args.answer {
        Some(file) => Resolution::Answered(read(file)?),
        None if args.succeeded => Resolution::Succeeded,
        None => Resolution::Failed,
    };
    let job = args.job;
    let state = match store::ask(&args.file.config, Request::Resolve { job, how }) {
        Ok(Reply::Resolve(state)) => state,
        Ok(other) => return Err(store::unexpected(&other)),
        Err(failure) if failure.exit == Exit::WrongState => {
            return Err(failure.help("those that can be resolved: hooklatch jobs --state held"));
        }
        Err(failure) => return Err(failure),
    };
    if args.format.json {
        output::json(&serde_json::json!({ "job": job, "state": state }))?;
    } else {
        output::line(format_args!("job {job} is {state}"))?;
    }
    Ok(Exit::Ok)
}

/// The answer in a file, or from standard input.
fn read(file: &Path) -> Result<Answer, Failure> {
    // No more than any store takes; this one's own limit is its receiver's to know.
    let most = limits::limit("answer_whole_bytes").map_or(0, |limit| *limit.range.end());
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Io, format!("failed to read {}: {error}", file.display()))
    };
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    read.map_err(failed)?;
    Answer::printed(&bytes.into(), 200).map_err(|wrong| {
        Failure::new(Exit::WrongState, format!("{} is no answer: {wrong}", file.display()))
            .help("it begins with 'Status: 201' or 'Content-Type: ...' and an empty line ends that, or it is the body alone")
    })
}
