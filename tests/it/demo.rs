//! `hooklatch demo`: what it prints, what it leaves, and how it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::drill::Place;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[test]
fn the_demo_ends_with_its_ledgers_result_and_leaves_nothing() {
    let place = Place::new();
    let output = place.command("demo", &[]).output().unwrap();
    let (told, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}{said}");
    assert!(told.contains("6 of 6 lines as promised\n"), "{told}");
    // What it offers next works when it is pasted.
    let next = told.lines().last().unwrap().trim();
    assert_eq!(next, format!("{} demo --stay", env!("CARGO_BIN_EXE_hooklatch")));
    place.must_have_no_process();
    assert!(place.left().is_empty(), "{:?}", place.left());

    let output = place.command("demo", &["--json"]).output().unwrap();
    let ledger: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ledger["as_promised"], true, "{ledger:#}");
    assert_eq!(ledger["ledger"].as_array().unwrap().len(), 6);
}

#[test]
fn a_demo_that_stays_serves_until_a_signal() {
    let place = Place::new();
    let mut child = place.command("demo", &["--stay"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let config = lines
        .find_map(|line| line.trim().strip_prefix("export HOOKLATCH_CONFIG=").map(str::to_owned));
    let last = lines.find(|line| line.starts_with("Ctrl-C ends it"));
    assert!(last.is_some(), "it does not say how it ends");
    let shown = Command::new(env!("CARGO_BIN_EXE_hooklatch"))
        .args(["show", "evt_1DemoInvoice"])
        .env("HOOKLATCH_CONFIG", config.unwrap())
        .output()
        .unwrap();
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    place.must_have_no_process();
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn a_signal_during_the_demo_ends_it_without_a_result() {
    let place = Place::new();
    let mut child =
        place.command("demo", &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its first line comes before the first delivery.
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert!(first.starts_with("Hooklatch serves on http://127.0.0.1:"), "{first}");
    interrupt(&child);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{rest}{said}");
    assert!(said.contains("ended by SIGINT before the ledger was complete"), "{said}");
    place.must_have_no_process();
    assert!(place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn a_demo_that_fails_keeps_its_folder_and_names_it() {
    let place = Place::new();
    // No Unix socket has a path as long as this.
    let long = place.folder().join("x".repeat(100));
    std::fs::create_dir(&long).unwrap();
    let output = place.command("demo", &[]).env("TMPDIR", &long).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    let kept = std::fs::read_dir(&long).unwrap().next().unwrap().unwrap().path();
    // Lines are wrapped.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&format!("the folder is kept: {}", kept.display())), "{said}");
    let log = std::fs::read_to_string(kept.join("receiver.log")).unwrap();
    assert!(log.contains("107 is the limit"), "{log}");
    place.must_have_no_process();
}
