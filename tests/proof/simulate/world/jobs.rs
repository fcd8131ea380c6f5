//! The steps of a job: claim, completion, repeated completion and replay.

use std::time::Duration;

use hooklatch::model::{Blob, Outcome, State};
use hooklatch::retry::{History, Next, Policy};
use hooklatch::store::{Completion, Error, OutputExcerpt, Record, Replay, Resolution};

use super::super::compare;
use super::super::model::{self, No};

use super::{GONE, HANDLERS, Running, World, runner};

/// How attempts end, by weight.
const OUTCOMES: &[(usize, Outcome)] = &[
    (8, Outcome::Succeeded),
    (6, Outcome::Failed),
    (2, Outcome::Rejected),
    (2, Outcome::TimedOut),
    (2, Outcome::Unknown),
    (1, Outcome::Cancelled),
    (2, Outcome::NotStarted),
];

impl World<'_> {
    pub(super) async fn claim(&mut self) {
        if self.policies.is_empty() {
            return;
        }
        let handler = self.random.pick(&self.policies).0;
        let limit = self.random.below(5);
        self.note(format!("claim {limit} for {handler}"));
        let waiting = self.memory.model.in_state(State::Waiting);
        let rows = self.memory.model.claim(handler, limit, self.now());
        self.saw("claimed", rows.len() as u64);
        self.saw(
            "claimed after a wait",
            rows.iter().filter(|row| waiting.contains(row)).count() as u64,
        );
        let runner = model::is_command(handler).then(runner);
        let name = handler.parse().unwrap();
        let claims = self.ask(self.store.jobs.claim(&name, limit, runner)).await;
        let Some(claims) = claims.map(Result::unwrap) else { return };
        let model = &self.memory.model;
        let due = if rows.len() < limit { model.next_due(handler) } else { None };
        assert_eq!(claims.due.map(|due| due.0), due, "when the next job is due");
        let claimed = claims.jobs;
        let found: Vec<_> = claimed.iter().map(|c| Some(c.facts.job)).collect();
        let expected: Vec<_> = rows.iter().map(|row| model.jobs[row].id).collect();
        assert_eq!(found, expected, "what {handler} was given");
        for (claimed, row) in claimed.iter().zip(rows) {
            let (facts, job) = (&claimed.facts, &model.jobs[&row]);
            let event = &model.events[&job.event];
            let number = u32::try_from(job.attempts.len()).unwrap();
            assert_eq!(facts.body, event.delivery.body.as_bytes(), "the body, byte for byte");
            assert_eq!(
                (
                    facts.attempt,
                    facts.replays,
                    facts.received_at.0,
                    claimed.counted,
                    claimed.since.0
                ),
                (number, job.replays, event.received_at, job.counted, model.since(row, self.now())),
                "attempt, replays, arrival, attempts counted and since when"
            );
            self.memory.ledger.claimed(claimed);
            if let (Some((key, _)), 0, 1) = (&job.group, job.replays, number) {
                self.memory.ledger.first_start(handler, key, job.event);
            }
            let (job, counted, since) = (facts.job, claimed.counted, claimed.since);
            let running = Running { row, job, number, counted, since, handler };
            self.memory.running.push(running);
        }
    }

    pub(super) fn policy(&self, handler: &str) -> Option<Policy> {
        self.policies.iter().find(|(name, _)| *name == handler).map(|(_, policy)| policy.clone())
    }

    pub(super) async fn complete(&mut self) {
        if self.memory.running.is_empty() {
            return;
        }
        let at = self.random.below(self.memory.running.len());
        let running = self.memory.running.swap_remove(at);
        for outcome in Outcome::ALL {
            assert!(OUTCOMES.iter().any(|(_, one)| one == outcome), "{outcome} never happens");
        }
        let outcome = self.random.weighted(OUTCOMES);
        // The handler may have been removed from the configuration while its command ran.
        let policy = self.policy(running.handler).unwrap_or(GONE);
        let now = self.clock.now();
        // A handler that cannot run at all pauses as a whole, and its jobs lose no attempt.
        let pause = outcome == Outcome::Failed && self.random.one_in(5);
        let counts = !pause && outcome != Outcome::NotStarted;
        let wish = self.random.one_in(4).then(|| self.random.below(20_000_000) as i64);
        let counted = running.counted + u32::from(counts);
        let next = if pause {
            Next::Wait { due_at: now.after(Duration::from_secs(30)) }
        } else {
            let history = History { counted, since: running.since };
            let asked = wish.map(|ms| Duration::from_millis(ms as u64));
            let next = policy.next(outcome, history, asked, now);
            let since = running.since.0;
            let expected = model::next(&policy, outcome, counted, since, wish, now.0);
            assert_eq!(next, expected, "where {outcome} leads after {history:?} under {policy:?}");
            next
        };
        self.note(format!("complete {running:?}: {outcome}, {next:?}"));
        let what = match next {
            Next::Succeeded => "succeeded",
            Next::Wait { .. } => "waiting",
            Next::Ready => "ready again",
            Next::Dead(reason) => reason.as_str(),
            Next::Held(reason) => reason.as_str(),
        };
        self.saw(what, 1);
        let done = self.completion(&running, outcome, counts, next);
        self.memory.ledger.said(running.job, running.number, outcome, done.record.clone());
        self.memory.ledger.completed(running.job, running.number, &policy);
        let (row, number) = (running.row, running.number as usize);
        assert!(self.memory.model.complete(row, number, outcome, counts, next, now.0));
        let Some(taken) = self.ask(self.store.jobs.complete(done)).await else { return };
        assert_eq!(taken, Ok(true), "the result of the running attempt was not taken");
        let ended = &self.memory.model.jobs[&row];
        let superseded = u64::from(ended.state == State::Dropped);
        self.saw("superseded after an attempt", superseded);
        self.memory.past.push(running);
        self.look_at(row).await;
    }

    /// Completes an attempt that is already completed: with the result of an earlier receiver, or a second time.
    pub(super) async fn complete_late(&mut self) {
        if self.memory.past.is_empty() {
            return;
        }
        let running = self.random.pick(&self.memory.past).clone();
        self.note(format!("complete {running:?} late"));
        let done = self.completion(&running, Outcome::Succeeded, true, Next::Succeeded);
        let taken = self.store.jobs.complete(done).await;
        if self.memory.model.jobs.contains_key(&running.row) {
            assert_eq!(taken, Ok(false), "a late result was taken");
            self.saw("late result", 1);
        } else {
            let is_right = match self.database {
                None => matches!(taken, Err(Error::NoJob(_))),
                // Its job may be of a history that is gone, so the report is kept as a late end.
                Some(_) => taken == Ok(false),
            };
            assert!(is_right, "{taken:?}");
            self.saw("result of a deleted job", 1);
        }
        self.look_at(running.row).await;
    }

    pub(super) fn completion(
        &mut self,
        running: &Running,
        outcome: Outcome,
        counts: bool,
        next: Next,
    ) -> Completion {
        let output = self.random.next();
        let head = Blob(output.to_le_bytes().to_vec());
        Completion {
            job: running.job,
            attempt: running.number,
            outcome,
            counts,
            next,
            finished_at: self.clock.now(),
            record: Record {
                detail: format!("{outcome} by attempt {}", running.number),
                exit_code: Some((output % 256) as i32),
                stdout: OutputExcerpt { head, total: 8, ..OutputExcerpt::default() },
                ..Record::default()
            },
            answer: None,
        }
    }

    pub(super) async fn look_at(&mut self, job: u64) {
        let model = &mut self.memory.model;
        let Some(job) = model.jobs.get(&job) else { return };
        let delivery = model.events[&job.event].delivery.clone();
        compare::id(&self.store, model, delivery.source, &delivery.id).await;
    }

    pub(super) async fn replay(&mut self) {
        let regardless = self.random.one_in(3);
        let (model, now) = (&mut self.memory.model, self.clock.now());
        let rows: Vec<u64> = model.jobs.keys().copied().collect();
        let (what, expected) = if rows.is_empty() || self.random.one_in(20) {
            (Replay::Job(hooklatch::random::job_id(now), None), Err(No::NotFound))
        } else if self.random.one_in(2) {
            let row = *self.random.pick(&rows);
            let job = model.jobs[&row].id.unwrap();
            (Replay::Job(job, None), model.replay_job(row, regardless, now.0))
        } else {
            // Sometimes a job whose payload was deleted.
            let any = self.any_delivery();
            let model = &mut self.memory.model;
            let mut gone = model.events.values().filter(|event| !event.payload_kept);
            let about = match gone.next() {
                Some(event) if self.random.one_in(3) => event.delivery.clone(),
                _ => any,
            };
            let source = (!self.random.one_in(4)).then_some(about.source);
            let handler = self.random.one_in(2).then(|| *self.random.pick(&HANDLERS));
            let what = Replay::Event {
                source: source.map(|source| source.parse().unwrap()),
                event: about.id.parse().unwrap(),
                handler: handler.map(|handler| handler.parse().unwrap()),
            };
            (what, model.replay_event(source, &about.id, handler, regardless, now.0))
        };
        self.note(format!("{what:?}, which must come to {expected:?}"));
        let Some(answer) = self.ask(self.store.admin.replay(what, regardless)).await else {
            return;
        };
        match (answer.map(|done| done.jobs), expected) {
            (Ok(jobs), Ok(rows)) => {
                assert_eq!(jobs.len(), rows.len(), "how many jobs were put back");
                let mut handlers = Vec::new();
                for (job, row) in jobs.iter().zip(rows) {
                    let known = self.memory.model.jobs.get_mut(&row).unwrap();
                    assert_eq!(*known.id.get_or_insert(*job), *job, "which job was put back");
                    handlers.push(known.handler);
                    self.look_at(row).await;
                }
                self.saw("put back", jobs.len() as u64);
                self.memory.ledger.replayed(&jobs, &handlers);
            }
            (Err(error), Err(no)) => {
                assert_eq!(reason(&error), Some(no), "{error}");
                self.saw(no.name(), 1);
            }
            (answer, expected) => panic!("a replay came to {answer:?}, not {expected:?}"),
        }
    }
}

impl World<'_> {
    /// A job to drop or to resolve: mostly one that keeps others waiting.
    fn any_job(&mut self) -> Option<u64> {
        let stopped = |job: &model::Job| matches!(job.state, State::Held | State::Dead);
        let jobs = &self.memory.model.jobs;
        let mut rows: Vec<u64> =
            jobs.iter().filter(|(_, job)| stopped(job)).map(|(&row, _)| row).collect();
        if rows.is_empty() || self.random.one_in(3) {
            rows = jobs.keys().copied().collect();
        }
        (!rows.is_empty()).then(|| *self.random.pick(&rows))
    }

    pub(super) async fn drop_job(&mut self) {
        let Some(row) = self.any_job() else { return };
        let job = self.memory.model.jobs[&row].id.unwrap();
        let expected = self.memory.model.drop_job(row, self.now());
        self.note(format!("drop {job}, which must come to {expected:?}"));
        let Some(answer) = self.ask(self.store.admin.drop_job(job, None)).await else { return };
        assert_eq!(
            answer.map_err(|error| reason(&error).unwrap_or_else(|| panic!("{error}"))),
            expected
        );
        self.saw("dropped", u64::from(expected.is_ok()));
        self.look_at(row).await;
    }

    pub(super) async fn resolve(&mut self) {
        let Some(row) = self.any_job() else { return };
        let (well, found) = (self.random.one_in(2), &self.memory.model.jobs[&row]);
        let (job, attempt) = (found.id.unwrap(), found.attempts.len() as u32);
        let expected = self.memory.model.resolve(row, well, self.now());
        self.note(format!("resolve {job}, which must come to {expected:?}"));
        let how = if well { Resolution::Succeeded } else { Resolution::Failed };
        let answer = self.store.admin.resolve(job, attempt, how).await;
        assert_eq!(
            answer.map_err(|error| reason(&error).unwrap_or_else(|| panic!("{error}"))),
            expected
        );
        self.saw("resolved as failed", u64::from(expected == Ok(State::Dead)));
        self.look_at(row).await;
    }
}

fn reason(error: &Error) -> Option<No> {
    match error {
        Error::NoEvent(_) | Error::NoJob(_) | Error::NoId { .. } => Some(No::NotFound),
        Error::WrongState { .. } => Some(No::WrongState),
        Error::Superseded { .. } | Error::OutOfDate { .. } => Some(No::Superseded),
        Error::Ambiguous { .. } | Error::SeveralIds { .. } => Some(No::Ambiguous),
        Error::Variants { .. } => Some(No::Variants),
        Error::PayloadGone { .. } | Error::JobsGone { .. } => Some(No::PayloadGone),
        // The simulation has no requests with keys, no conditions, no long listings, no damage, and one node.
        Error::NewerAttempt { .. }
        | Error::NoRows { .. }
        | Error::LargeBatch { .. }
        | Error::TooSlow(_)
        | Error::Damaged(_)
        | Error::Answered { .. }
        | Error::AnswerNeeded { .. }
        | Error::NobodyWaits { .. }
        | Error::OneHandler { .. }
        | Error::Undecided { .. }
        | Error::UndecidedEvent { .. }
        | Error::Unwanted { .. }
        | Error::Awaited(_)
        | Error::Unavailable(_)
        | Error::Unconfirmed(_) => None,
    }
}
