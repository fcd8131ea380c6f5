//! Deaths around the accept of a request with several events: all of them are there or none is, and each runs once.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use data_encoding::BASE64;

use super::case::{Case, must_die};
use super::deaths::Death;
use super::deaths::Left::Known;
use super::each;
use crate::support::{Receiver, SECRET, Site, hmac, try_post};

const HANDLER: &str = r#"
[sources.lists]
provider = "line"
path = "/lists"
secrets = ["file:lists.secret"]
[handlers.once]
source = "lists"
events = ["*"]
command = ["./once"]
"#;

/// The first of each pair is after the first event of three is written, the second after the last.
const DEATHS: &[Death] = &[
    ("accept.commit.before", 1, Known),
    ("accept.commit.before", 3, Known),
    ("accept.commit.after", 1, Known),
    ("answer.before", 1, Known),
    ("answer.after", 1, Known),
];

fn delivered(receiver: &Receiver) -> bool {
    let body = br#"{"events":[{"webhookEventId":"a","type":"x"},{"webhookEventId":"b","type":"x"},{"webhookEventId":"c","type":"x"}]}"#;
    let header = format!("X-Line-Signature: {}\r\n", BASE64.encode(&hmac(SECRET, body)));
    let answer = try_post(receiver.address, "/lists", &header, body);
    answer.is_ok_and(|(status, _)| status == 200)
}

#[test]
fn a_list_is_stored_whole_or_not_at_all_and_each_event_runs_once() {
    each(DEATHS, |(point, nth, _)| {
        let site = Site::new(HANDLER);
        let secret = site.path("lists.secret");
        fs::write(&secret, SECRET).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        site.script("once", "echo $HOOKLATCH_EVENT_ID >> \"$SITE/ran\"");
        let case = Case::at(site, (point, nth));
        let first = case.start();
        let answered = delivered(&first);
        must_die(first);
        let second = case.start();
        let stored = point != "accept.commit.before";
        assert!(!answered || stored, "{point}: answered, and not on disk");
        let events = case.site.json(&["events"]).as_array().unwrap().len();
        assert_eq!(events, if stored { 3 } else { 0 }, "{point} {nth}: all or none");
        assert!(delivered(&second), "{point} {nth}: sent again");
        case.site.all_jobs(3, "succeeded");
        let mut ran = case.site.lines("ran");
        ran.sort();
        assert_eq!(ran, ["a", "b", "c"], "{point} {nth}");
        assert!(case.token.exists(), "{point} {nth}");
    });
}
