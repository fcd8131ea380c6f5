//! The kill storm: `hooklatch drill` with many kills, followed by an operator's replay of the held jobs.
//!
//! A second storm kills the runner too. `HOOKLATCH_KILLS` sets the number of kills; `HOOKLATCH_SEED`
//! repeats the random choices of a run.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Receiver, runner};
use serde_json::Value;

fn hooklatch(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hooklatch"));
    command
        .args(args)
        .stdin(Stdio::null())
        .env_remove("INVOCATION_ID")
        .env("HOOKLATCH_LOG", "info");
    command
}

fn json(args: &[&str]) -> Value {
    let output = hooklatch(args).arg("--json").output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Runs a drill in `folder`, checks that every promise held, and returns the report.
fn storm(folder: &Path, more: &[&str]) -> Value {
    let kills = std::env::var("HOOKLATCH_KILLS").unwrap_or("60".to_owned());
    let seed = std::env::var("HOOKLATCH_SEED").ok();
    let seed = seed.iter().flat_map(|seed| ["--seed", seed]);
    let args = ["drill", "--folder", folder.to_str().unwrap(), "--kills", &kills];
    let report =
        json(&args.into_iter().chain(seed).chain(more.iter().copied()).collect::<Vec<_>>());
    // Printed even if the test passes: the test harness captures the output of the print macros.
    let line = format!("HOOKLATCH_SEED={}: {report}\n", report["seed"]);
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert_eq!(report["as_promised"], true, "{report:#}");
    assert!(report["unanswered"].as_u64().unwrap() > 0, "no kill has hit a delivery: {report:#}");
    let store = rusqlite::Connection::open(folder.join("hooklatch.db")).unwrap();
    let verdict = store.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(verdict.unwrap(), "ok");
    // Reads the file with separate SQL, because the drill and the store's code could share an error.
    let counts =
        "SELECT (SELECT count(*) FROM event), (SELECT count(DISTINCT event_id) FROM event),
                         (SELECT count(*) FROM attempt WHERE outcome IS NULL)";
    let counts: rusqlite::Result<[i64; 3]> =
        store.query_row(counts, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
    let sent = report["ledger"]["sent"].as_i64().unwrap();
    assert_eq!(counts.unwrap(), [sent, sent, 0], "events, distinct ids, running attempts");
    report
}

#[test]
fn every_event_succeeds_exactly_once_through_many_receiver_kills() {
    let folder = tempfile::tempdir().unwrap();
    let report = storm(folder.path(), &[]);
    let ledger = &report["ledger"];
    assert_eq!(ledger["unknown"], 0, "{report:#}");
    assert_eq!(ledger["started"], ledger["finished"], "{report:#}");
}

#[test]
fn after_runner_kills_each_held_job_can_be_replayed_and_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let report = storm(folder.path(), &["--runner-kills"]);
    let unknown = report["ledger"]["unknown"].as_u64().unwrap();
    assert!(unknown > 0, "no kill has hit a command: {report:#}");

    let config = folder.path().join("hooklatch.toml");
    let config = config.to_str().unwrap();
    let jobs = |state| {
        let all = ["jobs", "--config", config, "--limit", "100000", "--state", state];
        let jobs = json(&all);
        let ids =
            jobs.as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap().to_owned());
        ids.collect::<BTreeSet<String>>()
    };
    let (held, succeeded) = (jobs("held"), jobs("succeeded"));
    assert_eq!(held.len() as u64, unknown);
    let receiver = Receiver::of(hooklatch(&["serve", "--config", config])).unwrap();
    for job in &held {
        json(&["replay", "--config", config, "--job", job]);
    }
    let all = &held | &succeeded;
    let end = std::time::Instant::now() + crate::support::PATIENCE;
    while jobs("succeeded") != all {
        assert!(std::time::Instant::now() < end, "still held: {:?}", jobs("held"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(receiver.stop(), Some(0));
    runner::end_runner(&folder.path().join("hooklatch.db"));
}
