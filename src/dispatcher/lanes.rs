//! Who may claim how much: slots of each handler, slots of all, and the pause of a handler that
//! cannot run. Pure: it is told the monotonic time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::handler::{Handler, Room};
use crate::limits::Limits;
use crate::model::{Name, RunnerName, Timestamp};
use crate::retry::Policy;
use crate::traffic::{HandlerTraffic, Traffic};

use super::Worker;

/// How long an end waits for others of its handler, and a timer's millisecond more: some commits' time. A commit
/// takes as much for one as for a few.
const GATHER: Duration = Duration::from_millis(2);

/// Of so many attempts under way one end need not wait.
const GATHER_SHARE: usize = 2;

/// A handler with its slots.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: Name,
    pub(super) handler: Arc<Handler>,
    pub(super) policy: Policy,
    /// What is told of its attempts.
    pub(super) traffic: HandlerTraffic,
    concurrency: usize,
    /// Slots taken by attempts whose end is not recorded yet.
    pub(super) running: usize,
    /// How many of those have come to their end, and when the first did.
    ends: usize,
    first_end: Option<Duration>,
    /// Slots taken by claims under way.
    pub(super) claiming: usize,
    /// Exchanges with the store that are under way: ends that are recorded, a claim, or both.
    pub(super) exchanges: usize,
    /// Claims that have failed, and rest: there is none until they have.
    pub(super) resting: usize,
    /// There may be something to claim.
    pub(super) wanted: bool,
    /// The claim that came back last got as many as it asked for.
    more: bool,
    /// When the next waiting job is due, as of the claim of this number.
    due: Option<Timestamp>,
    due_as_of: u64,
    pause: Option<Pause>,
    /// Its handler is not configured any more, or is run by somebody else now: it claims nothing, and what
    /// is under way comes to its end.
    gone: bool,
}

/// A handler that cannot run is left alone until a time, for longer each time.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Duration,
    length: Duration,
    /// Probes that have failed since it could not run first.
    failed: u32,
    /// Whether it was told that it cannot run.
    told: bool,
}

impl Lane {
    fn new((worker, traffic): (Worker, HandlerTraffic)) -> Self {
        // A handler that moved to another runner has not been tried there.
        traffic.ran();
        Lane {
            name: worker.name,
            handler: Arc::new(worker.handler),
            policy: worker.policy,
            traffic,
            concurrency: worker.concurrency.max(1),
            running: 0,
            ends: 0,
            first_end: None,
            claiming: 0,
            exchanges: 0,
            resting: 0,
            wanted: true,
            more: false,
            due: None,
            due_as_of: 0,
            pause: None,
            gone: false,
        }
    }

    /// Is the same handler from now on, as it is configured now.
    fn reload(&mut self, worker: Worker, traffic: HandlerTraffic) {
        self.traffic = traffic;
        if *self.handler == worker.handler {
            // Whoever reloads may have mended it.
            if let Some(pause) = &mut self.pause {
                pause.until = Duration::ZERO;
                self.traffic.tries_at_once();
            }
        } else {
            self.handler = Arc::new(worker.handler);
            self.runs_again();
        }
        self.policy = worker.policy;
        self.concurrency = worker.concurrency.max(1);
        self.wanted = true;
        self.gone = false;
    }

    fn runs_again(&mut self) {
        if self.pause.take().is_some() {
            self.traffic.ran();
        }
    }

    fn taken(&self) -> usize {
        self.running + self.claiming
    }

    /// Who runs it; none where the receiver itself does.
    pub(super) fn runner(&self) -> Option<&RunnerName> {
        runner_of(&self.handler)
    }

    /// Whether what it has for the store waits for the exchange that is under way. A command is asked for
    /// after the Ack of the one whose place it takes, so one exchange comes after the other; forwards follow
    /// no order.
    pub(super) fn is_held_up(&self) -> bool {
        self.exchanges > 0 && self.runner().is_some()
    }

    /// Slots that it may have now. After a pause one probe goes first.
    fn slots(&self, now: Duration) -> usize {
        match self.pause {
            None => self.concurrency,
            Some(pause) if now < pause.until => 0,
            Some(_) => 1,
        }
    }

    /// Whether its ends wait for more of them: where many commands are under way and few have ended, and nobody
    /// waits for what they say.
    pub(super) fn gathers(&self, now: Duration) -> bool {
        self.gathers_until().is_some_and(|until| now < until)
    }

    fn gathers_until(&self) -> Option<Duration> {
        let few = self.ends * GATHER_SHARE < self.running
            && self.runner().is_some()
            && !self.policy.answers
            && !self.gone;
        self.first_end.filter(|_| few).map(|first| first + GATHER)
    }

    /// The end of its pause, where that is to come.
    fn paused_until(&self, now: Duration) -> Option<Duration> {
        self.pause.map(|pause| pause.until).filter(|until| now < *until)
    }
}

/// Every handler, and the slots of all.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Vec<Lane>,
    traffic: Traffic,
    limit: usize,
    pause_base: Duration,
    pause_max: Duration,
    /// Who is asked first: the one after the last that got something, so that all have their turn
    /// where there are fewer slots than handlers.
    first: usize,
    /// Attempts that each runner has, those of handlers too that are another's now or not configured any
    /// more: they take its room.
    at: BTreeMap<RunnerName, usize>,
}

impl Lanes {
    pub(super) fn new(workers: Vec<Worker>, traffic: &Traffic, limits: &Limits) -> Self {
        let counted = traffic.set_handlers(workers.iter().map(|worker| worker.name.clone()));
        Lanes {
            all: workers.into_iter().zip(counted).map(Lane::new).collect(),
            traffic: traffic.clone(),
            limit: usize::try_from(limits.jobs_in_flight_count).unwrap_or(usize::MAX),
            pause_base: Limits::duration(limits.handler_backoff_base_millis),
            pause_max: Limits::duration(limits.handler_backoff_max_millis),
            first: 0,
            at: BTreeMap::new(),
        }
    }

    /// The handlers that are configured.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.all.iter().filter(|lane| !lane.gone)
    }

    /// These are the handlers from now on. Numbers of those that stay, or have something under way, stay.
    /// Handlers with fewer slots than they have taken claim nothing until enough are free.
    pub(super) fn reload(&mut self, workers: Vec<Worker>, limits: &Limits) {
        self.limit = usize::try_from(limits.jobs_in_flight_count).unwrap_or(usize::MAX);
        self.pause_base = Limits::duration(limits.handler_backoff_base_millis);
        self.pause_max = Limits::duration(limits.handler_backoff_max_millis);
        self.all.iter_mut().for_each(|lane| lane.gone = true);
        let mut new = Vec::new();
        let counted = self.traffic.set_handlers(workers.iter().map(|worker| worker.name.clone()));
        for (worker, traffic) in workers.into_iter().zip(counted) {
            let runner = runner_of(&worker.handler);
            let same = |lane: &&mut Lane| lane.name == worker.name && lane.runner() == runner;
            match self.all.iter_mut().find(same) {
                Some(lane) => lane.reload(worker, traffic),
                None => new.push(Lane::new((worker, traffic))),
            }
        }
        // In the places of those that are gone with nothing under way.
        let mut free = self
            .all
            .iter_mut()
            .filter(|lane| lane.gone && lane.taken() == 0 && lane.exchanges == 0);
        let left: Vec<Lane> = new
            .into_iter()
            .filter_map(|lane| match free.next() {
                Some(place) => {
                    *place = lane;
                    None
                }
                None => Some(lane),
            })
            .collect();
        self.all.extend(left);
    }

    /// What becomes of a job after an attempt: by its handler as it is configured now, nothing where it is
    /// not.
    pub(super) fn policy(&self, handler: &Name) -> Option<&Policy> {
        self.iter().find(|lane| lane.name == *handler).map(|lane| &lane.policy)
    }

    /// Whether this is what the lane's handler runs now.
    pub(super) fn runs(&self, index: usize, handler: &Arc<Handler>) -> bool {
        !self.all[index].gone && Arc::ptr_eq(&self.all[index].handler, handler)
    }

    pub(super) fn get(&self, index: usize) -> &Lane {
        &self.all[index]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut Lane {
        &mut self.all[index]
    }

    /// The next handler that may claim now, and how much; its slots are taken. None where nobody may.
    /// `rooms` tells how many attempts each runner can have, these and others: none where it takes none
    /// (R4). Those of the operator's `paused` handlers stay wanted.
    pub(super) fn next_claim(
        &mut self,
        now: Duration,
        rooms: &BTreeMap<RunnerName, Room>,
        paused: &BTreeSet<Name>,
    ) -> Option<(usize, usize)> {
        let count = self.all.len();
        let order = (0..count).map(|offset| (self.first + offset) % count);
        let (index, slots) = order
            .filter(|index| !paused.contains(&self.all[*index].name))
            .map(|index| (index, self.share(index, now, rooms)))
            .find(|(_, slots)| *slots > 0)?;
        let lane = &mut self.all[index];
        lane.wanted = false;
        lane.claiming += slots;
        self.first = (index + 1) % count;
        Some((index, slots))
    }

    fn share(&self, index: usize, now: Duration, rooms: &BTreeMap<RunnerName, Room>) -> usize {
        let lane = &self.all[index];
        if lane.gone || !lane.wanted || lane.resting > 0 || lane.is_held_up() {
            return 0;
        }
        let left = self.limit.saturating_sub(self.all.iter().map(Lane::taken).sum());
        let idle = |other: &&Lane| other.name != lane.name && other.taken() == 0;
        let kept = self.iter().filter(idle).count();
        // Those too that began when its handler was another runner's.
        let own = self.all.iter().filter(|other| other.name == lane.name);
        let taken: usize = own.map(Lane::taken).sum();
        let share = match taken {
            // It is one of those for whom a slot is kept.
            0 => left.saturating_sub(kept).max(left.min(1)),
            _ => left.saturating_sub(kept),
        };
        let share = share.min(lane.slots(now).saturating_sub(taken));
        let Some(runner) = lane.runner() else { return share };
        let room = rooms.get(runner).map_or(0, |room| room.attempts);
        let same = self.all.iter().filter(|other| other.runner() == Some(runner));
        let claiming: usize = same.map(|other| other.claiming).sum();
        let there = self.at.get(runner).copied().unwrap_or_default();
        share.min(room.saturating_sub(there + claiming))
    }

    /// Takes a slot for an attempt that an earlier receiver has begun at `runner`, whether one is free or
    /// not. Returns whose, where the handler is still configured.
    pub(super) fn take_for(&mut self, handler: &Name, runner: &RunnerName) -> Option<usize> {
        let index = self.all.iter().position(|lane| lane.name == *handler && !lane.gone);
        if let Some(index) = index {
            self.all[index].running += 1;
        }
        *self.at.entry(runner.clone()).or_default() += 1;
        index
    }

    /// An attempt has come to its end.
    pub(super) fn came(&mut self, index: usize, now: Duration) {
        let lane = &mut self.all[index];
        lane.ends += 1;
        lane.first_end.get_or_insert(now);
    }

    /// The end of an attempt is with the store: its slot is free for what is claimed together with it.
    pub(super) fn ended(&mut self, index: usize) {
        let lane = &mut self.all[index];
        lane.running -= 1;
        lane.wanted |= lane.more;
        lane.ends = lane.ends.saturating_sub(1);
        lane.first_end = lane.first_end.filter(|_| lane.ends > 0);
    }

    /// The end of an attempt is recorded and acknowledged: `runner` has room for another.
    pub(super) fn acknowledged(&mut self, runner: &RunnerName) {
        if let Some(there) = self.at.get_mut(runner) {
            *there -= 1;
        }
    }

    /// A claim of `asked` jobs brought `got`, for `runner` where they are commands.
    pub(super) fn claimed(
        &mut self,
        index: usize,
        asked: usize,
        got: usize,
        runner: Option<&RunnerName>,
    ) {
        if let Some(runner) = runner {
            *self.at.entry(runner.clone()).or_default() += got;
        }
        let lane = &mut self.all[index];
        // As many as asked for: there may be more.
        lane.more = got == asked;
        lane.wanted |= lane.more;
        lane.claiming -= asked;
        lane.running += got;
    }

    /// When the next waiting job is due, as of the claim of this number. Claims that are under way together
    /// may come back in another order than that of their commits.
    pub(super) fn set_due(&mut self, index: usize, claim: u64, due: Option<Timestamp>) {
        let lane = &mut self.all[index];
        if claim > lane.due_as_of {
            (lane.due, lane.due_as_of) = (due, claim);
        }
    }

    /// Everybody looks again.
    pub(super) fn want_all(&mut self) {
        self.all.iter_mut().for_each(|lane| lane.wanted = true);
    }

    /// Those with a job that is due look again.
    pub(super) fn want_due(&mut self, wall: Timestamp) {
        for lane in &mut self.all {
            lane.wanted |= lane.due.is_some_and(|due| due <= wall);
        }
    }

    /// How long nothing will change by time alone: until a job is due, a pause ends, or ends have waited.
    pub(super) fn patience(&self, wall: Timestamp, now: Duration) -> Option<Duration> {
        let waits = self.iter().filter_map(|lane| match lane.wanted {
            true => lane.paused_until(now).map(|until| until - now),
            false => lane.due.map(|due| due.since(wall)),
        });
        // Also where their time is over since the look that left them: nobody else would come back for them.
        let gathering = self.iter().filter(|lane| !lane.is_held_up());
        let gathering =
            gathering.filter_map(|lane| Some(lane.gathers_until()?.saturating_sub(now)));
        waits.chain(gathering).min()
    }

    /// The handler could not run: it pauses. Returns what is left of the pause.
    pub(super) fn broke(&mut self, index: usize, now: Duration) -> Duration {
        let lane = &mut self.all[index];
        // Attempts that were begun together with the one that found out do not make it longer.
        if let Some(until) = lane.paused_until(now) {
            return until - now;
        }
        let longer = lane.pause.map(|pause| pause.length.saturating_mul(2));
        let length = longer.unwrap_or(self.pause_base).min(self.pause_max);
        let failed = lane.pause.map_or(0, |pause| pause.failed.saturating_add(1));
        let told = lane.pause.is_some_and(|pause| pause.told);
        lane.pause = Some(Pause { until: now + length, length, failed, told });
        length
    }

    /// Whether as many probes of a handler have failed, and nobody was told: true once, until it runs.
    pub(super) fn tell_broken(&mut self, index: usize, after: u32) -> bool {
        match &mut self.all[index].pause {
            Some(pause) if pause.failed >= after => !std::mem::replace(&mut pause.told, true),
            _ => false,
        }
    }

    /// Tries of a handler that have failed since it last ran, together with the first one.
    pub(super) fn tries(&self, index: usize) -> u32 {
        self.all[index].pause.map_or(0, |pause| pause.failed.saturating_add(1))
    }

    /// The handler ran.
    pub(super) fn ran(&mut self, index: usize) {
        self.all[index].runs_again();
    }
}

/// Whose a handler's attempts are: nobody's but the receiver's where it is a forward.
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
    use crate::model::OnUnknown;
    use crate::retry::GiveUp;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(100);
    const SECOND: Duration = Duration::from_secs(1);

    /// Handlers with these concurrencies.
    fn lanes(limit: u64, concurrencies: &[usize]) -> Lanes {
        let limits = Limits { jobs_in_flight_count: limit, ..Limits::default() };
        let one = |(index, concurrency): (usize, &usize)| worker(index, *concurrency);
        let workers = concurrencies.iter().enumerate().map(one).collect();
        Lanes::new(workers, &Traffic::default(), &limits)
    }

    fn worker(index: usize, concurrency: usize) -> Worker {
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

    /// A command of this runner.
    fn command(runner: RunnerName) -> Command {
        let (configuration, timeout) = (crate::model::Digest([0; 32]), SECOND);
        Command { runner, configuration, timeout, output_bytes: (0, 0), answers: false }
    }

    /// The next claim where nobody is paused and no runner is there.
    fn next(lanes: &mut Lanes, now: Duration) -> Option<(usize, usize)> {
        lanes.next_claim(now, &BTreeMap::new(), &BTreeSet::new())
    }

    /// Everybody claims as much as they may and gets all of it.
    fn fill(lanes: &mut Lanes, now: Duration) -> Vec<(usize, usize)> {
        let mut claims = Vec::new();
        while let Some((index, slots)) = next(lanes, now) {
            lanes.claimed(index, slots, slots, None);
            claims.push((index, slots));
        }
        claims
    }

    #[test]
    fn an_end_frees_its_slot_for_the_exchange_that_records_it() {
        let mut lanes = lanes(64, &[3]);
        assert_eq!(fill(&mut lanes, NOW), [(0, 3)]);
        // Each with an exchange of its own, and neither waits for the other's.
        for _ in 0..2 {
            lanes.ended(0);
            lanes.get_mut(0).exchanges += 1;
            assert_eq!(next(&mut lanes, NOW), Some((0, 1)));
            assert_eq!(next(&mut lanes, NOW), None, "all slots are taken");
        }
        lanes.set_due(0, 2, Some(Timestamp(7)));
        lanes.claimed(0, 1, 0, None);
        // The other one was committed first: there was more then.
        lanes.set_due(0, 1, None);
        lanes.claimed(0, 1, 1, None);
        lanes.get_mut(0).exchanges = 0;
        assert_eq!(lanes.get_mut(0).due, Some(Timestamp(7)));
        assert_eq!(next(&mut lanes, NOW), Some((0, 1)));
        lanes.claimed(0, 1, 0, None);
        assert_eq!(next(&mut lanes, NOW), None, "nothing is left");

        // After one that failed there is none for a while.
        lanes.want_all();
        lanes.get_mut(0).resting = 1;
        assert_eq!(next(&mut lanes, NOW), None);
        lanes.get_mut(0).resting = 0;

        // Its number is not given away under an exchange that will come back with it.
        lanes.ended(0);
        lanes.ended(0);
        lanes.get_mut(0).exchanges = 1;
        lanes.reload(vec![worker(1, 1)], &Limits::default());
        assert_eq!((lanes.all.len(), lanes.all[0].name.as_str()), (2, "h0"));
    }

    #[test]
    fn few_ends_of_many_attempts_wait_for_each_other_a_moment_and_one_of_few_does_not() {
        let mut lanes = lanes(64, &[8, 2, 8]);
        assert_eq!(fill(&mut lanes, NOW), [(0, 8), (1, 2), (2, 8)]);
        for lane in &mut lanes.all[..2] {
            lane.handler = Arc::new(Handler::Command(command("default".parse().unwrap())));
        }
        lanes.came(2, NOW);
        assert!(!lanes.get(2).gathers(NOW), "forwards follow no order");
        lanes.came(1, NOW);
        assert!(!lanes.get(1).gathers(NOW));
        let waits = |lanes: &Lanes| (lanes.get(0).gathers(NOW), lanes.patience(Timestamp(0), NOW));
        assert_eq!(waits(&lanes), (false, None));
        for _ in 0..3 {
            lanes.came(0, NOW);
            assert_eq!(waits(&lanes), (true, Some(GATHER)));
        }
        assert!(!lanes.get(0).gathers(NOW + GATHER), "long enough");
        let after = lanes.patience(Timestamp(0), NOW + GATHER * 2);
        assert_eq!(after, Some(Duration::ZERO), "left by a look before, and not forgotten");
        lanes.get_mut(0).exchanges = 1;
        assert_eq!(waits(&lanes).1, None, "an exchange is under way");
        lanes.get_mut(0).exchanges = 0;
        lanes.came(0, NOW);
        assert_eq!(waits(&lanes), (false, None), "four of eight");
        for _ in 0..4 {
            lanes.ended(0);
        }
        lanes.came(0, NOW + GATHER);
        assert!(lanes.get(0).gathers(NOW + GATHER), "the next one waits anew");
    }

    #[test]
    fn whom_the_operator_paused_claims_nothing_and_stays_wanted() {
        let (mut lanes, paused) = (lanes(64, &[1, 1]), BTreeSet::from(["h0".parse().unwrap()]));
        assert_eq!(lanes.next_claim(NOW, &BTreeMap::new(), &paused), Some((1, 1)));
        assert_eq!(lanes.next_claim(NOW, &BTreeMap::new(), &paused), None);
        assert_eq!(next(&mut lanes, NOW), Some((0, 1)), "resumed");
    }

    #[test]
    fn nobody_claims_more_than_its_own_slots_or_ahead() {
        let mut lanes = lanes(64, &[3, 1]);
        assert_eq!(next(&mut lanes, NOW), Some((0, 3)));
        assert_eq!(next(&mut lanes, NOW), Some((1, 1)));
        assert_eq!(next(&mut lanes, NOW), None, "a claim is under way");
        lanes.claimed(0, 3, 2, None);
        assert_eq!(next(&mut lanes, NOW), None, "fewer than asked for: nothing is left");
        lanes.want_all();
        assert_eq!(next(&mut lanes, NOW), Some((0, 1)));
        lanes.claimed(0, 1, 1, None);
        assert_eq!(next(&mut lanes, NOW), None, "all slots are taken");
    }

    #[test]
    fn each_runner_has_room_of_its_own_which_moved_and_gone_handlers_take_too() {
        let name = |name: &str| name.parse::<RunnerName>().unwrap();
        let lane_of = |index: usize, runner: &str| {
            let mut lanes = lanes(64, &[9]);
            let lane = lanes.all.remove(0);
            let handler = Arc::new(Handler::Command(command(name(runner))));
            Lane { name: format!("h{index}").parse().unwrap(), handler, ..lane }
        };
        let (default, deploy) = (name("default"), name("deploy"));
        let incarnation = crate::model::Incarnation::from_parts(uuid::Uuid::nil(), 1);
        let room = |attempts| Room { incarnation, attempts };
        let rooms = BTreeMap::from([(default.clone(), room(3)), (deploy.clone(), room(4))]);
        let mut lanes = lanes(64, &[]);
        lanes.all = vec![lane_of(0, "default"), lane_of(1, "deploy"), lane_of(2, "nobody")];

        // One of the first handler began when it was the other runner's; one's handler is gone.
        assert_eq!(lanes.take_for(&"h0".parse().unwrap(), &deploy), Some(0));
        assert_eq!(lanes.take_for(&"gone".parse().unwrap(), &deploy), None);
        assert_eq!(
            lanes.next_claim(NOW, &rooms, &BTreeSet::new()),
            Some((0, 3)),
            "all of its runner's room"
        );
        assert_eq!(
            lanes.next_claim(NOW, &rooms, &BTreeSet::new()),
            Some((1, 2)),
            "what those leave of the other's"
        );
        assert_eq!(
            lanes.next_claim(NOW, &rooms, &BTreeSet::new()),
            None,
            "a third runner takes none"
        );
        lanes.claimed(0, 3, 3, Some(&default));
        lanes.claimed(1, 2, 2, Some(&deploy));
        lanes.acknowledged(&deploy);
        lanes.want_all();
        assert_eq!(lanes.next_claim(NOW, &rooms, &BTreeSet::new()), Some((1, 1)));
        lanes.claimed(1, 1, 1, Some(&deploy));
        lanes.want_all();
        lanes.ended(0);
        lanes.acknowledged(&deploy);
        assert_eq!(
            lanes.next_claim(NOW, &rooms, &BTreeSet::new()),
            Some((1, 1)),
            "not the first one's own"
        );
    }

    #[test]
    fn a_handler_that_moves_takes_its_slots_along() {
        let mut lanes = lanes(64, &[2]);
        let deploy: RunnerName = "deploy".parse().unwrap();
        let incarnation = crate::model::Incarnation::from_parts(uuid::Uuid::nil(), 1);
        let rooms = BTreeMap::from([(deploy.clone(), Room { incarnation, attempts: 9 })]);
        assert_eq!(fill(&mut lanes, NOW), [(0, 2)]);
        let moved = Worker { handler: Handler::Command(command(deploy.clone())), ..worker(0, 2) };
        lanes.reload(vec![moved], &Limits::default());
        assert_eq!(
            lanes.next_claim(NOW, &rooms, &BTreeSet::new()),
            None,
            "both run on where they began"
        );
        lanes.ended(0);
        assert_eq!(lanes.next_claim(NOW, &rooms, &BTreeSet::new()), Some((1, 1)));
        lanes.claimed(1, 1, 1, Some(&deploy));
        lanes.ended(0);
        assert_eq!(lanes.next_claim(NOW, &rooms, &BTreeSet::new()), Some((1, 1)));
    }

    #[test]
    fn a_busy_handler_leaves_a_slot_for_each_idle_one() {
        let mut lanes = lanes(4, &[100, 100, 100]);
        assert_eq!(fill(&mut lanes, NOW), [(0, 2), (1, 1), (2, 1)]);
        lanes.get_mut(1).running = 0;
        assert_eq!(fill(&mut lanes, NOW), [(1, 1)], "the first does not get the second's");
    }

    #[test]
    fn with_fewer_slots_than_handlers_they_take_turns() {
        let mut lanes = lanes(1, &[5, 5, 5]);
        let mut turns = Vec::new();
        for _ in 0..6 {
            let claims = fill(&mut lanes, NOW);
            assert_eq!(claims.len(), 1);
            turns.push(claims[0].0);
            lanes.get_mut(claims[0].0).running = 0;
        }
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_broken_handler_pauses_longer_each_time_and_probes_with_one() {
        let mut lanes = lanes(64, &[8, 8]);
        assert_eq!(fill(&mut lanes, NOW), [(0, 8), (1, 8)]);
        let mut now = NOW;
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let length = lanes.broke(0, now);
            assert_eq!(length.as_secs(), expected);
            // The fifth probe is the one after the fifth pause, of 16 s.
            assert_eq!(lanes.tell_broken(0, 5), expected == 32, "{expected}");
            assert_eq!(lanes.broke(0, now + SECOND / 2), length - SECOND / 2, "not longer");
            lanes.get_mut(0).running = 0;
            lanes.want_all();
            let before = now + length - SECOND / 1000;
            assert_eq!(next(&mut lanes, before), None);
            assert_eq!(lanes.patience(Timestamp(0), now), Some(length));
            now += length;
            assert_eq!(fill(&mut lanes, now), [(0, 1)], "one probe");
        }
        lanes.ran(0);
        lanes.get_mut(0).running = 0;
        assert_eq!(fill(&mut lanes, now), [(0, 8)]);
        assert_eq!(lanes.broke(0, now), SECOND, "from the beginning");
    }

    /// Handlers of these names with one slot each, as they are configured after a reload.
    fn reload(lanes: &mut Lanes, names: &[&str]) {
        let one = |name: &&str| Worker { name: name.parse().unwrap(), ..worker(0, 1) };
        lanes.reload(names.iter().map(one).collect(), &Limits::default());
    }

    fn names(lanes: &Lanes) -> Vec<&str> {
        lanes.iter().map(|lane| lane.name.as_str()).collect()
    }

    #[test]
    fn a_reload_moves_nobody_who_has_something_under_way() {
        let mut lanes = lanes(64, &[1, 3, 1]);
        assert_eq!(fill(&mut lanes, NOW), [(0, 1), (1, 3), (2, 1)]);
        lanes.ended(2);
        reload(&mut lanes, &["new", "h0", "newer"]);
        // The third had nothing under way: its place is another's. The second's is kept for its ends.
        assert_eq!(names(&lanes), ["h0", "new", "newer"]);
        let policy = |name: &str| lanes.policy(&name.parse().unwrap());
        assert!(policy("h1").is_none() && policy("h0").is_some());
        lanes.want_all();
        assert_eq!(fill(&mut lanes, NOW), [(2, 1), (3, 1)], "h0 is full, and h1 is gone");
        for _ in 0..3 {
            lanes.ended(1);
        }
        reload(&mut lanes, &["h0", "h1"]);
        lanes.want_all();
        assert_eq!(names(&lanes), ["h0", "h1"]);
        assert_eq!(fill(&mut lanes, NOW), [(1, 1)], "it is back, with one slot now");
        reload(&mut lanes, &[]);
        lanes.want_all();
        assert_eq!((next(&mut lanes, NOW), lanes.patience(Timestamp(0), NOW)), (None, None));
    }

    #[test]
    fn a_reload_lets_a_handler_that_cannot_run_try_at_once() {
        let mut lanes = lanes(64, &[1, 1]);
        fill(&mut lanes, NOW);
        let before = Arc::clone(&lanes.get_mut(0).handler);
        for index in [0, 1] {
            assert_eq!(lanes.broke(index, NOW), SECOND);
            lanes.ended(index);
        }
        let mut other = worker(1, 1);
        if let Handler::Forward(forward) = &mut other.handler {
            forward.timeout = 2 * SECOND;
        }
        lanes.reload(vec![worker(0, 1), other], &Limits::default());
        assert!(lanes.runs(0, &before) && !lanes.runs(1, &before));
        assert_eq!(fill(&mut lanes, NOW), [(0, 1), (1, 1)]);
        assert_eq!(lanes.broke(0, NOW), 2 * SECOND, "nothing of it has changed");
        assert_eq!(lanes.broke(1, NOW), SECOND, "it is another one now");
    }

    #[test]
    fn time_wakes_whoever_has_something_due() {
        let mut lanes = lanes(64, &[1, 1]);
        fill(&mut lanes, NOW);
        for (index, due) in [(0, 5_000), (1, 3_000)] {
            let lane = lanes.get_mut(index);
            (lane.running, lane.wanted, lane.due) = (0, false, Some(Timestamp(due)));
        }
        assert_eq!(lanes.patience(Timestamp(1_000), NOW), Some(2 * SECOND));
        lanes.want_due(Timestamp(2_999));
        assert_eq!(next(&mut lanes, NOW), None);
        lanes.want_due(Timestamp(3_000));
        assert_eq!(next(&mut lanes, NOW), Some((1, 1)));
    }

    /// What the dispatcher may hear of between two looks.
    #[derive(Debug, Clone, Copy)]
    enum Heard {
        Nothing,
        End,
        Exchanged { got: usize },
        ClaimFailed,
        Rested,
        Broke,
        Reload { slots: usize },
        Gone,
    }

    fn heard() -> impl Strategy<Value = Heard> {
        prop_oneof![
            2 => Just(Heard::Nothing),
            6 => Just(Heard::End),
            4 => (0usize..9).prop_map(|got| Heard::Exchanged { got }),
            1 => Just(Heard::ClaimFailed),
            1 => Just(Heard::Rested),
            1 => Just(Heard::Broke),
            1 => (1usize..12).prop_map(|slots| Heard::Reload { slots }),
            1 => Just(Heard::Gone),
        ]
    }

    proptest! {
        /// As `flow` does it, with one handler of commands.
        #[test]
        fn whoever_leaves_ends_behind_comes_back_for_them(
            steps in prop::collection::vec((heard(), 0u64..1_500, 0u64..5_000), 0..60),
        ) {
            let incarnation = crate::model::Incarnation::from_parts(uuid::Uuid::nil(), 1);
            let room = Room { incarnation, attempts: 64 };
            let rooms = BTreeMap::from([("default".parse().unwrap(), room)]);
            let mut lanes = lanes(64, &[]);
            let reload = |lanes: &mut Lanes, slots: usize| {
                let handler = Handler::Command(command("default".parse().unwrap()));
                lanes.reload(vec![Worker { handler, ..worker(0, slots) }], &Limits::default());
            };
            reload(&mut lanes, 8);
            let (mut now, mut left) = (NOW, 0);
            // What the exchange that is under way asks for, and what one that failed has.
            let (mut claim, mut failed): (Option<usize>, Option<usize>) = (None, None);
            for (heard, micros, late_micros) in steps {
                now += Duration::from_micros(micros);
                let under_way = lanes.get(0).exchanges > 0;
                match heard {
                    Heard::End if left < lanes.get(0).running => {
                        lanes.came(0, now);
                        left += 1;
                    }
                    Heard::Exchanged { got } if under_way => {
                        lanes.get_mut(0).exchanges = 0;
                        if let Some(asked) = claim.take() {
                            lanes.claimed(0, asked, got.min(asked), None);
                        }
                    }
                    Heard::ClaimFailed if claim.is_some() => {
                        lanes.get_mut(0).exchanges = 0;
                        lanes.get_mut(0).resting = 1;
                        failed = claim.take();
                    }
                    Heard::Rested => {
                        if let Some(asked) = failed.take() {
                            lanes.claimed(0, asked, 0, None);
                            (lanes.get_mut(0).resting, lanes.get_mut(0).wanted) = (0, true);
                        }
                    }
                    Heard::Broke => drop(lanes.broke(0, now)),
                    Heard::Reload { slots } => reload(&mut lanes, slots),
                    Heard::Gone => lanes.reload(Vec::new(), &Limits::default()),
                    _ => lanes.want_all(),
                }
                let lane = lanes.get(0);
                let goes = left > 0 && !lane.is_held_up() && !lane.gathers(now);
                if goes {
                    (0..std::mem::take(&mut left)).for_each(|_| lanes.ended(0));
                }
                let claims = lanes.next_claim(now, &rooms, &BTreeSet::new());
                claim = claims.map(|(_, asked)| asked).or(claim);
                lanes.get_mut(0).exchanges += usize::from(goes || claims.is_some());

                let late = now + Duration::from_micros(late_micros);
                let sleeps = lanes.patience(Timestamp(0), late);
                let wakes = sleeps.is_some_and(|sleeps| late + sleeps <= late.max(now + GATHER));
                prop_assert!(left == 0 || lanes.get(0).is_held_up() || wakes);
            }
        }
    }
}
