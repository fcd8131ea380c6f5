//! `replay --state` and `drop --state`: many jobs at once, counted and confirmed first.
//!
//! The store is closed while the operator decides: a stopped store would stay locked, and a receiver does not
//! wait for so long. The request then names the counted jobs one by one, and the store skips those that have
//! changed since.

use std::collections::BTreeMap;

use serde_json::json;

use crate::admin::StoreClient;
use crate::cli;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::limits::BATCH_JOBS;
use crate::model::{JobId, Name, State};
use crate::store::{BatchResult, JobBatch, JobFilter, JobSelection, SelectedJobs, Verb};

use super::{confirm, output, progress, store};

/// The typed command.
pub(super) struct Bulk<'a> {
    pub(super) verb: Verb,
    /// Held or dead, which is in the filter too.
    pub(super) state: State,
    pub(super) filter: JobFilter,
    pub(super) regardless: bool,
    pub(super) dry_run: bool,
    pub(super) yes: bool,
    pub(super) note: &'a cli::Note,
    pub(super) format: &'a cli::Format,
}

/// The jobs to move, as they were counted.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) jobs: Vec<(JobId, u32)>,
    handlers: BTreeMap<Name, u64>,
    pub(super) suspected: u64,
    pub(super) answered: u64,
}

/// Counts, asks, and does it batch by batch.
pub(super) fn run(config: &Config, bulk: &Bulk<'_>) -> Result<Exit, Failure> {
    let asks = !bulk.dry_run && !bulk.yes;
    if asks {
        confirm::need_terminal()?;
    }
    let counted = store::with_client(config, async |client| {
        let ask = async |selection| Ok(client.call(selection).await?);
        count(&bulk.filter, bulk.verb, usize::MAX, ask).await
    })?;
    if bulk.dry_run || counted.jobs.is_empty() {
        return report(bulk, &counted, &BatchResult::default());
    }
    if asks && !confirm::confirmed(&question(bulk, &counted))? {
        return Ok(confirm::declined());
    }
    let mut moved = BatchResult::default();
    let walked = store::with_client_noted(config, bulk.note, async |client| {
        go(client, bulk, &counted, &mut moved).await
    });
    walked.map_err(|failure| {
        let (done, verb) = (moved.done.values().sum::<u64>(), words(bulk.verb).1);
        let jobs = output::count(counted.jobs.len() as u64, "job");
        failure.help(format!("{done} of {jobs} were {verb} and stay so; the same command goes on"))
    })?;
    report(bulk, &counted, &moved)
}

/// The jobs that the filter means now, oldest first: `most` of them at least, if there are as many.
pub(super) async fn count(
    filter: &JobFilter,
    verb: Verb,
    most: usize,
    ask: impl AsyncFn(JobSelection) -> Result<SelectedJobs, Failure>,
) -> Result<Counted, Failure> {
    let mut counted = Counted::default();
    let mut after = None;
    loop {
        let selected = ask(JobSelection { filter: filter.clone(), after, verb }).await?;
        for chosen in selected.jobs {
            *counted.handlers.entry(chosen.handler).or_default() += 1;
            counted.jobs.push((chosen.job, chosen.attempt));
        }
        counted.suspected += selected.suspected;
        counted.answered += selected.answered;
        after = selected.next;
        if after.is_none() || counted.jobs.len() >= most {
            return Ok(counted);
        }
    }
}

async fn go(
    client: &StoreClient,
    bulk: &Bulk<'_>,
    counted: &Counted,
    moved: &mut BatchResult,
) -> Result<(), Failure> {
    let mut batches = counted.jobs.chunks(BATCH_JOBS);
    progress::walk(counted.jobs.len() as u64, "jobs", bulk.format.json, async || {
        let Some(jobs) = batches.next() else { return Ok(None) };
        let &Bulk { verb, state, regardless, .. } = bulk;
        let batch = JobBatch { verb, state, regardless, jobs: jobs.to_vec() };
        moved.add(client.call(batch).await?);
        Ok(Some(jobs.len() as u64))
    })
    .await
}

fn question(bulk: &Bulk<'_>, counted: &Counted) -> String {
    let jobs = output::count(counted.jobs.len() as u64, &format!("{} job", bulk.state));
    let verb = words(bulk.verb).0;
    format!("{verb} {jobs} ({})", by_handler(&counted.handlers))
}

fn report(bulk: &Bulk<'_>, counted: &Counted, moved: &BatchResult) -> Result<Exit, Failure> {
    let (matching, suspected) = (counted.jobs.len() as u64, counted.suspected);
    let handlers = if bulk.dry_run { &counted.handlers } else { &moved.done };
    let done: u64 = moved.done.values().sum();
    let (verb, all) = (words(bulk.verb).1, output::count(matching, "job"));
    let which = by_handler(handlers);
    let mut lines = vec![match output::count(done, "job") {
        _ if matching == 0 => format!("no {} job matches", bulk.state),
        _ if bulk.dry_run => format!("{all} would be {verb}: {which}"),
        jobs if which.is_empty() => format!("{verb} {jobs}"),
        jobs => format!("{verb} {jobs}: {which}"),
    }];
    let left = [
        (moved.changed, "left alone: {} changed meanwhile"),
        (moved.payload_gone, "skipped: {} without a payload, which retention deleted"),
        (moved.unwanted, "dropped: {} for which their handler's condition does not hold"),
        (moved.undecided, "left held: {} whose condition still cannot be decided"),
        (
            moved.superseded,
            "left alone: {} whose group has gone on to a newer event (--regardless)",
        ),
        (
            suspected,
            "left held: {} that may be forged (suspected replay, id reused); --reason means them",
        ),
        (counted.answered, "left alone: {} that answered a caller, who gets that answer again"),
    ];
    for (jobs, text) in left.into_iter().filter(|(jobs, _)| *jobs > 0) {
        lines.push(text.replace("{}", &output::count(jobs, "job")));
    }
    let json = json!({
        "verb": bulk.verb,
        "dry_run": bulk.dry_run,
        "matching": matching,
        "done": done,
        "handlers": handlers,
        "changed": moved.changed,
        "payload_gone": moved.payload_gone,
        "unwanted": moved.unwanted,
        "undecided": moved.undecided,
        "superseded": moved.superseded,
        "suspected": suspected,
        "answered": counted.answered,
    });
    output::answer(bulk.format, json, lines.join("\n"))
}

fn by_handler(handlers: &BTreeMap<Name, u64>) -> String {
    let one = |(handler, count): (&Name, &u64)| format!("{handler} {count}");
    handlers.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A verb, and its participle.
fn words(verb: Verb) -> (&'static str, &'static str) {
    match verb {
        Verb::Replay => ("replay", "replayed"),
        Verb::Drop => ("drop", "dropped"),
    }
}
