//! The formats of a line: text for a terminal, the journal's protocol, JSON.

use std::ffi::OsStr;
use std::fmt::Write;

use serde::Serializer as _;
use serde_json::Value;
use tracing::Level;

use crate::clock::Clock;

use super::fields::Line;

/// Precedes the name of each of our fields in the journal.
const PREFIX: &str = "HOOKLATCH_";

/// The identifier by which `journalctl -t` selects our lines.
const IDENTIFIER: &str = "hooklatch";

/// First capacity of a JSON line's buffer: enough for a delivery's line and most others.
const USUAL_BYTES: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Text for a terminal.
    Text,
    /// The journal's own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).
    Journal,
    /// JSON for log collectors.
    Json,
}

impl Format {
    /// Text on a `terminal`. The journal's if `journal` names the device and inode of standard error, which are
    /// `place`: after a redirection the inherited variable names other ones.
    pub(super) fn choose(
        terminal: bool,
        journal: Option<&OsStr>,
        place: Option<(u64, u64)>,
    ) -> Format {
        let named = || {
            let (device, inode) = journal?.to_str()?.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        };
        match named() {
            _ if terminal => Format::Text,
            Some(named) if place == Some(named) => Format::Journal,
            _ => Format::Json,
        }
    }

    /// The line with its end.
    pub(super) fn bytes(self, line: &Line) -> Vec<u8> {
        match self {
            Format::Text => {
                format!("{} {:<5} {}\n", now(), line.level, sentence(line)).into_bytes()
            }
            Format::Json => json(line),
            Format::Journal => journal(line),
        }
    }
}

fn now() -> String {
    Clock::system().now().to_string()
}

/// The message and all fields, as a terminal and, by default, `journalctl` show a line.
fn sentence(line: &Line) -> String {
    let mut text = printable(&line.message);
    for (name, value) in &line.fields.0 {
        // Writing to a string cannot fail.
        let _ = match value {
            Value::String(value) if is_word(value) => write!(text, " {name}={value}"),
            Value::String(value) => write!(text, " {name}=\"{}\"", printable(value)),
            value => write!(text, " {name}={value}"),
        };
    }
    text
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
}

/// Escapes characters that end a line, move the cursor or change the writing direction.
fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '"' | '\'' | '\\' => c.to_string(),
        _ => c.escape_debug().to_string(),
    };
    text.chars().map(shown).collect()
}

fn json(line: &Line) -> Vec<u8> {
    let [timestamp, level, message, target] =
        [&now(), line.level.as_str(), &line.message, line.target].map(Value::from);
    let first = [("timestamp", &timestamp), ("level", &level), ("message", &message)];
    let fields = line.fields.0.iter().map(|(name, value)| (*name, value));
    let members = first.into_iter().chain(fields).chain([("target", &target)]);
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    // Writing to a vector cannot fail.
    let _ = serde_json::Serializer::new(&mut bytes).collect_map(members);
    bytes.push(b'\n');
    bytes
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
        let name = name.to_ascii_uppercase().replace('.', "_");
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        field(&format!("{PREFIX}{name}"), &text);
    }
    bytes
}

/// The number of syslog(3).
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
        let mut all = vec![("bytes", Value::from(7))];
        all.extend(fields.iter().map(|(name, text)| (*name, Value::from(*text))));
        let (level, message) = (Level::INFO, message.to_owned());
        Line { level, target: "hooklatch::http", message, fields: Fields(all) }
    }

    #[test]
    fn standard_error_decides_the_format() {
        let choose = |terminal, journal: Option<&str>, place| {
            Format::choose(terminal, journal.map(OsStr::new), place)
        };
        let here = Some((8, 4242));
        assert_eq!(choose(true, None, here), Format::Text);
        assert_eq!(choose(true, Some("8:4242"), here), Format::Text);
        assert_eq!(choose(false, Some("8:4242"), here), Format::Journal);
        for other in [
            None,
            Some(""),
            Some("8:4243"),
            Some("9:4242"),
            Some("8"),
            Some("a:b"),
            Some("8:4242:1"),
        ] {
            assert_eq!(choose(false, other, here), Format::Json, "{other:?}");
        }
        assert_eq!(choose(false, Some("8:4242"), None), Format::Json);
        assert_eq!(choose(false, None, None), Format::Json);
    }

    #[test]
    fn hostile_text_cannot_leave_its_line_or_field() {
        let line =
            line("end\u{1b}[2J", &[("event", "a b\n\u{202e}\"x"), ("empty", ""), ("handler", "h")]);
        let text = sentence(&line);
        assert_eq!(text, "end\\u{1b}[2J bytes=7 event=\"a b\\n\\u{202e}\"x\" empty=\"\" handler=h");
        let json = String::from_utf8(Format::Json.bytes(&line)).unwrap();
        assert_eq!(json.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["event"], "a b\n\u{202e}\"x");
        assert_eq!((&read["bytes"], &read["level"]), (&7.into(), &"INFO".into()));
    }

    #[test]
    fn the_journal_gets_each_field_by_name() {
        let bytes =
            Format::Journal.bytes(&line("delivery", &[("source", "github"), ("detail", "a\nb")]));
        let mut wanted =
            b"MESSAGE=delivery bytes=7 source=github detail=\"a\\nb\"\nPRIORITY=6\n".to_vec();
        wanted.extend(b"SYSLOG_IDENTIFIER=hooklatch\nTARGET=hooklatch::http\nHOOKLATCH_BYTES=7\n");
        wanted.extend(b"HOOKLATCH_SOURCE=github\nHOOKLATCH_DETAIL\n\x03\0\0\0\0\0\0\0a\nb\n");
        assert_eq!(bytes, wanted);
    }
}
