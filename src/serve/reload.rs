//! A reload: checks another configuration as a whole, and then replaces the one in force.
//!
//! ```text
//! check ─▶ secrets ─▶ runners read and check ─▶ dispatcher, limits ─▶ own events, sources, signers
//! └───── an error here changes nothing ─────┘
//! ```
//!
//! The runners come first: a command is claimed as it is configured now only once its runner would start it.
//! A runner that has loaded the new commands still starts the old ones. So if another runner refuses, nothing has
//! to be rolled back.
//! The dispatcher comes before the sources, which make the first job of a new handler: it would hold a job
//! whose handler it does not know. Everything else stays: store, lock, epoch, connections to the runners,
//! listeners, requests, and attempts, which run as they were claimed; the policy in force at their end decides
//! what becomes of their jobs.

use crate::admin::{Reloaded, RunnerTold, SecretRead};
use crate::config::{Config, Environment, secret_read};
use crate::dispatcher::{self, Worker};
use crate::document::Problem;
use crate::handler::Handler;
use crate::handler::runner_client::RunnerLoad;
use crate::handler::runner_pool::NotLoaded;
use crate::http;
use crate::limits::ADMIN_WAIT;
use crate::memory;
use crate::model::{Name, RunnerName};
use crate::runner::message::CommandDigest;
use crate::verify::Key;

use super::plan::Plan;
use super::serving::Serving;

/// Why nothing was reloaded. The configuration that was in force stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration is wrong, or a secret cannot be read: every problem.
    #[error("the configuration is wrong")]
    Config(Vec<Problem>),
    /// A runner cannot load it.
    #[error(transparent)]
    Runner(#[from] NotLoaded),
    /// The dispatcher has ended.
    #[error(transparent)]
    Dispatcher(#[from] dispatcher::Ended),
}

impl Serving {
    /// Takes this configuration instead of the one in force. Returns once it is in force, and says what
    /// has changed.
    ///
    /// If it is dropped before it has returned, some parts may keep the old configuration: only a stop may
    /// drop it.
    ///
    /// # Errors
    /// Nothing has changed, for this reason; except for [`ReloadError::Dispatcher`], which means that the
    /// receiver stops.
    pub async fn reload(
        &mut self,
        config: Config,
        environment: &Environment,
    ) -> Result<Reloaded, ReloadError> {
        let mut problems = config.receiver_restarts(&self.config);
        problems.extend(config.exposed_at(self.http.addresses()));
        if self.one_runner {
            problems.extend(config.other_runners());
        }
        if !problems.is_empty() {
            return Err(ReloadError::Config(problems));
        }
        let resolved = config.resolve(environment).map_err(ReloadError::Config)?;
        let secrets = self.secrets(&config, &resolved.sources);
        let Plan { sources, workers, published, listeners } =
            Plan::new(&config, resolved, self.http.addresses()).map_err(ReloadError::Config)?;
        let limits = config.limits().clone();

        let loads = self.pool.load(&commands(&workers), ADMIN_WAIT).await?;

        let handlers = config.changed_handlers(&self.config);
        // Before its own jobs know them: a new handler has no lane before.
        self.store.publish(published).await;
        let orphaned = self.orphaned(&handlers.gone).await;
        self.dispatcher.reload(workers, limits.clone()).await?;
        let told = |(name, load): &(RunnerName, Option<RunnerLoad>)| RunnerTold {
            name: name.clone(),
            loaded: load.is_some(),
        };
        let runners = loads.iter().map(told).collect();
        loads.into_iter().filter_map(|(_, load)| load).for_each(RunnerLoad::put_in_use);
        self.store.admin.set_interest(config.interest());
        self.store.admin.set_judge(sources.judge());
        self.store.admin.set_router(config.router());
        self.http.reload(sources, &limits);
        self.receiver.set_listeners(listeners);

        let before = std::mem::replace(&mut self.config, config);
        memory::give_back_code();
        let config = &self.config;
        Ok(Reloaded {
            file: config.file().to_owned(),
            sources: config.changed_sources(&before),
            handlers,
            orphaned,
            limits: config.changed_limits(&before),
            secrets,
            runners,
        })
    }

    /// How many unfinished jobs each of these handlers has, unless other nodes publish it (N29). A failed count must not
    /// fail the reload; the dispatcher holds the jobs either way.
    async fn orphaned(&self, gone: &[Name]) -> Vec<(Name, u64)> {
        let mut orphaned = self.store.admin.unfinished().await.unwrap_or_default();
        orphaned.retain(|(handler, _)| gone.contains(handler));
        let mut held = Vec::new();
        for (handler, jobs) in orphaned {
            if !matches!(self.store.jobs.policy_elsewhere(&handler).await, Ok(Some(_))) {
                held.push((handler, jobs));
            }
        }
        held
    }

    /// Every secret of the new configuration, and whether it is new to the receiver, which does not read
    /// those of commands.
    fn secrets(&self, config: &Config, sources: &[http::Source]) -> Vec<SecretRead> {
        let mut all = Vec::new();
        for source in sources {
            let of = format!("source {}", source.name);
            let read = |key: &Key| {
                let changed = !self.http.has_secret(&source.name, key);
                secret_read(key.reference().to_owned(), of.clone(), Some(changed))
            };
            all.extend(source.keys.iter().map(read));
        }
        all.extend(config.handler_secrets());
        all
    }
}

/// The commands of each runner.
fn commands(workers: &[Worker]) -> Vec<(RunnerName, CommandDigest)> {
    let digest = |worker: &Worker| match &worker.handler {
        Handler::Command(command) if worker.runs => {
            let configuration = command.configuration;
            let digest = CommandDigest { handler: worker.name.clone(), configuration };
            Some((command.runner.clone(), digest))
        }
        Handler::Command(_) | Handler::Forward(_) => None,
    };
    workers.iter().filter_map(digest).collect()
}
