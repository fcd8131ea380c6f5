//! The operator's commands that change jobs and handlers, with a running receiver and without one.

use serde_json::{Value, json};

use crate::support::{Site, stripe_event};

/// The commands of `silent` are killed, so that their jobs are held; those of `note` write the event's id.
const HANDLERS: &str = r#"
[handlers.silent]
source = "stripe"
events = ["silent.*"]
command = ["./silent"]
[handlers.note]
source = ["stripe", "github"]
events = ["note.*", "push"]
command = ["./note"]
"#;

fn site() -> Site {
    let site = Site::new(HANDLERS);
    site.script("silent", "kill -KILL $$");
    site.script("note", r#"echo "$HOOKLATCH_EVENT_ID" >> "$SITE/notes""#);
    site
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must fail; returns its exit code and its error output.
pub(crate) fn fails(site: &Site, args: &[&str]) -> (Option<i32>, String) {
    let output = site.run(args);
    assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
    (output.status.code(), text(&output.stderr))
}

pub(crate) fn of<'a>(jobs: &'a [Value], event: &str) -> &'a Value {
    jobs.iter().find(|job| job["event_id"] == event).unwrap()
}

pub(crate) fn id(job: &Value) -> &str {
    job["job"].as_str().unwrap()
}

#[test]
fn an_event_whose_body_is_damaged_is_shown_without_it_and_said_to_be() {
    let site = site();
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "note.a", ""), 0);
    site.all_jobs(1, "succeeded");
    assert_eq!(receiver.stop(), Some(0));
    let store = rusqlite::Connection::open(site.store()).unwrap();
    assert_eq!(store.execute("UPDATE payload SET body = substr(body, 1, 20)", []).unwrap(), 1);
    drop(store);
    let shown = || {
        let shown = site.run(&["show", "evt_1", "--json"]);
        assert_eq!(shown.status.code(), Some(1), "{}", text(&shown.stderr));
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!((&shown[0]["damaged"], &shown[0]["body"]), (&json!(true), &Value::Null));
        assert_eq!(shown[0]["jobs"].as_array().unwrap().len(), 1);
        let shown = site.run(&["show", "evt_1"]);
        assert_eq!(shown.status.code(), Some(1), "{}", text(&shown.stderr));
        assert!(text(&shown.stdout).contains("damaged"), "{}", text(&shown.stdout));
        let (code, said) = fails(&site, &["show", "evt_1", "--body"]);
        assert_eq!(code, Some(65), "{said}");
    };
    shown();
    let _receiver = site.start();
    shown();
}

#[test]
fn every_changing_command_is_in_the_audit_list_with_its_reason() {
    let site = site();
    let receiver = site.start();
    for event in ["evt_1", "evt_2", "evt_3"] {
        receiver.stripe(&stripe_event(event, "silent.end", ""), 0);
    }
    let jobs = site.all_jobs(3, "held");
    let [first, second, third] = ["evt_1", "evt_2", "evt_3"].map(|event| id(of(&jobs, event)));
    let run = |args: &[&str]| {
        let args = [args, &["--note", "said \u{1b}[31mred"]].concat();
        let output = site.command(&args).env("SUDO_USER", "ann").output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for (args, code) in [
        (&["pause", "silent"][..], 0),
        (&["pause", "silent"], 0),
        (&["replay", "--job", first], 0),
        (
            &["replay", "--state", "held", "--handler", "silent", "--reason", "cancelled", "--yes"],
            0,
        ),
        (&["replay", "evt_2", "--handler", "note", "--regardless"], 0),
        (&["replay", "--handler", "note", "--since", "1h"], 0),
        (&["resolve", second, "--failed"], 0),
        (&["resolve", second, "--failed"], 65),
        (&["drop", third], 0),
        (&["drop", "--state", "dead", "--yes"], 0),
        (&["quarantine", "drop", "--all", "--yes"], 0),
        (&["quarantine", "accept", "--yes"], 0),
        (&["reload"], 0),
        (&["resume", "silent"], 0),
    ] {
        let ended = run(args);
        assert_eq!(ended.0, Some(code), "{args:?} {}", ended.1);
    }
    let rows = site.json(&["audit"]);
    let rows = rows.as_array().unwrap();
    let said = |row: &Value| format!("{} {}", row["verb"], row["result"]).replace('"', "");
    let expected = [
        "resume done",
        "reload done",
        "reload asked",
        "drop done",
        "drop done",
        "resolve done",
        "replay done",
        "replay done",
        "pause done",
    ];
    assert_eq!(rows.iter().map(said).collect::<Vec<_>>(), expected);
    for row in rows {
        assert_eq!(
            (&row["name"], &row["via"], &row["count"]),
            (&json!("ann"), &json!("command"), &json!(1))
        );
        assert_eq!((&row["reason"], row["uid"].is_u64()), (&json!("said \u{1b}[31mred"), true));
    }
    assert_eq!(rows[8]["subject"], json!({ "handler": "silent" }));
    assert_eq!(rows[7]["subject"], json!({ "job": first, "attempt": 1 }));
    assert_eq!(rows[4]["subject"], json!({ "job": third, "attempt": 1 }));
    assert_eq!(rows[3]["subject"], json!({ "state": "dead", "jobs": [[second, 1]] }));

    let output = site.command(&["audit", "--since", "1h"]).env("COLUMNS", "80").output().unwrap();
    let table = text(&output.stdout);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("ann (user ") && !table.contains('\u{1b}'), "{table}");
    assert_eq!(
        site.json(&["audit", "--verb", "reload", "--limit", "1"]).as_array().unwrap().len(),
        1
    );
    let (code, said) = run(&["pause", "silent", "--note", ""]);
    assert_eq!((code, said.contains("--note")), (Some(2), true), "{said}");

    // A stopped store is changed by the command itself.
    assert_eq!(receiver.stop(), Some(0));
    assert_eq!(run(&["pause", "silent"]).0, Some(0));
    assert_eq!(site.json(&["audit", "--limit", "1"])[0]["name"], "ann");
}

#[test]
fn a_held_job_is_resolved_or_dropped() {
    let site = site();
    let receiver = site.start();
    for event in ["evt_1", "evt_2", "evt_3"] {
        receiver.stripe(&stripe_event(event, "silent.end", ""), 0);
    }
    let jobs = site.all_jobs(3, "held");
    let (done, not_done, dropped) = (of(&jobs, "evt_1"), of(&jobs, "evt_2"), of(&jobs, "evt_3"));

    let said = site.run(&["resolve", id(done), "--succeeded"]);
    assert_eq!(text(&said.stdout), format!("job {} is succeeded\n", id(done)));
    let said = site.json(&["resolve", id(not_done), "--failed"]);
    assert_eq!(said, json!({ "job": id(not_done), "state": "dead" }));
    let said = site.json(&["drop", id(dropped)]);
    assert_eq!(said, json!({ "job": id(dropped), "state": "dropped", "was": "held" }));
    let jobs = site.json(&["jobs"]);
    let jobs = jobs.as_array().unwrap();
    assert_eq!(of(jobs, "evt_2")["reason"], "resolved as failed");
    assert_eq!(of(jobs, "evt_3")["reason"], "by the operator");

    // Each misuse has its exit code and names the right command.
    let (code, said) = fails(&site, &["resolve", id(done), "--failed"]);
    assert_eq!(code, Some(65));
    assert!(said.contains("is succeeded") && said.contains("jobs --state held"), "{said}");
    let (code, said) = fails(&site, &["drop", id(done)]);
    assert_eq!((code, said.contains("cannot be dropped")), (Some(65), true), "{said}");
    let unknown = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b";
    assert_eq!(fails(&site, &["resolve", unknown, "--failed"]).0, Some(66));
    assert_eq!(fails(&site, &["drop", unknown]).0, Some(66));
    assert_eq!(fails(&site, &["resolve", id(done)]).0, Some(2));
    assert_eq!(fails(&site, &["resolve", id(done), "--failed", "--succeeded"]).0, Some(2));
    assert_eq!(fails(&site, &["drop", "evt_1"]).0, Some(2));

    // The same commands work without a receiver.
    assert_eq!(receiver.stop(), Some(0));
    let said = site.run(&["drop", id(not_done)]);
    assert_eq!(text(&said.stdout), format!("job {} is dropped; it was dead\n", id(not_done)));
    assert_eq!(fails(&site, &["replay", "--job", id(not_done)]).0, Some(65));
}

#[test]
fn a_running_job_cannot_be_dropped_or_resolved() {
    let site = Site::new(HANDLERS);
    site.script("note", "read -r line < \"$SITE/gate\"");
    let made = std::process::Command::new("mkfifo").arg(site.path("gate")).status().unwrap();
    assert!(made.success());
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "note.long", ""), 0);
    let jobs = site.jobs_when(|jobs| jobs.len() == 1 && jobs[0]["state"] == "running");
    let (code, said) = fails(&site, &["drop", id(&jobs[0])]);
    assert_eq!((code, said.contains("is running")), (Some(65), true), "{said}");
    assert_eq!(fails(&site, &["resolve", id(&jobs[0]), "--failed"]).0, Some(65));
    std::fs::write(site.path("gate"), "go\n").unwrap();
    site.all_jobs(1, "succeeded");
}

#[test]
fn a_paused_handler_stays_paused_over_a_restart_until_it_is_resumed() {
    // The tick is longer than the test, so that the test does not pass only because of a tick.
    let site = Site::with("[limits]\ntick_millis = \"10min\"", HANDLERS);
    site.script("note", r#"echo "$HOOKLATCH_EVENT_ID" >> "$SITE/notes""#);
    site.script("silent", "exit 0");
    let receiver = site.start();
    assert_eq!(text(&site.run(&["pause"]).stdout), "nothing is paused\n");
    let said = site.json(&["pause", "note"]);
    assert_eq!(said, json!({ "handler": "note", "paused": true, "changed": true }));
    assert_eq!(text(&site.run(&["pause", "note"]).stdout), "handler note was paused already\n");
    let listed = site.json(&["pause"]);
    assert_eq!(
        (listed[0]["handler"].as_str(), listed.as_array().unwrap().len()),
        (Some("note"), 1)
    );

    let paused = |jobs: &[Value]| {
        let of_note = jobs.iter().filter(|job| job["handler"] == "note");
        of_note.clone().count() == 1 && of_note.clone().all(|job| job["state"] == "ready")
    };
    receiver.stripe(&stripe_event("evt_1", "note.made", ""), 0);
    // The other handler's event came later and has run, so the first event could have run too.
    receiver.stripe(&stripe_event("evt_2", "silent.made", ""), 0);
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "succeeded") && paused(jobs));
    let table = text(&site.run(&["jobs", "--handler", "note"]).stdout);
    assert!(table.contains("handler paused"), "{table}");
    let shown = text(&site.run(&["show", "evt_1"]).stdout);
    assert!(shown.contains("note  ready: handler paused"), "{shown}");

    receiver.kill();
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_3", "silent.made", ""), 0);
    site.jobs_when(|jobs| jobs.len() == 3 && of(jobs, "evt_3")["state"] == "succeeded");
    assert!(site.lines("notes").is_empty(), "the pause was lost in a restart");

    // The resume wakes the dispatcher: there is no event and no tick.
    assert_eq!(text(&site.run(&["resume", "note"]).stdout), "handler note runs again\n");
    site.all_jobs(3, "succeeded");
    assert_eq!(site.lines("notes"), ["evt_1"]);
    let said = site.json(&["resume", "note"]);
    assert_eq!(said, json!({ "handler": "note", "paused": false, "changed": false }));

    let (code, said) = fails(&site, &["pause", "nots"]);
    assert_eq!((code, said.contains("did you mean note?")), (Some(66), true), "{said}");
    assert_eq!(fails(&site, &["resume", "nots"]).0, Some(66));
    // A handler that is not configured any more can still be resumed.
    site.run(&["pause", "silent"]);
    assert_eq!(receiver.stop(), Some(0));
    site.configure(
        "",
        "[handlers.note]\nsource = \"stripe\"\nevents = [\"note.*\"]\ncommand = [\"./note\"]",
    );
    assert_eq!(text(&site.run(&["resume", "silent"]).stdout), "handler silent runs again\n");
}

#[test]
fn a_start_logs_the_paused_handlers() {
    let site = site();
    drop(site.start());
    site.run(&["pause", "note"]);
    let mut serve = site.command(&["serve"]);
    let mut child = serve.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let warned = lines
        .by_ref()
        .map_while(Result::ok)
        .find(|line| line.contains("paused by the operator") || line.contains("\"serving\""));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        warned.is_some_and(|line| line.contains("\"note\"")),
        "the paused handler was not logged"
    );
}

#[test]
fn a_handler_added_later_gets_jobs_for_earlier_events() {
    let site = Site::new("");
    let receiver = site.start();
    for event in ["evt_1", "evt_2"] {
        receiver.stripe(&stripe_event(event, "note.made", ""), 0);
    }
    receiver.stripe(&stripe_event("evt_other", "other.made", ""), 0);
    receiver.github("d-1", "push", r#"{"ref":"refs/heads/main"}"#);
    receiver.github("d-2", "push", r#"{"ref":"refs/heads/main"}"#);
    assert_eq!(receiver.stop(), Some(0));

    site.configure("", HANDLERS);
    site.script("silent", "exit 0");
    site.script("note", r#"echo "$HOOKLATCH_EVENT_ID" >> "$SITE/notes""#);
    let _receiver = site.start();
    let made = |args: &[&str]| {
        let said = site.json(&[&["replay", "--handler", "note"], args].concat());
        ["made", "held", "present", "payload_gone"].map(|key| said[key].as_u64().unwrap())
    };
    let day = "2020-01-31";
    assert_eq!(made(&["--since", "2h", "--dry-run"]), [4, 1, 0, 0]);
    assert_eq!(made(&["--since", day, "--dry-run", "--source", "github"]), [2, 1, 0, 0]);
    assert_eq!(made(&["--since", day, "--dry-run", "--type", "note.*"]), [2, 0, 0, 0]);
    assert!(site.json(&["jobs"]).as_array().unwrap().is_empty(), "a dry run makes nothing");

    assert_eq!(made(&["--since", "2020-01-31T00:00:00Z", "--source", "stripe"]), [2, 0, 0, 0]);
    site.all_jobs(2, "succeeded");
    assert_eq!(site.lines("notes"), ["evt_1", "evt_2"]);
    let said = site.run(&["replay", "--handler", "note", "--since", "3d"]);
    assert_eq!(
        text(&said.stdout),
        "made 2 jobs of handler note\nof those 1 held: suspected replay, reused id or condition failed\n\
         left alone: 2 events with a job of this handler already\n"
    );
    let jobs = site.jobs_when(|jobs| jobs.len() == 4 && of(jobs, "d-1")["state"] == "succeeded");
    assert_eq!(of(&jobs, "d-2")["reason"], "suspected replay");
    assert_eq!(made(&["--since", "3d"]), [0, 0, 4, 0]);

    let replay = |args: &[&str]| fails(&site, &[&["replay"], args].concat());
    assert_eq!(replay(&["--handler", "nots", "--since", "2h"]).0, Some(66));
    let (code, said) = replay(&["--handler", "silent", "--since", "2h", "--source", "github"]);
    assert_eq!((code, said.contains("takes no events of source 'github'")), (Some(66), true));
    for wrong in [
        ["--since", "2h"].as_slice(),
        &["--handler", "note"],
        &["--handler", "note", "--since", "last week"],
        &["--handler", "note", "--since", "2999-01-01"],
        &["--handler", "note", "--since", "2h", "evt_1"],
        &["evt_1", "--dry-run"],
        &["evt_1", "--type", "note.made"],
        &["--job", id(&jobs[0]), "--handler", "note"],
        &[],
    ] {
        assert_eq!(replay(wrong).0, Some(2), "{wrong:?}");
    }
}
