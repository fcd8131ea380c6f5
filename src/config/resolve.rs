//! The second step: reads secrets and variables, and builds the structs of the other modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::dispatcher::Worker;
use crate::document::{At, Fault, Problem, Problems, Value};
use crate::handler::forward::RequestValues;
use crate::handler::{self, ForwardSettings};
use crate::http;
use crate::limits::{self, Limits};
use crate::model::{Digest, Name, RunnerName};
use crate::provider::Scheme;
use crate::retry::Policy;
use crate::runner;
use crate::runner::{CommandSettings, CommandValues, Configured};
use crate::store::postgres::{ClusterNode, PublishedHandler};
use crate::values::{ValueRule, Values};
use crate::verify::{self, Signer};

use super::configuration::Config;
use super::environment::Environment;
use super::handlers::{Action, Command, Handler, Sign};
use super::read::size;
use super::replies::answered_within;
use super::requests::Request;
use super::secrets::{Reference, SecretError};
use super::sources::Source;
use super::values;
use super::variables::Variable;

pub struct Resolved {
    /// The inbound endpoints, in the order of their names.
    pub sources: Vec<http::Source>,
    /// The handlers, in the order of their names.
    pub workers: Vec<Worker>,
    /// The handlers as the other nodes of a database see them.
    pub published: Vec<PublishedHandler>,
    /// The node that this receiver is; `None` if it has its store for itself.
    pub node: Option<ClusterNode>,
    /// Empty secrets, and those that two sources share.
    pub warnings: Vec<Problem>,
}

impl Config {
    /// Reads the secrets of the database, sources and forwards; runners read those of their commands. An `Err` has every
    /// secret that cannot be read or used, sorted by file and position, and never its text.
    pub fn resolve(&self, environment: &Environment) -> Result<Resolved, Vec<Problem>> {
        let resolver = Resolver::new(self, environment);
        let sources = resolver.sources();
        let node = self.read_node(environment, &resolver.problems);
        let name = node.as_ref().map(|node| &node.name);
        let worker = |handler| resolver.worker(handler, &sources, name);
        let workers: Vec<Worker> = self.handlers.iter().map(worker).collect();
        let both = self.handlers.iter().zip(&workers);
        let published = both.map(|(handler, worker)| self.published(handler, worker)).collect();
        let warnings = resolver.warnings.into_sorted();
        resolver.problems.none_or(Resolved { sources, workers, published, node, warnings })
    }

    /// The commands of one runner. Does not read the secrets of sources and of other runners. An `Err` is as
    /// that of [`Config::resolve`].
    pub fn resolve_commands(
        &self,
        environment: &Environment,
        runner: &RunnerName,
    ) -> Result<Vec<Configured>, Vec<Problem>> {
        let resolver = Resolver::new(self, environment);
        let configured = |(handler, command): (&Handler, &Command)| Configured {
            name: handler.name.clone(),
            digest: digest(handler, command, &self.form_fields(handler), self.limits()),
            settings: resolver.command(handler, command),
        };
        let commands = self.commands_of(runner).map(configured).collect();
        resolver.problems.none_or(commands)
    }

    /// What [`Config::resolve`] and [`Config::resolve_commands`] of the default runner report, sorted. Another
    /// runner may be another user, with other permissions.
    pub fn unresolved(&self, environment: &Environment) -> Vec<Problem> {
        let of_receiver = self.resolve(environment).err();
        let of_runner = self.resolve_commands(environment, &RunnerName::default()).err();
        let all = of_receiver.into_iter().chain(of_runner).flatten();
        all.collect::<Problems>().into_sorted()
    }

    /// The warnings of [`Config::resolve`], even if it fails.
    pub fn secret_warnings(&self, environment: &Environment) -> Vec<Problem> {
        let resolver = Resolver::new(self, environment);
        resolver.sources();
        resolver.warnings.into_sorted()
    }

    /// The handlers of runners other than the default one, which the receiver does not launch.
    pub fn other_runners(&self) -> Vec<Problem> {
        let others = self.commands().filter(|(_, command)| !command.runner.value.is_default());
        let problem = |(_, command): (&Handler, &Command)| {
            let Value { value: name, at } = &command.runner;
            let unit = name.unit();
            at.problem(Fault::new(
                format!("runner '{name}' is a separate service"),
                format!("start {unit}, and the receiver with --runners; by hand there is only the default runner, which runs what names none"),
            ))
        };
        others.map(problem).collect()
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

    /// The form field of each of the handler's sources whose scheme has one.
    pub(super) fn form_fields(&self, handler: &Handler) -> BTreeMap<Name, String> {
        let field =
            |own: &Source| Some((own.name.clone(), own.scheme.identity().form_field.clone()?));
        self.sources_of(handler).filter_map(field).collect()
    }

    /// What the handler's values change in its requests; `None` if they are as the deliveries came.
    pub(super) fn request_of(&self, handler: &Handler, request: &Request) -> Option<RequestValues> {
        let headers = request.headers.iter();
        let none = || self.values_by(handler, Vec::new());
        let is_made =
            !handler.values.is_empty() || !request.headers.is_empty() || request.part.is_some();
        is_made.then(|| RequestValues {
            values: self.values_of(handler).unwrap_or_else(none),
            path: request.path.0.clone(),
            query: request.path.1.clone(),
            headers: headers.map(|one| (one.name.clone(), one.template.clone())).collect(),
            part: request.part.as_ref().map(|part| part.value.clone()),
        })
    }

    /// The handler's values; `None` if it has none.
    pub(super) fn values_of(&self, handler: &Handler) -> Option<Values> {
        let rules: Vec<_> = handler.values.iter().map(|rule| rule.value.clone()).collect();
        (!rules.is_empty()).then(|| self.values_by(handler, rules))
    }

    fn values_by(&self, handler: &Handler, rules: Vec<ValueRule>) -> Values {
        let limits = self.sources_of(handler).map(|own| (own.name.clone(), own.body_limit_bytes));
        let inflated_bytes = limits.collect();
        Values { rules, form_fields: self.form_fields(handler), inflated_bytes }
    }

    /// A digest of everything that is written, without the contents of secrets: a receiver and a command that have read
    /// the same files at the same path compute the same, if they have the same version.
    pub fn digest(&self) -> Digest {
        let limits = self.limits();
        let command = |(handler, command): (&Handler, &Command)| {
            digest(handler, command, &self.form_fields(handler), limits)
        };
        // What `config show` leaves out: the texts of variables, passwords in URLs, and what provider files say.
        let commands: Vec<Digest> = self.commands().map(command).collect();
        let sources = self.sources.iter();
        let schemes: Vec<_> = sources.map(|own| (&own.scheme, &own.signed_url)).collect();
        // Texts and numbers.
        let shown = serde_json::to_string(self).unwrap_or_default();
        Digest::of(format!("{shown} {commands:?} {schemes:?}"))
    }

    fn commands(&self) -> impl Iterator<Item = (&Handler, &Command)> {
        self.handlers.iter().filter_map(|handler| Some((handler, handler.command()?)))
    }
}

/// The digest of everything that decides how a command is run. It is made from what is written, so that a
/// receiver, which may not read the values, computes the same as its runner. JSON keeps the parts apart.
pub(super) fn digest(
    handler: &Handler,
    command: &Command,
    form_fields: &BTreeMap<Name, String>,
    limits: &Limits,
) -> Digest {
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
    if !handler.values.is_empty() {
        all["values"] = serde_json::json!([values::written(&handler.values), form_fields]);
    }
    Digest::of(all.to_string())
}

struct Resolver<'a> {
    config: &'a Config,
    environment: &'a Environment,
    problems: Problems,
    warnings: Problems,
}

/// A secret of a source.
struct Secret<'a> {
    caller: Option<&'a Name>,
    written: &'a Value<Reference>,
    key: verify::Key,
}

impl<'a> Resolver<'a> {
    fn new(config: &'a Config, environment: &'a Environment) -> Self {
        Resolver { config, environment, problems: Problems::new(), warnings: Problems::new() }
    }

    fn sources(&self) -> Vec<http::Source> {
        let sources = &self.config.sources;
        let secrets: Vec<_> = sources.iter().map(|source| self.secrets(source)).collect();
        self.warn_of_shared(&secrets);
        sources.iter().zip(secrets).map(|(source, secrets)| self.source(source, secrets)).collect()
    }

    /// Warns of secrets that two sources share: a delivery to one would be accepted, and run, at the other.
    /// `secrets` are in the order of the sources.
    fn warn_of_shared(&self, secrets: &[Vec<Secret<'_>>]) {
        for (n, own) in secrets.iter().enumerate() {
            for (other, theirs) in self.config.sources.iter().zip(&secrets[..n]) {
                let is_theirs = |secret: &&Secret<'_>| {
                    theirs.iter().any(|their| their.key.is_same(&secret.key))
                };
                if let Some(Secret { written, .. }) = own.iter().find(is_theirs) {
                    let message = format!("source '{}' has the same secret", other.name);
                    let help =
                        "give each source its own: a delivery to one may be sent to the other";
                    self.warnings.reject(&written.at, message, help);
                }
            }
        }
    }

    fn source(&self, source: &Source, secrets: Vec<Secret<'_>>) -> http::Source {
        http::Source {
            name: source.name.clone(),
            path: source.path.value.clone(),
            scheme: self.config.scheme_with_query(source),
            keys: secrets.into_iter().map(|secret| secret.key).collect(),
            verify_token: self.verify_token(source),
            methods: source.methods.clone(),
            public_url: source.signed_url.clone(),
            body_limit_bytes: source.body_limit_bytes,
            accept_wait: accept_wait(self.config.limits(), source.scheme.setup().delivery.deadline),
            refuse_proxied: source.takes_anybody(),
            on_redelivery: source.on_redelivery,
            reply: self.reply(source),
            routes: Arc::new(self.config.routes(source)),
        }
    }

    /// `None` while the file is empty: it must not keep the sources from being served.
    fn verify_token(&self, source: &Source) -> Option<verify::Key> {
        let Value { value: reference, at } = source.verify_token.as_ref()?;
        match reference.read(self.environment) {
            Ok(text) => Some(verify::verify_token(&reference.to_string(), &text)),
            Err(SecretError::Empty(fault)) => {
                let message = format!("{fault}; until it is filled in, challenges are refused");
                self.warnings.reject(
                    at,
                    message,
                    "put the verify token into it, then `hooklatch reload`",
                );
                None
            }
            Err(error) => {
                self.problems.report(at, error);
                None
            }
        }
    }

    /// The secrets of a source that can be used. Two callers with one secret would be one caller.
    fn secrets<'s>(&self, source: &'s Source) -> Vec<Secret<'s>> {
        let mut secrets: Vec<Secret<'s>> = Vec::new();
        for (caller, written) in source.all_secrets() {
            let Some(key) = self.source_key(source, written) else { continue };
            let twin = secrets.iter().find(|other| other.key.is_same(&key));
            if let (Some(caller), Some(other)) = (caller, twin.and_then(|twin| twin.caller))
                && caller != other
            {
                let message = format!("'{}' is the secret of caller '{other}' too", written.value);
                self.problems.reject(&written.at, message, "give each caller a secret of its own");
            }
            secrets.push(Secret { caller, written, key });
        }
        secrets
    }

    /// `None` if no handler takes the source's events, which loading refuses.
    fn reply(&self, source: &Source) -> Option<http::Reply> {
        let replies = source.replies.as_ref()?;
        let handler = self.config.handlers.iter().find(|handler| handler.takes(&source.name))?;
        let grace = handler.command().map_or(Duration::ZERO, |command| command.grace);
        let accept_wait = Limits::duration(self.config.limits().accept_wait_millis);
        // The job may wait for a slot, and its end is committed.
        let whole = handler.timeout.saturating_add(grace).saturating_add(accept_wait);
        let deadline = source.scheme.setup().delivery.deadline.map(answered_within);
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

    /// A source's key. A secret that is still empty, or that the provider has yet to send, must not keep the other
    /// sources from being served.
    fn source_key(&self, source: &Source, secret: &Value<Reference>) -> Option<verify::Key> {
        let scheme = &source.scheme;
        if source.registers().is_ok_and(|file| file.symlink_metadata().is_err_and(is_missing)) {
            let message = format!(
                "'{}': the provider has not sent the secret; until then every delivery is answered 401",
                secret.value
            );
            self.warnings.reject(
                &secret.at,
                message,
                format!("run `hooklatch register {}`", source.name),
            );
            return None;
        }
        let read = secret.value.read(self.environment);
        let is_spaced = read.as_ref().is_ok_and(|text| text.trim() != text.as_str());
        if is_spaced && !scheme.proof().has_public_key() {
            let message = format!(
                "'{}': the secret begins or ends with white space, which counts as part of it",
                secret.value
            );
            let help = "remove the white space, unless the provider shows it";
            self.warnings.reject(&secret.at, message, help);
        }
        let Err(SecretError::Empty(fault)) = read else {
            return self.key(scheme, &secret.value, &secret.at);
        };
        let message = format!(
            "{fault}; until it is filled in, a delivery signed with it is answered 401 and kept in quarantine"
        );
        let word = scheme.proof().secret_word();
        let help = format!("put the provider's {word} into it, then `hooklatch reload`");
        self.warnings.reject(&secret.at, message, help);
        None
    }

    fn key(&self, scheme: &Scheme, reference: &Reference, at: &At) -> Option<verify::Key> {
        let text = self.read(reference, at)?;
        let key = verify::key(scheme, &reference.to_string(), &text);
        key.map_err(|wrong| {
            let (word, provider) = (scheme.proof().secret_word(), scheme.name());
            let message =
                format!("'{reference}' is not a {word} of provider '{provider}': {wrong}");
            self.problems.report(at, message);
        })
        .ok()
    }

    fn read(&self, reference: &Reference, at: &At) -> Option<zeroize::Zeroizing<String>> {
        let text = reference.read(self.environment);
        text.map_err(|error| self.problems.report(at, error)).ok()
    }

    /// What signs a forward's requests anew, by the source of their event.
    fn resigners(
        &self,
        handler: &Handler,
        sign: Option<&Value<Sign>>,
        sources: &[http::Source],
    ) -> BTreeMap<Name, Signer> {
        let mut resigners = BTreeMap::new();
        let Some(Value { value: sign, at }) = sign else { return resigners };
        let reads = |source: &&http::Source| handler.takes(&source.name);
        for source in sources.iter().filter(reads) {
            let key = match sign {
                Sign::No => break,
                Sign::Source => source.keys.first().cloned(),
                Sign::With(reference) => match self.key(&source.scheme, reference, at) {
                    None => break,
                    key => key,
                },
            };
            let url = source.public_url.as_deref().filter(|_| source.scheme.proof().covers_url());
            let query = source.scheme.proof().first_query();
            let url = url.map(|url| http::public_url(url, &source.path, query));
            let resigner = Signer::new(Arc::clone(&source.scheme), key, url);
            resigners.insert(source.name.clone(), resigner);
        }
        resigners
    }

    fn worker(&self, handler: &Handler, sources: &[http::Source], node: Option<&Name>) -> Worker {
        let limits = self.config.limits();
        let whole_answer_bytes = handler.answers.then(|| size(limits.answer_whole_bytes));
        let built = match &handler.action {
            Action::Command(command) => handler::Handler::Command(handler::Command {
                runner: command.runner.value.clone(),
                configuration: digest(handler, command, &self.config.form_fields(handler), limits),
                timeout: handler.timeout,
                output_bytes: output_bytes(limits),
                answers: handler.answers,
            }),
            Action::Forward(forward) => handler::Handler::Forward(ForwardSettings {
                target: forward.target.clone(),
                resigners: Arc::new(self.resigners(handler, forward.sign.as_ref(), sources)),
                timeout: handler.timeout,
                connect_timeout: limits::FORWARD_CONNECT,
                answer_bytes: limits::ANSWER_KEPT_BYTES,
                whole_answer_bytes,
                request: self.config.request_of(handler, &forward.request).map(Arc::new),
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
                pauses: handler.pace.backoff.clone(),
            },
            concurrency: handler.concurrency,
            cluster_concurrency: handler.spread.cluster_concurrency,
            runs: handler.spread.runs_at(node),
            rate: handler.pace.rate,
        }
    }

    fn command(&self, handler: &Handler, command: &Command) -> CommandSettings {
        let limits = self.config.limits();
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
            values: self
                .config
                .values_of(handler)
                .map(|values| CommandValues { values, arguments: command.arguments.clone() }),
        }
    }

    /// The user's home folder, or the root folder if it does not exist, as for many system users.
    fn home(&self) -> PathBuf {
        let home = self.environment.text("HOME").map(PathBuf::from);
        home.filter(|home| home.is_dir()).unwrap_or_else(|| PathBuf::from("/"))
    }

    /// What the configuration adds to a command's environment, by name: `pass_env`, then `env`. A variable of
    /// `pass_env` that is not set is left out.
    fn variables(&self, command: &Command) -> Vec<(String, String)> {
        let mut variables = BTreeMap::new();
        for name in &command.pass_env {
            let Some(value) = self.environment.get(&name.value) else { continue };
            match value.to_str() {
                Some(text) => drop(variables.insert(name.value.clone(), text.to_owned())),
                None => {
                    let message = format!("the value of {} is not UTF-8", name.value);
                    self.problems.report(&name.at, message);
                }
            }
        }
        for (name, variable) in &command.env {
            let text = match &variable.value {
                Variable::Text(text) => Some(text.clone()),
                Variable::Reference(reference) => {
                    self.read(reference, &variable.at).map(|text| text.to_string())
                }
            };
            if text.as_ref().is_some_and(|text| text.contains('\0')) {
                self.problems.report(&variable.at, "the value has a NUL character");
            }
            variables.extend(text.map(|text| (name.clone(), text)));
        }
        variables.into_iter().collect()
    }
}

fn is_missing(error: std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// The `PATH` that a command gets, and in which its program is looked up.
pub(super) fn search_path(command: &Command, environment: &Environment) -> String {
    let own = command.env.iter().find(|(name, _)| name == "PATH");
    if let Some(Variable::Text(text)) = own.map(|(_, variable)| &variable.value) {
        return text.clone();
    }
    let passed = command.pass_env.iter().any(|name| name.value == "PATH");
    environment.text("PATH").filter(|_| passed).unwrap_or(runner::PATH).to_owned()
}

/// How long a request waits for its commit: at most four fifths of the provider's own time-out, so that
/// the provider still gets the 503.
fn accept_wait(limits: &Limits, deadline: Option<Duration>) -> Duration {
    let wait = Limits::duration(limits.accept_wait_millis);
    deadline.map_or(wait, |deadline| wait.min(deadline * 4 / 5))
}

/// Bytes kept of each output: head, tail.
fn output_bytes(limits: &Limits) -> (usize, usize) {
    (size(limits.output_head_bytes), size(limits.output_tail_bytes))
}
