//! Facts as text: times, durations, numbers, and the colours of states. Must stay true: text from outside is
//! escaped before it reaches a terminal. Times are local in text and in UTC in JSON.

use std::time::Duration;

use anstyle::{AnsiColor, Style};

use crate::clock::Clock;
use crate::model::{Outcome, State, Timestamp};

use super::wrap::chars;

/// Green for a good result, red for a bad one.
pub(crate) fn good_or_bad(good: bool) -> AnsiColor {
    if good { AnsiColor::Green } else { AnsiColor::Red }
}

/// The colour for a job's state.
pub(crate) fn state_style(state: State) -> Style {
    match state {
        State::Succeeded => AnsiColor::Green.on_default(),
        State::Held | State::Waiting => AnsiColor::Yellow.on_default(),
        State::Dead => AnsiColor::Red.on_default(),
        State::Running => AnsiColor::Cyan.on_default(),
        State::Ready | State::Dropped => Style::new(),
    }
}

/// A shorter form of [`span`]: "38s", "5m", "3h", "12d".
pub(crate) fn short_span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The colour for an attempt's outcome; `None` is a running attempt.
pub(crate) fn outcome_style(outcome: Option<Outcome>) -> Style {
    let colour = match outcome {
        None => AnsiColor::Cyan,
        Some(Outcome::Succeeded) => AnsiColor::Green,
        Some(Outcome::Failed | Outcome::Rejected) => AnsiColor::Red,
        Some(Outcome::TimedOut | Outcome::Unknown | Outcome::Cancelled | Outcome::NotStarted) => {
            AnsiColor::Yellow
        }
    };
    colour.on_default()
}

/// Makes text from outside harmless to a terminal: replaces control and formatting characters, including
/// bidirectional ones, by their escapes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

/// Like [`escape`], but keeps newlines and tabs.
pub(crate) fn escape_lines(text: &str) -> String {
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
pub(crate) fn local(time: Timestamp) -> String {
    match (zoned(time), zoned(Clock::system().now())) {
        (Some(at), _) if chars().is_none() => at.strftime("%Y-%m-%d %H:%M:%S%:z").to_string(),
        (Some(at), Some(now)) if at.date() == now.date() => at.strftime("%H:%M:%S").to_string(),
        (Some(at), _) => at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        (None, _) => time.to_string(),
    }
}

/// The time in the system's zone; `None` beyond the years that a calendar date has.
pub(crate) fn zoned(time: Timestamp) -> Option<jiff::ZonedDateTime> {
    let instant = jiff::Timestamp::from_millisecond(time.0).ok()?;
    Some(instant.to_zoned_datetime(jiff::tz::TimeZone::system()))
}

/// A number with its noun: "1 job", "2 jobs".
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A duration for people in one unit, which is the largest that leaves at least 2: "3 min".
pub(crate) fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A number with a separator between thousands: "12,345".
pub(crate) fn thousands(number: u64) -> String {
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
pub(crate) fn size(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_separators_between_thousands() {
        let shown = [0, 999, 1_000, 12_345, 1_234_567].map(thousands);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,234,567"]);
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
