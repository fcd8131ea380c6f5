//! What README says works: its configuration, its script, its commands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use clap::Parser;
use hooklatch::cli::Cli;

use crate::support::{SECRET, Site};

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The code blocks of one language, in order.
fn blocks(language: &str) -> Vec<String> {
    let text = readme();
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_two_commands_stand_at_the_top() {
    let shell = blocks("sh");
    assert_eq!(shell[0], "cargo run --release -- demo\n");
    assert_eq!(shell[1], "cargo test\n");
}

#[test]
fn every_hooklatch_command_parses() {
    let commands: Vec<String> = blocks("sh")
        .iter()
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with("hooklatch "))
        .collect();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        if let Err(error) = Cli::try_parse_from(command.split_whitespace()) {
            panic!("{command}: {error}");
        }
    }
}

#[test]
fn the_first_webhook_runs_as_written() {
    let site = Site::new("");
    let config = blocks("toml").remove(0);
    let script = blocks("sh").into_iter().find(|block| block.starts_with("#!/bin/sh")).unwrap();
    fs::write(site.config(), config.replace("127.0.0.1:8080", "127.0.0.1:0")).unwrap();
    fs::write(site.path("deploy.sh"), script).unwrap();
    fs::set_permissions(site.path("deploy.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let secret = [("GITHUB_WEBHOOK_SECRET", SECRET)];
    let checked = site.command(&["config", "check"]).envs(secret).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let receiver = site.start_with(&secret);
    receiver.github("d-1", "push", r#"{"ref":"refs/heads/main"}"#);
    site.all_jobs(1, "succeeded");
    let shown = site.json(&["show", "d-1"]);
    let said = &shown[0]["jobs"][0]["attempts"][0]["record"]["stdout"]["head"]["text"];
    assert_eq!(said, "event d-1 of type push, attempt 1\n");
}
