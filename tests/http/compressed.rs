//! Bodies that their sender compressed, and forms in parts: how they are read, kept and decided.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use hooklatch::condition::{Condition, Line, Scalar, Test};
use hooklatch::http::Source;
use hooklatch::model::{Headers, Timestamp};
use hooklatch::payload::Place;
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Genuine, Request, Verified};

use crate::support::front::{Front, START, github_with, hmac};
use crate::support::raw::{head, post};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn deflate(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(test);
}

/// The source's one handler wants events with this text at this place.
fn wants(source: &mut Source, place: &str, text: &str) {
    let test = Test::Is(vec![Scalar::Text(text.to_owned())]);
    let line = Line { place: Place::parse(place).unwrap(), not: false, test };
    let routes = Arc::get_mut(&mut source.routes).unwrap();
    routes.routes[0].when = Some(Condition { tables: vec![vec![line]] });
}

/// The states of an event's jobs, with why they are undecided.
async fn jobs(front: &Front, id: &str) -> Vec<(String, Option<String>)> {
    let detail = front.event(id).await;
    let job = |one: &hooklatch::store::JobDetail| {
        (one.job.state.as_str().to_owned(), one.job.reason.as_ref().map(ToString::to_string))
    };
    detail.jobs.iter().map(job).collect()
}

#[test]
fn a_compressed_body_is_decided_by_its_text_and_kept_byte_for_byte() {
    run(async {
        let front = Front::start();
        front.reload_with(&["github"], |source| wants(source, "/ref", "main"));
        let main = br#"{"action":"opened","ref":"main"}"#;
        let large = format!(r#"{{"action":"opened","ref":"{}"}}"#, "x".repeat(64 * 1024));
        let packed = [gzip(main), deflate(main), gzip(br#"{"ref":"dev"}"#), gzip(large.as_bytes())];
        let cut = gzip(main)[..30].to_vec();
        let encoding: [(&str, &[u8]); 1] = [("Content-Encoding", b"gzip")];
        for (nth, body) in packed.iter().chain([&cut]).enumerate() {
            let answer = front.ask(&github_with(&format!("d-{nth}"), body, &encoding)).await;
            assert_eq!(answer.fact("status"), Some("accepted"), "{nth}");
            let event = front.event(&format!("d-{nth}")).await;
            assert_eq!(event.body.as_deref(), Some(&body[..]), "{nth}");
            let kept = ("Content-Encoding", "gzip");
            let same = |(name, value): &(String, String)| {
                name.eq_ignore_ascii_case(kept.0) && value == kept.1
            };
            assert!(event.headers.iter().any(same), "{:?}", event.headers);
        }
        for (id, event_type) in [("d-0", "push.opened"), ("d-1", "push.opened"), ("d-3", "push")] {
            assert_eq!(front.event(id).await.event.event_type.as_str(), event_type, "{id}");
        }
        assert_eq!(jobs(&front, "d-0").await, [("ready".to_owned(), None)]);
        assert_eq!(jobs(&front, "d-1").await, [("ready".to_owned(), None)]);
        assert_eq!(jobs(&front, "d-2").await, [], "plainly false");
        for id in ["d-3", "d-4"] {
            assert_eq!(jobs(&front, id).await[0].0, "held", "{id}");
        }
    });
}

#[test]
fn a_part_of_a_form_is_a_field_and_a_body_of_another_form_is_undecided() {
    run(async {
        let front = Front::start();
        let place = "form:payment_status";
        front.reload_with(&["url-token"], |source| wants(source, place, "Completed"));
        let part = |status: &str| {
            format!(
                "--b\r\nContent-Disposition: form-data; name=\"payment_status\"\r\n\r\n{status}\r\n--b--\r\n"
            )
        };
        let target = "/url-token?token=not+a+secret:+made+for+tests";
        for (body, wanted) in [
            (part("Completed"), Some("ready")),
            (part("Pending"), None),
            ("payment_status=Completed".to_owned(), Some("ready")),
            (r#"{"payment_status":"Completed"}"#.to_owned(), Some("held")),
            ("<payment_status>Completed</payment_status>".to_owned(), Some("held")),
        ] {
            let answer = front.ask(&post(target, &[], body.as_bytes())).await;
            let id = answer.fact("event").unwrap();
            let states: Vec<String> =
                jobs(&front, id).await.into_iter().map(|(state, _)| state).collect();
            assert_eq!(states.first().map(String::as_str), wanted, "{body}");
        }
    });
}

#[test]
fn a_parameter_of_the_query_decides_and_tells_events_apart() {
    run(async {
        let front = Front::start();
        front.reload_with(&["url-token"], |source| {
            wants(source, "query:alert", "down");
            source.methods = vec!["GET", "POST"];
            let scheme = Scheme::embedded("url-token").unwrap();
            source.scheme = Arc::new(scheme.with_kept_query(&["alert".to_owned()]));
        });
        let ask = async |method: &str, query: &str| {
            let target = format!("/url-token?token=not+a+secret:+made+for+tests{query}");
            let request = match method {
                "GET" => head("GET", &target, &[]),
                _ => post(&target, &[], b"{}"),
            };
            let answer = front.ask(&request).await;
            (answer.fact("status").unwrap().to_owned(), answer.fact("event").unwrap().to_owned())
        };
        for method in ["GET", "POST"] {
            let (_, down) = ask(method, "&alert=down&key=not-named").await;
            let (_, up) = ask(method, "&alert=up").await;
            let (_, none) = ask(method, "").await;
            assert_eq!(ask(method, "&alert=down").await, ("duplicate".to_owned(), down.clone()));
            assert_eq!(jobs(&front, &down).await, [("ready".to_owned(), None)]);
            assert_eq!(jobs(&front, &up).await, []);
            assert_eq!(jobs(&front, &none).await, []);
            let event = front.event(&down).await;
            let kept: Vec<_> =
                event.headers.iter().filter(|(name, _)| name.starts_with('?')).collect();
            assert_eq!(kept, [&("?alert".to_owned(), "=down".to_owned())]);
        }
        let (_, twice) = ask("POST", "&alert=down&alert=up").await;
        assert_eq!(jobs(&front, &twice).await[0].0, "held");
    });
}

const SECRET: &str = "not a secret: made for tests";

fn events(provider: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<Verified> {
    let scheme = Scheme::embedded(provider).unwrap();
    let keys = [verify::key(&scheme, "literal:test", SECRET).unwrap()];
    let mut all = Headers::new();
    headers.iter().for_each(|(name, value)| all.push(*name, *value));
    let body = Bytes::copy_from_slice(body);
    let request = Request { method: "POST", url: None, headers: &all, body };
    match verify::judge(&scheme, &keys, request, Timestamp(START.0), None).unwrap() {
        Genuine::Event(events, _) => events,
        Genuine::Challenge(_) => panic!("a challenge"),
    }
}

#[test]
fn the_id_of_a_compressed_body_does_not_depend_on_its_headers() {
    let body = gzip(br#"{"id":"evt_1","type":"invoice.paid"}"#);
    let signed = [format!("{}.", START.seconds()).as_bytes(), &body].concat();
    let signature = format!("t={},v1={}", START.seconds(), hmac(&signed));
    for encoding in [None, Some("gzip"), Some("br"), Some("identity")] {
        let mut headers = vec![("Stripe-Signature", signature.as_str())];
        headers.extend(encoding.map(|encoding| ("Content-Encoding", encoding)));
        let all = events("stripe", &headers, &body);
        let [event] = &all[..] else { panic!("{all:?}") };
        assert_eq!(event.event_id().as_str(), "evt_1", "{encoding:?}");
        assert_eq!(event.event_type().as_str(), "invoice.paid", "{encoding:?}");
        assert!(event.id_signed() && event.body()[..] == body[..]);
    }
}

#[test]
fn the_elements_of_a_compressed_list_are_plain() {
    let text = br#"{"events":[{"webhookEventId":"a","type":"message"},{"webhookEventId":"b","type":"follow"}]}"#;
    let body = gzip(text);
    let tag = data_encoding::HEXLOWER.decode(hmac(&body).as_bytes()).unwrap();
    let signature = data_encoding::BASE64.encode(&tag);
    let headers = [("x-line-signature", signature.as_str()), ("Content-Encoding", "gzip")];
    let all = events("line", &headers, &body);
    let ids: Vec<&str> = all.iter().map(|event| event.event_id().as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    for event in &all {
        assert!(event.body().starts_with(b"{\"webhookEventId\""));
        assert!(event.headers().all("content-encoding").next().is_none());
    }
}
