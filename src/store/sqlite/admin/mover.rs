//! REPLAY and DROP: puts jobs back, makes them, or takes them out, as the operator asks.

use rusqlite::Connection;

use crate::limits::BATCH_JOBS;
use crate::model::{AuditVerb, JobId, Name, State, Timestamp};
use crate::store::border::{
    AuditSubject, BatchResult, Error, JobBatch, NewJob, Replay, Replayed, Verb,
};
use crate::store::decide::conditions::Decided;
use crate::store::decide::job_move::{FoundEvent, FoundJob, Move, make};
use crate::store::sqlite::engine::verb::VerbError;
use crate::store::sqlite::tables::answer::key_of;
use crate::store::sqlite::tables::group::newer_than;
use crate::store::sqlite::tables::job::insert_job;

use super::handle::Admin;
use super::job_move::find_event;

impl Admin {
    pub async fn replay(&self, what: Replay, regardless: bool) -> Result<Replayed, Error> {
        let mut decided = None;
        if !regardless {
            let asked = what.clone();
            let open = move |conn: &Connection| match find(&asked, conn)? {
                Found::Jobs(jobs, _) => Ok(jobs.into_iter().filter_map(FoundJob::open).collect()),
                Found::Missing(event, handler) => Ok(vec![(event.row, handler)]),
            };
            decided = Some(self.decide(self.engine.look_up(open).await?).await?);
        }
        self.change(AuditVerb::Replay, move |tx, now| replay(&what, tx, decided.as_ref(), now))
            .await
    }

    pub async fn drop_job(&self, job: JobId, seen: Option<u32>) -> Result<State, Error> {
        self.change(AuditVerb::Drop, move |tx, now| {
            let found = FoundJob::find(tx, job)?.ok_or(Error::NoJob(job))?;
            found.is_as(seen)?;
            let checked = found.check(tx, Move::Drop)?;
            found.go(tx, checked, now)?;
            Ok((found.state, found.subject(), 1))
        })
        .await
    }

    pub async fn move_batch(&self, batch: JobBatch) -> Result<BatchResult, Error> {
        let mut decided = None;
        if batch.jobs.len() > BATCH_JOBS {
            return Err(Error::LargeBatch { jobs: batch.jobs.len(), most: BATCH_JOBS });
        }
        if batch.verb == Verb::Replay && !batch.regardless {
            let jobs: Vec<JobId> = batch.jobs.iter().map(|(job, _)| *job).collect();
            let open = move |conn: &Connection| {
                let mut open = Vec::new();
                for job in jobs {
                    open.extend(FoundJob::find(conn, job)?.and_then(FoundJob::open));
                }
                Ok(open)
            };
            decided = Some(self.decide(self.engine.read(open).await?).await?);
        }
        let verb = match batch.verb {
            Verb::Replay => AuditVerb::Replay,
            Verb::Drop => AuditVerb::Drop,
        };
        self.change(verb, move |tx, now| move_batch(tx, &batch, decided.as_ref(), now)).await
    }
}

/// What a replay is about.
enum Found {
    /// The jobs to put back, and the source where an event was asked for.
    Jobs(Vec<FoundJob>, Option<Name>),
    /// The event that has no job of this handler.
    Missing(FoundEvent, Name),
}

/// The event's held and dead jobs. With a handler its job only, which may have succeeded, and which is to be made
/// where the event has none.
fn find(what: &Replay, conn: &Connection) -> Result<Found, VerbError> {
    let (source, event, handler) = match what {
        Replay::Job(job, seen) | Replay::NewKey(job, seen) => {
            let found = FoundJob::find(conn, *job)?.ok_or(Error::NoJob(*job))?;
            found.is_as(*seen)?;
            return Ok(Found::Jobs(vec![found], None));
        }
        Replay::Event { source, event, handler } => (source.as_ref(), event, handler.as_ref()),
    };
    let event = find_event(conn, source, event)?;
    if event.removed {
        return Err(event.gone().into());
    }
    let mut jobs = FoundJob::of_event(conn, event.row, handler)?;
    match handler {
        Some(handler) if jobs.is_empty() => return Ok(Found::Missing(event, handler.clone())),
        Some(_) => {}
        None => jobs.retain(|job| matches!(job.state, State::Held | State::Dead)),
    }
    Ok(Found::Jobs(jobs, Some(event.source)))
}

fn replay(
    what: &Replay,
    tx: &Connection,
    decided: Option<&Decided>,
    now: Timestamp,
) -> Result<(Replayed, AuditSubject, u64), VerbError> {
    let mut subject = AuditSubject::default();
    if let Replay::Event { event, handler, .. } = what {
        (subject.event, subject.handler) = (Some(event.clone()), handler.clone());
    }
    let jobs = match find(what, tx)? {
        Found::Jobs(jobs, source) => {
            subject.source = source;
            jobs
        }
        Found::Missing(event, handler) => {
            let made = make_job(tx, &event, &handler, decided, now)?;
            subject.source = Some(event.source);
            subject.jobs = made.jobs.iter().map(|job| (*job, 0)).collect();
            return Ok((made, subject, 1));
        }
    };
    let verb = Move::Replay(decided);
    // A refusal does not roll back, so all are checked before the first is moved.
    let checked = jobs.iter().map(|job| job.check(tx, verb)).collect::<Result<Vec<_>, _>>()?;
    let (mut replayed, count) = (Replayed::default(), jobs.len() as u64);
    for (job, checked) in jobs.into_iter().zip(checked) {
        let mut key = job.job;
        match what {
            Replay::Event { .. } => subject.jobs.push((key, job.attempt)),
            Replay::Job(..) => subject = job.subject(),
            Replay::NewKey(..) => {
                key = job.replace_key(tx, now)?;
                subject = AuditSubject { new_key: Some(key), ..job.subject() };
            }
        }
        match job.go(tx, checked, now)? {
            State::Dropped => replayed.dropped.push(key),
            _ => replayed.jobs.push(key),
        }
    }
    Ok((replayed, subject, count))
}

fn move_batch(
    tx: &Connection,
    batch: &JobBatch,
    decided: Option<&Decided>,
    now: Timestamp,
) -> Result<(BatchResult, AuditSubject, u64), VerbError> {
    let mut moved = BatchResult::default();
    let mut jobs = Vec::new();
    let verb = match batch.verb {
        Verb::Replay => Move::Replay(decided),
        Verb::Drop => Move::Drop,
    };
    for (job, attempt) in &batch.jobs {
        let found = FoundJob::find(tx, *job)?
            .filter(|found| batch.is_as_chosen(found.state, found.attempt, *attempt));
        let Some(found) = found else {
            moved.changed += 1;
            continue;
        };
        match found.check(tx, verb) {
            Ok(checked) => {
                let state = found.go(tx, checked, now)?;
                jobs.push((*job, *attempt));
                moved.count(batch.verb, found.handler, state);
            }
            Err(VerbError::Refused(why)) => moved.pass_over(&why),
            Err(error) => return Err(error),
        }
    }
    let count = jobs.len() as u64;
    Ok((moved, batch.subject(jobs), count))
}

/// Makes the job that the event lacks, where its payload is still kept.
fn make_job(
    tx: &Connection,
    event: &FoundEvent,
    handler: &Name,
    decided: Option<&Decided>,
    now: Timestamp,
) -> Result<Replayed, VerbError> {
    let (mut routed, mut newer) = (Some(NewJob::of(handler.clone())), None);
    if let Some(decided) = decided {
        routed = decided.job(event.row, handler);
        if let Some(job) = &routed {
            newer = newer_than(tx, job, event.row)?;
        }
    }
    let job = make(handler, event, key_of(tx, event.row)?, routed, newer)?;
    Ok(Replayed { jobs: vec![insert_job(tx, event.row, &job, None, now)?], dropped: Vec::new() })
}
