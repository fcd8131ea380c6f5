//! The cluster as a model for the checker: its steps, and when the job is settled.

use std::fmt;

use super::rules::{Faults, Policy, Rules};
use super::server::Wait;
use super::state::{Claim, Job, Life, Outcome, Phase, State, Verb};
use super::{node, server, world};
use crate::model::checker::{Model, Next};

/// Two nodes, one event, one job.
#[derive(Clone, Copy)]
pub(crate) struct Cluster {
    pub(crate) rules: Rules,
    pub(crate) faults: Faults,
    pub(crate) policy: Policy,
}

#[derive(Clone, Copy)]
pub(crate) enum Step {
    Starts(usize),
    Sends(usize, Verb),
    GoesOn(usize),
    Reads(usize),
    Begins(usize, u8),
    Ends(usize, u8, Outcome),
    Executes(usize, Verb, Wait),
    Replicates,
    LosesConnection(usize),
    IsKilled(usize),
    LosesPower(usize),
    IsCutOff(usize),
    IsBack(usize),
    Failover,
    OldIsBack,
    ReadsOld(usize),
    Copied,
    PutBack,
    Lost(usize),
    Replay,
}

/// The steps out of one state.
pub(crate) struct Steps<'a> {
    rules: Rules,
    next: &'a mut Vec<Next<State, Step>>,
}

impl Steps<'_> {
    /// Adds a step to `state`, with the promises that it breaks and whether it comes from outside.
    pub(crate) fn add(&mut self, step: Step, mut state: State, broken: u8, fault: bool) {
        state.tidy(self.rules);
        self.next.push(Next { step, state, broken, fault });
    }
}

impl Model for Cluster {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State { faults: self.faults, ..State::default() }
    }

    fn steps(&self, state: &State, next: &mut Vec<Next<State, Step>>) {
        let mut out = Steps { rules: self.rules, next };
        node::steps(self, state, &mut out);
        server::steps(self, state, &mut out);
        world::steps(self, state, &mut out);
    }

    /// The job is absent, at rest or out of the model's attempts, and the lists of all runners are empty.
    fn settled(&self, state: &State) -> bool {
        let job = match state.primary.job {
            Job::Absent | Job::Held | Job::Succeeded | Job::Dead => true,
            Job::Ready => !state.primary.has_attempts_left(),
            Job::Running => false,
        };
        job && state.runs.iter().flatten().all(|run| !run.listed)
    }

    fn describe(&self, state: &State) -> String {
        let mut line = format!("{:?}", state.primary.job).to_lowercase();
        if let Some(attempt) = state.primary.running() {
            line += &format!(" {}", Named(attempt.claim));
        }
        if state.standby != state.primary {
            line += &format!(" (standby: {:?})", state.standby.job).to_lowercase();
        }
        for (node, receiver) in state.receivers.iter().enumerate() {
            if receiver.phase != Phase::Serving {
                line += &format!(", {} {:?}", name(node), receiver.phase).to_lowercase();
            }
            if let Some(claim) = receiver.claimed {
                line += &format!(", {} is to begin {}", name(node), claim.attempt);
            }
        }
        for run in state.runs.iter().flatten().filter(|run| run.life == Life::Runs) {
            line += &format!(", {} runs on {}", run.claim.attempt, name(run.node));
        }
        line
    }
}

fn name(node: usize) -> char {
    if node == 0 { 'A' } else { 'B' }
}

struct Named(Claim);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.0.attempt, name(self.0.node))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verb::Accept => write!(f, "accept"),
            Verb::Claim(_) => write!(f, "claim"),
            Verb::Complete(claim, outcome) => {
                write!(f, "complete {} {}", claim.attempt, format!("{outcome:?}").to_lowercase())
            }
            Verb::Register(_) => write!(f, "register"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Starts(n) => write!(f, "{}: a receiver starts", name(n)),
            Step::Sends(n, verb) => write!(f, "{}: sends {verb}", name(n)),
            Step::GoesOn(n) => write!(f, "{}: connects, reads the list, goes on", name(n)),
            Step::Reads(n) => write!(f, "{}: reads the event, answers duplicate", name(n)),
            Step::Begins(n, attempt) => write!(f, "{}: {attempt} begins", name(n)),
            Step::Ends(n, attempt, outcome) => {
                write!(f, "{}: {attempt} ends, {}", name(n), format!("{outcome:?}").to_lowercase())
            }
            Step::Executes(n, verb, Wait::Over) => write!(f, "server: {}'s {verb}", name(n)),
            Step::Executes(n, verb, wait) => {
                write!(
                    f,
                    "server: {}'s {verb}, WAIT {}",
                    name(n),
                    format!("{wait:?}").to_uppercase()
                )
            }
            Step::Replicates => write!(f, "server: the standby has everything"),
            Step::LosesConnection(n) => write!(f, "{}: LOSES ITS CONNECTION", name(n)),
            Step::IsKilled(n) => write!(f, "{}: receiver KILLED", name(n)),
            Step::LosesPower(n) => write!(f, "{}: POWER CUT", name(n)),
            Step::IsCutOff(n) => write!(f, "{}: CUT OFF", name(n)),
            Step::IsBack(n) => write!(f, "{}: reaches the database again", name(n)),
            Step::Failover => write!(f, "FAILOVER"),
            Step::OldIsBack => write!(f, "OLD PRIMARY is up again"),
            Step::ReadsOld(n) => write!(f, "{}: finds no event on the old primary, dead", name(n)),
            Step::Copied => write!(f, "server: a copy is made"),
            Step::PutBack => write!(f, "COPY PUT BACK"),
            Step::Lost(n) => write!(f, "operator: node lost {}", name(n)),
            Step::Replay => write!(f, "operator: replay"),
        }
    }
}
