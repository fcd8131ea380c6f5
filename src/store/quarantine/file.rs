//! The quarantine's file: its bounds, and every statement on it.
//!
//! For the keeper's thread alone. Nothing is promised of it: no flush (`synchronous = OFF`), no
//! migration; whatever is wrong with it, the caller throws it away. A kill of the process leaves it
//! whole, since the page cache outlives the process; a power cut need not.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, ffi, params};

use crate::limits::Limits;
use crate::model::{Headers, Name, Timestamp};
use crate::store::codec;
use crate::store::connection::beside;

use super::tally::Counts;
use super::types::{Kept, LeftOut, Quarantine, QuarantineFilter, Quarantined, QuarantinedRow};

/// Marks the file as ours: "HkQu" in ASCII (`PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x486B_5175;

/// Of `schema.sql`; another version's file is thrown away.
const VERSION: i64 = 1;

/// What a delivery is charged beside its texts: the page of 4,096 bytes that it begins, so that the
/// sum is about what the file takes.
const ROW_BYTES: usize = 4096;

/// Most rows of one [`File::next`], and most bytes of their bodies but for the first: an answer in far
/// less than `control_wait_millis`.
const STEP_COUNT: usize = 128;
const STEP_BYTES: u64 = 4 << 20;

/// A delivery in its stored form.
pub(super) struct Prepared {
    failed: Quarantined,
    holder: String,
    claimed_id: Option<String>,
    headers: Vec<u8>,
    body: Option<Vec<u8>>,
}

impl Prepared {
    /// Compresses the body. `claimed_id`: what it claims to be.
    pub(super) fn new(failed: Quarantined, holder: String, claimed_id: Option<String>) -> Self {
        let headers = failed.headers.to_wire();
        let body = failed.body.as_ref().and_then(|body| codec::compress_now(body).ok());
        Prepared { failed, holder, claimed_id, headers, body }
    }

    /// The source it came through.
    pub(super) fn source(&self) -> &Name {
        &self.failed.source
    }

    fn stored_bytes(&self) -> usize {
        let texts = self.failed.detail.len() + self.failed.path.len() + self.headers.len();
        ROW_BYTES + texts + self.body.as_ref().map_or(0, Vec::len)
    }
}

/// Some of what is meant.
#[derive(Default)]
pub(super) struct Step {
    /// Oldest first, with its source; nothing where it has no body.
    pub(super) found: Vec<(Name, Option<Kept>)>,
    /// Where to go on; none at the end.
    pub(super) next: Option<i64>,
}

/// The open file.
pub(super) struct File {
    conn: Connection,
    /// What all rows are charged together.
    bytes: i64,
}

impl File {
    /// Opens the file at `path`, or makes it for its owner only. Any error means that it is of no use.
    pub(super) fn open(path: &Path, limits: &Limits) -> rusqlite::Result<File> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        if let Err(error) = made.map(drop)
            && error.kind() != ErrorKind::AlreadyExists
        {
            return Err(failure(ffi::SQLITE_CANTOPEN, error.to_string()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(1))?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // No flush ever. One connection has it to itself, so the log needs no shared memory. Space is
        // given back when deliveries are accepted or dropped.
        conn.execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF; PRAGMA mmap_size = 0;
             PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON; PRAGMA cache_size = -2048;
             PRAGMA auto_vacuum = INCREMENTAL;",
        )?;
        // Rows are charged a little more than they take; over twice the bound something is wrong, and
        // what comes is left out.
        let pages = limits.quarantine_bytes / 2048 + 1024;
        conn.pragma_update(None, "max_page_count", codec::signed(pages))?;
        // Answers with the mode that it is in then.
        let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            return Err(unusable(format!("journal mode {mode}")));
        }
        conn.pragma_update(None, "journal_size_limit", 4 << 20)?;
        set_up(&conn)?;
        // Cheap for so small a file, and a power cut may have torn it.
        let check: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if check != "ok" {
            return Err(unusable(check));
        }
        let mut file = File { conn, bytes: 0 };
        file.count_bytes()?;
        Ok(file)
    }

    /// Deletes the file with its log.
    pub(super) fn throw_away(path: &Path) -> std::io::Result<()> {
        for suffix in ["", "-wal", "-shm", "-journal"] {
            match std::fs::remove_file(beside(path, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps `batch`, then gives up whatever is too old or over the bound, all in one transaction.
    /// Returns what was given up; after an error nothing of it has happened.
    pub(super) fn keep(
        &mut self,
        batch: &[Prepared],
        limits: &Limits,
        oldest: Timestamp,
    ) -> rusqlite::Result<Counts> {
        self.transact(|file| {
            let mut given_up = Counts::default();
            for delivery in batch {
                file.insert(delivery)?;
            }
            file.expire(oldest, &mut given_up)?;
            file.evict(limits, &mut given_up)?;
            Ok(given_up)
        })
    }

    fn insert(&mut self, delivery: &Prepared) -> rusqlite::Result<()> {
        let (failed, bytes) = (&delivery.failed, codec::size(delivery.stored_bytes()));
        // The triggers charge its holder.
        self.conn
            .prepare_cached(
                "INSERT INTO delivery (source, received_at, address, holder, reason, detail, claimed_id,
                     path, headers, body_bytes, body, stored_bytes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute(params![
                failed.source.as_str(),
                failed.received_at.0,
                failed.address.map(|address| address.to_string()),
                delivery.holder,
                failed.reason,
                failed.detail,
                delivery.claimed_id,
                failed.path,
                delivery.headers,
                codec::signed(failed.body_bytes),
                delivery.body,
                bytes,
            ])?;
        self.bytes += bytes;
        Ok(())
    }

    /// The address with most bytes gives up its oldest first, so that a flooder evicts itself.
    fn evict(&mut self, limits: &Limits, given_up: &mut Counts) -> rusqlite::Result<()> {
        let most = codec::signed(limits.quarantine_bytes);
        while self.bytes > most {
            // Both by an index: the largest holder, and its oldest delivery.
            let (source, bytes): (Name, i64) = self
                .conn
                .prepare_cached(
                    "DELETE FROM delivery WHERE id = (SELECT min(id) FROM delivery WHERE holder =
                         (SELECT holder FROM holder ORDER BY bytes DESC LIMIT 1))
                     RETURNING source, stored_bytes",
                )?
                .query_row([], |row| Ok((codec::text(row, 0)?, row.get(1)?)))?;
            self.bytes -= bytes;
            given_up.add(&source, LeftOut::Evicted, 1);
        }
        Ok(())
    }

    fn expire(&mut self, oldest: Timestamp, given_up: &mut Counts) -> rusqlite::Result<()> {
        // By the index of arrivals.
        let gone = self
            .conn
            .prepare_cached(
                "DELETE FROM delivery WHERE received_at < ?1 RETURNING source, stored_bytes",
            )?
            .query_map([oldest.0], |row| Ok((codec::text(row, 0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(Name, i64)>>>()?;
        for (source, bytes) in gone {
            self.bytes -= bytes;
            given_up.add(&source, LeftOut::Expired, 1);
        }
        Ok(())
    }

    /// Adds to what was left out.
    pub(super) fn count(&mut self, counts: &Counts) -> rusqlite::Result<()> {
        self.transact(|file| {
            for (source, why, deliveries) in counts.iter() {
                // One row for each source and reason.
                file.conn
                    .prepare_cached(
                        "INSERT INTO left_out (source, why, deliveries) VALUES (?1, ?2, ?3)
                         ON CONFLICT (source, why) DO UPDATE SET deliveries = deliveries + excluded.deliveries",
                    )?
                    .execute(params![source.as_str(), why.as_str(), codec::signed(deliveries)])?;
            }
            Ok(())
        })
    }

    /// What is kept, newest first, with the counts of all that is meant.
    pub(super) fn list(
        &self,
        filter: &QuarantineFilter,
        limit: i64,
    ) -> rusqlite::Result<Quarantine> {
        let meant = Meant::of(filter);
        // Newest first by the row's number; a few thousand rows at most.
        let sql = format!("{LISTED} WHERE {MEANT} ORDER BY id DESC LIMIT ?5");
        let deliveries = self
            .conn
            .prepare_cached(&sql)?
            .query_map(params![meant.source, meant.reason, meant.since, meant.upto, limit], listed)?
            .collect::<rusqlite::Result<_>>()?;
        // The same rows, counted.
        let sql = format!("SELECT count(*) FROM delivery WHERE {MEANT}");
        let matching = self
            .conn
            .prepare_cached(&sql)?
            .query_row(params![meant.source, meant.reason, meant.since, meant.upto], |row| {
                codec::count(row, 0)
            })?;
        let mut left_out: BTreeMap<Name, BTreeMap<LeftOut, u64>> = BTreeMap::new();
        // One row for each source and reason.
        let mut counts = self
            .conn
            .prepare_cached("SELECT source, why, deliveries FROM left_out ORDER BY source, why")?;
        let mut rows = counts.query([])?;
        while let Some(row) = rows.next()? {
            let word: String = row.get(1)?;
            let why = LeftOut::ALL.iter().find(|why| why.as_str() == word);
            if let Some(why) = why {
                let count = codec::count(row, 2)?;
                left_out.entry(codec::text(row, 0)?).or_default().insert(*why, count);
            }
        }
        let bytes = u64::try_from(self.bytes).unwrap_or(0);
        Ok(Quarantine { deliveries, matching, bytes, left_out })
    }

    /// The newest of each source, and how many of it have a body.
    pub(super) fn latest(&self) -> rusqlite::Result<Vec<(QuarantinedRow, u64)>> {
        // By the index of each source's own. With max() the plain columns are of the row that has it
        // (SQLite's SELECT, section 2.5).
        self.conn
            .prepare_cached(
                "SELECT max(id), source, received_at, address, reason, detail, claimed_id, body_bytes,
                     body IS NOT NULL, count(body) FROM delivery GROUP BY source ORDER BY source",
            )?
            .query_map([], |row| Ok((listed(row)?, codec::count(row, 9)?)))?
            .collect()
    }

    /// The next that are meant.
    pub(super) fn next(&self, filter: &QuarantineFilter, after: i64) -> rusqlite::Result<Step> {
        let meant = Meant::of(filter);
        // In the order of arrival, by the row's number.
        let sql = format!(
            "SELECT id, source, received_at, path, headers, body_bytes, body FROM delivery
             WHERE {MEANT} AND id > ?5 ORDER BY id LIMIT ?6"
        );
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query(params![
            meant.source,
            meant.reason,
            meant.since,
            meant.upto,
            after,
            codec::size(STEP_COUNT)
        ])?;
        let (mut found, mut last, mut bytes) = (Vec::new(), after, 0);
        while let Some(row) = rows.next()? {
            let body_bytes = codec::count(row, 5)?;
            if bytes > 0 && bytes + body_bytes > STEP_BYTES {
                return Ok(Step { found, next: Some(last) });
            }
            last = row.get(0)?;
            let kept = kept(row)?;
            bytes += kept.as_ref().map_or(0, |_| body_bytes);
            found.push((codec::text(row, 1)?, kept));
        }
        let more = found.len() == STEP_COUNT;
        Ok(Step { found, next: Some(last).filter(|_| more) })
    }

    /// Forgets these.
    pub(super) fn remove(&mut self, ids: &[i64]) -> rusqlite::Result<()> {
        self.transact(|file| {
            for id in ids {
                // Gone already is as good.
                file.conn.prepare_cached("DELETE FROM delivery WHERE id = ?1")?.execute([id])?;
            }
            file.count_bytes()
        })?;
        self.give_back()
    }

    /// Forgets all that are meant; returns how many.
    pub(super) fn drop_meant(&mut self, filter: &QuarantineFilter) -> rusqlite::Result<u64> {
        let meant = Meant::of(filter);
        let dropped = self.transact(|file| {
            // The triggers take them off their holders.
            let dropped = file
                .conn
                .prepare_cached(&format!("DELETE FROM delivery WHERE {MEANT}"))?
                .execute(params![meant.source, meant.reason, meant.since, meant.upto])?;
            file.count_bytes()?;
            Ok(dropped as u64)
        })?;
        self.give_back()?;
        Ok(dropped)
    }

    fn count_bytes(&mut self) -> rusqlite::Result<()> {
        // One row for each holder.
        self.bytes = self
            .conn
            .prepare_cached("SELECT coalesce(sum(bytes), 0) FROM holder")?
            .query_row([], |row| row.get(0))?;
        Ok(())
    }

    /// Gives free pages back to the file system.
    fn give_back(&self) -> rusqlite::Result<()> {
        // Deletes a page with each step.
        let mut statement = self.conn.prepare("PRAGMA incremental_vacuum")?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
        Ok(())
    }

    fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut File) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let done = work(self).and_then(|done| self.conn.execute_batch("COMMIT").map(|()| done));
        if done.is_err() {
            if !self.conn.is_autocommit() {
                self.conn.execute_batch("ROLLBACK")?;
            }
            self.count_bytes()?;
        }
        done
    }
}

/// The columns of a [`QuarantinedRow`].
const LISTED: &str =
    "SELECT id, source, received_at, address, reason, detail, claimed_id, body_bytes,
     body IS NOT NULL FROM delivery";

/// What a [`QuarantineFilter`] means, with the values of [`Meant`] in their order.
const MEANT: &str = "(?1 IS NULL OR source = ?1) AND (?2 IS NULL OR reason = ?2)
     AND (?3 IS NULL OR received_at >= ?3) AND (?4 IS NULL OR id <= ?4)";

struct Meant<'a> {
    source: Option<&'a str>,
    reason: Option<&'a str>,
    since: Option<i64>,
    upto: Option<i64>,
}

impl<'a> Meant<'a> {
    fn of(filter: &'a QuarantineFilter) -> Self {
        Meant {
            source: filter.source.as_ref().map(Name::as_str),
            reason: filter.reason.as_deref(),
            since: filter.since.map(|since| since.0),
            upto: filter.upto,
        }
    }
}

fn listed(row: &Row<'_>) -> rusqlite::Result<QuarantinedRow> {
    Ok(QuarantinedRow {
        id: row.get(0)?,
        source: codec::text(row, 1)?,
        received_at: codec::time(row, 2)?,
        address: row.get(3)?,
        reason: row.get(4)?,
        detail: row.get(5)?,
        unproven_event_id: row.get(6)?,
        body_bytes: codec::count(row, 7)?,
        body_kept: row.get(8)?,
    })
}

fn kept(row: &Row<'_>) -> rusqlite::Result<Option<Kept>> {
    let Some(stored) = row.get::<_, Option<Vec<u8>>>(6)? else { return Ok(None) };
    let bytes = usize::try_from(codec::count(row, 5)?).unwrap_or(usize::MAX);
    let body = codec::decompress(&stored, bytes).map_err(|error| unusable(error.to_string()))?;
    Ok(Some(Kept {
        id: row.get(0)?,
        source: codec::text(row, 1)?,
        received_at: codec::time(row, 2)?,
        path: row.get(3)?,
        headers: Headers::from_wire(row.get_ref(4)?.as_blob()?),
        body: Bytes::from(body),
    }))
}

/// Makes the tables in an empty file; any other must be ours and of this version.
fn set_up(conn: &Connection) -> rusqlite::Result<()> {
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (pragma("application_id")?, pragma("user_version")?) {
        (APPLICATION_ID, VERSION) => return Ok(()),
        (0, 0) => {}
        (application, version) => {
            return Err(unusable(format!("another file: {application:#x}, version {version}")));
        }
    }
    conn.execute_batch(&format!(
        "BEGIN IMMEDIATE; {} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;",
        include_str!("schema.sql")
    ))
}

/// The file is to be thrown away.
fn unusable(detail: String) -> rusqlite::Error {
    failure(ffi::SQLITE_CORRUPT, detail)
}

fn failure(code: i32, detail: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(detail))
}

/// What an error means for the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is as good as it was: no space, or another program looks at it.
    Good,
    /// It cannot be used now, for a reason that may pass: no descriptors, no rights, a failing disk.
    NotNow,
    /// What is in it makes no sense.
    Gone,
}

impl Use {
    pub(super) fn after(error: &rusqlite::Error) -> Use {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Use::Good
            }
            Some(
                ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::ReadOnly
                | ErrorCode::OutOfMemory
                | ErrorCode::SystemIoFailure
                | ErrorCode::FileLockingProtocolFailed,
            ) => Use::NotNow,
            _ => Use::Gone,
        }
    }
}
