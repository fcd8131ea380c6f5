//! ASK: a request with a key starts its job, or finds the state of it, in one transaction.
//!
//! A repeat of a request whose job is known to have failed *is* the replay, by a guarded update: of ten at
//! once one begins it (I3). A key that expired is a new generation: another event, with the next
//! variant (I4).

use std::time::Duration;

use rusqlite::{Connection, params};

use crate::crash;
use crate::model::{Digest, EventId, JobId, Name, OnRedelivery};
use crate::store::border::{Accept, Ask, Asked, KeyState, NewJob, Refused};
use crate::store::tables::answer::{Fate, UsedKey, find_key, unreadable};
use crate::store::tables::codec;
use crate::store::tables::codec::change_one;
use crate::store::tables::job::{insert_job, put_back};

use super::accept::{Prepared, StoredPayload, insert_payload};
use super::handle::Intake;

/// A request with a key in its stored form.
struct Request {
    prepared: Prepared,
    stored: StoredPayload,
    handler: Name,
    caller: String,
    digest: Digest,
    keep: Duration,
    keep_errors: Duration,
}

/// What a request finds.
enum Found {
    /// Nothing that forbids to begin.
    Begun { job: JobId, again: bool },
    /// A key that is in use, perhaps by another request.
    Used(UsedKey),
}

impl Intake {
    /// ASK: if the key is new, stores the event, its job and the key in one transaction. If the last run of its job is
    /// known to have failed, puts the job back. Else returns the state of the key. Returns after the flush, and is not
    /// undone by dropping the future, as [`Intake::accept`].
    pub async fn ask(&self, ask: Ask) -> Result<Asked, Refused> {
        self.engine.ready()?;
        let Ask { source, caller, request, received_at, delivery, handler, keep, keep_errors } =
            ask;
        let jobs = vec![NewJob::of(handler.clone())];
        let on_redelivery = OnRedelivery::Ignore;
        let new = Accept { source, received_at, delivery, jobs, on_redelivery };
        let prepared = self.prepare(new, received_at);
        let stored = StoredPayload::of(&prepared.new.delivery).await?;
        let (priority, digest) = (stored.priority(), request);
        let request = Request { prepared, stored, handler, caller, digest, keep, keep_errors };
        let found = self.engine.submit(priority, move |tx| request.store(tx)).await?;
        crash::point("ask.commit.after");
        let (job, fate) = match found {
            Found::Begun { job, again } => return Ok(Asked::Begun { job, again }),
            Found::Used(key) if key.request != digest => return Ok(Asked::Conflict),
            Found::Used(UsedKey { job, fate, .. }) => (job, fate),
        };
        let state = fate.open().await.map_err(|error| Refused::Failed(unreadable(&error)))?;
        Ok(Asked::Known { job, state })
    }

    /// The state of a key that was used before, from flushed commits (S3): writes nothing and does not wait for the
    /// queue. `None` if [`Intake::ask`] has something to do, if the answer is too long to unpack on this thread, or if
    /// the store cannot be read.
    pub fn known_key(
        &self,
        source: &Name,
        caller: &str,
        key: &EventId,
        request: Digest,
    ) -> Option<Asked> {
        let found = self.engine.keys.look(|conn| find_key(conn, source, caller, key)).ok()??;
        if found.request != request {
            return Some(Asked::Conflict);
        }
        let state = match found.fate {
            Fate::Other(KeyState::Failed) => return None,
            Fate::Other(state) => state,
            Fate::Answered(stored) => KeyState::Answered(stored.open_now()?),
        };
        Some(Asked::Known { job: found.job, state })
    }
}

impl Request {
    fn store(&self, tx: &Connection) -> rusqlite::Result<Found> {
        let Prepared { new: Accept { source, delivery, .. }, now, .. } = &self.prepared;
        self.prepared.note_secret(tx)?;
        let found = match find_key(tx, source, &self.caller, delivery.event_id())? {
            None => Found::Begun { job: self.begin(tx)?, again: false },
            Some(UsedKey { request, row, job, fate: Fate::Other(KeyState::Failed) })
                if request == self.digest =>
            {
                // It was read as dead in this transaction.
                put_back(tx, row, *now)?;
                Found::Begun { job, again: true }
            }
            Some(key) => Found::Used(key),
        };
        crash::point("ask.commit.before");
        Ok(found)
    }

    /// A new key: earlier events with the same id or the same body have no meaning for it.
    fn begin(&self, tx: &Connection) -> rusqlite::Result<JobId> {
        let Prepared { new: Accept { source, delivery, .. }, now, .. } = &self.prepared;
        let key = codec::stored_id(delivery.event_id());
        // By the unique (source, id, variant): after other callers' and its own earlier generations.
        let variant = tx
            .prepare_cached(
                "SELECT coalesce(max(variant) + 1, 0) FROM event WHERE source = ?1 AND event_id = ?2",
            )?
            .query_row(params![source.as_str(), key], |row| row.get(0))?;
        let event = self.prepared.insert_event(tx, variant, false)?;
        // The number was free in this transaction.
        let event = event.ok_or(rusqlite::Error::StatementChangedRows(0))?;
        // The row is this transaction's own.
        change_one(tx, "UPDATE event SET has_key = 1 WHERE row = ?1", [event])?;
        insert_payload(tx, event, &self.stored)?;
        let job = insert_job(tx, event, &NewJob::of(self.handler.clone()), None, *now)?;
        // The unique (source, caller, key) refuses a second row.
        tx.prepare_cached(
            "INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            event,
            source.as_str(),
            self.caller,
            key,
            self.digest.0,
            now.0,
            now.after(self.keep).0,
            i64::try_from(self.keep_errors.as_millis()).unwrap_or(i64::MAX),
        ])?;
        Ok(job)
    }
}
