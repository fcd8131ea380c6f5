//! Runs every example in the help texts, because operators paste them.

use std::fs;
use std::process::Output;

use serde_json::Value;

use super::commands;
use crate::providers::write_ferry;
use crate::support::caller::{answer, by, send};
use crate::support::{Receiver, SECRET, Site, stripe_event};

/// The sources and handlers that the examples name.
const EVENT: &str = "evt_1DemoPaid00000001";
const JOB: &str = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b";

/// Commands that run until a signal, for a long time, without a receiver, or on PostgreSQL: other tests run them.
const RUN_ELSEWHERE: &[&str] = &[
    "serve",
    "runner",
    "demo",
    "drill",
    "events --follow",
    "register",
    "restore",
    "keys",
    "confirm",
    "node",
    "store",
    "ui",
];

/// The answer file of `resolve --answer`.
const ANSWER: &str = "answer.txt";

/// The body file of `send --body`.
const BODY: &str = "push.json";

/// The file of `import adnanh`.
const HOOKS: &str = "/etc/webhook.conf";

const SOURCES: &str = r#"
[sources.pay]
provider = "bearer"
path = "/pay"
reply = "handler"
secrets = ["file:shop"]
"#;

const HANDLERS: &str = r#"
[handlers.charge]
source = "pay"
events = ["*"]
command = ["/bin/sh", "-c", "kill -9 $$"]
[handlers.fulfil]
source = ["stripe", "github"]
events = ["*"]
command = ["./fulfil"]
concurrency = 4
"#;

/// The handler's script: the event's type says whether its job becomes dead, held or running; the events of
/// `send` succeed.
const FULFIL: &str = r#"case "$HOOKLATCH_EVENT_ID" in sample-*) exit 0 ;; esac
case "$HOOKLATCH_EVENT_TYPE" in
    held.*) kill -9 $$ ;;
    running.*) exec sleep 1000 ;;
esac
[ "$HOOKLATCH_REPLAY" != 0 ] || exit 65"#;

/// The examples in one command's help, with lines joined after a backslash.
pub(crate) fn of(help: &str) -> Vec<String> {
    let help = help.replace("\\\n", " ");
    let lines = help.lines().map(str::trim).filter(|line| line.starts_with("hooklatch "));
    let lines = lines.filter(|line| !line.contains("[OPTIONS]"));
    lines.map(str::to_owned).collect()
}

/// Splits a line into words as a shell does, as far as the examples need it, without redirections.
pub(crate) fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (c, quote) {
            ('<' | '>' | '|' | ';', None) => break,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// A receiver with jobs in every state that an example needs.
struct Stage {
    site: Site,
    receiver: Receiver,
    sent: u32,
}

impl Stage {
    fn new() -> Self {
        let site = Site::with(SOURCES, HANDLERS);
        site.script("fulfil", FULFIL);
        fs::write(site.path("shop"), "shop-token").unwrap();
        fs::write(site.path(ANSWER), "Status: 201\n\n{}").unwrap();
        fs::write(site.path(BODY), "{}").unwrap();
        fs::write(site.path("webhook.conf"), "[]").unwrap();
        write_ferry(&site);
        let receiver = site.start();
        let stage = Stage { site, receiver, sent: 0 };
        stage.receiver.stripe(&stripe_event(EVENT, "invoice.paid", ""), 0);
        stage.job_of(EVENT, "dead");
        stage
    }

    /// Creates a job and waits until it is in this state.
    fn job(&mut self, state: &str) -> String {
        self.sent += 1;
        let id = format!("evt_{}", self.sent);
        self.receiver.stripe(&stripe_event(&id, &format!("{state}.one"), ""), 0);
        self.job_of(&id, state)
    }

    /// Creates a held job whose caller waits for its answer.
    fn asked(&self) -> String {
        let told = answer(send(self.receiver.address, &by("shop", "order-1"), "{}").unwrap());
        assert_eq!(told.unwrap().status, 502);
        self.job_of("order-1", "held")
    }

    fn job_of(&self, id: &str, state: &str) -> String {
        let this = |job: &&Value| job["event_id"] == id && job["state"] == state;
        let jobs = self.site.jobs_when(|jobs| jobs.iter().any(|job| this(&job)));
        jobs.iter().find(this).unwrap()["job"].as_str().unwrap().to_owned()
    }

    fn run(&mut self, example: &[String]) -> Output {
        let command = example[1].as_str();
        let state = match command {
            "cancel" => "running",
            "resolve" | "drop" => "held",
            _ => "dead",
        };
        let mut args: Vec<String> = example[1..].to_vec();
        let answers = args.iter().any(|word| word == ANSWER);
        for word in &mut args {
            if word == JOB {
                *word = if answers { self.asked() } else { self.job(state) };
            } else if word == ANSWER || word == BODY {
                *word = self.site.path(word).display().to_string();
            } else if word.starts_with("providers/ferry") || word == "ferry.jsonl" {
                let name = word.trim_start_matches("providers/");
                *word = self.site.path("providers").join(name).display().to_string();
            } else if word == "https://hooks.example.org/hooks/github" {
                *word = format!("http://{}/github", self.receiver.address);
            } else if word == "/etc/hooklatch/hooklatch.toml" {
                *word = self.site.config().display().to_string();
            } else if word == HOOKS || command == "import" && word == "hooklatch" {
                let name = word.rsplit('/').next().unwrap();
                *word = self.site.path(name).display().to_string();
            } else if let Some(name) = word.strip_prefix("/var/backups/") {
                *word = self.site.path(name).display().to_string();
            }
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = self.site.command(&args);
        let elsewhere = tempfile::tempdir().unwrap();
        if args[0] == "init" {
            // `init` needs an empty folder.
            command.env("HOOKLATCH_CONFIG", elsewhere.path().join("hooklatch.toml"));
        }
        command.env("GITHUB_SECRET", SECRET).output().unwrap()
    }
}

/// Runs all examples, and describes those that failed.
pub(crate) fn failures() -> Vec<String> {
    let mut stage = Stage::new();
    let mut failures = Vec::new();
    let mut ran = 0;
    for command in commands() {
        let args: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = String::from_utf8(stage.site.run(&args).stdout).unwrap();
        for example in of(&help) {
            let line = example.trim_start_matches("hooklatch ");
            if RUN_ELSEWHERE.iter().any(|known| line.starts_with(known)) {
                continue;
            }
            ran += 1;
            let output = stage.run(&words(&example));
            let code = output.status.code().unwrap();
            // `status` reports the dead letters of this site, and the signature in the example of `verify`
            // is shortened.
            let expected = match command[0].as_str() {
                "status" | "verify" => 1,
                _ => 0,
            };
            if code != expected {
                let said = String::from_utf8_lossy(&output.stderr);
                failures.push(format!("{example}: exit {code}: {said}"));
            }
        }
    }
    assert!(ran > 25, "only {ran} examples");
    failures
}
