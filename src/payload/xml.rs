//! XML in base64, as one provider (Braintree) writes its events, read as JSON.
//!
//! Only `json_of` calls it. Each element is a member by its name: a text, or an object of its elements; several of one name
//! are a list. Attributes and comments are left out. Must stay true: what two readers could read differently is not read:
//! text beside elements, entities other than XML's five and character references, and a DOCTYPE, which could declare others.

use std::mem::take;

use data_encoding::BASE64;
use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;
use serde_json::{Map, Value};

/// Base64 of a text with `<` at its begin has it at its own; no JSON begins so.
const BEGIN: u8 = b'P';

/// The longest base64 that is read, since the elements are built as a tree. A notification has a few KiB.
const BYTES_MAX: usize = 1024 * 1024;

/// The most elements: a body that is not proven can have them, and each costs half a KiB.
const ELEMENTS_MAX: usize = 10_000;

/// The deepest element. Each may be in a list of equal names, and serde_json reads 128 levels.
const DEPTH_MAX: usize = 60;

/// An element that has begun.
#[derive(Default)]
struct Open {
    name: String,
    text: String,
    members: Map<String, Value>,
}

impl Open {
    /// `None` if it has both texts and elements.
    fn end(self) -> Option<(String, Value)> {
        let value = match (self.members.is_empty(), self.text.trim().is_empty()) {
            (true, _) => Value::String(self.text),
            (false, true) => Value::Object(self.members),
            (false, false) => return None,
        };
        Some((self.name, value))
    }

    fn add(&mut self, (name, value): (String, Value)) {
        match self.members.get_mut(&name) {
            None => drop(self.members.insert(name, value)),
            Some(Value::Array(all)) => all.push(value),
            Some(first) => *first = Value::Array(vec![take(first), value]),
        }
    }
}

/// The JSON of a field's text that is XML in base64, with or without line breaks; `None` for any other text.
pub(super) fn json(field: &str) -> Option<Vec<u8>> {
    if field.as_bytes().first() != Some(&BEGIN) || field.len() > BYTES_MAX {
        return None;
    }
    let base64: Vec<u8> = field.bytes().filter(|byte| !b"\r\n".contains(byte)).collect();
    let text = String::from_utf8(BASE64.decode(&base64).ok()?).ok()?;
    let mut reader = Reader::from_str(&text);
    // The first stands for the document.
    let mut open = vec![Open::default()];
    let mut elements = 0;
    loop {
        match reader.read_event().ok()? {
            Event::Start(_) | Event::Empty(_)
                if open.len() > DEPTH_MAX || elements == ELEMENTS_MAX =>
            {
                return None;
            }
            Event::Start(tag) => {
                elements += 1;
                open.push(Open { name: tag.name().into_inner().to_owned(), ..Open::default() });
            }
            Event::Empty(tag) => {
                elements += 1;
                let name = tag.name().into_inner().to_owned();
                open.last_mut()?.add((name, Value::String(String::new())));
            }
            Event::End(_) => {
                let ended = open.pop()?.end()?;
                open.last_mut()?.add(ended);
            }
            Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
            Event::CData(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
            Event::GeneralRef(entity) => {
                let text = &mut open.last_mut()?.text;
                match entity.resolve_char_ref().ok()? {
                    Some(character) => text.push(character),
                    None => text.push_str(resolve_xml_entity(&entity)?),
                }
            }
            Event::DocType(_) => return None,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => break,
        }
    }
    let [document] = <[Open; 1]>::try_from(open).ok()?;
    match document.end()?.1 {
        Value::Object(root) if root.len() == 1 => serde_json::to_vec(&root).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(xml: &str) -> Option<Value> {
        json(&BASE64.encode(xml.as_bytes())).map(|json| serde_json::from_slice(&json).unwrap())
    }

    #[test]
    fn elements_are_members_and_several_of_one_name_a_list() {
        let found = read(
            "<?xml version=\"1.0\"?>\n<n>\n  <kind>a&amp;b&#x21;</kind><!-- c --> <s><id nil=\"true\"/><id>2</id><id><![CDATA[<]]></id></s>\n</n>\n",
        );
        let wanted = serde_json::json!({ "n": { "kind": "a&b!", "s": { "id": ["", "2", "<"] } } });
        assert_eq!(found, Some(wanted));
        let lines = "PGE+MTwv\r\nYT4=\n";
        assert_eq!(json(lines).as_deref(), Some(&br#"{"a":"1"}"#[..]));
    }

    #[test]
    fn what_is_not_xml_of_one_meaning_is_not_read() {
        for xml in [
            "<a>",
            "</a>",
            "<a></b>",
            "<a>&b;</a>",
            "<!DOCTYPE a><a/>",
            "{\"a\":1}",
            "a<b/>",
            "<a/><b/>",
            "<a>b<c/></a>",
            "",
        ] {
            assert_eq!(read(xml), None, "{xml}");
        }
        for text in ["PGE", "PGE+MTwvYT4*", "{}"] {
            assert_eq!(json(text), None, "{text}");
        }
        let long = format!("<a>{}</a>", "b".repeat(BYTES_MAX));
        let deep = |levels| format!("{}{}", "<a>".repeat(levels), "</a>".repeat(levels));
        assert_eq!((read(&long), read(&deep(DEPTH_MAX + 1))), (None, None));
        let many = |elements| format!("<a>{}</a>", "<b/>".repeat(elements - 1));
        assert!(read(&many(ELEMENTS_MAX)).is_some() && read(&many(ELEMENTS_MAX + 1)).is_none());
        assert!(read(&deep(DEPTH_MAX)).is_some());
    }
}
