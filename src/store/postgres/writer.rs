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

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::JobId;
use crate::store::border::{Accept, Accepted, Claimed, Refused};
use crate::store::node::subscriptions::{Subscription, Subscriptions};

use super::accept;
use super::answer;
use super::batches::{Batches, Request};
use super::claim::{NodeAttempt, NodeClaim};
use super::complete::AttemptEnd;
use super::connection::{Connection, Target, describe};
use super::exchange::{self, Exchanged, exchange};
use super::flight::{FlightOutcome, Refusal, Session};
use super::payload::Payloads;
use super::queue::{Item, Next, Queue};
use super::register::{RegisterError, Registered, Registrar};
use super::server::{Severity, check};

/// How often the server is checked.
const LOOK: Duration = Duration::from_secs(2);

/// How long the writer waits between two failed connections.
const PAUSE: Duration = Duration::from_millis(250);

/// Each statement of the store finds its rows by an index. A plan that is made while a table is known to be empty
/// would read the whole table, until the server counts its rows again, a minute later: accepts went at a quarter of
/// their rate.
pub(super) const PLANS: &str = "SET enable_seqscan = off";

/// The way into the store. Its clones share one writer.
#[derive(Clone)]
pub struct Writer {
    queue: Arc<Queue>,
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
        let (told, sessions) = watch::channel(None);
        let task = Task {
            target,
            registrar,
            clock,
            queue: Arc::clone(&queue),
            batches: Batches::default(),
            exchanges: VecDeque::new(),
            subscriptions: Arc::clone(&subscriptions),
            sessions: told,
            look: Instant::now(),
        };
        (Writer { queue, payloads, subscriptions, sessions }, tokio::spawn(task.run()))
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

    /// COMPLETE of each end and CLAIM, in one transaction; returns when its commit is known. Ends are sent again
    /// until they are committed, and wait for a session where there is none. A claim is tried once, in its own
    /// session.
    ///
    /// The future must not be dropped where it claims: what it claimed would begin after the next registration only.
    pub async fn exchange(
        &self,
        ends: Vec<AttemptEnd>,
        claim: Option<NodeClaim>,
    ) -> Result<Exchanged, Refused> {
        let (request, answer) = exchange::Request::new(ends, claim);
        self.queue.push_kept(Item::Exchange(request))?;
        answer.await.unwrap_or(Err(Refused::Stopping))
    }

    /// The session of now with the list that its registration read. The list is to be judged before the first claim
    /// in the session. None while a session is being registered.
    pub fn sessions(&self) -> watch::Receiver<Option<Arc<Registered>>> {
        self.sessions.clone()
    }

    /// Runs `start` if the attempt may begin (N16), and keeps a registration from being sent meanwhile. None where
    /// it may not: while a session is being registered, and for an attempt that the session's list lacks.
    pub fn begin<T>(&self, attempt: &NodeAttempt, start: impl FnOnce() -> T) -> Option<T> {
        let session = self.sessions.borrow();
        session.as_ref().is_some_and(|session| session.may_begin(attempt)).then(start)
    }

    /// What the attempt's handler gets. None where the payload is gone: then it must not begin (R19).
    pub async fn payload(&self, attempt: &NodeAttempt) -> Result<Option<Claimed>, Refused> {
        self.payloads.read(attempt).await
    }

    /// Refuses new requests. The writer stores those that wait, or refuses them if it has no connection, and ends. A
    /// commit that waits for a standby can delay this without limit.
    pub fn close(&self) {
        self.queue.close();
    }
}

struct Task {
    target: Target,
    registrar: Registrar,
    clock: Clock,
    queue: Arc<Queue>,
    /// The requests with a deadline that are taken from the queue and not answered yet.
    batches: Batches,
    /// The same of ends and claims, which go first.
    exchanges: VecDeque<Vec<exchange::Request>>,
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
        self.sessions.send_replace(None);
        let registered = self.registrar.register(connection).await;
        let (connection, registered) = registered.map_err(|error| match error {
            RegisterError::Replaced { .. } => NoSession::Replaced(error.to_string()),
            other => not_now(other.to_string()),
        })?;
        let session = registered.session;
        self.sessions.send_replace(Some(Arc::new(registered)));
        self.queue.open();
        Ok((connection, session))
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
            if let Some(requests) = self.exchanges.pop_front() {
                match self.exchange(connection, &session, requests).await {
                    Some(next) => connection = next,
                    None => return Served::Lost,
                }
                continue;
            }
            let Some(work) = self.batches.next() else {
                let retry_at = self.batches.retry_at();
                let items =
                    match self.queue.take(retry_at.unwrap_or(self.look).min(self.look)).await {
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
        }
    }

    /// Plans the transactions of a batch, and of what is to be tried again.
    fn sort(&mut self, items: Vec<Item>) {
        let (mut requests, mut exchanges) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Request(request) => requests.push(request),
                Item::Exchange(request) => exchanges.push(request),
            }
        }
        if !exchanges.is_empty() {
            self.exchanges.push_back(exchanges);
        }
        self.batches.plan(requests, self.clock.monotonic());
    }

    fn give_up(&mut self, why: Refused) {
        self.queue.shut(why.clone());
        self.queue.refuse_all(&why);
        self.exchanges.drain(..).flatten().for_each(|request| request.refuse(why.clone()));
        self.batches.refuse_all(&why);
    }

    /// Runs one transaction of ends and claims. Returns the connection where the session can be used further.
    async fn exchange(
        &mut self,
        connection: Connection,
        session: &Session,
        mut requests: Vec<exchange::Request>,
    ) -> Option<Connection> {
        let (outcome, exchanged) = exchange(connection, session, &mut requests).await;
        match outcome {
            FlightOutcome::Committed(connection, _) => {
                for (request, exchanged) in requests.into_iter().zip(exchanged) {
                    request.jobs().for_each(|job| self.subscriptions.notify(job));
                    request.committed(exchanged);
                }
                Some(connection)
            }
            FlightOutcome::NotCommitted(Refusal::Failed { text, .. }, Some(connection)) => {
                // One bad request must not take the others with it: each has its own transaction then (S4).
                if requests.len() == 1 {
                    let refused = Refused::Failed(text);
                    requests.into_iter().for_each(|request| request.refuse(refused.clone()));
                } else {
                    self.exchanges.extend(requests.into_iter().map(|request| vec![request]));
                }
                Some(connection)
            }
            FlightOutcome::NotCommitted(why, connection) => {
                self.exchanges.push_front(requests);
                connection.filter(|_| !why.ends_the_session())
            }
            FlightOutcome::Unknown(doubt) => {
                tracing::warn!(%doubt, "not known whether a transaction is committed");
                let requests = requests.into_iter().map(exchange::Request::doubt);
                self.exchanges.push_front(requests.collect());
                None
            }
        }
    }
}
