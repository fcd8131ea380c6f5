//! The client of one runner: the attempts that it tracks, and the state of its connection.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::model::{Incarnation, RunnerName};
use crate::runner::client::Sender;
use crate::runner::launch::Launch;
use crate::runner::message::{Key, Refusal, Start, ToRunner};
use crate::runner::{Ended, WireError};

use super::answers::{Loads, Peeks};

/// Where a runner is.
#[derive(Debug, Clone)]
pub enum Place {
    /// The runner at this socket; the receiver launches it if no process listens.
    Launched(PathBuf, Launch),
    /// The runner at this socket; a service manager or the operator starts it.
    Service(PathBuf),
    /// A runner that is not reached: this receiver knows the default runner only.
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

/// The state of a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerStatus {
    /// The runner's name.
    pub name: RunnerName,
    /// The runner's systemd unit, unless this receiver launches it.
    pub unit: Option<String>,
    /// Whether a runner has admitted this receiver.
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
pub(in crate::handler) type AttemptResult = Result<Ended, NotStarted>;

/// Why an attempt never began. `detail` is for the operator.
#[derive(Debug)]
pub(in crate::handler) struct NotStarted {
    pub(in crate::handler) reason: Refusal,
    pub(in crate::handler) detail: String,
}

pub(super) fn never_started(detail: &str) -> AttemptResult {
    Err(NotStarted { reason: Refusal::NotReceived, detail: detail.to_owned() })
}

/// The client of one runner. Clones are the same client.
#[derive(Debug, Clone)]
pub struct RunnerClient {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: RunnerName,
    pub(super) place: Place,
    /// The id of the store whose attempts these are.
    pub(super) store: uuid::Uuid,
    state: Mutex<State>,
    /// Notified when the capacity changes.
    pub(super) capacities: watch::Sender<()>,
    pub(super) strays: mpsc::UnboundedSender<Stray>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) attempts: HashMap<Key, Attempt>,
    /// The keys of `attempts` that are strays, and whether the last list had them as ended.
    pub(super) strays: HashMap<Key, bool>,
    pub(super) connection: Option<Connection>,
    pub(super) peeks: Peeks,
    pub(super) loads: Loads,
    /// Why the last try to connect failed; none once a try succeeds.
    pub(super) why: Option<String>,
}

/// The connection to a runner that has admitted this receiver.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) line: Sender,
    pub(super) capacity: Capacity,
    /// The runner takes no attempts any more.
    pub(super) draining: bool,
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) runner: Incarnation,
    /// Its Start may have been sent, by this receiver or an earlier one.
    pub(super) start_may_be_sent: bool,
    /// The operator has cancelled it. The Kill is sent again whenever the runner may not have it.
    pub(super) cancelled: bool,
    /// The pending attempt, until its result is known.
    pub(super) waiting: Option<oneshot::Sender<AttemptResult>>,
}

/// An attempt whose result is awaited.
#[derive(Debug)]
pub struct PendingAttempt {
    key: Key,
    client: RunnerClient,
    result: oneshot::Receiver<AttemptResult>,
}

/// An attempt that a runner has listed and this receiver did not track. The store knows its end already, or has lost its
/// claim (N40).
#[derive(Debug)]
pub struct Stray {
    pub key: Key,
    pub client: RunnerClient,
    pub pending: PendingAttempt,
}

impl State {
    /// The sending side of the connection.
    pub(super) fn line(&self) -> Option<Sender> {
        self.connection.as_ref().map(|connection| connection.line.clone())
    }

    /// The runner that claims are made for, with its capacity minus the strays. `None` until each stray that the list
    /// had as ended is acknowledged: the runner would refuse the next Start of its job.
    fn capacity(&self) -> Option<Capacity> {
        let is_acked = self.strays.values().all(|ended| !ended);
        let connection = self.connection.as_ref();
        let ready = connection.filter(|connection| is_acked && !connection.draining);
        ready.map(|Connection { capacity, .. }| Capacity {
            attempts: capacity.attempts.saturating_sub(self.strays.len()),
            ..*capacity
        })
    }
}

impl RunnerClient {
    /// A client that is not connected, and notifies `capacities` when its capacity changes.
    pub(in crate::handler) fn new(
        name: RunnerName,
        place: Place,
        store: uuid::Uuid,
        capacities: watch::Sender<()>,
        strays: mpsc::UnboundedSender<Stray>,
    ) -> Self {
        let state = Mutex::default();
        RunnerClient { shared: Arc::new(Shared { name, place, store, state, capacities, strays }) }
    }

    /// The runner that takes attempts now, if one does.
    pub(in crate::handler) fn capacity(&self) -> Option<Capacity> {
        self.lock().capacity()
    }

    /// Whether a runner has admitted this receiver.
    pub(in crate::handler) fn is_connected(&self) -> bool {
        self.lock().connection.is_some()
    }

    pub fn status(&self) -> RunnerStatus {
        let Shared { name, place, .. } = &*self.shared;
        let state = self.lock();
        let capacity = state.capacity();
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

    /// Tracks an attempt that was claimed for `runner`. `start_may_be_sent`: an earlier receiver has claimed it, and
    /// may have sent its Start.
    pub fn track(&self, key: Key, runner: Incarnation, start_may_be_sent: bool) -> PendingAttempt {
        self.track_in(&mut self.lock(), key, runner, start_may_be_sent)
    }

    pub(super) fn track_in(
        &self,
        state: &mut State,
        key: Key,
        runner: Incarnation,
        start_may_be_sent: bool,
    ) -> PendingAttempt {
        let (waiting, result) = oneshot::channel();
        let attempt =
            Attempt { runner, start_may_be_sent, cancelled: false, waiting: Some(waiting) };
        state.attempts.insert(key, attempt);
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
            state.line()
        };
        if let Some(line) = line {
            let _lost = line.ack(keys).await;
        }
        self.change(|state| state.strays.retain(|key, _| !keys.contains(key)));
    }

    /// A panic elsewhere leaves no change half done here.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and notifies if that changes the capacity.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        let before = state.capacity();
        change(&mut state);
        if state.capacity() != before {
            self.shared.capacities.send_replace(());
        }
    }

    pub(in crate::handler) fn is_tracked(&self, key: Key) -> bool {
        self.lock().attempts.contains_key(&key)
    }

    /// Whether the outcome of an attempt of this runner is not committed yet.
    pub(in crate::handler) fn is_tracking(&self) -> bool {
        !self.lock().attempts.is_empty()
    }

    /// Reports the result of an attempt. The first result counts.
    pub(super) fn report(&self, key: Key, result: AttemptResult) {
        let waiting = self.lock().attempts.get_mut(&key).and_then(|one| one.waiting.take());
        match waiting {
            // In a stop the pending attempt is gone: the runner reports it to the next receiver.
            Some(waiting) => drop(waiting.send(result)),
            None => tracing::debug!(%key, "a repeated result of an attempt"),
        }
    }
}

/// Asks a cancelled attempt to end. If the connection is lost, the next list leads to another request.
pub(super) fn kill(line: &Sender, key: Key) {
    tracing::info!(%key, "cancelled by the operator: asking it to end");
    line.send_in_background(ToRunner::Kill { key });
}

impl PendingAttempt {
    /// Asks the runner to start the attempt, and waits for its end.
    pub(in crate::handler) async fn start(self, start: Start, body: bytes::Bytes) -> AttemptResult {
        let line = {
            let mut state = self.client.lock();
            let line = state.line();
            if let (Some(_), Some(attempt)) = (&line, state.attempts.get_mut(&self.key)) {
                attempt.start_may_be_sent = true;
            }
            line
        };
        let Some(line) = line else {
            return never_started("the runner was gone before it was asked");
        };
        match line.start(start, &body).await {
            // The runner has ignored an earlier Kill, because it did not have the attempt yet.
            Ok(()) if self.is_cancelled() => kill(&line, self.key),
            Ok(()) => {}
            Err(error @ WireError::TooLarge { .. }) => {
                let (reason, detail) = (Refusal::BadBody, error.to_string());
                return Err(NotStarted { reason, detail });
            }
            // The next list shows whether the runner has it. Until then no job is claimed for this connection,
            // which is read to its end.
            Err(error) => {
                tracing::debug!(key = %self.key, %error, "failed to ask for its start");
                self.client.change(|state| {
                    state.connection.take_if(|connection| connection.line.is(&line));
                });
            }
        }
        drop(body);
        self.ended().await
    }

    fn is_cancelled(&self) -> bool {
        self.client.lock().attempts.get(&self.key).is_some_and(|attempt| attempt.cancelled)
    }

    /// Waits for the attempt's end.
    pub(in crate::handler) async fn ended(self) -> AttemptResult {
        match self.result.await {
            Ok(result) => result,
            // No result will come: the attempt stays running, for the next receiver.
            Err(_) => std::future::pending().await,
        }
    }
}
