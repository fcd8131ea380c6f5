//! Makes a small body of our own in a provider's form, and reads what a given one says of itself.
//!
//! For test deliveries. Nothing of it is a provider's text: an object, or a form, with id, type and time
//! where the scheme looks for them.

use serde_json::{Map, Value};

use super::extract::{Facts, Found};
use super::stamp;
use crate::model::Timestamp;
use crate::provider::place::{Place, Pointer};
use crate::provider::{Scheme, StampPlace};

/// A body for an event of this id and type. No two ids have the same body, so that no replay guard
/// takes one for the other.
pub fn sample(scheme: &Scheme, id: &str, event_type: &str, now: Timestamp) -> Vec<u8> {
    let (first, second) = levels(scheme, event_type);
    let field = |places: &[Place]| match places.first() {
        Some(Place::Form(field)) => Some(field.clone()),
        _ => None,
    };
    let fields = [(field(&scheme.event.types), first), (field(&scheme.event.ids), id)];
    if fields.iter().any(|(field, _)| field.is_some()) {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("hooklatch_sample", id);
        for (field, value) in fields {
            form.extend_pairs(field.iter().map(|field| (field, value)));
        }
        return form.finish().into_bytes();
    }
    let mut body = Map::new();
    body.insert("hooklatch_sample".to_owned(), id.into());
    if let Some(stamp) = &scheme.timestamp
        && let StampPlace::Json(pointer) = &stamp.place
    {
        put(&mut body, pointer, &stamp::print(now, stamp.unit));
    }
    if let (Some(pointer), Some(second)) = (&scheme.event.subtype, second) {
        put(&mut body, pointer, second);
    }
    for (places, value) in [(&scheme.event.types, first), (&scheme.event.ids, id)] {
        if let Some(Place::Json(pointer)) = places.first() {
            put(&mut body, pointer, value);
        }
    }
    Value::Object(body).to_string().into_bytes()
}

/// The two levels of a type, where the provider has two: `pull_request` and `opened`.
pub(super) fn levels<'t>(scheme: &Scheme, event_type: &'t str) -> (&'t str, Option<&'t str>) {
    match event_type.split_once('.') {
        Some((first, second)) if scheme.two_levels() => (first, Some(second)),
        _ => (event_type, None),
    }
}

/// What a body says of its event, as far as it stands in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The id; nothing where the scheme has it elsewhere, or the body lacks it.
    pub id: Option<String>,
    /// Whether the scheme looks for the id in a header first, so that the sender may choose it.
    pub id_is_free: bool,
    /// The type of the event when it is sent as the type that was given: what the body says wins.
    pub event_type: String,
}

/// Reads what `body` says of its event, which is to be sent as `event_type`.
pub fn told(scheme: &Scheme, body: &[u8], event_type: &str) -> Told {
    let facts = Facts::read(scheme, body);
    let at = |places: &[Place]| match facts.at(places.first()?) {
        Found::Text(text) => Some(text.clone()),
        Found::Absent | Found::Other(_) | Found::Twice => None,
    };
    let first = at(&scheme.event.types);
    let first = first.unwrap_or_else(|| levels(scheme, event_type).0.to_owned());
    let second = scheme.event.subtype.as_ref().and_then(|pointer| facts.text(pointer));
    Told {
        id: at(&scheme.event.ids),
        id_is_free: scheme.event.ids.first().is_some_and(|place| place.header().is_some()),
        event_type: match second.filter(|second| !second.is_empty()) {
            Some(second) => format!("{first}.{second}"),
            None => first,
        },
    }
}

/// Sets a text at `pointer`, with the objects on the way to it. What stands in the way stays.
fn put(body: &mut Map<String, Value>, pointer: &Pointer, text: &str) {
    let Some((last, way)) = pointer.steps().split_last() else { return };
    let mut here = body;
    for step in way {
        let next = here.entry(step.clone()).or_insert_with(|| Value::Object(Map::new()));
        match next {
            Value::Object(object) => here = object,
            _ => return,
        }
    }
    here.entry(last.clone()).or_insert_with(|| text.into());
}
