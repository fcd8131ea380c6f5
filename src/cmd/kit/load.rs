//! The load: clients that deliver signed events, each until it is answered 2xx, as providers do. They
//! continue when a receiver is killed and another one is started.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use indicatif::ProgressBar;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::PATIENCE;
use super::account::{Answered, Sent};
use super::provider::{Provider, post};
use crate::clock::Clock;
use crate::exit::{Exit, Failure};

/// Deliveries at once.
const CLIENTS: usize = 8;

/// A client's wait before it repeats a delivery that had no answer or a 503.
const RETRY_WAIT: Duration = Duration::from_millis(20);

/// How long a client waits for one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How long handlers work on an event, in milliseconds, by its number: mostly short, some long enough
/// that some run at any moment.
const WORK_MILLIS: [u32; 8] = [0, 20, 0, 100, 5, 50, 0, 300];

/// The clients at work. Dropped, they stop at once.
pub(crate) struct Load {
    shared: Arc<Shared>,
    _clients: JoinSet<()>,
}

struct Shared {
    provider: Provider,
    state: watch::Sender<State>,
    bar: ProgressBar,
}

struct State {
    /// Where the receiver is.
    address: SocketAddr,
    /// Clients begin no further event.
    ending: bool,
    tally: Tally,
}

/// What the clients have seen so far.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    /// By the event's number.
    answers: Vec<Answered>,
    pub(crate) acknowledged: usize,
    /// Deliveries answered 503.
    pub(crate) refused: usize,
    /// Deliveries without an answer.
    pub(crate) unanswered: usize,
}

impl Tally {
    /// The events so far, as their provider sees them.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        let sent = |(number, answer): (usize, &Answered)| {
            let Event { id, handlers, .. } = Event::of(number);
            Sent { event: id, handlers, answer: *answer }
        };
        self.answers.iter().enumerate().map(sent).collect()
    }
}

impl Load {
    /// Delivers to the receiver at `address`; `bar` shows how far it is.
    pub(crate) fn start(provider: Provider, address: SocketAddr, bar: ProgressBar) -> Self {
        let state = State { address, ending: false, tally: Tally::default() };
        let shared = Arc::new(Shared { provider, state: watch::Sender::new(state), bar });
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(Arc::clone(&shared).deliver_all());
        }
        Load { shared, _clients: clients }
    }

    /// Delivers to another receiver from now on.
    pub(crate) fn redirect(&self, address: SocketAddr) {
        self.shared.state.send_modify(|state| state.address = address);
    }

    /// Waits until `count` more events are acknowledged.
    pub(crate) async fn more(&self, count: usize) -> Result<(), Failure> {
        let wanted = self.shared.state.borrow().tally.acknowledged + count;
        self.until(|tally| tally.acknowledged >= wanted).await
    }

    /// Waits until each event that was begun has its answer; clients begin no further ones.
    pub(crate) async fn finish(self) -> Result<Tally, Failure> {
        self.shared.state.send_modify(|state| state.ending = true);
        self.until(|tally| !tally.answers.contains(&Answered::Never)).await?;
        Ok(self.shared.state.borrow().tally.clone())
    }

    async fn until(&self, done: impl Fn(&Tally) -> bool) -> Result<(), Failure> {
        let mut state = self.shared.state.subscribe();
        loop {
            let before = state.borrow().tally.acknowledged;
            let progress =
                state.wait_for(|now| done(&now.tally) || now.tally.acknowledged > before);
            match timeout(PATIENCE, progress).await {
                Ok(Ok(now)) if done(&now.tally) => return Ok(()),
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => break,
            }
        }
        let wait = PATIENCE.as_secs();
        let why = format!("the drill could not go on: no delivery was answered 2xx for {wait} s");
        Err(Failure::new(Exit::Unavailable, why))
    }
}

impl Shared {
    async fn deliver_all(self: Arc<Self>) {
        while !self.state.borrow().ending {
            let mut number = 0;
            self.state.send_modify(|State { tally, .. }| {
                number = tally.answers.len();
                tally.answers.push(Answered::Never);
            });
            let event = Event::of(number);
            let answer = loop {
                match self.deliver(&event).await {
                    Answered::Never => sleep(RETRY_WAIT).await,
                    answer => break answer,
                }
            };
            self.state.send_modify(|State { tally, .. }| {
                tally.answers[number] = answer;
                tally.acknowledged += usize::from(answer == Answered::Acknowledged);
                let (sent, acknowledged) = (tally.answers.len(), tally.acknowledged);
                self.bar.set_message(format!("sent {sent}, acknowledged {acknowledged}"));
            });
        }
    }

    /// One delivery, signed now. `Never` where it is to be repeated.
    async fn deliver(&self, Event { id, kind, body, .. }: &Event) -> Answered {
        let address = self.state.borrow().address;
        let delivery = async {
            let headers = self.provider.sign(id, kind, body, Clock::system().now());
            let headers = headers.map_err(|failure| failure.message)?;
            post(address, "/stripe", &headers, body.clone()).await
        };
        let answer = timeout(ANSWER_WAIT, delivery).await;
        match answer.ok().and_then(Result::ok).map(|answer| answer.status) {
            Some(200..=299) => return Answered::Acknowledged,
            Some(503) => self.state.send_modify(|state| state.tally.refused += 1),
            Some(status) => return Answered::Refused(status),
            None => self.state.send_modify(|state| state.tally.unanswered += 1),
        }
        Answered::Never
    }
}

struct Event {
    id: String,
    kind: &'static str,
    handlers: &'static [&'static str],
    body: Bytes,
}

impl Event {
    /// The event of that number; always the same one. Each third one takes several of the store's pages.
    fn of(number: usize) -> Self {
        let id = format!("drill_{number}_{}", WORK_MILLIS[number % WORK_MILLIS.len()]);
        // Five is prime to the number of work times, so these events meet each of them.
        let (kind, handlers): (_, &[_]) = match number % 5 {
            0 => ("drill.retry", &["work", "retry"]),
            _ => ("drill.plain", &["work"]),
        };
        let padding = "x".repeat(if number.is_multiple_of(3) { 9_000 } else { 200 });
        let body = format!(
            r#"{{"id":"{id}","object":"event","type":"{kind}","data":{{}},"padding":"{padding}"}}"#
        );
        Event { id, kind, handlers, body: body.into() }
    }
}
