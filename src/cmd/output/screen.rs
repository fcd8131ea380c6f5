//! Fits output to the width of a screen: wraps prose at words and narrows the columns of tables.
//!
//! In a pipe or a file it does not wrap or cut, so that a row is one line for `grep`, unless the variable
//! COLUMNS gives a width.

use std::os::fd::AsFd;

use anstyle::Style;
use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter};

use crate::exit::Failure;

/// The assumed width of a terminal that does not report its width.
const USUAL_CHARS: usize = 80;

/// The space between two columns.
const GAP: &str = "  ";

/// The indent of a text on its own line below a row.
const BELOW: &str = "    ";

/// How many characters fit on a line of this output; `None` without a limit.
pub(super) fn chars(output: impl AsFd) -> Option<usize> {
    let chars = match rustix::termios::tcgetwinsize(output) {
        Ok(size) if size.ws_col > 0 => return Some(usize::from(size.ws_col)),
        Ok(_) => Some(USUAL_CHARS),
        Err(_) => None,
    };
    let variable = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    variable.filter(|&columns| columns > 0).or(chars)
}

/// Splits `text` into lines of at most `chars`; every line but the first begins with `indent`. A command
/// at the end stays in one piece, on a separate line if necessary, so that it can be copied. A command
/// that is too long is broken before an option, with a backslash.
pub(super) fn wrap(text: &str, chars: Option<usize>, indent: &str) -> Vec<String> {
    let Some(chars) = chars.filter(|&chars| display_width(text) > chars) else {
        return vec![text.to_owned()];
    };
    let (prose, command) = text.split_at(command_at(text).unwrap_or(text.len()));
    if command.is_empty() {
        return words(prose, chars, indent);
    }
    if prose.trim_start().is_empty() {
        return pieces(command, chars, prose);
    }
    let mut lines = words(prose.trim_end(), chars, indent);
    match lines.last_mut() {
        Some(last) if display_width(last) + 1 + display_width(command) <= chars => {
            last.push(' ');
            last.push_str(command);
        }
        _ => lines.extend(pieces(command, chars, indent)),
    }
    lines
}

/// The position of a command that takes up the rest of the text.
fn command_at(text: &str) -> Option<usize> {
    let mut places = text.rmatch_indices("hooklatch ").map(|(at, _)| at);
    places.find(|&at| text[..at].trim_start().is_empty() || text[..at].ends_with(": "))
}

fn words(text: &str, chars: usize, indent: &str) -> Vec<String> {
    let options = Options::new(chars)
        .subsequent_indent(indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(text, options).into_iter().map(|line| line.into_owned()).collect()
}

fn pieces(command: &str, chars: usize, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = indent.to_owned();
    for (nth, option) in command.split(" --").enumerate() {
        let option = if nth == 0 { option.to_owned() } else { format!(" --{option}") };
        if nth > 0 && display_width(&line) + display_width(&option) + 2 > chars {
            lines.push(format!("{line} \\"));
            line = format!("{indent}   ");
        }
        line.push_str(&option);
    }
    lines.push(line);
    lines
}

/// A column of a table: its head, and how its texts are shortened if a line is too long.
pub(in crate::cmd) struct Column(&'static str, Fit);

enum Fit {
    Whole,
    Cut { shortest: usize },
    Words,
    Below,
}

/// A column whose texts are not cut or wrapped.
pub(in crate::cmd) const fn whole(head: &'static str) -> Column {
    Column(head, Fit::Whole)
}

/// A column whose texts may be cut, but not to fewer than `shortest` characters.
pub(in crate::cmd) const fn cut(head: &'static str, shortest: usize) -> Column {
    Column(head, Fit::Cut { shortest })
}

/// A column whose texts are wrapped at words.
pub(in crate::cmd) const fn words_of(head: &'static str) -> Column {
    Column(head, Fit::Words)
}

/// A column whose texts are on separate lines below the row on a screen. Only the last column may be one.
pub(in crate::cmd) const fn below(head: &'static str) -> Column {
    Column(head, Fit::Below)
}

/// One cell's text, safe for a terminal, and its style.
pub(in crate::cmd) struct Field {
    pub(super) text: String,
    pub(super) style: Style,
}

impl<T: std::fmt::Display> From<T> for Field {
    fn from(text: T) -> Self {
        let (text, style) = (super::escape(&text.to_string()), Style::new());
        Field { text, style }
    }
}

/// A table that may be printed in parts: a wider row widens the columns of later rows.
pub(in crate::cmd) struct Table {
    columns: Vec<Column>,
    /// The width of the longest text of each column.
    longest: Vec<usize>,
    /// The smallest width that each column can be narrowed to.
    least: Vec<usize>,
    chars: Option<usize>,
    /// Whether the head was printed.
    begun: bool,
}

impl Table {
    /// `chars` is the width of a line; `None` without a limit.
    pub(in crate::cmd) fn new(columns: Vec<Column>, chars: Option<usize>) -> Self {
        let (longest, least) = (vec![0; columns.len()], vec![0; columns.len()]);
        let mut table = Table { columns, longest, least, chars, begun: false };
        table.measure(&table.heads());
        table
    }

    fn heads(&self) -> Vec<Field> {
        let dimmed = Style::new().dimmed();
        self.columns.iter().map(|Column(head, _)| super::styled(head, dimmed)).collect()
    }

    /// Prints rows with common column widths. The first call prints the head too.
    pub(in crate::cmd) fn print(&mut self, rows: &[Vec<Field>]) -> Result<(), Failure> {
        rows.iter().for_each(|row| self.measure(row));
        if !self.begun {
            super::lines(&self.head())?;
            self.begun = true;
        }
        rows.iter().try_for_each(|row| super::lines(&self.lines(row)))
    }

    /// Widens the columns to fit a row.
    fn measure(&mut self, row: &[Field]) {
        for (nth, (column, field)) in self.columns.iter().zip(row).enumerate() {
            let longest = display_width(&field.text);
            let least = match column.1 {
                Fit::Whole | Fit::Below => longest,
                Fit::Cut { shortest } => longest.min(shortest.max(display_width(column.0))),
                Fit::Words => field.text.split(' ').map(display_width).max().unwrap_or(0),
            };
            self.longest[nth] = self.longest[nth].max(longest);
            self.least[nth] = self.least[nth].max(least);
        }
    }

    /// The number of columns that are not on lines below the row.
    fn side_by_side(&self) -> usize {
        match self.columns.last() {
            Some(Column(_, Fit::Below)) if self.chars.is_some() => self.columns.len() - 1,
            _ => self.columns.len(),
        }
    }

    /// Narrows the widest column that can be narrowed, one character at a time, until a line fits.
    fn widths(&self) -> Vec<usize> {
        let mut widths = self.longest[..self.side_by_side()].to_vec();
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while self.chars.is_some_and(|chars| widths.iter().sum::<usize>() + gaps > chars) {
            let can = (0..widths.len()).filter(|&nth| widths[nth] > self.least[nth]);
            let Some(widest) = can.max_by_key(|&nth| widths[nth]) else { break };
            widths[widest] -= 1;
        }
        widths
    }

    fn head(&self) -> Vec<String> {
        let mut heads = self.heads();
        heads.truncate(self.side_by_side());
        self.lines(&heads)
    }

    fn lines(&self, row: &[Field]) -> Vec<String> {
        let widths = self.widths();
        let cell = |(nth, field): (usize, &Field)| match self.columns[nth].1 {
            Fit::Words => words(&field.text, widths[nth], ""),
            _ => vec![short(&field.text, widths[nth])],
        };
        let (row, below) = row.split_at(widths.len().min(row.len()));
        let cells: Vec<Vec<String>> = row.iter().enumerate().map(cell).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let mut lines: Vec<String> = Vec::new();
        for nth in 0..height {
            let (mut line, mut room) = (String::new(), String::new());
            for ((cell, field), width) in cells.iter().zip(row).zip(&widths) {
                let text = cell.get(nth).map_or("", String::as_str);
                if !text.is_empty() {
                    let style = field.style;
                    line.push_str(&format!("{room}{style}{text}{style:#}"));
                    room.clear();
                }
                room.push_str(&" ".repeat(width.saturating_sub(display_width(text)) + GAP.len()));
            }
            lines.push(line);
        }
        for field in below.iter().filter(|field| !field.text.is_empty()) {
            lines.extend(wrap(&format!("{BELOW}{}", field.text), self.chars, BELOW));
        }
        lines
    }
}

/// Cuts a text to at most `most` characters; `…` marks a cut.
fn short(text: &str, most: usize) -> String {
    if display_width(text) <= most {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        short.push(c);
        if display_width(&short) >= most {
            short.pop();
            break;
        }
    }
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(columns: Vec<Column>, rows: &[&[&str]], chars: Option<usize>) -> Vec<String> {
        let mut table = Table::new(columns, chars);
        let fields = |row: &&[&str]| row.iter().map(Field::from).collect::<Vec<_>>();
        let rows: Vec<Vec<Field>> = rows.iter().map(fields).collect();
        rows.iter().for_each(|row| table.measure(row));
        let lines = table.head().into_iter().chain(rows.iter().flat_map(|row| table.lines(row)));
        lines.map(|line| anstream::adapter::strip_str(&line).to_string()).collect()
    }

    #[test]
    fn prose_wraps_at_words_and_a_command_stays_in_one_piece() {
        let wrapped = |text, chars| wrap(text, Some(chars), "  ");
        assert_eq!(wrapped("one two three", 8), ["one two", "  three"]);
        assert_eq!(wrapped("a-word_that/is.long x", 6), ["a-word_that/is.long", "  x"]);
        let text = "once it is right: hooklatch quarantine verify --config a.toml";
        assert_eq!(
            wrapped(text, 50),
            ["once it is right:", "  hooklatch quarantine verify --config a.toml"]
        );
        assert_eq!(
            wrapped(text, 40),
            ["once it is right:", "  hooklatch quarantine verify \\", "      --config a.toml"]
        );
        assert_eq!(wrap(text, None, "  "), [text]);
    }

    #[test]
    fn a_table_fits_the_screen_and_keeps_ids_whole() {
        let columns = || vec![whole("JOB"), cut("TYPE", 6), words_of("WHY"), below("DETAIL")];
        let row: &[&str] = &["0123456789", "pull_request", "ab cd ef", "it said that all is lost"];
        assert_eq!(
            shown(columns(), &[row], None),
            [
                "JOB         TYPE          WHY       DETAIL",
                "0123456789  pull_request  ab cd ef  it said that all is lost",
            ]
        );
        assert_eq!(
            shown(columns(), &[row], Some(27)),
            [
                "JOB         TYPE     WHY",
                "0123456789  pull_r…  ab cd",
                "                     ef",
                "    it said that all is",
                "    lost",
            ]
        );
        assert_eq!(
            shown(columns(), &[row], Some(8))[..2],
            ["JOB         TYPE    WHY", "0123456789  pull_…  ab"]
        );
    }
}
