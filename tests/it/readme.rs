//! Runs what README shows: its configuration, its script and its commands.

use std::fs;
use std::path::Path;

use clap::Parser;
use hooklatch::cli::Cli;

use crate::support::{Site, install};

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn readme() -> String {
    page("README.md")
}

/// README's code blocks in one language, in order.
fn blocks(language: &str) -> Vec<String> {
    blocks_of(&readme(), language)
}

fn blocks_of(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn readme_begins_with_the_demo_and_the_test_command() {
    let shell = blocks("sh");
    assert_eq!(shell[0], "cargo run -- demo\n");
    assert_eq!(shell[1], "cargo test\n");
}

#[test]
fn every_hooklatch_command_in_readme_parses() {
    let pages = ["README.md", "docs/watching.md", "docs/backup.md", "docs/quarantine.md"];
    let commands: Vec<String> = pages
        .iter()
        .flat_map(|name| blocks_of(&page(name), "sh"))
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .map(|line| line.split(" #").next().unwrap_or_default().replace("sudo ", ""))
        .filter(|line| line.starts_with("hooklatch "))
        .collect();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in commands {
        let command = command.replace("JOB", "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b");
        if let Err(error) = Cli::try_parse_from(command.split_whitespace()) {
            panic!("{command}: {error}");
        }
    }
}

/// The arguments of the first command in README that begins with `begin`.
fn command(begin: &str) -> Vec<String> {
    let blocks = blocks("sh");
    let line = blocks.iter().flat_map(|block| block.lines()).find(|line| line.starts_with(begin));
    line.unwrap().split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn readmes_first_webhook_works_as_written() {
    let site = Site::storing("hooklatch.db".into(), "", "");
    fs::remove_file(site.config()).unwrap();
    let run = |begin: &str| {
        let output =
            site.command(&[]).args(command(begin)).current_dir(site.path(".")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "{begin}: {said}{}",
            String::from_utf8_lossy(&output.stdout)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let made = run("hooklatch init --source github");
    for file in ["hooklatch.toml", "conf.d/github.toml", "secrets/github"] {
        assert!(made.contains(file) && site.path(file).exists(), "{file}: {made}");
    }
    // Only the port differs, because the default one may be in use.
    let main = fs::read_to_string(site.config()).unwrap();
    let idle = "\n[limits]\nrunner_idle_millis = \"300ms\"\n";
    site.write_config(main.replace("127.0.0.1:8080", "127.0.0.1:0") + idle);
    let script = blocks("sh").into_iter().find(|block| block.starts_with("#!/bin/sh")).unwrap();
    let handler = blocks("toml").into_iter().find(|block| block.contains("./deploy.sh")).unwrap();
    fs::write(site.path("conf.d/deploy.toml"), handler).unwrap();
    install(script.as_bytes(), &site.path("deploy.sh"));
    run("hooklatch config check");
    let _receiver = site.start();
    for send in ["", " --duplicate", " --forge"] {
        run(&format!("hooklatch send github push{send}"));
    }
    let jobs = site.all_jobs(2, "succeeded");
    let event = jobs[0]["event_id"].as_str().unwrap();
    let shown = site.json(&["show", event]);
    let said = &shown[0]["jobs"][0]["attempts"][0]["record"]["stdout"]["head"]["text"];
    assert_eq!(said.as_str().unwrap(), format!("event {event} of type push, attempt 1\n"));
    // The listing commands and the replay, with their output.
    let blocks = blocks("sh");
    let look = blocks.iter().find(|block| block.starts_with("hooklatch events\n")).unwrap();
    for line in look.lines().filter(|line| *line != "hooklatch events --follow") {
        let line = line.replace("EVENT", event).replace("JOB", jobs[0]["job"].as_str().unwrap());
        let output = site.run(&line.split_whitespace().skip(1).collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_scripts_and_proxy_lines_in_the_documents_are_those_of_the_program() {
    let text = readme();
    assert!(!text.contains("Not yet in this version"), "answers for callers work");
    assert!(text.contains("one binary for Linux"));
    // A script that continues after a failure would count as succeeded.
    for script in blocks("sh").iter().filter(|block| block.starts_with("#!")) {
        assert!(script.contains("\nset -eu\n"), "{script}");
    }
    // The proxy configuration is the one that `init` prints.
    let site = Site::new("");
    fs::remove_file(site.config()).unwrap();
    let dir = site.path("fresh");
    fs::create_dir(&dir).unwrap();
    let told = site.json(&[
        "init",
        "--source",
        "github",
        "--dir",
        dir.to_str().unwrap(),
        "--public-url",
        "https://hooks.example.org",
    ]);
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.filter(|line| line.contains("proxy_") || line.starts_with("upstream")).collect()
    };
    let printed = lines(told["proxy"]["nginx"].as_str().unwrap());
    assert_eq!(lines(&blocks_of(&page("docs/proxy.md"), "nginx").remove(0)), printed);
}

/// The relative links in a page, without their anchors.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.map(|target| target.split('#').next().unwrap_or_default().to_owned());
    files.filter(|file| !file.is_empty() && !file.contains("://")).collect()
}

#[test]
fn readme_lists_every_document() {
    let listed = links(&readme());
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    for entry in fs::read_dir(docs).unwrap() {
        let name = format!("docs/{}", entry.unwrap().file_name().to_string_lossy());
        let is_listed = !name.ends_with(".md") || listed.contains(&name);
        assert!(is_listed, "README does not list {name}");
    }
}
