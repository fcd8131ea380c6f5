//! The links to all runners: one for each that a handler names, or that a running attempt was claimed
//! for (R17).
//!
//! `serve` makes the [`Links`]; the dispatcher asks for those that it needs and connects them. What must
//! stay true:
//!
//! - Each runner is a world of its own: its room, its connection, its pauses. Nothing here waits for one
//!   on behalf of another.
//! - An attempt is tracked on the link of the runner that it was claimed for, also where its handler has
//!   moved to another runner since: only that one can prove anything of it (R6, R8).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::limits::Limits;
use crate::model::RunnerName;
use crate::runner::folder;
use crate::runner::launch::Launch;
use crate::runner::message::{Key, Known, Stream};
use crate::store::Captured;

use super::link::{self, CannotAsk, CannotLoad, Link, Loaded, Place, Room, View};

/// How runners are reached.
#[derive(Debug, Clone)]
pub enum Runners {
    /// The default one alone, beside the store, and how it is launched where none listens; none where
    /// nobody may.
    BesideStore(Option<Launch>),
    /// Each by its socket in this folder, whoever starts them: none is ever launched.
    In(PathBuf),
}

/// Whom to speak to.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How runners are reached.
    pub runners: Runners,
    /// The database beside which one works that is launched.
    pub database: PathBuf,
    /// The store whose attempts these are.
    pub store: uuid::Uuid,
    /// The limits in force, for each runner.
    pub limits: Limits,
}

/// Why nothing is reloaded: a runner does not go along.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("runner '{runner}' {why}")]
pub struct NotLoaded {
    pub runner: RunnerName,
    pub why: CannotLoad,
}

/// The links to all runners. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct Links {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    state: Mutex<State>,
    /// Stirred whenever the room of a runner changes.
    rooms: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    all: BTreeMap<RunnerName, Link>,
    /// Those that handlers name.
    named: BTreeSet<RunnerName>,
    /// The receiver's number, once links may connect.
    epoch: Option<u64>,
}

impl Links {
    /// No link yet.
    pub fn new(settings: Settings) -> Self {
        let (state, rooms) = (Mutex::default(), watch::Sender::new(()));
        Links { shared: Arc::new(Shared { settings, state, rooms }) }
    }

    /// The link to this runner. One that was not there before connects as soon as links may. Needs a
    /// tokio runtime's context.
    pub fn to(&self, name: &RunnerName) -> Link {
        let mut state = self.lock();
        if let Some(link) = state.all.get(name) {
            return link.clone();
        }
        let link = Link::new(self.settings_of(name), self.shared.rooms.clone());
        state.all.insert(name.clone(), link.clone());
        if let Some(epoch) = state.epoch {
            link.connect(epoch);
        }
        link
    }

    /// These are the runners that handlers name from now on. The link to another one is needed only while
    /// it tracks an attempt.
    pub fn need(&self, named: BTreeSet<RunnerName>) {
        for name in &named {
            self.to(name);
        }
        self.lock().named = named;
    }

    /// Connects every link there is, and from now on each that is added. Called once, as the receiver
    /// with this number, when every attempt that an earlier one left is tracked. Needs a tokio runtime's
    /// context.
    pub fn connect(&self, epoch: u64) {
        let mut state = self.lock();
        state.epoch = Some(epoch);
        state.all.values().for_each(|link| link.connect(epoch));
    }

    /// The runners that take attempts now, and how many.
    pub fn rooms(&self) -> BTreeMap<RunnerName, Room> {
        let all = &self.lock().all;
        all.iter().filter_map(|(name, link)| Some((name.clone(), link.room()?))).collect()
    }

    /// Hears of every change of [`Links::rooms`].
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.rooms.subscribe()
    }

    /// Has every runner that is needed, now or for these, read its commands as they are configured now, and
    /// keep them aside: these, as the receiver has read them, each with the runner that it is for. A runner
    /// that is not connected reads them when it comes. One at a time.
    ///
    /// # Errors
    /// One of them cannot, has read others, or did not answer within `wait`: no runner changes anything.
    pub async fn load(
        &self,
        commands: &[(RunnerName, Known)],
        wait: Duration,
    ) -> Result<Vec<(RunnerName, Loaded)>, NotLoaded> {
        let mut asked: BTreeMap<RunnerName, Option<Link>> = {
            let state = self.lock();
            state.needed().map(|(name, link)| (name.clone(), Some(link.clone()))).collect()
        };
        for (name, _) in commands {
            asked.entry(name.clone()).or_insert_with(|| self.lock().all.get(name).cloned());
        }
        let load = |(name, link): (RunnerName, Option<Link>)| {
            let its = commands.iter().filter(|(runner, _)| *runner == name);
            let its: Vec<Known> = its.map(|(_, known)| known.clone()).collect();
            let loading = async move {
                match link {
                    Some(link) => link.load(&its, wait).await,
                    None => Ok(Loaded::by_nobody()),
                }
            };
            (name, tokio::spawn(loading))
        };
        let mut loaded = Vec::new();
        // All are asked before the first is waited for.
        for (runner, loading) in asked.into_iter().map(load).collect::<Vec<_>>() {
            // A task that broke off has told nobody anything.
            match loading.await.unwrap_or(Err(CannotLoad::Lost)) {
                Ok(one) => loaded.push((runner, one)),
                Err(why) => return Err(NotLoaded { runner, why }),
            }
        }
        Ok(loaded)
    }

    /// How each link that is needed stands now, by name. Empty where no runner is.
    pub fn views(&self) -> Vec<View> {
        self.lock().needed().map(|(_, link)| link.view()).collect()
    }

    /// As [`Link::cancel`], of the runner that has the attempt.
    ///
    /// # Errors
    /// Nobody was asked.
    pub fn cancel(&self, key: Key) -> Result<(), CannotAsk> {
        match self.that_tracks(key)? {
            Some(link) => link.cancel(key),
            None => Err(CannotAsk::NotThere(key)),
        }
    }

    /// As [`Link::peek`], of the runner that has the attempt.
    ///
    /// # Errors
    /// The runner cannot be reached, or was lost before it answered: ask again.
    pub async fn peek(&self, key: Key, stream: Stream) -> Result<Option<Captured>, CannotAsk> {
        match self.that_tracks(key)? {
            Some(link) => link.peek(key, stream).await,
            None => Ok(None),
        }
    }

    /// Nothing where no link tracks it: it is only just beginning or ending. An error while no runner
    /// has admitted this receiver, when nothing may be tracked yet.
    fn that_tracks(&self, key: Key) -> Result<Option<Link>, CannotAsk> {
        let all = &self.lock().all;
        match all.values().find(|link| link.is_tracked(key)) {
            Some(link) => Ok(Some(link.clone())),
            None if all.values().any(Link::is_connected) => Ok(None),
            None => Err(CannotAsk::NoRunner),
        }
    }

    fn settings_of(&self, name: &RunnerName) -> link::Settings {
        let Settings { runners, database, store, limits } = &self.shared.settings;
        let place = match runners {
            Runners::In(folder) => Place::Service(folder::named_socket(folder, name)),
            Runners::BesideStore(_) if !name.is_default() => Place::Nowhere,
            Runners::BesideStore(launch) => {
                let socket = folder::socket(&folder::of(database));
                match launch.clone() {
                    Some(launch) => Place::Launched(socket, launch),
                    None => Place::Service(socket),
                }
            }
        };
        link::Settings { name: name.clone(), place, store: *store, limits: limits.clone() }
    }

    /// A panic elsewhere has changed nothing here by half.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The links to runners that handlers name, or that may have an attempt.
    fn needed(&self) -> impl Iterator<Item = (&RunnerName, &Link)> {
        self.all.iter().filter(|(name, link)| self.named.contains(*name) || link.is_tracking())
    }
}
