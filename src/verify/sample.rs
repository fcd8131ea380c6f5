//! Makes sample bodies for test deliveries, and reads the id and type from a given body.
//!
//! `send`, `demo` and the drill call it. `providers/samples/` has bodies in the form that each
//! provider documents, with invented values. For a provider without samples the body is an object or
//! a form that has id, type and time at the places that the scheme reads.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::extract::{self, Facts};
use super::stamp;
use crate::limits::LIST_EVENT_BYTES;
use crate::model::Timestamp;
use crate::payload::Pointer;
use crate::provider::place::Place;
use crate::provider::{Scheme, StampPlace};

/// A body for an event with this id and type. Bodies for different ids differ, so that the replay
/// guard does not treat one as a replay of the other.
pub fn sample(scheme: &Scheme, id: &str, event_type: &str, now: Timestamp) -> Vec<u8> {
    let identity = scheme.identity();
    let (first, second) = levels(scheme, event_type);
    let field = |places: &[Place]| match places.first() {
        Some(Place::Form(field)) => Some(field.clone()),
        _ => None,
    };
    let fields = [(field(&identity.types), first), (field(&identity.ids), id)];
    if fields.iter().any(|(field, _)| field.is_some()) {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("hooklatch_sample", id);
        for (field, value) in fields {
            form.extend_pairs(field.iter().map(|field| (field, value)));
        }
        return form.finish().into_bytes();
    }
    let described = described(scheme, event_type).to_string();
    let mut body: Map<String, Value> =
        serde_json::from_str(&filled(&described, id, now)).unwrap_or_default();
    if !FROM_ID.iter().any(|name| described.contains(name)) {
        body.insert("hooklatch_sample".to_owned(), id.into());
    }
    if let Some(stamp) = &scheme.proof().timestamp
        && let StampPlace::Json(pointer) = &stamp.place
    {
        let text = stamp::print(now, stamp.unit);
        // Numbers stand as numbers: the providers' libraries refuse them as texts.
        put(&mut body, pointer, text.parse::<i64>().map_or(Value::from(text), Value::from));
    }
    if let (Some(Place::Json(pointer)), Some(second)) = (&identity.subtype, second) {
        put(&mut body, pointer, second.into());
    }
    for (places, value) in [(&identity.types, first), (&identity.ids, id)] {
        if let Some(Place::Json(pointer)) = places.first() {
            put(&mut body, pointer, value.into());
        }
    }
    let one = Value::Object(body);
    let body = match &identity.each {
        None => one,
        Some(list) => {
            let steps = list.steps().iter().rev();
            steps.fold(json!([one]), |inner, step| json!({ step.as_str(): inner }))
        }
    };
    match &identity.form_field {
        Some(field) if scheme.proof().signs_fields() => {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair(field, &body.to_string());
            form.finish().into_bytes()
        }
        _ => body.to_string().into_bytes(),
    }
}

/// The media type of a body that the scheme's provider sends.
pub fn media_type(scheme: &Scheme, body: &[u8]) -> &'static str {
    let mut places = scheme.identity().types.iter().chain(&scheme.identity().ids);
    let sends_forms =
        scheme.proof().signs_fields() || places.any(|place| matches!(place, Place::Form(_)));
    match body.first() {
        Some(first) if sends_forms && !b"{[".contains(first) => "application/x-www-form-urlencoded",
        _ => "application/json",
    }
}

/// The provider's sample body with its placeholders. It merges the members for every type (`*`), then
/// those for the type's family (`pull_request` of `pull_request.opened`), then those for the type.
fn described(scheme: &Scheme, event_type: &str) -> Value {
    let samples: Map<String, Value> =
        serde_json::from_str(scheme.setup().samples).unwrap_or_default();
    let family = event_type.rsplit_once('.').map(|(family, _)| family);
    let mut body = Value::Object(Map::new());
    for key in [Some("*"), family, Some(event_type)].into_iter().flatten() {
        if let Some(sample) = samples.get(key) {
            merge(&mut body, sample);
        }
    }
    body
}

/// Merges `over` into `under`: objects member by member; any other value replaces the old one.
fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                merge(under.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// The placeholders whose values differ between ids.
const FROM_ID: [&str; 4] = ["{{id}}", "{{hex}}", "{{sha}}", "{{number}}"];

/// The JSON text with the values of its placeholders. A string that consists of a placeholder for a number
/// becomes a JSON number.
fn filled(json: &str, id: &str, now: Timestamp) -> String {
    let digest: [u8; 32] = Sha256::digest(id).into();
    let sha = data_encoding::HEXLOWER.encode(&digest[..20]);
    let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]).to_string();
    let unix = now.seconds().to_string();
    let seconds = Timestamp(now.seconds() * 1000).to_string().replace(".000", "");
    let quoted = Value::from(id).to_string();
    json.replace("\"{{number}}\"", &number)
        .replace("\"{{unix}}\"", &unix)
        .replace("{{number}}", &number)
        .replace("{{unix}}", &unix)
        .replace("{{hex}}", &sha[..24])
        .replace("{{sha}}", &sha)
        .replace("{{iso}}", &seconds)
        // Last, because an id may have the form of a placeholder.
        .replace("{{id}}", &quoted[1..quoted.len() - 1])
}

/// Splits a type into its two levels, such as `pull_request` and `opened`. The second is `None` if
/// the provider's types have one level.
pub(super) fn levels<'t>(scheme: &Scheme, event_type: &'t str) -> (&'t str, Option<&'t str>) {
    match event_type.split_once('.') {
        Some((first, second)) if scheme.identity().two_levels() => (first, Some(second)),
        _ => (event_type, None),
    }
}

/// The facts that a body states about its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyFacts {
    /// `None` if the scheme reads the id from another place, or the body lacks it.
    pub id: Option<String>,
    /// Whether the scheme reads the id from a header first, so that the sender can choose it.
    pub id_is_free: bool,
    /// The type that the receiver will read. A type in the body overrides the given one.
    pub event_type: String,
    /// What the scheme reads from the body but does not find there: `"id"` or `"type"`.
    pub lacks: Option<&'static str>,
}

/// Reads the facts of `body`, which the caller is going to send as `event_type`.
pub fn read_body(scheme: &Scheme, body: &[u8], event_type: &str) -> BodyFacts {
    let identity = scheme.identity();
    // The first of a list: `send` makes lists of one.
    let first = identity.each.as_ref().and_then(|list| {
        extract::elements(&Bytes::copy_from_slice(body), list, LIST_EVENT_BYTES)
            .ok()?
            .into_iter()
            .next()
    });
    let facts = Facts::read(scheme, first.as_deref().unwrap_or(body));
    let at = |places: &[Place]| facts.at(places.first()?).ok().flatten();
    let in_body = |places: &[Place]| matches!(places, [Place::Json(_) | Place::Form(_)]);
    let (id, first) = (at(&identity.ids), at(&identity.types));
    let lacks = if id.is_none() && in_body(&identity.ids) {
        Some("id")
    } else if first.is_none() && in_body(&identity.types) {
        Some("type")
    } else {
        None
    };
    let first = first.unwrap_or_else(|| levels(scheme, event_type).0.to_owned());
    let second = identity.subtype.as_ref().and_then(|place| facts.at(place).ok().flatten());
    BodyFacts {
        id,
        id_is_free: identity.ids.first().is_some_and(|place| place.header().is_some()),
        event_type: match second.filter(|second| !second.is_empty()) {
            Some(second) => format!("{first}.{second}"),
            None => first,
        },
        lacks,
    }
}

/// Sets a value at `pointer` and creates the objects on the path to it. An existing value stays.
fn put(body: &mut Map<String, Value>, pointer: &Pointer, value: Value) {
    let Some((last, way)) = pointer.steps().split_last() else { return };
    let mut here = body;
    for step in way {
        let next = here.entry(step.clone()).or_insert_with(|| Value::Object(Map::new()));
        match next {
            Value::Object(object) => here = object,
            _ => return,
        }
    }
    here.entry(last.clone()).or_insert(value);
}
