//! AUDIT: each change of an operator has a row, in the change's own transaction.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::timeout;

use crate::limits::BY_REASON_BYTES;
use crate::model::{AuditVerb, Timestamp};
use crate::store::border::{AuditFilter, AuditRow, AuditSubject, Error, Page};
use crate::store::engine::queue::Priority;
use crate::store::engine::verb::VerbError;
use crate::store::tables::audit::{ASKED, COLUMNS, DONE, read};

use super::clauses::Clauses;
use super::handle::Admin;
use super::list::Arrivals;

/// How long a change that the store does not carry out waits for one of its rows: a reload may be what a store needs
/// that cannot be written.
const PATIENCE: Duration = Duration::from_millis(500);

/// The audit list.
const AUDIT: Arrivals = Arrivals {
    select: COLUMNS,
    row: "a.row",
    ends: "SELECT coalesce((SELECT min(row) FROM audit), 0), coalesce((SELECT max(row) FROM audit), 0)",
    latest: "SELECT max(at) FROM audit WHERE row BETWEEN ?1 AND ?2",
    time: "SELECT at FROM audit WHERE row >= ?1 ORDER BY row LIMIT 1",
};

impl Admin {
    /// A page of the audit list, newest first.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Page<AuditRow>, Error> {
        let limit = self.page_limit(filter.limit)?;
        let query = move |conn: &Connection| {
            let mut clauses = Clauses::default();
            clauses.audit(&filter);
            AUDIT.page(conn, &clauses, (filter.since, filter.before), limit, read)
        };
        self.engine.list(limit, query).await
    }

    /// Runs a verb of the operator with its row, in one transaction. The verb returns its result, what it has changed,
    /// and how many that is: 0 has no row.
    pub(super) async fn change<T, F>(&self, verb: AuditVerb, mut change: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&Connection, Timestamp) -> Result<(T, AuditSubject, u64), VerbError>
            + Send
            + 'static,
    {
        let caller = Arc::clone(&self.caller);
        self.engine
            .change(move |tx, now| {
                let (result, subject, count) = change(tx, now)?;
                if count > 0 {
                    caller.write(tx, now, (verb, &subject, count), DONE)?;
                }
                Ok(result)
            })
            .await
    }

    /// Makes a change that the store does not carry out, of `count` things, between two rows. If the first is refused,
    /// the change is not begun. A store that cannot be written now delays it by [`PATIENCE`] only, and has both rows once
    /// it can. The change returns its result and how many things it has changed; it goes on if the caller is gone.
    pub async fn surround<T, E>(
        &self,
        verb: AuditVerb,
        subject: AuditSubject,
        count: u64,
        change: impl Future<Output = Result<(T, u64), E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Display + Send + 'static,
    {
        let admin = self.clone();
        let changing = tokio::spawn(async move {
            let before = (verb, subject.clone(), count, ASKED.to_owned());
            let is_written = admin.write(before, PATIENCE).await?;
            let changed = change.await;
            let (count, result) = match &changed {
                Ok((_, count)) => (*count, DONE.to_owned()),
                Err(error) => (0, cut(&error.to_string())),
            };
            let patience = if is_written { PATIENCE } else { Duration::ZERO };
            if let Err(error) = admin.write((verb, subject, count, result), patience).await {
                // The change is made, or has failed: this is not another result of it.
                tracing::warn!(%verb, %error, "failed to write the end of a change to the audit list");
            }
            Ok(changed?.0)
        });
        changing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Hands the writer a row that it keeps until it is committed. False if that takes longer.
    async fn write(
        &self,
        (verb, subject, count, result): (AuditVerb, AuditSubject, u64, String),
        patience: Duration,
    ) -> Result<bool, Error> {
        let (caller, now) = (Arc::clone(&self.caller), self.engine.clock.now());
        let write = move |tx: &Connection| caller.write(tx, now, (verb, &subject, count), &result);
        match timeout(patience, self.engine.submit(Priority::Kept, write)).await {
            Ok(written) => Ok(written.map(|_| true)?),
            Err(_) => Ok(false),
        }
    }
}

/// As much of an error's text as a reason may have.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(BY_REASON_BYTES)].to_owned()
}
