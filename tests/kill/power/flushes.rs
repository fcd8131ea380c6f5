//! Flushes that really fail: the kernel drops the data, marks the pages as clean, and reports the error
//! once. Events acknowledged after that must survive a power cut (rules S1 and S2).

use super::load::{LEDGER_SCRIPT, Providers, say};
use super::power_cut;
use crate::support::account::{Ledger, Stored};
use crate::support::disk::Disk;
use crate::support::{Receiver, Site};

const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./ledger"]
concurrency = 4
"#;

/// Makes the disk fail until one repair of the receiver has failed, and checks that no event is
/// acknowledged in that time.
fn fail(disk: &Disk, providers: &Providers, receiver: &Receiver) {
    disk.break_writes();
    providers.wait_for_refusals(8);
    receiver.log_when(|line| line["message"] == "failed to open the store again");
    assert!(!receiver.is_ready(), "ready on a disk that fails");
    let before = providers.acknowledged().len();
    providers.wait_for_refusals(16);
    assert_eq!(providers.acknowledged().len(), before, "acknowledged on a disk that fails");
}

/// Waits until the refused events are acknowledged, cuts the power, and checks that no event is lost.
fn survive(disk: &Disk, site: &Site, providers: &Providers, receiver: Receiver, how: &str) {
    providers.wait_for_answers(40);
    power_cut(disk, site, providers, receiver);
    let (acknowledged, (_, refused, _)) = (providers.acknowledged(), providers.counts());
    let stored = Stored::read(&disk.store()).unwrap();
    say(&format!(
        "failed flush, {how}, power cut: refused {refused}, acknowledged {}, stored {}, lost {}, integrity {}",
        acknowledged.len(),
        stored.events.len(),
        stored.lost(&acknowledged).len(),
        stored.verdict,
    ));
    stored.must_agree(&acknowledged, &Ledger::read(&site.lines("ledger.txt")), &["once"]);
}

#[test]
fn after_failed_flushes_a_power_cut_loses_no_acknowledged_event() {
    let Some(disk) = Disk::new() else { return };
    let site = Site::storing(disk.store(), "[limits]\nlist_count = 100000", HANDLER);
    site.script("ledger", LEDGER_SCRIPT);
    let mut providers = Providers::start(8);

    // The receiver is killed after the failed flush: the next one finds data in the page cache that is not
    // on the disk.
    let receiver = site.start();
    providers.find(receiver.address);
    providers.wait_for_answers(40);
    disk.break_writes();
    providers.wait_for_refusals(8);
    providers.pause();
    receiver.kill();
    disk.repair_writes();
    let receiver = site.start();
    providers.find(receiver.address);
    survive(&disk, &site, &providers, receiver, "killed");

    // The receiver survives, and repairs its store when the disk works again.
    let receiver = site.start();
    providers.find(receiver.address);
    providers.wait_for_answers(40);
    fail(&disk, &providers, &receiver);
    disk.repair_writes();
    receiver.log_when(|line| line["message"] == "the store is open again");
    survive(&disk, &site, &providers, receiver, "repaired");

    let receiver = site.start();
    providers.find(receiver.address);
    providers.finish();
    site.until_settled();
    assert_eq!(receiver.stop(), Some(0));
    let stored = Stored::read(&disk.store()).unwrap();
    let ledger = Ledger::read(&site.lines("ledger.txt"));
    stored.must_agree(&providers.acknowledged(), &ledger, &["once"]);
    stored.must_be_settled(&ledger, "once");
}
