//! Signed requests with the verdict that each must get: those of the repository, made with the providers'
//! libraries, and the shared collection, if it is present.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use hooklatch::document::Problems;
use hooklatch::model::{Headers, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Key, Rejection, Request, Verified};
use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
struct Vector {
    provider: String,
    name: String,
    #[serde(default)]
    class: String,
    secrets: Vec<String>,
    method: String,
    url: Option<String>,
    headers: BTreeMap<String, Lines>,
    body_base64: String,
    now: i64,
    expect: String,
    expect_id: Option<String>,
    expect_type: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Lines {
    One(String),
    Many(Vec<String>),
}

impl Vector {
    fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        for (name, lines) in &self.headers {
            match lines {
                Lines::One(value) => headers.push(name, value.as_str()),
                Lines::Many(values) => values.iter().for_each(|v| headers.push(name, v.as_str())),
            }
        }
        headers
    }

    fn body(&self) -> Vec<u8> {
        data_encoding::BASE64.decode(self.body_base64.as_bytes()).unwrap()
    }

    fn keys(&self, scheme: &Scheme) -> Vec<Key> {
        self.secrets.iter().map(|text| verify::key(scheme, "literal:…", text).unwrap()).collect()
    }

    fn judge(&self, scheme: &Scheme) -> Result<Verified, Rejection> {
        judge(self, scheme, &self.keys(scheme), &self.headers(), self.body(), self.now)
    }
}

fn judge(
    vector: &Vector,
    scheme: &Scheme,
    keys: &[Key],
    headers: &Headers,
    body: Vec<u8>,
    now: i64,
) -> Result<Verified, Rejection> {
    let request = Request {
        method: &vector.method,
        url: vector.url.as_deref(),
        headers,
        body: Bytes::from(body),
    };
    verify::verify(scheme, keys, request, Timestamp(now * 1000))
}

fn read(path: &Path) -> Vec<Vector> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What is wrong with the verdict; `None` if it is right. Only the first level of a two-level type is
/// compared, because the vectors name only the header.
fn wrong(vector: &Vector, scheme: &Scheme) -> Option<String> {
    let verdict = vector.judge(scheme);
    let accepted = match (&verdict, vector.expect.as_str()) {
        (Ok(accepted), "accept") => accepted,
        (Err(_), "reject") => return None,
        (Ok(_), _) => return Some("accepted".to_owned()),
        (Err(rejection), _) => return Some(format!("{}: {rejection}", rejection.reason)),
    };
    let event_type = accepted.event_type();
    let whole = event_type.raw().unwrap_or(event_type.as_str());
    let first = if scheme.two_levels() { whole.split('.').next().unwrap() } else { whole };
    let id = accepted.event_id().as_str();
    let differs = |expected: &Option<String>, found: &[&str]| {
        expected.as_deref().is_some_and(|expected| !found.contains(&expected))
    };
    // What the vectors name here is a mail, an item or a transaction: each has several events, and all but the first
    // would be duplicates.
    let names_more =
        ["postmark", "webflow", "coinbase-cdp", "gocardless"].contains(&&*vector.provider);
    let other_id = !names_more && differs(&vector.expect_id, &[id]);
    if other_id || differs(&vector.expect_type, &[whole, first]) {
        return Some(format!("id {id}, type {whole}"));
    }
    None
}

/// The scheme that only the shared vectors use, declared as an operator would declare it.
fn scheme(name: &str) -> Option<Scheme> {
    let github = include_str!("../../providers/github.toml");
    let text = match name {
        "github-sha1" => github
            .replace("hmac-sha256", "hmac-sha1")
            .replace("X-Hub-Signature-256", "X-Hub-Signature")
            .replace("sha256=", "sha1="),
        embedded => return Scheme::embedded(embedded),
    };
    let problems = Problems::new();
    let scheme = Scheme::parse(name, &text, &problems);
    assert!(problems.is_empty(), "{:?}", problems.into_sorted());
    scheme
}

#[test]
fn every_built_in_provider_passes_its_vectors() {
    for name in Scheme::embedded_names() {
        let scheme = Scheme::embedded(name).unwrap_or_else(|| panic!("{name} is wrong"));
        let Some(file) = scheme.vectors() else { continue };
        let vectors = read(&manifest().join("providers").join(file));
        assert!(vectors.iter().any(|v| v.expect == "accept"), "{name} accepts nothing");
        for vector in &vectors {
            assert_eq!(vector.provider, name);
            assert_eq!(wrong(vector, &scheme), None, "{}", vector.name);
        }
        println!("{name}: {} vectors", vectors.len());
    }
}

#[test]
fn an_accepted_vector_is_refused_after_any_change() {
    let mut changed = 0;
    // A token is not a signature: it proves the sender but not the contents.
    let schemes = Scheme::embedded_names().map(|name| Scheme::embedded(name).unwrap());
    for scheme in schemes.filter(Scheme::signs) {
        let Some(file) = scheme.vectors() else { continue };
        let vectors = read(&manifest().join("providers").join(file));
        for vector in vectors.iter().filter(|v| v.expect == "accept") {
            changed += mutations(vector, &scheme);
        }
    }
    println!("{changed} changed requests, all refused");
    assert!(changed > 1_000);
}

/// Changes one part at a time; every changed request must be refused. Returns the number of changes.
fn mutations(vector: &Vector, scheme: &Scheme) -> usize {
    let (keys, headers, body) = (vector.keys(scheme), vector.headers(), vector.body());
    let mut tried = 0;
    let mut refused = |keys: &[Key], headers: &Headers, body: Vec<u8>, now, what: String| {
        tried += 1;
        let verdict = judge(vector, scheme, keys, headers, body, now);
        assert!(verdict.is_err(), "{} with {what} was accepted", vector.name);
    };
    let step = (body.len() / 40).max(1);
    for at in (0..body.len()).step_by(step) {
        let mut other = body.clone();
        other[at] ^= 1;
        refused(&keys, &headers, other, vector.now, format!("body byte {at} changed"));
    }
    let longer = [&body[..], b"\n"].concat();
    refused(&keys, &headers, longer, vector.now, "a newline more".to_owned());
    if let Some((_, shorter)) = body.split_last() {
        refused(&keys, &headers, shorter.to_vec(), vector.now, "a byte less".to_owned());
    }
    // If the header lists several signatures, the same byte of all of them is changed.
    let signature =
        ["stripe-signature", "x-hub-signature-256", "webhook-signature", "svix-signature"];
    let is_signature = |name: &str| signature.contains(&name.to_ascii_lowercase().as_str());
    let length = headers.iter().find(|(n, _)| is_signature(n)).map_or(0, |(_, v)| v.len());
    let separators = b", ";
    for offset in 0..length.min(24) {
        let mut other = Headers::new();
        for (name, value) in headers.iter() {
            let mut value = value.to_vec();
            if is_signature(name) {
                for item in value.split_mut(|b| separators.contains(b)) {
                    let at = item.len().saturating_sub(2 + offset);
                    if item.len() > 40 {
                        item[at] = if item[at] == b'0' { b'1' } else { b'0' };
                    }
                }
            }
            other.push(name, value);
        }
        refused(
            &keys,
            &other,
            body.clone(),
            vector.now,
            format!("signature byte -{offset} changed"),
        );
    }
    for at in 0..vector.secrets.iter().map(String::len).min().unwrap() {
        let other = |secret: &String| {
            let mut text = secret.clone().into_bytes();
            // Not 'A', whose bits are zero: in place of padding it would append a zero byte, and to HMAC a
            // short key is the same key with zero bytes appended.
            text[at] = if text[at] == b'B' { b'C' } else { b'B' };
            verify::key(scheme, "literal:…", &String::from_utf8(text).unwrap()).ok()
        };
        // An optional prefix is not part of the key, and a changed secret may not be base64.
        let other: Option<Vec<Key>> = vector.secrets.iter().map(other).collect();
        if let Some(other) = other {
            refused(&other, &headers, body.clone(), vector.now, format!("key byte {at} changed"));
        }
    }
    refused(&[], &headers, body.clone(), vector.now, "no key".to_owned());
    if scheme.name() != "github" {
        for seconds in [-86_400, -601, 601, 86_400] {
            refused(
                &keys,
                &headers,
                body.clone(),
                vector.now + seconds,
                format!("{seconds} s later"),
            );
        }
    }
    tried
}

#[test]
fn the_shared_vectors_get_the_expected_verdicts() {
    let folder = std::env::var_os("HOOKLATCH_SHARED_VECTORS")
        .map_or_else(|| manifest().join("../shared/vectors"), PathBuf::from);
    if !folder.is_dir() {
        println!("skipped: {} is not there", folder.display());
        return;
    }
    let (mut core, mut policy, mut skipped, mut bad) = (0, 0, BTreeMap::new(), Vec::new());
    for file in ["stripe", "github", "standard-webhooks", "others"] {
        for vector in read(&folder.join(format!("{file}.jsonl"))) {
            let Some(scheme) = scheme(&vector.provider) else {
                *skipped.entry(vector.provider).or_insert(0) += 1;
                continue;
            };
            let wrong = wrong(&vector, &scheme);
            match (vector.class.as_str(), wrong) {
                ("core", None) => core += 1,
                ("policy", None) => policy += 1,
                ("policy", Some(found)) => println!("differs: {}: {found}", vector.name),
                (_, Some(found)) => bad.push(format!("{}: {found}", vector.name)),
                (other, None) => panic!("unknown class {other}"),
            }
        }
    }
    println!("{core} core and {policy} policy vectors as expected; skipped {skipped:?}");
    assert_eq!(bad, Vec::<String>::new());
}
