//! What is legal and unwise.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::document::{Problem, nearest};
use crate::limits::Unit;
use crate::model::{EventType, INTERNAL_SOURCE, NoticeType};
use crate::pattern::Pattern;
use crate::provider::Scheme;
use crate::verify;

use super::Config;
use super::handlers::{Action, Forward, Handler};
use super::settings::{LISTEN, METRICS_LISTEN, Settings};
use super::sources::Source;
use super::variables::Variable;
use super::wanted::INTERNAL_TWO_LEVELS;

impl Config {
    /// Everything that works and should not stay so, sorted by file and position. Looks at the
    /// permissions of secret files; a file that is not there is [`Config::resolve`]'s matter.
    pub fn warnings(&self) -> Vec<Problem> {
        let mut found = self.warnings.clone();
        for source in &self.sources {
            let wanted = self.handlers.iter().any(|handler| {
                handler.sources.iter().any(|wanted| wanted.value == source.name.as_str())
            });
            if !wanted {
                let message =
                    "no handler reads this source: its events are stored, and nothing runs";
                found.push(source.at.problem(message, None));
            }
            for secret in source.all_secrets() {
                let told = secret.value.file().and_then(exposed);
                found.extend(told.map(|(message, help)| secret.at.problem(message, Some(help))));
            }
        }
        for handler in &self.handlers {
            found.extend(self.unreachable(handler));
            found.extend(self.unlisted(handler));
            let secrets: Vec<_> = match &handler.action {
                Action::Command(command) => {
                    let texts = command.env.iter().filter(|(name, own)| match &own.value {
                        Variable::Text(text) => is_secret(name, text),
                        Variable::Reference(_) => false,
                    });
                    found.extend(texts.map(|(name, own)| {
                        let message = "this looks like a secret, and stands in the configuration";
                        let help = format!(
                            "put it into a file with mode 0600 and write {name} = \"file:/path\""
                        );
                        own.at.problem(message, Some(help))
                    }));
                    let variables = command.env.iter().map(|(_, variable)| variable);
                    variables.filter_map(|own| Some((own.value.reference()?, &own.at))).collect()
                }
                Action::Forward(forward) => {
                    found.extend(self.stale(handler, forward));
                    forward.secret().into_iter().collect()
                }
            };
            for (reference, at) in secrets {
                let told = reference.file().and_then(exposed);
                found.extend(told.map(|(message, help)| at.problem(message, Some(help))));
            }
        }
        found.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        found
    }
}

impl Config {
    /// A forward whose requests have a signature that grows too old, and whose endpoint may verify it.
    fn stale(&self, handler: &Handler, forward: &Forward) -> Option<Problem> {
        let (name, scheme) = handler.sources.iter().find_map(|name| {
            let source = self.sources.iter().find(|source| source.name.as_str() == name.value)?;
            source.scheme.tolerance().map(|_| (name, &source.scheme))
        })?;
        let message = format!(
            "an endpoint that verifies will refuse retries and replays: provider '{}' signs a timestamp",
            scheme.name()
        );
        let help = match verify::can_resign(scheme) {
            Ok(()) => {
                "sign = true signs each attempt anew; sign = false says that the endpoint does not verify"
            }
            Err(_) => "sign = false says that the endpoint does not verify",
        };
        forward.sign.is_none().then(|| name.at.problem(message, Some(help.to_owned())))
    }

    /// The entries of a handler's `events` that match nothing its sources can ever have. A provider's
    /// types are not all known, so an entry that merely looks wrong is none of them.
    fn unreachable(&self, handler: &Handler) -> Vec<Problem> {
        let sources = self.read_by(handler);
        let internal = handler.takes_internal().is_some();
        let typed = sources.iter().any(|source| source.scheme.has_types());
        let mut found = Vec::new();
        for entry in handler.events.iter().filter(|_| !typed) {
            let untyped = Pattern::new(&*entry.value, false);
            let own = Pattern::new(&*entry.value, INTERNAL_TWO_LEVELS);
            let reached = (!sources.is_empty() && untyped.matches(EventType::ODD))
                || (internal && NoticeType::ALL.iter().any(|kind| own.matches(kind.as_str())));
            if reached {
                continue;
            }
            let (message, help) = if internal {
                let known = NoticeType::ALL.iter().map(|kind| kind.as_str());
                let help = match nearest(&entry.value, known.clone()) {
                    Some(near) => format!("did you mean '{near}'?"),
                    None => format!("its types are: {}", known.collect::<Vec<_>>().join(", ")),
                };
                (format!("source '{INTERNAL_SOURCE}' has no event of type '{}'", entry.value), help)
            } else {
                let message = format!(
                    "no event of its sources has type '{}': their provider names none",
                    entry.value
                );
                (message, "write events = [\"*\"]".to_owned())
            };
            found.push(entry.at.problem(message, Some(help)));
        }
        found
    }
}

impl Config {
    fn read_by(&self, handler: &Handler) -> Vec<&Source> {
        let reads = |source: &&Source| {
            handler.sources.iter().any(|name| name.value == source.name.as_str())
        };
        self.sources.iter().filter(reads).collect()
    }

    /// The entries of a handler's `events` that match no type which the providers of its sources
    /// publish. Nothing where one of them lists no types.
    fn unlisted(&self, handler: &Handler) -> Vec<Problem> {
        let schemes: Vec<_> = self.read_by(handler).iter().map(|source| &source.scheme).collect();
        let mut providers: Vec<&str> = schemes.iter().map(|scheme| scheme.name()).collect();
        providers.dedup();
        let mut found = Vec::new();
        for entry in &handler.events {
            let own = Pattern::new(&*entry.value, INTERNAL_TWO_LEVELS);
            let internal = handler.takes_internal().is_some()
                && NoticeType::ALL.iter().any(|kind| own.matches(kind.as_str()));
            let none_lists = |scheme: &&Arc<Scheme>| scheme.lists(&entry.value) == Some(false);
            if internal || schemes.is_empty() || !schemes.iter().all(none_lists) {
                continue;
            }
            let message =
                format!("no event of {} is called '{}'", providers.join(" or "), entry.value);
            let near = schemes.iter().find_map(|scheme| scheme.nearest_type(&entry.value));
            let help = match near {
                Some(near) => format!("did you mean '{near}'?"),
                None => "look it up at the provider; one that this version does not know is taken \
                         all the same"
                    .to_owned(),
            };
            found.push(entry.at.problem(message, Some(help)));
        }
        found
    }
}

/// What is known to be unwise as soon as the files are read.
pub(super) fn general(
    main: &str,
    settings: &Settings,
    sources: &[Source],
    mut found: Vec<Problem>,
) -> Vec<Problem> {
    let listen = settings.server.listen;
    if let (false, Some(at)) = (listen.ip().is_loopback(), settings.places.get(LISTEN)) {
        let message = format!("{listen} can be reached from other machines, without TLS");
        let help = "listen on 127.0.0.1 behind a proxy that speaks TLS, unless this is a container";
        found.push(at.problem(message, Some(help.to_owned())));
    }
    let metrics = settings.metrics.filter(|metrics| !metrics.ip().is_loopback());
    if let (Some(metrics), Some(at)) = (metrics, settings.places.get(METRICS_LISTEN)) {
        let message = format!("the metrics at {metrics} can be read by other machines");
        let help = "listen on 127.0.0.1, or let only the monitoring reach this port";
        found.push(at.problem(message, Some(help.to_owned())));
    }
    if sources.is_empty() {
        found.push(Problem {
            file: main.to_owned(),
            line: 0,
            column: 0,
            key: String::new(),
            message: "no source is configured: every delivery will be answered 404".to_owned(),
            help: Some("add [sources.NAME] here or in conf.d".to_owned()),
        });
    }
    for source in sources {
        let sent = source.scheme.body_limit_bytes();
        if let Some(sent) = sent.filter(|sent| source.body_limit_bytes < *sent) {
            let (ours, theirs) =
                (Unit::Bytes.show(source.body_limit_bytes), Unit::Bytes.show(sent));
            let provider = source.scheme.name();
            let message = format!(
                "bodies over {ours} are refused; provider '{provider}' sends up to {theirs}"
            );
            found.push(
                source.at.problem(message, Some("raise max_body, or leave it out".to_owned())),
            );
        }
    }
    for source in sources.iter().filter(|source| source.takes_anybody()) {
        let message = "takes events from anybody on this machine, unverified";
        found.push(source.at.problem(message, None));
    }
    found
}

/// How secrets that services issue begin.
const SECRETS_BEGIN: [&str; 14] = [
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "-----BEGIN",
];

/// Whether a variable's text is likely a secret, by its shape or by the last word of its name.
fn is_secret(name: &str, text: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or(name).to_uppercase();
    let named = ["SECRET", "TOKEN", "PASSWORD", "PASSWD", "KEY"].contains(&last.as_str());
    let path = text.starts_with('/');
    (named && !text.is_empty() && !path)
        || SECRETS_BEGIN.iter().any(|begin| text.starts_with(begin))
}

/// Whether every user of the machine may read or change a secret's file.
fn exposed(path: &Path) -> Option<(String, String)> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mode = metadata.permissions().mode();
    let verb = match (mode & 0o004 != 0, mode & 0o022 != 0) {
        (_, true) => "changed",
        (true, false) => "read",
        (false, false) => return None,
    };
    let shown = path.display();
    let message = format!("{shown} can be {verb} by other users of this machine");
    Some((message, format!("chmod 600 {shown}")))
}
