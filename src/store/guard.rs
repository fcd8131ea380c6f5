//! What the replay guard knows: the first event of each body, by the start of its digest.
//!
//! Digests come at random, so an event that went into the table `body` at once would change a page of its own.
//! The newest wait in memory instead, and go there in the table's order: round by round over all of it, a few
//! with each batch, those of a round many to a page. What must stay true: every first event is in the table or
//! waits here. The store says up to which event all are in the table (`meta.listed`); those behind it wait when
//! it is opened, whether they are in the table or not.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, OptionalExtension, params};

use crate::model::{Digest, Name};

use super::starts::Starts;
use super::{codec, lock};

/// First events that wait at least: those of a store with some 500,000 events, whose table is 6 MiB. Tests are not
/// to wait for so many.
const LEAST: usize = if cfg!(test) { 4 } else { 16 * 1024 };

struct Bounds {
    /// First events that wait.
    waiting: usize,
    /// Events behind the one that the store names, of whatever source, from which on a round makes haste.
    behind: i64,
    /// What a round in haste puts into the table with each batch.
    haste: usize,
}

impl Bounds {
    /// Of a store that has so many events: one in 32 may wait, so that a page of the table takes several of a
    /// round however large it is. From 400 KiB to 6 MiB of memory. What is behind is read at a start, a million
    /// in half a second; a round usually ends after a quarter of it.
    fn of(events: u64) -> Self {
        let waiting = (events / 32).clamp(LEAST as u64, 256 * 1024);
        Bounds { waiting: waiting as usize, behind: 8 * waiting as i64, haste: 64 }
    }
}

/// The events of source ?1 that repeat the body with digest ?2, by an index of their own.
macro_rules! repeated_body {
    () => {
        "digest = ?2 AND source = ?1 AND guarded = 1 AND repeated = 1"
    };
}
pub(super) use repeated_body;

/// How many entries are read ahead of the writer, some 50 ms of a flood.
const AHEAD: usize = 1024;

/// Up to where a round was read ahead.
#[derive(Default)]
pub(super) struct Seen {
    round: i64,
    place: Option<Entry>,
}

/// An entry of the table: how a digest begins, and the event's row.
type Entry = ([u8; 4], i64);

/// The first events that wait.
pub(super) struct Guard {
    bounds: Bounds,
    state: Mutex<State>,
    /// Those that are in the table.
    starts: Arc<Starts>,
}

#[derive(Default)]
struct State {
    waiting: BTreeSet<Entry>,
    /// Those that came in the open transaction.
    added: Vec<Entry>,
    /// Those that it has put into the table.
    listed: Vec<Entry>,
    /// Events that it deletes and that may wait.
    gone: BTreeSet<i64>,
    /// Whether the round ends with it.
    ends: bool,
    /// Up to where the round has come.
    place: Option<Entry>,
    /// The newest event, and that of the open transaction.
    newest: i64,
    coming: i64,
    /// The newest one when the round began: at its end all up to there are in the table.
    round: i64,
    /// What the store names.
    behind: i64,
    /// Entries that went into the table since it was last read ahead.
    unread: usize,
}

impl State {
    /// Those that wait, from where the round has come on.
    fn rest(&self) -> impl Iterator<Item = &Entry> {
        let after = self.place.map_or(Unbounded, Excluded);
        self.waiting.range((after, Unbounded))
    }
}

impl Guard {
    /// That of a store that was just opened.
    pub(super) fn open(conn: &Connection) -> rusqlite::Result<Self> {
        // As many at most: an event that is kept for long counts all that came since.
        let events =
            "SELECT coalesce((SELECT max(row) FROM event) - (SELECT min(row) FROM event) + 1, 0)";
        let events = conn.query_row(events, [], |row| codec::count(row, 0))?;
        let starts = Arc::new(Starts::of(events));
        let guard = Guard { bounds: Bounds::of(events), state: Mutex::default(), starts };
        guard.load(conn)?;
        Ok(guard)
    }

    /// Of the table, to be read.
    pub(super) fn starts(&self) -> Arc<Starts> {
        Arc::clone(&self.starts)
    }

    /// Reads the first events that may not be in the table of a store that was just opened.
    pub(super) fn load(&self, conn: &Connection) -> rusqlite::Result<()> {
        let mut select = conn.prepare(
            "SELECT substr(digest, 1, 4), row FROM event
             WHERE row > (SELECT listed FROM meta) AND guarded = 1 AND repeated = 0",
        )?;
        let waiting = select
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<BTreeSet<Entry>>>()?;
        let (behind, newest) = conn.query_row(
            "SELECT listed, coalesce((SELECT max(row) FROM event), listed) FROM meta",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let round = newest;
        *lock(&self.state) = State { waiting, newest, round, behind, ..State::default() };
        Ok(())
    }

    /// Of those that wait the ones whose digests begin as this one.
    pub(super) fn waiting(&self, digest: Digest) -> Vec<i64> {
        let start = start(digest);
        let state = lock(&self.state);
        let same = state.waiting.range((start, i64::MIN)..=(start, i64::MAX));
        same.map(|&(_, event)| event).collect()
    }

    /// The first event of `source` with this body: its type. None where there is none, or it was forgotten
    /// before those that repeat it.
    pub(super) fn first(
        &self,
        tx: &Connection,
        source: &Name,
        digest: Digest,
    ) -> rusqlite::Result<Option<String>> {
        let start = start(digest);
        // Of either, nearly always none.
        let mut events = self.waiting(digest);
        if self.starts.may_have(start) {
            let mut select = tx.prepare_cached("SELECT event FROM body WHERE start = ?1")?;
            let mut rows = select.query([start])?;
            while let Some(row) = rows.next()? {
                events.push(row.get(0)?);
            }
        }
        for event in events {
            let found = tx
                .prepare_cached(
                    "SELECT type FROM event WHERE row = ?1 AND source = ?2 AND digest = ?3",
                )?
                .query_row(params![event, source.as_str(), digest.0], |row| row.get(0))
                .optional()?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// An event, just stored.
    pub(super) fn came(&self, event: i64) {
        lock(&self.state).coming = event;
    }

    /// It is a first one.
    pub(super) fn add(&self, digest: Digest, event: i64) {
        let entry = (start(digest), event);
        let mut state = lock(&self.state);
        state.waiting.insert(entry);
        state.added.push(entry);
    }

    /// An event is deleted: nothing of it is to go into the table any more.
    pub(super) fn forget(&self, event: i64) {
        let mut state = lock(&self.state);
        // The others are in it, or were no first ones.
        if event > state.behind {
            state.gone.insert(event);
        }
    }

    /// Puts as many of those that wait into the table as are too many: the next in its order. As the last of a
    /// transaction.
    pub(super) fn list(&self, tx: &Connection) -> rusqlite::Result<()> {
        let state = &mut *lock(&self.state);
        let over = state.waiting.len().saturating_sub(self.bounds.waiting);
        // After a start there may be many, which are not one batch's to wait for.
        let usual = over.min(2 * state.added.len());
        let haste = state.newest - state.behind > self.bounds.behind;
        let count = usual.max(if haste { self.bounds.haste } else { 0 });
        if count == 0 {
            return Ok(());
        }
        let next = state.rest().filter(|(_, event)| !state.gone.contains(event)).take(count);
        state.listed = next.copied().collect();
        state.ends = state.listed.len() < count;
        self.starts.add(state.listed.iter().map(|(start, _)| start));
        for (start, event) in &state.listed {
            // After a start some are in it.
            tx.prepare_cached(
                "INSERT INTO body (start, event) VALUES (?1, ?2) ON CONFLICT (start, event) DO NOTHING",
            )?
            .execute(params![start, event])?;
        }
        if state.ends {
            tx.prepare_cached("UPDATE meta SET listed = ?1 WHERE one = 1")?
                .execute([state.round])?;
        }
        Ok(())
    }

    /// The starts of the entries that go into the table next, but for those up to `seen`, which moves on.
    pub(super) fn next(&self, seen: &mut Seen) -> Vec<[u8; 4]> {
        let state = lock(&self.state);
        if seen.round != state.round {
            *seen = Seen { round: state.round, place: None };
        }
        let next = state.rest().take(AHEAD).filter(|entry| Some(**entry) > seen.place);
        let next: Vec<Entry> = next.copied().collect();
        seen.place = next.last().copied().or(seen.place);
        next.into_iter().map(|(start, _)| start).collect()
    }

    /// The transaction was committed. Returns whether it is time to read ahead.
    pub(super) fn committed(&self) -> bool {
        let state = &mut *lock(&self.state);
        state.unread += state.listed.len();
        for entry in &state.listed {
            state.waiting.remove(entry);
        }
        if !state.gone.is_empty() {
            state.waiting.retain(|(_, event)| !state.gone.contains(event));
            state.gone.clear();
        }
        state.place = state.listed.last().copied().or(state.place);
        state.newest = state.newest.max(state.coming);
        if std::mem::take(&mut state.ends) {
            (state.behind, state.round, state.place) = (state.round, state.newest, None);
        }
        state.added.clear();
        state.listed.clear();
        // Often enough that most of what was read ahead is still to come. A small table is in memory.
        let due = state.unread >= AHEAD / 4 && self.bounds.waiting > LEAST;
        if due {
            state.unread = 0;
        }
        due
    }

    /// The transaction was rolled back, and may be tried again.
    pub(super) fn rolled_back(&self) {
        let state = &mut *lock(&self.state);
        for entry in state.added.drain(..) {
            state.waiting.remove(&entry);
        }
        state.listed.clear();
        state.gone.clear();
        (state.ends, state.coming) = (false, 0);
    }
}

fn start(digest: Digest) -> [u8; 4] {
    let [a, b, c, d, ..] = digest.0;
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rusqlite::Connection;

    use super::*;
    use crate::store::read::Readers;
    use crate::store::schema::MIGRATIONS;

    const SMALL: Bounds = Bounds { waiting: 40, behind: 300, haste: 4 };

    /// A store's file, and what knows it.
    struct Bench {
        _folder: tempfile::TempDir,
        conn: Connection,
        guard: Guard,
        source: Name,
        /// Events that are committed, by their digests.
        known: Vec<(Digest, i64)>,
        next: u64,
    }

    fn bench() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let conn = Connection::open(folder.path().join("store.db")).unwrap();
        conn.execute_batch("PRAGMA synchronous = OFF").unwrap();
        MIGRATIONS.iter().for_each(|migration| conn.execute_batch(migration).unwrap());
        conn.execute("INSERT INTO meta (one, store_id, created_at, written_by) VALUES (1, zeroblob(16), 0, '')", [])
            .unwrap();
        let source = "github".parse().unwrap();
        let guard = guard(&conn);
        Bench { _folder: folder, conn, guard, source, known: Vec::new(), next: 0 }
    }

    /// As it is once its table has been read.
    fn guard(conn: &Connection) -> Guard {
        let guard = Guard { bounds: SMALL, ..Guard::open(conn).unwrap() };
        let readers = Readers::default();
        readers.put(Connection::open(conn.path().unwrap()).unwrap());
        guard.starts.fill(&readers).unwrap();
        guard
    }

    impl Bench {
        /// As after a kill: what was in memory is gone.
        fn open(&mut self) {
            self.guard = guard(&self.conn);
        }

        /// A transaction with so many events, which is committed or not.
        fn batch(&mut self, events: usize, guarded: bool, commit: bool) {
            self.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            let came: Vec<_> = (0..events).map(|_| self.event(guarded)).collect();
            self.guard.list(&self.conn).unwrap();
            if commit {
                self.conn.execute_batch("COMMIT").unwrap();
                self.guard.committed();
                self.known.extend(came.into_iter().filter(|_| guarded));
            } else {
                self.conn.execute_batch("ROLLBACK").unwrap();
                self.guard.rolled_back();
            }
        }

        fn event(&mut self, guarded: bool) -> (Digest, i64) {
            self.next += 1;
            // Many begin alike, and come in no order.
            let mut bytes = [0; 32];
            bytes[0] = (self.next * 37 % 101) as u8;
            bytes[24..].copy_from_slice(&self.next.to_be_bytes());
            let digest = Digest(bytes);
            self.conn
                .execute(
                    "INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
                     VALUES (?1, ?2, 'push', ?3, ?4, 0, 1)",
                    params![self.source.as_str(), self.next.to_string(), digest.0, guarded],
                )
                .unwrap();
            let row = self.conn.last_insert_rowid();
            self.guard.came(row);
            if guarded {
                assert_eq!(self.first(digest), None);
                self.guard.add(digest, row);
                assert_eq!(self.first(digest).as_deref(), Some("push"));
            }
            (digest, row)
        }

        /// A transaction that deletes an event, and would list the next one; it is committed or not.
        fn delete(&mut self, event: i64, commit: bool) {
            self.conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            let came: Vec<_> = (0..4).map(|_| self.event(true)).collect();
            for sql in ["DELETE FROM body WHERE event = ?1", "DELETE FROM event WHERE row = ?1"] {
                self.conn.execute(sql, [event]).unwrap();
            }
            self.guard.forget(event);
            self.guard.list(&self.conn).unwrap();
            if commit {
                self.conn.execute_batch("COMMIT").unwrap();
                self.guard.committed();
                self.known.retain(|&(_, known)| known != event);
                self.known.extend(came);
            } else {
                self.conn.execute_batch("ROLLBACK").unwrap();
                self.guard.rolled_back();
            }
        }

        /// The event that is the next to go into the table.
        fn next_listed(&self) -> Option<i64> {
            lock(&self.guard.state).rest().next().map(|&(_, event)| event)
        }

        fn first(&self, digest: Digest) -> Option<String> {
            self.guard.first(&self.conn, &self.source, digest).unwrap()
        }

        fn waiting(&self) -> usize {
            lock(&self.guard.state).waiting.len()
        }

        fn listed(&self) -> i64 {
            self.conn.query_row("SELECT listed FROM meta", [], |row| row.get(0)).unwrap()
        }

        /// Every committed event is found, and those up to the mark in the table; nothing else waits.
        fn check(&self) {
            for &(start, row) in &lock(&self.guard.state).waiting {
                let is =
                    |&(digest, known): &(Digest, i64)| known == row && digest.0.starts_with(&start);
                assert!(self.known.iter().any(is), "{row}");
            }
            let listed = self.listed();
            for &(digest, row) in &self.known {
                assert!(self.first(digest).is_some(), "{row}");
                let there = "SELECT count(*) FROM body WHERE event = ?1 AND start = ?2";
                let there: i64 = self
                    .conn
                    .query_row(there, params![row, start(digest)], |row| row.get(0))
                    .unwrap();
                assert!(there == 1 || (there == 0 && row > listed), "{row}, listed {listed}");
            }
            let of_none = "SELECT count(*) FROM body WHERE event NOT IN (SELECT row FROM event)";
            let of_none: i64 = self.conn.query_row(of_none, [], |row| row.get(0)).unwrap();
            assert_eq!(of_none, 0, "entries of events that are deleted");
        }
    }

    #[test]
    fn every_first_event_is_found_whatever_is_rolled_back_and_whenever_it_is_killed() {
        let mut bench = bench();
        for round in 0..200 {
            bench.batch(1 + round % 7, true, round % 5 != 3);
            if round % 3 == 2 {
                let any = bench.known[round * 61 % bench.known.len()].1;
                let next = bench.next_listed().filter(|_| round % 2 == 0);
                bench.delete(next.unwrap_or(any), round % 4 != 1);
            }
            if round % 11 == 0 {
                bench.check();
            }
            if round % 23 == 22 {
                bench.open();
                bench.check();
            }
        }
        bench.check();
        assert!(bench.listed() > 0, "no round has ended");
        // What never came is not looked for.
        assert!(!bench.guard.starts.may_have([200, 0, 0, 0]));
    }

    #[test]
    fn what_waits_is_bounded_and_what_a_start_reads_too() {
        let mut bench = bench();
        // The last batch of a round has fewer to list.
        let bound = SMALL.waiting + 2 * 3;
        for _ in 0..400 {
            bench.batch(3, true, true);
            assert!(bench.waiting() <= bound, "{}", bench.waiting());
        }
        let behind = bench.known.last().unwrap().1 - bench.listed();
        assert!(behind <= SMALL.behind, "{behind} behind");
        // A start that finds more than may wait brings it down, little by little.
        bench.open();
        assert!(bench.waiting() > bound, "{}", bench.waiting());
        for _ in 0..100 {
            bench.batch(3, true, true);
        }
        assert!(bench.waiting() <= bound, "{}", bench.waiting());
        bench.check();
    }

    #[test]
    fn what_is_listed_next_is_read_ahead_once_a_round() {
        let mut bench = bench();
        let (mut seen, mut read, mut all) = (Seen::default(), Vec::new(), 0);
        let mut round = lock(&bench.guard.state).round;
        for _ in 0..400 {
            read.extend(bench.guard.next(&mut seen));
            bench.batch(3, true, true);
            let now = lock(&bench.guard.state).round;
            if now != round {
                assert!(read.is_sorted(), "not in the table's order, or twice");
                (round, all) = (now, all + read.len());
                read.clear();
            }
        }
        // But for those that came behind what was read: all that waited, here.
        assert!(all > bench.known.len() / 3, "{all} of {}", bench.known.len());
    }

    #[test]
    fn events_that_are_not_guarded_leave_no_more_to_read_at_a_start() {
        let mut bench = bench();
        bench.batch(10, true, true);
        for _ in 0..300 {
            bench.batch(3, false, true);
        }
        let newest = bench.next as i64;
        let behind = newest - bench.listed();
        assert!(behind <= SMALL.behind + 3, "{behind} of {newest} behind");
        assert_eq!(bench.waiting(), 0);
        bench.check();
    }
}
