//! Seeded simulation: random histories of the real verifier, store and retry rules with a manual clock. A
//! small model predicts each answer, and a separate ledger checks only the promises.
//!
//! A step is a delivery (genuine, repeated, concurrent, forged, stale, malformed), a claim, a result (also
//! late, also twice), a replay, an advance of the clock, a wrongly set clock, retention, or an end of the
//! receiver: orderly, killed between two commits, or killed during one. After each step the running and the
//! due jobs are compared with the model; after each start, and periodically, everything.
//!
//! SQLite and PostgreSQL each have a test. On PostgreSQL the seed does not decide whether a request that is cut off is
//! committed, so a repeat may take another course.
//!
//! `HOOKLATCH_SIM_SEED=N` runs only that seed, `HOOKLATCH_SIM_SEEDS=N` runs N seeds, and
//! `HOOKLATCH_SIM_STEPS=N` sets the number of steps.

mod compare;
mod crash;
mod deliveries;
mod model;
mod promises;
mod world;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use hooklatch::model::Timestamp;
use tokio::runtime::Runtime;

use crash::Copier;
use world::{EngineKind, MUST_BE_SEEN, RARE, Seen};

use crate::database::TestDatabase;
use crate::server::{installed, is_installed};

const STEPS: u64 = 150;

/// So many runs reach the rare kinds of events too.
const MANY: u64 = 40;

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

/// Runs one seed. Returns what it reached; `None` if it failed, with the reason on standard error.
fn run(engine: EngineKind, seed: u64, steps: u64) -> Option<Seen> {
    let run = || runtime().block_on(world::run(engine, seed, steps as usize, &COPIER));
    let reached = std::panic::catch_unwind(AssertUnwindSafe(run)).ok();
    if reached.is_none() {
        let again = format!("HOOKLATCH_SIM_SEED={seed} HOOKLATCH_SIM_STEPS={steps}");
        let test = format!("simulate::{engine:?}").to_lowercase();
        eprintln!(
            "seed {seed} failed on {engine:?}; again: {again} cargo test --test proof {test}"
        );
    }
    reached
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
    let steps = number("HOOKLATCH_SIM_STEPS").unwrap_or(STEPS);
    if let Some(seed) = number("HOOKLATCH_SIM_SEED") {
        assert!(run(engine, seed, steps).is_some(), "seed {seed}");
        return;
    }
    let seeds = number("HOOKLATCH_SIM_SEEDS").unwrap_or(usual);
    let (next, failed, seen) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Seen::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    match run(engine, seed, steps) {
                        None => drop(failed.fetch_add(1, Ordering::Relaxed)),
                        Some(reached) => {
                            let mut seen = seen.lock().unwrap();
                            for (what, times) in reached {
                                *seen.entry(what).or_default() += times;
                            }
                        }
                    }
                }
            });
        }
    });
    let (failed, seen) = (failed.into_inner(), seen.into_inner().unwrap());
    assert_eq!(failed, 0, "{failed} of {seeds} seeds failed; each is named above");
    eprintln!("{seeds} seeds of {steps} steps on {engine:?} reached {seen:?}");
    if seeds >= usual && steps >= STEPS {
        let mut missed: Vec<_> =
            MUST_BE_SEEN.iter().filter(|what| !seen.contains_key(*what)).collect();
        missed.retain(|what| seeds >= MANY || !RARE.contains(*what));
        assert!(missed.is_empty(), "no history reached {missed:?}");
    }
}
