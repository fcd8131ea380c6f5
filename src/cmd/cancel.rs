//! `hooklatch cancel`: the operator ends a running command.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::admin::{CancelJob, CancelledAttempt, StoreClient};
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

/// What happens to an attempt of another node.
const BY_NODE: &str = "which ends it as soon as its receiver reaches the database";

/// Asks the command to end, waits until it has, and prints what became of the job.
pub(super) fn run(args: &cli::Cancel) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    store::with_client_noted(&config, &args.note, async |client| {
        let job = ids::job(client, &args.job).await?.job;
        let asked = ask(client, &config, args, job).await?;
        if args.no_wait {
            let attempt = asked.attempt;
            let text = match &asked.node {
                None => format!("job {job} is asked to end; it runs attempt {attempt}"),
                Some(node) => format!(
                    "job {job} is asked to end; it runs attempt {attempt} on node {node}, {BY_NODE}"
                ),
            };
            let json = json!({ "job": job, "attempt": attempt, "state": State::Running });
            return output::answer(&args.options.format, of_node(json, &asked), text);
        }
        let row = until_ended(client, &config, args, job, &asked).await?;
        ended(args, &asked, row)
    })
}

/// Adds the other node that runs the attempt.
fn of_node(mut json: Value, asked: &CancelledAttempt) -> Value {
    if let Some(node) = &asked.node {
        json["node"] = json!(node);
    }
    json
}

async fn ask(
    client: &StoreClient,
    config: &Config,
    args: &cli::Cancel,
    job: JobId,
) -> Result<CancelledAttempt, Failure> {
    let failure = match client.call(CancelJob { job, attempt: None }).await.map_err(Failure::from) {
        Ok(cancelled) => return Ok(cancelled),
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
        // Without a receiver here, another node can be asked through its database.
        Exit::Unavailable if matches!(client, StoreClient::Local(..)) && !config.has_database() => {
            failure.help(format!("hooklatch serve{}, then cancel again", args.options.suffix()))
        }
        _ => failure,
    })
}

/// Looks at the job until it no longer runs this attempt.
async fn until_ended(
    client: &StoreClient,
    config: &Config,
    args: &cli::Cancel,
    job: JobId,
    asked: &CancelledAttempt,
) -> Result<JobRow, Failure> {
    let mut row = store::job(client, job).await?;
    let usual = Limits::duration(config.limits().command_grace_millis);
    let grace = config
        .handler(&row.handler)
        .and_then(Handler::command)
        .map_or(usual, |command| command.grace);
    let ended = timeout(grace + SLACK, async {
        while row.state == State::Running && row.attempt == asked.attempt {
            sleep(POLL).await;
            row = store::job(client, job).await?;
        }
        Ok(row)
    });
    ended.await.unwrap_or_else(|_late| {
        let waited = humantime::format_duration(grace + SLACK);
        let Some(node) = &asked.node else {
            let message = format!("job {job} was asked to end and still runs after {waited}");
            return Err(Exit::Unavailable.failure(message).help(
                "the log of the receiver and of the runner may say why: hooklatch jobs --state running",
            ));
        };
        let message =
            format!("job {job} was asked to end and still runs on node {node} after {waited}");
        let help = format!(
            "the request stays in the database for the node, {BY_NODE}: hooklatch node list{}",
            args.options.suffix()
        );
        Err(Exit::Unavailable.failure(message).help(help))
    })
}

/// Prints how the job ended. It may have ended in another way before the request reached it; a job that will run
/// again was not cancelled.
fn ended(args: &cli::Cancel, asked: &CancelledAttempt, row: JobRow) -> Result<Exit, Failure> {
    let (job, state, attempt) = (row.job, jobs::state(&row), asked.attempt);
    if matches!(row.state, State::Ready | State::Waiting | State::Running) {
        let message =
            format!("attempt {attempt} of job {job} ended otherwise first; it is {state}");
        return Err(Exit::WrongState
            .failure(message)
            .help(format!("hooklatch drop {job}, or cancel again where it runs")));
    }
    let (reached, reason) = (row.state, &row.reason);
    let json = json!({ "job": job, "attempt": attempt, "state": reached, "reason": reason });
    let text = format_args!("job {job} is {state}");
    output::answer(&args.options.format, of_node(json, asked), text)
}
