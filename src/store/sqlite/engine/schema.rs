//! Migrations: numbered, embedded, forward only. A database that is newer or not ours is refused.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use uuid::Uuid;

use crate::crash;
use crate::model::Timestamp;
use crate::store::node::open_error::OpenError;

/// The schema number of a store that moves to PostgreSQL, or has moved there. No migration leads to it.
pub(crate) const MOVED: i64 = 1_000_000;

/// Marks a file as a store in its header (`PRAGMA application_id`). A random number.
pub(crate) const APPLICATION_ID: i64 = 0x5D2A_C81B;

/// Marked the stores of development builds, whose schemas no version reads.
pub(crate) const DEVELOPMENT_IDS: [i64; 6] =
    [0x486F_6F6B, 0x4715_F7F5, 0x2B9E_61D3, 0x76FB_CF2E, 0x6072_393E, 0x3410_FB63];

/// Migration n + 1 leads from schema n to n + 1.
pub(crate) const MIGRATIONS: &[&str] = &[include_str!("../../../../migrations/0001_initial.sql")];

/// This program, for the message of an older one that meets its store.
pub(crate) const WRITTEN_BY: &str = concat!("hooklatch ", env!("CARGO_PKG_VERSION"));

/// The kind of a database, by its header.
pub(crate) enum FileKind {
    /// A new file, or one whose store was never finished.
    Empty,
    /// A store of this schema.
    Store(i64),
    /// A store that moves to PostgreSQL, or has moved there.
    Moved,
    /// A store of a development build.
    Development,
    /// A database of another program.
    Foreign,
}

impl FileKind {
    pub(crate) fn of(conn: &Connection) -> rusqlite::Result<Self> {
        let (application, schema) =
            (pragma(conn, "application_id")?, pragma(conn, "user_version")?);
        // Whether the file has any table at all.
        let tables: i64 =
            conn.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
        Ok(match application {
            APPLICATION_ID if schema == MOVED => FileKind::Moved,
            APPLICATION_ID if schema > 0 => FileKind::Store(schema),
            APPLICATION_ID | 0 if schema == 0 && tables == 0 => FileKind::Empty,
            id if DEVELOPMENT_IDS.contains(&id) => FileKind::Development,
            _ => FileKind::Foreign,
        })
    }
}

/// The store's migrations, and the one that a test may add.
fn migrations() -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().copied().chain(crash::migration())
}

/// The newest schema this program knows.
pub(crate) fn known() -> i64 {
    migrations().count() as i64
}

/// Refuses a file that is not ours, before anything is written to it: only an empty one is taken. A store that has
/// moved is refused by [`open`](super::open::open).
pub(crate) fn check(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let path = path.to_owned();
    match FileKind::of(conn).map_err(|error| OpenError::from_sql(&path, error))? {
        FileKind::Store(schema) if schema > known() => {
            let by = written_by(conn).unwrap_or_else(|| "of an unknown version".to_owned());
            Err(OpenError::Newer { path, by, schema, known: known() })
        }
        FileKind::Store(_) | FileKind::Empty | FileKind::Moved => Ok(()),
        FileKind::Development => Err(OpenError::Development { path }),
        FileKind::Foreign => Err(OpenError::Foreign { path }),
    }
}

/// Brings a checked database to [`known`]: all missing migrations in one transaction, or none. The caller closes
/// the connection if this fails.
pub(crate) fn migrate(conn: &mut Connection, path: &Path, now: Timestamp) -> Result<(), OpenError> {
    let sql = |error| OpenError::from_sql(path, error);
    // A migration rebuilds a table by dropping the old one, which would delete all rows that refer to it. SQLite
    // ignores the setting within a transaction.
    conn.pragma_update(None, "foreign_keys", false).map_err(sql)?;
    apply_missing(conn, now).map_err(sql)?;
    conn.pragma_update(None, "foreign_keys", true).map_err(sql)
}

fn apply_missing(conn: &mut Connection, now: Timestamp) -> rusqlite::Result<()> {
    let from = usize::try_from(pragma(conn, "user_version")?).unwrap_or(0);
    let mut missing = migrations().skip(from).peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for migration in missing {
        tx.execute_batch(migration)?;
    }
    // The store gets its identity once; later migrations only sign it.
    tx.execute(
        "INSERT INTO meta (one, store_id, created_at, written_by) VALUES (1, randomblob(16), ?1, ?2)
         ON CONFLICT (one) DO UPDATE SET written_by = excluded.written_by",
        (now.0, WRITTEN_BY),
    )?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", known())?;
    crash::point("migrate.commit.before");
    tx.commit()?;
    crash::point("migrate.commit.after");
    Ok(())
}

/// Whether it is a store of an earlier schema: not a new one.
pub(crate) fn is_older(conn: &Connection) -> rusqlite::Result<bool> {
    let schema = pragma(conn, "user_version")?;
    Ok(schema > 0 && schema < known())
}

/// The store's random identity.
pub(crate) fn store_id(conn: &Connection) -> rusqlite::Result<Uuid> {
    // One row, made with the schema.
    conn.query_row("SELECT store_id FROM meta WHERE one = 1", [], |row| {
        row.get(0).map(Uuid::from_bytes)
    })
}

fn written_by(conn: &Connection) -> Option<String> {
    // A newer schema may have moved it: nothing is not an error.
    conn.query_row("SELECT written_by FROM meta WHERE one = 1", [], |row| row.get(0))
        .optional()
        .ok()
        .flatten()
}

pub(crate) fn pragma(conn: &Connection, name: &str) -> rusqlite::Result<i64> {
    conn.pragma_query_value(None, name, |row| row.get(0))
}
