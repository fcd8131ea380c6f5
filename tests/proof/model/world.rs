//! Steps from outside of the protocol: kills, power cuts, stops, and the operator's commands.

use super::protocol::{Protocol, Step, Steps};
use super::runner::die;
use super::state::{Job, Outcome, Receiver, State, attempts, slot};

pub(crate) fn steps(protocol: &Protocol, state: &State, out: &mut Steps) {
    let faults = state.faults;
    for r in 0..state.receivers.len() {
        let epoch = state.receivers[r].epoch;
        if epoch != 0 && faults.receiver_kills > 0 {
            let mut t = *state;
            t.faults.receiver_kills -= 1;
            t.receivers[r] = Receiver::default();
            if let Some(c) = t.connection(epoch) {
                t.close_receiver_end(c);
            }
            out.add(Step::ReceiverKilled(epoch), t, 0, true);
        }
    }
    for r in 0..state.runners.len() {
        let incarnation = state.runners[r].incarnation;
        if incarnation != 0 && faults.runner_kills > 0 {
            let mut t = *state;
            t.faults.runner_kills -= 1;
            for a in attempts().filter(|a| state.children[slot(*a)] == incarnation) {
                t.truth.unknowable[slot(a)] = true;
            }
            die(protocol, &mut t, r);
            out.add(Step::RunnerKilled(incarnation), t, 0, true);
        }
        if incarnation != 0 && faults.runner_stops > 0 && !state.runners[r].draining {
            let mut t = *state;
            t.faults.runner_stops -= 1;
            t.close_runner_ends(incarnation);
            out.add(Step::RunnerReexecutes(incarnation), t, 0, true);
            let mut t = *state;
            t.faults.runner_stops -= 1;
            t.runners[r].draining = true;
            out.add(Step::RunnerDrains(incarnation), t, 0, true);
        }
    }
    if faults.power_cuts > 0 {
        power_cut(state, out);
    }
    if faults.operator > 0 {
        operator(state, out);
    }
}

/// Everything except the store is lost, because the ledger's folder is in memory.
fn power_cut(state: &State, out: &mut Steps) {
    let mut t = State {
        store: state.store,
        faults: state.faults,
        incarnations: state.incarnations,
        booted: state.incarnations + 1,
        truth: state.truth,
        ..State::default()
    };
    t.faults.power_cuts -= 1;
    if t.store.job == Job::Running {
        t.truth.unknowable[slot(t.store.attempt)] = true;
    }
    out.add(Step::PowerCut, t, 0, true);
}

/// R19: the operator's commands do not change a running job.
fn operator(state: &State, out: &mut Steps) {
    let job = state.store.job;
    let mut to = |job: Job, replayed: bool| {
        let mut t = *state;
        t.faults.operator -= 1;
        t.store.job = job;
        for a in attempts().filter(|a| replayed && *a <= state.store.attempt) {
            if state.store.outcomes[slot(a)] != Some(Outcome::NotStarted) {
                t.truth.replayed[slot(a)] = true;
            }
        }
        out.add(Step::Operator(job), t, 0, true);
    };
    if matches!(job, Job::Held | Job::Dead | Job::Succeeded) {
        to(Job::Ready, true);
    }
    if job == Job::Held {
        to(Job::Succeeded, false);
        to(Job::Dead, false);
    }
    if matches!(job, Job::Ready | Job::Held | Job::Dead) {
        to(Job::Dropped, false);
    }
}
