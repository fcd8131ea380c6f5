//! Ids as operators type and read them: every command takes the beginning of an id that no other id has, and
//! tables show that much.

use std::collections::HashMap;

use crate::admin::{CallError, ShortenIds, ShowEvent, StoreClient};
use crate::cli;
use crate::exit::{Exit, Failure};
use crate::limits::SHORTENED_IDS;
use crate::model::{EventId, JobId, Name};
use crate::store::{EventDetail, EventRow, IdKind, IdMatch, IdQuery, JobRow};

use super::output;

async fn find(
    client: &StoreClient,
    kind: IdKind,
    source: Option<&Name>,
    text: &str,
) -> Result<IdMatch, Failure> {
    let typed = IdQuery { kind, text: text.to_owned(), source: source.cloned() };
    Ok(client.call(typed).await?)
}

/// The job that the typed id names, as it is now.
pub(super) async fn job(client: &StoreClient, typed: &str) -> Result<JobRow, Failure> {
    match find(client, IdKind::Job, None, typed).await? {
        IdMatch::Job(row) => Ok(*row),
        IdMatch::Event(event) => {
            Err(Exit::NotFound.failure(format!("{event} is an event, not a job")))
        }
    }
}

/// An event, or one job of it.
pub(super) struct Target {
    pub(super) source: Option<Name>,
    pub(super) event: EventId,
    pub(super) job: Option<JobId>,
}

/// The event or job that the typed id names. `kind` says what may be typed.
pub(super) async fn target(
    client: &StoreClient,
    kind: IdKind,
    source: Option<&Name>,
    typed: &EventId,
) -> Result<Target, Failure> {
    Ok(match find(client, kind, source, typed.as_str()).await? {
        IdMatch::Event(event) => Target { source: source.cloned(), event, job: None },
        IdMatch::Job(row) => {
            Target { source: Some(row.source), event: row.event_id, job: Some(row.job) }
        }
    })
}

/// The events of this id with their details; for a job only the event that it belongs to. And why a body that is kept
/// cannot be read now.
pub(super) async fn shown(
    client: &StoreClient,
    target: &Target,
) -> Result<(Vec<EventDetail>, Option<CallError>), Failure> {
    let request =
        ShowEvent { source: target.source.clone(), event: target.event.clone(), variant: None };
    let (mut found, unread) = client.show_now(request).await?;
    if let Some(job) = target.job {
        found.retain(|event| event.jobs.iter().any(|one| one.job.job == job));
    }
    Ok((found, unread.map(CallError::from)))
}

/// Shortened ids. Each is enough for every command as long as no new id begins with it.
#[derive(Default)]
pub(super) struct Short(HashMap<String, usize>);

/// Shortens the ids of a table. They stay whole in a pipe or a file, as every text does, and in a very long
/// listing.
pub(super) async fn shorten(
    client: &StoreClient,
    mut ids: Vec<String>,
    listing: &cli::Listing,
) -> Result<Short, Failure> {
    ids.sort_unstable();
    ids.dedup();
    let whole = listing.wide || listing.options.json() || output::chars().is_none();
    if whole || ids.is_empty() || ids.len() > SHORTENED_IDS {
        return Ok(Short::default());
    }
    let request = ShortenIds { kind: IdKind::Any, ids: ids.clone() };
    let chars = client.call(request).await?.chars;
    Ok(Short(ids.into_iter().zip(chars).collect()))
}

/// Shortens the ids of a table of events.
pub(super) async fn of_events(
    client: &StoreClient,
    rows: &[EventRow],
    listing: &cli::Listing,
) -> Result<Short, Failure> {
    shorten(client, rows.iter().map(|event| event.event_id.to_string()).collect(), listing).await
}

impl Short {
    /// The shortest beginning of the id that names it.
    pub(super) fn of(&self, id: impl std::fmt::Display) -> String {
        let mut id = id.to_string();
        // An id is ASCII.
        if let Some(chars) = self.0.get(&id) {
            id.truncate(*chars);
        }
        id
    }
}
