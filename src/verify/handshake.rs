//! Answers a provider's challenges.
//!
//! [`judge`](super::judge) answers those that are signed, `http` asks for the others first. Must stay true: an answer
//! has no byte of a request but a value of printable ASCII; only a token is signed, and `signature` takes no content that
//! looks like one.

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::extract::Facts;
use super::keyed::tag;
use super::{Key, Rejection, signature};
use crate::model::{Answer, Headers, is_same_secret};
use crate::payload::one;
use crate::provider::handshake::{ChallengeProof, Handshake, Piece, Spot};
use crate::provider::{Algorithm, Mechanism, Scheme};

/// The longest value of a challenge.
const VALUE_BYTES: usize = 1024;

/// A request that may be a challenge without a signature.
#[derive(Debug, Clone, Copy)]
pub struct Challenge<'a> {
    pub method: &'a str,
    /// The source takes deliveries by this method.
    pub is_delivery: bool,
    /// The query as it was sent.
    pub query: Option<&'a str>,
    pub headers: &'a Headers,
    pub body: &'a [u8],
}

/// A challenge's answer, or why it gets none.
#[derive(Clone, PartialEq, Eq)]
pub struct Answered {
    pub answer: Result<Answer, Rejection>,
    pub signed: bool,
    /// The secret that the provider sends with it. It is answered only once the source has it.
    pub secret: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Answered {
    /// Writes the status, and not the value, which may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let status = self.answer.as_ref().map(|answer| answer.status);
        write!(f, "Answered({status:?}, signed: {})", self.signed)
    }
}

/// The source's `verify_token`. It is compared as it is written.
pub fn verify_token(reference: &str, text: &str) -> Key {
    Key {
        reference: reference.to_owned(),
        bytes: text.as_bytes().to_vec().into(),
        others: Vec::new(),
        public: Vec::new(),
    }
}

/// The rejection of a request that can be nothing but a challenge, and is not one.
pub fn no_challenge() -> Rejection {
    Rejection::malformed("bad_challenge", "it is not one of the provider's challenges")
}

/// Whether a request whose body has not arrived may be a challenge without a signature.
pub fn may_be_challenge(scheme: &Scheme, challenge: Challenge<'_>) -> bool {
    let in_head = |spot: &Spot| match spot {
        Spot::Query(_) => true,
        Spot::Request(place) => place.header().is_some(),
    };
    let found = Facts::none();
    unsigned(scheme, &challenge).any(|one| one.matches(&challenge, &found, in_head))
}

/// The answer to a challenge without a signature; `None` if the request is not one. `keys` are the source's secrets.
pub fn challenge(
    scheme: &Scheme,
    keys: &[Key],
    token: Option<&Key>,
    challenge: Challenge<'_>,
) -> Option<Answered> {
    let found = Facts::read(scheme, challenge.body);
    let mut all = unsigned(scheme, &challenge);
    let one = all.find(|one| one.matches(&challenge, &found, |_| true))?;
    let answer = one.answer(scheme, keys.first(), token, &challenge, &found);
    let is_registration = one.proof == ChallengeProof::Registration && answer.is_ok();
    let value = one.value.as_ref().filter(|_| is_registration);
    let secret = value.and_then(|spot| text(spot, &challenge, &found)).map(Zeroizing::new);
    Some(Answered { answer, signed: false, secret })
}

/// The answer to a request with a good signature, if it is a challenge. `key` made the signature.
pub(super) fn signed(
    scheme: &Scheme,
    key: Option<&Key>,
    headers: &Headers,
    found: &Facts<'_>,
) -> Option<Answered> {
    let request = Challenge { method: "POST", is_delivery: true, query: None, headers, body: &[] };
    let mut all = scheme.challenge().signed(true);
    let one = all.find(|one| one.matches(&request, found, |_| true))?;
    let answer = one.answer(scheme, key, None, &request, found);
    Some(Answered { answer, signed: true, secret: None })
}

/// The challenges without a signature that a request may be. A request by a method of deliveries is one only if it has
/// a form that no delivery has.
fn unsigned<'s>(
    scheme: &'s Scheme,
    request: &Challenge<'_>,
) -> impl Iterator<Item = &'s Handshake> {
    let Challenge { method, is_delivery, .. } = *request;
    let fits =
        move |one: &&Handshake| one.method == method && !(is_delivery && one.wanted.is_empty());
    scheme.challenge().signed(false).filter(fits)
}

/// The text at a place, if it is there once.
fn text(spot: &Spot, request: &Challenge<'_>, found: &Facts<'_>) -> Option<String> {
    match spot {
        Spot::Query(name) => {
            let all = form_urlencoded::parse(request.query?.as_bytes());
            let values = all.filter(|(field, _)| field == name).map(|(_, value)| value);
            Some(one(values).ok()??.into_owned())
        }
        Spot::Request(place) => match place.header() {
            Some(name) => {
                let value = one(request.headers.all(name)).ok()??;
                std::str::from_utf8(value).ok().map(str::to_owned)
            }
            None => found.at(place).ok()?,
        },
    }
}

impl Handshake {
    /// Whether the texts at the places that `counts` are those of this challenge.
    fn matches(
        &self,
        request: &Challenge<'_>,
        found: &Facts<'_>,
        counts: impl Fn(&Spot) -> bool,
    ) -> bool {
        let mut wanted = self.wanted.iter().filter(|(spot, _)| counts(spot));
        wanted.all(|(spot, wanted)| {
            let text = text(spot, request, found);
            text.is_some_and(|text| wanted.as_ref().is_none_or(|wanted| *wanted == text))
        })
    }

    fn answer(
        &self,
        scheme: &Scheme,
        key: Option<&Key>,
        token: Option<&Key>,
        request: &Challenge<'_>,
        found: &Facts<'_>,
    ) -> Result<Answer, Rejection> {
        let no_secret = || Rejection::unproven("no_secret", "the source has no secret");
        let no_token = || Rejection::unproven("no_secret", "the source has no verify_token");
        if let ChallengeProof::Token(spot) = &self.proof {
            let given = text(spot, request, found).unwrap_or_default();
            if !is_same_secret(given, &token.ok_or_else(no_token)?.bytes) {
                return Err(Rejection::unproven("bad_token", "it has another verify_token"));
            }
        }
        let bad = |detail: &str| Rejection::malformed("bad_challenge", detail);
        let value = match &self.value {
            Some(spot) => text(spot, request, found)
                .ok_or_else(|| bad("the value of the challenge is missing, or is there twice"))?,
            None => String::new(),
        };
        let printable = value.bytes().all(|b| matches!(b, b' '..=b'~'));
        if value.len() > VALUE_BYTES
            || !printable
            || (self.value.is_some() && value.trim().is_empty())
        {
            return Err(bad(
                "the value of the challenge is not 1 to 1024 characters of printable ASCII",
            ));
        }
        let tag = match scheme.proof().signature.as_ref().map(|signature| &signature.mechanism) {
            Some(Mechanism::Signed { algorithm: Algorithm::Hmac(hash), .. }) if self.is_keyed() => {
                if !signature::is_token(&[value.as_bytes()]) {
                    return Err(bad(
                        "the value is not a token of A-Z, a-z, 0-9, '_', '-', '+' and '/', which alone is signed",
                    ));
                }
                let key = key.and_then(|key| key.of(scheme)).ok_or_else(no_secret)?;
                tag(*hash, key, &[value.as_bytes()]).ok_or_else(no_secret)?
            }
            _ => Vec::new(),
        };
        if self.is_hex && !value.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(bad("the value is not hexadecimal digits in lower case"));
        }
        let mut lacks_token = false;
        let mut fill = |piece: &Piece| match piece {
            Piece::Literal(text) => text.clone(),
            Piece::Value if self.is_json => {
                let quoted = serde_json::Value::from(value.as_str()).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            Piece::Value => value.clone(),
            Piece::Sender => scheme.proof().senders.first().cloned().unwrap_or_default(),
            Piece::HmacBase64 => BASE64.encode(&tag),
            Piece::HmacHex => HEXLOWER.encode(&tag),
            Piece::TokenLines => token.map_or_else(
                || {
                    lacks_token = true;
                    String::new()
                },
                |token| hashed_lines(&token.bytes),
            ),
        };
        let mut headers = Headers::new();
        for (name, text) in &self.headers {
            headers.push(name, text.fill(&mut fill).trim());
        }
        let body = self.body.fill(&mut fill);
        if lacks_token {
            return Err(no_token());
        }
        if !body.is_empty() {
            let kind = if self.is_json { "application/json" } else { "text/plain; charset=utf-8" };
            headers.push("Content-Type", kind);
        }
        headers.push("X-Content-Type-Options", "nosniff");
        Answer::new(self.status, &headers, Bytes::from(body)).ok_or_else(|| bad("no such status"))
    }
}

/// SHA-256 of each line in hex, one a line.
fn hashed_lines(text: &[u8]) -> String {
    let lines = text.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    lines.map(|line| HEXLOWER.encode(&Sha256::digest(line))).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::document::Problems;
    use crate::model::Timestamp;
    use crate::provider::Hash;
    use crate::verify::{Genuine, Request, judge, key, verify};

    fn scheme(handshake: &str) -> Scheme {
        let text = format!(
            "name = \"x\"\n[signature]\nalgorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\n\
             signed = \"{{body}}\"\n[event]\nid = \"digest\"\n[[handshake]]\n{handshake}"
        );
        let problems = Problems::new();
        let scheme = Scheme::parse("p.toml", &text, &problems);
        assert!(problems.is_empty(), "{:?}", problems.into_sorted());
        scheme.unwrap()
    }

    fn get<'a>(query: &'a str, headers: &'a Headers) -> Challenge<'a> {
        Challenge { method: "GET", is_delivery: false, query: Some(query), headers, body: &[] }
    }

    #[test]
    fn a_value_is_at_most_1_kib_of_printable_ascii() {
        let scheme = scheme(
            "method = \"GET\"\nwhere = { \"query:c\" = \"*\" }\nproof = \"none\"\nvalue = \"query:c\"\nanswer = \"{value}\"",
        );
        let headers = Headers::new();
        let ask = |query: &str| challenge(&scheme, &[], None, get(query, &headers));
        let good = ask("c=a+b%3C&d=1").unwrap().answer.unwrap();
        assert_eq!(good.body, "a b<");
        assert_eq!(good.headers.all("x-content-type-options").next(), Some(&b"nosniff"[..]));
        assert_eq!(
            good.headers.all("content-type").next(),
            Some(&b"text/plain; charset=utf-8"[..])
        );
        for bad in ["c=", "c=%0d%0aX:%20y", "c=%C3%A4", "c=%00", &format!("c={}", "a".repeat(1025))]
        {
            assert_eq!(ask(bad).unwrap().answer.unwrap_err().reason, "bad_challenge", "{bad}");
        }
        assert!(ask(&format!("c={}", "a".repeat(1024))).unwrap().answer.is_ok());
        for other in ["", "d=1", "c=1&c=2"] {
            assert_eq!(ask(other), None, "{other}");
        }
    }

    #[test]
    fn a_json_answer_escapes_the_value() {
        let scheme = scheme(
            "method = \"GET\"\nwhere = { \"query:c\" = \"*\" }\nproof = \"none\"\nvalue = \"query:c\"\ntype = \"json\"\nanswer = '{\"c\":\"{value}\"}'",
        );
        let headers = Headers::new();
        let asked = challenge(&scheme, &[], None, get("c=%22,%22d%5C%22:1", &headers)).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&asked.answer.unwrap().body).unwrap();
        assert_eq!(json, serde_json::json!({"c": "\",\"d\\\":1"}));
    }

    #[test]
    fn content_that_looks_like_a_token_is_never_an_event_if_tokens_are_signed_for_anybody() {
        let keyed = "method = \"GET\"\nwhere = { \"query:c\" = \"*\" }\nproof = \"none\"\nvalue = \"query:c\"\ntype = \"json\"\nanswer = '{\"r\":\"{hmac-hex}\"}'";
        let plain = "method = \"GET\"\nwhere = { \"query:c\" = \"*\" }\nproof = \"none\"\nvalue = \"query:c\"\nanswer = \"{value}\"";
        for (handshake, is_oracle) in [(keyed, true), (plain, false)] {
            let scheme = scheme(handshake);
            let keys = [key(&scheme, "test", "secret").unwrap()];
            for (body, is_token) in [
                ("aZ_-9+/", true),
                ("a".repeat(128).as_str(), true),
                ("a".repeat(129).as_str(), false),
                ("a b", false),
                ("{}", false),
            ] {
                let tag = tag(Hash::Sha256, b"secret", &[body.as_bytes()]);
                let mut headers = Headers::new();
                headers.push("X-Sig", HEXLOWER.encode(&tag.unwrap()));
                let request = Request {
                    method: "POST",
                    url: None,
                    headers: &headers,
                    body: Bytes::copy_from_slice(body.as_bytes()),
                };
                let judged = verify(&scheme, &keys, request, Timestamp(0));
                assert_eq!(judged.is_err(), is_oracle && is_token, "{body}");
                let query = format!("c={}", body.replace('+', "%2B").replace(' ', "+"));
                let none = Headers::new();
                let asked = challenge(&scheme, &keys, None, get(&query, &none)).unwrap();
                assert_eq!(asked.answer.is_ok(), is_token || !is_oracle, "{body}");
            }
        }
    }

    /// What a challenge or a delivery may have signed.
    const TEXTS: [&str; 5] = ["0af3", "aZ_-9+/", "{\"a\":1}", "v0:1767225600:{}", "PG4+PC9uPg==\n"];

    /// The delivery whose signed text this is, with the HMAC that a challenge of the text would get, if it is genuine.
    fn delivered(scheme: &Scheme, keys: &[Key], text: &str) -> Option<Genuine> {
        let hmac = |hash| tag(hash, keys[0].of(scheme).unwrap(), &[text.as_bytes()]).unwrap();
        let mut headers = Headers::new();
        let body = match scheme.name() {
            "braintree" => {
                let signature = format!("own|{}", HEXLOWER.encode(&hmac(Hash::Sha1)));
                let mut form = form_urlencoded::Serializer::new(String::new());
                form.append_pair("bt_signature", &signature).append_pair("bt_payload", text);
                form.finish()
            }
            "x-twitter" => {
                for name in ["x-twitter-webhooks-signature", "x-twitter-webhooks-signature-oauth2"]
                {
                    headers.push(name, format!("sha256={}", BASE64.encode(&hmac(Hash::Sha256))));
                }
                text.to_owned()
            }
            _ => {
                let (stamp, body) = text.strip_prefix("v0:")?.split_once(':')?;
                headers.push("x-zm-request-timestamp", stamp);
                let signature = format!("v0={}", HEXLOWER.encode(&hmac(Hash::Sha256)));
                headers.push("x-zm-signature", signature);
                body.to_owned()
            }
        };
        let request =
            Request { method: "POST", url: None, headers: &headers, body: Bytes::from(body) };
        judge(scheme, keys, request, Timestamp(1_767_225_600_000), None).ok()
    }

    /// Whether a challenge gets the HMAC of the text.
    fn is_answered(scheme: &Scheme, keys: &[Key], text: &str) -> bool {
        let answered = |name: &str| {
            let value: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
            let (query, headers) = (format!("{name}={value}"), Headers::new());
            challenge(scheme, keys, None, get(&query, &headers)).unwrap().answer.is_ok()
        };
        match scheme.name() {
            "braintree" => answered("bt_challenge"),
            "x-twitter" => answered("crc_token"),
            _ => {
                let payload = serde_json::json!({ "plainToken": text });
                let body =
                    serde_json::json!({ "event": "endpoint.url_validation", "payload": payload });
                match delivered(scheme, keys, &format!("v0:1767225600:{body}")) {
                    Some(Genuine::Challenge(answered)) => answered.answer.is_ok(),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn what_a_keyed_challenge_signs_is_never_the_signed_text_of_a_delivery() {
        let all = Scheme::embedded_names().filter_map(Scheme::embedded);
        let keyed = all.filter(|scheme| scheme.challenge().0.iter().any(Handshake::is_keyed));
        let mut names = Vec::new();
        for scheme in keyed.map(|scheme| scheme.with_sender("own")) {
            let (name, keys) = (scheme.name(), [key(&scheme, "test", "secret").unwrap()]);
            let answered = TEXTS.map(|text| is_answered(&scheme, &keys, text));
            let genuine = TEXTS
                .map(|text| matches!(delivered(&scheme, &keys, text), Some(Genuine::Event(..))));
            assert!(answered.contains(&true) && genuine.contains(&true), "{name}");
            for (nth, text) in TEXTS.iter().enumerate() {
                assert!(!(answered[nth] && genuine[nth]), "{name}: {text}");
            }
            names.push(name.to_owned());
        }
        assert_eq!(names, ["braintree", "x-twitter", "zoom"], "each has its delivery here");
    }

    #[test]
    fn only_the_hashes_of_the_lines_are_shown() {
        let scheme =
            scheme("method = \"GET\"\nproof = \"none\"\nanswer = \"{verify_token-sha256}\"");
        let headers = Headers::new();
        let ask = |token: Option<&Key>| challenge(&scheme, &[], token, get("", &headers)).unwrap();
        assert_eq!(ask(None).answer.unwrap_err().reason, "no_secret");
        let token = verify_token("file:x", "7i6HN3TK9wS159v2gPAZ8A\r\n\n*\n");
        let body = ask(Some(&token)).answer.unwrap().body;
        let lines: Vec<&[u8]> = body.split(|&b| b == b'\n').collect();
        assert_eq!(lines[0], b"6db2d1c383f7583dbeb21047407f2b049986b13e0ea48c2029505ca01aa7636e");
        assert!(lines.len() == 2 && lines[1].len() == 64, "a star is a line like any other");
    }
}
