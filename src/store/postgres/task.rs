//! The writer's task, which owns the connection on which everything is written.
//!
//! It turns all waiting requests into transactions, and answers them when their commits are known. After an unknown
//! outcome or a lost connection it registers a new session, and only then sends the undecided requests again: after
//! the registration, no transaction of an earlier session can commit. It sends no request after its caller's
//! deadline. It ends only when the queue is closed or another process has registered as the node; a panic
//! aborts the process (S13). A stop drops the connection at its limit: the outcome of the transaction under way is then
//! unknown, as after a kill, and its callers get no acknowledgement.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock::Clock;
use crate::model::NoticeType;
use crate::retry::Next;
use crate::store::border::{Refused, Stalled};
use crate::store::mutex::lock;
use crate::store::node::commits::Commits;
use crate::store::node::stalls::Stalls;
use crate::store::node::subscriptions::Subscriptions;

use super::batches::{Batches, Setback, Work};
use super::complete::AttemptEnd;
use super::connection::{Connection, Target};
use super::flight::{Flight, FlightOutcome, Refusal, Session};
use super::live::LiveAttempts;
use super::notices::NodeNotices;
use super::params::params;
use super::payload::Payloads;
use super::queue::Queue;
use super::register::{MARK, RegisterError, Registered, Registrar};
use super::request::{Request, Tried};
use super::schema::migrate;
use super::server::{SLOW, connect, inspect};
use super::settle::settle_soon;
use super::wake::Wakeups;

/// How long a commit may take before new requests are refused: as long as a provider waits, by default.
const ANSWER_WAIT: Duration = Duration::from_secs(8);

/// How often the server is checked.
const LOOK: Duration = Duration::from_secs(2);

/// How long the writer waits between two failed connections.
const PAUSE: Duration = Duration::from_millis(250);

/// The detail of an attempt whose claim was committed and not answered.
const LOST_CLAIM: &str = "never started: the answer to its claim was lost";

pub(super) struct WriterTask {
    pub(super) target: Target,
    pub(super) registrar: Registrar,
    /// The process's first session, where it has one already.
    pub(super) first: Option<(Connection, Registered)>,
    pub(super) clock: Clock,
    pub(super) queue: Arc<Queue>,
    pub(super) live: Arc<LiveAttempts>,
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) subscriptions: Arc<Subscriptions>,
    /// The node's session; `None` from the first try to register until one succeeds.
    pub(super) sessions: watch::Sender<Option<Arc<Registered>>>,
    pub(super) payloads: Arc<Payloads>,
    pub(super) commits: Arc<Commits>,
    pub(super) notices: NodeNotices,
    pub(super) stalls: Arc<Stalls>,
    pub(super) batches: Batches,
    /// When the server is checked next.
    pub(super) look: Instant,
    /// Something was committed since the node's row was marked.
    pub(super) is_unmarked: bool,
}

/// Why there is no session.
enum NoSession {
    /// The next attempt may succeed.
    NotNow(String),
    /// Another process has registered as this node. If both went on, they would replace each other without end.
    Replaced(String),
}

impl WriterTask {
    pub(super) async fn run(mut self) {
        let queue = Arc::clone(&self.queue);
        let why = select! {
            why = self.work() => why,
            // Drops the transaction under way: its callers see that their sender is gone.
            () = queue.given_up() => {
                tracing::warn!(
                    "the database did not answer within the limit of the stop; the next start reads what is committed"
                );
                Refused::Stopping
            }
        };
        self.queue.end(&why);
        self.batches.refuse_all(&why);
    }

    /// Serves one session after the other. Returns why the writer must end.
    async fn work(&mut self) -> Refused {
        loop {
            let (connection, session) = match self.session().await {
                Ok(session) => session,
                Err(why) => return why,
            };
            if self.serve(connection, session).await {
                return Refused::Stopping;
            }
        }
    }

    /// Connects and registers until it succeeds. Fails if the writer must end.
    async fn session(&mut self) -> Result<(Connection, Session), Refused> {
        self.queue.shut(Refused::Unreachable("a session is being registered".to_owned()));
        self.wakeups.wake_own();
        // A stop may come before the next session.
        self.registrar.keep_accepted(&mut self.batches.remembered).await;
        let mut last = None;
        loop {
            match self.register().await {
                Ok(session) => return Ok(session),
                Err(NoSession::NotNow(why)) => {
                    // Once for a reason, and not at every try.
                    if last.as_ref() != Some(&why) {
                        tracing::warn!(why, "no session at the database");
                        last = Some(why.clone());
                    }
                    if self.notices.want(NoticeType::StoreDegraded) {
                        self.registrar.away_since.get_or_insert_with(Instant::now);
                    }
                    self.queue.shut(Refused::Unreachable(why));
                }
                Err(NoSession::Replaced(why)) => {
                    tracing::error!(why, "the database is not used any more");
                    return Err(Refused::Unreachable(why));
                }
            }
            self.queue.rest(Instant::now() + PAUSE).await;
            self.batches.drop_lapsed(self.queue.has_ended_claims());
            if self.queue.is_closed() {
                return Err(Refused::Stopping);
            }
        }
    }

    async fn register(&mut self) -> Result<(Connection, Session), NoSession> {
        if let Some((connection, registered)) = self.first.take() {
            return Ok((connection, self.begin(registered)));
        }
        let not_now = |why: String| NoSession::NotNow(why);
        let connected = connect(&self.target, &self.clock).await;
        let (connection, _) = connected.map_err(|error| not_now(error.to_string()))?;
        self.look = Instant::now() + LOOK;
        self.live.begin_registration();
        self.sessions.send_replace(None);
        let remembered = &mut self.batches.remembered;
        let registered = self.registrar.renew(connection, &self.live, remembered).await;
        if let Err(RegisterError::NotCommitted(why)) = &registered
            && why.is_of_schema()
            && let Ok((connection, _)) = connect(&self.target, &self.clock).await
        {
            // A failover or a restore may have taken migrations back.
            let own = (self.registrar.node.id, self.registrar.node.machine.as_str());
            drop(migrate(connection, Some(own)).await);
        }
        let (connection, registered) = registered.map_err(|error| match error {
            RegisterError::Replaced { .. } => NoSession::Replaced(error.to_string()),
            other => not_now(other.to_string()),
        })?;
        Ok((connection, self.begin(registered)))
    }

    fn begin(&mut self, registered: Registered) -> Session {
        let session = registered.session;
        if let Some(history) = &self.registrar.seen {
            self.target.use_history(history.clone());
        }
        self.wakeups.marks.store(0, Ordering::Relaxed);
        self.payloads.renew();
        self.live.set_asked_runners(registered.asked.clone());
        for attempt in self.live.finish_registration(&registered.running) {
            // No runner was asked to start it.
            let end = AttemptEnd::unstarted(&attempt, Next::Ready, LOST_CLAIM, self.clock.now());
            settle_soon(&self.queue, end);
        }
        // Who hears of the session finds that requests are taken.
        self.queue.open();
        self.sessions.send_replace(Some(Arc::new(registered)));
        self.wakeups.wake_all();
        session
    }

    /// Runs one transaction after the other. Returns whether the queue is closed and empty: otherwise the session cannot
    /// be used further.
    async fn serve(&mut self, mut connection: Connection, session: Session) -> bool {
        loop {
            if self.look <= Instant::now() {
                self.look = Instant::now() + LOOK;
                if let Err(why) = inspect(&connection, &self.clock).await {
                    tracing::warn!(why, "the database cannot be used");
                    return false;
                }
                self.queue.open();
                match self.mark(connection, &session).await {
                    Some(next) => connection = next,
                    None => return false,
                }
            }
            self.batches.drop_lapsed(self.queue.has_ended_claims());
            if let Some(work) = self.batches.next() {
                match self.fly(connection, &session, work).await {
                    Some(next) => connection = next,
                    None => return false,
                }
                continue;
            }
            let wake_at = self.batches.retry_at().map_or(self.look, |at| at.min(self.look));
            let requests = match self.queue.take(wake_at, self.batches.held()).await {
                Some(requests) => requests,
                None if !self.batches.has_retries_left() => {
                    self.mark(connection, &session).await;
                    return true;
                }
                None => {
                    sleep_until(wake_at).await;
                    Vec::new()
                }
            };
            self.plan(requests);
        }
    }

    /// Marks the node's row, and then its folder, where something was committed since the last mark. Rows that were put
    /// back to a state before it have smaller marks.
    async fn mark(&mut self, connection: Connection, session: &Session) -> Option<Connection> {
        if !self.is_unmarked {
            // Other nodes have marked their rows.
            let marks = self.wakeups.marks.load(Ordering::Relaxed);
            if marks > self.registrar.node.mark {
                self.registrar.node.mark = marks;
                self.registrar.keep(&[]).await;
            }
            return Some(connection);
        }
        let mut flight = Flight::begin(connection, session).await;
        let marked = flight.send(MARK, params![session.node]).await;
        match flight.commit().await {
            FlightOutcome::Committed(connection, rows) => {
                if let Some(row) = rows.get(marked).and_then(|rows| rows.first()) {
                    self.registrar.node.read_marks(row, 0);
                }
                self.registrar.keep(&[]).await;
                self.registrar.keep_accepted(&mut self.batches.remembered).await;
                self.is_unmarked = false;
                Some(connection)
            }
            FlightOutcome::NotCommitted(why, connection) => {
                tracing::warn!(%why, "the node's row cannot be marked");
                if why.is_passing() || why.is_unread() {
                    // Each transaction locks that row. Until the next look at the server.
                    self.queue.shut(Refused::Unreachable(why.to_string()));
                }
                connection.filter(|_| !why.ends_the_session())
            }
            FlightOutcome::Unknown(doubt) => {
                tracing::warn!(%doubt, "not known whether the node's row is marked");
                None
            }
        }
    }

    fn plan(&mut self, mut requests: Vec<Request>) {
        for request in &mut requests {
            if let Request::Publish(handlers, _) = request
                && let Some(handlers) = handlers.take()
            {
                self.registrar.handlers = handlers;
            }
        }
        self.batches.plan(requests, self.clock.monotonic());
    }

    /// Runs one transaction. Returns the connection where the session can be used further.
    async fn fly(
        &mut self,
        connection: Connection,
        session: &Session,
        mut work: Work,
    ) -> Option<Connection> {
        if work.is_publication() {
            self.registrar.keep(&[]).await;
        }
        let (handlers, items, began) =
            (&self.registrar.handlers, work.requests.len(), Instant::now());
        let flight = work.fly(connection, session, &self.live, &self.notices, handlers);
        let (outcome, tried) = self.answered(flight).await;
        let closing = self.queue.is_closed();
        // Where the outcome is unknown it may be committed, too.
        self.is_unmarked = true;
        match outcome {
            FlightOutcome::Committed(connection, _) => {
                self.commits.batch(items, began.elapsed());
                *lock(&self.commits.last) = Some(self.clock.now());
                self.committed(work, tried);
                self.batches.secrets.write(connection, session).await
            }
            FlightOutcome::NotCommitted(why, _) if why.ends_the_session() => {
                tracing::warn!(%why, "a transaction ended its session");
                self.batches.put_back(work);
                None
            }
            FlightOutcome::NotCommitted(why, connection) => {
                let setback = match &why {
                    _ if connection.is_none() => Setback::Lost,
                    Refusal::Failed { .. } if !why.is_passing() => Setback::Refused,
                    _ => Setback::Failed,
                };
                // One block that cannot be read says nothing of other requests. Where none can be, the node's row cannot
                // be marked; and a server that cannot write its log ends, and with it the session.
                if why.is_passing() && !why.is_unread() {
                    tracing::warn!(%why, "the server cannot store anything now");
                    // Until the next look at the server.
                    self.queue.shut(Refused::Unreachable(why.to_string()));
                }
                self.batches.try_again(work, why.to_string(), setback, closing);
                connection
            }
            FlightOutcome::Unknown(doubt) => {
                tracing::warn!(%doubt, "not known whether a transaction is committed");
                work.doubt(tried);
                self.batches.try_again(work, doubt.to_string(), Setback::Lost, closing);
                None
            }
        }
    }

    /// The end of a flight. While it has had no answer for too long, new requests are refused: none would be answered in
    /// time, and a load balancer learns of it.
    async fn answered<T>(&self, flight: impl Future<Output = T>) -> T {
        let mut flight = pin!(flight);
        if let Ok(ended) = timeout(ANSWER_WAIT, &mut flight).await {
            return ended;
        }
        let seconds = ANSWER_WAIT.as_secs();
        let why = format!("a commit has had no answer for {seconds} s; {SLOW}");
        tracing::warn!(why, "nothing is stored now");
        self.stalls.set(Stalled::Commits, why.clone(), self.clock.now());
        self.queue.shut(Refused::Unreachable(why));
        self.wakeups.wake_own();
        let ended = flight.await;
        self.stalls.clear(Stalled::Commits);
        self.queue.open();
        self.wakeups.wake_own();
        ended
    }

    fn committed(&mut self, work: Work, tried: Vec<Option<Tried>>) {
        let mut concerns_others = false;
        for (request, tried) in work.requests.iter().zip(&tried) {
            concerns_others |= match (request, tried) {
                (Request::Claim(..), _) | (_, Some(Tried::Ended(_, false)) | None) => false,
                // A look changes nothing.
                (Request::Ask(ask), _) => ask.begin().is_some(),
                _ => true,
            };
            if let Request::End(end, _) = request {
                self.subscriptions.notify(end.end.done.job);
            }
        }
        if concerns_others {
            self.wakeups.wake_all();
        }
        self.batches.committed(work, tried);
    }
}
