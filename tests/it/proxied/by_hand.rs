//! The requests that `send` cannot make: of providers whose keys it cannot have or whose proof is in the body, and
//! challenges.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit, Mac};
use hooklatch::clock::Clock;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::support::{Site, hmac};

const TOPIC: &str = "arn:aws:sns:eu-west-1:111111111111:deploys";

/// A request to a source.
pub(super) struct Request {
    pub(super) method: &'static str,
    /// The query behind the path, with its `?`.
    pub(super) query: String,
    pub(super) headers: Vec<String>,
    pub(super) body: String,
}

impl Request {
    pub(super) fn get() -> Request {
        Request { method: "GET", ..Request::post(&[], String::new()) }
    }

    fn post(headers: &[String], body: String) -> Request {
        Request { method: "POST", query: String::new(), headers: headers.to_vec(), body }
    }

    pub(super) fn query(self, query: &str) -> Request {
        Request { query: query.to_owned(), ..self }
    }
}

/// The sender of the requests, where the provider's key signs for all its customers.
pub(super) fn sender(provider: &str) -> Option<&'static str> {
    match provider {
        "aws-sns" => Some(TOPIC),
        "google-pubsub" => Some("push@example.iam.gserviceaccount.com"),
        "braintree" => Some("public"),
        "kick" => Some("7"),
        "paypal" => Some("WH-1"),
        _ => None,
    }
}

/// The requests by which a provider hands out its secret.
pub(super) fn registrations() -> [(&'static str, Request); 2] {
    let token = "secret_made_for_tests";
    let body = json!({ "verification_token": token }).to_string();
    [
        ("asana", Request::post(&[format!("X-Hook-Secret: {token}")], "{}".to_owned())),
        ("notion", Request::post(&[], body)),
    ]
}

/// HMAC-SHA1 by the SHA-1 of the secret, in hex.
fn keyed_by_sha1(secret: &str, content: &str) -> String {
    let mut tag = Hmac::<Sha1>::new_from_slice(&Sha1::digest(secret)).unwrap();
    tag.update(content.as_bytes());
    HEXLOWER.encode(&tag.finalize().into_bytes())
}

/// The providers' private keys, made by OpenSSL.
pub(super) struct Keys {
    folder: PathBuf,
}

impl Keys {
    pub(super) fn new(site: &Site) -> Keys {
        let keys = Keys { folder: site.path("private") };
        fs::create_dir(&keys.folder).unwrap();
        keys.openssl(&["genpkey", "-algorithm", "ed25519", "-out", "ed25519"]);
        keys.openssl(&[
            "genpkey",
            "-algorithm",
            "rsa",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
            "-out",
            "rsa",
        ]);
        let curve = "ec_paramgen_curve:P-256";
        keys.openssl(&["genpkey", "-algorithm", "ec", "-pkeyopt", curve, "-out", "ecdsa"]);
        keys.openssl(&["req", "-x509", "-key", "rsa", "-subj", "/CN=tests", "-out", "certificate"]);
        keys
    }

    fn openssl(&self, args: &[&str]) -> Vec<u8> {
        let output = Command::new("openssl").current_dir(&self.folder).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn sign(&self, key: &str, content: &str) -> Vec<u8> {
        fs::write(self.folder.join("content"), content).unwrap();
        match key {
            "ed25519" => {
                self.openssl(&["pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", "content"])
            }
            _ => self.openssl(&["dgst", "-sha256", "-sign", key, "content"]),
        }
    }

    /// The key as SPKI in DER; the last 32 bytes of an Ed25519 key are the key itself.
    fn public(&self, key: &str) -> Vec<u8> {
        self.openssl(&["pkey", "-in", key, "-pubout", "-outform", "DER"])
    }

    /// What the operator writes into the secret's file where `init` makes none.
    pub(super) fn secret(&self, provider: &str) -> String {
        let ed25519 = || self.public("ed25519")[12..].to_vec();
        let certificate = || fs::read_to_string(self.folder.join("certificate")).unwrap();
        match provider {
            "adyen" | "adyen-platform" => "00ff17".to_owned(),
            "airtable" | "teams-outgoing" => "AAECAwQF".to_owned(),
            "discord" => HEXLOWER.encode(&ed25519()),
            "telnyx" => BASE64.encode(&ed25519()),
            "standard-webhooks-v1a" => format!("whpk_{}", BASE64.encode(&ed25519())),
            "sendgrid" | "sendgrid-inbound" => BASE64.encode(&self.public("ecdsa")),
            "kick" => String::from_utf8(self.openssl(&["pkey", "-in", "rsa", "-pubout"])).unwrap(),
            "aws-sns" | "paypal" => certificate(),
            "google-pubsub" => {
                let said = self.openssl(&["rsa", "-in", "rsa", "-noout", "-modulus"]);
                let modulus = String::from_utf8(said).unwrap();
                let modulus = modulus.trim().strip_prefix("Modulus=").unwrap();
                let modulus = HEXLOWER_PERMISSIVE.decode(modulus.as_bytes()).unwrap();
                let n = BASE64URL_NOPAD.encode(&modulus);
                let key = json!({ "kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k", "n": n, "e": "AQAB" });
                json!({ "keys": [key] }).to_string()
            }
            _ => "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX".to_owned(),
        }
    }

    /// A delivery that `send` cannot sign.
    pub(super) fn delivery(&self, provider: &str, secret: &str, url: &str) -> Option<Request> {
        let now = Clock::system().now();
        let (seconds, time) = (now.seconds(), now.to_string());
        let id = format!("e{}", now.0);
        let body = json!({ "id": id, "type": "a.b", "event_type": "a.b" }).to_string();
        Some(match provider {
            "adyen" => {
                let content = format!("{id}::Shop:order-1:100:EUR:AUTHORISATION:true");
                let tag = BASE64
                    .encode(&hmac(HEXLOWER.decode(secret.as_bytes()).unwrap(), content.as_bytes()));
                let item = json!({
                    "pspReference": id, "merchantAccountCode": "Shop", "merchantReference": "order-1",
                    "amount": { "value": 100, "currency": "EUR" }, "eventCode": "AUTHORISATION",
                    "success": "true", "additionalData": { "hmacSignature": tag },
                });
                let body = json!({ "live": "false", "notificationItems": [{ "NotificationRequestItem": item }] });
                Request::post(&[], body.to_string())
            }
            "braintree" => {
                let xml = format!(
                    "<notification><kind>check</kind><subject>{id}</subject></notification>"
                );
                let payload = BASE64.encode(xml.as_bytes()) + "\n";
                let tag = keyed_by_sha1(secret, &payload);
                let mut form = form_urlencoded::Serializer::new(String::new());
                form.append_pair("bt_signature", &format!("public|{tag}"));
                form.append_pair("bt_payload", &payload);
                let headers = ["Content-Type: application/x-www-form-urlencoded".to_owned()];
                Request::post(&headers, form.finish())
            }
            "ko-fi" => {
                let data =
                    json!({ "verification_token": secret, "message_id": id, "type": "Donation" });
                let mut form = form_urlencoded::Serializer::new(String::new());
                form.append_pair("data", &data.to_string());
                let headers = ["Content-Type: application/x-www-form-urlencoded".to_owned()];
                Request::post(&headers, form.finish())
            }
            "mailgun" => {
                let tag = hmac(secret, format!("{seconds}{id}").as_bytes());
                let signature = json!({
                    "timestamp": seconds.to_string(), "token": id, "signature": HEXLOWER.encode(&tag),
                });
                let event = json!({ "event": "delivered", "id": id });
                Request::post(
                    &[],
                    json!({ "signature": signature, "event-data": event }).to_string(),
                )
            }
            "microsoft-graph" => {
                let one =
                    json!({ "subscriptionId": id, "clientState": secret, "changeType": "updated" });
                Request::post(&[], json!({ "value": [one] }).to_string())
            }
            "discord" => {
                let tag = self.sign("ed25519", &format!("{seconds}{body}"));
                let headers = [
                    format!("X-Signature-Ed25519: {}", HEXLOWER.encode(&tag)),
                    format!("X-Signature-Timestamp: {seconds}"),
                ];
                Request::post(&headers, body)
            }
            "telnyx" => {
                let tag = self.sign("ed25519", &format!("{seconds}|{body}"));
                let headers = [
                    format!("telnyx-signature-ed25519: {}", BASE64.encode(&tag)),
                    format!("telnyx-timestamp: {seconds}"),
                ];
                Request::post(&headers, body)
            }
            "standard-webhooks-v1a" => {
                let tag = self.sign("ed25519", &format!("{id}.{seconds}.{body}"));
                let headers = [
                    format!("webhook-id: {id}"),
                    format!("webhook-timestamp: {seconds}"),
                    format!("webhook-signature: v1a,{}", BASE64.encode(&tag)),
                ];
                Request::post(&headers, body)
            }
            "sendgrid" | "sendgrid-inbound" => {
                let body = format!("[{{\"sg_event_id\":\"{id}\",\"event\":\"open\"}}]\r\n");
                let tag = self.sign("ecdsa", &format!("{seconds}{body}"));
                let name = "X-Twilio-Email-Event-Webhook";
                let headers = [
                    format!("{name}-Signature: {}", BASE64.encode(&tag)),
                    format!("{name}-Timestamp: {seconds}"),
                ];
                Request::post(&headers, body)
            }
            "kick" => {
                let body = json!({ "broadcaster": { "user_id": 7 } }).to_string();
                let tag = self.sign("rsa", &format!("{id}.{time}.{body}"));
                let headers = [
                    format!("Kick-Event-Message-Id: {id}"),
                    format!("Kick-Event-Message-Timestamp: {time}"),
                    "Kick-Event-Type: chat.message.sent".to_owned(),
                    format!("Kick-Event-Signature: {}", BASE64.encode(&tag)),
                ];
                Request::post(&headers, body)
            }
            "paypal" => {
                let sum = crc32fast::hash(body.as_bytes());
                let sender = sender(provider).unwrap_or_default();
                let tag = self.sign("rsa", &format!("{id}|{time}|{sender}|{sum}"));
                let headers = [
                    format!("PAYPAL-TRANSMISSION-ID: {id}"),
                    format!("PAYPAL-TRANSMISSION-TIME: {time}"),
                    format!("PAYPAL-TRANSMISSION-SIG: {}", BASE64.encode(&tag)),
                    "PAYPAL-CERT-URL: https://api.paypal.com/v1/notifications/certs/c".to_owned(),
                ];
                Request::post(&headers, body)
            }
            "aws-sns" => {
                let message = "deployed";
                let content = format!(
                    "Message\n{message}\nMessageId\n{id}\nTimestamp\n{time}\nTopicArn\n{TOPIC}\nType\nNotification\n"
                );
                let tag = BASE64.encode(&self.sign("rsa", &content));
                let body = json!({
                    "Type": "Notification", "MessageId": id, "TopicArn": TOPIC, "Message": message,
                    "Timestamp": time, "SignatureVersion": "2", "Signature": tag,
                    "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-a.pem",
                });
                Request::post(&[], body.to_string())
            }
            "google-pubsub" => {
                let claims = json!({
                    "iss": "https://accounts.google.com", "aud": url, "email": sender(provider),
                    "email_verified": true, "iat": seconds, "exp": seconds + 3600,
                });
                let head = json!({ "alg": "RS256", "kid": "k", "typ": "JWT" });
                let part = |part: &Value| BASE64URL_NOPAD.encode(part.to_string().as_bytes());
                let token = format!("{}.{}", part(&head), part(&claims));
                let tag = BASE64URL_NOPAD.encode(&self.sign("rsa", &token));
                let body =
                    json!({ "message": { "messageId": id, "data": "e30=" }, "subscription": "s" });
                let headers = [format!("Authorization: Bearer {token}.{tag}")];
                Request::post(&headers, body.to_string())
            }
            _ => return None,
        })
    }

    /// The challenges and probes of the set-up, each with a part of its right answer. `secret` is a source's, in its
    /// file; the name of a verify token ends in `.verify`.
    pub(super) fn challenges(
        &self,
        secret: impl Fn(&str) -> String,
    ) -> Vec<(&'static str, Request, String)> {
        let now = Clock::system().now();
        let (seconds, time) = (now.seconds(), now.to_string());
        let text = |text: &str| text.to_owned();
        let in_url = |name: &str| format!("?token={}", secret(name));
        let stamped = |name: &'static str, [tag, stamp]: [&str; 2], body: &str| {
            let content = format!("v0:{seconds}:{body}");
            let signed = hmac(secret(name), content.as_bytes());
            let headers =
                [format!("{tag}: v0={}", HEXLOWER.encode(&signed)), format!("{stamp}: {seconds}")];
            Request::post(&headers, body.to_owned())
        };
        let mode = |name: &str| {
            let token = secret(&format!("{name}.verify"));
            format!("hub.mode=subscribe&hub.challenge=echo-me&hub.verify_token={token}")
        };
        let ping = json!({ "type": 1, "token": "t" }).to_string();
        let pinged = HEXLOWER.encode(&self.sign("ed25519", &format!("{seconds}{ping}")));
        let twitch = json!({ "challenge": "echo-me" }).to_string();
        let twitched = hmac(secret("twitch"), format!("c1{time}{twitch}").as_bytes());
        let verification = json!({ "type": "verification", "challenge": "echo-me" }).to_string();
        let mcp = secret("mcp-events");
        let mcp = BASE64.decode(mcp.trim_start_matches("whsec_").as_bytes()).unwrap();
        let verified = hmac(mcp, format!("c1.{seconds}.{verification}").as_bytes());
        let head = || Request { method: "HEAD", ..Request::get() };
        vec![
            (
                "azure-event-grid",
                Request {
                    method: "OPTIONS",
                    headers: vec![text("WebHook-Request-Origin: eventgrid.azure.net")],
                    ..Request::get()
                },
                text("eventgrid.azure.net"),
            ),
            (
                "azure-event-grid",
                Request::post(
                    &[text("aeg-event-type: SubscriptionValidation")],
                    json!([{ "data": { "validationCode": "echo-me" } }]).to_string(),
                )
                .query(&in_url("azure-event-grid")),
                text(r#"{"validationResponse":"echo-me"}"#),
            ),
            (
                "bitbucket",
                Request::post(&[text("X-Event-Key: diagnostics:ping")], text(r#"{"test":true}"#)),
                text("200"),
            ),
            (
                "bitbucket-data-center",
                Request::post(&[text("X-Event-Key: diagnostics:ping")], text(r#"{"test":true}"#)),
                text("200"),
            ),
            (
                "braintree",
                Request::get().query("?bt_challenge=20f9f8ed05f77439fe955c977e4c8a53"),
                format!(
                    "public|{}",
                    keyed_by_sha1(&secret("braintree"), "20f9f8ed05f77439fe955c977e4c8a53")
                ),
            ),
            (
                "discord",
                Request::post(
                    &[
                        format!("X-Signature-Ed25519: {pinged}"),
                        format!("X-Signature-Timestamp: {seconds}"),
                    ],
                    ping,
                ),
                text(r#"{"type":1}"#),
            ),
            ("dropbox", Request::get().query("?challenge=echo-me"), text("echo-me")),
            (
                "fastly-logging",
                Request::get(),
                HEXLOWER.encode(&Sha256::digest(b"service-made-for-tests")),
            ),
            ("intercom", head(), text("200")),
            ("mandrill", head(), text("200")),
            (
                "mcp-events",
                Request::post(
                    &[
                        text("webhook-id: c1"),
                        format!("webhook-timestamp: {seconds}"),
                        format!("webhook-signature: v1,{}", BASE64.encode(&verified)),
                    ],
                    verification,
                ),
                text(r#"{"challenge":"echo-me"}"#),
            ),
            ("meta", Request::get().query(&format!("?{}", mode("meta"))), text("echo-me")),
            (
                "microsoft-graph",
                Request::post(&[], String::new()).query("?validationToken=echo-me"),
                text("echo-me"),
            ),
            ("mollie", Request::get(), text("200")),
            ("mollie", head(), text("200")),
            ("mollie-classic", Request::get(), text("200")),
            ("mollie-classic", head(), text("200")),
            (
                "monday",
                Request::post(&[], twitch.clone()).query(&in_url("monday")),
                text(r#"{"challenge":"echo-me"}"#),
            ),
            (
                "okta",
                Request {
                    headers: vec![text("x-okta-verification-challenge: echo-me")],
                    ..Request::get()
                },
                text(r#"{"verification":"echo-me"}"#),
            ),
            (
                "slack",
                stamped(
                    "slack",
                    ["X-Slack-Signature", "X-Slack-Request-Timestamp"],
                    r#"{"type":"url_verification","challenge":"echo-me"}"#,
                ),
                text("echo-me"),
            ),
            ("slack", Request::get().query("?ssl_check=1&token=t"), text("200")),
            ("slack", Request::post(&[], text("ssl_check=1&token=t")), text("200")),
            ("square", Request::get(), text("200")),
            ("square", head(), text("200")),
            (
                "strava",
                Request::get().query(&format!("{}&{}", in_url("strava"), mode("strava"))),
                text("echo-me"),
            ),
            ("trello", head(), text("200")),
            (
                "twitch",
                Request::post(
                    &[
                        text("Twitch-Eventsub-Message-Id: c1"),
                        format!("Twitch-Eventsub-Message-Timestamp: {time}"),
                        text("Twitch-Eventsub-Message-Type: webhook_callback_verification"),
                        format!(
                            "Twitch-Eventsub-Message-Signature: sha256={}",
                            HEXLOWER.encode(&twitched)
                        ),
                    ],
                    twitch,
                ),
                text("echo-me"),
            ),
            ("url-token", Request::get(), text("200")),
            ("url-token", head(), text("200")),
            ("woocommerce", Request::post(&[], text("webhook_id=1")), text("200")),
            (
                "x-twitter",
                Request::get().query("?crc_token=echo-me"),
                BASE64.encode(&hmac(secret("x-twitter"), b"echo-me")),
            ),
            (
                "zoom",
                stamped(
                    "zoom",
                    ["x-zm-signature", "x-zm-request-timestamp"],
                    r#"{"event":"endpoint.url_validation","payload":{"plainToken":"echo-me"}}"#,
                ),
                HEXLOWER.encode(&hmac(secret("zoom"), b"echo-me")),
            ),
        ]
    }
}
