//! What a request without an event id means if it equals an earlier one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The shortest window, and the longest: ten years, the most of `storage.keep_ids`.
const WINDOW_MIN: Duration = Duration::from_secs(1);
const WINDOW_MAX: Duration = Duration::from_secs(3650 * 86_400);

/// What an equal request is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Repeats {
    /// `duplicate`: the sender has repeated the event; for as long as ids are kept.
    #[default]
    Duplicate,
    /// A duration, such as `30s`: a duplicate for this long after the first delivery, then another event.
    Window(Duration),
    /// `trigger`: it asks for a run that begins after it came. It is a duplicate while the earlier event's job has not
    /// begun, and another event from then on; handler by handler.
    Trigger,
    /// `look-again`: each request is an event; the handler fetches what has changed.
    LookAgain,
}

impl FromStr for Repeats {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "duplicate" => Ok(Repeats::Duplicate),
            "trigger" => Ok(Repeats::Trigger),
            "look-again" => Ok(Repeats::LookAgain),
            _ => match humantime::parse_duration(text) {
                Ok(window) if !(WINDOW_MIN..=WINDOW_MAX).contains(&window) => {
                    Err(format!("must be 1s to 3650d, not '{text}'"))
                }
                Ok(window) => Ok(Repeats::Window(window)),
                Err(_) => Err(format!(
                    "must be 'duplicate', 'trigger', 'look-again' or a duration such as '30s', not '{text}'"
                )),
            },
        }
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repeats::Duplicate => f.write_str("duplicate"),
            Repeats::Window(window) => humantime::format_duration(*window).fmt(f),
            Repeats::Trigger => f.write_str("trigger"),
            Repeats::LookAgain => f.write_str("look-again"),
        }
    }
}
