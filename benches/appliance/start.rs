//! Measures a start with a million ready jobs, compared with a start with an empty store.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::load::flood;
use super::requests::{Kind, requests};
use super::site::{HANDLER, Receiver, Site, memory_kib};
use super::table::{Bounds, Good, Table, median};

/// The number of ready jobs, each for another event.
const JOBS: usize = 1_000_000;

/// The pause before the memory is read, so that the work of the start is done.
const AFTER: Duration = Duration::from_secs(1);

/// SQLite's page cache while the store is filled, in KiB: inserts go to random places of the index of ids.
const FILL_CACHE_KIB: i64 = 512 * 1024;

pub(crate) fn measure(table: &Table) {
    let time = "start with 1 million ready jobs: longer than with none";
    let memory = "start with 1 million ready jobs: resident after 1 s at most";
    if !table.wants(time) && !table.wants(memory) {
        return;
    }
    let (empty, full) = (Site::new(&handler()), Site::new(&handler()));
    prepare(&empty, 0, &[]);
    prepare(&full, JOBS / table.effort.divide, &[]);
    let pairs: Vec<_> = (0..table.effort.rounds).map(|_| (start(&empty), start(&full))).collect();
    let of = |figure: &dyn Fn(&(Start, Start)) -> f64| median(pairs.iter().map(figure).collect());
    let more = of(&|(empty, full)| full.seconds - empty.seconds);
    let resident = of(&|(_, full)| full.mebibytes);
    table.alone(time, Bounds { good: Good::Low, floor: 1.0, aim: 0.3 }, "s", more);
    table.alone(memory, Bounds { good: Good::Low, floor: 128.0, aim: 64.0 }, "MiB", resident);

    let receiver = full.start();
    full.resume();
    receiver.stop();
    let running = start(&full);
    table.remark(&format!(
        "The file was in the page cache. Paused handlers: empty {:.3} s and {:.1} MiB, full {:.3} s; full and \
         not paused, so that jobs run at once: {:.3} s and {:.1} MiB.",
        of(&|(empty, _)| empty.seconds),
        of(&|(empty, _)| empty.mebibytes),
        of(&|(_, full)| full.seconds),
        running.seconds,
        running.mebibytes,
    ));
}

fn handler() -> String {
    HANDLER.replace("SOURCE", Kind::Stripe.path().trim_start_matches('/'))
}

/// The measurements of a start.
pub(crate) struct Start {
    /// The time from the spawn to the log line "serving".
    pub(crate) seconds: f64,
    /// The receiver's peak resident memory until [`AFTER`].
    mebibytes: f64,
}

pub(crate) fn start(site: &Site) -> Start {
    let begun = Instant::now();
    let receiver = site.start();
    let seconds = begun.elapsed().as_secs_f64();
    sleep(AFTER);
    let mebibytes = memory_kib(receiver.pid(), "VmHWM") as f64 / 1024.0;
    receiver.stop();
    Start { seconds, mebibytes }
}

/// Creates the site's store, with `jobs` ready jobs of a paused handler. `differ` has expressions that replace columns
/// of all jobs but the first, with `n` as the job's number.
pub(crate) fn prepare(site: &Site, jobs: usize, differ: &[(&str, &str)]) {
    let receiver: Receiver = site.start();
    site.pause();
    if jobs > 0 {
        flood(receiver.address, &requests(Kind::Stripe, 0, 1), 1, 200);
    }
    receiver.stop();
    if jobs > 1 {
        fill(&Connection::open(site.store()).unwrap(), jobs, differ);
    }
}

/// Copies the only event in the store until there are `jobs`, each with its own body, id and job.
fn fill(store: &Connection, jobs: usize, differ: &[(&str, &str)]) {
    in_one_step(store, || {
        let id = "'evt_' || lower(hex(randomblob(12)))";
        copies(
            store,
            "event",
            jobs,
            &[("row", "n"), ("event_id", id), ("digest", "randomblob(32)")],
        );
        copies(store, "payload", jobs, &[("event", "n")]);
        let own = [("row", "n"), ("event", "n"), ("id", "randomblob(16)")];
        copies(store, "job", jobs, &[&own, differ].concat());
    });
}

/// Runs `work` in one transaction without log and flush: a store that fails here is thrown away.
pub(crate) fn in_one_step(store: &Connection, work: impl FnOnce()) {
    let set = |name: &str, value: &str| {
        store.query_row(&format!("PRAGMA {name} = {value}"), [], |_| Ok(())).or_else(|error| {
            match error {
                rusqlite::Error::QueryReturnedNoRows => Ok(()),
                other => Err(other),
            }
        })
    };
    set("journal_mode", "OFF").unwrap();
    set("synchronous", "OFF").unwrap();
    set("cache_size", &format!("-{FILL_CACHE_KIB}")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    work();
    store.execute_batch("COMMIT").unwrap();
    // Restores the log mode that the program set.
    set("journal_mode", "WAL").unwrap();
}

/// Copies the only row of `table` until there are `rows`; `differ` has expressions that replace columns, with
/// `n` as the number of the copy.
pub(crate) fn copies(store: &Connection, table: &str, rows: usize, differ: &[(&str, &str)]) {
    let mut info = store.prepare("SELECT name FROM pragma_table_info(?1)").unwrap();
    let columns: Vec<String> =
        info.query_map([table], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let values = columns.iter().map(|column| {
        let other = differ.iter().find(|(name, _)| name == column);
        other.map_or(column.clone(), |(_, value)| (*value).to_owned())
    });
    let values = values.collect::<Vec<_>>().join(", ");
    let sql = format!(
        "WITH RECURSIVE numbers(n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})
         INSERT INTO {table} ({}) SELECT {values} FROM numbers, (SELECT * FROM {table} LIMIT 1)",
        columns.join(", ")
    );
    assert_eq!(store.execute(&sql, []).unwrap(), rows - 1);
}
