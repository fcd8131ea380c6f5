//! Measures each part of an accept alone: `cargo bench --bench parts`, or `-- NAME` for some of them.
//!
//! It calls the library as the server does; `cargo bench --bench appliance` measures the whole. The stores
//! are on the disk of the build.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "appliance/requests.rs"]
#[allow(dead_code, reason = "the whole appliance takes them many at a time")]
mod requests;

use std::cell::Cell;

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use futures_util::future::join_all;
use hooklatch::clock::Clock;
use hooklatch::condition::{Condition, Line, Scalar, Test, Values};
use hooklatch::limits::Limits;
use hooklatch::model::{Headers, Name, OnRedelivery, Outcome, Timestamp};
use hooklatch::payload::{Event, Place};
use hooklatch::provider::Scheme;
use hooklatch::retry::Next;
use hooklatch::store::{Accept, Accepted, Claimed, Completion, NewJob, Record, Settings, Store};
use hooklatch::verify::{Draft, Key, Request, Verified, extract, key, sign, verify};
use requests::{Kind, SECRET, request};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use tempfile::TempDir;
use tokio::runtime::{self, Runtime};

/// The number of accepts that wait for the writer together, as with 64 connections.
const TOGETHER: usize = 64;

fn main() {
    divan::main();
}

#[divan::bench(args = [Kind::GitHub, Kind::Stripe])]
fn verifying(bencher: Bencher, kind: Kind) {
    let source = Source::new(kind);
    let (headers, body) = delivery(kind, 0);
    bencher
        .counter(BytesCount::new(body.len()))
        .bench(|| source.verify(black_box(&headers), black_box(body.clone())));
}

/// The proof of a delivery of 1 KiB with ten secrets, of which the last one fits.
#[divan::bench(args = ["stripe", "twilio", "netlify", "discord", "sendgrid"])]
fn proving_with_ten_secrets(bencher: Bencher, provider: &str) {
    let scheme = Scheme::embedded(provider).unwrap();
    let now = Timestamp(1_767_225_600_000);
    let json = format!(
        r#"[{{"id":"e-1","sg_event_id":"e","event":"x","type":"x","pad":"{}"}}]"#,
        "x".repeat(1000)
    );
    let body = match provider {
        "twilio" => format!("MessageStatus=sent&Body={}", "x".repeat(1000)),
        "sendgrid" => json,
        _ => json[1..json.len() - 1].to_owned(),
    };
    let url = Some("https://example.com/hooks");
    let mut headers = Headers::new();
    let signed = format!("1767225600{body}");
    let random = SystemRandom::new();
    let mut keys: Vec<Key> = Vec::new();
    for number in 0..10 {
        let text = match provider {
            "discord" => {
                let pkcs8 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
                if number == 9 {
                    headers.push("X-Signature-Timestamp", "1767225600");
                    let signature = HEXLOWER.encode(pair.sign(signed.as_bytes()).as_ref());
                    headers.push("X-Signature-Ed25519", signature);
                }
                HEXLOWER.encode(pair.public_key().as_ref())
            }
            "sendgrid" => {
                let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
                let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
                let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
                if number == 9 {
                    headers.push("X-Twilio-Email-Event-Webhook-Timestamp", "1767225600");
                    let signature = pair.sign(&random, signed.as_bytes()).unwrap();
                    let signature = BASE64.encode(signature.as_ref());
                    headers.push("X-Twilio-Email-Event-Webhook-Signature", signature);
                }
                // The head of a SubjectPublicKeyInfo of a P-256 point (RFC 5480).
                let head = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
                let head = HEXLOWER.decode(head.as_bytes()).unwrap();
                BASE64.encode(&[&head, pair.public_key().as_ref()].concat())
            }
            _ => format!("secret number {number}, made for a bench"),
        };
        keys.push(key(&scheme, "bench", &text).unwrap());
    }
    let body = Bytes::from(body);
    if !scheme.proof().has_public_key() {
        let draft =
            Draft { method: "POST", url, id: "e-1", body: body.clone(), ..Draft::default() };
        headers = sign(&scheme, keys.last(), &draft, now).unwrap();
    }
    bencher.counter(BytesCount::new(body.len())).bench(|| {
        let request =
            Request { method: "POST", url, headers: black_box(&headers), body: body.clone() };
        verify(&scheme, &keys, request, now).unwrap()
    });
}

/// The proof of a delivery of 1 KiB in one of its provider's forms, with one secret: the last of n forms costs at most
/// n times what the first does.
#[divan::bench(args = [
    "stripe, first of 1",
    "svix, first of 2", "svix, last of 2",
    "shopify, first of 2", "shopify, last of 2",
    "coinbase-cdp, first of 2", "coinbase-cdp, last of 2",
    "polar, first of 2", "polar, last of 2",
    "twilio, first of 4", "twilio, last of 4",
])]
fn proving_in_form(bencher: Bencher, form: &str) {
    let (provider, which) = form.split_once(", ").unwrap();
    let scheme = Scheme::embedded(provider).unwrap();
    let now = Timestamp(1_767_225_600_000);
    let body = Bytes::from(match provider {
        "twilio" => format!("MessageStatus=sent&Body={}", "x".repeat(1000)),
        _ => format!(r#"{{"id":"e-1","type":"x","pad":"{}"}}"#, "x".repeat(1000)),
    });
    let url = Some("https://example.com/hooks");
    let text = format!("whsec_{}", BASE64.encode(b"a secret, made for a bench"));
    let keys = [key(&scheme, "bench", &text).unwrap()];
    let last = scheme.alternatives().last().filter(|_| which.starts_with("last"));
    let draft = Draft { method: "POST", url, id: "e-1", body: body.clone(), ..Draft::default() };
    let headers = sign(last.unwrap_or(&scheme), keys.first(), &draft, now).unwrap();
    bencher.counter(BytesCount::new(body.len())).bench(|| {
        let request =
            Request { method: "POST", url, headers: black_box(&headers), body: body.clone() };
        verify(&scheme, &keys, request, now).unwrap()
    });
}

/// The refusal of the largest body that a file with a signature in the body takes, and which a stranger made to cost
/// much. About 5 ms at most.
#[divan::bench(args = [
    "adyen, elements", "adyen, members",
    "aws-sns, escapes", "aws-sns, lines", "aws-sns, members",
    "braintree, escapes", "braintree, fields",
    "ko-fi, members", "mailgun, members",
    "microsoft-graph, elements", "microsoft-graph, members",
])]
fn proving_a_strangers_body(bencher: Bencher, made_of: &str) {
    let (provider, pieces) = made_of.split_once(", ").unwrap();
    let scheme = Scheme::embedded(provider).unwrap().with_sender("a");
    let adyen = [
        r#"{"notificationItems":[{"NotificationRequestItem":{"additionalData":{"hmacSignature":""#,
        &BASE64.encode(&[0; 32]),
        r#"","#,
    ];
    let sns = [
        r#"{"Type":"Notification","Timestamp":"2026-01-01T00:00:00Z","Signature":""#,
        &BASE64.encode(&[0; 256]),
        r#"","#,
    ];
    let mailgun = [
        r#"{"signature":{"timestamp":"1767225600","token":"x","signature":""#,
        &"00".repeat(32),
        r#"","#,
    ];
    // A notification of the fewest bytes that many may have.
    let graph =
        format!(r#"{{"clientState":"x","changeType":"x","resource":"{}"}},"#, "x".repeat(210));
    let (head, piece, tail) = match (provider, pieces) {
        ("adyen", "elements") => (r#"{"notificationItems":["#.to_owned(), "1,", "1]}"),
        ("adyen", _) => (adyen.concat(), r#""a":1,"#, r#""b":1}}}]}"#),
        ("aws-sns", "escapes") => (sns.concat() + r#""Message":""#, r"\u00e4", r#""}"#),
        ("aws-sns", "lines") => (sns.concat() + r#""MessageId":""#, r"\n", r#""}"#),
        ("aws-sns", _) => (sns.concat(), r#""a":1,"#, r#""b":1}"#),
        ("braintree", "escapes") => {
            (format!("bt_signature=a|{}&bt_payload=", "00".repeat(20)), "%41", "")
        }
        ("braintree", _) => (format!("bt_signature=a|{}&bt_payload=b", "00".repeat(20)), "&a", ""),
        ("ko-fi", _) => (r#"data={"verification_token":"x","#.to_owned(), r#""a":1,"#, r#""b":1}"#),
        ("mailgun", _) => (mailgun.concat(), r#""a":1,"#, r#""b":1}}"#),
        ("microsoft-graph", "elements") => (r#"{"value":["#.to_owned(), graph.as_str(), "1]}"),
        _ => (r#"{"value":[{"clientState":"x","#.to_owned(), r#""a":1,"#, r#""b":1}]}"#),
    };
    let limit = usize::try_from(scheme.setup().delivery.body_limit_bytes.unwrap()).unwrap();
    let repeats = (limit - head.len() - tail.len()) / piece.len();
    let body = Bytes::from([&head, piece.repeat(repeats).as_str(), tail].concat());
    // The head of a SubjectPublicKeyInfo of an RSA key of 2,048 bits, and its exponent (RFC 3279).
    let rsa = "30820122300d06092a864886f70d01010105000382010f003082010a0282010100";
    let rsa = HEXLOWER.decode(format!("{rsa}{}0203010001", "ff".repeat(256)).as_bytes()).unwrap();
    let secret = if provider == "aws-sns" { BASE64.encode(&rsa) } else { "00ff17".to_owned() };
    let keys = [key(&scheme, "bench", &secret).unwrap()];
    let (headers, now) = (Headers::new(), Timestamp(1_767_225_600_000));
    bencher.counter(BytesCount::new(body.len())).bench(|| {
        let request =
            Request { method: "POST", url: None, headers: black_box(&headers), body: body.clone() };
        verify(&scheme, &keys, request, now).unwrap_err()
    });
}

/// What a handler with a condition of three places adds to an accept.
#[divan::bench]
fn deciding(bencher: Bencher) {
    let line = |place: &str, not, known: &str| Line {
        place: Place::parse(place).unwrap(),
        not,
        test: Test::Is(vec![Scalar::Text(known.to_owned())]),
    };
    let lines = vec![
        line("/ref", false, "refs/heads/main"),
        line("/sender/type", true, "Bot"),
        line("/commits/*/author/name", true, "nobody"),
    ];
    let condition = Condition { tables: vec![lines] };
    let source = Source::new(Kind::GitHub);
    let (headers, body) = delivery(Kind::GitHub, 0);
    let verified = source.verify(&headers, body);
    let event = Event {
        id: verified.event_id().as_str(),
        event_type: verified.event_type().as_str(),
        headers: verified.headers(),
        body: verified.body(),
        form_field: source.scheme.identity().form_field.as_deref(),
        inflated_bytes: 1 << 20,
    };
    bencher.counter(BytesCount::new(event.body.len())).bench(|| {
        let values = Values::read(black_box(&event), condition.places(), 512 * 1024);
        condition.decide(&values)
    });
}

/// The digest of the body without its scheme's volatile fields.
#[divan::bench(args = [Kind::GitHub, Kind::Stripe])]
fn digest(bencher: Bencher, kind: Kind) {
    let volatile = match kind {
        Kind::GitHub => Vec::new(),
        Kind::Stripe => vec!["pending_webhooks".to_owned()],
    };
    let (_, body) = delivery(kind, 0);
    bencher
        .counter(BytesCount::new(body.len()))
        .bench(|| extract::digest(black_box(&body), &volatile));
}

/// Accepting one event durably, which mostly waits for the disk.
#[divan::bench(args = [Kind::GitHub, Kind::Stripe], max_time = 3)]
fn accept_one(bencher: Bencher, kind: Kind) {
    let site = Site::new(kind);
    bencher.with_inputs(|| site.next()).bench_local_values(|accept| site.accept(accept));
}

/// Accepting events that arrive at the same time, until the last of them is durable.
#[divan::bench(args = [Kind::GitHub, Kind::Stripe], max_time = 3)]
fn accept_together(bencher: Bencher, kind: Kind) {
    let site = Site::new(kind);
    bencher
        .counter(ItemsCount::new(TOGETHER))
        .with_inputs(|| (0..TOGETHER).map(|_| site.next()).collect::<Vec<_>>())
        .bench_local_values(|accepts| {
            site.runtime
                .block_on(join_all(accepts.into_iter().map(|one| site.store.intake.accept(one))))
        });
}

#[divan::bench(max_time = 3)]
fn claim(bencher: Bencher) {
    let site = Site::new(Kind::GitHub);
    bencher.with_inputs(|| site.accept(site.next())).bench_local_values(|_| site.claim());
}

#[divan::bench(max_time = 3)]
fn complete(bencher: Bencher) {
    let site = Site::new(Kind::GitHub);
    let claimed = || {
        site.accept(site.next());
        site.claim()
    };
    bencher.with_inputs(claimed).bench_local_values(|claimed| {
        let done = Completion {
            job: claimed.facts.job,
            attempt: claimed.facts.attempt,
            outcome: Outcome::Succeeded,
            counts: true,
            next: Next::Succeeded,
            finished_at: site.clock.now(),
            record: Record::default(),
            answer: None,
        };
        assert!(site.runtime.block_on(site.store.jobs.complete(done)).unwrap());
    });
}

/// The headers and the body of the event with this number.
fn delivery(kind: Kind, number: u64) -> (Headers, Bytes) {
    let request = request(kind, number);
    let end = request.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
    // The request line has no colon, so it is skipped.
    let line = request.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    (Headers::from_wire(&request[line..end]), Bytes::copy_from_slice(&request[end + 4..]))
}

/// A configured source.
struct Source {
    scheme: Scheme,
    keys: [Key; 1],
    now: Timestamp,
}

impl Source {
    fn new(kind: Kind) -> Self {
        let scheme = Scheme::embedded(kind.path().trim_start_matches('/')).unwrap();
        let keys = [key(&scheme, "file:secret", SECRET).unwrap()];
        Source { scheme, keys, now: Clock::system().now() }
    }

    fn verify(&self, headers: &Headers, body: Bytes) -> Verified {
        let request = Request { method: "POST", url: None, headers, body };
        verify(&self.scheme, &self.keys, request, self.now).unwrap()
    }
}

/// An open store, and a source with one handler for all its events.
struct Site {
    kind: Kind,
    source: Source,
    clock: Clock,
    runtime: Runtime,
    store: Store,
    handler: Name,
    /// The number of the next event.
    next: Cell<u64>,
    _folder: TempDir,
}

impl Site {
    fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (path, limits) = (folder.path().join("store.db"), Limits::default());
        let clock = Clock::system();
        Site {
            kind,
            source: Source::new(kind),
            store: Store::open(&Settings { path, limits }, clock.clone()).unwrap(),
            clock,
            runtime: runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            handler: "job".parse().unwrap(),
            next: Cell::new(0),
            _folder: folder,
        }
    }

    /// The next event, verified.
    fn next(&self) -> Accept {
        let (headers, body) = delivery(self.kind, self.next.replace(self.next.get() + 1));
        Accept {
            source: self.kind.path().trim_start_matches('/').parse().unwrap(),
            received_at: self.clock.now(),
            delivery: self.source.verify(&headers, body),
            jobs: vec![NewJob::of(self.handler.clone())],
            on_redelivery: OnRedelivery::Ignore,
        }
    }

    fn accept(&self, accept: Accept) -> Accepted {
        self.runtime.block_on(self.store.intake.accept(accept)).unwrap()
    }

    /// Claims the oldest job.
    fn claim(&self) -> Claimed {
        let claimed = self.store.jobs.claim(&self.handler, 1, None);
        self.runtime.block_on(claimed).unwrap().jobs.pop().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.close());
    }
}
