//! The writer: one task that owns the connection on which everything is written.
//!
//! It turns all waiting requests into one transaction, and answers them when its commit is known. After an unknown
//! outcome or a lost connection it registers a new session, and only then sends the undecided requests again: after
//! the registration, no transaction of an earlier session can commit. It sends no request after its caller's
//! deadline. It ends only when the queue is closed or another process has taken the node; a panic aborts the
//! process (S13).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::{JobId, Outcome};
use crate::retry::Next as NextState;
use crate::store::border::{Accept, Accepted, Claim, Claimed, Completion, Record, Refused};
use crate::store::node::subscriptions::{Subscription, Subscriptions};

use super::accept;
use super::answer;
use super::batches::{Batches, Request};
use super::claim::{NodeAttempt, NodeClaims};
use super::complete::{AttemptEnd, PreparedEnd};
use super::connection::{Connection, Target, describe};
use super::exchange::{self, Exchanged, exchange};
use super::flight::{Flight, FlightOutcome, Refusal, Session};
use super::handlers::{PublishedHandler, publish};
use super::live::LiveAttempts;
use super::payload::Payloads;
use super::queue::{Item, Next, Queue};
use super::register::{RegisterError, Registered, Registrar};
use super::server::{Severity, check};
use super::settle::settle;
use super::wake::Wakeups;

/// How often the server is checked.
const LOOK: Duration = Duration::from_secs(2);

/// How long the writer waits between two failed connections.
const PAUSE: Duration = Duration::from_millis(250);

/// How long an end that met a locked row waits for the lock when it is tried again, and how long it rests between two
/// tries: all other requests wait for those.
const LOCK_WAIT: Duration = Duration::from_millis(200);
const LOCK_PAUSE: Duration = Duration::from_secs(2);

/// Each statement of the store finds its rows by an index. A plan that is made while a table is known to be empty
/// would read the whole table, until the server counts its rows again, a minute later: accepts went at a quarter of
/// their rate.
pub(super) const PLANS: &str = "SET enable_seqscan = off";

/// The way into the store. Its clones share one writer.
#[derive(Clone)]
pub struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) live: Arc<LiveAttempts>,
    pub(super) wakeups: Arc<Wakeups>,
    payloads: Arc<Payloads>,
    subscriptions: Arc<Subscriptions>,
    /// None from the sending of a registration to its answer.
    sessions: watch::Receiver<Option<Arc<Registered>>>,
}

impl Writer {
    /// Starts the task, which connects and reconnects by itself. The schema must exist. The task ends after
    /// [`Writer::close`].
    pub fn start(
        target: Target,
        registrar: Registrar,
        limits: &Limits,
        clock: Clock,
    ) -> (Writer, JoinHandle<()>) {
        let queue = Arc::new(Queue::new(limits));
        let payloads = Arc::new(Payloads::new(target.clone()));
        let subscriptions = Arc::<Subscriptions>::default();
        let (live, wakeups) = (Arc::<LiveAttempts>::default(), Arc::<Wakeups>::default());
        let (told, sessions) = watch::channel(None);
        let task = Task {
            target,
            registrar,
            clock,
            queue: Arc::clone(&queue),
            live: Arc::clone(&live),
            wakeups: Arc::clone(&wakeups),
            batches: Batches::default(),
            exchanges: VecDeque::new(),
            blocked: VecDeque::new(),
            next_blocked: Instant::now(),
            published: Vec::new(),
            subscriptions: Arc::clone(&subscriptions),
            sessions: told,
            look: Instant::now(),
        };
        let writer = Writer { queue, live, wakeups, payloads, subscriptions, sessions };
        (writer, tokio::spawn(task.run()))
    }

    /// Fails with the reason while accepts are refused.
    pub fn ready(&self) -> Result<(), Refused> {
        self.queue.door()
    }

    /// ACCEPT: the event and its jobs in one transaction; returns when its commit is known, for a duplicate too. Once
    /// queued it belongs to the writer: dropping the future cancels nothing (H1). Without an answer at `until` it
    /// fails with [`Refused::Unconfirmed`].
    pub async fn accept(&self, new: Accept, until: Instant) -> Result<Accepted, Refused> {
        let accepted = self.accept_all(vec![new], until).await?.pop();
        accepted.ok_or_else(|| Refused::Failed("no answer".to_owned()))
    }

    /// ACCEPT of the events of one delivery, in one transaction: all are stored or none is (S6).
    pub async fn accept_all(
        &self,
        new: Vec<Accept>,
        until: Instant,
    ) -> Result<Vec<Accepted>, Refused> {
        self.ready()?;
        let (request, answer) = accept::Request::new(new, until).await?;
        self.queue.push(Item::Request(Request::Accept(request)))?;
        match timeout_at(until, answer).await {
            Ok(answer) => answer.unwrap_or(Err(Refused::Stopping)),
            Err(_) => Err(Refused::Unconfirmed("no answer in time".to_owned())),
        }
    }

    /// ASK, or a look at the state of a key or job.
    pub(super) fn ask(&self, request: answer::Request) -> Result<(), Refused> {
        self.queue.push(Item::Request(Request::Ask(request)))
    }

    /// Is notified of each end of an attempt of the job at this node.
    pub(super) fn subscribe(&self, job: JobId) -> Subscription {
        self.subscriptions.subscribe(job)
    }

    /// COMPLETE of each end, and CLAIM behind them, in one transaction where that can be; returns when its commit is
    /// known. Ends are sent again until they are committed or fail alone, and wait for a session where there is none. A
    /// claim is sent once.
    ///
    /// The future must not be dropped where it claims.
    pub async fn exchange(&self, ends: Vec<AttemptEnd>, claim: Option<Claim>) -> Exchanged {
        let (mut items, mut answers) = (Vec::new(), Vec::new());
        for end in ends {
            let (answer, ended) = oneshot::channel();
            let end = PreparedEnd::new(end).await;
            items.push(Item::Exchange(exchange::Request::End(end, answer)));
            answers.push(ended);
        }
        let claimed = claim.map(|claim| {
            let (answer, claimed) = oneshot::channel();
            items.push(Item::Exchange(exchange::Request::Claim(claim, answer)));
            claimed
        });
        if let Err(why) = self.queue.push_kept(items) {
            let ended = answers.iter().map(|_| Err(why.clone())).collect();
            return Exchanged { ended, claims: Err(why) };
        }
        let mut ended = Vec::with_capacity(answers.len());
        for answer in answers {
            ended.push(answer.await.unwrap_or(Err(Refused::Stopping)));
        }
        let claims = match claimed {
            Some(claimed) => claimed.await.unwrap_or(Err(Refused::Stopping)),
            None => Ok(NodeClaims::default()),
        };
        Exchanged { ended, claims }
    }

    /// Replaces what the node publishes, now and at each later registration; returns when it is committed. Without a
    /// session it waits for one.
    pub async fn publish(&self, handlers: Vec<PublishedHandler>) -> Result<(), Refused> {
        let (done, published) = oneshot::channel();
        self.queue.push_kept(vec![Item::Publish(handlers, done)])?;
        published.await.unwrap_or(Err(Refused::Stopping))
    }

    /// The session of now with the list that its registration read. None while a session is being registered.
    pub fn sessions(&self) -> watch::Receiver<Option<Arc<Registered>>> {
        self.sessions.clone()
    }

    /// Whether an attempt of this process may begin (N16): not while a session is being registered, and not where a
    /// registration has shown that it is settled.
    pub fn may_begin(&self, job: JobId, attempt: u32) -> bool {
        self.live.may_begin((job, attempt))
    }

    /// What the handlers of these attempts get, in their order. None where the payload is gone: then it must not begin
    /// (R19).
    pub async fn payloads(
        &self,
        attempts: &[NodeAttempt],
    ) -> Result<Vec<Option<Claimed>>, Refused> {
        self.payloads.read(attempts).await
    }

    /// Changes with each wake-up: something may be ready, or answered.
    pub fn wakeups(&self) -> watch::Receiver<u64> {
        self.wakeups.count()
    }

    /// Refuses new requests. The writer stores those that wait, or refuses them if it has no connection, and ends. A
    /// commit that waits for a standby can delay this without limit.
    pub fn close(&self) {
        self.queue.close();
    }
}

/// Ends and claims of one transaction.
struct ExchangeWork {
    requests: Vec<exchange::Request>,
    /// How long it waits for a lock, if not as long as any other does.
    patience: Option<Duration>,
}

impl ExchangeWork {
    fn alone(request: exchange::Request) -> Self {
        ExchangeWork { requests: vec![request], patience: Some(LOCK_WAIT) }
    }
}

struct Task {
    target: Target,
    registrar: Registrar,
    clock: Clock,
    queue: Arc<Queue>,
    live: Arc<LiveAttempts>,
    wakeups: Arc<Wakeups>,
    /// The requests with a deadline that are taken from the queue and not answered yet.
    batches: Batches,
    /// The same of ends and claims, which go first.
    exchanges: VecDeque<ExchangeWork>,
    /// Ends that met a locked row. One of them is tried at `next_blocked`.
    blocked: VecDeque<exchange::Request>,
    next_blocked: Instant,
    /// Who waits until the handlers of `registrar` are published.
    published: Vec<oneshot::Sender<Result<(), Refused>>>,
    subscriptions: Arc<Subscriptions>,
    sessions: watch::Sender<Option<Arc<Registered>>>,
    /// When the server is checked next.
    look: Instant,
}

/// Why a session ended.
#[derive(PartialEq)]
enum Served {
    /// The session cannot be used further.
    Lost,
    /// The queue is closed and empty.
    Closed,
}

/// Why there is no session.
enum NoSession {
    /// The next attempt may succeed.
    NotNow(String),
    /// Another process has registered as this node. If both went on, they would replace each other without end.
    Replaced(String),
}

impl Task {
    async fn run(mut self) {
        while let Some((connection, session)) = self.session().await {
            if self.serve(connection, session).await == Served::Closed {
                self.give_up(Refused::Stopping);
                break;
            }
        }
        self.queue.refuse_all(&Refused::Stopping);
    }

    /// Connects and registers until it succeeds. `None` if the writer must end.
    async fn session(&mut self) -> Option<(Connection, Session)> {
        let why = "a session is being registered".to_owned();
        self.queue.shut(Refused::Unreachable(why));
        loop {
            let why = match self.register().await {
                Ok(session) => return Some(session),
                Err(NoSession::NotNow(why)) => why,
                Err(NoSession::Replaced(why)) => {
                    tracing::error!(why, "the database is not used any more");
                    self.give_up(Refused::Unreachable(why));
                    return None;
                }
            };
            tracing::warn!(why, "no session at the database");
            self.queue.shut(Refused::Unreachable(why));
            self.queue.rest(Instant::now() + PAUSE).await;
            self.batches.drop_late();
            if self.queue.is_closed() {
                self.give_up(Refused::Stopping);
                return None;
            }
        }
    }

    async fn register(&mut self) -> Result<(Connection, Session), NoSession> {
        let not_now = |why: String| NoSession::NotNow(why);
        let connection = Connection::open(&self.target).await;
        let connection = connection.map_err(|error| not_now(error.to_string()))?;
        self.inspect(&connection).await.map_err(NoSession::NotNow)?;
        let planned = connection.client.batch_execute(PLANS).await;
        planned.map_err(|error| not_now(describe(&error)))?;
        self.live.registering();
        self.sessions.send_replace(None);
        let (live, remembered) = (self.live.all(), &mut self.batches.remembered);
        let registered = self.registrar.renew(connection, &live, remembered).await;
        let (connection, registered) = registered.map_err(|error| match error {
            RegisterError::Replaced { .. } => NoSession::Replaced(error.to_string()),
            other => not_now(other.to_string()),
        })?;
        let session = registered.session;
        for attempt in self.live.registered(&registered.running) {
            self.settle_unstarted(&attempt);
        }
        self.published.drain(..).for_each(|done| drop(done.send(Ok(()))));
        self.sessions.send_replace(Some(Arc::new(registered)));
        self.wakeups.committed();
        self.queue.open();
        Ok((connection, session))
    }

    /// Puts the job back of a claim whose answer was lost: no runner was asked to start it.
    fn settle_unstarted(&self, NodeAttempt { running, claimant, .. }: &NodeAttempt) {
        let detail = "never started: the answer to its claim was lost".to_owned();
        let done = Completion {
            job: running.job,
            attempt: running.attempt,
            outcome: Outcome::NotStarted,
            counts: false,
            next: NextState::Ready,
            finished_at: self.clock.now(),
            record: Record { detail, ..Record::default() },
            answer: None,
        };
        let (queue, claimant) = (Arc::clone(&self.queue), *claimant);
        let end = AttemptEnd { done: Arc::new(done), claimant };
        // If the writer ends first, the next process settles it.
        tokio::spawn(async move { settle(&queue, end).await });
    }

    /// Fails if the server lacks something that the promises need.
    async fn inspect(&mut self, connection: &Connection) -> Result<(), String> {
        self.look = Instant::now() + LOOK;
        let findings = check(connection, &self.clock).await?;
        let bad = findings.into_iter().find(|finding| finding.severity != Severity::Warned);
        bad.map_or(Ok(()), |bad| Err(bad.text))
    }

    /// Runs one transaction after the other.
    async fn serve(&mut self, mut connection: Connection, session: Session) -> Served {
        loop {
            if self.look <= Instant::now()
                && let Err(why) = self.inspect(&connection).await
            {
                tracing::warn!(why, "the database cannot be used");
                return Served::Lost;
            }
            self.batches.drop_late();
            if !self.published.is_empty() {
                match self.publish(connection, &session).await {
                    Some(next) => connection = next,
                    None => return Served::Lost,
                }
            }
            if self.next_blocked <= Instant::now()
                && let Some(request) = self.blocked.pop_front()
            {
                self.exchanges.push_back(ExchangeWork::alone(request));
            }
            if let Some(work) = self.exchanges.pop_front() {
                match self.exchange(connection, &session, work).await {
                    Some(next) => connection = next,
                    None => return Served::Lost,
                }
                continue;
            }
            let Some(work) = self.batches.next() else {
                let retry_at = self.batches.retry_at();
                let mut until = retry_at.unwrap_or(self.look).min(self.look);
                if !self.blocked.is_empty() {
                    until = until.min(self.next_blocked);
                }
                let items = match self.queue.take(until).await {
                    Next::Batch(items) => items,
                    Next::Look => Vec::new(),
                    Next::End => match retry_at {
                        Some(retry_at) => {
                            sleep_until(retry_at).await;
                            Vec::new()
                        }
                        None => return Served::Closed,
                    },
                };
                self.sort(items);
                continue;
            };
            match self.batches.fly(connection, &session, work).await {
                Some(next) => connection = next,
                None => return Served::Lost,
            }
            self.wakeups.committed();
        }
    }

    /// Plans the transactions of a batch, and of what is to be tried again.
    fn sort(&mut self, items: Vec<Item>) {
        let (mut requests, mut exchanges) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Request(request) => requests.push(request),
                Item::Exchange(request) => exchanges.push(request),
                Item::Publish(handlers, done) => {
                    self.registrar.handlers = handlers;
                    self.published.push(done);
                }
            }
        }
        let planned = exchange::plan(exchanges).into_iter();
        self.exchanges.extend(planned.map(|requests| ExchangeWork { requests, patience: None }));
        self.batches.plan(requests, self.clock.monotonic());
    }

    fn give_up(&mut self, why: Refused) {
        self.queue.shut(why.clone());
        self.queue.refuse_all(&why);
        let exchanges = self.exchanges.drain(..).flat_map(|work| work.requests);
        exchanges.chain(self.blocked.drain(..)).for_each(|request| request.refuse(why.clone()));
        self.published.drain(..).for_each(|done| drop(done.send(Err(why.clone()))));
        self.batches.refuse_all(&why);
    }

    /// Runs one transaction of ends and claims. Returns the connection where the session can be used further.
    async fn exchange(
        &mut self,
        connection: Connection,
        session: &Session,
        work: ExchangeWork,
    ) -> Option<Connection> {
        let ExchangeWork { requests, patience } = &work;
        let (outcome, results) =
            exchange(connection, session, &self.live, requests, *patience).await;
        match outcome {
            FlightOutcome::Committed(connection, _) => {
                if patience.is_some() {
                    // The lock is free: so may be those of the others.
                    self.next_blocked = Instant::now();
                }
                if let Some(results) = results {
                    if results.concerns_others {
                        self.wakeups.committed();
                    }
                    let ended = work.requests.iter().filter_map(exchange::Request::ended_job);
                    ended.for_each(|job| self.subscriptions.notify(job));
                    results.answer(work.requests);
                }
                Some(connection)
            }
            FlightOutcome::NotCommitted(why, Some(connection)) if !why.ends_the_session() => {
                self.part(work.requests, &why);
                Some(connection)
            }
            FlightOutcome::NotCommitted(why, _) => {
                tracing::warn!(%why, "a transaction ended its session");
                self.exchanges.push_front(work);
                None
            }
            FlightOutcome::Unknown(doubt) => {
                tracing::warn!(%doubt, "not known whether a transaction is committed");
                // One of them may have ended the connection.
                let requests = work.requests.into_iter().filter_map(exchange::Request::doubt);
                self.exchanges.extend(requests.map(ExchangeWork::alone));
                None
            }
        }
    }

    /// One bad request must not take the others with it: each has its own transaction then (S4). An end alone that met
    /// a locked row waits for another try.
    fn part(&mut self, mut requests: Vec<exchange::Request>, why: &Refusal) {
        if requests.len() > 1 {
            return self.exchanges.extend(requests.into_iter().map(ExchangeWork::alone));
        }
        let is_locked = matches!(why, Refusal::LockTimeout(_) | Refusal::Conflict(_));
        match requests.pop() {
            Some(end @ exchange::Request::End(..)) if is_locked => {
                self.blocked.push_back(end);
                self.next_blocked = Instant::now() + LOCK_PAUSE;
            }
            Some(request) => request.refuse(Refused::Failed(why.to_string())),
            None => {}
        }
    }

    /// Publishes the handlers of the registrar. Returns the connection where the session can be used further: otherwise
    /// the next registration publishes them.
    async fn publish(&mut self, connection: Connection, session: &Session) -> Option<Connection> {
        let mut flight = Flight::begin(connection, session).await;
        publish(&mut flight, session.node, &self.registrar.handlers).await;
        let (connection, result) = match flight.commit().await {
            FlightOutcome::Committed(connection, _) => (connection, Ok(())),
            FlightOutcome::NotCommitted(why, Some(connection)) if !why.ends_the_session() => {
                (connection, Err(Refused::Failed(why.to_string())))
            }
            _ => return None,
        };
        self.published.drain(..).for_each(|done| drop(done.send(result.clone())));
        Some(connection)
    }
}
