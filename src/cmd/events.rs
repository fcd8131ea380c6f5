//! `hooklatch events`: lists accepted events, failed deliveries, or the use of secrets.

use crate::admin::ListSecrets;
use crate::cli::{self, Listing};
use crate::exit::{Exit, Failure};
use crate::store::{EventFilter, EventRow, QuarantineFilter, SecretUse};

use super::ids::{self, Short};
use super::output::{self, Cell, count, cut, local, whole, words_of};
use super::{jobs, quarantine, store};

/// Lists events, failed deliveries, or secrets.
pub(super) fn run(args: &cli::Events) -> Result<Exit, Failure> {
    let (source, since) = (args.source.clone(), jobs::since(args.since)?);
    if args.rejected {
        let failed = QuarantineFilter { source, since, ..QuarantineFilter::default() };
        return quarantine::list(failed, &args.listing);
    }
    let Listing { options, wide, limit } = &args.listing;
    let config = store::load(options)?;
    if args.secrets {
        let rows = store::ask_of(&config, ListSecrets {})?.secrets;
        let row = |secret: &SecretUse| {
            vec![
                words_of("SOURCE", &secret.source),
                words_of("SECRET", &secret.reference),
                words_of("LAST MATCHED", local(secret.last_matched_at)),
            ]
        };
        return output::rows(&options.format, &rows, row, false, "no secret has matched yet");
    }
    let filter = EventFilter {
        source,
        event_type: args.event_type.clone(),
        since,
        state: args.state,
        handler: args.handler.clone(),
        limit: Some(*limit),
        before: None,
    };
    let (rows, short) = store::with_client(&config, async |client| {
        let rows = store::events(client, filter).await?;
        let short = ids::of_events(client, &rows, &args.listing).await?;
        Ok((rows, short))
    })?;
    let row = |event: &EventRow| row(event, &short);
    output::rows(&options.format, &rows, row, *wide, "no events")
}

pub(super) fn row(event: &EventRow, short: &Short) -> Vec<Cell> {
    columns([
        local(event.received_at),
        event.source.to_string(),
        type_of(event).to_owned(),
        short.of(&event.event_id),
        jobs(event),
        notes(event),
    ])
}

/// A row of a listing of events; `events --follow` takes its columns from an empty one.
pub(super) fn columns(
    [received, source, event_type, event, jobs, notes]: [String; 6],
) -> Vec<Cell> {
    vec![
        whole("RECEIVED", received),
        cut("SOURCE", 8, source),
        cut("TYPE", 12, event_type),
        whole("EVENT", event),
        words_of("JOBS", jobs),
        words_of("NOTES", notes),
    ]
}

/// The type exactly as the provider sent it.
pub(super) fn type_of(event: &EventRow) -> &str {
    event.raw_type.as_deref().unwrap_or(&event.event_type)
}

/// Notes on an event that differs from a usual one, shortest first.
pub(super) fn notes(event: &EventRow) -> String {
    let mut notes = Vec::new();
    if event.duplicates > 0 {
        notes.push(count(event.duplicates, "duplicate"));
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
    let states = event.jobs.iter().map(|(state, jobs)| match jobs {
        1 => state.to_string(),
        _ => format!("{jobs} {state}"),
    });
    states.collect::<Vec<_>>().join(", ")
}
