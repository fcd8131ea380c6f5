//! The promises of groups, checked on each step.

use super::rules::GroupRule;
use super::state::{Stage, State};
use super::steps::Step;

/// No two jobs of a group run at once.
pub(crate) const Q1: u8 = 1;

/// An attempt starts only if no job of an older event is in the way: one that is ready, running, waiting, or held, or
/// that is dead under `Block`. Only a job that was put back or made later while a younger one had its turn lets that
/// one end first. So without such a step, jobs start in the order of their events, and none starts between two attempts
/// of an older one.
pub(crate) const Q2: u8 = 2;

/// Where the latest wins, no attempt of an older event starts after one of a newer event, unless the operator says
/// `regardless`.
pub(crate) const Q3: u8 = 4;

/// Where the latest wins, at most one job is ready or waiting, until the operator puts another one there or reloads. The
/// job of the newest event is never superseded: it runs, or waits for a person, or the operator drops it.
pub(crate) const Q4: u8 = 8;

/// A job is behind only if another one has the turn that moves by itself, or that waits for a person for a reason that
/// does not come from a forged event.
pub(crate) const Q5: u8 = 16;

/// No job is dropped but by the operator, or as superseded where the latest wins; then a job of a newer event is ready,
/// waiting or running at that moment.
pub(crate) const Q6: u8 = 32;

pub(crate) const ALL: [(u8, &str); 6] =
    [(Q1, "Q1"), (Q2, "Q2"), (Q3, "Q3"), (Q4, "Q4"), (Q5, "Q5"), (Q6, "Q6")];

/// The promises that the step breaks.
pub(crate) fn broken(from: &State, to: &State, step: Step) -> u8 {
    let mut broken = 0;
    let running = to.jobs.iter().filter(|job| job.stage == Stage::Running);
    if running.count() > 1 {
        broken |= Q1;
    }
    if let Step::Claim(job) = step {
        broken |= start(from, job);
    }
    let latest = to.jobs.iter().filter(|job| job.rule == GroupRule::Latest && job.is_pending());
    let mut made =
        to.jobs.iter().rev().filter(|job| !matches!(job.stage, Stage::Absent | Stage::Jobless));
    let newest = made.next().is_some_and(|newest| newest.stage == Stage::Superseded);
    if newest || (!to.touched && latest.count() > 1) {
        broken |= Q4;
    }
    let behind = to.jobs.iter().any(|job| job.behind && job.is_in_the_way());
    let turn =
        to.jobs.iter().any(|job| job.stage != Stage::Removed && job.is_in_the_way() && !job.behind);
    if behind && !turn {
        broken |= Q5;
    }
    for (job, now) in to.jobs.iter().enumerate() {
        let newer = to.jobs[job + 1..].iter().any(|newer| newer.is_active());
        let right = newer && now.rule == GroupRule::Latest;
        let dropped = now.stage == Stage::Superseded && from.jobs[job].stage != Stage::Superseded;
        if dropped && !right {
            broken |= Q6;
        }
    }
    broken
}

fn start(from: &State, job: usize) -> u8 {
    let mut broken = 0;
    if !from.has_the_turn(job) {
        broken |= Q2;
    }
    let now = &from.jobs[job];
    let newer = from.jobs[job + 1..].iter().any(|newer| newer.truth.started);
    if now.rule == GroupRule::Latest && newer && !now.truth.regardless {
        broken |= Q3;
    }
    broken
}
