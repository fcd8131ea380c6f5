//! Checks the promises from outside: against the answers to providers, the attempts given to handlers, the
//! handlers' results and the operator's commands.
//!
//! It does not know states or due times. So it finds an error that the model shares with the store, if the
//! error breaks a promise.

use std::collections::BTreeMap;

use hooklatch::model::{HeldReason, JobId, OnUnknown, Outcome, State};
use hooklatch::retry::Policy;
use hooklatch::store::{
    Accepted, Claimed, EventDetail, JobRow, OutputExcerpt, Record, RecoveryResult,
};

use super::deliveries::Delivery;
use super::model::is_command;

/// The event's source, id, type and body.
type EventKey = (String, String, String, String);

#[derive(Debug, Clone)]
struct Seen {
    received_at: i64,
    jobs: Option<usize>,
    held: Option<HeldReason>,
}

#[derive(Debug, Clone)]
struct Work {
    handler: String,
    event: EventKey,
    /// When its event arrived, if the test has seen that.
    received_at: Option<i64>,
    /// The last attempt that was claimed or completed.
    last: u32,
    live: bool,
    /// Why another attempt may begin.
    licence: Option<&'static str>,
}

impl Work {
    /// A job that the test has not seen yet.
    fn unseen(handler: &str) -> Self {
        let (event, handler) = (EventKey::default(), handler.to_owned());
        Work { handler, event, received_at: None, last: 0, live: false, licence: None }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    /// Everything that was answered 2xx, by source, id, type and content.
    acknowledged: BTreeMap<EventKey, Seen>,
    work: BTreeMap<JobId, Work>,
    /// The handlers' results, which may not have been recorded.
    said: BTreeMap<(JobId, u32), (Outcome, Record)>,
    /// The last event of each handler and group that began without having been put back.
    begun: BTreeMap<(String, String), u64>,
}

impl Ledger {
    pub(crate) fn accepted(&mut self, delivery: &Delivery, answer: &Accepted, now: i64) {
        let Delivery { source, id, kind, content, .. } = delivery;
        let event: EventKey = (source.to_string(), id.clone(), kind.clone(), content.clone());
        let same_id = |other: &EventKey| other.0 == event.0 && other.1 == event.1;
        match *answer {
            Accepted::Created { jobs, held, .. } => {
                let again = self.acknowledged.contains_key(&event)
                    || (delivery.id_signed() && self.acknowledged.keys().any(same_id));
                assert!(!again, "promise 2: a second event of {event:?}");
                let seen = Seen { received_at: now, jobs: Some(jobs), held };
                self.acknowledged.insert(event, seen);
            }
            Accepted::Duplicate { first_received_at, conflict: false, .. } => {
                let seen = Seen { received_at: first_received_at.0, jobs: None, held: None };
                let first = self.acknowledged.entry(event).or_insert(seen);
                assert_eq!(first.received_at, first_received_at.0, "the first delivery's time");
            }
            Accepted::Duplicate { .. } => {}
        }
    }

    pub(crate) fn claimed(&mut self, claimed: &Claimed) {
        let facts = &claimed.facts;
        let event: EventKey = (
            facts.source.to_string(),
            facts.event_id.to_string(),
            facts.event_type.to_string(),
            String::from_utf8(facts.body.to_vec()).unwrap(),
        );
        let handler = facts.handler.as_str();
        let held = self.acknowledged.get(&event).is_some_and(|seen| seen.held.is_some());
        let twin = self
            .work
            .iter()
            .find(|(id, work)| **id != facts.job && work.handler == handler && work.event == event);
        assert!(twin.is_none(), "promises 2 and 6: {event:?} runs under two keys");
        match self.work.get_mut(&facts.job) {
            None => {
                assert!(!held, "{event:?} is held and runs by itself");
                let work = Work {
                    handler: handler.to_owned(),
                    event,
                    received_at: Some(facts.received_at.0),
                    last: facts.attempt,
                    live: true,
                    licence: None,
                };
                self.work.insert(facts.job, work);
            }
            Some(work) => {
                assert!(!work.live, "promise 3: two attempts of {}", facts.job);
                assert!(work.licence.is_some(), "promise 4: {} ran again unasked", facts.job);
                assert!(facts.attempt > work.last, "attempt {} was there before", facts.attempt);
                if work.received_at.is_some() {
                    assert_eq!(
                        (&work.event, work.handler.as_str()),
                        (&event, handler),
                        "promise 6"
                    );
                }
                (work.event, work.received_at) = (event, Some(facts.received_at.0));
                (work.last, work.live, work.licence) = (facts.attempt, true, None);
            }
        }
    }

    /// Notes the first start of a job of a group, which nobody put back: those are in the order of arrival (I6).
    pub(crate) fn first_start(&mut self, handler: &str, key: &str, event: u64) {
        let last = self.begun.entry((handler.to_owned(), key.to_owned())).or_default();
        assert!(*last < event, "I6: event {event} of {handler} {key} begins after event {last}");
        *last = event;
    }

    /// Notes that a handler ended; the result may or may not be recorded.
    pub(crate) fn said(&mut self, job: JobId, attempt: u32, outcome: Outcome, record: Record) {
        self.said.insert((job, attempt), (outcome, record));
    }

    pub(crate) fn completed(&mut self, job: JobId, attempt: u32, policy: &Policy) {
        let work = self.work.get_mut(&job).unwrap();
        assert!(work.live && work.last == attempt, "a result of {job} came late and was taken");
        work.live = false;
        work.licence = match self.said[&(job, attempt)].0 {
            Outcome::Failed => Some("it failed"),
            Outcome::NotStarted => Some("it never began"),
            Outcome::TimedOut | Outcome::Unknown => rerun(policy),
            Outcome::Succeeded | Outcome::Rejected | Outcome::Cancelled => None,
        };
    }

    /// Notes a start after any end: every attempt that ran in the receiver is `unknown` now, and those of a
    /// runner still run.
    pub(crate) fn recovered(
        &mut self,
        recovered: &RecoveryResult,
        policy: impl Fn(&str) -> Option<Policy>,
    ) {
        for &(job, attempt, _) in &recovered.unknown {
            // An attempt that is missing here was claimed by a receiver that died before it used the claim.
            let Some(work) = self.work.get_mut(&job) else { continue };
            assert!(!work.live || work.last == attempt, "another attempt of {job} was live");
            work.live = false;
            work.last = attempt;
            work.licence = policy(&work.handler).as_ref().and_then(rerun);
        }
        let own = |work: &Work| work.live && !is_command(&work.handler);
        let lost: Vec<_> = self.work.iter().filter(|(_, work)| own(work)).collect();
        assert!(lost.is_empty(), "promise 5: nothing was recorded of the attempts {lost:?}");
    }

    /// Checks that a start adopts all attempts that ran under the runner.
    pub(crate) fn adopted(&mut self, running: &[(JobId, u32, &str)]) {
        for &(job, attempt, handler) in running {
            let work = self.work.entry(job).or_insert_with(|| Work::unseen(handler));
            assert!(!work.live || work.last == attempt, "promise 3: two attempts of {job}");
            assert!(attempt >= work.last, "attempt {attempt} of {job} is over");
            (work.last, work.live, work.licence) = (attempt, true, None);
        }
        let here = |job: &JobId| running.iter().any(|(one, ..)| one == job);
        let lost: Vec<_> = self.work.iter().filter(|(job, work)| work.live && !here(job)).collect();
        assert!(lost.is_empty(), "promise 4: the running attempts {lost:?} are forgotten");
    }

    /// Notes the jobs that the operator replayed.
    pub(crate) fn replayed(&mut self, jobs: &[JobId], handlers: &[&str]) {
        for (job, handler) in jobs.iter().zip(handlers) {
            let work = self.work.entry(*job).or_insert_with(|| Work::unseen(handler));
            work.licence = Some("the operator said so");
        }
    }

    /// Notes that events which arrived before `ids` may be deleted now, with their jobs.
    pub(crate) fn expired(&mut self, ids: i64) {
        self.acknowledged.retain(|_, seen| seen.received_at >= ids);
        self.work.retain(|_, work| work.live || work.received_at.is_none_or(|at| at >= ids));
    }

    /// Checks promise 1 against the whole listing, and promise 5: every outcome was reported by a handler.
    pub(crate) fn check(&self, stored: &[EventDetail]) {
        for ((source, id, kind, content), seen) in &self.acknowledged {
            let found: Vec<_> = stored
                .iter()
                .filter(|d| d.event.source.as_str() == source && d.event.event_id.as_str() == id)
                .filter(|d| d.event.received_at.0 == seen.received_at)
                .filter(|d| d.event.event_type == *kind)
                .collect();
            assert!(!found.is_empty(), "promise 1: {source} {id} {content} is not there");
            let jobs = found.iter().map(|d| d.event.jobs.values().sum::<u64>()).max();
            let made = seen.jobs.map(|jobs| jobs as u64);
            assert!(jobs >= made, "promise 1: {source} {id} lost a job");
        }
        let jobs = stored.iter().flat_map(|d| d.jobs.iter().map(|job| (job, d.event.payload_kept)));
        for (job, payload_kept) in jobs {
            // Only the last attempt of a running job runs.
            let live = job.attempts.iter().filter(|attempt| attempt.outcome.is_none());
            let live: Vec<u32> = live.map(|attempt| attempt.number).collect();
            let JobRow { job: id, state, attempt, .. } = &job.job;
            let runs = (*state == State::Running).then_some(*attempt);
            assert_eq!(live, Vec::from_iter(runs), "promise 3: live attempts of {id}, {state}");
            for attempt in &job.attempts {
                let said = self.said.get(&(job.job.job, attempt.number));
                match (attempt.outcome, said) {
                    (None | Some(Outcome::Unknown), _) => {}
                    (Some(outcome), Some((said, record))) => {
                        let mut record = record.clone();
                        if !payload_kept {
                            // The output is deleted with the payload; its size stays.
                            for output in [&mut record.stdout, &mut record.stderr] {
                                *output = OutputExcerpt {
                                    total: output.total,
                                    ..OutputExcerpt::default()
                                };
                            }
                        }
                        assert_eq!((outcome, &attempt.record), (*said, &record), "promise 5");
                    }
                    (Some(outcome), None) => {
                        panic!("promise 5: {} {outcome}, which no handler reported", job.job.job);
                    }
                }
            }
        }
    }
}

fn rerun(policy: &Policy) -> Option<&'static str> {
    (policy.on_unknown == OnUnknown::Rerun).then_some("its handler's policy is rerun")
}
