//! Reads `when` of a handler.

use std::ops::Bound;

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use crate::condition::{Condition, Decimal, Line, Pattern, Range, Scalar, Test};
use crate::document::{At, Fault, FromToml, Raw, Section, Value, nearest};
use crate::limits::{
    CONDITION_LINES, CONDITION_TABLES, CONDITION_WILDCARDS, PATTERN_PROGRAM_BYTES, Unit,
};
use crate::payload::Place;

/// The value of `when`. Serializes as it is written.
#[derive(PartialEq)]
pub(crate) struct When {
    pub(crate) condition: Condition,
    written: serde_json::Value,
    /// Its places with their positions.
    pub(super) places: Vec<Value<Place>>,
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

/// Reads `when`. Problems go to the section's.
pub(crate) fn read_when(section: &Section<'_>) -> Option<When> {
    let raw = section.raw("when")?;
    let tables = raw.items().map_or_else(|| vec![raw.clone()], Iterator::collect);
    if tables.is_empty() {
        let help = "remove it, or add a table";
        section.reject(&raw.at(), "no event is wanted: the list is empty", help);
    } else if tables.len() > CONDITION_TABLES {
        let message = format!("{} tables; {CONDITION_TABLES} is the limit", tables.len());
        section.reject(&raw.at(), message, "name several values in a list, or use a pattern");
    }
    let mut places = Vec::new();
    let table = |table| read_table(section, table, &mut places);
    let tables = whole(tables.iter().map(table))?;
    let written = raw.deserialize().map_err(|wrong| section.report(&raw.at(), wrong)).ok()?;
    Some(When { condition: Condition { tables }, written, places })
}

fn read_table(
    section: &Section<'_>,
    table: &Raw<'_>,
    places: &mut Vec<Value<Place>>,
) -> Option<Vec<Line>> {
    let Some(members) = table.members() else {
        let found = table.get().type_str();
        let message = format!("expected a table, or a list of tables, found {found}");
        let help = "write places and their values: when = { \"/ref\" = \"refs/heads/main\" }";
        section.reject(&table.at(), message, help);
        return None;
    };
    let members: Vec<_> = members.collect();
    if members.is_empty() {
        let help = "remove it, or add a line";
        section.reject(&table.at(), "the table is empty, so it always holds", help);
    } else if members.len() > CONDITION_LINES {
        let message = format!("{} lines; {CONDITION_LINES} is the limit", members.len());
        section.reject(&table.at(), message, "leave the rest to the handler");
    }
    whole(members.into_iter().map(|(name, value)| {
        let place = section.convert(Some(name), |text| match Place::parse(&text)? {
            place if place.wildcards() > CONDITION_WILDCARDS => {
                let many = place.wildcards();
                Err(format!("'{text}' has {many} steps '*'; {CONDITION_WILDCARDS} is the limit"))
            }
            place => Ok(place),
        });
        let (not, test) = read_value(section, &value)?;
        places.push(place.clone()?);
        Some(Line { place: place?.value, not, test })
    }))
}

/// All of them, once every problem is reported.
fn whole<T>(read: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let all: Vec<Option<T>> = read.collect();
    all.into_iter().collect()
}

/// What stands right of a place: whether it is negated, and the test.
fn read_value(section: &Section<'_>, raw: &Raw<'_>) -> Option<(bool, Test)> {
    if raw.members().is_some() {
        return read_tests(section, raw);
    }
    let items: Vec<Raw<'_>> = raw.items().map_or_else(|| vec![raw.clone()], Iterator::collect);
    if items.is_empty() {
        section.reject(&raw.at(), "nothing is one of an empty list", "name the values in it");
    }
    Some((false, Test::Is(whole(items.iter().map(|item| read(section, item)))?)))
}

fn read<T: FromToml>(section: &Section<'_>, raw: &Raw<'_>) -> Option<T> {
    Some(section.convert_raw(raw)?.value)
}

impl FromToml for Scalar {
    const EXPECTED: &'static str = "a string, a number, true or false";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        match value {
            DeValue::String(text) => Ok(Scalar::Text(text.to_string())),
            DeValue::Boolean(value) => Ok(Scalar::Bool(*value)),
            number => Decimal::from_toml(number).map(Scalar::Number),
        }
    }
}

impl FromToml for Decimal {
    const EXPECTED: &'static str = "a number";
    fn from_toml(value: &DeValue<'_>) -> Result<Self, Option<String>> {
        let text = match value {
            DeValue::Integer(integer) => {
                let value = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
                let value = value.filter(|value| u64::try_from(value.unsigned_abs()).is_ok());
                value.ok_or_else(|| "a whole number has at most 64 bits".to_owned())?.to_string()
            }
            DeValue::Float(float) => float.as_str().trim_start_matches('+').to_owned(),
            _ => return Err(None),
        };
        Decimal::parse(&text).ok_or_else(|| Some(format!("'{text}' is not a number in JSON")))
    }
}

/// The tests of a table. The first five are about numbers, and may stand together.
const TESTS: [&str; 12] = [
    "above",
    "at_least",
    "below",
    "at_most",
    "text",
    "glob",
    "matches",
    "starts_with",
    "ends_with",
    "contains",
    "present",
    "not",
];
const OF_NUMBERS: usize = 5;

fn read_tests(section: &Section<'_>, raw: &Raw<'_>) -> Option<(bool, Test)> {
    let members: Vec<(Value<String>, Raw<'_>)> = raw.members()?.collect();
    let is_known = |name: &str| TESTS.contains(&name);
    for (name, _) in members.iter().filter(|(name, _)| !is_known(&name.value)) {
        let help = match nearest(&name.value, TESTS) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("the tests are: {}", TESTS.join(", ")),
        };
        section.reject(&name.at, format!("unknown test '{}'", name.value), help);
    }
    if !members.iter().all(|(name, _)| is_known(&name.value)) {
        return None;
    }
    let is_of_numbers = |name: &str| TESTS[..OF_NUMBERS].contains(&name);
    if !members.is_empty() && members.iter().all(|(name, _)| is_of_numbers(&name.value)) {
        return Some((false, Test::Within(read_range(section, raw, &members)?)));
    }
    let (name, value) = match &members[..] {
        [(name, value)] => (name.value.as_str(), value),
        several => {
            let names: Vec<_> =
                several.iter().map(|(name, _)| format!("'{}'", name.value)).collect();
            let message = match names.is_empty() {
                true => "the table has no test".to_owned(),
                false => format!("{} cannot stand together", names.join(" and ")),
            };
            let help = "write one test; only two bounds of a number stand together";
            section.reject(&raw.at(), message, help);
            return None;
        }
    };
    let test = match name {
        "glob" => Test::Fits(read_pattern(section, value, Pattern::glob)?),
        "matches" => Test::Fits(read_pattern(section, value, Pattern::expression)?),
        "starts_with" => Test::StartsWith(read(section, value)?),
        "ends_with" => Test::EndsWith(read(section, value)?),
        "contains" => Test::Contains(read(section, value)?),
        "present" => return Some((!read::<bool>(section, value)?, Test::Present)),
        _ => {
            let (not, test) = read_value(section, value)?;
            return Some((!not, test));
        }
    };
    Some((false, test))
}

fn read_pattern(
    section: &Section<'_>,
    raw: &Raw<'_>,
    compile: fn(&str) -> Result<Pattern, String>,
) -> Option<Pattern> {
    let compiled = section.convert(section.convert_raw(raw), |text: String| {
        compile(&text).map_err(|wrong| {
            let message = format!("'{text}' does not compile: {wrong}");
            let most = Unit::Bytes.show(PATTERN_PROGRAM_BYTES as u64);
            let help =
                "patterns have no look-around and no Unicode classes, and compile to at most";
            Fault::new(message, format!("{help} {most}"))
        })
    });
    Some(compiled?.value)
}

fn read_range(
    section: &Section<'_>,
    raw: &Raw<'_>,
    members: &[(Value<String>, Raw<'_>)],
) -> Option<Range> {
    let mut range = Range { low: Bound::Unbounded, high: Bound::Unbounded, text: false };
    for (name, value) in members {
        let (side, bound) = match name.value.as_str() {
            "above" => (&mut range.low, Bound::Excluded(read(section, value)?)),
            "at_least" => (&mut range.low, Bound::Included(read(section, value)?)),
            "below" => (&mut range.high, Bound::Excluded(read(section, value)?)),
            "at_most" => (&mut range.high, Bound::Included(read(section, value)?)),
            _ => {
                range.text = read(section, value)?;
                continue;
            }
        };
        if *side != Bound::Unbounded {
            section.reject(
                &name.at,
                "another bound on the same side is given",
                "remove one of them",
            );
            return None;
        }
        *side = bound;
    }
    let (message, help) = if (&range.low, &range.high) == (&Bound::Unbounded, &Bound::Unbounded) {
        let help = "add above, at_least, below or at_most";
        ("'text' says how a number is read, and no bound is given".to_owned(), help)
    } else if range.is_empty() {
        (format!("no number is {range}"), "the lower bound must be less than the upper")
    } else {
        return Some(range);
    };
    section.reject(&raw.at(), message, help);
    None
}

/// The header of a place, and its position.
pub(super) fn header(place: &Value<Place>) -> Option<(&str, &At)> {
    match &place.value {
        Place::Header(name) => Some((name, &place.at)),
        Place::Type | Place::Id | Place::Form(_) | Place::Json(_) => None,
    }
}
