//! DECIDE: what the handlers' conditions and keys make of stored events, by the routes of now, before the locks of the
//! jobs that are put back or made: a body may be large, and no other transaction waits for its reading.

use std::sync::Arc;

use tokio_postgres::Row;

use crate::model::{EventType, Headers, Name};
use crate::routing::{NewJob, Router};
use crate::store::decide::conditions::{Decided, StoredEvent};

use super::super::flight::Flight;
use super::change::{Stop, ask};
use super::found::{Groups, group_of, text};

/// An event with its payload, where that is kept.
const READ: &str = "
    SELECT e.source, e.event_id, e.type, e.raw_type, e.body_bytes, p.headers, p.body
    FROM event e JOIN payload p ON p.event = e.row WHERE e.row = $1";

/// Decides for each handler and the event in that row.
pub(super) async fn decide(
    flight: &mut Flight,
    router: &Arc<Router>,
    open: Vec<(i64, Name)>,
) -> Result<Decided, Stop> {
    let mut decided = Decided::default();
    for (event, handler) in open {
        let mut rows = ask(flight, READ, vec![Box::new(event)]).await?.to_vec();
        let (router, of) = (Arc::clone(router), handler.clone());
        // It may be parsing of some megabytes.
        let deciding = tokio::task::spawn_blocking(move || match rows.pop() {
            Some(row) => Ok(stored(&row)?.job(&router, &of)),
            None => Ok(Some(NewJob::of(of))),
        });
        let job: Result<_, Stop> =
            deciding.await.map_err(|error| Stop::Broken(error.to_string()))?;
        decided.0.insert((event, handler), job?);
    }
    Ok(decided)
}

/// The groups that the jobs join.
pub(super) fn groups(decided: &Decided) -> Groups {
    decided.0.values().flatten().filter_map(group_of).collect()
}

fn stored(row: &Row) -> Result<StoredEvent<'_>, Stop> {
    let raw: Option<&[u8]> = row.try_get(3)?;
    let raw = raw.map(String::from_utf8_lossy);
    let bytes: i64 = row.try_get(4)?;
    Ok(StoredEvent {
        source: text(row, 0)?,
        id: text(row, 1)?,
        event_type: EventType::from_parts(row.try_get(2)?, raw.as_deref()),
        headers: Headers::from_wire(row.try_get(5)?),
        body: row.try_get(6)?,
        body_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
    })
}
