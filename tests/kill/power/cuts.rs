//! Power cuts under load: events answered 2xx survive, and attempts that were cut off follow their policy.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::load::{LEDGER_SCRIPT, Providers, Random, say, times};
use super::power_cut;
use crate::support::account::{Ledger, Stored};
use crate::support::disk::Disk;
use crate::support::{PATIENCE, Site};

/// A small log, so that some cuts happen during checkpoints. A job that many cuts have hit does not wait for minutes at
/// the end.
const LIMITS: &str = "[limits]\nlist_count = 100000\nlog_bytes = \"4 MiB\"\n\
    backoff_base_millis = \"100ms\"\nbackoff_max_millis = \"1s\"";

const HANDLERS: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./ledger"]
concurrency = 8

[handlers.again]
source = "stripe"
events = ["*"]
command = ["./ledger"]
concurrency = 8
on_unknown = "rerun"
max_attempts = 100
"#;

const BOTH: [&str; 2] = ["once", "again"];

#[test]
fn every_acknowledged_event_survives_every_power_cut() {
    let Some(disk) = Disk::new() else { return };
    let mut random = Random::new("power cuts");
    let site = Site::storing(disk.store(), LIMITS, HANDLERS);
    site.script("ledger", LEDGER_SCRIPT);
    let mut providers = Providers::start(8);
    let (mut cut_off, mut begun) = (0, 0);
    let mut receiver = site.start();
    for cut in 1..=times("HOOKLATCH_POWER_CUTS", 6) {
        // The load begins while the receiver still recovers from the last cut.
        providers.find(receiver.address);
        let answers = 1 + random.below(120);
        providers.wait_for_answers(answers);
        // Pauses, because a long queue of jobs would only take time at the end.
        providers.pause();
        until_more_has_begun(&site, begun);
        providers.go_on(receiver.address);
        providers.wait_for_answers(1 + random.below(20));
        let dark = power_cut(&disk, &site, &providers, receiver);

        let acknowledged = providers.acknowledged();
        let stored = Stored::read(&disk.store()).unwrap();
        let ledger = Ledger::read(&site.lines("ledger.txt"));
        let (sent, refused, unanswered) = providers.counts();
        let (running, held) = (stored.in_state("running"), stored.in_state("held"));
        say(&format!(
            "power cut {cut} after {answers} answers: sent {sent}, refused {refused}, unanswered {unanswered} \
             and {dark} in the cut, acknowledged {}, stored {}, begun {}, cut off {running}, held by earlier cuts {held}, \
             lost {}, integrity {}",
            acknowledged.len(),
            stored.events.len(),
            ledger.starts.len(),
            stored.lost(&acknowledged).len(),
            stored.verdict,
        ));
        stored.must_agree(&acknowledged, &ledger, &BOTH);
        (cut_off, begun) = (cut_off + running, ledger.starts.len());
        receiver = site.start();
    }
    assert!(cut_off > 0, "no cut has hit an attempt: the test proves nothing");
    providers.find(receiver.address);
    providers.finish();
    site.until_settled();
    assert_eq!(receiver.stop(), Some(0));
    let stored = Stored::read(&disk.store()).unwrap();
    let ledger = Ledger::read(&site.lines("ledger.txt"));
    stored.must_agree(&providers.acknowledged(), &ledger, &BOTH);
    stored.must_be_settled(&ledger, "once");
    let reruns = ledger.starts_of("again").values().filter(|starts| **starts > 1).count();
    say(&format!(
        "power cuts: {cut_off} attempts cut off, {} jobs held, {reruns} begun again by policy, doubled under hold 0",
        stored.in_state("held"),
    ));
}

/// Waits for the first command that begins after the last cut: by then the receiver has recovered the
/// attempts that were cut off.
fn until_more_has_begun(site: &Site, begun: usize) {
    let end = Instant::now() + PATIENCE;
    while Ledger::read(&site.lines("ledger.txt")).starts.len() <= begun {
        assert!(Instant::now() < end, "no command begins");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Builds a shared object that makes flushes do nothing.
fn build_flushless(object: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kill/power/flushless.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(object).arg(source).stdin(Stdio::null());
    assert!(cc.status().unwrap().success(), "cc failed");
}

/// Checks that the simulated cut works: with flushes that do nothing, a cut must lose acknowledged events.
#[test]
fn without_flushes_a_power_cut_loses_acknowledged_events() {
    let Some(disk) = Disk::new() else { return };
    let site = Site::storing(disk.store(), LIMITS, HANDLERS);
    site.script("ledger", LEDGER_SCRIPT);
    let object = site.path("flushless.so");
    build_flushless(&object);
    let providers = Providers::start(8);
    // Creates the store with working flushes, so that only the flushes below can cause a loss.
    let receiver = site.start();
    providers.find(receiver.address);
    providers.wait_for_answers(20);
    providers.pause();
    assert_eq!(receiver.stop(), Some(0));

    let receiver = site.start_with(&[("LD_PRELOAD", object.to_str().unwrap())]);
    providers.find(receiver.address);
    providers.wait_for_answers(100);
    power_cut(&disk, &site, &providers, receiver);
    let acknowledged = providers.acknowledged();
    match Stored::read(&disk.store()) {
        Ok(stored) => {
            let (lost, verdict) = (stored.lost(&acknowledged).len(), &stored.verdict);
            let all = acknowledged.len();
            say(&format!("without flushes: acknowledged {all}, lost {lost}, integrity {verdict}"));
            assert!(
                lost > 0 || verdict != "ok",
                "the cut lost nothing: it does not simulate a power cut"
            );
        }
        Err(error) => say(&format!("without flushes: the store is damaged: {error}")),
    }
}
