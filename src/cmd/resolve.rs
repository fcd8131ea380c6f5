//! `hooklatch resolve`: settles a held job as succeeded or failed, with the answer for its caller.

use std::path::Path;

use serde_json::json;

use crate::admin::ResolveJob;
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::model::Answer;
use crate::store::Resolution;

use super::{ids, input, output, store};

/// Settles a held job and prints its state.
pub(super) fn run(args: &cli::Resolve) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    // Looked up before the answer is read, which may take as long as a person types: the command resolves the
    // attempt that was the last when it began.
    let seen = store::with_client(&config, async |client| ids::job(client, &args.job).await)?;
    // The command line has exactly one of the two, and an answer with the first alone.
    let how = match &args.answer {
        Some(file) => Resolution::Answered(read(file, config.limits().answer_whole_bytes)?),
        None if args.succeeded => Resolution::Succeeded,
        None => Resolution::Failed,
    };
    let (job, attempt) = (seen.job, seen.attempt);
    let resolved = store::change(&config, &args.note, ResolveJob { job, attempt, how });
    let help = "those that can be resolved: hooklatch jobs --state held";
    let resolved = resolved.map_err(Failure::help_for(Exit::WrongState, help))?;
    let state = resolved.state;
    let json = json!({ "job": job, "state": state });
    output::answer(&args.options.format, json, format_args!("job {job} is {state}"))
}

fn read(file: &Path, most: u64) -> Result<Answer, Failure> {
    let help = "limits.answer_whole_bytes is the limit";
    let bytes = input::read(file, most).map_err(Failure::help_for(Exit::Usage, help))?;
    Answer::printed(&bytes.into(), 200).map_err(|wrong| {
        let message = format!("{} is not an answer: {wrong}", file.display());
        Exit::WrongState.failure(message).help(
            "an answer is a body, behind header lines where it begins with 'Status: 201' or 'Content-Type: ...'",
        )
    })
}
