//! A site whose processes die at a fail point, and the checks that must hold when all jobs have ended.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hooklatch::crash::VARIABLE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::deaths::{Death, Left};
use crate::support::account::{Ledger, Stored};
use crate::support::{PATIENCE, Receiver, Site, runner, stripe_event, stripe_header, try_post};

pub(crate) const HANDLER: &str = r#"
[handlers.once]
source = "stripe"
events = ["*"]
command = ["./once"]
on_unknown = "hold"
concurrency = 3
"#;

/// The handler's script. It first and last appends a line to the ledger; in between it prints output that
/// the runner must keep. It does not write its `end` line unless it got the whole body. The number at the
/// end of the event's id is the time that the work takes, in milliseconds.
const SCRIPT: &str = r#"
echo "$$ $HOOKLATCH_JOB" >> "$SITE/processes.txt"
line="$HOOKLATCH_HANDLER $HOOKLATCH_EVENT_ID $HOOKLATCH_ATTEMPT"
echo "start $line" >> "$SITE/ledger.txt"
case $(cat) in '{"id":"'"$HOOKLATCH_EVENT_ID"'"'*'}') ;; *) exit 0 ;; esac
printf '%5000d' 0
millis=${HOOKLATCH_EVENT_ID##*_}
[ "$millis" = 0 ] || sleep "$(printf '%d.%03d' "$((millis / 1000))" "$((millis % 1000))")"
echo worked >&2
echo "end $line" >> "$SITE/ledger.txt""#;

/// A site in which one process dies at a fail point.
pub(crate) struct Case {
    pub(crate) site: Site,
    /// The file that the dying process creates.
    pub(crate) token: PathBuf,
    armed: String,
}

impl Case {
    pub(crate) fn new((point, nth, _): Death) -> Self {
        Case::of(HANDLER, (point, nth))
    }

    /// Like [`Case::new`], with one attempt at a time.
    pub(crate) fn one_by_one((point, nth, _): Death) -> Self {
        Case::of(&HANDLER.replace("concurrency = 3", "concurrency = 1"), (point, nth))
    }

    fn of(handler: &str, (point, nth): (&str, usize)) -> Self {
        let site = Site::new(handler);
        site.script("once", SCRIPT);
        Case::at(site, (point, nth))
    }

    /// Like [`Case::new`], with another site.
    pub(crate) fn at(site: Site, (point, nth): (&str, usize)) -> Self {
        let token = site.path("token");
        let armed = format!("{point} {nth} {}", token.display());
        Case { site, token, armed }
    }

    pub(crate) fn try_start(&self) -> Option<Receiver> {
        self.site.try_start(&[(VARIABLE, &self.armed)]).ok()
    }

    pub(crate) fn start(&self) -> Receiver {
        self.try_start().expect("it died a second time")
    }

    /// Starts a command and then kills its receiver.
    pub(crate) fn leave_running(&self, id: &str) {
        let receiver = self.site.start();
        assert!(delivered(&receiver, id));
        self.until(|| !self.site.lines("ledger.txt").is_empty());
        receiver.kill();
    }

    /// Kills the runner, if there is one, and waits until it has ended.
    pub(crate) fn kill_runner(&self) {
        let pidfd = runner::runner(&self.site.store())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(pidfd) = pidfd {
            let _has_ended = pidfd_send_signal(&pidfd, Signal::KILL);
            must_end(&pidfd);
        }
    }

    /// Waits for the runner's death. Returns the receiver that continues: the same one, or the next one if
    /// `then_receiver` kills it.
    pub(crate) fn runner_must_die(&self, receiver: Receiver, then_receiver: bool) -> Receiver {
        self.until(|| self.token.exists());
        if !then_receiver {
            return receiver;
        }
        receiver.kill();
        self.start()
    }

    pub(crate) fn until(&self, done: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < end, "gave up waiting; the jobs are {:#?}", {
                self.site.json(&["jobs"])
            });
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until all jobs have ended, stops the receiver, and checks the promises against the ledger.
    pub(crate) fn must_hold(&self, receiver: Receiver, events: &[(&str, Left)]) {
        let site = &self.site;
        site.jobs_when(|jobs| {
            let settled =
                |job: &&serde_json::Value| job["state"] == "succeeded" || job["state"] == "held";
            jobs.iter().filter(settled).count() == events.len()
        });
        assert!(self.token.exists(), "no process died");
        for line in site.lines("processes.txt") {
            let (pid, job) = line.split_once(' ').unwrap();
            let lives = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let lives = String::from_utf8_lossy(&lives).contains(job);
            assert!(!lives, "all jobs have ended, but process {pid} lives");
        }
        let runner = runner::runner(&site.store()).expect("no runner");
        let runner = pidfd_open(runner, PidfdFlags::empty()).unwrap();
        assert_eq!(receiver.stop(), Some(0));
        // The runner exits by itself only if every attempt is acknowledged.
        must_end(&runner);
        let stored = Stored::read(&site.store()).unwrap();
        let ledger = Ledger::read(&site.lines("ledger.txt"));
        let answered: Vec<String> = events.iter().map(|(id, _)| (*id).to_owned()).collect();
        stored.must_agree(&answered, &ledger, &["once"]);
        stored.must_be_settled(&ledger, "once");
        assert_eq!(stored.events.len(), events.len(), "an event was stored that was not sent");
        let ends = |id: &str| {
            let of_event = ledger.ends.iter().filter(|((_, event, _), _)| event == id);
            of_event.map(|(_, times)| times).sum::<usize>()
        };
        for (id, left) in events {
            let job = stored.jobs.iter().find(|job| job.event == *id).unwrap();
            let succeeded = job.state == "succeeded";
            match left {
                Left::Known => assert!(succeeded, "{job:?} although the outcome could be known"),
                Left::Unknown => assert!(!succeeded, "{job:?}: the attempt was not cut off"),
                Left::Either => {}
            }
            assert!(!succeeded || ends(id) == 1, "{job:?} ended {} times", ends(id));
        }
    }
}

/// Delivers an event once and returns whether it was answered 2xx. Fails on any other answer.
pub(crate) fn delivered(receiver: &Receiver, id: &str) -> bool {
    delivered_with(receiver, id, 0)
}

/// Like [`delivered`], with `bytes` bytes of padding in the body.
pub(crate) fn delivered_with(receiver: &Receiver, id: &str, bytes: usize) -> bool {
    let padding = format!(r#","padding":"{}""#, "x".repeat(bytes));
    let body = stripe_event(id, "invoice.paid", &padding);
    match try_post(receiver.address, "/stripe", &stripe_header(&body, 0), body.as_bytes()) {
        Ok((200..=299, _)) => true,
        Ok(answer) => panic!("{id}: {answer:?}"),
        Err(_) => false,
    }
}

/// Waits until a process has ended.
pub(crate) fn must_end(pidfd: &impl std::os::fd::AsFd) {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&patience));
    assert_eq!(ended, Ok(1), "does not end");
}

/// Waits until a receiver has died by a signal.
pub(crate) fn must_die(receiver: Receiver) {
    let pid = Pid::from_raw(receiver.pid().cast_signed()).unwrap();
    must_end(&pidfd_open(pid, PidfdFlags::empty()).unwrap());
    assert_eq!(receiver.ended(), None, "ended by itself");
}
