//! Commands: asked of the runner, and what their ends mean.
//!
//! How a command is started, read and ended is the runner's business; what an exit status means is
//! decided here. The receiver knows a command by its handler's name and its configuration's digest, and
//! never sees its line or its environment.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::model::{Digest, Facts, Incarnation, Outcome, RunnerName};
use crate::runner::message::{Refusal, Start};
use crate::runner::{AskedBy, Ended, Exited, Status};
use crate::store::{Record, Usage};

use super::Report;
use super::link::{Tracked, Verdict};

/// EX_DATAERR of sysexits.h: the event itself is wrong, and no other attempt will help.
const REJECTED: i32 = 65;

/// POSIX, "2.8.2 Exit Status for Commands": found but not executable, and not found. A shell or a
/// wrapper says so of the program it was to run.
const CANNOT_RUN: [i32; 2] = [126, 127];

/// What shells (POSIX, as above), Java machines and container clients exit with when a SIGTERM or
/// SIGKILL ended the work: 128 and the signal's number. Where the signal was ours, they say no more
/// about the effects than the signal itself would.
const ENDED_BY_US: [i32; 2] = [128 + 15, 128 + 9];

/// Larger bodies are hashed on a blocking thread.
const INLINE_BYTES: usize = 256 * 1024;

/// What the receiver knows of a configured command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The runner that runs it.
    pub runner: RunnerName,
    /// Of its configuration as it is written: the runner starts no other.
    pub configuration: Digest,
    /// How long it may run; the runner sees to it.
    pub timeout: Duration,
    /// What it prints is an answer that somebody waits for.
    pub answers: bool,
}

impl Command {
    /// Runs one attempt to its end, which may be that of a later receiver: the future may be dropped
    /// at any time, and the runner goes on. `runner` is the one that the claim was made for.
    pub async fn run(&self, facts: Facts, runner: Incarnation, tracked: Tracked) -> Report {
        let body = facts.body.clone();
        let digest = digest(body.clone()).await;
        let start = Start::new(runner, self.configuration, digest, &facts);
        drop(facts);
        report(tracked.start(start, body).await, Some(self.timeout))
    }
}

/// Waits for the end of an attempt that an earlier receiver has claimed. `timeout`: how long it was
/// given, where its handler is still configured.
pub async fn adopted(tracked: Tracked, timeout: Option<Duration>) -> Report {
    report(tracked.ended().await, timeout)
}

async fn digest(body: Bytes) -> Digest {
    let small = body.len() <= INLINE_BYTES;
    let hash = move || Digest(Sha256::digest(&body).into());
    if small {
        return hash();
    }
    // A digest that could not be made matches nothing: the runner refuses the start.
    tokio::task::spawn_blocking(hash).await.unwrap_or(Digest([0; 32]))
}

fn report(verdict: Verdict, timeout: Option<Duration>) -> Report {
    match verdict {
        Verdict::Ended(Ended::Exited(exited)) => judge(exited, timeout),
        Verdict::Ended(Ended::Lost(reason)) => Report::new(Outcome::Unknown, reason),
        Verdict::NeverStarted(reason) => Report::new(Outcome::NotStarted, reason),
        Verdict::Refused(refusal, detail) => refused(refusal, detail),
    }
}

/// No refusal counts against the limit. What will be so again at the next start is the handler's
/// trouble, and it backs off; what is the connection's is over when the next one is made (R12).
fn refused(refusal: Refusal, detail: String) -> Report {
    match refusal {
        Refusal::OtherIncarnation | Refusal::Draining | Refusal::StaleEpoch => {
            Report::new(Outcome::NotStarted, detail)
        }
        Refusal::UnknownHandler
        | Refusal::OtherDigest
        | Refusal::NoResources
        | Refusal::CannotStart => Report::broken(detail),
        Refusal::Busy | Refusal::BadBody => {
            tracing::error!(detail, "the runner refused what should not have been asked");
            Report::broken(detail)
        }
    }
}

fn judge(exited: Exited, timeout: Option<Duration>) -> Report {
    let (outcome, detail) = match (exited.status, exited.asked_by) {
        (Status::Code(0), _) => (Outcome::Succeeded, "exit status 0".to_owned()),
        (Status::Code(REJECTED), _) => (Outcome::Rejected, said(REJECTED, ": rejected")),
        // Not to be tried again, as the operator has said.
        (Status::Code(code), Some(AskedBy::Cancelled)) => {
            ended(AskedBy::Cancelled, timeout, &said(code, ""))
        }
        (Status::Code(126), _) => (Outcome::Failed, said(126, ": cannot execute")),
        (Status::Code(127), _) => (Outcome::Failed, said(127, ": command not found")),
        (Status::Code(code), Some(by)) if ENDED_BY_US.contains(&code) => {
            ended(by, timeout, &said(code, ""))
        }
        (Status::Code(code), _) => (Outcome::Failed, said(code, "")),
        (Status::Signal(signal), None) => (Outcome::Unknown, killed(signal)),
        (Status::Signal(signal), Some(by)) => ended(by, timeout, &killed(signal)),
    };
    let (exit_code, signal) = match exited.status {
        Status::Code(code) => (Some(code), None),
        Status::Signal(signal) => (None, Some(signal)),
    };
    Report {
        outcome,
        handler_broken: outcome == Outcome::Failed
            && exit_code.is_some_and(|code| CANNOT_RUN.contains(&code)),
        retry_after: None,
        record: Record {
            detail,
            exit_code,
            signal,
            http_status: None,
            stdout: exited.stdout.into(),
            stderr: exited.stderr.into(),
            usage: Some(Usage {
                cpu_millis: exited.usage.cpu_millis,
                memory_bytes: exited.usage.memory_bytes,
            }),
        },
        answer: None,
    }
}

/// The end that the runner brought about, and that says nothing about the effects.
fn ended(by: AskedBy, timeout: Option<Duration>, how: &str) -> (Outcome, String) {
    match by {
        AskedBy::TimeOut => {
            let limit =
                timeout.map(|limit| format!(" after {}", humantime::format_duration(limit)));
            (Outcome::TimedOut, format!("timed out{}, {how}", limit.unwrap_or_default()))
        }
        AskedBy::Cancelled => (Outcome::Cancelled, format!("cancelled, {how}")),
        AskedBy::Stop => (Outcome::Unknown, format!("ended by the runner's stop, {how}")),
    }
}

fn said(code: i32, meaning: &str) -> String {
    format!("exit status {code}{meaning}")
}

fn killed(signal: i32) -> String {
    format!("killed by signal {signal}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: Status, asked_by: Option<AskedBy>) -> Report {
        let (stdout, stderr, usage) = Default::default();
        let exited = Exited { status, asked_by, usage, stdout, stderr };
        judge(exited, Some(Duration::from_secs(60)))
    }

    #[test]
    fn every_exit_status_means_something() {
        let askers = [AskedBy::TimeOut, AskedBy::Stop, AskedBy::Cancelled];
        for asked_by in [None].into_iter().chain(askers.map(Some)) {
            for code in 0..=255 {
                let report = report(Status::Code(code), asked_by);
                let outcome = match (code, asked_by) {
                    (0, _) => Outcome::Succeeded,
                    (65, _) => Outcome::Rejected,
                    // Shells, Java and container clients say so that our SIGTERM or SIGKILL ended
                    // the work: that is a time-out or a stop, and no word about the effects.
                    (137 | 143, Some(AskedBy::TimeOut)) => Outcome::TimedOut,
                    (137 | 143, Some(AskedBy::Stop)) => Outcome::Unknown,
                    // Whatever it says of its failure, the operator wants no other attempt.
                    (_, Some(AskedBy::Cancelled)) => Outcome::Cancelled,
                    _ => Outcome::Failed,
                };
                assert_eq!(report.outcome, outcome, "{code}");
                let broken = matches!(code, 126 | 127) && outcome == Outcome::Failed;
                assert_eq!(report.handler_broken, broken, "{code}");
                assert_eq!((report.record.exit_code, report.record.signal), (Some(code), None));
            }
        }
    }

    #[test]
    fn a_signal_says_nothing_about_the_effects() {
        let told = |asked_by| {
            let report = report(Status::Signal(9), asked_by);
            assert!(!report.handler_broken && report.record.signal == Some(9));
            (report.outcome, report.record.detail)
        };
        assert_eq!(told(None), (Outcome::Unknown, "killed by signal 9".into()));
        let timed_out = "timed out after 1m, killed by signal 9";
        assert_eq!(told(Some(AskedBy::TimeOut)), (Outcome::TimedOut, timed_out.into()));
        let stopped = "ended by the runner's stop, killed by signal 9";
        assert_eq!(told(Some(AskedBy::Stop)), (Outcome::Unknown, stopped.into()));
        let cancelled = "cancelled, killed by signal 9";
        assert_eq!(told(Some(AskedBy::Cancelled)), (Outcome::Cancelled, cancelled.into()));
    }
}
