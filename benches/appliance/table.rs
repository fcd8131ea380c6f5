//! The table that all this is for, and what decides whether a run has failed.

use std::cell::Cell;
use std::process::ExitCode;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Pairs of a ceiling and the thing measured; the median counts.
    pub(crate) rounds: usize,
    /// Requests, jobs or bytes of a round are divided by it.
    pub(crate) divide: usize,
    /// A bound may be missed so many times over before the run fails.
    slack: f64,
}

/// A whole run. On a quiet machine medians of five lie within some percent of each other.
const WHOLE: Effort = Effort { rounds: 5, divide: 1, slack: 1.0 };

/// For a machine that does other things too: only what is far off fails. Two runs of it differ by half.
const SHORT: Effort = Effort { rounds: 3, divide: 8, slack: 10.0 };

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Good {
    /// A share of the ceiling.
    High,
    /// So many times the ceiling, or a cost by itself.
    Low,
}

/// The floor of a line that is reported and fails no run.
pub(crate) const REPORTED_HIGH: f64 = 0.0;
pub(crate) const REPORTED_LOW: f64 = f64::INFINITY;

/// What a line is measured against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) good: Good,
    /// The run fails beyond it.
    pub(crate) floor: f64,
    pub(crate) aim: f64,
}

/// Prints lines as they come.
pub(crate) struct Table {
    pub(crate) effort: Effort,
    words: Vec<String>,
    failed: Cell<bool>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let short = std::env::var("HOOKLATCH_BENCH").is_ok_and(|form| form == "short");
        // `cargo bench` adds options of its own harness.
        let words = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
        let effort = if short { SHORT } else { WHOLE };
        println!("| what | ceiling | measured | ratio | floor | aim |");
        println!("|---|---|---|---|---|---|");
        Table { effort, words, failed: Cell::new(false) }
    }

    /// Whether this is the short form.
    pub(crate) fn is_short(&self) -> bool {
        self.effort.divide > 1
    }

    /// Whether a line is to be measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }

    /// Rounds of a ceiling and what is measured, in turns: the line's ratio is the median of theirs, and
    /// each figure the median of its own.
    pub(crate) fn compare(
        &self,
        name: &str,
        bounds: Bounds,
        unit: &str,
        mut ceiling: impl FnMut() -> f64,
        mut measured: impl FnMut() -> f64,
    ) {
        let pairs: Vec<(f64, f64)> =
            (0..self.effort.rounds).map(|_| (ceiling(), measured())).collect();
        self.pairs(name, bounds, unit, &pairs);
    }

    /// The same of figures that are there.
    pub(crate) fn pairs(&self, name: &str, bounds: Bounds, unit: &str, pairs: &[(f64, f64)]) {
        let of = |value: &dyn Fn(&(f64, f64)) -> f64| median(pairs.iter().map(value).collect());
        let ratio = of(&|(ceiling, measured)| measured / ceiling);
        let figures = format!("{} {unit} | {} {unit}", figure(of(&|p| p.0)), figure(of(&|p| p.1)));
        self.line(name, bounds, &figures, ratio);
    }

    /// A line whose figure stands alone.
    pub(crate) fn alone(&self, name: &str, bounds: Bounds, unit: &str, value: f64) {
        self.line(name, bounds, &format!("– | {} {unit}", figure(value)), value);
    }

    fn line(&self, name: &str, bounds: Bounds, figures: &str, ratio: f64) {
        let Bounds { good, floor, aim } = bounds;
        let missed = match good {
            Good::High => ratio < floor / self.effort.slack,
            Good::Low => ratio > floor * self.effort.slack,
        };
        self.failed.set(self.failed.get() || missed);
        let mark = match good {
            _ if missed => " **missed**",
            Good::High if ratio < floor => " below",
            Good::Low if ratio > floor => " over",
            _ => "",
        };
        let floor = if [REPORTED_HIGH, REPORTED_LOW].contains(&floor) {
            "-".to_owned()
        } else {
            floor.to_string()
        };
        println!("| {name} | {figures} | {}{mark} | {floor} | {aim} |", figure(ratio));
    }

    /// Says something that is no line.
    pub(crate) fn remark(&self, text: &str) {
        println!("{text}");
    }

    pub(crate) fn end(&self) -> ExitCode {
        if self.failed.get() {
            println!("\na ratio is beyond its floor");
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Three digits that mean something.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
