//! The kill storm: SIGKILL of the receiver at random moments under load, again and again.
//!
//! `HOOKLATCH_KILLS` says how often, `HOOKLATCH_SEED` repeats a run's choices. The receiver starts
//! commands itself, so an attempt that a kill cuts off has an unknown outcome and is held.
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
use support::Site;

const LIMITS: &str = "[limits]\nlist_count = 100000";

const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./ledger"]
concurrency = 6
"#;

#[test]
fn kills_at_random_moments_lose_nothing_and_double_nothing() {
    let mut random = Random::new("kill storm");
    let kills = times("HOOKLATCH_KILLS", 20);
    let site = Site::with(LIMITS, HANDLER);
    site.script("ledger", LEDGER_SCRIPT);
    let mut providers = Providers::start(8);
    let mut receiver = site.start();
    providers.find(receiver.address);
    for _ in 0..kills {
        // None at all: killed while it still recovers.
        providers.wait_for_answers(random.below(50));
        receiver.kill();
        receiver = site.start();
        providers.find(receiver.address);
    }
    providers.finish();
    site.until_settled();
    assert_eq!(receiver.stop(), Some(0));

    let database = site.path("store.db");
    let acknowledged = providers.acknowledged();
    let stored = Stored::read(&database).unwrap();
    let ledger = Ledger::read(&site.lines("ledger.txt"));
    let (sent, refused, unanswered) = providers.counts();
    let doubled = ledger.starts_of("once").values().filter(|starts| **starts > 1).count();
    let held = stored.in_state("held");
    say(&format!(
        "kill storm: {kills} kills, {unanswered} deliveries without an answer, {refused} refused\n\
         sent {sent}, acknowledged {}, stored {}, started {}, finished {}, lost {}, doubled {doubled}, unknown {held}",
        acknowledged.len(),
        stored.events.len(),
        ledger.starts.len(),
        ledger.ends.len(),
        stored.lost(&acknowledged).len(),
    ));
    stored.must_agree(&acknowledged, &ledger, &["once"]);
    stored.must_be_settled(&ledger, "once");
    assert_eq!(stored.events.len(), sent, "stored what nobody sent");
    assert!(unanswered > 0 && held > 0, "no kill has hit anything: this shows nothing");

    // The operator looks at each held job and puts it back: it runs once more, and succeeds.
    let receiver = site.start();
    for job in site.json(&["jobs", "--state", "held", "--limit", "100000"]).as_array().unwrap() {
        site.json(&["replay", "--job", job["job"].as_str().unwrap()]);
    }
    site.all_jobs(sent, "succeeded");
    assert_eq!(receiver.stop(), Some(0));
    let ledger = Ledger::read(&site.lines("ledger.txt"));
    Stored::read(&database).unwrap().must_agree(&acknowledged, &ledger, &["once"]);
    let again: usize = ledger.starts_of("once").values().filter(|starts| **starts > 1).count();
    say(&format!("kill storm: {held} held jobs replayed, {again} of them had begun before"));
}
