//! Prints lines for people and JSON for programs: the only place that writes to standard output and error.

use std::io::Write;
use std::iter;

use anstyle::Style;
use serde::Serialize;
use serde_json::Value;

use crate::cli::Format;
use crate::exit::{Exit, Failure};

use super::text::escape;
use super::wrap::{chars, width_of, wrap};

/// The indent of what stands beside a label or below that.
const BESIDE_LABEL: &str = "          ";

/// Prints one indented JSON document and a newline.
fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Prints lines, wrapped at words to the width of the screen.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let text = text.to_string();
    for text in text.split('\n') {
        let indent = &text[..text.len() - text.trim_start().len()];
        lines(&wrap(text, chars(), indent))?;
    }
    Ok(())
}

/// Prints a text after its label.
pub(crate) fn fact(about: &str, text: impl std::fmt::Display) -> Result<(), Failure> {
    let text = format!("{about:<10}{text}");
    lines(&wrap(&text, chars(), BESIDE_LABEL))
}

/// Prints texts from outside below each other, after one label.
pub(crate) fn list(
    about: &str,
    texts: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<(), Failure> {
    let labels = iter::once(about).chain(iter::repeat(""));
    labels.zip(texts).try_for_each(|(about, text)| fact(about, escape(text.as_ref())))
}

/// Prints texts after a styled label, wrapped at the screen's width but at most 100 characters; at 80
/// without a screen.
pub(crate) fn facts(about: &str, style: Style, texts: &[String]) -> Result<(), Failure> {
    let most = Some(chars().map_or(80, |chars| chars.min(100)));
    let wrapped = |text: &String| wrap(&format!("{BESIDE_LABEL}{text}"), most, BESIDE_LABEL);
    let text = texts.iter().flat_map(wrapped).collect::<Vec<_>>().join("\n");
    let rest = text.get(about.len()..).unwrap_or_default();
    verbatim(format_args!("{style}{about}{style:#}{rest}"))
}

/// Prints a line without wrapping: a program's output, or a text to copy.
pub(crate) fn verbatim(text: impl std::fmt::Display) -> Result<(), Failure> {
    writeln!(anstream::stdout().lock(), "{text}")?;
    Ok(())
}

pub(super) fn lines(lines: &[String]) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints one JSON value on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    serde_json::to_writer(&mut out, value).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// Prints a note on standard error. Ignores a closed standard error.
pub(crate) fn note(text: impl std::fmt::Display) {
    said("note", Style::new(), &text.to_string());
}

/// Prints a text after its kind on standard error. Ignores a closed standard error.
pub(crate) fn said(kind: &str, style: Style, text: &str) {
    let mut err = anstream::stderr().lock();
    let indent = " ".repeat(kind.len() + 2);
    for (nth, text) in text.split('\n').enumerate() {
        let text = match nth {
            0 => format!("{style}{kind}{style:#}: {text}"),
            _ => text.to_owned(),
        };
        for line in wrap(&text, width_of(std::io::stderr()), &indent) {
            let _ = writeln!(err, "{line}");
        }
    }
}

/// Prints the answer of a command: JSON, or what `text` prints for people.
pub(crate) fn either(
    format: &Format,
    value: &impl Serialize,
    text: impl FnOnce() -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    if format.json { json(value) } else { text() }?;
    Ok(Exit::Ok)
}

/// Prints the answer of a command that people read in one sentence or a few lines.
pub(crate) fn answer(
    format: &Format,
    value: Value,
    text: impl std::fmt::Display,
) -> Result<Exit, Failure> {
    either(format, &value, || line(text))
}

/// Ignores that the reader of standard output has left, as in `hooklatch drill | head -1`: a command whose verdict is
/// its exit code continues.
pub(crate) fn ignore_left_reader<T>(printed: Result<T, Failure>) -> Result<(), Failure> {
    printed.map(drop).or_else(|failure| if failure.reader_left { Ok(()) } else { Err(failure) })
}
