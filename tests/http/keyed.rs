//! Requests with a key that get their handler's answer, with a real configuration, a real server on a real
//! socket and a real store. The test is the handler: it claims the jobs and completes them.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::support::raw;
use crate::support::raw::{Raw, head, post};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use hooklatch::clock::Clock;
use hooklatch::config::{self, Environment};
use hooklatch::http::{Server, Sources};
use hooklatch::model::{Answer, DeadReason, Headers, HeldReason, Outcome, Timestamp};
use hooklatch::retry::Next;
use hooklatch::store::{
    Claimed, Completion, EventFilter, JobFilter, QuarantineFilter, Record, Store,
};
use hooklatch::traffic::Traffic;
use sha2::Sha256;
use tokio::task::JoinSet;
use tokio::time::timeout;

const START: Timestamp = Timestamp(1_767_225_600_000);

/// The longest wait: a test that reaches it fails.
const PATIENCE: Duration = Duration::from_secs(20);

const SOURCES: &str = r#"
[limits]
disk_floor_bytes = "1 MiB"
[sources.pay]
provider = "bearer"
reply = "handler"
reply_wait = "WAIT"
[sources.pay.callers]
shop = ["env:SHOP", "env:SHOP_OLD"]
till = "env:TILL"
[handlers.h]
source = "pay"
events = ["*"]
command = ["/bin/true"]
"#;

/// A server with the given sources and one handler, `h`.
struct Front {
    server: Option<Server>,
    store: Store,
    traffic: Traffic,
    clock: Clock,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Front {
    /// Serves `/hooks/pay`, at which a repeated request waits until the answer is there.
    fn start() -> Front {
        Front::with(&SOURCES.replace("WAIT", "20s"))
    }

    fn with(text: &str) -> Front {
        Front::with_providers(text, &[])
    }

    /// Like [`Front::with`], with these provider files.
    fn with_providers(text: &str, providers: &[(&str, &str)]) -> Front {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("hooklatch.toml"), text).unwrap();
        fs::create_dir(folder.path().join("providers")).unwrap();
        for (name, text) in providers {
            fs::write(folder.path().join(format!("providers/{name}.toml")), text).unwrap();
        }
        let clock = Clock::manual(START);
        let store = hooklatch::store::Settings {
            path: folder.path().join("t.db"),
            limits: config::load(&folder.path().join("hooklatch.toml")).unwrap().limits().clone(),
        };
        let store = Store::open(&store, clock.clone()).unwrap();
        let (server, traffic) = (None, Traffic::default());
        let address = "127.0.0.1:0".parse().unwrap();
        let mut front = Front { server, store, traffic, clock, address, folder };
        front.serve();
        front
    }

    /// Starts a server on a new port, as the next receiver does.
    fn serve(&mut self) {
        let config = config::load(&self.folder.path().join("hooklatch.toml")).unwrap();
        let environment = Environment::default()
            .with("SHOP", "shop's token")
            .with("SHOP_OLD", "shop's old token")
            .with("TILL", "till's token");
        let sources = config.resolve(&environment).unwrap().sources;
        let proxies = config.server().trusted_proxies.clone();
        let server = Server::start(
            vec![TcpListener::bind("127.0.0.1:0").unwrap()],
            Sources::new(sources, proxies),
            self.store.intake.clone(),
            self.traffic.clone(),
            hooklatch::registration::Registrations::default(),
            self.clock.clone(),
            config.limits().clone(),
        );
        let server = server.unwrap();
        self.address = server.addresses()[0];
        self.server = Some(server);
    }

    async fn ask(&self, request: &[u8]) -> raw::Answer {
        ask(self.address, request).await
    }

    /// Sends a request and does not wait for its answer.
    fn asking(&self, request: Vec<u8>) -> tokio::task::JoinHandle<raw::Answer> {
        let address = self.address;
        tokio::spawn(async move { ask(address, &request).await })
    }

    /// Claims the next job.
    async fn claim(&self) -> Claimed {
        let wake = self.store.jobs.wake();
        let claim = async {
            loop {
                let claims = self.store.jobs.claim(&"h".parse().unwrap(), 1, None).await.unwrap();
                match claims.jobs.into_iter().next() {
                    Some(job) => return job,
                    None => wake.notified().await,
                }
            }
        };
        timeout(PATIENCE, claim).await.expect("a request begins a job")
    }

    async fn complete(
        &self,
        claimed: &Claimed,
        outcome: Outcome,
        next: Next,
        answer: Option<Answer>,
    ) {
        let done = Completion {
            job: claimed.facts.job,
            attempt: claimed.facts.attempt,
            outcome,
            counts: true,
            next,
            finished_at: START,
            record: Record::default(),
            answer,
        };
        assert!(self.store.jobs.complete(done).await.unwrap());
    }

    /// Claims the next job and completes it with this answer.
    async fn answer(&self, answer: Answer) {
        let claimed = self.claim().await;
        self.complete(&claimed, Outcome::Succeeded, Next::Succeeded, Some(answer)).await;
    }

    /// Sends a new request, and completes its job with this answer.
    async fn ask_answered(&self, request: Vec<u8>, answer: Answer) -> raw::Answer {
        let asking = self.asking(request);
        self.answer(answer).await;
        asking.await.unwrap()
    }

    async fn jobs(&self) -> usize {
        self.store.admin.jobs(JobFilter::default()).await.unwrap().rows.len()
    }

    /// The results of the source's requests with keys, with their counts over 0.
    fn counted(&self, source: &str) -> Vec<(&'static str, u64)> {
        let sources = self.traffic.sources();
        let source = sources.iter().find(|one| one.name() == source).unwrap();
        source.keyed_counts().filter(|(_, count)| *count > 0).collect()
    }
}

async fn ask(address: SocketAddr, request: &[u8]) -> raw::Answer {
    let mut raw = Raw::connect(address).await;
    raw.send(request).await;
    raw.answer().await
}

fn multi<F: Future<Output = ()>>(test: F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test);
}

/// A request to `/hooks/pay` with this token and these headers.
fn request(token: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let token = format!("Bearer {token}");
    let mut all = vec![("Content-Type", b"application/json".as_slice())];
    all.push(("Authorization", token.as_bytes()));
    all.extend(headers.iter().map(|(name, value)| (*name, value.as_bytes())));
    post("/hooks/pay", &all, body.as_bytes())
}

fn pay(key: &str, body: &str) -> Vec<u8> {
    request("shop's token", &[("Idempotency-Key", key)], body)
}

fn answer(status: u16, body: &str) -> Answer {
    let mut headers = Headers::new();
    headers.push("Content-Type", "text/x-receipt");
    headers.push("Set-Cookie", "a=1");
    headers.push("Set-Cookie", "b=2");
    Answer::new(status, &headers, Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

/// The status, headers and body of an answer, without the headers that differ between repeats.
fn own(answer: &raw::Answer) -> (u16, Vec<(String, String)>, &str) {
    let sent = ["date", "idempotency-result", "connection"];
    let mut headers = answer.headers.clone();
    headers.retain(|(name, _)| !sent.contains(&name.to_lowercase().as_str()));
    // The order of different header names has no meaning (RFC 9110, section 5.3).
    headers.sort_by(|(a, _), (b, _)| a.cmp(b));
    (answer.status, headers, &answer.body)
}

#[track_caller]
fn is_problem(answer: &raw::Answer, status: u16, reason: &str) {
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    assert_eq!(answer.json("reason").as_deref(), Some(reason));
    assert!(answer.json("detail").is_some());
    is_refused(answer, status, reason);
}

/// A problem as headers only, for a sender that reads bodies otherwise.
#[track_caller]
fn is_refused(answer: &raw::Answer, status: u16, reason: &str) {
    assert_eq!((answer.status, answer.fact("reason")), (status, Some(reason)), "{answer:?}");
    assert!(answer.header("idempotency-result").is_none());
}

/// The cases of draft-ietf-httpapi-idempotency-key-header-07, sections 2.6 and 2.7: a first request, a retry
/// of a completed one, a retry of one in progress, a missing key, and a key used for another request.
#[test]
fn the_cases_of_the_idempotency_key_draft_get_the_specified_answers() {
    multi(async {
        let front = Front::with(&SOURCES.replace("WAIT", "50ms"));
        let key = r#""8e03978e-40d5-43dd-bc93-6894a57f9324""#;
        let first = front.asking(pay(key, "{}"));
        let claimed = front.claim().await;
        let retry = front.ask(&pay(key, "{}")).await;
        is_problem(&retry, 409, "in_progress");
        assert_eq!(retry.header("retry-after"), Some("1"));
        front
            .complete(&claimed, Outcome::Succeeded, Next::Succeeded, Some(answer(201, "paid")))
            .await;
        let first = first.await.unwrap();
        assert_eq!((first.status, first.header("idempotency-result")), (201, Some("created")));
        let retry = front.ask(&pay(key, "{}")).await;
        assert_eq!(own(&retry), own(&first));
        assert_eq!(retry.header("idempotency-result"), Some("reused"));
        let missing = front.ask(&request("shop's token", &[], "{}")).await;
        is_problem(&missing, 400, "missing_id");
        let other = front.ask(&pay(key, r#"{"amount":2}"#)).await;
        is_problem(&other, 422, "conflict");
        assert_eq!((other.header("retry-after"), front.jobs().await), (None, 1));
        let counted = [("created", 1), ("reused", 1), ("conflict", 1), ("in_progress", 1)];
        assert_eq!(front.counted("pay"), counted);
    });
}

#[test]
fn the_answer_is_the_same_for_every_repeat_and_after_a_restart() {
    multi(async {
        let mut front = Front::start();
        // Also statuses that the receiver itself does not use for a success.
        for (status, body) in
            [(200, ""), (402, "no money"), (410, "gone"), (503, "later"), (204, "")]
        {
            let key = format!("k-{status}");
            let first = front.ask_answered(pay(&key, "{}"), answer(status, body)).await;
            assert_eq!((first.status, first.body.as_str()), (status, body));
            assert_eq!(first.header("content-type"), Some("text/x-receipt"));
            let cookies = first.headers.iter().filter(|(name, _)| name == "set-cookie").count();
            assert_eq!((cookies, first.header("idempotency-result")), (2, Some("created")));
            assert_eq!(first.header("content-length").is_none(), status == 204);
            for key in [key.clone(), format!("\"{key}\""), format!(" \"{key}\"\t")] {
                let again = front.ask(&pay(&key, "{}")).await;
                assert_eq!(own(&again), own(&first), "{key}");
                assert_eq!(again.header("idempotency-result"), Some("reused"));
            }
        }
        // The connection stays usable after an answer without a body.
        let mut raw = Raw::connect(front.address).await;
        for key in ["k-204", "k-402"] {
            raw.send(&pay(key, "{}")).await;
            assert_eq!(raw.answer().await.header("idempotency-result"), Some("reused"));
        }
        let before = front.ask(&pay("k-402", "{}")).await;
        assert!(front.server.take().unwrap().stop(std::future::pending()).await);
        front.serve();
        assert_eq!(own(&front.ask(&pay("k-402", "{}")).await), own(&before));
        assert_eq!(front.jobs().await, 5);
    });
}

#[test]
fn an_invalid_key_is_refused_with_the_reason() {
    multi(async {
        let front = Front::start();
        let long = "k".repeat(201);
        for key in ["", "\"\"", "\"a", "a\"", "\"a\"b", "\"a b\"", "a b", "-a", "\"a\\b\"", &long] {
            is_problem(&front.ask(&pay(key, "{}")).await, 400, "bad_id");
        }
        is_problem(&front.ask(&request("shop's token", &[], "{}")).await, 400, "missing_id");
        // An unproven request gets no reason, and is not quarantined, because the waiting caller repeats it.
        let twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
        let twice = request("shop's token", &twice, "{}");
        let stranger = request("a stranger's token", &[("Idempotency-Key", "k")], "{}");
        for refused in [twice, stranger] {
            let answer = front.ask(&refused).await;
            assert_eq!((answer.status, answer.body.as_str()), (401, r#"{"status":"rejected"}"#));
        }
        let kept =
            front.store.admin.quarantined(QuarantineFilter::default()).await.unwrap().deliveries;
        assert_eq!((kept.len(), front.jobs().await), (0, 0));
        let longest = &long[..200];
        let answered = front.ask_answered(pay(longest, "{}"), answer(200, "")).await;
        assert_eq!(answered.status, 200);
    });
}

#[test]
fn a_caller_does_not_get_another_callers_answer() {
    multi(async {
        let front = Front::start();
        let of = |token: &str| request(token, &[("Idempotency-Key", "k")], "{}");
        let shop = front.ask_answered(of("shop's token"), answer(200, "shop")).await;
        let till = front.ask_answered(of("till's token"), answer(200, "till")).await;
        let created = Some("created");
        assert_eq!((shop.body.as_str(), shop.header("idempotency-result")), ("shop", created));
        assert_eq!((till.body.as_str(), till.header("idempotency-result")), ("till", created));
        for (token, body) in
            [("shop's token", "shop"), ("shop's old token", "shop"), ("till's token", "till")]
        {
            let again = front.ask(&of(token)).await;
            assert_eq!(
                (again.body.as_str(), again.header("idempotency-result")),
                (body, Some("reused"))
            );
        }
        assert_eq!(
            (
                front.jobs().await,
                front.store.admin.events(EventFilter::default()).await.unwrap().rows.len()
            ),
            (2, 2)
        );
    });
}

#[test]
fn a_caller_header_separates_callers_with_one_token() {
    multi(async {
        let text = SOURCES.replace("reply_wait = \"WAIT\"", "caller_header = \"X-Tenant\"");
        let front = Front::with(&text);
        let of = |tenant: &[&str]| {
            let tenants = tenant.iter().map(|tenant| ("X-Tenant", *tenant));
            let headers: Vec<_> = tenants.chain([("Idempotency-Key", "k")]).collect();
            request("shop's token", &headers, "{}")
        };
        for tenant in ["a", "b"] {
            let first = front.ask_answered(of(&[tenant]), answer(200, tenant)).await;
            assert_eq!(first.body, tenant);
        }
        assert_eq!(front.ask(&of(&["a"])).await.body, "a");
        for bad in [&[][..], &["a", "b"], &[""], &["a b"]] {
            is_problem(&front.ask(&of(bad)).await, 400, "bad_caller");
        }
    });
}

#[test]
fn ten_concurrent_requests_cause_one_job_and_get_equal_answers() {
    multi(async {
        let front = Front::start();
        let mut asking = JoinSet::new();
        for _ in 0..10 {
            let address = front.address;
            asking.spawn(async move { ask(address, &pay("k", "{}")).await });
        }
        front.answer(answer(200, "once")).await;
        let answers = asking.join_all().await;
        answers.iter().for_each(|answer| assert_eq!(own(answer), own(&answers[0])));
        let created =
            |answer: &&raw::Answer| answer.header("idempotency-result") == Some("created");
        assert_eq!((answers.iter().filter(created).count(), front.jobs().await), (1, 1));
        assert_eq!(front.counted("pay"), [("created", 1), ("reused", 9)]);
    });
}

#[test]
fn a_caller_that_disconnects_gets_the_answer_when_it_repeats() {
    multi(async {
        let front = Front::start();
        let mut raw = Raw::connect(front.address).await;
        raw.send(&pay("k", "{}")).await;
        let claimed = front.claim().await;
        drop(raw);
        front
            .complete(&claimed, Outcome::Succeeded, Next::Succeeded, Some(answer(200, "kept")))
            .await;
        let again = front.ask(&pay("k", "{}")).await;
        assert_eq!(
            (again.body.as_str(), again.header("idempotency-result")),
            ("kept", Some("reused"))
        );
        // The request's task ran to its end without its client, and is counted as `created`.
        while front.counted("pay").len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(front.counted("pay"), [("created", 1), ("reused", 1)]);
    });
}

#[test]
fn a_failed_request_runs_again_and_an_unknown_one_does_not() {
    multi(async {
        let front = Front::start();
        let failed = (Outcome::Failed, Next::Dead(DeadReason::Exhausted));
        let held = Next::Held(HeldReason::UnknownOutcome);
        for (key, (outcome, next), status, reason) in [
            ("failed", failed, 502, "failed"),
            ("lost", (Outcome::Unknown, held), 502, "lost"),
            ("late", (Outcome::TimedOut, held), 504, "timed_out"),
        ] {
            let first = front.asking(pay(key, "{}"));
            let claimed = front.claim().await;
            front.complete(&claimed, outcome, next, None).await;
            let first = first.await.unwrap();
            is_problem(&first, status, reason);
            assert_eq!(first.header("retry-after"), None);
        }
        for key in ["lost", "late"] {
            let again = front.ask(&pay(key, "{}")).await;
            is_problem(&again, 409, "unknown");
            assert_eq!(again.header("retry-after"), None);
        }
        let again = front.ask_answered(pay("failed", "{}"), answer(200, "well")).await;
        assert_eq!((again.status, again.header("idempotency-result")), (200, Some("created")));
        assert_eq!(front.jobs().await, 3);
        let counted = [("created", 1), ("unknown", 4), ("failed", 1)];
        assert_eq!(front.counted("pay"), counted);
    });
}

/// A provider like `bearer` whose senders wait for one second only.
fn hasty() -> String {
    let bearer = include_str!("../../providers/bearer.toml");
    let bearer = bearer.replace("\"bearer\"", "\"hasty\"").replace("vectors = ", "# ");
    bearer.replace("[delivery]", "[delivery]\ndeadline = \"1s\"")
}

#[test]
fn a_first_request_is_answered_504_before_its_sender_gives_up() {
    multi(async {
        let text = SOURCES.replace("\"bearer\"", "\"hasty\"").replace("WAIT", "900ms");
        let front = Front::with_providers(&text, &[("hasty", &hasty())]);
        let first = front.ask(&pay("k", "{}")).await;
        is_problem(&first, 504, "slow");
        assert_eq!(first.header("retry-after"), Some("1"));
        front.answer(answer(200, "late")).await;
        assert_eq!(front.ask(&pay("k", "{}")).await.body, "late");
    });
}

#[test]
fn a_caller_over_its_rate_limit_gets_a_retry_after() {
    multi(async {
        let text = SOURCES.replace("reply_wait = \"WAIT\"", "requests_per_minute = 2");
        let front = Front::with(&text);
        front.ask_answered(pay("k", "{}"), answer(200, "")).await;
        assert_eq!(front.ask(&pay("k", "{}")).await.status, 200);
        let limited = front.ask(&pay("k", "{}")).await;
        is_problem(&limited, 429, "limited");
        assert_eq!(limited.header("retry-after"), Some("30"));
        let other = request("till's token", &[("Idempotency-Key", "k")], "{}");
        front.ask_answered(other, answer(200, "till")).await;
        front.clock.advance(Duration::from_secs(30));
        assert_eq!(front.ask(&pay("k", "{}")).await.status, 200);
        assert_eq!(front.counted("pay"), [("created", 2), ("reused", 2), ("limited", 1)]);
    });
}

const CERTIFIED: &str = r#"
[server]
trusted_proxies = ["PROXY"]
[limits]
disk_floor_bytes = "1 MiB"
[sources.pay]
provider = "certificate"
reply = "handler"
certificate_header = "X-Client-Cert"
[handlers.h]
source = "pay"
events = ["*"]
command = ["/bin/true"]
"#;

#[test]
fn a_certificate_header_counts_only_from_a_trusted_proxy() {
    multi(async {
        let of = |names: &[&str]| {
            let mut headers =
                vec![("Idempotency-Key", "k".as_bytes()), ("X-Forwarded-For", b"192.0.2.7")];
            headers.extend(names.iter().map(|name| ("X-Client-Cert", name.as_bytes())));
            post("/hooks/pay", &headers, b"{}")
        };
        let front = Front::with(&CERTIFIED.replace("PROXY", "127.0.0.0/8"));
        for name in ["CN=till 7,O=Shop", "CN=till 8,O=Shop"] {
            let first = front.ask_answered(of(&[name]), answer(200, name)).await;
            assert_eq!(first.body, name);
        }
        assert_eq!(front.ask(&of(&["CN=till 7,O=Shop"])).await.body, "CN=till 7,O=Shop");
        let stranger = Front::with(&CERTIFIED.replace("PROXY", "192.0.2.1"));
        for (front, names) in [
            (&front, &[][..]),
            (&front, &["CN=till 7,O=Shop", "CN=till 8,O=Shop"]),
            (&front, &[""]),
            (&stranger, &["CN=till 7,O=Shop"]),
        ] {
            let answer = front.ask(&of(names)).await;
            assert_eq!((answer.status, answer.body.as_str()), (401, r#"{"status":"rejected"}"#));
        }
        assert_eq!((front.jobs().await, stranger.jobs().await), (2, 0));
    });
}

/// A provider like Slack's commands: a signed form with a one-time id in a field.
const SLASH: &str = r#"
name = "slash"
[signature]
algorithm = "hmac-sha256"
header = "X-Slash-Signature"
prefix = "v0="
encoding = "hex"
signed = "v0:{timestamp}:{body}"
[timestamp]
from = "header:X-Slash-Timestamp"
unit = "s"
tolerance = "5min"
[event]
id = "form:trigger_id"
type = "form:command"
[delivery]
deadline = "3s"
"#;

fn slash(body: &str) -> Vec<u8> {
    let stamp = START.seconds().to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(b"shop's token").unwrap();
    mac.update(format!("v0:{stamp}:{body}").as_bytes());
    let signature = format!("v0={}", data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes()));
    let headers: [(&str, &[u8]); 3] = [
        ("Content-Type", b"application/x-www-form-urlencoded"),
        ("X-Slash-Timestamp", stamp.as_bytes()),
        ("X-Slash-Signature", signature.as_bytes()),
    ];
    post("/hooks/pay", &headers, body.as_bytes())
}

#[test]
fn a_field_of_a_signed_form_can_be_the_key() {
    multi(async {
        let text = r#"
[limits]
disk_floor_bytes = "1 MiB"
[sources.pay]
provider = "slash"
secrets = "env:SHOP"
reply = "handler"
reply_wait = "2s"
[handlers.h]
source = "pay"
events = ["*"]
command = ["/bin/true"]
"#;
        let front = Front::with_providers(text, &[("slash", SLASH)]);
        let body =
            "command=%2Fweather&text=94070&trigger_id=13345224609.738474920.8088930838d88f008e0";
        let first = front.asking(slash(body));
        let claimed = front.claim().await;
        assert_eq!(claimed.facts.event_id.as_str(), "13345224609.738474920.8088930838d88f008e0");
        assert_eq!(claimed.facts.event_type.as_str(), "/weather");
        front
            .complete(&claimed, Outcome::Succeeded, Next::Succeeded, Some(answer(200, "sunny")))
            .await;
        assert_eq!(own(&first.await.unwrap()), own(&front.ask(&slash(body)).await));
        let other = front.ask(&slash(&body.replace("94070", "1"))).await;
        is_refused(&other, 422, "conflict");
        assert_eq!((other.header("content-type"), &*other.body), (None, ""));
        is_refused(&front.ask(&slash("command=x")).await, 400, "missing_id");
        is_refused(&front.ask(&slash("trigger_id=a&trigger_id=b")).await, 400, "bad_id");
        assert_eq!(front.jobs().await, 1);
    });
}

#[test]
fn a_request_is_identified_by_its_chosen_fields_and_its_target() {
    multi(async {
        let fields = "request_fields = [\"/amount\", \"/to/name\"]";
        let front = Front::with(&SOURCES.replace("reply_wait = \"WAIT\"", fields));
        let body = r#"{"amount":10.5,"to":{"name":"a"},"sent_at":1}"#;
        let first = front.ask_answered(pay("k", body), answer(200, "paid")).await;
        let again = front.ask(&pay("k", r#"{"sent_at":2,"to":{"name":"a"},"amount":10.5}"#)).await;
        assert_eq!(own(&again), own(&first));
        for other in [
            r#"{"amount":10.6,"to":{"name":"a"},"sent_at":1}"#,
            r#"{"amount":10.5,"sent_at":1}"#,
            r#"{"amount":10.5,"to":{"name":"a"},"amount":10.5}"#,
            "amount=10.5",
        ] {
            is_problem(&front.ask(&pay("k", other)).await, 422, "conflict");
        }
        let target = String::from_utf8(pay("k", body)).unwrap();
        let target = target.replace("/hooks/pay", "/hooks/pay?currency=eur");
        is_problem(&front.ask(target.as_bytes()).await, 422, "conflict");
    });
}

#[test]
fn a_waiting_caller_keeps_no_body_in_memory() {
    multi(async {
        // The budget holds one body of this size, in addition to the reserve for small ones.
        let limits = "[limits]\nbodies_in_flight_bytes = \"2 MiB\"\nsmall_bodies_in_flight_bytes = \"1 MiB\"";
        let front = Front::with(&SOURCES.replace("WAIT", "20s").replace("[limits]", limits));
        let body = "x".repeat(700 * 1024);
        let first = front.asking(pay("a", &body));
        let claimed = front.claim().await;
        // The memory of the first body is free while its caller waits.
        let second = front.ask_answered(pay("b", &body), answer(200, "second")).await;
        assert_eq!((second.status, second.body.as_str()), (200, "second"));
        front
            .complete(&claimed, Outcome::Succeeded, Next::Succeeded, Some(answer(200, "first")))
            .await;
        assert_eq!(first.await.unwrap().body, "first");
    });
}

#[test]
fn a_caller_without_a_place_to_wait_is_refused_and_its_job_continues() {
    multi(async {
        let one = SOURCES.replace("[limits]\n", "[limits]\ncallers_waiting_count = 1\n");
        let front = Front::with(&one.replace("WAIT", "20s"));
        let mut asking = JoinSet::new();
        for key in ["a", "b"] {
            let (address, request) = (front.address, pay(key, "{}"));
            asking.spawn(async move { (key, ask(address, &request).await) });
        }
        let claimed = [front.claim().await, front.claim().await];
        // No job is completed yet, so this answer is that of the caller that cannot wait.
        let refused = timeout(PATIENCE, asking.join_next()).await.expect("one caller is refused");
        let (key, refused) = refused.unwrap().unwrap();
        assert_eq!(refused.status, 503, "{}", refused.body);
        assert!(refused.header("retry-after").is_some());
        for job in &claimed {
            let made = Some(answer(200, "made"));
            front.complete(job, Outcome::Succeeded, Next::Succeeded, made).await;
        }
        let (_, other) = asking.join_next().await.unwrap().unwrap();
        assert_eq!((other.status, other.header("idempotency-result")), (200, Some("created")));
        let again = front.ask(&pay(key, "{}")).await;
        assert_eq!((again.status, again.header("idempotency-result")), (200, Some("reused")));
    });
}

#[test]
fn a_stop_waits_for_an_answer_within_its_limit() {
    multi(async {
        let mut front = Front::start();
        let first = front.asking(pay("k", "{}"));
        let claimed = front.claim().await;
        let mut other = Raw::connect(front.address).await;
        let stopping = tokio::spawn(front.server.take().unwrap().stop(std::future::pending()));
        loop {
            other.send(&head("GET", "/healthz", &[])).await;
            if other.answer().await.closes() {
                break;
            }
        }
        front
            .complete(&claimed, Outcome::Succeeded, Next::Succeeded, Some(answer(200, "paid")))
            .await;
        let first = first.await.unwrap();
        assert_eq!((first.body.as_str(), first.closes()), ("paid", true));
        assert!(stopping.await.unwrap());
    });
}
