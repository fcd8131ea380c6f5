//! Checks the promises: compares what was sent and acknowledged, what the store holds, and what the
//! handlers wrote.
//!
//! The drill and the crash tests call [`Account::of`] when all jobs have reached a final state. It is
//! pure, so that its tests can falsify each input. Must stay true: a broken promise in the evidence is
//! always reported with its event.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::ledger::{Ledger, Trace};
use crate::model::{HeldReason, Outcome, State};
use crate::store::{EventDetail, JobDetail};

/// The facts to compare, collected when every job has reached a final state.
pub(crate) struct Evidence {
    pub(crate) sent: Vec<Sent>,
    pub(crate) stored: Vec<Stored>,
    pub(crate) ledger: Ledger,
    /// How often the runner was killed. An outcome may be unknown only if this is not 0.
    pub(crate) runner_kills: usize,
}

/// An event as its provider sees it.
pub(crate) struct Sent {
    pub(super) event: String,
    /// The handlers that must get a job for it.
    pub(super) handlers: &'static [&'static str],
    pub(super) answer: Answered,
}

/// The answer to an event's last delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    Never,
    /// The answer was a 2xx.
    Acknowledged,
    /// The answer was a status that no genuine delivery may get.
    Refused(u16),
}

/// An event in the store.
pub(crate) struct Stored {
    pub(crate) event: String,
    pub(crate) jobs: Vec<Job>,
}

/// A job of a stored event.
pub(crate) struct Job {
    pub(super) handler: String,
    pub(crate) state: State,
    pub(super) reason: Option<String>,
    /// Outcomes by attempt number; `None` while the attempt runs.
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

/// The result of the comparison.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Account {
    /// Events with at least one delivery.
    pub(crate) sent: usize,
    /// Events that were answered 2xx.
    pub(crate) acknowledged: usize,
    /// Events in the store.
    pub(crate) stored: usize,
    /// Attempts that began, according to the handlers' ledger.
    pub(crate) started: usize,
    /// Attempts that ended, according to the handlers' ledger.
    pub(crate) finished: usize,
    /// Acknowledged events that are not in the store with all their jobs.
    pub(crate) lost: usize,
    /// Events that were stored twice, or run again although no rule allowed it.
    pub(crate) doubled: usize,
    /// Jobs with an unknown outcome.
    pub(crate) unknown: usize,
    pub(crate) broken: Vec<Broken>,
}

/// One broken promise.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Broken {
    kind: Kind,
    pub(crate) event: String,
    /// The observation, as a lower-case fragment.
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
    /// An outcome is unknown although the runner was not killed.
    Unknown,
    /// A job neither succeeded nor is held, or a delivery was not acknowledged.
    Unfinished,
    /// The store, the handlers' ledger and the answers contradict each other.
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
            account.add(Kind::Contradicted, event, "stored, and not sent");
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
            // The handler ran, but the store has no claim for this attempt.
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

    /// The number of events with a broken promise of this kind.
    fn events(&self, kind: Kind) -> usize {
        let of_kind = self.broken.iter().filter(|broken| broken.kind == kind);
        of_kind.map(|broken| &broken.event).collect::<BTreeSet<_>>().len()
    }

    /// Checks promise 1, and that every delivery was answered 2xx in the end.
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
                // One transaction stores the event with its jobs, so an event without an answer has
                // all its jobs too.
                0 => self.add(Kind::Lost, event, format!("stored without its job for {handler}")),
                n => self.add(Kind::Doubled, event, format!("{n} jobs for {handler}")),
            }
        }
    }

    /// Checks promises 3, 4 and 5 for one job's attempts.
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

    /// Checks that the job succeeded. If the runner was killed, it may be held with an unknown outcome.
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

/// Why this attempt must not have started: an earlier attempt was not known to have failed by then.
/// `None` if it was allowed.
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

/// What the store records for an attempt although the job's state or the handler's ledger contradicts
/// it. `None` without a contradiction.
fn contradiction(
    state: State,
    outcome: Option<Outcome>,
    trace: Option<&Trace>,
) -> Option<&'static str> {
    let ended = trace.is_some_and(|trace| trace.ended);
    match outcome {
        None if state != State::Running => Some("running, and its job is not"),
        Some(Outcome::Succeeded) if !ended => Some("succeeded, and did not end"),
        // An attempt without lines may have failed before it could write its first line.
        Some(Outcome::Failed) if trace.is_some_and(|trace| !trace.failed) => {
            Some("failed, and did not say so")
        }
        Some(Outcome::NotStarted) if trace.is_some() => Some("never started, and it was"),
        None
        | Some(
            Outcome::Succeeded
            | Outcome::Failed
            | Outcome::NotStarted
            | Outcome::Rejected
            | Outcome::TimedOut
            | Outcome::Unknown
            | Outcome::Cancelled,
        ) => None,
    }
}

#[cfg(test)]
mod tests;
