//! Genuine requests in the several forms that one provider sends: the id and the type that each gets.

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use hmac::{Hmac, KeyInit, Mac};
use hooklatch::model::{Headers, Timestamp};
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Genuine, Request};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::support::front::{START, hmac};

const SECRET: &str = "not a secret: made for tests";
const URL: &str = "https://hooks.example.org/hook";

/// Ids and types of the events in a request that is proven with [`SECRET`], or why it is refused.
fn named(provider: &str, headers: &[(&str, &str)], body: &str) -> Result<Vec<[String; 2]>, String> {
    named_with(provider, SECRET, headers, body)
}

fn named_with(
    provider: &str,
    secret: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Vec<[String; 2]>, String> {
    let scheme = Scheme::embedded(provider).unwrap();
    let keys: Vec<_> = verify::key(&scheme, "literal:test", secret).into_iter().collect();
    let mut all = Headers::new();
    headers.iter().for_each(|(name, value)| all.push(*name, *value));
    let body = Bytes::copy_from_slice(body.as_bytes());
    let request = Request { method: "POST", url: Some(URL), headers: &all, body };
    let names = |event: &verify::Verified| {
        [event.event_id().as_str().to_owned(), event.event_type().as_str().to_owned()]
    };
    match verify::judge(&scheme, &keys, request, Timestamp(START.0), None) {
        Ok(Genuine::Event(events, _)) => Ok(events.iter().map(names).collect()),
        Ok(Genuine::Challenge(_)) => Err("challenge".to_owned()),
        Err(rejection) => Err(rejection.reason.to_owned()),
    }
}

/// The id that is derived from a body.
fn derived(text: &str) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(text)))
}

fn base64_hmac(content: &str) -> String {
    let tag = HEXLOWER.decode(hmac(content.as_bytes()).as_bytes()).unwrap();
    BASE64.encode(&tag)
}

fn one(id: &str, event_type: &str) -> Result<Vec<[String; 2]>, String> {
    Ok(vec![[id.to_owned(), event_type.to_owned()]])
}

#[test]
fn anthropics_type_is_that_of_its_data() {
    let body = r#"{"type":"event","id":"e","data":{"type":"session.status_idled","id":"s"}}"#;
    let now = START.seconds().to_string();
    let key = BASE64.encode(SECRET.as_bytes());
    let signature = format!("v1,{}", base64_hmac(&format!("m1.{now}.{body}")));
    let headers = [
        ("webhook-id", "m1"),
        ("webhook-timestamp", now.as_str()),
        ("webhook-signature", signature.as_str()),
    ];
    let found = named_with("anthropic", &format!("whsec_{key}"), &headers, body);
    assert_eq!(found, one("m1", "session.status_idled"));
}

#[test]
fn graphs_lifecycle_notifications_have_a_type() {
    let change = format!(r#"{{"clientState":"{SECRET}","changeType":"updated"}}"#);
    let lifecycle =
        format!(r#"{{"clientState":"{SECRET}","lifecycleEvent":"reauthorizationRequired"}}"#);
    let body = format!(r#"{{"value":[{change},{lifecycle}]}}"#);
    let types: Vec<_> =
        named("microsoft-graph", &[], &body).unwrap().into_iter().map(|[_, kind]| kind).collect();
    assert_eq!(types, ["updated", "reauthorizationRequired"]);
}

#[test]
fn checkouts_broken_body_is_named_by_its_digest() {
    for (body, wanted) in [
        (r#"{"id":"evt_1","type":"payment_captured"}"#, one("evt_1", "payment_captured")),
        (r#"{"id":"evt_1","type":"authentication_failed","data":{]}"#, Ok(Vec::new())),
    ] {
        let wanted = match wanted {
            Ok(none) if none.is_empty() => one(&derived(body), "?"),
            one => one,
        };
        let signature = hmac(body.as_bytes());
        assert_eq!(named("checkout-com", &[("Cko-Signature", &signature)], body), wanted);
    }
}

/// The headers with which Slack signs a body at [`START`].
fn slack(body: &str) -> Result<Vec<[String; 2]>, String> {
    let now = START.seconds().to_string();
    let signature = format!("v0={}", hmac(format!("v0:{now}:{body}").as_bytes()));
    named("slack", &[("X-Slack-Signature", &signature), ("X-Slack-Request-Timestamp", &now)], body)
}

#[test]
fn each_kind_of_slacks_requests_has_its_id_and_type() {
    let form = |payload: &str| {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("payload", payload).finish()
    };
    let event = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}"#;
    assert_eq!(slack(event), one("Ev1", "app_mention"));
    let button =
        form(r#"{"type":"block_actions","trigger_id":"13345224609.738474920.8088930838d8"}"#);
    assert_eq!(slack(&button), one("13345224609.738474920.8088930838d8", "block_actions"));
    let closed = form(r#"{"type":"view_closed"}"#);
    assert_eq!(slack(&closed), one(&derived(&closed), "view_closed"));
    let command = "command=%2Fweather&trigger_id=13345224609.1&text=94070";
    assert_eq!(slack(command), one("13345224609.1", "/weather"));
    assert_eq!(slack("ssl_check=1").unwrap_err(), "challenge");
}

#[test]
fn brevos_batch_is_an_event_for_each_element() {
    let (sent, opened) = (r#"{"event":"sent","id":7}"#, r#"{"event":"opened","id":7}"#);
    let header = format!("Bearer {SECRET}");
    let found =
        named("brevo-batched", &[("Authorization", &header)], &format!("[{sent},{opened}]"));
    let event = |text: &str, kind: &str| [derived(text), kind.to_owned()];
    assert_eq!(found, Ok(vec![event(sent, "sent"), event(opened, "opened")]));
    assert_eq!(named("brevo", &[("Authorization", &header)], sent), one(&derived(sent), "sent"));
}

#[test]
fn bitbucket_cloud_and_data_center_name_events_in_their_own_headers() {
    let body = r#"{"eventKey":"repo:refs_changed"}"#;
    let signature = format!("sha256={}", hmac(body.as_bytes()));
    let all = [
        ("X-Hub-Signature", signature.as_str()),
        ("X-Event-Key", "repo:refs_changed"),
        ("X-Request-Id", "96efd4cb-05ca"),
        ("X-Request-UUID", "637fe7ec-63e7"),
    ];
    assert_eq!(named("bitbucket", &all[..3], body), one("96efd4cb-05ca", "repo:refs_changed"));
    assert_eq!(named("bitbucket", &all, body), one("637fe7ec-63e7", "repo:refs_changed"));
}

#[test]
fn a_mailgun_subaccounts_event_is_proven_with_the_primary_accounts_key() {
    let (now, token) = (START.seconds(), "e0b5477167110d68");
    let good = hmac(format!("{now}{token}").as_bytes());
    let other = "0".repeat(64);
    let body = |own: &str, parent: &str| {
        format!(
            r#"{{"signature":{{"token":"{token}","timestamp":"{now}","signature":"{own}","parent-signature":"{parent}"}},"event-data":{{"event":"delivered"}}}}"#
        )
    };
    for (own, parent) in [(&other, &good), (&good, &other)] {
        assert_eq!(named("mailgun", &[], &body(own, parent)), one(token, "delivered"));
    }
    assert_eq!(named("mailgun", &[], &body(&other, &other)).unwrap_err(), "bad_signature");
}

#[test]
fn flutterwaves_two_apis_prove_in_two_ways() {
    let body =
        r#"{"webhook_id":"wbk_1","timestamp":1739456704200,"type":"charge.completed","data":{}}"#;
    let signature = base64_hmac(body);
    let v4 = named("flutterwave-v4", &[("flutterwave-signature", &signature)], body);
    assert_eq!(v4, one(&derived(body), "charge.completed"));
    let token = named("flutterwave-v4", &[("flutterwave-signature", SECRET)], body);
    assert_eq!(token.unwrap_err(), "unreadable_signature");
    let body = r#"{"event":"charge.completed","data":{}}"#;
    let v3 = named("flutterwave", &[("verif-hash", SECRET)], body);
    assert_eq!(v3, one(&derived(body), "charge.completed"));
}

#[test]
fn adyens_second_item_refuses_both() {
    let item = |reference: &str| {
        let signed = format!("{reference}::Shop:order-1:100:EUR:AUTHORISATION:true");
        let tag = base64_hmac(&signed);
        format!(
            r#"{{"NotificationRequestItem":{{"pspReference":"{reference}","merchantAccountCode":"Shop","merchantReference":"order-1","amount":{{"value":100,"currency":"EUR"}},"eventCode":"AUTHORISATION","success":"true","additionalData":{{"hmacSignature":"{tag}"}}}}}}"#
        )
    };
    let at = |items: &[String]| {
        let body = format!(r#"{{"live":"false","notificationItems":[{}]}}"#, items.join(","));
        named_with("adyen", &HEXLOWER.encode(SECRET.as_bytes()), &[], &body)
    };
    assert_eq!(at(&[item("p1")]), one("p1:AUTHORISATION:true", "AUTHORISATION"));
    assert_eq!(at(&[item("p1"), item("p2")]).unwrap_err(), "ambiguous_part");
}

#[test]
fn mollies_two_signatures_may_be_merged_into_one_line() {
    let body = r#"{"id":"event_1","type":"payment-link.paid"}"#;
    let good = hmac(body.as_bytes());
    let other = "0".repeat(64);
    let at = |first: &str, second: &str| {
        let merged = format!("sha256={first}, sha256={second}");
        named("mollie", &[("X-Mollie-Signature", &merged)], body)
    };
    for (first, second) in [(&good, &other), (&other, &good)] {
        assert_eq!(at(first, second), one("event_1", "payment-link.paid"));
    }
    assert_eq!(at(&other, &other).unwrap_err(), "bad_signature");
}

#[test]
fn an_odd_id_in_sendgrids_batch_takes_no_neighbour_along() {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
    // A SubjectPublicKeyInfo of a point on P-256 begins so (RFC 5480).
    let begin = HEXLOWER.decode(b"3059301306072a8648ce3d020106082a8648ce3d030107034200").unwrap();
    let public = BASE64.encode(&[&begin[..], pair.public_key().as_ref()].concat());
    let missing = r#"{"event":"group_unsubscribe"}"#;
    let elements = [
        r#"{"sg_event_id":"a==","event":"open"}"#,
        r#"{"sg_event_id":"-b","event":"delivered"}"#,
        missing,
        r#"{"sg_event_id":"c","event":"click"}"#,
    ];
    let body = format!("[{}]\r\n", elements.join(","));
    let now = START.seconds().to_string();
    let tag = pair.sign(&random, format!("{now}{body}").as_bytes()).unwrap();
    let headers = [
        ("X-Twilio-Email-Event-Webhook-Signature", BASE64.encode(tag.as_ref())),
        ("X-Twilio-Email-Event-Webhook-Timestamp", now),
    ];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let event = |id: &str, kind: &str| [id.to_owned(), kind.to_owned()];
    let wanted = vec![
        event("a==", "open"),
        event(&derived("id:-b"), "delivered"),
        event(&derived(missing), "group_unsubscribe"),
        event("c", "click"),
    ];
    assert_eq!(named_with("sendgrid", &public, &headers, &body), Ok(wanted));
}

#[test]
fn an_event_of_asana_without_a_resource_is_one_without_a_type() {
    let odd = r#"{"action":"deleted","resource":null}"#;
    let added = r#"{"action":"added","resource":{"gid":"1","resource_type":"task"}}"#;
    let body = format!(r#"{{"events":[{odd},{added}]}}"#);
    let found = named("asana", &[("X-Hook-Signature", &hmac(body.as_bytes()))], &body);
    let event = |text: &str, kind: &str| [derived(text), kind.to_owned()];
    assert_eq!(found, Ok(vec![event(odd, "?"), event(added, "task.added")]));
}

/// It comes only where the HEAD before it was not answered.
#[test]
fn mandrills_post_with_the_key_test_webhook_is_not_proven() {
    let signed = |secret: &str| {
        let mut tag = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).unwrap();
        tag.update(format!("{URL}mandrill_events[]").as_bytes());
        let signature = BASE64.encode(&tag.finalize().into_bytes());
        let headers = [("X-Mandrill-Signature", signature.as_str())];
        named("mandrill", &headers, "mandrill_events=%5B%5D")
    };
    assert_eq!(signed(SECRET).map(|events| events.len()), Ok(1));
    assert_eq!(signed("test-webhook").unwrap_err(), "bad_signature");
}
