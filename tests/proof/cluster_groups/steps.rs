//! The steps of the transactions: open, lock, decide, commit; and what fails.

use super::rules::{Faults, Rules};
use super::state::{Decision, NODES, State, Stray, Transaction, Verb};
use super::step::{Step, subject};
use crate::groups::promises::{self, Q1};
use crate::groups::rules::{Budget, GroupRule};
use crate::groups::state::{EVENTS, Job, Stage, State as Group, Without};
use crate::groups::steps::{Groups, Step as Move};
use crate::model::checker::{Model, Next};

/// An event that came after another one was acknowledged is younger than that one.
pub(crate) const Q7: u8 = 64;

/// One group of one handler on two nodes.
#[derive(Clone, Copy)]
pub(crate) struct Cluster {
    pub(crate) rules: Rules,
    pub(crate) group: GroupRule,
    pub(crate) budget: Budget,
    pub(crate) faults: Faults,
}

/// The steps out of one state.
struct Steps<'a> {
    cluster: &'a Cluster,
    from: &'a State,
    /// What one machine's store may do next.
    moves: &'a [Next<Group, Move>],
    next: &'a mut Vec<Next<State, Step>>,
}

impl Model for Cluster {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let rows = self.groups().start();
        let faults = self.faults;
        State {
            rows,
            standby: rows,
            transactions: [None; NODES],
            runs: [None; EVENTS],
            strays: [None; 3],
            cached: [0, EVENTS / 2],
            faults,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<Next<State, Step>>) {
        let mut moves = self.moves(&state.rows, None);
        if !self.rules.own_row {
            moves.retain(|next| !matches!(next.step, Move::Claim(_)));
            moves.extend(self.first_unlocked(state));
        }
        let mut steps = Steps { cluster: self, from: state, moves: &moves, next };
        for node in 0..NODES {
            match &state.transactions[node] {
                None => steps.open(node),
                Some(transaction) => steps.go_on(node, transaction),
            }
        }
        steps.outside();
    }

    /// Whether the remaining jobs are behind one that waits for a person, as on one machine.
    fn settled(&self, state: &State) -> bool {
        self.groups().settled(&state.rows)
    }

    fn describe(&self, state: &State) -> String {
        self.groups().describe(&state.rows)
    }
}

impl Cluster {
    fn groups(&self) -> Groups {
        Groups { rule: self.group, other: self.group, without: Without(&[]), budget: self.budget }
    }

    fn needs_lock(&self, verb: Verb) -> bool {
        match verb {
            Verb::Accept => self.rules.accept_locks,
            Verb::Claim => self.rules.claim_locks,
            Verb::End => self.rules.end_locks,
            Verb::Move => self.rules.move_locks,
            Verb::Lost => self.rules.lost_locks,
        }
    }

    /// What one machine's store may do with these rows.
    fn moves(&self, rows: &Group, number: Option<usize>) -> Vec<Next<Group, Move>> {
        let view = Group { next: number.unwrap_or(rows.next), ..*rows };
        let mut moves = Vec::new();
        self.groups().steps(&view, &mut moves);
        moves
    }

    /// Whether a transaction of this node may be about this.
    fn may(&self, state: &State, node: usize, verb: Verb, step: Move) -> bool {
        match (verb, step) {
            (Verb::Accept, Move::Accept(..)) => true,
            (Verb::Claim, Move::Claim(job)) => self.may_claim(state, node, job),
            (Verb::End, Move::End(job, _) | Move::NotStarted(job)) => state.runs[job] == Some(node),
            (Verb::Lost, Move::End(job, Stage::Held | Stage::Waiting)) => {
                state.runs[job].is_some_and(|runs| runs != node)
            }
            (Verb::Move, Move::Replay(..) | Move::Make(..) | Move::Drop(_) | Move::Resolve(..)) => {
                true
            }
            (Verb::Move, Move::Redelivery(_) | Move::Remove(_)) => true,
            _ => false,
        }
    }

    /// N38 off: the oldest job whose row is not locked, if no job runs.
    fn first_unlocked(&self, state: &State) -> Option<Next<Group, Move>> {
        let jobs = &state.rows.jobs;
        let free = |job: &usize| jobs[*job].is_pending() && !state.is_row_locked(*job);
        if jobs.iter().any(|job| job.stage == Stage::Running) {
            return None;
        }
        let job = (0..EVENTS).find(free)?;
        let mut view = state.rows;
        view.jobs[job].behind = false;
        let moves = self.moves(&view, None).into_iter();
        moves.into_iter().find(|next| next.step == Move::Claim(job))
    }

    fn may_claim(&self, state: &State, node: usize, job: usize) -> bool {
        state.strays().all(|stray| {
            let listed = stray.node == node && (self.rules.none_of_group || stray.job == job);
            let called = !stray.declared && (self.rules.roll_call || stray.job == job);
            !listed && !called
        })
    }
}

impl Steps<'_> {
    fn add(&mut self, step: Step, mut state: State, broken: u8, fault: bool) {
        state.tidy();
        self.next.push(Next { step, state, broken, fault });
    }

    fn finds(&self, node: usize, verb: Verb) -> bool {
        self.moves.iter().any(|next| self.cluster.may(self.from, node, verb, next.step))
    }

    fn open(&mut self, node: usize) {
        let Cluster { rules, .. } = *self.cluster;
        for verb in [Verb::Accept, Verb::Claim, Verb::End, Verb::Move, Verb::Lost] {
            let mut t = *self.from;
            if !self.finds(node, verb) {
                continue;
            }
            let locked = self.cluster.needs_lock(verb) && rules.decides_behind_lock;
            // Locks as it opens: a transaction that only waits has no effect.
            let at_once = locked && (rules.number_behind_lock || verb != Verb::Accept);
            if at_once && t.is_locked() {
                continue;
            }
            if verb == Verb::Lost {
                let Some(left) = t.faults.declarations.checked_sub(1) else { continue };
                t.faults.declarations = left;
            }
            let number = (verb == Verb::Accept && !rules.number_behind_lock).then_some(t.rows.next);
            if number == Some(EVENTS) {
                continue;
            }
            t.rows.next += usize::from(number.is_some());
            let stored = |stage: Stage| stage != Stage::Absent;
            let arrived_after = t.rows.jobs.map(|job| stored(job.stage));
            t.transactions[node] =
                Some(Transaction { verb, locked: at_once, number, arrived_after, decision: None });
            let fault = !matches!(verb, Verb::Claim | Verb::End);
            self.add(Step::Opens(node, verb, number), t, 0, fault);
        }
    }

    fn go_on(&mut self, node: usize, transaction: &Transaction) {
        let Transaction { verb, locked, .. } = *transaction;
        let needs = self.cluster.needs_lock(verb);
        let mut others = *self.from;
        others.transactions[node] = None;
        if needs && !locked && !others.is_locked() {
            let mut t = *self.from;
            t.transactions[node] = Some(Transaction { locked: true, ..*transaction });
            self.add(Step::Locks(node), t, 0, false);
        }
        match &transaction.decision {
            Some(decision) if locked || !needs => self.commit(node, verb, transaction, decision),
            None if locked || !needs || !self.cluster.rules.decides_behind_lock => {
                self.decide(node, transaction, &others);
            }
            _ => {}
        }
        if transaction.decision.is_none() && !self.finds(node, verb) {
            // Nothing is left to do.
            self.add(Step::Aborts(node), others, 0, false);
        } else if let Some(left) = self.from.faults.aborts.checked_sub(1) {
            others.faults.aborts = left;
            self.add(Step::Aborts(node), others, 0, true);
        }
    }

    fn decide(&mut self, node: usize, transaction: &Transaction, others: &State) {
        let Cluster { rules, .. } = *self.cluster;
        let verb = transaction.verb;
        let mut number = transaction.number;
        if verb == Verb::Accept && !rules.no_cache {
            number = Some(others.cached[node]);
        }
        let again = number.map(|number| self.cluster.moves(&others.rows, Some(number)));
        for choice in again.as_deref().unwrap_or(self.moves) {
            if !self.cluster.may(others, node, verb, choice.step) {
                continue;
            }
            let before = &others.rows.jobs;
            let after = &choice.state.jobs;
            let mut rows = [false; EVENTS];
            let mut truth = [false; EVENTS];
            for job in 0..EVENTS {
                truth[job] = before[job].truth != after[job].truth;
                let is = Job { truth: before[job].truth, ..after[job] };
                rows[job] = before[job] != is;
            }
            // An update waits for the row; a claim passes over it.
            let waits = (0..EVENTS).any(|job| rows[job] && others.is_row_locked(job));
            let locks = rules.decides_behind_rows || verb == Verb::Claim;
            if waits && locks {
                continue;
            }
            let mut t = *others;
            t.rows.budget = choice.state.budget;
            t.rows.next = t.rows.next.max(choice.state.next);
            if !rules.no_cache && verb == Verb::Accept {
                t.cached[node] += 1;
            }
            let decision = Decision {
                step: choice.step,
                seen: before.map(|job| job.stage),
                after: choice.state,
                rows,
                locked: locks,
                truth,
            };
            t.transactions[node] = Some(Transaction { decision: Some(decision), ..*transaction });
            self.add(Step::Decides(node, choice.step), t, 0, false);
        }
    }

    fn commit(&mut self, node: usize, verb: Verb, opened: &Transaction, decision: &Decision) {
        let from = self.from;
        let mut t = *from;
        t.transactions[node] = None;
        let step = decision.step;
        let subject = subject(step);
        if from.rows.jobs[subject].stage != decision.seen[subject] {
            self.add(Step::FindsNothing(node, step), t, 0, false);
            return;
        }
        for job in 0..EVENTS {
            let after = decision.after.jobs[job];
            if decision.truth[job] {
                t.rows.jobs[job].truth = after.truth;
            }
            let same = from.rows.jobs[job].stage == decision.seen[job];
            if decision.rows[job] && same {
                t.rows.jobs[job] = after;
            }
        }
        t.rows.touched |= decision.after.touched;
        t.rows.removed_to = t.rows.removed_to.max(decision.after.removed_to);
        let holds = |job: &&Job| Without(&[]).holds(job) && !job.behind;
        if self.cluster.rules.index && t.rows.jobs.iter().filter(holds).count() > 1 {
            let mut t = *from;
            t.transactions[node] = None;
            self.add(Step::Collides(node, step), t, 0, false);
            return;
        }
        let mut broken = promises::broken(&from.rows, &t.rows, step);
        match (verb, step) {
            (Verb::Accept, Move::Accept(job, _))
                if opened.arrived_after[job..].iter().any(|earlier| *earlier) =>
            {
                broken |= Q7;
            }
            (Verb::Claim, Move::Claim(job)) => {
                t.runs[job] = Some(node);
                if from.strays().any(|stray| stray.node == node || !stray.declared) {
                    broken |= Q1;
                }
            }
            (Verb::Lost, _) => {
                if let Some(runs) = t.runs[subject].take() {
                    t.add_stray(Stray { job: subject, node: runs, declared: true });
                }
            }
            (Verb::End, _) => t.runs[subject] = None,
            _ => {}
        }
        self.add(Step::Commits(node, step), t, broken, false);
    }

    fn outside(&mut self) {
        for (slot, stray) in self.from.strays.iter().enumerate() {
            if let Some(stray) = stray {
                let mut t = *self.from;
                t.strays[slot] = None;
                self.add(Step::StrayEnds(stray.node, stray.job), t, 0, false);
            }
        }
        if self.from.standby != self.from.rows {
            self.add(Step::Replicates, State { standby: self.from.rows, ..*self.from }, 0, false);
        }
        self.failover();
    }

    /// N27: the standby's rows, every unfinished job held.
    fn failover(&mut self) {
        let Some(left) = self.from.faults.failovers.checked_sub(1) else { return };
        let mut t = *self.from;
        t.faults.failovers = left;
        t.transactions = [None; NODES];
        t.rows = self.from.standby;
        t.rows.budget = Budget { faults: 1, ..self.from.rows.budget };
        let moves = self.cluster.moves(&t.rows, None).into_iter();
        for restored in moves.filter(|next| next.step == Move::Restore) {
            t.rows = restored.state;
        }
        t.rows.budget = self.from.rows.budget;
        t.rows.touched = true;
        for job in 0..EVENTS {
            if let Some(node) = t.runs[job].take() {
                t.add_stray(Stray { job, node, declared: false });
            }
        }
        let broken = promises::broken(&self.from.standby, &t.rows, Move::Restore);
        self.add(Step::Failover, t, broken, true);
    }
}
