//! What the values of an event change in a forward's request: its path, its query, its headers, its body.
//!
//! Must stay true: a value stays within its segment of the path, its part of the query, its header's line.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::limits::FORWARD_PATH_BYTES;
use crate::model::Facts;
use crate::payload::Place;
use crate::values::{Refused, Template, Values, part, text_of};

use super::request::{Filled, is_header_text};

/// How the requests of a forward are made from its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestValues {
    pub values: Values,
    /// The path without its query.
    pub path: Template,
    pub query: Option<Template>,
    pub headers: Vec<(String, Template)>,
    /// The part of the body that is sent in place of all of it.
    pub part: Option<Place>,
}

impl RequestValues {
    pub(crate) fn fill(&self, facts: &Facts) -> Result<Filled, Refused> {
        let texts = self.values.of(facts)?;
        let mut path = self.path.fill(|filled, name| {
            let text = text_of(&texts, name);
            if text.is_empty() {
                return Err(Refused::new(name, "it is empty, and stands in a path"));
            }
            encode(filled, text);
            Ok(())
        })?;
        // As a server may read it that decodes first.
        let plain = self.path.fill(|filled, name| {
            filled.push_str(text_of(&texts, name));
            Ok(())
        })?;
        if let Some(first) = self.path.names().next()
            && plain.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
        {
            return Err(Refused::new(first, "it would be '.' or '..' in a path"));
        }
        if let Some(query) = &self.query {
            path.push('?');
            path.push_str(&query.fill(|filled, name| {
                encode(filled, text_of(&texts, name));
                Ok(())
            })?);
        }
        if path.len() > FORWARD_PATH_BYTES {
            let name = self.query.iter().flat_map(Template::names).chain(self.path.names()).next();
            let rule = format!("path and query are over {FORWARD_PATH_BYTES} bytes");
            return Err(Refused::new(name.unwrap_or_default(), rule));
        }
        let mut headers = Vec::new();
        for (header, template) in &self.headers {
            let value = template.fill(|filled, name| {
                let text = text_of(&texts, name);
                if !is_header_text(text) {
                    return Err(Refused::new(
                        name,
                        "it is not printable ASCII, and stands in a header",
                    ));
                }
                filled.push_str(text);
                Ok(())
            })?;
            headers.push((header.clone(), value));
        }
        let part = self.part.as_ref().map(|place| part(place, &self.values.event(facts)));
        let body = part.transpose()?.map(Bytes::from);
        Ok(Filled { path, headers, body })
    }
}

/// All but the unreserved characters of RFC 3986 become escapes.
fn encode(into: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            let _ = write!(into, "%{byte:02X}");
        }
    }
}
