//! The way into the writer, which is one task: the handles of this node share it.

use std::io;
use std::sync::Arc;

use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::{JobId, Name};
use crate::store::border::{Accept, Accepted, Claim, Claimed, Error, Refused, Stall};
use crate::store::node::commits::Commits;
use crate::store::node::stalls::Stalls;
use crate::store::node::subscriptions::{Subscription, Subscriptions};

use super::accept;
use super::answer;
use super::batches::Batches;
use super::claim::{NodeAttempt, NodeClaims};
use super::complete::{AttemptEnd, PreparedEnd};
use super::connection::{Connection, Target};
use super::exchange::Exchanged;
use super::handlers::PublishedHandler;
use super::live::LiveAttempts;
use super::notices::NodeNotices;
use super::payload::Payloads;
use super::queue::Queue;
use super::register::{Registered, Registrar};
use super::remembered::Remembered;
use super::request::Request;
use super::task::WriterTask;
use super::wake::Wakeups;

/// The way into the store. Its clones share one writer.
#[derive(Clone)]
pub struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) live: Arc<LiveAttempts>,
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) commits: Arc<Commits>,
    /// What the node's verbs count: the same for all of them.
    pub notices: NodeNotices,
    pub(super) stalls: Arc<Stalls>,
    payloads: Arc<Payloads>,
    pub(in crate::store) subscriptions: Arc<Subscriptions>,
    /// The node's session; `None` from the first try to register until one succeeds.
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
        Writer::go_on(target, registrar, None, limits, clock)
    }

    /// Starts the task as [`Writer::start`] does, with the first session and its connection of
    /// [`connect`](super::server::connect), where there is one.
    pub(super) fn go_on(
        target: Target,
        mut registrar: Registrar,
        first: Option<(Connection, Registered)>,
        limits: &Limits,
        clock: Clock,
    ) -> (Writer, JoinHandle<()>) {
        let queue = Arc::new(Queue::new(limits));
        let payloads = Arc::new(Payloads::new(target.clone()));
        let subscriptions = Arc::<Subscriptions>::default();
        let (live, wakeups) = (Arc::<LiveAttempts>::default(), Arc::<Wakeups>::default());
        let (told, sessions) = watch::channel(None);
        let (commits, notices) = (Arc::<Commits>::default(), NodeNotices::default());
        let stalls = Arc::<Stalls>::default();
        let remembered = registrar.remembered.take();
        let remembered = remembered.unwrap_or_else(|| Remembered::new(clock.clone()));
        let task = WriterTask {
            target: target.taking_later(),
            registrar,
            first,
            clock,
            queue: Arc::clone(&queue),
            live: Arc::clone(&live),
            wakeups: Arc::clone(&wakeups),
            payloads: Arc::clone(&payloads),
            commits: Arc::clone(&commits),
            notices: notices.clone(),
            stalls: Arc::clone(&stalls),
            batches: Batches::new(remembered),
            subscriptions: Arc::clone(&subscriptions),
            sessions: told,
            look: Instant::now(),
            is_unmarked: false,
        };
        let writer = Writer {
            queue,
            live,
            wakeups,
            commits,
            notices,
            stalls,
            payloads,
            subscriptions,
            sessions,
        };
        (writer, tokio::spawn(task.run()))
    }

    /// One that takes nothing.
    pub(super) fn closed(target: Target, limits: &Limits) -> Writer {
        let queue = Queue::new(limits);
        queue.end(&Refused::Stopping);
        queue.close();
        Writer {
            queue: Arc::new(queue),
            live: Arc::default(),
            wakeups: Arc::default(),
            commits: Arc::default(),
            notices: NodeNotices::default(),
            stalls: Arc::default(),
            payloads: Arc::new(Payloads::new(target)),
            subscriptions: Arc::default(),
            sessions: watch::channel(None).1,
        }
    }

    /// Fails with the reason while accepts are refused.
    pub fn ready(&self) -> Result<(), Refused> {
        self.queue.door()
    }

    /// What stands still.
    pub(super) fn stalls(&self) -> Vec<Stall> {
        self.stalls.all()
    }

    /// ACCEPT: the event and its jobs in one transaction; returns when its commit is known, for a duplicate too. Once
    /// queued it belongs to the writer: dropping the future cancels nothing (H1). Without an answer at `deadline` it
    /// fails with [`Refused::Unconfirmed`].
    pub async fn accept(&self, new: Accept, deadline: Instant) -> Result<Accepted, Refused> {
        let accepted = self.accept_all(vec![new], deadline).await?.pop();
        accepted.ok_or_else(|| Refused::Failed("no answer".to_owned()))
    }

    /// ACCEPT of the events of one delivery, in one transaction: all are stored or none is (S6).
    pub async fn accept_all(
        &self,
        new: Vec<Accept>,
        deadline: Instant,
    ) -> Result<Vec<Accepted>, Refused> {
        self.ready()?;
        let (request, answer) = accept::Request::new(new, deadline).await?;
        self.queue.push(Request::Accept(request))?;
        match timeout_at(deadline, answer).await {
            Ok(answer) => decided(answer),
            Err(_) => Err(Refused::Unconfirmed("no answer in time".to_owned())),
        }
    }

    /// ASK, or a look at the state of a key or job.
    pub(super) fn ask(&self, request: answer::Request) -> Result<(), Refused> {
        self.queue.push(Request::Ask(request))
    }

    /// Is notified of each end of an attempt of the job at this node.
    pub(super) fn subscribe(&self, job: JobId) -> Subscription {
        self.subscriptions.subscribe(job)
    }

    /// COMPLETE of each end, and CLAIM behind them, in one transaction where that can be. They wait for a session where
    /// there is none. What cannot be committed now fails without the others: an end that waits for a lock, too, so
    /// that its caller must send it again. The claimant that [`LiveAttempts`] knows stays the same until then.
    ///
    /// The future must not be dropped where it claims.
    pub async fn exchange(&self, ends: Vec<AttemptEnd>, claim: Option<Claim>) -> Exchanged {
        let (mut items, mut answers) = (Vec::new(), Vec::new());
        for end in ends {
            let (answer, ended) = oneshot::channel();
            let end = PreparedEnd::new(end).await;
            items.push(Request::End(end, answer));
            answers.push(ended);
        }
        let claimed = claim.map(|claim| {
            let (answer, claimed) = oneshot::channel();
            let start = self.wakeups.starts.of(&claim.handler);
            items.push(Request::Claim(claim, start, answer));
            claimed
        });
        if let Err(why) = self.queue.push_kept(items) {
            let ended = answers.iter().map(|_| Err(why.clone())).collect();
            return Exchanged { ended, claims: Err(why) };
        }
        let mut ended = Vec::with_capacity(answers.len());
        for answer in answers {
            ended.push(decided(answer.await));
        }
        let claims = match claimed {
            Some(claimed) => decided(claimed.await),
            None => Ok(NodeClaims::default()),
        };
        Exchanged { ended, claims }
    }

    /// Replaces what the node publishes, now and at each later registration; returns when it is committed. Without a
    /// session it waits for one.
    pub async fn publish(&self, handlers: Vec<PublishedHandler>) -> Result<(), Refused> {
        let (done, published) = oneshot::channel();
        self.queue.push_kept(vec![Request::Publish(Some(handlers), done)])?;
        decided(published.await)
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

    /// What the handlers of these attempts get, in their order. An inner error says why a payload cannot be read: then it
    /// must not begin (R19).
    pub async fn payloads(
        &self,
        attempts: &[NodeAttempt],
    ) -> Result<Vec<io::Result<Claimed>>, Refused> {
        self.payloads.read(attempts).await
    }

    /// Those of a handler's next jobs that keep a claim from being committed.
    pub(super) async fn unclaimable(&self, handler: &Name, most: i64) -> Result<Vec<JobId>, Error> {
        self.payloads.unclaimable(handler, most).await
    }

    /// Connects what reads payloads.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        self.payloads.connect().await
    }

    /// The next payloads are read on another connection.
    pub(super) fn read_elsewhere(&self) {
        self.payloads.renew();
    }

    /// Counts the wake-ups, and when accepts begin or end to be refused.
    pub(super) fn stirred(&self) -> watch::Sender<u64> {
        self.wakeups.count.clone()
    }

    /// Changes with each wake-up: something may be ready, or answered.
    pub fn wakeups(&self) -> watch::Receiver<u64> {
        self.wakeups.count()
    }

    /// Refuses new requests. The writer stores those that wait, or refuses them if it has no connection, and ends. A
    /// commit that waits for a standby can delay this without limit, unless [`Writer::give_up`] ends it.
    pub fn close(&self) {
        self.queue.close();
    }

    /// Drops the connection of a closed writer, and refuses the requests without an answer.
    pub(super) fn give_up(&self) {
        self.queue.give_up();
    }

    pub(super) async fn ended(&self) {
        // An error means that the writer has ended, as awaited.
        let _ = self.sessions().wait_for(|_| false).await;
    }
}

/// The answer to a request. A request that the writer dropped may have been sent.
pub(super) fn decided<T>(answer: Result<Result<T, Refused>, RecvError>) -> Result<T, Refused> {
    answer.unwrap_or_else(|_| {
        Err(Refused::Unconfirmed("stopped before the database had answered".to_owned()))
    })
}
