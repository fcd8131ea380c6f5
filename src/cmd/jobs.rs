//! `hooklatch jobs`, `held` and `dead`: one line per event and handler, and what settles it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cli;
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::model::{DeadReason, HeldReason, JobId, State, Timestamp};
use crate::store::{JobFilter, JobRow};

use super::ids::{self, Short};
use super::output::{
    self, below, cut, listing, local, short_span, state_style, styled, whole, words_of,
};
use super::store;

/// Lists jobs.
pub(super) fn run(args: &cli::Jobs) -> Result<Exit, Failure> {
    let now = Clock::system().now();
    let filter = filter(&args.filter, args.state, Some(args.listing.limit))?;
    let (rows, short) = ask(&args.file, filter, &args.listing)?;
    if args.listing.format.json {
        output::json(&rows)?;
        return Ok(Exit::Ok);
    }
    let row = |job: &JobRow| {
        vec![
            short.of(job.job).into(),
            (&job.handler).into(),
            styled(in_short(job, now), state_style(job.state)),
            job.attempt.into(),
            (&job.event_type).into(),
            short.of(&job.event_id).into(),
            short_span(now.since(job.created_at)).into(),
        ]
    };
    let columns = [
        whole("JOB"),
        cut("HANDLER", 7),
        words_of("STATE"),
        whole("#"),
        cut("TYPE", 5),
        whole("EVENT"),
        whole("AGE"),
    ];
    listing(columns.into(), rows.iter().map(row).collect(), args.listing.wide, "no jobs")?;
    Ok(Exit::Ok)
}

/// A job that waits for a person, for programs.
#[derive(Serialize)]
struct Stopped<'a> {
    #[serde(flatten)]
    job: &'a JobRow,
    /// The commands that settle it, the likeliest first.
    settle: Vec<String>,
}

/// Lists the held jobs, or the dead ones, with the commands that settle them.
pub(super) fn stopped(args: &cli::Stopped, state: State) -> Result<Exit, Failure> {
    let now = Clock::system().now();
    let suffix = output::config_suffix(&args.file.config);
    let filter = filter(&args.filter, Some(state), Some(args.listing.limit))?;
    let (rows, short) = ask(&args.file, filter, &args.listing)?;
    if args.listing.format.json {
        let reason = |job: &JobRow| job.reason.clone().unwrap_or_default();
        let with_ways = |job| Stopped { job, settle: ways(&reason(job), Some(job.job), &suffix) };
        output::json(&rows.iter().map(with_ways).collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    let row = |job: &JobRow| {
        let since = job.stopped_at.unwrap_or(job.created_at);
        vec![
            short.of(job.job).into(),
            (&job.handler).into(),
            job.reason.as_deref().unwrap_or_default().into(),
            short_span(now.since(since)).into(),
            (&job.event_type).into(),
            short.of(&job.event_id).into(),
            job.last_detail.as_deref().unwrap_or_default().into(),
        ]
    };
    let columns = [
        whole("JOB"),
        cut("HANDLER", 7),
        words_of("REASON"),
        whole("AGE"),
        cut("TYPE", 5),
        whole("EVENT"),
        below("DETAIL"),
    ];
    let empty = if state == State::Held { "nothing is held" } else { "no dead letters" };
    listing(columns.into(), rows.iter().map(row).collect(), args.listing.wide, empty)?;
    let reasons: BTreeSet<&str> = rows.iter().filter_map(|job| job.reason.as_deref()).collect();
    for reason in reasons {
        output::line(format_args!("\n{reason}: {}", advice(reason)))?;
        for way in ways(reason, None, &suffix) {
            output::line(format_args!("  {way}"))?;
        }
    }
    Ok(Exit::Ok)
}

/// The jobs, and for a table how its ids are shortened.
fn ask(
    file: &cli::ConfigFile,
    filter: JobFilter,
    listing: &cli::Listing,
) -> Result<(Vec<JobRow>, Short), Failure> {
    let config = store::load(&file.config)?;
    store::with_client(&config, async |client| {
        let rows = store::jobs(client, filter).await?;
        let ids = rows.iter().flat_map(|job| [job.job.to_string(), job.event_id.to_string()]);
        let short = ids::shorten(client, ids.collect(), listing).await?;
        Ok((rows, short))
    })
}

/// What was typed, as the store understands it.
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
            Err(Failure::new(Exit::Usage, format!("--since is in the future: {}", local(since))))
        }
        None => Ok(since),
    }
}

/// What a person has to find out first.
fn advice(reason: &str) -> &'static str {
    let held = reason.parse().ok().map(|reason: HeldReason| match reason {
        HeldReason::UnknownOutcome => "check whether it did its work, then run one of these",
        HeldReason::SuspectedReplay => "the same signed body came before; run the first if this one is genuine, else the second",
        HeldReason::IdReused => "another body came under this id before; run the first if this one is genuine, else the second",
        HeldReason::Restored => "it may have run after the backup was made; check, then run one of these",
        HeldReason::Cancelled => "its command was cancelled while it ran; check what it did, then run one of these",
        HeldReason::HandlerGone => "its handler is not configured any more; configure it again and run the first, or give it up with the second",
    });
    let dead = reason.parse().ok().map(|reason: DeadReason| match reason {
        DeadReason::Rejected => {
            "its handler rejected it for good; fix the cause and replay it, or drop it"
        }
        DeadReason::Exhausted => "its last attempt failed; fix the cause and replay it, or drop it",
        DeadReason::PayloadGone => "its payload is deleted, so it cannot run again",
        DeadReason::Resolved => "it was resolved as failed; run it again anyway, or drop it",
    });
    held.or(dead).unwrap_or_default()
}

/// The commands that settle a job of this reason, the likeliest first.
fn ways(reason: &str, job: Option<JobId>, suffix: &str) -> Vec<String> {
    let job = job.map_or("JOB".to_owned(), |job| job.to_string());
    let replay = format!("hooklatch replay --job {job}{suffix}");
    let drop = format!("hooklatch drop {job}{suffix}");
    let resolve = |how| format!("hooklatch resolve {job} --{how}{suffix}");
    let looked_at = [HeldReason::UnknownOutcome, HeldReason::Restored, HeldReason::Cancelled];
    if looked_at.iter().any(|held| held.as_str() == reason) {
        return vec![resolve("succeeded"), replay, resolve("failed")];
    }
    match reason == DeadReason::PayloadGone.as_str() {
        true => vec![drop],
        false => vec![replay, drop],
    }
}

/// A job's state, with the reason where it has one: `held: cancelled`.
pub(super) fn state(job: &JobRow) -> String {
    with_reason(job, |due_at| format!("due {}", local(due_at)))
}

/// The same where there is little room: how long it waits, not until when.
fn in_short(job: &JobRow, now: Timestamp) -> String {
    with_reason(job, |due_at| format!("due in {}", short_span(due_at.since(now))))
}

fn with_reason(job: &JobRow, due: impl FnOnce(Timestamp) -> String) -> String {
    let claimable = matches!(job.state, State::Ready | State::Waiting);
    let why = match &job.reason {
        Some(reason) => Some(reason.clone()),
        None if claimable && job.paused => Some("handler paused".to_owned()),
        None if job.broken.is_some() => Some("handler broken".to_owned()),
        None => job.due_at.map(due),
    };
    why.map_or(job.state.to_string(), |why| format!("{}: {why}", job.state))
}
