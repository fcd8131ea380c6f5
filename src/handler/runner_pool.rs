//! The clients of all runners: one for each runner that a handler names, that a running attempt was claimed for (R17), or
//! that a roll call asks (N40).
//!
//! `serve` makes the [`RunnerPool`]; the dispatcher asks for the clients that it needs and connects them. Must
//! stay true:
//!
//! - Each runner has its own capacity, connection and pauses. No runner delays another.
//! - The client of the runner that an attempt was claimed for tracks it, also if its handler has moved to
//!   another runner since: only that runner can prove how it ended (R6, R8).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::{mpsc, watch};

use crate::model::RunnerName;
use crate::runner::folder;
use crate::runner::launch::Launch;
use crate::runner::message::{CommandDigest, Key, Stream};
use crate::store::OutputExcerpt;

use super::runner_client::{
    CannotAsk, CannotLoad, Capacity, Place, RunnerClient, RunnerLoad, RunnerStatus, Stray,
};

/// How runners are reached.
#[derive(Debug, Clone)]
pub enum Runners {
    /// The default runner alone, next to the store, and how to launch it if none listens; `None` if it must not be
    /// launched.
    BesideStore(Option<Launch>),
    /// Each by its socket in this folder. They are services, and are not launched.
    In(PathBuf),
}

/// How to reach the runners.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    pub runners: Runners,
    /// The database; the default runner's folder is next to it.
    pub database: PathBuf,
    /// The id of the store whose attempts these are.
    pub store: uuid::Uuid,
}

/// Why a reload fails: a runner cannot load the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("runner '{runner}' {why}")]
pub struct NotLoaded {
    pub runner: RunnerName,
    pub why: CannotLoad,
}

/// The clients of all runners. Clones are the same pool.
#[derive(Debug, Clone)]
pub struct RunnerPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: PoolSettings,
    state: Mutex<State>,
    /// Notified when the capacity of a runner changes.
    capacities: watch::Sender<()>,
    strays: mpsc::UnboundedSender<Stray>,
}

#[derive(Debug, Default)]
struct State {
    all: BTreeMap<RunnerName, RunnerClient>,
    /// The runners that handlers name or a roll call asks.
    named: BTreeSet<RunnerName>,
    /// The receiver's number, once clients may connect.
    epoch: Option<u64>,
    /// The strays, until the dispatcher takes them.
    strays: Option<mpsc::UnboundedReceiver<Stray>>,
}

impl RunnerPool {
    /// A pool without clients.
    pub fn new(settings: PoolSettings) -> Self {
        let (strays, found) = mpsc::unbounded_channel();
        let state = Mutex::new(State { strays: Some(found), ..State::default() });
        let capacities = watch::Sender::new(());
        RunnerPool { shared: Arc::new(Shared { settings, state, capacities, strays }) }
    }

    /// The client of this runner. A new one connects once [`RunnerPool::connect`] was called. Needs a tokio
    /// runtime's context.
    pub fn client(&self, name: &RunnerName) -> RunnerClient {
        let mut state = self.lock();
        if let Some(client) = state.all.get(name) {
            return client.clone();
        }
        let Shared { settings, capacities, strays, .. } = &*self.shared;
        let (place, store) = (settings.place_of(name), settings.store);
        let (capacities, strays) = (capacities.clone(), strays.clone());
        let client = RunnerClient::new(name.clone(), place, store, capacities, strays);
        state.all.insert(name.clone(), client.clone());
        if let Some(epoch) = state.epoch {
            client.connect(epoch);
        }
        client
    }

    /// Sets the runners that handlers name or a roll call asks. The client of another runner is needed only while it
    /// tracks an attempt.
    pub fn need(&self, named: BTreeSet<RunnerName>) {
        for name in &named {
            self.client(name);
        }
        self.lock().named = named;
    }

    /// Connects every client, and from now on each that is added. Called once, as the receiver with this number,
    /// when every attempt of an earlier receiver is tracked. Needs a tokio runtime's context.
    pub fn connect(&self, epoch: u64) {
        let mut state = self.lock();
        state.epoch = Some(epoch);
        for client in state.all.values() {
            client.connect(epoch);
        }
    }

    /// The attempts that a runner lists and its client does not track, each before the runner's capacity. Taken once.
    pub(crate) fn strays(&self) -> mpsc::UnboundedReceiver<Stray> {
        self.lock().strays.take().unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    /// The runners that are needed, where each has admitted this receiver, and so has listed its attempts.
    pub(crate) fn listed(&self) -> Option<BTreeSet<RunnerName>> {
        let state = self.lock();
        let listed =
            state.needed().map(|(name, client)| client.is_connected().then(|| name.clone()));
        listed.collect()
    }

    /// The runners that take attempts now, and how many.
    pub fn capacities(&self) -> BTreeMap<RunnerName, Capacity> {
        let all = &self.lock().all;
        all.iter().filter_map(|(name, client)| Some((name.clone(), client.capacity()?))).collect()
    }

    /// Notifies of every change of [`RunnerPool::capacities`].
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.capacities.subscribe()
    }

    /// Asks every runner that is needed, now or for these commands, to load its configuration, which must have
    /// the commands that are for it. A runner that is not connected reads them when it connects. One call at a
    /// time.
    ///
    /// # Errors
    /// A runner cannot, has read others, or did not answer within `wait`. Every runner continues with the commands
    /// in use.
    pub async fn load(
        &self,
        commands: &[(RunnerName, CommandDigest)],
        wait: Duration,
    ) -> Result<Vec<(RunnerName, Option<RunnerLoad>)>, NotLoaded> {
        let asked: BTreeMap<RunnerName, Option<RunnerClient>> = {
            let state = self.lock();
            let needed = state.needed().map(|(name, _)| name);
            let names = needed.chain(commands.iter().map(|(name, _)| name));
            names.map(|name| (name.clone(), state.all.get(name).cloned())).collect()
        };
        let load = async |(runner, client): (RunnerName, Option<RunnerClient>)| {
            let own = commands.iter().filter(|(name, _)| *name == runner);
            let own: Vec<CommandDigest> = own.map(|(_, command)| command.clone()).collect();
            let loaded = match client {
                Some(client) => client.load(&own, wait).await,
                None => Ok(None),
            };
            match loaded {
                Ok(load) => Ok((runner, load)),
                Err(why) => Err(NotLoaded { runner, why }),
            }
        };
        try_join_all(asked.into_iter().map(load)).await
    }

    /// The state of each runner that is needed, by name.
    pub fn statuses(&self) -> Vec<RunnerStatus> {
        self.lock().needed().map(|(_, client)| client.status()).collect()
    }

    /// Asks the runner that has the attempt to end its command, as [`RunnerClient::cancel`] does.
    ///
    /// # Errors
    /// The runner was not asked.
    pub fn cancel(&self, key: Key) -> Result<(), CannotAsk> {
        match self.that_tracks(key)? {
            Some(client) => client.cancel(key),
            None => Err(CannotAsk::NotThere(key)),
        }
    }

    /// What an output of an attempt holds so far, as [`RunnerClient::peek`] of its runner returns it. `None` if no
    /// runner tracks the attempt.
    ///
    /// # Errors
    /// The runner cannot be reached, or was lost before it answered: ask again.
    pub async fn peek(&self, key: Key, stream: Stream) -> Result<Option<OutputExcerpt>, CannotAsk> {
        match self.that_tracks(key)? {
            Some(client) => client.peek(key, stream).await,
            None => Ok(None),
        }
    }

    /// The client that tracks the attempt; `None` if it is only just beginning or ending. An error while no runner
    /// has admitted this receiver: the attempt may not be tracked yet.
    fn that_tracks(&self, key: Key) -> Result<Option<RunnerClient>, CannotAsk> {
        let all = &self.lock().all;
        match all.values().find(|client| client.is_tracked(key)) {
            Some(client) => Ok(Some(client.clone())),
            None if all.values().any(RunnerClient::is_connected) => Ok(None),
            None => Err(CannotAsk::NoRunner),
        }
    }

    /// A panic elsewhere leaves no change half done here.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolSettings {
    fn place_of(&self, name: &RunnerName) -> Place {
        match &self.runners {
            Runners::In(folder) => Place::Service(folder::named_socket(folder, name)),
            Runners::BesideStore(_) if !name.is_default() => Place::Nowhere,
            Runners::BesideStore(launch) => {
                let socket = folder::socket(&folder::of(&self.database));
                match launch.clone() {
                    Some(launch) => Place::Launched(socket, launch),
                    None => Place::Service(socket),
                }
            }
        }
    }
}

impl State {
    /// The clients of the named runners, and of those that may have an attempt.
    fn needed(&self) -> impl Iterator<Item = (&RunnerName, &RunnerClient)> {
        self.all.iter().filter(|(name, client)| self.named.contains(*name) || client.is_tracking())
    }
}
