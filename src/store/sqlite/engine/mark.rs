//! Marks a store that has committed something, and then its folder (see [`put_back`](super::put_back)).

use std::sync::atomic::Ordering;

use rusqlite::Connection;

use super::handle::Engine;
use super::put_back::keep;
use super::queue::Priority;
use super::shared::EngineState;

const RAISE: &str = "UPDATE meta SET mark = mark + 1 WHERE one = 1 RETURNING mark";

impl Engine {
    /// Marks the store and then its folder, where something was committed since the last mark. Without the file nothing
    /// breaks but this discovery, so an error is a warning.
    pub(crate) async fn mark(&self) {
        let before = *self.stirred.borrow();
        if self.marked.load(Ordering::Relaxed) == before || self.ready().is_err() {
            return;
        }
        let marked = self.submit(Priority::Verb, |tx| tx.query_row(RAISE, [], |row| row.get(0)));
        let Ok(mark) = marked.await else { return };
        let after = *self.stirred.borrow();
        // The mark's own commit counts too.
        let seen = if after <= before + 1 { after } else { before };
        let (path, id) = (self.settings.path.clone(), self.id);
        // A panic ends the process.
        if tokio::task::spawn_blocking(move || keep(&path, id, mark)).await.unwrap_or(false) {
            self.marked.store(seen, Ordering::Relaxed);
        }
    }
}

/// Marks the store and its folder. The writer calls it at its end, when all queued requests are committed.
pub(crate) fn mark_at_end(conn: &Connection, shared: &EngineState) {
    if shared.marked.load(Ordering::Relaxed) == *shared.stirred.borrow() {
        return;
    }
    // Without its own COMMIT the statement's end would hide that the flush has failed.
    let raise = || {
        let tx = conn.unchecked_transaction()?;
        let mark = tx.query_row(RAISE, [], |row| row.get(0))?;
        tx.commit()?;
        Ok::<i64, rusqlite::Error>(mark)
    };
    match raise() {
        Ok(mark) => drop(keep(&shared.settings.path, shared.id, mark)),
        Err(error) => tracing::warn!(%error, "the store cannot be marked"),
    }
}
