//! The second step: secrets and variables are read, and the structs of the other modules made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::dispatcher::Worker;
use crate::document::{Problem, Problems, Value};
use crate::handler::{self, ForwardSettings};
use crate::http;
use crate::limits::Limits;
use crate::model::{Digest, Name, RunnerName};
use crate::pattern::Pattern;
use crate::provider::Scheme;
use crate::retry::Policy;
use crate::runner;
use crate::runner::{CommandSettings, Configured};
use crate::verify::{self, Resigner};

use super::Config;
use super::environment::Environment;
use super::handlers::{Action, Command, Handler, Sign};
use super::secrets::{Reference, SecretError};
use super::sources::Source;
use super::variables::Variable;

/// What the receiver is made of.
pub struct Resolved {
    /// The inbound endpoints, in the order of their names.
    pub sources: Vec<http::Source>,
    /// The handlers, in the order of their names.
    pub workers: Vec<Worker>,
    /// Empty secrets, and those that two sources share.
    pub warnings: Vec<Problem>,
}

impl Config {
    /// Reads every secret of a source; what commands refer to is their runner's alone. An `Err` has
    /// every one that cannot be had or used, sorted by file and position, and never its text.
    pub fn resolve(&self, environment: &Environment) -> Result<Resolved, Vec<Problem>> {
        let resolver = Resolver::new(self, environment);
        let sources = resolver.sources();
        let worker = |handler| resolver.worker(handler, &sources);
        let workers = self.handlers.iter().map(worker).collect();
        let found = resolver.problems.into_sorted();
        let warnings = resolver.warnings.into_sorted();
        if found.is_empty() { Ok(Resolved { sources, workers, warnings }) } else { Err(found) }
    }
}

impl Config {
    /// The commands of one runner alone: no secret of a source or of another runner's command is read, and
    /// what a command's environment refers to is the runner's own. An `Err` as of [`Config::resolve`].
    pub fn resolve_commands(
        &self,
        environment: &Environment,
        runner: &RunnerName,
    ) -> Result<Vec<Configured>, Vec<Problem>> {
        let resolver = Resolver::new(self, environment);
        let configured = |(handler, command): (&Handler, &Command)| Configured {
            name: handler.name.clone(),
            digest: digest(handler, command, &self.limits),
            settings: resolver.command(handler, command),
        };
        let commands = self.commands_of(runner).map(configured).collect();
        let found = resolver.problems.into_sorted();
        if found.is_empty() { Ok(commands) } else { Err(found) }
    }

    /// Everything that cannot be had of what the configuration refers to, the sources' and the default
    /// runner's commands' together, sorted as in [`Config::resolve`]. Another runner may be another user,
    /// who alone can tell.
    pub fn unresolved(&self, environment: &Environment) -> Vec<Problem> {
        let mut found = self.unresolved_sources(environment);
        found.extend(self.unresolved_commands(environment, &RunnerName::default()));
        found.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        found
    }

    /// The receiver's part of it: the sources' and the forwards'.
    pub fn unresolved_sources(&self, environment: &Environment) -> Vec<Problem> {
        self.resolve(environment).err().unwrap_or_default()
    }

    /// What [`Config::resolve`] warns of; a secret that cannot be read has no part in it.
    pub fn secret_warnings(&self, environment: &Environment) -> Vec<Problem> {
        let resolver = Resolver::new(self, environment);
        resolver.sources();
        resolver.warnings.into_sorted()
    }

    /// The commands' part of it, for the runner that has them.
    pub fn unresolved_commands(
        &self,
        environment: &Environment,
        runner: &RunnerName,
    ) -> Vec<Problem> {
        let resolver = Resolver::new(self, environment);
        for (handler, command) in self.commands_of(runner) {
            resolver.command(handler, command);
        }
        resolver.problems.into_sorted()
    }

    /// The handlers whose commands another runner than the default one runs, which nobody launches.
    pub fn other_runners(&self) -> Vec<Problem> {
        let other = |(_, command): (&Handler, &Command)| {
            let runner = &command.runner;
            let told = || {
                let (name, unit) = (&runner.value, runner.value.unit());
                let message = format!("runner '{name}' is a service of its own");
                let help = format!(
                    "start {unit}, and the receiver with --runners; by hand there is only the \
                     default runner, which runs what names none"
                );
                runner.at.problem(message, Some(help))
            };
            (!runner.value.is_default()).then(told)
        };
        self.commands().filter_map(other).collect()
    }

    /// The runners that run a handler's command.
    pub fn runners(&self) -> BTreeSet<RunnerName> {
        self.commands().map(|(_, command)| command.runner.value.clone()).collect()
    }

    pub(super) fn commands_of(
        &self,
        runner: &RunnerName,
    ) -> impl Iterator<Item = (&Handler, &Command)> {
        self.commands().filter(move |(_, command)| command.runner.value == *runner)
    }

    fn commands(&self) -> impl Iterator<Item = (&Handler, &Command)> {
        self.handlers.iter().filter_map(|handler| match &handler.action {
            Action::Command(command) => Some((handler, &**command)),
            Action::Forward(_) => None,
        })
    }
}

/// Of all that decides how a command is run, made from what is written, so that a receiver which may
/// read none of the values has the same as its runner. JSON keeps the parts apart.
fn digest(handler: &Handler, command: &Command, limits: &Limits) -> Digest {
    let variable = |(name, variable): &(String, Value<Variable>)| match &variable.value {
        Variable::Text(text) => serde_json::json!([name, "text", text]),
        Variable::Reference(reference) => {
            serde_json::json!([name, "reference", reference.to_string()])
        }
    };
    let mut all = serde_json::json!({
        "argv": command.argv.value,
        "cwd": command.cwd.as_ref().map(|cwd| cwd.value.to_string_lossy()),
        "env": command.env.iter().map(variable).collect::<Vec<_>>(),
        "pass_env": command.pass_env.iter().map(|name| &name.value).collect::<Vec<_>>(),
        "timeout_millis": handler.timeout.as_millis().to_string(),
        "grace_millis": command.grace.as_millis().to_string(),
        "output_bytes": [limits.output_head_bytes, limits.output_tail_bytes],
        "stdin_memory_bytes": limits.stdin_memory_bytes,
    });
    if handler.answers {
        all["answer_bytes"] = limits.answer_whole_bytes.into();
    }
    Digest(Sha256::digest(all.to_string()).into())
}

struct Resolver<'a> {
    config: &'a Config,
    environment: &'a Environment,
    problems: Problems,
    warnings: Problems,
}

impl<'a> Resolver<'a> {
    fn new(config: &'a Config, environment: &'a Environment) -> Self {
        Resolver { config, environment, problems: Problems::new(), warnings: Problems::new() }
    }

    fn sources(&self) -> Vec<http::Source> {
        let sources: Vec<_> =
            self.config.sources.iter().map(|source| self.source(source)).collect();
        self.warn_of_shared(&sources);
        sources
    }

    /// A delivery of one source would be accepted, and run, as another's that has its secret.
    fn warn_of_shared(&self, sources: &[http::Source]) {
        for (n, source) in sources.iter().enumerate() {
            for other in &sources[..n] {
                let same = |key: &&verify::Key| other.keys.iter().any(|own| own.is_same(key));
                let Some(key) = source.keys.iter().find(same) else { continue };
                let own = self.config.sources.iter().find(|own| own.name == source.name);
                let written =
                    |secret: &&Value<Reference>| secret.value.to_string() == key.reference();
                let Some(secret) = own.and_then(|own| own.all_secrets().find(written)) else {
                    continue;
                };
                let message = format!("source '{}' has the same secret", other.name);
                let help = "give each source its own: a delivery to one may be sent to the other";
                self.warnings.push(secret.at.problem(message, Some(help.to_owned())));
            }
        }
    }
    fn source(&self, source: &Source) -> http::Source {
        let keys: Vec<_> =
            source.all_secrets().filter_map(|secret| self.source_key(source, secret)).collect();
        self.check_callers(source, &keys);
        http::Source {
            name: source.name.clone(),
            path: source.path.value.clone(),
            scheme: source.scheme.clone(),
            keys,
            public_url: source.public_url.clone(),
            body_limit_bytes: source.body_limit_bytes,
            accept_wait: accept_wait(&self.config.limits, source.scheme.deadline()),
            refuse_proxied: source.takes_anybody(),
            on_redelivery: source.on_redelivery,
            reply: self.reply(source),
            routes: self.routes(source),
        }
    }

    /// Two callers with one secret would be one caller.
    fn check_callers(&self, source: &Source, keys: &[verify::Key]) {
        let callers = source.replies.iter().flat_map(|replies| &replies.callers);
        let of = |key: &verify::Key| {
            callers.clone().find(|(_, secret)| secret.value.to_string() == key.reference())
        };
        for (n, key) in keys.iter().enumerate() {
            let Some(same) = keys[..n].iter().find(|other| other.is_same(key)) else { continue };
            if let (Some((other, _)), Some((caller, secret))) = (of(same), of(key))
                && other != caller
            {
                let message = format!("'{}' is the secret of caller '{other}' too", secret.value);
                let help = "give each caller a secret of its own".to_owned();
                self.problems.push(secret.at.problem(message, Some(help)));
            }
        }
    }

    /// Nothing where no one handler answers, which loading the configuration refuses first.
    fn reply(&self, source: &Source) -> Option<http::Reply> {
        let replies = source.replies.as_ref()?;
        let handler = self.config.handlers.iter().find(|handler| handler.takes(&source.name))?;
        let grace = handler.command().map_or(Duration::ZERO, |command| command.grace);
        let accept_wait = Limits::duration(self.config.limits.accept_wait_millis);
        // The job may wait its turn, and its end is committed.
        let whole = handler.timeout.saturating_add(grace).saturating_add(accept_wait);
        let deadline = source.scheme.deadline().map(|deadline| deadline * 4 / 5);
        let caller =
            |(name, secret): &(Name, Value<Reference>)| (secret.value.to_string(), name.clone());
        let written = |header: &Option<Value<String>>| Some(header.as_ref()?.value.clone());
        Some(http::Reply {
            handler: handler.name.clone(),
            callers: replies.callers.iter().map(caller).collect(),
            caller_header: written(&replies.caller_header),
            certificate_header: written(&replies.certificate_header),
            fields: replies.fields.clone(),
            first_wait: deadline.map_or(whole, |deadline| whole.min(deadline)),
            repeat_wait: replies.wait.value,
            keep: replies.keep.value,
            keep_errors: replies.keep_errors,
            requests_per_minute: replies.requests_per_minute,
        })
    }

    /// The key of a source. An empty secret is one that the operator has yet to fill in: it must not
    /// keep the other sources from being served.
    fn source_key(&self, source: &Source, secret: &Value<Reference>) -> Option<verify::Key> {
        let read = secret.value.read(self.environment, self.config.limits.secret_bytes);
        let Err(error @ SecretError::Empty(_)) = read else {
            return self.key(&source.scheme, secret);
        };
        let message = format!(
            "{error}; until it is filled in, a delivery signed with it is answered 401 and kept in quarantine"
        );
        let help = "put the provider's signing secret into it, then `hooklatch reload`";
        self.warnings.push(secret.at.problem(message, Some(help.to_owned())));
        None
    }

    fn key(&self, scheme: &Scheme, secret: &Value<Reference>) -> Option<verify::Key> {
        let text = self.read(secret)?;
        match verify::key(scheme, &secret.value.to_string(), &text) {
            Ok(key) => Some(key),
            Err(wrong) => {
                let provider = scheme.name();
                let message =
                    format!("'{}' is not a secret of provider '{provider}': {wrong}", secret.value);
                self.problems.push(secret.at.problem(message, None));
                None
            }
        }
    }

    fn read(&self, secret: &Value<Reference>) -> Option<zeroize::Zeroizing<String>> {
        match secret.value.read(self.environment, self.config.limits.secret_bytes) {
            Ok(text) => Some(text),
            Err(error) => {
                self.problems.push(secret.at.problem(error.to_string(), error.help()));
                None
            }
        }
    }

    fn routes(&self, source: &Source) -> Vec<http::Route> {
        let wants = |handler: &&Handler| handler.takes(&source.name);
        let two_levels = source.scheme.two_levels();
        let route = |handler: &Handler| http::Route {
            handler: handler.name.clone(),
            patterns: handler
                .events
                .iter()
                .map(|text| Pattern::new(text.value.as_str(), two_levels))
                .collect(),
        };
        self.config.handlers.iter().filter(wants).map(route).collect()
    }

    /// What signs a forward's requests anew, by the source of their event.
    fn resigners(
        &self,
        handler: &Handler,
        sign: Option<&Value<Sign>>,
        sources: &[http::Source],
    ) -> BTreeMap<Name, Resigner> {
        let mut resigners = BTreeMap::new();
        let Some(Value { value: sign, at }) = sign else { return resigners };
        let reads = |source: &&http::Source| handler.takes(&source.name);
        for source in sources.iter().filter(reads) {
            let key = match sign {
                Sign::No => break,
                Sign::Source => source.keys.first().cloned(),
                Sign::With(reference) => {
                    let secret = Value { value: reference.clone(), at: at.clone() };
                    let Some(key) = self.key(&source.scheme, &secret) else { break };
                    Some(key)
                }
            };
            let url = source.public_url.as_deref().filter(|_| source.scheme.signs_url());
            let url = url.map(|url| http::public_url(url, &source.path, None));
            let resigner = Resigner::new(Arc::clone(&source.scheme), key, url);
            resigners.insert(source.name.clone(), resigner);
        }
        resigners
    }

    fn worker(&self, handler: &Handler, sources: &[http::Source]) -> Worker {
        let limits = &self.config.limits;
        let whole_answer_bytes = handler.answers.then(|| size(limits.answer_whole_bytes));
        let built = match &handler.action {
            Action::Command(command) => handler::Handler::Command(handler::Command {
                runner: command.runner.value.clone(),
                configuration: digest(handler, command, limits),
                timeout: handler.timeout,
                output_bytes: output_bytes(limits),
                answers: handler.answers,
            }),
            Action::Forward(forward) => handler::Handler::Forward(ForwardSettings {
                target: forward.target.clone(),
                resigners: Arc::new(self.resigners(handler, forward.sign.as_ref(), sources)),
                timeout: handler.timeout,
                connect_timeout: Limits::duration(limits.forward_connect_millis),
                answer_bytes: size(limits.answer_kept_bytes),
                whole_answer_bytes,
            }),
        };
        Worker {
            name: handler.name.clone(),
            handler: built,
            policy: Policy {
                on_unknown: handler.on_unknown,
                give_up: handler.give_up,
                backoff_base: Limits::duration(limits.backoff_base_millis),
                backoff_max: Limits::duration(limits.backoff_max_millis),
                answers: handler.answers,
            },
            concurrency: handler.concurrency,
        }
    }

    fn command(&self, handler: &Handler, command: &Command) -> CommandSettings {
        let limits = &self.config.limits;
        CommandSettings {
            argv: command.argv.value.clone(),
            cwd: command.cwd.as_ref().map(|cwd| cwd.value.clone()),
            home: self.home(),
            env: self.variables(command),
            timeout: handler.timeout,
            grace: command.grace,
            output_bytes: output_bytes(limits),
            answer_bytes: handler.answers.then(|| size(limits.answer_whole_bytes)),
            stdin_memory_bytes: size(limits.stdin_memory_bytes),
        }
    }

    /// The user's home, else the root: a system user's home is often a folder that does not exist.
    fn home(&self) -> PathBuf {
        let home = self.environment.text("HOME").map(PathBuf::from);
        home.filter(|home| home.is_dir()).unwrap_or_else(|| PathBuf::from("/"))
    }

    /// What the configuration adds to a command's environment, by name: `pass_env`, then `env`. A
    /// variable that is to be passed on and is not there is left out.
    fn variables(&self, command: &Command) -> Vec<(String, String)> {
        let mut variables = BTreeMap::new();
        for name in &command.pass_env {
            let Some(value) = self.environment.get(&name.value) else { continue };
            match value.to_str() {
                Some(text) => drop(variables.insert(name.value.clone(), text.to_owned())),
                None => {
                    let message = format!("the value of {} is not UTF-8", name.value);
                    self.problems.push(name.at.problem(message, None));
                }
            }
        }
        for (name, variable) in &command.env {
            let text = match &variable.value {
                Variable::Text(text) => Some(text.clone()),
                Variable::Reference(reference) => {
                    let secret = Value { value: reference.clone(), at: variable.at.clone() };
                    self.read(&secret).map(|text| text.to_string())
                }
            };
            if text.as_ref().is_some_and(|text| text.contains('\0')) {
                self.problems.push(variable.at.problem("the value has a NUL character", None));
            }
            variables.extend(text.map(|text| (name.clone(), text)));
        }
        variables.into_iter().collect()
    }
}

/// The `PATH` that a command gets, and that its program is looked for in.
pub(super) fn search_path(command: &Command, environment: &Environment) -> String {
    let own = command.env.iter().find(|(name, _)| name == "PATH");
    if let Some(Variable::Text(text)) = own.map(|(_, variable)| &variable.value) {
        return text.clone();
    }
    let passed = command.pass_env.iter().any(|name| name.value == "PATH");
    environment.text("PATH").filter(|_| passed).unwrap_or(runner::PATH).to_owned()
}

/// How long a commit is waited for: no longer than four fifths of what the provider waits for us,
/// so that its 503 is heard.
fn accept_wait(limits: &Limits, deadline: Option<Duration>) -> Duration {
    let wait = Limits::duration(limits.accept_wait_millis);
    deadline.map_or(wait, |deadline| wait.min(deadline * 4 / 5))
}

/// Bytes kept of each output: head, tail.
fn output_bytes(limits: &Limits) -> (usize, usize) {
    (size(limits.output_head_bytes), size(limits.output_tail_bytes))
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
