//! The checks of a crash test: compares the store with the answers that were given and with the ledger
//! that the handlers wrote. It reads the database with its own SQL, so that an error in the store's code
//! cannot hide itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// The number of lines by (handler, event, attempt).
pub(crate) type Lines = BTreeMap<(String, String, u32), usize>;

/// The lines that the handlers wrote.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) starts: Lines,
    pub(crate) ends: Lines,
}

impl Ledger {
    /// Reads lines of `start|end HANDLER EVENT ATTEMPT`.
    pub(crate) fn read(lines: &[String]) -> Self {
        let mut ledger = Ledger::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, handler, event, attempt] = words[..] else { panic!("odd line: {line}") };
            let side = if what == "start" { &mut ledger.starts } else { &mut ledger.ends };
            let key = (handler.to_owned(), event.to_owned(), attempt.parse().unwrap());
            *side.entry(key).or_default() += 1;
        }
        ledger
    }

    /// How often one handler started for each event.
    pub(crate) fn starts_of(&self, handler: &str) -> BTreeMap<&str, usize> {
        let mut starts = BTreeMap::new();
        for ((by, event, _), count) in &self.starts {
            if by == handler {
                *starts.entry(event.as_str()).or_default() += count;
            }
        }
        starts
    }
}

/// A job in the database file.
#[derive(Debug)]
pub(crate) struct StoredJob {
    pub(crate) event: String,
    pub(crate) handler: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
}

/// The contents of a store that is not in use.
pub(crate) struct Stored {
    /// The result of SQLite's integrity check.
    pub(crate) verdict: String,
    pub(crate) events: Vec<String>,
    pub(crate) jobs: Vec<StoredJob>,
    /// The outcome by (handler, event, attempt); `None` while the attempt is running.
    pub(crate) attempts: BTreeMap<(String, String, u32), Option<String>>,
}

impl Stored {
    /// Reads a copy of the database and its log, so that the files stay as the power cut left them.
    pub(crate) fn read(database: &Path) -> rusqlite::Result<Self> {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy.db");
        for (from, to) in [("db", "db"), ("db-wal", "db-wal")] {
            let from = database.with_extension(from);
            if from.exists() {
                std::fs::copy(from, copy.with_extension(to)).unwrap();
            }
        }
        let conn = Connection::open_with_flags(&copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let verdict = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        let events = rows(&conn, "SELECT event_id FROM event", |row| row.get(0))?;
        let jobs = rows(
            &conn,
            "SELECT e.event_id, j.handler, j.state, j.reason FROM job j JOIN event e ON e.row = j.event",
            |row| {
                let (event, handler) = (row.get(0)?, row.get(1)?);
                Ok(StoredJob { event, handler, state: row.get(2)?, reason: row.get(3)? })
            },
        )?;
        let attempts = rows(
            &conn,
            "SELECT j.handler, e.event_id, a.number, a.outcome FROM attempt a
             JOIN job j ON j.row = a.job JOIN event e ON e.row = j.event",
            |row| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get(3)?)),
        )?;
        Ok(Stored { verdict, events, jobs, attempts: attempts.into_iter().collect() })
    }

    /// The events of `acknowledged` that are not in the store.
    pub(crate) fn lost(&self, acknowledged: &[String]) -> Vec<String> {
        let stored: BTreeSet<&String> = self.events.iter().collect();
        acknowledged.iter().filter(|id| !stored.contains(id)).cloned().collect()
    }

    /// The number of jobs in `state`.
    pub(crate) fn in_state(&self, state: &str) -> usize {
        self.jobs.iter().filter(|job| job.state == state).count()
    }

    /// Checks what must hold at any moment after any crash: no event is lost or stored twice; every event
    /// has all its jobs; no attempt began twice or without a claim; exactly the running jobs have a running
    /// attempt; no success is guessed.
    pub(crate) fn must_agree(&self, acknowledged: &[String], ledger: &Ledger, handlers: &[&str]) {
        assert_eq!(self.verdict, "ok", "the database is damaged");
        let lost = self.lost(acknowledged);
        assert!(lost.is_empty(), "answered 2xx and gone: {lost:?}");
        let unique: BTreeSet<&String> = self.events.iter().collect();
        assert_eq!(unique.len(), self.events.len(), "an event is stored twice");
        let jobs: BTreeSet<_> = self.jobs.iter().map(|job| (&job.event, &job.handler)).collect();
        assert_eq!(jobs.len(), self.jobs.len(), "an event has a job twice");
        assert_eq!(jobs.len(), unique.len() * handlers.len(), "an event without all its jobs");
        for (attempt, times) in &ledger.starts {
            assert_eq!(*times, 1, "{attempt:?} began twice");
            assert!(self.attempts.contains_key(attempt), "{attempt:?} began and was not claimed");
        }
        let live = self.attempts.iter().filter(|(_, outcome)| outcome.is_none());
        let live: BTreeSet<_> = live.map(|((handler, event, _), _)| (event, handler)).collect();
        let running = self.jobs.iter().filter(|job| job.state == "running");
        let running: BTreeSet<_> = running.map(|job| (&job.event, &job.handler)).collect();
        assert_eq!(live, running, "jobs with a running attempt, and running jobs");
        for (attempt, outcome) in &self.attempts {
            let ended = ledger.ends.contains_key(attempt);
            assert!(
                outcome.as_deref() != Some("succeeded") || ended,
                "{attempt:?} is recorded as succeeded and did not end"
            );
        }
    }

    /// Checks what must hold when no job is in progress: a job of the handler `under_hold` began at most
    /// once, and is held only if that attempt was cut off; every other job has succeeded.
    pub(crate) fn must_be_settled(&self, ledger: &Ledger, under_hold: &str) {
        for (event, starts) in ledger.starts_of(under_hold) {
            assert_eq!(starts, 1, "{event} ran again under hold");
        }
        for job in &self.jobs {
            if job.state != "succeeded" {
                assert_eq!(job.handler, under_hold, "{job:?} is not settled");
                let why = (job.state.as_str(), job.reason.as_deref());
                assert_eq!(why, ("held", Some("unknown outcome")), "{job:?}");
                let of_job = |(handler, event, _): &&(String, String, u32)| {
                    *handler == job.handler && *event == job.event
                };
                // The last attempt counts: the attempts before it did not begin.
                let last = self.attempts.keys().filter(of_job).max().unwrap();
                assert_eq!(self.attempts[last].as_deref(), Some("unknown"), "{job:?}");
            }
        }
    }
}

fn rows<T>(
    conn: &Connection,
    sql: &str,
    row: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    conn.prepare(sql)?.query_map([], row)?.collect()
}
