//! Signed requests with the verdict that each must get: those of the repository, made with the providers'
//! libraries, and the shared collection, if it is present.

use std::collections::{BTreeMap, BTreeSet};
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
    scheme: String,
    #[serde(default)]
    class: String,
    secrets: Vec<String>,
    #[serde(default)]
    keys: serde_json::Map<String, serde_json::Value>,
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

    /// The texts of the secrets, which may be public keys.
    fn secrets(&self) -> Vec<String> {
        let public = ["ed25519_public", "ecdsa_public_spki_base64", "rsa_public_pem", "jwks"];
        let public = public.iter().filter_map(|name| self.keys.get(*name));
        let text =
            |key: &serde_json::Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        self.secrets.iter().cloned().chain(public.map(text)).collect()
    }

    fn keys(&self, scheme: &Scheme) -> Vec<Key> {
        let key = |text: &String| verify::key(scheme, "literal:…", text).unwrap();
        self.secrets().iter().map(key).collect()
    }

    /// The URL that is configured at the provider.
    fn url(&self) -> Option<&str> {
        self.url.as_deref().or_else(|| self.keys.get("audience")?.as_str())
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
    let request =
        Request { method: &vector.method, url: vector.url(), headers, body: Bytes::from(body) };
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

/// The scheme of a vector; one that only the shared vectors use is declared as an operator would declare it.
fn scheme(vector: &Vector) -> Option<Scheme> {
    let github = include_str!("../../providers/github.toml");
    let name = vector.provider.as_str();
    let text = match name {
        "github-sha1" => github
            .replace("hmac-sha256", "hmac-sha1")
            .replace("X-Hub-Signature-256", "X-Hub-Signature")
            .replace("sha256=", "sha1="),
        embedded => {
            let sender = vector.keys.get("email").and_then(|email| email.as_str());
            let scheme = Scheme::embedded(embedded)?;
            return Some(sender.map_or(scheme.clone(), |sender| scheme.with_sender(sender)));
        }
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
    let (mut changed, mut signing) = (0, BTreeSet::new());
    let own = Scheme::embedded_names().filter_map(|name| {
        let file = Scheme::embedded(name)?.vectors()?.to_owned();
        Some(manifest().join("providers").join(file))
    });
    for file in own.chain(shared()) {
        for vector in read(&file).iter().filter(|vector| vector.expect == "accept") {
            // A token is not a signature: it proves the sender but not the contents.
            let Some(scheme) = scheme(vector).filter(Scheme::signs) else { continue };
            if vector.judge(&scheme).is_ok() {
                changed += mutations(vector, &scheme);
                signing.insert(vector.provider.clone());
            }
        }
    }
    println!("{changed} changed requests of {} providers, all refused", signing.len());
    assert!(changed > 1_000);
}

/// Changes one part at a time; every changed request must be refused. Returns the number of changes.
fn mutations(vector: &Vector, scheme: &Scheme) -> usize {
    let (keys, headers, body) = (vector.keys(scheme), vector.headers(), vector.body());
    let mut tried = 0;
    let mut refused = |keys: &[Key], headers: &Headers, body: &[u8], now, what: &str| {
        tried += 1;
        let verdict = judge(vector, scheme, keys, headers, body.to_vec(), now);
        assert!(verdict.is_err(), "{} with {what} was accepted", vector.name);
    };
    let step = (body.len() / 40).max(1);
    for at in (0..body.len()).step_by(step) {
        let mut other = body.clone();
        other[at] ^= 1;
        refused(&keys, &headers, &other, vector.now, &format!("body byte {at} changed"));
    }
    refused(&keys, &headers, &[&body[..], b"\n"].concat(), vector.now, "a newline more");
    if let Some((_, shorter)) = body.split_last() {
        refused(&keys, &headers, shorter, vector.now, "a byte less");
    }
    let is_signature =
        |name: &str| scheme.signature_headers().any(|h| h.eq_ignore_ascii_case(name));
    // If there are several signatures, the same byte of all of them is changed.
    for offset in 1..=longest(&headers, is_signature) {
        let other = changed(&headers, is_signature, |item| {
            if let Some(at) =
                item.len().checked_sub(offset).filter(|_| item.len() >= SIGNATURE_BYTES)
            {
                item[at] = if item[at] == b'0' { b'1' } else { b'0' };
            }
        });
        refused(&keys, &other, &body, vector.now, &format!("signature byte -{offset} changed"));
    }
    // A time or an id that is signed, and a time among the signatures.
    let is_signed = |name: &str| !is_signature(name) && scheme.signs_header(name);
    let longest_signed = longest(&headers, is_signed);
    for offset in 1..=longest_signed {
        let other = changed(&headers, is_signed, |item| {
            if let Some(at) = item.len().checked_sub(offset) {
                item[at] ^= 1;
            }
        });
        refused(&keys, &other, &body, vector.now, &format!("signed byte -{offset} changed"));
    }
    let other = changed(&headers, is_signature, |item| {
        let Some(equals) = item.iter().position(|b| *b == b'=') else { return };
        let value = &mut item[equals + 1..];
        if (9..=13).contains(&value.len()) && value.iter().all(u8::is_ascii_digit) {
            *value.last_mut().unwrap() ^= 1;
        }
    });
    if other.iter().ne(headers.iter()) {
        refused(&keys, &other, &body, vector.now, "the time changed");
    }
    let secrets = vector.secrets();
    for at in 0..secrets.iter().map(String::len).min().unwrap() {
        let other = |secret: &String| {
            let mut text = secret.clone().into_bytes();
            // Not 'A', whose bits are zero: in place of padding it would append a zero byte, and to HMAC a
            // short key is the same key with zero bytes appended. And not the other case of a hex digit.
            text[at] = if text[at].eq_ignore_ascii_case(&b'B') { b'C' } else { b'B' };
            verify::key(scheme, "literal:…", &String::from_utf8(text).unwrap()).ok()
        };
        // An optional prefix is not part of the key, and a changed secret may be unreadable.
        let other: Option<Vec<Key>> = secrets.iter().map(other).collect();
        if let Some(other) = other {
            refused(&other, &headers, &body, vector.now, &format!("key byte {at} changed"));
        }
    }
    refused(&[], &headers, &body, vector.now, "no key");
    if let Some(tolerance) = scheme.tolerance() {
        // The time may itself be early or late by the tolerance.
        let outside = 2 * i64::try_from(tolerance.as_secs()).unwrap() + 1;
        // A token chooses its expiry.
        let outside = if vector.scheme.starts_with("jwt") { 86_400 } else { outside };
        for seconds in [-86_400 - outside, -outside, outside, 86_400 + outside] {
            refused(&keys, &headers, &body, vector.now + seconds, &format!("{seconds} s later"));
        }
    }
    tried
}

/// The shortest signature: SHA-1 in base64.
const SIGNATURE_BYTES: usize = 28;

/// The items of a header's value: signatures and what is beside them.
fn items(value: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    value.split_mut(|byte| b", ;".contains(byte))
}

/// The length of the longest item of these headers.
fn longest(headers: &Headers, wanted: impl Fn(&str) -> bool) -> usize {
    let values = headers.iter().filter(|(name, _)| wanted(name)).map(|(_, value)| value.to_vec());
    values
        .map(|mut value| items(&mut value).map(|item| item.len()).max().unwrap())
        .max()
        .unwrap_or(0)
}

/// The headers with `change` made to each item of these.
fn changed(
    headers: &Headers,
    wanted: impl Fn(&str) -> bool,
    change: impl Fn(&mut [u8]),
) -> Headers {
    let mut other = Headers::new();
    for (name, value) in headers.iter() {
        let mut value = value.to_vec();
        if wanted(name) {
            items(&mut value).for_each(&change);
        }
        other.push(name, value);
    }
    other
}

/// The files of the shared collection, if it is present.
fn shared() -> impl Iterator<Item = PathBuf> {
    let folder = std::env::var_os("HOOKLATCH_SHARED_VECTORS")
        .map_or_else(|| manifest().join("../shared/vectors"), PathBuf::from);
    let is_there = folder.is_dir();
    if !is_there {
        println!("skipped: {} is not there", folder.display());
    }
    let files = ["stripe", "github", "standard-webhooks", "others"];
    files
        .into_iter()
        .filter(move |_| is_there)
        .map(move |file| folder.join(format!("{file}.jsonl")))
}

#[test]
fn the_shared_vectors_get_the_expected_verdicts() {
    let (mut core, mut policy, mut skipped, mut bad) = (0, 0, BTreeMap::new(), Vec::new());
    for file in shared() {
        for vector in read(&file) {
            let Some(scheme) = scheme(&vector) else {
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
