//! A model of groups (`order_by`, `coalesce_by`), explored completely. It is the specification for the group of a job
//! in `src/store`.
//!
//! The model has one group of one handler whose concurrency keeps no two jobs apart, so that only the group does. It
//! explores every order of steps: events of each kind, attempts and their ends, the operator's orders, redeliveries,
//! retention, reloads. With all rules of `groups/rules.rs` no promise of `groups/promises.rs` is broken, and every job
//! can go on until only a person can move it. Without a rule, the checker finds the shortest way to break a promise;
//! `cargo test --test proof groups:: -- --nocapture` prints it.
//!
//! The rules (Q1 to Q6 are the promises):
//!
//! - **G0** What holds a group: a job that is ready, running or waiting; a held one, where events are ordered, unless
//!   it is held as a suspected replay or a reused id; a dead one under `Block`, unless it was resolved as failed.
//! - **G1** A job that enters a state that holds (accepted, replayed, made later) is *behind* if another job holds the
//!   group. A job in any other state is never behind.
//! - **G2** When the job that holds a group leaves these states, the one of the oldest event among those behind gets
//!   its turn, in the same transaction.
//! - **G3** A job that is behind is not claimed.
//! - **G4** Where the latest wins, the job of a new event, or one that is made later, supersedes those of older events
//!   that are ready or waiting and that were accepted under the same rule.
//! - **G5** Such a job is also superseded at the end of an attempt instead of being tried again, if a newer job is ready
//!   or waiting.
//! - **G6** A duplicate, and a job that is held from the beginning or replayed supersedes none. No job supersedes that
//!   of a newer event.
//! - **G7** Where the latest wins, a job is not put back nor made if a newer one has ever begun or holds the group, unless
//!   the operator says `regardless`. A redelivery never says so.
//! - **G8** The newest event of which retention has removed a job that had begun is remembered. For G7 what is older is
//!   too late.
//! - **G9** Retention keeps a dead job that holds its group: it waits for the operator, as a held one does.
//!
//! | here | in the code |
//! |---|---|
//! | `State::jobs` | the rows of a group's jobs, in the order of their events |
//! | `Job::begun` | `attempt > 0` |
//! | `Without::holds` | the column `holds` |
//! | `State::put`, `release` | a statement that moves a job; `store::tables::group` |
//! | `Stage::Held`, `Stage::Suspect` | `held`, by its reason |
//! | `Truth` | not in the code: what happened, against which the promises are checked |
//!
//! Not in the model: a kill of the receiver, which changes no row; the protocol of one attempt, which `model.rs` has;
//! delays, rates and backoffs (the clock may pass at any time); other groups, which share no row with this one.

pub(crate) mod promises;
pub(crate) mod rules;
pub(crate) mod state;
pub(crate) mod steps;

use crate::model::checker::{self, explore};
use promises::{ALL, Q1, Q2, Q3, Q4, Q5, Q6};
use rules::GroupRule::{self, Block, Latest, StepOver};
use rules::{Budget, Rule};
use state::{Stage, State, Without};
use steps::Groups;

fn names(bits: u8) -> String {
    let names = ALL.iter().filter(|(bit, _)| bits & bit != 0);
    names.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// Three events, and nothing from outside.
const EVENTS: Budget = Budget {
    events: 3,
    unsure: 0,
    jobless: 0,
    operator: 0,
    redeliveries: 0,
    removals: 0,
    faults: 0,
    reloads: 0,
};
const OPERATOR: Budget = Budget { operator: 2, unsure: 2, ..EVENTS };

/// Explores the model completely; no promise may be broken, and no job stuck.
fn holds(rule: GroupRule, other: GroupRule, budget: Budget) -> Vec<State> {
    let groups = Groups { rule, other, without: Without(&[]), budget };
    let found = explore(&groups, ALL.iter().fold(0, |all, (bit, _)| all | bit));
    if let Some((trace, bits)) = &found.broken {
        trace.print(&format!("{} broken", names(*bits)));
    }
    if let Some(trace) = &found.stuck {
        trace.print("a job that cannot go on");
    }
    assert!(found.broken.is_none() && found.stuck.is_none(), "the rules do not hold");
    println!("{rule:?}, {other:?}, {budget:?}: {} states, the rules hold", found.states.len());
    found.states
}

/// Checks that without these rules each promise is broken, and that the shortest way has so many steps.
fn breaks(
    title: &str,
    without: &'static [Rule],
    [rule, other]: [GroupRule; 2],
    budget: Budget,
    promises: &[(u8, usize)],
) {
    for (promise, steps) in promises {
        let groups = Groups { rule, other, without: Without(without), budget };
        let title = format!("{rule:?} without {title}: {} broken", names(*promise));
        checker::breaks(&title, &groups, *promise, *steps);
    }
}

const BLOCK: [GroupRule; 2] = [Block, Block];
const STEP_OVER: [GroupRule; 2] = [StepOver, StepOver];
const LATEST: [GroupRule; 2] = [Latest, Latest];

#[test]
fn without_g0_what_holds_a_group() {
    breaks("G0 (waiting)", &[Rule::WaitingHolds], BLOCK, EVENTS, &[(Q2, 5)]);
    breaks("G0 (held)", &[Rule::HeldHolds], STEP_OVER, EVENTS, &[(Q2, 5)]);
    breaks("G0 (dead)", &[Rule::DeadHolds], BLOCK, EVENTS, &[(Q2, 5)]);
    let forged = Budget { unsure: 1, ..EVENTS };
    breaks("G0 (not a suspect)", &[Rule::SuspectDoesNotHold], BLOCK, forged, &[(Q5, 2)]);
    let resolved = &[Rule::ResolvedDoesNotHold];
    breaks("G0 (not a resolved one)", resolved, BLOCK, OPERATOR, &[(Q5, 3)]);
}

#[test]
fn without_g1_a_job_is_behind() {
    breaks("G1 (accept)", &[Rule::BehindAtAccept], BLOCK, EVENTS, &[(Q2, 3), (Q1, 4)]);
    breaks("G1 (accept)", &[Rule::BehindAtAccept], LATEST, EVENTS, &[(Q1, 4)]);
    let back = &[Rule::BehindAtReplay];
    breaks("G1 (replay)", back, STEP_OVER, OPERATOR, &[(Q2, 4), (Q1, 5)]);
    let only = &[Rule::OnlyHoldersAreBehind];
    breaks("G1 (only what holds)", only, LATEST, OPERATOR, &[(Q5, 3)]);
    breaks("G1 (only what holds)", only, BLOCK, OPERATOR, &[(Q5, 4)]);
}

#[test]
fn without_g2_the_next_one() {
    breaks("G2 (end)", &[Rule::NextAtEnd], BLOCK, EVENTS, &[(Q5, 4)]);
    breaks("G2 (drop, resolve)", &[Rule::NextAtOrder], BLOCK, OPERATOR, &[(Q5, 3)]);
    breaks("G2 (G4)", &[Rule::NextAtNewer], LATEST, EVENTS, &[(Q5, 2)]);
    breaks("G2 (G5)", &[Rule::NextAtSupersededEnd], LATEST, EVENTS, &[(Q5, 4)]);
    let fault = Budget { faults: 1, ..EVENTS };
    breaks("G2 (no payload)", &[Rule::NextAtFault], STEP_OVER, fault, &[(Q5, 3)]);
    breaks("G2 (only if free)", &[Rule::NextOnlyIfFree], BLOCK, OPERATOR, &[(Q2, 5), (Q1, 6)]);
    breaks("G2 (oldest)", &[Rule::NextIsOldest], BLOCK, EVENTS, &[(Q2, 6)]);
    breaks(
        "G2 (oldest)",
        &[Rule::NextIsOldest],
        LATEST,
        Budget { operator: 2, unsure: 3, ..EVENTS },
        &[(Q3, 9)],
    );
}

#[test]
fn without_g3_claims() {
    let claims = &[Rule::ClaimsNoneBehind];
    breaks("G3", claims, BLOCK, EVENTS, &[(Q2, 3), (Q1, 4)]);
    breaks("G3", claims, LATEST, EVENTS, &[(Q1, 4)]);
}

#[test]
fn without_g4_and_g5_the_latest_wins() {
    breaks("G4", &[Rule::NewSupersedes], LATEST, EVENTS, &[(Q4, 2)]);
    breaks("G5", &[Rule::EndSupersedes], LATEST, EVENTS, &[(Q4, 4)]);
    let reload = Budget { reloads: 1, ..EVENTS };
    breaks("G4 (own rule)", &[Rule::OwnRuleDecides], [Block, Latest], reload, &[(Q6, 3)]);
}

#[test]
fn without_g6_what_supersedes_none() {
    let forged = Budget { unsure: 1, ..EVENTS };
    breaks("G6 (held)", &[Rule::HeldSupersedesNone], LATEST, forged, &[(Q6, 2)]);
    let made = Budget { jobless: 1, ..OPERATOR };
    let older = &[Rule::OnlyOlderIsSuperseded, Rule::MakeIsRefused];
    breaks("G6 (made later)", older, LATEST, made, &[(Q4, 3), (Q6, 3)]);
    let replay = &[Rule::ReplaySupersedesNone, Rule::OnlyOlderIsSuperseded];
    breaks("G6 (replay)", replay, LATEST, OPERATOR, &[(Q4, 3), (Q6, 3)]);
    let duplicate = &[Rule::DuplicateSupersedesNone, Rule::OnlyOlderIsSuperseded];
    breaks("G6 (duplicate)", duplicate, LATEST, EVENTS, &[(Q4, 3), (Q6, 3)]);
}

#[test]
fn without_g7_an_older_one_is_refused() {
    breaks("G7 (replay)", &[Rule::ReplayIsRefused], LATEST, OPERATOR, &[(Q3, 6)]);
    let made = Budget { jobless: 1, ..OPERATOR };
    breaks("G7 (made later)", &[Rule::MakeIsRefused], LATEST, made, &[(Q3, 6)]);
    let again = Budget { redeliveries: 1, ..EVENTS };
    breaks("G7 (redelivery)", &[Rule::RedeliveryIsRefused], LATEST, again, &[(Q3, 8)]);
    breaks("G7 (has begun)", &[Rule::BegunCounts], LATEST, OPERATOR, &[(Q3, 6)]);
    let reload = Budget { reloads: 1, ..OPERATOR };
    let holding = &[Rule::HoldingCounts];
    breaks("G7 (holds)", holding, [Latest, Block], reload, &[(Q3, 8)]);
}

#[test]
fn without_g8_and_g9_what_retention_removes() {
    let removal = Budget { unsure: 1, operator: 1, removals: 1, ..EVENTS };
    breaks("G8", &[Rule::RemovedIsRemembered], LATEST, removal, &[(Q3, 7)]);
    let removal = Budget { removals: 1, ..EVENTS };
    breaks("G9", &[Rule::RetentionKeepsHolders], BLOCK, removal, &[(Q2, 6)]);
    let both = &[Rule::RetentionKeepsHolders, Rule::NextAtRetention];
    breaks("G9 and G2 (retention)", both, BLOCK, removal, &[(Q5, 5)]);
}

#[test]
fn the_promises_hold_where_events_are_ordered() {
    for rule in [Block, StepOver] {
        holds(rule, rule, Budget { events: 4, unsure: 1, operator: 1, ..EVENTS });
        holds(rule, rule, Budget { removals: 1, ..OPERATOR });
        holds(rule, rule, Budget { jobless: 1, redeliveries: 1, operator: 1, ..EVENTS });
        holds(rule, rule, Budget { faults: 1, unsure: 1, operator: 1, ..EVENTS });
    }
}

#[test]
fn the_promises_hold_where_the_latest_wins() {
    holds(Latest, Latest, Budget { events: 4, ..EVENTS });
    holds(Latest, Latest, Budget { unsure: 1, removals: 1, ..OPERATOR });
    holds(Latest, Latest, Budget { jobless: 1, redeliveries: 1, operator: 1, ..EVENTS });
    holds(Latest, Latest, Budget { faults: 1, unsure: 1, operator: 1, ..EVENTS });
}

#[test]
fn the_promises_hold_when_a_reload_changes_the_rule() {
    for [rule, other] in [[Block, StepOver], [Block, Latest], [StepOver, Latest]] {
        holds(rule, other, Budget { reloads: 2, operator: 1, ..EVENTS });
    }
}

#[test]
#[ignore = "takes minutes and gigabytes: cargo test --release --test proof groups:: -- --ignored"]
fn the_promises_hold_under_larger_budgets() {
    let budget = Budget { jobless: 1, redeliveries: 1, removals: 1, faults: 1, ..OPERATOR };
    for [rule, other] in [BLOCK, STEP_OVER, LATEST, [Block, Latest], [StepOver, Latest]] {
        holds(rule, other, Budget { reloads: u8::from(rule != other) * 2, ..budget });
    }
}

#[test]
#[ignore = "takes minutes and gigabytes: cargo test --release --test proof groups:: -- --ignored"]
fn the_promises_hold_for_four_events() {
    for rule in [Block, StepOver, Latest] {
        holds(rule, rule, Budget { events: 4, ..OPERATOR });
    }
}

/// Checks that the model reaches the situations it is about: a model in which little happens proves little.
#[test]
fn the_model_reaches_every_important_situation() {
    let budget = Budget { operator: 1, unsure: 1, ..EVENTS };
    let (block, latest) = (holds(Block, Block, budget), holds(Latest, Latest, budget));
    let reached = |what: &str, states: &[State], when: &dyn Fn(&State) -> bool| {
        assert!(states.iter().any(when), "no state in which {what}");
    };
    let is =
        |state: &State, stages: [Stage; 3]| state.jobs[..3].iter().map(|job| job.stage).eq(stages);
    reached("all have succeeded", &block, &|s| is(s, [Stage::Succeeded; 3]));
    reached("two are behind a dead one", &block, &|s| {
        is(s, [Stage::Dead, Stage::Ready, Stage::Ready]) && s.jobs[1].behind && s.jobs[2].behind
    });
    reached("a held one is behind", &block, &|s| {
        s.jobs[1].stage == Stage::Held && s.jobs[1].behind
    });
    reached("an older one is behind a younger one that waits", &block, &|s| {
        s.jobs[0].behind && s.jobs[1].stage == Stage::Waiting && !s.jobs[1].behind
    });
    reached("the latest runs alone", &latest, &|s| {
        is(s, [Stage::Superseded, Stage::Superseded, Stage::Running])
    });
    reached("an older one runs regardless", &latest, &|s| {
        s.jobs[0].stage == Stage::Running && s.jobs[0].truth.regardless
    });
}
