//! The steps of the model, each one committed transaction of the store.

use std::fmt;

use super::promises;
use super::rules::{Budget, GroupRule, Rule};
use super::state::{Cause, EVENTS, Job, Stage, State, Without};
use crate::model::checker::{Model, Next};

/// Attempts that count before a job is dead.
const MAX_ATTEMPTS: u8 = 2;

/// One group of one handler, whose concurrency keeps no two jobs apart.
#[derive(Clone, Copy)]
pub(crate) struct Groups {
    pub(crate) rule: GroupRule,
    /// The rule after a reload; another reload goes back to the first one.
    pub(crate) other: GroupRule,
    pub(crate) without: Without,
    pub(crate) budget: Budget,
}

/// The jobs have the numbers of their events, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Accept(usize, Stage),
    Duplicate(usize),
    Claim(usize),
    End(usize, Stage),
    NotStarted(usize),
    Replay(usize, bool),
    Make(usize, bool),
    Drop(usize),
    Resolve(usize, Stage),
    Redelivery(usize),
    Remove(usize),
    PayloadGone(usize),
    HandlerGone,
    Restore,
    Reload(GroupRule),
}

/// The steps out of one state.
struct Steps<'a> {
    groups: &'a Groups,
    from: &'a State,
    next: &'a mut Vec<Next<State, Step>>,
}

impl Model for Groups {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State {
            jobs: [Job::default(); EVENTS],
            next: 0,
            budget: self.budget,
            reloaded: false,
            removed_to: 0,
            touched: false,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<Next<State, Step>>) {
        let mut steps = Steps { groups: self, from: state, next };
        steps.accept();
        for job in 0..state.next {
            steps.attempts(job);
            steps.operator(job);
            steps.outside(job);
        }
        steps.configuration();
    }

    /// Nothing moves by itself: what is left is behind a job that waits for a person.
    fn settled(&self, state: &State) -> bool {
        state.jobs.iter().all(|job| !job.is_active() || job.behind)
    }

    fn describe(&self, state: &State) -> String {
        let jobs = state.jobs.iter().zip(1..).filter(|(job, _)| job.stage != Stage::Absent);
        let of = |(job, number): (&Job, usize)| {
            let behind = if job.behind { " behind" } else { "" };
            format!("{number} {:?}{behind}", job.stage).to_lowercase()
        };
        jobs.map(of).collect::<Vec<_>>().join(", ")
    }
}

impl Groups {
    fn configured(&self, state: &State) -> GroupRule {
        if state.reloaded { self.other } else { self.rule }
    }
}

impl Steps<'_> {
    fn add(&mut self, step: Step, state: State, fault: bool) {
        let broken = promises::broken(self.from, &state, step);
        self.next.push(Next { step, state, broken, fault });
    }

    fn on(&self, rule: Rule) -> bool {
        self.groups.without.on(rule)
    }

    /// A step that costs one of its budget.
    fn spend(&self, of: impl Fn(&mut Budget) -> &mut u8) -> Option<State> {
        let mut state = *self.from;
        let left = of(&mut state.budget);
        *left = left.checked_sub(1)?;
        Some(state)
    }

    fn order(&self) -> Option<State> {
        self.spend(|budget| &mut budget.operator).map(|state| State { touched: true, ..state })
    }

    fn accept(&mut self) {
        let job = self.from.next;
        for stage in [Stage::Ready, Stage::Held, Stage::Suspect, Stage::Jobless] {
            let Some(mut t) = self.spend(|budget| &mut budget.events) else { return };
            let mut any = 1;
            let left = match stage {
                Stage::Ready => &mut any,
                Stage::Jobless => &mut t.budget.jobless,
                _ => &mut t.budget.unsure,
            };
            let Some(less) = left.checked_sub(1) else { continue };
            *left = less;
            t.next = job + 1;
            t.jobs[job].rule = self.groups.configured(self.from);
            t.put(self.groups.without, job, stage, Cause::Accept);
            let supersedes = match stage {
                Stage::Ready => self.on(Rule::NewSupersedes),
                Stage::Jobless => false,
                _ => !self.on(Rule::HeldSupersedesNone),
            };
            if supersedes {
                self.supersede(&mut t, job);
            }
            self.add(Step::Accept(job, stage), t, true);
        }
    }

    /// G4.
    fn supersede(&self, t: &mut State, by: usize) {
        if t.jobs[by].rule != GroupRule::Latest {
            return;
        }
        let last = if self.on(Rule::OnlyOlderIsSuperseded) { by } else { EVENTS };
        for job in (0..last).filter(|job| *job != by) {
            let own = t.jobs[job].rule == GroupRule::Latest || !self.on(Rule::OwnRuleDecides);
            if own && t.jobs[job].is_pending() {
                t.put(self.groups.without, job, Stage::Superseded, Cause::Newer);
            }
        }
    }

    fn attempts(&mut self, job: usize) {
        let now = self.from.jobs[job];
        if now.is_pending() && (!now.behind || !self.on(Rule::ClaimsNoneBehind)) {
            let mut t = *self.from;
            t.jobs[job].begun = true;
            t.jobs[job].truth.started = true;
            t.jobs[job].counted += 1;
            t.put(self.groups.without, job, Stage::Running, Cause::Claim);
            self.add(Step::Claim(job), t, false);
        }
        if now.stage != Stage::Running {
            return;
        }
        for stage in [Stage::Succeeded, Stage::Dead, Stage::Held] {
            let mut t = *self.from;
            t.put(self.groups.without, job, stage, Cause::End);
            self.add(Step::End(job, stage), t, false);
        }
        if now.counted < MAX_ATTEMPTS {
            let mut t = *self.from;
            self.again(&mut t, job, Stage::Waiting);
            self.add(Step::End(job, Stage::Waiting), t, false);
        }
        let mut t = *self.from;
        t.jobs[job].counted -= 1;
        self.again(&mut t, job, Stage::Ready);
        self.add(Step::NotStarted(job), t, false);
    }

    /// G5: puts a job back at the end of its attempt, or drops it for a newer one.
    fn again(&self, t: &mut State, job: usize, stage: Stage) {
        let without = self.groups.without;
        let newer = t.jobs[job + 1..].iter().any(|newer| {
            newer.is_pending()
                && (newer.rule == GroupRule::Latest || !self.on(Rule::OwnRuleDecides))
        });
        let latest = t.jobs[job].rule == GroupRule::Latest;
        if latest && newer && self.on(Rule::EndSupersedes) {
            t.put(without, job, Stage::Superseded, Cause::SupersededEnd);
        } else {
            t.put(without, job, stage, Cause::End);
        }
    }

    /// G7: whether a job must not come back, since a newer one has begun or may begin before it.
    fn is_too_late(&self, t: &State, job: usize) -> bool {
        let without = self.groups.without;
        let newer = t.jobs[job + 1..].iter().any(|newer| {
            let holds = without.holds(newer) && self.on(Rule::HoldingCounts);
            newer.is_active() || holds || (newer.begun && self.on(Rule::BegunCounts))
        });
        let removed = t.removed_to > job + 1 && self.on(Rule::RemovedIsRemembered);
        t.jobs[job].rule == GroupRule::Latest && (newer || removed)
    }

    fn back(&self, t: &mut State, job: usize, regardless: bool) {
        t.jobs[job].counted = 0;
        t.jobs[job].truth.regardless = regardless;
        t.put(self.groups.without, job, Stage::Ready, Cause::Back);
    }

    fn operator(&mut self, job: usize) {
        let stage = self.from.jobs[job].stage;
        let Some(order) = self.order() else { return };
        let without = self.groups.without;
        let dead = matches!(stage, Stage::Dead | Stage::Resolved);
        let held = matches!(stage, Stage::Held | Stage::Suspect);
        if held || dead || stage == Stage::Succeeded {
            let mut t = order;
            let regardless = self.is_too_late(self.from, job) && self.on(Rule::ReplayIsRefused);
            self.back(&mut t, job, regardless);
            if !self.on(Rule::ReplaySupersedesNone) {
                self.supersede(&mut t, job);
            }
            self.add(Step::Replay(job, regardless), t, true);
        }
        if stage == Stage::Jobless {
            let mut t = order;
            t.jobs[job].rule = self.groups.configured(self.from);
            let regardless = self.is_too_late(&t, job) && self.on(Rule::MakeIsRefused);
            self.back(&mut t, job, regardless);
            if !regardless {
                self.supersede(&mut t, job);
            }
            self.add(Step::Make(job, regardless), t, true);
        }
        if self.from.jobs[job].is_pending() || held || dead {
            let mut t = order;
            t.put(without, job, Stage::Dropped, Cause::Order);
            self.add(Step::Drop(job), t, true);
        }
        if held {
            for to in [Stage::Succeeded, Stage::Resolved] {
                let mut t = order;
                t.put(without, job, to, Cause::Order);
                self.add(Step::Resolve(job, to), t, true);
            }
        }
    }

    fn outside(&mut self, job: usize) {
        let now = self.from.jobs[job];
        let without = self.groups.without;
        if now.stage == Stage::Dead
            && !(self.is_too_late(self.from, job) && self.on(Rule::RedeliveryIsRefused))
            && let Some(mut t) = self.spend(|budget| &mut budget.redeliveries)
        {
            self.back(&mut t, job, false);
            self.add(Step::Redelivery(job), t, true);
        }
        let done = matches!(
            now.stage,
            Stage::Succeeded | Stage::Dropped | Stage::Superseded | Stage::Dead | Stage::Resolved
        );
        if done
            && !(without.holds(&now) && self.on(Rule::RetentionKeepsHolders))
            && let Some(mut t) = self.spend(|budget| &mut budget.removals)
        {
            t.put(without, job, Stage::Removed, Cause::Retention);
            if std::mem::take(&mut t.jobs[job].begun) {
                t.removed_to = t.removed_to.max(job + 1);
            }
            self.add(Step::Remove(job), t, true);
        }
        if now.is_pending()
            && !now.behind
            && let Some(mut t) = self.spend(|budget| &mut budget.faults)
        {
            t.put(without, job, Stage::Dead, Cause::Fault);
            self.add(Step::PayloadGone(job), t, true);
        }
        if !self.on(Rule::DuplicateSupersedesNone) && now.stage != Stage::Jobless {
            let mut t = *self.from;
            self.supersede(&mut t, job);
            self.add(Step::Duplicate(job), t, true);
        }
    }

    fn configuration(&mut self) {
        if let Some(mut t) = self.spend(|budget| &mut budget.reloads) {
            t.reloaded = !t.reloaded;
            t.touched = true;
            self.add(Step::Reload(self.groups.configured(&t)), t, true);
        }
        self.hold_all(Step::HandlerGone, Job::is_pending);
        self.hold_all(Step::Restore, Job::is_active);
    }

    /// Many jobs in one transaction.
    fn hold_all(&mut self, step: Step, which: fn(&Job) -> bool) {
        let Some(mut t) = self.spend(|budget| &mut budget.faults) else { return };
        for job in (0..EVENTS).filter(|job| which(&self.from.jobs[*job])) {
            t.put(self.groups.without, job, Stage::Held, Cause::Fault);
        }
        self.add(step, t, true);
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let regardless = |yes: bool| if yes { " --regardless" } else { "" };
        match *self {
            Step::Accept(job, Stage::Ready) => write!(f, "event {} is accepted", job + 1),
            Step::Accept(job, Stage::Jobless) => {
                write!(f, "event {} is accepted without a job", job + 1)
            }
            Step::Accept(job, Stage::Held) => write!(f, "event {} is accepted, undecided", job + 1),
            Step::Accept(job, _) => write!(f, "event {} is accepted, a suspected replay", job + 1),
            Step::Duplicate(job) => write!(f, "event {} comes again", job + 1),
            Step::Claim(job) => write!(f, "claim {}", job + 1),
            Step::End(job, stage) => {
                let how = match stage {
                    Stage::Succeeded => "succeeds",
                    Stage::Waiting => "fails, attempts are left",
                    Stage::Dead => "fails for good",
                    _ => "has an unknown outcome",
                };
                write!(f, "{} {how}", job + 1)
            }
            Step::NotStarted(job) => write!(f, "{} has not started", job + 1),
            Step::Replay(job, r) => write!(f, "operator: replay {}{}", job + 1, regardless(r)),
            Step::Make(job, r) => {
                write!(f, "operator: a job for event {}{}", job + 1, regardless(r))
            }
            Step::Drop(job) => write!(f, "operator: drop {}", job + 1),
            Step::Resolve(job, stage) => {
                let how = if stage == Stage::Succeeded { "succeeded" } else { "failed" };
                write!(f, "operator: resolve {} --{how}", job + 1)
            }
            Step::Redelivery(job) => write!(f, "event {} is redelivered, put back", job + 1),
            Step::Remove(job) => write!(f, "retention removes {}", job + 1),
            Step::PayloadGone(job) => write!(f, "claim {} finds no payload", job + 1),
            Step::HandlerGone => write!(f, "recover finds no handler"),
            Step::Restore => write!(f, "the store is restored"),
            Step::Reload(rule) => write!(f, "reload: {rule:?}"),
        }
    }
}
