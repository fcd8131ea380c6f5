//! Deaths around the repeats of a trigger: those that come during a run make one more run, which begins when it has ended.

use std::fs;

use super::case::{Case, must_die};
use super::deaths::Death;
use super::deaths::Left::Known;
use super::each;
use crate::support::{Receiver, Site, try_post};

/// More than one at a time, so that only the trigger keeps the second run waiting.
const HANDLER: &str = r#"
[sources.deploys]
provider = "none"
path = "/deploys"
allow_unsigned = true
[handlers.deploy]
source = "deploys"
events = ["*"]
command = ["./deploy"]
concurrency = 3
"#;

/// Each run ends when the file `go` is there.
const SCRIPT: &str = r#"
echo start >> "$SITE/ran"
until [ -e "$SITE/go" ]; do sleep 0.01; done
echo end >> "$SITE/ran""#;

/// The first two accepts are those of the trigger and of its first repeat; the first claim is that of the first run.
const DEATHS: &[Death] = &[
    ("accept.commit.before", 2, Known),
    ("accept.commit.after", 2, Known),
    ("accept.commit.after", 3, Known),
    ("answer.before", 2, Known),
    ("answer.after", 2, Known),
    ("complete.commit.before", 1, Known),
    ("complete.commit.after", 1, Known),
    ("receiver.before.Ack", 1, Known),
    ("claim.commit.before", 2, Known),
    ("claim.commit.after", 2, Known),
    ("receiver.before.Start", 2, Known),
    ("complete.commit.after", 2, Known),
];

fn asks(receiver: &Receiver) -> bool {
    try_post(receiver.address, "/deploys", "", b"deploy").is_ok_and(|(status, _)| status == 200)
}

/// Asks until it is answered. Returns the receiver that answers.
fn asked(case: &Case, mut receiver: Receiver) -> Receiver {
    while !asks(&receiver) {
        must_die(receiver);
        receiver = case.start();
    }
    receiver
}

#[test]
fn fifty_repeats_during_a_run_make_one_more_run_across_crashes() {
    each(DEATHS, |(point, nth, _)| {
        let site = Site::new(HANDLER);
        site.script("deploy", SCRIPT);
        let case = Case::at(site, (point, nth));
        let mut receiver = asked(&case, case.start());
        case.until(|| case.site.lines("ran") == ["start"]);
        for _ in 0..50 {
            receiver = asked(&case, receiver);
        }
        assert_eq!(case.site.lines("ran"), ["start"], "{point} {nth}: one at a time");
        let dies_later = !case.token.exists();
        fs::write(case.site.path("go"), "").unwrap();
        if dies_later {
            must_die(receiver);
            receiver = case.start();
        }
        case.site.all_jobs(2, "succeeded");
        assert_eq!(case.site.lines("ran"), ["start", "end", "start", "end"], "{point} {nth}");
        drop(receiver);
    });
}
