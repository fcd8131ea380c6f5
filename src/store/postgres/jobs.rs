//! The handle of `dispatcher`.

use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt, join_all};
use tokio::select;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::sleep;
use uuid::Uuid;

use crate::clock::Clock;
use crate::model::{DeadReason, HeldReason, JobId, Name, Runner, RunnerName};
use crate::retry::{History, Next, Policy};
use crate::store::border::{
    Claim, Claimed, Claims, ClaimsFuture, Completion, Error, RecoveryResult, Refused,
    RunningAttempt, Stalled,
};
use crate::store::codec;
use crate::store::decide::notice::Notice;
use crate::store::decide::recovery;
use crate::store::sum::{DAMAGED, unread};

use super::claim::{NodeAttempt, NodeClaims};
use super::complete::{AttemptEnd, EndResult};
use super::connection::Target;
use super::exchange::Exchanged;
use super::handlers::PublishedHandler;
use super::operate::housekeeping::Housekeeping;
use super::register::Registered;
use super::request::Request;
use super::settle::{settle, settle_soon};
use super::writer::Writer;

/// The pause between two tries to read payloads.
const PAYLOAD_PAUSE: Duration = Duration::from_millis(250);

/// How often a payload is read again that cannot be read now, which takes 10 s: an I/O error of the server's disk may
/// pass, and the other jobs of the claim wait meanwhile.
const READS_AGAIN: u32 = if cfg!(test) { 4 } else { 40 };

/// At so many next jobs more than it asked for one looks for what has made a claim fail: it passes some over.
const LOOK_FURTHER: i64 = 100;

/// The store as `dispatcher` uses it: claims and completes jobs, and recovers them at a start.
#[derive(Clone)]
pub struct Jobs {
    writer: Writer,
    clock: Clock,
    keeping: Housekeeping,
}

impl Jobs {
    /// Hears wake-ups of other nodes, and sends them, until the writer ends.
    pub fn start(writer: Writer, target: Target, clock: Clock, keeping: Housekeeping) -> Jobs {
        let (wakeups, mut sessions) = (Arc::clone(&writer.wakeups), writer.sessions());
        let (stalls, own) = (Arc::clone(&writer.stalls), clock.clone());
        tokio::spawn(async move {
            // None where the writer has ended.
            let Some(session) = first_session(&mut sessions).await else { return };
            select! {
                () = wakeups.run(&target, session.session.node, &stalls, &own) => {}
                _ended = sessions.wait_for(|_| false) => {}
            }
        });
        Jobs { writer, clock, keeping }
    }

    /// Replaces the handlers that this node publishes: at the start, and at each reload.
    pub async fn publish(&self, handlers: Vec<PublishedHandler>) -> Result<(), Error> {
        Ok(self.writer.publish(handlers).await?)
    }

    /// RECOVER: before the first claim. The forwards of an earlier receiver of this node become `unknown` and follow
    /// their handlers' policies, where this node lacks a handler those that other nodes publish: hold where it is gone
    /// (N17, N29). Due times are clamped (K1), and jobs of handlers that are gone are held. Waits for a session.
    pub async fn recover(&self, policies: Vec<(Name, Policy)>) -> Result<RecoveryResult, Error> {
        self.session().await?;
        let now = self.clock.now();
        let (mut ends, mut published) = (Vec::new(), policies.clone());
        for own in self.writer.live.all() {
            let (claimant, running) = (own.claimant, self.by_own_clock(own));
            if running.runner.is_none() {
                let handler = &running.handler;
                if published.iter().all(|(name, _)| name != handler)
                    && let Some(policy) = self.keeping.policy_elsewhere(handler).await?
                {
                    published.push((handler.clone(), policy));
                }
                let before = History { counted: running.counted, since: running.since };
                let key = (running.job, running.attempt);
                let done = recovery::cut_off(key, &running.handler, before, &published, now);
                ends.push(AttemptEnd { done: Arc::new(done), claimant });
            }
        }
        let mut recovered = RecoveryResult::default();
        let settled = ends.iter().map(|end| settle(&self.writer.queue, end.clone()));
        for (end, ended) in ends.iter().zip(join_all(settled).await) {
            if let EndResult::Settled(state) = ended? {
                recovered.unknown.push((end.done.job, end.done.attempt, state));
            }
        }
        let known = policies.iter().map(|(handler, _)| handler.clone()).collect();
        recovered.orphaned = self.keeping.hold_orphans(known).await?;
        self.keeping.clamp_due().await?;
        Ok(recovered)
    }

    /// The attempts that a runner may have, read before the first claim.
    pub async fn running(&self) -> Result<Vec<RunningAttempt>, Error> {
        self.session().await?;
        let mut running: Vec<_> =
            self.writer.live.all().into_iter().map(|own| self.by_own_clock(own)).collect();
        running.sort_by_key(|own| own.job);
        Ok(running)
    }

    /// A number that no earlier receiver of this node had.
    pub async fn raise_epoch(&self) -> Result<u64, Error> {
        Ok(self.session().await?.session.count.unsigned_abs())
    }

    /// COMPLETE: settles a running attempt. `false` where that attempt is not the running one: the report is kept as a
    /// late end (N24). Tried again after any error, until it is committed.
    pub async fn complete(&self, done: impl Into<Arc<Completion>>) -> Result<bool, Error> {
        let end = self.end(&done.into());
        let claimant = end.claimant;
        Ok(is_settled(claimant, settle(&self.writer.queue, end).await?))
    }

    /// COMPLETE each of `ends`, then CLAIM. Each has its answer, as [`Jobs::complete`] and [`Jobs::claim`] give it, and
    /// none fails because another does. An end that alone cannot be committed now is given up: its caller goes on. The
    /// ends do not wait for the payloads of what is claimed.
    ///
    /// The future must not be dropped where it claims.
    pub async fn complete_and_claim(
        &self,
        ends: &[Arc<Completion>],
        claim: Option<Claim>,
    ) -> (Vec<Result<bool, Error>>, ClaimsFuture) {
        let ends: Vec<AttemptEnd> = ends.iter().map(|done| self.end(done)).collect();
        let claimants: Vec<Uuid> = ends.iter().map(|end| end.claimant).collect();
        // What cannot be read cannot begin.
        let may_claim = !self.writer.stalls.has(Stalled::Payloads);
        let claim = claim.filter(|claim| claim.limit > 0 && may_claim);
        let asked = claim.clone();
        let Exchanged { ended, claims } = self.writer.exchange(ends, claim).await;
        let ended = claimants.into_iter().zip(ended);
        let ended = ended.map(|(claimant, ended)| Ok(is_settled(claimant, ended?))).collect();
        let jobs = self.clone();
        let claimed = async move {
            if let (Err(Refused::Failed(_)), Some(claim)) = (&claims, &asked)
                && let Err(error) = jobs.hold_unclaimable(claim).await
            {
                tracing::warn!(%error, "failed to look for what has made a claim fail");
            }
            jobs.claimed(claims?).await
        };
        (ended, claimed.boxed())
    }

    /// CLAIM: up to `limit` jobs of `handler` that are ready, or waiting and due, oldest first. Each has a new attempt,
    /// committed before this returns. Jobs whose payload is gone become dead instead (R19). Nothing while the handler
    /// is paused.
    pub async fn claim(
        &self,
        handler: &Name,
        limit: usize,
        runner: Option<Runner>,
    ) -> Result<Claims, Error> {
        let handler = handler.clone();
        let claim = Claim { handler, limit, runner, rate: None, cluster_concurrency: None };
        self.complete_and_claim(&[], Some(claim)).await.1.await
    }

    pub fn note_stray(&self, job: JobId, attempt: u32) {
        self.writer.live.note_stray((job, attempt));
    }

    pub fn unlisted(&self) -> Option<BTreeSet<RunnerName>> {
        self.writer.live.unlisted()
    }

    /// It is answered soon; at the latest by the next registration.
    pub fn answer_roll_call(&self, listed: BTreeSet<RunnerName>) {
        self.writer.live.set_listed_runners(listed);
        let (done, _) = oneshot::channel();
        // Fails only where the writer ends.
        let _ = self.writer.queue.push_kept(vec![Request::Publish(None, done)]);
    }

    /// Whether a claimed attempt may begin (N16). Otherwise the dispatcher reports it as not started.
    pub fn may_begin(&self, job: JobId, attempt: u32) -> bool {
        self.writer.may_begin(job, attempt)
    }

    pub fn end_claims(&self) {
        self.writer.queue.end_claims();
    }

    /// Notified when something may be ready. One task may wait for it.
    pub fn wake(&self) -> Arc<Notify> {
        self.writer.wakeups.dispatcher()
    }

    pub fn stalled(&self, what: Stalled, why: String) {
        self.writer.stalls.set(what, why, self.clock.now());
    }

    pub fn moves(&self, what: Stalled) {
        self.writer.stalls.clear(what);
    }

    /// Counts notices of what stands still, and makes the events of due notices as [`Housekeeping::tell_notices`] does.
    /// Returns how many events it has made.
    pub async fn tell_notices(&self) -> Result<u64, Error> {
        let now = self.clock.now();
        for stall in self.writer.stalls.untold(now) {
            self.keeping.notify(Notice::of_store(stall.what.sentence(), stall.since, now));
        }
        self.keeping.tell_notices().await
    }

    /// The paused handlers, as they were at the last look. A claim may still find one that is not among them paused;
    /// one that is among them needs no claim until [`Jobs::wake`] is notified.
    pub fn paused_now(&self) -> Arc<BTreeSet<Name>> {
        self.writer.wakeups.paused()
    }

    /// The attempts of this process that an operator wants to end (N21), as they were at the last look. A new one is
    /// announced by [`Jobs::wake`].
    pub fn cancel_asked(&self) -> Vec<(JobId, u32)> {
        let asked = self.writer.wakeups.cancel_asked().into_iter();
        let is_own = |(key, claimant): &_| self.writer.live.claimant(*key) == Some(*claimant);
        asked.filter(is_own).map(|(key, _)| key).collect()
    }

    async fn session(&self) -> Result<Arc<Registered>, Error> {
        let session = first_session(&mut self.writer.sessions()).await;
        session.ok_or_else(|| Refused::Stopping.into())
    }

    /// Converts the attempt's `since` to the node's clock, by which its end comes: one clock decides what follows an
    /// end (N30).
    fn by_own_clock(&self, NodeAttempt { running, age, .. }: NodeAttempt) -> RunningAttempt {
        RunningAttempt { since: self.clock.now().before(age), ..running }
    }

    /// An end with its claimant. If this process does not know the attempt, the claimant is nil, and the end is kept as
    /// a late one.
    fn end(&self, done: &Arc<Completion>) -> AttemptEnd {
        let claimant = self.writer.live.claimant((done.job, done.attempt));
        AttemptEnd { done: Arc::clone(done), claimant: claimant.unwrap_or(Uuid::nil()) }
    }

    /// Reads what the handlers get. A payload that cannot be read is read again on another connection, because bytes
    /// can be lost on the way, and again for some time, unless it is damaged. What the claim itself did not see is gone
    /// (R19).
    async fn claimed(&self, claims: NodeClaims) -> Result<Claims, Error> {
        let NodeClaims { number, attempts, due, pause } = claims;
        let due = due.map(|due| self.clock.now().after(due));
        let (whole, gone): (Vec<_>, Vec<_>) =
            attempts.into_iter().partition(|attempt| attempt.has_payload);
        for attempt in gone {
            self.cannot_run(&attempt, Next::Dead(DeadReason::PayloadGone), "the payload is gone");
        }
        let mut payloads = self.payloads(&whole).await?;
        for again in 0..READS_AGAIN {
            // Damage does not pass: once more is enough.
            let is_left = |payload: &io::Result<Claimed>| {
                let why = payload.as_ref().err();
                why.is_some_and(|why| again == 0 || why.kind() != io::ErrorKind::InvalidData)
            };
            if !payloads.iter().any(is_left) {
                break;
            }
            match again {
                0 => self.writer.read_elsewhere(),
                // The next process recovers them.
                _ if self.writer.queue.is_closed() => return Err(Refused::Stopping.into()),
                _ => sleep(PAYLOAD_PAUSE).await,
            }
            let left: Vec<NodeAttempt> = whole
                .iter()
                .zip(&payloads)
                .filter(|(_, payload)| is_left(payload))
                .map(|(attempt, _)| attempt.clone())
                .collect();
            let found = self.payloads(&left).await?;
            let unread = payloads.iter_mut().filter(|payload| is_left(payload));
            unread.zip(found).for_each(|(payload, found)| *payload = found);
        }
        let mut jobs = Vec::with_capacity(whole.len());
        for (attempt, payload) in whole.into_iter().zip(payloads) {
            match payload {
                Ok(claimed) => {
                    jobs.push(Claimed { since: self.by_own_clock(attempt).since, ..claimed });
                }
                Err(why) => {
                    let (reason, detail) = unread(&why);
                    self.cannot_run(&attempt, Next::Held(reason), &detail);
                    if reason == HeldReason::PayloadDamaged {
                        let now = self.clock.now();
                        self.keeping.notify(Notice::of_store(DAMAGED, now, now));
                    }
                }
            }
        }
        Ok(Claims { number, jobs, due, pause })
    }

    /// Holds those of the next jobs that keep a claim from being committed, where the server can never read what it looks
    /// at: otherwise no job of the handler would run any more.
    async fn hold_unclaimable(&self, claim: &Claim) -> Result<(), Error> {
        let most = codec::size(claim.limit).saturating_add(LOOK_FURTHER);
        let mut found = self.writer.unclaimable(&claim.handler, most).await?;
        for _ in 0..READS_AGAIN {
            if found.is_empty() || self.writer.queue.is_closed() {
                return Ok(());
            }
            sleep(PAYLOAD_PAUSE).await;
            let again = self.writer.unclaimable(&claim.handler, most).await?;
            found.retain(|job| again.contains(job));
        }
        if !found.is_empty() {
            tracing::error!(?found, "held: the server cannot read what a claim of them looks at");
            self.keeping.hold_unclaimable(found).await?;
            let now = self.clock.now();
            self.keeping.notify(Notice::of_store(DAMAGED, now, now));
        }
        Ok(())
    }

    /// While the server is away, it tries again: the attempts are live, and nothing else would start them.
    async fn payloads(&self, attempts: &[NodeAttempt]) -> Result<Vec<io::Result<Claimed>>, Error> {
        loop {
            if attempts.is_empty() {
                return Ok(Vec::new());
            }
            match self.writer.payloads(attempts).await {
                Ok(payloads) => {
                    if self.writer.stalls.clear(Stalled::Payloads) {
                        tracing::info!("the payloads of claimed jobs can be read again");
                        self.writer.wakeups.wake_own();
                    }
                    return Ok(payloads);
                }
                // Nothing has begun them, and the next process recovers them.
                Err(why) if self.writer.queue.is_closed() => return Err(why.into()),
                Err(why) => {
                    if !self.writer.stalls.has(Stalled::Payloads) {
                        tracing::warn!(%why, "the payloads of claimed jobs cannot be read");
                    }
                    self.stalled(Stalled::Payloads, why.to_string());
                }
            }
            sleep(PAYLOAD_PAUSE).await;
        }
    }

    fn cannot_run(&self, own: &NodeAttempt, next: Next, detail: &str) {
        let (job, attempt) = own.key();
        tracing::error!(%job, attempt, detail, "a claimed job cannot run");
        settle_soon(&self.writer.queue, AttemptEnd::unstarted(own, next, detail, self.clock.now()));
    }
}

/// What any node does for all of them is a verb of the dispatcher too.
impl Deref for Jobs {
    type Target = Housekeeping;

    fn deref(&self) -> &Housekeeping {
        &self.keeping
    }
}

/// A process sends an end again where it does not know whether it is committed. Where it does not know the claimant, its
/// runner has sent the report again.
fn is_settled(claimant: Uuid, ended: EndResult) -> bool {
    match ended {
        EndResult::Settled(_) => true,
        EndResult::Repeated => !claimant.is_nil(),
        EndResult::Late => false,
    }
}

async fn first_session(
    sessions: &mut watch::Receiver<Option<Arc<Registered>>>,
) -> Option<Arc<Registered>> {
    sessions.wait_for(Option::is_some).await.ok()?.clone()
}
