//! The promises, checked against what the outside has seen: answers to providers, attempts handed to
//! handlers, what handlers said and what the operator asked for.
//!
//! It knows nothing of states or due times. So an error that the model shares with the store is still
//! caught where it breaks a promise.

use std::collections::BTreeMap;

use hooklatch::model::{HeldReason, JobId, OnUnknown, Outcome, State};
use hooklatch::retry::Policy;
use hooklatch::store::{Accepted, Captured, Claimed, EventDetail, JobRow, Record, Recovered};

use super::deliveries::Delivery;
use super::model::is_command;

/// Source, id, type and body.
type Told = (String, String, String, String);

#[derive(Debug, Clone)]
struct Seen {
    received_at: i64,
    jobs: Option<usize>,
    held: Option<HeldReason>,
}

#[derive(Debug, Clone)]
struct Work {
    handler: String,
    told: Told,
    /// When its event arrived, once that was told.
    received_at: Option<i64>,
    /// The last attempt that was handed out or settled.
    last: u32,
    live: bool,
    /// Why another attempt may begin.
    licence: Option<&'static str>,
}

impl Work {
    /// Of a job that nobody was told of yet.
    fn unseen(handler: &str) -> Self {
        let (told, handler) = (Told::default(), handler.to_owned());
        Work { handler, told, received_at: None, last: 0, live: false, licence: None }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    /// Everything that was answered 2xx, by source, id, type and content.
    acknowledged: BTreeMap<Told, Seen>,
    work: BTreeMap<JobId, Work>,
    /// What handlers said, which need not have been recorded.
    said: BTreeMap<(JobId, u32), (Outcome, Record)>,
}

impl Ledger {
    pub(crate) fn accepted(&mut self, delivery: &Delivery, answer: &Accepted, now: i64) {
        let Delivery { source, id, kind, content, .. } = delivery;
        let told: Told = (source.to_string(), id.clone(), kind.clone(), content.clone());
        let same_id = |other: &Told| other.0 == told.0 && other.1 == told.1;
        match *answer {
            Accepted::Created { jobs, held, .. } => {
                let again = self.acknowledged.contains_key(&told)
                    || (delivery.id_signed() && self.acknowledged.keys().any(same_id));
                assert!(!again, "promise 2: a second event of {told:?}");
                let seen = Seen { received_at: now, jobs: Some(jobs), held };
                self.acknowledged.insert(told, seen);
            }
            Accepted::Duplicate { first_received_at, conflict: false, .. } => {
                let seen = Seen { received_at: first_received_at.0, jobs: None, held: None };
                let first = self.acknowledged.entry(told).or_insert(seen);
                assert_eq!(first.received_at, first_received_at.0, "the first delivery's time");
            }
            Accepted::Duplicate { .. } => {}
        }
    }

    pub(crate) fn claimed(&mut self, claimed: &Claimed) {
        let facts = &claimed.facts;
        let told: Told = (
            facts.source.to_string(),
            facts.event_id.to_string(),
            facts.event_type.to_string(),
            String::from_utf8(facts.body.to_vec()).unwrap(),
        );
        let handler = facts.handler.as_str();
        let held = self.acknowledged.get(&told).is_some_and(|seen| seen.held.is_some());
        let twin = self
            .work
            .iter()
            .find(|(id, work)| **id != facts.job && work.handler == handler && work.told == told);
        assert!(twin.is_none(), "promises 2 and 6: {told:?} runs under two keys");
        match self.work.get_mut(&facts.job) {
            None => {
                assert!(!held, "{told:?} is held and runs by itself");
                let work = Work {
                    handler: handler.to_owned(),
                    told,
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
                    assert_eq!((&work.told, work.handler.as_str()), (&told, handler), "promise 6");
                }
                (work.told, work.received_at) = (told, Some(facts.received_at.0));
                (work.last, work.live, work.licence) = (facts.attempt, true, None);
            }
        }
    }

    /// A handler ended; whether that is recorded is another matter.
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

    /// A start after an end of any kind: every attempt of the receiver's own that was live is `unknown`
    /// now, and those of a runner are live.
    pub(crate) fn recovered(
        &mut self,
        recovered: &Recovered,
        policy: impl Fn(&str) -> Option<Policy>,
    ) {
        for &(job, attempt, _) in &recovered.unknown {
            // One that is not here was claimed, and its claimer did not live to hand it out.
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

    /// What a start finds with a runner, which is all that was live with it.
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

    /// The operator put these back.
    pub(crate) fn replayed(&mut self, jobs: &[JobId], handlers: &[&str]) {
        for (job, handler) in jobs.iter().zip(handlers) {
            let work = self.work.entry(*job).or_insert_with(|| Work::unseen(handler));
            work.licence = Some("the operator said so");
        }
    }

    /// Ids that arrived before `ids` may be gone now, with their jobs.
    pub(crate) fn expired(&mut self, ids: i64) {
        self.acknowledged.retain(|_, seen| seen.received_at >= ids);
        self.work.retain(|_, work| work.live || work.received_at.is_none_or(|at| at >= ids));
    }

    /// Promise 1 against the whole listing, and promise 5: no outcome is there that nobody said.
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
            // The last one of what runs, and none of what does not.
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
                            // What was printed is as old as the payload; how much it was stays.
                            for output in [&mut record.stdout, &mut record.stderr] {
                                *output = Captured { total: output.total, ..Captured::default() };
                            }
                        }
                        assert_eq!((outcome, &attempt.record), (*said, &record), "promise 5");
                    }
                    (Some(outcome), None) => {
                        panic!("promise 5: {} {outcome}, which nobody said", job.job.job);
                    }
                }
            }
        }
    }
}

fn rerun(policy: &Policy) -> Option<&'static str> {
    (policy.on_unknown == OnUnknown::Rerun).then_some("its handler's policy is rerun")
}
