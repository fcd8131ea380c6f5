//! Measures the disk space of one push, with its payload and after the payload has expired.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::Timestamp;
use hooklatch::store::{Cutoffs, Settings, Store};
use rusqlite::{Connection, OpenFlags};

use super::load::flood;
use super::requests::{Kind, requests};
use super::site::{HANDLER, Site};
use super::table::{Bounds, Good, Table};

/// The number of measured events: enough that partly filled pages of the tables do not matter.
const EVENTS: usize = 80_000;

/// The number of concurrent connections.
const CONNECTIONS: usize = 16;

/// The longest wait for all jobs, which take a second per hundred or less.
const PATIENCE: Duration = Duration::from_secs(300);

const KEPT: &str = "bytes on disk per 7 KB push, payload kept";
const EXPIRED: &str = "bytes on disk per 7 KB push, payload expired";

pub(crate) fn measure(table: &Table) {
    if !table.wants(KEPT) && !table.wants(EXPIRED) {
        return;
    }
    let events = EVENTS / table.effort.divide;
    let site = Site::new(&HANDLER.replace("SOURCE", "github"));
    site.start().stop();
    let empty = Space::of(&site.store());
    let receiver = site.start();
    flood(receiver.address, &requests(Kind::GitHub, 0, events), CONNECTIONS, 200);
    settle(&site);
    receiver.stop();
    let kept = Space::of(&site.store());
    expire(&site.store());
    let expired = Space::of(&site.store());
    for (name, space, floor, aim) in
        [(KEPT, &kept, 2_600.0, 1_600.0), (EXPIRED, &expired, 160.0, 120.0)]
    {
        let each = |bytes: u64| bytes as f64 / events as f64;
        let bounds = Bounds { good: Good::Low, floor, aim };
        table.alone(name, bounds, "B", each(space.file - empty.file));
        for (part, bytes) in &space.parts {
            let before = empty.parts.iter().find(|(name, _)| name == part).map_or(0, |&(_, b)| b);
            if *bytes > before {
                table.remark(&format!("  {part}: {:.1} B", each(bytes - before)));
            }
        }
    }
}

/// Waits until the handler has run for all accepted events.
pub(crate) fn settle(site: &Site) {
    let conn = Connection::open_with_flags(site.store(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    // Both counts use indexes: one of unfinished jobs, one of running attempts.
    let unsettled = || -> bool {
        conn.query_row(
            "SELECT EXISTS (SELECT 1 FROM job WHERE state = 'ready')
                 OR EXISTS (SELECT 1 FROM attempt WHERE outcome IS NULL)",
            [],
            |row| row.get(0),
        )
        .unwrap()
    };
    let begun = Instant::now();
    while unsettled() {
        assert!(begun.elapsed() < PATIENCE, "jobs do not come to an end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Deletes all payloads of a stopped store with the store's retention step. A receiver would do it after an
/// hour at the earliest, the shortest time that payloads can be kept.
fn expire(store: &Path) {
    let settings = Settings { path: store.to_owned(), limits: Limits::default() };
    let store = Store::open(&settings, Clock::system()).unwrap();
    let all = Cutoffs {
        payloads: Clock::system().now().after(Duration::from_secs(60)),
        ids: Timestamp(0),
        dead: Timestamp(0),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        store.jobs.expire(all).await.unwrap();
        store.close().await;
    });
}

/// The disk space of a stopped store, in bytes.
struct Space {
    file: u64,
    /// The size of each table and index, the largest first.
    parts: Vec<(String, u64)>,
}

impl Space {
    fn of(store: &Path) -> Self {
        let conn = Connection::open_with_flags(store, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        // The virtual table `dbstat`, which reads every page (built into the bundled library).
        let parts = conn
            .prepare("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))
            .unwrap()
            .collect::<rusqlite::Result<_>>()
            .unwrap();
        Space { file: fs::metadata(store).unwrap().len(), parts }
    }
}
