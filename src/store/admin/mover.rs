//! REPLAY, DROP and MAKE: puts jobs back, takes them out, or creates them, as the operator asks.
//!
//! What must stay true: a move goes from a state that its verb names only; a job that has answered its caller,
//! or whose payload is gone, never runs again; a running job is never dropped, since its attempt would end
//! unseen (R19). A replayed job keeps its key (R22) unless a new one is asked for, and its attempt numbers go
//! on. Only a dropped job lets retention delete the payload of a dead or held one (S12).

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::model::{DropReason, EventId, JobId, Name, State, Timestamp};
use crate::store::engine::queue::Priority;
use crate::store::tables::answer::{KeyOf, key_of};
use crate::store::tables::codec;
use crate::store::tables::codec::exactly_one;
use crate::store::tables::job::{insert_job, put_back};
use crate::store::types::{Error, Replay};

use super::handle::Admin;
use super::list::{by_id, sources};
use super::selection::{Missing, Place, Verb};

/// Most jobs of one batch: a transaction no longer than those that accepts are used to, and a request
/// that fits into `limits::ADMIN_REQUEST_BYTES`.
pub const BATCH_COUNT: usize = 200;

/// A batch of chosen jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Batch {
    pub verb: Verb,
    /// The state they were chosen in: held or dead.
    pub state: State,
    /// At most [`BATCH_COUNT`], each with its last attempt when it was chosen.
    pub jobs: Vec<(JobId, u32)>,
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Jobs put back or dropped, by handler.
    pub done: BTreeMap<Name, u64>,
    /// Passed over: in another state, after another attempt, answered, or gone.
    pub changed: u64,
    /// Passed over: retention has deleted the payload.
    pub payload_gone: u64,
}

/// How many events of one step got a job. All of them are wanted and new enough.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Jobs made, the held ones included.
    pub made: u64,
    /// Of those, held: accepting the event would have held them.
    pub held: u64,
    /// Events that have a job of this handler already, events whose jobs were removed with their payload (some
    /// handler had them), and requests that their one handler answers.
    pub present: u64,
    /// Events skipped because their payload has been deleted, and not handled as far as is known.
    pub payload_gone: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<Place>,
}

/// What a move came to inside the transaction: the operator's error has changed nothing.
type Outcome<T> = rusqlite::Result<Result<T, Error>>;

impl Admin {
    /// REPLAY: held, dead or succeeded to ready. Returns the jobs put back, which may be none where
    /// an event has no held or dead job. All or nothing: an error has changed nothing.
    pub async fn replay(&self, what: Replay) -> Result<Vec<JobId>, Error> {
        self.change(move |tx, now| match &what {
            Replay::Job(job) => {
                Ok(move_job(tx, *job, Move::Replay, now)?.map(|(job, _)| vec![job]))
            }
            Replay::NewKey(job) => {
                Ok(move_job(tx, *job, Move::ReplayUnderNewKey, now)?.map(|(job, _)| vec![job]))
            }
            Replay::Event { source, event, handler } => {
                replay_event(tx, source.as_ref(), event, handler.as_ref(), now)
            }
        })
        .await
    }

    /// DROP: ready, waiting, held or dead to dropped. Returns the state it was in; an error has
    /// changed nothing.
    pub async fn drop_job(&self, job: JobId) -> Result<State, Error> {
        self.change(move |tx, now| Ok(move_job(tx, job, Move::Drop, now)?.map(|(_, was)| was)))
            .await
    }

    /// REPLAY or DROP of a batch, in one transaction. A job that has changed since it was chosen stays as it
    /// is.
    pub async fn move_batch(&self, batch: Batch) -> Result<Moved, Error> {
        self.change(move |tx, now| Ok(Ok(move_batch(tx, &batch, now)?))).await
    }

    /// REPLAY --handler: makes the jobs that are missing among the next events, or only counts them.
    /// Call again with the answer's `next` until it is none. Refused like an accept while there is
    /// too little space.
    pub async fn make_missing(&self, ask: Missing) -> Result<Made, Error> {
        let place = match ask.from {
            Some(place) => place,
            None => self.beginning(ask.since).await?,
        };
        let now = self.engine.clock.now();
        if ask.dry_run {
            return self.engine.read(move |conn| make_missing(conn, &ask, place, now)).await;
        }
        self.engine.ready()?;
        Ok(self.engine.submit(Priority::Verb, move |tx| make_missing(tx, &ask, place, now)).await?)
    }

    async fn change<T, F>(&self, mut change: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnMut(&Connection, Timestamp) -> Outcome<T> + Send + 'static,
    {
        let clock = self.engine.clock.clone();
        self.engine.submit(Priority::Verb, move |tx| change(tx, clock.now())).await?
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Replay,
    ReplayUnderNewKey,
    Drop,
}

impl From<Verb> for Move {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Replay => Move::Replay,
            Verb::Drop => Move::Drop,
        }
    }
}

/// A job as the transaction finds it.
struct FoundJob {
    row: i64,
    job: JobId,
    event: i64,
    handler: Name,
    state: State,
    attempt: u32,
}

const JOB: &str = "SELECT row, id, event, handler, state, attempt FROM job";

impl FoundJob {
    fn read(row: &Row<'_>) -> rusqlite::Result<FoundJob> {
        Ok(FoundJob {
            row: row.get(0)?,
            job: codec::job_id(row, 1)?,
            event: row.get(2)?,
            handler: codec::text(row, 3)?,
            state: codec::text(row, 4)?,
            attempt: row.get(5)?,
        })
    }

    fn find(tx: &Connection, job: JobId) -> rusqlite::Result<Option<FoundJob>> {
        // By the unique id.
        tx.prepare_cached(&format!("{JOB} WHERE id = ?1"))?
            .query_row([job.as_bytes()], FoundJob::read)
            .optional()
    }

    /// Why this move is refused.
    fn refuses(&self, tx: &Connection, how: Move) -> rusqlite::Result<Option<Error>> {
        let &FoundJob { job, state, event, .. } = self;
        if how == Move::Drop {
            let can_be_dropped =
                matches!(state, State::Ready | State::Waiting | State::Held | State::Dead);
            let wrong = Error::WrongState { job, state, verb: "dropped" };
            return Ok((!can_be_dropped).then_some(wrong));
        }
        if !can_be_replayed(state) {
            return Ok(Some(Error::WrongState { job, state, verb: "replayed" }));
        }
        if !key_of(tx, event)?.may_run() {
            return Ok(Some(Error::Answered { job }));
        }
        // The job's event exists, by its foreign key.
        let event = tx
            .prepare_cached(&format!("{FOUND} WHERE e.row = ?1"))?
            .query_row([event], FoundEvent::read)?;
        Ok((!event.payload_kept).then(|| event.gone()))
    }

    /// Makes a move that was not refused. Returns the job's key after it.
    fn go(&self, tx: &Connection, how: Move, now: Timestamp) -> rusqlite::Result<JobId> {
        match how {
            Move::Replay => put_back(tx, self.row, now)?,
            Move::ReplayUnderNewKey => {
                let key = self.replace_key(tx, now)?;
                put_back(tx, self.row, now)?;
                return Ok(key);
            }
            Move::Drop => {
                // From the state just read, after this attempt, and never from running or succeeded.
                let dropped = tx
                    .prepare_cached(
                        "UPDATE job SET state = 'dropped', reason = ?4, due_at = NULL, settled_at = ?5
                         WHERE row = ?1 AND state = ?2 AND attempt = ?3
                           AND state IN ('ready', 'waiting', 'held', 'dead')",
                    )?
                    .execute(params![
                        self.row,
                        self.state.as_str(),
                        self.attempt,
                        DropReason::Operator.as_str(),
                        now.0
                    ])?;
                exactly_one(dropped)?;
            }
        }
        Ok(self.job)
    }

    /// Gives the job a new key and records the old one: every attempt up to this one carried it.
    fn replace_key(&self, tx: &Connection, now: Timestamp) -> rusqlite::Result<JobId> {
        let new = crate::random::job_id(now);
        // The primary key refuses a key that was replaced before.
        let recorded = tx
            .prepare_cached(
                "INSERT INTO former_key (id, job, attempt, replaced_at) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![self.job.as_bytes(), self.row, self.attempt, now.0])?;
        exactly_one(recorded)?;
        // Only of a job that has this key, does not run, and has made no other attempt.
        let replaced = tx
            .prepare_cached(
                "UPDATE job SET id = ?3 WHERE row = ?1 AND id = ?2 AND attempt = ?4
                     AND state IN ('held', 'dead', 'succeeded')",
            )?
            .execute(params![self.row, self.job.as_bytes(), new.as_bytes(), self.attempt])?;
        exactly_one(replaced)?;
        Ok(new)
    }
}

/// Moves one job. Returns its key after the move, and its state before.
fn move_job(tx: &Connection, job: JobId, how: Move, now: Timestamp) -> Outcome<(JobId, State)> {
    let Some(found) = FoundJob::find(tx, job)? else { return Ok(Err(Error::NoJob(job))) };
    match found.refuses(tx, how)? {
        Some(error) => Ok(Err(error)),
        None => Ok(Ok((found.go(tx, how, now)?, found.state))),
    }
}

fn move_batch(tx: &Connection, batch: &Batch, now: Timestamp) -> rusqlite::Result<Moved> {
    let mut moved = Moved::default();
    for (job, attempt) in batch.jobs.iter().take(BATCH_COUNT) {
        let found = FoundJob::find(tx, *job)?.filter(|found| {
            found.state == batch.state
                && found.attempt == *attempt
                && matches!(found.state, State::Held | State::Dead)
        });
        let Some(found) = found else {
            moved.changed += 1;
            continue;
        };
        match found.refuses(tx, batch.verb.into())? {
            None => {
                found.go(tx, batch.verb.into(), now)?;
                *moved.done.entry(found.handler).or_default() += 1;
            }
            Some(Error::PayloadGone { .. } | Error::JobsGone { .. }) => moved.payload_gone += 1,
            Some(_) => moved.changed += 1,
        }
    }
    Ok(moved)
}

/// Makes the missing jobs of the next events, or only counts them. What accepting the event would have held, for
/// the replay guard or a reused id, is made held.
fn make_missing(
    conn: &Connection,
    ask: &Missing,
    place: Place,
    now: Timestamp,
) -> rusqlite::Result<Made> {
    let (events, next) = ask.next(conn, place)?;
    let mut made = Made { next, ..Made::default() };
    for event in events {
        if event.present {
            made.present += 1;
        } else if !event.payload_kept {
            made.payload_gone += 1;
        } else {
            let state = if event.held.is_some() { State::Held } else { State::Ready };
            if !ask.dry_run {
                insert_job(conn, event.row, &ask.handler, state, event.held, now)?;
            }
            made.made += 1;
            made.held += u64::from(event.held.is_some());
        }
    }
    Ok(made)
}

/// The columns of [`FoundEvent::read`].
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
    fn find(tx: &Connection, source: Option<&Name>, event: &EventId) -> Outcome<FoundEvent> {
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
            return Ok(Err(Error::Ambiguous { event: event.clone(), sources }));
        }
        // A forged twin, held for a person, must not run because its honest one is meant.
        if events.len() > 1 {
            return Ok(Err(Error::Variants { event: event.clone(), bodies: events.len() }));
        }
        Ok(events.pop().ok_or_else(|| Error::NoEvent(event.clone())))
    }

    /// The event's jobs, or its one job of this handler.
    fn jobs(&self, tx: &Connection, handler: Option<&Name>) -> rusqlite::Result<Vec<FoundJob>> {
        // By the unique (event, handler).
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
    now: Timestamp,
) -> Outcome<Vec<JobId>> {
    let event = match FoundEvent::find(tx, source, event)? {
        Ok(event) => event,
        Err(error) => return Ok(Err(error)),
    };
    if event.removed {
        return Ok(Err(event.gone()));
    }
    let mut jobs = event.jobs(tx, handler)?;
    match handler {
        Some(handler) if jobs.is_empty() => return make(tx, &event, handler, now),
        Some(_) => {}
        None => jobs.retain(|job| matches!(job.state, State::Held | State::Dead)),
    }
    // All are looked at before the first is moved.
    for job in &jobs {
        if let Some(error) = job.refuses(tx, Move::Replay)? {
            return Ok(Err(error));
        }
    }
    Ok(Ok(jobs.iter().map(|job| job.go(tx, Move::Replay, now)).collect::<Result<_, _>>()?))
}

/// Makes the job that the event lacks, where its payload is still kept.
fn make(
    tx: &Connection,
    event: &FoundEvent,
    handler: &Name,
    now: Timestamp,
) -> Outcome<Vec<JobId>> {
    if key_of(tx, event.row)? != KeyOf::Nobody {
        let (source_name, event) = (event.source.clone(), event.event.clone());
        return Ok(Err(Error::OneHandler { source_name, event }));
    }
    if !event.payload_kept {
        return Ok(Err(event.gone()));
    }
    Ok(Ok(vec![insert_job(tx, event.row, handler, State::Ready, None, now)?]))
}

fn can_be_replayed(state: State) -> bool {
    matches!(state, State::Held | State::Dead | State::Succeeded)
}
