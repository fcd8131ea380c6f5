//! `hooklatch events`: lists accepted events, failed deliveries, or the use of secrets.

use crate::admin::ListSecrets;
use crate::cli::{self, Format, Listing};
use crate::exit::{Exit, Failure};
use crate::store::{EventFilter, EventRow, QuarantineFilter, SecretUse};

use super::ids::{self, Short};
use super::output::{self, Column, Field, count, cut, local, whole, words_of};
use super::{jobs, quarantine, store};

/// Lists events, failed deliveries, or secrets.
pub(super) fn run(args: &cli::Events) -> Result<Exit, Failure> {
    let filter = filter(args)?;
    if args.rejected {
        let EventFilter { source, since, .. } = filter;
        let failed = QuarantineFilter { source, since, ..QuarantineFilter::default() };
        return quarantine::list(failed, &args.listing);
    }
    let Listing { options, wide, .. } = &args.listing;
    let config = store::load(options)?;
    if args.secrets {
        let rows = store::ask_of(&config, ListSecrets {})?.secrets;
        return secrets(&options.format, &rows);
    }
    let (rows, short) = store::with_client(&config, async |client| {
        let rows = store::events(client, filter).await?;
        let short = ids::of_events(client, &rows, &args.listing).await?;
        Ok((rows, short))
    })?;
    let row = |event: &EventRow| row(event, &short);
    output::rows(&options.format, &rows, columns(), row, *wide, "no events")
}

/// The typed filter for the store.
pub(super) fn filter(args: &cli::Events) -> Result<EventFilter, Failure> {
    Ok(EventFilter {
        source: args.source.clone(),
        event_type: args.event_type.clone(),
        since: jobs::since(args.since)?,
        state: args.state,
        limit: Some(args.listing.limit),
        before: None,
    })
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

fn secrets(format: &Format, rows: &[SecretUse]) -> Result<Exit, Failure> {
    let row = |secret: &SecretUse| {
        vec![
            Field::from(&secret.source),
            (&secret.reference).into(),
            local(secret.last_matched_at).into(),
        ]
    };
    let columns = ["SOURCE", "SECRET", "LAST MATCHED"].map(words_of).into();
    output::rows(format, rows, columns, row, false, "no secret has matched yet")
}
