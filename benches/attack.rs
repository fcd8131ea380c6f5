//! Measures what an attack costs genuine deliveries: their latency while one client attacks at a fixed rate,
//! compared with a control run in which the same attack goes to a sink.
//!
//! `cargo bench --bench attack` runs all attacks; `-- WORD` those whose names contain the word. It runs the
//! real program on loopback. The attacker and the sink share one core, so that they cost both runs the same;
//! the runs alternate, so that other load of the machine affects both. `HOOKLATCH_ATTACK_SECONDS` sets the
//! length of a run: below [`WHOLE`] seconds there are too few deliveries for a p99, and a run fails only far
//! beyond its bound. It exits non-zero if a genuine delivery failed, or if the p99 of all rounds together is over
//! its bound.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "attack/attacker.rs"]
mod attacker;
#[path = "attack/attacks.rs"]
mod attacks;
#[path = "attack/genuine.rs"]
mod genuine;
#[path = "attack/readers.rs"]
mod readers;
#[path = "attack/receiver.rs"]
mod receiver;
#[path = "attack/sink.rs"]
mod sink;

use std::process::ExitCode;
use std::time::Duration;

use attacker::Attacker;
use attacks::Attack;
use genuine::Latencies;
use receiver::Receiver;
use sink::Sink;

/// The number of pairs of a control run and an attack; one is enough to find large errors.
const ROUNDS: usize = 3;

/// The length of a run in seconds, and the shortest that gives a p99.
const SECONDS: u64 = 5;
const WHOLE: u64 = 3;

/// The most that an attack may cost, as a multiple of the control's p99; and the limit for a run that is too
/// short for a p99.
const MOST_RATIO: f64 = 2.0;
const FAR_OFF: f64 = 20.0;

/// What may always be added to the control's p99: no provider notices it, and the p99 of one control run and the
/// next differ by as much where other programs use the machine (1.0 to 8.1 ms on two virtual cores).
const NOISE_MS: f64 = 10.0;

/// The limit for a flood of connections, each of which costs an eviction.
const MOST_FLOOD_RATIO: f64 = 4.0;

/// The most resident memory during a flood of connections; and, [`REST`] after its end, the most as a multiple
/// of the memory of a receiver that served the same genuine deliveries without a flood.
const MOST_FLOOD_MIB: f64 = 200.0;
const REST: Duration = Duration::from_secs(10);
const MOST_AT_REST: f64 = 2.0;

/// The most that readers of events may add to the receiver's memory, whatever they ask.
const MOST_READ_MIB: f64 = 64.0;

/// How long an attack runs before the first genuine delivery.
const LEAD: Duration = Duration::from_millis(1500);

fn main() -> ExitCode {
    hooklatch::http::raise_file_limit().unwrap();
    if std::env::args().any(|arg| arg == sink::ARGUMENT) {
        sink::run();
        return ExitCode::SUCCESS;
    }
    let seconds = std::env::var("HOOKLATCH_ATTACK_SECONDS");
    let seconds = seconds.map_or(SECONDS, |seconds| seconds.parse().expect("a number of seconds"));
    let (rounds, most) = if seconds < WHOLE { (1, FAR_OFF) } else { (ROUNDS, MOST_RATIO) };
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |attack: &Attack| {
        words.is_empty() || words.iter().any(|w| attack.name.contains(w.as_str()))
    };
    let sink = Sink::start();
    println!(
        "{} deliveries/s for {seconds} s, {rounds} rounds; latencies in ms, from the moment a delivery was due\n",
        genuine::RATE
    );
    println!(
        "| attack | at | control p50 | p99 | attacked p50 | p99 | ratio | failed | memory | files | CPU |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut well = true;
    for attack in attacks::all().into_iter().filter(wanted) {
        let length = Duration::from_secs(seconds);
        let runs: Vec<(Run, Run)> = (0..rounds)
            .map(|round| {
                let run = |sink| Run::new(&attack, sink, length, round == 0);
                (run(Some(&sink)), run(None))
            })
            .collect();
        let most = if attack.is_flood() { most.max(MOST_FLOOD_RATIO) } else { most };
        let (row, is_well) = row(&attack, &runs, most);
        println!("{row}");
        well &= is_well;
        for (control, run) in &runs {
            let (Some(control), Some(after)) = (control.rest_kib, run.rest_kib) else { continue };
            let (peak, control, after) = (mib(run.cost.peak_kib), mib(control), mib(after));
            println!(
                "| | resident: {peak:.0} MiB at most, {after:.0} after, {control:.0} after the control run |"
            );
            well &= peak <= MOST_FLOOD_MIB && after <= control * MOST_AT_REST;
        }
    }
    println!("\n| readers | resident before | at most | after |\n|---|---|---|---|");
    for (name, read) in readers::ALL {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            well &= read_all(name, read);
        }
    }
    if !well {
        println!(
            "\nover a bound: a failed delivery, a p99 over {most} times the control's and {NOISE_MS} ms more, or memory"
        );
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The results of one run: the latencies of genuine deliveries, and the receiver's cost.
struct Run {
    latencies: Latencies,
    cost: receiver::Cost,
    /// The attacker's steps per second.
    attacked: f64,
    /// The resident memory [`REST`] after the end of a flood, of which one round tells enough.
    rest_kib: Option<u64>,
}

impl Run {
    /// Runs the attack against the sink, or against the receiver without one.
    fn new(attack: &Attack, sink: Option<&Sink>, length: Duration, is_first: bool) -> Self {
        let receiver = Receiver::start();
        let target = sink.map_or(receiver.address, |sink| sink.address);
        let attacker = Attacker::start(attack.clone(), target, LEAD + length);
        std::thread::sleep(LEAD);
        let watched = receiver.watch();
        let latencies = genuine::deliver(receiver.address, length);
        let cost = watched.stop();
        let attacked = attacker.end();
        let rest_kib = (is_first && attack.is_flood()).then(|| {
            std::thread::sleep(REST);
            receiver.resident_kib()
        });
        Run { latencies, cost, attacked, rest_kib }
    }
}

/// A row of the table, and whether all deliveries of the attack's rounds succeeded, at most `most` times as slow as
/// those of the control's.
fn row(attack: &Attack, rounds: &[(Run, Run)], most: f64) -> (String, bool) {
    let of = |value: &dyn Fn(&(Run, Run)) -> f64| median(rounds.iter().map(value).collect());
    let control = Latencies::of_all(rounds.iter().map(|(control, _)| &control.latencies));
    let attacked = Latencies::of_all(rounds.iter().map(|(_, attacked)| &attacked.latencies));
    let (ratio, failed) = (attacked.p99() / control.p99(), control.failed + attacked.failed);
    let row = format!(
        "| {} | {:.0}/s | {:.2} | {:.2} | {:.2} | {:.2} | {ratio:.2} | {failed} | {:.0} MiB | {:.0} | {:.0} % |",
        attack.name,
        of(&|(_, attacked)| attacked.attacked),
        control.p50(),
        control.p99(),
        attacked.p50(),
        attacked.p99(),
        of(&|(_, attacked)| attacked.cost.peak_kib as f64 / 1024.0),
        of(&|(_, attacked)| attacked.cost.files as f64),
        of(&|(_, attacked)| attacked.cost.cpu_percent),
    );
    let is_slow = ratio > most && attacked.p99() > control.p99() + NOISE_MS;
    (row, failed == 0 && !is_slow)
}

/// Prints the receiver's memory before, under and after its readers; whether they added no more than they may.
fn read_all(name: &str, read: fn(&Receiver)) -> bool {
    let receiver = Receiver::start();
    readers::deliver(&receiver);
    std::thread::sleep(REST);
    let (before, _) = (mib(receiver.resident_kib()), receiver.peak_kib());
    read(&receiver);
    let peak = mib(receiver.peak_kib());
    std::thread::sleep(REST);
    let after = mib(receiver.resident_kib());
    println!("| {name} | {before:.0} MiB | {peak:.0} MiB | {after:.0} MiB |");
    peak <= before + MOST_READ_MIB && after <= before * MOST_AT_REST
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
