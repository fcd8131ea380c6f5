//! `hooklatch events`: what was accepted, or what was not, or by which secrets.

use crate::cli;
use crate::clock::Clock;
use crate::control::{Reply, Request};
use crate::exit::{Exit, Failure};
use crate::model::Timestamp;
use crate::store::{EventFilter, EventRow, QuarantineFilter, SecretUse};

use super::ids::{self, Short};
use super::output::{self, Column, Field, cut, local, whole, words_of};
use super::{arrivals, jobs, quarantine, store};

/// Lists events, or failed deliveries.
pub(super) fn run(args: &cli::Events) -> Result<Exit, Failure> {
    let since = jobs::since(args.since, Clock::system().now())?;
    if args.follow {
        return arrivals::run(args, since);
    }
    if args.rejected {
        let source = args.source.clone();
        let failed = QuarantineFilter { source, since, ..QuarantineFilter::default() };
        return quarantine::list(&args.file, failed, &args.listing);
    }
    let request =
        if args.secrets { Request::Secrets } else { Request::Events(filter(args, since)) };
    let config = store::load(&args.file.config)?;
    let (reply, short) = store::with_door(&config, async |door| {
        let reply = store::call(door, request).await?;
        let short = match &reply {
            Reply::Events(rows) => ids::of_events(door, rows, &args.listing).await?,
            _ => Short::default(),
        };
        Ok((reply, short))
    })?;
    match reply {
        Reply::Events(rows) if args.listing.format.json => output::json(&rows)?,
        Reply::Events(rows) => accepted(&rows, &short, args.listing.wide)?,
        Reply::Secrets(rows) if args.listing.format.json => output::json(&rows)?,
        Reply::Secrets(rows) => secrets(&rows)?,
        other => return Err(store::unexpected(&other)),
    }
    Ok(Exit::Ok)
}

/// What was typed, as the store understands it.
pub(super) fn filter(args: &cli::Events, since: Option<Timestamp>) -> EventFilter {
    EventFilter {
        source: args.source.clone(),
        event_type: args.event_type.clone(),
        since,
        state: args.state,
        limit: Some(args.listing.limit),
    }
}

fn accepted(rows: &[EventRow], short: &Short, wide: bool) -> Result<(), Failure> {
    let rows = rows.iter().map(|event| row(event, short)).collect();
    output::listing(columns(), rows, wide, "no events")
}

/// The columns of a listing of events.
pub(super) fn columns() -> Vec<Column> {
    vec![
        whole("RECEIVED"),
        cut("SOURCE", 8),
        cut("TYPE", 12),
        whole("EVENT"),
        words_of("JOBS"),
        words_of("NOTES"),
    ]
}

/// An event as a row of it.
pub(super) fn row(event: &EventRow, short: &Short) -> Vec<Field> {
    vec![
        local(event.received_at).into(),
        (&event.source).into(),
        event.raw_type.as_deref().unwrap_or(&event.event_type).into(),
        short.of(&event.event_id).into(),
        jobs(event).into(),
        notes(event).into(),
    ]
}

/// What is unusual about an event, shortest first.
pub(super) fn notes(event: &EventRow) -> String {
    let mut notes = Vec::new();
    if event.duplicates > 0 {
        notes.push(format!("{} duplicate{}", event.duplicates, plural(event.duplicates)));
    }
    if event.conflicts > 0 {
        notes.push(format!("{} with another body", event.conflicts));
    }
    if event.variant > 0 {
        notes.push(format!("variant {}", event.variant));
    }
    if event.flagged {
        notes.push("flagged: body seen before".to_owned());
    }
    if !event.payload_kept {
        notes.push("payload expired".to_owned());
    }
    notes.join(", ")
}

/// How many of its jobs are in which state.
pub(super) fn jobs(event: &EventRow) -> String {
    if event.jobs.is_empty() {
        return "no handler wants it".to_owned();
    }
    let one = |(state, count): (&crate::model::State, &u64)| match count {
        1 => state.to_string(),
        _ => format!("{count} {state}"),
    };
    event.jobs.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn secrets(rows: &[SecretUse]) -> Result<(), Failure> {
    let row = |secret: &SecretUse| {
        vec![
            Field::from(&secret.source),
            (&secret.reference).into(),
            local(secret.last_matched_at).into(),
        ]
    };
    let head = ["SOURCE", "SECRET", "LAST MATCHED"];
    output::table(&head, rows.iter().map(row).collect(), "no secret has matched yet")
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}
