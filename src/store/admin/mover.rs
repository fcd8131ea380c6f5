//! REPLAY and DROP: puts jobs back, makes them, or takes them out, as the operator asks.

use std::collections::BTreeMap;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::limits::BATCH_JOBS;
use crate::model::{AuditVerb, EventId, JobId, Name, State, Timestamp};
use crate::store::border::{AuditSubject, Error, NewJob};
use crate::store::decide::job_move::{FoundEvent, FoundJob, make};
use crate::store::engine::verb::VerbError;
use crate::store::tables::answer::key_of;
use crate::store::tables::group::newer_than;
use crate::store::tables::job::insert_job;

use super::conditions::Decided;
use super::handle::Admin;
use super::job_move::{Move, find_event};
use super::selection::Verb;

/// What to put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// One job, from held, dead or succeeded. With an attempt it is left alone if another is its last.
    Job(JobId, Option<u32>),
    /// The same under a new key; the old one is recorded.
    NewKey(JobId, Option<u32>),
    /// The held and dead jobs of one event.
    Event {
        /// The source, needed where several have an event of this id.
        source: Option<Name>,
        event: EventId,
        /// Only this handler's job, which is made if there is none, and which may have succeeded.
        handler: Option<Name>,
    },
}

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The jobs put back or made, by their keys.
    pub jobs: Vec<JobId>,
    /// The jobs dropped instead: their condition, which could not be decided before, does not hold.
    pub dropped: Vec<JobId>,
}

/// A batch of chosen jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobBatch {
    pub verb: Verb,
    /// The state they were chosen in: held or dead.
    pub state: State,
    /// For a replay: also where a newer event has taken a job's place, or its handler's condition does not hold or
    /// cannot be decided.
    #[serde(default)]
    pub regardless: bool,
    /// At most 200 ([`BATCH_JOBS`]), each with its last attempt when it was chosen.
    pub jobs: Vec<(JobId, u32)>,
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchResult {
    /// Jobs put back or dropped, by handler.
    pub done: BTreeMap<Name, u64>,
    /// Passed over: in another state, after another attempt, answered, or gone.
    pub changed: u64,
    /// Passed over: retention has deleted the payload.
    pub payload_gone: u64,
    /// Dropped: the handler's condition, which could not be decided before, does not hold.
    pub unwanted: u64,
    /// Passed over: the handler's condition still cannot be decided.
    pub undecided: u64,
    /// Passed over: a newer event of their group has run or is to run, where only the latest counts.
    pub superseded: u64,
}

impl BatchResult {
    pub fn add(&mut self, more: BatchResult) {
        for (handler, jobs) in more.done {
            *self.done.entry(handler).or_default() += jobs;
        }
        self.changed += more.changed;
        self.payload_gone += more.payload_gone;
        self.unwanted += more.unwanted;
        self.undecided += more.undecided;
        self.superseded += more.superseded;
    }
}

impl Admin {
    /// REPLAY: held, dead or succeeded to ready. Returns the jobs put back, which may be none where
    /// an event has no held or dead job. All or nothing: an error has changed nothing. A job that is held because its
    /// condition could not be decided is decided again, and dropped where the condition does not hold. `regardless`
    /// replays also a job whose condition cannot be decided or does not hold, and one whose group has gone on to a newer
    /// event where only the latest counts.
    pub async fn replay(&self, what: Replay, regardless: bool) -> Result<Replayed, Error> {
        let mut decided = None;
        if !regardless {
            let asked = what.clone();
            let open = move |conn: &Connection| match asked.find(conn)? {
                Found::Jobs(jobs, _) => Ok(jobs.into_iter().filter_map(FoundJob::open).collect()),
                Found::Missing(event, handler) => Ok(vec![(event.row, handler)]),
            };
            decided = Some(self.decide(self.engine.look_up(open).await?).await?);
        }
        self.change(AuditVerb::Replay, move |tx, now| what.run(tx, decided.as_ref(), now)).await
    }

    /// DROP: ready, waiting, held or dead to dropped. With `seen` the job is left alone if another attempt is its last.
    /// Returns the state it was in; an error has changed nothing.
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

    /// REPLAY or DROP of a batch, in one transaction. A job that has changed since it was chosen stays as it
    /// is.
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

impl Replay {
    /// The event's held and dead jobs. With a handler its job only, which may have succeeded, and which is to be made
    /// where the event has none.
    fn find(&self, conn: &Connection) -> Result<Found, VerbError> {
        let (source, event, handler) = match self {
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

    fn run(
        &self,
        tx: &Connection,
        decided: Option<&Decided>,
        now: Timestamp,
    ) -> Result<(Replayed, AuditSubject, u64), VerbError> {
        let mut subject = AuditSubject::default();
        if let Replay::Event { event, handler, .. } = self {
            (subject.event, subject.handler) = (Some(event.clone()), handler.clone());
        }
        let jobs = match self.find(tx)? {
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
            match self {
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
}

fn move_batch(
    tx: &Connection,
    batch: &JobBatch,
    decided: Option<&Decided>,
    now: Timestamp,
) -> Result<(BatchResult, AuditSubject, u64), VerbError> {
    let mut moved = BatchResult::default();
    let mut subject = AuditSubject { state: Some(batch.state), ..AuditSubject::default() };
    let verb = match batch.verb {
        Verb::Replay => Move::Replay(decided),
        Verb::Drop => Move::Drop,
    };
    for (job, attempt) in &batch.jobs {
        let found = FoundJob::find(tx, *job)?.filter(|found| {
            found.state == batch.state
                && found.attempt == *attempt
                && matches!(found.state, State::Held | State::Dead)
        });
        let Some(found) = found else {
            moved.changed += 1;
            continue;
        };
        match found.check(tx, verb) {
            Ok(checked) => {
                let state = found.go(tx, checked, now)?;
                subject.jobs.push((*job, *attempt));
                if batch.verb == Verb::Replay && state == State::Dropped {
                    moved.unwanted += 1;
                } else {
                    *moved.done.entry(found.handler).or_default() += 1;
                }
            }
            Err(VerbError::Refused(Error::Undecided { .. })) => moved.undecided += 1,
            Err(VerbError::Refused(Error::Superseded { .. })) => moved.superseded += 1,
            Err(VerbError::Refused(Error::PayloadGone { .. } | Error::JobsGone { .. })) => {
                moved.payload_gone += 1;
            }
            Err(VerbError::Refused(_)) => moved.changed += 1,
            Err(error) => return Err(error),
        }
    }
    let count = subject.jobs.len() as u64;
    Ok((moved, subject, count))
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
