//! Reads when a handler's attempts may start: the delay before the first, the pauses before the others, the rate of all.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::document::{Fault, Section, Value};
use crate::limits::{BACKOFF_COUNT, BACKOFF_PAUSE, DELAY, DELAY_MOST, RATE_STARTS};
use crate::store;

use super::shown::duration_text;

/// When the attempts of one handler may start.
#[derive(Default, PartialEq, Serialize)]
pub(crate) struct Pace {
    /// The wait before a job's first attempt, and the longest where each newer event starts it anew.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) delay: Option<Delay>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<Rate>,
    /// The pause after each counted attempt, the last one repeated; empty where none is written.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "durations")]
    pub(crate) backoff: Vec<Duration>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Delay {
    #[serde(rename = "delay", serialize_with = "super::shown::duration")]
    wait: Duration,
    #[serde(rename = "delay_most", serialize_with = "super::shown::duration")]
    most: Duration,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Rate {
    #[serde(rename = "rate", serialize_with = "rate_text")]
    starts: (NonZeroU32, Unit),
    burst: NonZeroU32,
}

/// The time of a rate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
}

impl Unit {
    const ALL: [Unit; 3] = [Unit::Second, Unit::Minute, Unit::Hour];

    /// As it is written, and in seconds.
    fn facts(self) -> (&'static str, u64) {
        match self {
            Unit::Second => ("s", 1),
            Unit::Minute => ("min", 60),
            Unit::Hour => ("h", 3600),
        }
    }
}

impl Pace {
    /// What a new job of the handler waits for.
    pub(crate) fn delay(&self) -> Option<store::Delay> {
        self.delay.map(|Delay { wait, most }| store::Delay { wait, most })
    }

    /// The longest such wait.
    pub(super) fn most_delay(&self) -> Duration {
        self.delay.map_or(Duration::ZERO, |delay| delay.most.max(delay.wait))
    }

    /// How fast the handler's attempts may start.
    pub(super) fn rate(&self) -> Option<store::Rate> {
        self.rate.map(|Rate { starts: (starts, unit), burst }| {
            let (_, per) = unit.facts();
            store::Rate { starts, per: Duration::from_secs(per), burst }
        })
    }
}

/// The keys of this file. A handler that answers takes none of them.
const KEYS: [&str; 5] = ["delay", "delay_most", "rate", "burst", "backoff"];

/// Reads the pace of a handler; what cannot be read is reported.
pub(super) fn read(section: &Section<'_>, answers: bool) -> Pace {
    let delay = duration(section, "delay", DELAY);
    let most = duration(section, "delay_most", DELAY_MOST);
    let rate = section.convert(section.get::<String>("rate"), |text| parse_rate(&text));
    let burst = section.convert(section.get::<u64>("burst"), starts);
    let backoff = read_backoff(section);
    if answers {
        for at in KEYS.into_iter().filter_map(|key| section.place_of(key)) {
            let help = "remove it: the caller waits for the answer";
            section.reject(&at, "a handler that answers runs at once, and once", help);
        }
        return Pace::default();
    }
    // Without newer events that start the wait anew, the delay is the longest.
    for (key, needs) in [("delay_most", "delay"), ("delay_most", "coalesce_by"), ("burst", "rate")]
    {
        if let Some(at) = section.place_of(key)
            && !section.has(needs)
        {
            section.reject(&at, format!("'{key}' without '{needs}'"), format!("add {needs}"));
        }
    }
    if let (Some(Value { value: delay, .. }), Some(Value { value: most, at })) = (&delay, &most)
        && most < delay
    {
        let delay = duration_text(*delay);
        section.reject(at, "shorter than 'delay'", format!("write at least \"{delay}\""));
    }
    let longest = *DELAY_MOST.end();
    Pace {
        delay: delay.map(|delay| Delay {
            wait: delay.value,
            most: most.map_or((delay.value * 10).min(longest), |most| most.value),
        }),
        rate: rate.map(|rate| Rate {
            starts: rate.value,
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
    section.convert(section.get::<Duration>(key), |time| in_range(time, &range))
}

fn in_range(time: Duration, range: &RangeInclusive<Duration>) -> Result<Duration, String> {
    if range.contains(&time) {
        return Ok(time);
    }
    let [time, least, most] = [&time, range.start(), range.end()].map(|time| duration_text(*time));
    Err(format!("{time} is out of range: it may be {least} to {most}"))
}

fn starts(number: u64) -> Result<NonZeroU32, String> {
    let found = u32::try_from(number).ok().filter(|number| RATE_STARTS.contains(number));
    found.and_then(NonZeroU32::new).ok_or_else(|| {
        let (least, most) = RATE_STARTS.into_inner();
        format!("{number} is out of range: it may be {least} to {most}")
    })
}

fn parse_rate(text: &str) -> Result<(NonZeroU32, Unit), Fault> {
    let form = || {
        let help = "write a number of starts and their time: \"30/min\", \"2/s\" or \"100/h\"";
        Fault::new(format!("'{text}' is no rate"), help)
    };
    let (number, unit) = text.split_once('/').ok_or_else(form)?;
    let number = number.trim().parse().map_err(|_| form())?;
    let named = |known: &Unit| known.facts().0 == unit.trim();
    let unit = Unit::ALL.into_iter().find(named).ok_or_else(form)?;
    Ok((starts(number)?, unit))
}

fn read_backoff(section: &Section<'_>) -> Vec<Duration> {
    let listed = section.convert(section.get::<Vec<String>>("backoff"), |texts| {
        if !BACKOFF_COUNT.contains(&texts.len()) {
            let (least, most) = BACKOFF_COUNT.into_inner();
            return Err(format!("{} pauses are listed: it may be {least} to {most}", texts.len()));
        }
        let pauses = texts.iter().map(|text| {
            let time = humantime::parse_duration(text);
            let time = time.map_err(|error| format!("'{text}': {error}"))?;
            in_range(time, &BACKOFF_PAUSE)
        });
        pauses.collect::<Result<Vec<_>, _>>()
    });
    listed.map(|listed| listed.value).unwrap_or_default()
}

fn durations<S: Serializer>(all: &[Duration], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(|time| duration_text(*time)))
}

fn rate_text<S: Serializer>(rate: &(NonZeroU32, Unit), serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}/{}", rate.0, rate.1.facts().0))
}
