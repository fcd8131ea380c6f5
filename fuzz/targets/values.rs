//! Values of events. The first line of the input is a value `V`, as JSON; the second is an argument; the body follows.

use hooklatch::probe;
use regex_lite::Regex;
use serde_json::Value;

use super::conditions::toml;

pub(super) fn check(data: &[u8]) {
    let Some((rule, rest)) = super::text_line(data) else { return };
    let Some((argument, body)) = super::text_line(rest) else { return };
    let Some(rule) = serde_json::from_str::<Value>(rule).ok() else { return };
    // Only what the configuration takes is compared.
    let Some(read) = toml(&rule).and_then(|toml| probe::value(&toml, body).ok()) else { return };
    if let Ok(text) = &read {
        fills(argument, text);
    }
    // What the tree does not show: members that come twice.
    let is_twice = read.as_ref().is_err_and(|why| why.ends_with("there twice"));
    if let Some(expected) = opinion(&rule, body).filter(|_| !is_twice) {
        let same = match (&read, &expected) {
            (Ok(text), Some(Expected::Text(own))) => text == own,
            // As it is written: it stands in the body so, and is the same in the tree.
            (Ok(text), Some(Expected::Json(own))) => {
                serde_json::from_str::<Value>(text).is_ok_and(|text| text == *own)
                    && String::from_utf8_lossy(body).contains(text.as_str())
            }
            (read, expected) => read.is_err() && expected.is_none(),
        };
        assert!(same, "{rule} {}\n{read:?}\n{expected:?}", String::from_utf8_lossy(body));
    }
}

/// An argument has the value where `{V}` stands, and does not begin with one that programs take for something else.
fn fills(argument: &str, text: &str) {
    let Ok(filled) = probe::argument(argument, text) else { return };
    let is_option = argument.starts_with("{V}") && text.starts_with(['-', '@', '+']);
    let expected = (!is_option).then(|| argument.replace("{V}", text));
    assert_eq!(filled, expected, "{argument}");
}

#[derive(Debug)]
enum Expected {
    Text(String),
    Json(Value),
}

/// A second opinion, over the whole tree: `None` where that cannot be had, and `Some(None)` where the value is refused.
fn opinion(rule: &Value, body: &[u8]) -> Option<Option<Expected>> {
    let key = |name: &str| rule.get(name).and_then(Value::as_str);
    let from = rule.as_str().or(key("from"))?;
    let shape = key("is").unwrap_or("line");
    let max = key("max").map_or(Some(4096), |max| max.strip_suffix(" B")?.parse().ok())?;
    // A number may be rounded in the tree, and of a compressed body there is none.
    let is_compressed = matches!(body, [0x1f, 0x8b, ..] | [0x78, 0x01 | 0x9c | 0xda, ..]);
    if body.len() > 4096 || is_compressed || super::conditions::is_rounded(body) {
        return None;
    }
    let found = match from {
        "" if shape != "json" => std::str::from_utf8(body).ok().map(Value::from),
        "type" => Some(Value::from("push")),
        "id" => Some(Value::from("e1")),
        _ if from.is_empty() || from.starts_with('/') => {
            let tree: Value = serde_json::from_slice(body).ok()?;
            Some(tree.pointer(from).cloned().unwrap_or(Value::Null))
        }
        _ if from.starts_with("body:") && shape == "any" => {
            let tree: Value = serde_json::from_slice(body).ok()?;
            let root = serde_json::json!({ "root": &tree });
            let top = match &tree {
                Value::Object(_) => &tree,
                Value::Array(_) => &root,
                _ => return None,
            };
            let name = from.strip_prefix("body:").filter(|name| !name.is_empty())?;
            let found = dotted(top, name);
            if found.is_some_and(has_float) {
                return None;
            }
            Some(found.map_or(Value::Null, |found| Value::from(as_go_writes(found))))
        }
        _ => return None,
    };
    let Some(found) = found else { return Some(None) };
    let text = match &found {
        Value::Null if !from.is_empty() => {
            let left_out = rule.get("optional") == Some(&Value::Bool(true));
            let text = key("else").or(left_out.then_some(""));
            return Some(text.map(|text| Expected::Text(text.to_owned())));
        }
        // Its length, and where it is cut, is that of the text as it is written.
        _ if shape == "json" => {
            let bounded = key("max").or(key("strip")).or(key("match")).is_some();
            return (!bounded).then_some(Some(Expected::Json(found)));
        }
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => found.to_string(),
        _ => return Some(None),
    };
    let Some(text) = text.strip_prefix(key("strip").unwrap_or_default()) else { return Some(None) };
    let pattern = key("match").unwrap_or("(?s).*");
    let fits = text.len() <= max && !text.contains('\0') && is(shape, text) && whole(pattern, text);
    Some(fits.then(|| Expected::Text(text.to_owned())))
}

/// What adnanh/webhook finds: in each member, all of the name goes before its first part.
fn dotted<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let (first, rest) = name.split_once('.').map_or((name, None), |(a, b)| (a, Some(b)));
    let inner = match value {
        Value::Object(members) => match members.get(name) {
            Some(whole) => return Some(whole),
            None => members.get(first)?,
        },
        Value::Array(items) => {
            let is_index = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
            items.get(first.parse::<usize>().ok().filter(|_| is_index)?)?
        }
        _ => return None,
    };
    rest.map_or(Some(inner), |rest| dotted(inner, rest))
}

/// Whether the tree may have a number that was written otherwise.
fn has_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_float),
        Value::Object(members) => members.values().any(has_float),
        _ => false,
    }
}

/// The text of a value there, made of this crate's JSON, which has sorted members too.
fn as_go_writes(value: &Value) -> String {
    match value {
        Value::Null => return "<nil>".to_owned(),
        Value::String(text) => return text.clone(),
        Value::Bool(_) | Value::Number(_) => return value.to_string(),
        Value::Array(_) | Value::Object(_) => {}
    }
    let json = value.to_string();
    let mut written = String::new();
    let mut chars = json.chars();
    while let Some(char) = chars.next() {
        match (char, char == '\\') {
            (_, true) => match chars.next() {
                Some('b') => written.push_str("\\u0008"),
                Some('f') => written.push_str("\\u000c"),
                Some(other) => written.extend(['\\', other]),
                None => {}
            },
            ('<' | '>' | '&' | '\u{2028}' | '\u{2029}', _) => {
                written.push_str(&format!("\\u{:04x}", u32::from(char)));
            }
            _ => written.push(char),
        }
    }
    written
}

fn is(shape: &str, text: &str) -> bool {
    match shape {
        "line" => !text.contains(char::is_control),
        "text" => is("line", &text.replace(['\n', '\t'], "")),
        "word" => whole("[A-Za-z0-9][A-Za-z0-9._-]*", text),
        "ref" => {
            whole("[A-Za-z0-9][A-Za-z0-9._/@+#=-]*", text)
                && !["..", "//", "@{", ".lock/", "/."].iter().any(|part| text.contains(part))
                && !["/", ".", ".lock"].iter().any(|end| text.ends_with(end))
        }
        "sha" => whole("[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", text),
        "int" => whole("0|-?[1-9][0-9]{0,18}", text) && text.parse::<i64>().is_ok(),
        "url" => {
            whole(r"https?://[A-Za-z0-9\[][!-~]*", text)
                && !text.contains(['"', '\'', '`', '\\', '<', '>'])
        }
        "any" => true,
        _ => unreachable!("the configuration took '{shape}'"),
    }
}

fn whole(pattern: &str, text: &str) -> bool {
    Regex::new(&format!(r"\A(?:{pattern})\z")).expect("it is taken").is_match(text)
}
