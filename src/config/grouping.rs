//! Reads `order_by`, `coalesce_by` and `on_dead` of a handler.

use serde::{Serialize, Serializer};

use crate::condition::Key;
use crate::document::{OneOrMany, Section, Value};
use crate::limits::KEY_PLACES;
use crate::model::GroupRule;
use crate::payload::Place;

/// The value of `order_by` with `on_dead`, or of `coalesce_by`.
#[derive(PartialEq)]
pub(crate) struct Grouping {
    pub(super) places: Vec<Value<Place>>,
    rule: GroupRule,
}

impl Grouping {
    pub(crate) fn key(&self) -> Key {
        let places = self.places.iter().map(|place| place.value.clone()).collect();
        Key { places, rule: self.rule }
    }
}

impl Serialize for Grouping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let places: Vec<String> = self.places.iter().map(|place| place.value.to_string()).collect();
        let written = match self.rule {
            GroupRule::Latest => serde_json::json!({ "coalesce_by": places }),
            rule => serde_json::json!({ "order_by": places, "on_dead": rule.as_str() }),
        };
        written.serialize(serializer)
    }
}

/// Reads the keys. Problems go to the section's.
pub(super) fn read(section: &Section<'_>) -> Option<Grouping> {
    let on_dead = section.parse("on_dead", |text: String| match text.parse() {
        Ok(rule @ (GroupRule::Block | GroupRule::StepOver)) => Ok(rule),
        _ => Err(format!("must be 'block' or 'step-over', not '{text}'")),
    });
    let (ordered, coalesced) = (section.place_of("order_by"), section.place_of("coalesce_by"));
    if let (Some(on_dead), None) = (&on_dead, &ordered) {
        let message = "it says what a dead job does to the next of its order";
        section.reject(&on_dead.at, message, "add order_by, or remove it");
    }
    if let (Some(_), Some(at)) = (ordered, coalesced) {
        let help = "remove one of them: jobs that are coalesced also run one at a time per key";
        section.reject(&at, "both 'order_by' and 'coalesce_by' are given", help);
    }
    let grouping = |key, rule| Some(Grouping { places: read_places(section, key)?, rule });
    let coalesced = grouping("coalesce_by", GroupRule::Latest);
    grouping("order_by", on_dead.map_or(GroupRule::Block, |rule| rule.value)).or(coalesced)
}

fn read_places(section: &Section<'_>, key: &'static str) -> Option<Vec<Value<Place>>> {
    let count = section.value::<OneOrMany>(key)?.0.len();
    if !(1..=KEY_PLACES).contains(&count) {
        let message = format!("{count} places; it may be 1 to {KEY_PLACES}");
        section.report(&section.place_of(key)?, message);
    }
    Some(section.list(key, |text| match Place::parse(&text)? {
        place if place.wildcards() > 0 => {
            Err(format!("'{text}' may be several values, and a key has one: write no '*'"))
        }
        place => Ok(place),
    }))
}
