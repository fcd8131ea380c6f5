//! Which events make a job, by the condition of their handler.

use crate::support::{Receiver, Site};

const HANDLERS: &str = r#"
[handlers.deploy]
source = "github"
events = ["push"]
command = ["./note", "deploy"]
when = { "/ref" = "refs/heads/main", "/deleted" = false }

[handlers.labelled]
source = "github"
events = ["*"]
command = ["./note", "labelled"]
when = [{ "/labels/*/name" = "deploy" }, { "/size" = { above = 9007199254740992 } }]

[handlers.audit]
source = "github"
events = ["audit"]
command = ["./note", "audit"]
order_by = "/sender"
"#;

#[test]
fn the_configuration_is_shown_as_it_is_written() {
    let site = Site::new(HANDLERS);
    let handlers = &site.json(&["config", "show"])["handlers"];
    let of =
        |name: &str| handlers.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    let wanted = r#"{"/deleted":false,"/ref":"refs/heads/main"}"#;
    assert_eq!(of("deploy")["when"].to_string(), wanted);
    let audit = of("audit");
    assert_eq!((&audit["order_by"][0], &audit["on_dead"]), (&"/sender".into(), &"block".into()));
    assert!(audit.get("when").is_none() && of("deploy").get("order_by").is_none());
}

/// Delivers an event and returns the counts of its log line: jobs, unwanted and undecided.
fn delivered(receiver: &Receiver, id: &str, event_type: &str, body: &str) -> [Option<u64>; 3] {
    assert_eq!(receiver.github(id, event_type, body).0, 200);
    let line = receiver.log_when(|line| line["message"] == "delivery" && line["event"] == id);
    assert!(!line.to_string().contains("refs/heads"), "{line}");
    ["jobs", "unwanted", "undecided"].map(|name| line[name].as_u64())
}

#[test]
fn an_event_makes_jobs_for_the_handlers_whose_conditions_hold() {
    let site = Site::new(HANDLERS);
    site.script("note", r#"echo "$1 $HOOKLATCH_EVENT_ID" >> "$SITE/ran.txt""#);
    let receiver = site.start();
    let push = |branch: &str, more: &str| {
        format!(r#"{{"ref":"refs/heads/{branch}","deleted":false,"labels":[{more}]}}"#)
    };
    let one = |id, event_type, body: &str| delivered(&receiver, id, event_type, body);
    assert_eq!(one("dev", "push", &push("dev", "")), [Some(0), Some(2), None]);
    assert_eq!(one("main", "push", &push("main", "")), [Some(1), Some(1), None]);
    assert_eq!(
        one("label", "push", &push("dev", r#"{"name":"deploy"}"#)),
        [Some(1), Some(1), None]
    );
    assert_eq!(one("size", "issues", r#"{"size":9007199254740993}"#), [Some(1), None, None]);
    assert_eq!(one("same", "issues", r#"{"size":9007199254740992}"#), [Some(0), Some(1), None]);
    // Decided on another thread, because it is large.
    let padding = format!(r#"{{"name":"{}"}}"#, "x".repeat(400 << 10));
    assert_eq!(one("large", "push", &push("dev", &padding)), [Some(0), Some(2), None]);
    let ran = |count: usize| {
        site.all_jobs(count, "succeeded");
        let mut lines = site.lines("ran.txt");
        lines.sort();
        lines
    };
    assert_eq!(ran(3), ["deploy main", "labelled label", "labelled size"]);
    // A repeat decides nothing anew.
    assert_eq!(receiver.github("dev", "push", &push("dev", "")).1["status"], "duplicate");
    assert_eq!(ran(3).len(), 3);
}

#[test]
fn an_event_that_cannot_be_decided_is_counted_and_never_dropped() {
    let site = Site::new(HANDLERS);
    site.script("note", "true");
    let receiver = site.start();
    let one = |id, event_type, body: &str| delivered(&receiver, id, event_type, body);
    let twice = r#"{"ref":"refs/heads/main","ref":"refs/heads/dev","deleted":false}"#;
    assert_eq!(one("twice", "push", twice), [Some(1), Some(1), Some(1)]);
    assert_eq!(one("text", "issues", r#"{"size":"large"}"#), [Some(1), None, Some(1)]);
    assert_eq!(one("list", "audit", r#"{"sender":{}}"#), [Some(1), Some(1), Some(1)]);
    assert_eq!(one("odd", "push", "not JSON"), [Some(2), None, Some(2)]);
    site.jobs_when(|jobs| jobs.len() == 5);
}
