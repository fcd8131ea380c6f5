//! Attempts to get past verification, on every accepted vector of every built-in provider: what changes the signed
//! body is refused; what changes only how a proof is written is refused, or names the same event.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use hooklatch::model::{Headers, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::verify::vectors::{self, Expect, Vector};
use hooklatch::verify::{Request, Verified, verify};

/// A way to change a body that a signature covers.
type OfBody = (&'static str, fn(&[u8]) -> Vec<u8>);

#[rustfmt::skip]
const OF_BODY: &[OfBody] = &[
    ("byte order mark before", |body| [b"\xef\xbb\xbf", body].concat()),
    ("space before", |body| [b" ", body].concat()),
    ("newline after", |body| [body, b"\n"].concat()),
    ("CR LF after", |body| [body, b"\r\n"].concat()),
    ("NUL after", |body| [body, b"\0"].concat()),
    ("another object after", |body| [body, b"{}"].concat()),
    ("twice", |body| [body, body].concat()),
    ("last byte cut", |body| body[..body.len().saturating_sub(1)].to_vec()),
    ("first byte cut", |body| body.get(1..).unwrap_or_default().to_vec()),
    ("a member twice", |body| replaced(body, b"{", b"{\"id\":\"evt_forged\",")),
    ("a field twice", |body| [body, b"&id=forged"].concat()),
    ("deep lists around", |body| [&b"[".repeat(10_000)[..], body, &b"]".repeat(10_000)[..]].concat()),
    ("letters in the other case", |body| body.iter().map(|byte| if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { *byte }).collect()),
    ("compressed", |_| b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0".to_vec()),
    ("empty", |_| Vec::new()),
];

/// A way to write the value of a header that proves something.
type OfValue = (&'static str, fn(&str) -> Vec<String>);

#[rustfmt::skip]
const OF_VALUE: &[OfValue] = &[
    ("not there", |_| Vec::new()),
    ("empty", |_| vec![String::new()]),
    ("twice", |value| vec![value.to_owned(), value.to_owned()]),
    ("a bad one before", |value| vec!["x".to_owned(), value.to_owned()]),
    ("a bad one behind", |value| vec![value.to_owned(), "x".to_owned()]),
    ("upper case", |value| vec![value.to_uppercase()]),
    ("lower case", |value| vec![value.to_lowercase()]),
    ("padding added", |value| vec![format!("{value}=")]),
    ("padding taken away", |value| vec![value.trim_end_matches('=').to_owned()]),
    ("the last character cut", |value| vec![cut(value)]),
    ("zeros behind", |value| vec![format!("{value}00")]),
    ("a space before", |value| vec![format!(" {value}")]),
    ("a tab behind", |value| vec![format!("{value}\t")]),
    ("a comma behind", |value| vec![format!("{value},")]),
    ("a comma before", |value| vec![format!(",{value}")]),
    ("NUL behind", |value| vec![format!("{value}\0")]),
    ("in quotes", |value| vec![format!("\"{value}\"")]),
    ("the scheme's word twice", |value| vec![format!("Bearer Bearer {value}")]),
    ("its prefix cut", |value| vec![value.rsplit('=').next().unwrap_or_default().to_owned()]),
    ("another version", |value| vec![value.replace("v1", "v0")]),
    ("another version, with a letter", |value| vec![value.replace("v1=", "v1a=").replace("v1,", "v1a,")]),
    ("another algorithm", |value| vec![value.replace("sha256", "sha1")]),
    ("all of it a wildcard", |_| vec!["*".to_owned()]),
    ("a time with a sign", |value| vec![value.replace("t=", "t=+")]),
    ("a time with a zero", |value| vec![value.replace("t=", "t=0")]),
    ("a time with a fraction", |value| vec![value.replace(",v1", ".5,v1")]),
    ("a time with an exponent", |value| vec![value.replace(",v1", "e0,v1")]),
    ("two times", |value| vec![format!("t=1,{value}")]),
    ("two times, the good one first", |value| vec![format!("{value},t=1")]),
    ("in full-width digits", |value| vec![value.replace('1', "\u{ff11}")]),
];

fn replaced(body: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    match body.windows(from.len()).position(|part| part == from) {
        Some(at) => [&body[..at], to, &body[at + from.len()..]].concat(),
        None => [body, b" "].concat(),
    }
}

fn cut(value: &str) -> String {
    let mut chars = value.chars();
    chars.next_back();
    chars.as_str().to_owned()
}

fn judged(scheme: &Scheme, vector: &Vector, headers: &Headers, body: Bytes) -> Option<Verified> {
    let keys = vector.keys(scheme).unwrap();
    let request = Request { method: &vector.method, url: vector.url(), headers, body };
    verify(scheme, &keys, request, Timestamp(vector.now * 1000)).ok()
}

fn genuine(scheme: &Scheme) -> Vec<Vector> {
    let Some(file) = scheme.setup().vectors.as_deref() else { return Vec::new() };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("providers").join(file);
    let all = vectors::read(&std::fs::read_to_string(path).unwrap()).unwrap();
    let is_accepted =
        |vector: &Vector| vector.expect == Expect::Accept && vector.kind != "handshake";
    all.into_iter().filter(is_accepted).collect()
}

#[test]
fn no_attempt_gets_past_the_verification() {
    let (mut tried, mut past) = (BTreeMap::<String, usize>::new(), Vec::new());
    let schemes = Scheme::embedded_names().map(|name| Scheme::embedded(name).unwrap());
    for scheme in schemes.filter(|scheme| !scheme.proof().is_absent()) {
        for vector in genuine(&scheme) {
            let headers = vector.headers();
            let Some(event) = judged(&scheme, &vector, &headers, vector.body.clone()) else {
                continue;
            };
            let tries = tried.entry(vector.provider.clone()).or_default();
            if scheme.proof().signs_content() && scheme.proof().signed_part().is_none() {
                for (attempt, change) in OF_BODY {
                    let body = change(&vector.body).into();
                    *tries += 1;
                    if body != vector.body && judged(&scheme, &vector, &headers, body).is_some() {
                        past.push(format!("{}: body {attempt}", vector.name));
                    }
                }
            }
            for (name, value) in headers.iter() {
                let Ok(value) = std::str::from_utf8(value) else { continue };
                for (attempt, change) in OF_VALUE {
                    let mut changed = Headers::new();
                    for (other, line) in headers.iter().filter(|(other, _)| *other != name) {
                        changed.push(other, line);
                    }
                    change(value).into_iter().for_each(|line| changed.push(name, line));
                    *tries += 1;
                    // What no signature covers may differ: a header that is kept, or an id that is not signed.
                    let same = |found: Verified| {
                        found.body() == event.body()
                            && (!event.id_signed() || found.event_id() == event.event_id())
                    };
                    if judged(&scheme, &vector, &changed, vector.body.clone())
                        .is_some_and(|found| !same(found))
                    {
                        past.push(format!("{}: {name} {attempt}", vector.name));
                    }
                }
            }
        }
    }
    println!("attempts by provider: {tried:?}");
    assert_eq!(past, Vec::<String>::new());
    assert!(tried.values().sum::<usize>() > 5_000, "{tried:?}");
}
