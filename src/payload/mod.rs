//! Fetches values out of an accepted event: what conditions, values and keys look at.
//!
//! Must stay true: what two readers could read differently is no value, and what is kept of one event is bounded.

mod dotted;
mod form;
mod near;
mod pattern;
mod plain;
mod pointer;
mod unclear;
pub(crate) mod walk;
mod xml;

use std::borrow::Cow;
use std::fmt;

pub use dotted::Dotted;
use form::begins_as_json;
pub(crate) use form::{field, only_field};
pub use near::nearest_place;
pub use pattern::Pattern;
pub(crate) use plain::{is_compressed, plain};
pub use pointer::Pointer;
pub use unclear::Unclear;
pub(crate) use unclear::one;

use crate::model::{Headers, is_header_name};

/// An event, as the places see it.
#[derive(Debug, Clone, Copy)]
pub struct Event<'e> {
    pub id: &'e str,
    pub event_type: &'e str,
    /// The headers that the source's scheme keeps.
    pub headers: &'e Headers,
    pub body: &'e [u8],
    /// The form field that holds the JSON, where the source's scheme has one.
    pub form_field: Option<&'e str>,
    /// The most bytes that a compressed body is inflated to: the source's `max_body`.
    pub inflated_bytes: u64,
}

impl Event<'_> {
    /// The body, inflated if it is compressed.
    pub fn plain_body(&self) -> Result<Cow<'_, [u8]>, Unclear> {
        plain(self.body, self.inflated_bytes)
    }
}

/// A part of an event that a condition, a value or a key names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `type`
    Type,
    /// `id`
    Id,
    /// `header:NAME`: one that the source's scheme keeps.
    Header(String),
    /// `form:FIELD`
    Form(String),
    /// `query:NAME`: a parameter of the URL, which is kept because a place names it.
    Query(String),
    /// `/POINTER`, in which a step `*` means any element of a list.
    Json(Pointer),
    /// `body:NAME`: what adnanh/webhook has under this name, as the text that it makes of it.
    Body(Dotted),
}

impl Place {
    /// Reads a place; an `Err` says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            _ if text.starts_with('/') => Pointer::parse(text).map(Place::Json),
            None if text == "type" => Ok(Place::Type),
            None if text == "id" => Ok(Place::Id),
            Some(("header", name)) if is_header_name(name) => Ok(Place::Header(name.to_owned())),
            Some(("header", name)) => Err(format!("'{name}' is not a header name")),
            Some(("form", field)) if !field.is_empty() => Ok(Place::Form(field.to_owned())),
            Some((kind, name)) if kind == "body" || kind.starts_with("body{") => {
                Dotted::parse(kind, name).map(Place::Body)
            }
            Some(("query", name)) if is_parameter(name) => Ok(Place::Query(name.to_owned())),
            Some(("query", name)) => Err(format!(
                "'{name}' is not a parameter: 1 to 64 of A-Z, a-z, 0-9 and . _ ~ - [ ]"
            )),
            _ => Err(format!(
                "must be a JSON pointer such as \"/data/id\", header:NAME, form:FIELD, query:NAME, body:NAME, type or id, not '{text}'"
            )),
        }
    }

    /// How many of its steps mean any element of a list.
    pub fn wildcards(&self) -> usize {
        match self {
            Place::Json(pointer) => pointer.steps().iter().filter(|step| *step == "*").count(),
            Place::Type
            | Place::Id
            | Place::Header(_)
            | Place::Form(_)
            | Place::Query(_)
            | Place::Body(_) => 0,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Type => f.write_str("type"),
            Place::Id => f.write_str("id"),
            Place::Header(name) => write!(f, "header:{name}"),
            Place::Form(field) => write!(f, "form:{field}"),
            Place::Query(name) => write!(f, "query:{name}"),
            Place::Json(pointer) => pointer.fmt(f),
            Place::Body(dotted) => dotted.fmt(f),
        }
    }
}

/// One value of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Decoded.
    Text(String),
    /// A number of JSON, as it is written.
    Number(String),
    Bool(bool),
    /// A list or an object, as it is written; any value for [`Wanted::as_written`].
    Json(String),
}

impl Found {
    /// The value of a JSON text; `None` for null.
    pub(crate) fn of(raw: &str, as_written: bool) -> Result<Option<Self>, Unclear> {
        Ok(Some(match raw.as_bytes().first() {
            Some(b'n') => return Ok(None),
            _ if as_written => Found::Json(raw.to_owned()),
            Some(b't') => Found::Bool(true),
            Some(b'f') => Found::Bool(false),
            // A surrogate without its other half cannot be decoded.
            Some(b'"') => Found::Text(serde_json::from_str(raw).or(Err(Unclear::NotText))?),
            Some(b'[' | b'{') => Found::Json(raw.to_owned()),
            _ => Found::Number(raw.to_owned()),
        }))
    }

    fn text(&self) -> &str {
        match self {
            Found::Text(text) | Found::Number(text) | Found::Json(text) => text,
            Found::Bool(_) => "",
        }
    }
}

/// What stands at one place: nothing where it is absent or null, and several values where a step means any element.
pub type Reading = Result<Vec<Found>, Unclear>;

/// A place to read.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'p> {
    pub place: &'p Place,
    /// Any value of the body's JSON is a [`Found::Json`].
    pub as_written: bool,
    /// The most that is kept of one value.
    pub most_bytes: usize,
}

impl<'p> From<&'p Place> for Wanted<'p> {
    fn from(place: &'p Place) -> Self {
        Wanted { place, as_written: false, most_bytes: usize::MAX }
    }
}

/// What stands at these places, in their order, in one pass over the body. At most `most_bytes` are kept of it.
pub fn read(event: &Event<'_>, wanted: &[Wanted<'_>], most_bytes: usize) -> Vec<Reading> {
    let mut readings: Vec<Reading> = vec![Ok(Vec::new()); wanted.len()];
    let mut left = most_bytes;
    let mut keep = |slot: usize, value: Result<Option<Found>, Unclear>| {
        let unclear = match (value, &mut readings[slot]) {
            (Ok(None), _) | (Ok(_), Err(_)) => return,
            (Ok(Some(found)), Ok(values)) => {
                let bytes = found.text().len();
                // A value counts for more than its text, or a list of a million empty ones would be free.
                let rest = left.checked_sub(bytes + size_of::<Found>());
                if let Some(rest) = rest.filter(|_| bytes <= wanted[slot].most_bytes) {
                    left = rest;
                    return values.push(found);
                }
                Unclear::TooLarge
            }
            (Err(unclear), _) => unclear,
        };
        readings[slot] = Err(unclear);
    };
    let in_body = |wanted: &Wanted<'_>| {
        matches!(wanted.place, Place::Form(_) | Place::Json(_) | Place::Body(_))
    };
    let body = match wanted.iter().any(in_body) {
        true => event.plain_body(),
        false => Ok(Cow::Borrowed(event.body)),
    };
    let mut pointers = Vec::new();
    let mut names = Vec::new();
    for (slot, Wanted { place, .. }) in wanted.iter().enumerate() {
        match place {
            Place::Type => keep(slot, Ok(Some(Found::Text(event.event_type.to_owned())))),
            Place::Id => keep(slot, Ok(Some(Found::Text(event.id.to_owned())))),
            Place::Header(name) => {
                let text = |value| std::str::from_utf8(value).or(Err(Unclear::NotText));
                let value = one(event.headers.all(name)).and_then(|one| one.map(text).transpose());
                keep(slot, value.map(|one| one.map(|text| Found::Text(text.to_owned()))));
            }
            Place::Form(field) => {
                let value = match &body {
                    Ok(body) => form::field(body, field),
                    Err(unclear) => Err(*unclear),
                };
                keep(slot, value.map(|one| one.map(|text| Found::Text(text.into_owned()))));
            }
            Place::Query(name) => {
                keep(slot, kept_parameter(event.headers, name).map(|one| one.map(Found::Text)));
            }
            Place::Json(pointer) => pointers.push((slot, pointer)),
            Place::Body(name) => names.push((slot, name)),
        }
    }
    match &body {
        Ok(body) => dotted::read(body, &names, |slot, text| {
            keep(slot, text.map(|text| text.map(Found::Text)));
        }),
        Err(unclear) => names.iter().for_each(|(slot, _)| keep(*slot, Err(*unclear))),
    }
    let unclear = match body.as_deref() {
        Ok(body) => {
            let json = json_of(body, event.form_field).filter(|_| !pointers.is_empty());
            let is_json = json.is_some_and(|json| {
                walk::walk(&json, pointers.iter().copied(), |slot, raw| {
                    let raw = raw.or(Err(Unclear::Twice));
                    keep(slot, raw.and_then(|raw| Found::of(raw, wanted[slot].as_written)));
                })
            });
            (!is_json).then_some(Unclear::NotJson)
        }
        Err(unclear) => Some(*unclear),
    };
    if let Some(unclear) = unclear {
        pointers.into_iter().for_each(|(slot, _)| readings[slot] = Err(unclear));
    }
    readings
}

fn is_parameter(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-[]".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// The name under which a parameter of the query is among a request's headers. No header can have it.
pub(crate) fn in_query(parameter: &str) -> String {
    format!("?{parameter}")
}

/// Keeps a parameter with the headers: a line for each time that it is there, `=` and its value as sent; an empty line
/// says that it was not there.
pub(crate) fn keep_parameter(query: &str, name: &str, headers: &mut Headers) {
    let pieces = query.split('&').map(|piece| piece.split_once('=').unwrap_or((piece, "")));
    let is_own = |piece: &str| form_urlencoded::parse(piece.as_bytes()).any(|(own, _)| own == name);
    let mut values = pieces.filter(|(piece, _)| is_own(piece)).map(|(_, value)| value).peekable();
    if values.peek().is_none() {
        headers.push(in_query(name), "");
    }
    values.for_each(|value| headers.push(in_query(name), format!("={value}")));
}

/// The one value of a parameter that [`keep_parameter`] kept.
fn kept_parameter(headers: &Headers, name: &str) -> Result<Option<String>, Unclear> {
    let own = in_query(name);
    let mut lines = headers.iter().filter(|(line, _)| *line == own).map(|(_, value)| value);
    let mut lines = std::iter::once(lines.next().ok_or(Unclear::NotKept)?).chain(lines);
    let value = one(lines.by_ref().filter(|value| value.starts_with(b"=")))?;
    // Without a name before the `=`, the value is all that is decoded.
    let decoded = value.and_then(|value| form_urlencoded::parse(value).next());
    Ok(decoded.map(|(_, value)| value.into_owned()))
}

/// The values of a parameter in a query.
pub(crate) fn parameters<'q>(query: &'q [u8], name: &str) -> impl Iterator<Item = Cow<'q, str>> {
    form_urlencoded::parse(query).filter(move |(field, _)| field == name).map(|(_, value)| value)
}

/// The body for a screen: each occurrence of the value that stands at `secret` in its JSON is `***`, and in a form the
/// value of each of these fields.
pub(crate) fn masked<'b, 'f>(
    body: &'b [u8],
    secret: &Pointer,
    fields: impl IntoIterator<Item = &'f str>,
) -> Cow<'b, [u8]> {
    let mut shown = Cow::Borrowed(body);
    for field in fields {
        if let Some(masked) = form::masked(&shown, field) {
            shown = Cow::Owned(masked);
        }
    }
    let mut values: Vec<String> = Vec::new();
    walk::walk(&json_of(body, None).unwrap_or_default(), std::iter::once((0, secret)), |_, raw| {
        values.extend(raw.ok().map(str::to_owned));
    });
    if let Ok(text) = std::str::from_utf8(&shown)
        && !values.is_empty()
    {
        let hide = |text: String, secret: &String| text.replace(secret.as_str(), "\"***\"");
        shown = Cow::Owned(values.iter().fold(text.to_owned(), hide).into_bytes());
    }
    shown
}

/// The JSON text of a body: the body without a byte order mark (RFC 8259 lets a reader ignore it),
/// or the one field of a form, whose XML in base64 is read as JSON. The body is plain.
pub fn json_of<'b>(body: &'b [u8], form_field: Option<&str>) -> Option<Cow<'b, [u8]>> {
    match form_field {
        Some(field) if !begins_as_json(body) => {
            let value = form::field(body, field).ok()??;
            Some(match (xml::json(&value), value) {
                (Some(json), _) => Cow::Owned(json),
                (None, Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
                (None, Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
            })
        }
        _ => Some(Cow::Borrowed(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn reading(body: &str, place: &str) -> Reading {
        let mut headers = Headers::new();
        headers.push("X-One", "1");
        headers.push("x-two", "a");
        headers.push("X-Two", "b");
        headers.push("X-Raw", vec![0xFF]);
        let event = Event {
            id: "e1",
            event_type: "push",
            headers: &headers,
            body: body.as_bytes(),
            form_field: Some("payload"),
            inflated_bytes: 1000,
        };
        let place = Place::parse(place).unwrap();
        read(&event, &[(&place).into()], 200).remove(0)
    }

    #[test]
    fn a_place_reads_what_stands_there() {
        let text = |text: &str| Ok(vec![Found::Text(text.to_owned())]);
        let list = r#"{"c":[{"n":"a"},{"n":2},{},{"n":null},{"n":true},{"n":[1, 2]}],"*":"s"}"#;
        let any = [
            Found::Text("a".into()),
            Found::Number("2".into()),
            Found::Bool(true),
            Found::Json("[1, 2]".into()),
        ];
        for (body, place, wanted) in [
            ("x", "type", text("push")),
            ("x", "id", text("e1")),
            ("x", "header:x-ONE", text("1")),
            ("x", "header:X-None", Ok(vec![])),
            ("x", "header:X-Two", Err(Unclear::Twice)),
            ("x", "header:X-Raw", Err(Unclear::NotText)),
            ("a=%C3%A4&b=1&b=2", "form:a", text("ä")),
            ("a=%C3%A4&b=1&b=2", "form:b", Err(Unclear::Twice)),
            ("a=1", "form:c", Ok(vec![])),
            (r#" {"t":"x&a=1&y"}"#, "form:a", Err(Unclear::NotForm)),
            (list, "/c/*/n", Ok(any.to_vec())),
            (list, "/c/0/n", text("a")),
            (list, "/c/00/n", Ok(vec![])),
            (list, "/*", text("s")),
            (list, "/c/*/x", Ok(vec![])),
            ("payload=%7B%22a%22%3A%22b%22%7D", "/a", text("b")),
            ("x", "/a", Err(Unclear::NotJson)),
            (r#"{"a":1}x"#, "/a", Err(Unclear::NotJson)),
            (r#"{"a":1,"a":1}"#, "/a", Err(Unclear::Twice)),
            (r#"[{"a":1},{"a":1,"a":2}]"#, "/*/a", Err(Unclear::Twice)),
            (r#"{"a":"\ud800"}"#, "/a", Err(Unclear::NotText)),
            (r#"{"a":1e999}"#, "/a", Ok(vec![Found::Number("1e999".into())])),
            (r#"{"a":1e999,"b":"s"}"#, "/a/x", Ok(vec![])),
        ] {
            assert_eq!(reading(body, place), wanted, "{body} {place}");
        }
    }

    #[test]
    fn a_value_that_fits_no_type_does_not_hide_its_neighbours() {
        let body = r#"{"n":1e999,"s":"\ud800","l":[-1e999,{"v":"a"}],"v":"b"}"#;
        let places = ["/n/x", "/s/x", "/l/*/v", "/v"].map(|place| Place::parse(place).unwrap());
        let headers = Headers::new();
        let event = Event {
            id: "e1",
            event_type: "push",
            headers: &headers,
            body: body.as_bytes(),
            form_field: None,
            inflated_bytes: 1000,
        };
        let wanted = places.each_ref().map(Wanted::from);
        let text = |text: &str| Ok(vec![Found::Text(text.to_owned())]);
        assert_eq!(read(&event, &wanted, 200), [Ok(vec![]), Ok(vec![]), text("a"), text("b")]);
    }

    #[test]
    fn what_is_kept_of_an_event_is_bounded() {
        let body = format!(r#"{{"a":"{}"}}"#, "x".repeat(200));
        assert_eq!(reading(&body, "/a"), Err(Unclear::TooLarge));
        assert_eq!(
            reading(r#"{"a":[false,false,false,false,false,false,false]}"#, "/a/*"),
            Err(Unclear::TooLarge)
        );
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in [
            "",
            "ref",
            "json:/a",
            "header:",
            "header:a b",
            "form:",
            "query:",
            "query:a b",
            "digest",
            "Type",
        ] {
            assert!(Place::parse(text).is_err(), "{text}");
        }
    }
    #[test]
    fn a_place_of_another_form_of_body_is_unclear_and_not_absent() {
        let json = r#"{"a":1}"#;
        let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n";
        let compressed = |text: &str| plain::tests::gzip(text.as_bytes());
        let cut = |text: &str| compressed(text)[..20].to_vec();
        let (not_json, not_form) = (Err(Unclear::NotJson), Err(Unclear::NotForm));
        let text = |text: &str| Ok(vec![Found::Text(text.to_owned())]);
        let number = Ok(vec![Found::Number("1".to_owned())]);
        let large = format!(r#"{{"a":1,"b":"{}"}}"#, "x".repeat(1000));
        for (body, at_json, at_form) in [
            (json.as_bytes().to_vec(), number.clone(), not_form.clone()),
            (compressed(json), number, not_form.clone()),
            (b"a=1".to_vec(), not_json.clone(), text("1")),
            (compressed("a=1"), not_json.clone(), text("1")),
            (part.as_bytes().to_vec(), not_json.clone(), text("1")),
            (compressed(part), not_json.clone(), text("1")),
            (b"<a b=\"1\"/>".to_vec(), not_json.clone(), not_form.clone()),
            (b"\x28\xb5\x2f\xfd\x04=".to_vec(), not_json, not_form),
            (cut(json), Err(Unclear::Compressed), Err(Unclear::Compressed)),
            (compressed(&large), Err(Unclear::TooLarge), Err(Unclear::TooLarge)),
        ] {
            let headers = Headers::new();
            let event = Event {
                id: "e1",
                event_type: "push",
                headers: &headers,
                body: &body,
                form_field: None,
                inflated_bytes: 1000,
            };
            let places = ["/a", "form:a", "type"].map(|place| Place::parse(place).unwrap());
            let found = read(&event, &places.each_ref().map(Wanted::from), 200);
            assert_eq!(found, [at_json, at_form, text("push")], "{body:?}");
        }
    }
    #[test]
    fn a_secret_is_masked_wherever_it_stands_in_a_body() {
        let secret = Pointer::parse("/token").unwrap();
        let shown = |body: &str| {
            String::from_utf8(masked(body.as_bytes(), &secret, ["token", "data"]).into()).unwrap()
        };
        for mark in ["", "\u{feff}"] {
            let body = format!(r#"{mark}{{"token":"s3cr3t","again":"s3cr3t","a":1}}"#);
            let wanted = format!(r#"{mark}{{"token":"***","again":"***","a":1}}"#);
            assert_eq!(shown(&body), wanted);
        }
        assert_eq!(shown(r#"{"a":1,"token":123456}"#), r#"{"a":1,"token":"***"}"#);
        assert_eq!(
            shown("data=%7B%22token%22%3A%22s3cr3t%22%7D&token=x&a=1"),
            "data=***&token=***&a=1"
        );
        for body in [r#"{"a":"s3cr3t"}"#, "s3cr3t", "", "a=s3cr3t"] {
            assert_eq!(shown(body), body);
        }
        assert_eq!(shown("a=1&t%6Fken=s3%63r3t&token=x&b"), "a=1&t%6Fken=***&token=***&b");
        let part =
            "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ns3cr3t\r\n--b--\r\n";
        assert_eq!(shown(part), part.replace("s3cr3t", "***"));
    }

    #[test]
    fn a_parameter_of_the_query_is_read_as_it_was_kept() {
        let text = |text: &str| Ok(vec![Found::Text(text.to_owned())]);
        for (query, wanted) in [
            ("alert=down", text("down")),
            ("a=1&%61lert=b+c%0A%C3%A4&z", text("b c\n\u{e4}")),
            ("alert", text("")),
            ("alert=", text("")),
            ("Alert=x", Ok(vec![])),
            ("", Ok(vec![])),
            ("alert=1&alert=1", Err(Unclear::Twice)),
        ] {
            let mut headers = Headers::new();
            keep_parameter(query, "alert", &mut headers);
            let headers = Headers::from_wire(&headers.to_wire());
            let event = Event {
                id: "e1",
                event_type: "push",
                headers: &headers,
                body: b"",
                form_field: None,
                inflated_bytes: 0,
            };
            let places = ["query:alert", "query:other"].map(|text| Place::parse(text).unwrap());
            let found = read(&event, &places.each_ref().map(Wanted::from), 200);
            assert_eq!(found, [wanted, Err(Unclear::NotKept)], "{query}");
        }
    }
}
