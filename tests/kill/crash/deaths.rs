//! The tables of deaths: the fail points at which the receiver and the runner die, and what is then known
//! about the event in progress.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use hooklatch::crash::{PANIC, VARIABLE};

use super::case::HANDLER;
use super::{keeping, keys};
use crate::support::Site;

use Left::{Either, Known, Unknown};

/// What is known about the event in progress after a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// It succeeds: its outcome is known, or it did not begin.
    Known,
    /// Its outcome is unknown: it may have begun, and there is no record of how it ended.
    Unknown,
    /// One or the other, because the surviving process continues while the other dies.
    Either,
}

/// A fail point, how many times a process passes it before it dies there, and what is then known. For a
/// death of the receiver, that is what is known if the runner is killed too, before the next receiver
/// starts; if the runner lives, everything is known.
pub(crate) type Death = (&'static str, usize, Left);

/// Deaths of the receiver, in the order of an event's processing.
pub(crate) const OF_THE_RECEIVER: &[Death] = &[
    ("accept.commit.before", 1, Known),
    ("accept.commit.after", 1, Either),
    ("answer.before", 1, Either),
    ("answer.after", 1, Either),
    ("claim.commit.before", 1, Known),
    ("claim.commit.after", 1, Known),
    ("receiver.before.Start", 1, Known),
    ("half.Start", 1, Known),
    ("receiver.sent.Start", 1, Either),
    ("receiver.read.Started", 1, Either),
    ("receiver.read.Ended", 1, Known),
    ("complete.commit.before", 1, Known),
    ("complete.commit.after", 1, Known),
    ("receiver.before.Ack", 1, Known),
    ("receiver.sent.Ack", 1, Known),
];

/// Deaths of the receiver around the commit that completes one event and claims the next.
pub(crate) const BETWEEN_TWO_EVENTS: &[Death] = &[
    ("complete.commit.before", 1, Known),
    ("claim.commit.before", 2, Known),
    ("complete.commit.after", 1, Known),
    ("claim.commit.after", 2, Known),
    ("receiver.before.Ack", 1, Known),
    ("receiver.sent.Ack", 1, Known),
    ("receiver.before.Start", 2, Known),
];

/// Deaths of the receiver while a caller waits for its handler's answer.
pub(crate) const OF_A_REQUEST_WITH_A_KEY: &[Death] = &[
    ("ask.commit.before", 1, Known),
    ("ask.commit.after", 1, Either),
    ("claim.commit.before", 1, Known),
    ("claim.commit.after", 1, Known),
    ("receiver.before.Start", 1, Known),
    ("receiver.sent.Start", 1, Either),
    ("receiver.read.Started", 1, Either),
    ("receiver.read.Ended", 1, Unknown),
    ("complete.commit.before", 1, Unknown),
    ("complete.commit.after", 1, Known),
    ("answer.before", 1, Known),
    ("answer.after", 1, Known),
    ("receiver.before.Ack", 1, Known),
];

/// Deaths of the runner while a caller waits. The runner's ledger has exit codes but no output, so after a
/// death the answer is lost even if the exit code is known.
pub(crate) const OF_ITS_RUNNER: &[Death] = &[
    ("runner.read.Start", 1, Known),
    ("runner.start.noted", 1, Unknown),
    ("runner.spawned", 1, Unknown),
    ("runner.sent.Started", 1, Unknown),
    ("runner.reaped", 1, Unknown),
    ("runner.exit.noted", 1, Unknown),
    ("runner.before.Ended", 1, Unknown),
    ("half.Ended", 1, Unknown),
    ("runner.sent.Ended", 1, Known),
    ("runner.read.Ack", 1, Known),
];

/// Deaths of a receiver that starts while a command of an earlier receiver runs.
pub(crate) const OF_THE_NEXT_RECEIVER: &[Death] = &[
    ("epoch.commit.before", 1, Unknown),
    ("epoch.commit.after", 1, Unknown),
    ("receiver.before.Hello", 1, Unknown),
    ("receiver.sent.Hello", 1, Unknown),
    ("receiver.read.HelloOk", 1, Unknown),
];

/// Deaths of the runner. Between its ledger line before the fork and its line after the reap, the outcome
/// is unknown.
pub(crate) const OF_THE_RUNNER: &[Death] = &[
    ("runner.hello.read", 1, Known),
    ("runner.before.HelloOk", 1, Known),
    ("runner.sent.HelloOk", 1, Known),
    ("runner.read.Start", 1, Known),
    ("runner.start.noted", 1, Unknown),
    ("runner.spawned", 1, Unknown),
    ("runner.process.noted", 1, Unknown),
    ("runner.before.Started", 1, Unknown),
    ("runner.sent.Started", 1, Unknown),
    ("runner.reaped", 1, Unknown),
    ("runner.exit.noted", 1, Known),
    ("runner.before.Ended", 1, Known),
    ("half.Ended", 1, Known),
    ("runner.sent.Ended", 1, Known),
    ("runner.read.Ack", 1, Known),
    ("runner.ack.noted", 1, Known),
];

/// Deaths of a runner that starts after another one died during a command.
pub(crate) const OF_THE_NEXT_RUNNER: &[Death] =
    &[("runner.orphaned.before", 1, Unknown), ("runner.orphaned.after", 1, Unknown)];

/// Deaths of `store move`, in `tests/postgres/moving.rs`.
const OF_A_MOVE: [&str; 4] = ["move.copied", "move.marked", "move.committed", "move.finished"];

/// The names of the points that frames pass, to which the kind of message is appended.
const FRAMES: [&str; 7] = [
    "receiver.before",
    "receiver.sent",
    "receiver.read",
    "runner.before",
    "runner.sent",
    "runner.read",
    // On both sides, after the header and half of the body were written.
    "half",
];

/// The messages at which a process dies: those about an attempt's start and end. Requests to kill, search
/// or peek, refusals, denials and drains do not change an outcome.
const TO_RUNNER: [&str; 3] = ["Hello", "Start", "Ack"];
const TO_RECEIVER: [&str; 3] = ["HelloOk", "Started", "Ended"];

/// The names in all calls of this fail point function in the source, sorted.
fn names(call: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let found = text.split(call).skip(1).map(|rest| rest.split('"').next().unwrap());
            names.extend(found.map(str::to_owned));
        }
    }
    names.sort_unstable();
    names
}

#[test]
fn every_fail_point_is_used_once_and_has_a_death() {
    let points = names("crash::point(\"");
    let mut once = points.clone();
    once.dedup();
    assert_eq!(points, once);
    let mut frames_passed = FRAMES.to_vec();
    frames_passed.sort_unstable();
    assert_eq!(names("crash::frame(\""), frames_passed);

    let tables = [OF_THE_RECEIVER, OF_THE_NEXT_RECEIVER, OF_THE_RUNNER, OF_THE_NEXT_RUNNER];
    let mut died: BTreeSet<String> =
        tables.concat().iter().map(|death| death.0.to_owned()).collect();
    died.insert(PANIC.to_owned());
    died.extend(OF_A_MOVE.map(str::to_owned));
    died.extend(keeping::POINTS.iter().chain(keys::POINTS).map(|point| (*point).to_owned()));
    let mut all: BTreeSet<String> = points.into_iter().collect();
    let frames = |point: &str, kinds: &[&str]| -> Vec<String> {
        kinds.iter().map(|kind| format!("{point}.{kind}")).collect()
    };
    for point in FRAMES {
        let kinds: &[&str] = match point {
            "receiver.before" | "receiver.sent" => &TO_RUNNER,
            "receiver.read" | "runner.before" | "runner.sent" => &TO_RECEIVER,
            // The runner reads Hello before all other messages, at a separate point.
            "runner.read" => &TO_RUNNER[1..],
            // Only these messages have a body.
            _ => &["Start", "Ended"],
        };
        all.extend(frames(point, kinds));
    }
    assert_eq!(died, all);
}

#[test]
fn a_malformed_fail_point_is_refused_at_start() {
    let site = Site::new(HANDLER);
    for wrong in
        ["claim.commit.after token", "claim.commit.after 0 token", "claim.commit.after", ""]
    {
        let output = site.command(&["--help"]).env(VARIABLE, wrong).output().unwrap();
        assert!(!output.status.success(), "{wrong}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(VARIABLE), "{wrong}");
    }
    let right = format!("runner.sent.Ended 1 {}", site.path("token").display());
    assert!(site.command(&["--help"]).env(VARIABLE, right).output().unwrap().status.success());
}
