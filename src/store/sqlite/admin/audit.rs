//! AUDIT: each change of an operator has a row, in the change's own transaction.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tokio::time::timeout;

use crate::model::{AuditVerb, Timestamp};
use crate::store::border::{AuditFilter, AuditRow, AuditSubject, DONE, Error, Page};
use crate::store::decide::listing::page_limit;
use crate::store::sqlite::engine::queue::Priority;
use crate::store::sqlite::engine::verb::VerbError;
use crate::store::sqlite::tables::audit::COLUMNS;

use super::clauses::Clauses;
use super::handle::Admin;
use super::list::Arrivals;

/// The audit list.
const AUDIT: Arrivals = Arrivals {
    select: COLUMNS,
    row: "a.row",
    ends: "SELECT coalesce((SELECT min(row) FROM audit), 0), coalesce((SELECT max(row) FROM audit), 0)",
    latest: "SELECT max(at) FROM audit WHERE row BETWEEN ?1 AND ?2",
    time: "SELECT at FROM audit WHERE row >= ?1 ORDER BY row LIMIT 1",
};

impl Admin {
    pub async fn audit(&self, filter: AuditFilter) -> Result<Page<AuditRow>, Error> {
        let limit = page_limit(&self.engine.settings.limits, filter.limit)?;
        let query = move |conn: &Connection| {
            let mut clauses = Clauses::default();
            clauses.audit(&filter);
            AUDIT.page(conn, &clauses, (filter.since, filter.before), limit)
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

    pub(crate) async fn note_change(
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
