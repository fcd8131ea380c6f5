//! The six promises of `ARCHITECTURE.md`, each by a test that would fail without it.

use std::sync::{Arc, Barrier};

use crate::support::{Site, stripe_event};

const LEDGER: &str = r#"
[handlers.ledger]
source = ["github", "stripe"]
events = ["*"]
command = ["./ledger"]
"#;

/// Appends one line per run.
const LEDGER_SCRIPT: &str =
    r#"echo "$HOOKLATCH_EVENT_ID $HOOKLATCH_JOB $HOOKLATCH_ATTEMPT" >> "$SITE/ledger.txt""#;

#[test]
fn p1_what_was_answered_2xx_is_there_after_a_kill() {
    let site = Site::new(LEDGER);
    site.script("ledger", LEDGER_SCRIPT);
    let mut answered = Vec::new();
    for round in 0..5 {
        let receiver = site.start();
        for n in 0..4 {
            let id = format!("evt_{round}_{n}");
            let (status, answer) = receiver.stripe(&stripe_event(&id, "invoice.paid", ""), 0);
            assert_eq!((status, answer["status"].as_str()), (200, Some("accepted")));
            answered.push(id);
        }
        receiver.kill();
    }
    let events = site.json(&["events", "--limit", "1000"]);
    let stored: Vec<&str> =
        events.as_array().unwrap().iter().map(|e| e["event_id"].as_str().unwrap()).collect();
    for id in &answered {
        assert!(stored.contains(&id.as_str()), "{id} was answered 2xx and is gone");
    }
    // Every event has its job: the two are one transaction.
    assert_eq!(site.json(&["jobs", "--limit", "1000"]).as_array().unwrap().len(), answered.len());
}

#[test]
fn p2_a_hundred_concurrent_copies_make_one_event_and_one_run() {
    let site = Site::new(LEDGER);
    site.script("ledger", LEDGER_SCRIPT);
    let receiver = Arc::new(site.start());
    let start = Arc::new(Barrier::new(100));
    let copies: Vec<_> = (0..100)
        .map(|_| {
            let (receiver, start) = (Arc::clone(&receiver), Arc::clone(&start));
            std::thread::spawn(move || {
                start.wait();
                receiver.stripe(&stripe_event("evt_same", "invoice.paid", ""), 0)
            })
        })
        .collect();
    let answers: Vec<_> = copies.into_iter().map(|copy| copy.join().unwrap()).collect();
    let said = |word| answers.iter().filter(|(s, a)| *s == 200 && a["status"] == word).count();
    assert_eq!((said("accepted"), said("duplicate")), (1, 99));
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ledger.txt").len(), 1);
    let events = site.json(&["events"]);
    assert_eq!(events.as_array().unwrap().len(), 1);
    assert_eq!(events[0]["duplicates"], 99);
}

/// Whether a process lives. A dead one may wait as a zombie for an init that does not collect it.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z' | 'X'))
}

#[test]
fn p3_p5_an_attempt_cut_off_by_a_kill_is_ended_and_held_as_unknown() {
    let site = Site::new(LEDGER);
    // Announces itself, then waits for ever: only a kill of the receiver's successor ends it.
    site.script("ledger", &format!("{LEDGER_SCRIPT}\necho $$ > \"$SITE/pid\"\nexec sleep 1000"));
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_cut", "invoice.paid", ""), 0);
    site.jobs_when(|jobs| {
        jobs.len() == 1 && jobs[0]["state"] == "running" && !site.lines("pid").is_empty()
    });
    let child = site.lines("pid")[0].clone();
    receiver.kill();
    assert!(lives(&child), "the child outlives the receiver");

    let receiver = site.start();
    let job = site.all_jobs(1, "held").remove(0);
    assert_eq!(job["reason"], "unknown outcome");
    assert!(!lives(&child), "the leftover was not ended");
    let shown = site.json(&["show", "evt_cut"]);
    assert_eq!(shown[0]["jobs"][0]["attempts"][0]["outcome"], "unknown");
    assert_eq!(site.lines("ledger.txt").len(), 1, "started again without leave");

    // The operator may run it again; it keeps its key, and the number goes on.
    site.script("ledger", LEDGER_SCRIPT);
    site.json(&["replay", "evt_cut"]);
    site.all_jobs(1, "succeeded");
    let job = job["job"].as_str().unwrap();
    assert_eq!(site.lines("ledger.txt"), [format!("evt_cut {job} 1"), format!("evt_cut {job} 2")]);
    drop(receiver);
}

#[test]
fn p5_rerun_runs_an_unknown_attempt_again_once_nothing_of_it_lives() {
    let site = Site::with(
        "[limits]\nbackoff_base_millis = \"100ms\"",
        &format!("{LEDGER}on_unknown = \"rerun\"\n"),
    );
    site.script(
        "ledger",
        &format!("{LEDGER_SCRIPT}\n[ \"$HOOKLATCH_ATTEMPT\" = 1 ] && exec sleep 1000\nexit 0"),
    );
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_cut", "invoice.paid", ""), 0);
    site.jobs_when(|jobs| jobs.len() == 1 && jobs[0]["state"] == "running");
    receiver.kill();
    let _receiver = site.start();
    site.all_jobs(1, "succeeded");
    let shown = site.json(&["show", "evt_cut"]);
    let outcomes: Vec<_> = shown[0]["jobs"][0]["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["outcome"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(outcomes, ["unknown", "succeeded"]);
}

#[test]
fn p4_a_graceful_stop_waits_for_a_running_command_and_records_it() {
    let site = Site::new(LEDGER);
    // Ends when the test says so, which is after the receiver was told to stop.
    site.script("ledger", &format!("{LEDGER_SCRIPT}\nread -r line < \"$SITE/gate\"\nexit 0"));
    let made = std::process::Command::new("mkfifo").arg(site.path("gate")).status().unwrap();
    assert!(made.success());
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_long", "invoice.paid", ""), 0);
    site.jobs_when(|jobs| jobs.len() == 1 && jobs[0]["state"] == "running");
    receiver.terminate();
    receiver.log_when(|line| line["message"].as_str().is_some_and(|m| m.starts_with("stopping")));
    std::fs::write(site.path("gate"), "go\n").unwrap();
    // A second signal would end the command.
    assert_eq!(receiver.end(), Some(0));
    site.all_jobs(1, "succeeded");

    let _receiver = site.start();
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ledger.txt").len(), 1, "started again though it had succeeded");
}

#[test]
fn p4_p6_a_failed_attempt_is_run_again_with_the_same_key() {
    let site = Site::with("[limits]\nbackoff_base_millis = \"100ms\"", LEDGER);
    site.script("ledger", &format!("{LEDGER_SCRIPT}\n[ \"$HOOKLATCH_ATTEMPT\" = 3 ]"));
    let receiver = site.start();
    receiver.github("72d3162e-cc78-11e3-81ab-4c9367dc0958", "push", r#"{"ref":"refs/heads/main"}"#);
    let job = site.all_jobs(1, "succeeded").remove(0);
    let key = job["job"].as_str().unwrap();
    assert!(key.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || b == b'-'));
    let wanted: Vec<_> =
        (1..=3).map(|n| format!("72d3162e-cc78-11e3-81ab-4c9367dc0958 {key} {n}")).collect();
    assert_eq!(site.lines("ledger.txt"), wanted);
}
