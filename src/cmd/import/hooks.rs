//! Reads the hooks of adnanh/webhook (2.8), JSON or YAML, as that program does: the case of a member's name does not
//! matter, and an unknown member means nothing. Must stay true: whatever the file says, the work is bounded.

use regex_lite::{Captures, Regex};
use serde_json::{Map, Number, Value};

/// A file has at most 1 MiB, and 1,000 hooks: far more than people write.
pub(super) const FILE_BYTES: usize = 1024 * 1024;
const HOOKS: usize = 1000;

/// Levels of lists and objects in the file; its reader is recursive.
const LEVELS: usize = 32;

/// Stands before a reference that a template names; a file cannot have this character in place of one.
const TEMPLATE: char = '\u{E000}';

/// A list or an object of the file, with the members' names in lower case.
pub(super) struct Node(Map<String, Value>);

/// The hooks of a file.
pub(super) fn read(text: &str) -> Result<Vec<Node>, String> {
    let text = references(text)?;
    // webhook reads JSON as YAML: with comments, commas before a bracket, and texts without quotes.
    let read: Value = match serde_json::from_str(&text) {
        Ok(read) => read,
        Err(json) => {
            yaml(&text).map_err(|yaml| match text.trim_start().starts_with(['[', '{']) {
                true => format!("as JSON: {json}; as YAML: {yaml}"),
                false => format!("as YAML: {yaml}"),
            })?
        }
    };
    if levels(&read) > LEVELS {
        return Err(format!("lists and objects are more than {LEVELS} levels deep"));
    }
    let Value::Array(hooks) = read else {
        return Err("expected a list of hooks".to_owned());
    };
    if hooks.len() > HOOKS {
        return Err(format!("{} hooks; {HOOKS} is the limit", hooks.len()));
    }
    let node = |(nth, hook): (usize, Value)| {
        Node::of(&hook).ok_or_else(|| format!("hook {} is not an object", nth + 1))
    };
    hooks.into_iter().enumerate().map(node).collect()
}

/// YAML 1.1, as webhook reads it: `yes` is a truth, `010` is eight, and the last of two equal names counts.
fn yaml(text: &str) -> Result<Value, String> {
    // Many hooks may repeat one anchor. What the repetitions add up to is bounded without the ratio.
    let mut budget = serde_saphyr::Budget::default();
    budget.enforce_alias_anchor_ratio = false;
    let options = serde_saphyr::options! {
        budget: Some(budget),
        strict_booleans: false,
        legacy_octal_numbers: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    // Only the place: the error's own text quotes the lines around it, and they may have a secret.
    serde_saphyr::from_str_with_options(text, options).map_err(|error| match error.location() {
        Some(at) => format!("it cannot be read at line {} column {}", at.line(), at.column()),
        None => "it cannot be read".to_owned(),
    })
}

/// Replaces the templates that stand for a whole text, as in `"{{ getenv "SECRET" | js }}"`, by references.
fn references(text: &str) -> Result<String, String> {
    if text.contains(TEMPLATE) {
        return Err("it has the character U+E000, which no hook needs".to_owned());
    }
    let template = r#"\{\{-?\s*(getenv|cat|credential)\s+(?:"([^"\\\n]+)"|`([^`\n]+)`)\s*(?:\|\s*js\s*)?-?\}\}"#;
    let template = Regex::new(template).map_err(|error| error.to_string())?;
    let reference = |found: &Captures<'_>| {
        let kind = match &found[1] {
            "getenv" => "env",
            "cat" => "file",
            _ => "credential",
        };
        let name = found.get(2).or(found.get(3)).map_or("", |name| name.as_str());
        format!("{TEMPLATE}{kind}:{name}")
    };
    Ok(template.replace_all(text, reference).into_owned())
}

/// The reference that a whole text is, or an error if it has one in its midst.
pub(super) fn reference(text: &str) -> Result<Option<&str>, ()> {
    match text.strip_prefix(TEMPLATE) {
        Some(reference) if !reference.contains(TEMPLATE) => Ok(Some(reference)),
        None if !text.contains(TEMPLATE) && !text.contains("{{") => Ok(None),
        _ => Err(()),
    }
}

fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

impl Node {
    pub(super) fn of(value: &Value) -> Option<Self> {
        let members = value.as_object()?.iter();
        Some(Node(members.map(|(name, value)| (name.to_lowercase(), value.clone())).collect()))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A member that is there and not null.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A text; a number or a truth as webhook makes a text of it; empty if it is not there.
    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        match self.get(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number_text(number)),
            Some(Value::Bool(value)) => Ok(value.to_string()),
            Some(_) => Err(format!("'{name}' is not a text")),
        }
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    /// The objects in a list; none if it is not there.
    pub(super) fn nodes(&self, name: &str) -> Result<Vec<Node>, String> {
        let Some(list) = self.get(name) else { return Ok(Vec::new()) };
        let wrong = || format!("'{name}' is not a list of objects");
        let items = list.as_array().ok_or_else(wrong)?;
        items.iter().map(|item| Node::of(item).ok_or_else(wrong)).collect()
    }

    /// The texts in a list; none if it is not there.
    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        let items = self.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    }
}

/// A number without quotes where a text is expected: a whole one in digits, another as Go writes a `float32` (`%g`).
fn number_text(number: &Number) -> String {
    let float = match number.as_f64().filter(|_| number.is_f64()) {
        // The precision of a float32 is webhook's own.
        Some(float) => float as f32,
        None => return number.to_string(),
    };
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if (-4..6).contains(&exponent) => float.to_string(),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        Err(_) => scientific,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn value(text: &str) -> String {
        let hooks = read(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        hooks[0].text("value").unwrap()
    }

    #[test]
    fn a_text_without_quotes_is_read_as_webhook_reads_it() {
        for (written, wanted) in [
            ("yes", "true"),
            ("\"yes\"", "yes"),
            ("off", "false"),
            ("010", "8"),
            ("1_000", "1000"),
            ("12", "12"),
            ("1.50", "1.5"),
            ("0.1", "0.1"),
            ("1e3", "1000"),
            ("1000000.0", "1e+06"),
            ("1234567.5", "1.2345675e+06"),
            ("0.00001", "1e-05"),
            ("16777217", "16777217"),
            ("2020-01-01", "2020-01-01"),
            ("", ""),
        ] {
            assert_eq!(value(&format!("- value: {written}\n")), wanted, "{written}");
        }
        assert_eq!(value("[{\"value\": 1.50}]"), "1.5");
        assert_eq!(value("# a comment\n[{\"value\": \"a\", },]"), "a");
        assert_eq!(value("[{\"value\": \"a\", \"value\": \"b\", # why\n}]"), "b");
        assert_eq!(value("- value: a\n  value: b\n"), "b");
    }
}
