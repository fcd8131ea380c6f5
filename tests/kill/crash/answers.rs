//! Deaths while a caller waits for a handler's answer. The caller repeats its request and must get the
//! answer of the one run, or must learn that the outcome is unknown.

use std::thread;
use std::time::{Duration, Instant};

use super::case::{Case, must_die};
use super::deaths::{Death, Left};
use crate::support::caller::{Answered, answer, by, send};
use crate::support::{PATIENCE, Receiver, Site};

const SOURCE: &str = r#"
[sources.pay]
provider = "bearer"
path = "/pay"
reply = "handler"
secrets = ["file:shop"]
"#;

const HANDLER: &str = r#"
[handlers.charge]
source = "pay"
events = ["*"]
command = ["./charge"]
"#;

/// The handler's script. It works for a moment between its two lines in the ledger.
const SCRIPT: &str = r#"
echo start >> "$SITE/ledger.txt"
sleep 0.1
printf 'Status: 201\n\n%5000s%s' '' "$HOOKLATCH_JOB"
echo end >> "$SITE/ledger.txt""#;

fn case((point, nth, _): Death) -> Case {
    let site = Site::with(SOURCE, HANDLER);
    std::fs::write(site.path("shop"), "shop-token").unwrap();
    site.script("charge", SCRIPT);
    Case::at(site, (point, nth))
}

/// Sends the request once; `None` if no complete answer comes.
fn once(receiver: &Receiver) -> Option<Answered> {
    answer(send(receiver.address, &by("shop", "order-1"), "{}").ok()?)
}

/// Repeats the request until its answer has no `Retry-After`.
fn final_answer(receiver: &Receiver) -> Answered {
    let end = Instant::now() + PATIENCE;
    loop {
        match once(receiver) {
            Some(answered) if answered.header("retry-after").is_none() => return answered,
            answered => assert!(Instant::now() < end, "gave up waiting: {answered:?}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Checks the caller's final answer: that of the one run, or 409 for an unknown outcome.
fn must_be_one(case: &Case, first: Option<Answered>, receiver: &Receiver, left: Left) {
    let last = final_answer(receiver);
    let starts = case.site.lines("ledger.txt").iter().filter(|line| *line == "start").count();
    assert!(starts <= 1, "started {starts} times");
    let known = last.status == 201;
    match left {
        Left::Known => assert!(known, "{last:?} although the outcome could be known"),
        Left::Unknown => assert!(!known, "{last:?}: the attempt was not cut off"),
        Left::Either => {}
    }
    if known {
        assert_eq!(starts, 1);
        assert_eq!(last.body.len(), 5036, "whole");
        let first = first.filter(|first| first.status == 201);
        assert!(first.is_none_or(|first| first.body == last.body));
        assert_eq!(final_answer(receiver), last.reused());
    } else {
        assert_eq!(last.status, 409, "{last:?}");
    }
}

/// The receiver dies while the request is in progress. With `then_runner` its runner dies after it.
pub(crate) fn receiver_dies(death: Death, then_runner: bool) {
    let case = case(death);
    let first = case.start();
    let answered = once(&first);
    must_die(first);
    if then_runner {
        case.kill_runner();
    }
    let left = if then_runner { death.2 } else { Left::Known };
    must_be_one(&case, answered, &case.start(), left);
    assert!(case.token.exists(), "no process died");
}

/// The runner dies while the request is in progress.
pub(crate) fn runner_dies(death: Death) {
    let case = case(death);
    let receiver = case.start();
    let answered = once(&receiver);
    case.until(|| case.token.exists());
    must_be_one(&case, answered, &receiver, death.2);
}
