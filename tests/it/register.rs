//! `register`: a secret that the provider sends itself, with the real receiver and the real command.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::operator::{fails, text};
use crate::support::{Receiver, Site, hex, hmac, post};

const SECRET: &str = "b537207f20cbfa02";

fn site() -> Site {
    let source = |name: &str| {
        format!("[sources.{name}]\nprovider = \"{name}\"\nsecrets = [\"file:{name}.secret\"]\n")
    };
    Site::with(&format!("{}{}", source("asana"), source("notion")), "")
}

/// Starts the command, and returns it with the query of the URL that it prints.
pub(crate) fn register(site: &Site, source: &str) -> (Child, String) {
    let mut command = site.command(&["register", source, "--wait", "1min"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut waiting = command.spawn().unwrap();
    let mut said = BufReader::new(waiting.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("?register=") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it prints no URL");
    }
    waiting.stderr = Some(said.into_inner());
    let at = line.find('?').unwrap();
    (waiting, line[at..].trim_end().to_owned())
}

fn asana(receiver: &Receiver, query: &str, secret: &str) -> u16 {
    let headers = format!("X-Hook-Secret: {secret}\r\n");
    post(receiver.address, &format!("/hooks/asana{query}"), &headers, b"{}").0
}

/// Waits until the command has opened the registration: the receiver logs each call that changes something.
fn until_it_waits(receiver: &Receiver) {
    receiver.log_when(|line| line.to_string().contains("/secret"));
}

/// Asks until the registration is open; until then each request gets 403.
fn once_open(mut ask: impl FnMut() -> u16) -> u16 {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match ask() {
            403 if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            status => return status,
        }
    }
}

fn event(receiver: &Receiver, secret: &str) -> u16 {
    let body = br#"{"events":[{"action":"changed","resource":{"resource_type":"task"}}]}"#;
    let signature = hex(&hmac(secret, body));
    let headers = format!("X-Hook-Signature: {signature}\r\n");
    post(receiver.address, "/hooks/asana", &headers, body).0
}

#[test]
fn a_provider_gets_its_answer_only_once_the_receiver_has_its_secret() {
    let site = site();
    let receiver = site.start();
    let file = site.path("asana.secret");
    assert_eq!(asana(&receiver, "", "early"), 403, "nobody waits");
    assert_eq!(event(&receiver, "early"), 401);
    let status = site.json_of_any_exit(&["status"]);
    assert!(status.to_string().contains("has no secret"), "{status}");

    let check = site.run(&["config", "check"]);
    assert!(text(&check.stdout).contains("hooklatch register asana"), "{}", text(&check.stdout));

    let (waiting, query) = register(&site, "asana");
    assert_eq!(once_open(|| asana(&receiver, &query, SECRET)), 200);
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(written, format!("{SECRET}\n"), "it is on disk before the answer");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(event(&receiver, SECRET), 200, "and in force");
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains(SECRET), "the provider has it already");

    assert_eq!(asana(&receiver, &query, "second"), 403);
    let (code, said) = fails(&site, &["register", "asana"]);
    assert_eq!(code, Some(65), "{said}");
}

#[test]
fn a_person_gets_the_secret_that_the_provider_wants_back() {
    let site = site();
    let receiver = site.start();
    let body = format!(r#"{{"verification_token":"{SECRET}"}}"#);
    let (waiting, query) = register(&site, "notion");
    let path = format!("/hooks/notion{query}");
    let notion = || post(receiver.address, &path, "", body.as_bytes()).0;
    assert_eq!(once_open(notion), 200);
    let output = waiting.wait_with_output().unwrap();
    assert!(text(&output.stdout).contains(SECRET), "{}", text(&output.stderr));
    assert!(!site.json(&["events"]).to_string().contains("notion"), "nothing is stored");
}

#[test]
fn who_does_not_know_the_printed_url_registers_nothing() {
    let site = site();
    let receiver = site.start();
    let (waiting, query) = register(&site, "asana");
    until_it_waits(&receiver);
    let guessed = format!("?register={}", "0".repeat(32));
    for other in ["", "?register=", &query[..query.len() - 1], &guessed] {
        for _ in 0..5 {
            assert_eq!(asana(&receiver, other, "attackers"), 403, "{other}");
        }
    }
    assert!(!site.path("asana.secret").exists());
    assert_eq!(once_open(|| asana(&receiver, &query, SECRET)), 200);
    assert!(waiting.wait_with_output().unwrap().status.success());
    assert_eq!(fs::read_to_string(site.path("asana.secret")).unwrap(), format!("{SECRET}\n"));
    assert_eq!([event(&receiver, "attackers"), event(&receiver, SECRET)], [401, 200]);
}

#[test]
fn a_killed_command_leaves_the_provider_without_an_answer_and_no_file() {
    let site = site();
    let receiver = site.start();
    let (mut waiting, query) = register(&site, "asana");
    until_it_waits(&receiver);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let status = asana(&receiver, &query, SECRET);
    assert!(matches!(status, 403 | 503), "{status}");
    assert!(!site.path("asana.secret").exists());
}

#[test]
fn only_a_source_whose_provider_sends_the_secret_can_be_registered() {
    let site = Site::new("");
    let _receiver = site.start();
    let (code, said) = fails(&site, &["register", "github"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("provider 'github' does not send its secret"), "{said}");
    let (code, said) = fails(&site, &["register", "nothing"]);
    assert_eq!(code, Some(66), "{said}");
}
