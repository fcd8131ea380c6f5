//! Measures handlers whose jobs are in groups, compared with the same handler without `order_by`.

use std::time::Instant;

use super::backlog::Backlog;
use super::forwards::endpoint;
use super::start::start;
use super::table::{Bounds, Good, Table};

/// The number of ready jobs.
const JOBS: usize = 1_000_000;

/// The jobs of the smaller group: more than all rounds run.
const FEW: usize = 10_000;

/// The jobs of one round.
const ROUND: usize = 8_000;

/// The jobs of one round in one group, which run one at a time.
const ROUND_OF_ONE: usize = 800;

/// How a copied job differs from the first, where each has a group of its own, and where all are in one.
const OWN: &[(&str, &str)] = &[("group_key", r#"'["stripe","' || n || '"]'"#)];
const SHARED: &[(&str, &str)] = &[("behind", "1")];

pub(crate) fn measure(table: &Table) {
    let bounds = Bounds { good: Good::High, floor: 0.8, aim: 0.95 };
    let (divide, endpoint) = (table.effort.divide, endpoint());
    let forward = |more| format!("forward = \"http://{endpoint}/\"\n{more}");
    let name = "forwards ordered by a million values, beside the same unordered";
    if table.wants(name) {
        let unordered = Backlog::filled(&forward(""), JOBS / divide, &[]);
        let ordered = Backlog::filled(&forward("order_by = \"/id\""), JOBS / divide, OWN);
        let rate = |backlog| run(backlog, ROUND / divide);
        table.compare(name, bounds, "/s", || rate(&unordered), || rate(&ordered));
    }
    let name = "forwards of one group in which a million wait, beside ten thousand";
    if table.wants(name) {
        let filled = |jobs| Backlog::filled(&forward("order_by = \"/type\""), jobs, SHARED);
        let (few, many) = (filled(FEW), filled(JOBS / divide));
        let rate = |backlog| run(backlog, ROUND_OF_ONE / divide);
        table.compare(name, bounds, "/s", || rate(&few), || rate(&many));
        let restart = |Backlog { site, receiver, .. }| {
            receiver.stop();
            start(&site).seconds
        };
        let name = "start with a group in which a million wait: longer than with ten thousand";
        let bounds = Bounds { good: Good::Low, floor: 1.0, aim: 0.3 };
        table.alone(name, bounds, "s", restart(many) - restart(few));
    }
}

/// Runs so many of the jobs, and returns them per second.
fn run(backlog: &Backlog, jobs: usize) -> f64 {
    let goal = backlog.succeeded() + jobs as u64;
    let begun = Instant::now();
    backlog.site.resume();
    backlog.wait(goal);
    let seconds = begun.elapsed().as_secs_f64();
    backlog.site.pause();
    jobs as f64 / seconds
}
