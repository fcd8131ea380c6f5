//! Conditions as they are written, on small bodies and on hostile ones.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::model::{GroupKey, GroupRule, Headers};
use crate::probe::{condition, explained};

/// Whether a condition holds; `None` if it is undecided.
fn holds(when: &str, body: &str) -> Option<bool> {
    condition(when, body.as_bytes()).unwrap_or_else(|wrong| panic!("{when}: {wrong:?}")).ok()
}

#[test]
fn each_test_holds_where_it_should() {
    let (yes, no, open) = (Some(true), Some(false), None);
    for (when, body, wanted) in [
        (r#"{ "/a" = "x" }"#, r#"{"a":"x"}"#, yes),
        (r#"{ "/a" = "x" }"#, r#"{"a":"y"}"#, no),
        (r#"{ "/a" = "x" }"#, r#"{}"#, no),
        (r#"{ "/a" = "x" }"#, r#"{"a":null}"#, no),
        (r#"{ "/a" = "x" }"#, r#"{"a":["x"]}"#, no),
        (r#"{ "/a" = "42" }"#, r#"{"a":42}"#, no),
        (r#"{ "/a" = 42 }"#, r#"{"a":"42"}"#, no),
        (r#"{ "/a" = 42 }"#, r#"{"a":4.2e1}"#, yes),
        (r#"{ "/a" = 9007199254740993 }"#, r#"{"a":9007199254740992}"#, no),
        (r#"{ "/a" = 0x2A }"#, r#"{"a":42}"#, yes),
        (r#"{ "/a" = true }"#, r#"{"a":true}"#, yes),
        (r#"{ "/a" = true }"#, r#"{"a":"true"}"#, no),
        (r#"{ "/a" = ["x", 1, false] }"#, r#"{"a":1.0}"#, yes),
        (r#"{ "/a" = ["x", 1, false] }"#, r#"{"a":0}"#, no),
        (r#"{ "/a" = { glob = "release/*" } }"#, r#"{"a":"release/1.0"}"#, yes),
        (r#"{ "/a" = { glob = "release/*" } }"#, r#"{"a":"release/1/0"}"#, no),
        (r#"{ "/a" = { glob = "release/**" } }"#, r#"{"a":"release/1\n/0"}"#, yes),
        (r#"{ "/a" = { glob = "**/v*.x" } }"#, r#"{"a":"a/b/v1.x"}"#, yes),
        (r#"{ "/a" = { glob = "v1.0" } }"#, r#"{"a":"v1x0"}"#, no),
        (r#"{ "/a" = { glob = "b" } }"#, r#"{"a":"abc"}"#, no),
        (r#"{ "/a" = { glob = "*" } }"#, r#"{"a":1}"#, no),
        (r#"{ "/a" = { matches = "b" } }"#, r#"{"a":"abc"}"#, yes),
        (r#"{ "/a" = { matches = "^b" } }"#, r#"{"a":"abc"}"#, no),
        (r#"{ "/a" = { starts_with = "ab" } }"#, r#"{"a":"abc"}"#, yes),
        (r#"{ "/a" = { starts_with = "bc" } }"#, r#"{"a":"abc"}"#, no),
        (r#"{ "/a" = { ends_with = "bc" } }"#, r#"{"a":"abc"}"#, yes),
        (r#"{ "/a" = { ends_with = "ab" } }"#, r#"{"a":"abc"}"#, no),
        (r#"{ "/a" = { contains = "b" } }"#, r#"{"a":"abc"}"#, yes),
        (r#"{ "/a" = { contains = "b" } }"#, r#"{"a":["abc"]}"#, no),
        (r#"{ "/a" = { contains = "b" } }"#, r#"{"a":[ ["b"], null, "b" ]}"#, yes),
        (r#"{ "/a" = { contains = 1 } }"#, r#"{"a":[10, 1.0]}"#, yes),
        (r#"{ "/a" = { contains = "*" } }"#, r#"{"a":{"*":"*"}}"#, no),
        (r#"{ "/a" = { contains = "b" } }"#, r#"{"a":["\ud800"]}"#, open),
        (r#"{ "/a" = { contains = "b" } }"#, r#"{"a":["\ud800","b"]}"#, yes),
        (r#"{ "/a" = { above = 10 } }"#, r#"{"a":10.00000000000000000001}"#, yes),
        (r#"{ "/a" = { above = 10 } }"#, r#"{"a":10}"#, no),
        (r#"{ "/a" = { at_least = 10 } }"#, r#"{"a":1e1}"#, yes),
        (r#"{ "/a" = { below = 10 } }"#, r#"{"a":10}"#, no),
        (r#"{ "/a" = { at_most = 1.5 } }"#, r#"{"a":1.5}"#, yes),
        (r#"{ "/a" = { above = 1, below = 2 } }"#, r#"{"a":1.5}"#, yes),
        (r#"{ "/a" = { above = 1, below = 2 } }"#, r#"{"a":2}"#, no),
        (r#"{ "/a" = { above = 1 } }"#, r#"{"a":"2"}"#, open),
        (r#"{ "/a" = { above = 1, text = true } }"#, r#"{"a":"2"}"#, yes),
        (r#"{ "/a" = { above = 1, text = true } }"#, r#"{"a":"2 "}"#, open),
        (r#"{ "/a" = { above = 1 } }"#, r#"{"a":[2]}"#, open),
        (r#"{ "/a" = { above = 1 } }"#, r#"{}"#, no),
        (r#"{ "/a" = { present = true } }"#, r#"{"a":[]}"#, yes),
        (r#"{ "/a" = { present = true } }"#, r#"{"a":null}"#, no),
        (r#"{ "/a" = { present = false } }"#, r#"{"a":null}"#, yes),
        (r#"{ "/a" = { present = false } }"#, r#"{"a":0}"#, no),
        (r#"{ "/a" = { present = false } }"#, "a=b", open),
        (r#"{ "/a" = { not = "x" } }"#, r#"{"a":"y"}"#, yes),
        (r#"{ "/a" = { not = "x" } }"#, r#"{"a":"x"}"#, no),
        (r#"{ "/a" = { not = "x" } }"#, r#"{}"#, yes),
        (r#"{ "/a" = { not = ["x", 1] } }"#, r#"{"a":1}"#, no),
        (r#"{ "/a" = { not = { ends_with = "x" } } }"#, r#"{"a":"ax"}"#, no),
        (r#"{ "/a" = { not = { above = 1 } } }"#, r#"{"a":"ax"}"#, open),
        (r#"{ "/a" = { not = { present = false } } }"#, r#"{"a":1}"#, yes),
        (r#"{ "/l/*/n" = "x" }"#, r#"{"l":[{"n":"y"},{"n":"x"}]}"#, yes),
        (r#"{ "/l/*/n" = "x" }"#, r#"{"l":[]}"#, no),
        (r#"{ "/l/*/n" = { not = "x" } }"#, r#"{"l":[{"n":"y"},{"n":"x"}]}"#, no),
        (r#"{ "/l/*/n" = { not = "x" } }"#, r#"{"l":[{"n":"y"},{}]}"#, yes),
        (r#"{ "/l/*" = { above = 1 } }"#, r#"{"l":["a",2]}"#, yes),
        (r#"{ "/l/*" = { above = 1 } }"#, r#"{"l":["a",1]}"#, open),
        (r#"{ "/l/*" = { not = { above = 1 } } }"#, r#"{"l":["a",2]}"#, no),
        (r#"{ "/l/*/*" = 2 }"#, r#"{"l":[[1],[3,2]]}"#, yes),
        (r#"{ "/a" = 1, "/b" = 2 }"#, r#"{"a":1,"b":2}"#, yes),
        (r#"{ "/a" = 1, "/b" = 2 }"#, r#"{"a":1,"b":3}"#, no),
        (r#"[{ "/a" = 1 }, { "/b" = 2 }]"#, r#"{"a":0,"b":2}"#, yes),
        (r#"[{ "/a" = 1 }, { "/b" = 2 }]"#, r#"{"a":0,"b":0}"#, no),
        (r#"{ type = "push", id = "e1", "header:x-one" = "1" }"#, "x", yes),
        (r#"{ type = { not = "push" } }"#, "{}", no),
        (r#"{ "/a" = "x" }"#, r#"{"a":"x","a":"x"}"#, open),
        (r#"{ "/a/b" = "x" }"#, r#"{"a":{"b":"x"},"a":{}}"#, open),
        (r#"{ "/a" = "x" }"#, r#"{"a":"x"} x"#, open),
    ] {
        assert_eq!(holds(when, body), wanted, "{when} {body}");
    }
}

#[test]
fn an_undecided_line_counts_only_where_it_could_change_the_result() {
    // `/n` is undecided in each body.
    let unclear = r#"{"a":1,"n":"text"}"#;
    for (when, wanted) in [
        (r#"{ "/n" = { above = 1 }, "/a" = 1 }"#, None),
        (r#"{ "/n" = { above = 1 }, "/a" = 2 }"#, Some(false)),
        (r#"[{ "/n" = { above = 1 } }, { "/a" = 1 }]"#, Some(true)),
        (r#"[{ "/a" = 1 }, { "/n" = { above = 1 } }]"#, Some(true)),
        (r#"[{ "/n" = { above = 1 } }, { "/a" = 2 }]"#, None),
        (r#"[{ "/n" = { above = 1 }, "/a" = 2 }, { "/a" = 3 }]"#, Some(false)),
    ] {
        assert_eq!(holds(when, unclear), wanted, "{when}");
    }
}

#[test]
fn a_doubt_names_its_place_and_its_reason() {
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(4097));
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(600 << 10));
    for (when, body, wanted) in [
        (r#"{ "/a" = "x" }"#, "a=b", "/a: the body is not JSON"),
        (r#"{ "/a" = "x" }"#, r#"{"a":1,"a":1}"#, "/a: it is there twice"),
        (r#"{ "/a" = { above = 1 } }"#, r#"{"a":"b"}"#, "/a: it is not a number"),
        (r#"{ "/a" = { matches = "x" } }"#, &*long, "/a: it is too long for a pattern"),
        (r#"{ "/a" = { glob = "x" } }"#, &*long, "/a: it is too long for a pattern"),
        (r#"{ "/a" = "x" }"#, &*large, "/a: there is too much of it"),
    ] {
        let doubt = condition(when, body.as_bytes()).unwrap().unwrap_err();
        assert_eq!(doubt, wanted, "{when}");
    }
    let fits = format!(r#"{{"a":"{}"}}"#, "x".repeat(4096));
    assert_eq!(holds(r#"{ "/a" = { matches = "x$" } }"#, &fits), Some(true));
}

#[test]
fn the_cases_of_the_guide_are_decided() {
    for (when, good, bad) in [
        (
            r#"{ "/ref" = "refs/heads/main" }"#,
            r#"{"ref":"refs/heads/main"}"#,
            r#"{"ref":"refs/heads/dev"}"#,
        ),
        (
            r#"{ "/ref" = { matches = '^refs/tags/v[0-9]+\.' }, "/deleted" = false }"#,
            r#"{"ref":"refs/tags/v12.1","deleted":false}"#,
            r#"{"ref":"refs/tags/v12.1","deleted":true}"#,
        ),
        (
            r#"{ "/pull_request/labels/*/name" = { contains = "deploy" } }"#,
            r#"{"pull_request":{"labels":[{"name":"bug"},{"name":"deploy-now"}]}}"#,
            r#"{"pull_request":{"labels":[{"name":"bug"}]}}"#,
        ),
        (
            r#"{ "/sender/type" = { not = "Bot" }, "/sender/login" = { not = { ends_with = "[bot]" } } }"#,
            r#"{"sender":{"type":"User","login":"ann"}}"#,
            r#"{"sender":{"type":"User","login":"x[bot]"}}"#,
        ),
        (
            r#"{ "/data/object/amount" = { above = 1000000 }, "/data/object/currency" = ["eur", "usd"] }"#,
            r#"{"data":{"object":{"amount":1000001,"currency":"usd"}}}"#,
            r#"{"data":{"object":{"amount":1000001,"currency":"jpy"}}}"#,
        ),
        (
            r#"{ "/commits/*/modified/*" = { starts_with = "docs/" } }"#,
            r#"{"commits":[{"modified":[]},{"modified":["a","docs/x.md"]}]}"#,
            r#"{"commits":[{"modified":["src/docs/"]}]}"#,
        ),
        (
            r#"{ "/pull_request/merged_by/login" = { present = true }, "/pull_request/base/ref" = "main" }"#,
            r#"{"pull_request":{"merged_by":{"login":"ann"},"base":{"ref":"main"}}}"#,
            r#"{"pull_request":{"merged_by":null,"base":{"ref":"main"}}}"#,
        ),
        (
            r#"{ "form:command" = "/deploy", "form:channel_name" = "ops" }"#,
            "command=%2Fdeploy&channel_name=ops",
            "command=%2Fdeploy&channel_name=random",
        ),
    ] {
        assert_eq!(holds(when, good), Some(true), "{when}");
        assert_eq!(holds(when, bad), Some(false), "{when}");
    }
}

#[test]
fn an_explanation_has_each_line_with_what_it_read() {
    let body = format!(
        r#"{{"ref":"refs/heads/dev","long":"\u001b[1m{}","n":"x","l":[1,"b"]}}"#,
        "y".repeat(100)
    );
    let when = r#"[{ "/ref" = "refs/heads/main", "/long" = { not = { starts_with = "z" } }, "/no" = { present = false } }, { "/n" = { above = 1, at_most = 2.50 }, "/l/*" = ["a", "b"] }]"#;
    let tables = explained(when, body.as_bytes()).unwrap();
    let holds: Vec<_> = tables.iter().map(|table| table.holds).collect();
    assert_eq!(holds, [Some(false), None]);
    let lines: Vec<_> = tables.iter().flat_map(|table| &table.lines).collect();
    let shown = |line: &LineResult| {
        let LineResult { line, holds, read, why } = line;
        format!("{holds:?} {line}: {read} {}", why.as_deref().unwrap_or_default())
    };
    let of = |place: &str| shown(lines.iter().find(|line| line.line.starts_with(place)).unwrap());
    assert_eq!(of("/ref"), r#"Some(false) /ref is "refs/heads/main": "refs/heads/dev" "#);
    assert_eq!(of("/no"), "Some(true) /no is not there: nothing ");
    assert_eq!(of("/n "), r#"None /n is above 1 and at most 2.50: "x" it is not a number"#);
    assert_eq!(of("/l/*"), r#"Some(true) /l/* is one of "a", "b": 1, "b" "#);
    let long = of("/long");
    assert!(long.starts_with(r#"Some(true) /long does not start with "z": "\u{1b}[1my"#), "{long}");
    assert!(long.chars().count() < 120 && long.contains('…'), "{long}");
}

/// How long this thread has had a processor.
pub(super) fn thread_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Decides on a body that its sender made to cost much. Time that other threads have is not counted.
fn decided_in_time(when: &str, body: &[u8]) -> Result<bool, String> {
    let begun = thread_time();
    let decided = condition(when, body).unwrap();
    let took = thread_time() - begun;
    assert!(took < Duration::from_secs(20), "{took:?} for {} bytes", body.len());
    decided
}

#[test]
fn hostile_bodies_take_bounded_time() {
    let objects = |count| format!("[{}{{}}]", r#"{"a":{"a":1}},"#.repeat(count));
    let large = objects(2_000_000);
    assert_eq!(decided_in_time(r#"{ "/7/a/a" = 2 }"#, large.as_bytes()), Ok(false));
    assert_eq!(decided_in_time(r#"{ "/a/*/*" = 2 }"#, large.as_bytes()), Ok(false));
    let too_much = Err("/*/a/a: there is too much of it".to_owned());
    assert_eq!(decided_in_time(r#"{ "/*/a/a" = 2 }"#, objects(100_000).as_bytes()), too_much);
    let brackets = format!(r#"{{"b":{}{},"a":1}}"#, "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(
        decided_in_time(
            r#"{ "/a" = 1, "/b/0/0/0/0/0/0" = { present = true } }"#,
            brackets.as_bytes()
        ),
        Ok(true)
    );
    assert!(decided_in_time(r#"{ "/a" = 1 }"#, "[".repeat(10_000).as_bytes()).is_err());
    let members = format!(r#"{{{}"a":1}}"#, r#""a":2,"#.repeat(1_000_000));
    let twice = Err("/a: it is there twice".to_owned());
    assert_eq!(decided_in_time(r#"{ "/a" = 1 }"#, members.as_bytes()), twice);
    let list = format!(r#"{{"l":[{}2]}}"#, "1,".repeat(1_000_000));
    assert!(decided_in_time(r#"{ "/l/*" = 2 }"#, list.as_bytes()).is_err());
    assert!(decided_in_time(r#"{ "/l" = { contains = 2 } }"#, list.as_bytes()).is_err());
    let kept = format!(r#"{{"l":[{}2]}}"#, "1,".repeat(200_000));
    assert_eq!(decided_in_time(r#"{ "/l" = { contains = 2 } }"#, kept.as_bytes()), Ok(true));
    let text = format!(r#"{{"l":["{}b"]}}"#, "a".repeat(4_000));
    assert_eq!(
        decided_in_time(r#"{ "/l/*" = { matches = "(a*)*$" } }"#, text.as_bytes()),
        Ok(true)
    );
    let stars = format!(r#"{{ "/l/*" = {{ glob = "{}c" }} }}"#, "*a".repeat(15));
    assert_eq!(decided_in_time(&stars, text.as_bytes()), Ok(false));
}

#[test]
fn a_key_is_made_of_what_stands_at_its_places() {
    let source = "shop".parse().unwrap();
    let headers = Headers::new();
    let key = |body: &str, places: &[&str], rule| {
        let places: Vec<Place> = places.iter().map(|place| Place::parse(place).unwrap()).collect();
        let key = Key { places, rule };
        let event = Event {
            id: "e1",
            event_type: "t",
            headers: &headers,
            body: body.as_bytes(),
            form_field: None,
            inflated_bytes: 1 << 20,
        };
        let values = Values::read(&event, &key.places, 1000);
        key.of(&source, &values).map_err(|doubt| doubt.to_string())
    };
    let of = |parts: &[Option<&str>]| Ok(Some(GroupKey::of(&source, parts)));
    let (block, latest) = (GroupRule::Block, GroupRule::Latest);
    assert_eq!(key(r#"{"a":42}"#, &["/a"], block), of(&[Some("42")]));
    assert_eq!(key(r#"{"a":"42"}"#, &["/a"], latest), of(&[Some("42")]));
    assert_eq!(
        key(r#"{"a":true,"b":"x"}"#, &["/b", "/a", "type"], block),
        of(&[Some("x"), Some("true"), Some("t")])
    );
    assert_eq!(key(r#"{"a":null}"#, &["/a", "id"], block), of(&[None, Some("e1")]));
    assert_eq!(key(r#"{"a":null}"#, &["/a", "id"], latest), Ok(None));
    for rule in [block, latest] {
        let wrong = |body, place| key(body, &[place], rule).unwrap_err();
        assert_eq!(wrong(r#"{"a":[1]}"#, "/a"), "/a: it is a list or an object");
        assert_eq!(wrong(r#"{"a":1,"a":1}"#, "/a"), "/a: it is there twice");
        assert_eq!(wrong("x", "/a"), "/a: the body is not JSON");
        assert_eq!(wrong("a=1&a=2", "form:a"), "form:a: it is there twice");
    }
}
