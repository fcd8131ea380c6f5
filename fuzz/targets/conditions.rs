//! Decides conditions. The first line of the input is `when` as JSON; the body follows.

use hooklatch::probe;
use serde_json::Value;

pub(super) fn check(data: &[u8]) {
    let Some((when, body)) = super::text_line(data) else { return };
    // As TOML, a text of any kind.
    if let Ok(decided) = probe::condition(when, body) {
        explained(when, body, &decided);
    }
    if let Ok(when) = serde_json::from_str(when) {
        agrees(&when, body);
    }
}

/// A condition comes to the same as by [`opinion`]. Only what the configuration takes is compared.
pub(crate) fn agrees(when: &Value, body: &[u8]) {
    let Some(toml) = toml(when) else { return };
    let Ok(decided) = probe::condition(&toml, body) else { return };
    explained(&toml, body, &decided);
    let Ok(tree) = serde_json::from_slice::<Value>(body) else { return };
    // What the tree does not show: members that come twice, rounded numbers, forms, queries, and bounds.
    let is_twice = decided.as_ref().is_err_and(|doubt| doubt.ends_with("there twice"));
    let is_elsewhere = ["form:", "query:"].iter().any(|place| toml.contains(place));
    if is_twice || is_rounded(body) || is_elsewhere || body.len() > 4096 {
        return;
    }
    assert_eq!(decided.as_ref().ok().copied(), opinion(when, &tree), "{toml}\n{decided:?}");
}

/// The lines of an explanation say what the decision was.
fn explained(toml: &str, body: &[u8], decided: &Result<bool, String>) {
    let tables = probe::explained(toml, body).expect("it was decided");
    let tables: Vec<_> = tables.iter().map(|table| (table.holds, &table.lines)).collect();
    for (holds, lines) in &tables {
        assert_eq!(*holds, every(lines.iter().map(|line| line.holds)));
        for line in *lines {
            assert_eq!(line.holds.is_none(), line.why.is_some());
            assert!(
                line.read.chars().count() <= 70 && !line.read.contains(char::is_control),
                "{line:?}"
            );
        }
    }
    let holds = not(every(tables.iter().map(|(holds, _)| not(*holds))));
    assert_eq!(holds, decided.as_ref().ok().copied());
}

/// Whether a body has numbers that the tree may hold otherwise than they are written.
pub(super) fn is_rounded(body: &[u8]) -> bool {
    let in_number = |byte: &u8| byte.is_ascii_digit() || b".eE+-".contains(byte);
    let long = |word: &[u8]| {
        word.iter().any(u8::is_ascii_digit)
            && (word.len() > 9 || word.iter().any(|byte| b"eE".contains(byte)))
    };
    body.split(|byte| !in_number(byte)).any(long)
}

/// A second opinion: three-valued logic over the whole tree.
fn opinion(when: &Value, body: &Value) -> Option<bool> {
    let tables: Vec<&Value> = when.as_array().map_or(vec![when], |tables| tables.iter().collect());
    let table = |table: &Value| {
        every(
            table.as_object().expect("a table").iter().map(|(place, test)| line(place, test, body)),
        )
    };
    not(every(tables.into_iter().map(|one| not(table(one)))))
}

fn line(place: &str, test: &Value, body: &Value) -> Option<bool> {
    let values = match place {
        "type" => vec![Value::from("push")],
        "id" => vec![Value::from("e1")],
        _ if place.starts_with('/') => {
            let steps =
                place[1..].split('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
            at(body, &steps.collect::<Vec<_>>())
        }
        _ if place.eq_ignore_ascii_case("header:x-one") => vec![Value::from("1")],
        _ => vec![],
    };
    holds(test, &values)
}

fn at(value: &Value, steps: &[String]) -> Vec<Value> {
    match (steps, value) {
        ([], Value::Null) => vec![],
        ([], value) => vec![value.clone()],
        ([step, rest @ ..], Value::Object(members)) => {
            members.get(step).map_or(vec![], |value| at(value, rest))
        }
        ([step, rest @ ..], Value::Array(items)) => {
            let fits = |n: usize| step == "*" || *step == n.to_string();
            let items = items.iter().enumerate().filter(|(n, _)| fits(*n));
            items.flat_map(|(_, value)| at(value, rest)).collect()
        }
        _ => vec![],
    }
}

fn holds(test: &Value, values: &[Value]) -> Option<bool> {
    if let Some(inner) = test.get("not") {
        return not(holds(inner, values));
    }
    if test.get("present") == Some(&Value::Bool(false)) {
        return Some(values.is_empty());
    }
    not(every(values.iter().map(|value| not(fits(test, value)))))
}

fn fits(test: &Value, value: &Value) -> Option<bool> {
    let equal = |a: &Value, b: &Value| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    };
    let Value::Object(tests) = test else {
        let known = test.as_array().map_or(vec![test], |known| known.iter().collect());
        return Some(known.into_iter().any(|known| equal(known, value)));
    };
    let text = value.as_str().unwrap_or("\0");
    let (name, operand) = tests.iter().next()?;
    let part = operand.as_str().unwrap_or_default();
    Some(match name.as_str() {
        "present" => true,
        "starts_with" => text.starts_with(part) && value.is_string(),
        "ends_with" => text.ends_with(part) && value.is_string(),
        "contains" => match value {
            Value::Array(items) => items.iter().any(|item| equal(item, operand)),
            Value::String(text) => operand.is_string() && text.contains(part),
            _ => false,
        },
        "glob" => value.is_string() && glob(part.as_bytes(), text.as_bytes()),
        "matches" => {
            value.is_string() && regex_lite::Regex::new(part).expect("it is taken").is_match(text)
        }
        _ => {
            let as_text = tests.get("text") == Some(&Value::Bool(true));
            let read = value.as_str().filter(|_| as_text).and_then(|text| {
                serde_json::from_str::<Value>(text)
                    .ok()
                    .filter(|value| value.is_number() && text.trim() == text)
            });
            let number = value.as_f64().or(read.and_then(|read| read.as_f64()))?;
            tests.iter().all(|(name, bound)| {
                let bound = bound.as_f64().unwrap_or_default();
                match name.as_str() {
                    "above" => number > bound,
                    "at_least" => number >= bound,
                    "below" => number < bound,
                    "at_most" => number <= bound,
                    _ => true,
                }
            })
        }
    })
}

/// Takes the pattern from its end: `fits[n]` says whether the part behind fits the text from `n` on.
fn glob(mut pattern: &[u8], text: &[u8]) -> bool {
    let mut fits: Vec<bool> = (0..=text.len()).map(|n| n == text.len()).collect();
    while let Some((last, rest)) = pattern.split_last() {
        let any = pattern.ends_with(b"**");
        let before = fits.clone();
        for n in (0..=text.len()).rev() {
            let next = n < text.len() && fits[n + 1];
            fits[n] = match last {
                b'*' => before[n] || (next && (any || text[n] != b'/')),
                fixed => n < text.len() && text[n] == *fixed && before[n + 1],
            };
        }
        pattern = if any { &rest[..rest.len() - 1] } else { rest };
    }
    fits[0]
}

fn not(holds: Option<bool>) -> Option<bool> {
    holds.map(|holds| !holds)
}

fn every(results: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let results: Vec<_> = results.collect();
    match results.contains(&Some(false)) {
        true => Some(false),
        false => results.into_iter().all(|one| one.is_some()).then_some(true),
    }
}

/// A JSON value as TOML; `None` for null, which TOML does not have, and for numbers that the tree has rounded.
pub(super) fn toml(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Option<Vec<_>>>()?.join(", "))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                Some(format!("{} = {}", text(name), toml(value)?))
            };
            format!("{{ {} }}", members.iter().map(member).collect::<Option<Vec<_>>>()?.join(", "))
        }
        Value::String(string) => text(string),
        Value::Number(number) if number.to_string().len() > 9 => return None,
        other => other.to_string(),
    })
}

/// JSON's escapes are TOML's, but for one character that must be escaped there.
fn text(string: &str) -> String {
    Value::from(string).to_string().replace('\x7f', "\\u007f")
}
