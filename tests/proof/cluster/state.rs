//! The server with its standby, two nodes, and what really happened.

use super::rules::{Faults, Policy, Rules};

pub(crate) const NODES: usize = 2;
pub(crate) const ATTEMPTS: usize = 2;
const FLIGHTS: usize = 5;
const RUNS: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    Unknown,
    /// It is proven that the attempt never began.
    NotStarted,
}

/// The event's only job.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Job {
    /// The event is not stored.
    #[default]
    Absent,
    /// `ready`, and `waiting`: the clock may pass at any time.
    Ready,
    Running,
    Held,
    Succeeded,
    Dead,
}

/// A session of a node; the default is none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Session {
    /// What the program compares.
    pub(crate) number: u8,
    /// Not in the code: differs for any two sessions.
    pub(crate) serial: u8,
}

/// A claimed attempt: its number, and its claimant.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Claim {
    pub(crate) attempt: u8,
    pub(crate) node: usize,
    pub(crate) session: Session,
}

impl Claim {
    /// Whether the program takes both for the same attempt.
    pub(crate) fn names(self, other: Claim) -> bool {
        let key = |claim: Claim| (claim.attempt, claim.node, claim.session.number);
        key(self) == key(other)
    }
}

/// The row of an attempt.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) claim: Claim,
    /// The boot of the node's machine: its runner's incarnation.
    pub(crate) boot: u8,
    pub(crate) outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct NodeRow {
    pub(crate) session: Session,
    pub(crate) lost: bool,
    /// The history in which the node has registered last.
    pub(crate) timeline: u8,
    /// Another node has acted on a change of the history, and this one has not registered since.
    pub(crate) called: bool,
}

/// What a server has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rows {
    pub(crate) job: Job,
    /// The number of the last attempt.
    pub(crate) attempt: u8,
    pub(crate) attempts: [Attempt; ATTEMPTS],
    pub(crate) nodes: [NodeRow; NODES],
    pub(crate) timeline: u8,
    /// The sum of the nodes' marks: it grows with each commit.
    pub(crate) mark: u8,
}

impl Rows {
    /// The live attempt.
    pub(crate) fn running(&self) -> Option<&Attempt> {
        (self.job == Job::Running).then(|| &self.attempts[usize::from(self.attempt) - 1])
    }

    pub(crate) fn has_attempts_left(&self) -> bool {
        usize::from(self.attempt) < ATTEMPTS
    }

    /// Settles the live attempt, and the job by it.
    pub(crate) fn settle(&mut self, policy: Policy, outcome: Outcome) {
        let left = self.has_attempts_left();
        self.attempts[usize::from(self.attempt) - 1].outcome = Some(outcome);
        self.job = match outcome {
            Outcome::Succeeded => Job::Succeeded,
            Outcome::NotStarted => Job::Ready,
            Outcome::Failed if left => Job::Ready,
            Outcome::Failed => Job::Dead,
            Outcome::Unknown if left && policy == Policy::Rerun => Job::Ready,
            Outcome::Unknown => Job::Held,
        };
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    /// No receiver.
    Down,
    /// A receiver without a session that it trusts.
    #[default]
    Away,
    Serving,
}

/// A receiver's memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    pub(crate) phase: Phase,
    /// The database is out of reach.
    pub(crate) cut: bool,
    pub(crate) session: Session,
    /// A registration was sent, and none was answered since.
    pub(crate) registering: bool,
    /// Claimed and not begun.
    pub(crate) claimed: Option<Claim>,
    /// Neither in memory nor in the runner's list: to be settled so.
    pub(crate) ending: Option<(Claim, Outcome)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Verb {
    Accept,
    /// A claim for a runner of this boot.
    Claim(u8),
    Complete(Claim, Outcome),
    /// A registration with the list as it was when this was sent.
    Register(Option<Claim>),
}

/// A transaction that was sent and that the server has not executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Flight {
    pub(crate) node: usize,
    pub(crate) verb: Verb,
    pub(crate) session: Session,
    /// Its connection stands: the receiver hears the answer.
    pub(crate) heard: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Life {
    Runs,
    Ended(Outcome),
    /// The machine has gone down under it.
    Gone,
}

/// An attempt that a runner has begun.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) claim: Claim,
    /// The node of the runner.
    pub(crate) node: usize,
    pub(crate) life: Life,
    /// The runner lists it.
    pub(crate) listed: bool,
    /// Not in the code: it is known to have failed, or the policy or the operator have asked for another attempt.
    pub(crate) released: bool,
    /// Not in the code: the operator has said that it does not run any more.
    pub(crate) disowned: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) primary: Rows,
    pub(crate) standby: Rows,
    /// The old primary after a failover, and whether it is up again.
    pub(crate) old: Option<(Job, bool)>,
    /// A copy of the primary, as it was.
    pub(crate) copy: Option<Rows>,
    /// What the nodes' folders have: in the model, each look comes at once.
    pub(crate) marks: [u8; NODES],
    /// The timeline of the primary. Its rows have it from the next registration on.
    pub(crate) timeline: u8,
    pub(crate) receivers: [Receiver; NODES],
    pub(crate) boots: [u8; NODES],
    pub(crate) flights: [Option<Flight>; FLIGHTS],
    pub(crate) runs: [Option<Run>; RUNS],
    pub(crate) faults: Faults,
    /// Not in the code: the event was answered 2xx.
    pub(crate) told: bool,
    /// Not in the code: the operator has said that nothing of the node runs, and the node does not know it yet.
    pub(crate) disowned: [bool; NODES],
}

impl State {
    /// Whether the receiver waits for the answer of a flight.
    pub(crate) fn waits(&self, node: usize) -> bool {
        self.flights.iter().flatten().any(|flight| flight.node == node && flight.heard)
    }

    pub(crate) fn send(&mut self, node: usize, verb: Verb) {
        let session = self.receivers[node].session;
        let free = self.flights.iter_mut().find(|flight| flight.is_none());
        *free.expect("FLIGHTS is too small") = Some(Flight { node, verb, session, heard: true });
    }

    /// The runs that the node's runner lists.
    pub(crate) fn listed(&self, node: usize) -> impl Iterator<Item = &Run> {
        self.runs.iter().flatten().filter(move |run| run.node == node && run.listed)
    }

    /// The receiver loses its connection. The server may still execute the flights that were sent on it.
    pub(crate) fn disconnect(&mut self, node: usize) {
        for flight in self.flights.iter_mut().flatten().filter(|flight| flight.node == node) {
            flight.heard = false;
        }
        if self.receivers[node].phase == Phase::Serving {
            self.receivers[node].phase = Phase::Away;
        }
    }

    pub(crate) fn add(&mut self, run: Run) {
        let free = self.runs.iter_mut().find(|run| run.is_none());
        *free.expect("RUNS is too small") = Some(run);
    }

    fn sessions(&mut self, each: &mut impl FnMut(&mut Session)) {
        for rows in [&mut self.primary, &mut self.standby].into_iter().chain(&mut self.copy) {
            rows.nodes.iter_mut().for_each(|node| each(&mut node.session));
            rows.attempts.iter_mut().for_each(|attempt| each(&mut attempt.claim.session));
        }
        for receiver in &mut self.receivers {
            each(&mut receiver.session);
            receiver.claimed.iter_mut().for_each(|claim| each(&mut claim.session));
            receiver.ending.iter_mut().for_each(|(claim, _)| each(&mut claim.session));
        }
        self.runs.iter_mut().flatten().for_each(|run| each(&mut run.claim.session));
        for flight in self.flights.iter_mut().flatten() {
            each(&mut flight.session);
            if let Verb::Complete(claim, _) | Verb::Register(Some(claim)) = &mut flight.verb {
                each(&mut claim.session);
            }
        }
    }

    /// A new session for the node's row.
    pub(crate) fn new_session(&mut self, node: usize, random: bool) -> Session {
        let mut serial = 0;
        self.sessions(&mut |session| serial = serial.max(session.serial));
        serial += 1;
        let counted = self.primary.nodes[node].session.number + 1;
        Session { number: if random { serial } else { counted }, serial }
    }

    /// Removes what can have no effect any more and renames the sessions, so that equivalent states are equal.
    pub(crate) fn tidy(&mut self, rules: Rules) {
        let is_behind = self.marks.iter().any(|mark| *mark > self.primary.mark);
        if self.faults.copies == 0 && self.copy.is_none() && !is_behind {
            (self.primary.mark, self.standby.mark, self.marks) = (0, 0, [0; NODES]);
        }
        self.old = self.old.filter(|(_, is_up)| *is_up || self.faults.returns > 0);
        if self.faults.failovers == 0 {
            self.standby = self.primary;
        }
        for receiver in &mut self.receivers {
            if receiver.phase != Phase::Serving && rules.registers {
                receiver.session = Session::default();
            }
            receiver.registering &= receiver.claimed.is_some();
        }
        for run in &mut self.runs {
            *run = run.filter(|run| run.life == Life::Runs || run.listed || !run.released);
        }
        // In the order in which they began.
        self.runs.sort_by_key(Option::is_none);
        let rows = self.primary.nodes;
        for slot in &mut self.flights {
            *slot = slot.filter(|flight| {
                let row = rows[flight.node];
                let registers = matches!(flight.verb, Verb::Register(_));
                let passes = !row.lost && row.session.number == flight.session.number;
                flight.heard || registers || passes || !rules.fence
            });
        }
        if rules.random_sessions {
            let mut names = [0_u8; 64];
            let mut last = 0;
            self.sessions(&mut |session| {
                let name = &mut names[usize::from(session.serial)];
                if session.serial != 0 && *name == 0 {
                    last += 1;
                    *name = last;
                }
                *session = Session { number: *name, serial: *name };
            });
        }
        self.flights.sort_unstable();
    }
}
