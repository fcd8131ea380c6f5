//! The connection of a client to its runner: connecting, judging the runner's list, reading its messages.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::sleep;

use crate::model::Incarnation;
use crate::runner::Ended;
use crate::runner::client::{self, ConnectError, Events, Sender};
use crate::runner::message::{Hello, HelloOk, Key, Listed, ToReceiver, ToRunner, VERSION};

use super::answers::Peeks;
use super::client::{
    AttemptResult, Capacity, Connection, NotStarted, Place, RunnerClient, Shared, Stray, kill,
    never_started,
};

/// The shortest and the longest pause between two tries to reach a runner: short at first, for a runner that has
/// just left or is about to start, then longer, because each try may launch a process.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

impl RunnerClient {
    /// Connects, and connects again when the connection is lost; launches a runner if that is its task. Called
    /// once, as the receiver with this number, when every attempt of an earlier receiver is tracked. Needs a
    /// tokio runtime's context.
    pub(in crate::handler) fn connect(&self, epoch: u64) {
        let client = self.clone();
        tokio::spawn(async move { client.stay_connected(epoch).await });
    }

    async fn stay_connected(&self, epoch: u64) {
        let Shared { name, place, store, .. } = &*self.shared;
        let hello = Hello { version: VERSION, store: *store, epoch, runner: Some(name.clone()) };
        let [shortest, longest] = PAUSES;
        let mut pause = shortest;
        loop {
            let load = self.lock().loads.number;
            match self.reach(&hello).await {
                Ok((list, line, events)) => {
                    pause = shortest;
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
                Err(why) => {
                    let last = self.lock().why.replace(why.clone());
                    // Logged once, and not at every try.
                    if last.as_ref() != Some(&why) {
                        tracing::error!(runner = %name, "no command can run: {why}");
                    }
                    if matches!(place, Place::Nowhere) {
                        return;
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Tries to connect once, and launches a runner if none listens and that is its task.
    async fn reach(&self, hello: &Hello) -> Result<(HelloOk, Sender, Events), String> {
        let Shared { name, place, .. } = &*self.shared;
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

    /// Reads the runner's messages until the connection is closed. Returns false at once if a reload began since `load` was
    /// read, before the Hello.
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
        // An error is an end too: every message before it has been read.
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
                // Its end is committed: all that the list had was tracked until then.
                ToReceiver::Ended { key, .. } => line.send_in_background(ToRunner::Ack { key }),
                ToReceiver::Peeked { key, stream, output } => {
                    let output = output.and_then(|output| output.read(body));
                    self.lock().peeks.answer(key, stream, output.map(Into::into));
                }
                ToReceiver::Gone { key } => {
                    let detail = "its runner died while it ran".to_owned();
                    self.report(key, Ok(Ended::Lost(detail)));
                }
                ToReceiver::Draining { draining } => {
                    self.change_connection(&line, |connection| connection.draining = draining);
                }
                ToReceiver::Loaded { number, commands } => {
                    self.lock().loads.answer(number, Ok(commands));
                }
                ToReceiver::NotLoaded { number, detail } => {
                    self.lock().loads.answer(number, Err(detail));
                }
                ToReceiver::HelloOk(_) | ToReceiver::Denied { .. } => {
                    tracing::warn!("the runner answers a Hello that was not sent");
                }
            }
        }
        self.change(|state| {
            state.connection = None;
            state.peeks = Peeks::default();
            state.loads.waiting = None;
        });
        true
    }

    /// Changes the connection, if it is still the one of `line`.
    fn change_connection(&self, line: &Sender, change: impl FnOnce(&mut Connection)) {
        self.change(|state| {
            if let Some(connection) = state.connection.as_mut().filter(|now| now.line.is(line)) {
                change(connection);
            }
        });
    }

    /// Judges every attempt by the list of the runner that has admitted this receiver, and takes the connection into
    /// use. Holds the lock throughout: if a Start were sent before the list is processed, its absence from the list
    /// would prove nothing. Returns false and does nothing if a reload began after `load`: the runner may have read
    /// the configuration before it.
    fn reconcile(&self, load: u64, list: &HelloOk, line: Sender) -> bool {
        let (mut searches, mut results) = (Vec::new(), Vec::new());
        {
            let mut state = self.lock();
            if state.loads.number != load {
                return false;
            }
            let mut strays = Vec::new();
            for listed in &list.attempts {
                match state.attempts.get(&listed.key) {
                    // The end of an ended one follows the list.
                    Some(attempt) if attempt.cancelled && !listed.ended => kill(&line, listed.key),
                    Some(_) => {}
                    None => strays.push(listed),
                }
            }
            for &Listed { key, ended } in strays {
                if !ended {
                    tracing::warn!(%key, "runs, and is not running in the store: its end will be kept");
                }
                let pending = self.track_in(&mut state, key, list.incarnation, true);
                // Fails only without a dispatcher: then nothing is claimed, and the next receiver finds it.
                let _stopped =
                    self.shared.strays.send(Stray { key, client: self.clone(), pending });
                state.strays.insert(key, false);
            }
            // Also those of an earlier list, which this one may lack.
            let ended: HashSet<Key> = list
                .attempts
                .iter()
                .filter(|listed| listed.ended)
                .map(|listed| listed.key)
                .collect();
            for (key, has_ended) in &mut state.strays {
                *has_ended = ended.contains(key);
            }
            let listed: HashSet<Key> = list.attempts.iter().map(|listed| listed.key).collect();
            for (key, attempt) in &state.attempts {
                if attempt.start_may_be_sent && attempt.waiting.is_some() && !listed.contains(key) {
                    match proof(list, attempt.runner) {
                        Some(result) => results.push((*key, result)),
                        None if can_see(list.incarnation, attempt.runner) => searches.push(*key),
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
            let free = usize::try_from(list.free).unwrap_or(usize::MAX);
            let attempts = list.attempts.len() + free;
            state.connection = Some(Connection {
                line: line.clone(),
                capacity: Capacity { incarnation: list.incarnation, attempts },
                draining: list.draining,
            });
            state.loads.in_use = 0;
        }
        self.shared.capacities.send_replace(());
        for (key, result) in results {
            self.report(key, result);
        }
        // In a separate task, so that two full sockets cannot wait for each other.
        tokio::spawn(async move {
            for key in searches {
                tracing::warn!(%key, "no runner answers for it: looking for what may still run of it");
                let _lost = line.send(ToRunner::Search { key }).await;
            }
        });
        true
    }
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

/// Whether the runner that lives now sees every process that a dead one may have left.
fn can_see(now: Incarnation, dead: Incarnation) -> bool {
    now.user() == dead.user() || now.user() == 0
}
