//! DECIDE: what the handlers' conditions and keys make of stored events, by the routes of now, before the transaction
//! that puts their jobs back or makes them. The payloads are read and walked by a reader, so the writer waits for none.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use crate::model::{EventType, Headers, Name};
use crate::payload::Event;
use crate::routing::{NewJob, Router};
use crate::store::border::Error;
use crate::store::sqlite::tables::codec;

use super::handle::Admin;

/// The job that each of these handlers gets of an event, by the event's row; `None` where its condition does not hold.
#[derive(Default)]
pub(crate) struct Decided(HashMap<(i64, Name), Option<NewJob>>);

impl Admin {
    pub fn set_router(&self, router: Router) {
        self.router.store(Arc::new(router));
    }

    /// Decides for each handler and the event in that row. Each is a read of its own: a body may be large, and others
    /// use the reader too.
    pub(crate) async fn decide(&self, open: Vec<(i64, Name)>) -> Result<Decided, Error> {
        let router = self.router.load_full();
        let mut decided = Decided::default();
        for (event, handler) in open {
            let (router, of) = (Arc::clone(&router), handler.clone());
            let job = self.engine.read(move |conn| job(conn, &router, event, &of)).await?;
            decided.0.insert((event, handler), job);
        }
        Ok(decided)
    }
}

impl Decided {
    pub(crate) fn has(&self, event: i64, handler: &Name) -> bool {
        self.0.contains_key(&(event, handler.clone()))
    }

    pub(crate) fn job(&self, event: i64, handler: &Name) -> Option<NewJob> {
        let found = self.0.get(&(event, handler.clone()));
        found.cloned().unwrap_or_else(|| undecided(handler, "it came meanwhile; try again"))
    }
}

fn undecided(handler: &Name, why: impl Into<String>) -> Option<NewJob> {
    Some(NewJob { undecided: Some(why.into()), ..NewJob::of(handler.clone()) })
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
            let Some(routes) = router.of(&source) else { return Ok(None) };
            let Some(route) = routes.of(handler) else {
                let why = "the handler is not configured for this source; reload first";
                return Ok(Some(undecided(handler, why)));
            };
            if !route.decides() {
                return Ok(None);
            }
            let id = codec::event_id(row, 1)?;
            let event_type =
                EventType::from_parts(row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_str_or_null()?);
            let bytes = usize::try_from(codec::count(row, 4)?).unwrap_or(usize::MAX);
            let headers = Headers::from_wire(row.get_ref(5)?.as_blob()?);
            let body = match codec::decompress_now(row.get_ref(6)?.as_blob()?, bytes) {
                Ok(body) => body,
                Err(error) => {
                    let why = format!("the stored body cannot be read: {error}");
                    return Ok(Some(undecided(handler, why)));
                }
            };
            let event = Event {
                id: id.as_str(),
                event_type: event_type.as_str(),
                headers: &headers,
                body: &body,
                form_field: routes.form_field.as_deref(),
            };
            // A delay counts from an event's arrival.
            Ok(Some(routes.job(route, &event).map(|job| NewJob { delay: None, ..job })))
        })
        .optional()?;
    Ok(found.flatten().unwrap_or_else(|| Some(NewJob::of(handler.clone()))))
}
