//! The drill's load: clients that deliver signed events, and each again until it is answered 2xx, as
//! providers do. They go on over a receiver's death.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::cmd::played::{self, Provider};
use crate::exit::{Exit, Failure};

use super::account::{Answered, Sent};

/// Deliveries at once.
const CLIENTS: usize = 8;

/// A provider's wait before it delivers again what was answered 503, or not at all by a receiver that
/// lives.
const AGAIN: Duration = Duration::from_millis(20);

/// How long a client waits for one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How long the load may go without one answer of 2xx before it is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long handlers work on an event, in milliseconds, by its number: mostly short, some long enough
/// to be running at any moment.
const WORK_MILLIS: [u32; 8] = [0, 20, 0, 100, 5, 50, 0, 300];

/// One event in so many is also wanted by the handler that fails at first; prime to the works' number,
/// so that it meets each length.
const RETRIED: usize = 5;

/// One event in so many takes several of the store's pages.
const LARGE: usize = 3;

/// The clients at work. Dropped, they stop at once.
pub(super) struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<Result<(), Failure>>,
}

struct Shared {
    provider: Provider,
    clock: Clock,
    target: watch::Sender<Target>,
    tally: watch::Sender<Tally>,
}

/// Where the receiver is, and which start of it this is.
#[derive(Debug, Clone, Copy, Default)]
struct Target {
    address: Option<SocketAddr>,
    start: u64,
    ending: bool,
}

/// What the clients have seen so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By the event's number.
    answers: Vec<Answered>,
    /// Events answered 2xx.
    pub(super) acknowledged: usize,
    /// Deliveries answered 503.
    pub(super) refused: usize,
    /// Deliveries without an answer.
    pub(super) unanswered: usize,
}

impl Tally {
    /// Events begun to be delivered.
    pub(super) fn sent(&self) -> usize {
        self.answers.len()
    }
}

impl Load {
    /// They deliver from the first [`Load::find`] on.
    pub(super) fn start(provider: Provider, clock: Clock) -> Self {
        let (target, tally) = (watch::Sender::default(), watch::Sender::default());
        let shared = Arc::new(Shared { provider, clock, target, tally });
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(Arc::clone(&shared).provide());
        }
        Load { shared, clients }
    }

    /// Tells where the receiver is from now on.
    pub(super) fn find(&self, address: SocketAddr) {
        self.shared.target.send_modify(|target| {
            target.address = Some(address);
            target.start += 1;
        });
    }

    /// Waits until `count` more events are answered 2xx; `watch` sees every step.
    pub(super) async fn more(
        &self,
        count: usize,
        watch: impl FnMut(&Tally),
    ) -> Result<(), Failure> {
        let wanted = self.shared.tally.borrow().acknowledged + count;
        self.until(|tally| tally.acknowledged >= wanted, watch).await
    }

    /// No further events; returns when each one begun has its answer.
    pub(super) async fn finish(&mut self, watch: impl FnMut(&Tally)) -> Result<(), Failure> {
        self.shared.target.send_modify(|target| target.ending = true);
        self.until(|tally| !tally.answers.contains(&Answered::Never), watch).await?;
        while let Some(ended) = self.clients.join_next().await {
            ended.map_err(|error| gave_up(&error.to_string()))??;
        }
        Ok(())
    }

    async fn until(
        &self,
        done: impl Fn(&Tally) -> bool,
        mut watch: impl FnMut(&Tally),
    ) -> Result<(), Failure> {
        let mut tally = self.shared.tally.subscribe();
        loop {
            let before = {
                let now = tally.borrow_and_update();
                watch(&now);
                if done(&now) {
                    return Ok(());
                }
                now.acknowledged
            };
            let gets_on = tally.wait_for(|now| now.acknowledged > before || done(now));
            match timeout(PATIENCE, gets_on).await {
                Ok(Ok(_)) => {}
                Ok(Err(gone)) => return Err(gave_up(&gone.to_string())),
                Err(_) => {
                    let why = format!("no delivery was answered 2xx for {} s", PATIENCE.as_secs());
                    return Err(gave_up(&why));
                }
            }
        }
    }

    /// What the clients have seen so far.
    pub(super) fn tally(&self) -> watch::Ref<'_, Tally> {
        self.shared.tally.borrow()
    }

    /// The events so far, as their provider sees them.
    pub(super) fn sent(&self) -> Vec<Sent> {
        let sent = |(number, answer): (usize, &Answered)| Sent {
            event: Event::of(number).id,
            handlers: if retried(number) { vec!["work", "retry"] } else { vec!["work"] },
            answer: *answer,
        };
        self.tally().answers.iter().enumerate().map(sent).collect()
    }
}

fn gave_up(why: &str) -> Failure {
    Failure::new(Exit::Unavailable, format!("the drill could not go on: {why}"))
}

impl Shared {
    async fn provide(self: Arc<Self>) -> Result<(), Failure> {
        let mut target = self.target.subscribe();
        while !target.borrow().ending {
            let mut number = 0;
            self.tally.send_modify(|tally| {
                number = tally.answers.len();
                tally.answers.push(Answered::Never);
            });
            let event = Event::of(number);
            let answer = loop {
                let found = target.wait_for(|target| target.address.is_some()).await;
                // Its sender lives as long as this does.
                let Ok(found) = found.map(|found| *found) else { return Ok(()) };
                if let Some(answer) = self.deliver(&event, found).await? {
                    break answer;
                }
                // At once by the next receiver, where this one is dead.
                let next = target.wait_for(|target| target.start != found.start);
                let _ = timeout(AGAIN, next).await;
            };
            self.tally.send_modify(|tally| {
                tally.answers[number] = answer;
                tally.acknowledged += usize::from(answer == Answered::Acknowledged);
            });
        }
        Ok(())
    }

    /// One delivery, signed now; nothing where it is to be repeated.
    async fn deliver(&self, event: &Event, to: Target) -> Result<Option<Answered>, Failure> {
        let Some(address) = to.address else { return Ok(None) };
        let body = event.body.clone();
        let headers = self.provider.signed(&event.id, event.kind, &body, self.clock.now())?;
        let delivery = played::post(address, self.provider.path, &headers, body);
        match timeout(ANSWER_WAIT, delivery).await {
            Ok(Ok(answer)) => match answer.status {
                200..=299 => return Ok(Some(Answered::Acknowledged)),
                503 => {
                    self.tally.send_modify(|tally| tally.refused += 1);
                    sleep(AGAIN).await;
                }
                odd => return Ok(Some(Answered::Refused(odd))),
            },
            Ok(Err(_)) | Err(_) => self.tally.send_modify(|tally| tally.unanswered += 1),
        }
        Ok(None)
    }
}

/// What is delivered.
struct Event {
    id: String,
    kind: &'static str,
    body: Bytes,
}

impl Event {
    /// The event of that number; always the same one.
    fn of(number: usize) -> Self {
        let id = format!("drill_{number}_{}", WORK_MILLIS[number % WORK_MILLIS.len()]);
        let kind = if retried(number) { "drill.retry" } else { "drill.plain" };
        let padding = "x".repeat(if number.is_multiple_of(LARGE) { 9_000 } else { 200 });
        let body = format!(
            r#"{{"id":"{id}","object":"event","type":"{kind}","data":{{}},"padding":"{padding}"}}"#
        );
        Event { id, kind, body: body.into() }
    }
}

fn retried(number: usize) -> bool {
    number.is_multiple_of(RETRIED)
}
