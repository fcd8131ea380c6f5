//! Migrations: numbered, embedded, forward only. A database that is newer or not ours is refused.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use uuid::Uuid;

use crate::crash;
use crate::model::Timestamp;

use super::types::OpenError;

/// Marks the file as ours in its header: "Hook" in ASCII (`PRAGMA application_id`).
pub(super) const APPLICATION_ID: i64 = 0x486F_6F6B;

/// Migration n + 1 leads from schema n to n + 1.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_initial.sql"),
    include_str!("../../migrations/0002_paused.sql"),
    include_str!("../../migrations/0003_runner.sql"),
    include_str!("../../migrations/0004_former_key.sql"),
    include_str!("../../migrations/0005_notice.sql"),
    include_str!("../../migrations/0006_runner_name.sql"),
    include_str!("../../migrations/0007_quarantine.sql"),
    include_str!("../../migrations/0008_restored.sql"),
    include_str!("../../migrations/0009_smaller.sql"),
    include_str!("../../migrations/0010_answer.sql"),
    include_str!("../../migrations/0011_pattern.sql"),
    include_str!("../../migrations/0012_guard.sql"),
    include_str!("../../migrations/0013_body.sql"),
    include_str!("../../migrations/0014_checks.sql"),
    include_str!("../../migrations/0015_retention.sql"),
];

/// This program, for the message of an older one that meets its store.
const WRITTEN_BY: &str = concat!("hooklatch ", env!("CARGO_PKG_VERSION"));

/// The newest schema this program knows.
pub(super) fn known() -> i64 {
    MIGRATIONS.len() as i64
}

/// Refuses a file that is not ours, before anything is written to it: only an empty one is taken.
pub(super) fn check(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let sql = |error| OpenError::from_sql(path, error);
    let application = pragma(conn, "application_id").map_err(sql)?;
    let schema = pragma(conn, "user_version").map_err(sql)?;
    // Whether the file has any table at all.
    let tables: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).map_err(sql)?;
    let empty = application == 0 && schema == 0 && tables == 0;
    if !empty && application != APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    if schema > known() {
        let by = written_by(conn).unwrap_or_else(|| "of an unknown version".to_owned());
        return Err(OpenError::Newer { path: path.to_owned(), by, schema, known: known() });
    }
    // Only development builds had these schemas.
    let learned = matches!(schema, 11..15)
        && conn.prepare("SELECT 1 FROM pattern").and_then(|mut any| any.exists([])).map_err(sql)?;
    match learned {
        true => Err(OpenError::Learned { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Brings a checked database to [`known`]: all missing migrations in one transaction, or none.
pub(super) fn migrate(conn: &mut Connection, path: &Path, now: Timestamp) -> Result<(), OpenError> {
    let sql = |error| OpenError::from_sql(path, error);
    // A table is made anew by dropping the old one, which would take along all that refers to it. A
    // transaction cannot change this. And a view or trigger that somebody made over the old one would
    // keep the new one from getting its name. A defensive connection would not change a table's text.
    conn.pragma_update(None, "foreign_keys", false).map_err(sql)?;
    conn.pragma_update(None, "legacy_alter_table", true).map_err(sql)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).map_err(sql)?;
    apply_missing(conn, path, now)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(sql)?;
    conn.pragma_update(None, "legacy_alter_table", false).map_err(sql)?;
    conn.pragma_update(None, "foreign_keys", true).map_err(sql)
}

/// The caller lets go of the connection where this fails.
fn apply_missing(conn: &mut Connection, path: &Path, now: Timestamp) -> Result<(), OpenError> {
    let sql = |error| OpenError::from_sql(path, error);
    let from = pragma(conn, "user_version").map_err(sql)?;
    let missing = MIGRATIONS.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sql)?;
    for migration in missing {
        tx.execute_batch(migration).map_err(sql)?;
    }
    // The store gets its identity once; later migrations only sign it.
    tx.execute(
        "INSERT INTO meta (one, store_id, created_at, written_by) VALUES (1, randomblob(16), ?1, ?2)
         ON CONFLICT (one) DO UPDATE SET written_by = excluded.written_by",
        (now.0, WRITTEN_BY),
    )
    .map_err(sql)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql)?;
    tx.pragma_update(None, "user_version", known()).map_err(sql)?;
    crash::point("migrate.commit.before");
    tx.commit().map_err(sql)?;
    crash::point("migrate.commit.after");
    Ok(())
}

/// Whether it is a store of an earlier schema: not a new one.
pub(super) fn is_older(conn: &Connection) -> rusqlite::Result<bool> {
    let schema = pragma(conn, "user_version")?;
    Ok(schema > 0 && schema < known())
}

/// The number of a store's schema; none where the file is no store of ours.
pub(super) fn of(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    let schema = pragma(conn, "user_version")?;
    let ours = pragma(conn, "application_id")? == APPLICATION_ID && schema > 0;
    Ok(ours.then_some(schema))
}

/// The store's random identity.
pub(super) fn store_id(conn: &Connection) -> rusqlite::Result<Uuid> {
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

fn pragma(conn: &Connection, name: &str) -> rusqlite::Result<i64> {
    conn.pragma_query_value(None, name, |row| row.get(0))
}
