//! Reads when a handler's attempts may start: the delay before the first, the pauses before the others, the rate of all.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::document::{Fault, Section, Value};
use crate::limits::{BACKOFF_COUNT, BACKOFF_PAUSE, DELAY, DELAY_MOST, RATE_STARTS};
use crate::routing::Delay;
use crate::store::Rate;

use super::read::in_range;
use super::shown::duration_text;

/// When the attempts of one handler may start. Serializes as it is written.
#[derive(Default, PartialEq)]
pub(crate) struct Pace {
    pub(crate) delay: Option<Delay>,
    pub(crate) rate: Option<Rate>,
    /// The pause after each counted attempt, the last one repeated; empty where none is written.
    pub(crate) backoff: Vec<Duration>,
}

/// The units of a rate's time, in seconds.
const UNITS: [(&str, u64); 3] = [("s", 1), ("min", 60), ("h", 3600)];

impl Serialize for Pace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut keys = serializer.serialize_map(None)?;
        if let Some(Delay { wait, most }) = self.delay {
            keys.serialize_entry("delay", &duration_text(wait))?;
            keys.serialize_entry("delay_most", &duration_text(most))?;
        }
        if let Some(Rate { starts, per, burst }) = self.rate {
            let unit = UNITS.iter().find(|(_, seconds)| *seconds == per.as_secs());
            let unit = unit.map_or("", |(name, _)| name);
            keys.serialize_entry("rate", &format!("{starts}/{unit}"))?;
            keys.serialize_entry("burst", &burst)?;
        }
        if !self.backoff.is_empty() {
            let pauses: Vec<_> = self.backoff.iter().map(|time| duration_text(*time)).collect();
            keys.serialize_entry("backoff", &pauses)?;
        }
        keys.end()
    }
}

/// The keys of this file. A handler that answers takes none of them.
const KEYS: [&str; 5] = ["delay", "delay_most", "rate", "burst", "backoff"];

/// Reads the pace of a handler; what cannot be read is reported.
pub(super) fn read(section: &Section<'_>, answers: bool) -> Pace {
    let delay = duration(section, "delay", DELAY);
    let most = duration(section, "delay_most", DELAY_MOST);
    let rate = section.parse("rate", |text: String| parse_rate(&text));
    let burst = section.parse("burst", starts);
    let backoff = read_backoff(section);
    if answers {
        for key in KEYS {
            let help = "remove it: the caller waits for the answer";
            section.refuse(key, "a handler that answers runs at once, and once", help);
        }
        return Pace::default();
    }
    // Without newer events that start the wait anew, the delay is the longest.
    for (key, needs) in [("delay_most", "delay"), ("delay_most", "coalesce_by"), ("burst", "rate")]
    {
        if !section.has(needs) {
            section.refuse(key, &format!("'{key}' without '{needs}'"), &format!("add {needs}"));
        }
    }
    if let (Some(Value { value: delay, .. }), Some(Value { value: most, at })) = (&delay, &most)
        && most < delay
    {
        let delay = duration_text(*delay);
        section.reject(at, "shorter than 'delay'", format!("write at least \"{delay}\""));
    }
    Pace {
        delay: delay.map(|Value { value: wait, .. }| Delay {
            wait,
            most: most.map_or((wait * 10).min(*DELAY_MOST.end()), |most| most.value),
        }),
        rate: rate.map(|Value { value: (starts, per), .. }| Rate {
            starts,
            per,
            burst: burst.map_or(NonZeroU32::MIN, |burst| burst.value),
        }),
        backoff,
    }
}

fn duration(
    section: &Section<'_>,
    key: &'static str,
    range: RangeInclusive<Duration>,
) -> Option<Value<Duration>> {
    section.parse(key, |time| in_range(time, &range, duration_text))
}

fn starts(number: u64) -> Result<NonZeroU32, String> {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let number = in_range(number, &RATE_STARTS, |number| number.to_string())?;
    NonZeroU32::new(number).ok_or_else(|| "a rate has at least one start".to_owned())
}

fn parse_rate(text: &str) -> Result<(NonZeroU32, Duration), Fault> {
    let form = || {
        let help = "write a number of starts and their time: \"30/min\", \"2/s\" or \"100/h\"";
        Fault::new(format!("'{text}' is not a rate"), help)
    };
    let (number, unit) = text.split_once('/').ok_or_else(form)?;
    let number = number.trim().parse().map_err(|_| form())?;
    let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(form)?;
    Ok((starts(number)?, Duration::from_secs(*seconds)))
}

fn read_backoff(section: &Section<'_>) -> Vec<Duration> {
    let listed = section.parse("backoff", |texts: Vec<String>| {
        if !BACKOFF_COUNT.contains(&texts.len()) {
            let (least, most) = BACKOFF_COUNT.into_inner();
            return Err(format!("{} pauses are listed: it may be {least} to {most}", texts.len()));
        }
        let pauses = texts.iter().map(|text| {
            let time = humantime::parse_duration(text);
            let time = time.map_err(|error| format!("'{text}': {error}"))?;
            in_range(time, &BACKOFF_PAUSE, duration_text)
        });
        pauses.collect::<Result<Vec<_>, _>>()
    });
    listed.map(|listed| listed.value).unwrap_or_default()
}
