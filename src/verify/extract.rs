//! Reads an event's facts out of a body without building a tree of it.
//!
//! `verify`, samples and hints call it. One pass follows the scheme's JSON pointers and skips
//! everything else, so that a body of 25 MiB needs no extra memory. Must stay true: if two readers
//! could read a body differently, no value is reported: a repeated member has none, and
//! a body with text after its JSON does not count as JSON.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::Rejection;
use crate::limits::LIST_EVENTS;
use crate::model::{Digest, Headers};
use crate::payload::walk::{self, members, walk, written};
use crate::payload::{Pointer, Unclear, field, json_of};
use crate::provider::place::Place;
use crate::provider::template::Template;
use crate::provider::{Scheme, StampPlace};

/// A string's decoded text, or a whole number as it is written; `None` where nothing or null stands.
pub(super) type Text = Result<Option<String>, NoText>;

/// What stands where a text is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoText {
    #[error("there twice")]
    Twice,
    /// Another value, as it is written.
    #[error("neither a string nor a whole number")]
    Other(String),
}

/// The values that a scheme reads from one body.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    body: &'a [u8],
    values: Vec<(&'a Pointer, Text)>,
    is_json: bool,
}

impl<'a> Facts<'a> {
    /// Reads the value of every JSON pointer of the scheme, in one pass over the body.
    pub(super) fn read(scheme: &'a Scheme, body: &'a [u8]) -> Self {
        let (proof, identity) = (scheme.proof(), scheme.identity());
        let ids = identity.ids.iter().flat_map(Place::parts);
        let types = identity.types.iter().chain(&identity.subtype);
        let places = ids.chain(types).chain(proof.key_url()).chain(proof.sender_place());
        let places = places.filter_map(|place| match place {
            Place::Json(pointer) => Some(pointer),
            _ => None,
        });
        let stamp = proof.timestamp.iter().filter_map(|stamp| match &stamp.place {
            StampPlace::Json(pointer) => Some(pointer),
            StampPlace::Item(_) | StampPlace::Header(_) => None,
        });
        let field = proof.signature.iter().filter_map(|signature| signature.field.as_ref());
        let signed = proof.signed_content().into_iter().flat_map(Template::pointers).chain(field);
        let proven = stamp.chain(signed).chain(scheme.challenge().pointers());
        // Each once: a text is decoded for each.
        let pointers: BTreeSet<&Pointer> = places.chain(proven).collect();
        let pointers: Vec<&Pointer> = pointers.into_iter().collect();
        let json = json_of(body, identity.form_field.as_deref()).filter(|_| !pointers.is_empty());
        let found = json.and_then(|json| written(&json, &pointers));
        let is_json = found.is_some();
        let texts = found.into_iter().flatten().map(|raw| match raw.or(Err(NoText::Twice))? {
            Some(raw) => text(&raw).ok_or(NoText::Other(raw)).map(Some),
            None => Ok(None),
        });
        let values = pointers.into_iter().zip(texts).collect();
        Facts { body, values, is_json }
    }

    /// The facts of a body that has not arrived.
    pub(super) fn none() -> Self {
        Facts::unparsed(&[])
    }

    /// The facts of a body that is not parsed: only its fields, if it is a form.
    pub(super) fn unparsed(body: &'a [u8]) -> Self {
        Facts { body, values: Vec::new(), is_json: false }
    }

    /// The text at a place in the body; nothing for headers, digests, and pointers that the scheme does not have.
    pub(super) fn at(&self, place: &Place) -> Text {
        match place {
            Place::Json(pointer) => self.value(pointer).cloned().unwrap_or(Ok(None)),
            Place::Form(name) => match field(self.body, name) {
                Ok(found) => Ok(found.map(Cow::into_owned)),
                Err(Unclear::Twice) => Err(NoText::Twice),
                Err(_) => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The text at a place of the request; nothing where it is malformed or there twice.
    pub(super) fn text_in(&self, place: &Place, headers: &Headers) -> Option<String> {
        match place {
            Place::Header(name) | Place::Key(name) => header(headers, name),
            _ => self.at(place).ok().flatten(),
        }
    }

    /// The text at `pointer`, if it occurs exactly once and is a string or a whole number.
    pub(super) fn text(&self, pointer: &Pointer) -> Option<&str> {
        self.value(pointer)?.as_ref().ok()?.as_deref()
    }

    /// The text at `pointer` as a signature covers it: empty where nothing stands. `None` if it is no text.
    pub(super) fn signed(&self, pointer: &Pointer) -> Option<&[u8]> {
        let text = self.value(pointer)?.as_ref().ok()?;
        Some(text.as_deref().unwrap_or_default().as_bytes())
    }

    fn value(&self, pointer: &Pointer) -> Option<&Text> {
        self.values.iter().find(|(known, _)| *known == pointer).map(|(_, text)| text)
    }

    /// Whether the body, or its form field, is JSON. False if the scheme has no JSON pointer,
    /// because the body is then not parsed.
    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }
}

/// The first value of a header.
pub(super) fn header(headers: &Headers, name: &str) -> Option<String> {
    headers.all(name).next().map(|value| String::from_utf8_lossy(value).into_owned())
}

/// The elements of the list at `list`, each as written: slices of `body`. A body without such a list is one event, and
/// an empty list has none.
///
/// # Errors
/// The list has more elements than its bytes allow.
pub(super) fn elements(
    body: &Bytes,
    list: &Pointer,
    event_bytes: usize,
) -> Result<Vec<Bytes>, Rejection> {
    let mut found = None;
    let json = json_of(body, None).unwrap_or_default();
    let is_json = walk(&json, std::iter::once((0, list)), |_, raw| {
        let raw = raw.ok().map(|raw| body.slice_ref(raw.as_bytes()));
        found = Some(raw.filter(|_| found.is_none()));
    });
    let most = (body.len() / event_bytes).max(LIST_EVENTS);
    let mut all = Vec::new();
    let list = found.flatten().filter(|_| is_json);
    let is_list = list.is_some_and(|raw| {
        walk::elements(&raw, most + 1, |one| all.push(raw.slice_ref(one.as_bytes())))
    });
    if all.len() > most {
        let detail =
            format!("the list has more than {most} events, so under {event_bytes} bytes for each");
        return Err(Rejection::malformed("too_many_events", detail));
    }
    Ok(if is_list { all } else { vec![body.clone()] })
}

/// Whether every element of a list that a pointer names is the only one of its list in a body of JSON. False for an
/// object in the place of a list.
pub(super) fn only_elements<'p>(
    body: &[u8],
    form_field: Option<&str>,
    pointers: impl Iterator<Item = &'p Pointer>,
) -> bool {
    let lists: BTreeSet<Pointer> = pointers.flat_map(Pointer::lists).collect();
    if lists.is_empty() {
        return true;
    }
    let lists: Vec<&Pointer> = lists.iter().collect();
    let found = json_of(body, form_field).and_then(|json| written(&json, &lists));
    let is_only = |raw: Option<String>| {
        let mut count = 0;
        raw.is_none_or(|raw| walk::elements(raw.as_bytes(), 2, |_| count += 1) && count < 2)
    };
    found.is_some_and(|found| found.into_iter().all(|raw| raw.is_ok_and(is_only)))
}

/// The decoded text of a JSON string, or a whole number as it is written; `None` for any other value.
pub fn text(raw: &str) -> Option<String> {
    let is_whole = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).ok(),
        _ => is_whole(raw.strip_prefix('-').unwrap_or(raw)).then(|| raw.to_owned()),
    }
}

/// The text at `pointer` in a JSON body, if it occurs exactly once.
pub fn text_at(body: &[u8], pointer: &Pointer) -> Option<String> {
    let raw = written(body, &[pointer])?.pop()?.ok()??;
    text(&raw)
}

/// SHA-256 of the values at `pointers` in a body's JSON, each exactly as written and preceded by its
/// length. `None` if readers could disagree on a value: the body is not JSON, or a value occurs twice.
pub(super) fn digest_at(
    body: &[u8],
    form_field: Option<&str>,
    pointers: &[Pointer],
) -> Option<Digest> {
    let json = json_of(body, form_field)?;
    let found = written(&json, &pointers.iter().collect::<Vec<_>>())?;
    let mut hash = Sha256::new();
    for value in found {
        let raw = value.ok()?;
        let (kind, text) = match raw.as_deref().map(|raw| text(raw).ok_or(raw)) {
            None => (0, String::new()),
            Some(Ok(text)) => (1, text),
            Some(Err(raw)) => (2, raw.to_owned()),
        };
        hash.update([kind]);
        add_part(&mut hash, text.as_bytes());
    }
    Some(Digest(hash.finalize().into()))
}

/// The digest of the `nth` element of a list that has this digest, from 0. Equal elements are different events.
pub(super) fn repeated(digest: Digest, nth: u64) -> Digest {
    match nth {
        0 => digest,
        _ => {
            let mut hash = Sha256::new_with_prefix(digest.0);
            hash.update(nth.to_be_bytes());
            Digest(hash.finalize().into())
        }
    }
}

/// Hashes one of several parts, preceded by its length: without the length, moving bytes from one
/// part to the next would not change the hash.
pub(crate) fn add_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

/// The fields of a form, sorted by name and then by value, each pair `once` or as often as it is there: name and value,
/// nothing between them.
pub(super) fn sorted_fields(form: &[u8], once: bool) -> String {
    let mut fields = sorted_pairs(form);
    if once {
        fields.dedup();
    }
    fields.into_iter().flat_map(|(name, value)| [name, value]).collect()
}

/// The pairs of a form or a query, decoded and sorted.
pub(super) fn sorted_pairs(form: &[u8]) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    let mut pairs: Vec<_> = form_urlencoded::parse(form).collect();
    pairs.sort_unstable();
    pairs
}

/// SHA-256 of a body. If the scheme has volatile fields and the body is a JSON object, it hashes the
/// name and raw value of each other top-level member, so that two deliveries of one event have one
/// digest. Values are not normalised: another spelling of the same value gives another digest.
pub fn digest(body: &[u8], volatile: &[String]) -> Digest {
    let mut hash = Sha256::new();
    let is_stable = |name: &str| !volatile.iter().any(|own| own == name);
    let is_object = !volatile.is_empty()
        && members(body, is_stable, |name, raw| {
            for text in [name, raw] {
                add_part(&mut hash, text.as_bytes());
            }
        });
    let hash = if is_object { hash } else { Sha256::new_with_prefix(body) };
    Digest(hash.finalize().into())
}

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
