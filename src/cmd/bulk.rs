//! `replay --state` and `drop --state`: many jobs at once, counted and confirmed first.
//!
//! The way to the store is closed while a person thinks: a stopped store would stay locked, and a
//! receiver does not wait for so long. What was counted is what is asked for, job by job; what has
//! changed in between is passed over by the store.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::control::{Door, Reply, Request};
use crate::exit::{Exit, Failure};
use crate::model::{JobId, Name, State};
use crate::store::{BATCH_COUNT, Batch, JobFilter, Moved, Select, Verb};

use super::{confirm, output, progress, store};

/// What was typed.
pub(super) struct Bulk {
    pub(super) verb: Verb,
    /// Held or dead, which is in the filter too.
    pub(super) state: State,
    pub(super) filter: JobFilter,
    pub(super) dry_run: bool,
    pub(super) yes: bool,
    pub(super) json: bool,
}

/// What is meant, as it was counted.
#[derive(Default)]
struct Counted {
    jobs: Vec<(JobId, u32)>,
    handlers: BTreeMap<Name, u64>,
    suspected: u64,
    answered: u64,
}

/// Counts, asks, and does it batch by batch.
pub(super) fn run(config: &Config, bulk: &Bulk) -> Result<Exit, Failure> {
    let asks = !bulk.dry_run && !bulk.yes;
    if asks {
        confirm::somebody_is_there()?;
    }
    let counted = store::with_door(config, async |door| count(door, bulk).await)?;
    if bulk.dry_run || counted.jobs.is_empty() {
        return report(bulk, &counted, &Moved::default());
    }
    if asks && !confirm::confirmed(&question(bulk, &counted))? {
        return Ok(confirm::declined());
    }
    let mut moved = Moved::default();
    let walked = store::with_door(config, async |door| go(door, bulk, &counted, &mut moved).await);
    walked.map_err(|failure| {
        let (done, verb) = (moved.done.values().sum::<u64>(), past(bulk.verb));
        let jobs = output::count(counted.jobs.len() as u64, "job");
        failure.help(format!("{done} of {jobs} were {verb} and stay so; the same command goes on"))
    })?;
    report(bulk, &counted, &moved)
}

async fn count(door: &mut Door, bulk: &Bulk) -> Result<Counted, Failure> {
    let mut counted = Counted::default();
    let mut after = None;
    loop {
        let ask = Select { filter: bulk.filter.clone(), after, verb: bulk.verb };
        let reply = store::call(door, Request::Select(ask)).await?;
        let selected = store::content!(reply, Reply::Select(selected) => selected)?;
        for chosen in selected.jobs {
            *counted.handlers.entry(chosen.handler).or_default() += 1;
            counted.jobs.push((chosen.job, chosen.attempt));
        }
        counted.suspected += selected.suspected;
        counted.answered += selected.answered;
        after = selected.next;
        if after.is_none() {
            return Ok(counted);
        }
    }
}

async fn go(
    door: &mut Door,
    bulk: &Bulk,
    counted: &Counted,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let mut batches = counted.jobs.chunks(BATCH_COUNT);
    progress::walk(counted.jobs.len() as u64, "jobs", bulk.json, async || {
        let Some(jobs) = batches.next() else { return Ok(None) };
        let batch = Batch { verb: bulk.verb, state: bulk.state, jobs: jobs.to_vec() };
        let reply = store::call(door, Request::MoveBatch(batch)).await?;
        let more = store::content!(reply, Reply::MoveBatch(more) => more)?;
        for (handler, count) in more.done {
            *moved.done.entry(handler).or_default() += count;
        }
        moved.changed += more.changed;
        moved.payload_gone += more.payload_gone;
        Ok(Some(jobs.len() as u64))
    })
    .await
}

fn question(bulk: &Bulk, counted: &Counted) -> String {
    let jobs = output::count(counted.jobs.len() as u64, &format!("{} job", bulk.state));
    let verb = infinitive(bulk.verb);
    format!("{verb} {jobs} ({})", by_handler(&counted.handlers))
}

fn report(bulk: &Bulk, counted: &Counted, moved: &Moved) -> Result<Exit, Failure> {
    let (matching, suspected) = (counted.jobs.len() as u64, counted.suspected);
    let handlers = if bulk.dry_run { &counted.handlers } else { &moved.done };
    let done: u64 = moved.done.values().sum();
    if bulk.json {
        output::json(&serde_json::json!({
            "verb": bulk.verb,
            "dry_run": bulk.dry_run,
            "matching": matching,
            "done": done,
            "handlers": handlers,
            "changed": moved.changed,
            "payload_gone": moved.payload_gone,
            "suspected": suspected,
            "answered": counted.answered,
        }))?;
        return Ok(Exit::Ok);
    }
    if matching == 0 {
        output::line(format_args!("no {} job matches", bulk.state))?;
    } else if bulk.dry_run {
        let (verb, jobs) = (past(bulk.verb), output::count(matching, "job"));
        output::line(format_args!("{jobs} would be {verb}: {}", by_handler(handlers)))?;
    } else {
        let (verb, jobs) = (past(bulk.verb), output::count(done, "job"));
        let which = by_handler(handlers);
        let which = if which.is_empty() { which } else { format!(": {which}") };
        output::line(format_args!("{verb} {jobs}{which}"))?;
    }
    let left = [
        (moved.changed, "left alone: {} changed meanwhile"),
        (moved.payload_gone, "skipped: {} without a payload, which retention deleted"),
        (
            suspected,
            "left held: {} that may be forged (suspected replay, id reused); --reason means them",
        ),
        (counted.answered, "left alone: {} that answered a caller, who gets that answer again"),
    ];
    for (jobs, text) in left.into_iter().filter(|(jobs, _)| *jobs > 0) {
        output::line(text.replace("{}", &output::count(jobs, "job")))?;
    }
    Ok(Exit::Ok)
}

fn by_handler(handlers: &BTreeMap<Name, u64>) -> String {
    let one = |(handler, count): (&Name, &u64)| format!("{handler} {count}");
    handlers.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn infinitive(verb: Verb) -> &'static str {
    match verb {
        Verb::Replay => "replay",
        Verb::Drop => "drop",
    }
}

fn past(verb: Verb) -> &'static str {
    match verb {
        Verb::Replay => "replayed",
        Verb::Drop => "dropped",
    }
}
