//! The command line: help, tables, JSON, exit codes.

use std::path::Path;

use crate::support::{Site, stripe_event};

const QUIET: &str = "[handlers.quiet]\nsource = [\"github\", \"stripe\"]\nevents = [\"*\"]\ncommand = [\"./quiet\"]\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Every command that a user can type, as its words: `config`, `check`.
fn commands() -> Vec<Vec<String>> {
    fn add(parent: &[String], command: &clap::Command, all: &mut Vec<Vec<String>>) {
        for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
            let words = [parent, &[child.get_name().to_owned()]].concat();
            if !child.is_subcommand_required_set() {
                all.push(words.clone());
            }
            add(&words, child, all);
        }
    }
    let mut all = Vec::new();
    add(&[], &hooklatch::cli::command(), &mut all);
    assert!(all.len() > 20, "{all:?}");
    all
}

#[test]
fn every_command_has_help_with_an_example() {
    let site = Site::new("");
    for command in commands() {
        let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let output = site.run(&words);
        let help = text(&output.stdout);
        assert!(output.status.success());
        assert!(help.contains("Example"), "{command:?} has no example:\n{help}");
        assert!(help.contains(&format!("hooklatch {}", command.join(" "))), "{help}");
    }
}

#[test]
fn every_command_is_on_the_first_help_page_and_in_the_documentation() {
    let page = hooklatch::cli::command().render_help().to_string();
    let listed: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_once("  "))
        .map(|(name, _)| name)
        .collect();
    let documentation = include_str!("../../docs/commands.md");
    for command in commands() {
        assert!(listed.contains(&command[0].as_str()), "--help does not list {command:?}:\n{page}");
        let command = command.join(" ");
        let is_documented = [format!("`{command}`"), format!("`{command} ")]
            .iter()
            .any(|words| documentation.contains(words));
        assert!(is_documented, "docs/commands.md does not have `{command}`");
    }
}

#[test]
fn a_printed_command_names_a_configuration_that_is_not_the_default() {
    let shown = ["/etc/hooklatch/hooklatch.toml", "a/b.toml", "it's mine.toml"]
        .map(|path| hooklatch::model::config_option(Path::new(path)));
    assert_eq!(shown, ["", " --config a/b.toml", r" --config 'it'\''s mine.toml'"]);
}

#[test]
fn listings_are_tables_for_people_and_json_for_programs() {
    let site = Site::new(QUIET);
    site.script("quiet", "echo \"for $HOOKLATCH_EVENT_TYPE\"; printf 'a\\033[31mb\\n' >&2");
    let receiver = site.start();
    receiver.github("d-1", "pull_request", r#"{"action":"opened"}"#);
    receiver.stripe(&stripe_event("evt_1", "invoice.paid", ""), 0);
    receiver.stripe(&stripe_event("evt_1", "invoice.paid", ""), 0);
    site.all_jobs(2, "succeeded");

    let events = site.json(&["events", "--source", "stripe"]);
    assert_eq!(events.as_array().unwrap().len(), 1);
    assert_eq!(events[0]["event_id"], "evt_1");
    assert_eq!(events[0]["duplicates"], 1);
    let table = text(&site.run(&["events"]).stdout);
    for wanted in ["pull_request.opened", "invoice.paid", "evt_1", "1 duplicate", "succeeded"] {
        assert!(table.contains(wanted), "{table}");
    }
    let jobs = text(&site.run(&["jobs", "--handler", "quiet"]).stdout);
    assert_eq!(jobs.lines().count(), 3, "{jobs}");

    let shown = text(&site.run(&["show", "d-1"]).stdout);
    for wanted in ["attempt 1", "out | for pull_request.opened", r"err | a\u{1b}[31mb"] {
        assert!(shown.contains(wanted), "{shown}");
    }
    let body = site.run(&["show", "d-1", "--body"]).stdout;
    assert_eq!(body, br#"{"action":"opened"}"#);
}

#[test]
fn errors_have_documented_exit_codes_and_name_the_fix() {
    let site = Site::new(QUIET);
    site.script("quiet", "exit 0");
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "invoice.paid", ""), 0);
    let job = site.all_jobs(1, "succeeded").remove(0);
    let job = job["job"].as_str().unwrap();

    let unknown = site.run(&["show", "evt_2"]);
    assert_eq!(unknown.status.code(), Some(66));
    assert!(text(&unknown.stderr).contains("evt_2"));
    // No job of this event failed, so the operator must name the job.
    let replay = site.run(&["replay", "evt_1"]);
    assert_eq!(replay.status.code(), Some(65), "{}", text(&replay.stderr));
    assert!(text(&replay.stderr).contains("--job"), "{}", text(&replay.stderr));
    assert!(site.run(&["replay", "--job", job]).status.success());
    site.jobs_when(|jobs| jobs[0]["state"] == "succeeded" && jobs[0]["attempt"] == 2);
    assert_eq!(site.run(&["jobs", "--state", "sleeping"]).status.code(), Some(2));
}
