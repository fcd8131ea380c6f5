//! Reads an event's facts out of a body without building a tree of it.
//!
//! `verify`, samples and hints call it. One pass follows the scheme's JSON pointers and skips
//! everything else, so that a body of 25 MiB needs no extra memory. Must stay true: if two readers
//! could read a body differently, no value is reported. A repeated member is [`Found::Twice`], and
//! a body with text after its JSON does not count as JSON.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::model::Digest;
use crate::payload::walk;
use crate::payload::{Pointer, fields, json_of};
use crate::provider::place::Place;
use crate::provider::{Scheme, StampPlace};

/// The value at a JSON pointer or in a form field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// There is no such value, or it is `null`.
    Absent,
    /// A string's decoded text, or a whole number exactly as written in the body.
    Text(String),
    /// Any other JSON value, exactly as written in the body.
    Other(String),
    /// The member, or one on the path to it, occurs twice.
    Twice,
}

/// The values that a scheme reads from one body.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    body: &'a [u8],
    values: Vec<(&'a Pointer, Found)>,
    is_json: bool,
}

impl<'a> Facts<'a> {
    /// Reads the value of every JSON pointer of the scheme, in one pass over the body.
    pub(super) fn read(scheme: &'a Scheme, body: &'a [u8]) -> Self {
        let event = &scheme.event;
        let places = event.ids.iter().chain(&event.types).filter_map(|place| match place {
            Place::Json(pointer) => Some(pointer),
            Place::Header(_) | Place::Key(_) | Place::Form(_) | Place::Digest => None,
        });
        let stamp = scheme.timestamp.iter().filter_map(|stamp| match &stamp.place {
            StampPlace::Json(pointer) => Some(pointer),
            StampPlace::Item(_) | StampPlace::Header(_) => None,
        });
        let pointers: Vec<&Pointer> = places.chain(&event.subtype).chain(stamp).collect();
        let json = json_of(body, event.form_field.as_deref()).filter(|_| !pointers.is_empty());
        let found = json.and_then(|json| follow(&json, &pointers));
        let is_json = found.is_some();
        let values = pointers.into_iter().zip(found.unwrap_or_default()).collect();
        Facts { body, values, is_json }
    }

    /// The value at a place in the body; [`Found::Absent`] for headers, digests, and pointers that the
    /// scheme does not have.
    pub(super) fn at(&self, place: &Place) -> Found {
        match place {
            Place::Json(pointer) => self.value(pointer).cloned().unwrap_or(Found::Absent),
            Place::Form(name) => field(self.body, name),
            Place::Header(_) | Place::Key(_) | Place::Digest => Found::Absent,
        }
    }

    /// The text at `pointer`, if it occurs exactly once and is a string or a whole number.
    pub(super) fn text(&self, pointer: &Pointer) -> Option<&str> {
        match self.value(pointer)? {
            Found::Text(text) => Some(text),
            Found::Absent | Found::Other(_) | Found::Twice => None,
        }
    }

    fn value(&self, pointer: &Pointer) -> Option<&Found> {
        self.values.iter().find(|(known, _)| *known == pointer).map(|(_, found)| found)
    }

    /// Whether the body, or its form field, is JSON. False if the scheme has no JSON pointer,
    /// because the body is then not parsed.
    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }
}

/// The value of the field `name` in a form-encoded body.
fn field(body: &[u8], name: &str) -> Found {
    let mut values = fields(body, name);
    match (values.next(), values.next()) {
        (None, _) => Found::Absent,
        (Some(value), None) => Found::Text(value.into_owned()),
        (Some(_), Some(_)) => Found::Twice,
    }
}

/// The values at `pointers`, in their order; `None` if the text is not exactly one JSON value.
pub fn follow(json: &[u8], pointers: &[&Pointer]) -> Option<Vec<Found>> {
    let mut found = vec![Found::Absent; pointers.len()];
    walk::walk(json, pointers.iter().copied(), &mut found).then_some(found)
}

impl walk::Sink for Vec<Found> {
    fn value(&mut self, slot: usize, raw: &str) {
        // A step `*` of a pointer may lead to several: then no one of them is meant.
        let value = scalar(raw);
        self[slot] = if self[slot] == Found::Absent { value } else { Found::Twice };
    }

    fn twice(&mut self, slot: usize) {
        self[slot] = Found::Twice;
    }
}

fn scalar(raw: &str) -> Found {
    let whole = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match raw.as_bytes().first() {
        Some(b'n') => Found::Absent,
        Some(b'"') => match serde_json::from_str(raw) {
            Ok(text) => Found::Text(text),
            Err(_) => Found::Other(raw.to_owned()),
        },
        _ if whole(raw.strip_prefix('-').unwrap_or(raw)) => Found::Text(raw.to_owned()),
        _ => Found::Other(raw.to_owned()),
    }
}

/// SHA-256 of the values at `pointers` in a body's JSON, each exactly as written and preceded by its
/// length. `None` if readers could disagree on a value: the body is not JSON, or a value occurs twice.
pub(super) fn digest_at(
    body: &[u8],
    form_field: Option<&str>,
    pointers: &[Pointer],
) -> Option<Digest> {
    let json = json_of(body, form_field)?;
    let found = follow(&json, &pointers.iter().collect::<Vec<_>>())?;
    let mut hash = Sha256::new();
    for value in &found {
        let (kind, text) = match value {
            Found::Absent => (0, ""),
            Found::Text(text) => (1, text.as_str()),
            Found::Other(raw) => (2, raw.as_str()),
            Found::Twice => return None,
        };
        hash.update([kind]);
        add_part(&mut hash, text.as_bytes());
    }
    Some(Digest(hash.finalize().into()))
}

/// Hashes one of several parts, preceded by its length: without the length, moving bytes from one
/// part to the next would not change the hash.
pub(crate) fn add_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

/// SHA-256 of a body. If the scheme has volatile fields and the body is a JSON object, it hashes the
/// name and raw value of each other top-level member, so that two deliveries of one event have one
/// digest. Values are not normalised: another spelling of the same value gives another digest.
pub fn digest(body: &[u8], volatile: &[String]) -> Digest {
    let stable = || {
        let mut hash = Sha256::new();
        let mut reader = serde_json::Deserializer::from_slice(body);
        Members { volatile, hash: &mut hash }.deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        Some(hash)
    };
    let hash = if volatile.is_empty() { None } else { stable() };
    let hash = hash.unwrap_or_else(|| Sha256::new_with_prefix(body));
    Digest(hash.finalize().into())
}

/// Hashes the name and raw value of each top-level member that is not volatile.
struct Members<'a> {
    volatile: &'a [String],
    hash: &'a mut Sha256,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if self.volatile.contains(&name) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let raw: &RawValue = map.next_value()?;
            for text in [name.as_str(), raw.get()] {
                add_part(self.hash, text.as_bytes());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
