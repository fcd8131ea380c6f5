//! Signatures over parts of a body: forms, places, lines, a checksum; and signatures in the body.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use data_encoding::{HEXLOWER, HEXUPPER};
use sha2::{Digest as _, Sha256};

use super::tag;
use crate::document::Problems;
use crate::limits::SORTED_FIELDS_COUNT;
use crate::model::{Headers, Timestamp};
use crate::provider::{Hash, Scheme};
use crate::verify::{Key, Rejection, Request, Verified, key, verify};

const URL: &str = "https://example.com/in";
const NOW: Timestamp = Timestamp(1_767_225_600_000);

fn scheme(signature: &str, event: &str) -> Scheme {
    let text = format!(
        "name = \"own\"\n[signature]\nalgorithm = \"hmac-sha256\"\nencoding = \"hex\"\n{signature}\n[event]\n{event}\n"
    );
    let problems = Problems::new();
    let scheme = Scheme::parse("own.toml", &text, &problems);
    assert!(problems.is_empty(), "{:?}", problems.into_sorted());
    scheme.unwrap()
}

fn hmac(content: &str) -> String {
    HEXLOWER.encode(&tag(Hash::Sha256, b"secret", &[content]).unwrap())
}

fn judge(scheme: &Scheme, signature: &str, url: &str, body: &[u8]) -> Result<Verified, Rejection> {
    let keys: Vec<Key> = vec![key(scheme, "test", "secret").unwrap()];
    let mut headers = Headers::new();
    headers.push("X-Sig", signature);
    let body = Bytes::copy_from_slice(body);
    let request = Request { method: "POST", url: Some(url), headers: &headers, body };
    verify(scheme, &keys, request, NOW)
}

fn reason(judged: Result<Verified, Rejection>) -> &'static str {
    judged.unwrap_err().reason
}

fn form() -> Scheme {
    scheme(
        "header = \"X-Sig\"\nsigned = \"{url}{form}\"\nbody_digest = \"hash\"",
        "id = \"digest\"\ntype = \"form:kind\"",
    )
}

#[test]
fn a_signed_query_must_be_one_of_public_url() {
    let own = [Some("team=a".to_owned()), None];
    let scheme = form().with_queries(&own);
    let digest = HEXLOWER.encode(&Sha256::digest(b"{}"));
    let judged = |query: &str, signed: &str, body: &[u8]| {
        let url = format!("{URL}{query}");
        judge(&scheme, &hmac(&format!("{url}{signed}")), &url, body).map_err(|error| error.reason)
    };
    for query in ["", "?team=a"] {
        assert!(judged(query, "kindx", b"kind=x").is_ok(), "{query}");
    }
    assert!(judged(&format!("?hash={digest}"), "", b"{}").is_ok());
    assert!(judged(&format!("?team=a&hash={digest}"), "", b"{}").is_ok());
    for query in ["?team=b", "?team=a&x=1", "?team=akind", "?team=a&", "?", "?hash=00"] {
        assert_eq!(judged(query, "kindx", b"kind=x").unwrap_err(), "ambiguous_part", "{query}");
    }
    assert_eq!(judged("", "?team=akindx", b"%3Fteam=akindx").unwrap_err(), "ambiguous_part");
}

#[test]
fn a_non_form_body_needs_its_digest_in_the_query() {
    let scheme = form();
    let judged = |kind: &str| {
        let keys = vec![key(&scheme, "test", "secret").unwrap()];
        let mut headers = Headers::new();
        headers.push("X-Sig", hmac(&format!("{URL}kindx")));
        headers.push("Content-Type", kind);
        let body = Bytes::from_static(b"kind=x");
        let request = Request { method: "POST", url: Some(URL), headers: &headers, body };
        verify(&scheme, &keys, request, NOW).map_err(|error| error.reason)
    };
    assert!(judged("application/x-www-form-urlencoded; charset=UTF-8").is_ok());
    assert_eq!(judged("application/json").unwrap_err(), "ambiguous_part");
}

#[test]
fn the_other_port_of_a_url_is_not_in_its_password() {
    for (url, other) in [
        ("https://n:p@h.example/x", "https://n:p@h.example:443/x"),
        ("https://n:p@h.example:443/x", "https://n:p@h.example/x"),
        ("http://[::1]/x", "http://[::1]:80/x"),
    ] {
        assert_eq!(super::other_port(url), other);
    }
}

#[test]
fn a_form_whose_field_is_known_has_it_alone() {
    let scheme = scheme(
        "header = \"X-Sig\"\nsigned = \"{url}{form}\"",
        "id = \"digest\"\nform_field = \"payload\"",
    );
    let judged = |url: &str, body: &[u8]| {
        judge(&scheme, &hmac(&format!("{URL}?a=1payload{{}}z")), url, body)
            .map_err(|error| error.reason)
    };
    let url = format!("{URL}?a=1");
    assert!(judged(&url, b"payload=%7B%7Dz").is_ok());
    for (url, body) in [
        (&*url, "pay=load%7B%7Dz"),
        (&url, "payload=%7B%7D&z="),
        (&url, "payload=&payload=%7B%7Dz"),
        (&format!("{URL}?a=1pay"), "load=%7B%7Dz"),
    ] {
        assert_eq!(judged(url, body.as_bytes()).unwrap_err(), "ambiguous_part", "{body}");
    }
}

/// Sorting costs a stranger nothing and the receiver much.
#[test]
fn a_form_of_very_many_fields_is_not_sorted_to_be_proven() {
    let judged = |count: usize| {
        judge(&form(), &hmac("x"), URL, "a=1&".repeat(count).as_bytes()).unwrap_err().reason
    };
    assert_eq!(judged(SORTED_FIELDS_COUNT), "bad_signature");
    assert_eq!(judged(SORTED_FIELDS_COUNT + 1), "ambiguous_part");
}

#[test]
fn every_spelling_of_a_form_has_one_signature_and_is_one_event() {
    let scheme = form();
    let signature = hmac(&format!("{URL}Aonea b+cetwokindx"));
    let first = judge(&scheme, &signature, URL, b"kind=x&A=one&e=two&a+b=%2Bc").unwrap();
    assert!(first.id_signed(), "the digest is of what is signed");
    for body in [
        "A=one&a+b=%2Bc&e=two&kind=x",
        "A=%6fne&a%20b=%2bc&e=two&kind=x",
        "A=one&A=one&a+b=%2Bc&e=two&kind=x&",
        // A byte that moves to the next field changes no signature, and so makes no other event.
        "Ao=ne&a+b=%2Bc&e=two&kind=x",
    ] {
        let again = judge(&scheme, &signature, URL, body.as_bytes()).unwrap();
        assert_eq!(again.event_id(), first.event_id(), "{body}");
    }
    for body in ["A=one&a+b=%2Bc&e=two&kind=y", "A=one&a+b=%2Bc&e=two", "", "{}", "\u{ff}=\u{fe}"] {
        assert_eq!(
            reason(judge(&scheme, &signature, URL, body.as_bytes())),
            "bad_signature",
            "{body}"
        );
    }
    assert_eq!(
        reason(judge(&scheme, &signature, "https://example.com/in?a=1", b"A=one")),
        "bad_signature"
    );
    // Twice under one name: each value once, sorted.
    let twice = hmac(&format!("{URL}aaabkindx"));
    judge(&scheme, &twice, URL, b"kind=x&a=b&a=a&a=b").unwrap();
}

#[test]
fn ten_thousand_fields_are_sorted_and_judged() {
    let body: String = (0..10_000).rev().map(|n| format!("f{n:05}=&")).collect();
    let content: String = (0..10_000).map(|n| format!("f{n:05}")).collect();
    judge(&form(), &hmac(&format!("{URL}{content}")), URL, body.as_bytes()).unwrap();
}

#[test]
fn a_body_that_is_no_form_is_that_of_the_digest_in_the_signed_query() {
    let scheme = form();
    let body = br#"{"kind":"x"}"#;
    let hash = Sha256::digest(body);
    let judge_at = |query: &str, body: &[u8]| {
        let url = format!("{URL}?{query}");
        judge(&scheme, &hmac(&url), &url, body)
    };
    let own = format!("hash={}", HEXLOWER.encode(&hash));
    judge_at(&own, body).unwrap();
    judge_at(&format!("a=1&{own}"), body).unwrap();
    for (query, body) in [
        (own.clone(), &b"{}"[..]),
        (format!("hash={}", HEXUPPER.encode(&hash)), body),
        ("hash=".to_owned(), body),
        (format!("{own}&{own}"), body),
        (format!("{own}&hash=00"), body),
    ] {
        assert!(judge_at(&query, body).is_err(), "{query}");
    }
    // Without it the body counts as a form, which this signature leaves out.
    assert_eq!(reason(judge_at("a=1", body)), "bad_signature");
}

#[test]
fn a_signature_in_the_body_covers_the_places_that_it_names() {
    let scheme = scheme(
        "field = \"json:/s/sig\"\nsigned = \"{json:/s/time}.{json:/s/token}\"",
        "id = \"json:/s/token\"\ntype = \"json:/kind\"",
    );
    let of = |token: &str, more: &str| {
        let sig = hmac(&format!("17.{token}"));
        format!(r#"{{"s":{{"time":17,"token":"{token}","sig":"{sig}"}}{more}}}"#)
    };
    let own = judge(&scheme, "", URL, of("t-1", r#","kind":"x""#).as_bytes()).unwrap();
    assert_eq!((own.event_id().as_str(), own.id_signed()), ("t-1", true));
    // What is not signed may change; the id is the same.
    judge(&scheme, "", URL, of("t-1", r#","kind":"y""#).as_bytes()).unwrap();
    let sig = hmac("17.t-1");
    for (body, wanted) in [
        (of("t-1", "").replace("t-1", "t-2"), "bad_signature"),
        (of("t-1", "").replace("17", "18"), "bad_signature"),
        (of("t-1", "").replace(&sig, ""), "missing_signature"),
        (of("t-1", "").replace(&sig, &sig.to_uppercase()), "missing_signature"),
        (of("t-1", "").replace(&sig, &sig[..62]), "missing_signature"),
        (
            of("t-1", "").replace("\"time\":17", &format!("\"time\":17,\"sig\":\"{sig}\"")),
            "missing_signature",
        ),
        (of("t-1", r#","s":{}"#), "missing_signature"),
        (of("t-1", "").replace("\"t-1\"", "[\"t-1\"]"), "missing_part"),
        (of("t.1", ""), "bad_signature"),
        (of("t-1", "") + "x", "missing_signature"),
        (String::new(), "missing_signature"),
        ("[".repeat(100_000), "missing_signature"),
        (format!(r#"{{"s":{{"sig":"{}"}}}}"#, hmac(".")), "missing_id"),
    ] {
        let judged = judge(&scheme, "", URL, body.as_bytes());
        let shown = &body[..body.len().min(200)];
        if wanted == "bad_signature" && body.contains("t.1") {
            // A dot in the last place moves nothing.
            judged.unwrap();
        } else {
            assert_eq!(reason(judged), wanted, "{shown}");
        }
    }
}

#[test]
fn lines_and_a_checksum_are_signed_as_they_are_written() {
    let lines = scheme("header = \"X-Sig\"\nsigned = \"{lines:b,a,c}\"", "id = \"json:/a\"");
    let signature = hmac("b\nx\ny\na\n1\n");
    for body in [r#"{"a":1,"b":"x\ny"}"#, r#"{"b":"x\u000ay","other":2,"a":"1","c":null}"#] {
        judge(&lines, &signature, URL, body.as_bytes()).unwrap();
    }
    for body in [r#"{"a":1,"b":"x\ny","c":""}"#, r#"{"a":1,"b":"x","c":"y"}"#, r#"{"a":1}"#] {
        assert_eq!(
            reason(judge(&lines, &signature, URL, body.as_bytes())),
            "bad_signature",
            "{body}"
        );
    }
    for body in [r#"{"a":1,"b":"x\ny","b":"x\ny"}"#, r#"{"a":1,"b":["x\ny"]}"#, ""] {
        assert_eq!(
            reason(judge(&lines, &signature, URL, body.as_bytes())),
            "missing_part",
            "{body}"
        );
    }

    let checked = scheme(
        "header = \"X-Sig\"\nsigned = \"{header:X-Sig-Id}|{crc32:body}\"",
        "id = \"header:X-Sig-Id\"",
    );
    let mut headers = Headers::new();
    headers.push("X-Sig-Id", "i-1");
    // CRC-32 of "123456789" is CBF43926 (the check value of its definition).
    headers.push("X-Sig", hmac("i-1|3421780262"));
    let keys = [key(&checked, "test", "secret").unwrap()];
    let of = |body: &'static [u8]| {
        let body = Bytes::from_static(body);
        verify(&checked, &keys, Request { method: "POST", url: None, headers: &headers, body }, NOW)
    };
    assert!(of(b"123456789").unwrap().id_signed());
    assert_eq!(of(b"123456788").unwrap_err().reason, "bad_signature");
}

/// `X-Names` names the signed headers.
fn naming() -> Scheme {
    scheme(
        "header = \"X-Sig\"\nsigned = \"{path}\\n{headers-in:X-Names}\\n{body}\"",
        "id = \"digest\"\n[timestamp]\nfrom = \"header:X-Time\"\nunit = \"s\"\ntolerance = \"5min\"\n[delivery]\nkeep_headers = [\"X-A\"]",
    )
}

#[test]
fn headers_that_a_header_names_are_signed_in_one_reading_only() {
    let scheme = naming();
    let judged = |url: &str, sent: &[(&str, &str)], content: &str| {
        let keys: Vec<Key> = vec![key(&scheme, "test", "secret").unwrap()];
        let mut headers = Headers::new();
        headers.push("X-Sig", hmac(content));
        sent.iter().for_each(|(name, value)| headers.push(*name, *value));
        let body = Bytes::from_static(b"{}");
        let request = Request { method: "POST", url: Some(url), headers: &headers, body };
        verify(&scheme, &keys, request, NOW).map(drop).map_err(|error| error.reason)
    };
    let time = ("X-Time", "1767225600");
    let tail = "x-time:1767225600\n{}";
    let all = "x-a,x-names,x-time";
    let content = format!("/in\nx-a:b; c=d;x-names:{all};{tail}");
    let genuine = [("X-A", " b; c=d "), ("X-Names", all), time];
    assert_eq!(judged(URL, &genuine, &content), Ok(()));
    let spaced = content.replace("/in\n", "/a%20b?c%253D%2525d\n");
    assert_eq!(judged("https://example.com/a b?c=%d", &genuine, &spaced), Ok(()));
    for (names, value) in [
        ("x-names,x-a,x-time", "v"),
        ("X-a,x-names,x-time", "v"),
        ("x-a,x-a,x-names,x-time", "v"),
        ("x-a,x-time", "v"),
        ("x-a,x-names", "v"),
        ("x-a,x-b,x-names,x-time", "v"),
        ("x-a, x-names,x-time", "v"),
        ("", "v"),
    ] {
        let sent = [("X-A", value), ("X-Names", names), time];
        assert_eq!(judged(URL, &sent, &content), Err("missing_part"), "{names}");
    }
    let twice = [("X-A", "v"), ("X-A", "w"), ("X-Names", all), time];
    assert_eq!(judged(URL, &twice, &content), Err("missing_part"));
    let moved = [("X-A", "b;x-b:c"), ("X-Names", all), time];
    let content = format!("/in\nx-a:b;x-b:c;x-names:{all};{tail}");
    assert_eq!(judged(URL, &moved, &content), Err("ambiguous_part"));
}

#[test]
fn a_header_that_names_itself_as_the_signature_is_refused() {
    let text = "name = \"own\"\n[signature]\nalgorithm = \"hmac-sha256\"\nencoding = \"hex\"\nheader = \"X-Names\"\nsigned = \"{headers-in:X-Names}.{body}\"\n[event]\nid = \"digest\"\n";
    let problems = Problems::new();
    assert!(Scheme::parse("own.toml", text, &problems).is_none());
}

/// The signature is in a field of the form, labelled with the source's sender.
#[test]
fn a_signature_in_a_form_counts_under_the_senders_label() {
    let text = "form = \"sig\"\nformat = \"pairs\"\nseparator = \"&\"\nequals = \"|\"\nlabel = \"{sender}\"\nsigned = \"{form:data}\"";
    let scheme = scheme(text, "id = \"digest\"\nform_field = \"data\"\n[[alternative]]\nsignature.signed = \"{form:data}!\"")
        .with_sender("own");
    let judged = |fields: &[(&str, &str)]| {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        judge(&scheme, "", URL, form.finish().as_bytes())
    };
    let of = |label: &str, content: &str| format!("{label}|{}", hmac(content));
    let first = judged(&[("sig", &of("own", "a!")), ("data", "a!")]).unwrap();
    let both = format!("other|{}&{}", hmac("b"), of("own", "a!"));
    let second = judged(&[("data", "a"), ("sig", &both)]).unwrap();
    assert_eq!(first.event_id(), second.event_id(), "the signed bytes are the same");
    for (fields, wanted) in [
        (vec![("sig", of("other", "a")), ("data", "a".to_owned())], "missing_signature"),
        (vec![("sig", of("own", "b")), ("data", "a".to_owned())], "bad_signature"),
        (vec![("data", "a".to_owned())], "missing_signature"),
        (
            vec![("sig", of("own", "a")), ("data", "a".to_owned()), ("c", String::new())],
            "missing_part",
        ),
        (
            vec![("sig", of("own", "a")), ("sig", of("own", "a")), ("data", "a".to_owned())],
            "missing_signature",
        ),
    ] {
        let fields: Vec<(&str, &str)> =
            fields.iter().map(|(name, text)| (*name, &**text)).collect();
        assert_eq!(reason(judged(&fields)), wanted, "{fields:?}");
    }
}
