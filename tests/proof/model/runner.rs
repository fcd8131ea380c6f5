//! The runner's steps: start, read, start and reap children, leave.

use super::protocol::{Protocol, Step, Steps};
use super::state::{Entry, Listed, Outcome, Runner, State, ToReceiver, ToRunner, attempts, slot};
use super::store;

pub(crate) fn steps(protocol: &Protocol, state: &State, out: &mut Steps) {
    start(protocol, state, out);
    for r in 0..state.runners.len() {
        if state.runners[r].incarnation != 0 {
            for c in 0..state.connections.len() {
                if state.connections[c].incarnation == state.runners[r].incarnation {
                    read(protocol, state, r, c, out);
                }
            }
            leave(protocol, state, r, out);
        }
    }
    for attempt in attempts().filter(|a| state.children[slot(*a)] != 0) {
        child_ends(state, attempt, out);
    }
}

/// R2: a runner starts only if no other one runs.
fn start(protocol: &Protocol, state: &State, out: &mut Steps) {
    let there = state.runners.iter().filter(|r| r.incarnation != 0).count();
    let beside = there == 1 && !protocol.rules.one_runner && state.runners[0].draining;
    if there == 0 || beside {
        let mut t = *state;
        t.incarnations += 1;
        t.runners[there] = Runner { incarnation: t.incarnations, ..Runner::default() };
        out.add(Step::RunnerStarts(t.incarnations), t, 0, false);
    }
}

fn read(protocol: &Protocol, state: &State, r: usize, c: usize, out: &mut Steps) {
    let Runner { incarnation, draining, .. } = state.runners[r];
    let mut t = *state;
    let Some(message) = t.connections[c].to_runner.pop() else { return };
    let mut broken = 0;
    match message {
        ToRunner::Hello => {
            // R7: the runner answers after the children of a dead runner have ended.
            if protocol.rules.children_gone && state.leftovers() {
                return;
            }
            hello(protocol, &mut t, r, c);
        }
        ToRunner::Start { attempt, incarnation: meant } => {
            let elsewhere = protocol.rules.incarnation && meant != incarnation;
            if draining || elsewhere {
                t.tell_receiver(c, ToReceiver::Refused(attempt));
            } else {
                broken = store::begin(&mut t, protocol.policy, attempt, incarnation);
                t.book(incarnation)[slot(attempt)] = Entry::Started;
            }
        }
        ToRunner::Ack(attempt) => forget(&mut t, incarnation, attempt),
        // Only without R11: a signal; the child ends when it ends.
        ToRunner::Kill(_) => {}
    }
    out.add(Step::RunnerReads(incarnation, t.connections[c].epoch, message), t, broken, false);
}

/// R3: the runner compares the epoch, closes every other connection, and only then makes its list.
fn hello(protocol: &Protocol, t: &mut State, r: usize, c: usize) {
    let Runner { incarnation, epoch: seen, draining } = t.runners[r];
    let epoch = t.connections[c].epoch;
    if protocol.rules.epoch {
        if epoch < seen {
            t.close_runner_end(c);
            return;
        }
        t.runners[r].epoch = epoch;
        for other in (0..t.connections.len()).filter(|other| *other != c) {
            if t.connections[other].incarnation == incarnation {
                t.close_runner_end(other);
            }
        }
    }
    let list = list(protocol, t, incarnation);
    let dead = proven_dead(protocol, t, incarnation);
    let connection = &mut t.connections[c];
    connection.admitted = true;
    connection.draining = draining;
    if connection.receiver_open {
        connection.list = list;
        connection.dead = dead;
    }
    t.tell_receiver(c, ToReceiver::HelloOk);
}

/// The runner's table, and the ledgers of dead runners (R7).
fn list(protocol: &Protocol, t: &mut State, incarnation: u8) -> [Listed; super::state::ATTEMPTS] {
    let mut list = [Listed::default(); super::state::ATTEMPTS];
    if protocol.rules.ledger {
        let dead: Vec<u8> = t.dead().collect();
        for other in dead {
            for (listed, entry) in list.iter_mut().zip(*t.book(other)) {
                if entry != Entry::Absent {
                    *listed = Listed { entry, of_dead: true };
                }
            }
        }
    }
    for (listed, entry) in list.iter_mut().zip(*t.book(incarnation)) {
        if entry != Entry::Absent {
            *listed = Listed { entry, of_dead: false };
        }
    }
    list
}

/// R6: an incarnation is dead if it is of another boot, or if its lock is free. The runner has already waited
/// for its children.
fn proven_dead(protocol: &Protocol, t: &State, incarnation: u8) -> u8 {
    let others = (1..=t.incarnations).filter(|i| *i != incarnation);
    let dead = others.filter(|i| !protocol.rules.proof_of_death || t.runner(*i).is_none());
    dead.fold(0, |bits, i| bits | 1 << i)
}

/// R9: only an acknowledgement makes a runner forget an attempt, its own or that of a dead runner.
fn forget(t: &mut State, incarnation: u8, attempt: u8) {
    let dead: Vec<u8> = t.dead().collect();
    for book in dead.into_iter().chain([incarnation]) {
        t.book(book)[slot(attempt)] = Entry::Absent;
    }
}

/// R11: only here does an attempt end: by itself, by its time-out or by the drain limit.
fn child_ends(state: &State, attempt: u8, out: &mut Steps) {
    let incarnation = state.children[slot(attempt)];
    if state.runner(incarnation).is_none() {
        // An orphaned child: the next runner ends it, or it ends unobserved.
        let mut t = *state;
        t.children[slot(attempt)] = 0;
        out.add(Step::LeftoverEnds(attempt), t, 0, false);
        return;
    }
    for outcome in [Outcome::Succeeded, Outcome::Failed] {
        let mut t = *state;
        reap(&mut t, attempt, outcome);
        out.add(Step::ChildEnds(attempt, outcome), t, 0, false);
    }
}

/// Reaps a child, writes the ledger line and reports; this is one step of the model.
fn reap(t: &mut State, attempt: u8, outcome: Outcome) {
    let incarnation = t.children[slot(attempt)];
    t.children[slot(attempt)] = 0;
    t.truth.ended[slot(attempt)] = Some(outcome);
    t.book(incarnation)[slot(attempt)] = Entry::Ended(outcome);
    for c in 0..t.connections.len() {
        let connection = &t.connections[c];
        if connection.incarnation == incarnation && connection.admitted && connection.runner_open {
            t.tell_receiver(c, ToReceiver::Exited(attempt, outcome));
        }
    }
}

/// R13: a runner exits only without children and without unacknowledged attempts. Its connections end with it;
/// the ledger makes that safe.
fn leave(protocol: &Protocol, state: &State, r: usize, out: &mut Steps) {
    let Runner { incarnation, draining, .. } = state.runners[r];
    let mut t = *state;
    if draining && t.book(incarnation).iter().all(|entry| *entry == Entry::Absent) {
        die(protocol, &mut t, r);
        out.add(Step::RunnerLeaves(incarnation), t, 0, false);
    }
}

/// The process is gone; its ledger and its children are not.
pub(crate) fn die(protocol: &Protocol, t: &mut State, r: usize) {
    let incarnation = t.runners[r].incarnation;
    t.runners[r] = Runner::default();
    t.close_runner_ends(incarnation);
    if !protocol.rules.ledger {
        *t.book(incarnation) = Default::default();
    }
}
