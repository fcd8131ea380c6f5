//! `[handlers.NAME]`: what one handler says, checked by itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::document::{At, FromToml, Section, Value, nearest};
use crate::handler::Target;
use crate::limits::Limits;
use crate::model::{EVENT_TYPE_MAX_BYTES, INTERNAL_SOURCE, Name, OnUnknown, RunnerName};
use crate::retry::GiveUp;

use super::read::{Context, Declared, bad_text, missing, normal, parsed, path, ranged};
use super::secrets::{Reference, STARS};
use super::shown;
use super::variables::{self, Variable};

/// One handler; what its environment refers to is not read. `config show` prints it as it serializes.
#[derive(PartialEq, Serialize)]
pub(crate) struct Handler {
    pub(crate) name: Name,
    pub(crate) sources: Vec<Value<String>>,
    pub(crate) events: Vec<Value<String>>,
    #[serde(flatten)]
    pub(crate) action: Action,
    #[serde(serialize_with = "shown::duration")]
    pub(crate) timeout: Duration,
    pub(crate) concurrency: usize,
    #[serde(flatten, serialize_with = "shown::give_up")]
    pub(crate) give_up: GiveUp,
    pub(crate) on_unknown: OnUnknown,
    /// A source answers its requests with what this handler answers.
    #[serde(skip)]
    pub(super) answers: bool,
}

impl Handler {
    /// Whether it takes events of this source.
    pub(crate) fn takes(&self, source: &Name) -> bool {
        self.sources.iter().any(|own| own.value == source.as_str())
    }

    /// Its `events`, as written.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &str> {
        self.events.iter().map(|event| event.value.as_str())
    }

    /// None of a forward.
    pub(crate) fn command(&self) -> Option<&Command> {
        match &self.action {
            Action::Command(command) => Some(command),
            Action::Forward(_) => None,
        }
    }
}

#[derive(PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Action {
    Command(Box<Command>),
    Forward(Forward),
}

#[derive(PartialEq, Serialize)]
pub(crate) struct Forward {
    #[serde(rename = "forward", serialize_with = "shown::text")]
    pub(crate) target: Target,
    /// Whether and how its requests are signed anew; none where nothing is written.
    #[serde(serialize_with = "serialize_sign")]
    pub(crate) sign: Option<Value<Sign>>,
}

impl Forward {
    /// The secret that `sign` names, and its place.
    pub(super) fn secret(&self) -> Option<(&Reference, &At)> {
        match self.sign.as_ref() {
            Some(Value { value: Sign::With(reference), at }) => Some((reference, at)),
            _ => None,
        }
    }
}

/// The value of `sign`.
#[derive(PartialEq, Eq)]
pub(crate) enum Sign {
    /// The requests keep the signature that they came with.
    No,
    /// With the first secret of the event's source.
    Source,
    /// With this secret.
    With(Reference),
}

#[derive(PartialEq, Serialize)]
pub(crate) struct Command {
    /// Program and arguments; a program with a slash is absolute.
    #[serde(rename = "command")]
    pub(crate) argv: Value<Vec<String>>,
    /// The program as it is written.
    #[serde(skip)]
    pub(super) program: String,
    pub(crate) cwd: Option<Value<PathBuf>>,
    #[serde(serialize_with = "shown::variables")]
    pub(crate) env: Vec<(String, Value<Variable>)>,
    pub(crate) pass_env: Vec<Value<String>>,
    #[serde(serialize_with = "shown::duration")]
    pub(crate) grace: Duration,
    pub(crate) runner: Value<RunnerName>,
}

/// The keys of the one kind of handler that the other has not: key, and why.
const COMMAND_KEYS: [(&str, &str); 6] = [
    ("cwd", "a forward runs no program"),
    ("env", "a forward runs no program"),
    ("pass_env", "a forward runs no program"),
    ("grace", "a forward's request is dropped at its time-out"),
    ("max_attempts", "forwards are retried by time: use give_up_after"),
    ("runner", "the receiver itself makes a forward's requests"),
];
const FORWARD_KEYS: [(&str, &str); 2] = [
    ("give_up_after", "commands are retried by count: use max_attempts"),
    ("sign", "a command gets no request that could be signed"),
];

/// Reads one; problems go to the section's. Nothing where no handler can be made of it.
pub(super) fn read(name: &Name, section: Section<'_>, context: &Context<'_>) -> Option<Handler> {
    let sources = read_sources(&section, context);
    let events = read_events(&section);
    let (command, forward) = (section.place_of("command"), section.place_of("forward"));
    let on_unknown = parsed::<OnUnknown>(&section, "on_unknown").map(|read| read.value);
    let handler = match (command, forward) {
        (Some(_), None) => {
            refuse(&section, &FORWARD_KEYS, "is for forwards, and this handler is a command");
            read_command(&section, context)
        }
        (None, Some(_)) => {
            refuse(&section, &COMMAND_KEYS, "is for commands, and this handler is a forward");
            read_forward(&section, context)
        }
        (both, _) => {
            let (message, help) = match both {
                Some(_) => (
                    "both 'command' and 'forward' are given",
                    "a handler does one of them; for both, make two handlers of the same events",
                ),
                None => (
                    "neither 'command' nor 'forward' is given",
                    "add command = [\"/path/to/program\"] or forward = \"http://127.0.0.1:PORT/PATH\"",
                ),
            };
            section.problem(message, Some(help.to_owned()));
            for (key, _) in COMMAND_KEYS.into_iter().chain(FORWARD_KEYS) {
                section.has(key);
            }
            section.has("timeout");
            section.has("concurrency");
            None
        }
    };
    let answers = sources.iter().flatten().any(|own| context.replying.contains(&own.value));
    if answers {
        check_answers(&section, &sources, &events, on_unknown, context);
    }
    section.finish();
    let handler = handler?;
    Some(Handler {
        name: name.clone(),
        sources: sources?,
        events: events?,
        on_unknown: on_unknown.unwrap_or(match handler.action {
            Action::Forward(_) if !answers => OnUnknown::Rerun,
            Action::Command(_) | Action::Forward(_) => OnUnknown::Hold,
        }),
        answers,
        action: handler.action,
        timeout: handler.timeout,
        concurrency: handler.concurrency,
        // The repeat of whoever asked is the next attempt.
        give_up: if answers { GiveUp::Attempts(1) } else { handler.give_up },
    })
}

/// What a handler that answers cannot say: it runs once for each key, for whatever its sources are sent, and
/// again only where its caller, or a person, says so.
fn check_answers(
    section: &Section<'_>,
    sources: &Option<Vec<Value<String>>>,
    events: &Option<Vec<Value<String>>>,
    on_unknown: Option<OnUnknown>,
    context: &Context<'_>,
) {
    let push = |at: &At, message: String, help: &str| {
        section.problems().push(at.problem(message, Some(help.to_owned())));
    };
    let other = sources.iter().flatten().find(|own| !context.replying.contains(&own.value));
    if let Some(other) = other {
        push(
            &other.at,
            format!(
                "source '{}' waits for no answer, and another of this handler does",
                other.value
            ),
            "make two handlers: one that answers, and one that does not",
        );
    }
    for key in ["max_attempts", "give_up_after"] {
        if let Some(at) = section.place_of(key) {
            push(
                &at,
                "a handler that answers is tried once".to_owned(),
                "remove it: whoever asks again with the same key runs it again, where it is known to have failed",
            );
        }
    }
    if let Some(at) =
        section.place_of("on_unknown").filter(|_| on_unknown == Some(OnUnknown::Rerun))
    {
        push(
            &at,
            "a handler that answers is not run again by itself".to_owned(),
            "remove it: a job whose outcome is unknown is held, and whoever asks is told so",
        );
    }
    let all = |events: &Vec<Value<String>>| events.iter().any(|event| event.value == "*");
    if let (Some(at), Some(false)) = (section.place_of("events"), events.as_ref().map(all)) {
        push(
            &at,
            "a handler that answers takes every event of its sources".to_owned(),
            "write events = [\"*\"], and look at the type in the handler",
        );
    }
}

/// What the two kinds read in their own way.
struct Kind {
    action: Action,
    timeout: Duration,
    concurrency: usize,
    give_up: GiveUp,
}

fn refuse(section: &Section<'_>, keys: &[(&'static str, &str)], message: &str) {
    for (key, help) in keys {
        if let Some(at) = section.place_of(key) {
            section.problems().push(at.problem(message, Some((*help).to_owned())));
        }
    }
}

fn read_sources(section: &Section<'_>, context: &Context<'_>) -> Option<Vec<Value<String>>> {
    if missing(section, "source", "add source = \"NAME\", a source's name or a list of them") {
        return None;
    }
    let sources = section.texts("source")?;
    if sources.is_empty() {
        section.problem("no source can reach this handler: 'source' is empty", None);
        return None;
    }
    for (n, source) in sources.iter().enumerate() {
        if sources[..n].iter().any(|other| other.value == source.value) {
            let message = format!("source '{}' is there twice", source.value);
            section.problems().push(source.at.problem(message, None));
        } else if let Some(known) = context.sources
            && source.value != INTERNAL_SOURCE
            && !known.keys().any(|name| name.as_str() == source.value)
        {
            let message = format!("there is no source '{}'", source.value);
            let help = Some(which_sources(&source.value, known));
            section.problems().push(source.at.problem(message, help));
        }
    }
    Some(sources)
}

fn which_sources(meant: &str, known: &Declared) -> String {
    let names = || known.keys().map(Name::as_str);
    match nearest(meant, names()) {
        Some(near) => format!("did you mean '{near}'?"),
        None if known.is_empty() => "no source is configured".to_owned(),
        None => format!("the sources are: {}", names().collect::<Vec<_>>().join(", ")),
    }
}

fn read_events(section: &Section<'_>) -> Option<Vec<Value<String>>> {
    if missing(section, "events", "add events = [\"TYPE\"], or events = [\"*\"] for all of them") {
        return None;
    }
    let events = section.texts("events")?;
    if events.is_empty() {
        let help = "name the types it wants, or \"*\" for all of them";
        section.problem("this handler wants no event: 'events' is empty", Some(help.to_owned()));
    }
    for event in &events {
        let fixed = event.value.bytes().filter(|&b| b != b'*');
        if event.value.is_empty()
            || fixed.clone().count() > EVENT_TYPE_MAX_BYTES
            || !fixed.clone().all(|b| b.is_ascii_graphic())
        {
            let message = format!("'{}' can never match", event.value);
            let help = format!("types are 1 to {EVENT_TYPE_MAX_BYTES} visible ASCII characters");
            section.problems().push(event.at.problem(message, Some(help)));
        }
    }
    Some(events)
}

fn read_command(section: &Section<'_>, context: &Context<'_>) -> Option<Kind> {
    let limits = context.limits;
    let argv = read_argv(section, context.folder);
    let cwd_at = section.place_of("cwd");
    let cwd = path(section, "cwd", context.folder);
    let env = variables::read_env(section, context.folder);
    let pass_env = variables::read_pass_env(section, &env);
    let grace = millis(section, "grace", "command_grace_millis", limits.command_grace_millis);
    let timeout =
        millis(section, "timeout", "command_timeout_millis", limits.command_timeout_millis);
    let concurrency = count(
        section,
        "concurrency",
        "command_concurrency_count",
        limits.command_concurrency_count,
    );
    let attempts = count(section, "max_attempts", "max_attempts_count", limits.max_attempts_count);
    let cwd = cwd.zip(cwd_at).map(|(value, at)| Value { value, at });
    let runner = parsed(section, "runner");
    let default = || Value { value: RunnerName::default(), at: section.here() };
    let runner = runner.unwrap_or_else(default);
    let (argv, program) = argv?;
    Some(Kind {
        action: Action::Command(Box::new(Command {
            argv,
            program,
            cwd,
            env,
            pass_env,
            grace,
            runner,
        })),
        timeout,
        concurrency,
        give_up: GiveUp::Attempts(u32::try_from(attempts).unwrap_or(u32::MAX)),
    })
}

fn read_forward(section: &Section<'_>, context: &Context<'_>) -> Option<Kind> {
    let limits = context.limits;
    let target =
        section.get::<String>("forward").and_then(|read| match Target::parse(&read.value) {
            Ok(target) => Some(target),
            Err(wrong) => {
                section.problems().push(read.at.problem(wrong, None));
                None
            }
        });
    let timeout =
        millis(section, "timeout", "forward_timeout_millis", limits.forward_timeout_millis);
    let concurrency = count(
        section,
        "concurrency",
        "forward_concurrency_count",
        limits.forward_concurrency_count,
    );
    let age = millis(section, "give_up_after", "give_up_after_millis", limits.give_up_after_millis);
    let sign = read_sign(section, context.folder);
    let action = Action::Forward(Forward { target: target?, sign });
    Some(Kind { action, timeout, concurrency, give_up: GiveUp::After(age) })
}

/// `sign` before it is understood: true, false, or a text that should be a reference.
struct Signed(Result<bool, String>);

impl FromToml for Signed {
    const EXPECTED: &'static str = "true, false or a reference such as \"file:/path\"";
    fn from_toml(value: &toml::de::DeValue<'_>) -> Result<Self, Option<String>> {
        let text = || value.as_str().map(|text| Err(text.to_owned()));
        value.as_bool().map(Ok).or_else(text).map(Signed).ok_or(None)
    }
}

fn read_sign(section: &Section<'_>, folder: &Path) -> Option<Value<Sign>> {
    let Value { value: Signed(signed), at } = section.get("sign")?;
    let value = match signed {
        Ok(false) => Sign::No,
        Ok(true) => Sign::Source,
        Err(text) => match Reference::parse(&text, folder) {
            Ok(reference) => Sign::With(reference),
            Err(wrong) => {
                section.problems().push(at.problem(wrong.to_string(), Some(wrong.help())));
                return None;
            }
        },
    };
    Some(Value { value, at })
}

fn millis(section: &Section<'_>, key: &'static str, limit: &str, default: u64) -> Duration {
    Limits::duration(ranged(section, key, limit).map_or(default, |read| read.value))
}

fn count(section: &Section<'_>, key: &'static str, limit: &str, default: u64) -> usize {
    let value = ranged(section, key, limit).map_or(default, |read| read.value);
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// How a command line is written as a list: what only a shell understands needs one.
pub(super) fn as_list(line: &str) -> String {
    let of_shell = line.contains(|c: char| "&|;<>$`\"'\\*?()~#\n".contains(c));
    let words = match of_shell {
        true => vec!["sh", "-c", line],
        false => line.split_whitespace().collect(),
    };
    format!("{words:?}")
}

/// A program with a slash is a path, from the configuration file's folder where it is relative; one
/// without is looked up in `PATH`.
fn read_argv(section: &Section<'_>, folder: &Path) -> Option<(Value<Vec<String>>, String)> {
    if let Some(line) = section.text("command") {
        let help = format!("write {}", as_list(&line.value));
        section
            .problems()
            .push(line.at.problem("expected a list of strings, found string", Some(help)));
        return None;
    }
    let mut argv = section.get::<Vec<String>>("command")?;
    let push = |message: &str, help: &str| {
        section.problems().push(argv.at.problem(message, Some(help.to_owned())));
    };
    let Some(program) = argv.value.first() else {
        push(
            "the command is empty",
            "write the program and its arguments: [\"/path\", \"--flag\"]",
        );
        return None;
    };
    if let Some(wrong) = bad_text(program) {
        push(&format!("the program {wrong}"), "its name or path comes first");
        return None;
    }
    if argv.value.iter().any(|argument| argument.contains('\0')) {
        push("an argument has a NUL character", "no program can be given one");
        return None;
    }
    let written = program.clone();
    if program.contains('/') {
        let absolute = normal(&folder.join(program));
        let Some(absolute) = absolute.to_str() else {
            push("the program's path is not UTF-8", "rename the configuration's folder");
            return None;
        };
        let absolute = absolute.to_owned();
        if let Some(program) = argv.value.first_mut() {
            *program = absolute;
        }
    }
    Some((argv, written))
}

/// As in the configuration, but for secrets.
pub(crate) fn sign_text(sign: &Sign) -> String {
    match sign {
        Sign::No => "no".to_owned(),
        Sign::Source => "yes".to_owned(),
        Sign::With(reference) => format!("{reference} {STARS}"),
    }
}

fn serialize_sign<S: Serializer>(
    sign: &Option<Value<Sign>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    sign.as_ref().map(|sign| sign_text(&sign.value)).serialize(serializer)
}
