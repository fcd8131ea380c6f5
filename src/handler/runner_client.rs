//! The receiver's side of one runner: one task that owns the connection, and what is known of each
//! attempt that this runner was, or will be, asked to start.
//!
//! [`runner_pool`](super::runner_pool) makes each [`RunnerClient`]; the dispatcher tracks attempts on it, connects it once
//! those of earlier receivers are tracked, and acknowledges after the commit. What must stay true:
//!
//! - An attempt is tracked until its outcome is committed. So an ended attempt that the runner names, in
//!   its list or by its end, and that is not tracked, is committed: it is acknowledged (R9). No other
//!   attempt is.
//! - Proofs that an attempt never started: the runner refused it; a list made after the Start, by that runner or
//!   its successor, lacks it; the Start was never sent (R8).
//! - Its end is lost only if its runner and its children are proven gone: the machine has restarted, or a
//!   runner that can see them has looked for them (R6).
//! - A lost connection is read to its end before the next list is judged (R10).

mod ask;
mod load;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::model::{Incarnation, RunnerName};
use crate::runner::client::{self, ConnectError, Events, Sender};
use crate::runner::launch::Launch;
use crate::runner::message::{Hello, HelloOk, Key, Refusal, Start, ToReceiver, VERSION};
use crate::runner::{Ended, WireError};

pub use ask::CannotAsk;
use ask::{Peeks, kill};
use load::Loads;
pub use load::{CannotLoad, RunnerLoad};

/// Between two tries to reach a runner: at first so short that one which has just left or is about to
/// start is hardly missed, then longer, since each try may launch a process.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The runner of a client.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// The runner's name.
    pub name: RunnerName,
    pub place: Place,
    /// The store whose attempts these are.
    pub store: uuid::Uuid,
}

/// Where a runner is.
#[derive(Debug, Clone)]
pub enum Place {
    /// At this socket; the receiver launches it if no process listens.
    Launched(PathBuf, Launch),
    /// At this socket; a service manager or the operator starts it.
    Service(PathBuf),
    /// Not reached: this receiver knows the default runner only.
    Nowhere,
}

/// A runner that takes attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// The runner process that claims are made for.
    pub incarnation: Incarnation,
    /// How many attempts it can have, running or not acknowledged.
    pub attempts: usize,
}

/// How the receiver stands with a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerStatus {
    /// The runner's name.
    pub name: RunnerName,
    /// The systemd unit that it is, where this receiver does not launch it.
    pub unit: Option<String>,
    /// A runner has admitted this receiver.
    pub connected: bool,
    /// The process that takes attempts; none while it is not connected, drains, or awaits Acks.
    pub incarnation: Option<String>,
    /// Attempts that run, or whose outcome is not committed yet.
    pub running: u64,
    /// How many attempts the runner can have.
    pub room: Option<u64>,
    /// Why the last try to connect failed.
    pub why: Option<String>,
}

/// How an attempt ended, or the proof that it never began.
pub(super) type AttemptResult = Result<Ended, NotStarted>;

/// Why an attempt never began.
#[derive(Debug)]
pub(super) struct NotStarted {
    pub(super) reason: Refusal,
    /// For people.
    pub(super) detail: String,
}

fn never_started(detail: &str) -> AttemptResult {
    Err(NotStarted { reason: Refusal::NotReceived, detail: detail.to_owned() })
}

/// The client of one runner. Clones are the same one.
#[derive(Debug, Clone)]
pub struct RunnerClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: ClientSettings,
    state: Mutex<State>,
    /// Stirred whenever the capacity changes.
    capacities: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    attempts: HashMap<Key, Attempt>,
    /// The sending side of the admitted connection.
    connection: Option<Sender>,
    /// Whether that runner has said that it takes no more.
    draining: bool,
    /// Whether the Acks for its list are sent. Until then no job is claimed: the runner would refuse a Start that
    /// overtakes an Ack.
    acked: bool,
    /// Where claims are made for the runner at its other end.
    capacity: Option<Capacity>,
    /// Who waits for what an attempt has printed so far.
    peeks: Peeks,
    /// The reloads, and who waits for the runner to go along.
    loads: Loads,
    /// Why the last try to connect failed; nothing once one succeeds.
    why: Option<String>,
}

#[derive(Debug)]
struct Attempt {
    runner: Incarnation,
    /// Its Start may have been sent, by this receiver or an earlier one.
    start_may_be_sent: bool,
    /// The operator wants its end. The Kill is sent again wherever the runner may have missed it.
    cancelled: bool,
    /// The pending attempt, until its result is known.
    waiting: Option<oneshot::Sender<AttemptResult>>,
}

/// An attempt whose result is awaited.
#[derive(Debug)]
pub struct PendingAttempt {
    key: Key,
    client: RunnerClient,
    result: oneshot::Receiver<AttemptResult>,
}

impl RunnerClient {
    /// A client that is not connected, and stirs `capacities` whenever its capacity changes.
    pub(super) fn new(settings: ClientSettings, capacities: watch::Sender<()>) -> Self {
        RunnerClient { shared: Arc::new(Shared { settings, state: Mutex::default(), capacities }) }
    }

    /// Connects, and connects again whenever the connection is lost, launching a runner where that is
    /// its task. Called once, as the receiver with this number, when every attempt that an earlier one
    /// left is tracked. Needs a tokio runtime's context.
    pub(super) fn connect(&self, epoch: u64) {
        let client = self.clone();
        tokio::spawn(async move { client.stay_connected(epoch).await });
    }

    /// The runner that takes attempts now, if one does.
    pub(super) fn capacity(&self) -> Option<Capacity> {
        self.lock().capacity
    }

    /// Whether a runner has admitted this receiver.
    pub(super) fn is_connected(&self) -> bool {
        self.lock().connection.is_some()
    }

    pub fn status(&self) -> RunnerStatus {
        let ClientSettings { name, place, .. } = &self.shared.settings;
        let state = self.lock();
        let capacity = state.capacity;
        RunnerStatus {
            name: name.clone(),
            unit: (!matches!(place, Place::Launched(..))).then(|| name.unit()),
            connected: state.connection.is_some(),
            incarnation: capacity.map(|capacity| capacity.incarnation.to_string()),
            running: state.attempts.len() as u64,
            room: capacity.map(|capacity| capacity.attempts as u64),
            why: state.why.clone(),
        }
    }

    /// Tracks an attempt that was just claimed for `runner`.
    pub fn track(&self, key: Key, runner: Incarnation) -> PendingAttempt {
        self.insert(key, runner, false)
    }

    /// Tracks one that an earlier receiver has claimed, and whose Start it may have sent.
    pub fn adopt(&self, key: Key, runner: Incarnation) -> PendingAttempt {
        self.insert(key, runner, true)
    }

    fn insert(&self, key: Key, runner: Incarnation, start_may_be_sent: bool) -> PendingAttempt {
        let (waiting, result) = oneshot::channel();
        let attempt =
            Attempt { runner, start_may_be_sent, cancelled: false, waiting: Some(waiting) };
        self.lock().attempts.insert(key, attempt);
        PendingAttempt { key, client: self.clone(), result }
    }

    /// Acknowledges these attempts: their outcomes are committed. If the runner cannot be reached now, the
    /// Acks follow its next list.
    pub async fn acknowledge(&self, keys: &[Key]) {
        let line = {
            let mut state = self.lock();
            for key in keys {
                state.attempts.remove(key);
            }
            state.connection.clone()
        };
        if let Some(line) = line {
            let _lost = line.ack(keys).await;
        }
    }

    /// A panic elsewhere leaves no change half done here.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_tracked(&self, key: Key) -> bool {
        self.lock().attempts.contains_key(&key)
    }

    /// Whether the outcome of an attempt of this runner's is not committed yet.
    pub(super) fn is_tracking(&self) -> bool {
        !self.lock().attempts.is_empty()
    }

    /// Reports the result of an attempt. The first result counts.
    fn report(&self, key: Key, result: AttemptResult) {
        let waiting = self.lock().attempts.get_mut(&key).and_then(|one| one.waiting.take());
        match waiting {
            // In a stop the pending attempt is gone: the runner reports it to the next receiver.
            Some(waiting) => drop(waiting.send(result)),
            None => tracing::debug!(%key, "a repeated result of an attempt"),
        }
    }

    async fn stay_connected(&self, epoch: u64) {
        let ClientSettings { name, place, store, .. } = &self.shared.settings;
        let hello = Hello { version: VERSION, store: *store, epoch, runner: Some(name.clone()) };
        let [shortest, longest] = PAUSES;
        let (mut said, mut pause) = (String::new(), shortest);
        loop {
            let load = self.lock().loads.number();
            match self.reach(&hello).await {
                Ok((list, line, events)) => {
                    (said, pause) = (String::new(), shortest);
                    self.lock().why = None;
                    let incarnation = list.incarnation;
                    tracing::info!(runner = %name, %incarnation, "connected to the runner");
                    if !self.read_until_closed(load, list, line, events).await {
                        tracing::info!(
                            runner = %name,
                            "connecting anew: the configuration was reloaded meanwhile"
                        );
                        continue;
                    }
                    tracing::warn!(runner = %name, "the connection to the runner is lost");
                }
                // Said once, and not at every try.
                Err(why) if why != said => {
                    tracing::error!(runner = %name, "no command can run: {why}");
                    self.lock().why = Some(why.clone());
                    said = why;
                    if matches!(place, Place::Nowhere) {
                        return;
                    }
                }
                Err(_) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// One try, with a runner of its own where none is there.
    async fn reach(&self, hello: &Hello) -> Result<(HelloOk, Sender, Events), String> {
        let ClientSettings { name, place, .. } = &self.shared.settings;
        let (socket, launch) = match place {
            Place::Launched(socket, launch) => (socket, Some(launch)),
            Place::Service(socket) => (socket, None),
            Place::Nowhere => {
                return Err(format!("only `hooklatch serve --runners` reaches runner '{name}'"));
            }
        };
        let launch = match (client::connect(socket, hello).await, launch) {
            (Err(ConnectError::Unreachable { .. }), Some(launch)) => launch.clone(),
            (Err(error @ ConnectError::Unreachable { .. }), None) => {
                return Err(format!("{error} (does {} run?)", name.unit()));
            }
            (tried, _) => return tried.map_err(|error| error.to_string()),
        };
        let log = launch.log.clone();
        let launched = tokio::task::spawn_blocking(move || launch.run()).await;
        launched.map_err(|panic| panic.to_string())?.map_err(|error| error.to_string())?;
        let connected = client::connect(socket, hello).await;
        connected
            .map_err(|error| format!("{error} (the launched one says why in {})", log.display()))
    }

    /// Reads what the runner says until the connection is closed. Returns false at once if a reload began after its
    /// Hello, when `load` was the last one.
    async fn read_until_closed(
        &self,
        load: u64,
        list: HelloOk,
        line: Sender,
        mut events: Events,
    ) -> bool {
        if !self.reconcile(load, &list, line.clone()) {
            return false;
        }
        // An error is an end too: whatever came before it has been read.
        while let Ok(Some((message, body))) = events.next().await {
            match message {
                ToReceiver::Started { key } => tracing::debug!(%key, "started"),
                ToReceiver::Refused { key, reason, detail } => {
                    self.report(key, Err(NotStarted { reason, detail }));
                }
                ToReceiver::Ended { key, end, outputs } if self.is_tracked(key) => {
                    let Some(end) = outputs.read(*end, body) else {
                        tracing::error!(%key, "the runner sent an end with a body of another length");
                        break;
                    };
                    self.report(key, Ok(end));
                }
                // As in a list: the end of an attempt that is not tracked is committed.
                ToReceiver::Ended { key, .. } => ack(line.clone(), key),
                ToReceiver::Peeked { key, stream, output } => {
                    let output = output.and_then(|output| output.read(body));
                    self.lock().peeks.answer(key, stream, output.map(Into::into));
                }
                ToReceiver::Gone { key } => {
                    let detail = "its runner died while it ran".to_owned();
                    self.report(key, Ok(Ended::Lost(detail)));
                }
                ToReceiver::Free { draining, .. } => {
                    self.hear(&line, capacity(&list), |state| state.draining = draining);
                }
                ToReceiver::Loaded { number, commands } => {
                    self.lock().loads.answer(number, Ok(commands));
                }
                ToReceiver::NotLoaded { number, detail } => {
                    self.lock().loads.answer(number, Err(detail));
                }
                ToReceiver::HelloOk(_) | ToReceiver::Denied { .. } => {
                    tracing::warn!("the runner answers a Hello that was not said");
                }
            }
        }
        let mut state = self.lock();
        state.connection = None;
        state.peeks = Peeks::default();
        state.loads.lost();
        self.claims_for(&mut state, None);
        true
    }

    fn claims_for(&self, state: &mut State, capacity: Option<Capacity>) {
        if std::mem::replace(&mut state.capacity, capacity) != capacity {
            self.shared.capacities.send_replace(());
        }
    }

    /// Changes what is known of the runner at the other end of `line`, and with it whether claims are
    /// made for it.
    fn hear(&self, line: &Sender, capacity: Capacity, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        if state.connection.as_ref().is_some_and(|now| now.is(line)) {
            change(&mut state);
            let capacity = (state.acked && !state.draining).then_some(capacity);
            self.claims_for(&mut state, capacity);
        }
    }

    /// Stops sending over `line`, which failed: no job is claimed for it while it is read to its end.
    fn stop_sending(&self, line: &Sender) {
        let mut state = self.lock();
        if state.connection.take_if(|now| now.is(line)).is_some() {
            self.claims_for(&mut state, None);
        }
    }

    /// Judges every attempt by the list of the runner that has admitted this receiver, and takes the connection into
    /// use. Holds the lock throughout: if a Start were sent before the list is processed, its absence from the list
    /// would prove nothing. Returns false and does nothing if a reload began after `load`: the runner may have read
    /// the configuration before it.
    fn reconcile(&self, load: u64, list: &HelloOk, line: Sender) -> bool {
        let (mut acks, mut searches, mut results) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut state = self.lock();
            if state.loads.number() != load {
                return false;
            }
            for listed in &list.attempts {
                match (listed.ended, state.attempts.get(&listed.key)) {
                    // Its end follows the list.
                    (true, Some(_)) => {}
                    (true, None) => acks.push(listed.key),
                    (false, Some(attempt)) if attempt.cancelled => kill(line.clone(), listed.key),
                    (false, Some(_)) => {}
                    (false, None) => {
                        tracing::error!(key = %listed.key, "runs, and is not running in the store");
                    }
                }
            }
            let listed: HashSet<Key> = list.attempts.iter().map(|listed| listed.key).collect();
            for (key, attempt) in &state.attempts {
                if attempt.start_may_be_sent && attempt.waiting.is_some() && !listed.contains(key) {
                    match proof(list, attempt.runner) {
                        Some(result) => results.push((*key, result)),
                        None if sees(list.incarnation, attempt.runner) => searches.push(*key),
                        None => {
                            let (then, now) = (attempt.runner.user(), list.incarnation.user());
                            tracing::error!(
                                %key,
                                "stays running: its runner ran as user {then} and this one, as user \
                                 {now}, cannot see what is left of it (start that one again)"
                            );
                        }
                    }
                }
            }
            state.connection = Some(line.clone());
            state.loads.connected();
            (state.draining, state.acked) = (list.draining, false);
        }
        for (key, result) in results {
            self.report(key, result);
        }
        // Beside the reading, so that two full sockets cannot wait for each other.
        let (client, capacity) = (self.clone(), capacity(list));
        tokio::spawn(async move {
            let _lost = line.ack(&acks).await;
            client.hear(&line, capacity, |state| state.acked = true);
            for key in searches {
                tracing::warn!(%key, "no runner answers for it: looking for what may still run of it");
                let _lost = line.search(key).await;
            }
        });
        true
    }
}

/// What the runner with this list can have.
fn capacity(list: &HelloOk) -> Capacity {
    let free = usize::try_from(list.free).unwrap_or(usize::MAX);
    Capacity { incarnation: list.incarnation, attempts: list.attempts.len() + free }
}

/// Beside the reading, so that two full sockets cannot wait for each other.
fn ack(line: Sender, key: Key) {
    tokio::spawn(async move { drop(line.ack(&[key]).await) });
}

/// What an attempt's absence from the runner's list proves: never started, or lost. Nothing if `runner`,
/// which it was claimed for, died in this boot and no runner answers for it.
fn proof(list: &HelloOk, runner: Incarnation) -> Option<AttemptResult> {
    if list.incarnation == runner || list.answers_for.contains(&runner) {
        return Some(never_started("the runner never got it"));
    }
    let rebooted = list.incarnation.boot() != runner.boot();
    rebooted.then(|| Ok(Ended::Lost("the machine went down while it ran".to_owned())))
}

/// Whether the runner that lives now finds all that a dead one may have left, by a look at all processes.
fn sees(now: Incarnation, dead: Incarnation) -> bool {
    now.user() == dead.user() || now.user() == 0
}

impl PendingAttempt {
    /// Asks for its start and waits for its end.
    pub(super) async fn start(self, start: Start, body: bytes::Bytes) -> AttemptResult {
        let line = {
            let mut state = self.client.lock();
            let line = state.connection.clone();
            if let (Some(_), Some(attempt)) = (&line, state.attempts.get_mut(&self.key)) {
                attempt.start_may_be_sent = true;
            }
            line
        };
        let Some(line) = line else {
            return never_started("the runner was gone before it was asked");
        };
        match line.start(start, &body).await {
            Ok(()) if self.is_cancelled() => kill(line, self.key),
            Ok(()) => {}
            Err(error @ WireError::TooLarge { .. }) => {
                let (reason, detail) = (Refusal::BadBody, error.to_string());
                return Err(NotStarted { reason, detail });
            }
            // What the runner has of it, the next list tells.
            Err(error) => {
                tracing::debug!(key = %self.key, %error, "failed to ask for its start");
                self.client.stop_sending(&line);
            }
        }
        drop(body);
        self.ended().await
    }

    /// Checked after the Start is sent: the runner ignores a Kill for an attempt that it does not have yet.
    fn is_cancelled(&self) -> bool {
        self.client.lock().attempts.get(&self.key).is_some_and(|attempt| attempt.cancelled)
    }

    /// Waits for its end.
    pub(super) async fn ended(self) -> AttemptResult {
        match self.result.await {
            Ok(result) => result,
            // Nobody will tell: it stays running, for the next receiver.
            Err(_) => std::future::pending().await,
        }
    }
}
