//! ACCEPT: each verified delivery becomes a new event with its jobs, a variant of a known id, a counted duplicate, or
//! evidence. An event and its jobs are stored in one transaction (S6).
//!
//! - **Fast:** one statement stores the events whose id and body are new. It skips the others, which go the slow
//!   way in the next transaction: a row that it meets may be newer than its snapshot, so it cannot read it.
//! - **Slow:** the transaction locks the events of all ids first, then decides each delivery by the rows as they
//!   are then.
//!
//! Unique indexes keep two nodes from storing one id twice, and from both storing a body as an event that repeats
//! none. Each transaction takes its locks in the order of their keys. If rows have changed between a decision and
//! its write, the transaction is rolled back and sent again.
//!
//! If it is not known whether a duplicate is committed, it is sent again and may be counted twice. It puts jobs
//! back and keeps evidence once.

use std::collections::{BTreeMap, HashSet};

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::limits::EVIDENCE_COUNT;
use crate::model::{Digest, EventId, EventType, HeldReason, Name, ReplayGuard, State, Timestamp};
use crate::random;
use crate::store::border::{Accept, Accepted, Refused};
use crate::store::codec;
use crate::store::decide::delivery::{
    Arrival, KnownEvent, SameBody, arrival, concern, guarded, replays_dead,
};
use crate::store::decide::new_job;

use super::connection::Connection;
use super::flight::{Flight, FlightOutcome, Param, Refusal, Session};

/// Memory that a request takes in addition to its stored form, roughly.
const REQUEST_BYTES: usize = 1024;

/// How often a secret's last match is written, in milliseconds.
const SECRET_MILLIS: i64 = 60_000;

/// Stores the events whose id and body are new, with payload and jobs, and returns their places in the arrays, from
/// 1.
///
/// - Numbers are given in the order of the arrays. Rows are inserted in the order of their keys, so two nodes rarely
///   deadlock; one of them is then sent again.
/// - An event without `repeated` is skipped if its body is only in repeated events, because retention has deleted the
///   first. As an EXISTS, this look-up could become a hash of all repeated events.
/// - DO NOTHING skips a row that a unique index refuses. A row that breaks a CHECK is an error (S5).
const STORE: &str = r#"
    WITH new AS MATERIALIZED (
        SELECT nextval('event_row_seq') AS row, given.*
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bytea[], $6::bytea[], $7::boolean[],
            $8::boolean[], $9::boolean[], $10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[])
            WITH ORDINALITY AS given (source, event_id, variant, type, raw_type, digest, guarded,
                repeated, flagged, received_at, body_bytes, headers, body, n)
    ), stored AS (
        INSERT INTO event (row, source, event_id, variant, type, raw_type, digest, guarded, repeated, flagged,
            received_at, body_bytes)
        SELECT row, source, event_id, variant, type, raw_type, digest, guarded, repeated, flagged, received_at, body_bytes
        FROM new
        WHERE NOT guarded OR repeated OR (SELECT later.row FROM event later WHERE later.source = new.source
            AND later.digest = new.digest AND later.guarded AND later.repeated LIMIT 1) IS NULL
        ORDER BY source COLLATE "C", CASE WHEN guarded THEN digest END, event_id COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING row
    ), payloads AS (
        INSERT INTO payload (event, headers, body) SELECT row, headers, body FROM new JOIN stored USING (row)
    ), jobs AS (
        INSERT INTO job (id, event, handler, state, reason, detail, since, created_at, due_at, wait_since)
        SELECT id, row, handler, state, reason, detail, now_ms() + since, now_ms(), now_ms() + due, now_ms() + wait
        FROM unnest($14::bigint[], $15::uuid[], $16::text[], $17::text[], $18::text[], $19::text[], $20::bigint[],
            $21::bigint[], $22::bigint[])
            WITH ORDINALITY AS job (n, id, handler, state, reason, detail, since, due, wait, place)
        JOIN new USING (n) JOIN stored USING (row)
        ORDER BY place
    )
    SELECT n FROM new JOIN stored USING (row)"#;

/// Locks all events of these ids, in the order of their keys. Until the end of the transaction, no other transaction
/// counts their duplicates, keeps evidence on them or takes their next variant.
const LOCK_EVENTS: &str = "
    SELECT FROM event JOIN unnest($1::text[], $2::text[]) AS key (source, event_id) USING (source, event_id)
    ORDER BY event.source, event.event_id, event.variant FOR NO KEY UPDATE OF event";

/// Keeps the first events of these bodies from being deleted until the end of the transaction.
const LOCK_BODIES: &str = "
    SELECT FROM event JOIN unnest($1::text[], $2::bytea[]) AS key (source, digest) USING (source, digest)
    WHERE guarded AND NOT repeated
    ORDER BY event.source, event.digest FOR KEY SHARE OF event";

/// All variants of one id, the first one first. By the unique index; most ids have one row.
const KNOWN: &str = "
    SELECT row, variant, type, raw_type, digest, received_at,
        CASE WHEN removed_succeeded > 0 THEN 'succeeded' WHEN removed_dropped > 0 THEN 'dropped' END
    FROM event WHERE source = $1 AND event_id = $2 ORDER BY variant";

/// Whether an event of the source has the body, and whether one of another type has it: one look-up in an index for
/// each of the five conditions.
const SAME_BODY: &str = "
    SELECT f.row IS NOT NULL
            OR EXISTS (SELECT FROM event WHERE source = $1 AND digest = $2 AND guarded AND repeated),
        coalesce(f.type <> $3, false)
            OR EXISTS (SELECT FROM event WHERE source = $1 AND digest = $2 AND guarded AND repeated AND type < $3)
            OR EXISTS (SELECT FROM event WHERE source = $1 AND digest = $2 AND guarded AND repeated AND type > $3)
    FROM (VALUES (1)) one (n)
    LEFT JOIN event f ON f.source = $1 AND f.digest = $2 AND f.guarded AND NOT f.repeated";

/// Whether the event has one of these jobs. Each job id is made for one delivery at one node.
const HAS_JOB: &str = "SELECT EXISTS (SELECT FROM job WHERE event = $1 AND id = ANY ($2::uuid[]))";

/// Counts a delivery on the event that it repeats, and puts the event's dead jobs back if $4 is set. Returns each
/// job as it was before, with whether it was put back: one row without a job if the event has none, no row if the
/// event is gone.
///
/// A job that a person resolved as failed stays dead, and so does a job without its payload. $5 and $6, unless they
/// are NULL, name the only jobs that are put back, each with its last attempt.
const REPEAT: &str = "
    WITH counted AS (
        UPDATE event SET duplicates = duplicates + 1, last_duplicate_at = $2, conflicts = conflicts + $3
        WHERE row = $1 RETURNING row
    ), put_back AS (
        UPDATE job SET state = 'ready', reason = NULL, detail = NULL, settled_at = NULL, counted = 0,
            since = now_ms(), replays = replays + 1, wait_since = NULL
        WHERE $4 AND event = $1 AND state = 'dead' AND reason <> 'resolved as failed'
            AND EXISTS (SELECT FROM payload WHERE payload.event = $1)
            AND ($5::uuid[] IS NULL
                OR (id, attempt) IN (SELECT * FROM unnest($5::uuid[], $6::bigint[])))
        RETURNING id
    )
    SELECT job.id, job.state, job.attempt, put_back.id IS NOT NULL
    FROM counted LEFT JOIN job ON job.event = counted.row LEFT JOIN put_back ON put_back.id = job.id";

/// Keeps each differing body once, up to a limit. The event is locked, so no other transaction counts at the same
/// time.
const EVIDENCE: &str = "
    INSERT INTO evidence (event, digest, received_at, headers, body_bytes, body)
    SELECT $1, $2, $3, $4, $5, $6 WHERE (SELECT count(*) FROM evidence WHERE event = $1) < $7
    ON CONFLICT (event, digest) DO NOTHING";

/// Notes when secrets last matched, at any node.
const NOTE_SECRETS: &str = r#"
    INSERT INTO secret_use (source, reference, last_matched_at)
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) AS used (source, reference, last_matched_at)
    ORDER BY source COLLATE "C", reference COLLATE "C"
    ON CONFLICT (source, reference) DO UPDATE
        SET last_matched_at = greatest(secret_use.last_matched_at, excluded.last_matched_at)"#;

/// Where the answer to a request arrives.
pub(super) type Answer = oneshot::Receiver<Result<Vec<Accepted>, Refused>>;

/// The events of one delivery: all are stored or none is.
pub(super) struct Request {
    events: Vec<NewEvent>,
    /// The caller's deadline.
    pub(super) until: Instant,
    answer: oneshot::Sender<Result<Vec<Accepted>, Refused>>,
}

/// An event in its stored form.
struct NewEvent {
    new: Accept,
    /// As HTTP writes them.
    headers: Vec<u8>,
    /// Under zstd.
    body: Vec<u8>,
    /// The ids of `new.jobs`. They stay the same in each try.
    job_ids: Vec<Uuid>,
    /// The last try, if it is not known whether it is committed.
    doubt: Option<Try>,
}

/// What a transaction does with a delivery.
#[derive(Clone)]
pub(super) struct Try {
    answer: Accepted,
    /// The dead jobs that it put back, each with its last attempt.
    put_back: Vec<(Uuid, i64)>,
}

/// How an event is stored.
#[derive(Clone, Copy)]
struct Form {
    variant: i64,
    repeated: bool,
    held: Option<HeldReason>,
    flagged: bool,
}

const FIRST: Form = Form { variant: 0, repeated: false, held: None, flagged: false };

impl Request {
    /// Compresses the bodies.
    pub(super) async fn new(all: Vec<Accept>, until: Instant) -> Result<(Self, Answer), Refused> {
        let mut events = Vec::with_capacity(all.len());
        for new in all {
            if let Some(job) = new.jobs.iter().find(|job| job.group.is_some()) {
                return Err(Refused::Grouped(job.handler.clone()));
            }
            let body = codec::compress(new.delivery.body().clone()).await;
            let body = body.map_err(|error| Refused::Failed(format!("compression: {error}")))?;
            let id = |_| Uuid::from_bytes(*random::job_id(new.received_at).as_bytes());
            let (headers, job_ids) =
                (new.delivery.headers().to_wire(), new.jobs.iter().map(id).collect());
            events.push(NewEvent { new, headers, body, job_ids, doubt: None });
        }
        let (answer, receiver) = oneshot::channel();
        Ok((Request { events, until, answer }, receiver))
    }

    /// Whether the fast way may store it: of several events it might store just some.
    pub(super) fn is_single(&self) -> bool {
        self.events.len() == 1
    }

    pub(super) fn bytes(&self) -> usize {
        let stored = |event: &NewEvent| event.headers.len() + event.body.len() + REQUEST_BYTES;
        self.events.iter().map(stored).sum()
    }

    // For both answers: the caller may be gone, and a commit stands all the same (H1).
    pub(super) fn refuse(self, why: Refused) {
        let _ = self.answer.send(Err(why));
    }

    pub(super) fn committed(self, tries: Vec<Try>) {
        let _ = self.answer.send(Ok(tries.into_iter().map(|tried| tried.answer).collect()));
    }

    /// Whether an earlier try may be committed.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.events.iter().any(|event| event.doubt.is_some())
    }

    /// Notes that it is not known whether these tries are committed.
    pub(super) fn doubt(mut self, tries: Option<Vec<Try>>) -> Self {
        for (event, tried) in self.events.iter_mut().zip(tries.into_iter().flatten()) {
            event.doubt = Some(tried);
        }
        self
    }
}

impl NewEvent {
    fn source(&self) -> &Name {
        &self.new.source
    }

    fn id(&self) -> &EventId {
        self.new.delivery.event_id()
    }

    fn guarded(&self) -> bool {
        self.new.delivery.guard() != ReplayGuard::Off
    }

    fn digest(&self) -> Digest {
        self.new.delivery.digest()
    }

    /// The order in which events are inserted. Equal deliveries, and equal bodies under several ids, are in the
    /// same order at each node.
    fn key(&self) -> (&str, Option<[u8; 32]>, &str) {
        (self.source().as_str(), self.guarded().then_some(self.digest().0), self.id().as_str())
    }

    fn created(&self, form: Form) -> Accepted {
        Accepted::Created { jobs: self.new.jobs.len(), held: form.held, flagged: form.flagged }
    }
}

/// The fast way. Returns what was done with each request: `None` if it was skipped.
pub(super) async fn fast(
    connection: Connection,
    session: &Session,
    requests: &[Request],
    used: &UsedSecrets,
) -> (FlightOutcome, Vec<Option<Vec<Try>>>) {
    let mut flight = Flight::begin(connection, session).await;
    let mut rows = Rows::default();
    let events = || requests.iter().flat_map(|request| &request.events);
    events().for_each(|event| rows.add(event, FIRST));
    let store = flight.send(STORE, rows.params()).await;
    note(&mut flight, used).await;
    let outcome = flight.commit().await;
    let stored: Option<HashSet<i64>> = match &outcome {
        FlightOutcome::Committed(_, rows) => {
            let rows = rows.get(store).into_iter().flatten();
            Some(rows.filter_map(|row| row.try_get(0).ok()).collect())
        }
        _ => None,
    };
    let tries = (1..).zip(events()).map(|(n, event)| {
        let is_stored = stored.as_ref().is_none_or(|stored| stored.contains(&n));
        is_stored.then(|| vec![Try { answer: event.created(FIRST), put_back: Vec::new() }])
    });
    (outcome, tries.collect())
}

/// The slow way.
pub(super) async fn slow(
    connection: Connection,
    session: &Session,
    requests: &[Request],
    used: &UsedSecrets,
) -> (FlightOutcome, Vec<Option<Vec<Try>>>) {
    let mut flight = Flight::begin(connection, session).await;
    let mut events: Vec<(usize, &NewEvent)> = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        events.extend(request.events.iter().map(|event| (number, event)));
    }
    let sources = |guarded_only: bool| -> Vec<String> {
        let events = events.iter().filter(|(_, event)| !guarded_only || event.guarded());
        events.map(|(_, event)| event.source().as_str().to_owned()).collect()
    };
    let ids: Vec<String> = events.iter().map(|(_, event)| event.id().as_str().to_owned()).collect();
    let guarded = events.iter().filter(|(_, event)| event.guarded());
    let digests: Vec<Vec<u8>> = guarded.map(|(_, event)| event.digest().0.to_vec()).collect();
    flight.send(LOCK_EVENTS, vec![Box::new(sources(false)), Box::new(ids)]).await;
    flight.send(LOCK_BODIES, vec![Box::new(sources(true)), Box::new(digests)]).await;

    // The sort is stable: of equal deliveries, the first to arrive stays the first.
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|place| events[*place].1.key());
    let mut tries: Vec<Option<Try>> = vec![None; events.len()];
    for place in order {
        match decide(&mut flight, events[place].1).await {
            Ok(tried) => tries[place] = Some(tried),
            Err(stop) => return (stop.end(flight).await, Vec::new()),
        }
    }
    note(&mut flight, used).await;
    let mut of_requests = vec![Some(Vec::new()); requests.len()];
    for ((number, _), tried) in events.iter().zip(tries) {
        of_requests[*number].get_or_insert_default().extend(tried);
    }
    (flight.commit().await, of_requests)
}

/// Why a transaction of the slow way ends without a commit.
enum Stop {
    /// A statement failed. The flight has the error.
    Failed,
    /// Another transaction changed the rows after they were read.
    Changed,
    Unreadable(String),
}

impl Stop {
    async fn end(self, flight: Flight) -> FlightOutcome {
        let outcome = flight.roll_back().await;
        let why = match self {
            Stop::Failed => return outcome,
            Stop::Changed => Refusal::Conflict(
                "another transaction stored this event or its body first".to_owned(),
            ),
            Stop::Unreadable(text) => Refusal::Failed { code: String::new(), text },
        };
        match outcome {
            FlightOutcome::NotCommitted(_, connection) => {
                FlightOutcome::NotCommitted(why, connection)
            }
            other => other,
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Unreadable(error.to_string())
    }
}

/// Decides what one delivery is, and makes the writes.
async fn decide(flight: &mut Flight, event: &NewEvent) -> Result<Try, Stop> {
    let known = known(flight, event).await?;
    let arrival = arrival(&event.new, &known);
    match arrival {
        Arrival::Event(variant) | Arrival::IdReused(variant) => {
            let id_reused = matches!(arrival, Arrival::IdReused(_));
            let body = same_body(flight, event).await?;
            let (held, flagged) = guarded(event.new.delivery.guard(), body, id_reused);
            let repeated = body != SameBody::Nowhere;
            let form = Form { variant, repeated, held, flagged };
            let mut rows = Rows::default();
            rows.add(event, form);
            if ask(flight, STORE, rows.params()).await?.is_empty() {
                return Err(Stop::Changed);
            }
            Ok(Try { answer: event.created(form), put_back: Vec::new() })
        }
        Arrival::Duplicate(of) => match own(flight, event, of).await? {
            Some(tried) => Ok(tried),
            None => repeat(flight, event, of, false).await,
        },
        Arrival::Conflict(of) => {
            keep_evidence(flight, event, of).await;
            repeat(flight, event, of, true).await
        }
    }
}

async fn ask<'a>(
    flight: &'a mut Flight,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<&'a [Row], Stop> {
    let number = flight.send(sql, params).await;
    flight.rows(number).await.ok_or(Stop::Failed)
}

async fn known(flight: &mut Flight, event: &NewEvent) -> Result<Vec<KnownEvent>, Stop> {
    let key: Vec<Param> = vec![
        Box::new(event.source().as_str().to_owned()),
        Box::new(event.id().as_str().to_owned()),
    ];
    let read = |row: &Row| -> Result<KnownEvent, Stop> {
        let raw: Option<Vec<u8>> = row.try_get(3)?;
        let raw = raw.map(|raw| String::from_utf8_lossy(&raw).into_owned());
        let digest: Vec<u8> = row.try_get(4)?;
        let unreadable = |what: &str| Stop::Unreadable(format!("an event's {what}"));
        let removed: Option<&str> = row.try_get(6)?;
        Ok(KnownEvent {
            row: row.try_get(0)?,
            variant: row.try_get(1)?,
            event_type: EventType::from_parts(row.try_get(2)?, raw.as_deref()),
            digest: Digest(digest.try_into().map_err(|_| unreadable("digest"))?),
            received_at: Timestamp(row.try_get(5)?),
            removed: removed.map(str::parse).transpose().map_err(|_| unreadable("end"))?,
        })
    };
    ask(flight, KNOWN, key).await?.iter().map(read).collect()
}

/// Whether other events have the body of a new one.
async fn same_body(flight: &mut Flight, event: &NewEvent) -> Result<SameBody, Stop> {
    if !event.guarded() {
        return Ok(SameBody::Nowhere);
    }
    let body: Vec<Param> = vec![
        Box::new(event.source().as_str().to_owned()),
        Box::new(event.digest().0.to_vec()),
        Box::new(event.new.delivery.event_type().as_str().to_owned()),
    ];
    let rows = ask(flight, SAME_BODY, body).await?;
    let row = rows.first().ok_or_else(|| Stop::Unreadable("no answer".to_owned()))?;
    Ok(match (row.try_get(0)?, row.try_get(1)?) {
        (false, _) => SameBody::Nowhere,
        (true, false) => SameBody::SameType,
        (true, true) => SameBody::OtherType,
    })
}

/// The earlier try of this delivery, if that stored the event. The caller then gets the answer of that try, since
/// the delivery is not a redelivery. An event without a job is recognised by its time of arrival. If another node
/// stored the same event in the same millisecond, the answer is "accepted" instead of "duplicate", and one
/// duplicate is not counted.
async fn own(flight: &mut Flight, event: &NewEvent, of: &KnownEvent) -> Result<Option<Try>, Stop> {
    let Some(tried @ Try { answer: Accepted::Created { .. }, .. }) = &event.doubt else {
        return Ok(None);
    };
    if of.received_at != event.new.received_at || of.digest != event.digest() {
        return Ok(None);
    }
    if event.job_ids.is_empty() {
        return Ok(Some(tried.clone()));
    }
    let jobs: Vec<Param> = vec![Box::new(of.row), Box::new(event.job_ids.clone())];
    let rows = ask(flight, HAS_JOB, jobs).await?;
    let has_job = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false);
    Ok(has_job.then(|| tried.clone()))
}

async fn keep_evidence(flight: &mut Flight, event: &NewEvent, of: &KnownEvent) {
    let evidence: Vec<Param> = vec![
        Box::new(of.row),
        Box::new(event.digest().0.to_vec()),
        Box::new(event.new.received_at.0),
        Box::new(event.headers.clone()),
        Box::new(codec::size(event.new.delivery.body().len())),
        Box::new(event.body.clone()),
        Box::new(i64::from(EVIDENCE_COUNT)),
    ];
    flight.send(EVIDENCE, evidence).await;
}

async fn repeat(
    flight: &mut Flight,
    event: &NewEvent,
    of: &KnownEvent,
    conflict: bool,
) -> Result<Try, Stop> {
    // The earlier try may have put jobs back. One that has run and died since must not be put back a second time.
    let (mut ids, mut attempts) = (None, None);
    if let Some(Try { answer: Accepted::Duplicate { .. }, put_back }) = &event.doubt {
        ids = Some(put_back.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        attempts = Some(put_back.iter().map(|(_, attempt)| *attempt).collect::<Vec<_>>());
    }
    let params: Vec<Param> = vec![
        Box::new(of.row),
        Box::new(event.new.received_at.0),
        Box::new(i64::from(conflict)),
        Box::new(replays_dead(event.new.on_redelivery, conflict)),
        Box::new(ids),
        Box::new(attempts),
    ];
    let rows = ask(flight, REPEAT, params).await?;
    if rows.is_empty() {
        return Err(Stop::Changed);
    }
    let (mut states, mut put_back) = (Vec::new(), Vec::new());
    for row in rows {
        let Some(id) = row.try_get::<_, Option<Uuid>>(0)? else { continue };
        if row.try_get(3)? {
            put_back.push((id, row.try_get(2)?));
            states.push(State::Ready);
        } else {
            let state: &str = row.try_get(1)?;
            states.push(state.parse().map_err(|_| Stop::Unreadable("a job's state".to_owned()))?);
        }
    }
    let answer = Accepted::Duplicate {
        state: concern(&states, of.removed),
        removed: of.removed.is_some(),
        replayed: put_back.len(),
        first_received_at: of.received_at,
        conflict,
    };
    Ok(Try { answer, put_back })
}

/// The columns of [`STORE`], an array each.
#[derive(Default)]
struct Rows {
    sources: Vec<String>,
    event_ids: Vec<String>,
    variants: Vec<i64>,
    types: Vec<String>,
    raw_types: Vec<Option<Vec<u8>>>,
    digests: Vec<Vec<u8>>,
    guarded: Vec<bool>,
    repeated: Vec<bool>,
    flagged: Vec<bool>,
    received_at: Vec<i64>,
    body_bytes: Vec<i64>,
    headers: Vec<Vec<u8>>,
    bodies: Vec<Vec<u8>>,
    job_events: Vec<i64>,
    job_ids: Vec<Uuid>,
    handlers: Vec<String>,
    states: Vec<String>,
    reasons: Vec<Option<String>>,
    details: Vec<Option<String>>,
    since: Vec<i64>,
    due: Vec<Option<i64>>,
    wait: Vec<Option<i64>>,
}

impl Rows {
    fn add(&mut self, event: &NewEvent, form: Form) {
        let Accept { received_at, delivery, jobs, .. } = &event.new;
        self.sources.push(event.source().as_str().to_owned());
        self.event_ids.push(event.id().as_str().to_owned());
        self.variants.push(form.variant);
        self.types.push(delivery.event_type().as_str().to_owned());
        self.raw_types.push(delivery.event_type().raw().map(|raw| raw.as_bytes().to_vec()));
        self.digests.push(event.digest().0.to_vec());
        self.guarded.push(event.guarded());
        self.repeated.push(form.repeated);
        self.flagged.push(form.flagged);
        self.received_at.push(received_at.0);
        self.body_bytes.push(codec::size(delivery.body().len()));
        self.headers.push(event.headers.clone());
        self.bodies.push(event.body.clone());
        for (job, id) in jobs.iter().zip(&event.job_ids) {
            let held = new_job::held(job, form.held);
            // As offsets: the statement adds the database's time.
            let start = new_job::start(held, job.delay, None, Timestamp(0));
            self.job_events.push(codec::size(self.sources.len()));
            self.job_ids.push(*id);
            self.handlers.push(job.handler.as_str().to_owned());
            self.states.push(start.state.as_str().to_owned());
            self.reasons.push(held.map(|held| held.as_str().to_owned()));
            // PostgreSQL's text cannot have NUL, which the detail may quote.
            self.details.push(job.undecided.as_ref().map(|why| why.replace('\0', "\u{fffd}")));
            self.since.push(start.since.0);
            self.due.push(start.due_at.map(|due| due.0));
            self.wait.push(start.wait_since.map(|since| since.0));
        }
    }

    fn params(self) -> Vec<Param> {
        vec![
            Box::new(self.sources),
            Box::new(self.event_ids),
            Box::new(self.variants),
            Box::new(self.types),
            Box::new(self.raw_types),
            Box::new(self.digests),
            Box::new(self.guarded),
            Box::new(self.repeated),
            Box::new(self.flagged),
            Box::new(self.received_at),
            Box::new(self.body_bytes),
            Box::new(self.headers),
            Box::new(self.bodies),
            Box::new(self.job_events),
            Box::new(self.job_ids),
            Box::new(self.handlers),
            Box::new(self.states),
            Box::new(self.reasons),
            Box::new(self.details),
            Box::new(self.since),
            Box::new(self.due),
            Box::new(self.wait),
        ]
    }
}

/// Secrets by source and reference, each with its last match.
pub(super) type UsedSecrets = BTreeMap<(Name, String), Timestamp>;

/// When each secret's last match was written, so that a busy source writes it once a minute.
#[derive(Default)]
pub(super) struct SecretUses(UsedSecrets);

impl SecretUses {
    /// The matches of these requests that are to be written.
    pub(super) fn due(&self, requests: &[Request]) -> UsedSecrets {
        let mut due = UsedSecrets::new();
        for event in requests.iter().flat_map(|request| &request.events) {
            let Some(reference) = event.new.delivery.secret() else { continue };
            let key = (event.source().clone(), reference.to_owned());
            let now = event.new.received_at;
            // In both directions: the clock may have been set back.
            let is_young = |last: &Timestamp| (now.0 - last.0).abs() < SECRET_MILLIS;
            if !self.0.get(&key).is_some_and(is_young) {
                due.insert(key, now);
            }
        }
        due
    }

    /// These are committed.
    pub(super) fn written(&mut self, used: UsedSecrets) {
        self.0.extend(used);
    }
}

async fn note(flight: &mut Flight, used: &UsedSecrets) {
    if used.is_empty() {
        return;
    }
    let source = |(source, _): &(Name, String)| source.as_str().to_owned();
    let sources: Vec<String> = used.keys().map(source).collect();
    let references: Vec<String> = used.keys().map(|(_, reference)| reference.clone()).collect();
    let times: Vec<i64> = used.values().map(|time| time.0).collect();
    let params: Vec<Param> = vec![Box::new(sources), Box::new(references), Box::new(times)];
    flight.send(NOTE_SECRETS, params).await;
}
