//! `hooklatch drop`: the operator takes a job out.

use crate::cli;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};
use crate::model::State;

use super::{output, store};

/// Drops a job and prints what it was.
pub(super) fn run(args: &cli::Drop) -> Result<Exit, Failure> {
    let job = args.job;
    let was = match store::ask(&args.file.config, Request::Drop(job)) {
        Ok(Reply::Drop(was)) => was,
        Ok(other) => return Err(store::unexpected(&other)),
        Err(failure) if failure.exit == Exit::WrongState => {
            return Err(failure.help("a ready, waiting, held or dead job can (hooklatch jobs); a running one after `hooklatch cancel`"));
        }
        Err(failure) => return Err(failure),
    };
    let state = State::Dropped;
    if args.format.json {
        output::json(&serde_json::json!({ "job": job, "state": state, "was": was }))?;
    } else {
        output::line(format_args!("job {job} is {state}; it was {was}"))?;
    }
    Ok(Exit::Ok)
}
