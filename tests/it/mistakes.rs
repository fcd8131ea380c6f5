//! A mistake in the configuration of a running receiver: what an operator can still do.

use std::fs;

use crate::operator::{id, of, text};
use crate::support::{Site, stripe_event};

const HANDLERS: &str = r#"
[handlers.silent]
source = "stripe"
events = ["*"]
command = ["/bin/sh", "-c", "kill -KILL $$"]
"#;

/// Runs every command that looks at the store or steers it: none fails for the configuration, and each
/// says in one note which file has the mistake.
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
fn a_mistake_takes_no_command_away_that_needs_the_store_alone() {
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

    fs::write(site.config(), format!("{good}\n[handlers.half\n")).unwrap();
    all_work(&site, "evt_2", id(of(&jobs, "evt_2")), "hooklatch.toml has a mistake");
}

#[test]
fn a_mistake_that_may_hide_the_store_ends_every_command() {
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
        fs::write(site.config(), &bad).unwrap();
        let output = site.run(&["jobs"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{bad}: {said}");
        assert!(said.contains("the configuration has"), "{said}");
    }
}

/// What a stopped store would accept, and for which handlers, is not decided with a part of the sources.
#[test]
fn a_stopped_store_accepts_nothing_by_a_configuration_with_a_mistake() {
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
fn a_source_whose_secret_is_empty_keeps_no_other_from_serving() {
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
    assert!(text(&status.stdout).contains("the secret of source shop is empty"));

    // Filled in and reloaded, it takes what it refused.
    fs::write(site.path("shop"), crate::support::SECRET).unwrap();
    site.json(&["reload"]);
    site.json(&["quarantine", "accept", "--yes"]);
    assert_eq!(site.run(&["show", "evt_shop"]).status.code(), Some(0));
    assert_eq!(at_shop(), 200);
    assert!(!text(&site.run(&["status"]).stdout).contains("is empty"));

    // A secret that cannot be read ends the start as before.
    drop(receiver);
    fs::remove_file(site.path("shop")).unwrap();
    assert_eq!(site.run(&["serve"]).status.code(), Some(78));
}

#[test]
fn a_reload_says_how_many_jobs_it_leaves_without_a_handler() {
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
fn commands_of_root_are_warned_of_where_the_store_is_roots() {
    if !rustix::process::geteuid().is_root() {
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
