//! `hooklatch serve`: the receiver, until a signal ends it.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli;
use crate::clock::Clock;
use crate::config::{self, Environment};
use crate::exit::{Exit, Failure};
use crate::log;
use crate::serve;

use super::{block_on, store};

/// Runs the receiver. Returns after a graceful stop.
pub(super) fn run(args: &cli::Serve) -> Result<Exit, Failure> {
    log::start(&args.log).map_err(|error| Failure::new(Exit::Usage, format!("--log {error}")))?;
    let environment = Environment::capture();
    let config =
        config::load(&args.file.config).map_err(|problems| store::config_failure(&problems))?;
    block_on(until_signal(config, &environment))?
}

async fn until_signal(config: config::Config, environment: &Environment) -> Result<Exit, Failure> {
    // Registered first: a signal during start-up stops as gracefully as a later one.
    let mut signals = Signals::register()?;
    let serving =
        serve::start(config, environment, Clock::system()).await.map_err(store::serve_failure)?;
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
