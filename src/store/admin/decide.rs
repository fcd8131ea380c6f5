//! DECIDE: what the handlers' conditions and keys make of stored events, by the routes of now, before the transaction
//! that puts their jobs back or makes them. The payloads are read and walked by a reader, so the writer waits for none.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension};

use crate::model::{EventType, Headers, Name};
use crate::payload::Event;
use crate::routing::{NewJob, Router};
use crate::store::tables::codec;

use super::handle::Admin;

/// The job that each of these handlers gets of an event, by the event's row; `None` where its condition does not hold.
#[derive(Default)]
pub(crate) struct Decided(HashMap<(i64, Name), Option<NewJob>>);

impl Admin {
    /// From now on replays go by these routes.
    pub fn set_router(&self, router: Router) {
        self.router.store(Arc::new(router));
    }
}

impl Decided {
    /// Decides for each handler and the event in that row.
    pub(crate) fn all(
        conn: &Connection,
        router: &Router,
        open: Vec<(i64, Name)>,
    ) -> rusqlite::Result<Self> {
        let decide = |(event, handler): (i64, Name)| {
            let job = job(conn, router, event, &handler)?;
            Ok(((event, handler), job))
        };
        open.into_iter().map(decide).collect::<rusqlite::Result<_>>().map(Decided)
    }

    /// The job that this handler gets; one that may run at once where nothing was to be decided.
    pub(crate) fn job(&self, event: i64, handler: &Name) -> Option<NewJob> {
        let found = self.0.get(&(event, handler.clone()));
        found.cloned().unwrap_or_else(|| Some(NewJob::of(handler.clone())))
    }
}

fn job(
    conn: &Connection,
    router: &Router,
    event: i64,
    handler: &Name,
) -> rusqlite::Result<Option<NewJob>> {
    // The event by its row, with its payload where it is kept.
    let found = conn
        .prepare_cached(
            "SELECT e.source, e.event_id, e.type, e.raw_type, e.body_bytes, p.headers, p.body
             FROM event e JOIN payload p ON p.event = e.row WHERE e.row = ?1",
        )?
        .query_row([event], |row| {
            let source: Name = codec::text(row, 0)?;
            let Some(routes) = router.of(&source).filter(|routes| routes.decides(handler)) else {
                return Ok(None);
            };
            let id = codec::event_id(row, 1)?;
            let event_type =
                EventType::from_parts(row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_str_or_null()?);
            let bytes = usize::try_from(codec::count(row, 4)?).unwrap_or(usize::MAX);
            let headers = Headers::from_wire(row.get_ref(5)?.as_blob()?);
            let body =
                codec::decompress_now(row.get_ref(6)?.as_blob()?, bytes).map_err(|error| {
                    rusqlite::Error::FromSqlConversionFailure(6, Type::Blob, Box::new(error))
                })?;
            let event = Event {
                id: id.as_str(),
                event_type: event_type.as_str(),
                headers: &headers,
                body: &body,
                form_field: routes.form_field.as_deref(),
            };
            Ok(Some(routes.job(handler, &event)))
        })
        .optional()?;
    Ok(found.flatten().unwrap_or_else(|| Some(NewJob::of(handler.clone()))))
}
