//! The promises, checked where an attempt begins, an outcome is committed, or a server is replaced.

use super::state::{Claim, Life, Outcome, Run, State};

/// An event that was answered 2xx is gone.
pub(crate) const P1: u8 = 1;
/// Two attempts of the job run at once.
pub(crate) const P3: u8 = 2;
/// An attempt begins though no failure, policy, declaration or operator asked for another one.
pub(crate) const P4: u8 = 4;
/// A committed outcome is not that of its attempt.
pub(crate) const P5: u8 = 8;

pub(crate) const ALL: [(u8, &str); 4] = [(P1, "P1"), (P3, "P3"), (P4, "P4"), (P5, "P5")];

/// The node's runner begins the attempt. Returns the broken promises.
pub(crate) fn begin(state: &mut State, node: usize, claim: Claim) -> u8 {
    let disowned = state.disowned[node];
    let mut broken = 0;
    for earlier in state.runs.iter().flatten() {
        let excused = (disowned || earlier.disowned) && earlier.node != node;
        if earlier.life == Life::Runs && !excused {
            broken |= P3;
        }
        if !earlier.released && !disowned {
            broken |= P4;
        }
    }
    let life = Life::Runs;
    state.add(Run { claim, node, life, listed: true, released: disowned, disowned });
    broken
}

/// The outcome of the first claim is recorded for the attempt with the second one.
pub(crate) fn record(state: &mut State, of: Claim, row: Claim, outcome: Outcome) -> u8 {
    let mut broken = if of == row { 0 } else { P5 };
    for run in state.runs.iter_mut().flatten().filter(|run| run.claim == row) {
        let is_wrong = match outcome {
            Outcome::Unknown => run.life == Life::Runs,
            Outcome::NotStarted => true,
            Outcome::Succeeded | Outcome::Failed => false,
        };
        if is_wrong {
            broken |= P5;
        }
        run.released |= outcome == Outcome::Failed;
    }
    broken
}

/// The policy or the operator allows another attempt after those that match.
pub(crate) fn release(state: &mut State, which: impl Fn(&Run) -> bool) {
    for run in state.runs.iter_mut().flatten().filter(|run| which(run)) {
        run.released = true;
    }
}
