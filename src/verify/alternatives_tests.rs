//! Providers that sign in several forms: each form is accepted as a whole, and two are never mixed. The signatures are
//! by the providers' own libraries, at `NOW`, with invented secrets; where a library only verifies, it was asked.

#![allow(clippy::unwrap_used)]

use super::*;

const NOW: Timestamp = Timestamp(1_767_225_600_000);
const SIGNED_AT: &str = "1767225600";
/// Its key is `0123456789abcdef` twice.
const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Judges a delivery to a source of `provider` with one secret.
fn judged(
    provider: &str,
    secret: &str,
    lines: &[(&str, &str)],
    body: &str,
) -> Result<Verified, Rejection> {
    let scheme = Scheme::embedded(provider).unwrap();
    let keys = [key(&scheme, "test", secret).unwrap()];
    let mut headers = Headers::new();
    lines.iter().for_each(|(name, value)| headers.push(*name, *value));
    let body = Bytes::copy_from_slice(body.as_bytes());
    verify(&scheme, &keys, Request { method: "POST", url: None, headers: &headers, body }, NOW)
}

/// The three headers of Standard Webhooks, or of Svix.
fn family<'a>(names: &str, id: &'a str, signature: &'a str) -> Vec<(&'static str, &'a str)> {
    let names = match names {
        "svix" => ["svix-id", "svix-timestamp", "svix-signature"],
        _ => ["webhook-id", "webhook-timestamp", "webhook-signature"],
    };
    names.into_iter().zip([id, SIGNED_AT, signature]).collect()
}

/// Id and type of a genuine delivery, else the reason of its refusal.
fn named(judged: Result<Verified, Rejection>) -> Result<(String, String), &'static str> {
    let names = |one: Verified| (one.event_id().to_string(), one.event_type().to_string());
    judged.map(names).map_err(|rejection| rejection.reason)
}

fn event(id: &str, event_type: &str) -> Result<(String, String), &'static str> {
    Ok((id.to_owned(), event_type.to_owned()))
}

#[test]
fn polar_signs_with_the_decoded_secret_or_with_its_text() {
    // `validateEvent` of @polar-sh/sdk 1.0.1 (npm) takes these.
    let body = r#"{"type":"order.paid","timestamp":"2026-01-01T00:00:00Z","data":{}}"#;
    let decoded = "v1,Nhy0vIelIoob4YZC6tOniOi4NPnE7C6YoTKrgpKAGwc=";
    let text = "v1,TNRHF2gOCdbSBeXj/B26DJJII8P7XqbK4AX19Jcl1KY=";
    let at = |secret: &str, signature: &str| {
        named(judged("polar", secret, &family("webhook", "m1", signature), body))
    };
    assert_eq!(at(SECRET, decoded), event("m1", "order.paid"));
    assert_eq!(at("polar_whs_only-for-tests", text), event("m1", "order.paid"));
    assert_eq!(at(SECRET, text), Err("bad_signature"));
    assert_eq!(at("polar_whs_only-for-tests", decoded), Err("bad_signature"));
    // Before September 2026 this secret was used as text.
    let scheme = Scheme::embedded("standard-webhooks").unwrap();
    let old = data_encoding::BASE64.encode(SECRET.as_bytes());
    let draft = Draft { method: "POST", id: "m1", body: body.into(), ..Draft::default() };
    let headers = sign(&scheme, Some(&key(&scheme, "test", &old).unwrap()), &draft, NOW).unwrap();
    let signature = headers.all("webhook-signature").next().unwrap();
    assert_eq!(at(SECRET, std::str::from_utf8(signature).unwrap()), event("m1", "order.paid"));
}

#[test]
fn every_form_of_a_built_in_provider_signs_what_the_provider_verifies() {
    let url = "https://hooks.example.org/in";
    let forms = Scheme::embedded_names().filter_map(Scheme::embedded).flat_map(|scheme| {
        let own = scheme.families().map(|form| (scheme.clone(), form.clone()));
        own.collect::<Vec<_>>()
    });
    let mut count = 0;
    for (scheme, form) in forms.filter(|(scheme, _)| !scheme.alternatives().is_empty()) {
        let name = format!("{} in its form {}", scheme.name(), form.family());
        let keys = [key(&scheme, "test", SECRET).unwrap()];
        let draft = Draft {
            method: "POST",
            url: Some(url),
            id: "m1",
            event_type: "a",
            headers: Headers::new(),
            body: Bytes::from_static(b"{\"type\":\"a\",\"eventType\":\"a\"}"),
        };
        let headers = sign(&form, keys.first(), &draft, NOW).unwrap();
        let request = |body: &'static [u8]| Request {
            method: "POST",
            url: Some(url),
            headers: &headers,
            body: Bytes::from_static(body),
        };
        let genuine = Request { body: draft.body.clone(), ..request(b"") };
        let proven = prove(&scheme, &keys, &genuine, NOW).unwrap();
        assert_eq!(proven.0.family(), form.family(), "{name}");
        assert!(prove(&scheme, &keys, &request(b"{\"type\":\"b\"}"), NOW).is_err(), "{name}");
        count += 1;
    }
    assert!(count > 1);
}
