//! Clients that deliver signed events as providers do: each repeats a delivery until it is answered 2xx.
//!
//! The drill and the crash tests start them. They continue while a receiver is killed and another one
//! is started.

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

/// The number of concurrent deliveries.
const CLIENTS: usize = 8;

/// How long a client waits before it repeats a delivery that got no answer or a 503.
const RETRY_WAIT: Duration = Duration::from_millis(20);

/// How long a client waits for one answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How long handlers work on an event, in milliseconds, chosen by the event's number. Most times are
/// short; a few are long, so that at any moment some handlers run.
const WORK_MILLIS: [u32; 8] = [0, 20, 0, 100, 5, 50, 0, 300];

/// The running clients. Dropping it stops them at once.
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
    /// The addresses of the receivers.
    addresses: Vec<SocketAddr>,
    /// Whether clients must not begin another event.
    ending: bool,
    tally: Tally,
}

/// The answers so far.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    /// Indexed by the event's number.
    answers: Vec<Answered>,
    pub(crate) acknowledged: usize,
    /// Deliveries answered 503.
    pub(crate) refused: usize,
    /// Deliveries without an answer.
    pub(crate) unanswered: usize,
}

impl Tally {
    /// The events so far, with their answers.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        let sent = |(number, answer): (usize, &Answered)| {
            let Event { id, handlers, .. } = Event::of(number);
            Sent { event: id, handlers, answer: *answer }
        };
        self.answers.iter().enumerate().map(sent).collect()
    }
}

impl Load {
    /// Starts the clients, which deliver to the receivers in turn; `bar` shows the counts.
    pub(crate) fn start(provider: Provider, addresses: Vec<SocketAddr>, bar: ProgressBar) -> Self {
        let state = State { addresses, ending: false, tally: Tally::default() };
        let shared = Arc::new(Shared { provider, state: watch::Sender::new(state), bar });
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(Arc::clone(&shared).deliver_all());
        }
        Load { shared, _clients: clients }
    }

    /// Sends the further deliveries of one receiver to another one in its place.
    pub(crate) fn redirect(&self, node: usize, address: SocketAddr) {
        self.shared.state.send_modify(|state| state.addresses[node] = address);
    }

    /// Waits until `count` more events are acknowledged. Fails after [`PATIENCE`] without progress.
    pub(crate) async fn more(&self, count: usize) -> Result<(), Failure> {
        let wanted = self.shared.state.borrow().tally.acknowledged + count;
        self.until(|tally| tally.acknowledged >= wanted).await
    }

    /// Stops beginning events, and waits until each one that was begun has its answer.
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
        Err(Exit::Unavailable.failure(why))
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
            let mut turn = number;
            let answer = loop {
                match self.deliver(&event, turn).await {
                    Answered::Never => sleep(RETRY_WAIT).await,
                    answer => break answer,
                }
                turn += 1;
            };
            self.state.send_modify(|State { tally, .. }| {
                tally.answers[number] = answer;
                tally.acknowledged += usize::from(answer == Answered::Acknowledged);
                let (sent, acknowledged) = (tally.answers.len(), tally.acknowledged);
                self.bar.set_message(format!("sent {sent}, acknowledged {acknowledged}"));
            });
        }
    }

    /// Makes one delivery with a fresh signature. `Never` means that the caller must repeat it.
    async fn deliver(&self, Event { id, kind, body, .. }: &Event, turn: usize) -> Answered {
        let address = {
            let addresses = &self.state.borrow().addresses;
            addresses[turn % addresses.len()]
        };
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
    /// The event with this number; the same number gives the same event. The body of each third event
    /// takes several of the store's pages.
    fn of(number: usize) -> Self {
        let id = format!("drill_{number}_{}", WORK_MILLIS[number % WORK_MILLIS.len()]);
        // Five and the number of work times are coprime, so these events get each work time.
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
