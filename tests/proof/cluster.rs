//! A model of several nodes on one PostgreSQL, explored completely. It is the specification for the sessions, flights,
//! claims and completions of such a store.
//!
//! The model has two nodes, a primary and a standby, one event and its job, and explores every order of steps under
//! small budgets of faults. With all rules of `cluster/rules.rs` no promise is broken and the job can still reach a
//! final state. Without a rule, the checker finds the shortest way to break a promise; `cargo test --test proof
//! cluster:: -- --nocapture` prints it. Rules and promises (N, P) have the numbers of `docs/cluster.md`; P6 is "every
//! job can still reach a final state", without another fault and without the operator.
//!
//! | here | in the code |
//! |---|---|
//! | `Rows` | the rows of the job, its attempts and the nodes, and the history, as one server has them |
//! | `Flight` | a transaction from its BEGIN to its COMMIT, sent in one piece and executed in one piece, or never |
//! | `Flight::heard` | its connection stands; the server may execute a flight of a lost connection |
//! | `Wait` | how a COMMIT ends that waits for a standby |
//! | `Receiver` | what a `hooklatch serve` has in memory; `Away`: it has no session |
//! | `Run` | an attempt in a runner's list, and its process group |
//! | `State::marks` | the sum of the marks in a node's folder, as its last look has left it |
//! | `State::boots` | which boot of a machine: its runner's incarnation |
//! | `Job::Ready` | `ready`, and `waiting`: the clock may pass at any time |
//! | `released`, `disowned`, `told`, `Session::serial` | not in the code: what really happened |
//!
//! An operator who declares a node lost says that nothing of it runs any more. So an attempt that the node runs then, or
//! begins before it has registered again, may run at the same time as an attempt on another node.
//!
//! Not in the model: the protocol between receiver and runner (`model.rs` has it), two jobs of one group
//! (`cluster_groups.rs`), several jobs, stored answers, versions, two processes in one folder, what an old primary
//! that goes on beside the new one would store, a node whose first registration is lost in a failover or with a copy
//! that is put back, and what is committed between a look and such a copy.

mod node;
mod promises;
mod rules;
mod server;
mod state;
mod steps;
mod world;

use crate::model::checker::{self, explore};
use promises::{ALL, P1, P3, P4, P5};
use rules::{Faults, Policy, Rules};
use state::{Job, Life, Outcome, Phase, State};
use steps::Cluster;

fn names(bits: u8) -> String {
    let names = ALL.iter().filter(|(bit, _)| bits & bit != 0);
    names.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

const NONE: Faults = Faults {
    deliveries: 1,
    lost_connections: 0,
    broken_waits: 0,
    receiver_kills: 0,
    power_cuts: 0,
    partitions: 0,
    failovers: 0,
    returns: 0,
    copies: 0,
    declarations: 0,
    replays: 0,
};
const LOST_CONNECTION: Faults = Faults { lost_connections: 1, ..NONE };
const FAILOVER: Faults = Faults { failovers: 1, ..NONE };
const COPY: Faults = Faults { copies: 1, ..NONE };
const BROKEN_WAIT: Faults = Faults { broken_waits: 1, ..FAILOVER };
const DECLARED: Faults = Faults { declarations: 1, ..LOST_CONNECTION };

/// Explores the model completely; no promise of `wanted` may be broken and no job stuck.
fn holds(rules: Rules, faults: Faults, policy: Policy, wanted: u8) -> Vec<State> {
    let found = explore(&Cluster { rules, faults, policy }, wanted);
    if let Some((trace, bits)) = &found.broken {
        trace.print(&format!("{} broken", names(*bits)));
    }
    if let Some(trace) = &found.stuck {
        trace.print("a job that cannot settle");
    }
    assert!(found.broken.is_none() && found.stuck.is_none(), "the rules do not hold");
    found.states
}

/// Checks that the promise is broken, and that the shortest way has `steps` steps.
fn breaks(without: &str, rules: Rules, faults: Faults, promise: u8, steps: usize) {
    let title = format!("without {without}: {} broken", names(promise));
    let model = Cluster { rules, faults, policy: Policy::Rerun };
    checker::breaks(&title, &model, promise, steps);
}

/// Checks that a job can get stuck (P6), and that the shortest way has `steps` steps.
fn sticks(without: &str, rules: Rules, faults: Faults, steps: usize) {
    let model = Cluster { rules, faults, policy: Policy::Rerun };
    checker::sticks(&format!("without {without}: P6 broken"), &model, steps);
}

#[test]
fn without_n2_and_n3_sessions() {
    sticks("N2 (registers)", Rules { registers: false, ..Rules::ALL }, LOST_CONNECTION, 8);
    sticks("N2 (list)", Rules { list_behind_lock: false, ..Rules::ALL }, LOST_CONNECTION, 8);
    sticks("N3 (fence)", Rules { fence: false, ..Rules::ALL }, LOST_CONNECTION, 9);
}

#[test]
fn without_n4_committed() {
    breaks("N4 (warning)", Rules { warning: false, ..Rules::ALL }, BROKEN_WAIT, P1, 5);
    let names = Rules { names_behind_commit: false, ..Rules::ALL };
    breaks("N4 (names)", names, BROKEN_WAIT, P1, 5);
    let loaded = Rules { loaded_behind_commit: false, ..Rules::ALL };
    breaks("N4 (names set again)", loaded, BROKEN_WAIT, P1, 5);
    let answer = Rules { lost_answer: false, ..Rules::ALL };
    let faults = Faults { lost_connections: 1, ..FAILOVER };
    breaks("N4 (lost answer)", answer, faults, P1, 5);
}

#[test]
fn without_n5_commit_before_answer() {
    let rules = Rules { commit_before_answer: false, ..Rules::ALL };
    breaks("N5", rules, Faults { deliveries: 2, ..BROKEN_WAIT }, P1, 8);
}

#[test]
fn without_n15_and_n16_what_a_node_begins() {
    breaks("N15", Rules { claims_unlisted: false, ..Rules::ALL }, DECLARED, P3, 14);
    breaks("N16 (own rows)", Rules { own_rows: false, ..Rules::ALL }, NONE, P3, 14);
    sticks("N16 (put back)", Rules { put_back: false, ..Rules::ALL }, LOST_CONNECTION, 7);
    let unlisted = Rules { only_if_listed: false, ..Rules::ALL };
    breaks("N16 (only if listed)", unlisted, DECLARED, P3, 16);
    let at_once = Rules { begins_registered: false, ..Rules::ASYNCHRONOUS };
    let replay = Faults { failovers: 1, replays: 1, ..LOST_CONNECTION };
    breaks("N16 (registered)", at_once, replay, P3, 18);
}

#[test]
fn without_n18_completions() {
    let claimant = Rules { claimant: false, ..Rules::ASYNCHRONOUS };
    let faults = Faults { declarations: 1, replays: 1, ..FAILOVER };
    breaks("N18 (claimant)", claimant, faults, P5, 20);
    let early = Rules { ack_after_commit: false, ..Rules::ALL };
    breaks("N18 (acknowledgement)", early, LOST_CONNECTION, P4, 17);
}

#[test]
fn without_n22_a_person() {
    breaks("N22", Rules { person: false, ..Rules::ALL }, LOST_CONNECTION, P3, 14);
}

#[test]
fn without_n10_a_history_for_every_connection() {
    let faults = Faults { returns: 1, ..FAILOVER };
    breaks("N10 (payloads)", Rules { bound: false, ..Rules::ALL }, faults, P1, 9);
    holds(Rules::ALL, faults, Policy::Rerun, P1 | P3 | P4 | P5);
}

/// An event that is lost with the rows is reported (N28).
#[test]
fn without_n25_a_mark() {
    for rules in [Rules::ALL, Rules::ASYNCHRONOUS] {
        breaks("N25 (marks)", Rules { marks: false, ..rules }, COPY, P3, 16);
        for policy in BOTH {
            holds(rules, COPY, *policy, P3 | P4 | P5);
        }
    }
}

#[test]
fn without_n26_n27_and_n40_a_history() {
    let rules = Rules { standby_waits: false, ..Rules::ALL };
    breaks("N26 (a standby)", rules, FAILOVER, P1, 5);
    breaks("N27 (restored)", Rules { restored: false, ..rules }, FAILOVER, P3, 14);
    let replay = Faults { replays: 1, ..FAILOVER };
    breaks("N40 (roll call)", Rules { roll_call: false, ..rules }, replay, P3, 15);
    let declared = Faults { declarations: 1, ..replay };
    breaks("N40 (declared again)", Rules { declared_again: false, ..rules }, declared, P3, 20);
}

/// Lost connections, broken waits, receiver kills, power cuts, partitions, failovers, declarations, replays.
type Budget = [u8; 8];

fn all_hold(rules: Rules, deliveries: u8, policies: &[Policy], budgets: &[Budget]) {
    // Where no commit waits, a failover loses events: N28 reports them.
    let wanted = if rules.standby_waits { P1 | P3 | P4 | P5 } else { P3 | P4 | P5 };
    for budget in budgets {
        let [
            lost_connections,
            broken_waits,
            receiver_kills,
            power_cuts,
            partitions,
            failovers,
            declarations,
            replays,
        ] = *budget;
        let faults = Faults {
            deliveries,
            lost_connections,
            broken_waits,
            receiver_kills,
            power_cuts,
            partitions,
            failovers,
            returns: 0,
            copies: 0,
            declarations,
            replays,
        };
        for policy in policies {
            let states = holds(rules, faults, *policy, wanted).len();
            println!("{deliveries}, {budget:?} {policy:?}: {states} states, the rules hold");
        }
    }
}

const RERUN: &[Policy] = &[Policy::Rerun];
const BOTH: &[Policy] = &[Policy::Rerun, Policy::Hold];

#[test]
fn the_promises_hold_when_nodes_fail() {
    let budgets = [
        [1, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 0, 1, 0],
        [0, 0, 1, 0, 0, 0, 1, 1],
        [0, 0, 1, 1, 0, 0, 0, 0],
    ];
    all_hold(Rules::ALL, 1, BOTH, &budgets);
}

#[test]
fn the_promises_hold_when_servers_fail() {
    all_hold(Rules::ALL, 1, BOTH, &[[0, 1, 0, 0, 0, 1, 1, 0]]);
    all_hold(Rules::ALL, 1, RERUN, &[[1, 1, 0, 0, 0, 1, 0, 0], [2, 1, 0, 0, 0, 0, 0, 0]]);
    all_hold(Rules::ALL, 2, RERUN, &[[1, 1, 0, 0, 0, 1, 0, 0]]);
}

#[test]
fn the_promises_hold_where_no_commit_waits() {
    let budgets = [[0, 0, 0, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 1, 1, 1]];
    all_hold(Rules::ASYNCHRONOUS, 1, BOTH, &budgets);
}

/// Sessions need not be random, once N15 and N16 hold.
#[test]
fn the_promises_hold_where_sessions_are_counted() {
    let counted = Rules { random_sessions: false, ..Rules::ALL };
    all_hold(counted, 1, RERUN, &[[1, 0, 0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 1, 0]]);
    let counted = Rules { random_sessions: false, ..Rules::ASYNCHRONOUS };
    all_hold(counted, 1, RERUN, &[[0, 0, 0, 0, 0, 1, 0, 1]]);
}

#[test]
#[ignore = "takes minutes and gigabytes: cargo test --release --test proof cluster:: -- --ignored"]
fn the_promises_hold_under_larger_budgets() {
    let two = [[1, 1, 1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 1, 1, 0]];
    all_hold(Rules::ALL, 2, RERUN, &two);
    let one = [[1, 1, 0, 0, 0, 1, 1, 1], [1, 0, 1, 1, 0, 0, 1, 0], [0, 1, 0, 0, 1, 1, 1, 0]];
    all_hold(Rules::ALL, 1, BOTH, &one);
    let lossy = [[1, 0, 0, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 1, 1, 1]];
    all_hold(Rules::ASYNCHRONOUS, 1, BOTH, &lossy);
    let counted = Rules { random_sessions: false, ..Rules::ASYNCHRONOUS };
    all_hold(counted, 1, RERUN, &[[0, 0, 0, 0, 0, 1, 1, 1]]);
}

/// Checks that the model reaches the situations it is about: a model in which little happens proves little.
#[test]
fn the_model_reaches_every_important_situation() {
    let faults = Faults { receiver_kills: 1, declarations: 1, ..NONE };
    let states = holds(Rules::ALL, faults, Policy::Rerun, 0);
    let reached = |what: &str, when: &dyn Fn(&State) -> bool| {
        assert!(states.iter().any(when), "no state in which {what}");
    };
    let runs = |s: &State, node: usize| {
        s.runs.iter().flatten().any(|run| run.node == node && run.life == Life::Runs)
    };
    reached("both nodes run an attempt, after a wrong declaration", &|s| runs(s, 0) && runs(s, 1));
    reached("the job succeeded at its second attempt", &|s| {
        s.primary.job == Job::Succeeded && s.primary.attempt == 2
    });
    reached("a command runs with no receiver there", &|s| {
        runs(s, 0) && s.receivers[0].phase == Phase::Down
    });
    reached("a transaction of a lost connection may still commit", &|s| {
        s.flights.iter().flatten().any(|flight| !flight.heard)
    });
    reached("a late end", &|s| {
        let ended = |run: &state::Run| run.listed && matches!(run.life, Life::Ended(_));
        let settled = s.primary.attempts[0].outcome == Some(Outcome::Unknown);
        settled && s.runs.iter().flatten().any(ended)
    });
}
