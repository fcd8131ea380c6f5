//! Wraps prose at words to the width of the screen.
//!
//! In a pipe or a file it does not wrap or cut, so that a row is one line for `grep`, unless the variable
//! COLUMNS gives a width.

use std::os::fd::AsFd;

use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter};

/// The assumed width of a terminal that does not report its width.
const USUAL_CHARS: usize = 80;

/// How many characters fit on a line of standard output; `None` without a limit.
pub(crate) fn chars() -> Option<usize> {
    width_of(std::io::stdout())
}

/// How many characters fit on a line of this output; `None` without a limit.
pub(super) fn width_of(output: impl AsFd) -> Option<usize> {
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

pub(super) fn words(text: &str, chars: usize, indent: &str) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
