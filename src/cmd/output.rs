//! Prints the answers of commands: tables and colours for people, JSON for programs.
//!
//! Every command prints through this module. Must stay true: text from outside is escaped before it
//! reaches a terminal. Times are local in text and in UTC in JSON.

mod screen;

use std::io::Write;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::Value;

use crate::cli;
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::model::{Outcome, State, Timestamp};

/// The `--config` option for a printed command, so that it finds the configuration of this run.
pub(super) use crate::model::config_option as config_suffix;
pub(super) use screen::{Column, Field, Table, below, cut, whole, words_of};

/// Prints one indented JSON document and a newline.
pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// How many characters fit on a line of standard output; `None` without a limit.
pub(super) fn chars() -> Option<usize> {
    screen::chars(std::io::stdout())
}

/// Prints lines, wrapped at words to the width of the screen.
pub(super) fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let text = text.to_string();
    for text in text.split('\n') {
        let indent = &text[..text.len() - text.trim_start().len()];
        lines(&screen::wrap(text, chars(), indent))?;
    }
    Ok(())
}

/// Prints a text after its label.
pub(super) fn fact(about: &str, text: impl std::fmt::Display) -> Result<(), Failure> {
    let text = format!("{about:<10}{text}");
    lines(&screen::wrap(&text, chars(), &" ".repeat(10)))
}

/// Prints texts after a styled label, wrapped at the screen's width but at most 100 characters; at 80
/// without a screen.
pub(super) fn facts(about: &str, style: Style, texts: &[String]) -> Result<(), Failure> {
    let most = Some(chars().map_or(80, |chars| chars.min(100)));
    let indent = " ".repeat(10);
    let wrap = |text: &String| screen::wrap(&format!("{indent}{text}"), most, &indent);
    let text = texts.iter().flat_map(wrap).collect::<Vec<_>>().join("\n");
    let rest = text.get(about.len()..).unwrap_or_default();
    verbatim(format_args!("{style}{about}{style:#}{rest}"))
}

/// Prints a line without wrapping: a program's output, or a text to copy.
pub(super) fn verbatim(text: impl std::fmt::Display) -> Result<(), Failure> {
    writeln!(anstream::stdout().lock(), "{text}")?;
    Ok(())
}

fn lines(lines: &[String]) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints one JSON value on one line.
pub(super) fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Prints a note on standard error. Ignores a closed standard error.
pub(super) fn note(text: impl std::fmt::Display) {
    said("note", Style::new(), &text.to_string());
}

/// Prints a text after its kind on standard error. Ignores a closed standard error.
pub(super) fn said(kind: &str, style: Style, text: &str) {
    let mut err = anstream::stderr().lock();
    let indent = " ".repeat(kind.len() + 2);
    for (nth, text) in text.split('\n').enumerate() {
        let text = match nth {
            0 => format!("{style}{kind}{style:#}: {text}"),
            _ => text.to_owned(),
        };
        for line in screen::wrap(&text, screen::chars(std::io::stderr()), &indent) {
            let _ = writeln!(err, "{line}");
        }
    }
}

/// Prints the answer of a successful command, as JSON or as text.
pub(super) fn answer(
    format: &cli::Format,
    json: Value,
    text: impl std::fmt::Display,
) -> Result<Exit, Failure> {
    if format.json {
        self::json(&json)?
    } else {
        line(text)?
    }
    Ok(Exit::Ok)
}

/// Prints a table whose texts are wrapped at words; prints `empty` if there are no rows.
pub(super) fn table(
    head: &[&'static str],
    rows: Vec<Vec<Field>>,
    empty: &str,
) -> Result<(), Failure> {
    listing(head.iter().map(|head| words_of(head)).collect(), rows, false, empty)
}

/// Prints a table that fits the screen; with `wide`, texts are not cut or wrapped. Prints `empty` if there
/// are no rows.
pub(super) fn listing(
    columns: Vec<Column>,
    rows: Vec<Vec<Field>>,
    wide: bool,
    empty: &str,
) -> Result<(), Failure> {
    if rows.is_empty() {
        return line(empty);
    }
    Table::new(columns, chars().filter(|_| !wide)).print(&rows)
}

pub(super) fn painted(text: impl std::fmt::Display, colour: AnsiColor) -> Field {
    styled(text, colour.on_default())
}

/// Green for a good result, red for a bad one.
pub(super) fn good_or_bad(good: bool) -> AnsiColor {
    if good { AnsiColor::Green } else { AnsiColor::Red }
}

pub(super) fn styled(text: impl std::fmt::Display, style: Style) -> Field {
    Field { style, ..text.into() }
}

/// The colour for a job's state.
pub(super) fn state_style(state: State) -> Style {
    match state {
        State::Succeeded => AnsiColor::Green.on_default(),
        State::Held | State::Waiting => AnsiColor::Yellow.on_default(),
        State::Dead => AnsiColor::Red.on_default(),
        State::Running => AnsiColor::Cyan.on_default(),
        State::Ready | State::Dropped => Style::new(),
    }
}

/// A shorter form of [`span`]: "38s", "5m", "3h", "12d".
pub(super) fn short_span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The colour for an attempt's outcome; `None` is a running attempt.
pub(super) fn outcome_style(outcome: Option<Outcome>) -> Style {
    match outcome {
        Some(Outcome::Succeeded) => AnsiColor::Green.on_default(),
        Some(Outcome::Failed | Outcome::Rejected) => AnsiColor::Red.on_default(),
        None => AnsiColor::Cyan.on_default(),
        Some(_) => AnsiColor::Yellow.on_default(),
    }
}

/// Makes text from outside harmless to a terminal: replaces control and formatting characters, including
/// bidirectional ones, by their escapes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

/// Like [`escape`], but keeps newlines and tabs.
pub(super) fn escape_lines(text: &str) -> String {
    text.split('\n')
        .map(|line| line.split('\t').map(escape).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A local time for people. On a screen it has no date if that is today; in a file or a pipe it always
/// has the date and the offset.
pub(super) fn local(time: Timestamp) -> String {
    let zone = jiff::tz::TimeZone::system();
    let zoned = |time: Timestamp| {
        let instant = jiff::Timestamp::from_millisecond(time.0);
        instant.map(|instant| instant.to_zoned(zone.clone()))
    };
    match (zoned(time), zoned(Clock::system().now())) {
        (Ok(at), _) if chars().is_none() => at.strftime("%Y-%m-%d %H:%M:%S%:z").to_string(),
        (Ok(at), Ok(now)) if at.date() == now.date() => at.strftime("%H:%M:%S").to_string(),
        (Ok(at), _) => at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        (Err(_), _) => time.to_string(),
    }
}

/// A number with its noun: "1 job", "2 jobs".
pub(super) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A duration for people in one unit, which is the largest that leaves at least 2: "3 min".
pub(super) fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A number with a separator between thousands: "12,345".
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes for people, in binary units: "5.0 MiB".
pub(super) fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_number_has_separators_between_thousands() {
        let shown = [0, 999, 1_000, 12_345, 1_234_567].map(thousands);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn a_printed_command_names_a_configuration_that_is_not_the_default() {
        let shown = ["/etc/hooklatch/hooklatch.toml", "a/b.toml", "it's mine.toml"]
            .map(|path| config_suffix(Path::new(path)));
        assert_eq!(shown, ["", " --config a/b.toml", r" --config 'it'\''s mine.toml'"]);
    }

    #[test]
    fn a_span_is_printed_in_its_largest_unit() {
        let shown = [0, 119_999, 120_000, 7_199_999, 7_200_000, 172_800_000]
            .map(|millis| span(Duration::from_millis(millis)));
        assert_eq!(shown, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        assert_eq!(escape("a\x1b[31mb\r\n\u{202e}ä"), "a\\u{1b}[31mb\\r\\n\\u{202e}ä");
        // The Arabic letter mark changes the direction too; tags are invisible letters.
        assert_eq!(escape("\u{61c}\u{ad}\u{e0041}"), "\\u{61c}\\u{ad}\\u{e0041}");
        assert_eq!(escape_lines("a\tb\nc\x07"), "a\tb\nc\\u{7}");
    }
}
