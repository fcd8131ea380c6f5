//! How answers look: tables and colours for people, JSON for programs.
//!
//! Text that came from outside is escaped before it reaches a terminal. Times are local for people; JSON
//! has them in UTC.

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

/// What a printed command needs so that it finds the configuration that this one was run with.
pub(super) use crate::model::config_option as config_suffix;
pub(super) use screen::{Column, Field, Table, below, cut, whole, words_of};

/// Prints one JSON document and a line end.
pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// How many characters fit on a line of standard output. None: as many as there are.
pub(super) fn chars() -> Option<usize> {
    screen::chars(std::io::stdout())
}

/// Prints lines, wrapped at words where a screen is narrower.
pub(super) fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let text = text.to_string();
    for text in text.split('\n') {
        let indent = &text[..text.len() - text.trim_start().len()];
        lines(&screen::wrap(text, chars(), indent))?;
    }
    Ok(())
}

/// Prints a text behind a word that says what it is about.
pub(super) fn fact(about: &str, text: impl std::fmt::Display) -> Result<(), Failure> {
    let text = format!("{about:<10}{text}");
    lines(&screen::wrap(&text, chars(), &" ".repeat(10)))
}

/// Prints texts behind a word in a style, within 80 characters, or the screen's up to 100.
pub(super) fn facts(about: &str, style: Style, texts: &[String]) -> Result<(), Failure> {
    let most = Some(chars().map_or(80, |chars| chars.min(100)));
    let indent = " ".repeat(10);
    let wrap = |text: &String| screen::wrap(&format!("{indent}{text}"), most, &indent);
    let text = texts.iter().flat_map(wrap).collect::<Vec<_>>().join("\n");
    let rest = text.get(about.len()..).unwrap_or_default();
    verbatim(format_args!("{style}{about}{style:#}{rest}"))
}

/// Prints a line as it is, however long: what a program has printed, or a text to copy.
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

/// Prints one JSON value on a line of its own.
pub(super) fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Prints a note on standard error, if that is open.
pub(super) fn note(text: impl std::fmt::Display) {
    said("note", Style::new(), &text.to_string());
}

/// Prints a text behind its kind on standard error, if that is open.
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

/// Prints the answer of a command that has done what was typed: as JSON, or as a line.
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

/// Prints a table whose texts are wrapped at words, or `empty` where it has no row.
pub(super) fn table(
    head: &[&'static str],
    rows: Vec<Vec<Field>>,
    empty: &str,
) -> Result<(), Failure> {
    listing(head.iter().map(|head| words_of(head)).collect(), rows, false, empty)
}

/// Prints a table that fits the screen; `wide` leaves every text whole on its row's line.
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

/// The colour of what is as it must be, or is not.
pub(super) fn good_or_bad(good: bool) -> AnsiColor {
    if good { AnsiColor::Green } else { AnsiColor::Red }
}

pub(super) fn styled(text: impl std::fmt::Display, style: Style) -> Field {
    Field { style, ..text.into() }
}

/// The colour of a state.
pub(super) fn state_style(state: State) -> Style {
    match state {
        State::Succeeded => AnsiColor::Green.on_default(),
        State::Held | State::Waiting => AnsiColor::Yellow.on_default(),
        State::Dead => AnsiColor::Red.on_default(),
        State::Running => AnsiColor::Cyan.on_default(),
        State::Ready | State::Dropped => Style::new(),
    }
}

/// The same as [`span`] where there is little room: "38s", "5m", "3h", "12d".
pub(super) fn short_span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The colour of an outcome.
pub(super) fn outcome_style(outcome: Option<Outcome>) -> Style {
    match outcome {
        Some(Outcome::Succeeded) => AnsiColor::Green.on_default(),
        Some(Outcome::Failed | Outcome::Rejected) => AnsiColor::Red.on_default(),
        None => AnsiColor::Cyan.on_default(),
        Some(_) => AnsiColor::Yellow.on_default(),
    }
}

/// Makes text from outside harmless to a terminal: control and formatting characters, bidirectional
/// ones included, become their escapes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

/// The same for text of several lines, whose line ends and tabs stay.
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

/// A time for people: local, and on a screen without its date where that is today's. What a file keeps
/// needs the date and the offset.
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

/// So many of something: "1 job", "2 jobs".
pub(super) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A length of time for people, in its largest unit: "3 min".
pub(super) fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A number with its thousands apart: "12,345".
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

/// A size for people.
pub(super) fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn thousands_are_apart() {
        let shown = [0, 999, 1_000, 12_345, 1_234_567].map(thousands);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn a_printed_command_finds_its_configuration() {
        let shown = ["/etc/hooklatch/hooklatch.toml", "a/b.toml", "it's mine.toml"]
            .map(|path| config_suffix(Path::new(path)));
        assert_eq!(shown, ["", " --config a/b.toml", r" --config 'it'\''s mine.toml'"]);
    }

    #[test]
    fn a_span_is_told_in_its_largest_unit() {
        let shown = [0, 119_999, 120_000, 7_199_999, 7_200_000, 172_800_000]
            .map(|millis| span(Duration::from_millis(millis)));
        assert_eq!(shown, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
    }

    #[test]
    fn nothing_from_outside_moves_a_terminal() {
        assert_eq!(escape("a\x1b[31mb\r\n\u{202e}ä"), "a\\u{1b}[31mb\\r\\n\\u{202e}ä");
        // The Arabic mark turns direction too; tags are letters that nobody sees.
        assert_eq!(escape("\u{61c}\u{ad}\u{e0041}"), "\\u{61c}\\u{ad}\\u{e0041}");
        assert_eq!(escape_lines("a\tb\nc\x07"), "a\tb\nc\\u{7}");
    }
}
