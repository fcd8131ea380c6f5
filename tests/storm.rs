//! The kill storm: SIGKILL of the receiver at random moments under load, again and again.
//!
//! A second storm kills the runner too. `HOOKLATCH_KILLS` says how often, `HOOKLATCH_SEED` repeats a
//! run's choices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

#[path = "support/account.rs"]
mod account;
#[path = "support/load.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod load;
#[path = "it/support.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod support;

use account::{Ledger, Stored};
use load::{LEDGER_SCRIPT, Providers, Random, say, times};
use support::{Site, runner};

const LIMITS: &str = "[limits]\nlist_count = 100000";

const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./ledger"]
concurrency = 6
"#;

/// What a storm leaves.
struct Aftermath {
    site: Site,
    acknowledged: Vec<String>,
    sent: usize,
    stored: Stored,
    ledger: Ledger,
}

/// Kills the receiver `kills` times at moments that the seed chooses, and the runner `with_runner`
/// says; then waits until every event was answered 2xx and every job is settled.
fn storm(name: &str, kills: usize, with_runner: bool) -> Aftermath {
    let mut random = Random::new(name);
    let site = Site::with(LIMITS, HANDLER);
    site.script("ledger", LEDGER_SCRIPT);
    let mut providers = Providers::start(8);
    let mut receiver = site.start();
    providers.find(receiver.address);
    let mut runner_kills = 0;
    for _ in 0..kills {
        // None at all: killed while it still recovers.
        providers.wait_for_answers(random.below(50));
        // One of the two, or both in either order.
        let choice = if with_runner { random.below(4) } else { 0 };
        if (choice == 1 || choice == 2) && runner::runner(&site.store()).is_some() {
            runner::kill_runner(&site.store());
            runner_kills += 1;
        }
        if choice != 1 {
            receiver.kill();
            if choice == 3 && runner::runner(&site.store()).is_some() {
                runner::kill_runner(&site.store());
                runner_kills += 1;
            }
            receiver = site.start();
            providers.find(receiver.address);
        }
    }
    providers.finish();
    site.until_settled();
    assert_eq!(receiver.stop(), Some(0));

    let acknowledged = providers.acknowledged();
    let stored = Stored::read(&site.store()).unwrap();
    let ledger = Ledger::read(&site.lines("ledger.txt"));
    let (sent, refused, unanswered) = providers.counts();
    let doubled = ledger.starts_of("once").values().filter(|starts| **starts > 1).count();
    say(&format!(
        "{name}: {kills} kills, {runner_kills} of the runner, {unanswered} deliveries without an answer, \
         {refused} refused\n\
         {name}: sent {sent}, acknowledged {}, stored {}, started {}, finished {}, lost {}, \
         doubled {doubled}, unknown {}",
        acknowledged.len(),
        stored.events.len(),
        ledger.starts.len(),
        ledger.ends.len(),
        stored.lost(&acknowledged).len(),
        stored.in_state("held"),
    ));
    stored.must_agree(&acknowledged, &ledger, &["once"]);
    stored.must_be_settled(&ledger, "once");
    assert_eq!(stored.events.len(), sent, "stored what nobody sent");
    assert!(unanswered > 0, "no kill has hit a delivery: this shows nothing");
    Aftermath { site, acknowledged, sent, stored, ledger }
}

#[test]
fn every_event_succeeds_exactly_once_however_often_the_receiver_is_killed() {
    let Aftermath { sent, stored, ledger, .. } =
        storm("kill storm", times("HOOKLATCH_KILLS", 60), false);
    assert_eq!(stored.in_state("succeeded"), sent, "not everything has succeeded");
    assert_eq!(ledger.ends.len(), sent, "not one line for each event");
    assert!(ledger.ends.values().all(|times| *times == 1), "an end came twice");
}

#[test]
fn with_the_runner_killed_too_nothing_is_lost_or_doubled_and_what_is_held_can_be_put_back() {
    let kills = times("HOOKLATCH_KILLS", 60);
    let Aftermath { site, acknowledged, sent, stored, .. } = storm("runner storm", kills, true);
    let held = stored.in_state("held");
    assert!(held > 0, "no kill has hit a command: this shows nothing");

    // The operator looks at each held job and puts it back: it runs once more, and succeeds.
    let receiver = site.start();
    for job in site.json(&["jobs", "--state", "held", "--limit", "100000"]).as_array().unwrap() {
        site.json(&["replay", "--job", job["job"].as_str().unwrap()]);
    }
    site.all_jobs(sent, "succeeded");
    assert_eq!(receiver.stop(), Some(0));
    let ledger = Ledger::read(&site.lines("ledger.txt"));
    Stored::read(&site.store()).unwrap().must_agree(&acknowledged, &ledger, &["once"]);
    let again: usize = ledger.starts_of("once").values().filter(|starts| **starts > 1).count();
    say(&format!("runner storm: {held} held jobs replayed, {again} of them had begun before"));
}
