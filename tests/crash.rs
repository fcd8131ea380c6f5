//! Deaths at every fail point: the receiver, then the runner, then the one after the other; and the
//! promises against the ledger that the handlers write themselves.
//!
//! One event is under way at each death, so that what it may leave is known exactly.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/account.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod account;
#[path = "it/support.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hooklatch::crash::{FRAMES, POINTS, VARIABLE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use account::{Ledger, Stored};
use support::{PATIENCE, Receiver, Site, runner, stripe_event, stripe_header, try_post};

use Left::{Either, Known, Unknown};

const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./once"]
on_unknown = "hold"
"#;

/// The first and the last act is a line in the ledger, in between something is printed for the runner
/// to keep. The event's id says how many milliseconds the work takes.
const SCRIPT: &str = r#"
line="$HOOKLATCH_HANDLER $HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT"
echo "start $line" >> "$SITE/ledger.txt"
echo working
millis=${HOOKLATCH_EVENT_ID##*_}
[ "$millis" = 0 ] || sleep "$(printf '%d.%03d' "$((millis / 1000))" "$((millis % 1000))")"
echo worked >&2
echo "end $line" >> "$SITE/ledger.txt""#;

/// What a death may leave of the event under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It succeeds: what became of it is known, or never in doubt.
    Known,
    /// Its outcome is unknown: it may have begun, and nobody can tell how it ended.
    Unknown,
    /// One or the other: what lives goes on while what dies is dying.
    Either,
}

/// A death of the receiver, the first or second time that it passes a point, and what it leaves where
/// the runner is killed before the next receiver comes. Where it does not, all is known.
type Death = (&'static str, usize, Left);

/// In the order of an event's life.
const OF_THE_RECEIVER: &[Death] = &[
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
    ("receiver.read.Finished", 1, Known),
    ("receiver.before.Fetch", 1, Known),
    ("receiver.sent.Fetch", 1, Known),
    ("receiver.read.Output", 1, Known),
    ("receiver.before.Fetch", 2, Known),
    ("receiver.sent.Fetch", 2, Known),
    ("receiver.read.Output", 2, Known),
    ("complete.commit.before", 1, Known),
    ("complete.commit.after", 1, Known),
    ("receiver.before.Ack", 1, Known),
    ("receiver.sent.Ack", 1, Known),
    ("receiver.read.Free", 1, Known),
];

/// Of a receiver that starts while a command of an earlier one runs, and what it leaves of that one.
const OF_THE_NEXT_RECEIVER: &[Death] = &[
    ("epoch.commit.before", 1, Unknown),
    ("epoch.commit.after", 1, Unknown),
    ("receiver.before.Hello", 1, Unknown),
    ("receiver.sent.Hello", 1, Unknown),
    ("receiver.read.HelloOk", 1, Unknown),
];

/// Of the runner, and what it leaves. Between the line before the fork and the line after the reap
/// nobody can know.
const OF_THE_RUNNER: &[Death] = &[
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
    ("runner.before.Finished", 1, Known),
    ("runner.sent.Finished", 1, Known),
    ("runner.read.Fetch", 1, Known),
    ("runner.before.Output", 1, Known),
    ("half.Output", 1, Known),
    ("runner.sent.Output", 1, Known),
    ("runner.read.Fetch", 2, Known),
    ("runner.before.Output", 2, Known),
    ("half.Output", 2, Known),
    ("runner.sent.Output", 2, Known),
    ("runner.read.Ack", 1, Known),
    ("runner.ack.noted", 1, Known),
    ("runner.before.Free", 1, Known),
    ("runner.sent.Free", 1, Known),
];

/// Of a runner that starts after another died in the middle of a command, and what is left of that.
const OF_THE_NEXT_RUNNER: &[Death] =
    &[("runner.leftovers.before", 1, Unknown), ("runner.leftovers.after", 1, Unknown)];

/// A site whose processes are to die at a point.
struct Case {
    site: Site,
    /// Is made by the process that dies.
    token: PathBuf,
    armed: String,
}

impl Case {
    fn new((point, nth, _): Death) -> Self {
        let site = Site::new(HANDLER);
        site.script("once", SCRIPT);
        let token = site.path("token");
        let armed = format!("{point} {nth} {}", token.display());
        Case { site, token, armed }
    }

    fn try_start(&self) -> Option<Receiver> {
        self.site.try_start(&[(VARIABLE, &self.armed)]).ok()
    }

    fn start(&self) -> Receiver {
        self.try_start().expect("died again")
    }

    /// A command runs, and its receiver is dead.
    fn leave_running(&self, id: &str) {
        let receiver = self.site.start();
        assert!(delivered(&receiver, id));
        self.until(|| !self.site.lines("ledger.txt").is_empty());
        receiver.kill();
    }

    /// Kills the runner, where there is one.
    fn kill_runner(&self) {
        let pidfd = runner::runner(&self.site.store())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(pidfd) = pidfd {
            let _left_already = pidfd_send_signal(&pidfd, Signal::KILL);
            must_end(&pidfd);
        }
    }

    fn until(&self, done: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < end, "gave up waiting; the jobs are {:#?}", {
                self.site.json(&["jobs"])
            });
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until all is settled, stops the receiver, and holds the promises against the ledger.
    fn must_hold(&self, receiver: Receiver, events: &[(&str, Left)]) {
        let site = &self.site;
        site.jobs_when(|jobs| {
            let settled =
                |job: &&serde_json::Value| job["state"] == "succeeded" || job["state"] == "held";
            jobs.iter().filter(settled).count() == events.len()
        });
        assert!(self.token.exists(), "nobody died");
        let runner = runner::runner(&site.store()).expect("no runner");
        let runner = pidfd_open(runner, PidfdFlags::empty()).unwrap();
        assert_eq!(receiver.stop(), Some(0));
        // It leaves by itself only where everything is acknowledged.
        must_end(&runner);
        let stored = Stored::read(&site.store()).unwrap();
        let ledger = Ledger::read(&site.lines("ledger.txt"));
        let answered: Vec<String> = events.iter().map(|(id, _)| (*id).to_owned()).collect();
        stored.must_agree(&answered, &ledger, &["once"]);
        stored.must_be_settled(&ledger, "once");
        assert_eq!(stored.events.len(), events.len(), "stored what nobody sent");
        let ends = |id: &str| {
            let of_event = ledger.ends.iter().filter(|((_, event, _), _)| event == id);
            of_event.map(|(_, times)| times).sum::<usize>()
        };
        for (id, left) in events {
            let job = stored.jobs.iter().find(|job| job.event == *id).unwrap();
            let succeeded = job.state == "succeeded";
            match left {
                Known => assert!(succeeded, "{job:?} though it could be known"),
                Unknown => assert!(!succeeded, "{job:?}: it was not cut off"),
                Either => {}
            }
            assert!(!succeeded || ends(id) == 1, "{job:?} ended {} times", ends(id));
        }
    }
}

/// Delivers an event once. Whether it was answered 2xx; no other answer may come.
fn delivered(receiver: &Receiver, id: &str) -> bool {
    let body = stripe_event(id, "invoice.paid", "");
    match try_post(receiver.address, "/stripe", &stripe_header(&body, 0), body.as_bytes()) {
        Ok((200..=299, _)) => true,
        Ok(answer) => panic!("{id}: {answer:?}"),
        Err(_) => false,
    }
}

/// Waits for a process's end.
fn must_end(pidfd: &impl std::os::fd::AsFd) {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&patience));
    assert_eq!(ended, Ok(1), "does not end");
}

/// Waits for the end of a receiver that is about to die.
fn must_die(receiver: Receiver) {
    let pid = Pid::from_raw(receiver.pid().cast_signed()).unwrap();
    must_end(&pidfd_open(pid, PidfdFlags::empty()).unwrap());
    assert_eq!(receiver.ended(), None, "ended by itself");
}

/// Goes through the deaths, several at a time: most of a case is waiting. Names those that fail.
fn each(deaths: &[Death], live_through: impl Fn(Death) + Sync) {
    let (left, failed) = (Mutex::new(deaths.iter()), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().next().copied();
    let work = || {
        while let Some(death) = next() {
            let name = format!("{} {}", death.0, death.1);
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name(name.clone());
                let run = thread.spawn_scoped(scope, || live_through(death)).unwrap();
                if run.join().is_err() {
                    failed.lock().unwrap().push(name);
                }
            });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
}

/// The receiver dies with an event under way, and the runner after it where `then_runner`; the next
/// receiver sees to the end of what is left, and to more of it.
fn receiver_dies(death: Death, then_runner: bool) {
    let case = Case::new(death);
    let first = case.start();
    let answered = delivered(&first, "evt_1_20");
    must_die(first);
    if then_runner {
        case.kill_runner();
    }
    let second = case.start();
    assert!(answered || delivered(&second, "evt_1_20"));
    assert!(delivered(&second, "evt_2_0"));
    let left = if then_runner { death.2 } else { Known };
    case.must_hold(second, &[("evt_1_20", left), ("evt_2_0", Known)]);
}

/// The same of one that starts while a command of an earlier receiver runs.
fn next_receiver_dies(death: Death, then_runner: bool) {
    let case = Case::new(death);
    // Too long for any test, where it is to be cut off.
    let running = if then_runner { "evt_0_100000" } else { "evt_0_400" };
    case.leave_running(running);
    match case.try_start() {
        Some(second) => must_die(second),
        None => assert!(case.token.exists(), "it does not start"),
    }
    if then_runner {
        case.kill_runner();
    }
    let third = case.start();
    assert!(delivered(&third, "evt_1_0"));
    let left = if then_runner { death.2 } else { Known };
    case.must_hold(third, &[(running, left), ("evt_1_0", Known)]);
}

#[test]
fn whenever_the_receiver_dies_each_event_succeeds_once() {
    each(OF_THE_RECEIVER, |death| receiver_dies(death, false));
    each(OF_THE_NEXT_RECEIVER, |death| next_receiver_dies(death, false));
}

#[test]
fn whenever_the_receiver_dies_and_then_the_runner_only_what_was_cut_off_is_unknown() {
    each(OF_THE_RECEIVER, |death| receiver_dies(death, true));
    each(OF_THE_NEXT_RECEIVER, |death| next_receiver_dies(death, true));
}

#[test]
fn whenever_the_runner_dies_only_what_it_could_not_note_is_unknown() {
    each(OF_THE_RUNNER, |death| {
        let case = Case::new(death);
        let receiver = case.start();
        assert!(delivered(&receiver, "evt_1_100"));
        case.until(|| case.token.exists());
        assert!(delivered(&receiver, "evt_2_0"));
        case.must_hold(receiver, &[("evt_1_100", death.2), ("evt_2_0", Known)]);
    });
    each(OF_THE_NEXT_RUNNER, |death| {
        let case = Case::new(death);
        case.leave_running("evt_0_100000");
        case.kill_runner();
        let receiver = case.start();
        case.until(|| case.token.exists());
        assert!(delivered(&receiver, "evt_1_0"));
        case.must_hold(receiver, &[("evt_0_100000", death.2), ("evt_1_0", Known)]);
    });
}

/// Between "sent" and "read": a runner that is stopped reads a dead receiver's Start only when the
/// next receiver is there.
#[test]
fn a_dead_receivers_start_is_not_begun_beside_its_successors() {
    let case = Case::new(("receiver.sent.Start", 2, Known));
    let first = case.start();
    assert!(delivered(&first, "evt_0_0"));
    case.site.all_jobs(1, "succeeded");
    let runner = runner::runner(&case.site.store()).unwrap();
    let runner = pidfd_open(runner, PidfdFlags::empty()).unwrap();
    pidfd_send_signal(&runner, Signal::STOP).unwrap();
    assert!(delivered(&first, "evt_1_100"));
    must_die(first);
    let second = case.start();
    case.until(|| somebody_waits(&runner::socket(&case.site.store())));
    pidfd_send_signal(&runner, Signal::CONT).unwrap();
    assert!(delivered(&second, "evt_2_0"));
    case.must_hold(second, &[("evt_0_0", Known), ("evt_1_100", Known), ("evt_2_0", Known)]);
}

/// Whether a connection to this socket is not accepted yet (proc_pid_net(5): its state is 2).
fn somebody_waits(socket: &Path) -> bool {
    let text = fs::read_to_string("/proc/net/unix").unwrap();
    let mut sockets = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    sockets.any(|fields| fields.last() == socket.to_str().as_ref() && fields[5] == "02")
}

/// What is said of an attempt's life. A wish to kill, to search or to peek, a refusal and a denial are
/// not.
const TO_RUNNER: [&str; 4] = ["Hello", "Start", "Fetch", "Ack"];
const TO_RECEIVER: [&str; 5] = ["HelloOk", "Started", "Finished", "Output", "Free"];

#[test]
fn every_point_is_in_one_place_and_somebody_dies_there() {
    let mut passed = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for call in ["crash::point(\"", "crash::frame(\""] {
                let names = text.split(call).skip(1).map(|rest| rest.split('"').next().unwrap());
                passed.extend(names.map(str::to_owned));
            }
        }
    }
    passed.sort_unstable();
    let mut named: Vec<&str> = POINTS.iter().chain(FRAMES).copied().collect();
    named.sort_unstable();
    assert_eq!(passed, named);

    let tables = [OF_THE_RECEIVER, OF_THE_NEXT_RECEIVER, OF_THE_RUNNER, OF_THE_NEXT_RUNNER];
    let died: BTreeSet<String> = tables.concat().iter().map(|death| death.0.to_owned()).collect();
    let mut all: BTreeSet<String> = POINTS.iter().map(|point| (*point).to_owned()).collect();
    let frames = |point: &str, kinds: &[&str]| -> Vec<String> {
        kinds.iter().map(|kind| format!("{point}.{kind}")).collect()
    };
    for point in FRAMES {
        let kinds: &[&str] = match *point {
            "receiver.before" | "receiver.sent" => &TO_RUNNER,
            "receiver.read" | "runner.before" | "runner.sent" => &TO_RECEIVER,
            // The Hello is read before all others, at a point of its own.
            "runner.read" => &TO_RUNNER[1..],
            // Nothing else has a body.
            _ => &["Start", "Output"],
        };
        all.extend(frames(point, kinds));
    }
    assert_eq!(died, all);
}
