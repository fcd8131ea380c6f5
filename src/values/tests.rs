//! What values are taken, and what hostile events get.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::model::Headers;

fn rule(name: &str, from: &str) -> ValueRule {
    ValueRule {
        name: name.to_owned(),
        from: (!from.is_empty()).then(|| Place::parse(from).unwrap()),
        shape: None,
        pattern: None,
        strip: String::new(),
        max_bytes: 4096,
        otherwise: None,
        optional: false,
    }
}

fn is(shape: Shape) -> ValueRule {
    ValueRule { shape: Some(shape), ..rule("V", "/v") }
}

fn matching(pattern: &str) -> ValueRule {
    ValueRule { pattern: Some(Pattern::whole(pattern).unwrap()), ..rule("V", "/v") }
}

/// The text of the one value, or the rule that it breaks.
fn value(rule: ValueRule, body: &str) -> Result<String, String> {
    let mut headers = Headers::new();
    headers.push("X-One", "1");
    headers.push("X-Two", "a");
    headers.push("X-Two", "b");
    headers.push("X-Raw", vec![0xFF]);
    let event = Event {
        id: "e1",
        event_type: "push",
        headers: &headers,
        body: body.as_bytes(),
        form_field: Some("payload"),
        inflated_bytes: 1 << 20,
    };
    let texts = evaluate(&[rule], &event).map_err(|refused| {
        assert_eq!(refused.name, "V");
        refused.rule
    })?;
    Ok(texts[0].1.clone())
}

#[test]
fn a_value_is_exactly_what_stands_there() {
    for (from, body, wanted) in [
        ("/v", r#"{"v":"ä b"}"#, "ä b"),
        ("/v", r#"{"v":1.50e2}"#, "1.50e2"),
        ("/v", r#"{"v":true}"#, "true"),
        ("/v", "payload=%7B%22v%22%3A%22b%22%7D", "b"),
        ("type", "", "push"),
        ("id", "", "e1"),
        ("header:x-one", "", "1"),
        ("form:a", "a=1%2B1", "1+1"),
        ("", "any line", "any line"),
    ] {
        assert_eq!(value(rule("V", from), body).as_deref(), Ok(wanted), "{from} {body}");
    }
    let json = |body: &str| value(is(Shape::Json), body);
    assert_eq!(json(r#"{"v":[1, {"a" : 2}]}"#).as_deref(), Ok(r#"[1, {"a" : 2}]"#));
    for written in [r#""a\"b\u00e4\/""#, "1e999", "true", r#""\ud800""#] {
        assert_eq!(json(&format!(r#"{{"v": {written} }}"#)).as_deref(), Ok(written));
    }
    let whole = ValueRule { shape: Some(Shape::Json), ..rule("V", "") };
    assert_eq!(value(whole.clone(), r#"{"a": 1}"#).as_deref(), Ok(r#"{"a": 1}"#));
    assert_eq!(value(whole.clone(), "payload=%5B1%5D").as_deref(), Ok("[1]"));
    assert!(value(whole, "{").is_err());
}

#[test]
fn what_is_absent_or_null_is_refused_unless_something_stands_in_for_it() {
    for body in ["{}", r#"{"v":null}"#] {
        assert_eq!(value(rule("V", "/v"), body), Err("nothing is there".into()));
        let instead = ValueRule { otherwise: Some(String::new()), ..is(Shape::Sha) };
        assert_eq!(value(instead, body).as_deref(), Ok(""));
    }
    let instead = ValueRule { otherwise: Some("x".into()), ..rule("V", "/v") };
    assert_eq!(value(instead, r#"{"v":""}"#).as_deref(), Ok(""));
}

#[test]
fn an_optional_value_is_left_out_and_is_empty_in_an_argument() {
    let optional = ValueRule { optional: true, ..rule("V", "/v") };
    let headers = Headers::new();
    let texts = |body: &[u8]| {
        let event = Event {
            id: "e",
            event_type: "t",
            headers: &headers,
            body,
            form_field: None,
            inflated_bytes: 1 << 20,
        };
        evaluate(std::slice::from_ref(&optional), &event)
    };
    assert_eq!(texts(br#"{"v":"a"}"#), Ok(vec![("V".to_owned(), "a".to_owned())]));
    for body in [&b"{}"[..], br#"{"v":null}"#] {
        let values = texts(body).unwrap();
        assert_eq!(values, []);
        let argument = Template::parse("x{V}", |name| name == "V").unwrap();
        assert_eq!(arguments(&[argument], &values).unwrap(), ["x"]);
    }
    assert!(texts(br#"{"v":"a\nb"}"#).is_err(), "its rule holds all the same");
    assert_eq!(value(is(Shape::Any), r#"{"v":"a\r\nb\u001b"}"#).as_deref(), Ok("a\r\nb\u{1b}"));
}

#[test]
fn hostile_events_are_refused_and_never_changed_to_fit() {
    let long = format!(r#"{{"v":"{}"}}"#, "x".repeat(200 * 1024));
    let some = |rule: &ValueRule| ValueRule { otherwise: Some("else".into()), ..rule.clone() };
    for (rule, body, why) in [
        (rule("V", "/v"), r#"{"v":"a\u0000b"}"#, "NUL"),
        (is(Shape::Text), r#"{"v":"a\u0000b"}"#, "NUL"),
        (is(Shape::Any), r#"{"v":"a\u0000b"}"#, "NUL"),
        (matching("(?s).*"), r#"{"v":"a\u0000b"}"#, "NUL"),
        (rule("V", "/v"), r#"{"v":"a\nb"}"#, "not a 'line'"),
        (rule("V", "/v"), &long, "over 4096 bytes"),
        (rule("V", ""), &long, "over 4096 bytes"),
        (ValueRule { max_bytes: 3, ..rule("V", "/v") }, r#"{"v":"abcd"}"#, "over 3 bytes"),
        (rule("V", "/v"), r#"{"v":"a","v":"b"}"#, "twice"),
        (rule("V", "/v/w"), r#"{"v":{"w":"a"},"v":{}}"#, "twice"),
        (rule("V", "header:X-Two"), "", "twice"),
        (rule("V", "form:a"), "a=1&a=2", "twice"),
        (rule("V", "header:X-Raw"), "", "decoded"),
        (rule("V", "/v"), r#"{"v":"\ud800"}"#, "decoded"),
        (rule("V", "/v"), r#"{"v":[1]}"#, "a list or an object"),
        (is(Shape::Text), r#"{"v":{}}"#, "a list or an object"),
        (rule("V", "/v"), "v=1", "not JSON"),
        (matching("main|staging"), r#"{"v":"mainx"}"#, "does not match"),
        (
            ValueRule { strip: "refs/heads/".into(), ..is(Shape::Ref) },
            r#"{"v":"refs/tags/v1"}"#,
            "begin",
        ),
    ] {
        for rule in [rule.clone(), some(&rule)] {
            let refused = value(rule, body).unwrap_err();
            assert!(refused.contains(why), "{why}: {refused}");
        }
    }
}

#[test]
fn a_beginning_is_cut_before_the_shape_is_looked_at() {
    let rule = ValueRule { strip: "refs/heads/".into(), max_bytes: 4, ..is(Shape::Word) };
    assert_eq!(value(rule, r#"{"v":"refs/heads/main"}"#).as_deref(), Ok("main"));
}

#[test]
fn all_values_together_are_bounded() {
    let one = |name: &str| ValueRule { name: name.into(), max_bytes: 65536, ..rule("V", "/v") };
    let body = format!(r#"{{"v":"{}"}}"#, "x".repeat(32 * 1024));
    let headers = Headers::new();
    let event = Event {
        id: "e",
        event_type: "t",
        headers: &headers,
        body: body.as_bytes(),
        form_field: None,
        inflated_bytes: 1 << 20,
    };
    assert_eq!(evaluate(&[one("A"), one("B")], &event).unwrap().len(), 2);
    let more = ValueRule { name: "C".into(), ..rule("C", "type") };
    let refused = evaluate(&[one("A"), one("B"), more], &event).unwrap_err();
    assert_eq!(refused.name, "C");
}

#[test]
fn a_value_that_is_too_large_is_the_one_that_is_refused() {
    let body = format!(r#"{{"large":"{}","small":"{}"}}"#, "x".repeat(190), "y".repeat(100));
    let headers = Headers::new();
    let event = Event {
        id: "e",
        event_type: "t",
        headers: &headers,
        body: body.as_bytes(),
        form_field: None,
        inflated_bytes: 1 << 20,
    };
    // The small one is looked at first, and stands last.
    let rule = |name, from| ValueRule { max_bytes: 100, ..rule(name, from) };
    let rules = [rule("SMALL", "/small"), rule("LARGE", "/large")];
    let refused = evaluate(&rules, &event).unwrap_err();
    assert_eq!(refused, Refused::new("LARGE", "it is over 100 bytes"));
}

#[test]
fn a_pattern_is_for_the_whole_value() {
    for (pattern, text, fits) in [
        ("main|staging", "main", true),
        ("main|staging", "staging", true),
        ("main|staging", "xstaging", false),
        ("main", "main\n", false),
        ("(?m)^a$", "a\nb", false),
        ("a|ab", "ab", true),
    ] {
        assert_eq!(Pattern::whole(pattern).unwrap().matches(text), fits, "{pattern} {text:?}");
    }
    for pattern in ["a)|(?:b", "(", "a{1000}{1000}", "(?x)a #"] {
        assert!(Pattern::whole(pattern).is_err(), "{pattern}");
    }
    assert!(Pattern::whole("[A-Za-z0-9._-]{1,64}").is_ok());
}

fn split(text: &str) -> Result<Template, Unknown> {
    Template::parse(text, |name| ["A", "B"].contains(&name))
}

fn filled(texts: &[&str], a: &str, b: &str) -> Result<Vec<String>, Refused> {
    let templates: Vec<_> = texts.iter().map(|text| split(text).unwrap()).collect();
    arguments(&templates, &[("A".into(), a.into()), ("B".into(), b.into())])
}

#[test]
fn arguments_get_values_where_their_names_stand_in_braces() {
    let texts = ["--a={A}", "{B}", "{A}{B}", "{}", "{ A }", "{a b}", "{{A}}", "${", "", "x}"];
    let wanted = ["--a={B}", "b", "{B}b", "{}", "{ A }", "{a b}", "{{B}}", "${", "", "x}"];
    assert_eq!(filled(&texts, "{B}", "b").unwrap(), wanted);
    assert_eq!(split("--c={C}"), Err(Unknown("C".into())));
}

#[test]
fn no_value_begins_an_argument_as_an_option_or_a_file() {
    for text in ["--upload-pack=touch x", "-rf", "@/etc/passwd", "+x"] {
        assert_eq!(filled(&["{A}"], text, "").unwrap_err().name, "A");
        assert_eq!(filled(&["{B}{A}"], text, "").unwrap_err().name, "A", "behind an empty value");
        assert_eq!(filled(&["--branch={A}"], text, "").unwrap(), [format!("--branch={text}")]);
    }
}

#[test]
fn a_value_in_many_arguments_is_counted_each_time() {
    let long = "x".repeat(VALUES_BYTES / 2);
    assert!(filled(&["a={A}", "a={A}"], &long, "b").is_ok());
    assert_eq!(filled(&["a={A}", "a={A}", "{B}"], &long, "b").unwrap_err().name, "B");
}

/// The shapes as regular expressions, and what else holds: a second opinion.
fn fits(shape: Shape, text: &str) -> bool {
    let whole = |pattern: &str| Pattern::whole(pattern).unwrap().matches(text);
    match shape {
        Shape::Word => whole("[A-Za-z0-9][A-Za-z0-9._-]*"),
        Shape::Ref => {
            whole("[A-Za-z0-9][A-Za-z0-9._/@+#=-]*")
                && !["..", "//", "@{", ".lock/", "/."].iter().any(|part| text.contains(part))
                && !["/", ".", ".lock"].iter().any(|end| text.ends_with(end))
        }
        Shape::Sha => whole("[0-9a-fA-F]{40}|[0-9a-fA-F]{64}"),
        Shape::Int => whole("0|-?[1-9][0-9]{0,18}") && text.parse::<i64>().is_ok(),
        Shape::Url => whole(r#"https?://[A-Za-z0-9\[][!-~]*"#) && !whole(r#"(?s).*["'`\\<>].*"#),
        Shape::Line => {
            !text.bytes().any(|b| b < 32 || b == 127)
                && !text.contains(|c: char| ('\u{80}'..'\u{a0}').contains(&c))
        }
        Shape::Text => fits(Shape::Line, &text.replace(['\n', '\t'], "")),
        Shape::Json | Shape::Any => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn shapes_take_what_their_patterns_take(
        text in prop_oneof![
            "[a-z0-9A./@+#=_{-]{0,12}", "[0-9a-f]{38,42}", "-?[0-9]{0,21}", "https?://[ -~]{0,9}", ".{0,9}",
            "(a|[.]lock|/|[.]){0,5}", "[a\n\t\r\u{0}\u{85}]{0,4}",
        ],
    ) {
        for &shape in Shape::ALL {
            prop_assert_eq!(shape.fits(&text), fits(shape, &text), "{} {:?}", shape, text);
        }
    }

    #[test]
    fn no_filled_argument_begins_as_an_option(a in "[-@+a]{0,3}", b in "[-@+a]{0,3}") {
        for text in ["{A}", "{A}{B}", "{B}{A}{B}"] {
            if let Ok(all) = filled(&[text], &a, &b) {
                prop_assert!(!all[0].starts_with(['-', '@', '+']), "{:?}", all);
            }
        }
    }
}
