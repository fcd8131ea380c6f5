//! REPLAY and DROP: puts jobs back, makes them, or takes them out, as the operator asks.
//!
//! The locks come first, in the order of N8; then each job is decided by what is found behind them, and moved; at last
//! the groups go on that were left (N35, N36).

use std::sync::Arc;

use crate::limits::BATCH_JOBS;
use crate::model::{AuditVerb, JobId, Name, State, Timestamp};
use crate::routing::{NewJob, Router};
use crate::store::border::{AuditSubject, BatchResult, Error, JobBatch, Replay, Replayed, Verb};
use crate::store::columns::column;
use crate::store::decide::conditions::Decided;
use crate::store::decide::job_move::{FoundEvent, Move, make};

use super::super::admin::handle::Admin;
use super::super::flight::Flight;
use super::super::new_event::{Groups, group_of};
use super::super::notices::NodeNotices;
use super::super::params::params;
use super::super::stop::{Stop, ask};
use super::audit::{Operated, Operation};
use super::conditions::{decide, groups};
use super::found::{LockedJob, facts, find_event, jobs_of, lock_job, lock_jobs, lock_rows};
use super::job_move::release;
use super::new_job::{insert_jobs, latest};
use super::roll_call;

/// The jobs that are decided again before they are put back.
const OPEN: &str = "
    SELECT event, handler FROM job WHERE id = ANY ($1::uuid[]) AND state = 'held' AND attempt = 0
        AND detail IS NOT NULL";

impl Admin {
    /// REPLAY: held, dead or succeeded to ready. Returns the jobs put back, which may be none where an event has no held
    /// or dead job. All or nothing: a refusal has changed nothing. A job that is held because its condition could not be
    /// decided is decided again, and dropped where the condition does not hold. `regardless` replays also a job whose
    /// condition cannot be decided or does not hold, and one whose group has gone on to a newer event where only the
    /// latest counts.
    pub async fn replay(&self, what: Replay, regardless: bool) -> Result<Replayed, Error> {
        let router = (!regardless).then(|| self.router.load_full());
        self.change(AuditVerb::Replay, ReplayOf { what, router }).await
    }

    /// DROP: ready, waiting, held or dead to dropped. With `seen` the job is left alone if another attempt is its last.
    /// Returns the state it was in; a refusal has changed nothing.
    pub async fn drop_job(&self, job: JobId, seen: Option<u32>) -> Result<State, Error> {
        self.change(AuditVerb::Drop, DropOf { job, seen }).await
    }

    /// REPLAY or DROP of a batch, in one transaction. A job that has changed since it was chosen stays as it is.
    pub async fn move_batch(&self, batch: JobBatch) -> Result<BatchResult, Error> {
        if batch.jobs.len() > BATCH_JOBS {
            return Err(Error::LargeBatch { jobs: batch.jobs.len(), most: BATCH_JOBS });
        }
        let is_decided = batch.verb == Verb::Replay && !batch.regardless;
        let router = is_decided.then(|| self.router.load_full());
        let verb = match batch.verb {
            Verb::Replay => AuditVerb::Replay,
            Verb::Drop => AuditVerb::Drop,
        };
        self.change(verb, BatchOf { batch, router }).await
    }
}

/// Decides jobs again, and locks them, the groups that they join, and their events; `router` is None for a replay
/// regardless. The jobs are in the order of `ids`.
async fn lock_decided(
    flight: &mut Flight,
    router: Option<&Arc<Router>>,
    ids: &[JobId],
) -> Result<(Option<Decided>, Vec<Option<LockedJob>>), Stop> {
    let (mut decided, mut joined) = (None, Groups::new());
    if let Some(router) = router {
        let rows = ask(flight, OPEN, params![ids.to_vec()]).await?;
        let open = rows.iter().map(|row| Ok((column(row, "event")?, column(row, "handler")?)));
        let open = open.collect::<Result<_, Error>>()?;
        let all = decide(flight, router, open).await?;
        joined = groups(&all);
        decided = Some(all);
    }
    Ok((decided, lock_jobs(flight, ids, joined).await?))
}

struct ReplayOf {
    what: Replay,
    router: Option<Arc<Router>>,
}

impl Operation for ReplayOf {
    type Done = Replayed;

    async fn operate(&self, flight: &mut Flight, now: Timestamp) -> Operated<Replayed> {
        roll_call::check(flight).await?;
        let (source, event, handler) = match &self.what {
            Replay::Job(job, seen) | Replay::NewKey(job, seen) => {
                let (decided, mut found) =
                    lock_decided(flight, self.router.as_ref(), &[*job]).await?;
                let found = found.pop().flatten().ok_or(Error::NoJob(*job))?;
                found.found.is_as(*seen)?;
                let subject = found.found.subject();
                return self.put_back(flight, &[found], decided.as_ref(), subject, now).await;
            }
            Replay::Event { source, event, handler } => (source, event, handler),
        };
        let found = find_event(flight, source.as_ref(), event).await?;
        if found.removed {
            return Err(found.gone().into());
        }
        let jobs = jobs_of(flight, found.row, handler.as_ref()).await?;
        let mut subject = found.subject(handler.as_ref());
        if let (Some(handler), true) = (&subject.handler, jobs.is_empty()) {
            let jobs = self.make(flight, &found, handler, now).await?;
            subject.jobs = jobs.iter().map(|job| (*job, 0)).collect();
            let replayed = Replayed { jobs, ..Replayed::default() };
            return Ok((replayed, subject, 1));
        }
        let (decided, locked) = lock_decided(flight, self.router.as_ref(), &jobs).await?;
        let mut locked: Vec<LockedJob> = locked.into_iter().flatten().collect();
        if subject.handler.is_none() {
            locked.retain(|job| matches!(job.found.state, State::Held | State::Dead));
        }
        subject.jobs = locked.iter().map(|job| (job.found.job, job.found.attempt)).collect();
        self.put_back(flight, &locked, decided.as_ref(), subject, now).await
    }
}

impl ReplayOf {
    /// All are checked before the first is moved: of an event, no two are of one group.
    async fn put_back(
        &self,
        flight: &mut Flight,
        jobs: &[LockedJob],
        decided: Option<&Decided>,
        mut subject: AuditSubject,
        now: Timestamp,
    ) -> Operated<Replayed> {
        let mut checked = Vec::with_capacity(jobs.len());
        for job in jobs {
            checked.push(job.check(flight, Move::Replay(decided)).await?);
        }
        let mut replayed = Replayed::default();
        for (job, checked) in jobs.iter().zip(checked) {
            let mut key = job.found.job;
            if let Replay::NewKey(..) = self.what {
                key = job.replace_key(flight, now).await?;
                subject.new_key = Some(key);
            }
            match job.go(flight, checked).await? {
                State::Dropped => replayed.dropped.push(key),
                _ => replayed.jobs.push(key),
            }
        }
        release(flight, [&replayed.jobs[..], &replayed.dropped].concat()).await;
        Ok((replayed, subject, jobs.len() as u64))
    }

    /// Makes the job that the event lacks, where its payload is still kept.
    async fn make(
        &self,
        flight: &mut Flight,
        event: &FoundEvent,
        handler: &Name,
        now: Timestamp,
    ) -> Result<Vec<JobId>, Stop> {
        let mut routed = Some(NewJob::of(handler.clone()));
        if let Some(router) = &self.router {
            let open = vec![(event.row, handler.clone())];
            routed = decide(flight, router, open).await?.job(event.row, handler);
        }
        let groups = routed.as_ref().and_then(group_of).into_iter().collect();
        lock_rows(flight, &groups, vec![event.row]).await;
        let of_group = routed.as_ref().and_then(latest).filter(|_| self.router.is_some());
        let facts = facts(flight, event.row, handler, of_group).await?;
        if !jobs_of(flight, event.row, Some(handler)).await?.is_empty() {
            return Err(Stop::Changed);
        }
        let job = make(handler, &facts.event, facts.key, routed, facts.newer)?;
        // The operator sees by the answer what is held.
        let nobody = NodeNotices::default();
        insert_jobs(flight, &[(event.row, job, None)], now, &nobody).await
    }
}

struct DropOf {
    job: JobId,
    seen: Option<u32>,
}

impl Operation for DropOf {
    type Done = State;

    async fn operate(&self, flight: &mut Flight, _: Timestamp) -> Operated<State> {
        let job = lock_job(flight, self.job).await?;
        job.found.is_as(self.seen)?;
        let checked = job.check(flight, Move::Drop).await?;
        job.go(flight, checked).await?;
        release(flight, vec![self.job]).await;
        Ok((job.found.state, job.found.subject(), 1))
    }
}

struct BatchOf {
    batch: JobBatch,
    router: Option<Arc<Router>>,
}

impl Operation for BatchOf {
    type Done = BatchResult;

    async fn operate(&self, flight: &mut Flight, _: Timestamp) -> Operated<BatchResult> {
        let (verb, jobs) = (self.batch.verb, &self.batch.jobs);
        if verb == Verb::Replay {
            roll_call::check(flight).await?;
        }
        let ids: Vec<JobId> = jobs.iter().map(|(job, _)| *job).collect();
        let (decided, locked) = lock_decided(flight, self.router.as_ref(), &ids).await?;
        let by = match verb {
            Verb::Replay => Move::Replay(decided.as_ref()),
            Verb::Drop => Move::Drop,
        };
        let (mut result, mut moved) = (BatchResult::default(), Vec::new());
        // One after the other: a job that was put back makes older ones of its group out of date.
        for (chosen @ (_, attempt), found) in jobs.iter().zip(locked) {
            let found = found.filter(|LockedJob { found, .. }| {
                self.batch.is_as_chosen(found.state, found.attempt, *attempt)
            });
            let Some(found) = found else {
                result.changed += 1;
                continue;
            };
            match found.check(flight, by).await {
                Ok(checked) => {
                    let after = found.go(flight, checked).await?;
                    result.count(verb, found.found.handler, after);
                    moved.push(*chosen);
                }
                Err(Stop::Refused(why)) => result.pass_over(&why),
                Err(stop) => return Err(stop),
            }
        }
        release(flight, moved.iter().map(|(job, _)| *job).collect()).await;
        let count = moved.len() as u64;
        Ok((result, self.batch.subject(moved), count))
    }
}
