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

use std::collections::HashSet;

use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use crate::model::Timestamp;
use crate::random;
use crate::store::border::{Accept, Accepted, Refused};
use crate::store::codec;
use crate::store::decide::delivery::Twins;
use crate::store::sum::Given;

use super::arrival;
use super::connection::Connection;
use super::flight::{Flight, FlightOutcome, Session};
use super::new_event::{self, GroupedJobs, Groups, Rows};
use super::notices::NodeNotices;
use super::prepared::{Form, NewEvent, Try};
use super::stop::{Stop, ask, limit_lock_wait};

/// Memory that a request takes in addition to its stored form, roughly.
pub(super) const REQUEST_BYTES: usize = 1024;

/// Locks the first events of these ids, in the order of their keys. Until the end of the transaction, no other
/// transaction counts duplicates of an id, keeps evidence or takes its next variant.
const LOCK_EVENTS: &str = "
    SELECT FROM event JOIN unnest($1::text[], $2::text[]) AS key (source, event_id) USING (source, event_id)
    WHERE variant = 0
    ORDER BY event.source, event.event_id FOR NO KEY UPDATE OF event";

/// Keeps the first events of these bodies from being deleted until the end of the transaction.
const LOCK_BODIES: &str = "
    SELECT FROM event JOIN unnest($1::text[], $2::bytea[]) AS key (source, digest) USING (source, digest)
    WHERE guarded AND NOT repeated
    ORDER BY event.source, event.digest FOR KEY SHARE OF event";

/// Takes $1 numbers of events.
const NUMBERS: &str = "SELECT nextval('event_row_seq') FROM generate_series(1, $1::bigint)";

/// Where the answer to a request arrives.
pub(super) type Answer = oneshot::Receiver<Result<Vec<Accepted>, Refused>>;

/// The events of one delivery: all are stored or none is.
pub(super) struct Request {
    pub(super) events: Vec<NewEvent>,
    /// The caller's deadline.
    pub(super) deadline: Instant,
    answer: oneshot::Sender<Result<Vec<Accepted>, Refused>>,
}

impl Request {
    /// Compresses the bodies.
    pub(super) async fn new(
        all: Vec<Accept>,
        deadline: Instant,
    ) -> Result<(Self, Answer), Refused> {
        let mut events = Vec::with_capacity(all.len());
        for new in all {
            let body = codec::compress(new.delivery.body().clone()).await;
            let body = body.map_err(|error| Refused::Failed(format!("compression: {error}")))?;
            let id = |_| Uuid::from_bytes(*random::job_id(new.received_at).as_bytes());
            let (headers, job_ids) =
                (new.delivery.headers().to_wire(), new.jobs.iter().map(id).collect());
            let sum = Given::of(&new.source, &new.delivery, &headers, &body).sum(Timestamp(0));
            events.push(NewEvent { new, headers, body, sum, job_ids, kept: false, doubt: None });
        }
        let (answer, receiver) = oneshot::channel();
        Ok((Request { events, deadline, answer }, receiver))
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

    /// Notes that it is not known whether these tries, one for each event, are committed.
    pub(super) fn doubt(&mut self, tries: Vec<Try>) {
        for (event, tried) in self.events.iter_mut().zip(tries) {
            event.doubt = Some(tried);
        }
    }
}

/// What a transaction does with each request: a try for each of its events, or `None` if it was skipped. Empty if the
/// transaction was rolled back.
pub(super) type Tries = Vec<Option<Vec<Try>>>;

/// The fast way, of requests with one event.
pub(super) async fn fast(
    connection: Connection,
    session: &Session,
    requests: &[&Request],
    notices: &NodeNotices,
) -> (FlightOutcome, Tries) {
    let mut flight = Flight::begin(connection, session).await;
    limit_lock_wait(&mut flight).await;
    let events: Vec<&NewEvent> = requests.iter().flat_map(|request| &request.events).collect();
    new_event::lock(&mut flight, &new_event::groups(events.iter().copied())).await;
    let mut places = vec![0; events.len()];
    for (place, number) in new_event::order(&events).into_iter().enumerate() {
        places[number] = place;
    }
    let (mut rows, mut grouped) = (Rows::default(), GroupedJobs::default());
    let held = |event: &NewEvent| event.held_of_restore(session.restored_at);
    let no_twins = Twins::default();
    for (event, place) in events.iter().zip(places) {
        let form = Form { held: held(event), ..Form::first(place) };
        rows.add(event, form, &no_twins, &mut grouped);
    }
    let store = rows.send(&mut flight).await;
    if let Err(stop) = grouped.settle(&mut flight, notices).await {
        return (stop.end(flight).await, Vec::new());
    }
    let outcome = flight.commit().await;
    let stored: Option<HashSet<i64>> = match &outcome {
        FlightOutcome::Committed(_, rows) => {
            let rows = rows.get(store).into_iter().flatten();
            Some(rows.filter_map(|row| row.try_get(0).ok()).collect())
        }
        _ => None,
    };
    let tries = (1..).zip(events).map(|(n, event)| {
        let is_stored = stored.as_ref().is_none_or(|stored| stored.contains(&n));
        let answer = event.created(Form { held: held(event), ..Form::first(0) }, &no_twins);
        is_stored.then(|| vec![Try { answer, put_back: Vec::new() }])
    });
    (outcome, tries.collect())
}

/// The slow way.
pub(super) async fn slow(
    mut connection: Connection,
    session: &Session,
    requests: &[&Request],
    notices: &NodeNotices,
) -> (FlightOutcome, Tries) {
    let all = requests.iter().flat_map(|request| &request.events);
    let mut groups = new_event::groups(all);
    loop {
        let mut flight = Flight::begin(connection, session).await;
        let stop = match store(&mut flight, requests, &groups, notices).await {
            Ok(tries) => return (flight.commit().await, tries),
            Err(stop) => stop,
        };
        // Groups are locked first, so once more from the beginning.
        let is_new = match &stop {
            Stop::Unlocked(handler, key) => groups.insert((handler.clone(), key.clone())),
            _ => false,
        };
        match stop.end(flight).await {
            FlightOutcome::NotCommitted(_, Some(again)) if is_new => connection = again,
            outcome => return (outcome, Vec::new()),
        }
    }
}

pub(super) async fn store(
    flight: &mut Flight,
    requests: &[&Request],
    groups: &Groups,
    notices: &NodeNotices,
) -> Result<Tries, Stop> {
    limit_lock_wait(flight).await;
    new_event::lock(flight, groups).await;
    let events: Vec<&NewEvent> = requests.iter().flat_map(|request| &request.events).collect();
    let sources = |guarded_only: bool| -> Vec<String> {
        let events = events.iter().filter(|event| !guarded_only || event.guarded());
        events.map(|event| event.source().as_str().to_owned()).collect()
    };
    let ids: Vec<String> = events.iter().map(|event| event.id().as_str().to_owned()).collect();
    let guarded = events.iter().filter(|event| event.guarded());
    let digests: Vec<Vec<u8>> = guarded.map(|event| event.digest().0.to_vec()).collect();
    flight.send(LOCK_EVENTS, vec![Box::new(sources(false)), Box::new(ids)]).await;
    flight.send(LOCK_BODIES, vec![Box::new(sources(true)), Box::new(digests)]).await;
    let numbers = ask(flight, NUMBERS, vec![Box::new(codec::size(events.len()))]).await?;
    let numbers: Vec<i64> = numbers.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;

    let mut tries: Vec<Option<Try>> = vec![None; events.len()];
    let mut grouped = GroupedJobs::default();
    for place in new_event::order(&events) {
        let form = Form { number: numbers.get(place).copied(), ..Form::first(place) };
        let tried = arrival::store(flight, events[place], form, groups, &mut grouped).await?;
        tries[place] = Some(tried);
    }
    grouped.settle(flight, notices).await?;
    let mut tries = tries.into_iter().flatten();
    Ok(requests.iter().map(|own| Some(tries.by_ref().take(own.events.len()).collect())).collect())
}
