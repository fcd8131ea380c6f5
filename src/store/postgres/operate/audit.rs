//! AUDIT: each change of an operator has a row, in the change's own transaction.

use std::fmt::Display;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::limits::{AUDIT_ROWS, BY_REASON_BYTES};
use crate::model::{AuditVerb, Timestamp};
use crate::store::border::{AuditSubject, By, Error};
use crate::store::tables::codec;

use super::super::admin::handle::Admin;
use super::super::flight::{Flight, Param};
use super::change::{Change, Stop, ask};

/// How long a change that the store does not carry out waits for one of its rows: a reload may be what a store needs
/// that cannot be written.
const PATIENCE: Duration = Duration::from_millis(500);

/// Writes a row, and deletes the oldest if there are more than $9. Another transaction may be deleting them.
const WRITE: &str = "
    WITH written AS (
        INSERT INTO audit (at, verb, subject, count, result, reason, uid, name, via)
        VALUES (now_ms(), $1, $2, $3, $4, $5, $6, $7, $8) RETURNING row
    ), deleted AS (
        DELETE FROM audit WHERE row IN (SELECT audit.row FROM audit
            WHERE audit.row <= (SELECT row - $9 FROM written) ORDER BY audit.row FOR UPDATE SKIP LOCKED)
    )
    SELECT row FROM written";

/// A change of an operator: its result, what it has changed, and how many that is. 0 has no row.
pub(super) trait Operation: Send + Sync + 'static {
    type Done: Send + 'static;

    fn verb(&self) -> AuditVerb;

    fn operate(
        &self,
        flight: &mut Flight,
        now: Timestamp,
    ) -> impl Future<Output = Result<(Self::Done, AuditSubject, u64), Stop>> + Send;
}

/// An operation with its row.
struct Audited<O> {
    operation: O,
    caller: Arc<(u32, By)>,
}

impl<O: Operation> Change for Audited<O> {
    type Done = O::Done;

    const WAKES: bool = true;

    async fn run(&self, flight: &mut Flight, now: Timestamp) -> Result<O::Done, Stop> {
        let (done, subject, count) = self.operation.operate(flight, now).await?;
        if count > 0 {
            write(flight, &self.caller, (self.operation.verb(), &subject, count), "done").await?;
        }
        Ok(done)
    }
}

/// A row alone.
struct Row {
    caller: Arc<(u32, By)>,
    verb: AuditVerb,
    subject: AuditSubject,
    count: u64,
    result: String,
}

impl Change for Row {
    type Done = ();

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<(), Stop> {
        write(flight, &self.caller, (self.verb, &self.subject, self.count), &self.result).await
    }
}

async fn write(
    flight: &mut Flight,
    (uid, by): &(u32, By),
    (verb, subject, count): (AuditVerb, &AuditSubject, u64),
    result: &str,
) -> Result<(), Stop> {
    let subject =
        serde_json::to_string(subject).map_err(|error| Stop::Broken(error.to_string()))?;
    // PostgreSQL's text cannot have NUL, and these have a limit in bytes.
    let text = |text: &str| text.replace('\0', " ");
    let params: Vec<Param> = vec![
        Box::new(verb.as_str()),
        Box::new(subject),
        Box::new(codec::size(count)),
        Box::new(text(result)),
        Box::new(by.reason.as_deref().map(text)),
        Box::new(i64::from(*uid)),
        Box::new(by.name.as_deref().map(text)),
        Box::new(by.via.as_str()),
        Box::new(AUDIT_ROWS),
    ];
    ask(flight, WRITE, params).await.map(drop)
}

impl Admin {
    pub(super) async fn change<O: Operation>(&self, operation: O) -> Result<O::Done, Error> {
        let caller = self.caller.clone();
        self.changer.make(Audited { operation, caller }).await
    }

    /// Makes a change that the store does not carry out, of `count` things, between two rows. A database that cannot be
    /// written now delays it by [`PATIENCE`] only, and has both rows once it can, unless this process ends before. The
    /// change returns its result and how many things it has changed; it goes on if the caller is gone.
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
            let write = async |count, result: String| {
                let (caller, subject) = (admin.caller.clone(), subject.clone());
                let row = Row { caller, verb, subject, count, result };
                // The task goes on after the wait.
                timeout(PATIENCE, admin.changer.keep(row)).await.is_ok()
            };
            write(count, "asked".to_owned()).await;
            let changed = change.await;
            match &changed {
                Ok((_, count)) => write(*count, "done".to_owned()).await,
                Err(error) => write(0, cut(&error.to_string())).await,
            };
            Ok(changed?.0)
        });
        changing.await.unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
    }
}

/// As much of an error's text as a reason may have.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(BY_REASON_BYTES)].to_owned()
}
