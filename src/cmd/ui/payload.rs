//! A payload as lines to read: JSON with its pointers, a form's fields, text, or bytes in hex.
//!
//! Must stay true: values of JSON are shown as written, so a number of 19 digits stays itself; the work is bounded by
//! what is shown.

use maud::{Markup, html};
use serde_json::value::RawValue;

use crate::payload::plain;
use crate::payload::walk::{elements, members};

use super::parts::shown;

/// Bytes of a payload that are shown; the rest is for the download.
pub(super) const SHOWN_BYTES: usize = 256 * 1024;

const SHOWN_LINES: usize = 5000;

/// A larger body is shown as text. Its JSON would be read once for each level.
const JSON_BYTES: usize = 1024 * 1024;

/// Levels of lists and objects that are taken apart.
const LEVELS: usize = 32;

/// Bytes of a value that are shown: a line of 5 MiB is no use to a reader.
const VALUE_BYTES: usize = 4096;

/// Pointers that a search lists.
const FOUND: usize = 50;

/// The payload, where the text to find stands in it, and whether only its beginning is shown.
pub(super) struct Payload(pub(super) Markup, pub(super) Vec<String>, pub(super) bool);

/// Shows a payload, inflated if it is compressed. `find` is a text or a pointer in it.
pub(super) fn view(body: &[u8], content_type: &str, find: &str) -> Payload {
    // A body that cannot be inflated to at most JSON_BYTES is shown in hex.
    let plain = plain(body, JSON_BYTES as u64);
    let body = plain.as_deref().unwrap_or(body);
    let head = &body[..body.len().min(SHOWN_BYTES)];
    let mut is_cut = head.len() < body.len();
    let text = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let rest = head.len() - text.len();
    // The cut may be in the middle of a character.
    let is_text = rest == 0 || (is_cut && rest < 4);
    if is_text && content_type.starts_with("application/x-www-form-urlencoded") {
        let fields = form_urlencoded::parse(text.as_bytes()).take(SHOWN_LINES);
        let html = html! { dl.kv.pad { @for (name, value) in fields {
            dt { code { (shown(&cut(&name))) } } dd { code { (shown(&cut(&value))) } }
        } } };
        return Payload(html, Vec::new(), is_cut);
    }
    let mut lines: Vec<Line> = text.lines().take(SHOWN_LINES).map(Line::text).collect();
    let mut label = "Payload";
    if let Some(json) = json(body) {
        (lines, is_cut) = (json.lines, json.is_cut);
    } else if !is_text {
        let shown = &head[..head.len().min(VALUE_BYTES)];
        lines = shown.chunks(16).map(Line::hex).collect();
        (label, is_cut) = ("Payload in hex", shown.len() < body.len());
    }
    let is_found = |line: &&Line| match find {
        "" => false,
        pointer if pointer.starts_with('/') => line.pointer == pointer,
        text => line.key.contains(text) || line.value.contains(text),
    };
    let found = lines.iter().filter(is_found).take(FOUND);
    let found = found.map(|line| line.pointer.clone()).collect();
    let html = html! { pre.json tabindex="0" aria-label=(label) { @for line in &lines {
        span.l { @if is_found(&line) { mark { (line.html()) } } @else { (line.html()) } }
    } } };
    Payload(html, found, is_cut)
}

/// A line of a payload: `key: value` and a comma.
#[derive(Clone, Default)]
struct Line {
    depth: usize,
    key: String,
    /// The class of the value: a bracket, a text, a number, a word.
    class: &'static str,
    value: String,
    comma: &'static str,
    /// Where the value stands (RFC 6901).
    pointer: String,
}

impl Line {
    fn text(value: &str) -> Self {
        let value = cut(value);
        Line { value, ..Line::default() }
    }

    fn hex(bytes: &[u8]) -> Self {
        let digits = bytes.iter().map(|byte| format!("{byte:02x} "));
        Line::text(&digits.collect::<String>())
    }

    fn html(&self) -> Markup {
        html! {
            ("  ".repeat(self.depth))
            @if !self.key.is_empty() { span.k data-copy=(self.pointer) title=(self.pointer) { (shown(&self.key)) } ": " }
            span class=(self.class) { (shown(&self.value)) } (self.comma)
        }
    }
}

fn cut(value: &str) -> String {
    let end = value.floor_char_boundary(VALUE_BYTES);
    match value.len() - end {
        0 => value.to_owned(),
        more => format!("{}… ({more} more bytes)", &value[..end]),
    }
}

#[derive(Default)]
struct Json {
    lines: Vec<Line>,
    bytes: usize,
    is_cut: bool,
}

/// A line for each value and each end of a list or object. None if the body is not JSON.
fn json(body: &[u8]) -> Option<Json> {
    if body.len() > JSON_BYTES {
        return None;
    }
    let raw: &RawValue = serde_json::from_slice(body).ok()?;
    let mut json = Json::default();
    json.value(raw.get(), 0, String::new(), String::new());
    Some(json)
}

impl Json {
    /// Adds the lines of a value.
    fn value(&mut self, raw: &str, depth: usize, key: String, pointer: String) {
        let (class, end) = match raw.as_bytes()[0] {
            b'{' => ("p", "}"),
            b'[' => ("p", "]"),
            b'"' => ("s", ""),
            b't' | b'f' | b'n' => ("w", ""),
            _ => ("n", ""),
        };
        let is_whole = end.is_empty() || depth == LEVELS;
        let mut line = Line {
            depth,
            key,
            class,
            value: cut(if is_whole { raw } else { &raw[..1] }),
            comma: "",
            pointer,
        };
        self.push(&line);
        if is_whole {
            return;
        }
        let opened = self.lines.len();
        let mut item = |key: String, step: &str, raw: &str| {
            if self.is_cut {
                return;
            }
            if let Some(last) = self.lines[opened..].last_mut() {
                last.comma = ",";
            }
            let step = step.replace('~', "~0").replace('/', "~1");
            self.value(raw, depth + 1, key, format!("{}/{step}", line.pointer));
        };
        if end == "}" {
            let all = |_: &str| true;
            members(raw.as_bytes(), all, |name, raw| {
                item(serde_json::Value::from(name).to_string(), name, raw);
            });
        } else {
            let mut at = 0..;
            elements(raw.as_bytes(), SHOWN_LINES, |raw| {
                item(String::new(), &at.next().unwrap_or(0).to_string(), raw);
            });
        }
        if self.lines.len() > opened {
            line.key.clear();
            end.clone_into(&mut line.value);
            self.push(&line);
        } else if let Some(empty) = self.lines.last_mut().filter(|_| !self.is_cut) {
            empty.value.push_str(end);
        }
    }

    fn push(&mut self, line: &Line) {
        self.bytes += line.key.len() + line.value.len() + line.pointer.len();
        self.is_cut |= self.bytes > SHOWN_BYTES || self.lines.len() == SHOWN_LINES;
        if !self.is_cut {
            self.lines.push(line.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn json_is_cut_into_lines_with_pointers() {
        let body = br#"{"a/b":[1,{"c":null}],"d":{},"e":12345678901234567890}"#;
        let line = |line: &Line| {
            let key = if line.key.is_empty() { String::new() } else { format!("{}: ", line.key) };
            let indent = "  ".repeat(line.depth);
            format!("{indent}{key}{}{} @{}", line.value, line.comma, line.pointer)
        };
        let shown: Vec<String> = json(body).unwrap().lines.iter().map(line).collect();
        let expected = [
            "{ @",
            "  \"a/b\": [ @/a~1b",
            "    1, @/a~1b/0",
            "    { @/a~1b/1",
            "      \"c\": null @/a~1b/1/c",
            "    } @/a~1b/1",
            "  ], @/a~1b",
            "  \"d\": {}, @/d",
            "  \"e\": 12345678901234567890 @/e",
            "} @",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_is_not_json_is_text() {
        for text in ["", "{", "[1", "{]", "hello {", "[\"a]", "{\"a\":1}}", "\u{202e}"] {
            assert!(json(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn markup_and_hidden_characters_are_text() {
        let body = "{\"<script>\":\"\u{202e}<img onerror=x>\"}";
        let html = view(body.as_bytes(), "application/json", "").0.into_string();
        assert!(!html.contains("<script>") && !html.contains("<img"), "{html}");
        assert!(html.contains("\\u{202e}"), "{html}");
    }

    #[test]
    fn what_is_long_deep_or_binary_is_bounded() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let many = format!("[{}1]", "1,".repeat(500_000));
        let keys =
            format!("{{{}\"a\":1}}", format!("\"{}\":[{{}}],", "k".repeat(900)).repeat(2000));
        for long in [format!("{{\"a\":\"{}\"}}", "x".repeat(5 << 20)), deep, many, keys] {
            let payload = view(long.as_bytes(), "application/json", "");
            let shown = payload.0.into_string().len();
            assert!(payload.2 || long.starts_with("[["), "{shown}");
            assert!(shown < 4 * SHOWN_BYTES, "{shown}");
        }
        assert!(view(&[0xff; 100], "", "").0.into_string().contains("ff ff"));
    }
}
