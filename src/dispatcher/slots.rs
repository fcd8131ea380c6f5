//! The slots of the handlers: which of them may claim jobs now, and how many.
//!
//! Pure: the caller passes the time. A handler is named by its index, which stays its own while it has an attempt
//! or a claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::handler::{Handler, Room as Capacity};
use crate::limits::Limits;
use crate::model::{Name, RunnerName, Timestamp};
use crate::retry::Policy;
use crate::traffic::{HandlerTraffic, Traffic};

use super::Worker;
use super::backoff::Backoff;

#[derive(Debug)]
pub(super) struct HandlerSlots {
    pub(super) name: Name,
    pub(super) handler: Arc<Handler>,
    pub(super) policy: Policy,
    pub(super) traffic: HandlerTraffic,
    backoff: Backoff,
    concurrency: usize,
    /// Slots of attempts whose end is not with the store yet.
    running: usize,
    /// Slots of claims that have not come back yet, or failed and are not retried yet.
    claiming: usize,
    /// Claims that failed and are not retried yet. Until then the handler makes no other claim.
    failed_claims: usize,
    /// The store may have a job to claim.
    may_have_jobs: bool,
    /// The last claim got as many jobs as it asked for, so there may be more.
    last_claim_full: bool,
    /// When the next waiting job is due, as of the claim with this number.
    due: Option<Timestamp>,
    due_as_of: u64,
    /// Not configured any more, or moved to another runner: it claims nothing, and its attempts run on.
    removed: bool,
}

impl HandlerSlots {
    fn new(worker: Worker, traffic: HandlerTraffic) -> Self {
        // A handler that moved to another runner has not been tried there.
        traffic.ran();
        HandlerSlots {
            name: worker.name,
            handler: Arc::new(worker.handler),
            policy: worker.policy,
            traffic,
            backoff: Backoff::default(),
            concurrency: worker.concurrency.max(1),
            running: 0,
            claiming: 0,
            failed_claims: 0,
            may_have_jobs: true,
            last_claim_full: false,
            due: None,
            due_as_of: 0,
            removed: false,
        }
    }

    /// Takes the new configuration of the same handler.
    fn reload(&mut self, worker: Worker, traffic: HandlerTraffic) {
        self.traffic = traffic;
        if *self.handler != worker.handler {
            self.handler = Arc::new(worker.handler);
            self.reset_back_off();
        } else if self.backoff.end_pause() {
            // The operator who reloads may have fixed it.
            self.traffic.tries_at_once();
        }
        self.policy = worker.policy;
        self.concurrency = worker.concurrency.max(1);
        self.may_have_jobs = true;
    }

    fn reset_back_off(&mut self) {
        if self.backoff.reset() {
            self.traffic.ran();
        }
    }

    /// The runner of its attempts; none where the receiver runs them itself.
    pub(super) fn runner(&self) -> Option<&RunnerName> {
        runner_of(&self.handler)
    }

    fn is_of(&self, worker: &Worker) -> bool {
        self.name == worker.name && self.runner() == runner_of(&worker.handler)
    }

    fn taken(&self) -> usize {
        self.running + self.claiming
    }
}

/// All handlers, and the limit on their slots together.
#[derive(Debug, Default)]
pub(super) struct Slots {
    all: Vec<HandlerSlots>,
    traffic: Traffic,
    limit: usize,
    backoff_base: Duration,
    backoff_max: Duration,
    /// Index of the handler that is asked first for a claim: the one after the last that claimed, so that all
    /// handlers take turns where there are fewer slots than handlers.
    first: usize,
    /// Attempts that each runner has not forgotten yet, those of removed and moved handlers included.
    at_runner: BTreeMap<RunnerName, usize>,
}

impl Slots {
    pub(super) fn new(workers: Vec<Worker>, traffic: &Traffic, limits: &Limits) -> Self {
        let mut slots = Slots { traffic: traffic.clone(), ..Slots::default() };
        slots.reload(workers, limits);
        slots
    }

    /// Replaces the configuration. A handler with more slots taken than it has now claims nothing until enough
    /// of them are free.
    pub(super) fn reload(&mut self, workers: Vec<Worker>, limits: &Limits) {
        self.limit = usize::try_from(limits.jobs_in_flight_count).unwrap_or(usize::MAX);
        self.backoff_base = Limits::duration(limits.handler_backoff_base_millis);
        self.backoff_max = Limits::duration(limits.handler_backoff_max_millis);
        for slots in &mut self.all {
            slots.removed = !workers.iter().any(|worker| slots.is_of(worker));
        }
        let traffic = self.traffic.set_handlers(workers.iter().map(|worker| worker.name.clone()));
        for (worker, traffic) in workers.into_iter().zip(traffic) {
            if let Some(slots) = self.all.iter_mut().find(|slots| slots.is_of(&worker)) {
                slots.reload(worker, traffic);
                continue;
            }
            let new = HandlerSlots::new(worker, traffic);
            match self.all.iter_mut().find(|slots| slots.removed && slots.taken() == 0) {
                Some(unused) => *unused = new,
                None => self.all.push(new),
            }
        }
    }

    pub(super) fn configured(&self) -> impl Iterator<Item = &HandlerSlots> {
        self.all.iter().filter(|slots| !slots.removed)
    }

    /// The policy of a handler as it is configured now.
    pub(super) fn policy(&self, handler: &Name) -> Option<&Policy> {
        self.configured().find(|slots| slots.name == *handler).map(|slots| &slots.policy)
    }

    pub(super) fn get(&self, index: usize) -> &HandlerSlots {
        &self.all[index]
    }

    /// Whether this is the current configuration of the handler.
    pub(super) fn is_current(&self, index: usize, handler: &Arc<Handler>) -> bool {
        !self.all[index].removed && Arc::ptr_eq(&self.all[index].handler, handler)
    }

    /// Takes the slots of the next claim that may be made now. Returns the handler's index and their number.
    /// `capacities` has how many attempts each runner can have; a runner without an entry takes none (R4).
    /// `paused` handlers were paused by the operator: when they are resumed, they claim at once.
    pub(super) fn next_claim(
        &mut self,
        now: Duration,
        capacities: &BTreeMap<RunnerName, Capacity>,
        paused: &BTreeSet<Name>,
    ) -> Option<(usize, usize)> {
        let count = self.all.len();
        let (index, limit) = (0..count)
            .map(|offset| (self.first + offset) % count)
            .filter(|index| !paused.contains(&self.all[*index].name))
            .map(|index| (index, self.available(index, now, capacities)))
            .find(|(_, limit)| *limit > 0)?;
        self.all[index].may_have_jobs = false;
        self.all[index].claiming += limit;
        self.first = (index + 1) % count;
        Some((index, limit))
    }

    /// How many jobs the handler may claim now.
    fn available(
        &self,
        index: usize,
        now: Duration,
        capacities: &BTreeMap<RunnerName, Capacity>,
    ) -> usize {
        let slots = &self.all[index];
        if slots.removed || !slots.may_have_jobs || slots.failed_claims > 0 {
            return 0;
        }
        // Attempts that began at another runner, before the handler moved, count too.
        let same_name = self.all.iter().filter(|other| other.name == slots.name);
        let taken: usize = same_name.map(HandlerSlots::taken).sum();
        let own = slots.backoff.limit(slots.concurrency, now).saturating_sub(taken);

        // One slot is reserved for each other handler that has none.
        let free = self.limit.saturating_sub(self.all.iter().map(HandlerSlots::taken).sum());
        let is_idle = |other: &&HandlerSlots| other.name != slots.name && other.taken() == 0;
        let unreserved = free.saturating_sub(self.configured().filter(is_idle).count());
        let shared = if taken == 0 { unreserved.max(free.min(1)) } else { unreserved };

        let Some(runner) = slots.runner() else { return own.min(shared) };
        let capacity = capacities.get(runner).map_or(0, |capacity| capacity.attempts);
        let same_runner = self.all.iter().filter(|other| other.runner() == Some(runner));
        let claiming: usize = same_runner.map(|other| other.claiming).sum();
        let there = self.at_runner.get(runner).copied().unwrap_or_default();
        own.min(shared).min(capacity.saturating_sub(there + claiming))
    }

    /// Takes a slot for an attempt that an earlier receiver began at `runner`, even if none is free. Returns the
    /// index of its handler, if that is still configured.
    pub(super) fn adopt(&mut self, handler: &Name, runner: &RunnerName) -> Option<usize> {
        *self.at_runner.entry(runner.clone()).or_default() += 1;
        let index = self.all.iter().position(|slots| slots.name == *handler && !slots.removed)?;
        self.all[index].running += 1;
        Some(index)
    }

    /// Frees the slot of an attempt whose end goes to the store now.
    pub(super) fn release(&mut self, index: usize) {
        let slots = &mut self.all[index];
        slots.running -= 1;
        slots.may_have_jobs |= slots.last_claim_full;
    }

    /// The ends of so many attempts are recorded and acknowledged: `runner` can have as many others.
    pub(super) fn forget_attempts(&mut self, runner: &RunnerName, count: usize) {
        if let Some(there) = self.at_runner.get_mut(runner) {
            *there -= count;
        }
    }

    /// A claim of `limit` jobs has brought `got`, for `runner` where they are commands.
    pub(super) fn finish_claim(
        &mut self,
        index: usize,
        limit: usize,
        got: usize,
        runner: Option<&RunnerName>,
    ) {
        if let Some(runner) = runner {
            *self.at_runner.entry(runner.clone()).or_default() += got;
        }
        let slots = &mut self.all[index];
        slots.last_claim_full = got == limit;
        slots.may_have_jobs |= slots.last_claim_full;
        slots.claiming -= limit;
        slots.running += got;
    }

    /// Notes when the next waiting job is due, as of the claim with this number. Concurrent claims may come back
    /// in another order than that of their commits.
    pub(super) fn set_due(&mut self, index: usize, claim: u64, due: Option<Timestamp>) {
        let slots = &mut self.all[index];
        if claim > slots.due_as_of {
            slots.due = due;
            slots.due_as_of = claim;
        }
    }

    /// A claim failed: its slots stay taken, and its handler makes no claim, until [`Slots::retry_claim`].
    pub(super) fn suspend_claims(&mut self, index: usize) {
        self.all[index].failed_claims += 1;
    }

    /// The failed claim of `limit` jobs may be made again.
    pub(super) fn retry_claim(&mut self, index: usize, limit: usize) {
        let slots = &mut self.all[index];
        slots.failed_claims -= 1;
        slots.claiming -= limit;
        slots.may_have_jobs = true;
    }

    /// The store has changed: every handler may have a job to claim.
    pub(super) fn expect_jobs(&mut self) {
        for slots in &mut self.all {
            slots.may_have_jobs = true;
        }
    }

    /// The time has changed: handlers with a job that is due have one to claim.
    pub(super) fn expect_due_jobs(&mut self, wall: Timestamp) {
        for slots in &mut self.all {
            slots.may_have_jobs |= slots.due.is_some_and(|due| due <= wall);
        }
    }

    /// How long until time alone lets a handler claim: until a job is due, or a back-off's pause ends.
    pub(super) fn time_to_next_claim(&self, wall: Timestamp, now: Duration) -> Option<Duration> {
        let changes = self.configured().filter_map(|slots| {
            if slots.may_have_jobs {
                slots.backoff.remaining(now)
            } else {
                slots.due.map(|due| due.since(wall))
            }
        });
        changes.min()
    }

    /// The handler could not run: it backs off. Returns the rest of its pause, and the tries that have failed.
    pub(super) fn back_off(&mut self, index: usize, now: Duration) -> (Duration, u32) {
        let backoff = &mut self.all[index].backoff;
        (backoff.fail(now, self.backoff_base, self.backoff_max), backoff.failures())
    }

    /// As [`Backoff::report_once`].
    pub(super) fn report_broken_once(&mut self, index: usize, tolerated: u32) -> bool {
        self.all[index].backoff.report_once(tolerated)
    }

    /// The handler ran.
    pub(super) fn reset_back_off(&mut self, index: usize) {
        self.all[index].reset_back_off();
    }
}

/// The runner of the handler's attempts; none for a forward.
fn runner_of(handler: &Handler) -> Option<&RunnerName> {
    match handler {
        Handler::Command(command) => Some(&command.runner),
        Handler::Forward(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::handler::{Command, ForwardSettings, Target};
    use crate::model::{Digest, Incarnation, OnUnknown};
    use crate::retry::GiveUp;

    const NOW: Duration = Duration::from_secs(100);
    const SECOND: Duration = Duration::from_secs(1);

    /// Forwards with these concurrencies.
    fn slots(limit: u64, concurrencies: &[usize]) -> Slots {
        let limits = Limits { jobs_in_flight_count: limit, ..Limits::default() };
        let workers = concurrencies.iter().enumerate();
        let workers = workers.map(|(index, concurrency)| forward(index, *concurrency)).collect();
        Slots::new(workers, &Traffic::default(), &limits)
    }

    fn forward(index: usize, concurrency: usize) -> Worker {
        Worker {
            name: format!("h{index}").parse().unwrap(),
            handler: Handler::Forward(ForwardSettings {
                target: Target::parse("http://127.0.0.1:1/").unwrap(),
                resigners: Arc::default(),
                timeout: SECOND,
                connect_timeout: SECOND,
                answer_bytes: 0,
                whole_answer_bytes: None,
            }),
            policy: Policy {
                on_unknown: OnUnknown::Hold,
                give_up: GiveUp::Attempts(5),
                backoff_base: SECOND,
                backoff_max: SECOND,
                answers: false,
            },
            concurrency,
        }
    }

    fn command(index: usize, concurrency: usize, runner: &RunnerName) -> Worker {
        let handler = Handler::Command(Command {
            runner: runner.clone(),
            configuration: Digest([0; 32]),
            timeout: SECOND,
            output_bytes: (0, 0),
            answers: false,
        });
        Worker { handler, ..forward(index, concurrency) }
    }

    fn capacity(attempts: usize) -> Capacity {
        Capacity { incarnation: Incarnation::from_parts(uuid::Uuid::nil(), 1), attempts }
    }

    /// The next claim where no handler is paused by the operator and no runner is connected.
    fn next(slots: &mut Slots, now: Duration) -> Option<(usize, usize)> {
        slots.next_claim(now, &BTreeMap::new(), &BTreeSet::new())
    }

    /// Makes every claim that may be made, each of which gets all that it asks for.
    fn fill(slots: &mut Slots, now: Duration) -> Vec<(usize, usize)> {
        let mut claims = Vec::new();
        while let Some((index, limit)) = next(slots, now) {
            slots.finish_claim(index, limit, limit, None);
            claims.push((index, limit));
        }
        claims
    }

    fn reload(slots: &mut Slots, workers: Vec<Worker>) {
        slots.reload(workers, &Limits::default());
        slots.expect_jobs();
    }

    #[test]
    fn the_slot_of_an_end_is_free_for_the_claim_that_goes_with_it() {
        let mut slots = slots(64, &[3]);
        assert_eq!(fill(&mut slots, NOW), [(0, 3)]);
        // Neither claim waits for the other.
        for _ in 0..2 {
            slots.release(0);
            assert_eq!(next(&mut slots, NOW), Some((0, 1)));
            assert_eq!(next(&mut slots, NOW), None, "all slots are taken");
        }
        slots.set_due(0, 2, Some(Timestamp(7)));
        slots.finish_claim(0, 1, 0, None);
        // This one was committed first, when there were more jobs.
        slots.set_due(0, 1, None);
        slots.finish_claim(0, 1, 1, None);
        assert_eq!(slots.get(0).due, Some(Timestamp(7)));
        assert_eq!(next(&mut slots, NOW), Some((0, 1)));
        slots.finish_claim(0, 1, 0, None);
        assert_eq!(next(&mut slots, NOW), None, "no job is left");
    }

    #[test]
    fn after_a_failed_claim_the_handler_claims_nothing_until_it_is_retried() {
        let mut slots = slots(64, &[3]);
        assert_eq!(next(&mut slots, NOW), Some((0, 3)));
        slots.finish_claim(0, 3, 2, None);
        slots.expect_jobs();
        assert_eq!(next(&mut slots, NOW), Some((0, 1)));
        slots.suspend_claims(0);
        slots.release(0);
        slots.expect_jobs();
        assert_eq!(next(&mut slots, NOW), None, "though a slot is free");
        slots.retry_claim(0, 1);
        assert_eq!(next(&mut slots, NOW), Some((0, 2)));
    }

    #[test]
    fn a_handler_that_the_operator_paused_claims_at_once_when_it_is_resumed() {
        let mut slots = slots(64, &[1, 1]);
        let paused = BTreeSet::from(["h0".parse().unwrap()]);
        assert_eq!(slots.next_claim(NOW, &BTreeMap::new(), &paused), Some((1, 1)));
        assert_eq!(slots.next_claim(NOW, &BTreeMap::new(), &paused), None);
        assert_eq!(next(&mut slots, NOW), Some((0, 1)), "resumed");
    }

    #[test]
    fn a_handler_claims_no_more_than_its_free_slots() {
        let mut slots = slots(64, &[3, 1]);
        assert_eq!(next(&mut slots, NOW), Some((0, 3)));
        assert_eq!(next(&mut slots, NOW), Some((1, 1)));
        assert_eq!(next(&mut slots, NOW), None, "a claim is under way");
        slots.finish_claim(0, 3, 2, None);
        assert_eq!(next(&mut slots, NOW), None, "fewer than asked for: no job is left");
        slots.expect_jobs();
        assert_eq!(next(&mut slots, NOW), Some((0, 1)));
        slots.finish_claim(0, 1, 1, None);
        assert_eq!(next(&mut slots, NOW), None, "all slots are taken");
    }

    #[test]
    fn attempts_of_moved_and_removed_handlers_count_against_their_runners_capacity() {
        let [default, deploy, absent]: [RunnerName; 3] =
            ["default", "deploy", "absent"].map(|name| name.parse().unwrap());
        let capacities =
            BTreeMap::from([(default.clone(), capacity(3)), (deploy.clone(), capacity(4))]);
        let mut slots = slots(64, &[]);
        let next = |slots: &mut Slots| slots.next_claim(NOW, &capacities, &BTreeSet::new());
        let workers = vec![command(0, 9, &default), command(1, 9, &deploy), command(2, 9, &absent)];
        reload(&mut slots, workers);

        // An attempt of the first handler began at the other runner, and one's handler is removed.
        assert_eq!(slots.adopt(&"h0".parse().unwrap(), &deploy), Some(0));
        assert_eq!(slots.adopt(&"removed".parse().unwrap(), &deploy), None);
        assert_eq!(next(&mut slots), Some((0, 3)), "all that its runner can have");
        assert_eq!(next(&mut slots), Some((1, 2)), "what those two leave");
        assert_eq!(next(&mut slots), None, "the third runner is not connected");
        slots.finish_claim(0, 3, 3, Some(&default));
        slots.finish_claim(1, 2, 2, Some(&deploy));
        slots.forget_attempts(&deploy, 1);
        slots.expect_jobs();
        assert_eq!(next(&mut slots), Some((1, 1)));
        slots.finish_claim(1, 1, 1, Some(&deploy));
        slots.release(0);
        slots.forget_attempts(&deploy, 1);
        slots.expect_jobs();
        assert_eq!(next(&mut slots), Some((1, 1)), "the first handler's runner is full");
    }

    #[test]
    fn a_slot_at_a_runner_is_free_once_the_end_is_acknowledged() {
        let runner: RunnerName = "default".parse().unwrap();
        let capacities = BTreeMap::from([(runner.clone(), capacity(1))]);
        let mut slots = slots(64, &[]);
        let next = |slots: &mut Slots| slots.next_claim(NOW, &capacities, &BTreeSet::new());
        reload(&mut slots, vec![command(0, 9, &runner)]);
        assert_eq!(next(&mut slots), Some((0, 1)));
        slots.finish_claim(0, 1, 1, Some(&runner));
        slots.release(0);
        assert_eq!(next(&mut slots), None, "the runner still has it");
        slots.forget_attempts(&runner, 1);
        assert_eq!(next(&mut slots), Some((0, 1)));
    }

    #[test]
    fn a_handler_that_moves_takes_its_slots_along() {
        let deploy: RunnerName = "deploy".parse().unwrap();
        let capacities = BTreeMap::from([(deploy.clone(), capacity(9))]);
        let mut slots = slots(64, &[2]);
        let next = |slots: &mut Slots| slots.next_claim(NOW, &capacities, &BTreeSet::new());
        assert_eq!(fill(&mut slots, NOW), [(0, 2)]);
        reload(&mut slots, vec![command(0, 2, &deploy)]);
        assert_eq!(next(&mut slots), None, "both run on where they began");
        slots.release(0);
        assert_eq!(next(&mut slots), Some((1, 1)));
        slots.finish_claim(1, 1, 1, Some(&deploy));
        slots.release(0);
        assert_eq!(next(&mut slots), Some((1, 1)));
    }

    #[test]
    fn a_busy_handler_leaves_a_slot_for_each_idle_one() {
        let mut slots = slots(4, &[100, 100, 100]);
        assert_eq!(fill(&mut slots, NOW), [(0, 2), (1, 1), (2, 1)]);
        slots.release(1);
        assert_eq!(fill(&mut slots, NOW), [(1, 1)], "the first does not get the second's");
    }

    #[test]
    fn with_fewer_slots_than_handlers_they_take_turns() {
        let mut slots = slots(1, &[5, 5, 5]);
        let mut turns = Vec::new();
        for _ in 0..6 {
            let claims = fill(&mut slots, NOW);
            assert_eq!(claims.len(), 1);
            turns.push(claims[0].0);
            slots.release(claims[0].0);
        }
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_handler_that_cannot_run_claims_nothing_in_its_pause_and_one_job_after_it() {
        let mut slots = slots(64, &[8, 8]);
        assert_eq!(fill(&mut slots, NOW), [(0, 8), (1, 8)]);
        assert_eq!(slots.back_off(0, NOW), (SECOND, 1));
        for _ in 0..8 {
            slots.release(0);
        }
        assert_eq!(next(&mut slots, NOW + SECOND / 2), None);
        assert_eq!(slots.time_to_next_claim(Timestamp(0), NOW), Some(SECOND));
        assert_eq!(fill(&mut slots, NOW + SECOND), [(0, 1)]);
        slots.reset_back_off(0);
        slots.release(0);
        assert_eq!(fill(&mut slots, NOW + SECOND), [(0, 8)]);
    }

    #[test]
    fn a_reload_keeps_the_index_of_a_handler_with_an_attempt_or_a_claim() {
        let names = |slots: &Slots| -> Vec<String> {
            slots.configured().map(|slots| slots.name.to_string()).collect()
        };
        let mut slots = slots(64, &[1, 3, 1]);
        assert_eq!(fill(&mut slots, NOW), [(0, 1), (1, 3), (2, 1)]);
        slots.release(2);
        reload(&mut slots, vec![forward(3, 1), forward(0, 1), forward(4, 1)]);
        // The third had no attempt, so its index is used again. The second's is kept for its ends.
        assert_eq!(names(&slots), ["h0", "h3", "h4"]);
        let is_configured = |name: &str| slots.policy(&name.parse().unwrap()).is_some();
        assert!(!is_configured("h1") && is_configured("h0"));
        assert_eq!(fill(&mut slots, NOW), [(2, 1), (3, 1)], "h0 is full, and h1 is removed");
        for _ in 0..3 {
            slots.release(1);
        }
        reload(&mut slots, vec![forward(0, 1), forward(1, 1)]);
        assert_eq!(names(&slots), ["h0", "h1"]);
        assert_eq!(next(&mut slots, NOW), Some((1, 1)), "it is back, with one slot now");
        reload(&mut slots, vec![forward(5, 1)]);
        assert_eq!(slots.get(1).name.as_str(), "h1", "its claim is under way");
        reload(&mut slots, Vec::new());
        let waits = slots.time_to_next_claim(Timestamp(0), NOW);
        assert_eq!((next(&mut slots, NOW), waits), (None, None));
    }

    #[test]
    fn a_reload_lets_a_handler_that_cannot_run_try_at_once() {
        let mut slots = slots(64, &[1, 1]);
        fill(&mut slots, NOW);
        let before = Arc::clone(&slots.get(0).handler);
        for index in [0, 1] {
            assert_eq!(slots.back_off(index, NOW), (SECOND, 1));
            slots.release(index);
        }
        let mut changed = forward(1, 1);
        if let Handler::Forward(forward) = &mut changed.handler {
            forward.timeout = 2 * SECOND;
        }
        reload(&mut slots, vec![forward(0, 1), changed]);
        assert!(slots.is_current(0, &before) && !slots.is_current(1, &before));
        assert_eq!(fill(&mut slots, NOW), [(0, 1), (1, 1)]);
        assert_eq!(slots.back_off(0, NOW), (2 * SECOND, 2), "its configuration is the same");
        assert_eq!(slots.back_off(1, NOW), (SECOND, 1), "its configuration has changed");
    }

    #[test]
    fn a_handler_claims_when_its_next_job_is_due() {
        let mut slots = slots(64, &[1, 1]);
        for (index, due) in [(0, 5_000), (1, 3_000)] {
            assert_eq!(next(&mut slots, NOW), Some((index, 1)));
            slots.finish_claim(index, 1, 0, None);
            slots.set_due(index, 1, Some(Timestamp(due)));
        }
        assert_eq!(slots.time_to_next_claim(Timestamp(1_000), NOW), Some(2 * SECOND));
        slots.expect_due_jobs(Timestamp(2_999));
        assert_eq!(next(&mut slots, NOW), None);
        slots.expect_due_jobs(Timestamp(3_000));
        assert_eq!(next(&mut slots, NOW), Some((1, 1)));
    }
}
