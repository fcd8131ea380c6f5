//! Commands: asks the runner for them, and judges how they ended.
//!
//! The runner starts a command, reads its output and ends it. This file decides what an exit status means, and
//! whether the output is the answer that a client waits for. The receiver knows a command by its handler's
//! name and its configuration's digest, and never sees its arguments or its environment.

use std::time::Duration;

use bytes::Bytes;

use crate::limits::Limits;
use crate::model::{Answer, Digest, Facts, Incarnation, Outcome, RunnerName};
use crate::runner::message::{Refusal, Start};
use crate::runner::{AskedBy, Captured, Ended, Exited, Status};
use crate::store::{Record, Usage};

use super::runner_client::{AttemptResult, NotStarted, PendingAttempt};
use super::{Report, TAKEN};

/// EX_DATAERR of sysexits.h: the event itself is wrong, so that another attempt cannot succeed.
const REJECTED: i32 = 65;

/// POSIX, "2.8.2 Exit Status for Commands": found but not executable, and not found. A shell or a
/// wrapper exits so if it cannot run the program.
const CANNOT_RUN: [i32; 2] = [126, 127];

/// The exit statuses of shells (POSIX, as above), Java machines and container clients when a SIGTERM or a
/// SIGKILL ended the work: 128 plus the signal's number. If the runner sent the signal, such a status says no
/// more about the effects than the signal itself.
const ENDED_BY_US: [i32; 2] = [128 + 15, 128 + 9];

/// The exit statuses with which a command has answered, and the answer's status unless it prints one.
const ANSWERED: [(i32, u16); 2] = [(0, 200), (REJECTED, 422)];

/// Larger bodies are hashed on a blocking thread.
const INLINE_BYTES: usize = 256 * 1024;

/// A configured command, as the receiver knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub runner: RunnerName,
    /// The digest of its configuration as it is written: the runner starts no other command.
    pub configuration: Digest,
    /// How long it may run; the runner enforces it.
    pub timeout: Duration,
    /// Bytes recorded of each output: head, tail.
    pub output_bytes: (usize, usize),
    /// Whether its output is an answer that a client waits for.
    pub answers: bool,
}

impl Command {
    /// Runs one attempt to its end. The future may be dropped at any time: the runner continues, and a later
    /// receiver gets the end. `runner` is the runner that the claim was made for. It is asked to start it directly after
    /// `may_begin` has said so.
    pub async fn run(
        &self,
        facts: Facts,
        runner: Incarnation,
        pending: PendingAttempt,
        may_begin: impl Future<Output = bool>,
    ) -> Report {
        let body = facts.body;
        let start = Start {
            incarnation: runner,
            configuration: self.configuration,
            body: digest(body.clone()).await,
            facts: Facts { body: Bytes::new(), ..facts },
        };
        match may_begin.await {
            true => report(pending.start(start, body).await, Some(self)),
            false => Report::new(Outcome::NotStarted, TAKEN),
        }
    }
}

/// Waits for the end of an attempt that an earlier receiver has claimed. `command` is its handler's, if that is
/// still configured. Without it the output is not an answer.
pub async fn adopted(pending: PendingAttempt, command: Option<Command>) -> Report {
    report(pending.ended().await, command.as_ref())
}

async fn digest(body: Bytes) -> Digest {
    let small = body.len() <= INLINE_BYTES;
    let hash = move || Digest::of(&body);
    if small {
        return hash();
    }
    // If the thread failed, the wrong digest makes the runner refuse the start.
    tokio::task::spawn_blocking(hash).await.unwrap_or(Digest([0; 32]))
}

fn report(result: AttemptResult, command: Option<&Command>) -> Report {
    match result {
        Ok(Ended::Exited(exited)) => judge(exited, command),
        Ok(Ended::Lost(reason)) => Report::new(Outcome::Unknown, reason),
        Err(not_started) => refused(not_started),
    }
}

/// No refusal counts against the limit of attempts. A refused value is the event's fault, and any other start of it
/// would be refused. If the next start would be refused too, the handler backs
/// off; a refusal because of the connection is over with the next connection (R12).
fn refused(NotStarted { reason, detail }: NotStarted) -> Report {
    match reason {
        Refusal::OtherIncarnation
        | Refusal::Draining
        | Refusal::StaleEpoch
        | Refusal::NotReceived => Report::new(Outcome::NotStarted, detail),
        Refusal::Values => Report::value_refused(detail),
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

fn judge(exited: Exited, command: Option<&Command>) -> Report {
    let timeout = command.map(|command| command.timeout);
    let (mut outcome, mut detail) = match (exited.status, exited.asked_by) {
        (Status::Code(0), _) => (Outcome::Succeeded, "exit status 0".to_owned()),
        (Status::Code(REJECTED), _) => (Outcome::Rejected, exit_status(REJECTED, ": rejected")),
        // The operator does not want another attempt.
        (Status::Code(code), Some(AskedBy::Cancelled)) => {
            ended(AskedBy::Cancelled, timeout, &exit_status(code, ""))
        }
        (Status::Code(126), _) => (Outcome::Failed, exit_status(126, ": cannot execute")),
        (Status::Code(127), _) => (Outcome::Failed, exit_status(127, ": command not found")),
        (Status::Code(code), Some(by)) if ENDED_BY_US.contains(&code) => {
            ended(by, timeout, &exit_status(code, ""))
        }
        (Status::Code(code), _) => (Outcome::Failed, exit_status(code, "")),
        (Status::Signal(signal), None) => (Outcome::Unknown, killed(signal)),
        (Status::Signal(signal), Some(by)) => ended(by, timeout, &killed(signal)),
    };
    let (exit_code, signal) = match exited.status {
        Status::Code(code) => (Some(code), None),
        Status::Signal(signal) => (None, Some(signal)),
    };
    let mut answer = None;
    if command.is_some_and(|command| command.answers)
        && let Some((_, status)) = ANSWERED.iter().find(|(code, _)| exit_code == Some(*code))
    {
        match printed(&exited.stdout, *status) {
            Ok(printed) => {
                if printed.is_error() {
                    outcome = Outcome::Failed;
                    detail = format!("{detail}, and answered {}", printed.status);
                }
                answer = Some(printed);
            }
            // The store holds the job: it does not run again by itself.
            Err(why) => detail = format!("{detail}, and no answer: {why}"),
        }
    }
    let recorded = command.map_or_else(default_bytes, |command| command.output_bytes);
    Report {
        outcome,
        handler_broken: outcome == Outcome::Failed
            && exit_code.is_some_and(|code| CANNOT_RUN.contains(&code)),
        value_refused: false,
        retry_after: None,
        record: Record {
            detail,
            exit_code,
            signal,
            http_status: None,
            stdout: exited.stdout.cut(recorded).into(),
            stderr: exited.stderr.cut(recorded).into(),
            usage: Some(Usage {
                cpu_millis: exited.usage.cpu_millis,
                memory_bytes: exited.usage.memory_bytes,
            }),
            ended_at: exited.usage.ended_at,
        },
        answer,
    }
}

/// The output as an answer; otherwise why it is not one. The head holds as many bytes as an answer may have, so
/// an output with a tail is too long, even if head and tail are complete.
fn printed(stdout: &Captured, status: u16) -> Result<Answer, String> {
    match stdout.total {
        None => Err("its output died with its runner".to_owned()),
        Some(total) if total > stdout.head.len() as u64 => {
            Err(format!("{total} bytes of output are more than limits.answer_whole_bytes"))
        }
        Some(_) => Answer::printed(&Bytes::copy_from_slice(&stdout.head), status),
    }
}

/// The bytes recorded of each output of a handler that is not configured any more.
fn default_bytes() -> (usize, usize) {
    let limits = Limits::default();
    let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    (size(limits.output_head_bytes), size(limits.output_tail_bytes))
}

/// The outcome of a command that the runner ended, which says nothing about the effects.
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

fn exit_status(code: i32, meaning: &str) -> String {
    format!("exit status {code}{meaning}")
}

fn killed(signal: i32) -> String {
    format!("killed by signal {signal}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use futures_util::FutureExt;
    use tokio::sync::{mpsc, watch};

    use super::super::runner_client::{Place, RunnerClient};
    use super::*;
    use crate::runner::message::Key;
    use crate::runner::tests::facts;

    fn report(status: Status, asked_by: Option<AskedBy>) -> Report {
        let (stdout, stderr, usage) = Default::default();
        judge(Exited { status, asked_by, usage, stdout, stderr }, Some(&command(false)))
    }

    fn command(answers: bool) -> Command {
        Command {
            runner: RunnerName::default(),
            configuration: Digest([0; 32]),
            timeout: Duration::from_secs(60),
            output_bytes: (8, 4),
            answers,
        }
    }

    /// Judges the end of an answering command that has printed this, by a runner that keeps 16 bytes of an answer.
    fn answered(status: Status, stdout: &str) -> Report {
        let (head, rest) = stdout.as_bytes().split_at(stdout.len().min(16));
        let tail = rest[rest.len().saturating_sub(4)..].to_vec();
        let total = Some(stdout.len() as u64);
        let stdout = Captured { head: head.to_vec(), tail, total };
        judge(ended_with(status, stdout), Some(&command(true)))
    }

    fn ended_with(status: Status, stdout: Captured) -> Exited {
        let (asked_by, usage, stderr) = Default::default();
        Exited { status, asked_by, usage, stdout, stderr }
    }

    /// A body is hashed on another thread, and the node registers meanwhile: here the thread has something else to do until
    /// then.
    #[test]
    fn whether_an_attempt_may_begin_is_asked_directly_before_its_start() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
        runtime.block_on(attempt_after_its_hash());
    }

    async fn attempt_after_its_hash() {
        let client = RunnerClient::new(
            RunnerName::default(),
            Place::Nowhere,
            uuid::Uuid::nil(),
            watch::Sender::new(()),
            mpsc::unbounded_channel().0,
        );
        let facts = facts(vec![0; INLINE_BYTES + 1]);
        let incarnation = Incarnation::from_parts(uuid::Uuid::nil(), 1);
        let mut details = Vec::new();
        for taken in [false, true] {
            let key = Key { job: facts.job, attempt: facts.attempt };
            let pending = client.track(key, incarnation, false);
            let (registered, command) = (Cell::new(false), command(false));
            let may_begin = async { !registered.get() };
            let run = command.run(facts.clone(), incarnation, pending, may_begin);
            tokio::pin!(run);
            let (release, held) = std::sync::mpsc::channel::<()>();
            let _busy = tokio::task::spawn_blocking(move || held.recv());
            assert!((&mut run).now_or_never().is_none(), "its body is not hashed elsewhere");
            registered.set(taken);
            drop(release);
            let report = run.await;
            assert_eq!(report.outcome, Outcome::NotStarted);
            details.push(report.record.detail);
        }
        assert_eq!(details, ["the runner was gone before it was asked", TAKEN]);
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
                    // Shells, Java and container clients report so that our SIGTERM or SIGKILL ended the
                    // work: a time-out or a stop, which says nothing about the effects.
                    (137 | 143, Some(AskedBy::TimeOut)) => Outcome::TimedOut,
                    (137 | 143, Some(AskedBy::Stop)) => Outcome::Unknown,
                    // The operator does not want another attempt.
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
    fn the_output_of_exits_0_and_65_is_the_answer_and_is_recorded() {
        for (status, outcome, http) in [(0, Outcome::Succeeded, 200), (65, Outcome::Rejected, 422)]
        {
            for (stdout, head, tail) in [
                ("", "", ""),
                ("0123456789abcdef", "01234567", "cdef"),
                ("012345678", "01234567", "8"),
            ] {
                let Report { outcome: got, answer, record, .. } =
                    answered(Status::Code(status), stdout);
                let answer = answer.unwrap();
                assert_eq!((got, answer.status, &*answer.body), (outcome, http, stdout.as_bytes()));
                assert_eq!(
                    (&*record.stdout.head, &*record.stdout.tail),
                    (head.as_bytes(), tail.as_bytes())
                );
                assert_eq!(record.stdout.total, stdout.len() as u64);
            }
        }
        let own = answered(Status::Code(65), "Status: 402\n\nno").answer.unwrap();
        assert_eq!((own.status, &*own.body), (402, &b"no"[..]));
        for (status, outcome) in
            [(499, Outcome::Succeeded), (429, Outcome::Failed), (503, Outcome::Failed)]
        {
            let told = answered(Status::Code(0), &format!("Status: {status}\n\n"));
            assert_eq!((told.outcome, told.answer.unwrap().status), (outcome, status));
        }
    }

    #[test]
    fn an_end_without_a_whole_answer_says_why_and_any_other_end_has_none() {
        let lost = Captured::default();
        for (stdout, why) in [
            (None, "exit status 0, and no answer: its output died with its runner"),
            (
                Some("0123456789abcdefg"),
                "17 bytes of output are more than limits.answer_whole_bytes",
            ),
            (Some("Status: 42\n\n"), "line 1"),
        ] {
            let report = match stdout {
                Some(stdout) => answered(Status::Code(0), stdout),
                None => judge(ended_with(Status::Code(0), lost.clone()), Some(&command(true))),
            };
            assert_eq!((report.outcome, report.handler_broken), (Outcome::Succeeded, false));
            assert!(report.record.detail.contains(why), "{}", report.record.detail);
            assert_eq!((report.answer, report.record.exit_code), (None, Some(0)));
        }
        for status in [Status::Code(1), Status::Code(75), Status::Code(127), Status::Signal(9)] {
            let outcome = report(status, None).outcome;
            let answered = answered(status, "paid");
            assert_eq!((answered.outcome, answered.answer), (outcome, None), "{status:?}");
        }
        // Of a handler that is not configured any more, or does not answer, nothing is an answer.
        for command in [None, Some(&command(false))] {
            let stdout = Captured { head: b"paid".to_vec(), tail: Vec::new(), total: Some(4) };
            let report = judge(ended_with(Status::Code(0), stdout), command);
            assert_eq!((report.outcome, report.answer), (Outcome::Succeeded, None));
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
