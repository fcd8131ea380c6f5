//! The account: what was sent and acknowledged, what the store holds and what the handlers wrote, held
//! against the promises. Pure, so that its tests can falsify each of the three.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::ledger::{Ledger, Trace};
use crate::model::{HeldReason, Outcome, State};
use crate::store::{EventDetail, JobDetail};

/// All that is known once every job has settled.
pub(crate) struct Evidence {
    pub(crate) sent: Vec<Sent>,
    pub(crate) stored: Vec<Stored>,
    pub(crate) ledger: Ledger,
    /// How often the runner was killed: only then may an outcome be unknown.
    pub(crate) runner_kills: usize,
}

/// An event as its provider sees it.
pub(crate) struct Sent {
    pub(super) event: String,
    /// The handlers that want it.
    pub(super) handlers: &'static [&'static str],
    pub(super) answer: Answered,
}

/// How an event's last delivery was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    Never,
    /// With a 2xx.
    Acknowledged,
    /// With a status that no genuine delivery may get.
    Refused(u16),
}

/// An event as the store has it.
pub(crate) struct Stored {
    pub(crate) event: String,
    pub(crate) jobs: Vec<Job>,
}

/// One of its jobs.
pub(crate) struct Job {
    pub(super) handler: String,
    pub(crate) state: State,
    pub(super) reason: Option<String>,
    /// Outcomes by attempt number; none where the attempt runs.
    pub(super) attempts: BTreeMap<u32, Option<Outcome>>,
}

impl From<EventDetail> for Stored {
    fn from(found: EventDetail) -> Self {
        let job = |JobDetail { job, attempts, .. }: JobDetail| Job {
            handler: job.handler.to_string(),
            state: job.state,
            reason: job.reason,
            attempts: attempts.iter().map(|one| (one.number, one.outcome)).collect(),
        };
        let jobs = found.jobs.into_iter().map(job).collect();
        Stored { event: found.event.event_id.to_string(), jobs }
    }
}

/// What a comparison of the evidence gives.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    /// Events begun to be delivered.
    pub(crate) sent: usize,
    /// Events answered 2xx.
    pub(crate) acknowledged: usize,
    /// Events in the store.
    pub(crate) stored: usize,
    /// Attempts begun, by the handlers' own ledger.
    pub(crate) started: usize,
    /// Attempts that ended, by the same.
    pub(crate) finished: usize,
    /// Events acknowledged that are not in the store with all their jobs.
    pub(crate) lost: usize,
    /// Events stored or run again without a right to it.
    pub(crate) doubled: usize,
    /// Jobs whose outcome is not known.
    pub(crate) unknown: usize,
    pub(crate) broken: Vec<Broken>,
}

/// One broken promise.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Broken {
    kind: Kind,
    pub(crate) event: String,
    /// What was seen, as a lower-case fragment.
    pub(crate) what: String,
}

/// The kind of promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Acknowledged and not stored.
    Lost,
    /// Stored or run twice.
    Doubled,
    /// An outcome is unknown where it should not be.
    Unknown,
    /// Neither succeeded nor held.
    Unfinished,
    /// Store, handlers and answers contradict each other.
    Contradicted,
}

impl Account {
    pub(crate) fn of(evidence: &Evidence) -> Self {
        let Evidence { sent, stored, ledger, .. } = evidence;
        let mut account = Account {
            sent: sent.len(),
            acknowledged: sent.iter().filter(|one| one.answer == Answered::Acknowledged).count(),
            stored: stored.len(),
            started: ledger.attempts().map(|(.., trace)| trace.starts).sum(),
            finished: ledger.attempts().filter(|(.., trace)| trace.ended || trace.failed).count(),
            ..Account::default()
        };
        let mut by_event: BTreeMap<&str, &Stored> = BTreeMap::new();
        for one in stored {
            if by_event.insert(&one.event, one).is_some() {
                account.add(Kind::Doubled, &one.event, "stored twice");
            }
        }
        for one in sent {
            account.check_delivery(one, by_event.remove(one.event.as_str()));
        }
        for event in by_event.keys() {
            account.add(Kind::Contradicted, event, "stored, and nobody sent it");
        }
        let mut claimed = BTreeSet::new();
        for Stored { event, jobs } in stored {
            for job in jobs {
                account.check_attempts(event, job, ledger.of(&job.handler, event));
                account.check_state(event, job, evidence.runner_kills > 0);
                let attempt = |number: &u32| (job.handler.as_str(), event.as_str(), *number);
                claimed.extend(job.attempts.keys().map(attempt));
            }
        }
        for (handler, event, number, _) in ledger.attempts() {
            // A handler began before the store had claimed its job.
            if !claimed.contains(&(handler, event, number)) {
                let what = format!("attempt {number} of {handler} was begun and is not stored");
                account.add(Kind::Contradicted, event, what);
            }
        }
        for line in &ledger.odd {
            let what = format!("the handlers' ledger has a line {line:?}");
            account.add(Kind::Contradicted, "", what);
        }
        account.broken.sort();
        account.lost = account.events(Kind::Lost);
        account.doubled = account.events(Kind::Doubled);
        account
    }

    fn add(&mut self, kind: Kind, event: &str, what: impl Into<String>) {
        self.broken.push(Broken { kind, event: event.to_owned(), what: what.into() });
    }

    /// How many events have a broken promise of this kind.
    fn events(&self, kind: Kind) -> usize {
        let of_kind = self.broken.iter().filter(|broken| broken.kind == kind);
        of_kind.map(|broken| &broken.event).collect::<BTreeSet<_>>().len()
    }

    /// Promise 1, and that every delivery is answered 2xx once the receiver is left alone.
    fn check_delivery(&mut self, sent: &Sent, stored: Option<&Stored>) {
        let event = &sent.event;
        match sent.answer {
            Answered::Acknowledged if stored.is_none() => {
                self.add(Kind::Lost, event, "answered 2xx and not stored");
            }
            Answered::Acknowledged => {}
            Answered::Never => self.add(Kind::Unfinished, event, "never answered 2xx"),
            Answered::Refused(status) => {
                self.add(Kind::Unfinished, event, format!("answered {status}"));
            }
        }
        let Some(Stored { jobs, .. }) = stored else { return };
        for handler in sent.handlers {
            match jobs.iter().filter(|job| job.handler == *handler).count() {
                1 => {}
                // One transaction makes the event and its jobs, so even an unanswered one has all.
                0 => self.add(Kind::Lost, event, format!("stored without its job for {handler}")),
                n => self.add(Kind::Doubled, event, format!("{n} jobs for {handler}")),
            }
        }
    }

    /// Promises 3, 4 and 5 of one job's attempts.
    fn check_attempts(&mut self, event: &str, job: &Job, traces: &BTreeMap<u32, Trace>) {
        let attempt = |number: &u32| format!("attempt {number} of {}", job.handler);
        for (number, trace) in traces {
            if trace.starts > 1 {
                let what = format!("{} was begun {} times", attempt(number), trace.starts);
                self.add(Kind::Doubled, event, what);
            }
            if let Some(why) = forbidden(*number, trace, job, traces) {
                let what = format!("{} was begun, and {why}", attempt(number));
                self.add(Kind::Doubled, event, what);
            }
        }
        for (number, outcome) in &job.attempts {
            if let Some(why) = contradiction(job.state, *outcome, traces.get(number)) {
                let what = format!("{} is recorded as {why}", attempt(number));
                self.add(Kind::Contradicted, event, what);
            }
        }
    }

    /// Every job has succeeded; where a runner was killed, what it ran may be held instead.
    fn check_state(&mut self, event: &str, job: &Job, may_be_unknown: bool) {
        let last = job.attempts.last_key_value().and_then(|(_, outcome)| *outcome);
        let unknown = job.state == State::Held || last == Some(Outcome::Unknown);
        self.unknown += usize::from(unknown);
        let is_good = match job.state {
            State::Held => {
                may_be_unknown
                    && last == Some(Outcome::Unknown)
                    && job.reason.as_deref() == Some(HeldReason::UnknownOutcome.as_str())
            }
            state => state == State::Succeeded && !unknown,
        };
        if !is_good {
            let kind = if unknown { Kind::Unknown } else { Kind::Unfinished };
            let reason = job.reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
            self.add(kind, event, format!("{} is {}{reason}", job.handler, job.state));
        }
    }
}

/// Why this attempt must not have been begun: an earlier one was not known to have failed by then.
fn forbidden(
    number: u32,
    trace: &Trace,
    job: &Job,
    traces: &BTreeMap<u32, Trace>,
) -> Option<String> {
    job.attempts.range(..number).find_map(|(earlier, outcome)| {
        let over = traces.get(earlier).is_none_or(|before| before.last < trace.first);
        match outcome {
            Some(Outcome::Failed | Outcome::NotStarted) if over => None,
            Some(Outcome::Failed) => Some(format!("attempt {earlier} still ran")),
            Some(outcome) => Some(format!("attempt {earlier} was {outcome}")),
            None => Some(format!("attempt {earlier} runs")),
        }
    })
}

/// What the store records of an attempt that its job's state or the handler's own lines deny.
fn contradiction(
    state: State,
    outcome: Option<Outcome>,
    trace: Option<&Trace>,
) -> Option<&'static str> {
    let ended = trace.is_some_and(|trace| trace.ended);
    match outcome {
        None if state != State::Running => Some("running, and its job is not"),
        Some(Outcome::Succeeded) if !ended => Some("succeeded, and did not end"),
        // One that cannot even write its first line fails too.
        Some(Outcome::Failed) if trace.is_some_and(|trace| !trace.failed) => {
            Some("failed, and did not say so")
        }
        Some(Outcome::NotStarted) if trace.is_some() => Some("never started, and it was"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
