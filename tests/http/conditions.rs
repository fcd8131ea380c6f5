//! Random conditions on random bodies, decided by the product and by the second opinion of the fuzz target.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::targets::conditions::agrees;

const TEXTS: [&str; 8] = ["", "a", "ab", "v1", "v1/x", "v1/x/y", "2", "-1.5"];
const NUMBERS: [f64; 6] = [-1.5, 0.0, 1.0, 2.0, 2.5, 1000000.0];

fn text() -> impl Strategy<Value = Value> {
    proptest::sample::select(&TEXTS[..]).prop_map(Value::from)
}

fn number() -> impl Strategy<Value = Value> {
    let whole = (-2..4i64).prop_map(Value::from);
    prop_oneof![whole, proptest::sample::select(&NUMBERS[..]).prop_map(Value::from)]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![text(), number(), any::<bool>().prop_map(Value::from)]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![3 => scalar(), 1 => Just(Value::Null)];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let member = (proptest::sample::select(&["a", "b", "*", "0"][..]), inner.clone());
        let members = proptest::collection::vec(member, 0..3).prop_map(|members| {
            members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        });
        prop_oneof![
            members.prop_map(Value::Object),
            proptest::collection::vec(inner, 0..4).prop_map(Value::Array)
        ]
    })
}

fn test() -> impl Strategy<Value = Value> {
    let pattern = proptest::sample::select(&["*", "**", "v*", "v1/*", "v**y", "*/x", "a"][..]);
    let expression = proptest::sample::select(&["^v", "x$", "a|2", "^[0-9]+$", "."][..]);
    let plain = prop_oneof![
        2 => scalar(),
        1 => proptest::collection::vec(scalar(), 1..3).prop_map(Value::Array),
        1 => pattern.prop_map(|text| json!({ "glob": text })),
        1 => expression.prop_map(|text| json!({ "matches": text })),
        1 => text().prop_map(|text| json!({ "starts_with": text })),
        1 => text().prop_map(|text| json!({ "ends_with": text })),
        1 => scalar().prop_map(|scalar| json!({ "contains": scalar })),
        1 => any::<bool>().prop_map(|is| json!({ "present": is })),
        1 => number().prop_map(|low| json!({ "above": low })),
        1 => (number(), any::<bool>()).prop_map(|(high, text)| json!({ "at_most": high, "text": text })),
        1 => (number(), number()).prop_map(|(low, high)| json!({ "at_least": low, "below": high })),
    ];
    (plain, any::<bool>()).prop_map(|(test, not)| if not { json!({ "not": test }) } else { test })
}

fn when() -> impl Strategy<Value = Value> {
    let places = ["/a", "/b", "/a/*", "/a/*/b", "/*/a", "/a/0", "/*/*", "type", "header:X-One"];
    let line = (proptest::sample::select(Vec::from(places)), test());
    let table = proptest::collection::vec(line, 1..3).prop_map(|lines| {
        Value::Object(lines.into_iter().map(|(place, test)| (place.to_owned(), test)).collect())
    });
    proptest::collection::vec(table, 1..3).prop_map(Value::Array)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn a_condition_comes_to_the_same_as_by_a_second_opinion(when in when(), body in value()) {
        agrees(&when, body.to_string().as_bytes());
    }
}
