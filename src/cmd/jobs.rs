//! `hooklatch jobs`: one line per event and handler.

use comfy_table::Cell;

use crate::cli;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};
use crate::model::State;
use crate::store::{JobFilter, JobRow};

use super::output::{self, local, outside, state_cell};
use super::store;

/// Lists jobs.
pub(super) fn run(args: &cli::Jobs) -> Result<Exit, Failure> {
    let filter = JobFilter {
        state: args.state,
        handler: args.handler.clone(),
        source: args.source.clone(),
        limit: Some(args.limit),
    };
    match store::ask(&args.file.config, Request::Jobs(filter))? {
        Reply::Jobs(rows) if args.format.json => output::json(&rows)?,
        Reply::Jobs(rows) => listing(&rows)?,
        other => return Err(store::unexpected(&other)),
    }
    Ok(Exit::Ok)
}

fn listing(rows: &[JobRow]) -> Result<(), Failure> {
    let row = |job: &JobRow| {
        vec![
            Cell::new(job.job),
            Cell::new(&job.handler),
            state_cell(job.state),
            Cell::new(why(job)),
            Cell::new(job.attempt),
            Cell::new(&job.source),
            outside(&job.event_type),
            outside(job.event_id.as_str()),
            Cell::new(local(job.created_at)),
        ]
    };
    let head = ["JOB", "HANDLER", "STATE", "WHY", "ATTEMPTS", "SOURCE", "TYPE", "EVENT", "CREATED"];
    output::table(&head, rows.iter().map(row).collect(), "no jobs")
}

/// A job's state, with the reason where it has one: `held: cancelled`.
pub(super) fn state(job: &JobRow) -> String {
    match why(job) {
        why if why.is_empty() => job.state.to_string(),
        why => format!("{}: {why}", job.state),
    }
}

/// The reason of a job's state, or what it waits for.
fn why(job: &JobRow) -> String {
    let claimable = matches!(job.state, State::Ready | State::Waiting);
    match (&job.reason, job.due_at) {
        (Some(reason), _) => reason.clone(),
        (None, _) if claimable && job.paused => "handler paused".to_owned(),
        (None, Some(due_at)) => format!("due {}", local(due_at)),
        (None, None) => String::new(),
    }
}
