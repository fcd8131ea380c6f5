//! Seeded simulation: random histories of the real verifier, store and retry rules with a manual clock. A
//! small model predicts each answer, and a separate ledger checks only the promises.
//!
//! A step is a delivery (genuine, repeated, concurrent, forged, stale, malformed), a claim, a result (also
//! late, also twice), a replay, an advance of the clock, a wrongly set clock, retention, or an end of the
//! receiver: orderly, killed between two commits, or killed during one. After each step the running and the
//! due jobs are compared with the model; after each start, and periodically, everything.
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
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crash::Copier;
use world::{MUST_BE_SEEN, Seen};

const SEEDS: u64 = 40;
const STEPS: u64 = 150;

/// The number of concurrent runs: more than there are processors, because a run mostly waits for the disk.
const THREADS: usize = 8;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Runs one seed. Returns what it reached; `None` if it failed, with the reason on standard error.
fn run(seed: u64, steps: u64, copier: &Copier) -> Option<Seen> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(world::run(seed, steps as usize, copier))
    };
    let reached = std::panic::catch_unwind(AssertUnwindSafe(run)).ok();
    if reached.is_none() {
        let again = format!("HOOKLATCH_SIM_SEED={seed} HOOKLATCH_SIM_STEPS={steps}");
        eprintln!("seed {seed} failed; again: {again} cargo test --test proof simulate::");
    }
    reached
}

#[test]
fn every_promise_holds_in_every_history() {
    let copier = Copier::start();
    let steps = number("HOOKLATCH_SIM_STEPS").unwrap_or(STEPS);
    if let Some(seed) = number("HOOKLATCH_SIM_SEED") {
        assert!(run(seed, steps, &copier).is_some(), "seed {seed}");
        return;
    }
    let seeds = number("HOOKLATCH_SIM_SEEDS").unwrap_or(SEEDS);
    let (next, failed, seen) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Seen::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    match run(seed, steps, &copier) {
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
    eprintln!("{seeds} seeds of {steps} steps reached {seen:?}");
    if seeds >= SEEDS && steps >= STEPS {
        let missed: Vec<_> = MUST_BE_SEEN.iter().filter(|what| !seen.contains_key(*what)).collect();
        assert!(missed.is_empty(), "no history reached {missed:?}");
    }
}
