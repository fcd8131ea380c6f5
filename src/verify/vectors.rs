//! Vectors: requests with the verdict that each must get, to test a provider's file.
//!
//! `providers test` and the tests run them with [`judge`]. Pure: takes the text of a file
//! of JSON lines.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use data_encoding::BASE64;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Challenge, Genuine, HANDSHAKE, Key, Rejection, Request, Verified, challenge, judge, key,
    may_be_challenge, prove, signature, verify_token,
};
use crate::model::{Answer, Headers, Timestamp};
use crate::payload::walk::walk;
use crate::provider::Scheme;
use crate::provider::template::Part;

/// The members of `keys` that are public keys.
const PUBLIC_KEYS: [&str; 5] =
    ["certificate_pem", "ed25519_public", "ecdsa_public_spki_base64", "rsa_public_pem", "jwks"];

/// The shortest number of a key in a key set: 32 bytes in base64url.
const KEY_CHARS: usize = 43;

/// Two days, in seconds.
const DAYS_SECS: u64 = 172_800;

/// How many bytes at the beginning of a text or body are changed one by one.
const EACH_BYTE: usize = 4096;

/// About how many bytes are changed after those, at equal distances.
const LATER_BYTES: usize = 64;

/// One line of a file of vectors; other members are ignored.
#[derive(Debug, Clone, Deserialize)]
pub struct Vector {
    /// The provider's name.
    pub provider: String,
    pub name: String,
    /// The construct that it needs, such as `hmac-sha256/hex`.
    #[serde(default)]
    pub scheme: String,
    #[serde(default)]
    pub class: String,
    /// `handshake` for a challenge; else an event.
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    secrets: Vec<String>,
    /// Public keys and other settings of the source.
    #[serde(default)]
    pub keys: serde_json::Map<String, Value>,
    pub method: String,
    /// The path of the request, with its query.
    #[serde(default)]
    pub path: String,
    pub url: Option<String>,
    headers: BTreeMap<String, Lines>,
    body_base64: String,
    /// When to judge it, in seconds since 1970.
    pub now: i64,
    pub expect: Expect,
    /// `None` is not checked.
    pub expect_id: Option<String>,
    pub expect_type: Option<String>,
    /// The answer to a challenge.
    pub expect_response: Option<Response>,
    #[serde(skip)]
    pub body: Bytes,
}

/// The answer to a challenge.
#[derive(Debug, Clone, Deserialize)]
pub struct Response {
    pub status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    json: Option<Value>,
}

/// The verdict that a vector must get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    Accept,
    Reject,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Lines {
    One(String),
    Many(Vec<String>),
}

/// Reads JSON lines.
///
/// # Errors
/// Names the first line that is not a vector, and says what is wrong with it. Quotes no value of it, which may be a
/// secret.
pub fn read(text: &str) -> Result<Vec<Vector>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let vector = |(at, line): (usize, &str)| {
        let wrong = |error: &dyn std::fmt::Display| format!("line {}: {error}", at + 1);
        let vector: Vector =
            serde_json::from_str(line).map_err(|error| wrong(&unquoted(&error)))?;
        let body = BASE64.decode(vector.body_base64.as_bytes());
        let body = body.map_err(|error| wrong(&format_args!("body_base64: {error}")))?;
        Ok(Vector { body: body.into(), ..vector })
    };
    lines.map(vector).collect()
}

/// The error of a reader without the value at fault, which serde quotes before what it expected.
fn unquoted(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => text,
    }
}

/// What came of changing an accepted request.
#[derive(Debug, Default)]
pub struct Mutations {
    /// How many changed requests were judged.
    pub tried: usize,
    /// The changes that were not noticed.
    pub accepted: Vec<String>,
}

impl Vector {
    pub fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        for (name, lines) in &self.headers {
            match lines {
                Lines::One(value) => headers.push(name, value.as_str()),
                Lines::Many(values) => values.iter().for_each(|v| headers.push(name, v.as_str())),
            }
        }
        headers
    }

    /// The texts of its secrets, which may be public keys; any may match.
    pub fn secrets(&self) -> Vec<String> {
        let public = PUBLIC_KEYS.iter().filter_map(|name| self.keys.get(*name));
        let text = |key: &Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        self.secrets.iter().cloned().chain(public.map(text)).collect()
    }

    /// The URL that is configured at the provider.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref().or_else(|| self.keys.get("audience")?.as_str())
    }

    /// The keys of its secrets; none for an unsigned scheme.
    ///
    /// # Errors
    /// Says which form a secret does not have.
    pub fn keys(&self, scheme: &Scheme) -> Result<Vec<Key>, String> {
        let secrets = self.secrets().into_iter().filter(|_| !scheme.proof().is_absent());
        secrets.map(|text| key(scheme, "the vector's secret", &text)).collect()
    }

    fn request(&self, scheme: &Scheme) -> Result<Changeable, String> {
        Ok(Changeable {
            keys: self.keys(scheme)?,
            method: self.method.clone(),
            url: self.url().map(str::to_owned),
            headers: self.headers(),
            body: self.body.clone(),
            now: self.now,
        })
    }

    /// The scheme for a source that takes the vector's sender.
    fn scheme_of<'s>(&self, scheme: &'s Scheme) -> Cow<'s, Scheme> {
        match self.keys.get("sender").and_then(Value::as_str) {
            Some(sender) => Cow::Owned(scheme.clone().with_sender(sender)),
            None => Cow::Borrowed(scheme),
        }
    }

    /// What is wrong with the verdict on it; `None` if it is as expected. Of a type with two levels the
    /// vector may name the first only.
    pub fn wrong(&self, scheme: &Scheme) -> Option<String> {
        let scheme = &self.scheme_of(scheme);
        if self.kind == "handshake" {
            return self.wrong_answer(scheme);
        }
        let verdict = match self.request(scheme) {
            Ok(request) => request.judge(scheme),
            Err(wrong) => return Some(wrong),
        };
        let accepted = match (verdict, self.expect) {
            (Ok(Some(accepted)), Expect::Accept) => accepted,
            (Ok(None), Expect::Accept) => return self.expect_id.clone(),
            (Err(_), Expect::Reject) => return None,
            (Ok(_), Expect::Reject) => return Some("accepted, but must be refused".to_owned()),
            (Err(Rejection { reason, detail, .. }), Expect::Accept) => {
                return Some(format!("refused: {reason}: {detail}"));
            }
        };
        let event_type = accepted.event_type();
        let whole = event_type.raw().unwrap_or(event_type.as_str());
        let first =
            whole.split('.').next().filter(|_| scheme.identity().two_levels()).unwrap_or(whole);
        let differs = |what: &str, expected: &Option<String>, found: &[&str]| {
            let expected = expected.as_deref().filter(|expected| !found.contains(expected))?;
            Some(format!("the {what} is {}, not {expected}", found.first()?))
        };
        differs("id", &self.expect_id, &[accepted.event_id().as_str()])
            .or_else(|| differs("type", &self.expect_type, &[whole, first]))
    }

    /// What is wrong with the answer to a challenge; `None` if it is as expected, to the byte.
    fn wrong_answer(&self, scheme: &Scheme) -> Option<String> {
        let answer = match (self.answer(scheme), self.expect) {
            (Err(status), Expect::Reject) => {
                let wanted = self.expect_response.as_ref().is_none_or(|own| own.status == status);
                return (!wanted).then(|| format!("refused with {status}"));
            }
            // A subscription to confirm is an event, which a person answers.
            (Err(200), Expect::Accept) if self.expect_response.is_none() => return None,
            (Err(status), Expect::Accept) => return Some(format!("refused with {status}")),
            (Ok(_), Expect::Reject) => return Some("answered, but must be refused".to_owned()),
            (Ok(answer), Expect::Accept) => answer,
        };
        let Some(wanted) = &self.expect_response else { return None };
        fn header<'a>(answer: &'a Answer, name: &'a str) -> Option<&'a [u8]> {
            answer.headers.all(name).next()
        }
        let is_json = header(&answer, "content-type") == Some(b"application/json");
        let body_fits = match (&wanted.body, &wanted.json) {
            (Some(text), _) => answer.body == *text && !is_json,
            (None, Some(json)) => {
                is_json && serde_json::from_slice::<Value>(&answer.body).ok().as_ref() == Some(json)
            }
            (None, None) => true,
        };
        let has =
            |(name, value): (&String, &String)| header(&answer, name) == Some(value.as_bytes());
        let fits = answer.status == wanted.status
            && wanted.headers.iter().all(has)
            && header(&answer, "x-content-type-options") == Some(b"nosniff")
            && body_fits;
        (!fits).then(|| format!("answered otherwise: {answer:?}"))
    }

    /// The answer to a challenge, or the status of its refusal.
    fn answer(&self, scheme: &Scheme) -> Result<Answer, u16> {
        let headers = self.headers();
        let keys = self.keys(scheme).map_err(|_| 401_u16)?;
        let token = ["verify_token", "service_id"].iter().find_map(|name| self.keys.get(*name));
        let token = token.and_then(Value::as_str).map(|text| verify_token("the vector's", text));
        let query = self.path.split_once('?').map(|(_, query)| query);
        let asked = Challenge {
            method: &self.method,
            is_delivery: self.method == "POST",
            query,
            headers: &headers,
            body: &self.body,
        };
        // As `http` answers.
        let status = |rejection: Rejection| match rejection.reason {
            "bad_token" => 403,
            _ if rejection.malformed => 400,
            _ => 401,
        };
        let unsigned = may_be_challenge(scheme, asked)
            .then(|| challenge(scheme, &keys, token.as_ref(), asked))
            .flatten();
        if let Some(answered) = unsigned {
            return answered.answer.map_err(status);
        }
        let request = Request {
            method: &self.method,
            url: self.url(),
            headers: &headers,
            body: self.body.clone(),
        };
        let now = Timestamp(self.now.saturating_mul(1000));
        match judge(scheme, &keys, request, now, None).map_err(status)? {
            Genuine::Challenge(answered) => answered.answer.map_err(status),
            Genuine::Event(..) => Err(200),
        }
    }

    /// Changes one thing of an accepted request at a time: each byte of the signed content, of each
    /// signature, time and secret; the time at which it is judged; whether there is a secret. All changed
    /// requests must be refused. A long body is changed at some places only.
    pub fn mutations(&self, scheme: &Scheme) -> Mutations {
        let scheme = &self.scheme_of(scheme);
        let mut found = Mutations::default();
        let Ok(genuine) = self.request(scheme) else { return found };
        let proof = genuine.family(scheme).proof();
        let Some(signature) = &proof.signature else { return found };
        let mut change = |what: &str, at: usize, change: &dyn Fn(&mut Changeable) -> Option<()>| {
            let mut changed = genuine.clone();
            if change(&mut changed).is_some() {
                found.tried += 1;
                if changed.judge(scheme).is_ok() {
                    found.accepted.push(format!("{what} {at}"));
                }
            }
        };
        // All signatures at once, because each of several may be good.
        let names = signature.headers.as_slice();
        let split = |line: &str| {
            let (values, stamps) = signature::split(proof, signature, line);
            [values, stamps].map(|texts| texts.into_iter().map(str::to_owned).collect::<Vec<_>>())
        };
        for (part, what) in ["signature byte", "time byte"].into_iter().enumerate() {
            let texts = |line: &str| split(line).into_iter().nth(part).unwrap_or_default();
            let lines = names.iter().flat_map(|name| genuine.headers.all(name));
            let texts_of_all = lines.filter_map(|v| std::str::from_utf8(v).ok()).flat_map(texts);
            for at in places(texts_of_all.map(|text| text.len()).max()) {
                change(what, at, &|request| {
                    request.change_lines(names, |line| {
                        texts(line).iter().fold(line.to_owned(), |line, text| {
                            let at = at.min(text.len().saturating_sub(1));
                            line.replace(text.as_str(), &altered(text, at))
                        })
                    })
                });
            }
        }
        let secrets = self.secrets();
        for at in places(secrets.iter().map(String::len).min()) {
            change("secret byte", at, &|request| {
                secrets.iter().all(|text| is_of_key(text, at)).then_some(())?;
                // The changed text may not have the form of a secret.
                let keys = secrets.iter().map(|text| key(scheme, "", &altered(text, at)).ok());
                request.keys = keys.collect::<Option<_>>()?;
                Some(())
            });
        }
        change("no secret", 0, &|request| {
            request.keys.clear();
            Some(())
        });
        // The time may be off by the tolerance in the other direction already. A proof that names its own
        // expiry is refused after days.
        let near = proof.timestamp.iter().map(|stamp| stamp.tolerance.as_secs() * 2 + 1);
        let far = proof.tolerance().map(|time| time.as_secs() * 2 + DAYS_SECS);
        for seconds in near.chain(far) {
            for (what, now) in [
                ("later by seconds", self.now.saturating_add_unsigned(seconds)),
                ("earlier by seconds", self.now.saturating_sub_unsigned(seconds)),
            ] {
                change(what, usize::try_from(seconds).unwrap_or(usize::MAX), &|request| {
                    request.now = now;
                    Some(())
                });
            }
        }
        let Some(signed) = proof.signed_content() else { return found };
        let headers = signed.headers().chain(proof.signed_id_header());
        for name in headers.chain(proof.time_header()) {
            for at in places(genuine.headers.all(name).map(<[u8]>::len).max()) {
                change(&format!("header {name} byte"), at, &|request| {
                    request.change_lines(&[name.to_owned()], |line| altered(line, at))
                });
            }
        }
        if signed.has(&Part::Method) {
            change("method byte", 0, &|request| {
                request.method = altered(&request.method, 0);
                Some(())
            });
        }
        let signs_url = proof.signs_url();
        // Of a URL whose path is signed, scheme and host are not.
        let host = |url: &str| url.splitn(4, '/').take(3).map(|part| part.len() + 1).sum::<usize>();
        let from = self.url().filter(|_| signed.has(&Part::Path)).map_or(0, |url| host(url) - 1);
        let in_url = places(self.url().filter(|_| signs_url).map(str::len));
        for at in in_url.into_iter().filter(|at| *at >= from) {
            change("url byte", at, &|request| {
                request.url = Some(altered(request.url.as_deref()?, at));
                Some(())
            });
        }
        let field = signature.field.iter();
        for pointer in signed.pointers().chain(field) {
            let mut range = 0..0;
            walk(&self.body, std::iter::once((0, pointer)), |_, raw| {
                let begin = raw.map_or(0, |raw| raw.as_ptr().addr() - self.body.as_ptr().addr());
                range = begin..begin + raw.map_or(0, str::len);
            });
            for at in range {
                change("signed byte of the body", at, &|request| {
                    let mut body = request.body.to_vec();
                    let byte = body.get_mut(at).filter(|byte| byte.is_ascii_alphanumeric())?;
                    *byte = if *byte == b'0' { b'1' } else { b'0' };
                    request.body = body.into();
                    Some(())
                });
            }
        }
        // Of a form with one signed field every byte counts: there is no other field, and the signature's is one.
        let is_whole = signed.has(&Part::Body) || signed.field().is_some();
        if !(is_whole || signed.has(&Part::Crc32)) {
            return found;
        }
        let length = self.body.len();
        for at in places(Some(length)) {
            change("body byte", at, &|request| {
                let mut body = request.body.to_vec();
                *body.get_mut(at)? ^= 1;
                request.body = body.into();
                Some(())
            });
        }
        change("a byte after the body's", length, &|request| {
            request.body = [&request.body[..], b"\n"].concat().into();
            Some(())
        });
        change("without the body byte", length, &|request| {
            request.body = request.body.slice(..length.checked_sub(1)?);
            Some(())
        });
        found
    }
}

/// A request with the keys and the time to judge it by.
#[derive(Clone)]
struct Changeable {
    keys: Vec<Key>,
    method: String,
    url: Option<String>,
    headers: Headers,
    body: Bytes,
    now: i64,
}

impl Changeable {
    fn request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            url: self.url.as_deref(),
            headers: &self.headers,
            body: self.body.clone(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now.saturating_mul(1000))
    }

    /// The form of the scheme that proves the request; the file's own if none does.
    fn family<'s>(&self, scheme: &'s Scheme) -> &'s Scheme {
        let request = self.request();
        let proven = prove(scheme, &self.keys, &request, self.now());
        let family = proven.map_or(0, |(family, ..)| family.family());
        scheme.families().nth(family).unwrap_or(scheme)
    }

    /// The first event; `None` of an empty list.
    fn judge(&self, scheme: &Scheme) -> Result<Option<Verified>, Rejection> {
        match judge(scheme, &self.keys, self.request(), self.now(), Some("new"))? {
            Genuine::Event(events, _) => Ok(events.into_iter().next()),
            Genuine::Challenge(_) => {
                Err(Rejection::malformed(HANDSHAKE, "it is a challenge and no event"))
            }
        }
    }

    /// Changes every line of these headers.
    fn change_lines(&mut self, names: &[String], change: impl Fn(&str) -> String) -> Option<()> {
        let mut changed = Headers::new();
        for (name, value) in self.headers.iter() {
            match std::str::from_utf8(value) {
                Ok(text) if super::listed(names, name) => changed.push(name, change(text)),
                _ => changed.push(name, value),
            }
        }
        self.headers = changed;
        Some(())
    }
}

/// Whether this byte of a secret is of a key: a key set in JSON has names and short members too.
fn is_of_key(secret: &str, at: usize) -> bool {
    let Some((before, after)) = secret.split_at_checked(at) else { return false };
    let length = |text: Option<&str>| text.map_or(0, str::len);
    let string = length(before.rsplit('"').next()) + length(after.split('"').next());
    !secret.starts_with('{') || string >= KEY_CHARS
}

/// The bytes to change of so many.
fn places(length: Option<usize>) -> impl Iterator<Item = usize> {
    let length = length.unwrap_or(0);
    let step = (length.saturating_sub(EACH_BYTE) / LATER_BYTES).max(1);
    (0..length.min(EACH_BYTE)).chain((EACH_BYTE..length).step_by(step))
}

/// The text with another byte at `at`: a digit, which is hex, base64 and a number too.
fn altered(text: &str, at: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    if let Some(byte) = bytes.get_mut(at) {
        *byte = if *byte == b'0' { b'1' } else { b'0' };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
