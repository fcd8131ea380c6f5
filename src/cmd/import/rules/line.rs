//! A line of a condition: a place, and what must stand there.

use serde_json::{Value, json};

use crate::cmd::import::hooks::reference;
use crate::payload::Pattern;

/// A place and the tests of it, all of which must hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) place: String,
    pub(crate) tests: Vec<(&'static str, Value)>,
}

/// The name of a test, and what it names. webhook compares texts, and so does every place that `import` writes.
pub(super) fn test(kind: &str, value: &str, regex: &str) -> Result<(&'static str, Value), String> {
    let template =
        || "a template in a rule: import the file with its templates filled in".to_owned();
    match kind {
        "value" if reference(value) != Ok(None) => Err(template()),
        "regex" if reference(regex) != Ok(None) => Err(template()),
        "value" => Ok(("is", value.into())),
        "regex" => expression(regex).map(|regex| ("matches", regex.into())),
        other => Err(format!("a rule of type '{other}'")),
    }
}

pub(super) fn negated(name: &str, value: Value) -> Value {
    match name {
        "is" => value,
        _ => json!({ name: value }),
    }
}

/// The expression of Go's that means the same here. What means something else is an error; what means nothing here
/// is found when the configuration is loaded.
fn expression(regex: &str) -> Result<String, String> {
    let mut same = String::new();
    let mut rest = regex;
    while let Some(at) = rest.find(['\\', '(']) {
        same.push_str(&rest[..at]);
        rest = &rest[at..];
        let flags = rest.strip_prefix("(?").and_then(|flags| flags.split([':', ')']).next());
        if flags.is_some_and(|flags| !flags.starts_with(['P', '<']) && flags.contains('x')) {
            return Err(format!(
                "the regex '{regex}' with the flag x, which webhook does not have"
            ));
        }
        let escape = rest.strip_prefix('\\').and_then(|escaped| escaped.chars().next());
        match escape {
            Some(char @ ('<' | '>')) => {
                same.push(char);
                rest = &rest[2..];
            }
            Some('Q') => {
                let literal = rest[2..].split("\\E").next().unwrap_or_default();
                same.push_str(&regex_lite::escape(literal));
                rest = rest[2 + literal.len()..].trim_start_matches("\\E");
            }
            Some('b') if rest[2..].starts_with('{') => {
                return Err(format!(
                    "the regex '{regex}': \\b before a brace means something else here"
                ));
            }
            Some(char) => {
                let end = 1 + char.len_utf8();
                same.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            None => {
                same.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
    }
    Ok(same + rest)
}

impl Line {
    pub(super) fn add(&mut self, name: &'static str, value: Value) -> Result<(), String> {
        let Some((_, known)) = self.tests.iter_mut().find(|(known, _)| *known == name) else {
            self.tests.push((name, value));
            return Ok(());
        };
        if *known == value {
            return Ok(());
        }
        match name {
            // Two constants, or there and not there: `settle` sees that they never hold together.
            "is" | "present" => {
                self.tests.push((name, value));
                Ok(())
            }
            "not" if !known.is_object() && !value.is_object() => {
                let constants = [known.clone(), value].map(|value| match value {
                    Value::Array(values) => values,
                    one => vec![one],
                });
                *known = Value::Array(constants.concat());
                Ok(())
            }
            _ => Err(format!("two tests '{name}' of {}", self.place)),
        }
    }

    /// Takes out what says nothing beside a constant, beside which nothing else can stand. False if the tests never
    /// hold together.
    pub(super) fn settle(&mut self) -> Result<bool, String> {
        let of = |name: &str| {
            let own = self.tests.iter().filter(|(known, _)| *known == name);
            own.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        let (constants, present) = (of("is"), of("present"));
        let is_there = !constants.is_empty() || !of("matches").is_empty();
        if constants.len() > 1 || present.len() > 1 || (present.contains(&false.into()) && is_there)
        {
            return Ok(false);
        }
        if present.contains(&false.into()) {
            // A missing value is unequal to any other.
            self.tests.retain(|(name, _)| *name == "present");
        }
        let Some(Value::String(constant)) = constants.first() else { return Ok(true) };
        for (name, value) in &self.tests {
            let holds = match *name {
                "matches" => fits(value, constant)?,
                "not" => match value {
                    Value::Array(others) => !others.contains(&constants[0]),
                    Value::Object(test) => !fits(&test["matches"], constant)?,
                    other => *other != constants[0],
                },
                _ => true,
            };
            if !holds {
                return Ok(false);
            }
        }
        self.tests.retain(|(name, _)| *name == "is");
        Ok(true)
    }
}

fn fits(regex: &Value, text: &str) -> Result<bool, String> {
    let regex = regex.as_str().unwrap_or_default();
    Pattern::expression(regex).map(|pattern| pattern.matches(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_expression_means_what_it_means_in_go() {
        for (go, own) in [
            (r"^refs/heads/v\d+\.\d+$", r"^refs/heads/v\d+\.\d+$"),
            (r"\<a\>", "<a>"),
            (r"a\Q.*(\Eb\\Q", r"a\.\*\(b\\Q"),
            (r"\Q.", r"\."),
            (r"(?i:x)(?P<x>y)(x)", r"(?i:x)(?P<x>y)(x)"),
            ("é\\", "é\\"),
        ] {
            assert_eq!(expression(go).as_deref(), Ok(own), "{go}");
        }
        for other in [r"(?x)a b", r"(?ix:a b)", r"a\b{start}"] {
            assert!(expression(other).is_err(), "{other}");
        }
    }

    #[test]
    fn tests_of_one_place_that_never_hold_together_are_found() {
        let line = |tests: &[(&'static str, Value)]| {
            let mut line = Line { place: "body:a".to_owned(), tests: Vec::new() };
            for (name, value) in tests {
                line.add(name, value.clone()).unwrap();
            }
            line.settle().unwrap().then_some(line.tests)
        };
        let is = |text: &str| ("is", json!(text));
        assert_eq!(line(&[is("a"), is("b")]), None);
        assert_eq!(line(&[is("a"), ("matches", json!("b"))]), None);
        assert_eq!(line(&[is("ab"), ("matches", json!("b"))]), Some(vec![is("ab")]));
        assert_eq!(line(&[is("a"), ("not", json!("b")), ("not", json!("a"))]), None);
        assert_eq!(line(&[is("a"), ("not", json!({"matches": "a"}))]), None);
        assert_eq!(line(&[is("a"), ("present", json!(true))]), Some(vec![is("a")]));
        assert_eq!(line(&[is("a"), ("present", json!(false))]), None);
        assert_eq!(line(&[("present", json!(true)), ("present", json!(false))]), None);
        let absent = ("present", json!(false));
        assert_eq!(line(&[("not", json!("a")), absent.clone()]), Some(vec![absent]));
    }
}
