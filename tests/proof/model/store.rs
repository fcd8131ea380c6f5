//! The store's verbs, each a transaction that is guarded by state and attempt; and the checks of the
//! promises when a child begins or an outcome is committed.

use super::rules::{Policy, Rules};
use super::state::{Entry, Job, MAX_ATTEMPTS, Outcome, State, ToRunner, attempts, slot};

/// Two children of the job at once.
pub(crate) const P3: u8 = 1;
/// A child begins although no failure, policy or operator asked for another attempt.
pub(crate) const P4: u8 = 2;
/// A committed outcome differs from what happened.
pub(crate) const P5: u8 = 4;
/// An outcome is committed as unknown although it could be known.
pub(crate) const KNOWABLE: u8 = 8;

/// Claims the next attempt for the incarnation; `None` if the job cannot be claimed.
pub(crate) fn claim(state: &mut State, incarnation: u8) -> Option<u8> {
    let store = &mut state.store;
    if store.job != Job::Ready || usize::from(store.attempt) == store.outcomes.len() {
        return None;
    }
    store.job = Job::Running;
    store.attempt += 1;
    store.incarnation = incarnation;
    Some(store.attempt)
}

/// Completes the attempt; changes nothing if another attempt is the current one (R9: it is then only
/// acknowledged). Returns the broken promises.
pub(crate) fn complete(state: &mut State, policy: Policy, attempt: u8, outcome: Outcome) -> u8 {
    if state.store.job != Job::Running || state.store.attempt != attempt {
        return 0;
    }
    let broken = judge_outcome(state, attempt, outcome);
    state.store.outcomes[slot(attempt)] = Some(outcome);
    state.store.incarnation = 0;
    let left = attempts_left(state);
    state.store.job = match outcome {
        Outcome::Succeeded => Job::Succeeded,
        Outcome::NotStarted => Job::Ready,
        Outcome::Failed if left => Job::Ready,
        Outcome::Failed => Job::Dead,
        Outcome::Unknown | Outcome::TimedOut if left && policy == Policy::Rerun => Job::Ready,
        Outcome::Unknown | Outcome::TimedOut => Job::Held,
    };
    broken
}

/// R12 and R20: attempts that never started, and those before a replay, do not count.
fn attempts_left(state: &State) -> bool {
    let counted = attempts().filter(|a| {
        let failed = state.store.outcomes[slot(*a)].is_some_and(|o| o != Outcome::NotStarted);
        failed && !state.truth.replayed[slot(*a)]
    });
    counted.count() < MAX_ATTEMPTS
}

/// Settles the running attempt by the list of the HelloOK that this connection brought (R6, R8), and
/// acknowledges every settled attempt in it (R9).
pub(crate) fn recover(state: &mut State, rules: Rules, policy: Policy, connection: usize) -> u8 {
    let c = state.connections[connection];
    let mut broken = 0;
    if state.store.job == Job::Running {
        let attempt = state.store.attempt;
        let verdict = verdict(state, rules, connection, attempt);
        if let Some(outcome) = verdict {
            broken = complete(state, policy, attempt, outcome);
        }
    }
    for attempt in attempts() {
        let over = match c.list[slot(attempt)] {
            Listed { entry: Entry::Ended(_), .. } => true,
            Listed { entry: Entry::Started, of_dead } => of_dead,
            Listed { entry: Entry::Absent, .. } => false,
        };
        if over && state.store.outcomes[slot(attempt)].is_some() {
            state.tell_runner(connection, ToRunner::Ack(attempt));
        }
    }
    // A list is used only once.
    let c = &mut state.connections[connection];
    c.list = Default::default();
    c.dead = 0;
    broken
}

use super::state::Listed;

/// What a list proves about the running attempt; `None` if it proves nothing yet.
fn verdict(state: &State, rules: Rules, connection: usize, attempt: u8) -> Option<Outcome> {
    let c = &state.connections[connection];
    let listed = c.list[slot(attempt)];
    let recorded = state.store.incarnation;
    if recorded == 0 || recorded == c.incarnation {
        // Without R5 nothing may be recorded, and only the living runner can be asked.
        return match listed.entry {
            Entry::Started if !listed.of_dead => None,
            Entry::Ended(outcome) if !listed.of_dead => Some(outcome),
            _ => Some(Outcome::NotStarted),
        };
    }
    if c.dead & (1 << recorded) == 0 {
        return None;
    }
    match listed.entry {
        Entry::Ended(outcome) => Some(outcome),
        Entry::Absent if rules.ledger && recorded >= state.booted => Some(Outcome::NotStarted),
        Entry::Absent | Entry::Started => Some(Outcome::Unknown),
    }
}

fn judge_outcome(state: &State, attempt: u8, outcome: Outcome) -> u8 {
    let truth = &state.truth;
    let a = slot(attempt);
    match outcome {
        Outcome::NotStarted if truth.began[a] => P5,
        Outcome::Succeeded | Outcome::Failed if truth.ended[a] != Some(outcome) => P5,
        Outcome::Unknown if !truth.unknowable[a] => KNOWABLE,
        _ => 0,
    }
}

/// Records that a child really begins for this attempt. Returns the broken promises.
pub(crate) fn begin(state: &mut State, policy: Policy, attempt: u8, incarnation: u8) -> u8 {
    let mut broken = 0;
    if state.children.iter().any(|child| *child != 0) {
        broken |= P3;
    }
    if state.store.outcomes[slot(attempt)].is_some() {
        broken |= P5;
    }
    for earlier in attempts().filter(|a| state.truth.began[slot(*a)]) {
        let again = match state.store.outcomes[slot(earlier)] {
            Some(Outcome::Failed) => earlier != attempt,
            Some(Outcome::Unknown | Outcome::TimedOut) => {
                policy == Policy::Rerun || state.truth.replayed[slot(earlier)]
            }
            Some(Outcome::Succeeded) => state.truth.replayed[slot(earlier)],
            Some(Outcome::NotStarted) | None => false,
        };
        if !again || earlier == attempt {
            broken |= P4;
        }
    }
    state.truth.began[slot(attempt)] = true;
    state.children[slot(attempt)] = incarnation;
    broken
}
