//! Cases that the provider vectors do not cover: replay guards, kept headers, hints, every construct
//! of a scheme, and that changed or random requests are always refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::*;
use crate::document::Problems;
use crate::provider::Hash;

const NOW: Timestamp = Timestamp(1_767_225_600_000);
const BASE64_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

fn embedded(name: &str) -> Scheme {
    Scheme::embedded(name).unwrap()
}

fn parsed(text: &str) -> Scheme {
    let problems = Problems::new();
    let scheme = Scheme::parse("test.toml", text, &problems);
    scheme.unwrap_or_else(|| panic!("{:#?}", problems.into_sorted()))
}

/// A scheme with this signature section; it reads the id and the type from the body.
fn signed_by(signature: &str, more: &str) -> Scheme {
    parsed(&format!(
        "name = \"test\"\n[signature]\n{signature}\n[event]\nid = \"json:/id\"\ntype = \"json:/type\"\n{more}"
    ))
}

fn draft<'a>(id: &'a str, event_type: &'a str, body: &'a str) -> Draft<'a> {
    let url = Some("https://example.com/hooks?x=1");
    let body = Bytes::copy_from_slice(body.as_bytes());
    Draft { method: "POST", url, id, event_type, headers: Headers::new(), body }
}

fn request<'a>(draft: &Draft<'a>, headers: &'a Headers) -> Request<'a> {
    Request { method: draft.method, url: draft.url, headers, body: draft.body.clone() }
}

fn delivered(scheme: &Scheme, secret: &str, draft: &Draft<'_>) -> Result<Verified, Rejection> {
    let key = key(scheme, "literal:…", secret).unwrap();
    let headers = sign(scheme, Some(&key), draft, NOW).unwrap();
    verify(scheme, &[key], request(draft, &headers), NOW)
}

const STRIPE_BODY: &str = r#"{"id":"evt_1","type":"invoice.paid","pending_webhooks":1}"#;

#[test]
fn a_signed_request_is_accepted_under_every_scheme_construct() {
    let hmac = |rest: &str| {
        format!("header = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{{body}}\"\n{rest}")
    };
    let body = r#"{"id":"evt_1","type":"invoice.paid","at":1767225600000}"#;
    let timestamp = |from: &str, unit: &str| {
        format!("[timestamp]\nfrom = \"{from}\"\nunit = \"{unit}\"\ntolerance = \"1min\"\n")
    };
    let schemes = [
        signed_by(&hmac("algorithm = \"hmac-sha1\""), ""),
        signed_by(&hmac("algorithm = \"hmac-sha512\"\nprefix = \"sha512=\""), ""),
        signed_by(&hmac("algorithm = \"hmac-sha256\""), &timestamp("json:/at", "ms")),
        signed_by(&hmac("algorithm = \"hmac-sha256\""), "[secret]\nencoding = \"hex\"\n"),
        signed_by(
            "algorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"base64url\"\nsigned = \"{method}{url}{body}{timestamp}\"",
            &timestamp("header:X-At", "iso8601"),
        ),
        signed_by(
            "algorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nformat = \"pairs\"\nseparator = \", \"\nlabel = \"s\"\nencoding = \"base64\"\nsigned = \"v0:{timestamp}:{body}\"",
            &timestamp("item:t", "ms"),
        ),
    ];
    for scheme in schemes {
        let verified = delivered(&scheme, "00ff17", &draft("", "", body)).unwrap();
        assert_eq!(verified.event_id().as_str(), "evt_1");
        assert_eq!((verified.id_signed(), verified.guard()), (true, ReplayGuard::Off));
        assert_eq!(verified.secret(), Some("literal:…"));
    }
}

/// What a sender re-sends with its first signature is good for hours; a clock that is ahead has five minutes.
#[test]
fn a_long_tolerance_is_one_of_the_past_alone() {
    let scheme = embedded("linear");
    let at = |millis: i64| {
        let body = format!(r#"{{"webhookTimestamp":{}}}"#, NOW.0 + millis);
        delivered(&scheme, "s", &draft("d-1", "Issue", &body))
    };
    let (hour, minutes) = (3_600_000, 5 * 60_000);
    for millis in [-8 * hour, -60_001, 0, minutes] {
        let signed_at = at(millis).map(|verified| verified.signed_at());
        assert_eq!(signed_at, Ok(Some(Timestamp(NOW.0 + millis))), "{millis}");
    }
    for (millis, reason) in [(-8 * hour - 1, "stale_timestamp"), (minutes + 1, "future_timestamp")]
    {
        assert_eq!(at(millis).unwrap_err().reason, reason);
    }
    let short = delivered(&embedded("stripe"), BASE64_SECRET, &draft("", "", STRIPE_BODY));
    assert_eq!(short.unwrap().signed_at(), None, "a restore is not asked for a short tolerance");
}

#[test]
fn mailguns_last_resend_with_the_first_signature_is_accepted() {
    let scheme = embedded("mailgun");
    let keys = [key(&scheme, "k", "s").unwrap()];
    let token = "0f".repeat(25);
    let judged = |age_secs: i64| {
        let time = (NOW.seconds() - age_secs).to_string();
        let tag =
            keyed::tag(crate::provider::Hash::Sha256, b"s", &[time.as_str(), &token]).unwrap();
        let signature = data_encoding::HEXLOWER.encode(&tag);
        let body = format!(
            r#"{{"signature":{{"timestamp":"{time}","token":"{token}","signature":"{signature}"}},"event-data":{{"event":"opened"}}}}"#
        );
        let (draft, headers) = (draft("", "", &body), Headers::new());
        verify(&scheme, &keys, request(&draft, &headers), NOW)
    };
    // 5, 10 and 15 minutes, 1, 2 and 4 hours, which Mailgun calls 8 hours.
    for age in [0, 301, 450 * 60, 8 * 3600] {
        let verified = judged(age).unwrap();
        assert_eq!((verified.event_id().as_str(), verified.id_signed()), (token.as_str(), true));
    }
    assert_eq!(judged(12 * 3600 + 1).unwrap_err().reason, "stale_timestamp");
    assert_eq!(judged(-301).unwrap_err().reason, "future_timestamp");
}

#[test]
fn a_resigned_event_verifies_an_hour_later_and_keeps_its_other_headers() {
    let kept = "header = \"X-Sig\"\nalgorithm = \"hmac-sha256\"\nencoding = \"hex\"\n";
    let dated = signed_by(
        &format!("{kept}signed = \"{{method}}{{url}}{{timestamp}}{{header:X-Also}}.{{body}}\"\n"),
        "[timestamp]\nfrom = \"header:X-At\"\nunit = \"s\"\ntolerance = \"1min\"\n\
         [delivery]\nkeep_headers = [\"x-at\", \"x-also\", \"X-Sig\", \"X-Kept\"]\n",
    );
    let built_in = Scheme::embedded_names().map(embedded);
    let later = Timestamp(NOW.0 + 3_600_000);
    for scheme in built_in.chain([dated]).filter(|scheme| can_resign(scheme).is_ok()) {
        let [first, other] = [1, 2].map(|byte| {
            key(&scheme, "literal:…", &secret_text(&scheme, &[byte; SECRET_BYTES])).unwrap()
        });
        let body = String::from_utf8(sample(&scheme, "id-1", "a.type", NOW)).unwrap();
        let mut draft = draft("id-1", "a.type", &body);
        draft.headers.push("X-Also", "1");
        draft.headers.push("X-Kept", "1");
        let headers = sign(&scheme, Some(&first), &draft, NOW).unwrap();
        let accepted = verify(&scheme, &[first], request(&draft, &headers), NOW).unwrap();

        let url = draft.url.map(str::to_owned);
        let resigner = Signer::new(scheme.clone().into(), Some(other.clone()), url);
        let resigned = resigner.resign(accepted.headers(), accepted.body(), later).unwrap();
        let verified = verify(&scheme, &[other], request(&draft, &resigned), later);
        let verified = verified.unwrap_or_else(|error| panic!("{}: {error:?}", scheme.name()));
        let facts =
            |verified: &Verified| (verified.event_id().clone(), verified.event_type().clone());
        // Another time makes another event where the receiver makes the id.
        if !scheme.identity().id_is_generated() {
            assert_eq!(facts(&verified), facts(&accepted), "{}", scheme.name());
        }
        let rest = |headers: &Headers| {
            let signature = &scheme.proof().signature.as_ref().unwrap().headers;
            let naming = scheme.proof().naming_header().unwrap_or("x-at");
            let made = ["x-at", naming];
            let stays = |name: &str| !listed(signature, name) && !listed(&made, name);
            let mut lines: Vec<_> = headers
                .iter()
                .filter(|(name, _)| stays(name))
                .map(|line| format!("{line:?}"))
                .collect();
            lines.retain(|line| !line.to_ascii_lowercase().contains("-timestamp"));
            lines
        };
        assert_eq!(rest(&resigned), rest(accepted.headers()), "{}", scheme.name());
        let unsigned = Signer::new(scheme.clone().into(), None, None);
        let why = unsigned.resign(accepted.headers(), accepted.body(), later).unwrap_err();
        assert!(why.ends_with("a secret is needed"), "{why}");
    }
}

#[test]
fn an_id_in_a_form_is_signed_and_one_that_is_missing_or_doubled_is_derived() {
    let text = "name = \"test\"\n[signature]\nalgorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{body}\"\n[event]\nid = \"form:trigger id\"\ntype = \"form:command\"\n";
    let scheme = parsed(text);
    let judged = |body: &str| delivered(&scheme, "s", &draft("", "", body));
    let verified = judged("command=%2Fpay&trigger+id=1%2E2&text=x").unwrap();
    assert_eq!((verified.event_id().as_str(), verified.event_type().as_str()), ("1.2", "/pay"));
    assert!(verified.id_signed());
    for (body, reason) in [
        ("command=%2Fpay", "missing_id"),
        ("trigger+id=", "missing_id"),
        ("trigger+id=a&trigger%20id=a", "bad_id"),
        (r#"{"trigger id":"a"}"#, "missing_id"),
        ("", "missing_id"),
    ] {
        let verified = judged(body).unwrap();
        assert_eq!(verified.event_id(), &EventId::derived(Digest::of(body.as_bytes())), "{body}");
        assert_eq!(verified.id_fault().unwrap().reason, reason, "{body}");
        assert!(verified.id_signed() && verified.headers().sender_id().is_none());
    }
    assert_eq!(judged("trigger+id=a&command=x&command=y").unwrap().event_type().as_str(), "?");
    let body = sample(&scheme, "an id", "a/type", NOW);
    let told = read_body(&scheme, &body, "another");
    assert_eq!((told.id.as_deref(), told.id_is_free), (Some("an id"), false));
    assert_eq!(told.event_type, "a/type");
}

#[test]
fn a_token_must_match_exactly_and_is_not_stored() {
    let scheme = signed_by(
        "algorithm = \"token\"\nheader = \"Authorization\"\nprefix = \"Bearer \"",
        "[replay]\nguard = \"flag\"\n[delivery]\nkeep_headers = [\"X-Kept\"]",
    );
    let mut draft = draft("", "", STRIPE_BODY);
    draft.headers.push("X-Kept", "1");
    draft.headers.push("X-Dropped", "1");
    draft.headers.push("content-type", "text/plain");
    let verified = delivered(&scheme, "sesame", &draft).unwrap();
    assert_eq!((verified.id_signed(), verified.guard()), (false, ReplayGuard::Flag));
    let kept: Vec<&str> = verified.headers().iter().map(|(name, _)| name).collect();
    assert_eq!(kept, ["content-type", "X-Kept"]);

    let key = key(&scheme, "env:TOKEN", "sesame").unwrap();
    for wrong in ["Bearer sesam", "Bearer sesamee", "Bearer ", "Basic sesame", "sesame", ""] {
        let mut headers = draft.headers.clone();
        headers.push("Authorization", wrong);
        assert_eq!(evidence(&scheme, &headers).all("authorization").count(), 0);
        assert_eq!(evidence_bytes(&scheme, &headers), 29, "X-Kept and content-type");
        assert!(!can_be_judged_again(&scheme), "the token was not stored");
        let judged = verify(&scheme, std::slice::from_ref(&key), request(&draft, &headers), NOW);
        assert!(!judged.unwrap_err().malformed, "{wrong}");
    }
    assert_eq!(format!("{key:?}"), "Key(env:TOKEN, ***)");
}

#[test]
fn github_types_with_legitimate_repeats_are_flagged_and_others_held() {
    let scheme = embedded("github");
    let guard = |event: &str, body: &str| {
        let verified = delivered(&scheme, "s", &draft("d-1", event, body)).unwrap();
        assert!(!verified.id_signed());
        (verified.event_type().to_string(), verified.guard())
    };
    for (event, body, joined, expected) in [
        ("push", "{}", "push", ReplayGuard::Hold),
        ("workflow_dispatch", "{}", "workflow_dispatch", ReplayGuard::Flag),
        ("label", r#"{"action":"edited"}"#, "label.edited", ReplayGuard::Flag),
        ("star", r#"{"action":"deleted"}"#, "star.deleted", ReplayGuard::Flag),
        ("star", r#"{"action":"created"}"#, "star.created", ReplayGuard::Hold),
        ("membership", r#"{"action":"added"}"#, "membership.added", ReplayGuard::Flag),
        ("delete", "{}", "delete", ReplayGuard::Hold),
        ("team_add", "{}", "team_add", ReplayGuard::Flag),
        ("repository", r#"{"action":"privatized"}"#, "repository.privatized", ReplayGuard::Hold),
    ] {
        assert_eq!(guard(event, body), (joined.to_owned(), expected));
    }
}

#[test]
fn a_volatile_field_does_not_change_the_digest() {
    let scheme = embedded("stripe");
    let digest = |body: &str| delivered(&scheme, "s", &draft("", "", body)).unwrap().digest();
    let other = STRIPE_BODY.replace("s\":1", "s\":0");
    assert_eq!(digest(STRIPE_BODY), digest(&other));
    assert_ne!(digest(STRIPE_BODY), digest(&STRIPE_BODY.replace("paid", "void")));
}

/// It runs for each built-in provider that signs the content and not the id's header.
#[test]
fn an_unsigned_id_that_is_changed_or_taken_away_leaves_the_replay_guard_as_it_is() {
    let mut tried = Vec::new();
    for scheme in Scheme::embedded_names().map(embedded) {
        let header = scheme.identity().ids.iter().find_map(Place::header);
        let Some(header) = header.filter(|header| scheme.proof().leaves_out(header)) else {
            continue;
        };
        if can_resign(&scheme).is_err() {
            continue;
        }
        let key = key(&scheme, "literal:…", &secret_text(&scheme, &[1; SECRET_BYTES])).unwrap();
        let body = String::from_utf8(sample(&scheme, "id-1", "a.type", NOW)).unwrap();
        let draft = draft("id-1", "a.type", &body);
        let genuine = sign(&scheme, Some(&key), &draft, NOW).unwrap();
        let judged = |headers: &Headers| {
            verify(&scheme, std::slice::from_ref(&key), request(&draft, headers), NOW)
        };
        let first = judged(&genuine).unwrap();
        let long = "x".repeat(201);
        for other in [None, Some(""), Some("other"), Some("a b"), Some("-a"), Some(&*long)] {
            let mut headers = Headers::new();
            genuine
                .iter()
                .filter(|(name, _)| !name.eq_ignore_ascii_case(header))
                .for_each(|(name, value)| headers.push(name, value));
            if let Some(other) = other {
                headers.push(header, other);
            }
            if scheme.proof().naming_header().is_some() {
                // The signer here names the id's header among the signed ones.
                judged(&headers).unwrap_err();
                continue;
            }
            let captured = judged(&headers).unwrap();
            let facts = |one: &Verified| (one.id_signed(), one.guard(), one.digest());
            assert_eq!(facts(&captured), facts(&first), "{}: {other:?}", scheme.name());
            assert!(!captured.id_signed() && captured.event_id() != first.event_id());
        }
        tried.push(scheme.name().to_owned());
    }
    assert!(tried.len() >= 15, "{tried:?}");
}

/// Under a signature over `{url}{form}` bytes can move from the form to the query.
#[test]
fn a_captured_form_that_is_cut_elsewhere_is_the_same_to_the_replay_guard() {
    let signature = "[signature]\nalgorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{url}{form}\"\n";
    let by_header = "[event]\nid = \"header:X-Id\"\n[replay]\nguard = \"hold\"\n";
    for event in [by_header, "[event]\nid = \"digest\"\n"] {
        let scheme = parsed(&format!("name = \"test\"\n{signature}{event}"));
        let own_key = key(&scheme, "literal:…", "secret").unwrap();
        let form = |url: &'static str, body: &'static str| Draft {
            url: Some(url),
            ..draft("id-1", "", body)
        };
        let genuine = form("https://h.example/t?a=1", "ferry=north&pier=4");
        let signed = sign(&scheme, Some(&own_key), &genuine, NOW).unwrap();
        let judged = |draft: &Draft<'_>, id: &str| {
            let mut headers = only(&signed, |name| name != "X-Id");
            headers.push("X-Id", id);
            verify(&scheme, std::slice::from_ref(&own_key), request(draft, &headers), NOW)
        };
        let first = judged(&genuine, "id-1").unwrap();
        for (url, body) in [
            ("https://h.example/t?a=1ferrynorth", "pier=4"),
            ("https://h.example/t?a=1", "pier=%34&ferry=north"),
        ] {
            let cut = judged(&form(url, body), "id-2").unwrap();
            assert_eq!((cut.digest(), cut.guard()), (first.digest(), first.guard()), "{url}");
            assert!(cut.guard() == ReplayGuard::Hold || cut.event_id() == first.event_id());
        }
        // No form begins with a query.
        let cut = judged(&form("https://h.example/t", "%3Fa%3D1ferrynorth=&pier=4"), "id-2");
        assert_eq!(cut.unwrap_err().reason, "ambiguous_part");
        // Another query is another request.
        let other = form("https://h.example/t?a=2", "ferry=north&pier=4");
        let resigned = sign(&scheme, Some(&own_key), &other, NOW).unwrap();
        let other =
            verify(&scheme, std::slice::from_ref(&own_key), request(&other, &resigned), NOW);
        assert_ne!(other.unwrap().digest(), first.digest());
    }
}

/// What `signature` says of each request, whose one signature is over `content`.
fn of_one_signature<'a>(
    scheme: &Scheme,
    (label, content): (&str, &str),
    requests: impl IntoIterator<Item = (&'a str, Vec<(&'a str, &'a str)>, &'a str)>,
) -> Vec<Result<Digest, &'static str>> {
    let key = key(scheme, "literal:…", "s").unwrap();
    let tag = keyed::tag(Hash::Sha256, b"s", &[content]).unwrap();
    let line = label.to_owned() + &data_encoding::HEXLOWER.encode(&tag);
    let judged = |(url, lines, body): (&'a str, Vec<(&'a str, &'a str)>, &'a str)| {
        let mut headers = Headers::new();
        lines.into_iter().for_each(|(name, value)| headers.push(name, value));
        headers.push("X-Sig", line.as_str());
        let draft = Draft { url: Some(url), ..draft("", "", body) };
        let verdict = verify(scheme, std::slice::from_ref(&key), request(&draft, &headers), NOW);
        verdict.map(|one| one.digest()).map_err(|rejection| rejection.reason)
    };
    requests.into_iter().map(judged).collect()
}

#[test]
fn the_one_free_text_of_a_signed_list_does_not_move_the_others() {
    let signature = "algorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{json:/id}:{any-json:/note}:{json:/type}\"";
    let scheme = signed_by(signature, "");
    let bodies = [
        r#"{"id":"a","note":"1:2","type":"t"}"#,
        r#"{"id":"a:1","note":"2","type":"t"}"#,
        r#"{"id":"a","note":"1","type":"2:t"}"#,
        r#"{"id":"a","note":"1:3","type":"t"}"#,
    ];
    let requests = bodies.map(|body| ("https://h.example/", Vec::new(), body));
    let judged = of_one_signature(&scheme, ("", "a:1:2:t"), requests);
    assert!(judged[0].is_ok(), "{judged:?}");
    let wanted = [Err("ambiguous_part"), Err("ambiguous_part"), Err("bad_signature")];
    assert_eq!(judged[1..], wanted);
}

#[test]
fn the_border_between_a_signed_query_and_a_form_does_not_move() {
    let signature = "[signature]\nalgorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{url+form}.{header:X-Nonce}\"\n";
    let scheme = parsed(&format!("name = \"test\"\n{signature}[event]\nid = \"digest\"\n"));
    let own = |url, body| (url, vec![("X-Nonce", "n1")], body);
    let base = "https://h.example/in";
    let requests = [
        own("https://h.example/in?b=1&a=2%2F", "pier=4"),
        own("https://h.example/in?a=2/&b=1.pier4", ""),
        own(base, "a=%3D2/%26b%3D1.pier4"),
    ];
    let judged =
        of_one_signature(&scheme, ("", "https://h.example/in?a=2/&b=1.pier4.n1"), requests);
    assert!(judged[0].is_ok(), "{judged:?}");
    assert_eq!(judged[1..], [Err("ambiguous_part"), Err("ambiguous_part")]);
    // A pair that is there twice is another text: moved to one field, it has the same digest and is a duplicate.
    let requests = [
        own("https://h.example/in?a=1", "pier=4&pier=5&pier=5"),
        own("https://h.example/in?a=1", "pier=4pier5pier5"),
    ];
    let judged =
        of_one_signature(&scheme, ("", "https://h.example/in?a=1.pier4pier5pier5.n1"), requests);
    assert!(judged[0].is_ok() && judged[0] == judged[1], "{judged:?}");
}

#[test]
fn the_border_between_signed_headers_and_the_body_does_not_move() {
    let scheme = parsed(
        "name = \"test\"\n[signature]\nalgorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nformat = \"pairs\"\nseparator = \",\"\nlabel = \"one\"\nencoding = \"hex\"\nsigned = \"{timestamp}.{body}\"\n\
         [[alternative]]\nsignature = { label = \"two\", signed = \"{timestamp}.{headers:h}.{body}\" }\n\
         [timestamp]\nfrom = \"item:t\"\nunit = \"s\"\ntolerance = \"5min\"\n\
         [event]\nid = \"digest\"\n[delivery]\nkeep_headers = [\"x-ferry\", \"x-pier\"]\n",
    );
    let body = r#"{"a":1.5}"#;
    let content = format!("1767225600.x-ferry x-pier.north.four.{body}");
    let of = |ferry, pier, body| {
        ("https://h.example/", vec![("X-Ferry", ferry), ("X-Pier", pier)], body)
    };
    let requests = [
        of("north", "four", body),
        of("north", r#"four.{"a":1"#, "5}"),
        of("north", "fo", body),
        of("north.four", r#"{"a":1"#, "5}"),
    ];
    let judged =
        of_one_signature(&scheme, ("t=1767225600,h=x-ferry x-pier,two=", &content), requests);
    assert!(judged[0].is_ok(), "{judged:?}");
    assert_eq!(judged[1..], [Err("ambiguous_part"), Err("bad_signature"), Err("ambiguous_part")]);
    let requests = [of("north", "fo", "ur.{}")];
    let content = "1767225600.x-ferry x-pier.north.fo.ur.{}";
    let judged =
        of_one_signature(&scheme, ("t=1767225600,h=x-ferry x-pier,two=", content), requests);
    assert_eq!(judged, [Err("ambiguous_part")]);
    // Content signed with headers is not taken for a body that is signed alone.
    let requests = [of("north", "four", r#"x-ferry.north.{"a":1}"#)];
    let content = r#"1767225600.x-ferry.north.{"a":1}"#;
    let judged = of_one_signature(&scheme, ("t=1767225600,one=", content), requests);
    assert_eq!(judged, [Err("ambiguous_part")]);
}

#[test]
fn a_line_break_in_a_signed_line_but_the_first_is_ambiguous() {
    let hmac = "algorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{lines:text,id,type}\"";
    let scheme = signed_by(hmac, "");
    let key = key(&scheme, "literal:…", "s").unwrap();
    let signed = "text\na\nid\nother\ntype\nt\nid\nown\ntype\nt\n";
    let tag = keyed::tag(Hash::Sha256, b"s", &[signed]).unwrap();
    let mut headers = Headers::new();
    headers.push("X-Sig", data_encoding::HEXLOWER.encode(&tag));
    for (body, wanted) in [
        (r#"{"text":"a\nid\nother\ntype\nt","id":"own","type":"t"}"#, Ok("own")),
        (r#"{"text":"a","id":"other","type":"t\nid\nown\ntype\nt"}"#, Err("ambiguous_part")),
        (r#"{"text":"a","id":"other\ntype\nt\nid\nown","type":"t"}"#, Err("ambiguous_part")),
    ] {
        let draft = draft("", "", body);
        let verdict = verify(&scheme, std::slice::from_ref(&key), request(&draft, &headers), NOW);
        let verdict = verdict.map(|one| one.event_id().to_string()).map_err(|one| one.reason);
        assert_eq!(verdict.as_deref().map_err(|reason| *reason), wanted, "{body}");
    }
}

#[test]
fn a_signature_over_one_element_refuses_a_list_of_two() {
    let scheme = signed_by(
        "algorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{json:/items/0/id}\"",
        "[replay]\nguard = \"hold\"\n",
    );
    let judged = |body: &str| delivered(&scheme, "s", &draft("", "", body)).map(|_| ());
    judged(r#"{"items":[{"id":"a"}],"id":"b"}"#).unwrap();
    judged("\u{feff}{\"items\":[{\"id\":\"a\"}],\"id\":\"b\"}").unwrap();
    for body in [
        r#"{"items":[{"id":"a"},{"id":"b"}],"id":"b"}"#,
        "\u{feff}{\"items\":[{\"id\":\"a\"},{\"id\":\"b\"}],\"id\":\"b\"}",
        r#"{"items":{"0":{"id":"a"},"1":{"id":"b"}},"id":"b"}"#,
    ] {
        assert_eq!(judged(body).unwrap_err().reason, "ambiguous_part", "{body}");
    }
    judged(r#"{"items":[{"id":"a"},null],"id":"b"}"#).unwrap_err();
}

/// Its kept headers are not signed, and each event of a list has them.
#[test]
fn a_long_list_with_large_headers_is_refused() {
    let scheme = embedded("line");
    let key = key(&scheme, "literal:…", "s").unwrap();
    let events =
        vec![r#"{"webhookEventId":"a","type":"message","of":"the bytes that it needs"}"#; 2_000];
    let body = format!(r#"{{"events":[{}]}}"#, events.join(","));
    let draft = draft("", "", &body);
    let signed = sign(&scheme, Some(&key), &draft, NOW).unwrap();
    let judged = |bytes: usize| {
        let mut headers = signed.clone();
        headers.push("Content-Type", vec![b'a'; bytes]);
        judge(&scheme, std::slice::from_ref(&key), request(&draft, &headers), NOW, None)
    };
    assert!(matches!(judged(1_000), Ok(Genuine::Event(events, None)) if events.len() == 2_000));
    assert_eq!(judged(16_000).unwrap_err().reason, "too_many_events");
}

#[test]
fn an_id_of_another_form_is_derived_from_the_text_that_the_sender_wrote() {
    let hmac =
        "algorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{body}\"";
    let scheme = signed_by(hmac, "");
    let judged = |body: &str| delivered(&scheme, "s", &draft("", "", body)).unwrap();
    let long = "x".repeat(201);
    for (written, text, shown) in [
        (r#""-EFuu""#, "-EFuu", "-EFuu"),
        (r#""a\u0000ä b""#, "a\0ä b", r"a\u{0}\u{e4} b"),
        ("1.50", "1.50", "1.50"),
        ("[1]", "[1]", "[1]"),
        (&format!("\"{long}\""), &long, &long),
    ] {
        // The text alone names the event: a body that differs elsewhere is the same event.
        for rest in ["", r#","more":1"#] {
            let verified = judged(&format!(r#"{{"id":{written}{rest}}}"#));
            let derived = EventId::of_text(text);
            assert_eq!(verified.event_id(), &derived, "{written}");
            assert_eq!(verified.headers().sender_id().unwrap(), shown);
            assert_eq!(verified.id_fault().unwrap().reason, "bad_id");
        }
    }
    let own = embedded("github");
    let headers = |id: &[u8]| {
        let mut headers =
            sign(&own, Some(&key(&own, "x", "s").unwrap()), &draft("a", "ping", "{}"), NOW)
                .unwrap();
        headers = only(&headers, |name| name != "X-GitHub-Delivery");
        headers.push("X-GitHub-Delivery", id);
        headers
    };
    let named = |id: &[u8]| {
        let headers = headers(id);
        let key = key(&own, "x", "s").unwrap();
        verify(&own, &[key], request(&draft("a", "ping", "{}"), &headers), NOW).unwrap()
    };
    // Text that is not UTF-8 names nothing: two such ids must not become one.
    assert_eq!(named(b"\xff1").event_id(), &EventId::derived(Digest::of(b"{}")));
    for body in [r#"{"id":null}"#, "{}", "", r#"{"id":"a","id":"b"}"#] {
        let verified = judged(body);
        assert_eq!(verified.event_id(), &EventId::derived(verified.digest()), "{body}");
    }
}

#[test]
fn joined_values_of_another_form_all_count_for_the_id() {
    let hmac =
        "algorithm = \"hmac-sha256\"\nheader = \"X-Sig\"\nencoding = \"hex\"\nsigned = \"{body}\"";
    let scheme = parsed(&format!(
        "name = \"test\"\n[signature]\n{hmac}\n[event]\nid = {{ join = [\"json:/id\", \"json:/at\"] }}\n"
    ));
    let at = |body: &str| delivered(&scheme, "s", &draft("", "", body)).unwrap();
    let whole = at(r#"{"id":"a","at":1}"#);
    assert_eq!((whole.event_id().as_str(), whole.id_fault()), ("a:1", None));
    let bodies = [
        r#"{"id":"a","at":1.5}"#,
        r#"{"id":"b","at":1.5}"#,
        r#"{"id":true,"at":1}"#,
        r#"{"id":true,"at":2}"#,
    ];
    let ids: Vec<String> = bodies.map(|body| at(body).event_id().to_string()).into();
    for (n, id) in ids.iter().enumerate() {
        assert!(!ids[..n].contains(id), "{}", bodies[n]);
    }
    let again = at(r#"{"id":"a","at":1.5,"attempt":2}"#);
    assert_eq!(again.event_id().to_string(), ids[0]);
    assert!(again.id_fault().is_some());
}

#[test]
fn equal_bodies_with_two_tokens_are_two_events_where_the_receiver_makes_the_id() {
    let scheme = parsed(
        "name = \"test\"\n[signature]\nalgorithm = \"jwt\"\nheader = \"X-T\"\njwt = [\"HS256\"]\nbody_claim = \"sha256\"\n\
         body_encoding = \"hex\"\ntolerance = \"1min\"\n[event]\nid = \"new\"\n",
    );
    let keys = [key(&scheme, "k", "s").unwrap()];
    let draft = draft("", "", "{}");
    let at = |secs: i64| {
        let headers = sign(&scheme, keys.first(), &draft, Timestamp(NOW.0 + secs * 1000)).unwrap();
        verify(&scheme, &keys, request(&draft, &headers), NOW).unwrap().event_id().to_string()
    };
    assert_eq!(at(0), at(0), "a captured one is a duplicate");
    assert_ne!(at(0), at(1));
}

#[test]
fn an_unsigned_event_has_its_key_or_its_digest_as_id() {
    let scheme = embedded("none");
    let accept = |headers: &Headers| {
        let draft = draft("", "", "body");
        verify(&scheme, &[], request(&draft, headers), NOW).unwrap()
    };
    let by_digest = accept(&Headers::new());
    assert_eq!(by_digest.event_id(), &EventId::derived(by_digest.digest()));
    assert_eq!((by_digest.event_type().as_str(), by_digest.secret()), ("?", None));
    let headers = sign(&scheme, None, &draft("k-1", "t", "body"), NOW).unwrap();
    let by_key = accept(&headers);
    assert_eq!((by_key.event_id().as_str(), by_key.event_type().as_str()), ("k-1", "t"));
    assert!(!by_key.id_signed());
}

#[test]
fn only_a_repeatable_signature_header_may_occur_twice() {
    let signature = "algorithm = \"hmac-sha256\"\nheader = [\"X-Sig\", \"X-Sig-2\"]\nencoding = \"hex-any-case\"\nsigned = \"{body}\"\n";
    let scheme = signed_by(&format!("{signature}repeatable = true"), "");
    let draft = draft("", "", STRIPE_BODY);
    let key = key(&scheme, "k", "s").unwrap();
    let signed = sign(&scheme, Some(&key), &draft, NOW).unwrap();
    let value = signed.all("x-sig").next().unwrap().to_ascii_uppercase();
    let mut rotated = Headers::new();
    rotated.push("X-Sig", "0".repeat(64));
    rotated.push("X-Sig", value.clone());
    verify(&scheme, std::slice::from_ref(&key), request(&draft, &rotated), NOW).unwrap();

    // As Apache 2.4.67 merges them.
    let merged = |count: usize| {
        let mut headers = Headers::new();
        let others = format!("{}, ", "0".repeat(64)).repeat(count);
        headers.push("X-Sig", [others.as_bytes(), &value].concat());
        headers
    };
    for count in [1, 15] {
        verify(&scheme, std::slice::from_ref(&key), request(&draft, &merged(count)), NOW).unwrap();
    }
    assert_eq!(precheck(&scheme, &merged(16)).unwrap_err().reason, "repeated_header");
    let mut more = merged(14);
    more.push("X-Sig", value.clone());
    precheck(&scheme, &more).unwrap();
    more.push("X-Sig-2", value.clone());
    assert_eq!(precheck(&scheme, &more).unwrap_err().reason, "repeated_header");

    let strict = signed_by(signature, "");
    assert_eq!(precheck(&strict, &merged(1)).unwrap_err().reason, "unreadable_signature");
    assert_eq!(precheck(&strict, &rotated).unwrap_err().reason, "repeated_header");
    let mut numbered = Headers::new();
    numbered.push("X-Sig-2", value);
    verify(&strict, &[key], request(&draft, &numbered), NOW).unwrap();
}

#[test]
fn an_undecodable_secret_is_refused_and_not_quoted() {
    for (provider, text, wrong) in [
        ("stripe", "", "env:S: the secret is empty"),
        ("standard-webhooks", "whsec_", "env:S: the secret is empty"),
        ("standard-webhooks", "whsec_*", "not 'whsec_' and base64"),
        // One digit too many, and a last one with bits beyond the last byte.
        ("standard-webhooks", "whsec_AAECA", "not 'whsec_' and base64"),
        ("standard-webhooks", "whsec_AAECAx", "not 'whsec_' and base64"),
        ("none", "s", "takes no secret"),
    ] {
        let error = key(&embedded(provider), "env:S", text).unwrap_err();
        assert!(error.contains(wrong), "{error}");
    }
}

#[test]
fn a_base64_secret_may_lack_its_padding() {
    for (provider, text) in [
        ("standard-webhooks", "whsec_AAECAw"),
        ("svix", "AAECAwQFBgc"),
        ("airtable", "AAECAw"),
        ("supabase-auth", "v1,whsec_AAECAw"),
    ] {
        let of = |text: &str| key(&embedded(provider), "k", text).unwrap();
        let padded = format!("{text}{}", if text.ends_with("Bgc") { "=" } else { "==" });
        assert_eq!(of(text), of(&padded), "{provider}");
    }
}

/// The hint for a Stripe delivery after `change` altered it.
fn hinted(secret: &str, change: impl Fn(&mut Headers, &mut String, &mut Timestamp)) -> String {
    let scheme = embedded("stripe");
    let signer = key(&scheme, "k", "whsec_abcd").unwrap();
    let body = serde_json::json!({"id": "evt_1", "type": "a", "n": [1, 2]});
    let mut body = serde_json::to_string_pretty(&body).unwrap();
    let mut headers = sign(&scheme, Some(&signer), &draft("", "", &body), NOW).unwrap();
    let mut now = NOW;
    change(&mut headers, &mut body, &mut now);
    let keys = [key(&scheme, "env:S", secret).unwrap()];
    let draft = draft("", "", &body);
    let request = request(&draft, &headers);
    let rejection = verify(&scheme, &keys, request.clone(), now).unwrap_err();
    hint(&scheme, &keys, &request, &rejection, now).unwrap()
}

#[test]
fn a_hint_names_the_cause_of_the_rejection() {
    let secret = "whsec_abcd";
    let after = |seconds: i64| hinted(secret, |_, _, now| *now = Timestamp(now.0 + 1000 * seconds));
    assert!(after(-412).starts_with("the clock here is 412 s behind the sender's"));
    assert!(after(412).contains("the request is 412 s old"));
    let touched = |change: fn(&mut String)| hinted(secret, |_, body, _| change(body));
    let re_encoded = touched(|b| {
        *b = serde_json::from_str::<serde_json::Value>(b).unwrap().to_string();
    });
    assert!(re_encoded.starts_with("the body was re-encoded by a proxy"), "{re_encoded}");
    assert!(touched(|b| b.push('\n')).starts_with("a newline was added"));
    assert!(touched(|b| *b = b.replace('\n', "\r\n")).contains("line ends"));
    assert!(touched(String::clear).starts_with("the body is empty"));
    assert!(touched(|b| *b = b.replace('1', "2")).starts_with("either the secret is another one"));
    let same = |_: &mut Headers, _: &mut String, _: &mut Timestamp| {};
    assert!(hinted("abcd", same).starts_with("env:S: the secret's prefix was cut"));
    assert!(hinted(" whsec_abcd\n", same).starts_with("env:S: the secret has a space"));
    let gzip = hinted(secret, |headers, body, _| {
        headers.push("Content-Encoding", "gzip");
        *body = "\u{1f}".to_owned();
    });
    assert!(gzip.contains("encoded (gzip)"), "{gzip}");
    let other = hinted(secret, |headers, _, _| {
        *headers = Headers::new();
        headers.push("x-hub-signature-256", "sha256=00");
    });
    assert!(other.contains("provider github or meta, not stripe"), "{other}");
    let legacy = hinted(secret, |headers, _, _| {
        *headers = Headers::new();
        headers.push("X-Hub-Signature", "sha1=00");
    });
    assert!(legacy.starts_with("there is X-Hub-Signature instead"), "{legacy}");
}

/// The name of a built-in provider.
fn built_in() -> impl Strategy<Value = &'static str> {
    prop::sample::select(Scheme::embedded_names().collect::<Vec<_>>())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..80)
}

/// Random header values, some of them close to a real signature.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        bytes(),
        "(t=[0-9]{0,12}|v1=[0-9a-f]{0,64}|v1,[A-Za-z0-9+/=]{0,44}|[, ;=])*"
            .prop_map(String::into_bytes),
        "[0-9]{0,20}".prop_map(String::into_bytes),
        "sha256=[0-9a-f]{64}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn random_requests_are_refused_without_a_panic(
        name in built_in(),
        values in prop::collection::vec((0usize..12, value()), 0..6),
        body in bytes(),
        now in any::<i64>(),
    ) {
        let scheme = embedded(name);
        let reads = scheme.read_headers();
        let mut headers = Headers::new();
        for (n, value) in &values {
            let name = reads.get(n % reads.len().max(1)).copied().unwrap_or("X-Any");
            headers.push(name, value.clone());
        }
        let keys: Vec<Key> = key(&scheme, "k", BASE64_SECRET).into_iter().collect();
        let request = Request { method: "POST", url: None, headers: &headers, body: body.into() };
        let _ = precheck(&scheme, &headers);
        let text = String::from_utf8_lossy(&request.body).into_owned();
        for method in ["POST", "GET", "HEAD", "OPTIONS"] {
            let query = Some(text.as_str());
            let asked = Challenge {
                method,
                is_delivery: method == "POST",
                query,
                headers: &headers,
                body: &request.body,
            };
            let _ = may_be_challenge(&scheme, asked);
            let _ = challenge(&scheme, &keys, None, asked);
        }
        let judged = verify(&scheme, &keys, request.clone(), Timestamp(now));
        prop_assert!(judged.is_err() || scheme.proof().is_absent());
        if let Err(rejection) = judged {
            let _ = hint(&scheme, &keys, &request, &rejection, Timestamp(now));
        }
    }

    #[test]
    fn a_signed_sample_is_accepted_and_a_forged_or_stale_one_is_refused(
        name in built_in().prop_filter("only the provider signs", |name| !embedded(name).proof().only_provider_signs()),
        id in "[A-Za-z0-9_][A-Za-z0-9_.:-]{0,40}",
        event_type in "[a-z_]{1,12}(\\.[a-z_.]{1,12})?",
        random in any::<[u8; SECRET_BYTES]>(),
    ) {
        let scheme = std::sync::Arc::new(embedded(name));
        // A scheme that signs the id between dots refuses an id with a dot.
        let id = if scheme.proof().signed_content().is_some() { id.replace('.', "_") } else { id.clone() };
        let text = secret_text(&scheme, &random);
        let real = || (!scheme.proof().is_absent()).then(|| key(&scheme, "k", &text).unwrap());
        let keys: Vec<Key> = real().into_iter().collect();
        let judge = |signer: Signer, at: Timestamp| {
            let (url, body) = (Some("https://example.com/hooks"), sample(&scheme, &id, &event_type, at).into());
            let draft = Draft { method: "POST", id: &id, event_type: &event_type, url, body, ..Draft::default() };
            let headers = signer.sign(&draft, at).unwrap();
            verify(&scheme, &keys, request(&draft, &headers), NOW)
        };
        let verified = judge(Signer::new(scheme.clone(), real(), None), NOW).unwrap();
        if !matches!(scheme.identity().ids[0], Place::Digest | Place::New | Place::Join(_)) {
            prop_assert_eq!(verified.event_id().to_string(), id.clone(), "{}", name);
        }
        let typed = if scheme.identity().types.is_empty() { "?" } else { event_type.as_str() };
        prop_assert_eq!(verified.event_type().as_str(), typed, "{}", name);
        let mut others = random;
        others[0] ^= 1;
        if !scheme.proof().is_absent() {
            let forged = judge(Signer::forger(scheme.clone(), others), NOW).unwrap_err();
            prop_assert_eq!(forged.reason, "bad_signature");
        }
        if let Some(tolerance) = scheme.proof().tolerance() {
            let then = Timestamp(NOW.0 - 1000 - tolerance.as_millis() as i64);
            let stale = judge(Signer::new(scheme.clone(), real(), None), then).unwrap_err();
            prop_assert_eq!(stale.reason, "stale_timestamp");
        }
    }

    #[test]
    fn a_request_with_one_changed_bit_is_refused(
        body in "[ -~]{0,40}",
        id in "[a-z0-9_]{1,20}",
        at in any::<prop::sample::Index>(),
        flip in 0u8..8,
        what in 0usize..4,
    ) {
        for (name, parts) in [("stripe", vec!["body", "stripe-signature"]), ("github", vec!["body", "x-hub-signature-256"]), ("standard-webhooks", vec!["body", "webhook-id", "webhook-timestamp", "webhook-signature"])] {
            let scheme = embedded(name);
            let key = key(&scheme, "k", BASE64_SECRET).unwrap();
            let body = format!(r#"{{"id":"{id}","type":"a","data":{}}}"#, serde_json::to_string(&body).unwrap());
            let draft = draft(&id, "push", &body);
            let signed = sign(&scheme, Some(&key), &draft, NOW).unwrap();
            let keys = [key];
            prop_assert!(verify(&scheme, &keys, request(&draft, &signed), NOW).is_ok());

            let part = parts[what % parts.len()];
            let change = |bytes: &mut Vec<u8>| {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << flip;
            };
            let mut changed = draft.body.to_vec();
            if part == "body" {
                change(&mut changed);
            }
            let mut headers = Headers::new();
            for (header, value) in signed.iter() {
                let mut value = value.to_vec();
                if header.eq_ignore_ascii_case(part) {
                    change(&mut value);
                }
                headers.push(header, value);
            }
            let request = Request { method: "POST", url: None, headers: &headers, body: changed.into() };
            prop_assert!(verify(&scheme, &keys, request, NOW).is_err(), "{name} {part}");
        }
    }
}

/// The event types in a provider's samples, including `*`.
fn sample_keys(scheme: &Scheme) -> Vec<String> {
    let samples: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(scheme.setup().samples).unwrap();
    samples.keys().cloned().collect()
}

#[test]
fn every_sample_has_no_placeholder_left_and_differs_by_id() {
    for name in Scheme::embedded_names() {
        let scheme = embedded(name);
        let keys = sample_keys(&scheme);
        assert!(keys.iter().any(|key| key == "*"), "{name}");
        let known = ["push", "checkout.session.completed", "sample.created"].map(str::to_owned);
        for kind in keys.into_iter().chain(known) {
            let [one, other] = ["evt-1", "evt-2"].map(|id| sample(&scheme, id, &kind, NOW));
            let text = String::from_utf8(one).unwrap();
            assert!(!text.contains("{{"), "{name} {kind}: {text}");
            let said = read_body(&scheme, text.as_bytes(), &kind);
            assert_eq!((said.event_type, said.lacks), (kind.clone(), None), "{name}: {text}");
            assert_ne!(text.as_bytes(), other, "{name} {kind}");
        }
    }
}
