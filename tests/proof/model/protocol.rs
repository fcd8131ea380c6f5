//! The protocol as a model for the checker: its steps, their descriptions, and when a job is settled.

use std::fmt;

use super::checker::{Model, Next};
use super::rules::{Faults, Policy, Rules};
use super::state::{ATTEMPTS, Entry, Job, Outcome, State, ToReceiver, ToRunner, slot};
use super::{receiver, runner, world};

/// One job under these rules, these faults and this policy.
#[derive(Clone, Copy)]
pub(crate) struct Protocol {
    pub(crate) rules: Rules,
    pub(crate) faults: Faults,
    pub(crate) policy: Policy,
}

/// A receiver is named by its epoch, a runner by its incarnation.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    ReceiverStarts(u8),
    Connects(u8, u8),
    ReceiverReads(u8, ToReceiver),
    SeesTheEnd(u8),
    LosesConnection(u8),
    Recovers(u8, Job),
    Claims(u8, u8),
    WritesStart(u8, u8),
    Commits(u8, u8, Outcome),
    TimesOut(u8, u8),
    ReceiverKilled(u8),
    RunnerStarts(u8),
    RunnerReads(u8, u8, ToRunner),
    ChildEnds(u8, Outcome),
    LeftoverEnds(u8),
    RunnerLeaves(u8),
    RunnerDrains(u8),
    RunnerReexecutes(u8),
    RunnerKilled(u8),
    PowerCut,
    Operator(Job),
}

/// The steps out of one state.
pub(crate) struct Steps<'a>(&'a mut Vec<Next<State, Step>>);

impl Steps<'_> {
    /// Adds a step to `state`, with the promises that it breaks and whether it needs a fault or an operator.
    pub(crate) fn add(&mut self, step: Step, mut state: State, broken: u8, fault: bool) {
        state.tidy();
        self.0.push(Next { step, state, broken, fault });
    }
}

impl Model for Protocol {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State { booted: 1, faults: self.faults, ..State::default() }
    }

    fn steps(&self, state: &State, next: &mut Vec<Next<State, Step>>) {
        let mut out = Steps(next);
        receiver::steps(self, state, &mut out);
        runner::steps(self, state, &mut out);
        world::steps(self, state, &mut out);
    }

    /// The job is settled or has used up the attempt numbers of the model, and no runner is kept alive by an
    /// outcome without an acknowledgement.
    fn settled(&self, state: &State) -> bool {
        let job = match state.store.job {
            Job::Held | Job::Succeeded | Job::Dead | Job::Dropped => true,
            Job::Ready => usize::from(state.store.attempt) == ATTEMPTS,
            Job::Running => false,
        };
        let mut books = state.books.iter().zip(1..);
        job && books.all(|(book, incarnation)| {
            state.runner(incarnation).is_none() || book.iter().all(|e| *e == Entry::Absent)
        })
    }

    fn describe(&self, state: &State) -> String {
        let store = &state.store;
        let mut line = format!("job {:?}", store.job).to_lowercase();
        if store.attempt > 0 {
            line += &match store.outcomes[slot(store.attempt)] {
                Some(outcome) => format!(", attempt {} {outcome}", store.attempt),
                None => format!(", attempt {}", store.attempt),
            };
        }
        for (child, attempt) in state.children.iter().zip(1..) {
            if *child != 0 {
                line += &format!(", child {attempt} of runner {child} runs");
            }
        }
        line
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::TimedOut => "timed_out",
            Outcome::Unknown => "unknown",
            Outcome::NotStarted => "not_started",
        })
    }
}

impl fmt::Display for ToRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToRunner::Hello => write!(f, "Hello"),
            ToRunner::Start { attempt, .. } => write!(f, "Start {attempt}"),
            ToRunner::Ack(attempt) => write!(f, "Ack {attempt}"),
            ToRunner::Kill(attempt) => write!(f, "Kill {attempt}"),
        }
    }
}

impl fmt::Display for ToReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToReceiver::HelloOk => write!(f, "HelloOK"),
            ToReceiver::Exited(attempt, outcome) => write!(f, "Exited {attempt} {outcome}"),
            ToReceiver::Refused(attempt) => write!(f, "Refused {attempt}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::ReceiverStarts(e) => write!(f, "receiver {e} starts, epoch {e} committed"),
            Step::Connects(e, i) => write!(f, "receiver {e} connects to runner {i}, writes Hello"),
            Step::ReceiverReads(e, message) => write!(f, "receiver {e} reads {message}"),
            Step::SeesTheEnd(e) => write!(f, "receiver {e} reads the end of its connection"),
            Step::LosesConnection(e) => write!(f, "receiver {e} LOSES ITS CONNECTION"),
            Step::Recovers(e, job) => write!(f, "receiver {e} commits recover: {job:?}"),
            Step::Claims(e, attempt) => write!(f, "receiver {e} commits claim {attempt}"),
            Step::WritesStart(e, attempt) => write!(f, "receiver {e} writes Start {attempt}"),
            Step::Commits(e, attempt, o) => {
                write!(f, "receiver {e} commits complete {attempt} {o}")
            }
            Step::TimesOut(e, a) => write!(f, "receiver {e} commits timed_out {a}, writes Kill"),
            Step::ReceiverKilled(e) => write!(f, "receiver {e} KILLED"),
            Step::RunnerStarts(i) => write!(f, "runner {i} starts"),
            Step::RunnerReads(i, e, m) => write!(f, "runner {i} reads receiver {e}'s {m}"),
            Step::ChildEnds(attempt, o) => write!(f, "child {attempt} ends: {o}"),
            Step::LeftoverEnds(attempt) => write!(f, "child {attempt} of a dead runner ends"),
            Step::RunnerLeaves(i) => write!(f, "runner {i} leaves"),
            Step::RunnerDrains(i) => write!(f, "runner {i} is told to stop, drains"),
            Step::RunnerReexecutes(i) => write!(f, "runner {i} executes itself again in place"),
            Step::RunnerKilled(i) => write!(f, "runner {i} KILLED"),
            Step::PowerCut => write!(f, "POWER CUT"),
            Step::Operator(job) => write!(f, "operator: {job:?}"),
        }
    }
}
