//! A disk that fills up under load: the receiver refuses new events and loses no acknowledged one.

use super::load::{LEDGER_SCRIPT, Providers, say};
use super::power_cut;
use crate::support::account::{Ledger, Stored};
use crate::support::disk::Disk;
use crate::support::{Site, stripe_event};

/// There is no reserve, and much output is kept, so that the completion cannot be committed while the disk
/// is full. The log is short, so that the completion does not fit into the space that a restarted log
/// already has in its file either.
const LIMITS: &str = "[limits]\nlist_count = 100000\nlog_bytes = \"4 MiB\"\ndisk_floor_bytes = \"1 MiB\"\n\
                      ballast_bytes = \"0 B\"\noutput_head_bytes = \"1 MiB\"\noutput_tail_bytes = \"1 MiB\"";

const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./ledger"]
concurrency = 4
"#;

/// Prints much output, and then waits until the test lets it end.
const GATED: &str = r#"
if [ "$HOOKLATCH_EVENT_TYPE" = charge.gated ]; then
    head -c 4000000 /dev/urandom
    head -c 4000000 /dev/urandom >&2
    echo here > "$SITE/begun"
    read -r line < "$SITE/gate"
fi"#;

const GATED_EVENT: &str = "evt_gated_0";

#[test]
fn on_a_full_disk_events_are_refused_and_a_running_commands_result_is_kept() {
    let Some(disk) = Disk::new() else { return };
    let site = Site::storing(disk.store(), LIMITS, HANDLER);
    site.script("ledger", &format!("{GATED}\n{LEDGER_SCRIPT}"));
    let made = std::process::Command::new("mkfifo").arg(site.path("gate")).status().unwrap();
    assert!(made.success());
    let mut providers = Providers::start(2);
    let receiver = site.start();
    providers.find(receiver.address);
    providers.wait_for_answers(20);
    let gated = stripe_event(GATED_EVENT, "charge.gated", "");
    assert_eq!(receiver.stripe(&gated, 0).0, 200);
    site.jobs_when(|_| !site.lines("begun").is_empty());

    disk.fill();
    providers.wait_for_refusals(8);
    assert!(!receiver.is_ready(), "ready on a full disk");
    std::fs::write(site.path("gate"), "go\n").unwrap();
    receiver.log_when(|line| line["message"] == "ended" && line.to_string().contains(GATED_EVENT));
    receiver.log_when(|line| line["message"] == "failed to commit");
    let state = |state: &str| {
        let shown = site.json(&["show", GATED_EVENT]);
        shown[0]["jobs"][0]["job"]["state"] == state
    };
    assert!(state("running"), "the job's end is recorded, so the disk was not full");
    assert!(!receiver.is_ready(), "ready on a full disk");

    disk.empty();
    site.jobs_when(|_| state("succeeded"));
    providers.wait_for_answers(20);
    assert!(receiver.is_ready());
    power_cut(&disk, &site, &providers, receiver);
    let mut acknowledged = providers.acknowledged();
    acknowledged.push(GATED_EVENT.to_owned());
    let stored = Stored::read(&disk.store()).unwrap();
    say(&format!(
        "full disk, space again, power cut: refused {}, acknowledged {}, stored {}, lost {}, integrity {}",
        providers.counts().1,
        acknowledged.len(),
        stored.events.len(),
        stored.lost(&acknowledged).len(),
        stored.verdict,
    ));
    stored.must_agree(&acknowledged, &Ledger::read(&site.lines("ledger.txt")), &["once"]);
    let end = &stored.attempts[&("once".to_owned(), GATED_EVENT.to_owned(), 1)];
    assert_eq!(end.as_deref(), Some("succeeded"));

    let receiver = site.start();
    providers.find(receiver.address);
    providers.finish();
    site.until_settled();
    assert_eq!(receiver.stop(), Some(0));
    let stored = Stored::read(&disk.store()).unwrap();
    stored.must_be_settled(&Ledger::read(&site.lines("ledger.txt")), "once");
}
