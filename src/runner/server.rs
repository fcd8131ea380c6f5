//! The runner's process: its start, its connections, and when it leaves.
//!
//! `cmd::runner` calls [`run`]. Must stay true: a folder has one runner, for its life (R2); no receiver is
//! answered before this runner has searched for what a dead one left (R6, R7); it leaves by itself only if
//! no attempt runs and none is unacknowledged, or, after a request to stop, if the ledger has every
//! unacknowledged attempt (R13); executing itself again changes nothing but the program.

use std::fs::{self, File};
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
use super::folder::{self, FolderError};
use super::incarnation;
use super::ledger::Ledger;
use super::reexec::{self, Handover, Reexec};
use super::table::Table;
use super::{Ended, attempt, connection, launch, orphaned, zombies};
use crate::crash;
use crate::limits::{Limits, RUNNER_CONNECTIONS};
use crate::memory;
use crate::model::{Incarnation, RunnerName};
use crate::systemd::Manager;

/// The settings of a runner.
pub struct Settings {
    pub name: RunnerName,
    /// The folder of its lock and its ledger.
    pub folder: PathBuf,
    /// The path of its socket.
    pub socket: PathBuf,
    /// The socket that a service manager has opened, if it did. The runner then binds and unlinks none.
    pub given: Option<std::os::unix::net::UnixListener>,
    /// The commands that it can start until the first receiver connects.
    pub commands: Vec<Configured>,
    /// Reads the commands again, for each receiver that connects or reloads.
    pub reload: Reload,
    /// Whether it leaves by itself when it is idle: if no service manager started it.
    pub leave_when_idle: bool,
    /// Whether a receiver launched it, and waits for it to listen.
    pub launched: bool,
    pub limits: Limits,
    /// How it executes itself again.
    pub reexec: Reexec,
    /// The value of [`reexec::VARIABLE`], if it is set.
    pub handed_over: Option<i32>,
}

/// The request of an operator or a service manager, made by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A stop. The first request drains, the second ends the commands that run.
    Stop,
    /// An execution of its program again.
    Reexec,
}

/// Why a runner does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("failed to begin in {folder}: {source}")]
    Begin { folder: PathBuf, source: io::Error },
}

/// Serves until a request to stop, or until it is idle.
///
/// # Errors
/// It cannot serve; it has started no command.
pub async fn run(
    settings: Settings,
    manager: Manager,
    mut requests: mpsc::Receiver<Request>,
) -> Result<(), Error> {
    let folder = settings.folder;
    let begin = |source| Error::Begin { folder: folder.clone(), source };
    let handover = match settings.handed_over {
        Some(number) => reexec::resume(number).map_err(begin)?,
        None => Handover {
            lock: folder::take(&folder)?,
            given: settings.given.is_some(),
            listener: settings.given.map(adopt).transpose().map_err(begin)?,
            incarnation: incarnation::new().map_err(begin)?,
            running: Vec::new(),
            settled: Vec::new(),
        },
    };
    let (incarnation, given) = (handover.incarnation, handover.given);
    let (ledger, inherited) = Ledger::open(&folder).map_err(begin)?;
    // An attempt that the ledger lacks would count as one that never started.
    if settings.handed_over.is_some() && !inherited.incarnations.contains(&incarnation) {
        return Err(begin(io::Error::other("the ledger is not as this runner left it")));
    }
    let (name, commands, limits) = (settings.name, settings.commands, settings.limits);
    let capacity = usize::try_from(limits.runner_attempts_count).unwrap_or(usize::MAX);
    let table = Table::new(name.clone(), incarnation, commands, capacity, ledger, inherited);
    let table = Arc::new(table.map_err(begin)?);
    for (key, outputs) in handover.settled {
        table.restore(key, outputs);
    }
    for (key, child, cancelled) in handover.running {
        let cancellation = table.resume(key, Arc::clone(&child), cancelled);
        let resumed = attempt::resume(Arc::clone(&table), key, child, cancellation);
        tokio::spawn(resumed);
    }
    crash::point("runner.orphaned.before");
    if !end_orphaned(&table).await {
        tokio::spawn(keep_ending_orphaned(Arc::clone(&table)));
    }
    crash::point("runner.orphaned.after");
    let listener = handover.listener.map_or_else(|| folder::listen(&settings.socket), Ok)?;
    tokio::spawn(zombies::adopt());
    if settings.launched && settings.handed_over.is_none() {
        launch::release_launcher().map_err(begin)?;
    }
    memory::give_back_code();
    tracing::info!(runner = %name, folder = %folder.display(), %incarnation, "running commands");
    let line = status_line(&table, false);
    manager.status(&line).await;
    manager.ready().await;
    let (status, lines) = watch::channel(line);
    tokio::spawn(manager.clone().keep_status(lines));
    let mut serving = Serving {
        table,
        reload: Arc::new(Mutex::new(settings.reload)),
        listener,
        connections: JoinSet::new(),
        accepted: 0,
        limits,
        manager,
        status,
        reexec: settings.reexec,
        incarnation,
        given,
        lock: handover.lock,
    };
    serving.until_idle_or(&mut requests, settings.leave_when_idle).await;
    // First the socket's name, so that no receiver connects any more. Receivers that connect to a socket of
    // the service manager wait there for the next runner.
    if !given {
        let _gone = fs::remove_file(settings.socket);
    }
    drop(serving);
    tracing::info!("left");
    Ok(())
}

/// The service manager's socket, made ready to serve.
fn adopt(given: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
    given.set_nonblocking(true)?;
    UnixListener::from_std(given)
}

/// The line that the service manager shows.
fn status_line(table: &Table, stopping: bool) -> String {
    let stopping = if stopping { "stopping: " } else { "" };
    match table.running_count() {
        1 => format!("{stopping}1 command runs"),
        count => format!("{stopping}{count} commands run"),
    }
}

/// Ends the processes that dead runners left, and settles their attempts as lost. Returns whether none lives.
async fn end_orphaned(table: &Table) -> bool {
    let left = table.orphaned();
    let searched = left.clone();
    let alive = spawn_blocking(move || orphaned::end(&searched, orphaned::PATIENCE)).await;
    // A search that failed proves nothing.
    let alive = alive.unwrap_or_else(|_| left.iter().map(|(key, _)| *key).collect());
    for (key, _) in left.into_iter().filter(|(key, _)| !alive.contains(key)) {
        table.settle(key, Ended::Lost("its runner died while it ran".to_owned()));
    }
    alive.is_empty()
}

/// Repeats [`end_orphaned`]: an attempt whose process cannot be killed stays `running`, visibly, until it is gone.
async fn keep_ending_orphaned(table: Arc<Table>) {
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
    /// The number of connections so far.
    accepted: u64,
    limits: Limits,
    manager: Manager,
    /// The line that the manager shows.
    status: watch::Sender<String>,
    /// How it executes itself again.
    reexec: Reexec,
    incarnation: Incarnation,
    /// Whether the listener is the service manager's.
    given: bool,
    /// Dropped last: the process that takes it creates a socket of the same name.
    lock: File,
}

impl Serving {
    async fn until_idle_or(
        &mut self,
        requests: &mut mpsc::Receiver<Request>,
        leave_when_idle: bool,
    ) {
        let (rehearsed, mut rehearsals) = mpsc::channel(1);
        let mut may_execute = false;
        let mut changes = self.table.changes();
        let idle = Limits::duration(self.limits.runner_idle_millis);
        let mut draining: Option<Drain> = None;
        let mut _stopping = None;
        loop {
            if draining.as_ref().is_some_and(|drain| drain.is_over(&self.table)) {
                return;
            }
            if may_execute && draining.is_none() && self.has_failed_to_execute() {
                may_execute = false;
            }
            // A connection that has not sent its Hello needs the runner too.
            let is_idle = leave_when_idle && self.connections.is_empty() && self.table.is_empty();
            let limit = draining.as_ref().filter(|drain| !drain.ending).map(|drain| drain.limit);
            tokio::select! {
                accepted = self.listener.accept(), if self.connections.len() < RUNNER_CONNECTIONS => {
                    self.serve(accepted).await;
                }
                Some(_) = self.connections.join_next(), if !self.connections.is_empty() => {}
                Ok(()) = changes.changed() => {
                    let line = status_line(&self.table, draining.is_some());
                    self.status.send_if_modified(|shown| {
                        std::mem::replace(shown, line.clone()) != line
                    });
                }
                Some(()) = rehearsals.recv(), if draining.is_none() => {
                    self.table.set_draining(true);
                    may_execute = true;
                }
                Some(request) = requests.recv() => match &mut draining {
                    None if request == Request::Reexec => {
                        tokio::spawn(rehearse(self.reexec.clone(), rehearsed.clone()));
                    }
                    None => {
                        self.table.set_draining(true);
                        let wait = Limits::duration(self.limits.runner_drain_millis);
                        draining = Some(Drain { limit: Instant::now() + wait, ending: false });
                        _stopping = Some(self.manager.stopping().await);
                    }
                    Some(_) if request == Request::Reexec => {
                        tracing::warn!("stopping: it does not execute itself again");
                    }
                    Some(drain) => drain.end(&self.table),
                },
                () = at(limit) => if let Some(drain) = &mut draining { drain.end(&self.table) },
                () = sleep(idle), if is_idle => return,
            }
        }
    }

    async fn serve(&mut self, accepted: io::Result<(tokio::net::UnixStream, impl Sized)>) {
        match accepted {
            Ok((stream, _)) => {
                self.accepted += 1;
                let (table, reload) = (Arc::clone(&self.table), Arc::clone(&self.reload));
                self.connections.spawn(connection::serve(stream, self.accepted, table, reload));
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                // The usual reason is a lack of descriptors, which an immediate retry does not end.
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Executes the new program, unless an attempt is being started or reaped at the moment: returns false then.
    /// Returns true if the execution failed: the runner continues to serve.
    fn has_failed_to_execute(&self) -> bool {
        let state = reexec::State::new(self.incarnation, &self.lock, &self.listener, self.given);
        let Some(state) = self.table.hand_over(state) else { return false };
        let Err(error) = self.table.write_down().and_then(|()| self.reexec.exec(&state));
        let program = self.reexec.program.display();
        tracing::error!(%program, %error, "cannot execute itself again");
        self.table.set_draining(false);
        true
    }
}

/// Resolves at `limit`; never without one.
async fn at(limit: Option<Instant>) {
    match limit {
        Some(limit) => sleep_until(limit).await,
        None => pending().await,
    }
}

/// Lets the new program check whether it could begin, and reports it if so.
async fn rehearse(reexec: Reexec, rehearsed: mpsc::Sender<()>) {
    let program = reexec.program.display().to_string();
    let result = spawn_blocking(move || reexec.rehearse()).await;
    match result.unwrap_or_else(|panicked| Err(panicked.into())) {
        Ok(()) => {
            tracing::info!(program, "executing itself again");
            let _leaving = rehearsed.send(()).await;
        }
        Err(error) => tracing::error!(program, %error, "cannot execute itself again"),
    }
}

/// A stop that waits for the commands.
struct Drain {
    limit: Instant,
    /// The commands were asked to end.
    ending: bool,
}

impl Drain {
    fn end(&mut self, table: &Table) {
        tracing::warn!("ending the commands that still run");
        self.ending = true;
        table.end_all();
    }

    /// Whether every attempt is acknowledged or, after the limit, reaped and in the ledger for the next runner.
    fn is_over(&self, table: &Table) -> bool {
        table.is_empty() || (self.ending && table.running_count() == 0)
    }
}
