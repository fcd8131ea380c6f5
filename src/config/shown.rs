//! The configuration in force, defaults included, as `config show` prints it. No secret is in it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::document::Value;
use crate::limits::{self, Unit};
use crate::model::{Name, OnUnknown, RunnerName};
use crate::retry::GiveUp;

use super::Config;
use super::handlers::{Action, Handler, Sign};
use super::secrets::Reference;
use super::sources::Source;
use super::variables::Variable;

/// What stands where a secret is.
const STARS: &str = "***";

/// Variables whose values are shown, next to those of the locale (`LC_`). Any other may hold a secret.
const HARMLESS: [&str; 8] = ["HOME", "LANG", "LANGUAGE", "PATH", "SHELL", "TMPDIR", "TZ", "USER"];

/// Everything in force.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// Where deliveries come in.
    pub listen: SocketAddr,
    /// Whose word about a client's address is believed.
    pub trusted_proxies: Vec<String>,
    /// Where metrics are read, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// The database.
    pub store: PathBuf,
    /// The sources by name.
    pub sources: Vec<ShownSource>,
    /// The handlers by name.
    pub handlers: Vec<ShownHandler>,
    /// Every limit, in the order of their table.
    pub limits: Vec<ShownLimit>,
}

#[derive(Debug, Serialize)]
pub struct ShownSource {
    pub name: Name,
    pub provider: String,
    pub path: String,
    /// The URL that the provider was given, where it is configured.
    pub public_url: Option<String>,
    /// Where its secrets are, and stars in their place.
    pub secrets: Vec<ShownSecret>,
    /// How its requests get their handler's answer, where they do.
    pub reply: Option<ShownReply>,
    /// The largest body taken, in bytes.
    pub max_body_bytes: u64,
    /// How far a signed time may be from now.
    pub tolerance: Option<String>,
    /// How long the provider sends an event again.
    pub resends_for: Option<String>,
}

/// How the requests of a source get their handler's answer.
#[derive(Debug, Serialize)]
pub struct ShownReply {
    /// How long a repeat waits for it.
    pub wait: String,
    /// How long a key and its answer are kept.
    pub keep: String,
    /// How long an answer is kept that says "not now".
    pub keep_errors: String,
    /// What of the body makes a request this one; empty where all of it does.
    pub request_fields: Vec<String>,
    /// The callers by name, each with where its secret is, and stars.
    pub callers: Vec<(Name, ShownSecret)>,
    /// The header that divides keys further.
    pub caller_header: Option<String>,
    /// The header in which a trusted proxy names the client's certificate.
    pub certificate_header: Option<String>,
    /// Requests of one caller in a minute; none where they are not bounded.
    pub requests_per_minute: Option<u32>,
}

/// A secret that is not shown.
#[derive(Debug, Serialize)]
pub struct ShownSecret {
    /// Where it is, as written.
    pub reference: String,
    /// Stars.
    pub value: &'static str,
}

#[derive(Debug, Serialize)]
pub struct ShownHandler {
    pub name: Name,
    pub sources: Vec<String>,
    /// The types it wants.
    pub events: Vec<String>,
    /// Program and arguments of a command.
    pub command: Option<Vec<String>>,
    /// Where a forward goes.
    pub forward: Option<String>,
    /// Whether a forward is signed anew, or where the secret for that is, and stars; none where nothing is written.
    pub sign: Option<String>,
    /// Where a command works, if not in the home of its user.
    pub cwd: Option<PathBuf>,
    /// A command's own variables: name, and value where that is harmless, or stars.
    pub env: Vec<(String, String)>,
    /// The variables passed on to a command.
    pub pass_env: Vec<String>,
    /// How long an attempt may take.
    pub timeout: String,
    /// How long a command may take to end after SIGTERM.
    pub grace: Option<String>,
    /// Who runs a command.
    pub runner: Option<RunnerName>,
    /// Attempts at once.
    pub concurrency: usize,
    /// When a failing job is given up: so many attempts of a command.
    pub max_attempts: Option<u32>,
    /// The same of a forward: after so long.
    pub give_up_after: Option<String>,
    /// What an unknown outcome means.
    pub on_unknown: OnUnknown,
}

#[derive(Debug, Serialize)]
pub struct ShownLimit {
    /// The key in the configuration, with its table.
    pub key: String,
    /// What is in force.
    pub value: String,
    /// What is in force where nothing is said.
    pub default: String,
    /// The least that may be said.
    pub least: String,
    pub most: String,
    /// Why there is such a limit.
    pub reason: &'static str,
}

impl Config {
    /// Everything in force; reads no secret.
    pub fn shown(&self) -> Shown {
        Shown {
            listen: self.server.listen,
            trusted_proxies: self.server.trusted_proxies.iter().map(ToString::to_string).collect(),
            metrics: self.metrics,
            store: self.store_path.clone(),
            sources: self.sources.iter().map(source).collect(),
            handlers: self.handlers.iter().map(handler).collect(),
            limits: limits::TABLE.iter().map(|limit| self.limit(limit)).collect(),
        }
    }

    fn limit(&self, limit: &limits::Limit) -> ShownLimit {
        let show = |value| limit.unit.show(value);
        let key = match super::settings::storage_key(limit.key) {
            Some(key) => format!("storage.{key}"),
            None => format!("limits.{}", limit.key),
        };
        ShownLimit {
            key,
            value: show(self.limits.get(limit.key).unwrap_or(limit.default)),
            default: show(limit.default),
            least: show(*limit.range.start()),
            most: show(*limit.range.end()),
            reason: limit.reason,
        }
    }
}

fn source(source: &Source) -> ShownSource {
    let secret =
        |read: &Value<Reference>| ShownSecret { reference: read.value.to_string(), value: STARS };
    let caller = |(name, read): &(Name, Value<Reference>)| (name.clone(), secret(read));
    let written = |header: &Option<Value<String>>| Some(header.as_ref()?.value.clone());
    let reply = source.replies.as_ref().map(|replies| ShownReply {
        wait: duration(replies.wait.value),
        keep: duration(replies.keep.value),
        keep_errors: duration(replies.keep_errors),
        request_fields: replies.fields.iter().map(ToString::to_string).collect(),
        callers: replies.callers.iter().map(caller).collect(),
        caller_header: written(&replies.caller_header),
        certificate_header: written(&replies.certificate_header),
        requests_per_minute: replies.requests_per_minute,
    });
    let scheme = &source.scheme;
    ShownSource {
        name: source.name.clone(),
        provider: scheme.name().to_owned(),
        path: source.path.value.clone(),
        public_url: source.public_url.clone(),
        secrets: source.secrets.iter().map(secret).collect(),
        reply,
        max_body_bytes: source.body_limit_bytes,
        tolerance: scheme.tolerance().map(duration),
        resends_for: scheme.resends_for().map(duration),
    }
}

fn handler(handler: &Handler) -> ShownHandler {
    let (command, forward) = match &handler.action {
        Action::Command(command) => (Some(command), None),
        Action::Forward(forward) => (None, Some(forward)),
    };
    let (max_attempts, give_up_after) = match handler.give_up {
        GiveUp::Attempts(count) => (Some(count), None),
        GiveUp::After(time) => (None, Some(duration(time))),
    };
    let env = command.iter().flat_map(|command| &command.env);
    let pass_env = command.iter().flat_map(|command| &command.pass_env);
    ShownHandler {
        name: handler.name.clone(),
        sources: handler.sources.iter().map(|read| read.value.clone()).collect(),
        events: handler.events.iter().map(|read| read.value.clone()).collect(),
        command: command.map(|command| command.argv.value.clone()),
        forward: forward.map(|forward| forward.target.to_string()),
        sign: forward.and_then(|forward| Some(sign(&forward.sign.as_ref()?.value))),
        cwd: command.and_then(|command| Some(command.cwd.as_ref()?.value.clone())),
        env: env.map(|(name, variable)| (name.clone(), value(name, &variable.value))).collect(),
        pass_env: pass_env.map(|read| read.value.clone()).collect(),
        timeout: duration(handler.timeout),
        grace: command.map(|command| duration(command.grace)),
        runner: command.map(|command| command.runner.value.clone()),
        concurrency: handler.concurrency,
        max_attempts,
        give_up_after,
        on_unknown: handler.on_unknown,
    }
}

fn sign(sign: &Sign) -> String {
    match sign {
        Sign::No => "no".to_owned(),
        Sign::Source => "yes".to_owned(),
        Sign::With(reference) => format!("{reference} {STARS}"),
    }
}

/// A variable's value where its name says that it is harmless.
fn value(name: &str, variable: &Variable) -> String {
    match variable {
        Variable::Reference(reference) => format!("{reference} {STARS}"),
        Variable::Text(text) if HARMLESS.contains(&name) || name.starts_with("LC_") => text.clone(),
        Variable::Text(_) => STARS.to_owned(),
    }
}

fn duration(time: Duration) -> String {
    Unit::Millis.show(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
