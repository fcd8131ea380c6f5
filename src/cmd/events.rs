//! `hooklatch events`: what was accepted, or what was not, or by which secrets.

use crate::admin::ListSecrets;
use crate::cli;
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
        return quarantine::list(&args.file, failed, &args.listing);
    }
    let (config, json) = (store::load(&args.file.config)?, args.listing.format.json);
    if args.secrets {
        let rows = store::ask_of(&config, ListSecrets {})?.secrets;
        if json {
            output::json(&rows)?
        } else {
            secrets(&rows)?
        }
        return Ok(Exit::Ok);
    }
    let (rows, short) = store::with_client(&config, async |client| {
        let rows = store::events(client, filter).await?;
        let short = ids::of_events(client, &rows, &args.listing).await?;
        Ok((rows, short))
    })?;
    if json {
        output::json(&rows)?;
    } else {
        let rows = rows.iter().map(|event| row(event, &short)).collect();
        output::listing(columns(), rows, args.listing.wide, "no events")?;
    }
    Ok(Exit::Ok)
}

/// What was typed, as the store understands it.
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

/// What is unusual about an event, shortest first.
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
