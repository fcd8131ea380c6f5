//! `hooklatch runner`: runs commands for the receiver until a signal, or until it is idle.
//!
//! It reads the same configuration as the receiver, but only those secrets that the environment of its own
//! handlers refers to. SIGUSR2 makes it execute itself again, as after an upgrade, while commands go on.

use std::path::Path;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::cli;
use crate::config::{self, Environment};
use crate::document::Problem;
use crate::exit::{Exit, Failure};
use crate::limits::Limits;
use crate::model::RunnerName;
use crate::runner::folder;
use crate::runner::launch;
use crate::runner::reexec::{self, Reexec};
use crate::runner::server::{self, Request, Settings};
use crate::runner::{CommandList, Reload, handle_ignored, release_signals};
use crate::systemd::{Manager, sockets};

use super::serve::{manager, start_log};
use super::signals::Signals;

/// Threads that start commands: the kernel returns only when the program's file has been read. More
/// of them than this gain nothing, and each costs memory.
const SPAWN_THREADS: usize = 4;

/// Runs the runner. Returns when it has left.
pub(super) fn run(args: &cli::Runner) -> Result<Exit, Failure> {
    handle_ignored();
    // Set where the runner executed itself again; it is detached already then.
    let told = std::env::var(reexec::VARIABLE).ok();
    if args.detached && told.is_none() {
        launch::detach().map_err(|error| {
            Exit::Usage.failure(format!("--detached is for `hooklatch serve`: {error}"))
        })?;
    }
    start_log(&args.log)?;
    let config = config::load(&args.file.config)?;
    let environment = Environment::capture();
    let commands = config.resolve_commands(&environment, &args.name)?;
    if told.as_deref() == Some(reexec::REHEARSAL) {
        return Ok(Exit::Ok);
    }
    // A runner that executed itself again already has its socket; the variables were for its first program.
    let given = match &told {
        None => sockets::take_only(&|name| environment.get(name))?,
        Some(_) => None,
    };
    let limits = config.limits().clone();
    let database = args.store.clone().unwrap_or_else(|| config.store().path);
    if !commands.is_empty() && rustix::process::geteuid().is_root() {
        tracing::warn!("handlers run as root: start this runner as a user without rights");
    }
    // Frees it: a runner lives long.
    drop(config);
    let (folder, socket) = match &args.folder {
        Some(folder) => (folder.clone(), folder::named_socket(folder, &args.name)),
        None => {
            let folder = folder::of(&database);
            (folder.clone(), folder::socket(&folder))
        }
    };
    let (environment, name) = (Arc::new(environment), args.name.clone());
    let file = args.file.config.clone();
    let (known, started_with) = (Arc::clone(&environment), limits.clone());
    let reload: Reload = Arc::new(move || commands_now(&file, &known, &name, &started_with));
    let program = std::env::current_exe().map_err(Failure::io("find this program"))?;
    let settings = Settings {
        name: args.name.clone(),
        folder,
        socket,
        given,
        commands,
        reload,
        leave_when_idle: args.leave_when_idle,
        launched: args.detached,
        limits,
        reexec: Reexec { program, arguments: std::env::args_os().skip(1).collect() },
        handed_over: told.and_then(|told| told.parse().ok()),
    };
    // One thread serves: it only passes messages on between commands and receivers.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(SPAWN_THREADS)
        .build()
        .map_err(Failure::io("start the runtime"))?;
    runtime.block_on(async { until_it_leaves(settings, manager(&environment)).await })
}

/// The commands in the current configuration.
fn commands_now(
    file: &Path,
    environment: &Environment,
    name: &RunnerName,
    started_with: &Limits,
) -> Result<CommandList, String> {
    let message = |problems: Vec<Problem>| Failure::from(problems).message;
    let config = config::load(file).map_err(message)?;
    let commands = config.resolve_commands(environment, name).map_err(message)?;
    let restarts = config.runner_restarts(started_with, name);
    let needs_restart = (!restarts.is_empty()).then(|| message(restarts));
    Ok(CommandList { commands, needs_restart })
}

async fn until_it_leaves(settings: Settings, manager: Manager) -> Result<Exit, Failure> {
    let mut signals = Signals::register()?;
    let reexec = signal(SignalKind::user_defined2());
    let mut reexec = reexec.map_err(Failure::io("catch signals"))?;
    // Before the first thread and the first command, which would inherit what is held.
    release_signals();
    let (tell, requests) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            let request = tokio::select! {
                name = signals.next() => {
                    tracing::info!(signal = name, "stopping; a second signal ends what runs");
                    Request::Stop
                }
                _ = reexec.recv() => Request::Reexec,
            };
            if tell.send(request).await.is_err() {
                return;
            }
        }
    });
    server::run(settings, manager, requests).await?;
    Ok(Exit::Ok)
}
