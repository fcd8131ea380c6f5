//! Challenges on a real socket: what is answered, and to whom.

use std::sync::Arc;
use std::time::Duration;

use crate::support::front::{Front, START, github, hmac};
use crate::support::raw::{Answer, Raw, head, post};
use hooklatch::document::Problems;
use hooklatch::provider::Scheme;
use hooklatch::store::QuarantineFilter;

fn multi<F: Future<Output = ()>>(test: F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test);
}

async fn ask(front: &Front, method: &str, target: &str, headers: &[(&str, &[u8])]) -> Answer {
    front.ask(&head(method, target, headers)).await
}

/// Asserts that there is no event, and no delivery in quarantine.
async fn nothing_is_stored(front: &Front) {
    assert_eq!(front.events().await.len(), 0);
    let kept = front.store.admin.quarantined(QuarantineFilter::default()).await.unwrap();
    assert_eq!(kept.deliveries.len(), 0);
}

/// A body as Zoom or Slack signs it.
fn stamped(provider: &str, names: [&str; 2], body: &str) -> Vec<u8> {
    let at = START.seconds().to_string();
    let signature = format!("v0={}", hmac(format!("v0:{at}:{body}").as_bytes()));
    let headers = [(names[0], signature.as_bytes()), (names[1], at.as_bytes())];
    post(&format!("/{provider}"), &headers, body.as_bytes())
}

const ZOOM: [&str; 2] = ["x-zm-signature", "x-zm-request-timestamp"];
const SLACK: [&str; 2] = ["X-Slack-Signature", "X-Slack-Request-Timestamp"];

/// GitHub's scheme with these challenges.
fn like_github(handshakes: &str) -> Arc<Scheme> {
    let problems = Problems::new();
    let text = format!("name = \"own\"\nlike = \"github\"\n{handshakes}");
    let scheme = Scheme::parse("own.toml", &text, &problems);
    assert!(problems.is_empty(), "{:?}", problems.into_sorted());
    Arc::new(scheme.unwrap())
}

#[test]
fn a_fixed_status_answers_a_probe_and_a_signed_ping() {
    multi(async {
        let front = Front::start();
        // Trello's probe, and Discord's two kinds of pings.
        let scheme = like_github(
            "[[handshake]]\nmethod = \"HEAD\"\nproof = \"none\"\n\
             [[handshake]]\nwhere = { \"json:/type\" = \"1\", \"json:/token\" = \"*\" }\n\
             proof = \"signature\"\ntype = \"json\"\nanswer = '{\"type\":1}'\n\
             [[handshake]]\nwhere = { \"json:/type\" = \"0\" }\nproof = \"signature\"\nstatus = 204\n",
        );
        front.reload_with(&["github"], |source| source.scheme = Arc::clone(&scheme));
        let probe = ask(&front, "HEAD", "/github", &[]).await;
        assert_eq!((probe.status, probe.body.as_str()), (200, ""));
        let ping = front.ask(&github("d-1", br#"{"token":"t","type":1}"#)).await;
        assert_eq!((ping.status, ping.body.as_str()), (200, r#"{"type":1}"#));
        assert_eq!(ping.header("content-type"), Some("application/json"));
        assert_eq!(front.ask(&github("d-2", br#"{"type":0}"#)).await.status, 204);
        nothing_is_stored(&front).await;
        let event = front.ask(&github("d-3", br#"{"type":1,"event":{}}"#)).await;
        assert_eq!(event.fact("status"), Some("accepted"));
        let forged = post("/github", &[("X-Hub-Signature-256", b"sha256=00")], br#"{"type":0}"#);
        assert_eq!(front.ask(&forged).await.status, 401);
    });
}

#[test]
fn a_signed_challenge_is_answered_at_any_rate_and_never_stored() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["slack", "zoom"], |_| ());
        let body = r#"{"type":"url_verification","challenge":"a<b"}"#;
        for _ in 0..3 {
            let answer = front.ask(&stamped("slack", SLACK, body)).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, "a<b"));
            assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        }
        let body = r#"{"event":"endpoint.url_validation","payload":{"plainToken":"t1"}}"#;
        let answer = front.ask(&stamped("zoom", ZOOM, body)).await;
        let wanted = format!(r#"{{"plainToken":"t1","encryptedToken":"{}"}}"#, hmac(b"t1"));
        assert_eq!((answer.status, answer.body), (200, wanted));
        nothing_is_stored(&front).await;
        let event = r#"{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}"#;
        assert_eq!(front.ask(&stamped("slack", SLACK, event)).await.status, 200);
        assert_eq!(front.events().await.len(), 1);
    });
}

#[test]
fn an_unsigned_or_old_challenge_does_not_sign_text_for_an_attacker() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["zoom"], |_| ());
        let oracle = format!("v0:{}:{{}}", START.seconds());
        let body = format!(
            r#"{{"event":"endpoint.url_validation","payload":{{"plainToken":"{oracle}"}}}}"#
        );
        let good = stamped("zoom", ZOOM, &body);
        let bare = post("/zoom", &[], body.as_bytes());
        let forged = stamped("zoom", ZOOM, "{}");
        let split = forged.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 2;
        let forged = String::from_utf8(forged[..split].to_vec()).unwrap();
        let forged =
            forged.replace("Content-Length: 2", &format!("Content-Length: {}", body.len()));
        let forged = [forged.as_bytes(), b"\r\n", body.as_bytes()].concat();
        for request in [bare, forged] {
            let answer = front.ask(&request).await;
            assert_eq!((answer.status, &*answer.body), (401, ""));
            assert_eq!(answer.facts(), ["status=rejected"]);
        }
        front.clock.advance(Duration::from_secs(2 * 3600 + 1));
        assert_eq!(front.ask(&good).await.status, 401, "it is too old");
        assert_eq!(front.events().await.len(), 0);
        for method in ["GET", "OPTIONS", "PUT"] {
            let answer = ask(&front, method, "/zoom", &[]).await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
        }
    });
}

#[test]
fn the_hmac_of_a_token_that_anybody_gets_is_no_signature_of_an_event() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["x-twitter"], |_| ());
        let token = "aGVsbG8_-1";
        let answer = ask(&front, "GET", &format!("/x-twitter?crc_token={token}"), &[]).await;
        let tag = data_encoding::HEXLOWER.decode(hmac(token.as_bytes()).as_bytes()).unwrap();
        let tag = format!("sha256={}", data_encoding::BASE64.encode(&tag));
        assert_eq!((answer.status, answer.json("response_token")), (200, Some(tag.clone())));
        // The answer is a signature of the token as a body.
        let name = "x-twitter-webhooks-signature";
        let replayed = post("/x-twitter", &[(name, tag.as_bytes())], token.as_bytes());
        assert_eq!(front.ask(&replayed).await.status, 401);
        for other in ["%7B%7D", "a%20b", "", &"a".repeat(129)] {
            let answer = ask(&front, "GET", &format!("/x-twitter?crc_token={other}"), &[]).await;
            assert_eq!((answer.status, answer.fact("reason")), (400, Some("bad_challenge")));
        }
        assert_eq!(front.events().await.len(), 0);
    });
}

#[test]
fn a_verify_token_proves_the_challenge_and_nothing_is_echoed_without_it() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["meta"], |_| ());
        let good = "not+a+token:%20made+for%20tests";
        let target = |token: &str| {
            format!("/meta?hub.mode=subscribe&hub.verify_token={token}&hub.challenge=echo-me")
        };
        for token in
            ["", "guess", "not", &format!("{good}x"), &format!("{good}&hub.verify_token=x")]
        {
            let answer = ask(&front, "GET", &target(token), &[]).await;
            assert_eq!(answer.status, 403, "{token}");
            assert!(!answer.body.contains("echo-me"), "{answer:?}");
        }
        let answer = ask(&front, "GET", &target(good), &[]).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "echo-me"));
        let answer = ask(&front, "GET", "/meta?hub.challenge=echo-me", &[]).await;
        assert_eq!((answer.status, answer.fact("reason")), (400, Some("bad_challenge")));
        let answer = ask(&front, "DELETE", "/meta", &[]).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST, GET")));
        front.reload_with(&["meta"], |source| source.verify_token = None);
        assert_eq!(ask(&front, "GET", &target(""), &[]).await.status, 401, "it is not filled in");
        nothing_is_stored(&front).await;
    });
}

#[test]
fn a_challenge_in_the_query_is_answered_where_the_secret_is_in_the_query_too() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["strava"], |_| ());
        let target = |token: &str| {
            let asked = "hub.mode=subscribe&hub.challenge=echo-me&hub.verify_token=";
            format!("/strava?token=secret&{asked}{token}")
        };
        let answer = ask(&front, "GET", &target("not+a+token:+made+for+tests"), &[]).await;
        assert_eq!((answer.status, &*answer.body), (200, r#"{"hub.challenge":"echo-me"}"#));
        assert_eq!(ask(&front, "GET", &target("guess"), &[]).await.status, 403);
        nothing_is_stored(&front).await;
    });
}

/// The clock stands still: a limit by time would be used up after its first burst.
#[test]
fn strangers_cannot_use_up_the_answers_to_a_providers_challenge() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["microsoft-graph", "dropbox", "x-twitter", "square"], |_| ());
        for nth in 0..200 {
            let token = format!("stranger-{nth}");
            let validation = format!("/microsoft-graph?validationToken={token}");
            let answer = front.ask(&post(&validation, &[], b"")).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, token.as_str()));
            for (target, says) in [
                (format!("/dropbox?challenge={token}"), token.as_str()),
                (format!("/x-twitter?crc_token={token}"), "response_token"),
                ("/square".to_owned(), ""),
            ] {
                let answer = ask(&front, "GET", &target, &[]).await;
                assert_eq!((answer.status, answer.body.contains(says)), (200, true), "{target}");
            }
        }
        let seen = front.traffic.seen();
        assert!(seen.sources.values().all(|one| (one.handshakes, one.refused) == (200, 0)));
        nothing_is_stored(&front).await;
    });
}

/// Method, path with the query, a header, the body.
type Probe = (&'static str, &'static str, Option<(&'static str, &'static str)>, &'static str);

/// The probes of providers' set-up pages.
const PROBES: &[Probe] = &[
    ("POST", "/woocommerce", None, "webhook_id=12"),
    ("HEAD", "/mandrill", None, ""),
    ("HEAD", "/intercom", None, ""),
    ("HEAD", "/trello", None, ""),
    ("POST", "/bitbucket", Some(("X-Event-Key", "diagnostics:ping")), r#"{"test":true}"#),
    ("POST", "/slack", None, "ssl_check=1&token=a"),
    ("GET", "/slack?ssl_check=1&token=a", None, ""),
    ("GET", "/url-token?token=any", None, ""),
    ("HEAD", "/url-token", None, ""),
    ("GET", "/square", None, ""),
    ("HEAD", "/mollie", None, ""),
];

fn probe(method: &str, target: &str, header: Option<(&str, &str)>, body: &str) -> Vec<u8> {
    let headers: Vec<_> = header.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    match method {
        "POST" => post(target, &headers, body.as_bytes()),
        _ => head(method, target, &headers),
    }
}

#[test]
fn a_probe_of_the_set_up_is_answered_with_and_without_a_secret_and_counted() {
    multi(async {
        let front = Front::start();
        for (nth, (method, target, header, body)) in PROBES.iter().enumerate() {
            let name = target[1..].split('?').next().unwrap();
            for has_secret in [true, false] {
                front.reload_with(&[name], |source| {
                    if !has_secret {
                        source.keys.clear();
                    }
                });
                let before = front.traffic.seen().sources[&name.parse().unwrap()].clone();
                let answer = front.ask(&probe(method, target, *header, body)).await;
                assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{nth} {has_secret}");
                let after = front.traffic.seen().sources[&name.parse().unwrap()].clone();
                assert_eq!(after.handshakes, before.handshakes + 1, "{nth} {has_secret}");
                assert_eq!(after.refused, before.refused, "{nth} {has_secret}");
            }
        }
        nothing_is_stored(&front).await;
    });
}

#[test]
fn what_carries_a_signature_is_never_a_probe() {
    multi(async {
        let front = Front::start();
        let names = ["woocommerce", "bitbucket", "slack"];
        front.reload_with(&names, |_| ());
        for (path, header, value, body) in [
            ("/woocommerce", "X-WC-Webhook-Signature", "unreadable", "webhook_id=12"),
            ("/woocommerce", "X-WC-Webhook-Signature", &"A".repeat(43), "webhook_id=12"),
            ("/slack", "X-Slack-Signature", "v0=00", "ssl_check=1"),
        ] {
            let answer =
                front.ask(&post(path, &[(header, value.as_bytes())], body.as_bytes())).await;
            assert_eq!(answer.status, 401, "{path} {value}");
        }
        let ping: [(&str, &[u8]); 2] =
            [("X-Event-Key", b"diagnostics:ping"), ("X-Hub-Signature", b"sha256=00")];
        assert_eq!(front.ask(&post("/bitbucket", &ping, b"{}")).await.status, 401);
        // Another form without a signature is a delivery that is not proven.
        for (path, body) in
            [("/woocommerce", "webhook_id=1&webhook_id=2"), ("/slack", "ssl_check=0")]
        {
            assert_eq!(front.ask(&post(path, &[], body.as_bytes())).await.status, 401, "{path}");
        }
        assert_eq!(front.ask(&stamped("slack", SLACK, "ssl_check=1")).await.status, 200);
        assert_eq!(front.events().await.len(), 0);
        let handshakes = front.traffic.seen().sources[&"slack".parse().unwrap()].handshakes;
        assert_eq!(handshakes, 1, "the signed check");
    });
}

#[test]
fn a_get_is_not_a_probe_where_deliveries_come_by_get() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["url-token"], |source| source.methods = vec!["GET", "POST"]);
        for target in ["/url-token", "/url-token?token=wrong"] {
            assert_eq!(ask(&front, "GET", target, &[]).await.status, 401, "{target}");
        }
        assert_eq!(ask(&front, "HEAD", "/url-token", &[]).await.status, 200);
        assert_eq!(front.events().await.len(), 0);
        let good = "/url-token?token=not+a+secret:+made+for+tests";
        assert_eq!(ask(&front, "GET", good, &[]).await.status, 200);
        assert_eq!(front.events().await.len(), 1);
    });
}

#[test]
fn a_value_breaks_out_of_neither_header_nor_body() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["dropbox", "azure-event-grid"], |_| ());
        for bad in ["a%0d%0aSet-Cookie:%20b", "%00", "%ff", "%C3%A4", &"a".repeat(1025)] {
            let answer = ask(&front, "GET", &format!("/dropbox?challenge={bad}"), &[]).await;
            assert_eq!(answer.status, 400, "{bad}");
        }
        let script = "%3Cscript%3Ealert(1)%3C/script%3E";
        let answer = ask(&front, "GET", &format!("/dropbox?challenge={script}"), &[]).await;
        assert_eq!(answer.body, "<script>alert(1)</script>");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        let origin = |origin: &'static [u8]| [("WebHook-Request-Origin", origin)];
        let own =
            ask(&front, "OPTIONS", "/azure-event-grid", &origin(b"eventgrid.azure.net")).await;
        assert_eq!(own.header("webhook-allowed-origin"), Some("eventgrid.azure.net"));
        let other = ask(&front, "OPTIONS", "/azure-event-grid", &origin(b"evil.example")).await;
        assert_eq!((other.status, other.header("webhook-allowed-origin")), (404, None));
    });
}

#[test]
fn a_challenge_without_a_signature_has_at_most_4_kib() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["monday", "dropbox"], |_| ());
        let body = |bytes: usize| format!(r#"{{"challenge":"c","pad":"{}"}}"#, "x".repeat(bytes));
        let large = front.ask(&post("/monday", &[], body(4096).as_bytes())).await;
        assert_eq!((large.status, large.fact("status")), (413, Some("too_large")));
        let small = front.ask(&post("/monday", &[], body(4000).as_bytes())).await;
        assert_eq!((small.status, small.json("challenge")), (200, Some("c".into())));
        // Refused by its head.
        let mut raw = Raw::connect(front.address).await;
        raw.send(&head("GET", "/dropbox?challenge=1", &[("Content-Length", b"4097")])).await;
        assert_eq!(raw.answer().await.status, 413);
        nothing_is_stored(&front).await;
    });
}

#[test]
fn a_sent_secret_never_replaces_one() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["asana"], |_| ());
        let headers: &[(&str, &[u8])] = &[("X-Hook-Secret", b"another")];
        let (name, minute) = ("asana".parse().unwrap(), Duration::from_secs(60));
        let waiting = front.registrations.wait(&name, "w0rd", minute, &front.clock);
        tokio::pin!(waiting);
        let answer = tokio::select! {
            biased;
            given = &mut waiting => panic!("taken: {given:?}"),
            answer = async { front.ask(&post("/asana?register=w0rd", headers, b"{}")).await } => answer,
        };
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(!answer.body.contains("another") && answer.header("x-hook-secret").is_none());
        nothing_is_stored(&front).await;
    });
}

#[test]
fn a_secret_is_taken_only_with_the_operators_word() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["asana"], |source| source.keys.clear());
        let bring = async |query: &str, secret: &str| {
            let headers = [("X-Hook-Secret", secret.as_bytes())];
            front.ask(&post(&format!("/asana{query}"), &headers, b"{}")).await
        };
        let (name, minute) = ("asana".parse().unwrap(), Duration::from_secs(60));
        let waiting = front.registrations.wait(&name, "w0rd", minute, &front.clock);
        tokio::pin!(waiting);
        for query in [
            "",
            "?register",
            "?register=w0r",
            "?register=w0rds",
            "?Register=w0rd",
            "?register=x&register=w0rd",
        ] {
            let answer = tokio::select! {
                biased;
                given = &mut waiting => panic!("taken: {given:?}"),
                answer = bring(query, "a stranger's") => answer,
            };
            assert_eq!(answer.status, 403, "{query}: {answer:?}");
        }
        tokio::select! {
            biased;
            given = &mut waiting => assert_eq!(given.unwrap().as_str(), "the provider's"),
            answer = bring("?register=w0rd", "the provider's") => panic!("{answer:?}"),
        }
        nothing_is_stored(&front).await;
    });
}

#[test]
fn get_is_a_delivery_only_where_the_source_says_so() {
    multi(async {
        let front = Front::start();
        front.reload_with(&["bearer", "none"], |_| ());
        let key: [(&str, &[u8]); 2] =
            [("Authorization", b"Bearer not a secret: made for tests"), ("Idempotency-Key", b"k1")];
        for target in ["/bearer", "/none"] {
            let answer = ask(&front, "GET", target, &key).await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
        }
        front.reload_with(&["bearer", "none"], |source| source.methods = vec!["GET", "POST"]);
        for target in ["/bearer", "/none?token=t"] {
            assert_eq!(ask(&front, "GET", target, &key).await.status, 200);
        }
        assert_eq!(ask(&front, "GET", "/bearer", &key[1..]).await.status, 401);
        assert_eq!(ask(&front, "PUT", "/bearer", &key).await.header("allow"), Some("GET, POST"));
        assert_eq!(front.events().await.len(), 2);
    });
}
