//! DECIDE: what the handlers' conditions and keys make of stored events, by the routes of now, before the transaction
//! that puts their jobs back or makes them. The payloads are read and walked by a reader, so the writer waits for none.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use crate::model::{EventType, Name, Timestamp};
use crate::routing::{NewJob, Router};
use crate::store::border::Error;
use crate::store::decide::conditions::{Decided, StoredEvent};
use crate::store::sqlite::tables::codec;

use super::handle::Admin;

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

fn job(
    conn: &Connection,
    router: &Router,
    event: i64,
    handler: &Name,
) -> rusqlite::Result<Option<NewJob>> {
    // The event by its row, with its payload where it is kept.
    let found = conn
        .prepare_cached(
            "SELECT e.source, e.event_id, e.type, e.raw_type, e.body_bytes, p.headers, p.body,
                e.received_at, p.sum
             FROM event e JOIN payload p ON p.event = e.row WHERE e.row = ?1",
        )?
        .query_row([event], |row| {
            let raw = row.get_ref(3)?.as_str_or_null()?;
            let stored = StoredEvent {
                source: codec::text(row, 0)?,
                id: codec::event_id(row, 1)?,
                event_type: EventType::from_parts(row.get_ref(2)?.as_str()?, raw),
                received_at: Timestamp(row.get(7)?),
                headers: row.get_ref(5)?.as_blob()?,
                body: row.get_ref(6)?.as_blob()?,
                body_bytes: usize::try_from(codec::count(row, 4)?).unwrap_or(usize::MAX),
                sum: row.get(8)?,
            };
            Ok(stored.job(router, handler))
        })
        .optional()?;
    Ok(found.unwrap_or_else(|| Some(NewJob::of(handler.clone()))))
}
