//! Requests with stored answers, from the caller's side: one key has one run and one answer.

use std::fs;
use std::process::Command;
use std::thread;

use bytes::Bytes;
use hooklatch::clock::Clock;
use hooklatch::model::Headers;
use hooklatch::provider::Scheme;
use hooklatch::verify::{self, Draft};
use ring::signature::{Ed25519KeyPair, KeyPair};

use crate::operator::{fails, id, text};
use crate::support::caller::{Answered, answer, by, send, send_to};
use crate::support::{Receiver, Site, hex, needs};

/// A source with two callers.
const SOURCES: &str = r#"
[sources.pay]
provider = "bearer"
path = "/pay"
reply = "handler"
reply_wait = "WAIT"
[sources.pay.callers]
shop = ["file:shop"]
app = ["file:app"]
"#;

const HANDLERS: &str = r#"
[handlers.charge]
source = "pay"
events = ["*"]
command = ["./charge"]
concurrency = 4
timeout = "3s"
"#;

fn ask(receiver: &Receiver, key: &str, body: &str) -> Answered {
    answer(send(receiver.address, &by("shop", key), body).unwrap()).unwrap()
}

/// A site whose handler runs this script; each run appends the key to `runs`. A repeated request waits
/// for `wait`.
fn site(script: &str, wait: &str) -> Site {
    let site = Site::with(&SOURCES.replace("WAIT", wait), HANDLERS);
    for caller in ["shop", "app"] {
        fs::write(site.path(caller), format!("{caller}-token")).unwrap();
    }
    site.script("charge", &format!("echo \"$HOOKLATCH_EVENT_ID\" >> \"$SITE/runs\"\n{script}"));
    site
}

#[test]
fn a_request_runs_once_and_its_answer_survives_a_receiver_kill() {
    let site = site(
        r#"printf 'Status: 201\nLocation: /charges/%s\nContent-Type: application/json\n\n{"job":"%s"}' "$HOOKLATCH_EVENT_ID" "$HOOKLATCH_JOB""#,
        "5s",
    );
    let receiver = site.start();
    let first = ask(&receiver, "order-1", "{}");
    assert_eq!((first.status, first.result.as_deref()), (201, Some("created")), "{first:?}");
    assert_eq!(first.header("location"), Some("/charges/order-1"));
    assert_eq!(first.header("content-type"), Some("application/json"));
    // Stripe's clients write the key without quotes, the draft with quotes: it is the same key.
    assert_eq!(ask(&receiver, "\"order-1\"", "{}"), first.clone().reused());

    let other = ask(&receiver, "order-1", "{\"amount\":1}");
    assert_eq!((other.status, other.result), (422, None));
    let app = answer(send(receiver.address, &by("app", "order-1"), "{}").unwrap()).unwrap();
    assert!(app.result.as_deref() == Some("created") && app.body != first.body);
    receiver.kill();

    let receiver = site.start();
    assert_eq!(ask(&receiver, "order-1", "{}"), first.reused());
    assert_eq!(site.lines("runs"), ["order-1", "order-1"]);
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn each_run_gets_the_name_of_its_caller() {
    let site = site("echo \"${HOOKLATCH_CALLER-nobody}\"", "5s");
    let named = SOURCES.replace("WAIT", "5s");
    let divided = named.replace("reply_wait", "caller_header = \"X-Tenant\"\nreply_wait");
    let (one, _) = named.split_once("[sources.pay.callers]").unwrap();
    let one = format!("{one}secrets = [\"file:shop\", \"file:app\"]\n");
    for (key, sources, expected) in [
        ("named", &named, ["shop\n", "app\n"]),
        ("divided", &divided, ["shop\tt-1\n", "app\tt-1\n"]),
        ("one", &one, ["nobody\n", "nobody\n"]),
    ] {
        site.configure(sources, HANDLERS);
        let receiver = site.start();
        for (caller, expected) in ["shop", "app"].into_iter().zip(expected) {
            let headers = format!("{}X-Tenant: t-1\r\n", by(caller, &format!("{key}-{caller}")));
            let answered = answer(send(receiver.address, &headers, "{}").unwrap()).unwrap();
            assert!(answered.is(200, "created", expected), "{key} {caller}: {answered:?}");
        }
        assert_eq!(receiver.stop(), Some(0));
    }
}

#[test]
fn ten_concurrent_requests_cause_one_run_and_get_equal_answers() {
    let site = site("while [ ! -e \"$SITE/go\" ]; do sleep 0.01; done; echo $$", "60s");
    let receiver = site.start();
    let streams: Vec<_> =
        (0..10).map(|_| send(receiver.address, &by("shop", "one"), "{}").unwrap()).collect();
    site.jobs_when(|jobs| jobs.len() == 1 && jobs[0]["state"] == "running");
    fs::write(site.path("go"), "").unwrap();
    let answers: Vec<_> = streams.into_iter().map(|stream| answer(stream).unwrap()).collect();
    let created = answers.iter().filter(|one| one.result.as_deref() == Some("created")).count();
    assert_eq!(created, 1, "{answers:?}");
    let first = answers[0].clone().reused();
    assert!(answers.into_iter().all(|one| one.status == 200 && one.reused() == first));
    assert_eq!(site.lines("runs"), ["one"]);
}

#[test]
fn a_repeated_request_waits_and_a_dropped_connection_does_not_stop_the_run() {
    let site = site("while [ ! -e \"$SITE/go\" ]; do sleep 0.01; done; echo done", "200ms");
    let receiver = site.start();
    let first = send(receiver.address, &by("shop", "slow"), "{}").unwrap();
    site.jobs_when(|jobs| jobs.len() == 1 && jobs[0]["state"] == "running");
    let early = ask(&receiver, "slow", "{}");
    assert_eq!((early.status, early.result.as_deref()), (409, None), "{early:?}");
    assert!(early.header("retry-after").is_some());
    assert_eq!(
        ask(&receiver, "slow", "{} ").status,
        422,
        "another body with the same key is refused at any time"
    );
    drop(first);
    fs::write(site.path("go"), "").unwrap();
    site.all_jobs(1, "succeeded");
    assert!(ask(&receiver, "slow", "{}").is(200, "reused", "done\n"));
    assert_eq!(site.lines("runs"), ["slow"]);
}

#[test]
fn a_failed_request_runs_again_once_for_the_next_requests() {
    let site = site(
        "[ -e \"$SITE/fixed\" ] || exit 1\nwhile [ ! -e \"$SITE/go\" ]; do sleep 0.01; done; echo ok",
        "60s",
    );
    let receiver = site.start();
    for _ in 0..2 {
        let failed = ask(&receiver, "k", "{}");
        assert_eq!((failed.status, failed.result.as_deref()), (502, None), "{failed:?}");
    }
    fs::write(site.path("fixed"), "").unwrap();
    let ten: Vec<_> =
        (0..10).map(|_| send(receiver.address, &by("shop", "k"), "{}").unwrap()).collect();
    site.jobs_when(|jobs| jobs[0]["state"] == "running");
    fs::write(site.path("go"), "").unwrap();
    let answers: Vec<_> = ten.into_iter().map(|stream| answer(stream).unwrap()).collect();
    assert!(answers.iter().all(|one| one.status == 200 && one.body == "ok\n"), "{answers:?}");
    assert_eq!(site.lines("runs"), ["k", "k", "k"]);
    let jobs = site.all_jobs(1, "succeeded");
    assert_eq!((&jobs[0]["attempt"], &jobs[0]["replays"]), (&3.into(), &2.into()));
}

#[test]
fn a_handlers_refusal_is_a_stored_answer_and_a_failure_to_run_is_not() {
    let site = site(
        r#"case $HOOKLATCH_EVENT_ID in
            declined) printf 'Status: 402\n\nno money' ;;
            broken) printf 'Status: 500\n\nsorry' ;;
            never) echo 'no such account'; exit 65 ;;
            gone) exit 127 ;;
        esac"#,
        "5s",
    );
    let receiver = site.start();
    for (key, status, body) in [
        ("declined", 402, "no money"),
        ("broken", 500, "sorry"),
        ("never", 422, "no such account\n"),
    ] {
        assert!(ask(&receiver, key, "{}").is(status, "created", body), "{key}");
        assert!(ask(&receiver, key, "{}").is(status, "reused", body), "{key}");
    }
    for _ in 0..3 {
        assert_eq!(ask(&receiver, "gone", "{}").status, 502);
    }
    // The handler does not back off in between: other callers do not wait until it is fixed.
    assert!(ask(&receiver, "other", "{}").is(200, "created", ""));
    let runs = site.lines("runs");
    assert_eq!(runs, ["declined", "broken", "never", "gone", "gone", "gone", "other"]);
}

#[test]
fn an_unknown_outcome_waits_for_the_operator_who_can_supply_the_answer() {
    let site = site(
        r#"case $HOOKLATCH_EVENT_ID in
            late*) trap '' TERM; sleep 100 ;;
            large) head -c 1048577 /dev/zero ;;
            odd) printf 'Status: ok\n\n' ;;
            *) kill -KILL $$ ;;
        esac"#,
        "5s",
    );
    site.configure(
        &format!("{}[limits]\n", SOURCES.replace("WAIT", "5s")),
        &format!("{HANDLERS}grace = \"100ms\"\n"),
    );
    let receiver = site.start();
    let late = thread::scope(|scope| {
        let late = scope.spawn(|| ask(&receiver, "late", "{}"));
        for key in ["paid", "unpaid", "large", "odd"] {
            assert_eq!(ask(&receiver, key, "{}").status, 502, "{key}");
            for _ in 0..2 {
                let repeat = ask(&receiver, key, "{}");
                assert_eq!((repeat.status, repeat.header("retry-after")), (409, None), "{key}");
            }
        }
        late.join().unwrap()
    });
    assert_eq!((late.status, late.result.as_deref()), (504, None), "{late:?}");
    assert_eq!(ask(&receiver, "late", "{}").status, 409);
    assert_eq!(site.lines("runs").len(), 5);

    let jobs = site.all_jobs(5, "held");
    let of = |key: &str| id(jobs.iter().find(|job| job["event_id"] == key).unwrap()).to_owned();
    let (code, said) = fails(&site, &["resolve", &of("paid"), "--succeeded"]);
    assert!(code != Some(0) && said.contains("--answer"), "{said}");
    fs::write(site.path("answer"), "Status: 201\n\npaid by hand").unwrap();
    let file = site.path("answer").display().to_string();
    let said = site.run(&["resolve", &of("paid"), "--succeeded", "--answer", &file]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    assert!(ask(&receiver, "paid", "{}").is(201, "reused", "paid by hand"));

    // The key is free, so the next request is a new one, even with another body.
    assert!(site.run(&["resolve", &of("unpaid"), "--failed"]).status.success());
    assert_eq!(ask(&receiver, "unpaid", "{\"other\":1}").status, 502);
    assert_eq!(ask(&receiver, "unpaid", "{}").status, 422);
    assert_eq!(site.lines("runs").iter().filter(|key| *key == "unpaid").count(), 2);

    // A job whose caller has got an answer cannot run again.
    let (code, said) = fails(&site, &["replay", "--job", &of("paid")]);
    assert!(code != Some(0) && said.contains("answer"), "{said}");
}

/// The console blocks of the guide: each command with the lines of its answer.
fn guide() -> Vec<(String, Vec<String>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/answers.md");
    let text = fs::read_to_string(path).unwrap();
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
                (None, Some((_, lines))) => lines.push(line.to_owned()),
                (None, None) => panic!("{line}"),
            }
        }
    }
    steps
}

/// Copies a folder with its contents.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn the_payment_endpoint_of_the_guide_answers_as_documented() {
    if Command::new("curl").arg("--version").output().is_err() {
        return needs::missing("curl", "apt install curl");
    }
    let site = Site::storing("hooklatch.db".into(), "", "");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/payments");
    copy(std::path::Path::new(example), &site.path("."));
    // Only the port differs, because the default one may be in use.
    let written = fs::read_to_string(site.config()).unwrap();
    let idle = "\n[limits]\nrunner_idle_millis = \"300ms\"\n";
    site.write_config(written.replace("127.0.0.1:8080", "127.0.0.1:0") + idle);
    let receiver = site.start();
    let steps = guide();
    assert!(steps.len() >= 6, "{steps:?}");
    for (command, wanted) in steps {
        let command = command.replace("127.0.0.1:8080", &receiver.address.to_string());
        let said = Command::new("sh").args(["-c", &command]).output().unwrap();
        let said = text(&said.stdout).replace('\r', "");
        for line in wanted {
            assert!(said.lines().any(|got| got == line), "{command}: no '{line}' in\n{said}");
        }
    }
    assert_eq!(fs::read_dir(site.path("charges")).unwrap().count(), 2);
}

/// Senders that read the answer to what their user did, each with one handler.
const CHATS: &str = r#"
[sources.slack]
provider = "slack"
secrets = "file:token"
reply = "handler"
[sources.discord]
provider = "discord"
secrets = "file:public"
reply = "handler"
[sources.twilio]
provider = "twilio"
secrets = "file:token"
public_url = "https://hooks.example.org/hooks/twilio"
reply = "handler"
[handlers.slack]
source = "slack"
events = ["*"]
command = ["./slack"]
concurrency = 2
[handlers.discord]
source = "discord"
events = ["*"]
command = ["./discord"]
concurrency = 2
[handlers.twilio]
source = "twilio"
events = ["*"]
command = ["./twilio"]
"#;

const TOKEN: &str = "12345";

fn bot() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

/// A site whose handlers answer as their senders expect. A request that says "slow" waits until the file `go` exists.
fn chats() -> Site {
    let site = Site::with(CHATS, "");
    fs::write(site.path("token"), TOKEN).unwrap();
    fs::write(site.path("public"), hex(bot().public_key().as_ref())).unwrap();
    for (name, kind, said) in [
        ("slack", "application/json", r#"{"text":"sunny"}"#),
        ("discord", "application/json", r#"{"type":4,"data":{"content":"pong"}}"#),
        ("twilio", "text/xml", "<Response><Say>Hello</Say></Response>"),
    ] {
        let script = format!(
            "echo {name} >> \"$SITE/runs\"\n\
             if grep -q slow; then while [ ! -e \"$SITE/go\" ]; do sleep 0.01; done; fi\n\
             printf 'Content-Type: {kind}\\n\\n%s' '{said}'"
        );
        site.script(name, &script);
    }
    site
}

/// Sends a request as the provider does. `query` is that of the URL.
fn chat(receiver: &Receiver, provider: &str, query: &str, body: &str) -> Answered {
    let (body, now) = (Bytes::copy_from_slice(body.as_bytes()), Clock::system().now());
    let target = format!("/hooks/{provider}{query}");
    let headers = match provider {
        // The product cannot sign with a private key.
        "discord" => {
            let stamp = now.seconds().to_string();
            let signature = bot().sign(&[stamp.as_bytes(), &body].concat());
            let mut headers = Headers::new();
            headers.push("X-Signature-Ed25519", hex(signature.as_ref()));
            headers.push("X-Signature-Timestamp", stamp);
            headers
        }
        _ => {
            let scheme = Scheme::embedded(provider).unwrap();
            let key = verify::key(&scheme, "literal:test", TOKEN).unwrap();
            let url = format!("https://hooks.example.org{target}");
            let url = Some(url.as_str());
            let draft = Draft { method: "POST", url, body: body.clone(), ..Draft::default() };
            verify::sign(&scheme, Some(&key), &draft, now).unwrap()
        }
    };
    let lines: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\r\n", String::from_utf8_lossy(value)))
        .collect();
    let body = String::from_utf8(body.to_vec()).unwrap();
    answer(send_to(receiver.address, &target, &lines, &body).unwrap()).unwrap()
}

#[test]
fn slack_discord_and_twilio_get_their_handlers_answer_and_a_repeat_runs_nothing() {
    let site = chats();
    let receiver = site.start();
    let command = "command=%2Fweather&text=94070&trigger_id=13345224609.738474920.80889308";
    let interaction = r#"{"id":"846462639134605312","type":2,"token":"t","data":{"name":"ping"}}"#;
    let call = "CallSid=CA1&CallStatus=ringing&From=%2B15550100";
    for (provider, query, body, said) in [
        ("slack", "", command, r#"{"text":"sunny"}"#),
        ("discord", "", interaction, r#"{"type":4,"data":{"content":"pong"}}"#),
        ("twilio", "?step=1", call, "<Response><Say>Hello</Say></Response>"),
    ] {
        let first = chat(&receiver, provider, query, body);
        assert!(first.is(200, "created", said), "{provider}: {first:?}");
        let kind = if provider == "twilio" { "text/xml" } else { "application/json" };
        assert_eq!(first.header("content-type"), Some(kind));
        assert_eq!(chat(&receiver, provider, query, body), first.reused(), "{provider}");
    }
    assert_eq!(site.lines("runs"), ["slack", "discord", "twilio"]);
    // Another step of the same call is another request; bytes moved from one field to the next are not.
    assert!(chat(&receiver, "twilio", "?step=2", call).result.as_deref() == Some("created"));
    let moved = "CallSidCA1=&CallStatus=ringing&From=%2B15550100";
    chat(&receiver, "twilio", "?step=1", moved);
    assert_eq!(site.lines("runs"), ["slack", "discord", "twilio", "twilio"]);
    // Without a key of its sender's a request is refused: two equal ones may be two.
    for (provider, body) in [("slack", "command=%2Fweather"), ("discord", r#"{"type":2}"#)] {
        let refused = chat(&receiver, provider, "", body);
        assert_eq!((refused.status, &*refused.body), (400, ""), "{provider}");
        assert_eq!(refused.header("hooklatch-reason"), Some("missing_id"), "{provider}");
    }
    assert_eq!(receiver.stop(), Some(0));
}

#[test]
fn at_the_deadline_the_sender_gets_the_pending_answer_and_the_run_finishes() {
    let site = chats();
    let receiver = site.start();
    let command = "command=%2Fweather&text=slow&trigger_id=1.2.slow";
    let interaction = r#"{"id":"1","type":2,"token":"t","data":{"name":"slow"}}"#;
    let chats = [("slack", command, ""), ("discord", interaction, r#"{"type":5}"#)];
    thread::scope(|scope| {
        let asked = chats.map(|(provider, body, pending)| {
            let receiver = &receiver;
            let asked = scope.spawn(move || chat(receiver, provider, "", body));
            (provider, asked, pending)
        });
        for (provider, asked, pending) in asked {
            let answered = asked.join().unwrap();
            assert_eq!((answered.status, &*answered.body), (200, pending), "{provider}");
            let kind = (!pending.is_empty()).then_some("application/json");
            assert_eq!(answered.header("content-type"), kind, "{provider}");
            assert_eq!(answered.header("hooklatch-status"), Some("pending"), "{provider}");
        }
    });
    assert_eq!(site.all_jobs(2, "running").len(), 2);
    fs::write(site.path("go"), "").unwrap();
    site.all_jobs(2, "succeeded");
    let repeated = chat(&receiver, "slack", "", command);
    assert!(repeated.is(200, "reused", r#"{"text":"sunny"}"#), "{repeated:?}");
    assert_eq!(site.lines("runs").len(), 2);
    assert_eq!(receiver.stop(), Some(0));
}
