//! Properties of a scheme and a request, for the targets that vary one of the two.

use bytes::Bytes;
use hooklatch::model::{Headers, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Draft, Key, Rejection, Request, Verified};
use sha2::{Digest, Sha256};

/// The arrival time of every request: 2026-01-01.
const NOW: Timestamp = Timestamp(1_767_225_600_000);

/// The reasons for which a genuinely signed request may be refused: it is ambiguous, lacks a part, or states
/// another time.
const HONEST: [&str; 12] = [
    "repeated_header",
    "ambiguous_part",
    "missing_part",
    "missing_timestamp",
    "bad_timestamp",
    "stale_timestamp",
    "future_timestamp",
    "missing_id",
    "missing_events",
    "missing_type",
    "too_many_events",
    "bad_id",
];

/// Public keys in the forms that providers have, whose private halves are lost.
const PUBLIC: [&str; 5] = [
    "62118a6751a227010ca541fddce81e68b544dad68666d0331d58b358d4ecc490",
    "YhGKZ1GiJwEMpUH93OgeaLVE2taGZtAzHVizWNTsxJA=",
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEW5gikhGMP82Z4WpU5lLt8jCUyQD8uHFlQIP0MHJw7xeHjUsakGd/p6upAxZH/wnYXR2RG6JP9u2QrCp+de2f5A==",
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAjRTClkqgeeShPnMyQdCe7J4NB2oOT69iX0Mn+nDFYeJ07zXL7Mpne0BGWz3Mq5tc//+j7WAZnEyG+re4HH/iWR5SdP9W41zYKMKqjHFo1SVCFD1tUTTLG4pU1JaCu6EuRyi+5KpO5ZYr/8wkT3NhW0J/5FOAExQrWkqpJhrW5EgNdmrUDkIebA5qgil7wtg0XmqKU4GUu4jGM9brIiC7gk1lwWXuRhrWpYCrQNE+lGoDwnW/HTvyOQ+ZxFQAwzwEmdP1uFHsZC64DBB1f1kQjqaMTK13KwPodNBoyMoMvJG7tY/uZ0LWb3Ful+8VzxDGXsYOZPmz6ILK3bgKFRUhyQIDAQAB",
    r#"{"keys":[{"kty":"RSA","n":"jRTClkqgeeShPnMyQdCe7J4NB2oOT69iX0Mn-nDFYeJ07zXL7Mpne0BGWz3Mq5tc__-j7WAZnEyG-re4HH_iWR5SdP9W41zYKMKqjHFo1SVCFD1tUTTLG4pU1JaCu6EuRyi-5KpO5ZYr_8wkT3NhW0J_5FOAExQrWkqpJhrW5EgNdmrUDkIebA5qgil7wtg0XmqKU4GUu4jGM9brIiC7gk1lwWXuRhrWpYCrQNE-lGoDwnW_HTvyOQ-ZxFQAwzwEmdP1uFHsZC64DBB1f1kQjqaMTK13KwPodNBoyMoMvJG7tY_uZ0LWb3Ful-8VzxDGXsYOZPmz6ILK3bgKFRUhyQ","e":"AQAB","kid":"k1"}]}"#,
];

/// Checks a request with these headers and this body without a signature, with a genuine one and with a forged
/// one. With `sound`, a provider could have the scheme, so its genuine signature must be accepted.
pub(super) fn check(scheme: &Scheme, headers: &Headers, body: &[u8], sound: bool) {
    // The key is derived from the whole request, so the request cannot contain it.
    let content = [headers.to_wire().as_slice(), b"\n", body].concat();
    let random: [u8; 32] = Sha256::digest(&content).into();
    let unsigned = scheme.proof().is_absent();
    let secret = match scheme.proof().has_public_key() {
        false => verify::secret_text(scheme, &random),
        true => match PUBLIC.iter().find(|text| verify::key(scheme, "env:TEST", text).is_ok()) {
            Some(text) => (*text).to_owned().into(),
            None => return,
        },
    };
    let keys: Vec<Key> = match unsigned {
        true => Vec::new(),
        false => vec![verify::key(scheme, "env:TEST", &secret).expect("its own form of secret")],
    };

    let unproven = judge(scheme, &keys, headers, body);
    assert!(unsigned || unproven.is_err(), "the request is not signed");
    assert!(unsigned || judge(scheme, &[], headers, body).is_err(), "no secret proves nothing");
    if let Err(rejection) = &unproven {
        let hint = verify::hint(scheme, &keys, &request(headers, body), rejection, NOW);
        let text = format!("{rejection} {}", hint.unwrap_or_default());
        assert!(!text.contains(secret.as_str()), "a message quotes the secret");
    }

    let draft = Draft {
        method: "POST",
        url: Some("https://example.com/in?a=1"),
        id: "evt_1",
        event_type: "push",
        headers: headers.clone(),
        body: Bytes::copy_from_slice(body),
    };
    if sound {
        unmixed(scheme, &keys, &draft);
    }
    let Ok(signed) = verify::sign(scheme, keys.first(), &draft, NOW) else { return };
    match judge(scheme, &keys, &signed, body) {
        Err(Rejection { reason, .. }) => {
            // Another line of this header that is not text makes the genuine one unusable.
            let text = headers.iter().all(|(_, value)| value.is_ascii());
            let honest = HONEST.contains(&reason) || (reason == "unreadable_signature" && !text);
            assert!(!sound || honest, "signed, and {reason}");
        }
        Ok(verified) if !unsigned => {
            // A token proves the sender but not the contents.
            let token = !scheme.proof().signs_content();
            proven(scheme, &keys, &signed, body, &verified, token);
        }
        Ok(verified) => assert_eq!(verified.body(), body),
    }
}

/// Checks that the first family that holds decides alone: headers of another one beside it change nothing, neither
/// forged ones nor the genuine ones of a later family.
fn unmixed(scheme: &Scheme, keys: &[Key], draft: &Draft<'_>) {
    if scheme.alternatives().is_empty() {
        return;
    }
    let families: Vec<&Scheme> = std::iter::once(scheme).chain(scheme.alternatives()).collect();
    let forger = verify::key(scheme, "env:OTHER", &verify::secret_text(scheme, &[7; 32])).ok();
    let second = Draft { id: "evt_2", event_type: "other", ..draft.clone() };
    let facts = |one: Verified| {
        let (id, kind) = (one.event_id().clone(), one.event_type().clone());
        (id, kind, one.digest(), one.signed_at(), one.headers().clone())
    };
    for (at, own) in families.iter().enumerate() {
        let Ok(signed) = verify::sign(own, keys.first(), draft, NOW) else { continue };
        let Ok(alone) = judge(scheme, keys, &signed, &draft.body).map(facts) else { continue };
        for (beside, other) in families.iter().enumerate().filter(|(beside, _)| *beside != at) {
            let genuine = keys.first().filter(|_| beside > at);
            for key in genuine.into_iter().chain(&forger) {
                let Ok(more) = verify::sign(other, Some(key), &second, NOW) else { continue };
                let mut both = signed.clone();
                let is_new = |name: &str| signed.all(name).next().is_none();
                let new = more.iter().filter(|(name, _)| is_new(name));
                new.for_each(|(name, value)| both.push(name, value));
                let verdict = judge(scheme, keys, &both, &draft.body).map(facts);
                assert_eq!(verdict.as_ref(), Ok(&alone), "form {at}, beside it {beside}");
            }
        }
    }
}

fn request<'a>(headers: &'a Headers, body: &[u8]) -> Request<'a> {
    let body = Bytes::copy_from_slice(body);
    Request { method: "POST", url: Some("https://example.com/in?a=1"), headers, body }
}

/// The verdict. The check before the body is read must agree with it.
fn judge(
    scheme: &Scheme,
    keys: &[Key],
    headers: &Headers,
    body: &[u8],
) -> Result<Verified, Rejection> {
    let verdict = verify::verify(scheme, keys, request(headers, body), NOW);
    if let Err(early) = verify::precheck(scheme, headers) {
        assert_eq!(verdict.as_ref().err(), Some(&early), "refused early and not late");
    }
    let again = verify::verify(scheme, keys, request(headers, body), NOW);
    assert_eq!(verdict.as_ref().err(), again.as_ref().err(), "one request, two verdicts");
    verdict
}

/// Checks that a proof is valid for this request only.
fn proven(
    scheme: &Scheme,
    keys: &[Key],
    headers: &Headers,
    body: &[u8],
    verified: &Verified,
    token: bool,
) {
    assert_eq!(verified.body(), body);
    assert!(verified.secret().is_some());
    for (name, _) in verified.headers().iter() {
        assert!(headers.all(name).next().is_some(), "a header that was not sent");
    }
    let other = vec![
        verify::key(scheme, "env:OTHER", &verify::secret_text(scheme, &[7; 32])).expect("a key"),
    ];
    assert!(judge(scheme, &other, headers, body).is_err(), "any secret will do");
    if token {
        return;
    }
    for at in [0, body.len() / 2, body.len()] {
        let mut changed = body.to_vec();
        match changed.get_mut(at) {
            Some(byte) => *byte ^= 1,
            None => changed.push(b' '),
        }
        let verdict = judge(scheme, keys, headers, &changed);
        // Two spellings of a form are signed in the same way, and are one body to the replay guard.
        let is_other = verdict.is_ok_and(|other| other.digest() != verified.digest());
        assert!(!is_other, "the body can be changed at {at}");
    }
}
