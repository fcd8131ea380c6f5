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
