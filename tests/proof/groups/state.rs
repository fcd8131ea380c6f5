//! The rows of a group and the ways in which a store moves them, and next to each row what really happened.

use super::rules::{Budget, GroupRule, Rule};

/// The most events of a run.
pub(crate) const EVENTS: usize = 4;

/// A job's state, and the absence of a job.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    /// The event has not come yet.
    #[default]
    Absent,
    /// The event is stored without a job for this handler.
    Jobless,
    Ready,
    Waiting,
    Running,
    /// Held for any reason but that it may be forged.
    Held,
    /// Held as a suspected replay or a reused id.
    Suspect,
    Dead,
    /// Dead, resolved as failed.
    Resolved,
    Succeeded,
    /// Dropped by the operator.
    Dropped,
    Superseded,
    /// Retention has removed the row.
    Removed,
}

/// The job of one event.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    pub(crate) stage: Stage,
    /// Kept from accept on: a reload changes new jobs only.
    pub(crate) rule: GroupRule,
    /// Another job holds the group: nothing claims this one.
    pub(crate) behind: bool,
    /// Attempts that count against the limit, since the last replay.
    pub(crate) counted: u8,
    /// The row's attempt number is not 0.
    pub(crate) begun: bool,
    pub(crate) truth: Truth,
}

/// What happened, in no row. The promises are checked against it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Truth {
    /// An attempt was claimed, whether or not the row is still there.
    pub(crate) started: bool,
    /// The operator asked for it though a newer one ran or waited.
    pub(crate) regardless: bool,
    /// The younger job that had its turn when this one was put back: this one runs after it.
    pub(crate) yields_to: Option<usize>,
    /// Retention removed it while its group was to wait for the operator's decision on it.
    pub(crate) lost: bool,
}

impl Job {
    /// Whether a job in this state is to keep its group waiting: the specification, from which a rule that is off may
    /// differ.
    pub(crate) fn is_in_the_way(&self) -> bool {
        match self.stage {
            Stage::Ready | Stage::Waiting | Stage::Running => true,
            Stage::Held => self.rule != GroupRule::Latest,
            Stage::Dead => self.rule == GroupRule::Block,
            _ => self.truth.lost,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Ready | Stage::Waiting | Stage::Running)
    }

    pub(crate) fn is_pending(&self) -> bool {
        matches!(self.stage, Stage::Ready | Stage::Waiting)
    }
}

/// Why a row is moved: each cause may have a rule of its own that can be off.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Accept,
    Claim,
    /// Replay, redelivery, made later.
    Back,
    /// Drop and resolve.
    Order,
    End,
    Newer,
    SupersededEnd,
    Fault,
    Retention,
}

impl Cause {
    /// The rule by which a job that enters a state that holds is behind (G1).
    fn enters_by(self) -> Rule {
        match self {
            Cause::Accept => Rule::BehindAtAccept,
            _ => Rule::BehindAtReplay,
        }
    }

    /// The rule by which the next one gets its turn (G2).
    fn leaves_by(self) -> Rule {
        match self {
            Cause::Order => Rule::NextAtOrder,
            Cause::Newer => Rule::NextAtNewer,
            Cause::SupersededEnd => Rule::NextAtSupersededEnd,
            Cause::Fault => Rule::NextAtFault,
            Cause::Retention => Rule::NextAtRetention,
            _ => Rule::NextAtEnd,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The jobs in the order in which their events were accepted.
    pub(crate) jobs: [Job; EVENTS],
    /// The number that the next event gets, from 0.
    pub(crate) next: usize,
    pub(crate) budget: Budget,
    /// The handler has the second rule of the model.
    pub(crate) reloaded: bool,
    /// The number of events up to the newest one of which retention has removed a job that had begun (G8).
    pub(crate) removed_to: usize,
    /// The operator has changed something.
    pub(crate) touched: bool,
}

/// The rules that are off.
#[derive(Clone, Copy)]
pub(crate) struct Without(pub(crate) &'static [Rule]);

impl Without {
    pub(crate) fn on(self, rule: Rule) -> bool {
        !self.0.contains(&rule)
    }

    /// G0, as the store has it in its column.
    pub(crate) fn holds(self, job: &Job) -> bool {
        match job.stage {
            Stage::Ready | Stage::Running => true,
            Stage::Waiting => self.on(Rule::WaitingHolds),
            Stage::Held => job.rule != GroupRule::Latest && self.on(Rule::HeldHolds),
            Stage::Suspect => job.rule != GroupRule::Latest && !self.on(Rule::SuspectDoesNotHold),
            Stage::Dead => job.rule == GroupRule::Block && self.on(Rule::DeadHolds),
            Stage::Resolved => job.rule == GroupRule::Block && !self.on(Rule::ResolvedDoesNotHold),
            _ => false,
        }
    }
}

impl State {
    /// The job whose turn it is, by what happened and not by any row: all older jobs that are in the way yield to it.
    pub(crate) fn has_the_turn(&self, job: usize) -> bool {
        let mut older = self.jobs[..job].iter().filter(|older| older.is_in_the_way());
        self.jobs[job].is_in_the_way()
            && self.jobs[job].truth.yields_to.is_none()
            && older.all(|older| older.truth.yields_to == Some(job))
    }

    /// Whether another job than this one holds the group.
    fn is_taken(&self, without: Without, job: usize) -> bool {
        let mut others = self.jobs.iter().enumerate().filter(|(other, _)| *other != job);
        others.any(|(_, other)| without.holds(other) && !other.behind)
    }

    /// Moves one job in the transaction of a step, with G1 and G2.
    pub(crate) fn put(&mut self, without: Without, job: usize, stage: Stage, cause: Cause) {
        let before = self.jobs[job];
        self.jobs[job].stage = stage;
        self.note(job, &before, cause);
        let (held, holds) = (without.holds(&before), without.holds(&self.jobs[job]));
        let only_holders = without.on(Rule::OnlyHoldersAreBehind);
        let flagged = !only_holders && matches!(cause, Cause::Accept | Cause::Back);
        if !held && (holds || flagged) {
            let taken = self.is_taken(without, job);
            self.jobs[job].behind = taken && without.on(cause.enters_by());
        }
        if !holds && only_holders {
            self.jobs[job].behind = false;
        }
        let had_the_turn = !before.behind || !without.on(Rule::NextOnlyIfFree);
        if held && had_the_turn && !holds && without.on(cause.leaves_by()) {
            self.release(without);
        }
    }

    /// G2: gives the turn to the next one.
    fn release(&mut self, without: Without) {
        let taken = self.jobs.iter().any(|job| without.holds(job) && !job.behind);
        if taken && without.on(Rule::NextOnlyIfFree) {
            return;
        }
        let mut behind = self.jobs.iter_mut().filter(|job| job.behind);
        let next = if without.on(Rule::NextIsOldest) { behind.next() } else { behind.next_back() };
        if let Some(next) = next {
            next.behind = false;
        }
    }

    /// Keeps the truth of who yields to whom.
    fn note(&mut self, job: usize, before: &Job, cause: Cause) {
        if cause == Cause::Retention {
            self.jobs[job].truth.lost = before.is_in_the_way();
        }
        match (before.is_in_the_way(), self.jobs[job].is_in_the_way()) {
            (false, true) if cause == Cause::Back => {
                self.jobs[job].truth.yields_to = None;
                // Without this job, which does not yield yet.
                let stage = std::mem::replace(&mut self.jobs[job].stage, Stage::Absent);
                let younger = (job + 1..EVENTS).find(|younger| self.has_the_turn(*younger));
                self.jobs[job].stage = stage;
                self.jobs[job].truth.yields_to = younger;
            }
            (true, false) => {
                self.jobs[job].truth.yields_to = None;
                for other in &mut self.jobs {
                    if other.truth.yields_to == Some(job) {
                        other.truth.yields_to = None;
                    }
                }
            }
            _ => {}
        }
    }
}
