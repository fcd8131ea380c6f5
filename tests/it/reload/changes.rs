//! Each kind of change takes effect after a reload, and running attempts continue as they began.

use std::fs;

use serde_json::{Value, json};

use super::{
    OTHER, SECRET, command, forward, github, handlers_of, jobs, reload, stripe, write_secret,
};
use crate::support::{Site, hex, hmac, post, stripe_event};

/// Another GitHub source, at the path `/NAME`.
fn source(name: &str, more: &str) -> String {
    format!(
        "[sources.{name}]\nprovider = \"github\"\npath = \"/{name}\"\nsecrets = [\"file:secret\"]\n{more}\n"
    )
}

/// Makes a named pipe, from which a command reads until the test writes to it.
fn pipe(site: &Site, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(site.path(name)).status();
    assert!(made.unwrap().success());
}

#[test]
fn sources_are_added_changed_and_removed() {
    let site = Site::new("");
    let receiver = site.start();
    assert_eq!(github(&receiver, "/shop", "d-1", SECRET), 404);
    site.configure(&source("shop", ""), &forward("all", "shop"));
    let reloaded = reload(&site);
    assert_eq!(reloaded["sources"], json!({ "added": ["shop"], "changed": [], "gone": [] }));
    assert_eq!(reloaded["file"], site.config().to_str().unwrap());
    assert_eq!(github(&receiver, "/shop", "d-1", SECRET), 200);
    assert_eq!(handlers_of(&jobs(&site), "d-1"), ["all"]);

    // The source keeps its statistics under the new path; the old path is unknown.
    site.configure(&source("shop", "max_body = \"1 KiB\"").replace("\"/shop\"", "\"/new\""), "");
    let reloaded = reload(&site);
    assert_eq!(reloaded["sources"]["changed"], json!(["shop"]));
    assert_eq!(reloaded["handlers"]["gone"], json!(["all"]));
    assert_eq!(github(&receiver, "/shop", "d-2", SECRET), 404);
    assert_eq!(github(&receiver, "/new", "d-2", SECRET), 200);
    let large = vec![b'x'; 1025];
    let signature = hex(&hmac(SECRET, &large));
    let headers = format!(
        "X-GitHub-Delivery: d-3\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256={signature}\r\n"
    );
    assert_eq!(post(receiver.address, "/new", &headers, &large).0, 413);
    let status = site.json_of_any_exit(&["status"]);
    assert!(status.to_string().contains("\"accepted\":2"), "{status}");

    site.configure("", "");
    assert_eq!(reload(&site)["sources"]["gone"], json!(["shop"]));
    assert_eq!(github(&receiver, "/new", "d-4", SECRET), 404);
    assert_eq!(github(&receiver, "/github", "d-4", SECRET), 200);
    // `send` uses the configuration that is served now.
    assert_eq!(site.run(&["send", "shop", "push"]).status.code(), Some(66));
}

#[test]
fn a_rotated_secret_is_accepted_next_to_the_old_one_and_then_alone() {
    let site = Site::new("");
    let receiver = site.start();
    fs::write(site.path("next"), OTHER).unwrap();
    let text = fs::read_to_string(site.config()).unwrap();
    let both = text.replacen("[\"file:secret\"]", "[\"file:secret\", \"file:next\"]", 1);
    assert_eq!(github(&receiver, "/github", "d-1", OTHER), 401);
    site.write_config(both);
    let reloaded = reload(&site);
    let secret = |reference: &str, changed: bool| json!({ "reference": reference, "of": "source github", "changed": changed, "stays": null });
    let of_github = |reloaded: &Value| -> Vec<Value> {
        let all = reloaded["secrets"].as_array().unwrap().iter();
        all.filter(|secret| secret["of"] == "source github").cloned().collect()
    };
    assert_eq!(of_github(&reloaded), [secret("file:secret", false), secret("file:next", true)]);
    assert!(!reloaded.to_string().contains(OTHER) && !reloaded.to_string().contains(SECRET));
    assert_eq!(github(&receiver, "/github", "d-1", SECRET), 200);
    assert_eq!(github(&receiver, "/github", "d-2", OTHER), 200);

    // Only the file of the secret changes, not the text of the configuration.
    write_secret(&site, "secret", OTHER);
    site.write_config(text);
    assert_eq!(github(&receiver, "/github", "d-3", SECRET), 200, "not read before the reload");
    let reloaded = reload(&site);
    assert_eq!(of_github(&reloaded), [secret("file:secret", false)], "known as file:next");
    assert_eq!(github(&receiver, "/github", "d-4", SECRET), 401);
    assert_eq!(github(&receiver, "/github", "d-4", OTHER), 200);
    write_secret(&site, "secret", SECRET);
    assert_eq!(of_github(&reload(&site)), [secret("file:secret", true)]);
    assert_eq!(github(&receiver, "/github", "d-5", SECRET), 200);
}

#[test]
fn handlers_are_added_and_removed_and_jobs_of_a_removed_one_are_held() {
    let [a, b] = ["a", "b"].map(|name| forward(name, "stripe"));
    let site = Site::new(&a);
    let receiver = site.start();
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    site.configure("", &b);
    let changed = json!({ "added": ["b"], "changed": [], "gone": ["a"] });
    assert_eq!(reload(&site)["handlers"], changed);
    assert_eq!(stripe(&receiver, "evt_2"), 200);
    assert_eq!(handlers_of(&jobs(&site), "evt_2"), ["b"]);
    let gone = |job: &Value| job["state"] == "held" && job["reason"] == "handler gone";
    let held = |jobs: &[Value]| jobs.iter().any(|job| job["handler"] == "a" && gone(job));
    site.jobs_when(held);
    site.configure("", &[a, b].concat());
    assert_eq!(reload(&site)["handlers"]["added"], json!(["a"]));
    assert_eq!(stripe(&receiver, "evt_3"), 200);
    let now = jobs(&site);
    assert_eq!(handlers_of(&now, "evt_3"), ["a", "b"]);
    assert!(held(&now), "what was held stays held: {now:?}");
}

#[test]
fn slots_are_raised_and_lowered_while_commands_run() {
    let slots = |count: u8| command("worker", &format!("concurrency = {count}"));
    let site = Site::new(&slots(1));
    // Each command waits for a file of its event.
    site.script(
        "worker",
        "echo $HOOKLATCH_EVENT_ID >> $SITE/began\nread line < $SITE/$HOOKLATCH_EVENT_ID",
    );
    let receiver = site.start();
    let events = ["evt_1", "evt_2", "evt_3", "evt_4", "evt_5"];
    for event in events {
        pipe(&site, event);
        assert_eq!(stripe(&receiver, event), 200);
    }
    let running = |count: usize| {
        let runs = |job: &&Value| job["state"] == "running";
        site.jobs_when(|jobs| jobs.iter().filter(runs).count() == count)
    };
    running(1);
    site.configure("", &slots(3));
    assert_eq!(reload(&site)["handlers"]["changed"], json!(["worker"]));
    running(3);
    site.configure("", &slots(1));
    reload(&site);
    for (ended, still) in [("evt_1", 2), ("evt_2", 1), ("evt_3", 1), ("evt_4", 1), ("evt_5", 0)] {
        fs::write(site.path(ended), "go\n").unwrap();
        let done = |job: &&Value| job["event_id"] == ended && job["state"] == "succeeded";
        site.jobs_when(|jobs| jobs.iter().any(|job| done(&job)));
        running(still);
    }
    let mut began = site.lines("began");
    began.sort();
    assert_eq!(began, events, "each once");
}

#[test]
fn a_running_command_keeps_its_configuration_and_its_outcome_follows_the_new_policy() {
    let handler = |command: &str, attempts: u8| {
        command.replace("./worker", "./new") + &format!("max_attempts = {attempts}\n")
    };
    let site = Site::new(&command("worker", "max_attempts = 5"));
    site.script("worker", "echo old >> $SITE/ran\nread line < $SITE/go\nexit 1");
    site.script("new", "echo new >> $SITE/ran");
    pipe(&site, "go");
    let receiver = site.start();
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    site.jobs_when(|jobs| jobs[0]["state"] == "running");
    site.configure("", &handler(&command("worker", ""), 1));
    reload(&site);
    fs::write(site.path("go"), "go\n").unwrap();
    let job = site.all_jobs(1, "dead").remove(0);
    assert_eq!((&job["reason"], &job["attempt"]), (&json!("attempts exhausted"), &json!(1)));
    // The next job runs the new command.
    receiver.stripe(&stripe_event("evt_2", "thing.made", ""), 0);
    site.jobs_when(|jobs| jobs.iter().any(|job| job["state"] == "succeeded"));
    assert_eq!(site.lines("ran"), ["old", "new"]);
}

#[test]
fn an_adopted_attempt_is_completed_by_a_handler_that_a_reload_restored() {
    let once = command("worker", "max_attempts = 1");
    let site = Site::new(&once);
    site.script("worker", "echo $HOOKLATCH_ATTEMPT >> $SITE/ran\nread line < $SITE/go\nexit 1");
    pipe(&site, "go");
    let receiver = site.start();
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    site.jobs_when(|_| !site.lines("ran").is_empty());
    receiver.kill();
    site.configure("", "");
    let receiver = site.start();
    receiver.log_when(|line| line["message"] == "connected to the runner");
    site.configure("", &once);
    assert_eq!(reload(&site)["handlers"]["added"], json!(["worker"]));
    fs::write(site.path("go"), "go\n").unwrap();
    let job = site.all_jobs(1, "dead").remove(0);
    assert_eq!((&job["reason"], &job["attempt"]), (&json!("attempts exhausted"), &json!(1)));
    assert_eq!(site.lines("ran"), ["1"]);
    drop(receiver);
}

#[test]
fn quarantined_deliveries_are_verified_with_the_reloaded_secret() {
    let site = Site::new(&forward("before", "github"));
    write_secret(&site, "secret", OTHER);
    let receiver = site.start();
    assert_eq!(github(&receiver, "/github", "d-1", SECRET), 401);
    let judged =
        |args: &[&str]| site.json(&[&["quarantine"], args].concat())["sources"]["github"].clone();
    assert_eq!(judged(&["verify"])["bad"], json!({ "bad_signature": 1 }));
    write_secret(&site, "secret", SECRET);
    assert_eq!(judged(&["verify"])["good"], 0, "not in force yet");
    site.configure("", &forward("after", "github"));
    reload(&site);
    assert_eq!(judged(&["verify"])["good"], 1);
    assert_eq!(judged(&["accept", "--yes"])["accepted"], 1);
    assert_eq!(handlers_of(&jobs(&site), "d-1"), ["after"]);
    assert_eq!(github(&receiver, "/github", "d-1", SECRET), 200);
    assert_eq!(jobs(&site).len(), 1, "a duplicate");
}

#[test]
fn adding_the_first_command_starts_a_runner() {
    let site = Site::new("");
    site.script("first", "echo $HOOKLATCH_EVENT_ID >> $SITE/ran");
    let receiver = site.start();
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    site.configure("", &command("first", ""));
    let reloaded = reload(&site);
    assert_eq!(
        (&reloaded["handlers"]["added"], &reloaded["runners"]),
        (&json!(["first"]), &json!([{ "name": "default", "loaded": false }]))
    );
    assert_eq!(stripe(&receiver, "evt_2"), 200);
    site.all_jobs(1, "succeeded");
    assert_eq!(site.lines("ran"), ["evt_2"]);
}

#[test]
fn limits_change_and_what_needs_a_restart_is_refused() {
    let site = Site::with("", &forward("all", "stripe"));
    let receiver = site.start();
    let reloaded = reload(&site);
    for what in ["sources", "handlers"] {
        assert_eq!(reloaded[what], json!({ "added": [], "changed": [], "gone": [] }));
    }
    assert_eq!(reloaded["limits"], json!([]));
    let output = site.run(&["reload"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with(&format!("{} is in force\n", site.config().display())), "{said}");

    let limits = "[limits]\nbody_default_bytes = \"1 KiB\"\ntick_millis = \"1s\"\n";
    let body = stripe_event("evt_1", "thing.made", &format!(r#","x":"{}""#, "x".repeat(2000)));
    let signature = crate::support::stripe_header(&body, 0);
    site.configure(&format!("{limits}batch_count = 7\n"), "");
    let text = fs::read_to_string(site.config()).unwrap();
    site.write_config(text.replace("127.0.0.1:0", "127.0.0.1:9"));
    let said = super::reload_fails(&site, 78);
    for wanted in [
        "server.listen: a reload cannot change it from 127.0.0.1:0 to 127.0.0.1:9",
        "limits.batch_count: a reload cannot change it from 512 to 7",
        "restart the receiver to change it: systemctl restart hooklatch",
    ] {
        assert!(said.contains(wanted), "{wanted} is not in\n{said}");
    }
    let place = text.lines().position(|line| line == "batch_count = 7").unwrap() + 1;
    let place = format!("{}:{place}:15: limits.batch_count", site.config().display());
    assert!(said.contains(&place), "{place} is not in\n{said}");
    // Nothing of it is in force: not the limits that a reload could change, and not the handlers.
    assert_eq!(post(receiver.address, "/stripe", &signature, body.as_bytes()).0, 200);
    assert_eq!(handlers_of(&jobs(&site), "evt_1"), ["all"]);

    site.configure(limits, &forward("all", "stripe"));
    let change = |key: &str, from: &str, to: &str| json!({ "key": key, "from": from, "to": to });
    let changes = [
        change("limits.body_default_bytes", "1 MiB", "1 KiB"),
        change("limits.tick_millis", "15s", "1s"),
    ];
    assert_eq!(reload(&site)["limits"], json!(changes));
    assert_eq!(reload(&site)["limits"], json!([]));
    // In force: the body is over the limit now.
    assert_eq!(post(receiver.address, "/stripe", &signature, body.as_bytes()).0, 413);
}

#[test]
fn a_store_that_lies_elsewhere_now_is_refused_by_the_signal() {
    let site = Site::new("");
    let receiver = site.start();
    let text = fs::read_to_string(site.config()).unwrap();
    site.write_config(text.replace("store.db", "other.db"));
    let said = super::reload_fails(&site, 69);
    assert!(said.contains("keeps its storage.path until it is restarted"), "{said}");
    receiver.hang_up();
    let line = receiver.log_when(|line| line["level"] == "ERROR");
    let why = line["why"].as_str().unwrap();
    assert!(why.contains("storage.path: a reload cannot change it from"), "{line}");
    assert_eq!(stripe(&receiver, "evt_1"), 200);
    assert!(!site.path("other.db").exists());
}

#[test]
fn events_of_the_receiver_go_to_the_reloaded_handlers() {
    let site = Site::new("");
    let receiver = site.start();
    let alert = "[handlers.alert]\nsource = \"hooklatch\"\nevents = [\"source.failing\"]\nforward = \"http://127.0.0.1:9/\"\n";
    site.configure("", alert);
    reload(&site);
    for nth in 0..5 {
        assert_eq!(github(&receiver, "/github", &format!("d-{nth}"), OTHER), 401);
    }
    site.jobs_when(|jobs| jobs.len() == 1 && jobs[0]["handler"] == "alert");
}
