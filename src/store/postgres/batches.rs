//! The requests that the writer has taken and not answered, each with a deadline, and their way into transactions.
//!
//! A transaction that is not committed is tried again in halves, so that a request that cannot be stored, that waits
//! for a lock, or that makes the server close the connection does not take others with it. What is tried again waits,
//! and never keeps the queue waiting: one such transaction runs after each batch of the queue.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::border::{Accepted, Refused};

use super::accept;
use super::answer;
use super::connection::Connection;
use super::flight::{FlightOutcome, Refusal, Session};
use super::prepared::Try;
use super::remembered::Remembered;
use super::secret_use::SecretUses;

/// The longest pause between two tries of one request.
const MOST_PAUSE: Duration = Duration::from_millis(250);

/// A request of a caller who waits until a deadline.
pub(super) enum Request {
    Accept(accept::Request),
    Ask(answer::Request),
}

/// What a transaction does with a request.
pub(super) enum Tried {
    Accept(Vec<Try>),
    Ask(answer::Found),
}

impl Request {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Request::Accept(request) => request.bytes(),
            Request::Ask(request) => request.bytes(),
        }
    }

    fn until(&self) -> Instant {
        match self {
            Request::Accept(request) => request.until,
            Request::Ask(request) => request.until,
        }
    }

    pub(super) fn refuse(self, why: Refused) {
        match self {
            Request::Accept(request) => request.refuse(why),
            Request::Ask(request) => request.refuse(why),
        }
    }

    /// Refuses it with a reason that says whether an earlier try may be committed.
    fn failed(self, why: &str) {
        let in_doubt = match &self {
            Request::Accept(request) => request.is_in_doubt(),
            Request::Ask(request) => request.in_doubt,
        };
        let refused = if in_doubt { Refused::Unconfirmed } else { Refused::Failed };
        self.refuse(refused(why.to_owned()));
    }

    fn committed(self, tried: Tried) {
        match (self, tried) {
            (Request::Accept(request), Tried::Accept(tries)) => request.committed(tries),
            (Request::Ask(request), Tried::Ask(found)) => request.committed(found),
            // A transaction tries what it is given.
            (request, _) => request.failed("no answer"),
        }
    }

    fn doubt(&mut self, tried: Option<Tried>) {
        match (self, tried) {
            (Request::Accept(request), Some(Tried::Accept(tries))) => request.doubt(tries),
            (Request::Ask(request), Some(Tried::Ask(found))) => request.doubt(&found),
            _ => {}
        }
    }

    fn remember(&self, tried: &Tried, remembered: &mut Remembered) {
        match (self, tried) {
            (Request::Accept(request), Tried::Accept(tries)) => {
                let is_new = |tried: &Try| matches!(tried.answer, Accepted::Created { .. });
                let events = request.events.iter().zip(tries).filter(|(_, tried)| is_new(tried));
                events.for_each(|(event, _)| remembered.note(event.source(), event.id()));
            }
            (Request::Ask(request), Tried::Ask(answer::Found::Begun { again: false, .. })) => {
                request.remember(remembered);
            }
            _ => {}
        }
    }

    fn note_secret(&self, secrets: &mut SecretUses, now: Duration) {
        match self {
            Request::Accept(request) => {
                for event in &request.events {
                    secrets.note(event.source(), &event.new.delivery, now);
                }
            }
            Request::Ask(request) => request.note_secret(secrets, now),
        }
    }
}

/// How the requests of one transaction are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Accepts by one statement, which skips known ids and bodies.
    Fast,
    /// Accepts one by one, after locking the known events.
    Slow,
    Ask,
}

/// The requests of one transaction.
pub(super) struct Work {
    way: Way,
    requests: Vec<Request>,
    /// How often the only request was tried.
    tries: u32,
    not_before: Instant,
}

impl Work {
    fn new(way: Way, requests: Vec<Request>) -> Self {
        Work { way, requests, tries: 0, not_before: Instant::now() }
    }
}

/// The work that waits.
#[derive(Default)]
pub(super) struct Batches {
    /// Of the batch that was taken last.
    todo: VecDeque<Work>,
    /// What is tried again.
    retries: VecDeque<Work>,
    pub(super) secrets: SecretUses,
    pub(super) remembered: Remembered,
}

impl Batches {
    /// Plans the transactions of a batch, and one of what is tried again.
    pub(super) fn plan(&mut self, requests: Vec<Request>, now: Duration) {
        let (mut fast, mut slow, mut asks) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            request.note_secret(&mut self.secrets, now);
            match &request {
                // Of several events, the fast way might store just some.
                Request::Accept(accept) if accept.events.len() == 1 => fast.push(request),
                Request::Accept(_) => slow.push(request),
                Request::Ask(_) => asks.push(request),
            }
        }
        for (way, requests) in [(Way::Fast, fast), (Way::Slow, slow), (Way::Ask, asks)] {
            if !requests.is_empty() {
                self.todo.push_back(Work::new(way, requests));
            }
        }
        let now = Instant::now();
        let due = self.retries.iter().position(|work| work.not_before <= now);
        self.todo.extend(due.and_then(|place| self.retries.remove(place)));
    }

    pub(super) fn next(&mut self) -> Option<Work> {
        self.todo.pop_front()
    }

    /// When something is to be tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retries.iter().map(|work| work.not_before).min()
    }

    /// Refuses the requests whose deadline has passed.
    pub(super) fn drop_late(&mut self) {
        let now = Instant::now();
        for works in [&mut self.todo, &mut self.retries] {
            for work in works.iter_mut() {
                for late in work.requests.extract_if(.., |request| request.until() <= now) {
                    late.refuse(Refused::Unconfirmed("not stored in time".to_owned()));
                }
            }
            works.retain(|work| !work.requests.is_empty());
        }
    }

    pub(super) fn refuse_all(&mut self, why: &Refused) {
        let works = self.todo.drain(..).chain(self.retries.drain(..));
        for request in works.flat_map(|work| work.requests) {
            request.refuse(Refused::Unconfirmed(why.to_string()));
        }
    }

    /// Runs one transaction. Returns the connection if the session can be used further.
    pub(super) async fn fly(
        &mut self,
        connection: Connection,
        session: &Session,
        mut work: Work,
    ) -> Option<Connection> {
        let (outcome, mut tried) = fly(connection, session, &work).await;
        tried.resize_with(work.requests.len(), || None);
        match outcome {
            FlightOutcome::Committed(connection, _) => {
                self.committed(work, tried);
                self.secrets.write(connection, session).await
            }
            FlightOutcome::NotCommitted(why, connection) if why.ends_the_session() => {
                drop(connection);
                self.todo.push_front(work);
                None
            }
            FlightOutcome::NotCommitted(why, connection) => {
                // The connection is at fault only where it was lost.
                let is_refused = matches!(why, Refusal::Failed { .. }) && connection.is_some();
                match work.requests.len() {
                    1 if is_refused => {
                        work.requests
                            .into_iter()
                            .for_each(|request| request.failed(&why.to_string()));
                    }
                    _ => self.try_again(work),
                }
                connection
            }
            FlightOutcome::Unknown(doubt) => {
                tracing::warn!(%doubt, "not known whether a transaction is committed");
                for (request, tried) in work.requests.iter_mut().zip(tried) {
                    request.doubt(tried);
                }
                // The fast way does not know what it has stored itself.
                if work.way == Way::Fast {
                    work.way = Way::Slow;
                }
                self.try_again(work);
                None
            }
        }
    }

    fn committed(&mut self, work: Work, tried: Vec<Option<Tried>>) {
        let mut skipped = Vec::new();
        for (request, tried) in work.requests.into_iter().zip(tried) {
            match tried {
                Some(tried) => {
                    request.remember(&tried, &mut self.remembered);
                    request.committed(tried);
                }
                None => skipped.push(request),
            }
        }
        if !skipped.is_empty() {
            self.todo.push_front(Work::new(Way::Slow, skipped));
        }
    }

    /// In halves; a single request at once the first time, and then after growing pauses.
    fn try_again(&mut self, mut work: Work) {
        let half = work.requests.len() / 2;
        if half == 0 {
            let pause =
                Duration::from_millis(10).saturating_mul(2_u32.saturating_pow(work.tries) - 1);
            work.not_before = Instant::now() + pause.min(MOST_PAUSE);
            work.tries += 1;
            self.retries.push_back(work);
            return;
        }
        let second = work.requests.split_off(half);
        self.retries.push_back(Work::new(work.way, work.requests));
        self.retries.push_back(Work::new(work.way, second));
    }
}

async fn fly(
    connection: Connection,
    session: &Session,
    work: &Work,
) -> (FlightOutcome, Vec<Option<Tried>>) {
    let (mut accepts, mut asks) = (Vec::new(), Vec::new());
    for request in &work.requests {
        match request {
            Request::Accept(request) => accepts.push(request),
            Request::Ask(request) => asks.push(request),
        }
    }
    let (outcome, tries) = match work.way {
        Way::Fast => accept::fast(connection, session, &accepts).await,
        Way::Slow => accept::slow(connection, session, &accepts).await,
        Way::Ask => {
            let (outcome, found) = answer::find(connection, session, &asks).await;
            return (outcome, found.into_iter().map(|found| Some(Tried::Ask(found))).collect());
        }
    };
    (outcome, tries.into_iter().map(|tries| tries.map(Tried::Accept)).collect())
}
