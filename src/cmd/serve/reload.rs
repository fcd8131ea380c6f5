//! A reload as `serve` carries it out: read the files again, hand the configuration over, log the result.

use std::path::Path;

use crate::admin::{self, FailureKind, Reloaded};
use crate::config::{self, Config, Environment};
use crate::document::Problem;
use crate::exit::Failure;
use crate::handler::runner_client::CannotLoad;
use crate::handler::runner_pool::NotLoaded;
use crate::model::RunnerName;
use crate::serve::{ReloadError, Serving};

/// The files and the environment that the configuration is read from, at the start and at each reload.
pub(super) struct Files<'a> {
    pub(super) path: &'a Path,
    pub(super) environment: &'a Environment,
    /// Whether this process launches the runner.
    pub(super) launches: bool,
}

impl Files<'_> {
    /// Makes the receiver load the configuration again, and logs the result.
    pub(super) async fn reload(&self, serving: &mut Serving) -> Result<Reloaded, admin::Failure> {
        let reloaded = self.try_reload(serving).await.map_err(failure);
        match &reloaded {
            Ok(reloaded) => log_reloaded(reloaded),
            Err(why) => tracing::error!(%why, "not reloaded: what was in force stays in force"),
        }
        reloaded
    }

    async fn try_reload(&self, serving: &mut Serving) -> Result<Reloaded, ReloadError> {
        let config = config::load(self.path).map_err(ReloadError::Config)?;
        check_for_runner(&config, self.environment, self.launches).map_err(ReloadError::Config)?;
        serving.reload(config, self.environment).await
    }
}

/// Finds the problems that a runner launched by this process would find too, and could not report.
pub(super) fn check_for_runner(
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

fn log_reloaded(reloaded: &Reloaded) {
    let (sources, handlers) = (reloaded.sources.to_string(), reloaded.handlers.to_string());
    let limits: Vec<&str> = reloaded.limits.iter().map(|limit| limit.key.as_str()).collect();
    let limits = limits.join(", ");
    tracing::info!(file = reloaded.file, sources, handlers, limits, "reloaded");
    for runner in reloaded.runners.iter().filter(|runner| !runner.loaded) {
        tracing::warn!(runner = %runner.name, "not connected: reads its commands when it comes");
    }
}

fn failure(error: ReloadError) -> admin::Failure {
    let kind = match &error {
        ReloadError::Config(_)
        | ReloadError::Runner(NotLoaded { why: CannotLoad::Refused(_), .. }) => FailureKind::Config,
        ReloadError::Runner(_) | ReloadError::Dispatcher(_) => FailureKind::Unavailable,
    };
    let message = match &error {
        ReloadError::Config(problems) => Failure::from(problems.as_slice()).message,
        error => error.to_string(),
    };
    admin::Failure::new(kind, message)
}
