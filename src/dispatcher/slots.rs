//! The slots of the handlers: which handler may claim jobs now, and how many.
//!
//! Pure: the caller passes the time. Slots and the attempts at a runner are counted by name, so that those of an
//! older configuration count against the handler and the runner that have the name now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::handler::{Capacity, Handler};
use crate::limits::Limits;
use crate::model::{Name, Runner, RunnerName, Timestamp};
use crate::retry::Policy;
use crate::store::{Claim, Rate};
use crate::traffic::{HandlerTraffic, Traffic};

use super::backoff::Backoff;
use super::worker::Worker;

/// A configured handler.
#[derive(Debug)]
pub(super) struct HandlerSlots {
    pub(super) handler: Arc<Handler>,
    pub(super) policy: Policy,
    pub(super) traffic: Arc<HandlerTraffic>,
    pub(super) backoff: Backoff,
    concurrency: usize,
    cluster_concurrency: Option<usize>,
    /// Otherwise other nodes run its jobs.
    runs: bool,
    rate: Option<Rate>,
    /// The monotonic time before which the handler claims nothing: after a failed claim, or where its rate says so.
    no_claim_before: Duration,
    /// The store may have a job to claim.
    may_have_jobs: bool,
    /// The last claim got as many jobs as it asked for, so there may be more.
    last_claim_full: bool,
    /// When the next waiting job is due, as of the claim with this number.
    due: Option<Timestamp>,
    due_as_of: u64,
}

impl HandlerSlots {
    fn new(worker: Worker, traffic: Arc<HandlerTraffic>) -> Self {
        HandlerSlots {
            handler: Arc::new(worker.handler),
            policy: worker.policy,
            traffic,
            backoff: Backoff::default(),
            concurrency: worker.concurrency.max(1),
            cluster_concurrency: worker.cluster_concurrency,
            runs: worker.runs,
            rate: worker.rate,
            no_claim_before: Duration::ZERO,
            may_have_jobs: true,
            last_claim_full: false,
            due: None,
            due_as_of: 0,
        }
    }

    /// Takes the new configuration of the same handler.
    fn reload(&mut self, worker: Worker, traffic: Arc<HandlerTraffic>) {
        self.traffic = traffic;
        if *self.handler != worker.handler {
            self.handler = Arc::new(worker.handler);
            self.reset_back_off();
        } else if self.backoff.end_pause() {
            // The operator may have fixed it before the reload.
            self.traffic.tries_at_once();
        }
        self.policy = worker.policy;
        self.concurrency = worker.concurrency.max(1);
        self.cluster_concurrency = worker.cluster_concurrency;
        self.runs = worker.runs;
        if self.rate != worker.rate {
            self.rate = worker.rate;
            self.no_claim_before = Duration::ZERO;
        }
        self.may_have_jobs = true;
    }

    /// Notes that the handler ran.
    pub(super) fn reset_back_off(&mut self) {
        if self.backoff.reset() {
            self.traffic.ran();
        }
    }

    /// The runner of its commands; `None` for a forward, and where they run at other nodes.
    pub(super) fn runner(&self) -> Option<&RunnerName> {
        self.handler.command().filter(|_| self.runs).map(|command| &command.runner)
    }
}

/// A claim, and the handler of the attempts that it makes, as it is configured now.
#[derive(Debug)]
pub(super) struct PendingClaim {
    pub(super) claim: Claim,
    pub(super) handler: Arc<Handler>,
    pub(super) policy: Policy,
}

/// All handlers, and the limit on their slots together.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The handlers as they are configured now.
    pub(super) handlers: BTreeMap<Name, HandlerSlots>,
    /// The slots taken by claims, and by attempts whose end has not been sent to the store yet. A removed handler may
    /// still have some.
    taken: BTreeMap<Name, usize>,
    /// The jobs of claims for each runner, and its attempts until their exchange is done.
    at_runner: BTreeMap<RunnerName, usize>,
    traffic: Traffic,
    limit: usize,
    backoff_base: Duration,
    backoff_max: Duration,
    /// The handler that claimed last. The handler after it may claim first, so that all handlers take turns if there
    /// are fewer slots than handlers.
    last: Option<Name>,
}

impl Slots {
    pub(super) fn new(workers: Vec<Worker>, traffic: &Traffic, limits: &Limits) -> Self {
        let mut slots = Slots { traffic: traffic.clone(), ..Slots::default() };
        slots.reload(workers, limits);
        slots
    }

    /// Replaces the configuration. A handler that has taken more slots than it now has claims nothing until enough
    /// of them are free.
    pub(super) fn reload(&mut self, workers: Vec<Worker>, limits: &Limits) {
        self.limit = usize::try_from(limits.jobs_in_flight_count).unwrap_or(usize::MAX);
        self.backoff_base = Limits::duration(limits.handler_backoff_base_millis);
        self.backoff_max = Limits::duration(limits.handler_backoff_max_millis);
        let mut traffic =
            self.traffic.set_handlers(workers.iter().map(|worker| worker.name.clone()));
        let mut before = std::mem::take(&mut self.handlers);
        for worker in workers {
            let name = worker.name.clone();
            let traffic = traffic.remove(&name).unwrap_or_default();
            traffic.set_slots(worker.concurrency.max(1));
            let slots = match before.remove(&name) {
                Some(mut slots) => {
                    slots.reload(worker, traffic);
                    slots
                }
                None => HandlerSlots::new(worker, traffic),
            };
            self.handlers.insert(name, slots);
        }
    }

    /// Takes the slots of the next claim that may be made now. `capacities` says how many attempts each runner can
    /// have; a runner without an entry takes none (R4). The operator has paused the `paused` handlers: once
    /// they are resumed, they claim at once.
    pub(super) fn next_claim(
        &mut self,
        now: Duration,
        capacities: &BTreeMap<RunnerName, Capacity>,
        paused: &BTreeSet<Name>,
    ) -> Option<PendingClaim> {
        let is_later = |name: &&Name| Some(*name) > self.last.as_ref();
        let later = self.handlers.keys().filter(is_later);
        let (name, limit) = later
            .chain(self.handlers.keys().filter(|name| !is_later(name)))
            .filter(|name| !paused.contains(*name))
            .map(|name| (name.clone(), self.available(name, now, capacities)))
            .find(|(_, limit)| *limit > 0)?;
        let slots = self.handlers.get_mut(&name)?;
        slots.may_have_jobs = false;
        let runner = slots.runner().and_then(|name| {
            let incarnation = capacities.get(name)?.incarnation;
            Some(Runner { name: name.clone(), incarnation })
        });
        let (handler, policy) = (Arc::clone(&slots.handler), slots.policy.clone());
        let HandlerSlots { rate, cluster_concurrency, .. } = *slots;
        *self.taken.entry(name.clone()).or_default() += limit;
        if let Some(runner) = &runner {
            *self.at_runner.entry(runner.name.clone()).or_default() += limit;
        }
        self.last = Some(name.clone());
        Some(PendingClaim {
            claim: Claim { handler: name, limit, runner, rate, cluster_concurrency },
            handler,
            policy,
        })
    }

    /// How many jobs the handler may claim now.
    fn available(
        &self,
        name: &Name,
        now: Duration,
        capacities: &BTreeMap<RunnerName, Capacity>,
    ) -> usize {
        let Some(slots) = self.handlers.get(name) else { return 0 };
        if !slots.runs || !slots.may_have_jobs || now < slots.no_claim_before {
            return 0;
        }
        let taken = self.taken_by(name);
        let own = slots.backoff.limit(slots.concurrency, now).saturating_sub(taken);

        // One slot is reserved for each other handler that has none.
        let free = self.limit.saturating_sub(self.taken.values().sum());
        let is_idle = |(other, slots): &(&Name, &HandlerSlots)| {
            slots.runs && *other != name && self.taken_by(other) == 0
        };
        let unreserved = free.saturating_sub(self.handlers.iter().filter(is_idle).count());
        let shared = if taken == 0 { unreserved.max(free.min(1)) } else { unreserved };

        let Some(runner) = slots.runner() else { return own.min(shared) };
        let capacity = capacities.get(runner).map_or(0, |capacity| capacity.attempts);
        let there = self.at_runner.get(runner).copied().unwrap_or_default();
        own.min(shared).min(capacity.saturating_sub(there))
    }

    fn taken_by(&self, handler: &Name) -> usize {
        self.taken.get(handler).copied().unwrap_or_default()
    }

    /// Takes a slot for an attempt that an earlier receiver claimed for `runner`, even if none is free.
    pub(super) fn adopt(&mut self, handler: &Name, runner: &RunnerName) {
        *self.at_runner.entry(runner.clone()).or_default() += 1;
        *self.taken.entry(handler.clone()).or_default() += 1;
    }

    /// Frees the slot of an attempt whose end is sent to the store now.
    pub(super) fn release(&mut self, handler: &Name) {
        self.free(handler, 1);
        if let Some(slots) = self.handlers.get_mut(handler) {
            slots.may_have_jobs |= slots.last_claim_full;
        }
    }

    fn free(&mut self, handler: &Name, count: usize) {
        if let Some(taken) = self.taken.get_mut(handler) {
            *taken -= count;
            if *taken == 0 {
                self.taken.remove(handler);
            }
        }
    }

    /// Notes that `runner` can have so many other attempts, because their exchange is done.
    pub(super) fn forget_attempts(&mut self, runner: &RunnerName, count: usize) {
        if let Some(there) = self.at_runner.get_mut(runner) {
            *there -= count;
        }
    }

    /// Notes that a claim got `got` jobs.
    pub(super) fn finish_claim(&mut self, claim: &Claim, got: usize) {
        self.free(&claim.handler, claim.limit - got);
        if let Some(runner) = &claim.runner {
            self.forget_attempts(&runner.name, claim.limit - got);
        }
        if let Some(slots) = self.handlers.get_mut(&claim.handler) {
            slots.last_claim_full = got == claim.limit;
            slots.may_have_jobs |= slots.last_claim_full;
        }
    }

    /// Notes when the next waiting job is due, as of the claim with this number. Claims may return in another order
    /// than that of their commits.
    pub(super) fn set_due(&mut self, handler: &Name, claim: u64, due: Option<Timestamp>) {
        if let Some(slots) = self.handlers.get_mut(handler)
            && claim > slots.due_as_of
        {
            slots.due = due;
            slots.due_as_of = claim;
        }
    }

    /// Notes that the handler claims nothing for so long after this claim, because its rate lets no other attempt start
    /// or because the claim failed, and then claims again.
    pub(super) fn pause(&mut self, claim: &Claim, pause: Option<Duration>, now: Duration) {
        // A reload may have changed the rate since the claim was made.
        if let (Some(slots), Some(pause)) = (self.handlers.get_mut(&claim.handler), pause)
            && slots.rate == claim.rate
        {
            slots.no_claim_before = slots.no_claim_before.max(now + pause);
            slots.may_have_jobs = true;
        }
    }

    /// Notes that every handler may have a job to claim, because the store has changed.
    pub(super) fn expect_jobs(&mut self) {
        for slots in self.handlers.values_mut() {
            slots.may_have_jobs = true;
        }
    }

    /// Notes the time: a handler whose next job is due has one to claim.
    pub(super) fn expect_due_jobs(&mut self, wall: Timestamp) {
        for slots in self.handlers.values_mut() {
            slots.may_have_jobs |= slots.due.is_some_and(|due| due <= wall);
        }
    }

    /// The time until a handler may claim without another event: until a job is due, or a pause ends.
    pub(super) fn time_to_next_claim(&self, wall: Timestamp, now: Duration) -> Option<Duration> {
        let changes = self.handlers.values().filter_map(|slots| {
            if slots.may_have_jobs {
                let pause = slots.no_claim_before.checked_sub(now).filter(|rest| !rest.is_zero());
                pause.max(slots.backoff.remaining(now))
            } else {
                slots.due.map(|due| due.since(wall))
            }
        });
        changes.min()
    }

    /// Notes that the handler could not run: it backs off. Returns the rest of its pause, and the number of tries that
    /// have failed.
    pub(super) fn back_off(&mut self, handler: &Name, now: Duration) -> Option<(Duration, u32)> {
        let backoff = &mut self.handlers.get_mut(handler)?.backoff;
        Some((backoff.fail(now, self.backoff_base, self.backoff_max), backoff.failures()))
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
            name: name(index),
            handler: Handler::Forward(ForwardSettings {
                target: Target::parse("http://127.0.0.1:1/").unwrap(),
                resigners: Arc::default(),
                timeout: SECOND,
                connect_timeout: SECOND,
                answer_bytes: 0,
                whole_answer_bytes: None,
                request: None,
            }),
            policy: Policy {
                on_unknown: OnUnknown::Hold,
                give_up: GiveUp::Attempts(5),
                backoff_base: SECOND,
                backoff_max: SECOND,
                answers: false,
                pauses: Vec::new(),
            },
            concurrency,
            cluster_concurrency: None,
            runs: true,
            rate: None,
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

    /// The next claim where no handler is paused by the operator and no runner is connected: the number of
    /// its handler and how many jobs it asks for.
    fn next(slots: &mut Slots, now: Duration) -> Option<(usize, usize)> {
        next_at(slots, now, &BTreeMap::new())
    }

    fn next_at(
        slots: &mut Slots,
        now: Duration,
        capacities: &BTreeMap<RunnerName, Capacity>,
    ) -> Option<(usize, usize)> {
        let PendingClaim { claim, .. } = slots.next_claim(now, capacities, &BTreeSet::new())?;
        Some((claim.handler.as_str()[1..].parse().unwrap(), claim.limit))
    }

    fn name(handler: usize) -> Name {
        format!("h{handler}").parse().unwrap()
    }

    /// A claim for this handler and, where it is a command, this runner.
    fn claim(handler: usize, limit: usize, runner: Option<&RunnerName>) -> Claim {
        let runner = runner
            .map(|runner| Runner { name: runner.clone(), incarnation: capacity(0).incarnation });
        Claim { handler: name(handler), limit, runner, rate: None, cluster_concurrency: None }
    }

    /// Makes every claim that may be made, each of which gets all that it asks for.
    fn fill(slots: &mut Slots, now: Duration) -> Vec<(usize, usize)> {
        let mut claims = Vec::new();
        while let Some((handler, limit)) = next(slots, now) {
            slots.finish_claim(&claim(handler, limit, None), limit);
            claims.push((handler, limit));
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
            slots.release(&name(0));
            assert_eq!(next(&mut slots, NOW), Some((0, 1)));
            assert_eq!(next(&mut slots, NOW), None, "all slots are taken");
        }
        slots.set_due(&name(0), 2, Some(Timestamp(7)));
        slots.finish_claim(&claim(0, 1, None), 0);
        // This one was committed first, when there were more jobs.
        slots.set_due(&name(0), 1, None);
        slots.finish_claim(&claim(0, 1, None), 1);
        assert_eq!(slots.handlers.get(&name(0)).unwrap().due, Some(Timestamp(7)));
        assert_eq!(next(&mut slots, NOW), Some((0, 1)));
        slots.finish_claim(&claim(0, 1, None), 0);
        assert_eq!(next(&mut slots, NOW), None, "no job is left");
    }

    #[test]
    fn after_a_failed_claim_the_handler_claims_nothing_for_the_pause() {
        let mut slots = slots(64, &[3, 1]);
        assert_eq!(fill(&mut slots, NOW), [(0, 3), (1, 1)]);
        slots.release(&name(0));
        slots.finish_claim(&claim(0, 2, None), 0);
        slots.pause(&claim(0, 2, None), Some(SECOND), NOW);
        slots.expect_jobs();
        let half = SECOND / 2;
        assert_eq!(next(&mut slots, NOW + half), None, "though all its slots are free");
        assert_eq!(slots.time_to_next_claim(Timestamp(0), NOW + half), Some(half));
        assert_eq!(next(&mut slots, NOW + SECOND), Some((0, 3)));
    }

    #[test]
    fn a_handler_over_its_rate_claims_again_when_its_pause_is_over_and_no_earlier() {
        let mut slots = slots(64, &[9]);
        assert_eq!(next(&mut slots, NOW), Some((0, 9)));
        slots.finish_claim(&claim(0, 9, None), 2);
        let claim = Claim {
            handler: name(0),
            limit: 1,
            runner: None,
            rate: None,
            cluster_concurrency: None,
        };
        slots.pause(&claim, Some(2 * SECOND), NOW);
        // Another commit of the store, and the end of an attempt.
        slots.expect_jobs();
        slots.release(&name(0));
        slots.expect_due_jobs(Timestamp(1));
        assert_eq!(next(&mut slots, NOW + SECOND), None);
        assert_eq!(slots.time_to_next_claim(Timestamp(0), NOW + SECOND), Some(SECOND));
        assert_eq!(next(&mut slots, NOW + 2 * SECOND), Some((0, 8)));
    }

    #[test]
    fn a_handler_that_the_operator_paused_claims_at_once_when_it_is_resumed() {
        let mut slots = slots(64, &[1, 1]);
        let paused = BTreeSet::from(["h0".parse().unwrap()]);
        let claimed = slots.next_claim(NOW, &BTreeMap::new(), &paused).unwrap();
        assert_eq!(claimed.claim, claim(1, 1, None));
        assert!(slots.next_claim(NOW, &BTreeMap::new(), &paused).is_none());
        assert_eq!(next(&mut slots, NOW), Some((0, 1)), "resumed");
    }

    #[test]
    fn a_handler_claims_no_more_than_its_free_slots() {
        let mut slots = slots(64, &[3, 1]);
        assert_eq!(next(&mut slots, NOW), Some((0, 3)));
        assert_eq!(next(&mut slots, NOW), Some((1, 1)));
        assert_eq!(next(&mut slots, NOW), None, "a claim is under way");
        slots.finish_claim(&claim(0, 3, None), 2);
        assert_eq!(next(&mut slots, NOW), None, "fewer than asked for: no job is left");
        slots.expect_jobs();
        assert_eq!(next(&mut slots, NOW), Some((0, 1)));
        slots.finish_claim(&claim(0, 1, None), 1);
        assert_eq!(next(&mut slots, NOW), None, "all slots are taken");
    }

    #[test]
    fn attempts_of_moved_and_removed_handlers_count_against_their_runners_capacity() {
        let [default, deploy, absent]: [RunnerName; 3] =
            ["default", "deploy", "absent"].map(|name| name.parse().unwrap());
        let capacities =
            BTreeMap::from([(default.clone(), capacity(3)), (deploy.clone(), capacity(4))]);
        let mut slots = slots(64, &[]);
        let next = |slots: &mut Slots| next_at(slots, NOW, &capacities);
        let workers = vec![command(0, 9, &default), command(1, 9, &deploy), command(2, 9, &absent)];
        reload(&mut slots, workers);

        // An attempt of the first handler began at the other runner, and one's handler is removed.
        slots.adopt(&name(0), &deploy);
        slots.adopt(&"removed".parse().unwrap(), &deploy);
        assert_eq!(next(&mut slots), Some((0, 3)), "all that its runner can have");
        assert_eq!(next(&mut slots), Some((1, 2)), "what those two leave");
        assert_eq!(next(&mut slots), None, "the third runner is not connected");
        slots.finish_claim(&claim(0, 3, Some(&default)), 3);
        slots.finish_claim(&claim(1, 2, Some(&deploy)), 2);
        slots.forget_attempts(&deploy, 1);
        slots.expect_jobs();
        assert_eq!(next(&mut slots), Some((1, 1)));
        slots.finish_claim(&claim(1, 1, Some(&deploy)), 1);
        slots.release(&name(0));
        slots.forget_attempts(&deploy, 1);
        slots.expect_jobs();
        assert_eq!(next(&mut slots), Some((1, 1)), "the first handler's runner is full");
    }

    #[test]
    fn a_slot_at_a_runner_is_free_once_the_end_is_acknowledged() {
        let runner: RunnerName = "default".parse().unwrap();
        let capacities = BTreeMap::from([(runner.clone(), capacity(1))]);
        let mut slots = slots(64, &[]);
        let next = |slots: &mut Slots| next_at(slots, NOW, &capacities);
        reload(&mut slots, vec![command(0, 9, &runner)]);
        assert_eq!(next(&mut slots), Some((0, 1)));
        slots.finish_claim(&claim(0, 1, Some(&runner)), 1);
        slots.release(&name(0));
        assert_eq!(next(&mut slots), None, "the runner still has it");
        slots.forget_attempts(&runner, 1);
        assert_eq!(next(&mut slots), Some((0, 1)));
    }

    #[test]
    fn a_handler_that_moves_takes_its_slots_along() {
        let deploy: RunnerName = "deploy".parse().unwrap();
        let capacities = BTreeMap::from([(deploy.clone(), capacity(9))]);
        let mut slots = slots(64, &[2]);
        let next = |slots: &mut Slots| next_at(slots, NOW, &capacities);
        assert_eq!(fill(&mut slots, NOW), [(0, 2)]);
        reload(&mut slots, vec![command(0, 2, &deploy)]);
        assert_eq!(next(&mut slots), None, "both run on where they began");
        slots.release(&name(0));
        assert_eq!(next(&mut slots), Some((0, 1)));
        slots.finish_claim(&claim(0, 1, Some(&deploy)), 1);
        slots.release(&name(0));
        assert_eq!(next(&mut slots), Some((0, 1)));
    }

    #[test]
    fn a_busy_handler_leaves_a_slot_for_each_idle_one() {
        let mut slots = slots(4, &[100, 100, 100]);
        assert_eq!(fill(&mut slots, NOW), [(0, 2), (1, 1), (2, 1)]);
        slots.release(&name(1));
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
            slots.release(&name(claims[0].0));
        }
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_handler_that_cannot_run_claims_nothing_in_its_pause_and_one_job_after_it() {
        let mut slots = slots(64, &[8, 8]);
        assert_eq!(fill(&mut slots, NOW), [(0, 8), (1, 8)]);
        assert_eq!(slots.back_off(&name(0), NOW), Some((SECOND, 1)));
        for _ in 0..8 {
            slots.release(&name(0));
        }
        assert_eq!(next(&mut slots, NOW + SECOND / 2), None);
        assert_eq!(slots.time_to_next_claim(Timestamp(0), NOW), Some(SECOND));
        assert_eq!(fill(&mut slots, NOW + SECOND), [(0, 1)]);
        slots.handlers.get_mut(&name(0)).unwrap().reset_back_off();
        slots.release(&name(0));
        assert_eq!(fill(&mut slots, NOW + SECOND), [(0, 8)]);
    }

    #[test]
    fn slots_that_a_removed_handler_has_taken_count_until_they_are_free() {
        let names =
            |slots: &Slots| -> Vec<String> { slots.handlers.keys().map(Name::to_string).collect() };
        let limits = Limits { jobs_in_flight_count: 5, ..Limits::default() };
        let reload = |slots: &mut Slots, workers| {
            slots.reload(workers, &limits);
            slots.expect_jobs();
        };
        let mut slots = slots(5, &[1, 3]);
        assert_eq!(fill(&mut slots, NOW), [(0, 1), (1, 3)]);
        reload(&mut slots, vec![forward(0, 1), forward(2, 9)]);
        assert_eq!(names(&slots), ["h0", "h2"]);
        assert_eq!(fill(&mut slots, NOW), [(2, 1)], "four of the five are taken");
        slots.release(&name(1));
        slots.expect_jobs();
        assert_eq!(fill(&mut slots, NOW), [(2, 1)]);

        // It comes back, with two slots: as many as it has taken still.
        reload(&mut slots, vec![forward(0, 1), forward(1, 2)]);
        slots.release(&name(2));
        slots.expect_jobs();
        assert_eq!(next(&mut slots, NOW), None);
        slots.release(&name(1));
        slots.expect_jobs();
        assert_eq!(next(&mut slots, NOW), Some((1, 1)));

        // A claim that was under way at a reload gives back what it did not get.
        reload(&mut slots, vec![forward(3, 9)]);
        assert_eq!(fill(&mut slots, NOW), [(3, 1)]);
        slots.finish_claim(&claim(1, 1, None), 0);
        slots.expect_jobs();
        assert_eq!(fill(&mut slots, NOW), [(3, 1)]);
        reload(&mut slots, Vec::new());
        let waits = slots.time_to_next_claim(Timestamp(0), NOW);
        assert_eq!((next(&mut slots, NOW), waits), (None, None));
    }

    #[test]
    fn a_reload_lets_a_handler_that_cannot_run_try_at_once() {
        let mut slots = slots(64, &[1, 1]);
        fill(&mut slots, NOW);
        let before = Arc::clone(&slots.handlers.get(&name(0)).unwrap().handler);
        for index in [0, 1] {
            assert_eq!(slots.back_off(&name(index), NOW), Some((SECOND, 1)));
            slots.release(&name(index));
        }
        let mut changed = forward(1, 1);
        if let Handler::Forward(forward) = &mut changed.handler {
            forward.timeout = 2 * SECOND;
        }
        reload(&mut slots, vec![forward(0, 1), changed]);
        assert!(
            Arc::ptr_eq(&before, &slots.handlers.get(&name(0)).unwrap().handler),
            "it is the same"
        );
        assert_eq!(fill(&mut slots, NOW), [(0, 1), (1, 1)]);
        assert_eq!(
            slots.back_off(&name(0), NOW),
            Some((2 * SECOND, 2)),
            "its configuration is the same"
        );
        assert_eq!(
            slots.back_off(&name(1), NOW),
            Some((SECOND, 1)),
            "its configuration has changed"
        );
    }

    #[test]
    fn a_handler_claims_when_its_next_job_is_due() {
        let mut slots = slots(64, &[1, 1]);
        for (index, due) in [(0, 5_000), (1, 3_000)] {
            assert_eq!(next(&mut slots, NOW), Some((index, 1)));
            slots.finish_claim(&claim(index, 1, None), 0);
            slots.set_due(&name(index), 1, Some(Timestamp(due)));
        }
        assert_eq!(slots.time_to_next_claim(Timestamp(1_000), NOW), Some(2 * SECOND));
        slots.expect_due_jobs(Timestamp(2_999));
        assert_eq!(next(&mut slots, NOW), None);
        slots.expect_due_jobs(Timestamp(3_000));
        assert_eq!(next(&mut slots, NOW), Some((1, 1)));
    }
}
