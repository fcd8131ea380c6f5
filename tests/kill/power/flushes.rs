//! Flushes that really fail: the kernel drops what it could not write, marks it clean, and says so
//! once. Whatever is answered afterwards must survive a power cut all the same (rules S1 and S2).

use super::disk::Disk;
use super::load::{LEDGER_SCRIPT, Providers, say};
use super::power_cut;
use crate::support::account::{Ledger, Stored};
use crate::support::{Receiver, Site};

const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./ledger"]
concurrency = 4
"#;

/// Has the disk fail until the receiver has given up a repair, and shows that nothing is acknowledged
/// in that time.
fn fail(disk: &Disk, providers: &Providers, receiver: &Receiver) {
    disk.break_writes();
    providers.wait_for_refusals(8);
    receiver.log_when(|line| line["message"] == "failed to open the store again");
    assert!(!receiver.is_ready(), "ready on a disk that fails");
    let before = providers.acknowledged().len();
    providers.wait_for_refusals(16);
    assert_eq!(providers.acknowledged().len(), before, "acknowledged on a disk that fails");
}

/// The refused events are acknowledged, the power is cut, and nothing is lost.
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
fn after_failed_flushes_nothing_acknowledged_is_lost_to_a_power_cut() {
    let Some(disk) = Disk::new() else { return };
    let site = Site::storing(disk.store(), "[limits]\nlist_count = 100000", HANDLER);
    site.script("ledger", LEDGER_SCRIPT);
    let mut providers = Providers::start(8);

    // The receiver dies of it: the next one finds in the page cache what is not on the disk.
    let receiver = site.start();
    providers.find(receiver.address);
    providers.wait_for_answers(40);
    disk.break_writes();
    providers.wait_for_refusals(8);
    providers.pause();
    receiver.kill();
    disk.mend_writes();
    let receiver = site.start();
    providers.find(receiver.address);
    survive(&disk, &site, &providers, receiver, "killed");

    // It lives, and repairs its store once the disk works again.
    let receiver = site.start();
    providers.find(receiver.address);
    providers.wait_for_answers(40);
    fail(&disk, &providers, &receiver);
    disk.mend_writes();
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
