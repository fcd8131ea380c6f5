//! Seeded simulation: random histories of the real verifier, store and retry rules with a manual clock. A
//! small model predicts each answer, and a separate ledger checks only the promises.
//!
//! A step is a delivery (genuine, repeated, concurrent, forged, stale, malformed), a claim, a result (also
//! late, also twice), a replay, an advance of the clock, a wrongly set clock, retention, or an end of the
//! receiver: orderly, killed between two commits, or killed during one. After each step the running and the
//! due jobs are compared with the model; after each start, and periodically, everything.
//!
//! SQLite and PostgreSQL each have a test. On SQLite a history that fails is shortened: the fewest steps that still
//! fail at the same line are printed. On PostgreSQL the seed does not decide whether a request that is cut off is
//! committed, so a repeat may take another course, and nothing is shortened.
//!
//! `HOOKLATCH_SIM_SEED=N` runs only that seed, and `HOOKLATCH_SIM_SEEDS=N` runs N seeds. `HOOKLATCH_SIM_STEPS=N` sets
//! the number of steps, and `HOOKLATCH_SIM_STEPS=N,N,` runs only the steps with these numbers.

mod compare;
mod crash;
mod deliveries;
mod model;
mod promises;
mod shrink;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use hooklatch::model::Timestamp;
use tokio::runtime::Runtime;

use crash::Copier;
use world::{EngineKind, MUST_BE_SEEN, RARE, Seen};

use crate::database::TestDatabase;
use crate::server::{installed, is_installed};

const STEPS: usize = 150;

/// So many runs reach the rare kinds of events too.
const MANY: u64 = 40;

/// So many of the histories that fail are shortened, each in at most so many runs.
const SHRUNK: u64 = 3;
const SHRINK_RUNS: usize = 500;

/// The number of concurrent runs: more than there are processors, because a run mostly waits for the disk.
const THREADS: usize = 8;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Started before the first store is opened, as the server of PostgreSQL is: between fork and exec a child has all
/// descriptors of its parent, so a lock could outlive its holder.
static COPIER: LazyLock<Copier> = LazyLock::new(|| {
    if installed("postgres").is_some() {
        drop(runtime().block_on(TestDatabase::make(Timestamp(0))));
    }
    Copier::start()
});

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Some steps of a seed.
#[derive(Debug, Clone)]
pub(crate) struct History {
    engine: EngineKind,
    seed: u64,
    /// Their numbers, in their order. Each draws the same, whichever others are left out.
    steps: Vec<usize>,
    /// SQL that breaks the store, so that a history fails.
    fault: Option<&'static str>,
}

impl History {
    /// Runs it. Returns what it reached, or the line at which it failed.
    fn run(&self, is_quiet: bool) -> Result<Seen, String> {
        shrink::catch(is_quiet, || runtime().block_on(world::run(self, &COPIER)))
    }

    /// The shortest that is found of it which still fails at `line`.
    fn shrink(&self, line: &str) -> History {
        let of = |steps: &[usize]| History { steps: steps.to_vec(), ..self.clone() };
        let fails = |steps: &[usize]| of(steps).run(true).is_err_and(|at| at == line);
        of(&shrink::shrink(self.steps.clone(), SHRINK_RUNS, fails))
    }

    /// The command that runs it again.
    fn again(&self) -> String {
        let History { engine, seed, steps, .. } = self;
        let test = format!("simulate::{engine:?}").to_lowercase();
        let steps = text(steps);
        format!(
            "HOOKLATCH_SIM_SEED={seed} HOOKLATCH_SIM_STEPS={steps} cargo test --test proof {test}"
        )
    }
}

/// Steps as `HOOKLATCH_SIM_STEPS` has them: how many there are if they are the first ones, and their numbers otherwise,
/// each with a comma behind it.
fn text(steps: &[usize]) -> String {
    if steps.iter().copied().eq(1..=steps.len()) {
        return steps.len().to_string();
    }
    steps.iter().map(|number| format!("{number},")).collect()
}

fn parse(steps: &str) -> Vec<usize> {
    let number = |text: &str| -> usize {
        text.parse()
            .unwrap_or_else(|_| panic!("HOOKLATCH_SIM_STEPS={steps}: '{text}' is no number"))
    };
    if steps.contains(',') {
        steps.split_terminator(',').map(number).collect()
    } else {
        (1..=number(steps)).collect()
    }
}

/// Runs a history. Returns what it reached; `None` if it failed, with the reason on standard error, and with the
/// shortest history that fails alike if it is one of the first.
fn run(history: &History, failed: &AtomicU64) -> Option<Seen> {
    let line = match history.run(false) {
        Ok(seen) => return Some(seen),
        Err(line) => line,
    };
    let History { engine, seed, .. } = history;
    eprintln!("seed {seed} failed on {engine:?} at {line}; again: {}", history.again());
    let before = failed.fetch_add(1, Ordering::Relaxed);
    if *engine == EngineKind::Sqlite && before < SHRUNK {
        let shortest = history.shrink(&line);
        let same = shortest.run(false).is_err_and(|at| at == line);
        let end = if same { "" } else { " (but the last run of it did not)" };
        let steps = shortest.steps.len();
        eprintln!("{steps} of its steps fail at {line} too{end}; again: {}", shortest.again());
    }
    None
}

#[test]
fn sqlite_keeps_every_promise_in_every_history() {
    simulate(EngineKind::Sqlite, MANY);
}

#[test]
fn postgres_keeps_every_promise_in_every_history() {
    if is_installed() {
        simulate(EngineKind::Postgres, 12);
    }
}

fn simulate(engine: EngineKind, usual: u64) {
    LazyLock::force(&COPIER);
    let steps = std::env::var("HOOKLATCH_SIM_STEPS").map_or((1..=STEPS).collect(), |n| parse(&n));
    let of = |seed| History { engine, seed, steps: steps.clone(), fault: None };
    let (next, failed, seen) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Seen::new()));
    if let Some(seed) = number("HOOKLATCH_SIM_SEED") {
        assert!(run(&of(seed), &failed).is_some(), "seed {seed}");
        return;
    }
    let seeds = number("HOOKLATCH_SIM_SEEDS").unwrap_or(usual);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let Some(reached) = run(&of(seed), &failed) else { continue };
                    let mut seen = seen.lock().unwrap();
                    for (what, times) in reached {
                        *seen.entry(what).or_default() += times;
                    }
                }
            });
        }
    });
    let (failed, seen) = (failed.into_inner(), seen.into_inner().unwrap());
    assert_eq!(failed, 0, "{failed} of {seeds} seeds failed; each is named above");
    let steps = steps.len();
    eprintln!("{seeds} seeds of {steps} steps on {engine:?} reached {seen:?}");
    if seeds >= usual && steps >= STEPS {
        let mut missed: Vec<_> =
            MUST_BE_SEEN.iter().filter(|what| !seen.contains_key(*what)).collect();
        missed.retain(|what| seeds >= MANY || !RARE.contains(*what));
        assert!(missed.is_empty(), "no history reached {missed:?}");
    }
}

/// A duplicate of an event marks it as a repeat of another one, or not, where a job of the event has succeeded.
const FAULT: &str = "
    CREATE TRIGGER planted AFTER UPDATE OF duplicates ON event
    WHEN EXISTS (SELECT 1 FROM job WHERE event = NEW.row AND state = 'succeeded')
    BEGIN UPDATE event SET flagged = 1 - flagged WHERE row = NEW.row; END";

#[test]
fn a_history_that_fails_is_shortened_to_the_steps_that_it_fails_by() {
    LazyLock::force(&COPIER);
    let of = |seed| {
        let (engine, steps) = (EngineKind::Sqlite, (1..=80).collect());
        History { engine, seed, steps, fault: Some(FAULT) }
    };
    let failing = (0..20).map(of).find_map(|history| Some((history.run(true).err()?, history)));
    let (line, history) = failing.expect("no history has met the fault");
    let shortest = history.shrink(&line);
    // A delivery, a claim, its end, a duplicate, and what leads to the same draws.
    assert!(shortest.steps.len() <= 15, "{shortest:?}");
    assert_eq!(shortest.run(true).unwrap_err(), line);
    for left_out in &shortest.steps {
        let mut less = shortest.clone();
        less.steps.retain(|step| step != left_out);
        assert_ne!(less.run(true).err().as_ref(), Some(&line), "without step {left_out}");
    }
    let whole = History { fault: None, ..shortest.clone() };
    assert!(whole.run(false).is_ok(), "without the fault");
    assert_eq!(parse(&text(&shortest.steps)), shortest.steps);
    assert_eq!(
        (parse("3"), parse("3,"), parse("0").len()),
        (vec![1_usize, 2, 3], vec![3_usize], 0)
    );
}
