//! Which events make a job, by the condition of their handler.

use serde_json::Value;

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

const TWICE: &str = r#"{"ref":"refs/heads/main","ref":"refs/heads/dev","deleted":false}"#;

fn deploy(when: &str) -> String {
    format!(
        "[handlers.deploy]\nsource = \"github\"\nevents = [\"push\"]\ncommand = [\"./note\"]\nwhen = {when}\n\
         coalesce_by = \"/branch\"\n"
    )
}

/// The job that the only event with this id has.
fn job(site: &Site, event: &str) -> Value {
    site.json(&["show", event])[0]["jobs"][0]["job"].clone()
}

#[test]
fn a_held_job_is_decided_by_the_configuration_of_its_replay() {
    let site = Site::new(&deploy(r#"{ "/ref" = "refs/heads/main" }"#));
    site.script("note", "true");
    let receiver = site.start();
    for id in ["runs", "is-dropped", "stays", "runs-regardless"] {
        let branch = format!(r#""branch":"{id}""#);
        let body = TWICE.replacen('{', &format!("{{{branch},"), 1);
        assert_eq!(receiver.github(id, "push", &body).0, 200);
    }
    let jobs = site.all_jobs(4, "held");
    assert!(jobs.iter().all(|job| job["reason"] == "condition failed"), "{jobs:#?}");
    assert!(jobs.iter().all(|job| job["detail"] == "/ref: it is there twice"), "{jobs:#?}");
    let refused = site.run(&["replay", "stays"]);
    assert_eq!(refused.status.code(), Some(65));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("still cannot be decided: /ref: it is there twice"), "{said}");
    site.json(&["replay", "runs-regardless", "--regardless"]);
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "succeeded"));

    site.configure("", &deploy(r#"{ "/branch" = "runs" }"#));
    site.json(&["reload"]);
    assert_eq!(site.json(&["replay", "runs"])["replayed"].as_array().unwrap().len(), 1);
    let dropped = site.json(&["replay", "is-dropped"]);
    assert_eq!(dropped["dropped"].as_array().unwrap().len(), 1, "{dropped}");
    let gone = job(&site, "is-dropped");
    assert_eq!((&gone["state"], &gone["reason"]), (&"dropped".into(), &"condition false".into()));
    // The group, which could be read, is kept; a bulk replay decides too.
    let many = ["replay", "--state", "held", "--yes"];
    assert_eq!(site.json(&many)["unwanted"], 1);
    site.jobs_when(|jobs| {
        jobs.iter().filter(|job| job["state"] == "succeeded").count() == 2
            && jobs.iter().filter(|job| job["state"] == "dropped").count() == 2
    });
    assert_eq!(job(&site, "runs")["group"], r#"["github","runs"]"#);
}

#[test]
fn a_bulk_replay_runs_what_cannot_be_decided_only_if_it_is_told_to() {
    let site = Site::new(&deploy(r#"{ "/ref" = "refs/heads/main" }"#));
    site.script("note", "true");
    let receiver = site.start();
    for id in ["one", "two"] {
        let body = TWICE.replacen('{', &format!(r#"{{"branch":"{id}","#), 1);
        assert_eq!(receiver.github(id, "push", &body).0, 200);
    }
    site.all_jobs(2, "held");
    let many = ["replay", "--state", "held", "--yes"];
    assert_eq!(site.json(&many)["undecided"], 2);
    let make = ["replay", "--handler", "deploy", "--since", "1h", "--regardless"];
    assert_eq!(site.run(&make).status.code(), Some(2), "it makes no job regardless");
    assert_eq!(site.json(&[&many[..], &["--regardless"]].concat())["done"], 2);
    site.all_jobs(2, "succeeded");
}

#[test]
fn a_handler_that_comes_later_gets_the_events_for_which_its_condition_holds() {
    let site = Site::new("");
    site.script("note", "true");
    let receiver = site.start();
    for (id, body) in [
        ("one", r#"{"ref":"refs/heads/main","branch":"a"}"#),
        ("two", r#"{"ref":"refs/heads/dev","branch":"a"}"#),
        ("three", TWICE),
    ] {
        assert_eq!(receiver.github(id, "push", body).0, 200);
    }
    site.configure("", &deploy(r#"{ "/ref" = "refs/heads/main" }"#));
    site.json(&["reload"]);
    for (event, why) in [("two", "its condition does not hold"), ("three", "it is there twice")] {
        let refused = site.run(&["replay", event, "--handler", "deploy"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(65) && said.contains(why), "{said}");
    }
    let made = site.json(&["replay", "--handler", "deploy", "--since", "1h"]);
    assert_eq!([&made["made"], &made["held"], &made["unwanted"]], [2, 1, 1], "{made}");
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "succeeded"));
    assert_eq!(job(&site, "one")["group"], r#"["github","a"]"#);
    let held = job(&site, "three");
    assert_eq!((&held["state"], &held["reason"]), (&"held".into(), &"condition failed".into()));
}

#[test]
fn a_handler_that_the_receiver_does_not_know_gets_held_jobs() {
    let site = Site::new("");
    site.script("note", "true");
    let receiver = site.start();
    assert_eq!(receiver.github("one", "push", r#"{"ref":"refs/heads/dev"}"#).0, 200);
    // Not reloaded: the receiver cannot decide by what it has not read.
    site.configure("", &deploy(r#"{ "/ref" = "refs/heads/main" }"#));
    let made = site.json(&["replay", "--handler", "deploy", "--since", "1h"]);
    assert_eq!([&made["made"], &made["held"]], [1, 1], "{made}");
    site.json(&["reload"]);
    assert_eq!(site.json(&["replay", "one"])["dropped"].as_array().unwrap().len(), 1);
}

#[test]
fn a_suspected_replay_that_could_not_be_decided_is_decided_too() {
    let site = Site::new(&deploy(r#"{ "/ref" = "refs/heads/main" }"#));
    site.script("note", "true");
    let receiver = site.start();
    for id in ["first", "again"] {
        assert_eq!(receiver.github(id, "push", TWICE).0, 200);
    }
    assert_eq!(job(&site, "again")["reason"], "suspected replay");
    let again = job(&site, "again")["job"].as_str().unwrap().to_owned();
    assert_eq!(site.run(&["replay", "--job", &again]).status.code(), Some(65));
    site.configure("", &deploy(r#"{ "/other" = "x" }"#));
    site.json(&["reload"]);
    let dropped = site.json(&["replay", "--job", &again]);
    assert_eq!(dropped["dropped"].as_array().unwrap().len(), 1, "{dropped}");
}

#[test]
fn a_place_that_no_event_has_is_named_with_the_nearest() {
    let site = Site::new(&deploy(r#"{ "/reff" = "refs/heads/main" }"#));
    site.script("note", "true");
    let check = || String::from_utf8(site.run(&["config", "check"]).stdout).unwrap();
    assert!(!check().contains("/reff"), "nothing is stored");
    let receiver = site.start();
    let body = r#"{"ref":"refs/heads/main","branch":"a"}"#;
    assert_eq!(receiver.github("one", "push", body).0, 200);
    let warned = check();
    let place = "handlers.deploy.when./reff: /reff is in none of the last 1 stored event";
    assert!(warned.contains(place) && warned.contains("did you mean \"/ref\"?"), "{warned}");
    assert!(!warned.contains("/branch is in none"), "{warned}");
    let explained = String::from_utf8(site.run(&["explain", "one"]).stdout).unwrap();
    for line in [
        "deploy does not want it: its condition does not hold",
        "no  /reff is \"refs/heads/main\"  it was nothing; did you mean /ref?",
    ] {
        assert!(explained.contains(line), "{explained}");
    }
}

#[test]
fn send_says_which_condition_does_not_hold() {
    let site = Site::new(&deploy(r#"{ "/ref" = "refs/heads/production" }"#));
    site.script("note", "true");
    let receiver = site.start();
    let to = receiver.address.to_string();
    let sent = site.run(&["send", "github", "push", "--to", &to]);
    assert_eq!(sent.status.code(), Some(1));
    let said = [sent.stdout, sent.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(said.contains("the condition of handler deploy does not hold"), "{said}");
    let next = said.lines().find(|line| line.contains("hooklatch try deploy --event")).unwrap();
    let typed = next.split_once("hooklatch ").unwrap().1;
    let tried = site.run(&typed.split_whitespace().collect::<Vec<_>>());
    assert_eq!(tried.status.code(), Some(1), "{typed}: {}", String::from_utf8_lossy(&tried.stderr));
}

/// A handler whose value is fetched first, and one whose value then no longer fits.
const LARGE: &str = r#"
[handlers.first]
source = "github"
events = ["push"]
command = ["./note"]
when = { "/message" = { starts_with = "m" } }

[handlers.second]
source = "github"
events = ["push"]
command = ["./note"]
when = { "/ref" = { starts_with = "r" } }
"#;

#[test]
fn a_preview_and_a_replay_decide_with_the_places_of_all_handlers_as_the_accept_does() {
    let limits = |kept: &str| format!("[limits]\ncondition_kept_bytes = \"{kept}\"\n");
    let site = Site::with(&limits("1 KiB"), LARGE);
    site.script("note", "true");
    let receiver = site.start();
    let body = format!(r#"{{"message":"{}","ref":"{}"}}"#, "m".repeat(800), "r".repeat(300));
    let file = site.path("push.json");
    std::fs::write(&file, &body).unwrap();
    assert_eq!(delivered(&receiver, "one", "push", &body), [Some(2), None, Some(1)]);
    let why = "/ref: there is too much of it";
    let jobs = site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "held"));
    let held = jobs.iter().find(|job| job["state"] == "held").unwrap();
    assert_eq!((&held["handler"], &held["detail"]), (&"second".into(), &why.into()));

    let said = |arguments: &[&str], exit: i32| {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let from_file = ["--type", "push", "--body", file.to_str().unwrap()];
    for event in [&from_file[..], &["--event", "one"]] {
        assert!(said(&[&["try", "second"], event].concat(), 65).contains(why));
        assert!(said(&[&["try", "first"], event].concat(), 0).contains("first would run"));
    }
    assert!(said(&["explain", "one"], 0).contains(&format!("cannot be decided: {why}")));
    assert!(said(&["replay", "one"], 65).contains(why));

    site.configure(&limits("2 KiB"), LARGE);
    site.json(&["reload"]);
    assert!(said(&["try", "second", "--event", "one"], 0).contains("second would run"));
    said(&["replay", "one"], 0);
    site.all_jobs(2, "succeeded");
}

#[test]
fn try_refuses_an_event_of_a_source_that_the_handler_does_not_take() {
    let site = Site::new(
        "[handlers.pay]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"./note\"]\n",
    );
    site.script("note", "true");
    let receiver = site.start();
    assert_eq!(receiver.github("one", "push", "{}").0, 200);
    for arguments in [&["--event", "one"][..], &["--source", "github", "--body", "-"]] {
        let output = site.run(&[&["try", "pay"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(66), "{arguments:?}: {said}");
        assert!(said.contains("handler pay takes no events of source 'github'"), "{said}");
    }
}
