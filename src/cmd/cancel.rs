//! `hooklatch cancel`: the operator ends a running command.

use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::admin::{CancelJob, StoreClient};
use crate::cli;
use crate::config::{Config, Handler};
use crate::exit::{Exit, Failure};
use crate::limits::Limits;
use crate::model::{JobId, State};
use crate::store::JobRow;

use super::{ids, jobs, output, store};

/// The time between two looks at the job.
const POLL: Duration = Duration::from_millis(100);

/// Added to the grace: time for the runner to read the rest of the output, and for the receiver to commit.
const SLACK: Duration = Duration::from_secs(10);

/// Asks the command to end, waits until it has, and prints what became of the job.
pub(super) fn run(args: &cli::Cancel) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    store::with_client_noted(&config, &args.note, async |client| {
        let job = ids::job(client, &args.job).await?.job;
        let attempt = ask(client, args, job).await?;
        if args.no_wait {
            let json = json!({ "job": job, "attempt": attempt, "state": State::Running });
            let text = format!("job {job} is asked to end; it runs attempt {attempt}");
            return output::answer(&args.options.format, json, text);
        }
        ended(args, attempt, until_ended(client, &config, job, attempt).await?)
    })
}

async fn ask(client: &StoreClient, args: &cli::Cancel, job: JobId) -> Result<u32, Failure> {
    let failure = match client.call(CancelJob { job, attempt: None }).await.map_err(Failure::from) {
        Ok(cancelled) => return Ok(cancelled.attempt),
        Err(failure) => failure,
    };
    Err(match failure.exit {
        Exit::WrongState => failure.help(match store::job(client, job).await?.state {
            State::Running => "the handler's `timeout` ends it".to_owned(),
            State::Ready | State::Waiting => {
                format!("to keep it from running: hooklatch drop {job}")
            }
            _ => "only a running job can: hooklatch jobs --state running".to_owned(),
        }),
        Exit::Unavailable if matches!(client, StoreClient::Local(..)) => {
            failure.help(format!("hooklatch serve{}, then cancel again", args.options.suffix()))
        }
        _ => failure,
    })
}

/// Looks at the job until it no longer runs this attempt.
async fn until_ended(
    client: &StoreClient,
    config: &Config,
    job: JobId,
    attempt: u32,
) -> Result<JobRow, Failure> {
    let mut row = store::job(client, job).await?;
    let usual = Limits::duration(config.limits().command_grace_millis);
    let grace = config
        .handler(&row.handler)
        .and_then(Handler::command)
        .map_or(usual, |command| command.grace);
    let ended = timeout(grace + SLACK, async {
        while row.state == State::Running && row.attempt == attempt {
            sleep(POLL).await;
            row = store::job(client, job).await?;
        }
        Ok(row)
    });
    ended.await.unwrap_or_else(|_late| {
        let waited = humantime::format_duration(grace + SLACK);
        let message = format!("job {job} was asked to end and still runs after {waited}");
        Err(Exit::Unavailable.failure(message).help(
            "the log of the receiver and of the runner may say why: hooklatch jobs --state running",
        ))
    })
}

/// Prints how the job ended. It may have ended in another way before the request reached it; a job that will run
/// again was not cancelled.
fn ended(args: &cli::Cancel, attempt: u32, row: JobRow) -> Result<Exit, Failure> {
    let (job, state) = (row.job, jobs::state(&row));
    if matches!(row.state, State::Ready | State::Waiting | State::Running) {
        let message =
            format!("attempt {attempt} of job {job} ended otherwise first; it is {state}");
        return Err(Exit::WrongState
            .failure(message)
            .help(format!("hooklatch drop {job}, or cancel again where it runs")));
    }
    let (reached, reason) = (row.state, &row.reason);
    let json = json!({ "job": job, "attempt": attempt, "state": reached, "reason": reason });
    output::answer(&args.options.format, json, format_args!("job {job} is {state}"))
}
