//! Finds, for `hooklatch config check`, places of conditions and keys that no stored event has.

use std::collections::BTreeSet;

use crate::admin::{ShowEvent, StoreClient};
use crate::config::{Config, Handler};
use crate::document::{Fault, Problem, Value};
use crate::exit::Failure;
use crate::payload::{self, Place, nearest_place};
use crate::store::{EventFilter, EventRow};

use super::delivered::Delivered;
use super::store::{events, with_client};

/// How many of the newest events of each of a handler's types are looked at.
const LOOKED_AT: usize = 20;

/// One warning for each place that is in none of the newest stored events of its handler's types. Without stored events
/// nothing is known.
pub(super) fn find(config: &Config) -> Vec<Problem> {
    let looks = |handler: &&Handler| handler.places().next().is_some();
    let handlers: Vec<&Handler> = config.handlers.iter().filter(looks).collect();
    if handlers.is_empty() {
        return Vec::new();
    }
    let found = with_client(config, async |client| {
        let mut found = Vec::new();
        for handler in handlers {
            found.extend(unseen(client, config, handler).await?);
        }
        Ok(found)
    });
    // Why a store cannot be asked is said by the look for jobs of handlers that are gone.
    found.unwrap_or_default()
}

/// The places that no event had so far, with the nearest that the first event has.
async fn unseen(
    client: &StoreClient,
    config: &Config,
    handler: &Handler,
) -> Result<Vec<Problem>, Failure> {
    let mut unseen: Vec<_> = handler.places().map(|place| (place, None)).collect();
    let mut looked_at = BTreeSet::new();
    for source in config.source_names().filter(|source| handler.takes(source)) {
        let ends: &[&str] = if config.two_levels(source) { &["", ".*"] } else { &[""] };
        let types =
            handler.patterns().flat_map(|text| ends.iter().map(move |end| format!("{text}{end}")));
        for event_type in types {
            let filter = EventFilter {
                source: Some(source.clone()),
                event_type: Some(event_type),
                limit: Some(LOOKED_AT),
                ..EventFilter::default()
            };
            for EventRow { event_id, .. } in events(client, filter).await? {
                if !looked_at.insert((source, event_id.clone())) {
                    continue;
                }
                let shown =
                    ShowEvent { source: Some(source.clone()), event: event_id, variant: None };
                let shown = client.show(shown).await?;
                for one in shown.iter().filter_map(Delivered::of) {
                    let event = one.event(config);
                    unseen.retain_mut(|(place, near)| {
                        let read =
                            payload::read(&event, &[(&place.value).into()], usize::MAX).remove(0);
                        near.get_or_insert_with(|| nearest_place(&event, &place.value));
                        !read.is_ok_and(|found| !found.is_empty())
                    });
                }
            }
        }
    }
    // Where nothing was looked at, nothing is known.
    let known = unseen.into_iter().filter_map(|(place, near)| Some((place, near?)));
    Ok(known.map(|(place, near)| problem(place, near, looked_at.len())).collect())
}

fn problem(
    Value { value: place, at }: &Value<Place>,
    near: Option<String>,
    events: usize,
) -> Problem {
    let events = super::output::count(events as u64, "stored event");
    let message = format!("{place} is in none of the last {events} of this handler's types");
    at.problem(match near {
        Some(near) => Fault::new(message, format!("did you mean \"{near}\"?")),
        None => Fault::from(message),
    })
}
