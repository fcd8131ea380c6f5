//! A running receiver takes another configuration: real requests, real commands, the real command line.
//!
//! `load` shows that nothing is dropped; `under_way` that no attempt fails, is unknown or runs twice;
//! `changes` that each kind of change takes effect; `refused` that a bad one changes nothing; `runner` what
//! is the runner's part.

mod changes;
mod load;
mod refused;
mod runner;
mod under_way;
use std::fs;

use serde_json::Value;

use crate::support::{Receiver, SECRET, Site, hex, hmac, post, stripe_event};

/// A secret that takes the place of [`SECRET`].
const OTHER: &str = "another secret for tests only";

/// A handler whose jobs never end: nobody listens where they are forwarded to.
fn forward(name: &str, source: &str) -> String {
    format!(
        "[handlers.{name}]\nsource = \"{source}\"\nevents = [\"*\"]\nforward = \"http://127.0.0.1:9/\"\n"
    )
}

/// A handler that runs `./NAME`.
fn command(name: &str, more: &str) -> String {
    format!(
        "[handlers.{name}]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"./{name}\"]\n{more}\n"
    )
}

/// Reloads, which must succeed, and returns what was said.
fn reload(site: &Site) -> Value {
    site.json(&["reload"])
}

/// What a reload says that must fail with this exit code.
fn reload_fails(site: &Site, code: i32) -> String {
    let output = site.run(&["reload"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty());
    said
}

fn stripe(receiver: &Receiver, id: &str) -> u16 {
    receiver.stripe(&stripe_event(id, "thing.made", ""), 0).0
}

/// Delivers to `path` as GitHub does, signed with `secret`.
fn github(receiver: &Receiver, path: &str, id: &str, secret: &str) -> u16 {
    let signature = hex(&hmac(secret, b"{}"));
    let headers = format!(
        "X-GitHub-Delivery: {id}\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256={signature}\r\n"
    );
    post(receiver.address, path, &headers, b"{}").0
}

/// The handlers that an event has jobs of, by name.
fn handlers_of(jobs: &[Value], event: &str) -> Vec<String> {
    let its = jobs.iter().filter(|job| job["event_id"] == event);
    let mut names: Vec<String> = its.map(|job| job["handler"].as_str().unwrap().into()).collect();
    names.sort();
    names
}

fn jobs(site: &Site) -> Vec<Value> {
    site.json(&["jobs", "--limit", "100000"]).as_array().unwrap().clone()
}

fn write_secret(site: &Site, name: &str, text: &str) {
    let new = site.path("new secret");
    fs::write(&new, text).unwrap();
    fs::rename(new, site.path(name)).unwrap();
}
