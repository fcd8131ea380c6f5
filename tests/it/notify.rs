//! Events of the source `hooklatch`, the warnings of `config check` about a store and about scripts, and
//! the Redeliver button.

use serde_json::Value;

use crate::support::{Site, post, stripe_event};

const ALERTED: &str = r#"
[handlers.work]
source = "stripe"
events = ["*"]
command = ["./work"]
max_attempts = 1
[handlers.alert]
source = "hooklatch"
events = ["job.dead", "source", "handler.broken"]
command = ["./alert"]
concurrency = 4
"#;

fn alerted(tables: &str) -> Site {
    let site = Site::with(tables, ALERTED);
    site.script("work", "echo 'no $(disk) \"here\"' >&2; exit 65");
    // One line per body: the receiver's JSON has no newline in it.
    site.script("alert", "body=$(cat)\necho \"$body\" >> \"$SITE/alerts\"");
    site
}

/// Waits until `count` alerts were handled, and returns their bodies.
fn alerts(site: &Site, count: usize) -> Vec<Value> {
    let done = |job: &&Value| job["handler"] == "alert" && job["state"] == "succeeded";
    site.jobs_when(|jobs| jobs.iter().filter(done).count() >= count);
    site.lines("alerts").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_dead_letter_notifies_the_alert_handler_once() {
    let site = alerted("");
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "a.b", ""), 0);
    let first = alerts(&site, 1).remove(0);
    assert_eq!((&first["type"], &first["handler"]), (&"job.dead".into(), &"work".into()));
    assert_eq!((&first["event_id"], &first["reason"]), (&"evt_1".into(), &"rejected".into()));
    assert_eq!(
        (&first["detail"], &first["exit_code"]),
        (&"exit status 65: rejected".into(), &65.into())
    );
    assert_eq!((&first["stderr"], &first["attempts"]), (&"no $(disk) \"here\"".into(), &1.into()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert_eq!(first["host"], host);
    // The command in the alert works in any folder and without the variable.
    let command = first["command"].as_str().unwrap();
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let typed = site.command(&words).env_remove("HOOKLATCH_CONFIG").current_dir("/").output();
    assert!(typed.unwrap().status.success(), "{command}");
    // Further dead letters within ten minutes are only counted, also by another receiver.
    receiver.kill();
    let receiver = site.start();
    for event in ["evt_2", "evt_3"] {
        receiver.stripe(&stripe_event(event, "a.b", ""), 0);
    }
    let jobs = site.jobs_when(|jobs| {
        jobs.iter().filter(|job| job["handler"] == "work" && job["state"] == "dead").count() == 3
    });
    assert_eq!(jobs.len(), 4, "{jobs:#?}");
    let own = site.json(&["events", "--source", "hooklatch"]);
    assert_eq!(own.as_array().unwrap().len(), 1, "{own:#}");
}

#[test]
fn five_forged_deliveries_in_a_row_notify_of_a_failing_source() {
    let site = alerted("");
    let receiver = site.start();
    let forge = || {
        let headers =
            "X-GitHub-Delivery: d\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=00\r\n";
        assert_eq!(post(receiver.address, "/github", headers, b"{}").0, 401);
    };
    for _ in 0..4 {
        forge();
    }
    assert_eq!(receiver.github("d1", "push", "{}").0, 200);
    for _ in 0..4 {
        forge();
    }
    assert!(site.json(&["events", "--source", "hooklatch"]).as_array().unwrap().is_empty());
    forge();
    let alert = alerts(&site, 1).remove(0);
    assert_eq!((&alert["type"], &alert["source"]), (&"source.failing".into(), &"github".into()));
    assert_eq!((&alert["count"], &alert["handler"]), (&5.into(), &Value::Null));
}

#[test]
fn a_handler_that_cannot_run_is_reported_after_five_probes() {
    let limits =
        "[limits]\nhandler_backoff_base_millis = \"100ms\"\nhandler_backoff_max_millis = \"1s\"\n";
    let site = alerted(limits);
    std::fs::remove_file(site.path("work")).unwrap();
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "a.b", ""), 0);
    let alert = alerts(&site, 1).remove(0);
    assert_eq!((&alert["type"], &alert["handler"]), (&"handler.broken".into(), &"work".into()));
    assert_eq!((&alert["event_id"], &alert["reason"]), (&"evt_1".into(), &"cannot run".into()));
    assert!(alert["detail"].as_str().unwrap().contains("No such file"), "{alert:#}");
    assert!(alert["attempts"].as_u64() >= Some(6), "{alert:#}");
    let command = alert["command"].as_str().unwrap();
    assert!(command.starts_with("hooklatch explain evt_1 --config "), "{command}");
    let job = site.jobs_when(|_| true).into_iter().find(|job| job["handler"] == "work").unwrap();
    assert!(job["attempt"].as_u64() >= Some(6), "{job:#}");
}

#[test]
fn a_redelivery_replays_a_dead_letter_if_configured() {
    let shop = "[sources.shop]\nprovider = \"stripe\"\npath = \"/shop\"\nsecrets = [\"file:secret\"]\non_redelivery = \"replay-dead\"\n";
    let site = Site::with(
        shop,
        "[handlers.work]\nsource = \"shop\"\nevents = [\"*\"]\ncommand = [\"./work\"]\n",
    );
    site.script("work", "test -e \"$SITE/fixed\" || exit 65");
    let receiver = site.start();
    let body = stripe_event("evt_1", "a.b", "");
    let deliver = || {
        post(receiver.address, "/shop", &crate::support::stripe_header(&body, 0), body.as_bytes())
    };
    assert_eq!(deliver().1["status"], "accepted");
    let key = site.all_jobs(1, "dead")[0]["job"].clone();
    std::fs::write(site.path("fixed"), "").unwrap();
    let (status, second) = deliver();
    assert_eq!(
        (status, &second["status"], &second["state"]),
        (200, &"duplicate".into(), &"ready".into())
    );
    assert_eq!(second["replayed"], 1);
    assert!(second["hint"].as_str().unwrap().contains("`hooklatch show evt_1`"), "{second}");
    assert_eq!(site.all_jobs(1, "succeeded")[0]["job"], key, "the same job, with the same key");
    let (_, third) = deliver();
    assert_eq!((&third["state"], &third["replayed"]), (&"succeeded".into(), &Value::Null));
}

#[test]
fn config_check_warns_of_jobs_whose_handler_is_not_configured() {
    let gate = "[handlers.work]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"./work\"]\n";
    let site = Site::new(gate);
    site.script("work", "exit 75");
    let receiver = site.start();
    for event in ["evt_1", "evt_2"] {
        receiver.stripe(&stripe_event(event, "a.b", ""), 0);
    }
    site.all_jobs(2, "waiting");
    let warned = || {
        let report = site.json(&["config", "check"]);
        let warnings = report["warnings"].as_array().unwrap().clone();
        let messages =
            warnings.iter().map(|warning| warning["message"].as_str().unwrap().to_owned());
        messages.filter(|message| message.contains("will be held")).collect::<Vec<_>>()
    };
    assert!(warned().is_empty());
    site.configure("", &gate.replace("handlers.work", "handlers.worker"));
    let orphaned =
        ["2 jobs of handler 'work', which is not configured, are not finished and will be held"];
    assert_eq!(warned(), orphaned, "while the receiver runs");
    assert_eq!(receiver.stop(), Some(0));
    assert_eq!(warned(), orphaned, "while the receiver is stopped");
}

#[test]
fn config_check_and_doctor_report_a_wrong_first_line_of_a_script() {
    let site = Site::new(
        "[handlers.crlf]\nsource = \"stripe\"\nevents = [\"a\"]\ncommand = [\"./crlf\"]\n\
         [handlers.node]\nsource = \"stripe\"\nevents = [\"b\"]\ncommand = [\"./node\"]\n",
    );
    site.script("crlf", "exit 0");
    site.script("node", "exit 0");
    assert_eq!(site.run(&["config", "check"]).status.code(), Some(0));
    std::fs::write(site.path("crlf"), "#!/bin/sh\r\nexit 0\r\n").unwrap();
    std::fs::write(site.path("node"), "#!/usr/bin/env no-such-node\n").unwrap();
    let checked = site.run(&["config", "check"]);
    let said = crate::operator::text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(78), "{said}");
    assert!(
        said.contains("saved with Windows line ends") && said.contains(r"sed -i 's/\r$//' /"),
        "{said}"
    );
    assert!(said.contains("'no-such-node' is in no folder of PATH"), "{said}");
    let seen = site.json_of_any_exit(&["doctor"]).to_string();
    assert!(
        seen.contains("saved with Windows line ends") && seen.contains("no-such-node"),
        "{seen}"
    );
}
