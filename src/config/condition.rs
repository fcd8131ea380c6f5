//! Reads `when` of a handler.

use std::ops::Bound;

use serde::Serialize;
use toml::de::DeValue;

use crate::condition::{Condition, Decimal, Line, Range, Scalar, Test};
use crate::document::{At, Fault, FromToml, Raw, Section, Value, did_you_mean};
use crate::limits::{
    CONDITION_LINES, CONDITION_TABLES, CONDITION_WILDCARDS, PATTERN_PROGRAM_BYTES, Unit,
};
use crate::payload::{Pattern, Place};

/// The value of `when`. Serializes as it is written.
#[derive(PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct When {
    #[serde(skip)]
    pub(crate) condition: Condition,
    written: serde_json::Value,
    /// Its places with their positions.
    #[serde(skip)]
    pub(super) places: Vec<Value<Place>>,
}

/// Reads `when`. Problems go to the section's.
pub(crate) fn read_when(section: &Section<'_>) -> Option<When> {
    let raw = section.raw("when")?;
    let tables = items(&raw);
    if tables.is_empty() {
        raw.reject("no event is wanted: the list is empty", "remove it, or add a table");
    } else if tables.len() > CONDITION_TABLES {
        let message = format!("{} tables; {CONDITION_TABLES} is the limit", tables.len());
        raw.reject(message, "name several values in a list, or use a pattern");
    }
    let mut places = Vec::new();
    let tables = whole(tables.iter().map(|table| read_table(table, &mut places)))?;
    let written = raw.deserialize().map_err(|wrong| section.report(&raw.at(), wrong)).ok()?;
    Some(When { condition: Condition { tables }, written, places })
}

/// The elements of a list; of anything else itself alone.
fn items<'d>(raw: &Raw<'d>) -> Vec<Raw<'d>> {
    raw.items().map_or_else(|| vec![raw.clone()], Iterator::collect)
}

fn read_table(table: &Raw<'_>, places: &mut Vec<Value<Place>>) -> Option<Vec<Line>> {
    let Some(members) = table.members() else {
        let found = table.get().type_str();
        let message = format!("expected a table, or a list of tables, found {found}");
        let help = "write places and their values: when = { \"/ref\" = \"refs/heads/main\" }";
        table.reject(message, help);
        return None;
    };
    let members: Vec<_> = members.collect();
    if members.is_empty() {
        table.reject("the table is empty, so it always holds", "remove it, or add a line");
    } else if members.len() > CONDITION_LINES {
        let message = format!("{} lines; {CONDITION_LINES} is the limit", members.len());
        table.reject(message, "leave the rest to the handler");
    }
    let lines = members.into_iter().map(|(name, value)| {
        let place = name.convert(value.problems(), |text| match Place::parse(&text)? {
            place if place.wildcards() > CONDITION_WILDCARDS => {
                let many = place.wildcards();
                Err(format!("'{text}' has {many} steps '*'; {CONDITION_WILDCARDS} is the limit"))
            }
            place => Ok(place),
        });
        let tests = read_value(&value)?;
        places.push(place.clone()?);
        let Value { value: place, .. } = place?;
        if tests.len() > 1 && place.wildcards() > 0 {
            let message = "tests of a place with '*' cannot stand together";
            value.reject(message, "each would look for an element of its own; write one test");
            return None;
        }
        let line = |(not, test)| Line { place: place.clone(), not, test };
        Some(tests.into_iter().map(line).collect::<Vec<_>>())
    });
    Some(whole(lines)?.concat())
}

/// All of them, once every problem is reported.
fn whole<T>(read: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let all: Vec<Option<T>> = read.collect();
    all.into_iter().collect()
}

/// What stands right of a place: the tests, all of which must hold, each with whether it is negated.
fn read_value(raw: &Raw<'_>) -> Option<Vec<(bool, Test)>> {
    if raw.get().is_table() {
        return read_tests(raw);
    }
    let items = items(raw);
    if items.is_empty() {
        raw.reject("the list is empty, so it matches no value", "name the values in it");
    }
    Some(vec![(false, Test::Is(whole(items.iter().map(read))?))])
}

fn read<T: FromToml>(raw: &Raw<'_>) -> Option<T> {
    Some(raw.read()?.value)
}

impl FromToml for Scalar {
    const EXPECTED: &'static str = "a string, a number, true or false";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        match value {
            DeValue::String(text) => Some(Ok(Scalar::Text(text.to_string()))),
            DeValue::Boolean(value) => Some(Ok(Scalar::Bool(*value))),
            number => Some(Decimal::from_toml(number)?.map(Scalar::Number)),
        }
    }
}

impl FromToml for Decimal {
    const EXPECTED: &'static str = "a number";
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>> {
        let text = match value {
            DeValue::Integer(integer) => {
                let value = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
                match value.filter(|value| u64::try_from(value.unsigned_abs()).is_ok()) {
                    Some(value) => value.to_string(),
                    None => return Some(Err("a whole number has at most 64 bits".to_owned())),
                }
            }
            DeValue::Float(float) => float.as_str().trim_start_matches('+').to_owned(),
            _ => return None,
        };
        Some(Decimal::parse(&text).ok_or_else(|| format!("'{text}' is not a number in JSON")))
    }
}

/// The tests of a number, which may stand together, and the others.
const OF_NUMBERS: &str = "above at_least below at_most text";
const OTHERS: &str = "glob matches starts_with ends_with contains present not";

fn read_tests(raw: &Raw<'_>) -> Option<Vec<(bool, Test)>> {
    let members: Vec<(Value<String>, Raw<'_>)> = raw.members()?.collect();
    let known = OF_NUMBERS.split(' ').chain(OTHERS.split(' '));
    let mut are_known = true;
    for (name, _) in &members {
        if known.clone().all(|known| known != name.value) {
            let message = format!("unknown test '{}'", name.value);
            let help = did_you_mean(&name.value, known.clone(), "the tests");
            raw.problems().reject(&name.at, message, help);
            are_known = false;
        }
    }
    if !are_known {
        return None;
    }
    if members.is_empty() {
        raw.reject("the table has no test", "write one, such as { present = true }");
        return None;
    }
    let is_of_numbers = |name: &str| OF_NUMBERS.split(' ').any(|known| known == name);
    let (bounds, others): (Vec<_>, Vec<_>) =
        members.into_iter().partition(|(name, _)| is_of_numbers(&name.value));
    let mut tests = Vec::new();
    if !bounds.is_empty() {
        tests.push((false, Test::Within(read_range(raw, &bounds)?)));
    }
    for (name, value) in &others {
        tests.push(match name.value.as_str() {
            "glob" => (false, Test::Fits(read_pattern(value, Pattern::glob)?)),
            "matches" => (false, Test::Matches(read_pattern(value, Pattern::expression)?)),
            "starts_with" => (false, Test::StartsWith(read(value)?)),
            "ends_with" => (false, Test::EndsWith(read(value)?)),
            "contains" => (false, Test::Contains(read(value)?)),
            "present" => (!read::<bool>(value)?, Test::Present),
            _ => {
                let Ok([(not, test)]) = <[_; 1]>::try_from(read_value(value)?) else {
                    value.reject("'not' takes one test", "write the others as tables of a list");
                    return None;
                };
                (!not, test)
            }
        });
    }
    Some(tests)
}

fn read_pattern(raw: &Raw<'_>, compile: fn(&str) -> Result<Pattern, String>) -> Option<Pattern> {
    let compiled = raw.parse(|text: String| {
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

fn read_range(raw: &Raw<'_>, members: &[(Value<String>, Raw<'_>)]) -> Option<Range> {
    let mut range = Range { low: Bound::Unbounded, high: Bound::Unbounded, text: false };
    for (name, value) in members {
        let (side, bound) = match name.value.as_str() {
            "above" => (&mut range.low, Bound::Excluded(read(value)?)),
            "at_least" => (&mut range.low, Bound::Included(read(value)?)),
            "below" => (&mut range.high, Bound::Excluded(read(value)?)),
            "at_most" => (&mut range.high, Bound::Included(read(value)?)),
            _ => {
                range.text = read(value)?;
                continue;
            }
        };
        if *side != Bound::Unbounded {
            let message = "another bound on the same side is given";
            raw.problems().reject(&name.at, message, "remove one of them");
            return None;
        }
        *side = bound;
    }
    if (&range.low, &range.high) == (&Bound::Unbounded, &Bound::Unbounded) {
        let message = "'text' says how a number is read, and no bound is given";
        raw.reject(message, "add above, at_least, below or at_most");
        return None;
    }
    if range.is_empty() {
        let help = "the lower bound must be less than the upper";
        raw.reject(format!("no number is {range}"), help);
        return None;
    }
    Some(range)
}

/// The header of a place, and its position.
pub(super) fn header(place: &Value<Place>) -> Option<(&str, &At)> {
    match &place.value {
        Place::Header(name) => Some((name, &place.at)),
        Place::Type
        | Place::Id
        | Place::Form(_)
        | Place::Query(_)
        | Place::Json(_)
        | Place::Body(_) => None,
    }
}
