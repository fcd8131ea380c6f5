//! How a line is written down: for a terminal, for the journal, as JSON.

use std::ffi::OsStr;
use std::fmt::Write;

use tracing::Level;

use crate::clock::Clock;

use super::fields::{Line, Value};

/// What stands before the name of each field of ours in the journal.
const PREFIX: &str = "HOOKLATCH_";

/// What `journalctl -t` knows the lines by.
const IDENTIFIER: &str = "hooklatch";

/// A delivery's line as JSON, and most others: each has a buffer of its own, which then need not grow.
const USUAL_BYTES: usize = 512;

/// A form of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// For people.
    Text,
    /// The journal's own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).
    Journal,
    /// For whatever collects lines.
    Json,
}

impl Form {
    /// Text on a `terminal`; the journal's where `journal` names the device and inode of standard error,
    /// which are `place`: a variable that was inherited past a redirection names another.
    pub(super) fn choose(
        terminal: bool,
        journal: Option<&OsStr>,
        place: Option<(u64, u64)>,
    ) -> Form {
        let named = || {
            let (device, inode) = journal?.to_str()?.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        };
        match named() {
            _ if terminal => Form::Text,
            Some(named) if place == Some(named) => Form::Journal,
            _ => Form::Json,
        }
    }

    /// `line` as it is written, with its end.
    pub(super) fn bytes(self, line: &Line) -> Vec<u8> {
        match self {
            Form::Text => format!("{} {:<5} {}\n", now(), line.level, sentence(line)).into_bytes(),
            Form::Json => json(line),
            Form::Journal => journal(line),
        }
    }
}

fn now() -> String {
    Clock::system().now().to_string()
}

/// The message and all fields: what the journal shows of a line by default, and a terminal.
fn sentence(line: &Line) -> String {
    let mut text = printable(&line.message);
    for (name, value) in &line.fields.0 {
        // A string takes whatever is written to it.
        let _ = match value {
            Value::Plain(value) => write!(text, " {name}={value}"),
            Value::Text(value) if is_word(value) => write!(text, " {name}={value}"),
            Value::Text(value) => write!(text, " {name}=\"{}\"", printable(value)),
        };
    }
    text
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
}

/// Without what ends a line, moves a cursor or turns the direction of writing.
fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '"' | '\'' | '\\' => c.to_string(),
        _ => c.escape_debug().to_string(),
    };
    text.chars().map(shown).collect()
}

fn json(line: &Line) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    let mut member = |name: &str, value: &str, is_plain: bool| {
        bytes.push(if bytes.is_empty() { b'{' } else { b',' });
        quote(&mut bytes, name);
        bytes.push(b':');
        match is_plain {
            true => bytes.extend_from_slice(value.as_bytes()),
            false => quote(&mut bytes, value),
        }
    };
    member("timestamp", &now(), false);
    member("level", line.level.as_str(), false);
    member("message", &line.message, false);
    for (name, value) in &line.fields.0 {
        match value {
            Value::Plain(value) => member(name, value, true),
            Value::Text(value) => member(name, value, false),
        }
    }
    member("target", line.target, false);
    bytes.extend_from_slice(b"}\n");
    bytes
}

fn quote(bytes: &mut Vec<u8>, text: &str) {
    // A vector takes whatever is written to it.
    let _ = serde_json::to_writer(bytes, text);
}

fn journal(line: &Line) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut field = |name: &str, value: &str| {
        bytes.extend(name.as_bytes());
        if value.contains('\n') {
            bytes.push(b'\n');
            bytes.extend((value.len() as u64).to_le_bytes());
        } else {
            bytes.push(b'=');
        }
        bytes.extend(value.as_bytes());
        bytes.push(b'\n');
    };
    field("MESSAGE", &sentence(line));
    field("PRIORITY", priority(line.level));
    field("SYSLOG_IDENTIFIER", IDENTIFIER);
    field("TARGET", line.target);
    for (name, value) in &line.fields.0 {
        let (Value::Text(value) | Value::Plain(value)) = value;
        let name = name.to_ascii_uppercase().replace('.', "_");
        field(&format!("{PREFIX}{name}"), value);
    }
    bytes
}

/// syslog(3)'s number.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::log::fields::Fields;

    fn line(message: &str, fields: &[(&'static str, &str)]) -> Line {
        let mut all = vec![("bytes", Value::Plain("7".to_owned()))];
        all.extend(fields.iter().map(|(name, text)| (*name, Value::Text((*text).to_owned()))));
        let (level, message) = (Level::INFO, message.to_owned());
        Line { level, target: "hooklatch::http", message, fields: Fields(all) }
    }

    #[test]
    fn the_form_is_chosen_by_what_standard_error_is() {
        let choose = |terminal, journal: Option<&str>, place| {
            Form::choose(terminal, journal.map(OsStr::new), place)
        };
        let here = Some((8, 4242));
        assert_eq!(choose(true, None, here), Form::Text);
        assert_eq!(choose(true, Some("8:4242"), here), Form::Text);
        assert_eq!(choose(false, Some("8:4242"), here), Form::Journal);
        for other in [
            None,
            Some(""),
            Some("8:4243"),
            Some("9:4242"),
            Some("8"),
            Some("a:b"),
            Some("8:4242:1"),
        ] {
            assert_eq!(choose(false, other, here), Form::Json, "{other:?}");
        }
        assert_eq!(choose(false, Some("8:4242"), None), Form::Json);
        assert_eq!(choose(false, None, None), Form::Json);
    }

    #[test]
    fn text_from_outside_stays_on_its_line_and_in_its_field() {
        let line =
            line("end\u{1b}[2J", &[("event", "a b\n\u{202e}\"x"), ("empty", ""), ("handler", "h")]);
        let text = sentence(&line);
        assert_eq!(text, "end\\u{1b}[2J bytes=7 event=\"a b\\n\\u{202e}\"x\" empty=\"\" handler=h");
        let json = String::from_utf8(Form::Json.bytes(&line)).unwrap();
        assert_eq!(json.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["event"], "a b\n\u{202e}\"x");
        assert_eq!((&read["bytes"], &read["level"]), (&7.into(), &"INFO".into()));
    }

    #[test]
    fn the_journal_gets_a_field_for_each() {
        let bytes =
            Form::Journal.bytes(&line("delivery", &[("source", "github"), ("detail", "a\nb")]));
        let mut wanted =
            b"MESSAGE=delivery bytes=7 source=github detail=\"a\\nb\"\nPRIORITY=6\n".to_vec();
        wanted.extend(b"SYSLOG_IDENTIFIER=hooklatch\nTARGET=hooklatch::http\nHOOKLATCH_BYTES=7\n");
        wanted.extend(b"HOOKLATCH_SOURCE=github\nHOOKLATCH_DETAIL\n\x03\0\0\0\0\0\0\0a\nb\n");
        assert_eq!(bytes, wanted);
    }
}
