//! `status` and `explain`, for a receiver that runs, refuses events, or is stopped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hooklatch::admin::{Client, GetTraffic, Operation, socket_path};
use hooklatch::clock::Clock;
use hooklatch::traffic::{HandlerSlot, SourceSlot};
use serde_json::{Value, json};

use crate::operator::text;
use crate::support::{PATIENCE, Site, post, stripe_event};

const HANDLERS: &str = r#"
[handlers.silent]
source = "stripe"
events = ["silent.*"]
command = ["./silent"]
[handlers.note]
source = ["stripe", "github"]
events = ["note.*", "push", "star"]
command = ["./note"]
"#;

fn site() -> Site {
    let site = Site::new(HANDLERS);
    site.script("silent", "kill -KILL $$");
    site.script("note", "exit 0");
    site
}

/// Asks the receiver over its socket.
fn ask<O: Operation>(site: &Site, request: O) -> O::Reply {
    let asking = async {
        let client = Client::connect(&socket_path(&site.store())).await.unwrap();
        client.call(&request).await.unwrap()
    };
    tokio::runtime::Runtime::new().unwrap().block_on(asking)
}

/// The exit code and the answer of `status --json`.
fn status(site: &Site) -> (i32, serde_json::Value) {
    let output = site.run(&["status", "--json"]);
    let said = text(&output.stderr);
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    (output.status.code().unwrap(), answer)
}

#[test]
fn the_exit_code_of_status_says_whether_the_operator_is_needed() {
    let site = site();
    let none = site.run(&["status"]);
    assert_eq!(none.status.code(), Some(69), "no store yet: {}", text(&none.stderr));
    assert!(text(&none.stderr).contains("hooklatch serve"));

    let receiver = site.start();
    receiver.github("d-1", "push", "{}");
    receiver.github("d-1", "push", "{}");
    site.all_jobs(1, "succeeded");
    let (code, well) = status(&site);
    assert_eq!((code, &well["verdict"]), (0, &json!("well")), "{well:#}");
    assert_eq!(well["receiver"]["pid"], receiver.pid());
    assert_eq!(well["runners"][0]["connected"], true);
    assert!(
        well["last_commit_at"].is_string() && well["disk"]["database_bytes"].as_u64() > Some(0)
    );
    let github = &well["sources"][0];
    assert_eq!((&github["accepted"], &github["duplicates"]), (&json!(1), &json!(1)));
    assert!(github["last_good_at"].is_string() && github["last_failure"].is_null());

    receiver.stripe(&stripe_event("evt_1", "silent.one", ""), 0);
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "held"));
    let (code, held) = status(&site);
    assert_eq!((code, &held["verdict"]), (1, &json!("needs_a_person")));
    assert_eq!(held["stuck"][0]["reason"], "unknown outcome");
    let next = held["next"].as_str().unwrap();
    assert!(next.starts_with("hooklatch held --handler silent --config "), "{next}");
    // The suggested command can be run as printed.
    let args: Vec<&str> = next.split(' ').skip(1).collect();
    assert!(text(&site.run(&args).stdout).contains("evt_1"));

    assert_eq!(receiver.stop(), Some(0));
    let (code, stopped) = status(&site);
    assert_eq!((code, &stopped["verdict"]), (69, &json!("not_serving")));
    assert_eq!(stopped["receiver"], json!(null));
    assert_eq!(stopped["stuck"][0]["jobs"], 1, "reported without a receiver too");
    assert!(stopped["sources"][0]["last_good_at"].is_string(), "{stopped:#}");
    let screen = text(&site.run(&["status"]).stdout);
    assert!(screen.starts_with("status    NOT SERVING: no receiver runs"), "{screen}");
    assert!(screen.contains("next      hooklatch serve"), "{screen}");
}

#[test]
fn forged_deliveries_do_not_change_the_status_or_control_the_terminal() {
    let site = site();
    let receiver = site.start();
    for _ in 0..3 {
        let (code, _) = post(receiver.address, "/githb", "", b"{}");
        assert_eq!(code, 404);
    }
    post(receiver.address, "/%1b[31m\u{202e}", "", b"{}");
    let (code, _) = post(receiver.address, "/github", "", b"{}");
    assert_eq!(code, 401);
    let (code, seen) = status(&site);
    assert_eq!(code, 0, "{seen:#}");
    assert_eq!(seen["sources"][0]["refused"], 1);
    let reason = seen["sources"][0]["last_failure"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("missing_signature"), "{reason}");
    let screen = text(&site.run(&["status"]).stdout);
    assert!(screen.contains("3 requests to /githb"), "{screen}");
    assert!(screen.contains("did you mean /github?"), "{screen}");
    assert!(!screen.contains('\u{1b}') && !screen.contains('\u{202e}'), "{screen:?}");
}

const BROKEN: &str = r#"
[handlers.crlf]
source = "stripe"
events = ["crlf.*"]
command = ["./crlf"]
[handlers.env]
source = "stripe"
events = ["env.*"]
command = ["./env"]
[handlers.refused]
source = "stripe"
events = ["refused.*"]
forward = "http://127.0.0.1:1/"
"#;

/// Short pauses, with which a handler fails six times within a few seconds.
const SHORT: &str =
    "[limits]\nhandler_backoff_base_millis = \"100ms\"\nhandler_backoff_max_millis = \"1s\"\n";

/// Waits until the failure counts of the handlers in `status` are high enough.
fn status_when(
    site: &Site,
    wanted: impl Fn(i32, &serde_json::Value) -> bool,
) -> (i32, serde_json::Value) {
    let end = std::time::Instant::now() + crate::support::PATIENCE;
    loop {
        let (code, seen) = status(site);
        if wanted(code, &seen) {
            return (code, seen);
        }
        assert!(std::time::Instant::now() < end, "{seen:#}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_broken_handler_is_reported_by_every_command_until_it_runs() {
    let site = Site::with(SHORT, BROKEN);
    site.script("crlf", "exit 0");
    std::fs::write(site.path("crlf"), "#!/bin/sh\r\nexit 0\r\n").unwrap();
    site.script("env", "echo 'env: no such \u{1b}[31mnode' >&2; exit 127");
    let receiver = site.start();
    for (id, kind) in [("evt_crlf", "crlf.a"), ("evt_env", "env.a"), ("evt_refused", "refused.a")] {
        receiver.stripe(&stripe_event(id, kind, ""), 0);
    }
    let line = receiver.log_when(|line| line["handler"] == "env" && line["message"] == "ended");
    let next = line["next"].as_str().unwrap();
    let due = next.strip_prefix("waiting until ").unwrap_or_else(|| panic!("{line}"));
    assert!(due.parse::<hooklatch::model::Timestamp>().is_ok(), "{line}");
    let (_, early) = status_when(&site, |_, seen| seen["broken"].as_array().unwrap().len() == 3);
    assert_eq!(early["broken"][0]["handler"], "crlf");
    let (code, seen) = status_when(&site, |_, seen| seen["why"].as_array().unwrap().len() == 3);
    assert_eq!((code, &seen["verdict"]), (1, &json!("needs_a_person")));
    assert_eq!(seen["why"][0], "handler crlf cannot run");
    let cause = |nth: usize| seen["broken"][nth]["cause"].as_str().unwrap().to_owned();
    assert!(cause(0).contains("Windows line ends"), "{}", cause(0));
    assert!(
        cause(1).starts_with("exit status 127: command not found: env: no such"),
        "{}",
        cause(1)
    );
    assert!(cause(2).contains("failed to connect to"), "{}", cause(2));
    assert!(seen["broken"][0]["tries"].as_u64() >= Some(6));
    let next = seen["next"].as_str().unwrap();
    assert!(next.starts_with("hooklatch explain evt_crlf --config "), "{next}");

    let screen = text(&site.run(&["status"]).stdout);
    assert!(screen.starts_with("status    needs a person: handler crlf cannot run;"), "{screen}");
    assert!(screen.contains("\nbroken    crlf: program "), "{screen}");
    assert!(!screen.contains("all is well") && !screen.contains('\u{1b}'), "{screen}");
    let long = screen.lines().find(|line| !line.starts_with("next") && line.chars().count() > 80);
    assert_eq!(long, None, "{screen}");

    let jobs = text(&site.run(&["jobs"]).stdout);
    assert!(
        jobs.contains("ready: handler broken") && jobs.contains("waiting: handler broken"),
        "{jobs}"
    );
    let explained = site.json(&["explain", "evt_refused"]);
    let next =
        explained[0]["handlers"].as_array().unwrap().last().unwrap()["job"]["next"]["what"].clone();
    let next = next.as_str().unwrap();
    assert!(next.starts_with("tries again ") && next.contains(": failed to connect to"), "{next}");

    // After the fix it runs at its next try, and is not reported any more.
    site.script("crlf", "exit 0");
    let (_, fixed) = status_when(&site, |_, seen| seen["broken"].as_array().unwrap().len() == 2);
    assert_eq!(fixed["broken"][0]["handler"], "env");
    // Without a receiver broken handlers are not known and not reported.
    assert_eq!(receiver.stop(), Some(0));
    assert_eq!(status(&site).1["broken"], json!([]));
    assert!(!text(&site.run(&["jobs"]).stdout).contains("handler broken"));
}

const OWN: &str = r#"
name = "own"
[signature]
algorithm = "hmac-sha256"
header = "X-Sig"
encoding = "hex"
signed = "{body}"
[event]
id = "json:/id"
"#;

#[test]
fn status_says_that_the_files_differ_until_they_are_reloaded() {
    let site = Site::new("");
    std::fs::create_dir(site.path("providers")).unwrap();
    let provider = |text: &str| std::fs::write(site.path("providers/own.toml"), text).unwrap();
    provider(OWN);
    let own = "[sources.own]\nprovider = \"own\"\nsecrets = [\"file:secret\"]\n";
    site.configure(own, HANDLERS);
    let receiver = site.start();
    let differs = || {
        let (code, seen) = status(&site);
        assert_eq!(code, 0, "{seen:#}");
        let next = seen["next"].as_str().unwrap().to_owned();
        (seen["reload_needed"].as_bool().unwrap(), next)
    };
    assert!(!differs().0, "nothing has changed");
    site.configure(&format!("# A comment.\n{own}"), HANDLERS);
    provider(&format!("# A comment.\n{OWN}"));
    assert!(!differs().0, "only comments have changed");
    let changes: [&dyn Fn(); 4] = [
        &|| site.configure(own, &format!("{HANDLERS}env = {{ PLACE = \"a\" }}\nconcurrency = 3\n")),
        &|| site.configure(own, &format!("{HANDLERS}env = {{ PLACE = \"b\" }}\nconcurrency = 3\n")),
        &|| provider(&OWN.replace("X-Sig", "X-Signed")),
        &|| site.configure(&format!("{own}[limits]\ntick_millis = \"2s\"\n"), HANDLERS),
    ];
    for (nth, change) in changes.iter().enumerate() {
        change();
        let (differs_now, next) = differs();
        assert!(differs_now && next.starts_with("hooklatch reload --config "), "{nth}: {next}");
        site.json(&["reload"]);
        assert!(!differs().0, "{nth}: reloaded");
    }
    let slots = |name: &str| status(&site).1["handlers"][name]["slots"].clone();
    assert_eq!(slots("note"), 1, "as configured last");
    site.configure(own, &format!("{HANDLERS}concurrency = 3\n"));
    receiver.hang_up();
    status_when(&site, |_, seen| seen["handlers"]["note"]["slots"] == 3);
    assert!(!differs().0, "reloaded by a signal");
}

#[test]
fn deliveries_and_attempts_are_counted_in_slots_of_fifteen_minutes() {
    let site = Site::new(
        "[handlers.note]\nsource = \"github\"\nevents = [\"push\"]\ncommand = [\"./note\"]\nmax_attempts = 1\n",
    );
    site.script("note", r#"test "$HOOKLATCH_EVENT_ID" = good"#);
    let receiver = site.start();
    let before = Clock::system().now();
    for (id, body) in [("good", "{}"), ("good", "{}"), ("bad", "[]")] {
        receiver.github(id, "push", body);
    }
    post(receiver.address, "/github", "", b"{}");
    site.jobs_when(|jobs| {
        let states = ["succeeded", "dead"];
        states.iter().all(|state| jobs.iter().any(|job| job["state"] == *state))
    });
    // An end is counted after its commit.
    let end = Instant::now() + PATIENCE;
    let recent = loop {
        let recent = ask(&site, GetTraffic {});
        let slots = &recent.handlers[&"note".parse().unwrap()];
        let ended: u64 = slots.iter().map(|one| one.succeeded + one.failed + one.other).sum();
        if ended == 2 || Instant::now() > end {
            break recent;
        }
    };
    assert!(recent.since <= before && before <= recent.now, "{recent:?}");
    assert_eq!(recent.slot_millis, 900_000);
    // A slot may have ended meanwhile.
    let slots = &recent.sources[&"github".parse().unwrap()];
    let sum = |count: fn(&SourceSlot) -> u64| slots.iter().map(count).sum::<u64>();
    let counts = (sum(|one| one.accepted), sum(|one| one.duplicates), sum(|one| one.refused));
    assert_eq!(counts, (2, 1, 1), "{slots:?}");
    assert!(slots.iter().all(|one| one.at.0 % 900_000 == 0 && one.at <= recent.now), "{slots:?}");
    let slots = &recent.handlers[&"note".parse().unwrap()];
    let sum = |count: fn(&HandlerSlot) -> u64| slots.iter().map(count).sum::<u64>();
    let counts = (sum(|one| one.succeeded), sum(|one| one.failed), sum(|one| one.other));
    assert_eq!(counts, (1, 1, 0), "{slots:?}");
    assert_eq!(recent.sources[&"stripe".parse().unwrap()], []);
}

#[test]
fn a_body_over_the_limit_is_reported_with_the_fix() {
    let site = site();
    let receiver = site.start();
    let body =
        stripe_event("evt_1", "note.large", &format!(",\"more\":\"{}\"", "a".repeat(2 << 20)));
    assert_eq!(receiver.stripe(&body, 0).0, 413);
    let screen = text(&site.run(&["status"]).stdout);
    assert!(
        screen.starts_with("status    serving; source stripe refused its last delivery"),
        "{screen}"
    );
    assert!(screen.contains("raise max_body") && screen.contains("[sources.stripe]"), "{screen}");

    // Counted by hour and declared size. Without a declared size the rest says how large it was.
    let declares = |length: u64| {
        let head = format!(
            "POST /stripe HTTP/1.1\r\nHost: here\r\nStripe-Signature: t=1,v1={}\r\n",
            "0".repeat(64)
        );
        let mut stream = TcpStream::connect(receiver.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n").as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413");
    };
    for length in [5 << 20, 6 << 20, 1 << 40] {
        declares(length);
    }
    let (_, status) = status(&site);
    let of_stripe = |sources: &Value| {
        let all = sources.as_array().unwrap();
        all.iter().find(|one| one["source"] == "stripe").unwrap()["unproven_too_large"].clone()
    };
    let rows = of_stripe(&status["sources"]);
    let counted = |size: u64| {
        let rows = rows.as_array().unwrap().iter();
        rows.filter(|row| row["declared_bytes"] == size)
            .map(|row| row["requests"].as_u64().unwrap())
            .sum::<u64>()
    };
    // An hour may have ended meanwhile.
    assert!((1..=2).contains(&counted(6 << 20)) && counted(1 << 40) == 1, "{rows}");
    assert!(
        rows.as_array().unwrap().iter().all(|row| row["at"].as_str().unwrap().contains(":00:00"))
    );
    let listed = site.json(&["quarantine", "--source", "stripe"]);
    assert_eq!(
        (&listed["unproven_too_large"]["stripe"], &listed["deliveries"]),
        (&rows, &json!([]))
    );
    assert_eq!(site.json(&["quarantine", "--source", "github"])["unproven_too_large"], json!({}));
    assert_eq!(
        site.json(&["quarantine", "--reason", "bad_claim"])["unproven_too_large"],
        json!({})
    );
    for args in [&["status"][..], &["quarantine"]] {
        let shown = text(&site.run(args).stdout);
        assert!(shown.contains("unproven") && shown.contains("declared 1.0 TiB"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }
}

#[test]
fn a_receiver_without_space_is_not_serving() {
    // More free space than any disk has.
    let tables = "[limits]\ndisk_floor_bytes = \"1 PiB\"\nballast_bytes = \"0 B\"\n";
    let site = Site::with(tables, "");
    let receiver = site.start();
    assert!(!receiver.is_ready());
    let (code, refused) = status(&site);
    assert_eq!((code, &refused["verdict"]), (69, &json!("not_serving")));
    assert!(refused["refused"].as_str().unwrap().starts_with("too little space"));
    assert!(refused["next"].as_str().unwrap().starts_with("df -h "), "{refused:#}");
}

#[test]
fn explain_states_why_an_event_was_accepted_and_what_happens_next() {
    let site = site();
    let receiver = site.start();
    receiver.github("d-1", "push", r#"{"ref":"a"}"#);
    receiver.github("d-1", "push", r#"{"ref":"a"}"#);
    receiver.github("d-2", "push", r#"{"ref":"a"}"#);
    receiver.stripe(&stripe_event("evt_1", "silent.one", ""), 0);
    site.jobs_when(|jobs| {
        jobs.len() == 3
            && jobs.iter().all(|job| job["state"] == "held" || job["state"] == "succeeded")
    });

    let first = text(&site.run(&["explain", "d-1"]).stdout);
    for wanted in [
        "event     d-1 of type push, source github",
        "its id was new to source github",
        "delivered again 1 time,",
        "replay guard: passed",
        "handler   note wants it: its events include \"push\"",
        "is succeeded",
        "attempt 1,",
        "next      nothing: it is done",
    ] {
        assert!(first.contains(wanted), "{wanted}:\n{first}");
    }
    let again = site.json(&["explain", "d-2"]);
    let guard = again[0]["replay_guard"].as_str().unwrap();
    assert!(guard.starts_with("held: the same signed body came first as event d-1"), "{guard}");
    let job = &again[0]["handlers"][0]["job"];
    assert_eq!(job["reason"], "suspected replay");
    // The suggested command only shows data, so pasting it changes no job.
    let typed = |next: &serde_json::Value| {
        let command = next["command"].as_str().unwrap().to_owned();
        let output = site.run(&command.split(' ').skip(1).collect::<Vec<_>>());
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
        command
    };
    assert!(typed(&job["next"]).starts_with("hooklatch show d-2 --source github"));
    let config = site.config();
    let replay = format!(
        "`hooklatch replay --job {} --config {}`",
        job["job"].as_str().unwrap(),
        config.display()
    );
    assert!(job["next"]["what"].as_str().unwrap().contains(&replay), "{job:#}");

    // The explanation works without a receiver too.
    assert_eq!(receiver.stop(), Some(0));
    let silent = site.json(&["explain", "evt_1", "--source", "stripe"]);
    let handlers = silent[0]["handlers"].as_array().unwrap();
    assert_eq!(handlers.len(), 2);
    let why = "none of its events matches silent.one: \"note.*\", \"push\", \"star\"";
    assert_eq!(handlers[0]["why"], why);
    assert_eq!(handlers[1]["job"]["reason"], "unknown outcome");
    assert!(typed(&handlers[1]["job"]["next"]).starts_with("hooklatch show evt_1"));
    assert_eq!(site.run(&["explain", "d-9"]).status.code(), Some(66));
}

#[test]
fn a_receiver_whose_database_was_removed_or_moved_refuses_events() {
    for is_moved in [false, true] {
        let site = site();
        let receiver = site.start();
        assert_eq!(receiver.github("d-1", "issues", "{}").0, 200);
        let of_store = |suffix: &str| site.path(&format!("store.db{suffix}"));
        let away = site.path("away.db");
        match is_moved {
            true => std::fs::rename(of_store(""), &away).unwrap(),
            false => ["", "-wal", "-shm"]
                .iter()
                .for_each(|suffix| std::fs::remove_file(of_store(suffix)).unwrap()),
        }
        assert_eq!(receiver.github("d-2", "issues", r#"{"n":2}"#).0, 503);
        // Accepts are refused before the first caller is answered.
        assert!(!receiver.is_ready(), "the receiver stays ready");
        let (code, broken) = status(&site);
        assert_eq!(code, 69, "{broken:#}");
        let said = broken["refused"].as_str().unwrap();
        let why = format!("{} was removed or replaced", of_store("").display());
        assert!(said.contains(&why) && said.contains("hooklatch backup"), "{said}");

        if is_moved {
            std::fs::rename(&away, of_store("")).unwrap();
            let back_at = Instant::now();
            while receiver.github("d-2", "issues", r#"{"n":2}"#).0 == 503 {
                assert!(back_at.elapsed() < PATIENCE, "the receiver does not accept events again");
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(receiver.is_ready());
        } else {
            let backup = site.path("backup.db").display().to_string();
            let made = site.run(&["backup", &backup]);
            assert!(made.status.success(), "{}", text(&made.stderr));
            receiver.kill();
            let restored = site.run(&["restore", &backup]);
            assert!(restored.status.success(), "{}", text(&restored.stderr));
        }
        let events = site.json(&["events"]);
        let ids: Vec<_> = events.as_array().unwrap().iter().map(|one| &one["event_id"]).collect();
        assert_eq!(ids, if is_moved { vec!["d-2", "d-1"] } else { vec!["d-1"] });
    }
}
