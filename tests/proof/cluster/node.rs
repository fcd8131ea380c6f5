//! A node's steps: its receiver sends and begins, its runner's commands end.

use super::promises;
use super::server::judge;
use super::state::{Job, Life, NODES, Outcome, Phase, Receiver, Run, Session, State, Verb};
use super::steps::{Cluster, Step, Steps};

pub(crate) fn steps(cluster: &Cluster, state: &State, out: &mut Steps<'_>) {
    for node in 0..NODES {
        let Receiver { phase, cut, claimed, registering, .. } = state.receivers[node];
        if phase == Phase::Down {
            let mut t = *state;
            t.receivers[node] = Receiver { cut, ..Receiver::default() };
            out.add(Step::Starts(node), t, 0, false);
            continue;
        }
        let is_elsewhere = state.old == Some((Job::Absent, true)) && !cluster.rules.bound;
        if claimed.is_some() && is_elsewhere {
            let mut t = *state;
            t.receivers[node].claimed = None;
            t.primary.job = Job::Dead;
            let broken = if t.told { promises::P1 } else { 0 };
            out.add(Step::ReadsOld(node), t, broken, false);
        }
        let waits = registering && cluster.rules.begins_registered;
        // Also a node that is cut off begins its claims.
        if let Some(claim) = claimed.filter(|_| !waits) {
            let mut t = *state;
            t.receivers[node].claimed = None;
            let broken = promises::begin(&mut t, node, claim);
            out.add(Step::Begins(node, claim.attempt), t, broken, false);
        }
        // The writer has one flight at a time.
        if !cut && !state.waits(node) {
            match phase {
                Phase::Serving => serve(cluster, state, node, out),
                _ => register(cluster, state, node, out),
            }
        }
    }
    ends(state, out);
}

fn send(state: &State, node: usize, verb: Verb, out: &mut Steps<'_>) {
    let mut t = *state;
    t.send(node, verb);
    out.add(Step::Sends(node, verb), t, 0, false);
}

fn register(cluster: &Cluster, state: &State, node: usize, out: &mut Steps<'_>) {
    let rules = cluster.rules;
    if !rules.registers && state.receivers[node].session != Session::default() {
        let mut t = *state;
        let own = state.primary.running().filter(|attempt| attempt.claim.node == node).copied();
        t.receivers[node].phase = Phase::Serving;
        judge(rules, &mut t, node, own);
        out.add(Step::GoesOn(node), t, 0, false);
        return;
    }
    let own = state.primary.running().filter(|attempt| attempt.claim.node == node);
    let earlier = own.filter(|_| !rules.list_behind_lock).map(|attempt| attempt.claim);
    let mut t = *state;
    t.receivers[node].registering = true;
    send(&t, node, Verb::Register(earlier), out);
}

fn serve(cluster: &Cluster, state: &State, node: usize, out: &mut Steps<'_>) {
    deliver(cluster, state, node, out);
    let Receiver { claimed, ending, .. } = state.receivers[node];
    if let Some((claim, outcome)) = ending {
        send(state, node, Verb::Complete(claim, outcome), out);
        return;
    }
    for run in state.listed(node) {
        if let Life::Ended(outcome) = run.life {
            let mut t = *state;
            if !cluster.rules.ack_after_commit {
                let same = |other: &&mut Run| **other == *run;
                if let Some(run) = t.runs.iter_mut().flatten().find(same) {
                    run.listed = false;
                }
            }
            send(&t, node, Verb::Complete(run.claim, outcome), out);
        }
    }
    let lists = state.listed(node).next().is_some() && cluster.rules.claims_unlisted;
    let ready = state.primary.job == Job::Ready && state.primary.has_attempts_left();
    if ready && claimed.is_none() && !lists {
        send(state, node, Verb::Claim(state.boots[node]), out);
    }
}

fn deliver(cluster: &Cluster, state: &State, node: usize, out: &mut Steps<'_>) {
    let mut t = *state;
    let Some(left) = t.faults.deliveries.checked_sub(1) else { return };
    t.faults.deliveries = left;
    if state.primary.job != Job::Absent && !cluster.rules.commit_before_answer {
        t.told = true;
        out.add(Step::Reads(node), t, 0, true);
    } else {
        t.send(node, Verb::Accept);
        out.add(Step::Sends(node, Verb::Accept), t, 0, true);
    }
}

fn ends(state: &State, out: &mut Steps<'_>) {
    for (slot, run) in state.runs.iter().enumerate() {
        let Some(run) = run.filter(|run| run.life == Life::Runs) else { continue };
        for outcome in [Outcome::Succeeded, Outcome::Failed] {
            let mut t = *state;
            t.runs[slot] = Some(Run { life: Life::Ended(outcome), ..run });
            out.add(Step::Ends(run.node, run.claim.attempt, outcome), t, 0, false);
        }
    }
}
