//! ACCEPT: a genuine delivery becomes an event with its jobs, a duplicate, a variant, or evidence, in
//! one transaction (S6). A duplicate, a variant or a suspected replay supersedes nothing (I7).

use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::crash;
use crate::limits::{EVIDENCE_COUNT, MENDED_MILLIS};
use crate::model::{
    DeadReason, Digest, EventType, HeldReason, Name, Repeats, ReplayGuard, State, Timestamp,
};
use crate::store::border::{Accept, Accepted, NewJob, Refused};
use crate::store::decide::delivery::{
    Arrival, KnownEvent, SameBody, Twins, arrival, concern, guarded, is_before_restore, mends,
    replays_dead,
};
use crate::store::sqlite::engine::queue::Priority;
use crate::store::sqlite::tables::codec::change_one;
use crate::store::sqlite::tables::group;
use crate::store::sqlite::tables::job::{insert_job, put_back};
use crate::store::sqlite::tables::notice::Notices;
use crate::store::sqlite::tables::secret_use::SecretUses;
use crate::store::sqlite::tables::{codec, replay_index, restored};
use crate::store::sum::Given;
use crate::verify::Verified;

use super::handle::Intake;

/// Finds a job that has not begun, of an equal event in this group: the group's holder, or one behind it.
const TWIN: &str = "SELECT 1 FROM (
         SELECT event, state FROM job INDEXED BY job_holder
             WHERE handler = ?1 AND group_key = ?2 AND holds = 1 AND behind = 0
         UNION ALL
         SELECT event, state FROM job INDEXED BY job_behind WHERE handler = ?1 AND group_key = ?2 AND behind = 1
     ) j JOIN event e ON e.row = j.event
     WHERE (j.state = 'ready' OR j.state = 'waiting')
         AND e.source = ?3 AND e.event_id = ?4 AND e.type = ?5 AND e.raw_type IS ?6
     LIMIT 1";

/// What an item takes in memory beside its stored form, roughly.
const ITEM_BYTES: usize = 1024;

/// A payload in its stored form.
pub(crate) struct StoredPayload {
    /// The headers, as HTTP writes them.
    headers: Vec<u8>,
    /// The body, compressed with zstd.
    body: Vec<u8>,
    sum: i64,
}

impl StoredPayload {
    pub(crate) async fn of(
        (source, received_at): (&Name, Timestamp),
        delivery: &Verified,
    ) -> Result<StoredPayload, Refused> {
        let body = codec::compress(delivery.body().clone()).await;
        let body = body.map_err(|error| Refused::Failed(format!("compression: {error}")))?;
        let headers = delivery.headers().to_wire();
        let sum = Given::of(source, delivery, &headers, &body).sum(received_at);
        Ok(StoredPayload { headers, body, sum })
    }

    /// How the writer treats a request that stores it.
    pub(crate) fn priority(&self) -> Priority {
        Priority::Accept { bytes: self.bytes() }
    }

    fn bytes(&self) -> usize {
        self.headers.len() + self.body.len() + ITEM_BYTES
    }
}

/// A delivery on its way into the store.
struct Prepared {
    new: Accept,
    /// Later than its arrival when it is accepted from the quarantine.
    now: Timestamp,
    notices: Notices,
    secret_uses: Arc<SecretUses>,
}

impl Intake {
    pub async fn accept(&self, new: Accept) -> Result<Accepted, Refused> {
        self.engine.ready()?;
        let prepared = Arc::new(self.prepared(new.received_at)(new));
        let (source, event) = (&prepared.new.source, prepared.new.delivery.event_id());
        let mut duplicate = None;
        if self.recent.has(source, event) {
            // Without compressing its body, which costs several times the look-up.
            let (known, priority) = (Arc::clone(&prepared), Priority::Accept { bytes: ITEM_BYTES });
            duplicate = self.engine.submit(priority, move |tx| known.repeated(tx)).await?;
        }
        let accepted = match duplicate {
            Some(duplicate) => duplicate,
            None => {
                let stored = prepared.stored().await?;
                let (new, priority) = (Arc::clone(&prepared), stored.priority());
                let accepted =
                    self.engine.submit(priority, move |tx| new.store(tx, &stored)).await?;
                self.recent.note(source, event);
                accepted
            }
        };
        is_committed();
        Ok(accepted)
    }

    pub async fn accept_all(
        &self,
        new: Vec<Accept>,
        now: Timestamp,
    ) -> Result<Vec<Accepted>, Refused> {
        Ok(self.accept_with(new, now, |_: &Connection| Ok(())).await?.0)
    }

    /// Accepts all of these events and does `also` in the same transaction.
    pub(crate) async fn accept_with<T, F>(
        &self,
        new: Vec<Accept>,
        now: Timestamp,
        mut also: F,
    ) -> Result<(Vec<Accepted>, T), Refused>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.engine.ready()?;
        let (mut all, mut bytes) = (Vec::with_capacity(new.len()), 0);
        for prepared in new.into_iter().map(self.prepared(now)) {
            let stored = prepared.stored().await?;
            bytes += stored.bytes();
            all.push((prepared, stored));
        }
        let store = move |tx: &Connection| {
            let store = |(prepared, stored): &(Prepared, StoredPayload)| prepared.store(tx, stored);
            let accepted = all.iter().map(store).collect::<rusqlite::Result<Vec<_>>>()?;
            Ok((accepted, also(tx)?))
        };
        let accepted = self.engine.submit(Priority::Accept { bytes }, store).await?;
        is_committed();
        Ok(accepted)
    }

    fn prepared(&self, now: Timestamp) -> impl Fn(Accept) -> Prepared {
        let (notices, secret_uses) =
            (self.engine.notices.clone(), Arc::clone(&self.engine.secret_uses));
        move |new| {
            let (notices, secret_uses) = (notices.clone(), Arc::clone(&secret_uses));
            Prepared { new, now, notices, secret_uses }
        }
    }
}

fn is_committed() {
    crash::point("accept.commit.after");
}

impl Prepared {
    async fn stored(&self) -> Result<StoredPayload, Refused> {
        let Accept { source, received_at, delivery, .. } = &self.new;
        StoredPayload::of((source, *received_at), delivery).await
    }

    fn store(&self, tx: &Connection, stored: &StoredPayload) -> rusqlite::Result<Accepted> {
        self.note_secret(tx)?;
        // Most ids are new: they are not looked for.
        if let Some(event) = self.insert_event(tx, 0)? {
            return self.new_event(tx, event, false, &Twins::default(), stored);
        }
        let (known, twins) = (self.known(tx)?, self.twins(tx)?);
        let arrival = arrival(&self.new, &known, &twins);
        match arrival {
            Arrival::Event(variant) | Arrival::IdReused(variant) => {
                // The variants were read in this transaction, so the number is free.
                let event = self.insert_event(tx, variant)?;
                let event = event.ok_or(rusqlite::Error::StatementChangedRows(0))?;
                let id_reused = matches!(arrival, Arrival::IdReused(_));
                self.new_event(tx, event, id_reused, &twins, stored)
            }
            Arrival::Duplicate(of) => {
                let mended = self.mend(tx, of, stored)?;
                self.duplicate(tx, of, false, mended)
            }
            Arrival::Conflict(of) => {
                self.keep_evidence(tx, of, stored)?;
                self.duplicate(tx, of, true, 0)
            }
        }
    }

    fn new_event(
        &self,
        tx: &Connection,
        event: i64,
        id_reused: bool,
        twins: &Twins,
        stored: &StoredPayload,
    ) -> rusqlite::Result<Accepted> {
        let body = self.same_body(tx, event, id_reused)?;
        let (held, flagged) = guarded(self.new.delivery.guard(), body, id_reused);
        let held = match held {
            None if self.is_before_restore(tx)? => Some(HeldReason::Restored),
            held => held,
        };
        if flagged {
            // The row is this transaction's own.
            change_one(tx, "UPDATE event SET flagged = 1 WHERE row = ?1", [event])?;
        }
        insert_payload(tx, event, stored)?;
        self.insert_jobs(tx, event, held, twins)?;
        crash::point("accept.commit.before");
        let jobs = twins.made(&self.new.jobs).count();
        Ok(Accepted::Created { jobs, held, flagged })
    }

    /// The duplicate that it is, where its very body came before and needs no mending.
    fn repeated(&self, tx: &Connection) -> rusqlite::Result<Option<Accepted>> {
        let (known, twins) = (self.known(tx)?, self.twins(tx)?);
        let Arrival::Duplicate(of) = arrival(&self.new, &known, &twins) else { return Ok(None) };
        if !damaged(tx, of.row)?.is_empty() {
            return Ok(None);
        }
        self.note_secret(tx)?;
        self.duplicate(tx, of, false, 0).map(Some)
    }

    fn is_before_restore(&self, tx: &Connection) -> rusqlite::Result<bool> {
        let delivery = &self.new.delivery;
        if delivery.signed_at().is_none() {
            return Ok(false);
        }
        Ok(is_before_restore(delivery, restored::last(tx)?))
    }

    /// Whether the replay guard looks at its body.
    fn guarded(&self) -> bool {
        self.new.delivery.guard() != ReplayGuard::Off
    }

    fn note_secret(&self, tx: &Connection) -> rusqlite::Result<()> {
        self.secret_uses.note(tx, &self.new.source, self.new.delivery.secret(), self.now)
    }

    fn insert_event(&self, tx: &Connection, variant: i64) -> rusqlite::Result<Option<i64>> {
        let Accept { source, received_at, delivery, .. } = &self.new;
        insert_event(tx, (source, *received_at), delivery, variant, self.guarded())
    }

    fn insert_jobs(
        &self,
        tx: &Connection,
        event: i64,
        held: Option<HeldReason>,
        twins: &Twins,
    ) -> rusqlite::Result<()> {
        for job in twins.made(&self.new.jobs) {
            insert_job(tx, event, job, held, self.now)?;
            if held.is_some() || job.undecided.is_some() {
                self.notices.job(tx, tx.last_insert_rowid(), self.now)?;
            }
        }
        Ok(())
    }

    /// Where else the body of this event came, which was just stored. Its types are looked at only where they matter.
    fn same_body(
        &self,
        tx: &Connection,
        event: i64,
        id_reused: bool,
    ) -> rusqlite::Result<SameBody> {
        let Accept { source, delivery, .. } = &self.new;
        let digest = delivery.digest();
        if !self.guarded() || !replay_index::repeats(tx, source, digest, event)? {
            return Ok(SameBody::Nowhere);
        }
        let own_type = delivery.event_type().as_str();
        let is_other = delivery.guard() == ReplayGuard::Flag
            && !id_reused
            && replay_index::is_under_another_type(tx, source, digest, own_type)?;
        Ok(if is_other { SameBody::OtherType } else { SameBody::SameType })
    }

    /// The variants of this id in order. Under a window and for triggers only the last matters, and a cron service adds one
    /// each minute.
    fn known(&self, tx: &Connection) -> rusqlite::Result<Vec<KnownEvent>> {
        // -1 is no limit.
        let most = match self.new.delivery.repeats() {
            Repeats::Window(_) | Repeats::Trigger => 1,
            Repeats::Duplicate | Repeats::LookAgain => -1,
        };
        // By the unique index; most ids have one row.
        let mut known = tx.prepare_cached(
            "SELECT row, variant, type, raw_type, digest, received_at,
                 CASE WHEN removed_succeeded > 0 THEN 'succeeded' WHEN removed_dropped > 0 THEN 'dropped' END
             FROM event WHERE source = ?1 AND event_id = ?2 ORDER BY variant DESC LIMIT ?3",
        )?
        .query_map(params![self.new.source.as_str(), codec::stored_id(self.new.delivery.event_id()), most], |row| {
            let raw: Option<String> = row.get(3)?;
            Ok(KnownEvent {
                row: row.get(0)?,
                variant: row.get(1)?,
                event_type: EventType::from_parts(row.get_ref(2)?.as_str()?, raw.as_deref()),
                digest: row.get(4).map(Digest)?,
                received_at: codec::time(row, 5)?,
                removed: codec::maybe_text(row, 6)?,
            })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
        known.reverse();
        Ok(known)
    }

    fn twins(&self, tx: &Connection) -> rusqlite::Result<Twins> {
        let Accept { source, delivery, jobs, .. } = &self.new;
        if delivery.repeats() != Repeats::Trigger {
            return Ok(Twins::default());
        }
        let mut twin = tx.prepare_cached(TWIN)?;
        let (id, kind) = (codec::stored_id(delivery.event_id()), delivery.event_type());
        let mut has_twin = |job: &NewJob| {
            let Some(group) = &job.group else { return Ok(false) };
            let (handler, key) = (job.handler.as_str(), group.key.as_str());
            twin.exists(params![handler, key, source.as_str(), id, kind.as_str(), kind.raw()])
        };
        jobs.iter().map(&mut has_twin).collect::<rusqlite::Result<_>>().map(Twins)
    }

    fn duplicate(
        &self,
        tx: &Connection,
        event: &KnownEvent,
        conflict: bool,
        mended: usize,
    ) -> rusqlite::Result<Accepted> {
        // Counts the delivery on the event it repeats.
        change_one(
            tx,
            "UPDATE event SET duplicates = duplicates + 1, last_duplicate_at = ?2,
                 conflicts = conflicts + ?3 WHERE row = ?1",
            params![event.row, self.new.received_at.0, conflict],
        )?;
        let replay = replays_dead(self.new.on_redelivery, conflict);
        let replayed = mended + if replay { self.replay_dead(tx, event.row)? } else { 0 };
        // Its jobs are as many as it has handlers. No DISTINCT: SQLite would make a table for it.
        let states = tx
            .prepare_cached("SELECT state FROM job WHERE event = ?1")?
            .query_map([event.row], |row| codec::text(row, 0))?
            .collect::<rusqlite::Result<Vec<State>>>()?;
        let state = concern(&states, event.removed);
        let first_received_at = event.received_at;
        let removed = event.removed.is_some();
        Ok(Accepted::Duplicate { state, removed, replayed, first_received_at, conflict })
    }

    /// Puts the dead jobs of an event back, for a delivery that brought this very body again. What a
    /// person resolved as failed stays so, what answered a caller does, and a job without its payload has
    /// nothing to run with. What a restored backup brought may have succeeded after the backup was made. What a newer
    /// event has made meaningless stays dead.
    fn replay_dead(&self, tx: &Connection, event: i64) -> rusqlite::Result<usize> {
        // By the unique (event, handler).
        let dead = tx
            .prepare_cached(
                "SELECT row FROM job WHERE event = ?1 AND state = 'dead' AND reason <> ?2
                 AND EXISTS (SELECT 1 FROM payload WHERE payload.event = ?1)
                 AND NOT EXISTS (SELECT 1 FROM answer WHERE answer.event = ?1 AND answered_at IS NOT NULL)
                 AND NOT EXISTS (SELECT 1 FROM restored WHERE restored_at >= settled_at)",
            )?
            .query_map(params![event, DeadReason::Resolved.as_str()], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<i64>>>()?;
        self.put_all_back(tx, dead)
    }

    /// Puts these jobs back, but for those that a newer event has made meaningless. Returns how many.
    fn put_all_back(&self, tx: &Connection, jobs: Vec<i64>) -> rusqlite::Result<usize> {
        let mut replayed = 0;
        for job in jobs {
            if group::newer(tx, job)?.is_none() {
                put_back(tx, job, self.now)?;
                replayed += 1;
            }
        }
        Ok(replayed)
    }

    /// Takes the place of a damaged payload, and puts the jobs back that are held for it. The event has then arrived with
    /// this delivery. Returns how many jobs.
    fn mend(
        &self,
        tx: &Connection,
        event: &KnownEvent,
        stored: &StoredPayload,
    ) -> rusqlite::Result<usize> {
        let held = damaged(tx, event.row)?;
        if held.is_empty() || !mends(&self.new.delivery, event) {
            return Ok(0);
        }
        // One row, or none where retention has deleted the payload.
        let mended = tx
            .prepare_cached(
                "UPDATE payload SET headers = ?2, body = ?3, sum = ?4 WHERE event = ?1",
            )?
            .execute(params![event.row, stored.headers, stored.body, stored.sum])?;
        if mended == 0 {
            return Ok(0);
        }
        let bytes = codec::size(self.new.delivery.body().len());
        change_one(
            tx,
            "UPDATE event SET received_at = ?2, body_bytes = ?3 WHERE row = ?1",
            params![event.row, self.new.received_at.0, bytes],
        )?;
        change_one(
            tx,
            "UPDATE meta SET mended = CASE WHEN mended_at > ?1 - ?2 THEN mended + 1 ELSE 1 END, mended_at = ?1
             WHERE one = 1",
            params![self.now.0, MENDED_MILLIS],
        )?;
        self.put_all_back(tx, held)
    }

    fn keep_evidence(
        &self,
        tx: &Connection,
        event: &KnownEvent,
        stored: &StoredPayload,
    ) -> rusqlite::Result<()> {
        // Each differing body once, and no more of them than the limit.
        tx.prepare_cached(
            "INSERT INTO evidence (event, digest, received_at, headers, body_bytes, body)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6
             WHERE (SELECT count(*) FROM evidence WHERE event = ?1) < ?7
             ON CONFLICT (event, digest) DO NOTHING",
        )?
        .execute(params![
            event.row,
            self.new.delivery.digest().0,
            self.new.received_at.0,
            stored.headers,
            codec::size(self.new.delivery.body().len()),
            stored.body,
            EVIDENCE_COUNT,
        ])?;
        Ok(())
    }
}

/// The jobs of an event that are held because its payload is damaged.
fn damaged(tx: &Connection, event: i64) -> rusqlite::Result<Vec<i64>> {
    // By the unique (event, handler).
    tx.prepare_cached("SELECT row FROM job WHERE event = ?1 AND state = 'held' AND reason = ?2")?
        .query_map(params![event, HeldReason::PayloadDamaged.as_str()], |row| row.get(0))?
        .collect()
}

/// The row of a new event from this source; none where there is one of this id and variant.
pub(crate) fn insert_event(
    tx: &Connection,
    (source, received_at): (&Name, Timestamp),
    delivery: &Verified,
    variant: i64,
    guarded: bool,
) -> rusqlite::Result<Option<i64>> {
    // One row means that the event is new; none that it is known. DO NOTHING names its conflict: OR IGNORE
    // would also swallow a broken CHECK and call the lost event a duplicate (S5). No RETURNING: SQLite
    // would keep a journal of the statement for it.
    let inserted = tx
        .prepare_cached(
            "INSERT INTO event (source, event_id, variant, type, raw_type, digest, guarded, received_at, body_bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (source, event_id, variant) DO NOTHING",
        )?
        .execute(params![
            source.as_str(),
            codec::stored_id(delivery.event_id()),
            variant,
            delivery.event_type().as_str(),
            delivery.event_type().raw(),
            delivery.digest().0,
            guarded,
            received_at.0,
            codec::size(delivery.body().len()),
        ])?;
    Ok((inserted == 1).then(|| tx.last_insert_rowid()))
}

/// The payload lies in its own table, so that retention leaves the id.
pub(crate) fn insert_payload(
    tx: &Connection,
    event: i64,
    stored: &StoredPayload,
) -> rusqlite::Result<()> {
    tx.prepare_cached("INSERT INTO payload (event, headers, body, sum) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![event, stored.headers, stored.body, stored.sum])?;
    Ok(())
}
