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
    judged_at(None, provider, secret, lines, body)
}

/// Judges a delivery to a source of `provider` at this public URL, with one secret.
fn judged_at(
    url: Option<&str>,
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
    verify(&scheme, &keys, Request { method: "POST", url, headers: &headers, body }, NOW)
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
    let scheme = Scheme::embedded("standard-webhooks").unwrap();
    let draft = Draft { method: "POST", id: "m1", body: body.into(), ..Draft::default() };
    let unpadded = SECRET.trim_end_matches('=');
    assert_eq!(at(unpadded, decoded), event("m1", "order.paid"));
    // Before September 2026 these secrets were used as text.
    for secret in [SECRET, unpadded] {
        let old = data_encoding::BASE64.encode(secret.as_bytes());
        let key = key(&scheme, "test", &old).unwrap();
        let headers = sign(&scheme, Some(&key), &draft, NOW).unwrap();
        let signature = headers.all("webhook-signature").next().unwrap();
        let signature = std::str::from_utf8(signature).unwrap();
        assert_eq!(at(secret, signature), event("m1", "order.paid"));
    }
}

#[test]
fn svix_uses_its_own_header_names_or_those_of_standard_webhooks() {
    // Made by `Webhook.sign` of svix 2.5.0 (npm), whose `verify` takes both names.
    let body = r#"{"type":"user.created"}"#;
    let signature = "v1,pEu7dc31RSwLNGzBy9X38hLV/cAr6rzHKwWU1yiobDQ=";
    for provider in ["svix", "clerk", "resend"] {
        for names in ["svix", "webhook"] {
            let headers = family(names, "m1", signature);
            let delivery = judged(provider, SECRET, &headers, body);
            assert_eq!(named(delivery), event("m1", "user.created"), "{provider}, {names}");
        }
        let lacking = judged(provider, SECRET, &[], body).unwrap_err();
        assert_eq!(lacking.detail, "there is no svix-signature or webhook-signature header");
    }
}

#[test]
fn headers_of_another_form_neither_rename_a_captured_delivery_nor_are_kept() {
    let body = r#"{"type":"user.created"}"#;
    let captured = "v1,pEu7dc31RSwLNGzBy9X38hLV/cAr6rzHKwWU1yiobDQ=";
    let other = "v1,eSW9fI9d34T/7tidgwNNN9+VBMSFUGvJXkRgzYImuEo=";
    let forged = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for names in ["svix", "webhook"] {
        let (own, foreign) =
            if names == "svix" { ("svix", "webhook") } else { ("webhook", "svix") };
        for signature in [captured, forged, "v1,"] {
            let lines = [family(own, "m1", captured), family(foreign, "m2", signature)].concat();
            let delivery = judged("svix", SECRET, &lines, body).unwrap();
            assert_eq!(delivery.event_id().as_str(), "m1", "{own}, {signature}");
            let kept: Vec<&str> = delivery.headers().iter().map(|(name, _)| name).collect();
            assert!(kept.len() == 3 && kept.iter().all(|name| name.starts_with(own)), "{kept:?}");
        }
    }
    // Both forms hold: the file's own decides.
    let lines = [family("webhook", "m2", other), family("svix", "m1", captured)].concat();
    assert_eq!(named(judged("svix", SECRET, &lines, body)), event("m1", "user.created"));
    // Neither form is completed by headers of the other one.
    let mixed = [("svix-id", "m1"), ("webhook-timestamp", SIGNED_AT), ("svix-signature", captured)];
    assert_eq!(named(judged("svix", SECRET, &mixed, body)), Err("missing_timestamp"));
}

#[test]
fn openai_uses_a_secret_without_prefix_as_it_is() {
    // `webhooks.verifySignature` of openai 7.59.0 (npm) takes this.
    let signature = "v1,30KZxGBlv8be3QZAUvv1tbjuezWYRC3oy6+yV0zTmR4=";
    let delivery = judged(
        "openai",
        "only for tests",
        &family("webhook", "m1", signature),
        r#"{"type":"response.completed"}"#,
    );
    assert_eq!(named(delivery), event("m1", "response.completed"));
}

#[test]
fn shopify_events_have_headers_without_x() {
    // `webhooks.validate` of @shopify/shopify-api 15.0.0 (npm) takes this as type "events".
    let signature = "1GzqrTtTiftSRglmC9+Y9oAZduqu9ZPMsUeGE+3qd/o=";
    let events = [
        ("shopify-hmac-sha256", signature),
        ("shopify-webhook-id", "w1"),
        ("shopify-topic", "PRODUCT"),
        ("shopify-action", "update"),
    ];
    let webhooks = [
        ("X-Shopify-Hmac-Sha256", signature),
        ("X-Shopify-Webhook-Id", "w2"),
        ("X-Shopify-Topic", "products/update"),
    ];
    let at = |lines: &[(&str, &str)]| judged("shopify", "only-for-tests", lines, r#"{"id":1}"#);
    assert_eq!(named(at(&events)), event("w1", "PRODUCT.update"));
    assert_eq!(at(&events).unwrap().guard(), ReplayGuard::Hold);
    assert_eq!(named(at(&webhooks)), event("w2", "products/update"));
    assert_eq!(named(at(&[&events[..], &webhooks].concat())), event("w2", "products/update"));
    // The same body under the other form's id has the same digest, which the replay guard holds.
    assert_eq!(at(&events).unwrap().digest(), at(&webhooks).unwrap().digest());
}

#[test]
fn weblate_signs_the_whole_part_of_a_time_with_a_fraction() {
    // Made by `Webhook.sign` of standardwebhooks 1.1.0 (PyPI), as in Weblate's addons/webhooks.py.
    let body = r#"{"action":"Translation changed","change_id":7}"#;
    let signature = "v1,wl2PCBX2ttUbxOjPo+lAC5KgOD3AcVaOxkfVXcbKgvM=";
    let at = |time: &str| {
        let headers =
            [("webhook-timestamp", time), ("webhook-id", "m1"), ("webhook-signature", signature)];
        named(judged("weblate", SECRET, &headers, body))
    };
    assert_eq!(at("1767225600.542362"), event("m1", "Translation changed"));
    assert_eq!(at("1767225601.542362"), Err("bad_signature"));
    assert_eq!(at("1767225600.5.5"), Err("bad_timestamp"));
    let standard = judged(
        "standard-webhooks",
        SECRET,
        &[
            ("webhook-timestamp", "1767225600.5"),
            ("webhook-id", "m1"),
            ("webhook-signature", signature),
        ],
        body,
    );
    assert_eq!(named(standard), Err("bad_timestamp"));
}

#[test]
fn mailgun_signs_a_subaccounts_event_for_the_primary_account_too() {
    // HMAC-SHA256 of timestamp and token in hex, as documentation.mailgun.com says, by the keys `subaccount`, `primary`.
    let own = "1f394f38f17f30da351cf0353cbf3a4cc9d293fd42bc9f5394c4b993cce63048";
    let parent = "c7bfa568c802a4bc2d0c34705e8c87a5222adb3504c0a59171e09525057a5327";
    let at = |secret: &str, time: &str| {
        let body = format!(
            r#"{{"signature":{{"timestamp":"{time}","token":"t1","signature":"{own}","parent-signature":"{parent}"}},"event-data":{{"event":"opened"}}}}"#
        );
        named(judged("mailgun", secret, &[], &body))
    };
    for secret in ["subaccount", "primary"] {
        assert_eq!(at(secret, SIGNED_AT), event("t1", "opened"));
        assert_eq!(at(secret, "1767225601"), Err("bad_signature"));
    }
    assert_eq!(at("other", SIGNED_AT), Err("bad_signature"));
}

#[test]
fn supabase_shows_its_secret_with_a_version_before_the_prefix() {
    let body = r#"{"type":"user.created"}"#;
    let signature = "v1,pEu7dc31RSwLNGzBy9X38hLV/cAr6rzHKwWU1yiobDQ=";
    for secret in [SECRET.to_owned(), format!("v1,{SECRET}")] {
        let headers = family("webhook", "m1", signature);
        let delivery = judged("supabase-auth", &secret, &headers, body);
        assert_eq!(delivery.unwrap().event_id().as_str(), "m1");
    }
}

#[test]
fn what_is_kept_of_a_refused_delivery_has_the_headers_of_every_form() {
    let scheme = Scheme::embedded("svix").unwrap();
    for names in ["svix", "webhook"] {
        let mut headers = Headers::new();
        let lines = family(names, "m1", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
        lines.iter().for_each(|(name, value)| headers.push(*name, *value));
        headers.push("X-Other", "1");
        assert_eq!(evidence(&scheme, &headers).iter().count(), 3, "{names}");
        let claimed = claimed_id(&scheme, &headers, b"{}").unwrap();
        assert_eq!(claimed.as_str(), "m1", "{names}");
    }
}

/// A standard notification of Adyen.
fn adyen(reference: &str, more: &str, signature: &str) -> String {
    format!(
        r#"{{"notificationItems":[{{"NotificationRequestItem":{{"pspReference":"P1","originalReference":"","merchantAccountCode":"Shop{more}","merchantReference":"{reference}","amount":{{"value":1130,"currency":"EUR"}},"eventCode":"AUTHORISATION","success":"true","additionalData":{{"hmacSignature":"{signature}"}}}}}}]}}"#
    )
}

#[test]
fn a_merchants_reference_of_adyen_may_hold_colons_and_no_other_field() {
    // Made by `HmacValidator` of @adyen/api-library 32.1.0 (npm), for the reference `ORD:1:2`.
    let signature = "o3aLkJt5sXw+a5YRya/g5b+niiybFQtUa2uFOoPKyKQ=";
    let at = |body: &str| named(judged("adyen", "00ff17", &[], body));
    let name = event("P1:AUTHORISATION:true", "AUTHORISATION");
    assert_eq!(at(&adyen("ORD:1:2", "", signature)), name);
    assert_eq!(at(&adyen("ORD:1:3", "", signature)), Err("bad_signature"));
    let moved = adyen("ORD:1:2:1130", "", signature).replace(r#""value":1130"#, r#""value":"EUR""#);
    let moved = moved.replace(r#""currency":"EUR""#, r#""currency":"AUTHORISATION""#);
    let moved = moved.replace(r#""eventCode":"AUTHORISATION""#, r#""eventCode":"true""#);
    let moved = moved.replace(r#""success":"true""#, r#""success":"""#);
    assert_eq!(at(&moved), Err("bad_signature"));
}

#[test]
fn twilio_signs_the_url_with_or_without_its_port() {
    // Made by `getExpectedTwilioSignature` of twilio 6.3.1 (npm), whose `validateRequest` takes what is taken here.
    let plain = "https://h.example/x?a=1";
    let standard = "https://h.example:443/x?a=1";
    let other = "https://h.example:8443/x?a=1";
    let at = |url: &str, signature: &str| {
        let lines = [("X-Twilio-Signature", signature), ("I-Twilio-Idempotency-Token", "t1")];
        let body = "From=%2B15550100&CallStatus=completed";
        named(judged_at(Some(url), "twilio", "only-for-tests", &lines, body))
    };
    let of_plain = "rDnyao4uVIk8+WShpILaoQ2tzMc=";
    for (signature, taken_at) in [
        (of_plain, [plain, standard, other].as_slice()),
        ("ypLM91h0Jq+oULmsb5+1LRofULo=", &[plain, standard]),
        ("ksNJWDRnlg6eBfx/6Bh2OubhT6M=", &[other]),
    ] {
        for url in [plain, standard, other] {
            let is_taken = taken_at.contains(&url);
            let wanted = if is_taken { event("t1", "completed") } else { Err("bad_signature") };
            assert_eq!(at(url, signature), wanted, "{url}, {signature}");
        }
    }
    assert_eq!(at("https://[2001:db8::1]/x?a=1", of_plain), Err("bad_signature"));
    // HMAC-SHA256, which twilio 6.3.1 (npm) takes for a shared key of Twilio's Webhooks configuration.
    let longer = "PfLzGRSvJe44U6b+OUDEtBXiAe7gsc0YdOaeAauFfDY=";
    assert_eq!(at(plain, longer), event("t1", "completed"));
}

#[test]
fn plivo_signs_a_sorted_query_and_every_pair_of_a_form() {
    // `validateV3Signature` of plivo 4.79.0 (npm) takes these.
    let at = |url: &str, body: &str, signature: &str| {
        let lines = [("X-Plivo-Signature-V3", signature), ("X-Plivo-Signature-V3-Nonce", "n0nce")];
        let judged = judged_at(Some(url), "plivo", "only-for-tests", &lines, body);
        judged.map(|one| one.digest()).map_err(|rejection| rejection.reason)
    };
    let base = "https://h.example/in";
    for (query, body, signature) in [
        ("", "From=1&Event=StartApp", "EkHcGNUmum6Y8GyHTkrqzhLSl2DKGCdzBAKm50RHgyE="),
        ("", "", "Yw9kg5vHIzDMkOiVFihlE0/ivqabrc4lj0cOXjaUkFI="),
        ("?z=1&a=2%2F", "From=1", "Vnd565LHfKjYsW6ctlwAQ/zreahb38osktwypke7OBk="),
        ("?z=1&a=2", "", "y6/ma2kpcsRYh5xTM9f3BGYe+Ovv2G9nY63tbc8pGWg="),
        ("?a=2&a=1", "From=2&From=1&From=2", "+yBFlBooy9qS7y1I2OY2H2lc4ASXtU8uFzlyuZU2DX8="),
    ] {
        at(&format!("{base}{query}"), body, signature).unwrap();
        assert_eq!(at(&format!("{base}{query}"), "From=9", signature), Err("bad_signature"));
        assert_eq!(at(&format!("{base}?b=9"), body, signature), Err("bad_signature"));
    }
}

#[test]
fn coinbase_signs_the_body_alone_or_with_headers_and_then_the_headers_decide() {
    // Made with HMAC-SHA256 as in hook0-client 1.1.0 (npm), whose verification was asked for each.
    let body = r#"{"eventType":"onramp.transaction.success","n":1.5}"#;
    let v0 = "v0=03e5971f3857c54ab08a0236f9320dd5777424ea5c98edd5d594fd4a8eb12e88";
    let v1 = "v1=27a5b8883794e55e2662a82406163c9cfc6eb31ca9a0cb3663e872062ebb9826";
    let names = "h=content-type x-event-id x-event-type";
    let zero = "0".repeat(64);
    let headers = [
        ("Content-Type", "application/json"),
        ("X-Event-Id", "e1"),
        ("X-Event-Type", "onramp.transaction.success"),
    ];
    let with = |items: &[&str], headers: &[(&str, &str)], body: &str| {
        let signature = format!("t={SIGNED_AT},{}", items.join(","));
        let lines = [headers, &[("X-Hook0-Signature", &signature)]].concat();
        judged("coinbase-cdp", "only-for-tests", &lines, body)
            .map(|one| one.event_type().to_string())
    };
    let at = |items: &[&str]| with(items, &headers, body).map_err(|rejection| rejection.reason);
    let good = Ok("onramp.transaction.success".to_owned());
    assert_eq!(at(&[v0]), good);
    assert_eq!(at(&[names, v1]), good);
    assert_eq!(at(&[v0, names, v1]), good);
    assert_eq!(at(&[&format!("v0={zero}"), names, v1]), good);
    assert_eq!(at(&[v0, names, &format!("v1={zero}")]), Err("bad_signature"));
    assert_eq!(at(&[v0, "v1="]), Err("unreadable_signature"));
    assert_eq!(at(&[v0, v1]), Err("unreadable_signature"));
    for names in [
        "h=content-type",
        "h=x-event-id content-type x-event-type",
        "h=Content-Type x-event-id x-event-type",
    ] {
        assert!(at(&[names, v1]).is_err(), "{names}");
    }
    assert!(at(&[names, names, v1]).is_err());
    let reason = |headers: &[(&str, &str)], body: &str| {
        with(&[names, v1], headers, body).unwrap_err().reason
    };
    let other = [headers[0], ("X-Event-Id", "e2"), headers[2]];
    assert_eq!(reason(&other, body), "bad_signature");
    assert_eq!(reason(&headers[..2], body), "bad_signature");
    let twice = [&headers[..], &[("X-Event-Id", "e1")]].concat();
    assert_eq!(reason(&twice, body), "ambiguous_part");
}

#[test]
fn an_event_is_signed_anew_in_the_form_in_which_it_came() {
    let body = r#"{"type":"user.created"}"#;
    let signature = "v1,pEu7dc31RSwLNGzBy9X38hLV/cAr6rzHKwWU1yiobDQ=";
    for (names, other) in [("webhook", "svix-signature"), ("svix", "webhook-signature")] {
        let came = judged("svix", SECRET, &family(names, "m1", signature), body).unwrap();
        let scheme = std::sync::Arc::new(Scheme::embedded("svix").unwrap());
        let own = key(&scheme, "test", SECRET).unwrap();
        let signer = Signer::new(std::sync::Arc::clone(&scheme), Some(own.clone()), None);
        let later = Timestamp(NOW.0 + 3_600_000);
        let headers = signer.resign(came.headers(), came.body(), later).unwrap();
        assert_eq!(headers.all(other).count(), 0);
        let body = came.body().clone();
        let request = Request { method: "POST", url: None, headers: &headers, body };
        assert_eq!(named(verify(&scheme, &[own], request, later)), event("m1", "user.created"));
    }
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
        // Only the sender can name the headers that it signs, or put a signature into the body.
        let lists = form.proof().signed_content().unwrap().lists_headers();
        if lists || form.proof().only_provider_signs() {
            continue;
        }
        let name = format!("{} in its form {}", scheme.name(), form.family());
        let secrets = [SECRET.to_owned(), format!("v1,{SECRET}")];
        let mut keys = secrets.iter().map(|secret| key(&scheme, "test", secret).unwrap());
        let keys = [keys.find(|key| key.of(&form).is_some()).unwrap()];
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
