//! REPLAY: the operator puts a job back to `ready`. It keeps its key (R22) unless a new one is asked for;
//! attempt numbers go on either way. What has answered a caller is never put back.

use rusqlite::{Connection, OptionalExtension, params};

use crate::model::{EventId, JobId, Name, State, Timestamp};
use crate::store::engine::queue::Priority;
use crate::store::tables::answer::{KeyOf, key_of};
use crate::store::tables::codec;
use crate::store::tables::codec::exactly_one;
use crate::store::tables::job::{find_job, insert_job, put_back};
use crate::store::types::{Error, Replay};

use super::handle::Admin;
use super::list::{by_id, sources};

/// What a replay came to inside the transaction: an error of the operator's has changed nothing.
type Outcome<T> = rusqlite::Result<Result<T, Error>>;

impl Admin {
    /// REPLAY: held, dead or succeeded to ready. Returns the jobs put back, which may be none where
    /// an event has no held or dead job. All or nothing: an error has changed nothing.
    pub async fn replay(&self, what: Replay) -> Result<Vec<JobId>, Error> {
        let clock = self.engine.clock.clone();
        self.engine
            .submit(Priority::Verb, move |tx| {
                let now = clock.now();
                match &what {
                    Replay::Job(job) => replay_job(tx, *job, now, false),
                    Replay::NewKey(job) => replay_job(tx, *job, now, true),
                    Replay::Event { source, event, handler } => {
                        replay_event(tx, source.as_ref(), event, handler.as_ref(), now)
                    }
                }
            })
            .await?
    }
}

/// The columns of [`found`].
pub(crate) const FOUND: &str =
    "SELECT e.row, e.source, e.event_id, EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row),
    e.removed_succeeded + e.removed_dropped > 0 FROM event e";

/// An event that may be put back.
struct Found {
    row: i64,
    source: Name,
    event: EventId,
    payload_kept: bool,
    /// Its jobs were removed with its payload.
    removed: bool,
}

impl Found {
    fn gone(&self) -> Error {
        let (source_name, event) = (self.source.clone(), self.event.clone());
        match self.removed {
            true => Error::JobsGone { source_name, event },
            false => Error::PayloadGone { source_name, event },
        }
    }
}

fn replay_job(tx: &Connection, job: JobId, now: Timestamp, new_key: bool) -> Outcome<Vec<JobId>> {
    let Some((row, state, attempt, event)) = find_job(tx, job)? else {
        return Ok(Err(Error::NoJob(job)));
    };
    if !can_be_replayed(state) {
        return Ok(Err(Error::WrongState { job, state, verb: "replayed" }));
    }
    if !key_of(tx, event)?.may_run() {
        return Ok(Err(Error::Answered { job }));
    }
    // The job's event exists, by its foreign key.
    let found =
        tx.prepare_cached(&format!("{FOUND} WHERE e.row = ?1"))?.query_row([event], found)?;
    if !found.payload_kept {
        return Ok(Err(found.gone()));
    }
    let key = if new_key { replace_key(tx, row, job, attempt, now)? } else { job };
    put_back(tx, row, now)?;
    Ok(Ok(vec![key]))
}

/// Gives the job in `row` a new key and records the old one: every attempt up to this one carried it.
fn replace_key(
    tx: &Connection,
    row: i64,
    old: JobId,
    attempt: u32,
    now: Timestamp,
) -> rusqlite::Result<JobId> {
    let new = crate::random::job_id(now);
    // The primary key refuses a key that was replaced before.
    let recorded = tx
        .prepare_cached(
            "INSERT INTO former_key (id, job, attempt, replaced_at) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![old.as_bytes(), row, attempt, now.0])?;
    exactly_one(recorded)?;
    // Only of a job that has this key, rests, and has made no other attempt.
    let replaced = tx
        .prepare_cached(
            "UPDATE job SET id = ?3 WHERE row = ?1 AND id = ?2 AND attempt = ?4
                 AND state IN ('held', 'dead', 'succeeded')",
        )?
        .execute(params![row, old.as_bytes(), new.as_bytes(), attempt])?;
    exactly_one(replaced)?;
    Ok(new)
}

fn replay_event(
    tx: &Connection,
    source: Option<&Name>,
    event: &EventId,
    handler: Option<&Name>,
    now: Timestamp,
) -> Outcome<Vec<JobId>> {
    // All variants of the id, in every source that is meant.
    let mut events: Vec<Found> = Vec::new();
    for source in sources(tx, source.cloned())? {
        let mut select = tx.prepare_cached(&by_id(FOUND))?;
        let key = params![source.as_str(), codec::stored_id(event)];
        let of_source = select.query_map(key, found)?.collect::<rusqlite::Result<Vec<_>>>()?;
        events.extend(of_source);
    }
    let mut sources: Vec<&str> = events.iter().map(|found| found.source.as_str()).collect();
    sources.dedup();
    match sources.len() {
        0 => return Ok(Err(Error::NoEvent(event.clone()))),
        1 => {}
        _ => {
            let sources = sources.join(", ");
            return Ok(Err(Error::Ambiguous { event: event.clone(), sources }));
        }
    }
    // A forged twin, held for a person, must not run because its honest one is meant.
    if events.len() > 1 {
        return Ok(Err(Error::Variants { event: event.clone(), bodies: events.len() }));
    }
    let mut chosen = Vec::new();
    for found in &events {
        if found.removed {
            return Ok(Err(found.gone()));
        }
        for job in jobs_of(tx, found, handler)? {
            if !found.payload_kept {
                return Ok(Err(found.gone()));
            }
            if !key_of(tx, found.row)?.may_run() {
                return Ok(Err(Error::Answered { job: job.1 }));
            }
            chosen.push((found, job));
        }
    }
    if let (Some(handler), true) = (handler, chosen.is_empty()) {
        return match blocked(tx, &events, handler)? {
            Some(error) => Ok(Err(error)),
            None => make(tx, &events, handler, now),
        };
    }
    for (_, (row, _)) in &chosen {
        put_back(tx, *row, now)?;
    }
    Ok(Ok(chosen.into_iter().map(|(_, (_, job))| job).collect()))
}

/// The event's jobs that this replay means: held and dead ones; with a handler its own, which may
/// have succeeded.
fn jobs_of(
    tx: &Connection,
    event: &Found,
    handler: Option<&Name>,
) -> rusqlite::Result<Vec<(i64, JobId)>> {
    // By the unique (event, handler).
    let jobs = tx
        .prepare_cached(
            "SELECT row, id, state FROM job WHERE event = ?1 AND (?2 IS NULL OR handler = ?2)
             ORDER BY row",
        )?
        .query_map(params![event.row, handler.map(Name::as_str)], |row| {
            Ok((row.get(0)?, codec::job_id(row, 1)?, codec::text(row, 2)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, JobId, State)>>>()?;
    let meant = |state| match handler {
        Some(_) => can_be_replayed(state),
        None => matches!(state, State::Held | State::Dead),
    };
    Ok(jobs.into_iter().filter(|job| meant(job.2)).map(|(row, job, _)| (row, job)).collect())
}

/// Why the handler's job of these events cannot be put back although it exists.
fn blocked(tx: &Connection, events: &[Found], handler: &Name) -> rusqlite::Result<Option<Error>> {
    for event in events {
        // By the unique (event, handler); none was replayable, so any there is has a wrong state.
        let job = tx
            .prepare_cached("SELECT id, state FROM job WHERE event = ?1 AND handler = ?2")?
            .query_row(params![event.row, handler.as_str()], |row| {
                Ok((codec::job_id(row, 0)?, codec::text(row, 1)?))
            })
            .optional()?;
        if let Some((job, state)) = job {
            return Ok(Some(Error::WrongState { job, state, verb: "replayed" }));
        }
    }
    Ok(None)
}

/// Makes the job that the event has not got: of its first body, where that is still kept.
fn make(tx: &Connection, events: &[Found], handler: &Name, now: Timestamp) -> Outcome<Vec<JobId>> {
    match events.first() {
        Some(event) if key_of(tx, event.row)? != KeyOf::Nobody => {
            let (source_name, event) = (event.source.clone(), event.event.clone());
            Ok(Err(Error::OneHandler { source_name, event }))
        }
        Some(event) if event.payload_kept => {
            Ok(Ok(vec![insert_job(tx, event.row, handler, State::Ready, None, now)?]))
        }
        Some(event) => Ok(Err(event.gone())),
        None => Ok(Ok(Vec::new())),
    }
}

fn can_be_replayed(state: State) -> bool {
    matches!(state, State::Held | State::Dead | State::Succeeded)
}

fn found(row: &rusqlite::Row<'_>) -> rusqlite::Result<Found> {
    Ok(Found {
        row: row.get(0)?,
        source: codec::text(row, 1)?,
        event: codec::event_id(row, 2)?,
        payload_kept: row.get(3)?,
        removed: row.get(4)?,
    })
}
