//! Steps from outside: what fails, and what the operator does.

use super::promises::{self, P1};
use super::rules::{Faults, Policy};
use super::state::{Flight, Job, Life, NODES, Outcome, Phase, Receiver, Session, State, Verb};
use super::steps::{Cluster, Step, Steps};

pub(crate) fn steps(cluster: &Cluster, state: &State, out: &mut Steps<'_>) {
    for node in 0..NODES {
        connection(cluster, state, node, out);
        machine(state, node, out);
        declare(cluster, state, node, out);
    }
    if let Some(t) = spend(state, |faults| &mut faults.failovers) {
        failover(t, out);
    }
    if let Some((job, false)) = state.old
        && let Some(mut t) = spend(state, |faults| &mut faults.returns)
    {
        t.old = Some((job, true));
        out.add(Step::OldIsBack, t, 0, true);
    }
    copy(state, out);
    replay(cluster, state, out);
}

/// A step that costs one of its budget.
fn spend(state: &State, of: impl Fn(&mut Faults) -> &mut u8) -> Option<State> {
    let mut t = *state;
    let left = of(&mut t.faults);
    *left = left.checked_sub(1)?;
    Some(t)
}

fn connection(cluster: &Cluster, state: &State, node: usize, out: &mut Steps<'_>) {
    let Receiver { phase, cut, .. } = state.receivers[node];
    if cut {
        let mut t = *state;
        t.receivers[node].cut = false;
        out.add(Step::IsBack(node), t, 0, false);
        return;
    }
    if phase == Phase::Serving || state.waits(node) {
        if let Some(mut t) = spend(state, |faults| &mut faults.lost_connections) {
            let accept = |flight: &Flight| {
                flight.node == node && flight.heard && flight.verb == Verb::Accept
            };
            t.told |= !cluster.rules.lost_answer && t.flights.iter().flatten().any(accept);
            t.disconnect(node);
            out.add(Step::LosesConnection(node), t, 0, true);
        }
        if let Some(mut t) = spend(state, |faults| &mut faults.partitions) {
            t.disconnect(node);
            t.receivers[node].cut = true;
            out.add(Step::IsCutOff(node), t, 0, true);
        }
    }
}

fn machine(state: &State, node: usize, out: &mut Steps<'_>) {
    let cut = state.receivers[node].cut;
    let down = Receiver { phase: Phase::Down, cut, ..Receiver::default() };
    if state.receivers[node].phase != Phase::Down
        && let Some(mut t) = spend(state, |faults| &mut faults.receiver_kills)
    {
        t.disconnect(node);
        t.receivers[node] = down;
        out.add(Step::IsKilled(node), t, 0, true);
    }
    if let Some(mut t) = spend(state, |faults| &mut faults.power_cuts) {
        t.disconnect(node);
        t.receivers[node] = down;
        t.boots[node] += 1;
        for run in t.runs.iter_mut().flatten().filter(|run| run.node == node) {
            run.listed = false;
            if run.life == Life::Runs {
                run.life = Life::Gone;
            }
        }
        out.add(Step::LosesPower(node), t, 0, true);
    }
}

/// N22. One transaction, which is committed before the command returns.
fn declare(cluster: &Cluster, state: &State, node: usize, out: &mut Steps<'_>) {
    let rules = cluster.rules;
    let row = state.primary.nodes[node];
    if row.lost || row.session == Session::default() {
        return;
    }
    let silent = state.receivers[node].phase != Phase::Serving;
    let mut t = match spend(state, |faults| &mut faults.declarations) {
        Some(t) if rules.person => t,
        _ if silent && !rules.person => *state,
        _ => return,
    };
    let session = t.new_session(node, rules.random_sessions);
    t.primary.nodes[node].session = session;
    t.primary.nodes[node].lost = true;
    if rules.person {
        t.disowned[node] = true;
        for run in t.runs.iter_mut().flatten().filter(|run| run.node == node) {
            run.disowned |= run.life == Life::Runs;
        }
    }
    if let Some(attempt) = state.primary.running().filter(|a| a.claim.node == node) {
        t.primary.settle(cluster.policy, Outcome::Unknown);
        if cluster.policy == Policy::Rerun {
            promises::release(&mut t, |run| run.claim == attempt.claim);
        }
    }
    if rules.standby_waits {
        t.standby = t.primary;
    }
    out.add(Step::Lost(node), t, 0, rules.person);
}

/// A node that has not registered yet knows of no commit. The copy has the running transactions no more.
fn copy(state: &State, out: &mut Steps<'_>) {
    let serves = |receiver: &Receiver| receiver.phase == Phase::Serving;
    if let Some(copy) = state.copy {
        let mut t = State { primary: copy, standby: copy, copy: None, ..*state };
        for node in 0..NODES {
            t.disconnect(node);
        }
        t.flights = Default::default();
        let broken = if t.told && t.primary.job == Job::Absent { P1 } else { 0 };
        out.add(Step::PutBack, t, broken, true);
    } else if state.receivers.iter().all(serves)
        && let Some(mut t) = spend(state, |faults| &mut faults.copies)
    {
        t.copy = Some(t.primary);
        out.add(Step::Copied, t, 0, true);
    }
}

/// Flights to the old primary are lost.
fn failover(mut t: State, out: &mut Steps<'_>) {
    t.old = Some((t.primary.job, false));
    t.primary = t.standby;
    t.timeline += 1;
    for node in 0..NODES {
        t.disconnect(node);
    }
    t.flights = Default::default();
    let broken = if t.told && t.primary.job == Job::Absent { P1 } else { 0 };
    out.add(Step::Failover, t, broken, true);
}

fn replay(cluster: &Cluster, state: &State, out: &mut Steps<'_>) {
    let job = state.primary.job;
    if !matches!(job, Job::Held | Job::Dead | Job::Succeeded) || !state.primary.has_attempts_left()
    {
        return;
    }
    let mut nodes = state.primary.nodes.iter().enumerate();
    let called = nodes.all(|(node, row)| {
        let registered = row.timeline == state.timeline && !row.called;
        let registered = registered && state.listed(node).next().is_none();
        row.lost || registered
    });
    if cluster.rules.roll_call && !called {
        return;
    }
    let Some(mut t) = spend(state, |faults| &mut faults.replays) else { return };
    t.primary.job = Job::Ready;
    promises::release(&mut t, |_| true);
    if cluster.rules.standby_waits {
        t.standby = t.primary;
    }
    out.add(Step::Replay, t, 0, true);
}
