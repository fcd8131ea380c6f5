//! Commands: what their ends mean.
//!
//! The only user of `runner`, and a thin one: how a command is started, read and ended is the
//! runner's business, wherever it lives; what an exit status means is decided here.

use std::time::Duration;

use crate::model::{Facts, JobId, Outcome};
use crate::runner::{self, AskedBy, CommandSettings, End, Ended, Exited, Status};
use crate::store::Record;

use super::Report;

/// EX_DATAERR of sysexits.h: the event itself is wrong, and no other attempt will help.
const REJECTED: i32 = 65;

/// POSIX, "2.8.2 Exit Status for Commands": found but not executable, and not found. A shell or a
/// wrapper says so of the program it was to run.
const CANNOT_RUN: [i32; 2] = [126, 127];

/// What shells (POSIX, as above), Java machines and container clients exit with when a SIGTERM or
/// SIGKILL ended the work: 128 and the signal's number. Where the signal was ours, they say no more
/// about the effects than the signal itself would.
const ENDED_BY_US: [i32; 2] = [128 + 15, 128 + 9];

/// How long leftovers are waited for at a start before the receiver says that they cannot be ended.
/// SIGKILL takes microseconds; what takes seconds hangs in the kernel.
const LEFTOVERS_PATIENCE: Duration = Duration::from_secs(5);

/// Runs one attempt to its end.
pub(super) async fn run(settings: &CommandSettings, facts: &Facts, end: &End) -> Report {
    match runner::run(settings, facts, end).await {
        Ended::NotStarted(reason) => Report::broken(reason),
        Ended::Lost(reason) => Report::new(Outcome::Unknown, reason),
        Ended::Exited(exited) => judge(exited, settings.timeout),
    }
}

/// Ends whatever a dead receiver's commands still run for these attempts. Returns those of which
/// something cannot be ended: they must stay `running`.
pub async fn end_leftovers(attempts: Vec<(JobId, u32)>) -> Vec<(JobId, u32)> {
    let all = attempts.clone();
    let ended = move || runner::leftovers::end(&attempts, LEFTOVERS_PATIENCE);
    // A search that failed has proven nothing.
    tokio::task::spawn_blocking(ended).await.unwrap_or(all)
}

fn judge(exited: Exited, timeout: Duration) -> Report {
    let (outcome, detail) = match (exited.status, exited.asked_by) {
        (Status::Code(0), _) => (Outcome::Succeeded, "exit status 0".to_owned()),
        (Status::Code(REJECTED), _) => (Outcome::Rejected, said(REJECTED, ": rejected")),
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
        handler_broken: exit_code.is_some_and(|code| CANNOT_RUN.contains(&code)),
        retry_after: None,
        record: Record {
            detail,
            exit_code,
            signal,
            http_status: None,
            stdout: exited.stdout.into(),
            stderr: exited.stderr.into(),
        },
    }
}

/// The end that the runner brought about, and that says nothing about the effects.
fn ended(by: AskedBy, timeout: Duration, how: &str) -> (Outcome, String) {
    match by {
        AskedBy::TimeOut => {
            let limit = humantime::format_duration(timeout);
            (Outcome::TimedOut, format!("timed out after {limit}, {how}"))
        }
        AskedBy::Cancelled => (Outcome::Cancelled, format!("cancelled by the operator, {how}")),
        AskedBy::Stop => (Outcome::Unknown, format!("ended by the receiver's stop, {how}")),
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
        let (usage, stdout, stderr) = Default::default();
        judge(Exited { status, asked_by, usage, stdout, stderr }, Duration::from_secs(60))
    }

    #[test]
    fn every_exit_status_means_something() {
        for asked_by in
            [None, Some(AskedBy::TimeOut), Some(AskedBy::Stop), Some(AskedBy::Cancelled)]
        {
            for code in 0..=255 {
                let report = report(Status::Code(code), asked_by);
                let outcome = match (code, asked_by) {
                    (0, _) => Outcome::Succeeded,
                    (65, _) => Outcome::Rejected,
                    // Shells, Java and container clients say so that our SIGTERM or SIGKILL ended
                    // the work: that is a time-out or a stop, and no word about the effects.
                    (137 | 143, Some(AskedBy::TimeOut)) => Outcome::TimedOut,
                    (137 | 143, Some(AskedBy::Stop)) => Outcome::Unknown,
                    (137 | 143, Some(AskedBy::Cancelled)) => Outcome::Cancelled,
                    _ => Outcome::Failed,
                };
                assert_eq!(report.outcome, outcome, "{code}");
                assert_eq!(report.handler_broken, code == 126 || code == 127, "{code}");
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
        let stopped = "ended by the receiver's stop, killed by signal 9";
        assert_eq!(told(Some(AskedBy::Stop)), (Outcome::Unknown, stopped.into()));
    }
}
