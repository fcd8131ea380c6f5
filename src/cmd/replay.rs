//! `hooklatch replay`: the operator puts jobs back.

use crate::cli;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};
use crate::store::Replay;

use super::{output, store};

/// Puts jobs back to ready and prints which.
pub(super) fn run(args: &cli::Replay) -> Result<Exit, Failure> {
    let what = match (args.job, &args.event) {
        (Some(job), _) => Replay::Job(job),
        (None, Some(event)) => Replay::Event {
            source: args.source.clone(),
            event: event.clone(),
            handler: args.handler.clone(),
        },
        (None, None) => return Err(Failure::new(Exit::Usage, "name an EVENT or --job JOB")),
    };
    match store::ask(&args.file.config, Request::Replay(what))? {
        Reply::Replay(jobs) if jobs.is_empty() => {
            return Err(Failure::new(Exit::WrongState, "no job of this event is held or dead")
                .help("one that succeeded runs again only if it is named: --job JOB (hooklatch jobs lists them)"));
        }
        Reply::Replay(jobs) if args.format.json => {
            output::json(&serde_json::json!({ "replayed": jobs }))?;
        }
        Reply::Replay(jobs) => {
            for job in jobs {
                output::line(format_args!("job {job} is ready again"))?;
            }
        }
        other => return Err(store::unexpected(&other)),
    }
    Ok(Exit::Ok)
}
