//! The server's steps: it executes flights, and its standby follows.

use super::promises;
use super::rules::Rules;
use super::state::{
    Attempt, Claim, Flight, Job, NodeRow, Outcome, Phase, Receiver, Rows, Session, State, Verb,
};
use super::steps::{Cluster, Step, Steps};

/// How a commit ends that waits for a standby.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// The standby has it, or no commit waits.
    Over,
    /// Its backend is ended: the connection is lost, and every session sees the rows.
    Ended,
    /// Answered with a warning.
    Cancelled,
    /// The names of the standbys are emptied: answered as if the standby had it.
    Emptied,
    /// The names of the standbys are emptied, and set again at once: answered as if the standby had it.
    EmptiedAndSet,
}

/// The server's answer to a flight.
enum Answer {
    Done,
    Claimed(Option<Claim>),
    Registered(Option<Attempt>),
    /// N3.
    Fenced,
}

pub(crate) fn steps(cluster: &Cluster, state: &State, out: &mut Steps<'_>) {
    for (slot, flight) in state.flights.iter().enumerate() {
        let Some(flight) = *flight else { continue };
        let mut t = *state;
        t.flights[slot] = None;
        execute(cluster, &t, flight, Wait::Over, out);
        if cluster.rules.standby_waits && state.faults.broken_waits > 0 {
            t.faults.broken_waits -= 1;
            for wait in [Wait::Ended, Wait::Cancelled, Wait::Emptied, Wait::EmptiedAndSet] {
                execute(cluster, &t, flight, wait, out);
            }
        }
    }
    if state.standby != state.primary && !cluster.rules.standby_waits {
        out.add(Step::Replicates, State { standby: state.primary, ..*state }, 0, false);
    }
}

fn execute(cluster: &Cluster, from: &State, flight: Flight, wait: Wait, out: &mut Steps<'_>) {
    let mut t = *from;
    let (answer, broken) = apply(cluster, &mut t, flight);
    if !matches!(answer, Answer::Fenced) {
        t.primary.mark += 1;
    }
    if wait == Wait::Over && cluster.rules.standby_waits {
        t.standby = t.primary;
    }
    let committed = match wait {
        Wait::Over => true,
        Wait::Ended => false,
        Wait::Cancelled => !cluster.rules.warning,
        Wait::Emptied => !cluster.rules.names_behind_commit,
        Wait::EmptiedAndSet => !cluster.rules.loaded_behind_commit,
    };
    if flight.heard {
        if matches!(answer, Answer::Fenced) {
            t.disconnect(flight.node);
            t.receivers[flight.node].session = Session::default();
        } else if committed {
            hear(cluster, &mut t, flight, answer);
        } else {
            t.disconnect(flight.node);
        }
    }
    for (node, receiver) in t.receivers.iter().enumerate() {
        if receiver.phase == Phase::Serving && !receiver.cut {
            t.marks[node] = t.primary.mark;
        }
    }
    out.add(Step::Executes(flight.node, flight.verb, wait), t, broken, wait != Wait::Over);
}

fn apply(cluster: &Cluster, t: &mut State, flight: Flight) -> (Answer, u8) {
    let Flight { node, verb, session, .. } = flight;
    let rules = cluster.rules;
    if let Verb::Register(list) = verb {
        return (Answer::Registered(register(rules, t, node, list)), 0);
    }
    let row = t.primary.nodes[node];
    if rules.fence && (row.lost || row.session.number != session.number) {
        return (Answer::Fenced, 0);
    }
    match verb {
        Verb::Accept => {
            // Another delivery is a duplicate.
            if t.primary.job == Job::Absent {
                t.primary.job = Job::Ready;
            }
            (Answer::Done, 0)
        }
        Verb::Claim(boot) => (Answer::Claimed(claim(&mut t.primary, node, session, boot)), 0),
        Verb::Complete(claim, outcome) => (Answer::Done, complete(cluster, t, claim, outcome)),
        Verb::Register(_) => (Answer::Done, 0),
    }
}

fn claim(rows: &mut Rows, node: usize, session: Session, boot: u8) -> Option<Claim> {
    if rows.job != Job::Ready || !rows.has_attempts_left() {
        return None;
    }
    rows.job = Job::Running;
    rows.attempt += 1;
    let claim = Claim { attempt: rows.attempt, node, session };
    rows.attempts[usize::from(rows.attempt) - 1] = Attempt { claim, boot, outcome: None };
    Some(claim)
}

/// N18. A completion that finds no such row is a late end: it changes nothing and is acknowledged.
fn complete(cluster: &Cluster, t: &mut State, claim: Claim, outcome: Outcome) -> u8 {
    let Some(row) = t.primary.running().map(|attempt| attempt.claim) else { return 0 };
    let meant =
        if cluster.rules.claimant { row.names(claim) } else { row.attempt == claim.attempt };
    if !meant {
        return 0;
    }
    let broken = promises::record(t, claim, row, outcome);
    t.primary.settle(cluster.policy, outcome);
    if t.primary.job == Job::Ready && outcome != Outcome::NotStarted {
        promises::release(t, |run| run.claim == row);
    }
    broken
}

/// N2, N25, N27. Returns the live attempt that the node is to judge.
fn register(rules: Rules, t: &mut State, node: usize, earlier: Option<Claim>) -> Option<Attempt> {
    let session = t.new_session(node, rules.random_sessions);
    let timeline = t.timeline;
    let is_behind = rules.marks && t.primary.mark < t.marks[node];
    let rows = &mut t.primary;
    let is_later = rows.timeline != timeline && !rules.standby_waits && rules.restored;
    if is_later || is_behind && !rows.nodes[node].called {
        if rows.job == Job::Running {
            rows.attempts[usize::from(rows.attempt) - 1].outcome = Some(Outcome::Unknown);
        }
        if matches!(rows.job, Job::Running | Job::Ready) {
            rows.job = Job::Held;
        }
        for row in &mut rows.nodes {
            row.called = true;
            row.lost &= !rules.declared_again;
        }
    }
    rows.timeline = timeline;
    rows.nodes[node] = NodeRow { session, lost: false, timeline, called: false };
    let list = rows.running().copied();
    let own = |attempt: &Attempt| attempt.claim.node == node || !rules.own_rows;
    if rules.list_behind_lock {
        return list.filter(own);
    }
    earlier.map(|claim| Attempt { claim, boot: t.boots[node], outcome: None })
}

fn hear(cluster: &Cluster, t: &mut State, flight: Flight, answer: Answer) {
    let node = flight.node;
    match (answer, flight.verb) {
        (Answer::Claimed(claim), _) => t.receivers[node].claimed = claim,
        (Answer::Registered(list), _) => {
            t.disowned[node] = false;
            t.receivers[node].registering = false;
            t.receivers[node].phase = Phase::Serving;
            t.receivers[node].session = t.primary.nodes[node].session;
            judge(cluster.rules, t, node, list);
        }
        (_, Verb::Accept) => t.told = true,
        (_, Verb::Complete(claim, outcome)) => settled(t, node, claim, outcome),
        _ => {}
    }
}

/// The end is committed: the runner may forget it.
fn settled(t: &mut State, node: usize, claim: Claim, outcome: Outcome) {
    if matches!(outcome, Outcome::Unknown | Outcome::NotStarted) {
        t.receivers[node].ending = None;
        return;
    }
    let mut runs = t.runs.iter_mut().flatten();
    if let Some(run) = runs.find(|run| run.node == node && run.listed && run.claim == claim) {
        run.listed = false;
    }
}

/// N16.
pub(crate) fn judge(rules: Rules, t: &mut State, node: usize, list: Option<Attempt>) {
    let Receiver { claimed, .. } = t.receivers[node];
    let is = |claim: Claim| list.is_some_and(|attempt| attempt.claim.names(claim));
    let kept = claimed.filter(|claim| is(*claim) || !rules.only_if_listed);
    t.receivers[node].claimed = kept;
    let Some(attempt) = list else { return };
    if kept.is_some_and(is) || t.listed(node).any(|run| is(run.claim)) {
        return;
    }
    if attempt.boot != t.boots[node] {
        t.receivers[node].ending = Some((attempt.claim, Outcome::Unknown));
    } else if rules.put_back {
        t.receivers[node].ending = Some((attempt.claim, Outcome::NotStarted));
    }
}
