//! Reads `when`, `order_by`, `coalesce_by` and `on_dead` of a handler.

use std::ops::Bound;

use serde::{Serialize, Serializer};
use toml::de::DeValue;

use crate::condition::{Condition, Decimal, Key, Line, Pattern, Range, Scalar, Test};
use crate::document::{At, Fault, Raw, Section, Value, nearest};
use crate::limits::{CONDITION_LINES, CONDITION_TABLES, CONDITION_WILDCARDS, KEY_PLACES};
use crate::model::{GroupRule, INTERNAL_SOURCE};
use crate::payload::Place;

use super::read::parsed;

/// The keys that this file reads.
pub(super) const KEYS: [&str; 4] = ["when", "order_by", "coalesce_by", "on_dead"];

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

/// The value of `order_by` with `on_dead`, or of `coalesce_by`.
#[derive(PartialEq)]
pub(crate) struct Grouping {
    pub(super) places: Vec<Value<Place>>,
    rule: GroupRule,
}

impl Grouping {
    pub(crate) fn key(&self) -> Key {
        let places = self.places.iter().map(|place| place.value.clone()).collect();
        Key { places, rule: self.rule }
    }
}

impl Serialize for Grouping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let places: Vec<String> = self.places.iter().map(|place| place.value.to_string()).collect();
        match self.rule {
            GroupRule::Latest => serde_json::json!({ "coalesce_by": places }),
            rule => serde_json::json!({ "order_by": places, "on_dead": rule.as_str() }),
        }
        .serialize(serializer)
    }
}

/// Reports these keys on a handler that runs for every event of its sources: one that answers, or one of the internal
/// source.
pub(super) fn refuse(section: &Section<'_>, answers: bool, is_internal: bool) {
    let (message, help) = if answers {
        (
            "a handler that answers runs once for each key",
            "remove it: its caller waits for an answer",
        )
    } else if is_internal {
        (
            "the receiver's own events are few and carry no payload to choose by",
            "remove it, and name the types in events",
        )
    } else {
        return;
    };
    for at in KEYS.into_iter().filter_map(|key| section.place_of(key)) {
        section.reject(&at, message, help);
    }
}

pub(super) fn is_internal(sources: &[Value<String>]) -> bool {
    sources.iter().any(|source| source.value == INTERNAL_SOURCE)
}

/// Reads `when`. Problems go to the section's.
pub(crate) fn read_when(section: &Section<'_>) -> Option<When> {
    let raw = section.raw("when")?;
    let tables: Vec<Raw<'_>> = match raw.items() {
        Some(items) => items.collect(),
        None => vec![raw.clone()],
    };
    if tables.is_empty() {
        section.reject(
            &raw.at(),
            "no event is wanted: the list is empty",
            "remove it, or add a table",
        );
    } else if tables.len() > CONDITION_TABLES {
        let message = format!("{} tables; {CONDITION_TABLES} is the limit", tables.len());
        section.reject(&raw.at(), message, "name several values in a list, or use a pattern");
    }
    let mut places = Vec::new();
    let tables: Vec<Option<_>> =
        tables.iter().map(|table| read_table(section, table, &mut places)).collect();
    let tables: Vec<Vec<Line>> = tables.into_iter().collect::<Option<_>>()?;
    let written = raw.deserialize().map_err(|wrong| section.report(&raw.at(), wrong)).ok()?;
    Some(When { condition: Condition { tables }, written, places })
}

fn read_table(
    section: &Section<'_>,
    table: &Raw<'_>,
    places: &mut Vec<Value<Place>>,
) -> Option<Vec<Line>> {
    let Some(members) = table.members() else {
        let example = "such as when = { \"/ref\" = \"refs/heads/main\" }";
        let message = table.mismatch("a table, or a list of tables");
        section.reject(&table.at(), message, format!("write places and their values, {example}"));
        return None;
    };
    let members: Vec<_> = members.collect();
    if members.is_empty() {
        section.reject(
            &table.at(),
            "the table is empty, so it always holds",
            "remove it, or add a line",
        );
    } else if members.len() > CONDITION_LINES {
        let message = format!("{} lines; {CONDITION_LINES} is the limit", members.len());
        section.reject(&table.at(), message, "leave the rest to the handler");
    }
    let line = |(name, value): (Value<String>, Raw<'_>)| {
        let place = read_place(section, name, CONDITION_WILDCARDS);
        let (not, test) = read_value(section, &value)?;
        let place = place?;
        places.push(place.clone());
        Some(Line { place: place.value, not, test })
    };
    let lines: Vec<Option<Line>> = members.into_iter().map(line).collect();
    lines.into_iter().collect()
}

fn read_place(
    section: &Section<'_>,
    text: Value<String>,
    wildcards: usize,
) -> Option<Value<Place>> {
    section.convert(Some(text), |text| {
        let place = Place::parse(&text)?;
        match place.wildcards() {
            many if many > wildcards && wildcards == 0 => {
                Err(format!("'{text}' may be several values, and a key has one: write no '*'"))
            }
            many if many > wildcards => {
                Err(format!("'{text}' has {many} steps '*'; {wildcards} is the limit"))
            }
            _ => Ok(place),
        }
    })
}

/// What stands right of a place: whether it is negated, and the test.
fn read_value(section: &Section<'_>, raw: &Raw<'_>) -> Option<(bool, Test)> {
    if raw.members().is_some() {
        return read_tests(section, raw);
    }
    let Some(items) = raw.items() else {
        return Some((false, Test::Is(vec![read_scalar(section, raw)?])));
    };
    let known: Vec<Option<Scalar>> = items.map(|item| read_scalar(section, &item)).collect();
    if known.is_empty() {
        section.reject(&raw.at(), "nothing is one of an empty list", "name the values in it");
    }
    Some((false, Test::Is(known.into_iter().collect::<Option<_>>()?)))
}

fn read_scalar(section: &Section<'_>, raw: &Raw<'_>) -> Option<Scalar> {
    let scalar = match raw.get() {
        DeValue::String(text) => Scalar::Text(text.to_string()),
        DeValue::Boolean(value) => Scalar::Bool(*value),
        DeValue::Integer(_) | DeValue::Float(_) => Scalar::Number(read_number(section, raw)?),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            let message = raw.mismatch("a string, a number, true or false");
            section.reject(
                &raw.at(),
                message,
                "a time is a string in JSON: write quotes around it",
            );
            return None;
        }
    };
    Some(scalar)
}

fn read_number(section: &Section<'_>, raw: &Raw<'_>) -> Option<Decimal> {
    let number = match raw.get() {
        DeValue::Integer(integer) => {
            let value = i128::from_str_radix(integer.as_str(), integer.radix());
            value.ok().map(|value| value.to_string())
        }
        DeValue::Float(float) => Some(float.as_str().trim_start_matches('+').to_owned()),
        _ => {
            section.report(&raw.at(), raw.mismatch("a number"));
            return None;
        }
    };
    let number = number.as_deref().and_then(Decimal::parse);
    if number.is_none() {
        section.report(&raw.at(), "no number of JSON is equal to it");
    }
    number
}

/// The tests of a table; the first five are bounds of numbers, and may stand together.
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
const BOUNDS: usize = 5;

fn read_tests(section: &Section<'_>, raw: &Raw<'_>) -> Option<(bool, Test)> {
    let members: Vec<(Value<String>, Raw<'_>)> = raw.members()?.collect();
    let mut all_known = true;
    for (name, _) in members.iter().filter(|(name, _)| !TESTS.contains(&name.value.as_str())) {
        let help = match nearest(&name.value, TESTS) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("the tests are: {}", TESTS.join(", ")),
        };
        section.reject(&name.at, format!("there is no test '{}'", name.value), help);
        all_known = false;
    }
    if !all_known {
        return None;
    }
    let is_bound = |name: &str| TESTS[..BOUNDS].contains(&name);
    if !members.is_empty() && members.iter().all(|(name, _)| is_bound(&name.value)) {
        return Some((false, Test::Within(read_range(section, raw, &members)?)));
    }
    let [(name, value)] = &members[..] else {
        let message = match members.iter().map(|(name, _)| name).collect::<Vec<_>>()[..] {
            [] => "the table has no test".to_owned(),
            [one, other, ..] => {
                format!("'{}' and '{}' cannot stand together", one.value, other.value)
            }
            [_] => return None,
        };
        let help = "write one test; only two bounds of a number stand together";
        section.reject(&raw.at(), message, help);
        return None;
    };
    let pattern = |make: fn(&str) -> Result<Pattern, String>| {
        section.convert(read_text(section, value), |text| {
            make(&text).map_err(|wrong| format!("'{text}' does not compile: {wrong}"))
        })
    };
    let text = || Some(read_text(section, value)?.value);
    let test = match name.value.as_str() {
        "glob" => Test::Fits(pattern(Pattern::glob)?.value),
        "matches" => Test::Fits(pattern(Pattern::expression)?.value),
        "starts_with" => Test::StartsWith(text()?),
        "ends_with" => Test::EndsWith(text()?),
        "contains" => Test::Contains(read_scalar(section, value)?),
        "present" => return Some((!read_truth(section, value)?, Test::Present)),
        _ => {
            let (not, test) = read_value(section, value)?;
            return Some((!not, test));
        }
    };
    Some((false, test))
}

fn read_text(section: &Section<'_>, raw: &Raw<'_>) -> Option<Value<String>> {
    let text = raw.get().as_str().map(|text| Value { value: text.to_owned(), at: raw.at() });
    if text.is_none() {
        section.report(&raw.at(), raw.mismatch("a string"));
    }
    text
}

fn read_truth(section: &Section<'_>, raw: &Raw<'_>) -> Option<bool> {
    let truth = raw.get().as_bool();
    if truth.is_none() {
        section.report(&raw.at(), raw.mismatch("true or false"));
    }
    truth
}

fn read_range(
    section: &Section<'_>,
    raw: &Raw<'_>,
    members: &[(Value<String>, Raw<'_>)],
) -> Option<Range> {
    let mut range = Range { low: Bound::Unbounded, high: Bound::Unbounded, text: false };
    for (name, value) in members {
        if name.value == "text" {
            range.text = read_truth(section, value)?;
            continue;
        }
        let number = read_number(section, value)?;
        let bound = match name.value.starts_with("at_") {
            true => Bound::Included(number),
            false => Bound::Excluded(number),
        };
        let is_low = ["above", "at_least"].contains(&name.value.as_str());
        let side = if is_low { &mut range.low } else { &mut range.high };
        if *side != Bound::Unbounded {
            let names = if is_low { "'above' and 'at_least'" } else { "'below' and 'at_most'" };
            section.reject(&name.at, format!("both {names} are given"), "remove one of them");
            return None;
        }
        *side = bound;
    }
    if (&range.low, &range.high) == (&Bound::Unbounded, &Bound::Unbounded) {
        section.reject(
            &raw.at(),
            "'text' says how a number is read",
            "add above, at_least, below or at_most",
        );
        return None;
    }
    if range.is_empty() {
        section.reject(
            &raw.at(),
            format!("no number is {range}"),
            "the lower bound must be less than the upper",
        );
        return None;
    }
    Some(range)
}

/// Reads `order_by` with `on_dead`, or `coalesce_by`. Problems go to the section's.
pub(super) fn read_grouping(section: &Section<'_>) -> Option<Grouping> {
    let on_dead = parsed::<OnDead>(section, "on_dead");
    if let (Some(on_dead), false) = (&on_dead, section.has("order_by")) {
        let help = "add order_by, or remove it";
        section.reject(&on_dead.at, "it says what a dead job does to the next of its order", help);
    }
    let ordered = read_places(section, "order_by");
    let coalesced = read_places(section, "coalesce_by");
    if let (Some(_), Some(at)) = (section.place_of("order_by"), section.place_of("coalesce_by")) {
        let help = "remove one of them: jobs that are coalesced also run one at a time per key";
        section.reject(&at, "both 'order_by' and 'coalesce_by' are given", help);
    }
    let block = GroupRule::Block;
    let rule = on_dead.map_or(block, |on_dead| on_dead.value.0);
    let ordered = ordered.map(|places| Grouping { places, rule });
    ordered.or(Some(Grouping { places: coalesced?, rule: GroupRule::Latest }))
}

/// The rules that `on_dead` may name.
struct OnDead(GroupRule);

impl std::str::FromStr for OnDead {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [GroupRule::Block, GroupRule::StepOver];
        let rule = known.into_iter().find(|rule| rule.as_str() == text);
        rule.map(OnDead).ok_or_else(|| {
            let [block, step_over] = known;
            format!("must be '{block}' or '{step_over}', not '{text}'")
        })
    }
}

fn read_places(section: &Section<'_>, key: &'static str) -> Option<Vec<Value<Place>>> {
    let texts = section.texts(key)?;
    if texts.is_empty() || texts.len() > KEY_PLACES {
        let message = format!("{} places; it may be 1 to {KEY_PLACES}", texts.len());
        section.report(&section.place_of(key)?, message);
        return None;
    }
    let places: Vec<Option<_>> =
        texts.into_iter().map(|text| read_place(section, text, 0)).collect();
    places.into_iter().collect()
}

/// The header of a place, and where it stands.
pub(super) fn header(place: &Value<Place>) -> Option<(&str, &At)> {
    match &place.value {
        Place::Header(name) => Some((name, &place.at)),
        Place::Type | Place::Id | Place::Form(_) | Place::Json(_) => None,
    }
}

/// A header that no source of its handler keeps; `kept` are those that are.
pub(super) fn not_kept(name: &str, kept: &[&str]) -> Fault {
    let message = format!("no source of this handler keeps the header '{name}'");
    let lower = name.to_lowercase();
    let names: Vec<String> = kept.iter().map(|kept| kept.to_lowercase()).collect();
    let near = nearest(&lower, names.iter().map(String::as_str));
    let near = near.and_then(|near| kept.iter().find(|kept| kept.eq_ignore_ascii_case(near)));
    match near {
        Some(near) => Fault::new(message, format!("did you mean '{near}'?")),
        None => Fault::new(message, format!("they keep: {}", kept.join(", "))),
    }
}
