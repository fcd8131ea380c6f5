//! The receiver's steps: connect, read, commit, recover, claim, write.

use super::protocol::{Protocol, Step, Steps};
use super::state::{Job, Outcome, Phase, Receiver, State, ToReceiver, ToRunner};
use super::store;

pub(crate) fn steps(protocol: &Protocol, state: &State, out: &mut Steps) {
    start(protocol, state, out);
    for r in 0..state.receivers.len() {
        if state.receivers[r].epoch != 0 {
            commits(protocol, state, r, out);
            match state.connection(state.receivers[r].epoch) {
                None => connect(protocol, state, r, out),
                Some(c) => connected(protocol, state, r, c, out),
            }
        }
    }
}

/// R3: the epoch is committed when a receiver starts.
fn start(protocol: &Protocol, state: &State, out: &mut Steps) {
    let mut t = *state;
    let there = state.receivers.iter().filter(|r| r.epoch != 0).count();
    let second = there == 1 && !protocol.rules.one_receiver && state.faults.second_receivers > 0;
    if there != 0 && !second {
        return;
    }
    t.store.epoch += 1;
    t.receivers[there] = Receiver { epoch: t.store.epoch, ..Receiver::default() };
    if second {
        t.faults.second_receivers -= 1;
    }
    out.add(Step::ReceiverStarts(t.store.epoch), t, 0, second);
}

/// The receiver commits what it holds in memory.
fn commits(protocol: &Protocol, state: &State, r: usize, out: &mut Steps) {
    let Receiver { epoch, claimed, words, .. } = state.receivers[r];
    let connection = state.connection(epoch);
    if let Some((attempt, outcome)) = words {
        let mut t = *state;
        let broken = store::complete(&mut t, protocol.policy, attempt, outcome);
        t.receivers[r].words = None;
        // R9: the acknowledgement follows the commit.
        if let (Some(c), true) = (connection, protocol.rules.ack_after_commit)
            && outcome != Outcome::NotStarted
        {
            t.tell_runner(c, ToRunner::Ack(attempt));
        }
        out.add(Step::Commits(epoch, attempt, outcome), t, broken, false);
    }
    // R8, R10: its memory proves that an attempt that it claimed without writing the Start never started.
    if let (Some((attempt, _)), None) = (claimed, connection) {
        let mut t = *state;
        let broken = store::complete(&mut t, protocol.policy, attempt, Outcome::NotStarted);
        t.receivers[r].claimed = None;
        out.add(Step::Commits(epoch, attempt, Outcome::NotStarted), t, broken, false);
    }
}

/// R10: the receiver connects only after it has committed its memory.
fn connect(protocol: &Protocol, state: &State, r: usize, out: &mut Steps) {
    let Receiver { epoch, claimed, words, .. } = state.receivers[r];
    // The socket's path leads to the runner that started last.
    let youngest = state.runners.iter().max_by_key(|r| r.incarnation).copied().unwrap_or_default();
    let listens =
        youngest.incarnation != 0 && (!youngest.draining || protocol.rules.drains_reachable);
    if listens && claimed.is_none() && words.is_none() {
        let mut t = *state;
        t.open(epoch, youngest.incarnation);
        t.receivers[r].phase = Phase::Greeting;
        out.add(Step::Connects(epoch, youngest.incarnation), t, 0, false);
    }
}

fn connected(protocol: &Protocol, state: &State, r: usize, c: usize, out: &mut Steps) {
    let Receiver { epoch, phase, claimed, words } = state.receivers[r];
    let connection = &state.connections[c];
    if words.is_none() {
        read(protocol, state, r, c, out);
        // R10: a receiver reads the end of a connection after its last messages.
        if !connection.runner_open && connection.to_receiver.is_empty() {
            let mut t = *state;
            t.close_receiver_end(c);
            t.receivers[r].phase = Phase::Away;
            out.add(Step::SeesTheEnd(epoch), t, 0, false);
        }
    }
    if state.faults.lost_connections > 0 {
        let mut t = *state;
        t.faults.lost_connections -= 1;
        t.close_receiver_end(c);
        t.receivers[r].phase = Phase::Away;
        out.add(Step::LosesConnection(epoch), t, 0, true);
    }
    if phase == Phase::Listed {
        let mut t = *state;
        let broken = store::recover(&mut t, protocol.rules, protocol.policy, c);
        t.receivers[r].phase = Phase::Serving;
        out.add(Step::Recovers(epoch, t.store.job), t, broken, false);
    }
    let recovered = phase == Phase::Serving;
    let may_claim = recovered || (phase == Phase::Listed && !protocol.rules.recover_first);
    match claimed {
        // R4, R5: one claim at a time, for the incarnation at the other end.
        None if may_claim && !connection.draining => {
            let mut t = *state;
            let recorded = if protocol.rules.incarnation { connection.incarnation } else { 0 };
            if let Some(attempt) = store::claim(&mut t, recorded) {
                t.receivers[r].claimed = Some((attempt, connection.incarnation));
                out.add(Step::Claims(epoch, attempt), t, 0, false);
            }
        }
        Some((attempt, incarnation)) => {
            let mut t = *state;
            t.tell_runner(c, ToRunner::Start { attempt, incarnation });
            t.receivers[r].claimed = None;
            out.add(Step::WritesStart(epoch, attempt), t, 0, false);
        }
        None => {}
    }
    let waits = recovered && claimed.is_none() && state.store.job == Job::Running;
    if waits && !protocol.rules.runner_ends {
        let mut t = *state;
        let attempt = state.store.attempt;
        let broken = store::complete(&mut t, protocol.policy, attempt, Outcome::TimedOut);
        t.tell_runner(c, ToRunner::Kill(attempt));
        out.add(Step::TimesOut(epoch, attempt), t, broken, false);
    }
}

fn read(protocol: &Protocol, state: &State, r: usize, c: usize, out: &mut Steps) {
    let mut t = *state;
    let Some(message) = t.connections[c].to_receiver.pop() else { return };
    let receiver = &mut t.receivers[r];
    let epoch = receiver.epoch;
    match message {
        ToReceiver::HelloOk => receiver.phase = Phase::Listed,
        ToReceiver::Exited(attempt, outcome) => {
            receiver.words = Some((attempt, outcome));
            if !protocol.rules.ack_after_commit {
                t.tell_runner(c, ToRunner::Ack(attempt));
            }
        }
        ToReceiver::Refused(attempt) => {
            receiver.words = Some((attempt, Outcome::NotStarted));
            // R12: claims wait until the runner reports a free slot; in the model, the next message.
            t.connections[c].draining = true;
        }
    }
    out.add(Step::ReceiverReads(epoch, message), t, 0, false);
}
