//! The HTTP server on a real socket, with requests that the tests write byte by byte.

use std::future::pending;
use std::time::Duration;

use crate::support::front::{
    Front, GITHUB_BYTES, START, github, github_signature, github_with, stripe, unproven_stripe,
};
use crate::support::raw;
use crate::support::raw::{Raw, head, post};
use crate::targets::sizes;
use hooklatch::model::{HeldReason, State};
use hooklatch::store::QuarantineFilter;

const PING: &[u8] = br#"{"zen":"Keep it logically awesome."}"#;

fn multi<F: Future<Output = ()>>(test: F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test);
}

#[test]
fn a_genuine_delivery_is_stored_before_it_is_answered() {
    multi(async {
        let front = Front::start();
        let answer = front.ask(&github("d-1", PING)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.header("idempotency-result"), Some("created"));
        assert_eq!(answer.facts(), ["event=d-1", "status=accepted"]);
        assert_eq!((answer.header("content-type"), &*answer.body), (None, ""));
        let stored = front.event("d-1").await;
        assert_eq!(stored.body.as_deref(), Some(PING));
        assert_eq!((stored.event.received_at, stored.jobs.len()), (START, 1));
    });
}

#[test]
fn the_answer_to_a_duplicate_has_the_jobs_state_and_a_hint() {
    multi(async {
        let front = Front::start();
        front.ask(&github("d-1", PING)).await;
        let answer = front.ask(&github("d-1", PING)).await;
        assert_eq!((answer.status, answer.header("idempotency-result")), (200, Some("reused")));
        assert_eq!(answer.fact("status"), Some("duplicate"));
        assert_eq!(answer.fact("state"), Some("ready"));
        assert!(answer.fact("hint").unwrap().contains("`hooklatch show d-1`"), "{answer:?}");
        let events = front.events().await;
        assert_eq!((events.len(), events[0].duplicates, front.jobs().await), (1, 1, 1));
    });
}

#[test]
fn a_hundred_concurrent_copies_make_one_event_and_one_job() {
    multi(async {
        let front = Front::start();
        let request = github("d-1", PING);
        let mut copies = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let (request, address) = (request.clone(), front.address);
            copies.spawn(async move {
                let mut raw = Raw::connect(address).await;
                raw.send(&request).await;
                raw.answer().await
            });
        }
        let answers = copies.join_all().await;
        assert!(answers.iter().all(|answer| answer.status == 200));
        let created = |a: &&raw::Answer| a.header("idempotency-result") == Some("created");
        assert_eq!(answers.iter().filter(created).count(), 1);
        let events = front.events().await;
        assert_eq!((events.len(), events[0].duplicates, front.jobs().await), (1, 99, 1));
    });
}

#[test]
fn an_unproven_delivery_is_refused_without_detail_and_quarantined() {
    multi(async {
        let front = Front::start();
        let good = github_signature(PING);
        let other = github_signature(b"other");
        let signature = "X-Hub-Signature-256";
        let bad: &[&[(&str, &[u8])]] = &[
            &[],
            &[(signature, good.as_bytes()), (signature, good.as_bytes())],
            &[(signature, b"")],
            &[(signature, b"sha256=")],
            &[(signature, &good.as_bytes()[..good.len() - 1])],
            &[(signature, &good.as_bytes()["sha256=".len()..])],
            &[(signature, other.as_bytes())],
            &[(signature, b"sha256=\xff\xfe")],
        ];
        for (number, headers) in bad.iter().enumerate() {
            let id = format!("d-{number}");
            let mut all: Vec<(&str, &[u8])> =
                vec![("X-GitHub-Event", b"push"), ("X-GitHub-Delivery", id.as_bytes())];
            all.extend_from_slice(headers);
            let answer = front.ask(&post("/github", &all, PING)).await;
            assert_eq!((answer.status, &*answer.body), (401, ""));
            assert_eq!(answer.facts(), ["status=rejected"]);
        }
        assert_eq!(front.events().await.len(), 0);
        let kept =
            front.store.admin.quarantined(QuarantineFilter::default()).await.unwrap().deliveries;
        assert_eq!(kept.len(), bad.len());
        for failed in &kept {
            assert_eq!(failed.address.as_deref(), Some("127.0.0.1"));
            assert!(failed.unproven_event_id.is_some() == failed.body_kept, "{failed:?}");
            // Without a well-formed signature a later check could not prove the body either.
            assert_eq!(failed.body_kept, failed.reason == "bad_signature", "{failed:?}");
        }
        assert_eq!(kept.iter().filter(|failed| failed.body_kept).count(), 1);
    });
}

#[test]
fn a_missing_signature_is_refused_before_the_body_is_read() {
    multi(async {
        let front = Front::start();
        let mut raw = Raw::connect(front.address).await;
        raw.send(&head("POST", "/github", &[("Content-Length", b"1000")])).await;
        let answer = raw.answer().await;
        assert_eq!((answer.status, answer.closes()), (401, true));
    });
}

#[test]
fn kept_headers_over_their_limit_are_refused_before_the_body_is_read() {
    multi(async {
        let front = Front::start();
        let long = vec![b'x'; 16 * 1024];
        let mut raw = Raw::connect(front.address).await;
        let headers: [(&str, &[u8]); 2] =
            [("X-GitHub-Hook-ID", &long), ("Content-Length", b"1000")];
        raw.send(&head("POST", "/github", &headers)).await;
        let answer = raw.answer().await;
        assert_eq!((answer.status, answer.fact("reason")), (400, Some("headers_too_large")));
        // Headers that are not kept do not count.
        let answer = front.ask(&github_with("d-1", PING, &[("X-Other", &long)])).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    });
}

#[test]
fn stale_and_future_timestamps_are_refused() {
    multi(async {
        let front = Front::start();
        let body = r#"{"id":"evt_1","object":"event","type":"invoice.paid"}"#;
        for (seconds, status) in [(-301, 401), (301, 401), (-299, 200), (299, 200)] {
            let answer = front.ask(&stripe(body, seconds)).await;
            assert_eq!(answer.status, status, "{seconds} s: {answer:?}");
        }
        front.clock.advance(Duration::from_secs(600));
        assert_eq!(front.ask(&stripe(body, 299)).await.status, 401);
    });
}

#[test]
fn any_raw_bytes_are_verified_and_stored_unchanged() {
    multi(async {
        let front = Front::start();
        let squeezed: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0";
        let gzip: &[(&str, &[u8])] = &[("Content-Encoding", b"gzip")];
        let answer = front.ask(&github_with("gzip", squeezed, gzip)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(front.event("gzip").await.body.as_deref(), Some(squeezed));

        let text = b"\xff\xfe no JSON, no UTF-8 \0";
        let odd: &[(&str, &[u8])] = &[("X-Odd", b"\xff\xfe"), ("X-Odd", b"")];
        assert_eq!(front.ask(&github_with("text", text, odd)).await.status, 200);
        assert_eq!(front.event("text").await.body.as_deref(), Some(text.as_slice()));

        let large = vec![b'x'; 700_000];
        assert_eq!(front.ask(&github("large", &large)).await.status, 200);
        assert_eq!(front.event("large").await.body.as_deref(), Some(&large[..]));
    });
}

#[test]
fn a_genuine_request_whose_id_is_not_one_is_stored_and_does_not_pass_the_replay_guard() {
    multi(async {
        let front = Front::start();
        let long = "a".repeat(201);
        for id in ["captured", "", "a b", "a\tb", "-rf", long.as_str()] {
            let answer = front.ask(&github(id, PING)).await;
            assert_eq!((answer.status, answer.fact("status")), (200, Some("accepted")));
        }
        // A control character is not allowed in a header value.
        assert_eq!(front.ask(&github("a\u{1}b", PING)).await.status, 400);
        let signature = github_signature(PING);
        let without_id: &[(&str, &[u8])] =
            &[("X-GitHub-Event", b"push"), ("X-Hub-Signature-256", signature.as_bytes())];
        let answer = front.ask(&post("/github", without_id, PING)).await;
        assert_eq!((answer.status, answer.fact("status")), (200, Some("duplicate")));
        let jobs = front.store.admin.jobs(Default::default()).await.unwrap().rows;
        let held = jobs.iter().filter(|job| job.state == State::Held).count();
        assert_eq!((front.events().await.len(), jobs.len(), held), (6, 6, 5));
        for body in ["[]", "no JSON", "{}", r#"{"id":{}}"#, r#"{"id":"evt_1""#] {
            let answer = front.ask(&stripe(body, 0)).await;
            assert_eq!(answer.status, 200, "{body}: {answer:?}");
        }
        assert_eq!(front.events().await.len(), 11);
    });
}

#[test]
fn another_body_under_an_unsigned_id_is_stored_and_held() {
    multi(async {
        let front = Front::start();
        front.ask(&github("d-1", PING)).await;
        let answer = front.ask(&github("d-1", b"{}")).await;
        assert_eq!(answer.status, 200);
        let jobs = front.store.admin.jobs(Default::default()).await.unwrap().rows;
        let held =
            jobs.iter().filter(|job| job.reason.as_deref() == Some(HeldReason::IdReused.as_str()));
        assert_eq!((jobs.len(), held.count()), (2, 1));
    });
}

#[test]
fn an_unsigned_source_refuses_requests_from_a_proxy() {
    multi(async {
        let front = Front::start();
        for name in ["Forwarded", "X-Forwarded-For", "x-forwarded-proto", "Via"] {
            let answer = front.ask(&post("/none", &[(name, b"x")], b"{}")).await;
            assert_eq!(answer.status, 403, "{name}");
            assert!(answer.body.contains("proxy"));
        }
        let mut raw = Raw::connect(front.address).await;
        raw.send(&post("/github", &[("Via", b"1.1 x")], b"{}")).await;
        assert_eq!(raw.answer().await.status, 401, "a signed source accepts requests from a proxy");
    });
}

#[test]
fn an_unsigned_source_refuses_browsers_and_foreign_hosts() {
    multi(async {
        let front = Front::start();
        let refused: [&[(&str, &[u8])]; 4] = [
            &[("Origin", b"https://evil.example"), ("Content-Type", b"text/plain")],
            &[("Origin", b"null")],
            &[("Sec-Fetch-Site", b"cross-site")],
            &[("Sec-Fetch-Site", b"same-site")],
        ];
        for headers in refused {
            let answer = front.ask(&post("/none", headers, b"{}")).await;
            assert_eq!(answer.status, 403, "{headers:?}");
            assert!(answer.body.contains("none of a web page"), "{answer:?}");
        }
        let from = |host: &str| {
            format!("POST /none HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\n{{}}")
        };
        for host in ["evil.example", "localhost.evil.example:8080", ""] {
            let answer = front.ask(from(host).as_bytes()).await;
            assert_eq!(answer.status, 403, "{host}");
            assert!(answer.body.contains("Host is not an IP address or localhost"), "{answer:?}");
        }
        assert_eq!(front.events().await.len(), 0);
        for host in ["127.0.0.1:8080", "[::1]", "LOCALHOST:1"] {
            assert_eq!(front.ask(from(host).as_bytes()).await.status, 200, "{host}");
        }
        for site in ["none", "same-origin"] {
            let request = post("/none", &[("Sec-Fetch-Site", site.as_bytes())], b"{}");
            assert_eq!(front.ask(&request).await.status, 200, "{site}");
        }
        let origin: &[(&str, &[u8])] = &[("Origin", b"https://example.org")];
        assert_eq!(front.ask(&github_with("d-1", PING, origin)).await.status, 200, "signed");
    });
}

#[test]
fn a_100_continue_is_sent_only_if_the_body_is_wanted() {
    multi(async {
        let front = Front::start();
        let expect: (&str, &[u8]) = ("Expect", b"100-continue");
        let length: (&str, &[u8]) = ("Content-Length", b"100");
        let signature = unproven_stripe();
        let signed: (&str, &[u8]) = ("Stripe-Signature", signature.as_bytes());
        let too_long: (&str, &[u8]) = ("Content-Length", b"1000000");
        let chunked: (&str, &[u8]) = ("Transfer-Encoding", b"chunked");
        type Case<'a> = (&'a str, &'a [(&'a str, &'a [u8])], u16);
        let cases: [Case<'_>; 6] = [
            ("/github", &[expect, length], 401),
            ("/github", &[expect, chunked], 401),
            ("/stripe", &[expect, signed, too_long], 413),
            ("/nowhere", &[expect, length], 404),
            ("/none", &[expect, length, ("Via", b"1.1 proxy")], 403),
            ("/stripe", &[expect, signed, length], 100),
        ];
        for (path, headers, status) in cases {
            let mut raw = Raw::connect(front.address).await;
            raw.send(&head("POST", path, headers)).await;
            let answer = raw.answer().await;
            assert_eq!((answer.status, answer.closes()), (status, status != 100), "{path}");
            // The rest looks like a request but must not be treated as one.
            let body = [&head("GET", "/healthz", &[])[..], &[b'x'; 100]].concat();
            let _closed = raw.try_send(&body[..100]).await;
            match status {
                100 => assert_eq!(raw.answer().await.status, 401),
                _ => {
                    raw.half_close().await;
                    raw.ended().await;
                }
            }
        }
        let genuine = github_with("d-1", PING, &[("Expect", b"100-continue")]);
        let mut raw = Raw::connect(front.address).await;
        raw.send(&genuine).await;
        assert_eq!((raw.answer().await.status, raw.answer().await.status), (100, 200));
    });
}

#[test]
fn paths_and_methods_are_exact() {
    multi(async {
        let front = Front::start();
        for path in ["/", "/github/", "/GitHub", "/gith%75b", "//github", "/github/x", "*"] {
            assert_eq!(front.ask(&post(path, &[], b"")).await.status, 404, "{path}");
        }
        for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "NONSENSE"] {
            let answer = front.ask(&head(method, "/github", &[])).await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
        }
        for (path, body) in
            [("/healthz", r#"{"status":"alive"}"#), ("/readyz", r#"{"status":"ready"}"#)]
        {
            let answer = front.ask(&head("GET", path, &[])).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, body));
            let answer = front.ask(&post(path, &[], b"")).await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")));
        }
        front.store.close().await;
        let answer = front.ask(&head("GET", "/readyz", &[])).await;
        assert_eq!((answer.status, answer.json("reason").as_deref()), (503, Some("stopping")));
        assert_eq!(front.ask(&head("GET", "/healthz", &[])).await.status, 200);
        let answer = front.ask(&github("d-1", PING)).await;
        assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true));
    });
}

#[test]
fn a_body_over_the_limit_is_refused_by_its_declared_length() {
    multi(async {
        let front = Front::start();
        let mut raw = Raw::connect(front.address).await;
        let length = (GITHUB_BYTES + 1).to_string();
        let signature = github_signature(b"");
        let headers: &[(&str, &[u8])] =
            &[("X-Hub-Signature-256", signature.as_bytes()), ("Content-Length", length.as_bytes())];
        raw.send(&head("POST", "/github", headers)).await;
        let answer = raw.answer().await;
        assert_eq!((answer.status, answer.closes()), (413, true));
        raw.half_close().await;
        raw.ended().await;
    });
}

#[test]
fn endless_chunks_are_refused_at_the_limit_and_the_connection_is_closed() {
    multi(async {
        let front = Front::with(|limits| limits.body_grace_millis = 500);
        let mut raw = Raw::connect(front.address).await;
        let header = unproven_stripe();
        let headers: &[(&str, &[u8])] =
            &[("Stripe-Signature", header.as_bytes()), ("Transfer-Encoding", b"chunked")];
        raw.send(&head("POST", "/stripe", headers)).await;
        let chunk = format!("2000\r\n{}\r\n", "x".repeat(0x2000));
        for _ in 0..9 {
            raw.send(chunk.as_bytes()).await;
        }
        let answer = raw.answer().await;
        assert_eq!((answer.status, answer.closes()), (413, true));
        let on_and_on = async { while raw.try_send(chunk.as_bytes()).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(10), on_and_on)
            .await
            .expect("the server closes the connection");
    });
}

#[test]
fn chunks_within_the_limit_are_one_body() {
    multi(async {
        let front = Front::start();
        let signature = github_signature(b"{\"a\":1}");
        let headers: &[(&str, &[u8])] = &[
            ("X-GitHub-Event", b"push"),
            ("X-GitHub-Delivery", b"d-1"),
            ("X-Hub-Signature-256", signature.as_bytes()),
            ("Transfer-Encoding", b"chunked"),
        ];
        let mut request = head("POST", "/github", headers);
        request.extend_from_slice(b"3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n");
        assert_eq!(front.ask(&request).await.status, 200);
        assert_eq!(front.event("d-1").await.body.as_deref(), Some(b"{\"a\":1}".as_slice()));
    });
}

#[test]
fn stalled_and_trickling_bodies_are_timed_out() {
    multi(async {
        let front = Front::with(|limits| limits.body_grace_millis = 300);
        let whole = github("d-1", PING);
        let cut = whole.len() - 9;
        let mut stalled = Raw::connect(front.address).await;
        stalled.send(&whole[..cut]).await;
        let answer = stalled.answer().await;
        assert_eq!((answer.status, answer.closes()), (408, true));
        stalled.ended().await;

        let mut trickling = Raw::connect(front.address).await;
        let header = unproven_stripe();
        let headers: &[(&str, &[u8])] =
            &[("Stripe-Signature", header.as_bytes()), ("Content-Length", b"60000")];
        trickling.send(&head("POST", "/stripe", headers)).await;
        let answer = trickling.answer_to_a_trickle(Duration::from_millis(20)).await;
        assert_eq!(answer.status, 408);
    });
}

#[test]
fn a_request_part_of_any_size_is_answered_and_the_server_continues() {
    multi(async {
        let front = Front::start();
        let bound = usize::try_from(front.limits.head_bytes).unwrap();
        for (number, part) in sizes::PARTS.into_iter().enumerate() {
            // The parts of a head are sent first.
            let is_of_head = number <= 6;
            for size in sizes::sizes() {
                let request = part.request(size);
                let mut raw = Raw::connect(front.address).await;
                // The server may refuse it before all of it is sent.
                let _refused = raw.try_send(&request).await;
                let answer = raw.answer().await;
                if is_of_head && request.len() > bound {
                    assert_eq!((answer.status, answer.closes()), (431, true), "{part:?} {size}");
                    assert_eq!(answer.body, r#"{"status":"head_too_large"}"#);
                }
            }
            let answer = front.ask(&github(&format!("{part:?}"), PING)).await;
            assert_eq!(answer.status, 200, "after {part:?}");
        }
    });
}

#[test]
fn a_head_over_its_limit_is_answered_after_the_previous_request() {
    multi(async {
        let front = Front::with(|limits| limits.head_bytes = 4096);
        let mut raw = Raw::connect(front.address).await;
        let long = sizes::Part::HeaderName.request(5000);
        let _refused = raw.try_send(&[&github("d-1", PING), &long[..], &long[..]].concat()).await;
        assert_eq!(raw.answer().await.status, 200);
        assert_eq!(raw.answer().await.status, 431);
        raw.half_close().await;
        raw.ended().await;
    });
}

#[test]
fn a_stalled_head_is_timed_out() {
    multi(async {
        let front = Front::with(|limits| limits.header_read_millis = 1000);
        let mut raw = Raw::connect(front.address).await;
        raw.send(b"POST /github HTTP/1.1\r\nHost: te").await;
        assert_eq!(raw.answer().await.status, 408);
        raw.ended().await;
    });
}

#[test]
fn a_later_head_has_the_same_time_limit_as_the_first() {
    multi(async {
        let front = Front::with(|limits| limits.header_read_millis = 1000);
        let health = head("GET", "/healthz", &[]);
        let mut at_once = Raw::connect(front.address).await;
        at_once.send(&[&health[..], b"POST /git"].concat()).await;
        let mut blank = Raw::connect(front.address).await;
        blank.send(&[&health[..], b"\r\n"].concat()).await;
        let mut trickling = Raw::connect(front.address).await;
        trickling.send(&github("d-1", PING)).await;
        for raw in [&mut at_once, &mut blank, &mut trickling] {
            assert_eq!(raw.answer().await.status, 200);
        }
        // Sending single bytes does not extend the time; only the end of the connection ends the loop.
        let mut beat = tokio::time::interval(Duration::from_millis(50));
        let mut beats = 0;
        while trickling.try_send(b"P").await.is_ok() {
            beat.tick().await;
            beats += 1;
            assert!(beats < 200, "still open after ten times the limit");
        }
        at_once.ended().await;
        blank.ended().await;
    });
}

#[test]
fn a_refused_delivery_that_is_complete_keeps_its_connection() {
    multi(async {
        let front = Front::start();
        let mut raw = Raw::connect(front.address).await;
        for _ in 0..2 {
            raw.send(&post("/nowhere", &[], b"{\n\n}")).await;
            let answer = raw.answer().await;
            assert_eq!((answer.status, answer.closes()), (404, false));
        }
        raw.send(&github("d-1", PING)).await;
        assert_eq!(raw.answer().await.status, 200);
    });
}

#[test]
fn an_upgrade_request_cannot_hide_the_end_of_a_body() {
    multi(async {
        let front = Front::with(|limits| limits.body_grace_millis = 1000);
        let signature = github_signature(b"");
        let headers: &[(&str, &[u8])] = &[
            ("X-Hub-Signature-256", signature.as_bytes()),
            ("Connection", b"upgrade"),
            ("Upgrade", b"websocket"),
        ];
        let mut raw = Raw::connect(front.address).await;
        raw.send(&head("POST", "/github", headers)).await;
        let _ = raw.try_send(&github("d-1", PING)).await;
        let answer = raw.answer().await;
        assert_eq!((answer.status, answer.closes()), (408, true));
        assert_eq!(front.events().await.len(), 0);
    });
}

#[test]
fn an_upgrade_request_with_a_body_is_answered_and_its_connection_closed() {
    multi(async {
        let front = Front::with(|limits| limits.body_grace_millis = 1000);
        for path in ["/nowhere", "/github"] {
            let mut raw = Raw::connect(front.address).await;
            raw.send(&post(path, &[("Upgrade", b"WebSocket")], b"hello")).await;
            assert!(raw.answer().await.closes(), "{path}");
            raw.ended().await;
        }
    });
}

#[test]
fn a_client_that_reads_no_answers_is_disconnected() {
    multi(async {
        let front = Front::with(|limits| limits.keep_alive_millis = 1000);
        let mut raw = Raw::connect(front.address).await;
        // Sends until the server stops reading and then closes the connection.
        let requests = head("GET", "/healthz", &[]).repeat(1000);
        while raw.try_send(&requests).await.is_ok() {}
    });
}

#[test]
fn an_incomplete_body_is_not_stored() {
    multi(async {
        let front = Front::start();
        let whole = github("d-1", PING);
        let mut raw = Raw::connect(front.address).await;
        raw.send(&whole[..whole.len() - 1]).await;
        raw.half_close().await;
        assert!(raw.try_answer().await.is_none_or(|answer| answer.status == 400));
        assert_eq!(front.events().await.len(), 0);
    });
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    multi(async {
        let front = Front::start();
        let mut all = Vec::new();
        for id in ["d-1", "d-2", "d-1"] {
            all.extend_from_slice(&github(id, format!("{{\"id\":\"{id}\"}}").as_bytes()));
        }
        let mut raw = Raw::connect(front.address).await;
        raw.send(&all).await;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let answer = raw.answer().await;
            let fact = |name| answer.fact(name).unwrap().to_owned();
            seen.push((fact("event"), fact("status")));
        }
        let wanted = [("d-1", "accepted"), ("d-2", "accepted"), ("d-1", "duplicate")];
        assert_eq!(seen, wanted.map(|(id, status)| (id.to_owned(), status.to_owned())));
    });
}

#[test]
fn a_client_that_disconnects_loses_its_answer_but_not_its_event() {
    multi(async {
        let front = Front::start();
        let mut half = Raw::connect(front.address).await;
        half.send(&github("half", PING)).await;
        half.half_close().await;
        assert_eq!(half.answer().await.status, 200);
        half.ended().await;

        let wake = front.store.jobs.wake();
        let mut gone = Raw::connect(front.address).await;
        gone.send(&github("gone", b"{}")).await;
        drop(gone);
        let stored = async {
            while front.events().await.len() < 2 {
                wake.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), stored).await.unwrap();
    });
}

#[test]
fn stalled_large_uploads_use_up_the_budget_but_small_deliveries_pass() {
    multi(async {
        // More than the kernel's buffers on loopback hold (tcp(7): 4 MiB to send, 6 MiB received).
        const LARGE: usize = 16 << 20;
        let front = Front::with(|limits| {
            limits.bodies_in_flight_bytes = 4 * LARGE as u64;
            limits.small_bodies_in_flight_bytes = LARGE as u64;
        });
        let mut stalled = Vec::new();
        for number in 0..3 {
            let body = vec![b'a' + number; LARGE];
            let mut raw = Raw::connect(front.address).await;
            let request = github(&format!("large-{number}"), &body);
            let (now, later) = request.split_at(request.len() - 1);
            // The server continues to read only if it has admitted the body.
            raw.send(now).await;
            stalled.push((raw, later.to_vec()));
        }
        let refused = github("refused", &vec![b'r'; LARGE]);
        let mut late = Raw::connect(front.address).await;
        late.send(&refused[..1000]).await;
        let answer = late.answer().await;
        assert_eq!((answer.status, answer.fact("reason")), (503, Some("busy")));
        assert!(answer.header("retry-after").is_some() && answer.closes());
        for number in 0..20 {
            let body = format!("{{\"small\":{number}}}");
            let answer = front.ask(&github(&format!("small-{number}"), body.as_bytes())).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        for (mut raw, later) in stalled {
            raw.send(&later).await;
            assert_eq!(raw.answer().await.status, 200, "an admitted upload can finish");
        }
        assert_eq!(front.ask(&refused).await.status, 200, "a finished upload frees its memory");
    });
}

#[test]
fn slow_large_uploads_are_evicted_for_a_fast_one() {
    multi(async {
        const LARGE: usize = 16 << 20;
        let front = Front::with(|limits| {
            limits.bodies_in_flight_bytes = 4 * LARGE as u64;
            limits.small_bodies_in_flight_bytes = LARGE as u64;
            limits.body_grace_millis = 60_000;
        });
        // There is memory for three. The fourth evicts one of them and gets all of its memory.
        let mut held = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let mut raw = Raw::connect(front.address).await;
            let whole = github("stalled", &vec![b's'; LARGE]);
            raw.send(&whole[..1000]).await;
            held.spawn(async move { raw.answer().await });
        }
        let gave_way = |answer: raw::Answer| {
            assert_eq!((answer.status, answer.fact("reason")), (503, Some("busy")));
        };
        gave_way(held.join_next().await.unwrap().unwrap());
        for number in 0..2 {
            let id = format!("genuine-{number}");
            assert_eq!(front.ask(&github(&id, &vec![b'g' + number; LARGE])).await.status, 200);
        }
        gave_way(held.join_next().await.unwrap().unwrap());
    });
}

#[test]
fn idle_connections_are_closed_if_few_places_are_left() {
    multi(async {
        let front = Front::with(|limits| limits.connections_count = 16);
        let places = 16;
        let mut open = Vec::new();
        for number in 1..=places * 3 / 4 {
            let mut raw = Raw::connect(front.address).await;
            raw.send(&github(&format!("d-{number}"), format!("{number}").as_bytes())).await;
            let answer = raw.answer().await;
            assert_eq!((answer.status, answer.closes()), (200, number > places / 2), "{number}");
            // The server closes the connection as announced, and its place is free.
            match answer.closes() {
                true => raw.ended().await,
                false => open.push(raw),
            }
        }
        assert_eq!(open.len(), places / 2);
    });
}

#[test]
fn connections_that_stall_in_any_part_of_a_request_are_evicted() {
    multi(async {
        const PLACES: u64 = 16;
        let front = Front::with(|limits| {
            limits.connections_count = PLACES;
            // The time limits are so long that eviction happens first, even on a slow machine.
            limits.header_read_millis = 60_000;
        });
        let stripe = unproven_stripe();
        let body = head(
            "POST",
            "/stripe",
            &[("Stripe-Signature", stripe.as_bytes()), ("Content-Length", b"1000")],
        );
        let kinds: [&[u8]; 4] = [b"", b"POST /stripe HT", &body, &[&body[..], b"half"].concat()];
        for kind in kinds {
            let mut stalled = Vec::new();
            for _ in 0..PLACES {
                let mut raw = Raw::connect(front.address).await;
                raw.send(kind).await;
                stalled.push(raw);
            }
            front.open_when(|open| open == PLACES).await;
            for number in 0..4 {
                let id = format!("d-{}-{number}", kind.len());
                assert_eq!(front.ask(&github(&id, id.as_bytes())).await.status, 200, "{id}");
            }
            // No more connections were evicted than needed.
            front.open_when(|open| (PLACES - 4..=PLACES).contains(&open)).await;
            drop(stalled);
            front.open_when(|open| open == 0).await;
        }
    });
}

#[test]
fn a_long_head_evicts_several_connections() {
    multi(async {
        const PLACES: u64 = 16;
        let front = Front::with(|limits| limits.connections_count = PLACES);
        let mut stalled = Vec::new();
        for _ in 0..PLACES - 1 {
            let mut raw = Raw::connect(front.address).await;
            raw.send(b"POST /").await;
            stalled.push(raw);
        }
        front.open_when(|open| open == PLACES - 1).await;
        let mut long = Raw::connect(front.address).await;
        long.send(&sizes::Part::HeaderValue.request(20_000)[..18_000]).await;
        // Its 64 KiB need the memory of three others with 24 KiB each.
        front.open_when(|open| open == PLACES - 3).await;
        drop((stalled, long));
        front.open_when(|open| open == 0).await;
        assert_eq!(front.ask(&github("d-1", PING)).await.status, 200);
    });
}

#[test]
fn a_delivery_with_a_slow_commit_is_answered_503_and_still_stored() {
    multi(async {
        let front = Front::with(|limits| limits.accept_wait_millis = 0);
        // No machine hashes, compresses and flushes so much within one tick of the timer.
        let large = vec![b'x'; 8 << 20];
        let answer = front.ask(&github("d-1", &large)).await;
        assert_eq!((answer.status, answer.fact("reason")), (503, Some("slow")));
        let wake = front.store.jobs.wake();
        let stored = async {
            while front.events().await.is_empty() {
                wake.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), stored).await.unwrap();
    });
}

/// How long a connection is idle between two requests, like that of a provider with few events. Nothing is awaited by
/// it: the stop is to meet connections of this kind too.
const IDLE: Duration = Duration::from_millis(50);

#[test]
fn no_request_fails_in_a_stop_under_load() {
    multi(async {
        let mut front = Front::start();
        let address = front.address;
        let (done, running) = tokio::sync::watch::channel(false);
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..8 {
            let running = running.clone();
            clients.spawn(async move {
                let keeps = client % 2 == 0;
                let mut raw = Raw::connect(address).await;
                let mut number = 0u64;
                while !*running.borrow() {
                    let body = format!("{{\"client\":{client},\"number\":{number}}}");
                    raw.send(&github(&format!("{client}-{number}"), body.as_bytes())).await;
                    let answer = raw.answer().await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    number += 1;
                    if client % 4 == 0 {
                        tokio::time::sleep(IDLE).await;
                    }
                    if answer.closes() || !keeps {
                        raw = Raw::connect(address).await;
                    }
                }
                number
            });
        }
        let wake = front.store.jobs.wake();
        while front.events().await.len() < 50 {
            wake.notified().await;
        }
        let drained = front.server.take().unwrap().stop(pending()).await;
        assert!(drained);
        let at_stop = front.events().await.len();
        front.serve();
        while front.events().await.len() < at_stop + 50 {
            wake.notified().await;
        }
        done.send_replace(true);
        let sent: u64 = clients.join_all().await.iter().sum();
        assert!(sent >= 100, "{sent}");
    });
}

#[test]
fn a_second_signal_ends_a_stop_that_waits() {
    multi(async {
        let mut front = Front::with(|limits| limits.stop_wait_millis = 3_600_000);
        let whole = github("d-1", PING);
        let mut stalled = Raw::connect(front.address).await;
        stalled.send(&whole[..whole.len() - 1]).await;
        assert_eq!(front.ask(&github("d-2", b"{}")).await.status, 200);
        let server = front.server.take().unwrap();
        // The stop closes an idle connection when it begins to wait for the others.
        let mut idle = Raw::connect(front.address).await;
        idle.send(&github("d-3", b"[]")).await;
        assert_eq!(idle.answer().await.status, 200);
        let stopped =
            tokio::time::timeout(Duration::from_secs(60), server.stop(idle.ended())).await;
        let drained = stopped.expect("the second signal is not obeyed");
        assert!(!drained, "the stalled request was cut off");
        assert!(stalled.try_answer().await.is_none());
    });
}

#[test]
fn a_request_in_progress_keeps_the_configuration_that_it_began_with() {
    multi(async {
        let front = Front::start();
        let whole = github_with("d-1", PING, &[("Expect", b"100-continue")]);
        let (begun, rest) = whole.split_at(whole.len() - PING.len());
        let mut first = Raw::connect(front.address).await;
        first.send(begun).await;
        // The request has found its source and waits for its body.
        assert_eq!(first.answer().await.status, 100);
        front.reload("other");
        first.send(rest).await;
        assert_eq!(first.answer().await.status, 200);
        // The next request on the same connection uses the new configuration.
        first.send(&github("d-2", b"{}")).await;
        let answer = first.answer().await;
        assert!(answer.status == 200 && !answer.closes());
        for (event, handler) in [("d-1", "all"), ("d-2", "other")] {
            let jobs = front.event(event).await.jobs;
            let handlers: Vec<_> = jobs.iter().map(|job| job.job.handler.as_str()).collect();
            assert_eq!(handlers, [handler], "{event}");
        }
        assert_eq!(front.ask(&stripe("{}", 0)).await.status, 404);
    });
}
