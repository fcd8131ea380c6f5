//! `hooklatch replay`: puts jobs back, or makes the missing jobs of stored events.

use serde_json::json;

use crate::admin::{ReplayEvent, ReplayJob, StoreClient};
use crate::cli;
use crate::clock::Clock;
use crate::config;
use crate::exit::{Exit, Failure};
use crate::model::{JobId, Name, State};
use crate::store::{Backfill, BackfillResult, IdKind, Replayed, Verb};

use super::bulk::{self, Bulk};
use super::{ids, jobs, output, store};

/// Puts jobs back to ready and prints which; with `--since` makes the missing ones and counts them.
pub(super) fn run(args: &cli::Replay) -> Result<Exit, Failure> {
    if let Some(state) = args.state {
        return many(args, state);
    }
    if let (None, None, Some(since), Some(handler)) =
        (&args.job, &args.event, args.since, &args.handler)
    {
        return missing(args, since, handler);
    }
    let config = store::load(&args.options)?;
    let (replaced, replayed) =
        store::with_client_noted(&config, &args.note, async |client| replay(client, args).await)?;
    let Replayed { jobs, dropped } = replayed;
    if jobs.is_empty() && dropped.is_empty() {
        return Err(Exit::WrongState.failure("no job of this event is held or dead")
            .help("one that succeeded runs again only if it is named: --job JOB (hooklatch jobs lists them); --handler NAME makes one that there was not"));
    }
    let mut json = json!({ "replayed": jobs, "dropped": dropped });
    if replaced.is_some() {
        json["replaced"] = json!(replaced);
    }
    let key = replaced.map(|key| format!("; its key was {key}")).unwrap_or_default();
    let ready = jobs.iter().map(|job| format!("job {job} is ready again{key}"));
    let unwanted = dropped.iter().map(|job| {
        format!(
            "job {job} is dropped: its handler's condition does not hold (--regardless runs it)"
        )
    });
    let lines: Vec<_> = ready.chain(unwanted).collect();
    output::answer(&args.options.format, json, lines.join("\n"))
}

/// Puts back the one job, or the event's. Returns the key that was replaced, and what became of the jobs.
async fn replay(
    client: &StoreClient,
    args: &cli::Replay,
) -> Result<(Option<JobId>, Replayed), Failure> {
    if let Some(typed) = &args.job {
        let job = ids::job(client, typed).await?.job;
        let (new_key, regardless) = (args.new_key, args.regardless);
        let replayed = client.call(ReplayJob { job, new_key, attempt: None, regardless }).await?;
        return Ok((new_key.then_some(job), replayed));
    }
    let Some(typed) = &args.event else {
        return Err(Exit::Usage.failure(
            "name an EVENT, --job JOB, --state STATE, or --handler NAME with --since TIME",
        ));
    };
    let (source, handler) = (args.source.clone(), args.handler.clone());
    let event = ids::target(client, IdKind::Event, source.as_ref(), typed).await?.event;
    let regardless = args.regardless;
    Ok((None, client.call(ReplayEvent { event, source, handler, regardless }).await?))
}

/// Puts back all jobs that match.
fn many(args: &cli::Replay, state: State) -> Result<Exit, Failure> {
    let typed = cli::Filter {
        handler: args.handler.clone(),
        source: args.source.clone(),
        event_type: args.event_type.clone(),
        reason: args.reason.clone(),
        since: args.since,
    };
    let bulk = Bulk {
        verb: Verb::Replay,
        state,
        filter: jobs::filter(&typed, Some(state), None)?,
        regardless: args.regardless,
        dry_run: args.dry_run,
        yes: args.yes,
        note: &args.note,
        format: &args.options.format,
    };
    bulk::run(&store::load(&args.options)?, &bulk)
}

/// Walks over the stored events batch by batch. Jobs that were made stay if it breaks off, and the same command
/// then goes on.
fn missing(args: &cli::Replay, since: cli::Since, handler: &Name) -> Result<Exit, Failure> {
    let since = jobs::since(Some(since))?.unwrap_or_else(|| Clock::system().now());
    let config = config::load(args.options.config())?;
    let source = args.source.as_ref();
    let known = config.handler(handler).ok_or_else(|| store::no_handler(&config, handler))?;
    if let Some(source) = source {
        store::need_taken(known, source)?;
    }
    let wanted = config.wanted_by(known, source, args.event_type.as_deref());
    let dry_run = args.dry_run;
    let mut missing = Backfill { handler: handler.clone(), since, wanted, dry_run, from: None };
    let mut total = BackfillResult::default();
    let walked = store::with_client_noted(&config, &args.note, async |client| {
        loop {
            let made = client.call(missing.clone()).await?;
            total.made += made.made;
            total.held += made.held;
            total.present += made.present;
            total.payload_gone += made.payload_gone;
            total.unwanted += made.unwanted;
            total.superseded += made.superseded;
            match made.next {
                None => return Ok(()),
                next => missing.from = next,
            }
        }
    });
    walked.map_err(|failure| match total.made {
        0 => failure,
        made if args.dry_run => failure.help(format!("{made} were counted before")),
        made => {
            let jobs = output::count(made, "job");
            failure.help(format!("made {jobs} before this; the same command goes on"))
        }
    })?;
    report(&total, args, handler)
}

fn report(total: &BackfillResult, args: &cli::Replay, handler: &Name) -> Result<Exit, Failure> {
    let BackfillResult { made, held, present, payload_gone, unwanted, superseded, .. } = total;
    let json = json!({
        "handler": handler,
        "dry_run": args.dry_run,
        "made": made,
        "held": held,
        "present": present,
        "payload_gone": payload_gone,
        "unwanted": unwanted,
        "superseded": superseded,
    });
    let verb = if args.dry_run { "would make" } else { "made" };
    let jobs = output::count(*made, "job");
    let mut lines = vec![format!("{verb} {jobs} of handler {handler}")];
    if *held > 0 {
        lines
            .push(format!("of those {held} held: suspected replay, reused id or condition failed"));
    }
    let left = [
        (*present, "left alone: {} with a job of this handler already"),
        (*payload_gone, "skipped: {} without a payload, which retention deleted"),
        (*unwanted, "skipped: {} for which its condition does not hold"),
        (*superseded, "skipped: {} in whose group a newer one has run or is to run"),
    ];
    for (events, text) in left.into_iter().filter(|(events, _)| *events > 0) {
        lines.push(text.replace("{}", &output::count(events, "event")));
    }
    output::answer(&args.options.format, json, lines.join("\n"))
}
