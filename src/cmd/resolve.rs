//! `hooklatch resolve`: the operator says how a held job ended.

use crate::cli;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};
use crate::store::Resolution;

use super::{output, store};

/// Settles a held job and prints its state.
pub(super) fn run(args: &cli::Resolve) -> Result<Exit, Failure> {
    // The command line has exactly one of the two.
    let how = if args.succeeded { Resolution::Succeeded } else { Resolution::Failed };
    let job = args.job;
    let state = match store::ask(&args.file.config, Request::Resolve { job, how }) {
        Ok(Reply::Resolve(state)) => state,
        Ok(other) => return Err(store::unexpected(&other)),
        Err(failure) if failure.exit == Exit::WrongState => {
            return Err(failure.help("only a held job can: hooklatch jobs --state held"));
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
