//! The one-pass reader finds the same values as a full JSON parser where a body has one reading, and
//! reports no value where it has two.

#![allow(clippy::unwrap_used)]

use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[derive(Debug, Clone, PartialEq)]
enum Found {
    Absent,
    Text(String),
    /// A value that is not a text, as it is written.
    Other(String),
    Twice,
}

fn follow(json: &[u8], pointers: &[&Pointer]) -> Option<Vec<Found>> {
    let found = |raw: Result<Option<String>, _>| match raw {
        Ok(None) => Found::Absent,
        Ok(Some(raw)) => super::text(&raw).map_or(Found::Other(raw), Found::Text),
        Err(_) => Found::Twice,
    };
    Some(written(json, pointers)?.into_iter().map(found).collect())
}

fn one(json: &str, pointer: &str) -> Option<Found> {
    let pointer = Pointer::parse(pointer).unwrap();
    follow(json.as_bytes(), &[&pointer]).map(|mut found| found.remove(0))
}

fn other(raw: &str) -> Option<Found> {
    Some(Found::Other(raw.to_owned()))
}

fn text(text: &str) -> Option<Found> {
    Some(Found::Text(text.to_owned()))
}

#[test]
fn values_are_found_where_the_pointer_says() {
    for (json, pointer, found) in [
        (r#"{"id":"a"}"#, "/id", text("a")),
        (r#"{"x":{"id":"no"},"id":"a"}"#, "/id", text("a")),
        (r#"{"a":[{"b":1},{"b":"two"}]}"#, "/a/1/b", text("two")),
        (r#"[{"id":7}]"#, "/0/id", text("7")),
        (r#"{"id":-7}"#, "/id", text("-7")),
        (r#"{"id":123456789012345678901234567890}"#, "/id", text("123456789012345678901234567890")),
        (r#"{"i\u0064":"a\u00e4"}"#, "/id", text("aä")),
        (r#"{"a/b":{"~":"x"}}"#, "/a~1b/~0", text("x")),
        (r#"{"id":null}"#, "/id", Some(Found::Absent)),
        (r#"{"id":1.0}"#, "/id", other("1.0")),
        (r#"{"id":true}"#, "/id", other("true")),
        (r#"{"id":["a"]}"#, "/id", other(r#"["a"]"#)),
        (r#"{"id":"\ud800"}"#, "/id", other(r#""\ud800""#)),
        (r#"{"id":"a"}"#, "/id/x", Some(Found::Absent)),
        (r#""id""#, "/id", Some(Found::Absent)),
        (r#"{"a":[1]}"#, "/a/01", Some(Found::Absent)),
        (r#"{"id":"a","id":"a"}"#, "/id", Some(Found::Twice)),
        (r#"{"id":"a","\u0069d":null}"#, "/id", Some(Found::Twice)),
        (r#"{"a":{"id":"x"},"a":{}}"#, "/a/id", Some(Found::Twice)),
        (r#"{"n":1e999,"s":"\ud800","id":"a"}"#, "/id", text("a")),
        (r#"{"n":1e999,"id":"a"}"#, "/n/id", Some(Found::Absent)),
        (r#"{"s":"\ud800","id":"a"}"#, "/s/id", Some(Found::Absent)),
        (r#"{"id":1e999}"#, "/id", other("1e999")),
        (r#"{"id":1e999}"#, "/id/x", Some(Found::Absent)),
        (r#"{"n":1e,"id":"a"}"#, "/n/id", None),
        (r#"{"n":01,"id":"a"}"#, "/n/id", None),
        (r#"{"n":1,,"id":"a"}"#, "/id", None),
        (r#"{"id":"a",}"#, "/id", None),
        (r#"{,"id":"a"}"#, "/id", None),
        (r#"{"id" "a"}"#, "/id", None),
        (r#"{"n":[1,],"id":"a"}"#, "/n/0", None),
        (r#"{"n":[1 2],"id":"a"}"#, "/n/0", None),
        (r#"{"n":[1},"id":"a"}"#, "/n/0", None),
        (r#"{1:"a"}"#, "/1", None),
        ("{\"id\":\u{c}\"a\"}", "/id", None),
        ("\t{ \"id\"\r\n: \"a\" }\n", "/id", text("a")),
        (r#"{"id":"a"}x"#, "/id", None),
        (r#"{"id":"a"}{}"#, "/id", None),
        (r#"{"id":"a""#, "/id", None),
        ("", "/id", None),
    ] {
        assert_eq!(one(json, pointer), found, "{json} {pointer}");
    }
}

#[test]
fn a_digest_of_chosen_fields_depends_on_their_values_only() {
    let fields = ["/amount", "/to/name"].map(|p| Pointer::parse(p).unwrap());
    let digest = |json: &str| digest_at(json.as_bytes(), None, &fields);
    let one = digest(r#"{"amount":10.5,"to":{"name":"a"},"note":"x"}"#);
    assert!(one.is_some());
    assert_eq!(one, digest(r#"{"note":"y","to":{"name":"a"},"amount":10.5}"#));
    for other in [
        r#"{"amount":10.6,"to":{"name":"a"}}"#,
        r#"{"amount":"10.5","to":{"name":"a"}}"#,
        r#"{"amount":10.5,"to":{"name":"b"}}"#,
        r#"{"amount":10.5,"to":{"name":["a"]}}"#,
        r#"{"amount":10.5}"#,
        r#"{"to":{"name":"a"}}"#,
    ] {
        assert!(digest(other).is_some_and(|digest| Some(digest) != one), "{other}");
    }
    // Two readers could read different values, so there is no digest of the fields.
    assert_eq!(digest(r#"{"amount":1,"amount":10.5,"to":{"name":"a"}}"#), None);
    assert_eq!(digest("amount=10.5"), None);
}

#[test]
fn one_pass_finds_a_value_and_the_values_inside_it() {
    let json = br#"{"event":{"id":"e","type":"t","more":[1,2]},"type":"outer"}"#;
    let pointers: Vec<Pointer> = ["/event", "/event/id", "/type", "/event/type", "/event/more/1"]
        .map(|p| Pointer::parse(p).unwrap())
        .to_vec();
    let found = follow(json, &pointers.iter().collect::<Vec<_>>()).unwrap();
    let text = |t: &str| Found::Text(t.to_owned());
    let whole = Found::Other(r#"{"id":"e","type":"t","more":[1,2]}"#.to_owned());
    assert_eq!(found, [whole, text("e"), text("outer"), text("t"), text("2")]);
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = format!(r#"{{"x":{}{},"id":"a"}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(one(&deep, "/id"), text("a"));
}

#[test]
fn the_json_of_a_form_is_its_one_field() {
    let json = |body: &str| json_of(body.as_bytes(), Some("payload")).map(Cow::into_owned);
    assert_eq!(json("payload=%7B%22a%22%3A+1%7D").unwrap(), b"{\"a\": 1}");
    assert_eq!(json("x=1&payload={}").unwrap(), b"{}");
    assert_eq!(json("payload=1&payload=2"), None);
    assert_eq!(json("x=1"), None);
    assert_eq!(json("{\"payload\":1}").unwrap(), b"{\"payload\":1}");
    assert_eq!(json_of(b"\xef\xbb\xbf{}", None).unwrap().into_owned(), b"{}");
}

#[test]
fn a_digest_ignores_top_level_volatile_members_only() {
    let volatile = ["n".to_owned()];
    let of = |body: &str| digest(body.as_bytes(), &volatile);
    let base = of(r#"{"a":1,"n":1,"b":{"n":1}}"#);
    assert_eq!(base, of(r#"{"a":1,"n":2,"b":{"n":1}}"#));
    assert_eq!(base, of(r#"{ "a": 1, "b": {"n":1} }"#));
    for other in [
        r#"{"a":1,"n":1,"b":{"n":2}}"#,
        r#"{"a":1.0,"n":1,"b":{"n":1}}"#,
        r#"{"b":{"n":1},"a":1,"n":1}"#,
        r#"{"a":1,"n":1,"b":{"n":1}}x"#,
        r#"[{"a":1,"n":1,"b":{"n":1}}]"#,
    ] {
        assert_ne!(base, of(other), "{other}");
    }
    let plain = |body: &[u8]| Digest::of(body);
    assert_eq!(digest(b"{\"n\":1}", &[]), plain(b"{\"n\":1}"));
    assert_eq!(digest(b"\xff", &volatile), plain(b"\xff"));
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[ab~/]{0,2}", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

fn pointer() -> impl Strategy<Value = String> {
    prop::collection::vec(prop_oneof!["[ab]{0,2}", "~0|~1|a~1", "[0-3]"], 1..4)
        .prop_map(|steps| format!("/{}", steps.join("/")))
}

/// The value that a full JSON parser finds, as a [`Found`].
fn expected(value: &Value, pointer: &str) -> Found {
    match value.pointer(pointer) {
        None | Some(Value::Null) => Found::Absent,
        Some(Value::String(text)) => Found::Text(text.clone()),
        Some(Value::Number(n)) if n.is_i64() || n.is_u64() => Found::Text(n.to_string()),
        Some(other) => Found::Other(other.to_string()),
    }
}

proptest! {
    #[test]
    fn one_pass_finds_what_a_full_parser_finds(value in json(), pointers in prop::collection::vec(pointer(), 1..5)) {
        let parsed: Vec<Pointer> = pointers.iter().map(|p| Pointer::parse(p).unwrap()).collect();
        let found = follow(value.to_string().as_bytes(), &parsed.iter().collect::<Vec<_>>()).unwrap();
        for (pointer, found) in pointers.iter().zip(found) {
            prop_assert_eq!(found, expected(&value, pointer), "{} {}", value, pointer);
        }
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..200), braces in r#"[{}\[\]",:\\a0 ]{0,60}"#) {
        let pointer = Pointer::parse("/a/0").unwrap();
        for body in [&body[..], braces.as_bytes()] {
            follow(body, &[&pointer]);
            json_of(body, Some("payload"));
            digest(body, &["a".to_owned()]);
        }
    }
}

#[test]
fn a_byte_that_is_not_utf_8_hides_no_value_but_its_own() {
    for (body, pointer, expected) in [
        (&b"{\"d\":{\"x\":\"\xff\",\"id\":\"a\"}}"[..], "/d/id", Some("a")),
        (b"{\"s\":\"\xff\",\"id\":\"a\"}", "/id", Some("a")),
        (b"[\"\xc3\",\"a\"]", "/1", Some("a")),
        (b"{\"d\":{\"id\":\"\xff\"}}", "/d/id", None),
        (b"{\"d\":\xff,\"id\":\"a\"}", "/id", None),
    ] {
        let found = text_at(body, &Pointer::parse(pointer).unwrap());
        assert_eq!(found.as_deref(), expected, "{pointer}");
    }
}
