//! DECIDE: what the handlers' conditions and keys make of stored events, by the routes of now, before the locks of the
//! jobs that are put back or made: a body may be large, and no other transaction waits for its reading.

use std::sync::Arc;

use tokio_postgres::Row;

use crate::model::{EventType, Name};
use crate::routing::{NewJob, Router};
use crate::store::border::Error;
use crate::store::columns::{column, readable};
use crate::store::decide::conditions::{Decided, StoredEvent};

use super::super::columns::stored;
use super::super::flight::Flight;
use super::super::new_event::{Groups, group_of};
use super::super::params::params;
use super::super::stop::{Stop, ask};

/// An event with its payload, where that is kept.
const READ: &str = "
    SELECT e.source, e.event_id, e.type, e.raw_type, e.received_at, e.body_bytes, p.headers, p.body, p.sum
    FROM event e JOIN payload p ON p.event = e.row WHERE e.row = $1";

/// Decides for each handler and the event in that row.
pub(super) async fn decide(
    flight: &mut Flight,
    router: &Arc<Router>,
    open: Vec<(i64, Name)>,
) -> Result<Decided, Stop> {
    let mut decided = Decided::default();
    for (event, handler) in open {
        let row = ask(flight, READ, params![event]).await?.first().cloned();
        let (router, of) = (Arc::clone(router), handler.clone());
        // It may be parsing of some megabytes.
        let deciding = tokio::task::spawn_blocking(move || match row {
            Some(row) => Ok(stored_event(&row)?.job(&router, &of)),
            None => Ok(Some(NewJob::of(of))),
        });
        let job: Result<_, Error> =
            deciding.await.map_err(|error| Error::Unavailable(error.to_string()))?;
        decided.0.insert((event, handler), job?);
    }
    Ok(decided)
}

/// The groups that the jobs join.
pub(super) fn groups(decided: &Decided) -> Groups {
    decided.0.values().flatten().filter_map(group_of).collect()
}

fn stored_event(row: &Row) -> Result<StoredEvent<'_>, Error> {
    let raw = stored::<Option<&[u8]>>(row, "raw_type")?.map(String::from_utf8_lossy);
    Ok(StoredEvent {
        source: readable(row, "source")?,
        id: readable(row, "event_id")?,
        event_type: EventType::from_parts(stored(row, "type")?, raw.as_deref()),
        received_at: column(row, "received_at")?,
        headers: stored(row, "headers")?,
        body: stored(row, "body")?,
        body_bytes: column(row, "body_bytes")?,
        sum: column(row, "sum")?,
    })
}
