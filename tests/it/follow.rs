//! The operator follows the output of running commands.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};

use serde_json::Value;

use crate::operator::{id, text};
use crate::promises::mkfifo;
use crate::support::{PATIENCE, Site, stripe_event};

const ONE: &str = r#"
[handlers.long]
source = "stripe"
events = ["*"]
command = ["./long"]
"#;

const TWO: &str = r#"
[handlers.long]
source = "stripe"
events = ["*"]
command = ["./long"]
[handlers.short]
source = "stripe"
events = ["*"]
command = ["./short"]
"#;

/// Prints some output, and more when the test opens the gate.
const LONG: &str = r#"
echo "first of $HOOKLATCH_HANDLER"
printf 'a\033[31mb' >&2
read -r line < "$SITE/gate"
echo "$line"
"#;

struct Follower {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Follower {
    fn start(site: &Site, args: &[&str]) -> Self {
        let mut command = site.command(&[&["show"], args, &["--follow"]].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (line, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).all(|read| line.send(read).is_ok())
        });
        Follower { child, lines }
    }

    /// Reads until a line satisfies `wanted`, and returns all lines up to it.
    fn until(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => seen.push(line),
                Err(why) => panic!("{why} before that line: {seen:#?}"),
            }
            if wanted(&seen[seen.len() - 1]) {
                return seen;
            }
        }
    }

    /// Reads to the end of the output; the command must exit with 0.
    fn rest(mut self) -> Vec<String> {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => rest.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {rest:#?}"),
            }
        }
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn running(site: &Site, jobs: usize) -> Vec<Value> {
    site.all_jobs(jobs, "running")
}

#[test]
fn output_is_shown_while_a_command_runs_and_then_its_outcome() {
    let site = Site::new(ONE);
    site.script("long", LONG);
    mkfifo(&site);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "long.one", ""), 0);
    let job = id(&running(&site, 1)[0]).to_owned();

    let mut people = Follower::start(&site, &["evt_1"]);
    let mut programs = Follower::start(&site, &["evt_1", "--job", &job, "--json"]);
    let seen = people.until(|line| line == "out | first of long");
    assert_eq!(seen[0], format!("attempt 1 of job {job} of handler long is running"));
    // An incomplete line is shown too, and is escaped for the terminal.
    people.until(|line| line == r"err | a\u{1b}[31mb");
    programs.until(|line| line.contains("first of long"));
    std::fs::write(site.path("gate"), "last words\n").unwrap();

    let rest = people.rest();
    let [words, attempt, state] = rest.as_slice() else { panic!("{rest:#?}") };
    assert_eq!(words, "out | last words");
    assert!(attempt.starts_with("attempt 1") && attempt.contains("succeeded after"), "{attempt}");
    assert_eq!(*state, format!("job {job} is succeeded"));
    let rest = programs.rest();
    let values: Vec<Value> = rest.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words = values.iter().find(|value| value["output"]["text"] == "last words\n").unwrap();
    assert_eq!(
        (words["stream"].as_str(), words["handler"].as_str()),
        (Some("stdout"), Some("long"))
    );
    let last = &values[values.len() - 1];
    assert_eq!(
        (last["outcome"].as_str(), last["state"].as_str()),
        (Some("succeeded"), Some("succeeded"))
    );
    assert_eq!((last["job"].as_str(), last["attempt"].as_u64()), (Some(&*job), Some(1)));

    let shown = text(&site.run(&["show", "evt_1"]).stdout);
    assert!(shown.contains("s of CPU time, "), "{shown}");
    // No command runs any more: the stored output is shown, with a note.
    let over = site.run(&["show", "evt_1", "--follow"]);
    assert_eq!((text(&over.stdout), over.status.code()), (shown, Some(0)));
    assert_eq!(text(&over.stderr), "note: nothing of this event is running\n");
    let over = text(&site.run(&["show", "evt_1", "--follow", "--json"]).stdout);
    let words: Vec<Value> = over.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(words[0]["output"]["text"], "first of long\nlast words\n");
    assert_eq!(words[words.len() - 1]["outcome"], "succeeded");
    let unknown = "0199d0a3-5f6c-7e21-a3b4-0c1d2e3f4a5b";
    let none = site.run(&["show", "evt_1", "--follow", "--job", unknown]);
    assert_eq!(none.status.code(), Some(66));
    assert_eq!(site.run(&["show", "evt_1", "--job", unknown]).status.code(), Some(2));
}

#[test]
fn lines_of_several_running_attempts_name_their_attempt() {
    let site = Site::new(TWO);
    site.script("long", LONG);
    site.script("short", LONG);
    mkfifo(&site);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "long.one", ""), 0);
    let job =
        id(running(&site, 2).iter().find(|job| job["handler"] == "short").unwrap()).to_owned();
    let mut follower = Follower::start(&site, &["evt_1"]);
    let seen = follower.until(|line| line == "short #1  out | first of short");
    assert!(seen.iter().any(|line| line == "long #1  out | first of long"), "{seen:#?}");

    // After one attempt has ended, the other is still followed.
    let cancelled = site.run(&["cancel", &job]);
    assert!(cancelled.status.success());
    let seen = follower.until(|line| line.contains(" is held: cancelled"));
    assert_eq!(seen[seen.len() - 1], format!("short #1  job {job} is held: cancelled"));
    std::fs::write(site.path("gate"), "last words\n").unwrap();
    let rest = follower.rest();
    assert!(rest.contains(&"long #1  out | last words".to_owned()), "{rest:#?}");
}

#[test]
fn output_that_was_not_shown_is_counted() {
    let site = Site::new(ONE);
    site.script("long", "seq 1 20000\necho > \"$SITE/said\"\nread -r line < \"$SITE/gate\"");
    mkfifo(&site);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "long.one", ""), 0);
    // The output is larger than the kept part and a pipe together, so some of it is lost before a command
    // follows it.
    site.jobs_when(|_| !site.lines("said").is_empty());
    let bytes: usize = (1..=20000).map(|number: u32| number.to_string().len() + 1).sum();

    let mut people = Follower::start(&site, &["evt_1"]);
    let programs = Follower::start(&site, &["evt_1", "--json"]);
    let seen = people.until(|line| line == "out | 20000");
    let missed = |line: &String| line.starts_with("out | … ") && line.ends_with(" bytes not shown");
    assert!(seen[1] == "out | 1" && seen.iter().any(missed), "{seen:#?}");
    std::fs::write(site.path("gate"), "\n").unwrap();
    people.rest();
    let mut accounted = 0;
    for line in programs.rest() {
        let value: Value = serde_json::from_str(&line).unwrap();
        accounted += value["output"]["text"].as_str().map_or(0, str::len);
        accounted += value["missed_bytes"].as_u64().map_or(0, |missed| missed as usize);
    }
    assert_eq!(accounted, bytes);
}

#[test]
fn without_a_receiver_the_stored_output_is_shown() {
    let site = Site::new(ONE);
    site.script("long", LONG);
    mkfifo(&site);
    let receiver = site.start();
    receiver.stripe(&stripe_event("evt_1", "long.one", ""), 0);
    running(&site, 1);
    assert_eq!(receiver.stop(), Some(0));
    let shown = site.run(&["show", "evt_1", "--follow"]);
    assert_eq!(shown.status.code(), Some(0));
    assert!(text(&shown.stdout).contains("attempt 1"), "{}", text(&shown.stdout));
    assert!(text(&shown.stderr).contains("no receiver runs"), "{}", text(&shown.stderr));
}
