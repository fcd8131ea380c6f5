//! `hooklatch serve`: the receiver, until a signal ends it.

mod reload;

use std::net::TcpListener;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{mpsc, watch};

use crate::admin::ReloadAsked;
use crate::cli;
use crate::clock::Clock;
use crate::config::{self, Config, Environment};
use crate::confine;
use crate::exit::{Exit, Failure};
use crate::log;
use crate::runner::launch::Launch;
use crate::serve::{self, Runners, Service, Serving};
use crate::systemd::{Manager, sockets};

use super::owner;
use super::runtime::block_on;
use super::signals::Signals;
use reload::{Files, check_for_runner};

/// What systemd tells every process of a unit (systemd.exec(5)).
const UNIT: &str = "INVOCATION_ID";

/// Which stream systemd connects to the journal (systemd.exec(5)).
const JOURNAL: &str = "JOURNAL_STREAM";

/// Runs the receiver. Returns after a graceful stop.
pub(super) fn run(args: &cli::Serve) -> Result<Exit, Failure> {
    start_log(&args.log)?;
    let environment = Environment::capture();
    let path = &args.file.config;
    let config = config::load(path)?;
    if owner::assume(&config.store().path)? {
        return Err(owner::execute_again());
    }
    // Not before: what arrives is held until then, also while the program is executed again.
    let signals = Signals::register_early()?;
    let given = sockets::take(&|name| environment.get(name))?;
    // Not before: whose process it is must be settled while there is one thread.
    let _log = log::in_background();
    let inside_a_unit = environment.get(UNIT).is_some();
    let launches = !inside_a_unit && args.runners.is_none();
    if !launches && let Err(error) = confine::deny_execution() {
        tracing::warn!(%error, "this process keeps the right to execute programs");
    }
    check_for_runner(&config, &environment, launches)?;
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

/// Starts the log of a command that serves, at `filter`.
pub(super) fn start_log(filter: &str) -> Result<(), Failure> {
    let journal = std::env::var_os(JOURNAL);
    log::start(filter, journal.as_deref())
        .map_err(|error| Exit::Usage.failure(format!("--log {error}")))
}

/// How to launch a runner for the store at `store`. This process must not have raised its file limit yet.
fn launch(config: &Path, store: &Path, inside_a_unit: bool) -> Result<Launch, Failure> {
    let absolute = |path| std::path::absolute(path).map_err(Failure::io("find this program"));
    Ok(Launch {
        program: std::env::current_exe().map_err(Failure::io("find this program"))?,
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
    let starting = serve::start(config, files.environment, Clock::system(), runners, service);
    let (mut serving, reloads) = tokio::select! {
        started = starting => started?,
        // As after a kill, nothing is begun that the next start does not find.
        name = signals.stop.next() => {
            tracing::info!(signal = name, "stopped before the start was done");
            return Ok(Exit::Ok);
        }
    };
    let name = until_stop(&mut serving, reloads, &files, &mut signals).await;
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
        Manager::default()
    })
}

/// Carries out requested reloads, one after the other, until a stop signal. A reload that waits then is refused,
/// because the next start reads the configuration anyway.
async fn until_stop(
    serving: &mut Serving,
    mut reloads: mpsc::Receiver<ReloadAsked>,
    files: &Files<'_>,
    signals: &mut Signals,
) -> &'static str {
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
