//! The command line: help, tables, JSON, exit codes.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{SECRET, Site, hex, hmac, stripe_event};

const QUIET: &str = "[handlers.quiet]\nsource = [\"github\", \"stripe\"]\nevents = [\"*\"]\ncommand = [\"./quiet\"]\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_command_has_help_with_an_example() {
    let site = Site::new("");
    for command in [
        ["serve"].as_slice(),
        &["runner"],
        &["demo"],
        &["events"],
        &["show"],
        &["jobs"],
        &["replay"],
        &["resolve"],
        &["cancel"],
        &["drop"],
        &["pause"],
        &["resume"],
        &["verify"],
        &["config", "check"],
        &["init"],
        &["send"],
        &["config", "show"],
        &["status"],
        &["explain"],
        &["held"],
        &["dead"],
        &["backup"],
        &["restore"],
    ] {
        let output = site.run(&[command, &["--help"]].concat());
        let help = text(&output.stdout);
        assert!(output.status.success());
        assert!(help.contains("Example"), "{command:?} has no example:\n{help}");
        assert!(help.contains(&format!("hooklatch {}", command.join(" "))), "{help}");
    }
}

#[test]
fn listings_are_tables_for_people_and_json_for_programs() {
    let site = Site::new(QUIET);
    site.script("quiet", "echo \"for $HOOKLATCH_EVENT_TYPE\"; printf 'a\\033[31mb\\n' >&2");
    let receiver = site.start();
    receiver.github("d-1", "pull_request", r#"{"action":"opened"}"#);
    receiver.stripe(&stripe_event("evt_1", "invoice.paid", ""), 0);
    receiver.stripe(&stripe_event("evt_1", "invoice.paid", ""), 0);
    site.all_jobs(2, "succeeded");

    let events = site.json(&["events", "--source", "stripe"]);
    assert_eq!(events.as_array().unwrap().len(), 1);
    assert_eq!(events[0]["event_id"], "evt_1");
    assert_eq!(events[0]["duplicates"], 1);
    let table = text(&site.run(&["events"]).stdout);
    for wanted in ["pull_request.opened", "invoice.paid", "evt_1", "1 duplicate", "succeeded"] {
        assert!(table.contains(wanted), "{table}");
    }
    let jobs = text(&site.run(&["jobs", "--handler", "quiet"]).stdout);
    assert_eq!(jobs.lines().count(), 3, "{jobs}");

    let shown = text(&site.run(&["show", "d-1"]).stdout);
    for wanted in ["attempt 1", "out | for pull_request.opened", r"err | a\u{1b}[31mb"] {
        assert!(shown.contains(wanted), "{shown}");
    }
    let body = site.run(&["show", "d-1", "--body"]).stdout;
    assert_eq!(body, br#"{"action":"opened"}"#);
}

#[test]
fn errors_have_documented_exit_codes_and_name_the_fix() {
    let site = Site::new(QUIET);
    site.script("quiet", "exit 0");
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "invoice.paid", ""), 0);
    let job = site.all_jobs(1, "succeeded").remove(0);
    let job = job["job"].as_str().unwrap();

    let unknown = site.run(&["show", "evt_2"]);
    assert_eq!(unknown.status.code(), Some(66));
    assert!(text(&unknown.stderr).contains("evt_2"));
    // No job of this event failed, so the operator must name the job.
    let replay = site.run(&["replay", "evt_1"]);
    assert_eq!(replay.status.code(), Some(65), "{}", text(&replay.stderr));
    assert!(text(&replay.stderr).contains("--job"), "{}", text(&replay.stderr));
    assert!(site.run(&["replay", "--job", job]).status.success());
    site.jobs_when(|jobs| jobs[0]["state"] == "succeeded" && jobs[0]["attempt"] == 2);
    assert_eq!(site.run(&["jobs", "--state", "sleeping"]).status.code(), Some(2));
}

fn verify(args: &[&str], body: &[u8]) -> (i32, serde_json::Value, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hooklatch"))
        .arg("verify")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let output = child.wait_with_output().unwrap();
    let verdict = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code().unwrap(), verdict, text(&output.stderr))
}

#[test]
fn verify_checks_a_captured_request_and_prints_a_hint() {
    let body = stripe_event("evt_1", "invoice.paid", "");
    let signature = hex(&hmac(SECRET, format!("1767225600.{body}").as_bytes()));
    let header = format!("Stripe-Signature: t=1767225600,v1={signature}");
    let secret = format!("literal:{SECRET}");
    let at = |seconds: &'static str| {
        ["--provider", "stripe", "--secret", &secret, "--at", seconds, "--header", &header]
            .map(str::to_owned)
    };
    let run = |args: [String; 8], body: &[u8]| verify(&args.each_ref().map(String::as_str), body);

    let (code, verdict, _) = run(at("1767225600"), body.as_bytes());
    assert_eq!(code, 0);
    let wanted =
        serde_json::json!({"verdict":"accept","event_id":"evt_1","event_type":"invoice.paid"});
    assert_eq!(verdict, wanted);

    let (code, verdict, said) = run(at("1767226012"), body.as_bytes());
    assert_eq!((code, verdict["verdict"].as_str()), (1, Some("reject")));
    assert!(said.contains("412 s"), "{said}");

    let (code, verdict, said) = run(at("1767225600"), body.replace(',', ", ").as_bytes());
    assert_eq!((code, verdict["verdict"].as_str()), (1, Some("reject")));
    assert!(said.contains("re-encoded"), "{said}");
}
