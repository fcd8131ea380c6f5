//! REPLAY and DROP: puts jobs back, makes them, or takes them out, as the operator asks.
//!
//! The locks come first, in the order of N8; then each job is decided by what is found behind them, and moved; at last
//! the groups go on that were left (N35, N36).

use std::sync::Arc;

use uuid::Uuid;

use crate::limits::BATCH_JOBS;
use crate::model::{AuditVerb, JobId, Name, State, Timestamp};
use crate::routing::{NewJob, Router};
use crate::store::border::{AuditSubject, BatchResult, Error, JobBatch, Replay, Replayed, Verb};
use crate::store::decide::conditions::Decided;
use crate::store::decide::job_move::{FoundEvent, make};

use super::super::admin::handle::Admin;
use super::super::claim::uuid;
use super::super::flight::{Flight, Param};
use super::audit::Operation;
use super::change::{Stop, ask};
use super::conditions::{decide, groups};
use super::found::{
    Groups, JOBS_OF_EVENT, LockedJob, facts, find_event, group_of, job_id, lock_jobs, lock_rows,
    text,
};
use super::job_move::{Move, release};
use super::new_job::{insert_job, latest};
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
        self.change(ReplayOf { what, router }).await
    }

    /// DROP: ready, waiting, held or dead to dropped. With `seen` the job is left alone if another attempt is its last.
    /// Returns the state it was in; a refusal has changed nothing.
    pub async fn drop_job(&self, job: JobId, seen: Option<u32>) -> Result<State, Error> {
        self.change(DropOf { job, seen }).await
    }

    /// REPLAY or DROP of a batch, in one transaction. A job that has changed since it was chosen stays as it is.
    pub async fn move_batch(&self, batch: JobBatch) -> Result<BatchResult, Error> {
        if batch.jobs.len() > BATCH_JOBS {
            return Err(Error::LargeBatch { jobs: batch.jobs.len(), most: BATCH_JOBS });
        }
        let is_decided = batch.verb == Verb::Replay && !batch.regardless;
        let router = is_decided.then(|| self.router.load_full());
        self.change(BatchOf { batch, router }).await
    }
}

/// `router`: None for a replay regardless.
async fn route(
    flight: &mut Flight,
    router: Option<&Arc<Router>>,
    jobs: &[JobId],
) -> Result<Option<Decided>, Stop> {
    let Some(router) = router else { return Ok(None) };
    let ids: Vec<Uuid> = jobs.iter().map(uuid).collect();
    let mut open = Vec::new();
    for row in ask(flight, OPEN, vec![Box::new(ids)]).await? {
        open.push((row.try_get(0)?, text(row, 1)?));
    }
    decide(flight, router, open).await.map(Some)
}

fn joined(decided: Option<&Decided>) -> Groups {
    decided.map(groups).unwrap_or_default()
}

/// Locks one job.
async fn lock_job(flight: &mut Flight, job: JobId, groups: Groups) -> Result<LockedJob, Stop> {
    let found = lock_jobs(flight, &[job], groups).await?.pop().flatten();
    Ok(found.ok_or(Error::NoJob(job))?)
}

struct ReplayOf {
    what: Replay,
    router: Option<Arc<Router>>,
}

impl Operation for ReplayOf {
    type Done = Replayed;

    fn verb(&self) -> AuditVerb {
        AuditVerb::Replay
    }

    async fn operate(
        &self,
        flight: &mut Flight,
        now: Timestamp,
    ) -> Result<(Replayed, AuditSubject, u64), Stop> {
        roll_call::check(flight).await?;
        let (source, event, handler) = match &self.what {
            Replay::Job(job, seen) | Replay::NewKey(job, seen) => {
                let decided = route(flight, self.router.as_ref(), &[*job]).await?;
                let found = lock_job(flight, *job, joined(decided.as_ref())).await?;
                found.found.is_as(*seen)?;
                let subject = found.subject();
                return self.put_back(flight, &[found], decided.as_ref(), subject, now).await;
            }
            Replay::Event { source, event, handler } => (source, event, handler),
        };
        let found = find_event(flight, source.as_ref(), event).await?;
        if found.removed {
            return Err(found.gone().into());
        }
        let jobs = jobs_of(flight, found.row, handler.as_ref()).await?;
        let subject = AuditSubject {
            event: Some(event.clone()),
            source: Some(found.source.clone()),
            handler: handler.clone(),
            ..AuditSubject::default()
        };
        if let (Some(handler), true) = (handler, jobs.is_empty()) {
            let made = self.make(flight, &found, handler, now).await?;
            return Ok((
                Replayed { jobs: vec![made], dropped: Vec::new() },
                AuditSubject { jobs: vec![(made, 0)], ..subject },
                1,
            ));
        }
        let decided = route(flight, self.router.as_ref(), &jobs).await?;
        let locked = lock_jobs(flight, &jobs, joined(decided.as_ref())).await?;
        let mut locked: Vec<LockedJob> = locked.into_iter().flatten().collect();
        if handler.is_none() {
            locked.retain(|job| matches!(job.found.state, State::Held | State::Dead));
        }
        let jobs = locked.iter().map(|job| (job.found.job, job.found.attempt)).collect();
        let subject = AuditSubject { jobs, ..subject };
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
    ) -> Result<(Replayed, AuditSubject, u64), Stop> {
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
        release(flight, replayed.jobs.iter().chain(&replayed.dropped)).await;
        Ok((replayed, subject, jobs.len() as u64))
    }

    /// Makes the job that the event lacks, where its payload is still kept.
    async fn make(
        &self,
        flight: &mut Flight,
        event: &FoundEvent,
        handler: &Name,
        now: Timestamp,
    ) -> Result<JobId, Stop> {
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
        insert_job(flight, event.row, &job, None, now).await
    }
}

/// The held and dead jobs of an event, or its one job of a handler.
async fn jobs_of(
    flight: &mut Flight,
    event: i64,
    handler: Option<&Name>,
) -> Result<Vec<JobId>, Stop> {
    let handler = handler.map(|handler| handler.as_str().to_owned());
    let params: Vec<Param> = vec![Box::new(event), Box::new(handler)];
    ask(flight, JOBS_OF_EVENT, params).await?.iter().map(|row| job_id(row, 0)).collect()
}

struct DropOf {
    job: JobId,
    seen: Option<u32>,
}

impl Operation for DropOf {
    type Done = State;

    fn verb(&self) -> AuditVerb {
        AuditVerb::Drop
    }

    async fn operate(
        &self,
        flight: &mut Flight,
        _: Timestamp,
    ) -> Result<(State, AuditSubject, u64), Stop> {
        let job = lock_job(flight, self.job, Groups::new()).await?;
        job.found.is_as(self.seen)?;
        let checked = job.check(flight, Move::Drop).await?;
        job.go(flight, checked).await?;
        release(flight, [self.job].iter()).await;
        Ok((job.found.state, job.subject(), 1))
    }
}

struct BatchOf {
    batch: JobBatch,
    router: Option<Arc<Router>>,
}

impl Operation for BatchOf {
    type Done = BatchResult;

    fn verb(&self) -> AuditVerb {
        match self.batch.verb {
            Verb::Replay => AuditVerb::Replay,
            Verb::Drop => AuditVerb::Drop,
        }
    }

    async fn operate(
        &self,
        flight: &mut Flight,
        _: Timestamp,
    ) -> Result<(BatchResult, AuditSubject, u64), Stop> {
        let JobBatch { verb, state, jobs, .. } = &self.batch;
        if *verb == Verb::Replay {
            roll_call::check(flight).await?;
        }
        let ids: Vec<JobId> = jobs.iter().map(|(job, _)| *job).collect();
        let decided = route(flight, self.router.as_ref(), &ids).await?;
        let by = match verb {
            Verb::Replay => Move::Replay(decided.as_ref()),
            Verb::Drop => Move::Drop,
        };
        let mut result = BatchResult::default();
        let mut subject = AuditSubject { state: Some(*state), ..AuditSubject::default() };
        let locked = lock_jobs(flight, &ids, joined(decided.as_ref())).await?;
        // One after the other: a job that was put back makes older ones of its group out of date.
        for ((job, attempt), found) in jobs.iter().zip(locked) {
            let found = found.filter(|LockedJob { found, .. }| {
                found.state == *state
                    && found.attempt == *attempt
                    && matches!(found.state, State::Held | State::Dead)
            });
            let Some(found) = found else {
                result.changed += 1;
                continue;
            };
            match found.check(flight, by).await {
                Ok(checked) => {
                    let after = found.go(flight, checked).await?;
                    subject.jobs.push((*job, *attempt));
                    if *verb == Verb::Replay && after == State::Dropped {
                        result.unwanted += 1;
                    } else {
                        *result.done.entry(found.found.handler).or_default() += 1;
                    }
                }
                Err(Stop::Refused(Error::Undecided { .. })) => result.undecided += 1,
                Err(Stop::Refused(Error::Superseded { .. })) => result.superseded += 1,
                Err(Stop::Refused(Error::PayloadGone { .. } | Error::JobsGone { .. })) => {
                    result.payload_gone += 1;
                }
                Err(Stop::Refused(_)) => result.changed += 1,
                Err(stop) => return Err(stop),
            }
        }
        release(flight, subject.jobs.iter().map(|(job, _)| job)).await;
        let count = subject.jobs.len() as u64;
        Ok((result, subject, count))
    }
}
