//! Deaths between the refusal of a value and its commit: the job is held for it all the same, and nothing has run.

use super::case::{Case, delivered, must_die};
use super::deaths::Death;
use super::deaths::Left::Known;
use super::each;
use crate::support::Site;

/// Each `id` is a text.
const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./once", "{ID}"]
values.ID = { from = "/id", is = "int" }
"#;

const DEATHS: &[Death] = &[
    ("runner.before.Refused", 1, Known),
    ("runner.sent.Refused", 1, Known),
    ("receiver.read.Refused", 1, Known),
    ("complete.commit.before", 1, Known),
    ("complete.commit.after", 1, Known),
];

#[test]
fn a_refused_value_is_held_wherever_receiver_or_runner_die() {
    each(DEATHS, |(point, nth, _)| {
        let site = Site::new(HANDLER);
        site.script("once", "touch \"$SITE/ran\"");
        let case = Case::at(site, (point, nth));
        let first = case.start();
        assert!(delivered(&first, "evt_1_0"));
        let _last = if point.starts_with("runner.") {
            case.runner_must_die(first, false)
        } else {
            must_die(first);
            case.start()
        };
        let jobs = case.site.all_jobs(1, "held");
        assert_eq!(jobs[0]["reason"], "value refused", "{point}: {jobs:?}");
        assert!(case.token.exists() && !case.site.path("ran").exists(), "{point}");
    });
}
