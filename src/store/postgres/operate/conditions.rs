//! DECIDE: what the handlers' conditions and keys make of stored events, by the routes of now, before the locks of the
//! jobs that are put back or made: a body may be large, and no other transaction waits for its reading.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Row;

use crate::model::{EventType, Headers, Name};
use crate::payload::Event;
use crate::routing::{NewJob, Router};
use crate::store::codec;

use super::super::flight::Flight;
use super::change::{Stop, ask};
use super::found::{Groups, group_of};

/// An event with its payload, where that is kept.
const READ: &str = "
    SELECT e.source, e.event_id, e.type, e.raw_type, e.body_bytes, p.headers, p.body
    FROM event e JOIN payload p ON p.event = e.row WHERE e.row = $1";

/// The job that each of these handlers gets of an event, by the event's row; `None` where its condition does not hold.
#[derive(Default)]
pub(super) struct RoutedJobs(HashMap<(i64, Name), Option<NewJob>>);

impl RoutedJobs {
    /// Decides for each handler and the event in that row.
    pub(super) async fn of(
        flight: &mut Flight,
        router: &Arc<Router>,
        open: Vec<(i64, Name)>,
    ) -> Result<Self, Stop> {
        let mut routed = RoutedJobs::default();
        for (event, handler) in open {
            let job = match ask(flight, READ, vec![Box::new(event)]).await?.first() {
                Some(row) => {
                    let stored = StoredEvent::read(row)?;
                    let (router, of) = (Arc::clone(router), handler.clone());
                    // It may be hashing and parsing of some megabytes.
                    let job = tokio::task::spawn_blocking(move || stored.job(&router, &of)).await;
                    job.map_err(|error| Stop::Broken(error.to_string()))?
                }
                None => Some(NewJob::of(handler.clone())),
            };
            routed.0.insert((event, handler), job);
        }
        Ok(routed)
    }

    pub(super) fn has(&self, event: i64, handler: &Name) -> bool {
        self.0.contains_key(&(event, handler.clone()))
    }

    /// The job that this handler gets.
    ///
    /// # Errors
    /// It came while the others were decided.
    pub(super) fn job(&self, event: i64, handler: &Name) -> Result<Option<NewJob>, Stop> {
        self.0.get(&(event, handler.clone())).cloned().ok_or(Stop::Changed)
    }

    /// The groups that the jobs join.
    pub(super) fn groups(&self) -> Groups {
        self.0.values().flatten().filter_map(group_of).collect()
    }
}

struct StoredEvent {
    source: Name,
    id: String,
    event_type: EventType,
    headers: Headers,
    body: Vec<u8>,
    body_bytes: usize,
}

impl StoredEvent {
    fn read(row: &Row) -> Result<Self, Stop> {
        let raw: Option<Vec<u8>> = row.try_get(3)?;
        let raw = raw.map(|raw| String::from_utf8_lossy(&raw).into_owned());
        let bytes: i64 = row.try_get(4)?;
        Ok(StoredEvent {
            source: super::found::text(row, 0)?,
            id: row.try_get(1)?,
            event_type: EventType::from_parts(row.try_get(2)?, raw.as_deref()),
            headers: Headers::from_wire(row.try_get(5)?),
            body: row.try_get(6)?,
            body_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        })
    }

    fn job(self, router: &Router, handler: &Name) -> Option<NewJob> {
        let undecided =
            |why: String| Some(NewJob { undecided: Some(why), ..NewJob::of(handler.clone()) });
        let Some(routes) = router.of(&self.source) else {
            return Some(NewJob::of(handler.clone()));
        };
        let Some(route) = routes.of(handler) else {
            let why = "the handler is not configured for this source; reload first";
            return undecided(why.to_owned());
        };
        if !route.decides() {
            return Some(NewJob::of(handler.clone()));
        }
        let body = match codec::decompress_now(&self.body, self.body_bytes) {
            Ok(body) => body,
            Err(error) => return undecided(format!("the stored body cannot be read: {error}")),
        };
        let event = Event {
            id: &self.id,
            event_type: self.event_type.as_str(),
            headers: &self.headers,
            body: &body,
            form_field: routes.form_field.as_deref(),
        };
        // A delay counts from an event's arrival.
        routes.job(route, &event).map(|job| NewJob { delay: None, ..job })
    }
}
