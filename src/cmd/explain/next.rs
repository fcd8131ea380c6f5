//! Says what happens next to a job, and which command the operator types for it.
//!
//! Must stay true: if the operator has to check something first, the suggested command only shows data,
//! so that pasting it does not decide a job's fate without a check.

use std::time::Duration;

use crate::config::Handler;
use crate::model::{Broken, DeadReason, OnUnknown, State};
use crate::retry::GiveUp;
use crate::store::{EventDetail, JobRow};

use super::explainer::Explainer;
use super::explanation::Next;
use crate::cmd::output::span;
use crate::cmd::settle_advice::{advice, ways};

impl Explainer<'_> {
    pub(super) fn after(
        &self,
        detail: &EventDetail,
        row: &JobRow,
        handler: Option<&Handler>,
    ) -> Next {
        let (event, job) = (&detail.event, row.job);
        // The caller of a request with a key has no answer yet.
        let caller_waits = detail.key.as_ref().is_some_and(|key| key.answered_at.is_none());
        let show = format!("show {} --source {}", event.event_id.shell_word(), event.source);
        let replay = format!("replay --job {job}");
        match row.state {
            State::Ready | State::Waiting if row.paused => {
                let resume = format!("resume {}", row.handler);
                self.next("waits until its handler is resumed", Some(resume))
            }
            State::Ready | State::Waiting if let Some(broken) = &row.broken => {
                self.broken(row, broken)
            }
            State::Ready | State::Waiting if row.behind => {
                let listing = format!("jobs --handler {}", row.handler);
                self.next("waits until an earlier job of its group is done", Some(listing))
            }
            State::Ready => self.next("runs as soon as its handler has a free slot", None),
            State::Waiting => self.retry(row, handler),
            State::Running => {
                let unknown = match handler.map(|handler| handler.on_unknown) {
                    None => "",
                    Some(OnUnknown::Hold) => "; if it ends without a word, the job is held",
                    Some(OnUnknown::Rerun) => "; if it ends without a word, it runs again",
                };
                let number = row.attempt;
                let what = format!("attempt {number} runs, and its end is recorded{unknown}");
                let is_command = handler.is_none_or(|handler| handler.command().is_some());
                self.next(what, is_command.then(|| format!("{show} --follow")))
            }
            State::Succeeded => self.next("nothing: it is done", None),
            State::Dropped => self.next("nothing: it was taken out and never runs again", None),
            State::Held | State::Dead if !event.payload_kept => {
                let what = "it cannot run again without its payload: drop it";
                self.next(what, Some(format!("drop {job}")))
            }
            State::Held if caller_waits => {
                let what = format!(
                    "nothing until you say how it ended, and its caller is told to ask you: look at what it \
                     should have done, then `resolve {job} --succeeded --answer FILE` with the answer, or \
                     `resolve {job} --failed`, which frees its key, or run it again (`{replay}`)"
                );
                self.next(what, Some(show))
            }
            State::Held => {
                let reason = row.reason.as_deref().unwrap_or_default();
                let ways = ways(reason, Some(row.job), self.suffix);
                let ways: Vec<String> = ways.iter().map(|way| format!("`{way}`")).collect();
                let (advice, ways) = (advice(reason), ways.join(", "));
                self.next(format!("nothing until you decide: {advice}: {ways}"), Some(show))
            }
            State::Dead => {
                let resolved = row.reason.as_deref() == Some(DeadReason::Resolved.as_str());
                let what = match resolved {
                    _ if caller_waits => "runs again when its caller sends the request again",
                    true => "nothing: you have resolved it as failed",
                    false => "nothing by itself: fix the cause, then replay it",
                };
                self.next(what, Some(replay))
            }
        }
    }

    /// A job whose handler cannot run.
    fn broken(&self, row: &JobRow, broken: &Broken) -> Next {
        let at = row.due_at.unwrap_or(broken.next_try_at).max(broken.next_try_at);
        let when = match at.since(self.now) {
            Duration::ZERO => "now".to_owned(),
            wait => format!("in {}", span(wait)),
        };
        let what = format!("tries again {when}: {}", broken.cause);
        Next { what, at: Some(at), command: None }
    }

    /// A job that waits for its next attempt.
    fn retry(&self, row: &JobRow, handler: Option<&Handler>) -> Next {
        let bound = match handler.map(|handler| handler.give_up) {
            None => String::new(),
            Some(GiveUp::Attempts(most)) => format!(", of {most} that count"),
            Some(GiveUp::After(time)) => format!(", tried for {} in all", span(time)),
        };
        let when = match row.due_at.filter(|due| *due > self.now) {
            Some(due) => format!("in {} ({})", span(due.since(self.now)), (self.time)(due)),
            None => "now that it is due, as soon as its handler has a free slot".to_owned(),
        };
        let what = format!("attempt {}{bound}, {when}", row.attempt + 1);
        Next { what, at: row.due_at, command: None }
    }
}
