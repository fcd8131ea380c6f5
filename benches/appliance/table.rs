//! The table of results, and the rules by which a run fails.

use std::cell::Cell;
use std::process::ExitCode;

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// The number of pairs of a ceiling and a measurement; the median counts.
    pub(crate) rounds: usize,
    /// The requests, jobs or bytes of a round are divided by this.
    pub(crate) divide: usize,
    /// The factor by which a result may miss its bound before the run fails.
    slack: f64,
}

/// A full run. On an idle machine medians of five rounds differ by a few percent.
const WHOLE: Effort = Effort { rounds: 5, divide: 1, slack: 1.0 };

/// A run for a busy machine: it fails only far beyond a bound, because two such runs may differ by half.
const SHORT: Effort = Effort { rounds: 3, divide: 8, slack: 10.0 };

/// Whether a high or a low ratio is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Good {
    /// The ratio is a share of the ceiling.
    High,
    /// The ratio is a multiple of the ceiling, or the figure is a cost without a ceiling.
    Low,
}

/// The floor of a line that is only reported.
pub(crate) const REPORTED_HIGH: f64 = 0.0;
/// The floor of a line that is only reported and in which a low ratio is good.
pub(crate) const REPORTED_LOW: f64 = f64::INFINITY;

/// The bounds of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) good: Good,
    /// The run fails beyond it.
    pub(crate) floor: f64,
    pub(crate) aim: f64,
}

/// Prints each line as soon as it is measured.
pub(crate) struct Table {
    pub(crate) effort: Effort,
    words: Vec<String>,
    failed: Cell<bool>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let short = std::env::var("HOOKLATCH_BENCH").is_ok_and(|form| form == "short");
        // Skips the options that `cargo bench` adds for its harness.
        let words = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
        let effort = if short { SHORT } else { WHOLE };
        println!("| what | ceiling | measured | ratio | floor | aim |");
        println!("|---|---|---|---|---|---|");
        Table { effort, words, failed: Cell::new(false) }
    }

    /// Whether this is the short run.
    pub(crate) fn is_short(&self) -> bool {
        self.effort.divide > 1
    }

    /// Whether the command line selects this line.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }

    /// Measures alternating rounds of a ceiling and a measurement, and prints the medians of their ratios and
    /// of both figures.
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

    /// Like [`Table::compare`], with figures that are already measured.
    pub(crate) fn pairs(&self, name: &str, bounds: Bounds, unit: &str, pairs: &[(f64, f64)]) {
        let of = |value: &dyn Fn(&(f64, f64)) -> f64| median(pairs.iter().map(value).collect());
        let ratio = of(&|(ceiling, measured)| measured / ceiling);
        let figures = format!("{} {unit} | {} {unit}", figure(of(&|p| p.0)), figure(of(&|p| p.1)));
        self.line(name, bounds, &figures, ratio);
    }

    /// Prints a line without a ceiling.
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

    /// Prints a remark next to the lines of the table.
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

/// Prints a number with three significant digits.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
