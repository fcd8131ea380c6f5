//! Prepares a store with about a dozen events, each in a different situation.

use serde_json::Value;

use crate::support::{Receiver, Site, post, stripe_event};

/// The commands that are recorded for each event.
pub(crate) const COMMANDS: &[&str] = &["show", "explain"];

/// The commands that are recorded for the whole store.
pub(crate) const WHOLE: &[&str] = &["events", "jobs", "status", "quarantine"];

/// One event for each situation, with the situation's name as its id.
pub(crate) const IDS: &[&str] = &[
    "succeeded",
    "rejected",
    "exhausted",
    "killed",
    "timed-out",
    "running",
    "paused",
    "not-wanted",
    "duplicate",
    "conflict",
    "replayed",
    "reused",
    "resolved",
];

/// The handlers, one for each type of event.
const HANDLERS: &str = r#"
[handlers.ship]
source = "stripe"
events = ["shop.*"]
command = ["./ship"]
concurrency = 8
max_attempts = 2
timeout = "1s"
grace = "100ms"

[handlers.later]
source = "stripe"
events = ["later.*"]
command = ["./ship"]

[handlers.build]
source = "github"
events = ["push"]
command = ["./ship"]
concurrency = 8
"#;

const SHIP: &str = r#"
case "$HOOKLATCH_EVENT_ID" in
    rejected) echo "no such article" >&2; exit 65 ;;
    exhausted|resolved) echo "out of stock"; exit 1 ;;
    killed) kill -9 $$ ;;
    timed-out) sleep 1000 ;;
    running) echo begun > "$SITE/begun"; exec sleep 1000 ;;
    *) echo "shipped" ;;
esac"#;

/// The prepared store, with its running receiver.
pub(crate) struct Stage {
    pub(crate) site: Site,
    _receiver: Receiver,
}

/// Creates every situation.
pub(crate) fn stage() -> Stage {
    // The second attempt begins without a delay.
    let limits = "[limits]\nbackoff_base_millis = \"100ms\"\n";
    let site = Site::with(limits, HANDLERS);
    site.script("ship", SHIP);
    let receiver = site.start();
    let state = |id: &str, wanted: &str| {
        site.jobs_when(|jobs| job(jobs, id).is_some_and(|job| job["state"] == wanted));
    };
    let shop = |id: &str| receiver.stripe(&stripe_event(id, "shop.order", ""), 0);
    for (id, wanted) in [
        ("succeeded", "succeeded"),
        ("rejected", "dead"),
        ("exhausted", "dead"),
        ("killed", "held"),
        ("timed-out", "held"),
    ] {
        shop(id);
        state(id, wanted);
    }
    site.json(&["pause", "later"]);
    receiver.stripe(&stripe_event("paused", "later.order", ""), 0);
    receiver.stripe(&stripe_event("not-wanted", "other.thing", ""), 0);
    for _ in 0..3 {
        shop("duplicate");
    }
    state("duplicate", "succeeded");
    shop("conflict");
    state("conflict", "succeeded");
    receiver.stripe(&stripe_event("conflict", "shop.order", r#","x":1"#), 0);
    receiver.github("original", "push", r#"{"n":1}"#);
    state("original", "succeeded");
    receiver.github("replayed", "push", r#"{"n":1}"#);
    receiver.github("reused", "push", r#"{"n":2}"#);
    state("reused", "succeeded");
    receiver.github("reused", "push", r#"{"n":3}"#);
    shop("resolved");
    state("resolved", "dead");
    receiver.github("running", "push", r#"{"n":4}"#);
    site.jobs_when(|_| !site.lines("begun").is_empty());
    let header =
        "X-GitHub-Delivery: forged\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=";
    let header = format!("{header}{}\r\n", "0".repeat(64));
    post(receiver.address, "/github", &header, b"{}");
    post(receiver.address, "/github", "", b"{}");
    Stage { site, _receiver: receiver }
}

fn job<'a>(jobs: &'a [Value], id: &str) -> Option<&'a Value> {
    jobs.iter().find(|job| job["event_id"] == id)
}

impl Stage {
    /// Commands that each event's job must refuse because of its state.
    pub(crate) fn refused(&self) -> Vec<Vec<String>> {
        let jobs = self.site.json(&["jobs", "--limit", "1000"]);
        let jobs = jobs.as_array().unwrap();
        let of = |id: &str| job(jobs, id).unwrap()["job"].as_str().unwrap().to_owned();
        let asked = |words: &[&str], id: &str| {
            let words =
                words.iter().map(|word| if *word == "JOB" { of(id) } else { (*word).to_owned() });
            words.collect()
        };
        vec![
            asked(&["resolve", "JOB", "--failed"], "succeeded"),
            asked(&["resolve", "JOB", "--succeeded"], "running"),
            asked(&["drop", "JOB"], "running"),
            asked(&["drop", "JOB"], "succeeded"),
            asked(&["cancel", "JOB"], "paused"),
            asked(&["cancel", "JOB"], "killed"),
            asked(&["replay", "--job", "JOB"], "running"),
            asked(&["replay", "--job", "JOB"], "paused"),
            asked(&["replay", "succeeded"], "succeeded"),
            asked(&["replay", "reused"], "reused"),
            asked(&["replay", "not-wanted"], "succeeded"),
            asked(&["replay", "--state", "dead"], "succeeded"),
            asked(&["drop", "--state", "held", "--reason", "nothing"], "succeeded"),
            asked(&["send", "nobody", "push"], "succeeded"),
            asked(&["send", "github", "push", "--stale"], "succeeded"),
            asked(&["init", "--source", "github"], "succeeded"),
            asked(&["explain", "nothing"], "succeeded"),
            asked(&["events", "--since", "tomorrow"], "succeeded"),
            asked(&["quarantine", "--reason", "forged"], "succeeded"),
            asked(&["quarantine", "drop"], "succeeded"),
            asked(&["quarantine", "accept"], "succeeded"),
            asked(&["quarantine", "verify"], "succeeded"),
        ]
    }
}
