//! Deaths around the accept of an event whose condition cannot be decided: the event is there once or not at all, and
//! its job is held.

use super::case::{Case, delivered, must_die};
use super::deaths::Death;
use super::deaths::Left::Known;
use super::each;
use crate::support::Site;

/// Each `padding` is a text, which no number test can decide.
const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./once"]
when = { "/padding" = { above = 1 } }
"#;

const DEATHS: &[Death] = &[
    ("accept.commit.before", 1, Known),
    ("accept.commit.after", 1, Known),
    ("answer.before", 1, Known),
    ("answer.after", 1, Known),
];

#[test]
fn an_undecided_event_is_held_once_wherever_its_receiver_dies() {
    each(DEATHS, |(point, nth, _)| {
        let site = Site::new(HANDLER);
        site.script("once", "touch \"$SITE/ran\"");
        let case = Case::at(site, (point, nth));
        let first = case.start();
        let answered = delivered(&first, "evt_1_0");
        must_die(first);
        let second = case.start();
        let stored = point != "accept.commit.before";
        assert!(!answered || stored, "{point}: answered, and not on disk");
        case.site.all_jobs(usize::from(stored), "held");
        assert!(delivered(&second, "evt_1_0"), "{point}: sent again");
        let jobs = case.site.all_jobs(1, "held");
        assert_eq!(jobs[0]["reason"], "condition failed", "{point}: {jobs:?}");
        let events = case.site.json(&["events"]);
        let duplicates =
            events.as_array().unwrap().iter().map(|event| event["duplicates"].as_u64());
        assert!(duplicates.eq([Some(u64::from(stored))]), "{point}: {events}");
        assert!(case.token.exists() && !case.site.path("ran").exists(), "{point}");
    });
}
