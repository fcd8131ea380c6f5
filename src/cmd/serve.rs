//! `hooklatch serve`: the receiver, until a signal ends it.

use std::net::TcpListener;
use std::path::Path;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli;
use crate::clock::Clock;
use crate::config::{self, Environment};
use crate::confine;
use crate::exit::{Exit, Failure};
use crate::log;
use crate::model::RunnerName;
use crate::runner::launch::Launch;
use crate::serve::{self, Runners, Service};
use crate::systemd::{Manager, sockets};

use super::{block_on, owner, store};

/// What systemd tells every process of a unit (systemd.exec(5)).
const UNIT: &str = "INVOCATION_ID";

/// Which stream systemd connects to the journal (systemd.exec(5)).
const JOURNAL: &str = "JOURNAL_STREAM";

/// Runs the receiver. Returns after a graceful stop.
pub(super) fn run(args: &cli::Serve) -> Result<Exit, Failure> {
    start_log(&args.log)?;
    let environment = Environment::capture();
    let path = &args.file.config;
    let config = config::load(path).map_err(|problems| store::config_failure(&problems))?;
    if owner::assume(&config.store().path)? {
        return Err(owner::begin_again());
    }
    let given = sockets::take(&|name| environment.get(name)).and_then(sockets::tcp);
    let given = given.map_err(|error| Failure::new(Exit::Unavailable, error.to_string()))?;
    // Not before: whose process it is must be settled while there is one thread.
    let _log = log::in_background();
    let inside_a_unit = environment.get(UNIT).is_some();
    if inside_a_unit {
        if let Err(error) = confine::deny_execution() {
            tracing::warn!(%error, "this process keeps the right to execute programs");
        }
    } else if args.runners.is_none() {
        // The runner that it launches finds the same, and is heard by nobody.
        let problems = config.unresolved(&environment);
        if !problems.is_empty() {
            return Err(store::config_failure(&problems));
        }
        for unwise in config.check_commands(&environment, &RunnerName::default()) {
            tracing::warn!("{unwise}");
        }
    }
    let runners = match &args.runners {
        Some(folder) => Runners::In(folder.clone()),
        None => Runners::BesideStore(Some(launch(path, &config.store().path, inside_a_unit)?)),
    };
    block_on(until_signal(config, &environment, runners, given))?
}

/// Starts the log of a command that serves, at `filter`.
pub(super) fn start_log(filter: &str) -> Result<(), Failure> {
    let journal = std::env::var_os(JOURNAL);
    log::start(filter, journal.as_deref())
        .map_err(|error| Failure::new(Exit::Usage, format!("--log {error}")))
}

/// How a runner is launched for the store at `store`.
pub(super) fn launch(config: &Path, store: &Path, inside_a_unit: bool) -> Result<Launch, Failure> {
    let failed = |error| Failure::new(Exit::Io, format!("failed to find this program: {error}"));
    let absolute = |path| std::path::absolute(path).map_err(failed);
    Ok(Launch {
        program: std::env::current_exe().map_err(failed)?,
        // It works in another folder.
        config: absolute(config)?,
        store: absolute(store)?,
        log: absolute(&store.with_added_extension("runner.log"))?,
        inside_a_unit,
    })
}

async fn until_signal(
    config: config::Config,
    environment: &Environment,
    runners: Runners,
    sockets: Vec<TcpListener>,
) -> Result<Exit, Failure> {
    // Registered first: a signal during start-up stops as gracefully as a later one.
    let mut signals = Signals::register()?;
    let service = Service { sockets, manager: manager(environment) };
    let serving = serve::start(config, environment, Clock::system(), runners, service)
        .await
        .map_err(store::serve_failure)?;
    let name = signals.next().await;
    tracing::info!(signal = name, "stopping; a second signal shortens the wait");
    let (hurry, hurried) = watch::channel(false);
    let stop = serving.stop(hurried);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return Ok(Exit::Ok),
            name = signals.next() => {
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

pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn register() -> Result<Self, Failure> {
        let one = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(Exit::Io, format!("failed to catch signals: {error}"))
            })
        };
        Ok(Signals {
            terminate: one(SignalKind::terminate())?,
            interrupt: one(SignalKind::interrupt())?,
            hangup: one(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
