//! The verbs of `admin`, `scrape` and `serve`.

use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use crate::model::{AuditVerb, EventId, JobId, Name, State};
use crate::routing::Router;
use crate::store::border::{
    Accept, Accepted, AuditFilter, AuditPlace, AuditRow, AuditSubject, Backfill, BackfillResult,
    BatchResult, BodyOf, By, CheckedPayloads, Error, EventDetail, EventFilter, EventRow,
    FollowCursor, Gauges, IdKind, IdMatch, IdQuery, JobBatch, JobFilter, JobRow, JobSelection,
    Page, PausedRow, PayloadCheck, Refused, Replay, Replayed, RunningAttempt, SecretUse,
    SelectedJobs, Stall, StoreStatus, StuckJobs, WriterGauges,
};
use crate::store::decide::notice::NoticeSubscribers;
use crate::store::decide::resolve::Resolution;
use crate::store::postgres;
use crate::store::sqlite;
use crate::store::sqlite::engine::copy_task::{CopyError, CopyInProgress};

use super::verbs;

/// The store as `admin`, `scrape` and `serve` use it: reads everything, and carries out the operator's verbs.
#[derive(Clone)]
pub enum Admin {
    Sqlite(sqlite::admin::handle::Admin),
    Postgres(Box<postgres::Admin>),
}

impl Admin {
    /// Returns a handle whose changes are in the audit list as those of this user. Otherwise they are this process's.
    #[must_use]
    pub fn by(&self, uid: u32, by: By) -> Admin {
        match self {
            Admin::Sqlite(admin) => Admin::Sqlite(admin.by(uid, by)),
            Admin::Postgres(admin) => Admin::Postgres(Box::new(admin.by(uid, by))),
        }
    }

    /// COPY: begins a copy of the store as it is once the copy ends.
    ///
    /// # Errors
    /// Where another one is being made, the store takes nothing now, or it is on PostgreSQL.
    pub fn copy(&self) -> Result<CopyInProgress, CopyError> {
        match self {
            Admin::Sqlite(admin) => admin.copy(),
            Admin::Postgres(_) => Err(CopyError::OnServer),
        }
    }

    verbs! {
        /// The store's random identity.
        pub fn id() -> Uuid;

        /// Fails with the reason while accepts are refused.
        pub fn ready() -> Result<(), Refused>;

        /// What stands still, the worst first.
        pub fn stalls() -> Vec<Stall>;

        /// Waits for a sign of life from the writer: between two batches, on a full disk or in the pauses of a repair.
        /// Never returns while the writer hangs. False once the store is closed. Always true of a database on another
        /// machine, whose faults no restart fixes.
        pub async fn writer_answers() -> bool;

        /// Counts the times when [`Jobs::wake`](super::Jobs::wake) is notified, when the store starts or stops refusing
        /// accepts, and when a failed delivery is kept, since the store was opened. Any number of tasks may listen.
        pub fn changes() -> watch::Receiver<u64>;

        /// Says which handlers take the receiver's own events from the next transaction on. First before anything is
        /// accepted or recovered.
        pub fn set_interest(interest: NoticeSubscribers);

        /// From now on replays go by these routes.
        pub fn set_router(router: Router);

        /// How the store stands. `sources`: those to look for beside the ones with a failed delivery.
        pub async fn status(sources: Vec<Name>) -> Result<StoreStatus, Error>;

        /// Gauges of the store's content.
        pub async fn gauges() -> Result<Gauges, Error>;

        /// What the writer does, which asks no database.
        pub fn writer_gauges() -> WriterGauges;

        /// How many jobs are held and how many dead: those that wait for a person.
        pub async fn stuck_counts() -> Result<(u64, u64), Error>;

        /// What stands still, by cause.
        pub async fn stuck() -> Result<StuckJobs, Error>;

        /// How many jobs each handler has that are to run or running, by name: what a configuration without that handler
        /// would hold.
        pub async fn unfinished() -> Result<Vec<(Name, u64)>, Error>;

        /// A page of events, newest first.
        pub async fn events(filter: EventFilter) -> Result<Page<EventRow>, Error>;

        /// The events after a place; where none is given, the newest ones. Both oldest first, and no more than the
        /// filter's limit: the rest comes with the next call. Returns the place to go on from too.
        pub async fn new_events(
            filter: EventFilter,
            after: Option<FollowCursor>,
        ) -> Result<(Vec<EventRow>, FollowCursor), Error>;

        /// Everything about the events with this id (several: variants, or several sources), but the payloads of other
        /// variants than the one that is given.
        pub async fn show(
            source: Option<Name>,
            event: EventId,
            variant: Option<u32>,
        ) -> Result<Vec<EventDetail>, Error>;

        /// The next bytes of a body's stored form behind the first `from`, none at its end; nothing where it is not kept.
        pub(crate) async fn body_piece(of: BodyOf, from: u64) -> Result<Option<Vec<u8>>, Error>;

        /// A page of jobs, newest first.
        pub async fn jobs(filter: JobFilter) -> Result<Page<JobRow>, Error>;

        /// One job as it is listed.
        pub async fn job(job: JobId) -> Result<JobRow, Error>;

        /// The running attempt of a job, which must be `seen` where that is given; a job that does not run is in the
        /// wrong state for `verb`, such as "cancelled".
        pub async fn running_attempt(
            job: JobId,
            seen: Option<u32>,
            verb: &'static str,
        ) -> Result<RunningAttempt, Error>;

        /// CANCEL of an attempt that this process does not have: marks it for the node that runs it, whose name it
        /// returns. `None` where this process has it, as always on SQLite. If the attempt has ended since, the verb is
        /// refused: the job is in the wrong state.
        pub async fn cancel_elsewhere(job: JobId, attempt: u32) -> Result<Option<String>, Error>;

        /// The event or job that is meant. The whole id of one always means it.
        pub async fn find(typed: IdQuery) -> Result<IdMatch, Error>;

        /// How many characters of each of these ids are enough to find it among what `kind` says.
        pub async fn shorten(kind: IdKind, ids: Vec<String>) -> Result<Vec<usize>, Error>;

        /// CHECK: compares the payloads of the next events with what was accepted. Call again with the answer's `next`
        /// until it is none.
        pub async fn check_payloads(ask: PayloadCheck) -> Result<CheckedPayloads, Error>;

        /// When each secret last matched.
        pub async fn secrets() -> Result<Vec<SecretUse>, Error>;

        /// A page of the audit list, newest first.
        pub async fn audit(filter: AuditFilter) -> Result<Page<AuditRow>, Error>;

        /// The paused handlers by name, configured or not.
        pub async fn paused() -> Result<Vec<PausedRow>, Error>;

        /// PAUSE: nothing of `handler` is claimed until it is resumed, restarts included; a running attempt goes on.
        /// `false` where it was paused already.
        pub async fn pause(handler: &Name) -> Result<bool, Error>;

        /// RESUME: `handler`'s jobs are claimed again. `false` where it was not paused.
        pub async fn resume(handler: &Name) -> Result<bool, Error>;

        /// RESOLVE: held after this attempt to succeeded, or to dead. Returns the state after it; an error has changed
        /// nothing: what the operator found out about one attempt says nothing of a newer one. Of several at once one
        /// does it, and the others find the job in another state.
        pub async fn resolve(job: JobId, attempt: u32, how: Resolution) -> Result<State, Error>;

        /// REPLAY: held, dead or succeeded to ready. Returns the jobs put back, which may be none where an event has no
        /// held or dead job. All or nothing: an error has changed nothing. A job that is held because its condition could
        /// not be decided is decided again, and dropped where the condition does not hold. `regardless` replays also a
        /// job whose condition cannot be decided or does not hold, and one whose group has gone on to a newer event where
        /// only the latest counts.
        pub async fn replay(what: Replay, regardless: bool) -> Result<Replayed, Error>;

        /// DROP: ready, waiting, held or dead to dropped. With `seen` the job is left alone if another attempt is its
        /// last. Returns the state it was in; an error has changed nothing.
        pub async fn drop_job(job: JobId, seen: Option<u32>) -> Result<State, Error>;

        /// The next jobs that a bulk verb means. Call again with the answer's `next` until it is none.
        pub async fn select(ask: JobSelection) -> Result<SelectedJobs, Error>;

        /// REPLAY or DROP of a batch, in one transaction. A job that has changed since it was chosen stays as it is.
        pub async fn move_batch(batch: JobBatch) -> Result<BatchResult, Error>;

        /// REPLAY --handler: makes the jobs that are missing among the next events, or only counts them. Call again with
        /// the answer's `next` until it is none. Unless it only counts, it is refused like an accept while there is too
        /// little space.
        pub async fn make_missing(ask: Backfill) -> Result<BackfillResult, Error>;

        /// ACCEPT of the events of a kept delivery, with its row of the audit list, in one transaction: one more in the
        /// row of an earlier delivery, or a new row. Returns its place.
        pub(super) async fn accept_kept(
            new: Vec<Accept>,
            subject: &AuditSubject,
            row: Option<AuditPlace>,
        ) -> Result<(Vec<Accepted>, AuditPlace), Refused>;

        /// Writes a row of the audit list, which is kept until it is committed: the change, of what and of how many, and
        /// its result. `false` if that takes longer than `patience`.
        pub(super) async fn note_change(
            change: (AuditVerb, AuditSubject, u64, String),
            patience: Duration,
        ) -> Result<bool, Error>;
    }
}
