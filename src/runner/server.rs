//! The runner's process: what it does at its start, whom it serves, when it leaves.
//!
//! `cmd::runner` calls [`run`]. What must stay true: one runner in a folder, for life (R2); nobody is
//! answered before what a dead runner left has been looked for (R6, R7); it leaves by itself only
//! with nothing running and nothing unacknowledged, or, when told to stop, with the ledger knowing
//! what nobody has acknowledged (R13); where it executes itself again, nothing changes but the program.

use std::fs;
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until};

use super::commands::{Configured, Reload};
use super::folder::{self, FolderError, Lock};
use super::incarnation::{self, Incarnation};
use super::ledger::Ledger;
use super::message::{BODY_BYTES, TO_RECEIVER_BYTES, TO_RUNNER_BYTES};
use super::reexec::{self, Reexec, Resumed};
use super::table::Table;
use super::wire::Bounds;
use super::{Ended, attempt, connection, launch, orphaned, zombies};
use crate::crash;
use crate::limits::{Limits, RUNNER_CONNECTIONS, RUNNER_WAIT};
use crate::memory;
use crate::model::RunnerName;
use crate::systemd::Manager;

/// What a runner is made of.
pub struct Settings {
    /// Its name: handlers of others are not its own.
    pub name: RunnerName,
    /// Where it works: its lock, its ledger, what it captures.
    pub folder: PathBuf,
    /// Where it listens: in that folder.
    pub socket: PathBuf,
    /// The socket that a service manager has opened there or elsewhere, where one did: nothing is bound
    /// then, and nothing unlinked.
    pub given: Option<std::os::unix::net::UnixListener>,
    /// What it may run, until the first receiver comes.
    pub commands: Vec<Configured>,
    /// What it may run from then on: called for every receiver, before it is told that it is admitted.
    pub reload: Reload,
    /// Whether it leaves by itself once nobody needs it: where no service manager started it.
    pub leave_when_idle: bool,
    /// Whether a receiver launched it, and waits for it to listen.
    pub launched: bool,
    /// The limits in force.
    pub limits: Limits,
    /// How it executes itself again.
    pub reexec: Reexec,
    /// What [`reexec::VARIABLE`] says, where it did.
    pub handed_over: Option<i32>,
}

/// What the operator or the service manager requests by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// To stop: the first drains, the second ends what runs.
    Stop,
    /// To execute itself again, and keep everything it has.
    Reexec,
}

/// Why a runner does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its ledger, or what the kernel has to tell.
    #[error("failed to begin in {folder}: {source}")]
    Begin {
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Serves until it is told to stop, or until nobody needs it.
///
/// # Errors
/// Whatever keeps it from serving; nothing was started then.
pub async fn run(
    settings: Settings,
    manager: Manager,
    mut requests: mpsc::Receiver<Request>,
) -> Result<(), Error> {
    let Settings {
        name, folder, socket, commands, reload, leave_when_idle, limits, reexec, ..
    } = settings;
    let begin = |source| Error::Begin { folder: folder.clone(), source };
    let resumed = settings.handed_over.map(reexec::resume).transpose().map_err(begin)?;
    let (lock, listener, given, incarnation, running, settled) = match resumed {
        Some(Resumed { lock, listener, given, incarnation, running, settled }) => {
            (lock, Some(listener), given, incarnation, running, settled)
        }
        None => {
            let lock = folder::take(&folder)?;
            let listener = settings.given.map(adopt).transpose().map_err(begin)?;
            let (given, incarnation) = (listener.is_some(), incarnation::new().map_err(begin)?);
            (lock, listener, given, incarnation, Vec::new(), Vec::new())
        }
    };
    let (ledger, inherited) = Ledger::open(&folder).map_err(begin)?;
    // What it does not list would be believed never to have started.
    if settings.handed_over.is_some() && !inherited.incarnations.contains(&incarnation) {
        return Err(begin(io::Error::other("the ledger is not as this runner left it")));
    }
    let capacity = usize::try_from(limits.runner_attempts_count).unwrap_or(usize::MAX);
    let table = Table::new(name.clone(), incarnation, commands, capacity, ledger, inherited)
        .map_err(begin)?;
    let table = Arc::new(table);
    for (key, outputs) in settled {
        table.restore(key, outputs);
    }
    for (key, child, cancelled) in running {
        let cancellation = table.resume(key, child.view(), cancelled);
        tokio::spawn(attempt::resume(Arc::clone(&table), key, child, cancellation));
    }
    crash::point("runner.orphaned.before");
    if !end_orphaned(&table).await {
        tokio::spawn(end_orphaned_at_last(Arc::clone(&table)));
    }
    crash::point("runner.orphaned.after");
    let listener = listener.map_or_else(|| folder::listen(&socket), Ok)?;
    tokio::spawn(zombies::adopt());
    if settings.launched && settings.handed_over.is_none() {
        launch::tell_launcher().map_err(begin)?;
    }
    memory::give_back_code();
    tracing::info!(runner = %name, folder = %folder.display(), %incarnation, "running commands");
    let reload = Arc::new(Mutex::new(reload));
    let connections = JoinSet::new();
    let become_next = Becoming { reexec, incarnation, lock, given };
    let (told, line) = watch::channel(how_many(&table));
    manager.status(&how_many(&table)).await;
    manager.ready().await;
    tokio::spawn(manager.clone().keep_status(line));
    let mut serving =
        Serving { table, reload, listener, connections, accepted: 0, limits, manager, told };
    serving.until_idle_or(&mut requests, &become_next, leave_when_idle).await;
    let Serving { connections, listener, .. } = serving;
    // First the name, so that nobody new comes, then the socket, then those that are connected. Whoever
    // comes to a socket of the service manager's waits there for the next runner.
    if !given {
        let _gone = fs::remove_file(socket);
    }
    drop((listener, connections));
    // Last of all the lock: whoever takes it makes a socket of that name.
    drop(become_next);
    tracing::info!("left");
    Ok(())
}

/// The service manager's socket as one that is served.
fn adopt(given: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
    given.set_nonblocking(true)?;
    UnixListener::from_std(given)
}

/// How many commands run, for people.
fn how_many(table: &Table) -> String {
    match table.running_count() {
        1 => "1 command runs".to_owned(),
        count => format!("{count} commands run"),
    }
}

/// Ends what dead runners left running and settles it as lost. False where something still lives.
async fn end_orphaned(table: &Table) -> bool {
    let left = table.orphaned();
    let sought = left.clone();
    let alive = spawn_blocking(move || orphaned::end(&sought, orphaned::PATIENCE)).await;
    // A search that failed has proven nothing.
    let alive = alive.unwrap_or_else(|_| left.iter().map(|(key, _)| *key).collect());
    for (key, _) in left.into_iter().filter(|(key, _)| !alive.contains(key)) {
        table.settle(key, Ended::Lost("its runner died while it ran".to_owned()));
    }
    alive.is_empty()
}

/// What cannot be killed stays running, visibly, until it is gone.
async fn end_orphaned_at_last(table: Arc<Table>) {
    while !end_orphaned(&table).await {
        tracing::error!("a dead runner's command cannot be ended");
        sleep(orphaned::PATIENCE).await;
    }
}

struct Serving {
    table: Arc<Table>,
    reload: Arc<Mutex<Reload>>,
    listener: UnixListener,
    connections: JoinSet<()>,
    /// Connections so far.
    accepted: u64,
    limits: Limits,
    manager: Manager,
    /// The line that the manager shows.
    told: watch::Sender<String>,
}

impl Serving {
    async fn until_idle_or(
        &mut self,
        requests: &mut mpsc::Receiver<Request>,
        becoming: &Becoming,
        leave_when_idle: bool,
    ) {
        let (rehearsed, mut rehearsals) = mpsc::channel(1);
        let mut ready = false;
        let mut changes = self.table.changes();
        let idle = Limits::duration(self.limits.runner_idle_millis);
        let mut draining: Option<Drain> = None;
        let mut _stopping = None;
        loop {
            if draining.as_ref().is_some_and(|drain| drain.is_over(&self.table)) {
                return;
            }
            if ready && draining.is_none() && becoming.refused(self) {
                ready = false;
            }
            // A connection that has not said Hello needs the runner too.
            let needless = leave_when_idle && self.connections.is_empty() && self.table.is_empty();
            let idled = async { if needless { sleep(idle).await } else { pending().await } };
            let limit = draining.as_ref().filter(|drain| !drain.ending).map(|drain| drain.limit);
            let at_limit = async {
                match limit {
                    Some(limit) => sleep_until(limit).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                accepted = self.listener.accept(), if self.connections.len() < RUNNER_CONNECTIONS => {
                    self.serve(accepted).await;
                }
                Some(_) = self.connections.join_next(), if !self.connections.is_empty() => {}
                Ok(()) = changes.changed() => self.tell(draining.is_some()),
                Some(()) = rehearsals.recv(), if draining.is_none() => {
                    self.table.drain();
                    ready = true;
                }
                Some(request) = requests.recv() => match &mut draining {
                    None if request == Request::Reexec => {
                        tokio::spawn(rehearse(becoming.reexec.clone(), rehearsed.clone()));
                    }
                    None => {
                        self.table.drain();
                        let wait = Limits::duration(self.limits.runner_drain_millis);
                        draining = Some(Drain { limit: Instant::now() + wait, ending: false });
                        _stopping = Some(self.manager.stopping().await);
                    }
                    Some(_) if request == Request::Reexec => {
                        tracing::warn!("stopping: it does not execute itself again");
                    }
                    Some(drain) => drain.end(&self.table),
                },
                () = at_limit => if let Some(drain) = &mut draining { drain.end(&self.table) },
                () = idled => return,
            }
        }
    }

    /// What the manager shows, where that has changed.
    fn tell(&self, draining: bool) {
        let how_many = how_many(&self.table);
        let now = if draining { format!("stopping: {how_many}") } else { how_many };
        self.told.send_if_modified(|told| std::mem::replace(told, now.clone()) != now);
    }

    async fn serve(&mut self, accepted: io::Result<(tokio::net::UnixStream, impl Sized)>) {
        match accepted {
            Ok((stream, _)) => {
                self.accepted += 1;
                let bounds = bounds();
                let (table, reload) = (Arc::clone(&self.table), Arc::clone(&self.reload));
                let served = connection::serve(stream, self.accepted, table, reload, bounds);
                self.connections.spawn(served);
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                // The usual reason is a lack of descriptors, which trying again at once does not end.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// What it takes to execute itself again.
struct Becoming {
    reexec: Reexec,
    incarnation: Incarnation,
    lock: Lock,
    /// Whether the socket is the service manager's.
    given: bool,
}

impl Becoming {
    /// Executes itself again, unless an attempt is being started or reaped just now: false then.
    /// Returns true where it was refused, and serves on.
    fn refused(&self, serving: &Serving) -> bool {
        let state = reexec::State::new(self.incarnation, &self.lock, &serving.listener, self.given);
        let Some(state) = serving.table.hand_over(state) else { return false };
        let error = match serving.table.write_down() {
            Ok(()) => self.reexec.exec(&state),
            Err(error) => error,
        };
        tracing::error!(program = %self.reexec.program.display(), %error, "cannot execute itself again");
        serving.table.undrain();
        true
    }
}

/// Tells where the new program could begin.
async fn rehearse(reexec: Reexec, rehearsed: mpsc::Sender<()>) {
    let program = reexec.program.display().to_string();
    match spawn_blocking(move || reexec.rehearse()).await {
        Ok(Ok(())) => {
            tracing::info!(program, "executing itself again");
            let _leaving = rehearsed.send(()).await;
        }
        Ok(Err(error)) => tracing::error!(program, %error, "cannot execute itself again"),
        Err(panicked) => tracing::error!(program, %panicked, "cannot execute itself again"),
    }
}

/// What a runner reads and what it writes.
fn bounds() -> [Bounds; 2] {
    let bounds = |header_bytes| Bounds { header_bytes, body_bytes: BODY_BYTES, wait: RUNNER_WAIT };
    [bounds(TO_RUNNER_BYTES), bounds(TO_RECEIVER_BYTES)]
}

/// The way to a stop.
struct Drain {
    limit: Instant,
    /// Commands were asked to end.
    ending: bool,
}

impl Drain {
    fn end(&mut self, table: &Table) {
        tracing::warn!("ending the commands that still run");
        self.ending = true;
        table.end_all();
    }

    /// All is told; or, past the limit, all is reaped and in the ledger, for the next runner to tell.
    fn is_over(&self, table: &Table) -> bool {
        table.is_empty() || (self.ending && table.is_quiet())
    }
}
