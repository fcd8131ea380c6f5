//! `hooklatch serve`: the receiver, until a signal ends it.

mod reload;

use std::net::TcpListener;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli;
use crate::clock::Clock;
use crate::config::{Config, Environment};
use crate::confine;
use crate::document::Problem;
use crate::exit::{Exit, Failure};
use crate::log;
use crate::model::RunnerName;
use crate::runner::launch::Launch;
use crate::serve::{self, Runners, Service, Serving};
use crate::systemd::{Manager, sockets};

use super::runtime::block_on;
use super::{owner, store};
use reload::Files;

/// What systemd tells every process of a unit (systemd.exec(5)).
const UNIT: &str = "INVOCATION_ID";

/// Which stream systemd connects to the journal (systemd.exec(5)).
const JOURNAL: &str = "JOURNAL_STREAM";

/// Runs the receiver. Returns after a graceful stop.
pub(super) fn run(args: &cli::Serve) -> Result<Exit, Failure> {
    let signals = Signals::register_early()?;
    start_log(&args.log)?;
    let environment = Environment::capture();
    let path = &args.file.config;
    let config = store::load_whole(path)?;
    if owner::assume(&config.store().path)? {
        return Err(owner::begin_again());
    }
    let given = sockets::take(&|name| environment.get(name)).and_then(sockets::tcp);
    let given = given.map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
    // Not before: whose process it is must be settled while there is one thread.
    let _log = log::in_background();
    let inside_a_unit = environment.get(UNIT).is_some();
    let launches = !inside_a_unit && args.runners.is_none();
    if !launches && let Err(error) = confine::deny_execution() {
        tracing::warn!(%error, "this process keeps the right to execute programs");
    }
    check_for_runner(&config, &environment, launches)
        .map_err(|problems| store::config_failure(&problems))?;
    if launches && !config.runners().is_empty() && owner::is_root_alone(&config.store().path) {
        tracing::warn!("{}; {}", owner::AS_ROOT, owner::NOT_AS_ROOT);
    }
    let runners = match &args.runners {
        Some(folder) => Runners::In(folder.clone()),
        None => Runners::BesideStore(Some(launch(path, &config.store().path, inside_a_unit)?)),
    };
    let files = Files { path, environment: &environment, launches };
    block_on(until_signal(config, files, runners, given, signals))?
}

/// What a runner that this process launches finds wrong too, and is heard by nobody.
fn check_for_runner(
    config: &Config,
    environment: &Environment,
    launches: bool,
) -> Result<(), Vec<Problem>> {
    if !launches {
        return Ok(());
    }
    let problems = config.unresolved(environment);
    if !problems.is_empty() {
        return Err(problems);
    }
    for unwise in config.check_commands(environment, &RunnerName::default()) {
        tracing::warn!("{unwise}");
    }
    Ok(())
}

/// Starts the log of a command that serves, at `filter`.
pub(super) fn start_log(filter: &str) -> Result<(), Failure> {
    let journal = std::env::var_os(JOURNAL);
    log::start(filter, journal.as_deref())
        .map_err(|error| Failure::new(Exit::Usage, format!("--log {error}")))
}

/// How a runner is launched for the store at `store`, by a process that has not raised its file limit yet.
fn launch(config: &Path, store: &Path, inside_a_unit: bool) -> Result<Launch, Failure> {
    let failed = |error| Failure::new(Exit::Io, format!("failed to find this program: {error}"));
    let absolute = |path| std::path::absolute(path).map_err(failed);
    Ok(Launch {
        program: std::env::current_exe().map_err(failed)?,
        // It works in another folder.
        config: absolute(config)?,
        store: absolute(store)?,
        log: absolute(&store.with_added_extension("runner.log"))?,
        inside_a_unit,
        files: getrlimit(Resource::Nofile),
    })
}

async fn until_signal(
    config: Config,
    files: Files<'_>,
    runners: Runners,
    sockets: Vec<TcpListener>,
    mut signals: Signals,
) -> Result<Exit, Failure> {
    let service = Service { sockets, manager: manager(files.environment) };
    let mut serving = serve::start(config, files.environment, Clock::system(), runners, service)
        .await
        .map_err(store::serve_failure)?;
    let name = until_stop(&mut serving, &files, &mut signals).await;
    tracing::info!(signal = name, "stopping; a second signal shortens the wait");
    let (hurry, hurried) = watch::channel(false);
    let stop = serving.stop(hurried);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return Ok(Exit::Ok),
            name = signals.stop.next() => {
                tracing::warn!(signal = name, "stopping now");
                hurry.send_replace(true);
            }
        }
    }
}

/// The service manager, if there is one. Without it the work is done all the same.
pub(super) fn manager(environment: &Environment) -> Manager {
    Manager::find(&|name| environment.get(name)).unwrap_or_else(|error| {
        tracing::warn!("{error}");
        Manager::none()
    })
}

/// Reloads whenever somebody wishes it, one after the other, until a signal ends it. Whoever waits for a
/// reload then is refused: the next start reads the configuration anyhow.
async fn until_stop(
    serving: &mut Serving,
    files: &Files<'_>,
    signals: &mut Signals,
) -> &'static str {
    let mut reloads = serving.reloads();
    loop {
        let asked = tokio::select! {
            name = signals.stop.next() => return name,
            _ = signals.hangup.recv() => None,
            Some(asked) = reloads.recv() => Some(asked),
        };
        let reloaded = tokio::select! {
            name = signals.stop.next() => return name,
            reloaded = files.reload(serving) => reloaded,
        };
        if let Some(asked) = asked {
            asked.answer(reloaded);
        }
    }
}

/// The signals that a process of ours is told something by.
pub(super) struct Signals {
    stop: StopSignals,
    hangup: Signal,
}

/// Those that end a receiver.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn register() -> Result<Self, Failure> {
        let one = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Exit::Io, format!("failed to catch signals: {error}"))
            })
        };
        let terminate = one(SignalKind::terminate())?;
        let stop = StopSignals { terminate, interrupt: one(SignalKind::interrupt())? };
        Ok(Signals { stop, hangup: one(SignalKind::hangup())? })
    }

    /// The same before there is a runtime, for a process that must have one thread still: a signal during a start
    /// counts as a later one does, and SIGHUP ends none. The registration is the process's and outlives the
    /// runtime that makes it.
    fn register_early() -> Result<Self, Failure> {
        let runtime = Builder::new_current_thread().enable_io().build().map_err(|error| {
            Failure::new(Exit::Io, format!("failed to start the runtime: {error}"))
        })?;
        let _inside = runtime.enter();
        Self::register()
    }

    /// The next one of any kind.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            name = self.stop.next() => name,
            _ = self.hangup.recv() => "SIGHUP",
        }
    }

    /// One that has come already.
    pub(super) async fn pending(&mut self) -> Option<&'static str> {
        tokio::select! {
            biased;
            name = self.next() => Some(name),
            () = std::future::ready(()) => None,
        }
    }
}

impl StopSignals {
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
