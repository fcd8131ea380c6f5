//! ASK: a request with a key starts its job, or finds the state of it, in one transaction.
//!
//! A repeat of a request whose job is known to have failed *is* the replay, by a guarded update: of ten at
//! once one begins it (I3). A key that expired is a new generation: another event, with the next
//! variant (I4).

use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::crash;
use crate::model::{Digest, EventId, JobId, Name};
use crate::store::answer::{Fate, unreadable};
use crate::store::border::{Ask, Asked, KeyState, NewJob, Refused};
use crate::store::decide::key::Repeat;
use crate::store::sqlite::tables::answer::{UsedKey, find_key};
use crate::store::sqlite::tables::codec;
use crate::store::sqlite::tables::codec::change_one;
use crate::store::sqlite::tables::job::{insert_job, put_back};
use crate::store::sqlite::tables::secret_use::SecretUses;

use super::accept::{StoredPayload, insert_event, insert_payload};
use super::handle::Intake;

/// A request with a key in its stored form.
struct Request {
    ask: Ask,
    stored: StoredPayload,
    secret_uses: Arc<SecretUses>,
}

/// What a request finds.
enum Found {
    /// The request begins its job: nothing forbids it.
    Begun { job: JobId, again: bool },
    /// Its key is in use by another request.
    Conflict,
    /// An earlier request has the key.
    Known(UsedKey),
}

impl Intake {
    pub async fn ask(&self, ask: Ask) -> Result<Asked, Refused> {
        self.engine.ready()?;
        let arrival = (&ask.source, ask.received_at);
        let stored = StoredPayload::of(arrival, &ask.delivery).await?;
        let priority = stored.priority();
        let secret_uses = Arc::clone(&self.engine.secret_uses);
        let request = Request { ask, stored, secret_uses };
        let found = self.engine.submit(priority, move |tx| request.store(tx)).await?;
        crash::point("ask.commit.after");
        let (job, fate) = match found {
            Found::Begun { job, again } => return Ok(Asked::Begun { job, again }),
            Found::Conflict => return Ok(Asked::Conflict),
            Found::Known(UsedKey { job, fate, .. }) => (job, fate),
        };
        let state = fate.open().await.map_err(|error| Refused::Failed(unreadable(&error)))?;
        Ok(Asked::Known { job, state })
    }

    pub fn known_key(
        &self,
        source: &Name,
        caller: &str,
        key: &EventId,
        request: Digest,
    ) -> Option<Asked> {
        let found = self.engine.keys.look(|conn| find_key(conn, source, caller, key)).ok()??;
        match found.repeat(request) {
            Repeat::Conflict => return Some(Asked::Conflict),
            Repeat::Again => return None,
            Repeat::Known => {}
        }
        let state = match found.fate {
            Fate::Other(state) => state,
            Fate::Answered(stored) => KeyState::Answered(stored.open_now()?),
        };
        Some(Asked::Known { job: found.job, state })
    }
}

impl Request {
    fn store(&self, tx: &Connection) -> rusqlite::Result<Found> {
        let (ask, now) = (&self.ask, self.ask.received_at);
        self.secret_uses.note(tx, &ask.source, ask.delivery.secret(), now)?;
        let used = find_key(tx, &ask.source, &ask.caller, ask.delivery.event_id())?;
        let found = match used.map(|key| (key.repeat(ask.request), key)) {
            None => Found::Begun { job: self.begin(tx)?, again: false },
            Some((Repeat::Again, key)) => {
                // It was read as dead in this transaction.
                put_back(tx, key.row, now)?;
                Found::Begun { job: key.job, again: true }
            }
            Some((Repeat::Conflict, _)) => Found::Conflict,
            Some((Repeat::Known, key)) => Found::Known(key),
        };
        crash::point("ask.commit.before");
        Ok(found)
    }

    /// A new key: earlier events with the same id or the same body have no meaning for it.
    fn begin(&self, tx: &Connection) -> rusqlite::Result<JobId> {
        let (ask, now) = (&self.ask, self.ask.received_at);
        let key = codec::stored_id(ask.delivery.event_id());
        // By the unique (source, id, variant): after other callers' and its own earlier generations.
        let variant = tx
            .prepare_cached(
                "SELECT coalesce(max(variant) + 1, 0) FROM event WHERE source = ?1 AND event_id = ?2",
            )?
            .query_row(params![ask.source.as_str(), key], |row| row.get(0))?;
        let event = insert_event(tx, (&ask.source, now), &ask.delivery, variant, false)?;
        // The number was free in this transaction.
        let event = event.ok_or(rusqlite::Error::StatementChangedRows(0))?;
        // The row is this transaction's own.
        change_one(tx, "UPDATE event SET has_key = 1 WHERE row = ?1", [event])?;
        insert_payload(tx, event, &self.stored)?;
        let job = insert_job(tx, event, &NewJob::of(ask.handler.clone()), None, now)?;
        // The unique (source, caller, key) refuses a second row.
        tx.prepare_cached(
            "INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            event,
            ask.source.as_str(),
            ask.caller,
            key,
            ask.request.0,
            now.0,
            now.after(ask.keep).0,
            i64::try_from(ask.keep_errors.as_millis()).unwrap_or(i64::MAX),
        ])?;
        Ok(job)
    }
}
