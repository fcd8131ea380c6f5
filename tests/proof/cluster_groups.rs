//! A model of a group's jobs (`order_by`, `coalesce_by`) on several nodes, explored completely.
//!
//! Each transaction moves the rows as `groups.rs` says for one machine. Here two nodes have one transaction open each,
//! and between its steps (open, lock, decide, commit) the other one takes its own. With all rules of
//! `cluster_groups/rules.rs` the promises of `groups/promises.rs` hold as on one machine. Without a rule, the checker
//! finds the shortest way to break a promise; `cargo test --test proof cluster_groups:: -- --nocapture` prints it. The
//! rules (N) are those of `docs/cluster.md`; Q7 is "an event that came after another one was acknowledged is younger".
//!
//! | here | in the code |
//! |---|---|
//! | `State::rows`, `standby` | what a server has committed |
//! | `Transaction` | the flight of a node's writer; one that lost its connection goes on or ends |
//! | `Transaction::locked` | it has the lock of the group's row |
//! | `Decision` | the writes of statements, which see the commits before them |
//! | `Decision::rows` | the rows that it has locked; a claim passes over a locked row, an update waits for it |
//! | `Stray` | an attempt in the list of a node's runner whose row is settled |
//!
//! A unique index lets one job hold a group; a transaction that violates it is rolled back and starts again. An operator
//! who declares a node lost says that nothing of it runs: then the other node may run a job of the group despite a stray.
//!
//! Not in the model: the protocol of one attempt (`cluster.rs`), several groups in one transaction and their deadlocks,
//! delays and rates.

mod rules;
mod state;
mod step;
mod steps;

use crate::groups::promises::{ALL, Q1, Q2, Q3, Q5};
use crate::groups::rules::Budget;
use crate::groups::rules::GroupRule::{self, Block, Latest, StepOver};
use crate::groups::state::Stage;
use crate::model::checker::{self, explore};
use rules::{Faults, Rules};
use state::State;
use steps::{Cluster, Q7};

fn names(bits: u8) -> String {
    let all = ALL.iter().chain(&[(Q7, "Q7")]);
    let names = all.filter(|(bit, _)| bits & bit != 0);
    names.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

const EVENTS: Budget = Budget {
    events: 2,
    unsure: 0,
    jobless: 0,
    operator: 0,
    redeliveries: 0,
    removals: 0,
    faults: 0,
    reloads: 0,
};
const THREE: Budget = Budget { events: 3, ..EVENTS };
const OPERATOR: Budget = Budget { operator: 1, ..EVENTS };
const NONE: Faults = Faults { aborts: 0, declarations: 0, failovers: 0 };
const DECLARED: Faults = Faults { declarations: 1, ..NONE };
const FAILOVER: Faults = Faults { failovers: 1, ..NONE };

/// Explores the model completely; no promise may be broken, and no job stuck.
fn holds(rules: Rules, group: GroupRule, budget: Budget, faults: Faults) -> Vec<State> {
    let cluster = Cluster { rules, group, budget, faults };
    let found = explore(&cluster, ALL.iter().fold(Q7, |all, (bit, _)| all | bit));
    if let Some((trace, bits)) = &found.broken {
        trace.print(&format!("{group:?}: {} broken", names(*bits)));
    }
    if let Some(trace) = &found.stuck {
        trace.print(&format!("{group:?}: a job that cannot go on"));
    }
    assert!(found.broken.is_none() && found.stuck.is_none(), "the rules do not hold");
    println!("{group:?}, {budget:?}, {faults:?}: {} states, the rules hold", found.states.len());
    found.states
}

/// Checks that the promise is broken, and that the shortest way has `steps` steps.
fn breaks(
    title: &str,
    rules: Rules,
    group: GroupRule,
    (budget, faults): (Budget, Faults),
    (promise, steps): (u8, usize),
) {
    let title = format!("{group:?} without {title}: {} broken", names(promise));
    checker::breaks(&title, &Cluster { rules, group, budget, faults }, promise, steps);
}

const CALM: (Budget, Faults) = (EVENTS, NONE);

#[test]
fn without_n35_a_lock() {
    let accept = Rules { accept_locks: false, ..Rules::ALL };
    breaks("N35 (accept)", accept, Block, CALM, (Q5, 12));
    let end = Rules { end_locks: false, ..Rules::ALL };
    breaks("N35 (completion)", end, Block, CALM, (Q5, 12));
    let moves = Rules { move_locks: false, ..Rules::ALL };
    breaks("N35 (operator)", moves, Block, (OPERATOR, NONE), (Q5, 9));
    let lost = Rules { lost_locks: false, ..Rules::ALL };
    breaks("N35 (declaration)", lost, Latest, (EVENTS, DECLARED), (Q5, 12));
}

#[test]
fn without_n36_decisions_behind_the_lock() {
    let early = Rules { decides_behind_lock: false, ..Rules::ALL };
    breaks("N36 (lock)", early, Block, CALM, (Q5, 15));
    let rows = Rules { decides_behind_rows: false, index: false, ..Rules::ALL };
    breaks("N36 (rows and index)", rows, Latest, CALM, (Q1, 12));
}

#[test]
fn without_n37_numbers_behind_the_lock() {
    let early = Rules { number_behind_lock: false, ..Rules::ALL };
    breaks("N37 (lock)", early, Block, CALM, (Q2, 11));
    breaks("N37 (lock)", early, Latest, CALM, (Q3, 17));
    let cached = Rules { no_cache: false, ..Rules::ALL };
    breaks("N37 (cache)", cached, Block, CALM, (Q7, 6));
}

#[test]
fn without_n38_a_claim_asks_its_own_row() {
    let rules = Rules { own_row: false, index: false, ..Rules::ALL };
    for group in [Block, StepOver] {
        breaks("N38 and the index", rules, group, CALM, (Q1, 12));
    }
}

#[test]
fn without_n39_and_n40_what_a_runner_lists() {
    let job = Rules { none_of_group: false, ..Rules::ALL };
    breaks("N39", job, Latest, (EVENTS, DECLARED), (Q1, 15));
    let at_once = Rules { roll_call: false, ..Rules::ALL };
    breaks("N40", at_once, Latest, (EVENTS, FAILOVER), (Q1, 14));
}

/// The index alone keeps two claims of a group apart, but each time it does, a transaction starts again. With the other
/// rules it has nothing to do.
#[test]
fn the_index_and_the_rules_on_claims_replace_each_other() {
    for group in [Block, StepOver, Latest] {
        let alone = Rules { decides_behind_rows: false, own_row: false, ..Rules::ALL };
        holds(alone, group, THREE, NONE);
        holds(Rules { index: false, ..Rules::ALL }, group, THREE, NONE);
    }
}

#[test]
fn the_promises_hold_on_two_nodes() {
    for group in [Block, StepOver, Latest] {
        holds(Rules::ALL, group, THREE, NONE);
        holds(Rules::ALL, group, Budget { jobless: 1, ..OPERATOR }, NONE);
        holds(Rules::ALL, group, Budget { unsure: 1, ..OPERATOR }, NONE);
        holds(Rules::ALL, group, Budget { removals: 1, redeliveries: 1, ..EVENTS }, NONE);
    }
}

#[test]
fn the_promises_hold_when_nodes_and_servers_fail() {
    for group in [Block, StepOver, Latest] {
        holds(Rules::ALL, group, EVENTS, Faults { aborts: 1, ..DECLARED });
        holds(Rules::ALL, group, OPERATOR, DECLARED);
        holds(Rules::ALL, group, EVENTS, FAILOVER);
    }
}

#[test]
#[ignore = "takes minutes and gigabytes: cargo test --release --test proof cluster_groups:: -- --ignored"]
fn the_promises_hold_under_larger_budgets() {
    for group in [Block, StepOver, Latest] {
        holds(Rules::ALL, group, Budget { operator: 1, ..THREE }, Faults { aborts: 1, ..NONE });
        holds(Rules::ALL, group, THREE, DECLARED);
        holds(Rules::ALL, group, THREE, FAILOVER);
        holds(Rules::ALL, group, OPERATOR, FAILOVER);
    }
}

/// Checks that the model reaches the situations it is about: a model in which little happens proves little.
#[test]
fn the_model_reaches_every_important_situation() {
    let states = holds(Rules::ALL, Latest, THREE, DECLARED);
    let reached = |what: &str, when: &dyn Fn(&State) -> bool| {
        assert!(states.iter().any(when), "no state in which {what}");
    };
    reached("a claim is open while an accept has the lock", &|s| {
        let [Some(one), Some(other)] = &s.transactions else { return false };
        one.locked && other.verb == state::Verb::Claim && other.decision.is_some()
    });
    reached("the latest runs, two are superseded", &|s| {
        let stages = s.rows.jobs.map(|job| job.stage);
        stages[..3] == [Stage::Superseded, Stage::Superseded, Stage::Running]
    });
    reached("a newer job runs while a stray does", &|s| {
        s.strays().any(|stray| stray.job == 0) && s.runs[1].is_some()
    });
}
