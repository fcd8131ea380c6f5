//! Reads an event's facts out of a body without building a tree of it.
//!
//! One pass follows the scheme's JSON pointers and skips everything else, so that 25 MiB cost no
//! memory. Must stay true: where a body can be read in two ways, no value is reported for it. A
//! member that comes twice is [`Found::Twice`], and text behind the JSON makes the whole no JSON.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::model::Digest;
use crate::provider::place::{Place, Pointer};
use crate::provider::{Scheme, StampPlace};

/// What stands at a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or `null`.
    Absent,
    /// A string's text, or a whole number as it is written.
    Text(String),
    /// Something else, as it is written.
    Other(String),
    /// The member, or one on the way to it, is there twice.
    Twice,
}

/// The values at all of a scheme's pointers.
#[derive(Debug)]
pub(super) struct Facts {
    values: Vec<(Pointer, Found)>,
    fields: Vec<(String, Found)>,
    json: bool,
}

impl Facts {
    /// Reads everything the scheme wants from the body.
    pub(super) fn read(scheme: &Scheme, body: &[u8]) -> Self {
        let event = &scheme.event;
        let places = || event.ids.iter().chain(&event.types);
        let facts = places().filter_map(|place| match place {
            Place::Json(pointer) => Some(pointer),
            Place::Header(_) | Place::Key(_) | Place::Form(_) | Place::Digest => None,
        });
        let fields = places().filter_map(|place| match place {
            Place::Form(name) => Some((name.clone(), field(body, name))),
            Place::Header(_) | Place::Key(_) | Place::Json(_) | Place::Digest => None,
        });
        let fields = fields.collect();
        let stamp = scheme.timestamp.iter().filter_map(|stamp| match &stamp.place {
            StampPlace::Json(pointer) => Some(pointer),
            StampPlace::Item(_) | StampPlace::Header(_) => None,
        });
        let mut wanted: Vec<&Pointer> = Vec::new();
        for pointer in facts.chain(&event.subtype).chain(stamp) {
            if !wanted.contains(&pointer) {
                wanted.push(pointer);
            }
        }
        let json = json_of(body, event.form_field.as_deref()).filter(|_| !wanted.is_empty());
        let found = json.and_then(|json| follow(&json, &wanted));
        let json = found.is_some();
        let found = found.unwrap_or_else(|| vec![Found::Absent; wanted.len()]);
        Facts { values: wanted.into_iter().cloned().zip(found).collect(), fields, json }
    }

    /// What stands at `pointer`.
    pub(super) fn get(&self, pointer: &Pointer) -> &Found {
        self.values.iter().find(|(p, _)| p == pointer).map_or(&Found::Absent, |(_, found)| found)
    }

    /// What a place of the body has; nothing where it is none of the body's.
    pub(super) fn at(&self, place: &Place) -> &Found {
        match place {
            Place::Json(pointer) => self.get(pointer),
            Place::Form(name) => {
                let field = self.fields.iter().find(|(field, _)| field == name);
                field.map_or(&Found::Absent, |(_, found)| found)
            }
            Place::Header(_) | Place::Key(_) | Place::Digest => &Found::Absent,
        }
    }

    /// The text at `pointer`, where there is exactly one.
    pub(super) fn text(&self, pointer: &Pointer) -> Option<&str> {
        match self.get(pointer) {
            Found::Text(text) => Some(text),
            Found::Absent | Found::Other(_) | Found::Twice => None,
        }
    }

    /// Whether the body, or its form field, is JSON; only where the scheme wants something of it.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }
}

/// What a form-encoded body has in the field `name`.
fn field(body: &[u8], name: &str) -> Found {
    let mut values = form_urlencoded::parse(body).filter(|(field, _)| field == name);
    match (values.next(), values.next()) {
        (None, _) => Found::Absent,
        (Some((_, value)), None) => Found::Text(value.into_owned()),
        (Some(_), Some(_)) => Found::Twice,
    }
}

/// The JSON text of a body: itself without a byte order mark (RFC 8259 lets a reader ignore it), or
/// the one field of a form. Chosen by the bytes, which are signed, and not by the content type,
/// which is not.
pub(crate) fn json_of<'b>(body: &'b [u8], form_field: Option<&str>) -> Option<Cow<'b, [u8]>> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let first = body.iter().find(|b| !b.is_ascii_whitespace());
    match form_field {
        Some(field) if !matches!(first, Some(b'{' | b'[')) => {
            let mut values = form_urlencoded::parse(body).filter(|(name, _)| name == field);
            let (_, value) = values.next()?;
            values.next().is_none().then(|| match value {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            })
        }
        _ => Some(Cow::Borrowed(body)),
    }
}

/// The values at `pointers`, in their order; nothing where the text is not one JSON value.
pub(crate) fn follow(json: &[u8], pointers: &[&Pointer]) -> Option<Vec<Found>> {
    let mut found = vec![Found::Absent; pointers.len()];
    let wants =
        pointers.iter().enumerate().map(|(slot, p)| Want { slot, steps: p.steps() }).collect();
    let mut reader = serde_json::Deserializer::from_slice(json);
    Walk { wants, found: &mut found }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(found)
}

/// The rest of a pointer, and where its value goes.
#[derive(Clone, Copy)]
struct Want<'p> {
    slot: usize,
    steps: &'p [String],
}

/// Reads one value for the wants that lead to or through it.
struct Walk<'p, 'f> {
    wants: Vec<Want<'p>>,
    found: &'f mut Vec<Found>,
}

impl<'p> Walk<'p, '_> {
    /// The wants whose next step is `step`, with that step taken.
    fn through(&self, step: &str) -> Vec<Want<'p>> {
        let take = |want: &Want<'p>| match want.steps {
            [first, rest @ ..] if first == step => Some(Want { slot: want.slot, steps: rest }),
            _ => None,
        };
        self.wants.iter().filter_map(take).collect()
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.wants.iter().all(|want| !want.steps.is_empty()) {
            return reader.deserialize_any(self);
        }
        // A pointer ends here. Where another goes on, the value's own text is read once more.
        let raw: &RawValue = serde::Deserialize::deserialize(reader)?;
        let (ends, on): (Vec<_>, Vec<_>) =
            self.wants.into_iter().partition(|want| want.steps.is_empty());
        for want in ends {
            self.found[want.slot] = scalar(raw.get());
        }
        if !on.is_empty() {
            let mut reader = serde_json::Deserializer::from_str(raw.get());
            Walk { wants: on, found: self.found }
                .deserialize(&mut reader)
                .map_err(serde::de::Error::custom)?;
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen: Vec<usize> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let wants = self.through(&name);
            let again: Vec<usize> =
                wants.iter().map(|w| w.slot).filter(|s| seen.contains(s)).collect();
            if wants.is_empty() || !again.is_empty() {
                again.into_iter().for_each(|slot| self.found[slot] = Found::Twice);
                map.next_value::<IgnoredAny>()?;
            } else {
                seen.extend(wants.iter().map(|want| want.slot));
                map.next_value_seed(Walk { wants, found: self.found })?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        for index in 0usize.. {
            let wants = self.through(&index.to_string());
            let more = match wants.is_empty() {
                true => seq.next_element::<IgnoredAny>()?.is_some(),
                false => seq.next_element_seed(Walk { wants, found: self.found })?.is_some(),
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
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

/// SHA-256 of what stands at `pointers` in a body's JSON, each value as it is written and with its length
/// before it. None where that is not the same to every reader: the body is no JSON, or a value is there twice.
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

/// Adds one of several parts, with its length before it: no bytes can move from one to the next.
pub(crate) fn add_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

/// SHA-256 of a body. Where the scheme has volatile fields and the body is a JSON object, of each
/// top-level member's name and raw value but theirs, so that two deliveries of one event agree.
/// Nothing is re-printed: another spelling of the same value is another body.
pub(crate) fn digest(body: &[u8], volatile: &[String]) -> Digest {
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

/// Hashes an object's members, each text with its length before it.
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
