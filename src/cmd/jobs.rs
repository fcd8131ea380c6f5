//! `hooklatch jobs`, `held` and `dead`: one line per event and handler, and what settles it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cli::{self, Listing};
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::model::{State, Timestamp};
use crate::store::{JobFilter, JobRow};

use super::ids::{self, Short};
use super::output::{
    self, below, cut, escape, local, short_span, state_style, styled, whole, words_of,
};
use super::settle_advice::{advice, ways};
use super::store;

/// Lists jobs.
pub(super) fn run(args: &cli::Jobs) -> Result<Exit, Failure> {
    let now = Clock::system().now();
    let filter = filter(&args.filter, args.state, Some(args.listing.limit))?;
    let (rows, short) = ask(filter, &args.listing)?;
    // For a narrow column: how long the job waits, not until when.
    let waits = |due_at: Timestamp| format!("due in {}", short_span(due_at.since(now)));
    let row = |job: &JobRow| {
        vec![
            whole("JOB", short.of(job.job)),
            cut("HANDLER", 7, &job.handler),
            words_of("STATE", styled(with_reason(job, waits), state_style(job.state))),
            whole("#", job.attempt),
            cut("TYPE", 5, &job.event_type),
            whole("EVENT", short.of(&job.event_id)),
            whole("AGE", short_span(now.since(job.created_at))),
        ]
    };
    let Listing { options, wide, .. } = &args.listing;
    output::rows(&options.format, &rows, row, *wide, "no jobs")
}

/// A job that waits for a person, with the commands that settle it, the likeliest first.
#[derive(Serialize)]
struct Stopped {
    #[serde(flatten)]
    job: JobRow,
    settle: Vec<String>,
}

/// Lists the held jobs, or the dead ones, with the commands that settle them.
pub(super) fn stopped(args: &cli::Stopped, state: State) -> Result<Exit, Failure> {
    let now = Clock::system().now();
    let suffix = args.listing.options.suffix();
    let filter = filter(&args.filter, Some(state), Some(args.listing.limit))?;
    let (rows, short) = ask(filter, &args.listing)?;
    let with_ways = |job: JobRow| {
        let reason = job.reason.as_deref().unwrap_or_default();
        let settle = ways(reason, Some(job.job), &suffix);
        Stopped { job, settle }
    };
    let rows: Vec<Stopped> = rows.into_iter().map(with_ways).collect();
    let row = |Stopped { job, .. }: &Stopped| {
        let since = job.stopped_at.unwrap_or(job.created_at);
        let detail = job.detail.as_deref().or(job.last_detail.as_deref());
        vec![
            whole("JOB", short.of(job.job)),
            cut("HANDLER", 7, &job.handler),
            words_of("REASON", job.reason.as_deref().unwrap_or_default()),
            whole("AGE", short_span(now.since(since))),
            cut("TYPE", 5, &job.event_type),
            whole("EVENT", short.of(&job.event_id)),
            below("DETAIL", detail.unwrap_or_default()),
        ]
    };
    let empty = if state == State::Held { "nothing is held" } else { "no dead letters" };
    let Listing { options, wide, .. } = &args.listing;
    output::rows(&options.format, &rows, row, *wide, empty)?;
    if options.json() {
        return Ok(Exit::Ok);
    }
    let reasons: BTreeSet<&str> = rows.iter().filter_map(|row| row.job.reason.as_deref()).collect();
    for reason in reasons {
        output::line(format_args!("\n{reason}: {}", advice(reason)))?;
        for way in ways(reason, None, &suffix) {
            output::line(format_args!("  {way}"))?;
        }
    }
    Ok(Exit::Ok)
}

/// The jobs, and how a table shortens their ids.
fn ask(filter: JobFilter, listing: &Listing) -> Result<(Vec<JobRow>, Short), Failure> {
    let config = store::load(&listing.options)?;
    store::with_client(&config, async |client| {
        let rows = store::jobs(client, filter).await?;
        let ids = rows.iter().flat_map(|job| [job.job.to_string(), job.event_id.to_string()]);
        let short = ids::shorten(client, ids.collect(), listing).await?;
        Ok((rows, short))
    })
}

/// The typed filter for the store.
pub(super) fn filter(
    typed: &cli::Filter,
    state: Option<State>,
    limit: Option<usize>,
) -> Result<JobFilter, Failure> {
    Ok(JobFilter {
        state,
        handler: typed.handler.clone(),
        source: typed.source.clone(),
        event_type: typed.event_type.clone(),
        reason: typed.reason.clone(),
        last_detail: None,
        since: since(typed.since)?,
        limit,
        before: None,
    })
}

/// A point in the past. One in the future would match nothing and look like good news.
pub(super) fn since(typed: Option<cli::Since>) -> Result<Option<Timestamp>, Failure> {
    let now = Clock::system().now();
    let since = typed.map(|typed| typed.seen_from(now));
    match since.filter(|since| *since > now) {
        Some(since) => {
            Err(Exit::Usage.failure(format!("--since is in the future: {}", local(since))))
        }
        None => Ok(since),
    }
}

/// A job's state, with the reason where it has one: `held: cancelled`.
pub(super) fn state(job: &JobRow) -> String {
    let state = with_reason(job, |due_at| format!("due {}", local(due_at)));
    match &job.detail {
        Some(detail) => format!("{state}: {}", escape(detail)),
        None => state,
    }
}

fn with_reason(job: &JobRow, due: impl FnOnce(Timestamp) -> String) -> String {
    let claimable = matches!(job.state, State::Ready | State::Waiting);
    let why = match &job.reason {
        Some(reason) => Some(reason.clone()),
        None if claimable && job.paused => Some("handler paused".to_owned()),
        None if claimable && job.behind => Some("behind another of its group".to_owned()),
        None if job.broken.is_some() => Some("handler broken".to_owned()),
        None => job.due_at.map(due),
    };
    why.map_or(job.state.to_string(), |why| format!("{}: {why}", job.state))
}
