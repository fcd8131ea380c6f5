//! A model of the protocol between receiver, runner and store, explored completely. It is the
//! specification for `src/runner`, `src/dispatcher` and `src/store`.
//!
//! The model has one job, and explores every order of steps under small budgets of faults. With all rules
//! of `model/rules.rs` no promise is broken and every job can still reach a final state. Without a rule,
//! the checker finds the shortest way to break a promise; `cargo test --test proof model:: -- --nocapture`
//! prints it. Rules and promises (R, P) have the numbers of the protocol's description; P6 is "every job
//! can still reach a final state", without another fault and without the operator.
//!
//! | here | in the code |
//! |---|---|
//! | `Store` | the job's row (state, attempt, incarnation), its attempts' rows, the store's epoch |
//! | `store::claim`, `complete`, `recover` | the store's verbs; one step is one committed transaction |
//! | `Receiver` | a `hooklatch serve`, named by its epoch; what it has read or claimed in memory |
//! | `Phase` | `Away`: no connection; `Greeting`: Hello written; `Listed`: HelloOK read; `Serving` |
//! | `Runner` | a `hooklatch runner`, named by its incarnation |
//! | `State::books` | the attempt table of a living runner, the ledger of a dead one |
//! | `Connection` | a socket: bytes of a dead sender stay readable, those to a closed end are gone |
//! | `State::children` | the process group of an attempt, which outlives its runner |
//! | `Job::Ready` | `ready`, and `waiting`: the clock may pass at any time |
//! | `Outcome::Failed` | every known end without success: `failed`, `rejected`, `cancelled`, and a time-out by the runner |
//! | `Truth` | not in the code: what really happened, against which the promises are checked |
//!
//! Not in the model: more than one job (`groups.rs` has the jobs of a group), concurrency, slots, forwards, payloads
//! and outputs, the bytes of frames (a cut frame), configuration and reload, restored stores, clocks, and failed
//! flushes. A commit, a spawn with its ledger line, and a reap with its ledger line and report are one step each;
//! `tests/kill/crash.rs` tests kills between their halves.

pub(crate) mod checker;
mod protocol;
mod receiver;
mod rules;
mod runner;
mod state;
mod store;
mod world;

use checker::explore;
use protocol::Protocol;
use rules::{Faults, Policy, Rules};
use state::{Entry, Job, Outcome, ToReceiver};
use store::{KNOWABLE, P3, P4, P5};

/// Converts a row of a table to the faults that it allows.
const NONE: Faults = Faults {
    receiver_kills: 0,
    runner_kills: 0,
    power_cuts: 0,
    runner_stops: 0,
    lost_connections: 0,
    operator: 0,
    second_receivers: 0,
};
const RECEIVER_KILL: Faults = Faults { receiver_kills: 1, ..NONE };
const RUNNER_KILL: Faults = Faults { runner_kills: 1, ..NONE };
const LOST_CONNECTION: Faults = Faults { lost_connections: 1, ..NONE };
const SECOND_RECEIVER: Faults = Faults { second_receivers: 1, ..NONE };

/// Explores the model completely; no promise may be broken and no job stuck. Returns the number of states.
fn holds(rules: Rules, faults: Faults, policy: Policy) -> usize {
    let found = explore(&Protocol { rules, faults, policy }, P3 | P4 | P5 | KNOWABLE);
    if let Some((trace, bits)) = &found.broken {
        trace.print(&format!("{} broken", names(*bits)));
    }
    if let Some(trace) = &found.stuck {
        trace.print("a job that cannot settle");
    }
    assert!(found.broken.is_none() && found.stuck.is_none(), "the rules do not hold");
    found.states.len()
}

/// Checks that the promise is broken, and that the shortest way has `steps` steps.
fn breaks(without: &str, rules: Rules, faults: Faults, promise: u8, steps: usize) {
    let title = format!("without {without}: {} broken", names(promise));
    let model = Protocol { rules, faults, policy: Policy::Rerun };
    checker::breaks(&title, &model, promise, steps);
}

/// Checks that a job can get stuck (P6), and that the shortest way has `steps` steps.
fn sticks(without: &str, rules: Rules, faults: Faults, steps: usize) {
    let model = Protocol { rules, faults, policy: Policy::Rerun };
    checker::sticks(&format!("without {without}: P6 broken"), &model, steps);
}

fn names(bits: u8) -> String {
    let all = [(P3, "P3"), (P4, "P4"), (P5, "P5"), (KNOWABLE, "P5 (a knowable unknown)")];
    let names: Vec<&str> = all.iter().filter(|(b, _)| bits & b != 0).map(|(_, n)| *n).collect();
    names.join(", ")
}

#[test]
fn without_r1_one_receiver() {
    let one = Rules { one_receiver: false, ..Rules::ALL };
    sticks("R1", one, SECOND_RECEIVER, 13);
    breaks("R1", one, SECOND_RECEIVER, P5, 14);
    let both = Rules { epoch: false, ..one };
    for (promise, steps) in [(P5, 14), (P4, 17), (P3, 17)] {
        breaks("R1 and R3", both, SECOND_RECEIVER, promise, steps);
    }
}

#[test]
fn without_r2_one_runner() {
    let unreachable = Rules { drains_reachable: false, ..Rules::ALL };
    sticks(
        "R2 (reachable while draining)",
        unreachable,
        Faults { runner_stops: 1, ..RECEIVER_KILL },
        11,
    );
    let beside = Rules { one_runner: false, proof_of_death: false, ..Rules::ALL };
    let faults = Faults { runner_stops: 1, ..LOST_CONNECTION };
    breaks("R2 and R6 (upgrade side by side)", beside, faults, P3, 19);
    breaks("R2 and R6 (upgrade side by side)", beside, faults, P5, 16);
}

#[test]
fn without_r3_epoch() {
    let rules = Rules { epoch: false, ..Rules::ALL };
    for (promise, steps) in [(P5, 15), (P4, 18), (P3, 18)] {
        breaks("R3", rules, RECEIVER_KILL, promise, steps);
    }
    for (promise, steps) in [(P5, 14), (P4, 17), (P3, 17)] {
        breaks("R3", rules, LOST_CONNECTION, promise, steps);
    }
}

#[test]
fn without_r4_recover_before_start() {
    let rules = Rules { recover_first: false, ..Rules::ALL };
    breaks("R4", rules, NONE, P5, 9);
    breaks("R4", rules, NONE, P3, 12);
}

#[test]
fn without_r5_incarnation() {
    let rules = Rules { incarnation: false, ..Rules::ALL };
    breaks("R5", rules, RUNNER_KILL, P5, 17);
    breaks("R5", rules, RUNNER_KILL, P4, 21);
}

#[test]
fn without_r6_children_gone() {
    let rules = Rules { children_gone: false, ..Rules::ALL };
    breaks("R6 (children gone)", rules, RUNNER_KILL, P3, 20);
}

#[test]
fn without_r7_ledger() {
    let rules = Rules { ledger: false, ..Rules::ALL };
    breaks("R7", rules, RUNNER_KILL, KNOWABLE, 15);
}

#[test]
fn without_r9_acknowledge_after_commit() {
    let rules = Rules { ack_after_commit: false, ..Rules::ALL };
    breaks("R9", rules, RECEIVER_KILL, P5, 18);
    breaks("R9", rules, RECEIVER_KILL, P4, 21);
}

#[test]
fn without_r11_only_the_runner_ends_an_attempt() {
    let rules = Rules { runner_ends: false, ..Rules::ALL };
    breaks("R11", rules, NONE, P3, 14);
}

/// Receiver kills, runner kills, power cuts, runner stops, lost connections, the operator's orders.
type Budget = [u8; 6];

fn all_hold(budgets: &[Budget]) {
    for budget in budgets {
        let [receiver_kills, runner_kills, power_cuts, runner_stops, lost_connections, operator] =
            *budget;
        let faults = Faults {
            receiver_kills,
            runner_kills,
            power_cuts,
            runner_stops,
            lost_connections,
            operator,
            ..NONE
        };
        for policy in [Policy::Rerun, Policy::Hold] {
            let states = holds(Rules::ALL, faults, policy);
            println!("{budget:?} {policy:?}: {states} states, the rules hold");
        }
    }
}

#[test]
fn the_promises_hold_when_processes_are_killed() {
    all_hold(&[[2, 1, 0, 0, 1, 0], [2, 1, 0, 1, 0, 0], [2, 2, 0, 0, 0, 1], [1, 1, 0, 1, 0, 1]]);
}

#[test]
fn the_promises_hold_when_power_and_connections_are_lost() {
    all_hold(&[[1, 0, 1, 1, 1, 0], [1, 1, 1, 0, 0, 1], [1, 1, 0, 1, 1, 0]]);
}

#[test]
#[ignore = "takes minutes and gigabytes: cargo test --release --test proof model:: -- --ignored"]
fn the_promises_hold_under_larger_fault_budgets() {
    all_hold(&[[2, 1, 1, 1, 1, 0], [2, 1, 0, 1, 1, 1], [2, 2, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]]);
}

/// Checks that the model reaches the situations it is about: a model in which little happens proves little.
#[test]
fn the_model_reaches_every_important_situation() {
    let faults = Faults { runner_kills: 1, runner_stops: 1, ..RECEIVER_KILL };
    let states = explore(&Protocol { rules: Rules::ALL, faults, policy: Policy::Hold }, 0).states;
    let reached = |what: &str, when: &dyn Fn(&state::State) -> bool| {
        assert!(states.iter().any(when), "no state in which {what}");
    };
    reached("the job succeeded at its second attempt", &|s| {
        s.store.job == Job::Succeeded && s.store.attempt == 2
    });
    reached("the job is dead", &|s| s.store.job == Job::Dead);
    reached("the job is held", &|s| s.store.job == Job::Held);
    reached("an attempt never started", &|s| s.store.outcomes.contains(&Some(Outcome::NotStarted)));
    reached("a child runs with no receiver there", &|s| {
        s.children != [0; 3] && s.receivers.iter().all(|r| r.epoch == 0)
    });
    reached("a Start is readable whose writer is dead", &|s| {
        s.connections.iter().any(|c| !c.receiver_open && !c.to_runner.is_empty())
    });
    reached("a runner refused a Start", &|s| {
        s.connections.iter().any(|c| c.to_receiver.first() == Some(ToReceiver::Refused(1)))
    });
    reached("a runner answers for a dead one's finished attempt", &|s| {
        let listed = s.connections.iter().flat_map(|c| c.list);
        listed.into_iter().any(|l| l.of_dead && l.entry == Entry::Ended(Outcome::Succeeded))
    });
}
