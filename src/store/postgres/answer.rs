//! ASK: a request with a key starts its job, or finds the state of it. A look finds the same of a key or a job, and
//! changes nothing.
//!
//! What a caller is told was read in a transaction that is committed and has written to the log (N5): the fence is
//! such a write. Of two nodes that begin one key, a unique index of the event stops one, which then finds the key
//! (N13).

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_postgres::Row;

use crate::model::{Digest, EventId, JobId, Name, Timestamp};
use crate::random;
use crate::store::answer::{Fate, StoredAnswer, unreadable};
use crate::store::border::{Ask, Asked, Error, KeyState, Refused};
use crate::store::codec;
use crate::store::columns::{column, unreadable as unreadable_column};
use crate::store::decide::key::{Repeat, repeat, unanswered};
use crate::store::sum::Given;

use super::accept::REQUEST_BYTES;
use super::arrival::PUT_BACK;
use super::connection::Connection;
use super::flight::{Flight, FlightOutcome, Session};
use super::params::params;
use super::remembered::Remembered;
use super::secret_use::SecretUses;
use super::stop::{Stop, ask, limit_lock_wait};

/// The caller's key, by its unique index, with the state of its job: also a key that should have expired, until
/// retention has deleted it.
const KEY: &str = "
    SELECT j.id, j.attempt, j.state, t.outcome, a.status, a.headers, a.body, a.body_bytes, a.request, a.event
    FROM answer a JOIN job j ON j.event = a.event LEFT JOIN attempt t ON t.job = j.row AND t.number = j.attempt
    WHERE a.source = $1 AND a.caller = $2 AND a.key = $3";

/// Keeps the key of an event from being deleted (I4).
pub(super) const LOCK_KEY: &str = "SELECT FROM answer WHERE event = $1 FOR KEY SHARE";

/// The states of these jobs, each with the answer to its caller.
const JOBS: &str = "
    SELECT j.id, j.attempt, j.state, t.outcome, a.status, a.headers, a.body, a.body_bytes
    FROM job j LEFT JOIN answer a ON a.event = j.event LEFT JOIN attempt t ON t.job = j.row AND t.number = j.attempt
    WHERE j.id = ANY ($1::uuid[])";

/// Begins a new key: its event is the next variant of the id, and no body or id that came before has a meaning for it.
/// Returns no row where another transaction has stored that variant, or the key since it was looked for.
const BEGIN: &str = "
    WITH stored AS (
        INSERT INTO event (source, event_id, variant, type, raw_type, digest, guarded, repeated, flagged, received_at,
            body_bytes, has_key)
        SELECT $1, $3, coalesce((SELECT max(variant) + 1 FROM event WHERE source = $1 AND event_id = $3), 0), $4, $5,
            $6, false, false, false, arrived($7), $8, true
        WHERE NOT EXISTS (SELECT FROM answer WHERE source = $1 AND caller = $2 AND key = $3)
        ON CONFLICT (source, event_id, variant) DO NOTHING
        RETURNING row, received_at
    ), kept AS (
        INSERT INTO payload (event, headers, body, sum) SELECT row, $9, $10, $16::bigint + received_at FROM stored
    ), begun AS (
        INSERT INTO job (id, event, handler, state, since, created_at)
        SELECT $11, row, $12, 'ready', now_ms(), now_ms() FROM stored
    )
    INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
    SELECT row, $1, $2, $3, $13, now_ms(), now_ms() + $14::bigint, $15 FROM stored
    RETURNING event";

/// What a request finds. It is not committed before the answer arrives.
pub(super) enum Found {
    /// Its job is ready, made by it or put back by it.
    Begun {
        job: JobId,
        again: bool,
        attempt: i64,
    },
    /// Its key is in use by another request.
    Conflict,
    Known {
        job: JobId,
        fate: Fate,
    },
    /// Nothing: only [`Request::new`] begins a key.
    Nothing,
}

impl Found {
    fn begun(job: JobId, again: bool, attempt: i64) -> Found {
        Found::Begun { job, again, attempt }
    }

    /// What the caller is told; none where nothing was found.
    pub(super) async fn open(self) -> Result<Option<Asked>, Refused> {
        Ok(Some(match self {
            Found::Nothing => return Ok(None),
            Found::Conflict => Asked::Conflict,
            Found::Begun { job, again, .. } => Asked::Begun { job, again },
            Found::Known { job, fate } => {
                let state = fate.open().await;
                let state = state.map_err(|error| Refused::Failed(unreadable(&error)))?;
                Asked::Known { job, state }
            }
        }))
    }
}

/// Where the answer to a request arrives.
pub(super) type Answer = oneshot::Receiver<Result<Found, Refused>>;

/// A request with a key, or a look.
pub(super) struct Request {
    question: Question,
    /// The caller's deadline.
    pub(super) deadline: Instant,
    /// An earlier try may be committed.
    pub(super) in_doubt: bool,
    answer: oneshot::Sender<Result<Found, Refused>>,
}

/// What is asked for.
pub(super) enum Question {
    Key { source: Name, caller: String, key: EventId, request: Digest, begin: Option<Box<NewKey>> },
    Job(JobId),
}

/// What a new key begins.
pub(super) struct NewKey {
    ask: Ask,
    /// The headers, as HTTP writes them.
    headers: Vec<u8>,
    /// The body, compressed with zstd.
    body: Vec<u8>,
    /// The sum of the payload without its time of arrival: the database adds the one that it stores.
    sum: i64,
    /// The id of its job, the same in each try.
    job: JobId,
    /// The last attempt of the job that a try has put back, if it is not known whether that is committed.
    put_back: Option<i64>,
}

impl Question {
    /// ASK. Compresses the body.
    pub(super) async fn ask(ask: Ask) -> Result<Self, Refused> {
        let body = codec::compress(ask.delivery.body().clone()).await;
        let body = body.map_err(|error| Refused::Failed(format!("compression: {error}")))?;
        let headers = ask.delivery.headers().to_wire();
        let sum = Given::of(&ask.source, &ask.delivery, &headers, &body).sum(Timestamp(0));
        let job = random::job_id(ask.received_at);
        let (source, caller) = (ask.source.clone(), ask.caller.clone());
        let (key, request) = (ask.delivery.event_id().clone(), ask.request);
        let begin = Some(Box::new(NewKey { ask, headers, body, sum, job, put_back: None }));
        Ok(Question::Key { source, caller, key, request, begin })
    }

    /// The order of the transaction's locks.
    fn order(&self) -> Option<(&Name, &EventId, &str)> {
        match self {
            Question::Key { source, caller, key, .. } => Some((source, key, caller)),
            Question::Job(_) => None,
        }
    }
}

impl Request {
    pub(super) fn new(question: Question, deadline: Instant) -> (Self, Answer) {
        let (answer, receiver) = oneshot::channel();
        (Request { question, deadline, in_doubt: false, answer }, receiver)
    }

    pub(super) fn begin(&self) -> Option<&NewKey> {
        match &self.question {
            Question::Key { begin, .. } => begin.as_deref(),
            Question::Job(_) => None,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.begin().map_or(0, |new| new.headers.len() + new.body.len()) + REQUEST_BYTES
    }

    pub(super) fn note_secret(&self, secrets: &mut SecretUses, now: Duration) {
        if let Some(NewKey { ask, .. }) = self.begin() {
            secrets.note(&ask.source, &ask.delivery, now);
        }
    }

    pub(super) fn remember(&self, remembered: &mut Remembered) {
        if let Some(NewKey { ask, .. }) = self.begin() {
            remembered.note(&ask.source, ask.delivery.event_id());
        }
    }

    // For both answers: the caller may be gone, and a commit stands all the same (H1).
    pub(super) fn refuse(self, why: Refused) {
        let _ = self.answer.send(Err(why));
    }

    pub(super) fn committed(self, found: Found) {
        let _ = self.answer.send(Ok(found));
    }

    /// Notes that it is not known whether this is committed.
    pub(super) fn doubt(&mut self, found: &Found) {
        self.in_doubt = true;
        if let (Question::Key { begin: Some(new), .. }, Found::Begun { again: true, attempt, .. }) =
            (&mut self.question, found)
        {
            new.put_back = Some(*attempt);
        }
    }
}

/// One transaction for all requests. For each what it has found or begun, if it is committed.
pub(super) async fn find(
    connection: Connection,
    session: &Session,
    requests: &[&Request],
) -> (FlightOutcome, Vec<Found>) {
    let mut flight = Flight::begin(connection, session).await;
    match find_all(&mut flight, requests).await {
        Ok(found) => (flight.commit().await, found),
        Err(stop) => (stop.end(flight).await, Vec::new()),
    }
}

async fn find_all(flight: &mut Flight, requests: &[&Request]) -> Result<Vec<Found>, Stop> {
    limit_lock_wait(flight).await;
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|place| requests[*place].question.order());
    let mut found: Vec<Found> = requests.iter().map(|_| Found::Nothing).collect();
    let mut jobs = Vec::new();
    for place in order {
        match &requests[place].question {
            Question::Key { source, caller, key, request, begin } => {
                let used = ask(flight, KEY, params![source, &caller[..], key]).await?.first();
                let begin = begin.as_deref();
                found[place] = match (used.map(UsedKey::read).transpose()?, begin) {
                    (Some(used), _) => used.asked(flight, *request, begin).await?,
                    (None, Some(new)) => new.store(flight).await?,
                    (None, None) => Found::Nothing,
                };
            }
            Question::Job(job) => jobs.push((*job, place)),
        }
    }
    if !jobs.is_empty() {
        let ids: Vec<&JobId> = jobs.iter().map(|(job, _)| job).collect();
        for row in ask(flight, JOBS, params![ids]).await? {
            let (job, _, fate) = read(row)?;
            for (_, place) in jobs.iter().filter(|(asked, _)| *asked == job) {
                let fate = fate.clone();
                found[*place] = Found::Known { job, fate };
            }
        }
    }
    Ok(found)
}

/// A key that is in use.
struct UsedKey {
    event: i64,
    job: JobId,
    attempt: i64,
    fate: Fate,
    request: Digest,
}

impl UsedKey {
    fn read(row: &Row) -> Result<Self, Error> {
        let (job, attempt, fate) = read(row)?;
        Ok(UsedKey {
            event: column(row, "event")?,
            job,
            attempt,
            fate,
            request: column(row, "request")?,
        })
    }

    async fn asked(
        self,
        flight: &mut Flight,
        request: Digest,
        begin: Option<&NewKey>,
    ) -> Result<Found, Stop> {
        let (job, attempt) = (self.job, self.attempt);
        // An earlier try has begun it, whatever has become of it.
        if begin.is_some_and(|new| new.job == job) {
            return Ok(Found::begun(job, false, attempt));
        }
        let has_failed = matches!(self.fate, Fate::Other(KeyState::Failed));
        match (repeat(request, self.request, has_failed), begin) {
            (Repeat::Conflict, _) => Ok(Found::Conflict),
            (Repeat::Again, None) => Ok(Found::Nothing),
            // An earlier try may have put it back, and it has run and failed since: one request, one attempt (I3).
            (Repeat::Again, Some(new)) if new.put_back.is_none_or(|before| before == attempt) => {
                // It was read as dead; of two nodes one puts it back.
                if ask(flight, PUT_BACK, params![vec![job]]).await?.is_empty()
                    || ask(flight, LOCK_KEY, params![self.event]).await?.is_empty()
                {
                    return Err(Stop::Changed);
                }
                Ok(Found::begun(job, true, attempt))
            }
            (Repeat::Again | Repeat::Known, _) => Ok(Found::Known { job, fate: self.fate }),
        }
    }
}

impl NewKey {
    async fn store(&self, flight: &mut Flight) -> Result<Found, Stop> {
        let (new, delivery) = (&self.ask, &self.ask.delivery);
        let (source, caller, key) = (&new.source, &new.caller[..], delivery.event_id());
        let kind = delivery.event_type();
        let raw = kind.raw().map(|raw| raw.as_bytes().to_vec());
        let (kind, digest) = (kind.as_str(), delivery.digest());
        let (headers, body) = (self.headers.clone(), self.body.clone());
        let (at, bytes, job) = (new.received_at, delivery.body().len(), self.job);
        let (handler, request) = (&new.handler, new.request);
        let (keep, errors) = (new.keep, new.keep_errors);
        let new = params![
            source, caller, key, kind, raw, digest, at, bytes, headers, body, job, handler,
            request, keep, errors, self.sum,
        ];
        match ask(flight, BEGIN, new).await?.is_empty() {
            true => Err(Stop::Changed),
            false => Ok(Found::begun(self.job, false, 0)),
        }
    }
}

/// Reads the columns that [`KEY`] and [`JOBS`] share: the job, its last attempt, and the state of its key.
fn read(row: &Row) -> Result<(JobId, i64, Fate), Error> {
    let fate = match column::<Option<i32>>(row, "status")? {
        Some(status) => Fate::Answered(StoredAnswer {
            status: status.try_into().map_err(|error| unreadable_column("status", error))?,
            headers: column(row, "headers")?,
            body: column(row, "body")?,
            body_bytes: column(row, "body_bytes")?,
        }),
        None => Fate::Other(unanswered(column(row, "state")?, column(row, "outcome")?)),
    };
    Ok((column(row, "id")?, column(row, "attempt")?, fate))
}
