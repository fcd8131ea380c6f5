//! Which job a handler gets of a stored event by the routes of now, for a replay.

use std::collections::HashMap;

use crate::model::{EventId, EventType, Headers, Name, Timestamp};
use crate::payload::Event;
use crate::routing::{NewJob, Router};
use crate::store::codec;
use crate::store::sum::Given;

/// The job that each of these handlers gets of an event, by the event's row; `None` where its condition does not hold.
#[derive(Default)]
pub(crate) struct Decided(pub(crate) HashMap<(i64, Name), Option<NewJob>>);

impl Decided {
    pub(crate) fn has(&self, event: i64, handler: &Name) -> bool {
        self.0.contains_key(&(event, handler.clone()))
    }

    /// The job that this handler gets. What came while the others were decided is undecided.
    pub(crate) fn job(&self, event: i64, handler: &Name) -> Option<NewJob> {
        let found = self.0.get(&(event, handler.clone()));
        found.cloned().unwrap_or_else(|| undecided(handler, "it came meanwhile; try again"))
    }
}

/// An event with its payload.
pub(crate) struct StoredEvent<'r> {
    pub(crate) source: Name,
    pub(crate) id: EventId,
    pub(crate) event_type: EventType,
    pub(crate) received_at: Timestamp,
    /// The headers, as HTTP writes them.
    pub(crate) headers: &'r [u8],
    /// The body, compressed with zstd.
    pub(crate) body: &'r [u8],
    pub(crate) body_bytes: usize,
    /// The sum that was made when the event was stored.
    pub(crate) sum: i64,
}

impl StoredEvent<'_> {
    /// The job that this handler gets; `None` where its condition does not hold. It may parse some megabytes. A payload
    /// that is not what was accepted decides nothing.
    pub(crate) fn job(&self, router: &Router, handler: &Name) -> Option<NewJob> {
        let Some(routes) = router.of(&self.source) else {
            return Some(NewJob::of(handler.clone()));
        };
        let Some(route) = routes.of(handler) else {
            let why = "the handler is not configured for this source; reload first";
            return undecided(handler, why);
        };
        if !route.decides() {
            return Some(NewJob::of(handler.clone()));
        }
        let given = Given {
            source: self.source.as_str(),
            event_id: self.id.as_str(),
            event_type: &self.event_type,
            headers: self.headers,
            body: self.body,
        };
        if self.sum != given.sum(self.received_at) {
            return undecided(handler, "the stored payload is damaged");
        }
        let body = match codec::decompress_now(self.body, self.body_bytes) {
            Ok(body) => body,
            Err(error) => {
                return undecided(handler, format!("the stored body cannot be read: {error}"));
            }
        };
        let event = Event {
            id: self.id.as_str(),
            event_type: self.event_type.as_str(),
            headers: &Headers::from_wire(self.headers),
            body: &body,
            form_field: routes.form_field.as_deref(),
            inflated_bytes: routes.inflated_bytes,
        };
        // A delay counts from an event's arrival.
        routes.job(route, &event).map(|job| NewJob { delay: None, ..job })
    }
}

fn undecided(handler: &Name, why: impl Into<String>) -> Option<NewJob> {
    Some(NewJob { undecided: Some(why.into()), ..NewJob::of(handler.clone()) })
}
