//! The six promises of `README.md`. For each there is a test that fails if the promise is broken.

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use hooklatch::model::Timestamp;
use serde_json::Value;

use crate::support::{PATIENCE, Site, runner, stripe_event};

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
fn p1_an_event_answered_2xx_is_stored_after_a_kill() {
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
        assert!(stored.contains(&id.as_str()), "{id} was answered 2xx and is not stored");
    }
    // Every event has its job, because one transaction stores both.
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

/// Makes the named pipe `gate`, from which a handler reads until the test writes to it.
pub(crate) fn mkfifo(site: &Site) {
    let made = std::process::Command::new("mkfifo").arg(site.path("gate")).status().unwrap();
    assert!(made.success());
}

/// Whether a process lives. A zombie counts as dead, because the init of a container may not reap it.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z' | 'X'))
}

#[test]
fn p4_a_command_survives_a_receiver_kill_and_its_result_is_recorded() {
    let site = Site::new(LEDGER);
    // The command ends after the kill, when the test opens the gate, and prints output that the next
    // receiver must store.
    site.script(
        "ledger",
        &format!(
            "echo $$ > \"$SITE/pid\"\n{LEDGER_SCRIPT}\nread -r line < \"$SITE/gate\"\necho \"$line\""
        ),
    );
    mkfifo(&site);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_long", "invoice.paid", ""), 0);
    site.jobs_when(|_| !site.lines("ledger.txt").is_empty());
    receiver.kill();
    std::fs::write(site.path("gate"), "printed without a receiver\n").unwrap();
    let child = PathBuf::from(format!("/proc/{}", site.lines("pid")[0]));
    let deadline = Instant::now() + PATIENCE;
    while child.exists() {
        assert!(Instant::now() < deadline, "the runner has not reaped the command");
        std::thread::yield_now();
    }

    let receiver = site.start();
    site.all_jobs(1, "succeeded");
    let shown = site.json(&["show", "evt_long"]);
    let job = &shown[0]["jobs"][0];
    let attempts = job["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1);
    assert!(attempts[0]["record"].to_string().contains("printed without a receiver"));
    let time = |value: &Value| -> Timestamp { serde_json::from_value(value.clone()).unwrap() };
    // The job is settled by the receiver's clock when it hears of the end.
    let (ended, recorded) = (time(&attempts[0]["finished_at"]), time(&job["job"]["settled_at"]));
    assert!(ended < recorded, "the end was recorded as the time of the restart");
    assert_eq!(site.lines("ledger.txt").len(), 1, "started again although it had not failed");
    drop(receiver);
}

#[test]
fn p3_p5_an_attempt_cut_off_by_a_runner_kill_is_ended_and_held_as_unknown() {
    let site = Site::new(LEDGER);
    // The command writes its process id and then does not end: only the next runner ends it.
    site.script("ledger", &format!("{LEDGER_SCRIPT}\necho $$ > \"$SITE/pid\"\nexec sleep 1000"));
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_cut", "invoice.paid", ""), 0);
    site.jobs_when(|_| !site.lines("pid").is_empty());
    let child = site.lines("pid")[0].clone();
    runner::kill_runner(&site.store());

    let job = site.all_jobs(1, "held").remove(0);
    assert_eq!(job["reason"], "unknown outcome");
    assert!(!lives(&child), "the orphaned command was not ended");
    let shown = site.json(&["show", "evt_cut"]);
    assert_eq!(shown[0]["jobs"][0]["attempts"][0]["outcome"], "unknown");
    assert_eq!(site.lines("ledger.txt").len(), 1, "started again without permission");

    // The operator may replay it: the key stays, and the attempt number continues.
    site.script("ledger", LEDGER_SCRIPT);
    site.json(&["replay", "evt_cut"]);
    site.all_jobs(1, "succeeded");
    let job = job["job"].as_str().unwrap();
    assert_eq!(site.lines("ledger.txt"), [format!("evt_cut {job} 1"), format!("evt_cut {job} 2")]);
    drop(receiver);
}

#[test]
fn p5_with_rerun_an_unknown_attempt_runs_again_after_its_processes_have_ended() {
    let site = Site::with(
        "[limits]\nbackoff_base_millis = \"100ms\"",
        &format!("{LEDGER}on_unknown = \"rerun\"\n"),
    );
    // The second attempt checks whether the process of the first one still runs.
    site.script(
        "ledger",
        &format!(
            "{LEDGER_SCRIPT}\n\
             if [ \"$HOOKLATCH_ATTEMPT\" = 1 ]; then echo $$ > \"$SITE/pid\"; exec sleep 1000; fi\n\
             grep -q '^State:.*[RSD] ' \"/proc/$(cat \"$SITE/pid\")/status\" && echo both >> \"$SITE/both\"\n\
             exit 0"
        ),
    );
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_cut", "invoice.paid", ""), 0);
    site.jobs_when(|_| !site.lines("pid").is_empty());
    // Kills both, so that no process has the runner's last messages.
    receiver.kill();
    runner::kill_runner(&site.store());
    let _receiver = site.start();
    site.all_jobs(1, "succeeded");
    assert!(site.lines("both").is_empty(), "two attempts of one job ran at once");
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
fn p4_a_graceful_stop_leaves_a_running_command_to_its_runner() {
    let site = Site::new(LEDGER);
    site.script("ledger", &format!("{LEDGER_SCRIPT}\nread -r line < \"$SITE/gate\"\nexit 0"));
    mkfifo(&site);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_long", "invoice.paid", ""), 0);
    site.jobs_when(|_| !site.lines("ledger.txt").is_empty());
    // The stop does not wait for the command and does not end it.
    assert_eq!(receiver.stop(), Some(0));
    site.all_jobs(1, "running");
    std::fs::write(site.path("gate"), "go\n").unwrap();

    let _receiver = site.start();
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ledger.txt").len(), 1, "started again although it had succeeded");
}

#[test]
fn p4_p6_a_failed_attempt_is_repeated_with_the_same_key() {
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

#[test]
fn p4_a_failed_start_starts_no_command() {
    let site = Site::new(LEDGER);
    site.script("ledger", LEDGER_SCRIPT);
    // A socket of the admin API cannot be made: a misconfiguration that every restart meets again.
    std::fs::write(site.path("store.db.sock"), "in the way").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let config = hooklatch::config::load(&site.config()).unwrap();
    let environment = hooklatch::config::Environment::capture();
    let clock = hooklatch::clock::Clock::system();
    let started = runtime.block_on(hooklatch::serve::start(
        config,
        &environment,
        clock,
        hooklatch::serve::Runners::BesideStore(None),
        hooklatch::serve::Service::default(),
    ));
    assert!(matches!(started, Err(hooklatch::serve::Error::Admin(_))));
    // Nobody uses the store: a dispatcher would, and would start commands that this end cuts off.
    let lock = std::fs::File::open(site.path("store.db.lock")).unwrap();
    let (free, freed) = std::sync::mpsc::channel();
    std::thread::spawn(move || free.send(lock.lock()));
    let freed = freed.recv_timeout(std::time::Duration::from_secs(20));
    assert!(freed.is_ok(), "a dispatcher still runs");
}

#[test]
fn under_a_service_manager_a_receiver_cannot_execute_and_names_the_runner_unit() {
    let site = Site::new(LEDGER);
    site.script("ledger", LEDGER_SCRIPT);
    let receiver = site.start_with(&[("INVOCATION_ID", "0")]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", receiver.pid())).unwrap();
    assert!(
        status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n"),
        "{status}"
    );
    let (answered, _) = receiver.stripe(&stripe_event("evt_1", "invoice.paid", ""), 0);
    assert_eq!(answered, 200);
    let said = receiver.log_when(|line| line["level"] == "ERROR");
    assert!(said["message"].as_str().unwrap().contains("start hooklatch-runner.service"), "{said}");
    // Then the operator starts the runner.
    let mut runner = site.command(&["runner"]).spawn().unwrap();
    site.all_jobs(1, "succeeded");
    runner::end_runner(&site.store());
    runner.wait().unwrap();
}
