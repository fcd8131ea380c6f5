//! Challenges to each provider that sends some. The first three lines of the input are the provider's name, the
//! method and the query; header lines follow up to an empty line, and then the body.

use std::sync::LazyLock;

use bytes::Bytes;
use hooklatch::model::{Headers, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Answered, Challenge, Genuine, Key, Request};

static SCHEMES: LazyLock<Vec<(Scheme, Option<Key>)>> = LazyLock::new(|| {
    let all = Scheme::embedded_names().filter_map(Scheme::embedded);
    let sends = |scheme: &Scheme| {
        scheme.challenge().methods().next().is_some()
            || ["slack", "twitch", "zoom"].contains(&scheme.name())
    };
    let with_key = |scheme: Scheme| {
        let key = verify::key(&scheme, "test", "a secret").ok();
        (scheme, key)
    };
    all.filter(sends).map(with_key).collect()
});

pub(super) fn check(data: &[u8]) {
    let (name, rest) = super::line(data);
    let (method, rest) = super::line(rest);
    let (query, mut rest) = super::line(rest);
    let named = SCHEMES.iter().find(|(scheme, _)| scheme.name().as_bytes() == name);
    let nth = usize::from(name.first().copied().unwrap_or(0)) % SCHEMES.len();
    let (scheme, key) = named.unwrap_or(&SCHEMES[nth]);
    let mut headers = Headers::new();
    while !rest.is_empty() {
        let (line, behind) = super::line(rest);
        rest = behind;
        if line.is_empty() {
            break;
        }
        Headers::from_wire(line).iter().for_each(|(name, value)| headers.push(name, value));
    }
    let (method, query) = (String::from_utf8_lossy(method), String::from_utf8_lossy(query));
    let challenge = Challenge {
        method: &method,
        is_delivery: method == "POST",
        query: Some(&query),
        headers: &headers,
        body: rest,
    };
    let token = verify::verify_token("test", "a token");
    let keys: Vec<Key> = key.iter().cloned().collect();
    if let Some(answered) = verify::challenge(scheme, &keys, Some(&token), challenge) {
        assert!(verify::may_be_challenge(scheme, challenge), "it was not expected by its head");
        is_harmless(&answered);
        is_no_signature(scheme, &keys, &answered);
    }
    let body = Bytes::copy_from_slice(rest);
    let request = Request { method: "POST", url: None, headers: &headers, body };
    if let Ok(Genuine::Challenge(answered)) =
        verify::judge(scheme, &keys, request, Timestamp(0), None)
    {
        is_harmless(&answered);
    }
}

/// An answer is neither a page nor another header, whatever was asked.
fn is_harmless(answered: &Answered) {
    let Ok(answer) = &answered.answer else { return };
    assert!((200..=204).contains(&answer.status));
    let printable = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    assert!(answer.headers.iter().all(|(_, value)| printable(value)));
    let value = |name| answer.headers.all(name).next();
    assert_eq!(value("x-content-type-options"), Some(b"nosniff".as_slice()));
    assert!(answer.body.len() < 4096);
    match value("content-type") {
        None => assert!(answer.body.is_empty()),
        Some(b"application/json") => {
            let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            let members = json.as_object().unwrap().len();
            assert!((1..=2).contains(&members), "the value added a member");
        }
        Some(kind) => {
            assert_eq!(kind, b"text/plain; charset=utf-8");
            assert!(printable(&answer.body));
        }
    }
}

/// The HMAC in an answer without a signature does not prove an event.
fn is_no_signature(scheme: &Scheme, keys: &[Key], answered: &Answered) {
    let Ok(answer) = &answered.answer else { return };
    let Some(tag) = std::str::from_utf8(&answer.body)
        .ok()
        .and_then(|text| text.strip_prefix(r#"{"response_token":""#)?.strip_suffix(r#""}"#))
    else {
        return;
    };
    let mut headers = Headers::new();
    headers.push("x-twitter-webhooks-signature", tag);
    for body in ["token", "a", "crc_token", "{}", ""] {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let request = Request { method: "POST", url: None, headers: &headers, body };
        assert!(verify::verify(scheme, keys, request, Timestamp(0)).is_err());
    }
}
