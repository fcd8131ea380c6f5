//! `hooklatch drop`: takes jobs out, so that they never run again.

use serde_json::json;

use crate::admin::DropJob;
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::model::State;
use crate::store::Verb;

use super::bulk::{self, Bulk};
use super::{ids, jobs, output, store};

/// Drops a job and prints what it was.
pub(super) fn run(args: &cli::Drop) -> Result<Exit, Failure> {
    let Some(typed) = &args.job else { return many(args) };
    let config = store::load(&args.options)?;
    let (job, was) = store::with_client_noted(&config, &args.note, async |client| {
        let job = ids::job(client, typed).await?.job;
        let dropped = client.call(DropJob { job, attempt: None }).await.map_err(Failure::from);
        let help = "a ready, waiting, held or dead job can (hooklatch jobs); a running one after `hooklatch cancel`";
        Ok((job, dropped.map_err(Failure::help_for(Exit::WrongState, help))?.was))
    })?;
    let state = State::Dropped;
    let json = json!({ "job": job, "state": state, "was": was });
    output::answer(&args.options.format, json, format_args!("job {job} is {state}; it was {was}"))
}

/// Drops all jobs that match.
fn many(args: &cli::Drop) -> Result<Exit, Failure> {
    // The command line has a job or a state.
    let state = args.state.unwrap_or(State::Dead);
    let filter = jobs::filter(&args.filter, Some(state), None)?;
    let bulk = Bulk {
        verb: Verb::Drop,
        state,
        filter,
        regardless: false,
        dry_run: args.dry_run,
        yes: args.yes,
        note: &args.note,
        format: &args.options.format,
    };
    bulk::run(&store::load(&args.options)?, &bulk)
}
