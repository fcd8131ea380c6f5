//! The verbs of `dispatcher`.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Notify;

use crate::model::{JobId, Name, Runner, RunnerName, Timestamp};
use crate::retry::Policy;
use crate::store::border::{
    Claim, Claims, ClaimsFuture, ClockWatch, Completion, Cutoffs, Error, RecoveryResult,
    RetentionResult, RunningAttempt, Stalled,
};
use crate::store::decide::notice::Notice;
use crate::store::postgres;
use crate::store::sqlite;

use super::verbs;

/// The store as `dispatcher` uses it: claims and completes jobs, recovers them at a start, deletes expired rows.
#[derive(Clone)]
pub enum Jobs {
    Sqlite(sqlite::jobs::handle::Jobs),
    Postgres(postgres::Jobs),
}

impl Jobs {
    verbs! {
        /// Notified after every commit that changed something, and after a repair. One task may wait for it.
        pub fn wake() -> Arc<Notify>;

        /// This stands still, until [`Jobs::moves`]; `why` is the error.
        pub fn stalled(what: Stalled, why: String);

        /// This does not stand still.
        pub fn moves(what: Stalled);

        /// The paused handlers, from memory. A claim may still find one that is not among them paused; one that is among
        /// them needs no claim until [`Jobs::wake`] is notified.
        pub fn paused_now() -> Arc<BTreeSet<Name>>;

        /// A number that no receiver of this store had before. Committed before this returns; called once by a receiver
        /// that starts, before it connects to a runner. A number may be skipped, never given twice.
        pub async fn raise_epoch() -> Result<u64, Error>;

        /// RECOVER: before the first claim. Every running attempt that no runner was asked to start becomes `unknown`
        /// and follows its handler's policy (hold where the handler is gone); ready and waiting jobs of handlers not in
        /// `policies` are held: handler gone; due times are clamped, as by [`Jobs::clamp_due`].
        pub async fn recover(policies: Vec<(Name, Policy)>) -> Result<RecoveryResult, Error>;

        /// CLAIM: up to `limit` jobs of `handler` that are ready, or waiting and due, oldest first. Each has a new
        /// attempt, number + 1, committed before this returns. Jobs whose payload is gone become dead instead (R19).
        /// Nothing while the handler is paused. `runner` is the one that will be asked to start them, and is recorded
        /// with each, its name too (R5); none where the receiver runs them itself.
        ///
        /// Tried until it is committed. The future must not be dropped: what it claimed would stay `running` without a
        /// process until the next start.
        pub async fn claim(handler: &Name, limit: usize, runner: Option<Runner>) -> Result<Claims, Error>;

        /// COMPLETE: settles a running attempt. `false` where that attempt is not the running one: it is settled
        /// already, and no row changes (R9). Retried after any error, until it is committed: never lost while the
        /// process lives and is not stopping.
        pub async fn complete(done: impl Into<Arc<Completion>>) -> Result<bool, Error>;

        /// COMPLETE each of `ends`, then CLAIM, with one flush for all of it. Each has its answer, as
        /// [`Jobs::complete`] and [`Jobs::claim`] give it, and none fails because another does. One that alone cannot be
        /// committed is given up, since the others do not wait for it: [`Jobs::complete`] goes on. The ends do not wait
        /// for the payloads of what is claimed.
        ///
        /// The future must not be dropped where it claims.
        pub async fn complete_and_claim(
            ends: &[Arc<Completion>],
            claim: Option<Claim>,
        ) -> (Vec<Result<bool, Error>>, ClaimsFuture);

        /// The dispatcher stops: claims that wait for the database are refused, but those that it may have committed.
        pub fn end_claims();

        /// Whether a claimed attempt may begin (N16). On SQLite always: no other node can have its job.
        pub fn may_begin(job: JobId, attempt: u32) -> bool;

        /// Another attempt that a runner lists: until its end is recorded by [`Jobs::complete`], no claim takes its job (N15).
        pub fn note_stray(job: JobId, attempt: u32);

        /// The runners that a roll call asks, until all of them have listed their attempts (N40): even those that no
        /// handler and no running attempt names, because the database may have lost the claims. Always `None` on
        /// SQLite.
        pub fn unlisted() -> Option<BTreeSet<RunnerName>>;

        /// Says that these runners, which are all that are needed, have listed their attempts, of which those that this
        /// process did not know are noted as strays. Answers a roll call.
        pub fn answer_roll_call(listed: BTreeSet<RunnerName>);

        /// The attempts of this process that were cancelled through other nodes (N21), until their ends are committed. A
        /// new one is announced by [`Jobs::wake`]. None on SQLite.
        pub fn cancel_asked() -> Vec<(JobId, u32)>;

        /// The attempts that are `running` in the store (at start: those a crash cut off, and those that a runner has).
        pub async fn running() -> Result<Vec<RunningAttempt>, Error>;

        /// K1: a wait that begins in the future, because a clock was set back, begins now, and is as long as it was.
        /// Otherwise it would park its job for years. Returns how many were moved.
        pub async fn clamp_due() -> Result<u64, Error>;

        /// Holds the ready and waiting jobs of every handler but these: no claim would take them. A replay may have made
        /// or put back such a job since the start. Returns how many were held.
        pub async fn hold_orphans(handlers: Vec<Name>) -> Result<u64, Error>;

        /// The policy of a handler that other nodes publish, and that this one's configuration lacks (N29); none where no
        /// node that is not lost publishes it, as always on SQLite.
        pub async fn policy_elsewhere(handler: &Name) -> Result<Option<Policy>, Error>;

        /// Stores a notice behind the requests that are queued, and retries until it is committed. Returns at once.
        pub fn notify(notice: Notice);

        /// Makes the internal events that are due: for notices that were only counted within
        /// [`NOTICE_WINDOW`](crate::limits::NOTICE_WINDOW), for what has stood still for a minute, and for too
        /// little space, which refuses accepts while a notice may still fit. The dispatcher calls it at each tick.
        /// Returns how many events the counted notices made.
        pub async fn tell_notices() -> Result<u64, Error>;

        /// The time by the clock of the store's rows. Retention goes by it, and checks it (K2).
        pub async fn now() -> Result<Timestamp, Error>;

        /// Deletes payloads, and whole events, that are old enough, and gives their space back. A payload stays while a
        /// job of its event is not settled, or has been for too short a time: what an operator has just settled of an
        /// old event is on record as long as that of a new one. With it go the event's jobs and their attempts, and the
        /// event says how many had succeeded or been dropped; where one is dead they all stay, without what their
        /// attempts printed. An id stays as long as one payload of its bodies, and while one of them is younger. The use
        /// of a secret is forgotten with the last event of its source. A key keeps what it belongs to: event, payload
        /// and job.
        pub async fn expire(before: Cutoffs) -> Result<RetentionResult, Error>;

        /// EXPIRE of keys, each with its answer: those whose time had come a minute before `now`, which is how far a
        /// clock may have jumped unseen (K2), and whose jobs are settled. Returns how many. Answers that said "not now"
        /// are forgotten without their keys.
        pub async fn expire_keys(now: Timestamp) -> Result<u64, Error>;

        /// The watch that was kept last, also by an earlier process.
        pub async fn clock_watch() -> Result<Option<ClockWatch>, Error>;

        /// Keeps it for the next process.
        pub async fn keep_clock_watch(watch: ClockWatch) -> Result<(), Error>;

        /// When the newest delivery arrived. The receiver's own events do not count: they have the time of the clock
        /// that is in question (K2).
        pub async fn newest_delivery() -> Result<Option<Timestamp>, Error>;
    }
}
