//! The verbs of `http`.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Digest, EventId, JobId, Name, Timestamp};
use crate::store::border::{Accept, Accepted, Ask, Asked, KeyState, Refused, Stall};
use crate::store::decide::notice::Notice;
use crate::store::postgres;
use crate::store::quarantine::handle::QuarantineHandle;
use crate::store::sqlite;

use super::verbs;

/// The store as `http` uses it: accepts deliveries, asks for stored answers, keeps failed deliveries.
#[derive(Clone)]
pub enum Intake {
    Sqlite(sqlite::intake::handle::Intake),
    Postgres(postgres::Intake, Arc<QuarantineHandle>),
}

impl Intake {
    /// The state of a key that was used before, from flushed commits (S3): writes nothing and does not wait for the
    /// queue. `None` if [`Intake::ask`] has something to do, if the answer is too long to unpack on this thread, or
    /// if the store cannot be read. On PostgreSQL always: a question costs as much there.
    pub fn known_key(
        &self,
        source: &Name,
        caller: &str,
        key: &EventId,
        request: Digest,
    ) -> Option<Asked> {
        match self {
            Intake::Sqlite(intake) => intake.known_key(source, caller, key, request),
            Intake::Postgres(..) => None,
        }
    }

    verbs! {
        /// Fails with the reason while accepts are refused.
        pub fn ready() -> Result<(), Refused>;

        /// What stands still, the worst first.
        pub fn stalls() -> Vec<Stall>;

        /// ACCEPT: the event and its jobs in one transaction; returns after its flush, for a duplicate too (S3). Once
        /// queued it belongs to the writer: dropping the future cancels nothing (H1).
        pub async fn accept(new: Accept) -> Result<Accepted, Refused>;

        /// ACCEPT of the events of one delivery, in one transaction: all are stored or none is (S6). It may have arrived
        /// before `now`: its jobs' time begins now, or a forward would be given up before it was tried.
        pub async fn accept_all(new: Vec<Accept>, now: Timestamp) -> Result<Vec<Accepted>, Refused>;

        /// ASK: if the key is new, stores the event, its job and the key in one transaction. If the last run of its job
        /// is known to have failed, puts the job back. Else returns the state of the key. Returns after the flush, and
        /// is not undone by dropping the future, as [`Intake::accept`].
        pub async fn ask(ask: Ask) -> Result<Asked, Refused>;

        /// Waits until the job of a key does not run any more and is not to run, at most `wait`, and says what has
        /// become of it. What it says is flushed (I1).
        ///
        /// # Errors
        /// No job has this id, or the store could not be read until the end.
        pub async fn await_answer(job: JobId, wait: Duration) -> Result<KeyState, Refused>;

        /// Stores a notice behind the requests that are queued, and retries until it is committed. Returns at once.
        pub fn notify(notice: Notice);
    }
}
