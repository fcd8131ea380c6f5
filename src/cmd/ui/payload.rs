//! A payload as lines to read: JSON with its pointers, a form's fields, text, or bytes in hex.
//!
//! Must stay true: JSON is cut into tokens and never parsed, so a number of 19 digits stays itself; the work is bounded
//! by what is shown.

use maud::{Markup, html};

use super::parts::shown;

/// Bytes of a payload that are shown; the rest is for the download.
const SHOWN_BYTES: usize = 256 * 1024;

const SHOWN_LINES: usize = 5000;

/// Levels of lists and objects; a pointer has one step for each.
const LEVELS: usize = 64;

/// Characters of a token that are shown: a line of 5 MiB is no use to a reader.
const TOKEN_CHARS: usize = 4096;

/// Bytes of a binary payload that are shown, 16 a line.
const HEX_BYTES: usize = 4096;

/// Pointers that a search lists.
const FOUND: usize = 50;

/// The payload, and what was found in it.
pub(super) struct Payload {
    pub(super) html: Markup,
    pub(super) found: Vec<String>,
    pub(super) is_cut: bool,
}

/// A token of a line: its class, and its text.
type Token<'t> = (&'static str, &'t str);

#[derive(Default)]
struct Line<'t> {
    depth: usize,
    tokens: Vec<Token<'t>>,
    /// Where its value stands.
    pointer: String,
}

/// Shows a payload. `find` is a text or a pointer in it.
pub(super) fn view(body: &[u8], content_type: &str, find: &str) -> Payload {
    let is_cut = body.len() > SHOWN_BYTES;
    let head = &body[..body.len().min(SHOWN_BYTES)];
    let Some(text) = text_of(head, is_cut) else {
        return Payload { html: hex(head), found: Vec::new(), is_cut: body.len() > HEX_BYTES };
    };
    if content_type.starts_with("application/x-www-form-urlencoded") {
        return Payload { html: form(text), found: Vec::new(), is_cut };
    }
    let lines = json(text, is_cut).unwrap_or_else(|| plain(text));
    let is_cut = is_cut || lines.len() > SHOWN_LINES;
    let mut found = Vec::new();
    let html = html! {
        pre.json tabindex="0" aria-label="Payload" {
            @for line in lines.iter().take(SHOWN_LINES) {
                @let is_found = line.is_found(find);
                @if is_found && found.len() < FOUND { (note(&mut found, line)) }
                span.l { (line.html(is_found)) }
            }
        }
    };
    Payload { html, found, is_cut }
}

fn note(found: &mut Vec<String>, line: &Line<'_>) -> Markup {
    found.push(line.pointer.clone());
    html! {}
}

/// The text of a body whose end may be cut in the midst of a character.
fn text_of(bytes: &[u8], is_cut: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

impl Line<'_> {
    fn is_found(&self, find: &str) -> bool {
        match find {
            "" => false,
            pointer if pointer.starts_with('/') => self.pointer == pointer,
            text => self.tokens.iter().any(|(_, token)| token.contains(text)),
        }
    }

    fn html(&self, is_found: bool) -> Markup {
        let indent = "  ".repeat(self.depth);
        let tokens = html! {
            @for (class, text) in &self.tokens {
                @let text = cut(text);
                @match *class {
                    "k" => { span.k data-copy=(self.pointer) title=(self.pointer) { (text) } }
                    "" => { (text) }
                    class => { span class=(class) { (text) } }
                }
            }
        };
        html! { (indent) @if is_found { mark { (tokens) } } @else { (tokens) } }
    }
}

fn cut(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(TOKEN_CHARS).collect();
    match chars.as_str() {
        "" => shown(&head),
        rest => format!("{}… ({} more bytes)", shown(&head), rest.len()),
    }
}

fn plain(text: &str) -> Vec<Line<'_>> {
    let line = |line| Line { tokens: vec![("", line)], ..Line::default() };
    text.lines().take(SHOWN_LINES + 1).map(line).collect()
}

fn form(text: &str) -> Markup {
    html! {
        dl.kv.pad {
            @for (name, value) in form_urlencoded::parse(text.as_bytes()).take(SHOWN_LINES) {
                dt { code { (cut(&name)) } } dd { code { (cut(&value)) } }
            }
        }
    }
}

fn hex(bytes: &[u8]) -> Markup {
    let bytes = &bytes[..bytes.len().min(HEX_BYTES)];
    html! {
        pre.json tabindex="0" aria-label="Payload in hex" {
            @for line in bytes.chunks(16) {
                span.l { @for byte in line { (format!("{byte:02x} ")) } }
            }
        }
    }
}

/// A list or an object that is open.
struct Level<'t> {
    is_object: bool,
    /// Values before this one.
    at: usize,
    key: Option<&'t str>,
}

/// JSON in lines, one value or member in each. None if it is not JSON; of a text that is cut, what is whole.
fn json(text: &str, is_cut: bool) -> Option<Vec<Line<'_>>> {
    let mut reader = Reader { lines: Vec::new(), line: Line::default(), levels: Vec::new() };
    let mut rest = text.trim_start();
    while !rest.is_empty() && reader.lines.len() <= SHOWN_LINES {
        let Some(length) = token(rest) else {
            return is_cut.then_some(reader.lines);
        };
        let (token, after) = rest.split_at(length);
        rest = after.trim_start();
        reader.take(token, rest)?;
    }
    let is_whole = reader.levels.is_empty() || is_cut || !rest.is_empty();
    reader.end_line();
    (is_whole && !reader.lines.is_empty()).then_some(reader.lines)
}

/// The length of the token at the beginning; none where it does not end or is none.
fn token(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    match bytes[0] {
        b'{' | b'}' | b'[' | b']' | b',' | b':' => Some(1),
        b'"' => {
            let mut at = 1;
            while at < bytes.len() {
                match bytes[at] {
                    b'"' => return Some(at + 1),
                    b'\\' => at += 2,
                    _ => at += 1,
                }
            }
            None
        }
        byte if byte == b'-' || byte.is_ascii_alphanumeric() => {
            let ends = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
            Some(bytes.iter().position(ends).unwrap_or(bytes.len()))
        }
        _ => None,
    }
}

struct Reader<'t> {
    lines: Vec<Line<'t>>,
    line: Line<'t>,
    levels: Vec<Level<'t>>,
}

impl<'t> Reader<'t> {
    fn take(&mut self, token: &'t str, rest: &str) -> Option<()> {
        match token {
            "{" | "[" => {
                if self.levels.len() == LEVELS {
                    return None;
                }
                self.value("p", token);
                self.levels.push(Level { is_object: token == "{", at: 0, key: None });
                if !rest.starts_with(['}', ']']) {
                    self.end_line();
                }
            }
            "}" | "]" => {
                let level = self.levels.pop()?;
                if level.is_object != (token == "}") {
                    return None;
                }
                if !self.lines.is_empty()
                    && !self.line.tokens.last().is_some_and(|(_, last)| ["{", "["].contains(last))
                {
                    self.end_line();
                    self.line.depth = self.levels.len();
                    self.line.pointer = self.pointer();
                }
                self.line.tokens.push(("p", token));
            }
            "," => {
                self.line.tokens.push(("p", token));
                let level = self.levels.last_mut()?;
                level.at += 1;
                level.key = None;
                self.end_line();
            }
            ":" => self.line.tokens.push(("p", ": ")),
            text if text.starts_with('"') => {
                let level =
                    self.levels.last_mut().filter(|level| level.is_object && level.key.is_none());
                match level {
                    Some(level) => {
                        level.key = Some(&text[1..text.len() - 1]);
                        self.value("k", text);
                    }
                    None => self.value("s", text),
                }
            }
            text if ["true", "false", "null"].contains(&text) => self.value("w", text),
            text if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                self.value("n", text);
            }
            _ => return None,
        }
        Some(())
    }

    fn value(&mut self, class: &'static str, text: &'t str) {
        if self.line.tokens.is_empty() {
            self.line.depth = self.levels.len();
            self.line.pointer = self.pointer();
        }
        self.line.tokens.push((class, text));
    }

    fn end_line(&mut self) {
        if !self.line.tokens.is_empty() {
            self.lines.push(std::mem::take(&mut self.line));
        }
    }

    /// The pointer to the value that is read (RFC 6901).
    fn pointer(&self) -> String {
        let step = |level: &Level<'_>| match (level.is_object, level.key) {
            (true, Some(key)) => {
                format!("/{}", unquoted(key).replace('~', "~0").replace('/', "~1"))
            }
            (true, None) => String::new(),
            (false, _) => format!("/{}", level.at),
        };
        self.levels.iter().map(step).collect()
    }
}

/// A key without its escapes.
fn unquoted(key: &str) -> String {
    serde_json::from_str(&format!("\"{key}\"")).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let lines = json(text, false).unwrap();
        let line = |line: &Line<'_>| {
            let tokens: String = line.tokens.iter().map(|(_, text)| *text).collect();
            format!("{}{tokens} @{}", "  ".repeat(line.depth), line.pointer)
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn json_is_cut_into_lines_with_pointers() {
        let shown = lines(r#"{"a/b":[1,{"c":null}],"d":{},"e":12345678901234567890}"#);
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
            assert!(json(text, false).is_none(), "{text}");
        }
        assert!(json(&"[".repeat(LEVELS + 1), false).is_none());
    }

    #[test]
    fn markup_and_hidden_characters_are_text() {
        let body = "{\"<script>\":\"\u{202e}<img onerror=x>\"}";
        let html = view(body.as_bytes(), "application/json", "").html.into_string();
        assert!(!html.contains("<script>") && !html.contains("<img"), "{html}");
        assert!(html.contains("\\u{202e}"), "{html}");
    }

    #[test]
    fn a_long_line_and_bytes_are_bounded() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(5 << 20));
        let payload = view(long.as_bytes(), "application/json", "");
        assert!(payload.is_cut && payload.html.into_string().len() < 2 * SHOWN_BYTES);
        assert!(view(&[0xff; 100], "", "").html.into_string().contains("ff ff"));
    }
}
