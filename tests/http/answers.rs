//! What senders read in the answers to their deliveries, on a real socket.

use std::sync::Arc;

use crate::support::front::{Front, START, github};
use crate::support::raw::{Answer, post};
use bytes::Bytes;
use hooklatch::document::Problems;
use hooklatch::model::Headers;
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Draft};

fn multi<F: Future<Output = ()>>(test: F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test);
}

/// `body` as the built-in `provider` signs it with `secret`.
fn signed(provider: &str, secret: &str, body: &str) -> Vec<u8> {
    let scheme = Scheme::embedded(provider).unwrap();
    let key = verify::key(&scheme, "literal:test", secret).unwrap();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let draft = Draft { method: "POST", body: body.clone(), ..Draft::default() };
    let headers: Headers = verify::sign(&scheme, Some(&key), &draft, START).unwrap();
    let headers: Vec<(&str, &[u8])> = headers.iter().collect();
    post(&format!("/{provider}"), &headers, &body)
}

const SECRET: &str = "not a secret: made for tests";

/// GitHub's scheme with this `[answer]`.
fn like_github(answer: &str) -> Arc<Scheme> {
    let problems = Problems::new();
    let text = format!("name = \"own\"\nlike = \"github\"\n{answer}");
    let scheme = Scheme::parse("own.toml", &text, &problems);
    assert!(problems.is_empty(), "{:?}", problems.into_sorted());
    Arc::new(scheme.unwrap())
}

/// Status, media type and body.
fn seen(answer: &Answer) -> (u16, Option<&str>, &str) {
    (answer.status, answer.header("content-type"), &answer.body)
}

#[test]
fn xero_and_slack_get_no_body_in_any_answer() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["xero", "slack"], |_| ());
        // Xero's proof of intent to receive: an empty list, some of them wrongly signed.
        let intent = r#"{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"E"}"#;
        let event = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
        let command = "command=%2Fdeploy&trigger_id=1.2.abc&text=now";
        for (provider, body, facts) in [
            ("xero", intent, vec!["created=0", "events=0", "status=accepted"]),
            ("slack", event, vec!["event=Ev1", "status=accepted"]),
            ("slack", command, vec!["event=1.2.abc", "status=accepted"]),
        ] {
            let answer = front.ask(&signed(provider, SECRET, body)).await;
            assert_eq!(seen(&answer), (200, None, ""), "{provider}");
            assert_eq!(answer.facts(), facts);
            let forged = front.ask(&signed(provider, "another secret", body)).await;
            assert_eq!(seen(&forged), (401, None, ""), "{provider}");
            assert_eq!(forged.facts(), ["status=rejected"]);
        }
        let repeated = front.ask(&signed("slack", SECRET, command)).await;
        assert_eq!(
            (seen(&repeated), repeated.fact("status")),
            ((200, None, ""), Some("duplicate"))
        );
    });
}

#[test]
fn a_sender_reads_the_texts_of_its_provider_file() {
    multi(async {
        let front = Front::start();
        let scheme = like_github(
            "[answer]\naccepted = { status = 202, type = \"text/plain\", body = \"[accepted]\" }\n\
             duplicate = { status = 201 }\n\
             refused = { status = 403, type = \"application/json\", body = '{\"ok\":false}' }\n",
        );
        front.reload_with(&["github"], |source| source.scheme = Arc::clone(&scheme));
        let delivery = github("d-1", b"{}");
        let answer = front.ask(&delivery).await;
        assert_eq!(seen(&answer), (202, Some("text/plain"), "[accepted]"));
        assert_eq!(answer.facts(), ["event=d-1", "status=accepted"]);
        let answer = front.ask(&delivery).await;
        assert_eq!((seen(&answer), answer.fact("status")), ((201, None, ""), Some("duplicate")));
        let refused = (403, Some("application/json"), r#"{"ok":false}"#);
        let unsigned = front.ask(&post("/github", &[], b"{}")).await;
        assert_eq!((seen(&unsigned), unsigned.facts()), (refused, vec!["status=rejected".into()]));
        // The receiver's own.
        front.store.close().await;
        let answer = front.ask(&github("d-2", b"{}")).await;
        assert_eq!((seen(&answer), answer.fact("reason")), ((503, None, ""), Some("stopping")));
        assert_eq!(answer.header("retry-after"), Some("10"));
    });
}

#[test]
fn senders_of_your_own_get_what_happened_as_json_too() {
    multi(async {
        let front = Front::start();
        let answer = front.ask(&post("/none", &[("Idempotency-Key", b"n-1")], b"{}")).await;
        let json = r#"{"event":"n-1","status":"accepted"}"#;
        assert_eq!(seen(&answer), (200, Some("application/json"), json));
        assert_eq!(answer.facts(), ["event=n-1", "status=accepted"]);
        // A request to no source says nothing of the receiver.
        let answer = front.ask(&post("/nothing", &[], b"{}")).await;
        assert_eq!(seen(&answer), (404, Some("application/json"), r#"{"status":"not_found"}"#));
        assert!(answer.facts().is_empty());
    });
}
