//! Reads event ids, types and digests from a body. The first line of the input is `FIELD POINTER POINTER…`:
//! a form field or volatile member, which may be empty, and JSON pointers. The body follows.

use hooklatch::probe::{self, Fact};
use serde_json::Value;

pub(super) fn check(data: &[u8]) {
    let Some((first, body)) = super::text_line(data) else { return };
    let (field, pointers) = first.split_once(' ').unwrap_or((first, ""));
    let readable = |text: &&str| probe::pointer(text).is_ok();
    let pointers: Vec<String> = pointers.split(' ').filter(readable).map(str::to_owned).collect();
    for pointer in &pointers {
        let printed = probe::pointer(pointer).expect("it was readable");
        assert_eq!(probe::pointer(&printed), Ok(printed.clone()), "printed and read");
    }

    let found = probe::facts(body, None, &pointers);
    let plain = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    // If a parser that builds a tree can read the body, the one-pass reader can too, and finds the same.
    if let Ok(tree) = serde_json::from_slice::<Value>(plain) {
        let found = found.as_ref().expect("one reads it and the other does not");
        assert_eq!(found.len(), pointers.len());
        for (pointer, fact) in pointers.iter().zip(found) {
            agree(fact, tree.pointer(&probe::pointer(pointer).expect("readable")), pointer);
        }
    }
    // A pointer alone finds the same value as together with others.
    for (at, pointer) in pointers.iter().enumerate() {
        let alone = probe::facts(body, None, std::slice::from_ref(pointer));
        let among = found.as_ref().map(|all| vec![all[at].clone()]);
        if let (Some(alone), Some(among)) = (&alone, &among) {
            assert_eq!(alone, among, "{pointer}");
        }
    }
    if !field.is_empty() {
        form(body, field, &pointers);
    }
    digest(plain, field);
}

/// Both readers find the same value, except for a repeated member, of which a tree keeps only one.
fn agree(fact: &Fact, value: Option<&Value>, pointer: &str) {
    match (fact, value) {
        (Fact::Twice, _) | (Fact::Absent, None | Some(Value::Null)) => {}
        (Fact::Text(text), Some(Value::String(value))) => assert_eq!(text, value, "{pointer}"),
        (Fact::Text(text), Some(Value::Number(value))) => {
            if value.is_u64() || value.is_i64() {
                assert_eq!(*text, value.to_string(), "{pointer}");
            }
        }
        (
            Fact::Other,
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)),
        ) => {}
        // A member on the path occurs twice, with different values.
        (Fact::Absent, Some(_)) => panic!("{pointer}: not seen"),
        other => panic!("{pointer}: {other:?}"),
    }
}

/// JSON in a form field is read like a JSON body.
fn form(body: &[u8], field: &str, pointers: &[String]) {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if std::str::from_utf8(body).is_ok()
        && !field.contains(['{', '['])
        && !body.starts_with(b"\xef\xbb\xbf")
    {
        let percent =
            |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("%{b:02X}")).collect() };
        let name = percent(field.as_bytes());
        let sent = format!("{name}={}", percent(body));
        let inside = probe::facts(sent.as_bytes(), Some(field), pointers);
        assert_eq!(inside, probe::facts(body, None, pointers), "in a form");
        if !field.contains(['"', '\\', '%']) && !body.windows(3).any(|three| three == b"--b") {
            let head = format!("--b\r\nContent-Disposition: form-data; name=\"{field}\"\r\n\r\n");
            let parts = [head.as_bytes(), body, b"\r\n--b--\r\n"].concat();
            assert_eq!(probe::facts(&parts, Some(field), pointers), inside, "in a part");
        }
        let twice = format!("{sent}&{sent}");
        assert_eq!(probe::facts(twice.as_bytes(), Some(field), pointers), None, "two fields");
    }
    if matches!(first, Some(b'{' | b'[')) {
        let as_json = probe::facts(body, None, pointers);
        assert_eq!(probe::facts(body, Some(field), pointers), as_json, "JSON is no form");
    }
}

/// A volatile member does not change the digest, whatever its value and position; any other member does.
fn digest(body: &[u8], name: &str) {
    let volatile = [name.to_owned()];
    let now = probe::digest(body, &volatile);
    assert_eq!(now, probe::digest(body, &volatile));
    let inner = body.trim_ascii().strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    let (Some(inner), Ok(Value::Object(_))) = (inner, serde_json::from_slice::<Value>(body)) else {
        return;
    };
    let key = serde_json::to_string(name).expect("a string");
    let comma = if inner.trim_ascii().is_empty() { "" } else { "," };
    let inner = String::from_utf8_lossy(inner);
    let before = format!("{{{key}: [7]{comma}{inner}}}");
    let after = format!("{{{inner}{comma}{key}: \"x\"}}");
    assert_eq!(probe::digest(before.as_bytes(), &volatile), now, "a volatile member in front");
    assert_eq!(probe::digest(after.as_bytes(), &volatile), now, "a volatile member behind");
    let other = format!(
        "{{{inner}{comma}{}: 1}}",
        serde_json::to_string(&format!("{name}x")).expect("a string")
    );
    assert_ne!(probe::digest(other.as_bytes(), &volatile), now, "another member");
}
