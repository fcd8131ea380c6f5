//! AUDIT: each change of an operator has a row, in the change's own transaction.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock;
use crate::limits::AUDIT_ROWS;
use crate::model::{AuditVerb, Timestamp};
use crate::store::border::{AuditPlace, AuditSubject, By, Caller, DONE, Error};

use super::super::admin::handle::Admin;
use super::super::flight::Flight;
use super::super::params::params;
use super::super::stop::{Stop, ask_one};
use super::change::Change;

/// Writes a row of $10 milliseconds ago, and deletes the oldest if there are more than $9. Another transaction may be
/// deleting them.
const WRITE: &str = "
    WITH written AS (
        INSERT INTO audit (at, verb, subject, count, result, reason, uid, name, via)
        VALUES (now_ms() - $10, $1, $2, $3, $4, $5, $6, $7, $8) RETURNING row
    ), deleted AS (
        DELETE FROM audit WHERE row IN (SELECT audit.row FROM audit
            WHERE audit.row <= (SELECT row - $9 FROM written) ORDER BY audit.row FOR UPDATE SKIP LOCKED)
    )
    SELECT row FROM written";

/// The result of an operation, what it has changed, and how many that is. 0 has no row.
pub(super) type Operated<T> = Result<(T, AuditSubject, u64), Stop>;

/// A change of an operator.
pub(super) trait Operation: Send + Sync + 'static {
    type Done: Send + 'static;

    fn operate(
        &self,
        flight: &mut Flight,
        now: Timestamp,
    ) -> impl Future<Output = Operated<Self::Done>> + Send;
}

/// An operation with its row.
struct Audited<O> {
    verb: AuditVerb,
    operation: O,
    caller: Arc<Caller>,
}

impl<O: Operation> Change for Audited<O> {
    type Done = O::Done;

    const WAKES: bool = true;

    async fn run(&self, flight: &mut Flight, now: Timestamp) -> Result<O::Done, Stop> {
        let (done, subject, count) = self.operation.operate(flight, now).await?;
        if count > 0 {
            let change = (self.verb, &subject, count);
            write(flight, &self.caller, change, DONE, Duration::ZERO).await?;
        }
        Ok(done)
    }
}

/// A row alone.
struct Row {
    caller: Arc<Caller>,
    change: (AuditVerb, AuditSubject, u64, String),
    clock: Clock,
    /// When it happened, by the monotonic clock.
    at: Duration,
}

impl Change for Row {
    type Done = AuditPlace;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<AuditPlace, Stop> {
        let (verb, subject, count, result) = &self.change;
        let age = self.clock.monotonic().saturating_sub(self.at);
        write(flight, &self.caller, (*verb, subject, *count), result, age).await
    }
}

pub(super) async fn write(
    flight: &mut Flight,
    Caller { uid, by: By { name, via, reason } }: &Caller,
    (verb, subject, count): (AuditVerb, &AuditSubject, u64),
    result: &str,
    age: Duration,
) -> Result<AuditPlace, Stop> {
    let unreadable = |error: serde_json::Error| Error::Unavailable(error.to_string());
    let subject = serde_json::to_string(subject).map_err(unreadable)?;
    // PostgreSQL's text cannot have NUL, and these have a limit in bytes.
    let text = |text: &str| text.replace('\0', " ");
    let [name, reason] = [name, reason].map(|by| by.as_deref().map(text));
    let (verb, via, result) = (verb.as_str(), via.as_str(), text(result));
    let row = params![verb, subject, count, result, reason, *uid, name, via, AUDIT_ROWS, age];
    Ok(AuditPlace(ask_one(flight, WRITE, row).await?.try_get(0)?))
}

impl Admin {
    pub(super) async fn change<O: Operation>(
        &self,
        verb: AuditVerb,
        operation: O,
    ) -> Result<O::Done, Error> {
        let caller = self.caller.clone();
        self.changer.make(Audited { verb, operation, caller }).await
    }

    /// Writes a row of the audit list, as soon as the database can be written and while this process lives: the change,
    /// of what and of how many, and its result. `false` if that takes longer than `patience`: what the change does may be
    /// what the database needs.
    ///
    /// # Errors
    /// The server refuses the row, or it is not known whether it is written.
    pub async fn note_change(
        &self,
        change: (AuditVerb, AuditSubject, u64, String),
        patience: Duration,
    ) -> Result<bool, Error> {
        let clock = self.changer.clock.clone();
        let at = clock.monotonic();
        let row = Row { caller: Arc::clone(&self.caller), change, clock, at };
        // The task goes on after the wait.
        match timeout(patience, self.changer.keep("a row of the audit list", row)).await {
            Ok(written) => {
                written.unwrap_or_else(|panic| resume_unwind(panic.into_panic())).map(|()| true)
            }
            Err(_) => Ok(false),
        }
    }
}
