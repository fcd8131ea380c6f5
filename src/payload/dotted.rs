//! What a body has under a name with dots, found and written as adnanh/webhook 2.8.0 does: `body:commits.0.id`.
//!
//! Must stay true: the text is the one that that program hands to a command for the same body. Where two readers could
//! find different ones (a member, a field or a part that comes twice), the result is an error.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::value::RawValue;

use super::unclear::Unclear;
use super::{form, walk};
use crate::limits::{DOTTED_BODY_BYTES, POINTER_STEPS, VALUE_MOST_BYTES};

/// Levels of lists and objects in a text that is written anew: writing is recursive.
const LEVELS: usize = 128;

/// A name with dots; an empty one is the whole body.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dotted {
    name: String,
    /// The members and fields whose texts are read as JSON objects.
    parsed: Vec<String>,
}

/// Members of an object, fields or parts by name; one that is there twice has no value.
type Named<'b, T> = BTreeMap<Cow<'b, str>, Result<T, Unclear>>;

/// What a body has at its top; `None` if it has no names at all.
type Top<'b> = Option<Named<'b, Node<'b>>>;

#[derive(Debug, Clone)]
enum Node<'b> {
    /// A value of JSON, as it is written.
    Json(Cow<'b, str>),
    Text(Cow<'b, str>),
    /// A part of a form that is a file: a value only if it is a JSON object and meant as one.
    File {
        content: &'b [u8],
        is_json: bool,
    },
}

impl Dotted {
    /// Reads what stands around the colon of a place: `body`, or `body{FIELD,…}`, and the name.
    pub(super) fn parse(kind: &str, name: &str) -> Result<Self, String> {
        let parsed = match kind.strip_prefix("body") {
            Some("") => Vec::new(),
            Some(list) => {
                let list = list.strip_prefix('{').and_then(|list| list.strip_suffix('}'));
                let list: Vec<String> =
                    list.unwrap_or_default().split(',').map(str::to_owned).collect();
                if list.iter().any(String::is_empty) {
                    return Err(format!("'{kind}' is not body{{FIELD}} or body{{FIELD,FIELD}}"));
                }
                list
            }
            None => return Err(format!("'{kind}' is not body")),
        };
        let steps = name.split('.').count();
        if steps > POINTER_STEPS {
            return Err(format!("'{name}' has {steps} steps; {POINTER_STEPS} is the limit"));
        }
        Ok(Dotted { name: name.to_owned(), parsed })
    }

    fn is_whole(&self) -> bool {
        self.name.is_empty()
    }

    /// The name up to its first dot, and the rest behind that.
    fn split(&self) -> (&str, Option<&str>) {
        split(&self.name)
    }

    /// The text; `None` where nothing is.
    fn text(&self, top: &Top<'_>) -> Result<Option<String>, Unclear> {
        let Some(top) = top else { return Ok(self.is_whole().then(|| "null".to_owned())) };
        if self.is_whole() {
            return self.whole(top).map(Some);
        }
        // A member with the dots in its name goes first.
        if let Some(node) = self.node(top, &self.name)? {
            return match node {
                Node::Json(raw) => text_of(&raw).map(Some),
                Node::Text(text) => Ok(Some(text.into_owned())),
                Node::File { .. } => Ok(None),
            };
        }
        match (self.split(), self.node(top, self.split().0)?) {
            ((_, Some(rest)), Some(Node::Json(raw))) => {
                inside(&raw, rest)?.map(text_of).transpose()
            }
            _ => Ok(None),
        }
    }

    /// All of the body as one JSON text.
    fn whole(&self, top: &Named<'_, Node<'_>>) -> Result<String, Unclear> {
        let mut object = Object::begin();
        for name in top.keys() {
            match self.node(top, name)? {
                Some(Node::Json(raw)) => write(&raw, 1, object.member(name)?)?,
                Some(Node::Text(text)) => write_text(&text, object.member(name)?),
                Some(Node::File { .. }) | None => {}
            }
        }
        Ok(object.end())
    }

    /// The one member of this name, its text read as JSON where that is meant.
    fn node<'b>(&self, top: &Named<'_, Node<'b>>, name: &str) -> Result<Option<Node<'b>>, Unclear> {
        let Some(node) = top.get(name) else { return Ok(None) };
        let node = node.as_ref().map_err(|unclear| *unclear)?;
        let is_parsed = self.parsed.iter().any(|parsed| parsed == name);
        Ok(match node {
            Node::File { content, is_json } if *is_json || is_parsed => {
                let text = std::str::from_utf8(content).or(Err(Unclear::NotText))?;
                object(text).map(|raw| Node::Json(Cow::Borrowed(raw)))
            }
            Node::File { .. } => None,
            Node::Text(text) if is_parsed => Some(match object(text) {
                Some(raw) => Node::Json(Cow::Owned(raw.to_owned())),
                None => node.clone(),
            }),
            Node::Json(raw) if is_parsed => Some(match object(&text_of(raw)?) {
                Some(raw) => Node::Json(Cow::Owned(raw.to_owned())),
                None => node.clone(),
            }),
            other => Some(other.clone()),
        })
    }
}

impl fmt::Display for Dotted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parsed[..] {
            [] => write!(f, "body:{}", self.name),
            parsed => write!(f, "body{{{}}}:{}", parsed.join(","), self.name),
        }
    }
}

/// Hands over what the body has under each name, in one pass over its top.
pub(super) fn read(
    body: &[u8],
    names: &[(usize, &Dotted)],
    mut found: impl FnMut(usize, Result<Option<String>, Unclear>),
) {
    if names.is_empty() {
        return;
    }
    // A whole body is written anew, and so is kept member by member.
    let is_small = body.len() <= DOTTED_BODY_BYTES;
    let wants_all = is_small && names.iter().any(|(_, name)| name.is_whole());
    let top = top(body, |member| {
        wants_all || names.iter().any(|(_, own)| own.name == member || own.split().0 == member)
    });
    for (slot, name) in names {
        let text = match &top {
            Ok(_) if name.is_whole() && !is_small => Err(Unclear::TooLarge),
            Ok(top) => name.text(top),
            Err(unclear) => Err(*unclear),
        };
        found(*slot, text);
    }
}

/// The body's own bytes say whether it is JSON or a form, as everywhere in this program.
fn top<'b>(body: &'b [u8], wanted: impl Fn(&str) -> bool) -> Result<Top<'b>, Unclear> {
    let json = || std::str::from_utf8(body).or(Err(Unclear::NotJson));
    Ok(match body.trim_ascii_start().first() {
        None => None,
        Some(b'{') => {
            let members = members(json()?, wanted)?;
            let node = |raw: Result<_, _>| raw.map(|raw| Node::Json(Cow::Borrowed(raw)));
            Some(members.into_iter().map(|(name, raw)| (name, node(raw))).collect())
        }
        Some(b'[') => {
            let list: &RawValue = serde_json::from_str(json()?).or(Err(Unclear::NotJson))?;
            Some(Named::from([("root".into(), Ok(Node::Json(Cow::Borrowed(list.get()))))]))
        }
        // XML, of which that program makes a tree.
        Some(b'<') => return Err(Unclear::NotJson),
        Some(_) if form::is_url_encoded(body) => is_query(body).then(|| {
            let fields = form_urlencoded::parse(body).filter(|(name, _)| wanted(name));
            named(fields.map(|(name, value)| (name, Node::Text(value))))
        }),
        Some(_) => match form::parts(body) {
            Some(parts) => {
                let parts = parts.into_iter().filter(|part| wanted(part.name));
                Some(named(parts.map(part_node).collect::<Result<Vec<_>, _>>()?))
            }
            None if body.starts_with(b"--") => return Err(Unclear::NotForm),
            None => None,
        },
    })
}

/// The values by name.
fn named<'b, T>(all: impl IntoIterator<Item = (Cow<'b, str>, T)>) -> Named<'b, T> {
    let mut named = Named::new();
    all.into_iter().for_each(|(name, value)| add(&mut named, name, value));
    named
}

fn add<'b, T>(named: &mut Named<'b, T>, name: Cow<'b, str>, value: T) {
    let twice = named.contains_key(&name);
    named.insert(name, if twice { Err(Unclear::Twice) } else { Ok(value) });
}

fn part_node<'b>(part: form::Part<'b>) -> Result<(Cow<'b, str>, Node<'b>), Unclear> {
    let node = match part.is_file {
        true => Node::File { content: part.content, is_json: part.is_json },
        false => {
            let text = std::str::from_utf8(part.content).or(Err(Unclear::NotText))?;
            Node::Text(Cow::Borrowed(text))
        }
    };
    Ok((Cow::Borrowed(part.name), node))
}

/// Whether Go reads a url-encoded form: not with a semicolon, or a percent sign that begins no escape.
fn is_query(form: &[u8]) -> bool {
    let is_escape = |behind: &[u8]| {
        behind.first_chunk::<2>().is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    };
    !form.contains(&b';') && form.split(|byte| *byte == b'%').skip(1).all(is_escape)
}

/// A text that is exactly one JSON object.
fn object(text: &str) -> Option<&str> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    Some(raw.get()).filter(|raw| raw.starts_with('{'))
}

fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)))
}

/// What a value has under a name.
fn inside<'j>(raw: &'j str, name: &str) -> Result<Option<&'j str>, Unclear> {
    let (first, rest) = split(name);
    let found = match raw.as_bytes().first() {
        Some(b'{') => {
            let members = members(raw, |own| own == name || own == first)?;
            match members.get(name).or_else(|| members.get(first)) {
                // A member with the dots in its name goes first.
                Some(whole) if members.contains_key(name) => return whole.map(Some),
                found => found.copied().transpose()?,
            }
        }
        Some(b'[') => element(raw, first),
        _ => None,
    };
    match (found, rest) {
        (Some(raw), Some(rest)) => inside(raw, rest),
        (found, _) => Ok(found),
    }
}

/// The text of a value: of a list or an object its JSON.
fn text_of(raw: &str) -> Result<String, Unclear> {
    match raw.as_bytes().first() {
        Some(b'n') => Ok("<nil>".to_owned()),
        Some(b'"') => serde_json::from_str(raw).or(Err(Unclear::NotText)),
        Some(b'[' | b'{') if raw.len() > DOTTED_BODY_BYTES => Err(Unclear::TooLarge),
        Some(b'[' | b'{') => {
            let mut written = String::new();
            write(raw, 0, &mut written).map(|()| written)
        }
        _ => Ok(raw.to_owned()),
    }
}

/// Writes a value as Go's `encoding/json` does: without spaces, members in the order of their names.
fn write(raw: &str, level: usize, written: &mut String) -> Result<(), Unclear> {
    if level > LEVELS || written.len() as u64 > VALUE_MOST_BYTES {
        return Err(Unclear::TooLarge);
    }
    match raw.as_bytes().first() {
        Some(b'"') => {
            let text: String = serde_json::from_str(raw).or(Err(Unclear::NotText))?;
            write_text(&text, written);
        }
        Some(b'[') => {
            let (mut before, mut result) = ('[', Ok(()));
            let is_list = walk::elements(raw.as_bytes(), usize::MAX, |element| {
                if result.is_ok() {
                    written.push(before);
                    before = ',';
                    result = write(element, level + 1, written);
                }
            });
            result?;
            if !is_list {
                return Err(Unclear::NotJson);
            }
            written.push_str(if before == '[' { "[]" } else { "]" });
        }
        Some(b'{') => {
            let mut object = Object::begin();
            for (name, raw) in members(raw, |_| true)? {
                write(raw?, level + 1, object.member(&name)?)?;
            }
            written.push_str(&object.end());
        }
        _ => written.push_str(raw),
    }
    Ok(())
}

/// An object that is being written.
struct Object(String);

impl Object {
    fn begin() -> Self {
        Object("{".to_owned())
    }

    /// Writes the name. What follows is the member's value.
    fn member(&mut self, name: &str) -> Result<&mut String, Unclear> {
        if self.0.len() as u64 > VALUE_MOST_BYTES {
            return Err(Unclear::TooLarge);
        }
        if self.0.len() > 1 {
            self.0.push(',');
        }
        write_text(name, &mut self.0);
        self.0.push(':');
        Ok(&mut self.0)
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Writes a text as Go does, which escapes what HTML and JavaScript would read.
fn write_text(text: &str, written: &mut String) {
    written.push('"');
    for char in text.chars() {
        match char {
            '"' => written.push_str("\\\""),
            '\\' => written.push_str("\\\\"),
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                written.push_str(&format!("\\u{:04x}", u32::from(char)));
            }
            char => written.push(char),
        }
    }
    written.push('"');
}

/// The members of an object that are wanted, each as it is written.
fn members(json: &str, wanted: impl Fn(&str) -> bool) -> Result<Named<'_, &str>, Unclear> {
    let mut named = Named::new();
    let is_object = walk::members(json.as_bytes(), wanted, |name, raw| {
        add(&mut named, Cow::Owned(name.to_owned()), raw);
    });
    if is_object { Ok(named) } else { Err(Unclear::NotJson) }
}

/// The element of a list at this index, which may have zeros before it.
fn element<'j>(json: &'j str, index: &str) -> Option<&'j str> {
    let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    let last = index.parse::<usize>().ok().filter(|_| is_number)?;
    let (mut at, mut found) = (0, None);
    walk::elements(json.as_bytes(), last.checked_add(1)?, |element| {
        found = (at == last).then_some(element);
        at += 1;
    });
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(body: &str, place: &str) -> Result<Option<String>, Unclear> {
        let (kind, name) = place.split_once(':').unwrap();
        let dotted = Dotted::parse(kind, name).unwrap();
        let mut result = Ok(None);
        read(body.as_bytes(), &[(0, &dotted)], |_, found| result = found);
        result
    }

    const PARTS: &str = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{\"n\":1}\r\n\
        --b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.json\"\r\n\
        Content-Type: application/json\r\n\r\n{\"n\":2}\r\n\
        --b\r\nContent-Disposition: form-data; name=\"g\"; filename=\"g\"\r\n\r\n{\"n\":3}\r\n--b--\r\n";

    #[test]
    fn a_name_finds_what_adnanh_webhook_finds() {
        for (body, place, wanted) in [
            (r#"{"a":{"b":"x"}}"#, "body:a.b", Some("x")),
            (r#"{"a":{"b":"x"},"a.b":"y"}"#, "body:a.b", Some("y")),
            (r#"{"a":{"b.c":"x","b":{"c":"y"}}}"#, "body:a.b.c", Some("x")),
            (r#"{"a.b":{"c":"x"}}"#, "body:a.b.c", None),
            (r#"{"a":[{"b":1},{"b":2}]}"#, "body:a.1.b", Some("2")),
            (r#"{"a":[1,2]}"#, "body:a.01", Some("2")),
            (r#"{"a":[1,2]}"#, "body:a.2", None),
            (r#"{"a":[1,2]}"#, "body:a.+1", None),
            (r#"{"a":[1,2]}"#, "body:a.*", None),
            (r#"{"*":"s"}"#, "body:*", Some("s")),
            (r#"{"root":["x","y"]}"#, "body:root.1", Some("y")),
            (r#"["x","y"]"#, "body:root.1", Some("y")),
            (r#"["x","y"]"#, "body:1", None),
            (r#" [ "x" ] "#, "body:root", Some(r#"["x"]"#)),
            (r#"{"a":"x"}"#, "body:a.b", None),
            (r#"{"a":null}"#, "body:a", Some("<nil>")),
            (r#"{"a":null}"#, "body:a.b", None),
            (r#"{"a":1.50e2}"#, "body:a", Some("1.50e2")),
            (r#"{"a":true}"#, "body:a", Some("true")),
            (
                r#"{"a":{"z":[1, {}], "b":"<&>\u2028\u0008\/é"}}"#,
                "body:a",
                Some(r#"{"b":"\u003c\u0026\u003e\u2028\u0008/é","z":[1,{}]}"#),
            ),
            ("a.b=1&c=%2B+x", "body:a.b", Some("1")),
            ("a.b=1&c=%2B+x", "body:c", Some("+ x")),
            ("a=1;b=2", "body:a", None),
            ("a=1&b=%zz", "body:a", None),
            (PARTS, "body:a", Some(r#"{"n":1}"#)),
            (PARTS, "body:a.n", None),
            (PARTS, "body{a}:a.n", Some("1")),
            (PARTS, "body:f.n", Some("2")),
            (PARTS, "body:g", None),
            (PARTS, "body{g}:g.n", Some("3")),
            (r#"{"p":"{\"a\":\"x\"}"}"#, "body:p.a", None),
            (r#"{"p":"{\"a\":\"x\"}"}"#, "body{p}:p.a", Some("x")),
            (r#"{"p":{"a":"x"}}"#, "body{p}:p.a", Some("x")),
            (r#"{"p":"[1]"}"#, "body{p}:p", Some("[1]")),
            ("p=%7B%22b%22%3A1%2C%22a%22%3A2%7D&q=1", "body{p}:p", Some(r#"{"a":2,"b":1}"#)),
            (
                "p=%7B%22b%22%3A1%2C%22a%22%3A2%7D&q=1",
                "body{p}:",
                Some(r#"{"p":{"a":2,"b":1},"q":"1"}"#),
            ),
            (r#"{"b":1, "a":null}"#, "body:", Some(r#"{"a":null,"b":1}"#)),
            ("[1]", "body:", Some(r#"{"root":[1]}"#)),
            ("", "body:", Some("null")),
            ("", "body:a", None),
            ("words", "body:a", None),
            ("\u{feff}{\"a\":1}", "body:a", None),
        ] {
            assert_eq!(text(body, place), Ok(wanted.map(str::to_owned)), "{body} {place}");
        }
    }

    #[test]
    fn what_two_readers_could_find_differently_is_no_value() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(LEVELS + 2), "]".repeat(LEVELS + 2));
        let long = format!("{{\"a\":[\"{}\",1]}}", "x".repeat(1 << 16));
        let large = format!("{{\"a\":1}}{}", " ".repeat(DOTTED_BODY_BYTES));
        // One pass: of 8 MiB, and of a form of as many fields as a whole body can have.
        let list = format!("{{\"a\":[{}1]}}", "1,".repeat(4 << 20));
        let fields: String = (0..1 << 17).map(|n| format!("{n:x}=&")).collect();
        for (body, place, wanted) in [
            (r#"{"a":1,"a":2}"#, "body:a", Unclear::Twice),
            (r#"{"a":{"b":1,"b":2}}"#, "body:a.b", Unclear::Twice),
            (r#"{"a":{"b":1,"b":2}}"#, "body:a", Unclear::Twice),
            ("a=1&a=2", "body:a", Unclear::Twice),
            (r#"{"a":"\ud800"}"#, "body:a", Unclear::NotText),
            (r#"{"a":1}x"#, "body:a", Unclear::NotJson),
            (r#"{"a":1"#, "body:b", Unclear::NotJson),
            ("<a>1</a>", "body:a", Unclear::NotJson),
            ("--b\r\nx", "body:a", Unclear::NotForm),
            (&deep, "body:a", Unclear::TooLarge),
            (&long, "body:a", Unclear::TooLarge),
            (&large, "body:", Unclear::TooLarge),
            (&list, "body:a", Unclear::TooLarge),
            (&fields, "body:", Unclear::TooLarge),
        ] {
            assert_eq!(text(body, place), Err(wanted), "{place}");
        }
        assert_eq!(text(&large, "body:a"), Ok(Some("1".to_owned())));
    }

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for place in ["body:a.b", "body:", "body{p}:p.a", "body{p,q}:"] {
            let (kind, name) = place.split_once(':').unwrap();
            assert_eq!(Dotted::parse(kind, name).unwrap().to_string(), place);
        }
        for (kind, name) in [("body{}", "a"), ("body{a", "a"), ("body{a,}", "a"), ("bodya", "a")] {
            assert!(Dotted::parse(kind, name).is_err(), "{kind}");
        }
        assert!(Dotted::parse("body", &vec!["a"; 17].join(".")).is_err());
    }
}
