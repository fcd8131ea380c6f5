//! Measures the wake-ups, the processor time and the memory of an idle receiver and its runner.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::load::flood;
use super::requests::{Kind, requests};
use super::site::{HANDLER, Receiver, Site, memory_kib};
use super::table::{Bounds, Good, Table};

/// The length of the measurement: some wake-ups happen every few seconds.
const ALONE: Duration = Duration::from_secs(10);

/// The pause between two checks whether the only job has succeeded.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn measure(table: &Table) {
    let names = [
        "idle, receiver and runner: wake-ups per second",
        "idle, receiver and runner: processor",
        "idle, receiver: resident",
    ];
    if !names.iter().any(|name| table.wants(name)) {
        return;
    }
    let site = Site::new(&HANDLER.replace("SOURCE", "github"));
    let receiver = site.start();
    serve_one(&site, &receiver);
    let processes = [receiver.pid(), receiver.runner().unwrap().as_raw_nonzero().get() as u32];

    let before = processes.map(threads);
    let begun = Instant::now();
    sleep(ALONE);
    let (after, took) = (processes.map(threads), begun.elapsed());

    let spent = [0, 1].map(|at| spent(&before[at], &after[at]));
    let wakes = (spent[0].wakes + spent[1].wakes) as f64 / took.as_secs_f64();
    let percent = 100.0 * (spent[0].busy + spent[1].busy).as_secs_f64() / took.as_secs_f64();
    let resident = processes.map(|process| memory_kib(process, "VmRSS") as f64 / 1024.0);
    let low = |floor, aim| Bounds { good: Good::Low, floor, aim };
    table.alone(names[0], low(20.0, 20.0), "/s", wakes);
    table.alone(names[1], low(0.1, 0.1), "%", percent);
    table.alone(names[2], low(20.0, 12.0), "MiB", resident[0]);
    table.remark(&format!("The runner: resident {:.1} MiB.", resident[1]));
    for (at, process) in ["receiver", "runner"].into_iter().enumerate() {
        table.remark(&describe(process, &before[at], &after[at]));
    }
}

/// Delivers one event, and waits until its job has succeeded.
fn serve_one(site: &Site, receiver: &Receiver) {
    flood(receiver.address, &requests(Kind::GitHub, 0, 1), 1, 200);
    while !site.run(&["jobs", "--state", "succeeded", "--json"]).contains("succeeded") {
        sleep(LOOK);
    }
}

/// The resources that a thread has used since it began.
#[derive(Debug, Clone, Default)]
struct Thread {
    name: String,
    /// How often it was scheduled: once for each context switch.
    wakes: u64,
    busy: Duration,
}

/// All threads of a process, by their ids.
fn threads(process: u32) -> BTreeMap<String, Thread> {
    let folder = format!("/proc/{process}/task");
    let tasks = fs::read_dir(folder).unwrap().map(|task| task.unwrap());
    // A thread that ends while it is read is skipped.
    tasks
        .filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let schedule = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
            let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"]
                .map(|name| field(name).unwrap().trim().parse::<u64>().unwrap());
            let nanos = schedule.split(' ').next().unwrap().parse().unwrap();
            let thread = Thread {
                name: field("Name:").unwrap().trim().to_owned(),
                wakes: switches.iter().sum(),
                busy: Duration::from_nanos(nanos),
            };
            Some((task.file_name().into_string().unwrap(), thread))
        })
        .collect()
}

/// The resources that the threads used in between. Those of a thread that has ended do not count.
fn spent(before: &BTreeMap<String, Thread>, after: &BTreeMap<String, Thread>) -> Thread {
    let mut sum = Thread::default();
    for (number, thread) in after {
        let old = before.get(number).cloned().unwrap_or_default();
        sum.wakes += thread.wakes - old.wakes;
        sum.busy += thread.busy - old.busy;
    }
    sum
}

/// Describes which threads woke up, began or ended.
fn describe(
    process: &str,
    before: &BTreeMap<String, Thread>,
    after: &BTreeMap<String, Thread>,
) -> String {
    let mut woken = Vec::new();
    for (number, thread) in after {
        let old = before.get(number).cloned().unwrap_or_default();
        if thread.wakes > old.wakes {
            woken.push(format!("{} {}", thread.name, thread.wakes - old.wakes));
        }
    }
    let ended = before.keys().filter(|number| !after.contains_key(*number)).count();
    let begun = after.keys().filter(|number| !before.contains_key(*number)).count();
    format!(
        "The {process}: {} threads, {begun} begun, {ended} ended; wake-ups by thread: {}.",
        after.len(),
        woken.join(", ")
    )
}
