//! The requests that the writer has taken and not answered, and their way into transactions.
//!
//! A transaction that is not committed is tried again in halves, so that a request that cannot be stored, that waits
//! for a lock, or that makes the server close the connection does not make others fail. One retry runs after each batch
//! of the queue.
//!
//! A request with a deadline is tried until then, unless the server refuses it. An end or a claim is tried twice alone
//! and then fails: its caller sends it again, and others wait for a lock as long as two tries do (S4). A lost connection
//! does not count as a failed try of an end, but an end that loses two connections alone may be their cause.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::border::Refused;

use super::accept;
use super::answer;
use super::connection::Connection;
use super::exchange::exchange;
use super::flight::{Flight, FlightOutcome, Session};
use super::handlers::{PublishedHandler, publish};
use super::history::answer;
use super::live::LiveAttempts;
use super::notices::NodeNotices;
use super::remembered::Remembered;
use super::request::{Request, Tried};
use super::secret_use::SecretUses;
use super::stop::limit_lock_wait;

/// The longest pause between two tries of one request.
const MOST_PAUSE: Duration = Duration::from_millis(250);

/// How often an end is tried alone once the queue is closed, which takes about 9 s: more often while a request with a
/// deadline is left.
const LAST_TRIES: u32 = 20;

/// How the requests of one transaction are stored, in the order in which a batch runs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Publish,
    Exchange,
    /// Accepts by one statement, which skips known ids and bodies.
    Fast,
    /// Accepts one by one, after locking the known events.
    Slow,
    Ask,
}

impl Way {
    fn of(request: &Request) -> Self {
        match request {
            Request::Publish(..) => Way::Publish,
            Request::End(..) | Request::Claim(..) => Way::Exchange,
            // Of several events, the fast way might store just some.
            Request::Accept(accept) if accept.events.len() == 1 => Way::Fast,
            Request::Accept(_) => Way::Slow,
            Request::Ask(_) => Way::Ask,
        }
    }
}

/// The requests of one transaction.
pub(super) struct Work {
    way: Way,
    pub(super) requests: Vec<Request>,
    /// How many tries of the only request have failed, and how many have lost their connection.
    failures: u32,
    losses: u32,
    not_before: Instant,
}

/// How a transaction ended that is not known to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setback {
    /// The server refuses a request itself.
    Refused,
    Failed,
    /// The transaction failed with its connection.
    Lost,
}

impl Work {
    fn new(way: Way, requests: Vec<Request>) -> Self {
        Work { way, requests, failures: 0, losses: 0, not_before: Instant::now() }
    }

    pub(super) fn is_publication(&self) -> bool {
        self.way == Way::Publish
    }

    fn tries(&self) -> u32 {
        self.failures + self.losses
    }

    /// Notes that it is not known whether it is committed. Claims are refused: what they have taken is in the list of
    /// the next registration (N16).
    pub(super) fn doubt(&mut self, tried: Vec<Option<Tried>>) {
        for (request, tried) in self.requests.iter_mut().zip(tried) {
            request.doubt(tried);
        }
        for claim in self.requests.extract_if(.., |request| request.claimed_handler().is_some()) {
            claim.refuse(Refused::Unconfirmed("the claim was not answered".to_owned()));
        }
        // The fast way does not know what it has stored itself.
        if self.way == Way::Fast {
            self.way = Way::Slow;
        }
    }

    /// Runs its transaction. For each request what was done with it, or none if it was skipped.
    pub(super) async fn fly(
        &self,
        connection: Connection,
        session: &Session,
        live: &LiveAttempts,
        notices: &NodeNotices,
        handlers: &[PublishedHandler],
    ) -> (FlightOutcome, Vec<Option<Tried>>) {
        let (mut accepts, mut asks) = (Vec::new(), Vec::new());
        for request in &self.requests {
            match request {
                Request::Accept(request) => accepts.push(request),
                Request::Ask(request) => asks.push(request),
                _ => {}
            }
        }
        let (outcome, mut tried) = match self.way {
            Way::Fast | Way::Slow => {
                let (outcome, tries) = match self.way {
                    Way::Fast => accept::fast(connection, session, &accepts, notices).await,
                    _ => accept::slow(connection, session, &accepts, notices).await,
                };
                (outcome, tries.into_iter().map(|tries| tries.map(Tried::Accept)).collect())
            }
            Way::Ask => {
                let (outcome, found) = answer::find(connection, session, &asks).await;
                (outcome, found.into_iter().map(|found| Some(Tried::Ask(found))).collect())
            }
            Way::Exchange => exchange(connection, session, live, notices, &self.requests).await,
            Way::Publish => {
                let mut flight = Flight::begin(connection, session).await;
                limit_lock_wait(&mut flight).await;
                publish(&mut flight, session.node, handlers).await;
                answer(&mut flight, session.node, live).await;
                let tried = self.requests.iter().map(|_| Some(Tried::Published)).collect();
                (flight.commit().await, tried)
            }
        };
        tried.resize_with(self.requests.len(), || None);
        (outcome, tried)
    }
}

/// The work that waits.
pub(super) struct Batches {
    /// The work left of the batch that was taken last.
    todo: VecDeque<Work>,
    /// What is tried again.
    retries: VecDeque<Work>,
    /// The jobs and lanes of ends and claims that failed alone: until one is committed, they share no transaction.
    apart: HashSet<String>,
    pub(super) secrets: SecretUses,
    pub(super) remembered: Remembered,
}

impl Batches {
    pub(super) fn new(remembered: Remembered) -> Self {
        Batches {
            todo: VecDeque::new(),
            retries: VecDeque::new(),
            apart: HashSet::new(),
            secrets: SecretUses::default(),
            remembered,
        }
    }

    /// Plans the transactions of a batch, and one of what is tried again. A handler has one claim in each: the second
    /// one's share of a rate is known behind the first.
    pub(super) fn plan(&mut self, requests: Vec<Request>, now: Duration) {
        let mut planned: Vec<Work> = Vec::new();
        for request in requests {
            request.note_secret(&mut self.secrets, now);
            let (way, claims) = (Way::of(&request), request.claimed_handler());
            if request.contended_row().is_some_and(|row| self.apart.contains(&row)) {
                self.retries.push_back(Work::new(way, vec![request]));
                continue;
            }
            let is_same = |other: &Request| claims.is_some() && other.claimed_handler() == claims;
            let is_free = |work: &Work| work.way == way && !work.requests.iter().any(is_same);
            match planned.iter().position(is_free) {
                Some(place) => planned[place].requests.push(request),
                None => planned.push(Work::new(way, vec![request])),
            }
        }
        planned.sort_by_key(|work| work.way);
        self.todo.extend(planned);
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

    /// Whether something is still to be tried after the queue is closed.
    pub(super) fn has_retries_left(&self) -> bool {
        self.retries.iter().any(|work| match work.way {
            Way::Publish => false,
            Way::Exchange => work.tries() < LAST_TRIES,
            Way::Fast | Way::Slow | Way::Ask => true,
        })
    }

    /// The number and bytes of what is tried again.
    pub(super) fn held(&self) -> (usize, usize) {
        let requests = self.retries.iter().flat_map(|work| &work.requests);
        requests.fold((0, 0), |(count, bytes), request| (count + 1, bytes + request.bytes()))
    }

    /// Refuses the requests that must not be tried.
    pub(super) fn drop_lapsed(&mut self, claims_ended: bool) {
        let now = Instant::now();
        for works in [&mut self.todo, &mut self.retries] {
            for work in works.iter_mut() {
                let is_lapsed = |request: &mut Request| request.lapsed(now, claims_ended).is_some();
                for request in work.requests.extract_if(.., is_lapsed) {
                    if let Some(why) = request.lapsed(now, claims_ended) {
                        request.refuse(why);
                    }
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

    /// Answers what is committed. What was skipped goes the slow way.
    pub(super) fn committed(&mut self, work: Work, tried: Vec<Option<Tried>>) {
        let mut skipped = Vec::new();
        for (request, tried) in work.requests.into_iter().zip(tried) {
            if let Some(row) = request.contended_row().filter(|_| !self.apart.is_empty()) {
                self.apart.remove(&row);
            }
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

    /// Puts work back whose session has ended: it goes first.
    pub(super) fn put_back(&mut self, work: Work) {
        self.todo.push_front(work);
    }

    /// Tries work again that is not known to be committed: in halves; a single request at once the first time, and then
    /// after growing pauses. Ends are tried further where the writer is `closing`: their callers cannot send them again.
    pub(super) fn try_again(
        &mut self,
        mut work: Work,
        why: String,
        setback: Setback,
        closing: bool,
    ) {
        let half = work.requests.len() / 2;
        if half > 0 {
            let second = work.requests.split_off(half);
            self.retries.push_back(Work::new(work.way, work.requests));
            self.retries.push_back(Work::new(work.way, second));
            return;
        }
        let Some(request) = work.requests.pop() else { return };
        let pause =
            Duration::from_millis(10).saturating_mul(2_u32.saturating_pow(work.tries()) - 1);
        match setback {
            Setback::Refused | Setback::Failed => work.failures += 1,
            Setback::Lost => work.losses += 1,
        }
        let row = request.contended_row();
        let most = if row.as_ref().is_some_and(|row| self.apart.contains(row)) { 1 } else { 2 };
        // Without its lane a new handler would have no claim.
        let is_kept = request.deadline().is_some()
            || work.is_publication()
            || work.failures.max(work.losses) < most;
        let is_kept = is_kept || closing && matches!(request, Request::End(..));
        if setback == Setback::Refused || !is_kept {
            self.apart.extend(row);
            return request.fail(why, work.losses > 0);
        }
        let not_before = Instant::now() + pause.min(MOST_PAUSE);
        self.retries.push_back(Work { not_before, requests: vec![request], ..work });
    }
}
