//! Measures accepts into a store with many old events, with little memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::fs::{Advice, fadvise};

use super::accepts::Fresh;
use super::load::flood;
use super::requests::{FIRST_AT, Kind, requests};
use super::site::{HANDLER, Receiver, Site};
use super::size::settle;
use super::table::{Bounds, Good, Table};

/// The number of old events: one every three seconds for a year.
const STORED: usize = 10_000_000;

/// A short run has this many times fewer old events.
const SHORTER: usize = 20;

/// The memory limit for a receiver and its runner, including the store's pages in the kernel's page cache.
const MEMORY_BYTES: u64 = 128 << 20;

/// The number of concurrent connections.
const CONNECTIONS: usize = 64;

/// The events of one round.
const EVENTS: usize = 30_000;

const NAME: &str = "accept rate with 10 million events stored, 128 MiB memory";

pub(crate) fn measure(table: &Table) {
    if !table.wants(NAME) {
        return;
    }
    let Some((small, large)) = Group::new("empty").zip(Group::new("full")) else {
        return table.remark(&format!("left out, no control group can be made here: {NAME}"));
    };
    let stored = if table.effort.divide == 1 { STORED } else { STORED / SHORTER };
    let handler = HANDLER.replace("SOURCE", "github");
    table.remark(&format!("  storing {stored} events ..."));
    let (empty, full) = (Site::new(&handler), Site::new(&handler));
    fill(&full, stored);
    let gib = fs::metadata(full.store()).unwrap().len() as f64 / f64::from(1 << 30);
    table.remark(&format!("  they take {gib:.1} GiB"));
    let start = |site: &Site, group: &Group| {
        let receiver = site.start_by(&mut group.command());
        site.pause();
        receiver
    };
    let (beside, receiver) = (start(&empty, &small), start(&full, &large));
    let (fresh, round) = (Fresh::default(), EVENTS / table.effort.divide);
    let rate = |receiver: &Receiver| {
        let requests = fresh.take(Kind::GitHub, round);
        flood(receiver.address, &requests, CONNECTIONS, 200).rate()
    };
    let bounds = Bounds { good: Good::High, floor: 0.5, aim: 0.85 };
    table.compare(NAME, bounds, "/s", || rate(&beside), || rate(&receiver));
    let events = round * table.effort.rounds;
    for (name, receiver) in [("empty", &beside), ("full", &receiver)] {
        let each = |bytes: u64| bytes as f64 / events as f64 / 1024.0;
        let [read, written] = moved(receiver.pid()).map(each);
        table.remark(&format!(
            "  {name}: {read:.1} KiB read and {written:.1} KiB written per accept"
        ));
    }
}

/// Adds `events` old events as retention leaves them: payload and job are deleted, and the id is kept. The
/// rows are copies of those of one real delivery, with other ids and digests.
fn fill(site: &Site, events: usize) {
    let receiver = site.start();
    // A number that this measurement does not use.
    flood(receiver.address, &requests(Kind::GitHub, 1 << 40, 1), 1, 200);
    settle(site);
    receiver.stop();
    let conn = Connection::open(site.store()).unwrap();
    // Fast and without durability: a store that fails here is thrown away. The cache holds all indexes.
    conn.execute_batch(
        "PRAGMA journal_mode = DELETE; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA foreign_keys = OFF; PRAGMA cache_size = -3000000; BEGIN;",
    )
    .unwrap();
    // Ids like those of [`requests`], spread over the month before: 10 million are one each 0.26 s. UUIDs are
    // stored as bytes.
    let event_id = format!(
        "(SELECT unhex(printf('%08x%04x1%03x9', at & 0xffffffff, at >> 32 & 0xffff, at >> 48)
         || substr(hex(randomblob(8)), 2)) FROM (SELECT {FIRST_AT} - i * 2600000 AS at))"
    );
    let (id, digest) = (("event_id", event_id.as_str()), ("digest", "randomblob(32)"));
    let removed = ("removed_succeeded", "1");
    copy(&conn, "event", events, &[("row", "1 + i"), id, digest, removed]);
    conn.execute_batch("COMMIT; PRAGMA journal_mode = WAL;").unwrap();
    drop(conn);
    // The kernel still has the whole file in its page cache, charged to this process and not to the receiver.
    let file = File::open(site.store()).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// Copies the only row of a table `times` times; `values` are expressions that replace columns, with `i` as
/// the number of the copy.
fn copy(conn: &Connection, table: &str, times: usize, values: &[(&str, &str)]) {
    let columns: Vec<String> = conn
        .prepare("SELECT name FROM pragma_table_info(?1)")
        .unwrap()
        .query_map([table], |row| row.get(0))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    let value = |column: &String| {
        let new = values.iter().find(|(name, _)| name == column);
        new.map_or(column.clone(), |(_, value)| (*value).to_owned())
    };
    let taken: Vec<String> = columns.iter().map(value).collect();
    let sql = format!(
        "WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < {times})
         INSERT INTO {table} ({}) SELECT {} FROM number CROSS JOIN (SELECT * FROM {table} LIMIT 1)",
        columns.join(", "),
        taken.join(", ")
    );
    conn.execute(&sql, []).unwrap();
}

/// The bytes that a process has caused to be read from the disk and written to it.
fn moved(process: u32) -> [u64; 2] {
    let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    ["read_bytes: ", "write_bytes: "].map(|name| {
        let line = io.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.parse().unwrap()
    })
}

/// A control group limited to [`MEMORY_BYTES`]. Dropping it removes the group.
struct Group(PathBuf);

impl Group {
    /// `None` if this process cannot create groups, or if they cannot limit memory.
    fn new(name: &str) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        // Version 1 has a separate tree for memory, version 2 has one tree for all controllers.
        let (tree, bound) = match root.join("memory").is_dir() {
            true => (root.join("memory"), "memory.limit_in_bytes"),
            false => (root.to_owned(), "memory.max"),
        };
        let folder = tree.join(format!("hooklatch-bench-{}-{name}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let group = Group(folder);
        fs::write(group.0.join(bound), MEMORY_BYTES.to_string()).ok()?;
        Some(group)
    }

    /// A command that runs Hooklatch in this group from its first instruction.
    fn command(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", r#"echo $$ > "$0" && exec "$@""#])
            .arg(self.0.join("cgroup.procs"))
            .arg(env!("CARGO_BIN_EXE_hooklatch"));
        command
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A killed runner stays in the group for a moment.
        let begun = Instant::now();
        while fs::remove_dir(&self.0).is_err() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
