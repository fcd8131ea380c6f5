//! Finds an older copy of the database that was put back by hand, and not by `hooklatch restore`.
//!
//! `meta.mark` grows by one at each tick (15 s) behind a commit, and at a stop, and `PATH.mark` keeps it with the
//! store's id, in a line with a sum. The file is written when the mark's commit is flushed, so no kill and no power cut
//! leaves a store with a smaller mark than the file has. Unseen are what was committed behind the last mark, and a copy
//! of the whole folder.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rusqlite::Connection;
use uuid::Uuid;

use crate::model::{Timestamp, summed};
use crate::store::border::RestoredRow;
use crate::store::node::durable;
use crate::store::node::path::{MARK, beside};

use super::hold_all::hold_all;
use super::schema::store_id;

/// Writes the file. Whether that has succeeded.
pub(super) fn keep(path: &Path, store: Uuid, mark: i64) -> bool {
    let line = summed::line(&format!("{store} {mark}"));
    let kept = durable::replace(&beside(path, MARK), line.as_bytes());
    kept.inspect_err(|error| tracing::warn!(%error, "the store's mark cannot be kept")).is_ok()
}

/// The store and the mark that the folder has. None where the file is not there, or cannot be read.
fn read(path: &Path) -> Option<(Uuid, i64)> {
    let file = beside(path, MARK);
    let text = fs::read_to_string(&file)
        .inspect_err(|error| {
            if error.kind() != ErrorKind::NotFound {
                tracing::warn!(file = %file.display(), %error, "the store's mark cannot be read");
            }
        })
        .ok()?;
    let found = parse(&text);
    if found.is_none() {
        tracing::warn!(file = %file.display(), "the store's mark is damaged");
    }
    found
}

fn parse(text: &str) -> Option<(Uuid, i64)> {
    let (store, mark) = summed::text(text.strip_suffix('\n')?)?.split_once(' ')?;
    Some((store.parse().ok()?, mark.parse().ok()?))
}

/// Where the store has a smaller mark than its folder, or is another one: holds every unfinished job and gives the store a
/// new id, as a restore does. After a kill in between the next start does it once more.
pub(crate) fn check(path: &Path, conn: &mut Connection, now: Timestamp) -> rusqlite::Result<()> {
    let Some((known_store, known_mark)) = read(path) else { return Ok(()) };
    let store = store_id(conn)?;
    let mark: i64 = conn.query_row("SELECT mark FROM meta WHERE one = 1", [], |row| row.get(0))?;
    if store == known_store && mark >= known_mark {
        return Ok(());
    }
    let newest = "SELECT coalesce(max(received_at), 0) FROM event";
    let made_at = Timestamp(conn.query_row(newest, [], |row| row.get(0))?).min(now);
    let gap = RestoredRow { from_store: store, made_at, restored_at: now, held: 0, lost: 0 };
    let row = hold_all(conn, gap)?;
    keep(path, store_id(conn)?, mark);
    tracing::warn!(
        store = %path.display(), held = row.held,
        "the store's file is an older copy, or another store's: its unfinished jobs are held"
    );
    Ok(())
}
