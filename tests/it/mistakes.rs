//! Mistakes in the configuration: which commands still work, and which refuse.

use std::fs;

use crate::listing::is_root;
use crate::operator::{id, of, text};
use crate::support::{Site, stripe_event};

const HANDLERS: &str = r#"
[handlers.silent]
source = "stripe"
events = ["*"]
command = ["/bin/sh", "-c", "kill -KILL $$"]
"#;

/// Runs every command that needs only the store. Each must work despite the mistake, and must name the
/// file with the mistake in one note.
fn all_work(site: &Site, event: &str, job: &str, file: &str) {
    let copy = site.path("copy");
    let copy = copy.to_str().unwrap();
    let commands: &[&[&str]] = &[
        &["status"],
        &["events"],
        &["show", event],
        &["explain", event],
        &["jobs"],
        &["held"],
        &["dead"],
        &["quarantine"],
        &["quarantine", "verify"],
        &["pause"],
        &["pause", "silent"],
        &["resume", "silent"],
        &["pause", "elsewhere"],
        &["resume", "elsewhere"],
        &["resolve", job, "--failed"],
        &["replay", "--state", "dead", "--dry-run"],
        &["drop", job],
        &["backup", copy],
    ];
    for args in commands {
        let output = site.run(args);
        let (code, said) = (output.status.code().unwrap(), text(&output.stderr));
        let wanted = if args[0] == "status" { 1 } else { 0 };
        assert_eq!(code, wanted, "{args:?}: {said}");
        let notes: Vec<&str> = said.lines().filter(|line| line.contains("mistake")).collect();
        assert_eq!(notes.len(), 1, "{args:?}: {said}");
        assert!(notes[0].starts_with("note: ") && notes[0].contains(file), "{args:?}: {said}");
    }
    fs::remove_file(copy).unwrap();
    for args in [&["serve"][..], &["reload"], &["send", "stripe", "x"], &["config", "show"]] {
        let output = site.run(args);
        assert_eq!(output.status.code(), Some(78), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn commands_that_need_only_the_store_work_despite_a_mistake() {
    let site = Site::new(HANDLERS);
    let receiver = site.start();
    for event in ["evt_1", "evt_2"] {
        receiver.stripe(&stripe_event(event, "paid", ""), 0);
    }
    let jobs = site.all_jobs(2, "held");
    let good = fs::read_to_string(site.config()).unwrap();

    fs::create_dir(site.path("conf.d")).unwrap();
    fs::write(site.path("conf.d/half.toml"), "[handlers.elsewhere]\nsource = \"str").unwrap();
    all_work(&site, "evt_1", id(of(&jobs, "evt_1")), "conf.d/half.toml has a mistake");
    fs::remove_file(site.path("conf.d/half.toml")).unwrap();

    site.write_config(format!("{good}\n[handlers.half\n"));
    all_work(&site, "evt_2", id(of(&jobs, "evt_2")), "hooklatch.toml has a mistake");
}

#[test]
fn commands_refuse_if_a_mistake_may_hide_the_path_of_the_store() {
    let site = Site::new(HANDLERS);
    site.start().stop();
    let good = fs::read_to_string(site.config()).unwrap();
    let path = "path = \"store.db\"";
    for bad in [
        good.replace(path, "path = 5"),
        good.replace(path, "pth = \"store.db\""),
        good.replace(path, "path = \"store.db"),
        good.replace(path, "path = \"\""),
        good.replace(path, "path = \"store.db\"\npath = \"other.db\""),
        good.replace("[storage]", "[storag]"),
        good.replace("[storage]", "[[storage]]"),
        good.replace(path, "").replace("[server]", "[server"),
    ] {
        site.write_config(&bad);
        let output = site.run(&["jobs"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{bad}: {said}");
        assert!(said.contains("the configuration has"), "{said}");
    }
}

/// A command could choose the wrong sources or handlers for new jobs by an incomplete configuration.
#[test]
fn without_a_receiver_commands_that_create_jobs_refuse_a_configuration_with_a_mistake() {
    let site = Site::new(HANDLERS);
    site.start().stop();
    fs::create_dir(site.path("conf.d")).unwrap();
    fs::write(site.path("conf.d/half.toml"), "[sources.half").unwrap();
    for args in [
        &["quarantine", "verify"][..],
        &["quarantine", "accept", "--yes"],
        &["replay", "--handler", "silent", "--since", "1h"],
    ] {
        let output = site.run(args);
        assert_eq!(output.status.code(), Some(78), "{args:?}: {}", text(&output.stderr));
    }
    assert_eq!(site.run(&["jobs"]).status.code(), Some(0));
}

#[test]
fn a_source_with_an_empty_secret_does_not_stop_other_sources() {
    let shop =
        "[sources.shop]\nprovider = \"stripe\"\npath = \"/shop\"\nsecrets = [\"file:shop\"]\n";
    let site = Site::with(shop, "");
    fs::write(site.path("shop"), "").unwrap();
    let checked = site.run(&["config", "check"]);
    let said = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{said}");
    assert!(said.contains("sources.shop.secrets: 'file:shop': the secret is empty"), "{said}");

    let receiver = site.start();
    let body = stripe_event("evt_shop", "paid", "");
    let at_shop = || {
        let header = crate::support::stripe_header(&body, 0);
        crate::support::post(receiver.address, "/shop", &header, body.as_bytes()).0
    };
    assert_eq!(at_shop(), 401);
    assert_eq!(receiver.stripe(&stripe_event("evt_1", "paid", ""), 0).0, 200);
    let status = site.run(&["status"]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status.stdout));
    assert!(text(&status.stdout).contains("source shop has no secret"));

    // After the secret is filled in and reloaded, the refused deliveries can be accepted.
    fs::write(site.path("shop"), crate::support::SECRET).unwrap();
    site.json(&["reload"]);
    site.json(&["quarantine", "accept", "--yes"]);
    assert_eq!(site.run(&["show", "evt_shop"]).status.code(), Some(0));
    assert_eq!(at_shop(), 200);
    assert!(!text(&site.run(&["status"]).stdout).contains("is empty"));

    // An unreadable secret still prevents the start.
    drop(receiver);
    fs::remove_file(site.path("shop")).unwrap();
    assert_eq!(site.run(&["serve"]).status.code(), Some(78));
}

#[test]
fn a_reload_reports_the_jobs_that_it_leaves_without_a_handler() {
    let site = Site::new(HANDLERS);
    let receiver = site.start();
    site.json(&["pause", "silent"]);
    for event in ["evt_1", "evt_2"] {
        receiver.stripe(&stripe_event(event, "paid", ""), 0);
    }
    site.all_jobs(2, "ready");
    site.configure("", "");
    let said = text(&site.run(&["reload"]).stdout);
    assert!(said.contains("2 unfinished jobs: held, handler gone"), "{said}");
    site.all_jobs(2, "held");
}

#[test]
fn handlers_that_run_as_root_are_warned_of() {
    if !is_root() {
        return;
    }
    let site = Site::new(HANDLERS);
    let said = text(&site.run(&["config", "check"]).stdout);
    assert!(said.contains("handlers run as root"), "{said}");
    assert!(text(&site.run(&["doctor"]).stdout).contains("handlers run as root"));
    let receiver = site.start();
    let warned = site.run(&["doctor"]);
    assert!(text(&warned.stdout).contains("handlers run as root"));
    drop(receiver);
    let receiver = Site::new("");
    let said = text(&receiver.run(&["config", "check"]).stdout);
    assert!(!said.contains("root"), "{said}");
}
