//! The account of a crash test: what the store holds against what was answered and what the handlers
//! say that they did.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// What a handler wrote of one attempt: (handler, event, attempt), as often as it did.
pub(crate) type Lines = BTreeMap<(String, String, u32), usize>;

/// The handlers' own words.
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

    /// Starts of each event by one handler.
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

/// A job as it stands in the file.
#[derive(Debug)]
pub(crate) struct StoredJob {
    pub(crate) event: String,
    pub(crate) handler: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
}

/// What a store that nobody uses holds.
pub(crate) struct Stored {
    pub(crate) verdict: String,
    pub(crate) events: Vec<String>,
    pub(crate) jobs: Vec<StoredJob>,
    /// (handler, event, attempt) with its outcome, none where it is live.
    pub(crate) attempts: BTreeMap<(String, String, u32), Option<String>>,
}

impl Stored {
    /// Reads a copy of the database and its log, so that the files stay as a cut left them.
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

    /// The events of `acknowledged` that are not here.
    pub(crate) fn lost(&self, acknowledged: &[String]) -> Vec<String> {
        let stored: BTreeSet<&String> = self.events.iter().collect();
        acknowledged.iter().filter(|id| !stored.contains(id)).cloned().collect()
    }

    /// The jobs in a state.
    pub(crate) fn in_state(&self, state: &str) -> usize {
        self.jobs.iter().filter(|job| job.state == state).count()
    }

    /// What must be so at any moment, after any crash: nothing lost, nothing stored twice, every
    /// event with its jobs, no attempt begun that was not claimed or begun twice, a live attempt of what runs and of
    /// nothing else, no success guessed.
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
            assert_eq!(*times, 1, "{attempt:?} was begun twice");
            assert!(self.attempts.contains_key(attempt), "{attempt:?} was begun and not claimed");
        }
        let live = self.attempts.iter().filter(|(_, outcome)| outcome.is_none());
        let live: BTreeSet<_> = live.map(|((handler, event, _), _)| (event, handler)).collect();
        let running = self.jobs.iter().filter(|job| job.state == "running");
        let running: BTreeSet<_> = running.map(|job| (&job.event, &job.handler)).collect();
        assert_eq!(live, running, "live attempts, and what runs");
        for (attempt, outcome) in &self.attempts {
            let ended = ledger.ends.contains_key(attempt);
            assert!(
                outcome.as_deref() != Some("succeeded") || ended,
                "{attempt:?} did not succeed"
            );
        }
    }

    /// What must be so once nothing is under way: a job under `hold` began once at most, and is held
    /// only where its one attempt was cut off; every other job has succeeded.
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
                // The last one; those before it never began.
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
