//! Tables: one for every listing. Columns are narrowed until a row fits the width of the screen.

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use textwrap::core::display_width;

use crate::cli::Format;
use crate::exit::{Exit, Failure};

use super::print;
use super::text::escape;
use super::wrap::{chars, words, wrap};

/// The space between two columns.
const GAP: &str = "  ";

/// The indent of a text on its own line below a row.
const BELOW: &str = "    ";

/// A cell of a table, with the head of its column and how texts are shortened there if a line is too long.
pub(crate) struct Cell(Column, Field);

#[derive(Clone, Copy)]
struct Column(&'static str, Fit);

#[derive(Clone, Copy)]
enum Fit {
    Whole,
    Cut { shortest: usize },
    Words,
    Below,
}

/// Makes a cell of a column whose texts are not cut or wrapped.
pub(crate) fn whole(head: &'static str, text: impl Into<Field>) -> Cell {
    Cell(Column(head, Fit::Whole), text.into())
}

/// Makes a cell of a column whose texts may be cut, but not to fewer than `shortest` characters.
pub(crate) fn cut(head: &'static str, shortest: usize, text: impl Into<Field>) -> Cell {
    Cell(Column(head, Fit::Cut { shortest }), text.into())
}

/// Makes a cell of a column whose texts are wrapped at words.
pub(crate) fn words_of(head: &'static str, text: impl Into<Field>) -> Cell {
    Cell(Column(head, Fit::Words), text.into())
}

/// Makes a cell of a column whose texts are on separate lines below the row on a screen. Only the last column may be
/// one.
pub(crate) fn below(head: &'static str, text: impl Into<Field>) -> Cell {
    Cell(Column(head, Fit::Below), text.into())
}

/// One cell's text, safe for a terminal, and its style.
pub(crate) struct Field {
    text: String,
    style: Style,
}

impl<T: std::fmt::Display> From<T> for Field {
    fn from(text: T) -> Self {
        let (text, style) = (escape(&text.to_string()), Style::new());
        Field { text, style }
    }
}

/// A table that may be printed in parts: a wider row widens the columns of later rows.
pub(crate) struct Table {
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
    /// Makes an empty table with the columns of `cells`. `chars` is the width of a line; `None` without a limit.
    pub(crate) fn new(cells: &[Cell], chars: Option<usize>) -> Self {
        let columns: Vec<Column> = cells.iter().map(|Cell(column, _)| *column).collect();
        let (longest, least) = (vec![0; columns.len()], vec![0; columns.len()]);
        let mut table = Table { columns, longest, least, chars, begun: false };
        table.measure(&table.heads());
        table
    }

    fn heads(&self) -> Vec<Field> {
        let dimmed = Style::new().dimmed();
        self.columns.iter().map(|Column(head, _)| styled(head, dimmed)).collect()
    }

    /// Prints rows with common column widths. The first call prints the head too.
    pub(crate) fn print(&mut self, rows: Vec<Vec<Cell>>) -> Result<(), Failure> {
        let fields = |row: Vec<Cell>| row.into_iter().map(|Cell(_, field)| field).collect();
        let rows: Vec<Vec<Field>> = rows.into_iter().map(fields).collect();
        rows.iter().for_each(|row| self.measure(row));
        if !self.begun {
            print::lines(&self.head())?;
            self.begun = true;
        }
        rows.iter().try_for_each(|row| print::lines(&self.lines(row)))
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

/// Prints a table that fits the screen; with `wide`, texts are not cut or wrapped. Prints `empty` if there
/// are no rows.
pub(crate) fn listing(rows: Vec<Vec<Cell>>, wide: bool, empty: &str) -> Result<(), Failure> {
    match rows.first() {
        Some(first) => Table::new(first, chars().filter(|_| !wide)).print(rows),
        None => print::line(empty),
    }
}

/// Prints values: all of them as JSON, or a table with a row for each.
pub(crate) fn rows<T: Serialize>(
    format: &Format,
    values: &[T],
    row: impl FnMut(&T) -> Vec<Cell>,
    wide: bool,
    empty: &str,
) -> Result<Exit, Failure> {
    print::either(format, &values, || listing(values.iter().map(row).collect(), wide, empty))
}

pub(crate) fn painted(text: impl std::fmt::Display, colour: AnsiColor) -> Field {
    styled(text, colour.on_default())
}

pub(crate) fn styled(text: impl std::fmt::Display, style: Style) -> Field {
    Field { style, ..text.into() }
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

    fn shown(columns: &[Cell], rows: &[&[&str]], chars: Option<usize>) -> Vec<String> {
        let mut table = Table::new(columns, chars);
        let fields = |row: &&[&str]| row.iter().map(Field::from).collect::<Vec<_>>();
        let rows: Vec<Vec<Field>> = rows.iter().map(fields).collect();
        rows.iter().for_each(|row| table.measure(row));
        let lines = table.head().into_iter().chain(rows.iter().flat_map(|row| table.lines(row)));
        lines.map(|line| anstream::adapter::strip_str(&line).to_string()).collect()
    }

    #[test]
    fn a_table_fits_the_screen_and_keeps_ids_whole() {
        let columns =
            [whole("JOB", ""), cut("TYPE", 6, ""), words_of("WHY", ""), below("DETAIL", "")];
        let row: &[&str] = &["0123456789", "pull_request", "ab cd ef", "it said that all is lost"];
        assert_eq!(
            shown(&columns, &[row], None),
            [
                "JOB         TYPE          WHY       DETAIL",
                "0123456789  pull_request  ab cd ef  it said that all is lost",
            ]
        );
        assert_eq!(
            shown(&columns, &[row], Some(27)),
            [
                "JOB         TYPE     WHY",
                "0123456789  pull_r…  ab cd",
                "                     ef",
                "    it said that all is",
                "    lost",
            ]
        );
        assert_eq!(
            shown(&columns, &[row], Some(8))[..2],
            ["JOB         TYPE    WHY", "0123456789  pull_…  ab"]
        );
    }
}
