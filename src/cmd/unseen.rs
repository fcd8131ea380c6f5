//! For `hooklatch config check`: finds places of conditions and keys that no stored event has.

use crate::admin::{ShowEvent, StoreClient};
use crate::config::{Config, Handler};
use crate::document::{At, Fault, Problem};
use crate::exit::Failure;
use crate::payload::{self, Place, nearest_place};
use crate::store::EventFilter;

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
            let stored = stored(client, config, handler).await?;
            let unseen = handler
                .places()
                .filter_map(|place| unseen(config, &stored, &place.value, &place.at));
            found.extend(unseen);
        }
        Ok(found)
    });
    // Why a store cannot be asked is said by the look for jobs of handlers that are gone.
    found.unwrap_or_default()
}

async fn stored(
    client: &StoreClient,
    config: &Config,
    handler: &Handler,
) -> Result<Vec<Delivered>, Failure> {
    let mut stored = Vec::new();
    for source in config.source_names().filter(|source| handler.takes(source)) {
        let both = if config.two_levels(source) { vec!["", ".*"] } else { vec![""] };
        for event_type in
            handler.patterns().flat_map(|text| both.iter().map(move |end| format!("{text}{end}")))
        {
            let filter = EventFilter {
                source: Some(source.clone()),
                event_type: Some(event_type),
                limit: Some(LOOKED_AT),
                ..EventFilter::default()
            };
            for event in events(client, filter).await? {
                let shown = ShowEvent { source: Some(source.clone()), event: event.event_id };
                let shown = client.call(shown).await?;
                stored.extend(shown.events.iter().filter_map(Delivered::of));
            }
        }
    }
    Ok(stored)
}

fn unseen(config: &Config, stored: &[Delivered], place: &Place, at: &At) -> Option<Problem> {
    let has = |one: &Delivered| {
        payload::read(&one.event(config), &[place], usize::MAX)[0] != Ok(Vec::new())
    };
    let last = stored.first()?;
    if stored.iter().any(has) {
        return None;
    }
    let events = super::output::count(stored.len() as u64, "stored event");
    let message = format!("{place} is in none of the last {events} of this handler's types");
    Some(at.problem(match nearest_place(&last.event(config), place) {
        Some(near) => Fault::new(message, format!("did you mean \"{near}\"?")),
        None => Fault::from(message),
    }))
}
