//! The account of a drill: what was sent and answered, what the store holds and what the handlers say
//! that they did, held against the promises.
//!
//! Pure, so that the tests can doctor each of the three.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::model::{HeldReason, Outcome, State};

use super::ledger::{Ledger, Trace};

/// All that is known after a drill.
pub(super) struct Evidence {
    pub(super) sent: Vec<Sent>,
    pub(super) stored: Vec<Stored>,
    pub(super) ledger: Ledger,
    /// How often the runner was killed: only then may an outcome be unknown.
    pub(super) runner_kills: usize,
}

/// An event as its provider sees it.
pub(super) struct Sent {
    pub(super) event: String,
    /// The handlers that want it.
    pub(super) handlers: Vec<&'static str>,
    pub(super) answer: Answered,
}

/// How an event's last delivery was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answered {
    /// Not at all.
    Never,
    /// With a 2xx.
    Acknowledged,
    /// With a status that no delivery of a drill may get.
    Refused(u16),
}

/// An event as the store has it.
pub(super) struct Stored {
    pub(super) event: String,
    pub(super) jobs: Vec<Job>,
}

/// One of its jobs.
pub(super) struct Job {
    pub(super) handler: String,
    pub(super) state: State,
    pub(super) reason: Option<String>,
    /// Outcomes by attempt number; none where the attempt runs.
    pub(super) attempts: BTreeMap<u32, Option<Outcome>>,
}

/// The ledger of a drill.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Account {
    /// Events begun to be delivered.
    pub(super) sent: usize,
    /// Events answered 2xx.
    pub(super) acknowledged: usize,
    /// Events in the store.
    pub(super) stored: usize,
    /// Attempts begun, by the handlers' own ledger.
    pub(super) started: usize,
    /// Attempts that came to their end, by the same.
    pub(super) finished: usize,
    /// Events acknowledged that are not in the store with all their jobs.
    pub(super) lost: usize,
    /// Events stored, or run, again without a right to it.
    pub(super) doubled: usize,
    /// Jobs whose outcome nobody knows.
    pub(super) unknown: usize,
    /// What is not as promised.
    pub(super) broken: Vec<Broken>,
}

/// One broken promise.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Broken {
    pub(super) kind: Kind,
    pub(super) event: String,
    /// What was seen, as a lower-case fragment.
    pub(super) what: String,
}

/// What sort of promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Acknowledged and not there.
    Lost,
    /// There, or run, twice.
    Doubled,
    /// An outcome is unknown where it should not be.
    Unknown,
    /// Neither succeeded nor held.
    Unfinished,
    /// Store, handlers and answers contradict each other.
    Contradicted,
}

/// Holds the evidence against the promises.
pub(super) fn account(evidence: &Evidence) -> Account {
    let Evidence { sent, stored, ledger, .. } = evidence;
    let mut account = Account {
        sent: sent.len(),
        acknowledged: sent.iter().filter(|one| one.answer == Answered::Acknowledged).count(),
        stored: stored.len(),
        started: ledger.started(),
        finished: ledger.finished(),
        ..Account::default()
    };
    let mut by_event: BTreeMap<&str, &Stored> = BTreeMap::new();
    for one in stored {
        if by_event.insert(&one.event, one).is_some() {
            account.breaks(Kind::Doubled, &one.event, "stored twice");
        }
    }
    for one in sent {
        account.delivered(one, by_event.remove(one.event.as_str()));
    }
    for event in by_event.keys() {
        account.breaks(Kind::Contradicted, event, "stored, and nobody sent it");
    }
    for one in stored {
        for job in &one.jobs {
            account.judge(&one.event, job, evidence);
        }
    }
    account.begun_of_nothing(evidence);
    account.broken.sort();
    let events = |kind| {
        let of_kind = account.broken.iter().filter(|broken| broken.kind == kind);
        of_kind.map(|broken| &broken.event).collect::<BTreeSet<_>>().len()
    };
    (account.lost, account.doubled) = (events(Kind::Lost), events(Kind::Doubled));
    account
}

impl Account {
    /// Whether every promise held.
    pub(super) fn kept(&self) -> bool {
        self.broken.is_empty()
    }

    fn breaks(&mut self, kind: Kind, event: &str, what: impl Into<String>) {
        self.broken.push(Broken { kind, event: event.to_owned(), what: what.into() });
    }

    /// Promise 1, and that every delivery is answered 2xx once the receiver is left alone.
    fn delivered(&mut self, sent: &Sent, stored: Option<&Stored>) {
        match sent.answer {
            Answered::Acknowledged => {}
            Answered::Never => self.breaks(Kind::Unfinished, &sent.event, "never answered 2xx"),
            Answered::Refused(status) => {
                self.breaks(Kind::Unfinished, &sent.event, format!("answered {status}"));
            }
        }
        let acknowledged = sent.answer == Answered::Acknowledged;
        let Some(stored) = stored else {
            if acknowledged {
                self.breaks(Kind::Lost, &sent.event, "answered 2xx and not stored");
            }
            return;
        };
        for handler in &sent.handlers {
            match stored.jobs.iter().filter(|job| job.handler == *handler).count() {
                1 => {}
                // One transaction makes the event and its jobs, so even an unanswered one has all.
                0 => self.breaks(
                    Kind::Lost,
                    &sent.event,
                    format!("stored without its job for {handler}"),
                ),
                n => self.breaks(Kind::Doubled, &sent.event, format!("{n} jobs for {handler}")),
            }
        }
    }

    /// Promises 3, 4 and 5 of one job.
    fn judge(&mut self, event: &str, job: &Job, evidence: &Evidence) {
        let handler = &job.handler;
        let traces = evidence.ledger.of(handler, event);
        for (number, trace) in traces {
            if trace.starts > 1 {
                let what =
                    format!("attempt {number} of {handler} was begun {} times", trace.starts);
                self.breaks(Kind::Doubled, event, what);
            }
            if let Some(why) = no_right_to(*number, trace, job, traces) {
                let what = format!("attempt {number} of {handler} was begun, and {why}");
                self.breaks(Kind::Doubled, event, what);
            }
        }
        for (number, outcome) in &job.attempts {
            if let Some(lie) = contradiction(*outcome, traces.get(number)) {
                let what = format!("attempt {number} of {handler} is recorded as {lie}");
                self.breaks(Kind::Contradicted, event, what);
            }
        }
        self.settled(event, job, evidence.runner_kills > 0);
    }

    /// Every job has succeeded; where a runner was killed, what it ran may be held instead.
    fn settled(&mut self, event: &str, job: &Job, may_be_unknown: bool) {
        let handler = &job.handler;
        let last = job.attempts.last_key_value().and_then(|(_, outcome)| *outcome);
        let unknown = job.state == State::Held
            && job.reason.as_deref() == Some(HeldReason::UnknownOutcome.as_str())
            && last == Some(Outcome::Unknown);
        let reason = job.reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        if job.state == State::Held || last == Some(Outcome::Unknown) {
            self.unknown += 1;
            if !(unknown && may_be_unknown) {
                let what = format!("{handler} is {}{reason}", job.state);
                self.breaks(Kind::Unknown, event, what);
            }
        } else if job.state != State::Succeeded {
            let what = format!("{handler} is {}{reason}", job.state);
            self.breaks(Kind::Unfinished, event, what);
        }
    }

    /// What handlers began that the store does not know of: it was begun before it was claimed.
    fn begun_of_nothing(&mut self, evidence: &Evidence) {
        let claimed: BTreeSet<(&str, &str, u32)> = evidence
            .stored
            .iter()
            .flat_map(|stored| stored.jobs.iter().map(move |job| (stored.event.as_str(), job)))
            .flat_map(|(event, job)| {
                job.attempts.keys().map(move |number| (job.handler.as_str(), event, *number))
            })
            .collect();
        for (handler, event, number) in evidence.ledger.attempts() {
            if !claimed.contains(&(handler, event, number)) {
                let what = format!("attempt {number} of {handler} was begun and is not stored");
                self.breaks(Kind::Contradicted, event, what);
            }
        }
        for line in evidence.ledger.odd() {
            self.breaks(
                Kind::Contradicted,
                "",
                format!("the handlers' ledger has a line {line:?}"),
            );
        }
    }
}

/// Why this attempt must not have been begun: an earlier one was not known to have failed by then.
fn no_right_to(
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

/// What an outcome says that the handler's own words deny.
fn contradiction(outcome: Option<Outcome>, trace: Option<&Trace>) -> Option<&'static str> {
    let (begun, ended, failed) =
        trace.map_or((false, false, false), |trace| (true, trace.ended, trace.failed));
    match outcome {
        Some(Outcome::Succeeded) if !ended => Some("succeeded, and did not end"),
        // One that cannot even write its first line fails too.
        Some(Outcome::Failed) if begun && !failed => Some("failed, and did not say so"),
        Some(Outcome::NotStarted) if begun => Some("never started, and it was"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
