//! A model of a handler's `rate` on several nodes, explored completely: two claims of different groups, and the row that
//! has the handler's rate.
//!
//! The promise: two starts are at least one share of the rate apart, by the database's clock. Without a rule, the checker
//! finds the shortest way to break it; `cargo test --test proof cluster_rate:: -- --nocapture` prints it. The rule (N41)
//! is in `docs/cluster.md`.

use std::fmt;

use crate::model::checker::{self, Model, Next, explore};

/// The time between two starts, in ticks.
const SHARE: u8 = 2;
const LAST_TICK: u8 = 5;

#[derive(Clone, Copy)]
struct Rate {
    /// A claim locks the handler's row before it reads it.
    locks: bool,
    /// It reads the time behind that lock. Off: the time at which its transaction began, as `now()` does.
    time_behind_lock: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Claim {
    began: u8,
    locked: bool,
    /// When it decided to start, and the time up to which the handler is then busy.
    start: Option<(u8, u8)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    busy_to: u8,
    claims: [Option<Claim>; 2],
    last_start: Option<u8>,
}

#[derive(Clone, Copy)]
enum Step {
    Opens(usize),
    Locks(usize),
    Starts(usize),
    Waits(usize),
    Commits(usize),
    Tick,
}

impl Model for Rate {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State::default()
    }

    fn steps(&self, state: &State, next: &mut Vec<Next<State, Step>>) {
        for node in 0..state.claims.len() {
            let (step, state, broken) = match state.claims[node] {
                None => {
                    let claim = Claim { began: state.now, locked: false, start: None };
                    (Step::Opens(node), with(state, node, Some(claim)), 0)
                }
                Some(claim) if self.locks && !claim.locked => {
                    if state.claims.iter().flatten().any(|claim| claim.locked) {
                        continue;
                    }
                    let claim = Claim { locked: true, ..claim };
                    (Step::Locks(node), with(state, node, Some(claim)), 0)
                }
                Some(Claim { start: Some((at, busy_to)), .. }) => {
                    let close = state.last_start.is_some_and(|last| at.abs_diff(last) < SHARE);
                    let t = State { busy_to, last_start: Some(at), ..with(state, node, None) };
                    (Step::Commits(node), t, u8::from(close))
                }
                Some(claim) => {
                    let now = if self.time_behind_lock { state.now } else { claim.began };
                    if state.busy_to <= now {
                        let start = Some((state.now, now + SHARE));
                        let claim = Claim { start, ..claim };
                        (Step::Starts(node), with(state, node, Some(claim)), 0)
                    } else {
                        (Step::Waits(node), with(state, node, None), 0)
                    }
                }
            };
            next.push(Next { step, state, broken, fault: false });
        }
        if state.now < LAST_TICK {
            let t = State { now: state.now + 1, ..*state };
            next.push(Next { step: Step::Tick, state: t, broken: 0, fault: false });
        }
    }

    /// The rate only delays.
    fn settled(&self, state: &State) -> bool {
        state.now == LAST_TICK
    }

    fn describe(&self, state: &State) -> String {
        format!("time {}, busy to {}", state.now, state.busy_to)
    }
}

fn with(state: &State, node: usize, claim: Option<Claim>) -> State {
    let mut t = *state;
    t.claims[node] = claim;
    t
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: &usize| if *node == 0 { 'A' } else { 'B' };
        match self {
            Step::Opens(n) => write!(f, "{} opens", name(n)),
            Step::Locks(n) => write!(f, "{} has locked the handler's row", name(n)),
            Step::Starts(n) => write!(f, "{} decides to start", name(n)),
            Step::Waits(n) => write!(f, "{} starts nothing yet", name(n)),
            Step::Commits(n) => write!(f, "{} commits", name(n)),
            Step::Tick => write!(f, "time passes"),
        }
    }
}

fn breaks(title: &str, rate: Rate, steps: usize) {
    checker::breaks(&format!("without {title}: the rate is exceeded"), &rate, 1, steps);
}

#[test]
fn without_n41_a_rate() {
    breaks("N41 (lock)", Rate { locks: false, time_behind_lock: true }, 6);
    breaks("N41 (time)", Rate { locks: true, time_behind_lock: false }, 10);
}

#[test]
fn the_rate_holds_on_two_nodes() {
    let found = explore(&Rate { locks: true, time_behind_lock: true }, 1);
    assert!(found.broken.is_none() && found.stuck.is_none());
    assert!(
        found.states.iter().any(|state| state.last_start.is_some_and(|last| last >= 2 * SHARE))
    );
}
