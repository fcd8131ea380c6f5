//! Values: named texts of an event that a handler gets as variables, in arguments, or in a request.
//!
//! Must stay true: a value is exactly what stands in the event and what its rule allows, or the whole attempt is
//! refused; it is never cut, escaped or replaced to fit. A refusal names the value and the rule, never the text.

mod shape;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::limits::{VALUE_PATTERN_TEXT_BYTES, VALUES_BYTES};
use crate::model::{Facts, Name, Shape};
use crate::payload::{Event, Found, Pattern, Place, Reading, Unclear, Wanted, json_of, read};

pub use template::{Template, Unknown, arguments, is_value_name, text_of};

/// Where a value stands in an event, and what it may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ValueRule {
    #[serde(skip)]
    pub name: String,
    /// `None` for the whole body.
    #[serde(serialize_with = "place_text")]
    pub from: Option<Place>,
    /// [`Shape::Line`] if it is not written.
    #[serde(rename = "is")]
    pub shape: Option<Shape>,
    #[serde(rename = "match")]
    pub pattern: Option<Pattern>,
    /// The beginning that must be there and is cut.
    pub strip: String,
    /// The longest text, behind `strip`.
    pub max_bytes: usize,
    /// The text for nothing or null, which no other key limits.
    #[serde(rename = "else")]
    pub otherwise: Option<String>,
    /// Without a text the value is left out: its variable is not set, and it is empty where its name stands.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// The name of a refusal that is no value's: no value is called so in a message.
const PART: &str = "part of the body";

/// Why a handler does not get its values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{name} is refused: {rule}", if name == PART { "" } else { "value " })]
pub struct Refused {
    pub name: String,
    pub rule: String,
}

impl Refused {
    pub fn new(name: &str, rule: impl Into<String>) -> Self {
        Refused { name: name.to_owned(), rule: rule.into() }
    }
}

/// A handler's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    pub rules: Vec<ValueRule>,
    /// The form field that holds the JSON, by source.
    pub form_fields: BTreeMap<Name, String>,
    /// The most bytes that a compressed body is inflated to, by source.
    pub inflated_bytes: BTreeMap<Name, u64>,
}

impl Values {
    /// The texts for one attempt, in the order of the rules.
    pub fn of(&self, facts: &Facts) -> Result<Vec<(String, String)>, Refused> {
        evaluate(&self.rules, &self.event(facts))
    }

    pub fn event<'e>(&'e self, facts: &'e Facts) -> Event<'e> {
        Event {
            id: facts.event_id.as_str(),
            event_type: facts.event_type.as_str(),
            headers: &facts.headers,
            body: &facts.body,
            form_field: self.form_fields.get(&facts.source).map(String::as_str),
            inflated_bytes: self.inflated_bytes.get(&facts.source).copied().unwrap_or_default(),
        }
    }
}

/// The name and the text of each value.
pub fn evaluate(rules: &[ValueRule], event: &Event<'_>) -> Result<Vec<(String, String)>, Refused> {
    let wanted: Vec<_> = rules.iter().filter_map(ValueRule::wanted).collect();
    // Each value has a bound, and so all have: one that is too large refuses no other.
    let mut readings = read(event, &wanted, usize::MAX).into_iter();
    let mut left = VALUES_BYTES;
    let mut texts = Vec::with_capacity(rules.len());
    for rule in rules {
        let reading = match rule.from {
            Some(_) => readings.next().unwrap_or_else(|| Ok(Vec::new())),
            None => whole_body(rule, event),
        };
        let text = rule.text(reading).map_err(|why| Refused::new(&rule.name, why))?;
        let Some(text) = text else { continue };
        left = left.checked_sub(text.len()).ok_or_else(|| {
            Refused::new(&rule.name, format!("all values together are over {VALUES_BYTES} bytes"))
        })?;
        texts.push((rule.name.clone(), text));
    }
    Ok(texts)
}

/// A part of the body's JSON, as it is written there.
pub fn part(place: &Place, event: &Event<'_>) -> Result<String, Refused> {
    let wanted = Wanted { as_written: true, ..place.into() };
    match read(event, &[wanted], usize::MAX).swap_remove(0).as_deref_mut() {
        Ok([Found::Json(text)]) => Ok(std::mem::take(text)),
        Ok(_) => Err(Refused::new(PART, "nothing is there")),
        Err(unclear) => Err(Refused::new(PART, unclear.to_string())),
    }
}

/// The body, inflated if it is compressed; where JSON is asked for, without what a form puts around it.
fn whole_body(rule: &ValueRule, event: &Event<'_>) -> Reading {
    let is_json = rule.shape == Some(Shape::Json);
    let field = event.form_field.filter(|_| is_json);
    let plain = event.plain_body()?;
    let body = json_of(&plain, field).ok_or(Unclear::NotJson)?;
    let body = if is_json { &*body } else { &*plain };
    if body.len() > rule.max_bytes + rule.strip.len() {
        return Err(Unclear::TooLarge);
    }
    let text = std::str::from_utf8(body).or(Err(Unclear::NotText))?;
    if !is_json {
        return Ok(vec![Found::Text(text.to_owned())]);
    }
    serde_json::from_str::<serde::de::IgnoredAny>(text).or(Err(Unclear::NotJson))?;
    Ok(vec![Found::Json(text.to_owned())])
}

impl ValueRule {
    fn wanted(&self) -> Option<Wanted<'_>> {
        let most_bytes = self.max_bytes + self.strip.len();
        let as_written = self.shape == Some(Shape::Json);
        self.from.as_ref().map(|place| Wanted { place, as_written, most_bytes })
    }

    /// The text, if it is not left out, or the rule that what stands there breaks.
    fn text(&self, reading: Reading) -> Result<Option<String>, String> {
        let over = || format!("it is over {} bytes", self.max_bytes);
        let mut found = reading.map_err(|unclear| match unclear {
            Unclear::TooLarge => over(),
            other => other.to_string(),
        })?;
        let shape = self.shape.unwrap_or(Shape::Line);
        let Some(found) = found.pop() else {
            return match &self.otherwise {
                Some(text) => Ok(Some(text.clone())),
                None if self.optional => Ok(None),
                None => Err("nothing is there".to_owned()),
            };
        };
        let text = match found {
            Found::Text(text) | Found::Number(text) => text,
            Found::Bool(value) => value.to_string(),
            Found::Json(text) if shape == Shape::Json => text,
            Found::Json(_) => return Err("it is a list or an object, not 'json'".to_owned()),
        };
        let Some(text) = text.strip_prefix(&self.strip) else {
            return Err(format!("it does not begin with '{}'", self.strip));
        };
        if text.contains('\0') {
            return Err("it has a NUL character".to_owned());
        }
        if text.len() > self.max_bytes {
            return Err(over());
        }
        if !shape.fits(text) {
            let article = if shape == Shape::Int { "an" } else { "a" };
            return Err(format!("it is not {article} '{shape}'"));
        }
        if let Some(pattern) = &self.pattern {
            if text.len() > VALUE_PATTERN_TEXT_BYTES {
                return Err(format!("match looks at {VALUE_PATTERN_TEXT_BYTES} bytes at most"));
            }
            if !pattern.matches(text) {
                return Err(format!("it does not match '{pattern}'"));
            }
        }
        Ok(Some(text.to_owned()))
    }
}

fn place_text<S: Serializer>(from: &Option<Place>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&from.as_ref().map(ToString::to_string).unwrap_or_default())
}
