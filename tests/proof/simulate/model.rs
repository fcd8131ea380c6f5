//! A model of the store in plain maps, written from the promises and the table of states in
//! `docs/protocol.md`. It uses the product's types but not its logic.

use std::collections::BTreeMap;

use hooklatch::model::{DeadReason, GroupRule, HeldReason, JobId, OnUnknown, Outcome, State};
use hooklatch::retry::{GiveUp, Next, Policy};
use hooklatch::store::Accepted;

use super::deliveries::Delivery;
use super::world::EngineKind;

/// One accepted body under one id.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) delivery: Delivery,
    pub(crate) variant: u32,
    pub(crate) received_at: i64,
    pub(crate) duplicates: u64,
    pub(crate) last_duplicate_at: Option<i64>,
    pub(crate) conflicts: u64,
    pub(crate) flagged: bool,
    pub(crate) payload_kept: bool,
    /// The number of its jobs that were deleted with the payload, by their final state.
    pub(crate) removed: BTreeMap<State, u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) event: u64,
    pub(crate) handler: &'static str,
    /// The job's random id; set when the test first sees it.
    pub(crate) id: Option<JobId>,
    pub(crate) state: State,
    pub(crate) reason: Option<&'static str>,
    pub(crate) counted: u32,
    pub(crate) since: i64,
    pub(crate) replays: u32,
    pub(crate) created_at: i64,
    pub(crate) due_at: Option<i64>,
    /// When its last wait began, and how long that is.
    wait: (i64, i64),
    pub(crate) settled_at: Option<i64>,
    pub(crate) attempts: Vec<Attempt>,
    /// Its key and rule.
    pub(crate) group: Option<(String, GroupRule)>,
    pub(crate) behind: bool,
    pub(crate) superseded_by: Option<u64>,
    pub(crate) undecided: bool,
    /// When the first event came of those whose delay goes on with it.
    wait_since: Option<i64>,
}

/// What a handler wants of an event.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) handler: &'static str,
    pub(crate) undecided: bool,
    pub(crate) group: Option<(String, GroupRule)>,
    /// The wait and the longest wait, in milliseconds.
    pub(crate) delay: Option<(i64, i64)>,
}

impl Wanted {
    fn at_once(handler: &'static str) -> Self {
        Wanted { handler, undecided: false, group: None, delay: None }
    }
}

impl Job {
    fn rule(&self) -> Option<GroupRule> {
        self.group.as_ref().map(|(_, rule)| *rule)
    }

    /// Whether it keeps the later ones of its group waiting.
    pub(crate) fn holds(&self) -> bool {
        let Some(rule) = self.rule() else { return false };
        let forged = matches!(self.reason, Some("suspected replay" | "id reused"));
        match self.state {
            State::Ready | State::Running | State::Waiting => true,
            State::Held => rule != GroupRule::Latest && !forged,
            State::Dead => rule == GroupRule::Block && self.reason != Some("resolved as failed"),
            State::Succeeded | State::Dropped => false,
        }
    }

    fn of_group(&self, handler: &str, key: &str) -> bool {
        self.handler == handler && self.group.as_ref().is_some_and(|(own, _)| own == key)
    }

    fn waits(&self) -> bool {
        matches!(self.state, State::Ready | State::Waiting)
    }

    fn settle(&mut self, state: State, reason: &'static str, now: i64) {
        (self.state, self.reason) = (state, Some(reason));
        (self.due_at, self.settled_at) = (None, Some(now));
    }

    fn supersede(&mut self, by: u64, now: i64) {
        self.settle(State::Dropped, "superseded", now);
        (self.behind, self.superseded_by) = (false, Some(by));
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Whether a runner has the attempt, and so keeps it when the receiver dies.
    pub(crate) outlives: bool,
    pub(crate) started_at: i64,
    pub(crate) end: Option<(i64, Outcome)>,
}

/// Whether a runner runs this handler's attempts; otherwise the receiver does.
pub(crate) fn is_command(handler: &str) -> bool {
    matches!(handler, "bill" | "mail")
}

/// The reason for which an operator's replay is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum No {
    NotFound,
    WrongState,
    Ambiguous,
    Variants,
    PayloadGone,
    Superseded,
}

impl No {
    pub(crate) fn name(self) -> &'static str {
        match self {
            No::NotFound => "not found",
            No::WrongState => "wrong state",
            No::Ambiguous => "ambiguous",
            No::Variants => "variants",
            No::PayloadGone => "payload gone",
            No::Superseded => "a newer one has run",
        }
    }
}

/// Events and jobs, in the order of their creation.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    engine: EngineKind,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) jobs: BTreeMap<u64, Job>,
    last: u64,
    /// The last event that retention took the jobs of, if one of them had run and only the latest of its group counts.
    newest_removed: u64,
}

impl Model {
    pub(crate) fn of(engine: EngineKind) -> Self {
        Model { engine, events: BTreeMap::new(), jobs: BTreeMap::new(), last: 0, newest_removed: 0 }
    }

    /// Since when the job is tried, for the decision to give up. On PostgreSQL a node gets that as an age by the
    /// database's clock (N30): where the clock was set back before it, the age is zero.
    pub(crate) fn since(&self, row: u64, now: i64) -> i64 {
        let since = self.jobs[&row].since;
        if self.engine == EngineKind::Postgres { since.min(now) } else { since }
    }

    /// The ready and waiting jobs whose handler has no policy. PostgreSQL looks for such a handler among the jobs that
    /// are not behind another one, which an index has. If all are behind, they are held once one is not.
    fn orphans(&self, policies: &[(&'static str, Policy)]) -> Vec<u64> {
        let is_known = |handler: &str| policies.iter().any(|(name, _)| *name == handler);
        let jobs = self.jobs.values().filter(|job| job.waits());
        let found = jobs.filter(|job| self.engine == EngineKind::Sqlite || !job.behind);
        let gone: Vec<_> = found.map(|job| job.handler).filter(|name| !is_known(name)).collect();
        let is_orphan = |job: &Job| job.waits() && gone.contains(&job.handler);
        self.jobs.iter().filter(|(_, job)| is_orphan(job)).map(|(&row, _)| row).collect()
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// All events with one id, the first one first.
    pub(crate) fn of_id(&self, source: &str, id: &str) -> Vec<u64> {
        let mut found: Vec<_> = self
            .events
            .iter()
            .filter(|(_, e)| e.delivery.source == source && e.delivery.id == id)
            .map(|(&row, e)| (e.variant, row))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, row)| row).collect()
    }

    pub(crate) fn jobs_of(&self, event: u64) -> Vec<u64> {
        self.jobs.iter().filter(|(_, job)| job.event == event).map(|(&row, _)| row).collect()
    }

    pub(crate) fn accept(&mut self, delivery: &Delivery, wanted: &[Wanted], now: i64) -> Accepted {
        let known = self.of_id(delivery.source, &delivery.id);
        let signed = delivery.id_signed();
        let same = known.iter().copied().find(|row| {
            let other = &self.events[row].delivery;
            other.content == delivery.content && (signed || other.kind == delivery.kind)
        });
        match (same, known.first()) {
            (Some(event), _) => return self.duplicate(event, false, now),
            (None, Some(&first)) if signed => return self.duplicate(first, true, now),
            _ => {}
        }
        let variant = known.last().map_or(0, |last| self.events[last].variant + 1);
        let (held, flagged) = match (variant, delivery.repeats) {
            (1.., _) => (Some(HeldReason::IdReused), false),
            (0, None) => (None, false),
            (0, Some(repeats)) => self.suspect(delivery, repeats),
        };
        let event = self.number();
        self.events.insert(
            event,
            Event {
                delivery: delivery.clone(),
                variant,
                received_at: now,
                duplicates: 0,
                last_duplicate_at: None,
                conflicts: 0,
                flagged,
                payload_kept: true,
                removed: BTreeMap::new(),
            },
        );
        for wanted in wanted {
            self.make_new_job(event, wanted, held, now);
        }
        Accepted::Created { jobs: wanted.len(), held, flagged }
    }

    /// Treats the same signed body under another id: it is held if its type differs too; otherwise its type
    /// decides.
    fn suspect(&self, delivery: &Delivery, repeats: bool) -> (Option<HeldReason>, bool) {
        let mut kinds = self.events.values().filter_map(|e| {
            let same =
                e.delivery.source == delivery.source && e.delivery.content == delivery.content;
            same.then_some(&e.delivery.kind)
        });
        let seen = kinds.clone().next().is_some();
        let other = kinds.any(|kind| *kind != delivery.kind);
        match (seen, other || !repeats) {
            (false, _) => (None, false),
            (true, true) => (Some(HeldReason::SuspectedReplay), false),
            (true, false) => (None, true),
        }
    }

    fn duplicate(&mut self, event: u64, conflict: bool, now: i64) -> Accepted {
        // The state that is most important to the operator.
        const CONCERN: [State; 7] = [
            State::Held,
            State::Dead,
            State::Running,
            State::Waiting,
            State::Ready,
            State::Succeeded,
            State::Dropped,
        ];
        let of_event = self.jobs.values().filter(|job| job.event == event);
        let removed = self.events[&event].removed.keys().copied();
        let states: Vec<State> = of_event.map(|job| job.state).chain(removed).collect();
        let removed = !self.events[&event].removed.is_empty();
        let event = self.events.get_mut(&event).unwrap();
        event.duplicates += 1;
        event.conflicts += u64::from(conflict);
        event.last_duplicate_at = Some(now);
        Accepted::Duplicate {
            state: CONCERN.into_iter().find(|state| states.contains(state)),
            removed,
            replayed: 0,
            first_received_at: hooklatch::model::Timestamp(event.received_at),
            conflict,
        }
    }

    /// Makes the job of a new event.
    fn make_new_job(&mut self, event: u64, wanted: &Wanted, held: Option<HeldReason>, now: i64) {
        let held = held.or(wanted.undecided.then_some(HeldReason::ConditionFailed));
        let row = self.make_job(event, wanted, held, now);
        let job = self.jobs.get_mut(&row).unwrap();
        job.undecided = wanted.undecided;
        if held.is_some() {
            return;
        }
        let mut first = None;
        if let Some((key, GroupRule::Latest)) = &wanted.group {
            let replaced = self.jobs.iter_mut().filter(|(other, job)| {
                let latest = job.rule() == Some(GroupRule::Latest);
                **other != row && job.of_group(wanted.handler, key) && latest && job.waits()
            });
            for (_, job) in replaced {
                job.supersede(row, now);
                let since = job.wait_since.filter(|_| job.attempts.is_empty());
                first = first.into_iter().chain(since).min();
            }
            self.release(wanted.handler, key);
            self.go_behind(row);
        }
        let Some((wait, most)) = wanted.delay else { return };
        let since = first.unwrap_or(now).min(now);
        let end = if first.is_some() { since + most } else { i64::MAX };
        let job = self.jobs.get_mut(&row).unwrap();
        job.wait_since = Some(since);
        job.state = State::Waiting;
        job.due_at = Some((now + wait).min(end).max(now));
        job.since = job.due_at.unwrap();
        job.wait = (now, job.since - now);
    }

    /// Lets the first job behind go on, where no other holds the group.
    fn release(&mut self, handler: &str, key: &str) {
        let of_group = |job: &&mut Job| job.of_group(handler, key);
        let mut jobs: Vec<&mut Job> = self.jobs.values_mut().filter(of_group).collect();
        if jobs.iter().any(|job| job.holds() && !job.behind) {
            return;
        }
        let behind = jobs.iter_mut().filter(|job| job.behind);
        if let Some(next) = behind.min_by_key(|job| job.event) {
            next.behind = false;
        }
    }

    /// Lets the first job behind go on in the group of this job, which was moved.
    fn moved(&mut self, row: u64) {
        let job = self.jobs.get_mut(&row).unwrap();
        job.behind &= job.holds();
        if let (handler, Some((key, _))) = (job.handler, job.group.clone()) {
            self.release(handler, &key);
        }
    }

    /// Puts this job behind another that holds its group.
    fn go_behind(&mut self, row: u64) {
        let job = &self.jobs[&row];
        let Some((key, _)) = &job.group else { return };
        let holds = |(other, one): (&u64, &Job)| {
            *other != row && one.of_group(job.handler, key) && one.holds() && !one.behind
        };
        let behind = job.holds() && self.jobs.iter().any(holds);
        self.jobs.get_mut(&row).unwrap().behind = behind;
    }

    /// Whether only the latest event of the job's group counts, and a newer one has begun or will. One that was removed
    /// may have been of the same group.
    fn is_outdated(&self, row: u64) -> bool {
        let job = &self.jobs[&row];
        let Some((key, GroupRule::Latest)) = &job.group else { return false };
        self.jobs.values().any(|one| {
            let begins = !one.attempts.is_empty() || one.holds();
            one.of_group(job.handler, key) && one.event > job.event && begins
        }) || job.event < self.newest_removed
    }

    pub(crate) fn drop_job(&mut self, row: u64, now: i64) -> Result<State, No> {
        let job = self.jobs.get_mut(&row).ok_or(No::NotFound)?;
        let before = job.state;
        if matches!(before, State::Running | State::Succeeded | State::Dropped) {
            return Err(No::WrongState);
        }
        job.settle(State::Dropped, "by the operator", now);
        self.moved(row);
        Ok(before)
    }

    pub(crate) fn resolve(&mut self, row: u64, well: bool, now: i64) -> Result<State, No> {
        let job = self.jobs.get_mut(&row).ok_or(No::NotFound)?;
        if job.state != State::Held {
            return Err(No::WrongState);
        }
        if well {
            job.settle(State::Succeeded, "", now);
            job.reason = None;
        } else {
            job.settle(State::Dead, "resolved as failed", now);
        }
        self.moved(row);
        Ok(self.jobs[&row].state)
    }

    fn make_job(&mut self, event: u64, wanted: &Wanted, held: Option<HeldReason>, now: i64) -> u64 {
        let row = self.number();
        let job = Job {
            event,
            handler: wanted.handler,
            id: None,
            state: if held.is_some() { State::Held } else { State::Ready },
            reason: held.map(HeldReason::as_str),
            counted: 0,
            since: now,
            replays: 0,
            created_at: now,
            due_at: None,
            wait: (now, 0),
            settled_at: None,
            attempts: Vec::new(),
            group: wanted.group.clone(),
            behind: false,
            superseded_by: None,
            undecided: false,
            wait_since: None,
        };
        self.jobs.insert(row, job);
        self.go_behind(row);
        row
    }

    /// At most `limit` jobs: the oldest ready ones and those due first, in the order of arrival.
    pub(crate) fn claim(&mut self, handler: &str, limit: usize, now: i64) -> Vec<u64> {
        let of_state = |state| {
            self.jobs
                .iter()
                .filter(move |(_, job)| job.handler == handler && job.state == state && !job.behind)
        };
        let mut due: Vec<(i64, u64)> = of_state(State::Waiting)
            .filter_map(|(&row, job)| job.due_at.filter(|&due| due <= now).map(|due| (due, row)))
            .collect();
        due.sort_unstable();
        let ready = of_state(State::Ready).map(|(&row, _)| row).take(limit);
        let mut chosen: Vec<u64> =
            ready.chain(due.into_iter().map(|(_, row)| row).take(limit)).collect();
        chosen.sort_unstable();
        chosen.truncate(limit);
        for row in &chosen {
            let job = self.jobs.get_mut(row).unwrap();
            assert!(self.events[&job.event].payload_kept, "a job that can run has its payload");
            job.state = State::Running;
            job.due_at = None;
            let outlives = is_command(job.handler);
            job.attempts.push(Attempt { outlives, started_at: now, end: None });
        }
        chosen
    }

    /// Completes an attempt. Returns whether it was the running one.
    pub(crate) fn complete(
        &mut self,
        row: u64,
        number: usize,
        outcome: Outcome,
        counts: bool,
        next: Next,
        now: i64,
    ) -> bool {
        let job = self.jobs.get_mut(&row).unwrap();
        if job.state != State::Running || job.attempts.len() != number {
            return false;
        }
        job.attempts[number - 1].end = Some((now, outcome));
        job.counted += u32::from(counts);
        let (state, reason, due_at) = match next {
            Next::Succeeded => (State::Succeeded, None, None),
            Next::Wait { due_at } => (State::Waiting, None, Some(due_at.0)),
            Next::Ready => (State::Ready, None, None),
            Next::Dead(reason) => (State::Dead, Some(reason.as_str()), None),
            Next::Held(reason) => (State::Held, Some(reason.as_str()), None),
        };
        job.state = state;
        job.reason = reason;
        job.due_at = due_at;
        job.wait = (now, due_at.map_or(0, |due| due - now));
        job.settled_at = matches!(state, State::Succeeded | State::Dead).then_some(now);
        if job.waits() && job.rule() == Some(GroupRule::Latest) {
            let (handler, event) = (job.handler, job.event);
            let key = job.group.as_ref().unwrap().0.clone();
            let newer = self.jobs.iter().filter(|(_, one)| {
                let latest = one.rule() == Some(GroupRule::Latest);
                one.of_group(handler, &key)
                    && latest
                    && one.event > event
                    && one.behind
                    && one.waits()
            });
            if let Some((&newest, _)) = newer.max_by_key(|(_, one)| one.event) {
                self.jobs.get_mut(&row).unwrap().supersede(newest, now);
            }
        }
        self.moved(row);
        true
    }

    /// Recovers as a start does. Returns the attempts that it settled, with the state after each, and the
    /// number of jobs that it held.
    pub(crate) fn recover(
        &mut self,
        policies: &[(&'static str, Policy)],
        now: i64,
    ) -> (Vec<(u64, State)>, u64) {
        let policy = |handler: &str| policies.iter().find(|(name, _)| *name == handler);
        let mut running: Vec<u64> = self.in_state(State::Running);
        running.retain(|row| self.jobs[row].attempts.last().is_some_and(|one| !one.outlives));
        let mut unknown = Vec::new();
        for row in running {
            let job = &self.jobs[&row];
            let next = match policy(job.handler) {
                Some((_, policy)) => {
                    next(policy, Outcome::Unknown, job.counted + 1, self.since(row, now), None, now)
                }
                None => Next::Held(HeldReason::UnknownOutcome),
            };
            let number = job.attempts.len();
            assert!(self.complete(row, number, Outcome::Unknown, true, next, now));
            unknown.push((row, self.jobs[&row].state));
        }
        let orphans = self.orphans(policies);
        for row in &orphans {
            let job = self.jobs.get_mut(row).unwrap();
            job.state = State::Held;
            job.reason = Some(HeldReason::HandlerGone.as_str());
            job.due_at = None;
            job.behind &= job.holds();
        }
        orphans.iter().for_each(|row| self.moved(*row));
        self.clamp(now);
        (unknown, orphans.len() as u64)
    }

    pub(crate) fn in_state(&self, state: State) -> Vec<u64> {
        self.jobs.iter().filter(|(_, job)| job.state == state).map(|(&row, _)| row).collect()
    }

    /// Begins anew each wait that began in the future, because the clock was set back (K1). Returns how many.
    pub(crate) fn clamp(&mut self, now: i64) -> u64 {
        let mut moved = 0;
        for job in self.jobs.values_mut().filter(|job| job.state == State::Waiting) {
            let (began, length) = job.wait;
            if began > now {
                (job.due_at, job.wait.0) = (Some(now + length), now);
                moved += 1;
            }
            assert!(job.due_at.unwrap() - now <= length, "waits for longer than its own delay");
        }
        moved
    }

    pub(crate) fn next_due(&self, handler: &str) -> Option<i64> {
        let of = |job: &&Job| job.handler == handler && !job.behind;
        self.jobs.values().filter(of).filter_map(|job| job.due_at).min()
    }

    fn put_back(&mut self, row: u64, now: i64) {
        let job = self.jobs.get_mut(&row).unwrap();
        job.state = State::Ready;
        (job.reason, job.due_at, job.settled_at) = (None, None, None);
        (job.counted, job.since) = (0, now);
        job.replays += 1;
        (job.undecided, job.wait_since) = (false, None);
        self.go_behind(row);
    }

    pub(crate) fn replay_job(
        &mut self,
        row: u64,
        regardless: bool,
        now: i64,
    ) -> Result<Vec<u64>, No> {
        let job = self.jobs.get(&row).ok_or(No::NotFound)?;
        if !can_be_replayed(job.state) {
            return Err(No::WrongState);
        }
        if !regardless && self.is_outdated(row) {
            return Err(No::Superseded);
        }
        if !self.events[&job.event].payload_kept {
            return Err(No::PayloadGone);
        }
        self.put_back(row, now);
        Ok(vec![row])
    }

    pub(crate) fn replay_event(
        &mut self,
        source: Option<&str>,
        id: &str,
        handler: Option<&'static str>,
        regardless: bool,
        now: i64,
    ) -> Result<Vec<u64>, No> {
        let found: Vec<u64> = self
            .events
            .iter()
            .filter(|(_, e)| e.delivery.id == id && source.is_none_or(|s| e.delivery.source == s))
            .map(|(&row, _)| row)
            .collect();
        let event = match found[..] {
            [] => return Err(No::NotFound),
            [event] => event,
            [first, ..] => {
                let source = self.events[&first].delivery.source;
                let one = found.iter().all(|row| self.events[row].delivery.source == source);
                return Err(if one { No::Variants } else { No::Ambiguous });
            }
        };
        let (kept, jobs) = (self.events[&event].payload_kept, self.jobs_of(event));
        let removed = !self.events[&event].removed.is_empty();
        let chosen: Vec<u64> = match handler {
            _ if removed => return Err(No::PayloadGone),
            None => {
                let stuck = |state| matches!(state, State::Held | State::Dead);
                jobs.into_iter().filter(|row| stuck(self.jobs[row].state)).collect()
            }
            Some(handler) => match jobs.iter().find(|row| self.jobs[row].handler == handler) {
                Some(row) if !can_be_replayed(self.jobs[row].state) => return Err(No::WrongState),
                Some(&row) => vec![row],
                None if kept => {
                    return Ok(vec![self.make_job(event, &Wanted::at_once(handler), None, now)]);
                }
                None => return Err(No::PayloadGone),
            },
        };
        for &row in &chosen {
            if !regardless && self.is_outdated(row) {
                return Err(No::Superseded);
            }
            if !kept {
                return Err(No::PayloadGone);
            }
        }
        chosen.iter().for_each(|&row| self.put_back(row, now));
        Ok(chosen)
    }

    /// Retention. A payload is deleted with its jobs when all of them reached a final state long enough ago.
    /// An id is kept as a whole: all of its events stay while one of them must stay.
    pub(crate) fn expire(&mut self, payloads: i64, ids: i64) -> (u64, u64) {
        let needed = |jobs: &BTreeMap<u64, Job>, event: u64| {
            jobs.values().any(|job| {
                job.event == event && !matches!(job.state, State::Succeeded | State::Dropped)
            })
        };
        let mut deleted = (0, 0);
        for (&row, event) in &mut self.events {
            let mut jobs = self.jobs.values().filter(|job| job.event == row);
            let recent = jobs.any(|job| job.settled_at.is_some_and(|at| at >= payloads));
            let old = event.received_at < payloads && !recent;
            if event.payload_kept && old && !needed(&self.jobs, row) {
                event.payload_kept = false;
                for job in self.jobs.values().filter(|job| job.event == row) {
                    if job.rule() == Some(GroupRule::Latest) && !job.attempts.is_empty() {
                        self.newest_removed = self.newest_removed.max(row);
                    }
                    *event.removed.entry(job.state).or_default() += 1;
                }
                self.jobs.retain(|_, job| job.event != row);
                deleted.0 += 1;
            }
        }
        let stays = |row: &u64| {
            let event = &self.events[row];
            event.payload_kept || event.received_at >= ids || needed(&self.jobs, *row)
        };
        let gone: Vec<u64> = self
            .events
            .iter()
            .filter(|(_, e)| !self.of_id(e.delivery.source, &e.delivery.id).iter().any(stays))
            .map(|(&row, _)| row)
            .collect();
        for row in gone {
            self.events.remove(&row);
            self.jobs.retain(|_, job| job.event != row);
            deleted.1 += 1;
        }
        deleted
    }
}

fn can_be_replayed(state: State) -> bool {
    matches!(state, State::Held | State::Dead | State::Succeeded)
}

pub(crate) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap()
}

/// The job's next state after an attempt that is included in `counted`.
pub(crate) fn next(
    policy: &Policy,
    outcome: Outcome,
    counted: u32,
    since: i64,
    wish: Option<i64>,
    now: i64,
) -> Next {
    let most = millis(policy.backoff_max);
    let mut delay = millis(policy.backoff_base).min(most);
    for _ in 1..counted {
        delay = (delay * 4).min(most);
    }
    // The handler may ask for a longer delay, up to the longest.
    let due = now + wish.unwrap_or(delay).max(delay).min(most);
    let left = match policy.give_up {
        GiveUp::Attempts(most) => counted < most,
        GiveUp::After(age) => due <= since + millis(age),
    };
    let wait = Next::Wait { due_at: hooklatch::model::Timestamp(due) };
    match outcome {
        Outcome::Succeeded => Next::Succeeded,
        Outcome::Rejected => Next::Dead(DeadReason::Rejected),
        Outcome::Cancelled => Next::Held(HeldReason::Cancelled),
        Outcome::NotStarted => Next::Ready,
        Outcome::Failed if left => wait,
        Outcome::Failed => Next::Dead(DeadReason::Exhausted),
        Outcome::TimedOut | Outcome::Unknown if left && policy.on_unknown == OnUnknown::Rerun => {
            wait
        }
        Outcome::TimedOut | Outcome::Unknown => Next::Held(HeldReason::UnknownOutcome),
    }
}
