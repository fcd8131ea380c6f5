//! One delivery of the slow way: reads what is known of its id and body, decides what it is, and makes the writes.
//!
//! The events of the batch's ids are locked, and the groups of its jobs.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::limits::{EVIDENCE_COUNT, MENDED_MILLIS};
use crate::model::{EventType, HeldReason, Repeats, State, Timestamp};
use crate::store::border::{Accept, Accepted, Error, NewJob};
use crate::store::columns::column;
use crate::store::decide::delivery::{
    Arrival, KnownEvent, SameBody, Twins, arrival, concern, guarded, mends, replays_dead,
};
use crate::store::decide::group::newer;

use super::columns::stored;
use super::flight::Flight;
use super::new_event::{GroupedJobs, Groups, Rows};
use super::params::params;
use super::prepared::{Form, NewEvent, Try};
use super::stop::{Stop, ask, ask_one};

/// The jobs of event $1 for which `$which` holds, locked, each with its group and what may make it out of date.
macro_rules! jobs_to_put_back {
    ($which:literal) => {
        concat!(
            "
    SELECT job.id, attempt, handler, group_key, event, newest_removed, group_rule IS NOT DISTINCT FROM 'latest' AS is_latest,
        CASE WHEN group_rule = 'latest' THEN (SELECT n.id FROM job n
            WHERE n.handler = job.handler AND n.group_key = job.group_key AND n.event > job.event
                AND (n.attempt > 0 OR n.holds)
            ORDER BY n.event DESC LIMIT 1) END AS newest
    FROM job CROSS JOIN meta
    WHERE event = $1 AND ",
            $which,
            "
    ORDER BY job.id FOR UPDATE OF job"
        )
    };
}

/// Puts those of the jobs $1 back for which `$which` holds.
macro_rules! put_back {
    ($which:literal) => {
        concat!(
            "
    UPDATE job SET state = 'ready', reason = NULL, detail = NULL, settled_at = NULL, counted = 0, since = now_ms(),
        replays = replays + 1, wait_since = NULL,
        behind = group_key IS NOT NULL AND EXISTS (SELECT FROM job h WHERE h.handler = job.handler
            AND h.group_key = job.group_key AND h.holds AND NOT h.behind AND h.row <> job.row)
    WHERE id = ANY ($1::uuid[]) AND ",
            $which,
            "
    RETURNING id"
        )
    };
}

/// The variants of one id that decide what a delivery is: the first, the last, and the first one with this body; and,
/// unless the id is signed, of this type. A sender can make any number of variants, and each is found by an index.
const KNOWN: &str = "
    SELECT row, variant, type, raw_type, digest, received_at,
        CASE WHEN removed_succeeded > 0 THEN 'succeeded' WHEN removed_dropped > 0 THEN 'dropped' END AS removed
    FROM event WHERE row IN (
        (SELECT row FROM event WHERE source = $1 AND event_id = $2 ORDER BY variant LIMIT 1)
        UNION ALL
        (SELECT row FROM event WHERE source = $1 AND event_id = $2 ORDER BY variant DESC LIMIT 1)
        UNION ALL
        (SELECT row FROM event WHERE source = $1 AND event_id = $2 AND variant > 0 AND digest = $3 AND $6::boolean
        ORDER BY variant LIMIT 1)
        UNION ALL
        (SELECT row FROM event WHERE source = $1 AND event_id = $2 AND variant > 0 AND digest = $3 AND NOT $6
            AND type = $4 AND sha256(coalesce(raw_type, '')) = sha256(coalesce($5::bytea, ''))
        ORDER BY variant LIMIT 1))
    ORDER BY variant";

/// Whether an event of the source has the body, and whether one of another type has it: one look-up in an index for
/// each of the five conditions.
const SAME_BODY: &str = "
    SELECT f.row IS NOT NULL
            OR EXISTS (SELECT FROM event WHERE source = $1 AND digest = $2 AND guarded AND repeated) AS is_known,
        coalesce(f.type <> $3, false)
            OR EXISTS (SELECT FROM event WHERE source = $1 AND digest = $2 AND guarded AND repeated AND type < $3)
            OR EXISTS (SELECT FROM event WHERE source = $1 AND digest = $2 AND guarded AND repeated AND type > $3)
            AS has_other
    FROM (VALUES (1)) one (n)
    LEFT JOIN event f ON f.source = $1 AND f.digest = $2 AND f.guarded AND NOT f.repeated";

/// When the database was last restored.
const RESTORED_AT: &str = "SELECT max(greatest(made_at, restored_at)) FROM restored";

/// Whether one of these jobs is stored. Each job id is made for one delivery at one node.
const HAS_JOB: &str = "SELECT EXISTS (SELECT FROM job WHERE id = ANY ($1::uuid[]))";

/// Whether each of these groups ($5 handlers, $6 keys, which may be NULL) has a job that has not begun, of an event with
/// this id and type. `ready` is safe to trust: an uncommitted claim starts its run after this delivery arrived.
const TWINS: &str = "
    SELECT EXISTS (SELECT FROM (
            SELECT event, state FROM job h WHERE h.handler = asked.handler AND h.group_key = asked.key AND h.holds
                AND NOT h.behind
            UNION ALL
            SELECT event, state FROM job b WHERE b.handler = asked.handler AND b.group_key = asked.key AND b.behind
        ) twin JOIN event ON event.row = twin.event
        WHERE twin.state IN ('ready', 'waiting') AND source = $1 AND event_id = $2 AND type = $3
            AND raw_type IS NOT DISTINCT FROM $4::bytea) AS has_twin
    FROM unnest($5::text[], $6::text[]) WITH ORDINALITY AS asked (handler, key, nth) ORDER BY nth";

/// Counts a delivery on the event that it repeats. Returns each job with its state: one row without a job if the
/// event has none, no row if the event is gone.
const REPEAT: &str = "
    WITH counted AS (
        UPDATE event SET duplicates = duplicates + 1, last_duplicate_at = $2, conflicts = conflicts + $3
        WHERE row = $1 RETURNING row
    )
    SELECT job.id, job.state, coalesce(job.state = 'held' AND job.reason = 'payload damaged', false) AS is_damaged
    FROM counted LEFT JOIN job ON job.event = counted.row";

/// The dead jobs of an event that may run again. A job that a person resolved as failed stays dead, and so does one
/// without its payload, one that answered its caller, and one that had ended before the database went back: it may have
/// succeeded since.
const DEAD: &str = jobs_to_put_back!(
    "state = 'dead' AND reason <> 'resolved as failed'
        AND EXISTS (SELECT FROM payload WHERE payload.event = $1)
        AND NOT EXISTS (SELECT FROM answer WHERE answer.event = $1 AND answered_at IS NOT NULL)
        AND NOT EXISTS (SELECT FROM restored WHERE restored_at >= settled_at)"
);

/// The jobs of an event that are held because its payload is damaged.
const DAMAGED: &str = jobs_to_put_back!("state = 'held' AND reason = 'payload damaged'");

/// Puts dead jobs ($1 ids) back, each behind the job that holds its group, if another one does.
pub(super) const PUT_BACK: &str = put_back!("state = 'dead'");

/// Puts the jobs of [`DAMAGED`] ($1 ids) back, each behind the job that holds its group, if another one does.
const PUT_BACK_MENDED: &str = put_back!("state = 'held' AND reason = 'payload damaged'");

/// Takes the place of a damaged payload, and counts that. The event has then arrived with this delivery. No row where the
/// payload is gone.
const MEND: &str = "
    WITH mended AS (
        UPDATE event SET received_at = arrived($2), body_bytes = $3
        WHERE row = $1 AND EXISTS (SELECT FROM payload WHERE payload.event = $1) RETURNING row, received_at
    ), told AS (
        UPDATE meta SET mended = CASE WHEN mended_at > now_ms() - $7 THEN mended + 1 ELSE 1 END, mended_at = now_ms()
        WHERE one = 1 AND EXISTS (SELECT FROM mended)
    )
    UPDATE payload SET headers = $4, body = $5, sum = $6::bigint + received_at FROM mended
    WHERE payload.event = mended.row RETURNING payload.event";

/// Keeps each differing body once, up to a limit. The event is locked, so no other transaction counts at the same
/// time.
const EVIDENCE: &str = "
    INSERT INTO evidence (event, digest, received_at, headers, body_bytes, body)
    SELECT $1, $2, $3, $4, $5, $6 WHERE (SELECT count(*) FROM evidence WHERE event = $1) < $7
    ON CONFLICT (event, digest) DO NOTHING";

/// Decides what one delivery is, and makes the writes. `form` is that of an event whose id and body are new.
pub(super) async fn store(
    flight: &mut Flight,
    event: &NewEvent,
    form: Form,
    locked: &Groups,
    grouped: &mut GroupedJobs,
) -> Result<Try, Stop> {
    let known = known(flight, event).await?;
    if let Some(tried) = own(flight, event, &known).await? {
        return Ok(tried);
    }
    let twins = twins(flight, event).await?;
    let arrival = arrival(&event.new, &known, &twins);
    match arrival {
        Arrival::Event(variant) | Arrival::IdReused(variant) => {
            let id_reused = matches!(arrival, Arrival::IdReused(_));
            let body = same_body(flight, event).await?;
            let (held, flagged) = guarded(event.new.delivery.guard(), body, id_reused);
            let held = match held {
                None => held_of_restore(flight, event).await?,
                held => held,
            };
            let repeated = body != SameBody::Nowhere;
            let form = Form { variant, repeated, held, flagged, ..form };
            let mut rows = Rows::default();
            rows.add(event, form, &twins, grouped);
            let stored = rows.send(flight).await;
            if flight.rows(stored).await.ok_or(Stop::Failed)?.is_empty() {
                return Err(Stop::Changed);
            }
            let answer = event.created(form, &twins);
            Ok(Try { answer, put_back: Vec::new() })
        }
        Arrival::Duplicate(of) => repeat(flight, event, of, false, locked).await,
        Arrival::Conflict(of) => {
            keep_evidence(flight, event, of).await;
            repeat(flight, event, of, true, locked).await
        }
    }
}

async fn known(flight: &mut Flight, event: &NewEvent) -> Result<Vec<KnownEvent>, Stop> {
    let delivery = &event.new.delivery;
    let (source, id, digest) = (event.source(), event.id(), event.digest());
    let (kind, raw) = (delivery.event_type().as_str(), event.raw_type());
    let key = params![source, id, digest, kind, raw, delivery.id_signed()];
    let known = ask(flight, KNOWN, key).await?;
    let read = |row: &Row| -> Result<KnownEvent, Error> {
        let raw = stored::<Option<&[u8]>>(row, "raw_type")?.map(String::from_utf8_lossy);
        Ok(KnownEvent {
            row: column(row, "row")?,
            variant: column(row, "variant")?,
            event_type: EventType::from_parts(stored(row, "type")?, raw.as_deref()),
            digest: column(row, "digest")?,
            received_at: column(row, "received_at")?,
            removed: column(row, "removed")?,
        })
    };
    Ok(known.iter().map(read).collect::<Result<_, _>>()?)
}

async fn twins(flight: &mut Flight, event: &NewEvent) -> Result<Twins, Stop> {
    let Accept { source, delivery, jobs, .. } = &event.new;
    if delivery.repeats() != Repeats::Trigger {
        return Ok(Twins::default());
    }
    let key = |job: &NewJob| job.group.as_ref().map(|group| group.key.as_str().to_owned());
    let groups = jobs.iter().map(|job| (job.handler.as_str().to_owned(), key(job)));
    let (handlers, keys): (Vec<String>, Vec<Option<String>>) = groups.unzip();
    let (kind, raw) = (delivery.event_type().as_str(), event.raw_type());
    let asked = params![source, delivery.event_id(), kind, raw, handlers, keys];
    let has_twin = ask(flight, TWINS, asked).await?.iter().map(|row| column(row, "has_twin"));
    Ok(Twins(has_twin.collect::<Result<_, Error>>()?))
}

/// Whether other events have the body of a new one.
async fn same_body(flight: &mut Flight, event: &NewEvent) -> Result<SameBody, Stop> {
    if !event.guarded() {
        return Ok(SameBody::Nowhere);
    }
    let kind = event.new.delivery.event_type().as_str();
    let body = params![event.source(), event.digest(), kind];
    let row = ask_one(flight, SAME_BODY, body).await?;
    let (is_known, has_other) = (column(row, "is_known")?, column(row, "has_other")?);
    Ok(match (is_known, has_other) {
        (false, _) => SameBody::Nowhere,
        (true, false) => SameBody::SameType,
        (true, true) => SameBody::OtherType,
    })
}

/// Why its jobs are held where the database was restored after it was signed.
async fn held_of_restore(
    flight: &mut Flight,
    event: &NewEvent,
) -> Result<Option<HeldReason>, Stop> {
    if event.new.delivery.signed_at().is_none() {
        return Ok(None);
    }
    let restored_at: Option<i64> = ask_one(flight, RESTORED_AT, Vec::new()).await?.try_get(0)?;
    Ok(event.held_of_restore(restored_at.map(Timestamp)))
}

/// The earlier try of this delivery, if that stored the event. The caller then gets the answer of that try, since
/// the delivery is not a redelivery. An event without a job is recognised by its time of arrival. If another node
/// stored the same event in the same millisecond, the answer is "accepted" instead of "duplicate", and one
/// duplicate is not counted.
async fn own(
    flight: &mut Flight,
    event: &NewEvent,
    known: &[KnownEvent],
) -> Result<Option<Try>, Stop> {
    let Some(tried @ Try { answer: Accepted::Created { .. }, .. }) = &event.doubt else {
        return Ok(None);
    };
    let is_stored = match event.job_ids.is_empty() {
        true => known
            .iter()
            .any(|of| of.received_at == event.new.received_at && of.digest == event.digest()),
        false => ask_one(flight, HAS_JOB, params![event.job_ids.clone()]).await?.try_get(0)?,
    };
    Ok(is_stored.then(|| tried.clone()))
}

async fn keep_evidence(flight: &mut Flight, event: &NewEvent, of: &KnownEvent) {
    let (headers, body) = (event.headers.clone(), event.body.clone());
    let (received_at, bytes) = (event.new.received_at, event.new.delivery.body().len());
    let (digest, most) = (event.digest(), EVIDENCE_COUNT);
    let evidence = params![of.row, digest, received_at, headers, bytes, body, most];
    flight.send(EVIDENCE, evidence).await;
}

async fn repeat(
    flight: &mut Flight,
    event: &NewEvent,
    of: &KnownEvent,
    conflict: bool,
    locked: &Groups,
) -> Result<Try, Stop> {
    let counted = params![of.row, event.new.received_at, u32::from(conflict)];
    let rows = ask(flight, REPEAT, counted).await?;
    if rows.is_empty() {
        return Err(Stop::Changed);
    }
    let (mut jobs, mut is_damaged) = (Vec::new(), false);
    for row in rows {
        is_damaged |= column::<bool>(row, "is_damaged")?;
        if let Some(id) = column::<Option<Uuid>>(row, "id")? {
            jobs.push((id, column(row, "state")?));
        }
    }
    let is_dead = jobs.iter().any(|(_, state)| *state == State::Dead);
    let mut put_back = Vec::new();
    if is_dead && replays_dead(event.new.on_redelivery, conflict) {
        put_back.extend(replay(flight, event, of, locked, [DEAD, PUT_BACK]).await?);
    }
    if is_damaged && !conflict && mends(&event.new.delivery, of) && mend(flight, event, of).await? {
        put_back.extend(replay(flight, event, of, locked, [DAMAGED, PUT_BACK_MENDED]).await?);
    }
    let is_put_back = |id: &Uuid| put_back.iter().any(|(back, _)| back == id);
    for (id, state) in &mut jobs {
        if is_put_back(id) {
            *state = State::Ready;
        }
    }
    let states: Vec<State> = jobs.iter().map(|(_, state)| *state).collect();
    let answer = Accepted::Duplicate {
        state: concern(&states, of.removed),
        removed: of.removed.is_some(),
        replayed: put_back.len(),
        first_received_at: of.received_at,
        conflict,
    };
    Ok(Try { answer, put_back })
}

/// Whether the event's payload is there, and is that of this delivery now.
async fn mend(flight: &mut Flight, event: &NewEvent, of: &KnownEvent) -> Result<bool, Stop> {
    let (received_at, bytes) = (event.new.received_at, event.new.delivery.body().len());
    let (headers, body) = (event.headers.clone(), event.body.clone());
    let payload = params![of.row, received_at, bytes, headers, body, event.sum, MENDED_MILLIS];
    Ok(!ask(flight, MEND, payload).await?.is_empty())
}

/// Puts the jobs of the event back that the first statement finds, by the second, and returns them, each with its last
/// attempt.
async fn replay(
    flight: &mut Flight,
    event: &NewEvent,
    of: &KnownEvent,
    locked: &Groups,
    [find, put]: [&'static str; 2],
) -> Result<Vec<(Uuid, i64)>, Stop> {
    let mut put_back = Vec::new();
    for row in ask(flight, find, params![of.row]).await? {
        let job: (Uuid, i64) = (column(row, "id")?, column(row, "attempt")?);
        // The earlier try may have put jobs back. One that has run and died since must not be put back a second time.
        if let Some(Try { answer: Accepted::Duplicate { .. }, put_back: before }) = &event.doubt
            && !before.contains(&job)
        {
            continue;
        }
        if let Some(key) = column::<Option<String>>(row, "group_key")? {
            let group = (column(row, "handler")?, key);
            if !locked.contains(&group) {
                return Err(Stop::Unlocked(group.0, group.1));
            }
        }
        let (event, removed) = (column(row, "event")?, column(row, "newest_removed")?);
        let is_latest: bool = column(row, "is_latest")?;
        if !is_latest || newer(column(row, "newest")?, event, removed).is_none() {
            put_back.push(job);
        }
    }
    if !put_back.is_empty() {
        let ids: Vec<Uuid> = put_back.iter().map(|(id, _)| *id).collect();
        flight.send(put, params![ids]).await;
    }
    Ok(put_back)
}
