//! REPLAY, DROP and MAKE: puts jobs back, takes them out, or creates them, as the operator asks.
//!
//! What must stay true: a move starts only from the states that its verb names; a job that has answered its caller,
//! or whose payload is gone, never runs again; a running job is never dropped, since its attempt would end
//! unseen (R19). A replayed job keeps its key (R22) unless a new one is asked for, and its attempt numbers go
//! on. A held job keeps its payload until it is resolved or dropped (S12).

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::limits::BATCH_JOBS;
use crate::model::{DropReason, EventId, JobId, Name, State, Timestamp};
use crate::store::border::{Error, Group, NewJob, Newer};
use crate::store::engine::verb::VerbError;
use crate::store::tables::answer::{KeyOf, key_of};
use crate::store::tables::codec;
use crate::store::tables::codec::change_one;
use crate::store::tables::group::{self, GroupOf};
use crate::store::tables::job::{insert_job, put_back};

use super::decide::Decided;
use super::handle::Admin;
use super::list::{by_id, sources};
use super::selection::{Backfill, BackfillCursor, EventCandidate, Verb};

/// What to put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// One job, from held, dead or succeeded.
    Job(JobId),
    /// The same under a new key; the old one is recorded.
    NewKey(JobId),
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

impl Replayed {
    fn add(&mut self, job: JobId, state: State) {
        let to = if state == State::Dropped { &mut self.dropped } else { &mut self.jobs };
        to.push(job);
    }
}

/// A batch of chosen jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobBatch {
    pub verb: Verb,
    /// The state they were chosen in: held or dead.
    pub state: State,
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

/// What one step did with the events that the handler wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillResult {
    /// Jobs made, the held ones included.
    pub made: u64,
    /// Of those, held: accepting the event would have held them.
    pub held: u64,
    /// Events that have a job of this handler already, events whose jobs were removed with their payload (some
    /// handler had them), and requests that their one handler answers.
    pub present: u64,
    /// Events skipped because their payload has been deleted and no job of theirs is known.
    pub payload_gone: u64,
    /// Events for which the handler's condition does not hold.
    pub unwanted: u64,
    /// Events in whose group a newer one has run or is to run, where only the latest counts.
    pub superseded: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<BackfillCursor>,
}

impl Admin {
    /// REPLAY: held, dead or succeeded to ready. Returns the jobs put back, which may be none where
    /// an event has no held or dead job. All or nothing: an error has changed nothing. A job that is held because its
    /// condition could not be decided is decided again, and dropped where the condition does not hold.
    pub async fn replay(&self, what: Replay) -> Result<Replayed, Error> {
        self.replay_with(what, false).await
    }

    /// REPLAY, `regardless` also of a job whose condition cannot be decided or does not hold, and of one whose group has
    /// gone on to a newer event where only the latest counts.
    pub async fn replay_with(&self, what: Replay, regardless: bool) -> Result<Replayed, Error> {
        let mut decided = Decided::default();
        if !regardless {
            let asked = what.clone();
            decided = self.decide(self.engine.look_up(move |conn| asked.open(conn)).await?).await?;
        }
        self.engine
            .change(move |tx, now| {
                let verb = Move::Replay { decided: &decided, regardless };
                match &what {
                    Replay::Job(job) => replay_job(tx, *job, verb, false, now),
                    Replay::NewKey(job) => replay_job(tx, *job, verb, true, now),
                    Replay::Event { source, event, handler } => {
                        replay_event(tx, source.as_ref(), event, handler.as_ref(), verb, now)
                    }
                }
            })
            .await
    }

    /// DROP: ready, waiting, held or dead to dropped. Returns the state it was in; an error has
    /// changed nothing.
    pub async fn drop_job(&self, job: JobId) -> Result<State, Error> {
        self.engine.change(move |tx, now| drop_job(tx, job, now)).await
    }

    /// REPLAY or DROP of a batch, in one transaction. A job that has changed since it was chosen stays as it
    /// is.
    pub async fn move_batch(&self, batch: JobBatch) -> Result<BatchResult, Error> {
        let mut decided = Decided::default();
        if batch.jobs.len() > BATCH_JOBS {
            return Err(Error::LargeBatch { jobs: batch.jobs.len(), most: BATCH_JOBS });
        }
        if batch.verb == Verb::Replay {
            let jobs: Vec<JobId> = batch.jobs.iter().map(|(job, _)| *job).collect();
            let open = move |conn: &Connection| {
                let mut open = Vec::new();
                for job in jobs {
                    open.extend(FoundJob::find(conn, job)?.and_then(FoundJob::open));
                }
                Ok(open)
            };
            decided = self.decide(self.engine.read(open).await?).await?;
        }
        self.engine.change(move |tx, now| move_batch(tx, &batch, &decided, now)).await
    }

    /// REPLAY --handler: makes the jobs that are missing among the next events, or only counts them.
    /// Call again with the answer's `next` until it is none. Unless it only counts, it is refused
    /// like an accept while there is too little space.
    pub async fn make_missing(&self, ask: Backfill) -> Result<BackfillResult, Error> {
        let place = match ask.from {
            Some(place) => place,
            None => self.beginning(ask.since).await?,
        };
        let asked = ask.clone();
        let open = move |conn: &Connection| {
            let missing = |event: &EventCandidate| event.payload_kept && !event.present;
            let events = asked.next(conn, place)?.0.into_iter().filter(missing);
            Ok(events.map(|event| (event.row, asked.handler.clone())).collect())
        };
        let decided = self.decide(self.engine.read(open).await?).await?;
        if ask.dry_run {
            let now = self.engine.clock.now();
            return self
                .engine
                .read(move |conn| make_missing(conn, &ask, place, &decided, now))
                .await;
        }
        self.engine.ready()?;
        self.engine.change(move |tx, now| Ok(make_missing(tx, &ask, place, &decided, now)?)).await
    }
}

impl Replay {
    /// The jobs, there or to be made, that have to be decided first.
    fn open(&self, conn: &Connection) -> Result<Vec<(i64, Name)>, VerbError> {
        let (source, event, handler) = match self {
            Replay::Job(job) | Replay::NewKey(job) => {
                let found = FoundJob::find(conn, *job)?;
                return Ok(found.and_then(FoundJob::open).into_iter().collect());
            }
            Replay::Event { source, event, handler } => (source.as_ref(), event, handler.as_ref()),
        };
        let event = FoundEvent::find(conn, source, event)?;
        let jobs = event.jobs(conn, handler)?;
        let made = handler.filter(|_| jobs.is_empty()).map(|handler| (event.row, handler.clone()));
        Ok(jobs.into_iter().filter_map(FoundJob::open).chain(made).collect())
    }
}

/// What is done to a job.
#[derive(Clone, Copy)]
enum Move<'d> {
    Replay {
        decided: &'d Decided,
        /// Also where only the latest event of the job's group counts, and it is not of the latest.
        regardless: bool,
    },
    Drop,
}

/// A job as the transaction finds it.
struct FoundJob {
    row: i64,
    job: JobId,
    event: i64,
    handler: Name,
    state: State,
    attempt: u32,
    /// It is of a group.
    grouped: bool,
    /// It is held, and its handler's condition could not be decided when it was made.
    undecided: bool,
}

const JOB: &str = "SELECT row, id, event, handler, state, attempt, group_key IS NOT NULL,
    state = 'held' AND attempt = 0 AND detail IS NOT NULL FROM job";

impl FoundJob {
    fn read(row: &Row<'_>) -> rusqlite::Result<FoundJob> {
        Ok(FoundJob {
            row: row.get(0)?,
            job: codec::job_id(row, 1)?,
            event: row.get(2)?,
            handler: codec::text(row, 3)?,
            state: codec::text(row, 4)?,
            attempt: row.get(5)?,
            grouped: row.get(6)?,
            undecided: row.get(7)?,
        })
    }

    fn find(tx: &Connection, job: JobId) -> rusqlite::Result<Option<FoundJob>> {
        tx.prepare_cached(&format!("{JOB} WHERE id = ?1"))?
            .query_row([job.as_bytes()], FoundJob::read)
            .optional()
    }

    /// Its event and handler, if it has to be decided before it is put back.
    fn open(self) -> Option<(i64, Name)> {
        self.undecided.then_some((self.event, self.handler))
    }

    /// Refuses a move that this job does not allow.
    fn check(&self, tx: &Connection, verb: Move<'_>) -> Result<(), VerbError> {
        let &FoundJob { row, job, state, event, grouped, .. } = self;
        let Move::Replay { decided, regardless } = verb else {
            return match state {
                State::Ready | State::Waiting | State::Held | State::Dead => Ok(()),
                State::Running | State::Succeeded | State::Dropped => {
                    Err(Error::WrongState { job, state, verb: "dropped" }.into())
                }
            };
        };
        if !matches!(state, State::Held | State::Dead | State::Succeeded) {
            return Err(Error::WrongState { job, state, verb: "replayed" }.into());
        }
        if !key_of(tx, event)?.may_run() {
            return Err(Error::Answered { job }.into());
        }
        if grouped
            && !regardless
            && let Some(newer) = group::newer(tx, row)?
        {
            return Err(Error::Superseded { job, newer }.into());
        }
        if self.undecided
            && !regardless
            && let Some(decided) = decided.job(event, &self.handler)
        {
            if !grouped && let Some(newer) = newer_than(tx, &decided, event)? {
                return Err(Error::Superseded { job, newer }.into());
            }
            if let Some(why) = decided.undecided {
                return Err(Error::Undecided { job, why }.into());
            }
        }
        // The job's event exists, by its foreign key.
        let event = tx
            .prepare_cached(&format!("{FOUND} WHERE e.row = ?1"))?
            .query_row([event], FoundEvent::read)?;
        if event.payload_kept { Ok(()) } else { Err(event.gone().into()) }
    }

    /// Makes a checked move. Returns the job's state after it.
    fn go(&self, tx: &Connection, verb: Move<'_>, now: Timestamp) -> rusqlite::Result<State> {
        let reason = match verb {
            Move::Replay { decided, regardless } => {
                let job = match self.undecided && !regardless {
                    true => decided.job(self.event, &self.handler),
                    false => Some(NewJob::of(self.handler.clone())),
                };
                match job {
                    Some(job) => {
                        self.join(tx, job.group.as_ref())?;
                        put_back(tx, self.row, now)?;
                        return Ok(State::Ready);
                    }
                    None => DropReason::ConditionFalse,
                }
            }
            Move::Drop => DropReason::Operator,
        };
        // From the state just read, after this attempt, and never from running or succeeded.
        change_one(
            tx,
            "UPDATE job SET state = 'dropped', reason = ?4, due_at = NULL, settled_at = ?5,
                     behind = 0
                 WHERE row = ?1 AND state = ?2 AND attempt = ?3
                   AND state IN ('ready', 'waiting', 'held', 'dead')",
            params![self.row, self.state.as_str(), self.attempt, reason.as_str(), now.0],
        )?;
        if self.grouped {
            group::release(tx, self.row)?;
        }
        Ok(State::Dropped)
    }

    /// Notes the group that could not be read when the job was made.
    fn join(&self, tx: &Connection, group: Option<&Group>) -> rusqlite::Result<()> {
        let Some(group) = group.filter(|_| !self.grouped) else { return Ok(()) };
        // Behind the job that holds the group, where one does.
        change_one(
            tx,
            "UPDATE job SET group_key = ?2, group_rule = ?3, behind = ?3 <> 'latest' AND EXISTS (SELECT 1 FROM job h
                 INDEXED BY job_holder WHERE h.handler = job.handler AND h.group_key = ?2 AND h.holds = 1 AND h.behind = 0)
             WHERE row = ?1 AND state = 'held' AND group_key IS NULL",
            params![self.row, group.key.as_str(), group.rule.as_str()],
        )
    }

    /// Gives the job a new key and records the old one: every attempt up to this one carried it.
    fn replace_key(&self, tx: &Connection, now: Timestamp) -> rusqlite::Result<JobId> {
        let new = crate::random::job_id(now);
        // The primary key refuses a key that was replaced before.
        change_one(
            tx,
            "INSERT INTO former_key (id, job, attempt, replaced_at) VALUES (?1, ?2, ?3, ?4)",
            params![self.job.as_bytes(), self.row, self.attempt, now.0],
        )?;
        // Only of a job that has this key, does not run, and has made no other attempt.
        change_one(
            tx,
            "UPDATE job SET id = ?3 WHERE row = ?1 AND id = ?2 AND attempt = ?4
                     AND state IN ('held', 'dead', 'succeeded')",
            params![self.row, self.job.as_bytes(), new.as_bytes(), self.attempt],
        )?;
        Ok(new)
    }
}

/// What makes an event out of date for this job of it.
fn newer_than(tx: &Connection, job: &NewJob, event: i64) -> rusqlite::Result<Option<Newer>> {
    GroupOf::latest(job).map_or(Ok(None), |group| group.newer_than(tx, event))
}

/// Puts one job back. Returns its key, which may be new.
fn replay_job(
    tx: &Connection,
    job: JobId,
    verb: Move<'_>,
    new_key: bool,
    now: Timestamp,
) -> Result<Replayed, VerbError> {
    let found = FoundJob::find(tx, job)?.ok_or(Error::NoJob(job))?;
    found.check(tx, verb)?;
    let key = if new_key { found.replace_key(tx, now)? } else { job };
    let mut replayed = Replayed::default();
    replayed.add(key, found.go(tx, verb, now)?);
    Ok(replayed)
}

/// Drops one job. Returns its state before.
fn drop_job(tx: &Connection, job: JobId, now: Timestamp) -> Result<State, VerbError> {
    let found = FoundJob::find(tx, job)?.ok_or(Error::NoJob(job))?;
    found.check(tx, Move::Drop)?;
    found.go(tx, Move::Drop, now)?;
    Ok(found.state)
}

fn move_batch(
    tx: &Connection,
    batch: &JobBatch,
    decided: &Decided,
    now: Timestamp,
) -> Result<BatchResult, VerbError> {
    let mut moved = BatchResult::default();
    let verb = match batch.verb {
        Verb::Replay => Move::Replay { decided, regardless: false },
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
            Ok(()) => {
                let state = found.go(tx, verb, now)?;
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
    Ok(moved)
}

/// Makes the missing jobs of the next events, or only counts them. What accepting the event would have held, for
/// the replay guard or a reused id, is made held.
fn make_missing(
    conn: &Connection,
    ask: &Backfill,
    place: BackfillCursor,
    decided: &Decided,
    now: Timestamp,
) -> rusqlite::Result<BackfillResult> {
    let (events, next) = ask.next(conn, place)?;
    let mut made = BackfillResult { next, ..BackfillResult::default() };
    for event in events {
        if event.present {
            made.present += 1;
        } else if !event.payload_kept {
            made.payload_gone += 1;
        } else if !decided.has(event.row, &ask.handler) {
            // Retention has moved the page meanwhile: the next call begins here.
            made.next = Some(BackfillCursor::before(event.row, place));
            break;
        } else if let Some(job) = decided.job(event.row, &ask.handler) {
            if newer_than(conn, &job, event.row)?.is_some() {
                made.superseded += 1;
                continue;
            }
            if !ask.dry_run {
                insert_job(conn, event.row, &job, event.held, now)?;
            }
            made.made += 1;
            made.held += u64::from(event.held.is_some() || job.undecided.is_some());
        } else {
            made.unwanted += 1;
        }
    }
    Ok(made)
}

/// The SELECT of the rows that [`FoundEvent::read`] reads.
pub(crate) const FOUND: &str =
    "SELECT e.row, e.source, e.event_id, EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row),
    e.removed_succeeded + e.removed_dropped > 0 FROM event e";

/// An event whose jobs may be put back.
struct FoundEvent {
    row: i64,
    source: Name,
    event: EventId,
    payload_kept: bool,
    /// Its jobs were removed with its payload.
    removed: bool,
}

impl FoundEvent {
    fn read(row: &Row<'_>) -> rusqlite::Result<FoundEvent> {
        Ok(FoundEvent {
            row: row.get(0)?,
            source: codec::text(row, 1)?,
            event: codec::event_id(row, 2)?,
            payload_kept: row.get(3)?,
            removed: row.get(4)?,
        })
    }

    fn gone(&self) -> Error {
        let (source_name, event) = (self.source.clone(), self.event.clone());
        match self.removed {
            true => Error::JobsGone { source_name, event },
            false => Error::PayloadGone { source_name, event },
        }
    }

    /// The one event with this id, in this source or in all of them.
    fn find(
        tx: &Connection,
        source: Option<&Name>,
        event: &EventId,
    ) -> Result<FoundEvent, VerbError> {
        let mut events: Vec<FoundEvent> = Vec::new();
        for source in sources(tx, source.cloned())? {
            let mut select = tx.prepare_cached(&by_id(FOUND))?;
            let key = params![source.as_str(), codec::stored_id(event)];
            let of_source = select.query_map(key, FoundEvent::read)?;
            events.extend(of_source.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        let mut sources: Vec<&str> = events.iter().map(|found| found.source.as_str()).collect();
        sources.dedup();
        if sources.len() > 1 {
            let sources = sources.join(", ");
            return Err(Error::Ambiguous { event: event.clone(), sources }.into());
        }
        // One of the bodies may be forged, so the operator names the job.
        if events.len() > 1 {
            return Err(Error::Variants { event: event.clone(), bodies: events.len() }.into());
        }
        Ok(events.pop().ok_or_else(|| Error::NoEvent(event.clone()))?)
    }

    /// The event's jobs, or its one job of this handler.
    fn jobs(&self, tx: &Connection, handler: Option<&Name>) -> rusqlite::Result<Vec<FoundJob>> {
        tx.prepare_cached(&format!(
            "{JOB} WHERE event = ?1 AND (?2 IS NULL OR handler = ?2) ORDER BY row"
        ))?
        .query_map(params![self.row, handler.map(Name::as_str)], FoundJob::read)?
        .collect()
    }
}

/// Puts back the event's held and dead jobs. With a handler its job only, which may have succeeded, and which
/// is made where the event has none.
fn replay_event(
    tx: &Connection,
    source: Option<&Name>,
    event: &EventId,
    handler: Option<&Name>,
    verb: Move<'_>,
    now: Timestamp,
) -> Result<Replayed, VerbError> {
    let event = FoundEvent::find(tx, source, event)?;
    if event.removed {
        return Err(event.gone().into());
    }
    let mut jobs = event.jobs(tx, handler)?;
    match handler {
        Some(handler) if jobs.is_empty() => return make(tx, &event, handler, verb, now),
        Some(_) => {}
        None => jobs.retain(|job| matches!(job.state, State::Held | State::Dead)),
    }
    // A refusal does not roll back, so all are checked before the first is moved.
    for job in &jobs {
        job.check(tx, verb)?;
    }
    let mut replayed = Replayed::default();
    for job in &jobs {
        replayed.add(job.job, job.go(tx, verb, now)?);
    }
    Ok(replayed)
}

/// Makes the job that the event lacks, where its payload is still kept.
fn make(
    tx: &Connection,
    event: &FoundEvent,
    handler: &Name,
    verb: Move<'_>,
    now: Timestamp,
) -> Result<Replayed, VerbError> {
    if key_of(tx, event.row)? != KeyOf::Nobody {
        let (source_name, event) = (event.source.clone(), event.event.clone());
        return Err(Error::OneHandler { source_name, event }.into());
    }
    if !event.payload_kept {
        return Err(event.gone().into());
    }
    let mut job = NewJob::of(handler.clone());
    if let Move::Replay { decided, regardless: false } = verb {
        let (handler, id) = (handler.clone(), event.event.clone());
        job = match decided.job(event.row, &handler) {
            Some(job) => job,
            None => return Err(Error::Unwanted { handler, event: id }.into()),
        };
        if let Some(why) = job.undecided {
            return Err(Error::UndecidedEvent { handler, event: id, why }.into());
        }
        if let Some(newer) = newer_than(tx, &job, event.row)? {
            return Err(Error::OutOfDate { handler, event: id, newer }.into());
        }
    }
    Ok(Replayed { jobs: vec![insert_job(tx, event.row, &job, None, now)?], dropped: Vec::new() })
}
