//! Reads how a forward's requests are made from its events: values in its URL, `headers`, `part`.

use serde::{Serialize, Serializer};

use crate::document::{Fault, Section, Value};
use crate::handler::Target;
use crate::handler::forward::{is_free_header, is_header_text};
use crate::model::is_header_name;
use crate::payload::Place;
use crate::values::Template;

use super::secrets::STARS;
use super::shown;
use super::values::{Rules, parse};

/// A forward's requests, beside where they go to.
#[derive(PartialEq, Serialize)]
pub(crate) struct Request {
    /// The path and the query of the URL.
    #[serde(skip)]
    pub(super) path: (Template, Option<Template>),
    #[serde(serialize_with = "shown_headers", skip_serializing_if = "Vec::is_empty")]
    pub(crate) headers: Vec<Header>,
    #[serde(serialize_with = "shown::maybe_text", skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<Value<Place>>,
}

/// A header of a forward's requests.
#[derive(PartialEq)]
pub(crate) struct Header {
    pub(super) name: String,
    pub(super) written: Value<String>,
    pub(super) template: Template,
}

/// `None` if a part of it is wrong. Problems go to the section's.
pub(super) fn read(
    section: &Section<'_>,
    target: Option<&Value<Target>>,
    values: &Rules,
) -> Option<Request> {
    let headers = read_headers(section, values);
    let part = section.parse("part", |text: String| match Place::parse(&text)? {
        place @ Place::Json(_) if place.wildcards() == 0 => Ok(place),
        _ => Err(Fault::new(
            format!("'{text}' is not one part of a JSON body"),
            "write its JSON pointer, as in part = \"/data/object\"",
        )),
    });
    let target = target?;
    let path = target.clone().convert(section.problems(), |target| split(&target, values))?.value;
    Some(Request { path, headers, part })
}

fn split(target: &Target, values: &Rules) -> Result<(Template, Option<Template>), Fault> {
    let names = || values.iter().map(|rule| format!("{{{}}}", rule.value.name));
    if let Some(name) = names().find(|name| target.place().contains(name)) {
        let help = "write it into the path, the query or a header";
        let message = format!("{name} would decide where requests go to");
        return Err(Fault::new(message, help));
    }
    let (path, query) = match target.path().split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target.path(), None),
    };
    let has_values = names().any(|name| path.contains(&name));
    if has_values && path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err(Fault::new("the path has a step '.' or '..'", "write the path without it"));
    }
    Ok((parse(path, values)?, query.map(|query| parse(query, values)).transpose()?))
}

fn read_headers(section: &Section<'_>, values: &Rules) -> Vec<Header> {
    let Some(table) = section.section("headers") else { return Vec::new() };
    let mut headers: Vec<Header> = Vec::new();
    for (name, written) in table.strings() {
        let fault = if !is_header_name(&name) {
            Some(Fault::from(format!("'{name}' is not a header name")))
        } else if !is_free_header(&name) {
            let help = "the connection, the body, or hooklatch sets it";
            Some(Fault::new(format!("{name} cannot be set"), help))
        } else if !is_header_text(&written.value) {
            Some(Fault::from("it is not printable ASCII"))
        } else if headers.iter().any(|other| other.name.eq_ignore_ascii_case(&name)) {
            Some(Fault::from(format!("{name} is there twice")))
        } else {
            None
        };
        match fault.map_or_else(|| parse(&written.value, values), Err) {
            Ok(template) => headers.push(Header { name, written, template }),
            Err(fault) => table.report(&written.at, fault),
        }
    }
    headers
}

/// A header without a value may be a secret.
fn shown_headers<S: Serializer>(all: &[Header], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(all.iter().map(|header| {
        let has_values = header.template.names().next().is_some();
        (&header.name, if has_values { &header.written.value } else { STARS })
    }))
}
