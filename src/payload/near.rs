//! The places that a body has, to say which one may have been meant.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Event, Place, json_of};

/// Larger bodies are not looked through: a tree of one takes several times its size.
const BODY_BYTES: usize = 1024 * 1024;

/// The most places that are compared.
const PLACES: usize = 10_000;

/// The place in the body that is most like this one, if one is like it at all. Elements of lists are `*`.
pub fn nearest_place(event: &Event<'_>, wanted: &Place) -> Option<String> {
    let Place::Json(pointer) = wanted else { return None };
    let body = event.plain_body().ok()?;
    let json = json_of(&body, event.form_field).filter(|json| json.len() <= BODY_BYTES)?;
    let wanted = pointer.to_string();
    let most = 1 + wanted.len() / 4;
    let mut found = BTreeSet::new();
    collect(&serde_json::from_slice(&json).ok()?, "", 4 * (wanted.len() + most), &mut found);
    let like = found.into_iter().map(|place| (strsim::damerau_levenshtein(&wanted, &place), place));
    like.filter(|(distance, _)| *distance <= most).min().map(|(_, place)| place)
}

/// Adds the places in a value at `path` that may be near. What is `longest` or more bytes long is not, and is not even
/// put together.
fn collect(value: &Value, path: &str, longest: usize, found: &mut BTreeSet<String>) {
    if found.len() >= PLACES {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if path.len() + name.len() < longest {
                    let step = name.replace('~', "~0").replace('/', "~1");
                    collect(member, &format!("{path}/{step}"), longest, found);
                }
            }
        }
        Value::Array(elements) if path.len() < longest => {
            let path = format!("{path}/*");
            elements.iter().for_each(|element| collect(element, &path, longest, found));
        }
        Value::Null => return,
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    if !path.is_empty() {
        found.insert(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::Headers;

    #[test]
    fn the_place_that_may_be_meant_is_named() {
        let body = br#"{"ref":"a","after":null,"commits":[{"author":{"name":"x"}}],"a/b":1}"#;
        let headers = Headers::new();
        let event = Event {
            id: "e",
            event_type: "push",
            headers: &headers,
            body,
            form_field: None,
            inflated_bytes: 0,
        };
        for (wanted, near) in [
            ("/reff", Some("/ref")),
            ("/commits/*/autor/name", Some("/commits/*/author/name")),
            ("/a~1c", Some("/a~1b")),
            ("/aftr", None),
            ("/pull_request", None),
            ("type", None),
        ] {
            let found = nearest_place(&event, &Place::parse(wanted).unwrap());
            assert_eq!(found.as_deref(), near, "{wanted}");
        }
    }
}
