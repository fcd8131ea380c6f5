//! When each secret last matched, to the minute: which of two is still used while one is being replaced.
//!
//! Memory has the last written times too, so that a busy source runs no statement within the
//! minute. What must stay true: nothing is known that was rolled back, or a match would not be written.

use std::collections::BTreeMap;
use std::sync::Mutex;

use rusqlite::{Connection, params};

use crate::model::{Name, Timestamp};
use crate::store::mutex::lock;

/// How often a secret's last match is written.
const EVERY_MS: i64 = 60_000;

/// The last matches that this process has written, by source and reference.
#[derive(Default)]
pub(crate) struct SecretUses(Mutex<BTreeMap<Name, BTreeMap<String, Timestamp>>>);

impl SecretUses {
    /// A secret of `source` has matched, by its reference, if one was needed.
    pub(crate) fn note(
        &self,
        tx: &Connection,
        source: &Name,
        reference: Option<&str>,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let Some(reference) = reference else { return Ok(()) };
        let mut written = lock(&self.0);
        let last = written.get(source).and_then(|secrets| secrets.get(reference));
        // Either way: the clock may have been set back.
        if last.is_some_and(|last| (now.0 - last.0).abs() < EVERY_MS) {
            return Ok(());
        }
        // One row per configured secret.
        tx.prepare_cached(
            "INSERT INTO secret_use (source, reference, last_matched_at) VALUES (?1, ?2, ?3)
             ON CONFLICT (source, reference) DO UPDATE SET last_matched_at = excluded.last_matched_at",
        )?
        .execute(params![source.as_str(), reference, now.0])?;
        written.entry(source.clone()).or_default().insert(reference.to_owned(), now);
        Ok(())
    }

    /// A transaction was rolled back, which may have had some.
    pub(crate) fn forget(&self) {
        lock(&self.0).clear();
    }
}
