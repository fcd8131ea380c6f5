//! How answers look: tables and colours for people, JSON for programs.
//!
//! Text that came from outside is escaped before it reaches a terminal. Times are local with their
//! offset for people; JSON has them in UTC.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::exit::Failure;
use crate::model::{Outcome, State, Timestamp, shell_word};

/// Prints one JSON document and a line end.
pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Prints a line.
pub(super) fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    writeln!(anstream::stdout().lock(), "{text}")?;
    Ok(())
}

/// Prints one JSON value on a line of its own.
pub(super) fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Says something beside the answer, on standard error; where that is closed, to nobody.
pub(super) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr().lock(), "note: {text}");
}

/// Prints a table, or `empty` where it has no row.
pub(super) fn table(head: &[&str], rows: Vec<Vec<Cell>>, empty: &str) -> Result<(), Failure> {
    if rows.is_empty() {
        return line(empty);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().map(|text| Cell::new(text).add_attribute(Attribute::Dim)));
    for row in rows {
        table.add_row(row);
    }
    for line in table.lines() {
        writeln!(anstream::stdout().lock(), "{}", line.trim_end())?;
    }
    Ok(())
}

/// A column of a listing: its head, and what it may be cut to where the lines become too long.
pub(super) struct Column {
    head: &'static str,
    /// Nothing where its texts are typed again, or make no sense in part.
    shortest: Option<usize>,
}

/// A column that is never cut.
pub(super) const fn whole(head: &'static str) -> Column {
    Column { head, shortest: None }
}

/// A column that may be cut to so many characters.
pub(super) const fn cut(head: &'static str, shortest: usize) -> Column {
    Column { head, shortest: Some(shortest) }
}

/// One cell's text, safe for a terminal, and its state where that colours it.
pub(super) struct Field {
    text: String,
    state: Option<State>,
}

impl<T: std::fmt::Display> From<T> for Field {
    fn from(text: T) -> Self {
        Field { text: escape(&text.to_string()), state: None }
    }
}

/// A field that names a state, in its colour.
pub(super) fn coloured(text: &str, state: State) -> Field {
    Field { text: text.to_owned(), state: Some(state) }
}

/// Most characters of a listing's line where no wider terminal shows it.
const LINE_CHARS: usize = 100;

/// Between two columns of [`table`]: what the preset without lines puts there.
const GAP_CHARS: usize = 2;

/// Prints a listing whose lines fit the terminal, or [`LINE_CHARS`]; `wide` leaves every text whole.
pub(super) fn listing(
    columns: &[Column],
    mut rows: Vec<Vec<Field>>,
    wide: bool,
    empty: &str,
) -> Result<(), Failure> {
    if !wide {
        fit(columns, &mut rows, line_chars());
    }
    let cell = |field: Field| match field.state {
        Some(state) => paint(Cell::new(field.text), state),
        None => Cell::new(field.text),
    };
    let head: Vec<&str> = columns.iter().map(|column| column.head).collect();
    table(&head, rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect(), empty)
}

fn line_chars() -> usize {
    let width = Table::new().is_tty().then(|| Table::new().width()).flatten();
    width.map_or(LINE_CHARS, |width| LINE_CHARS.max(usize::from(width)))
}

/// Takes from the longest of the columns that may be cut, a character at a time, until it fits.
fn fit(columns: &[Column], rows: &mut [Vec<Field>], most: usize) {
    let width = |nth: usize, rows: &[Vec<Field>]| {
        let texts = rows.iter().filter_map(|row| row.get(nth));
        let longest = texts.map(|field| field.text.chars().count()).max().unwrap_or(0);
        longest.max(columns[nth].head.chars().count())
    };
    let mut widths: Vec<usize> = (0..columns.len()).map(|nth| width(nth, rows)).collect();
    let least = |nth: usize| {
        let column = &columns[nth];
        column.shortest.map(|shortest| shortest.max(column.head.chars().count()))
    };
    while widths.iter().sum::<usize>() + GAP_CHARS * columns.len() > most {
        let can =
            (0..columns.len()).filter(|&nth| least(nth).is_some_and(|least| widths[nth] > least));
        let Some(longest) = can.max_by_key(|&nth| widths[nth]) else { break };
        widths[longest] -= 1;
    }
    for row in rows {
        for (field, &width) in row.iter_mut().zip(&widths) {
            if field.text.chars().count() > width {
                field.text = field.text.chars().take(width.saturating_sub(1)).collect();
                field.text.push('…');
            }
        }
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

/// A cell with text from outside.
pub(super) fn outside(text: &str) -> Cell {
    Cell::new(escape(text))
}

/// A cell in the colour of a job's state.
fn paint(cell: Cell, state: State) -> Cell {
    match state {
        State::Succeeded => cell.fg(Color::Green),
        State::Held | State::Waiting => cell.fg(Color::Yellow),
        State::Dead => cell.fg(Color::Red),
        State::Running => cell.fg(Color::Cyan),
        State::Ready | State::Dropped => cell,
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

/// A time for people: local, with its offset.
pub(super) fn local(time: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(instant) => instant
            .to_zoned(jiff::tz::TimeZone::system())
            .strftime("%Y-%m-%d %H:%M:%S%:z")
            .to_string(),
        Err(_) => time.to_string(),
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

/// What a printed command needs so that it finds the configuration that this one was run with: nothing
/// where that lies in its usual place.
pub(super) fn config_suffix(config: &Path) -> String {
    if config == Path::new(crate::cli::DEFAULT_CONFIG) {
        return String::new();
    }
    format!(" --config {}", shell_word(&config.display().to_string()))
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
    fn lines_fit_and_what_is_typed_again_stays_whole() {
        let columns = [whole("JOB"), cut("TYPE", 6), cut("WHY", 4)];
        let row = || vec!["0123456789".into(), "pull_request".into(), "abcdefgh".into()];
        let shown = |most| {
            let mut rows = vec![row()];
            fit(&columns, &mut rows, most);
            rows.remove(0).into_iter().map(|field: Field| field.text).collect::<Vec<_>>()
        };
        assert_eq!(shown(36), ["0123456789", "pull_request", "abcdefgh"]);
        assert_eq!(shown(32), ["0123456789", "pull_re…", "abcdefgh"]);
        assert_eq!(shown(5), ["0123456789", "pull_…", "abc…"]);
    }

    #[test]
    fn nothing_from_outside_moves_a_terminal() {
        assert_eq!(escape("a\x1b[31mb\r\n\u{202e}ä"), "a\\u{1b}[31mb\\r\\n\\u{202e}ä");
        // The Arabic mark turns direction too; tags are letters that nobody sees.
        assert_eq!(escape("\u{61c}\u{ad}\u{e0041}"), "\\u{61c}\\u{ad}\\u{e0041}");
        assert_eq!(escape_lines("a\tb\nc\x07"), "a\tb\nc\\u{7}");
    }
}
