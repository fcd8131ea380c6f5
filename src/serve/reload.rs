//! The flow of a reload: another configuration, taken as a whole or not at all, while everything runs.
//!
//! ```text
//! check ─▶ secrets ─▶ runner reads ─▶ runner uses ─▶ dispatcher ─▶ sources, signers, own events
//! └────── an error here changes nothing ──────┘
//! ```
//!
//! The runner comes first: a command is claimed as it is configured only once the runner would start it
//! so. The dispatcher comes before the sources, which make the first job of a new handler: made before,
//! it would be taken for one whose handler is gone. Whoever is in the middle of something goes on by what
//! it began with: a request by its source and handlers, a command by its line; what becomes of a job
//! after its attempt is for its handler as it is configured then.

use crate::config::{Config, Environment, secret_read};
use crate::control::{Front, Reloaded, Restart, RunnerTold, SecretRead};
use crate::dispatcher::{self, Worker};
use crate::document::Problem;
use crate::handler::Handler;
use crate::handler::links::NotLoaded;
use crate::http;
use crate::limits::Limits;
use crate::limits::fixed::Change;
use crate::memory;
use crate::model::RunnerName;
use crate::runner::message::Known;

use super::{Serving, signers, without_secret};

/// Why nothing was reloaded: what was in force is in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration is wrong, or a secret cannot be read: every problem.
    #[error("the configuration is wrong")]
    Config(Vec<Problem>),
    /// Two sources on one path, which loading the configuration refuses first.
    #[error(transparent)]
    Sources(#[from] http::PathTaken),
    /// A runner does not go along.
    #[error(transparent)]
    Runner(#[from] NotLoaded),
    /// Nothing claims jobs any more.
    #[error(transparent)]
    Dispatcher(#[from] dispatcher::Ended),
}

impl Serving {
    /// Takes this configuration instead of the one in force. Returns once it is in force, and says what
    /// has changed. What a running process cannot change is named and stays.
    ///
    /// Dropped half-way it leaves the receiver with the configuration that it had, and perhaps a runner
    /// that has read the new one: that is for a stop only.
    ///
    /// # Errors
    /// Nothing has changed, for this reason.
    pub async fn reload(
        &mut self,
        config: Config,
        environment: &Environment,
    ) -> Result<Reloaded, ReloadError> {
        let (config, kept) = config.keeping(&self.config);
        let mut problems = config.exposed_at(self.http.addresses());
        if self.one_runner {
            problems.extend(config.other_runners());
        }
        if !problems.is_empty() {
            return Err(ReloadError::Config(problems));
        }
        let parts = config.resolve(environment).map_err(ReloadError::Config)?;
        let secrets = self.secrets(&config, &parts.sources);
        let (signers, without_secret) = (signers(&parts.sources), without_secret(&parts.sources));
        let sources = http::Sources::new(parts.sources)?
            .with_proxies(config.server().trusted_proxies.clone());
        for unwise in config.warnings().iter().chain(&parts.warnings) {
            tracing::warn!("{unwise}");
        }
        let limits = config.limits().clone();

        // As long as a command at the admin socket waits for its answer.
        let wait = Limits::duration(limits.control_wait_millis);
        let (mut runners, mut restart) = (Vec::new(), needs_restart("receiver", kept));
        for (name, loaded) in self.links.load(&commands(&parts.workers), wait).await? {
            runners.push(RunnerTold { name: name.clone(), loaded: loaded.is_there() });
            restart.extend(needs_restart(&format!("runner {name}"), loaded.kept().to_vec()));
            loaded.put_to_use().await;
        }

        let handlers = config.changed_handlers(&self.config);
        // A failed count must not fail the reload; the dispatcher holds the jobs either way.
        let mut orphaned = self.store.admin.unfinished().await.unwrap_or_default();
        orphaned.retain(|(handler, _)| handlers.gone.contains(handler));
        self.dispatcher.reload(parts.workers, limits.clone()).await?;
        self.store.admin.set_interest(config.interest());
        self.store.admin.set_judge(sources.judge());
        self.http.reload(sources, &limits);
        let addresses = self.http.addresses().to_vec();
        self.receiver.set_front(Front { addresses, signers, without_secret });

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
            restart,
            runners,
        })
    }

    /// Every secret of the new configuration, and whether it is served already.
    fn secrets(&self, config: &Config, sources: &[http::Source]) -> Vec<SecretRead> {
        let of = |source: &http::Source| -> Vec<SecretRead> {
            let of = format!("source {}", source.name);
            let read = |key: &crate::verify::Key| {
                let changed = !self.http.has_secret(&source.name, key);
                secret_read(key.reference().to_owned(), of.clone(), Some(changed))
            };
            source.keys.iter().map(read).collect()
        };
        sources.iter().flat_map(of).chain(config.handler_secrets()).collect()
    }
}

/// The commands as they are configured now.
fn commands(workers: &[Worker]) -> Vec<(RunnerName, Known)> {
    let known = |worker: &Worker| match &worker.handler {
        Handler::Command(command) => {
            let configuration = command.configuration;
            let known = Known { handler: worker.name.clone(), configuration };
            Some((command.runner.clone(), known))
        }
        Handler::Forward(_) => None,
    };
    workers.iter().filter_map(known).collect()
}

fn needs_restart(process: &str, kept: Vec<Change>) -> Vec<Restart> {
    kept.into_iter().map(|change| Restart { process: process.to_owned(), change }).collect()
}
