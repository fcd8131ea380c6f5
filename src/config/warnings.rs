//! Warnings: settings that are valid and unwise.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use crate::document::{At, Fault, Problem, Problems, Value, did_you_mean};
use crate::limits::Unit;
use crate::model::{EventType, INTERNAL_SOURCE, NoticeType, Repeats};
use crate::pattern::Pattern;
use crate::payload::Place;
use crate::provider::Scheme;
use crate::verify;

use super::condition;
use super::configuration::Config;
use super::handlers::{Action, Command, Forward, Handler};
use super::interpreters::{self, names};
use super::secrets::Reference;
use super::settings::{LISTEN, METRICS_LISTEN, Settings};
use super::shown::duration_text;
use super::sources::Source;
use super::variables::Variable;
use super::wanted::INTERNAL_TWO_LEVELS;

impl Config {
    /// Everything that works and should not stay so, sorted by file and position. Looks at the
    /// permissions of secret files; a missing file is reported by [`Config::resolve`].
    pub fn warnings(&self) -> Vec<Problem> {
        let found: Problems = self.warnings.iter().cloned().collect();
        for source in &self.sources {
            if !self.handlers.iter().any(|handler| handler.takes(&source.name)) {
                let message =
                    "no handler reads this source: its events are stored, and nothing runs";
                found.report(&source.at, message);
            }
            if source.scheme.runs_repeats() {
                let message = "each request is another event: one that its sender repeats, as after a 503, runs twice";
                found.report(&source.at, message);
            }
            if !source.sets_repeats
                && source.replies.is_none()
                && source.scheme.identity().swallows_equal_bodies()
            {
                found.report(&source.at, swallows(source, self.limits().keep_ids_millis));
            }
            let public = source.scheme.proof().has_public_key();
            let secrets = source.all_secrets().map(|(_, secret)| (secret, public));
            for (secret, public) in
                secrets.chain(source.verify_token.iter().map(|one| (one, false)))
            {
                warn_of_permissions(&secret.value, public, &secret.at, &found);
            }
        }
        if let Some(database) = &self.settings.database {
            if database.is_open {
                let message = "the database is on another machine, and is not reached over TLS";
                let help = "remove sslmode=disable, unless nobody else can reach the network between the two";
                found.reject(&database.url.at, message, help);
            }
            if let Some(Value { value, at }) = &database.password {
                warn_of_permissions(value, false, at, &found);
            }
        }
        for secret in self.dashboard().iter().flat_map(|dashboard| dashboard.secrets()) {
            warn_of_permissions(&secret.value, false, &secret.at, &found);
        }
        for handler in &self.handlers {
            self.warn_of_events(handler, &found);
            self.warn_of_unsigned_headers(handler, &found);
            self.warn_of_unproven_query(handler, &found);
            match &handler.action {
                Action::Command(command) => {
                    warn_of_written_secrets(&command.env, &found);
                    warn_of_languages(command, &found);
                    warn_of_texts(command, &found);
                }
                Action::Forward(forward) => {
                    self.warn_of_old_signature(handler, forward, &found);
                    self.warn_of_part(handler, forward, &found);
                }
            }
            for (secret, at) in handler.secrets() {
                warn_of_permissions(secret, false, at, &found);
            }
        }
        found.into_sorted()
    }

    pub(super) fn sources_of(&self, handler: &Handler) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| handler.takes(&source.name))
    }

    /// A forward whose requests have a signature that grows too old, and whose endpoint may verify it.
    fn warn_of_old_signature(&self, handler: &Handler, forward: &Forward, found: &Problems) {
        let signs_time = |name: &Value<String>| {
            let named = self.sources.iter().find(|source| source.name.as_str() == name.value);
            let source = named.filter(|source| source.scheme.proof().tolerance().is_some())?;
            Some((name.at.clone(), source))
        };
        let Some((at, source)) = handler.sources.iter().find_map(signs_time) else { return };
        if forward.sign.is_some() {
            return;
        }
        let help = if verify::can_resign(&source.scheme).is_ok() {
            "sign = true signs each attempt anew; sign = false says that the endpoint does not verify"
        } else {
            "sign = false says that the endpoint does not verify"
        };
        let provider = source.scheme.name();
        let message = format!(
            "an endpoint that verifies will refuse retries and replays: provider '{provider}' signs a timestamp"
        );
        found.reject(&at, message, help);
    }

    /// The headers that its condition or its key looks at, and that a source's signature leaves out.
    fn warn_of_unsigned_headers(&self, handler: &Handler, found: &Problems) {
        for (name, at) in handler.places().filter_map(condition::header) {
            // Names compare without case; the provider file's spelling is the one that the scheme knows.
            let leaves_out = |source: &&Source| {
                let mut kept = source.scheme.identity().kept_headers.iter();
                let kept = kept.find(|kept| kept.eq_ignore_ascii_case(name));
                kept.is_some_and(|kept| source.scheme.proof().leaves_out(kept))
            };
            let Some(open) = self.sources_of(handler).find(leaves_out) else { continue };
            let message = format!(
                "the signature of provider '{}' leaves out '{name}': a captured delivery can be sent again with another value",
                open.scheme.name()
            );
            found.reject(at, message, "look at the body where you can");
        }
    }

    /// The parameters of the query that it looks at, where nothing proves them.
    fn warn_of_unproven_query(&self, handler: &Handler, found: &Problems) {
        let open = |source: &&Source| !source.scheme.proof().covers_url();
        let Some(open) = self.sources_of(handler).find(open) else { return };
        for (place, at) in handler.all_places() {
            if let Place::Query(name) = place {
                let message = format!(
                    "provider '{}' does not prove the query: anybody on the way can change '{name}'",
                    open.scheme.name()
                );
                found.reject(at, message, "look at the body where you can");
            }
        }
    }

    /// A forward whose requests have the signature of a body that they do not have.
    fn warn_of_part(&self, handler: &Handler, forward: &Forward, found: &Problems) {
        let signed = self.sources_of(handler).any(|source| source.scheme.proof().signs_content());
        if let (Some(part), None, true) = (&forward.request.part, &forward.sign, signed) {
            let message =
                "an endpoint that verifies will refuse it: the signature is that of the whole body";
            let help = "sign = true signs the part anew; sign = false says that the endpoint does not verify";
            found.reject(&part.at, message, help);
        }
    }

    /// The entries of a handler's `events` that match no event which its sources can have, or no type which
    /// all their providers list. A provider's list may be older than its newest type.
    fn warn_of_events(&self, handler: &Handler, found: &Problems) {
        let schemes: Vec<&Scheme> =
            self.sources_of(handler).map(|source| &*source.scheme).collect();
        let takes_internal = handler.takes_internal().is_some();
        let is_typed = schemes.iter().any(|scheme| !scheme.identity().types.is_empty());
        for Value { value: entry, at } in &handler.events {
            let internal = Pattern::new(entry.as_str(), INTERNAL_TWO_LEVELS);
            let untyped = Pattern::new(entry.as_str(), false);
            let is_internal = NoticeType::ALL.iter().any(|kind| internal.matches(kind.as_str()));
            if takes_internal && is_internal {
                continue;
            }
            if is_typed {
                if schemes
                    .iter()
                    .all(|scheme| scheme.identity().publishes_type(entry) == Some(false))
                {
                    found.report(at, unlisted(entry, &schemes));
                }
            } else if schemes.is_empty() || !untyped.matches(EventType::ODD) {
                found.report(at, impossible(entry, takes_internal));
            }
        }
    }
}

/// A source whose sender may name no event, and may send two with equal bodies.
fn swallows(source: &Source, keep_ids_millis: u64) -> Fault {
    let window = match source.scheme.identity().repeats {
        Repeats::Window(window) => duration_text(window),
        _ => Unit::Millis.show(keep_ids_millis),
    };
    let message = format!(
        "an event without an id is treated as a duplicate, and runs nothing, if an equal body arrived within {window} before"
    );
    let help = match source.scheme.check_repeats(Repeats::Trigger, false) {
        Ok(()) => {
            "add repeats = \"trigger\" to run it, or repeats = \"duplicate\" to keep this without the warning"
        }
        Err(_) => {
            "add repeats = \"duplicate\" to keep this without the warning; or repeats = \"trigger\" and replays = \"run\" to run it, which also runs a captured request"
        }
    };
    Fault::new(message, help)
}

/// An entry of `events` that the providers do not list.
fn unlisted(entry: &str, schemes: &[&Scheme]) -> Fault {
    let mut providers: Vec<&str> = schemes.iter().map(|scheme| scheme.name()).collect();
    providers.dedup();
    let message = format!("no event of {} is called '{entry}'", providers.join(" or "));
    match schemes.iter().find_map(|scheme| scheme.identity().nearest_type(entry)) {
        Some(near) => Fault::new(message, format!("did you mean '{near}'?")),
        None => Fault::new(
            message,
            "look it up at the provider; one that this version does not know is taken all the same",
        ),
    }
}

/// An entry of `events` that matches nothing, where no source's provider has types.
fn impossible(entry: &str, takes_internal: bool) -> Fault {
    if !takes_internal {
        let message =
            format!("no event of its sources has type '{entry}': their provider names none");
        return Fault::new(message, "write events = [\"*\"]");
    }
    let known = NoticeType::ALL.iter().map(|kind| kind.as_str());
    let help = did_you_mean(entry, known, "its types");
    Fault::new(format!("source '{INTERNAL_SOURCE}' has no event of type '{entry}'"), help)
}

/// The warnings that need only the files.
pub(super) fn general(main: &str, settings: &Settings, sources: &[Source], found: &Problems) {
    let is_open = |address: &SocketAddr| !address.ip().is_loopback();
    let listen = settings.server.listen;
    if let Some(at) = settings.places.get(LISTEN).filter(|_| is_open(&listen)) {
        let message = format!("{listen} can be reached from other machines, without TLS");
        let help = "listen on 127.0.0.1 behind a proxy that speaks TLS, unless this is a container";
        found.reject(at, message, help);
    }
    if let Some(metrics) = settings.metrics.filter(is_open)
        && let Some(at) = settings.places.get(METRICS_LISTEN)
    {
        let message = format!("the metrics at {metrics} can be read by other machines");
        let help = "listen on 127.0.0.1, or let only the monitoring reach this port";
        found.reject(at, message, help);
    }
    if sources.is_empty() {
        let message = "no source is configured: every delivery will be answered 404";
        let fault = Fault::new(message, "add [sources.NAME] here or in conf.d");
        found.push(Problem::of_file(main, fault));
    }
    for source in sources {
        let limit = source.body_limit_bytes;
        let sent = source.scheme.setup().delivery.body_limit_bytes;
        if let Some(sent) = sent.filter(|sent| limit < *sent) {
            let [limit, sent] = [limit, sent].map(|bytes| Unit::Bytes.show(bytes));
            let provider = source.scheme.name();
            let message = format!(
                "bodies over {limit} are refused; provider '{provider}' sends up to {sent}"
            );
            found.reject(&source.at, message, "raise max_body, or leave it out");
        }
        if source.takes_anybody() {
            found.report(&source.at, "takes events from anybody on this machine, unverified");
        }
    }
}

/// Values among the arguments of a command that takes them for a language.
fn warn_of_languages(command: &Command, found: &Problems) {
    let words: Vec<&str> = command.argv.value.iter().map(String::as_str).collect();
    let is_text = |data: &str| {
        let mut arguments = command.arguments.iter().enumerate();
        arguments.any(|(nth, argument)| {
            let before = words.get(..=nth).unwrap_or_default();
            argument.names().next().is_some() && !interpreters::is_data(data, before)
        })
    };
    let mut languages = interpreters::LANGUAGES.iter();
    let language = languages.find(|(name, data, ..)| names(name, &words) && is_text(data));
    if let Some((.., message, help)) = language {
        found.reject(&command.argv.at, *message, *help);
    }
}

/// Values that a program may run as a text, also one that no table has.
fn warn_of_texts(command: &Command, found: &Problems) {
    let words: Vec<&str> = command.argv.value.iter().skip(1).map(String::as_str).collect();
    for (nth, argument) in command.arguments.iter().enumerate() {
        let word = words.get(..=nth).and_then(interpreters::runs_value);
        if let (Some(name), Some(word)) = (argument.names().next(), word) {
            let message = format!(
                "{{{name}}} stands behind '{word}', and many programs run the text that stands there"
            );
            let help = format!(
                "if this one does, let a script read the variable {name}; or make sure by match that it is harmless"
            );
            found.reject(&command.argv.at, message, help);
        }
    }
}

/// Variables whose text is likely a secret.
fn warn_of_written_secrets(env: &[(String, Value<Variable>)], found: &Problems) {
    for (name, variable) in env {
        if let Variable::Text(text) = &variable.value
            && is_secret(name, text)
        {
            let message = "this looks like a secret, and stands in the configuration";
            let help =
                format!("put it into a file with mode 0600 and write {name} = \"file:/path\"");
            found.reject(&variable.at, message, help);
        }
    }
}

/// Prefixes of the secrets that services issue.
const SECRETS_BEGIN: &str = "sk_live_ sk_test_ rk_live_ rk_test_ whsec_ ghp_ gho_ ghs_ github_pat_ glpat- xoxb- xoxp- AKIA \
    -----BEGIN";

/// Whether a variable's text is likely a secret, by its shape or by the last word of its name.
fn is_secret(name: &str, text: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or(name).to_uppercase();
    let named = ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "KEY"].contains(&last.as_str());
    let path = text.starts_with('/');
    (named && !text.is_empty() && !path)
        || SECRETS_BEGIN.split(' ').any(|begin| text.starts_with(begin))
}

/// A secret's file that every user of the machine may change, or read unless it is a public key.
fn warn_of_permissions(secret: &Reference, public: bool, at: &At, found: &Problems) {
    let Some(path) = secret.file() else { return };
    let Some(metadata) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else { return };
    let mode = metadata.permissions().mode();
    let verb = match (mode & 0o004 != 0 && !public, mode & 0o022 != 0) {
        (_, true) => "changed",
        (true, false) => "read",
        (false, false) => return,
    };
    let shown = path.display();
    let message = format!("{shown} can be {verb} by other users of this machine");
    found.reject(at, message, format!("chmod 600 {shown}"));
}
