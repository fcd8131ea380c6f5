//! Reads `[handlers.NAME]`, and checks what one handler alone can show.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::condition::{Condition, Key};
use crate::document::{At, Fault, FromToml, Section, Value, did_you_mean};
use crate::handler::Target;
use crate::model::{EVENT_TYPE_MAX_BYTES, INTERNAL_SOURCE, Name, OnUnknown, RunnerName};
use crate::payload::Place;
use crate::retry::GiveUp;
use crate::values::Template;

use super::condition::{self, When};
use super::database::{self, Spread};
use super::grouping::{self, Grouping};
use super::pace::{self, Pace};
use super::read::{Context, bad_text, normal, parsed, path, size};
use super::requests::{self, Request};
use super::secrets::{Reference, STARS};
use super::shown;
use super::values::{self, Rules};
use super::variables::{self, Variable};

/// One handler, as `config show` prints it. Secrets are references.
#[derive(PartialEq, Serialize)]
pub(crate) struct Handler {
    pub(crate) name: Name,
    pub(crate) sources: Vec<Value<String>>,
    pub(crate) events: Vec<Value<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) when: Option<When>,
    #[serde(flatten)]
    pub(crate) grouping: Option<Grouping>,
    #[serde(flatten)]
    pub(crate) action: Action,
    #[serde(serialize_with = "shown::duration")]
    pub(crate) timeout: Duration,
    pub(crate) concurrency: usize,
    #[serde(flatten)]
    pub(crate) spread: Spread,
    #[serde(flatten, serialize_with = "shown::give_up")]
    pub(crate) give_up: GiveUp,
    pub(crate) on_unknown: OnUnknown,
    #[serde(serialize_with = "values::serialize", skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Rules,
    #[serde(flatten)]
    pub(crate) pace: Pace,
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

    /// The places that its condition and its key look at.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Value<Place>> {
        let of_condition = self.when.iter().flat_map(|when| &when.places);
        of_condition.chain(self.grouping.iter().flat_map(|grouping| &grouping.places))
    }

    /// The places that its condition, its key and its values look at, with their positions.
    pub(crate) fn all_places(&self) -> impl Iterator<Item = (&Place, &At)> {
        let of_values = self.values.iter();
        let of_values = of_values.filter_map(|rule| Some((rule.value.from.as_ref()?, &rule.at)));
        self.places().map(|place| (&place.value, &place.at)).chain(of_values)
    }

    /// What an event's values must be.
    pub(crate) fn condition(&self) -> Option<&Condition> {
        self.when.as_ref().map(|when| &when.condition)
    }

    /// The key by which its jobs are ordered or coalesced.
    pub(crate) fn key(&self) -> Option<Key> {
        self.grouping.as_ref().map(Grouping::key)
    }

    /// Its command; `None` for a forward.
    pub(crate) fn command(&self) -> Option<&Command> {
        match &self.action {
            Action::Command(command) => Some(command),
            Action::Forward(_) => None,
        }
    }

    /// The secrets that its command's environment or its `sign` refers to, with their positions.
    pub(super) fn secrets(&self) -> Vec<(&Reference, &At)> {
        match &self.action {
            Action::Command(command) => {
                let references =
                    command.env.iter().filter_map(|(_, variable)| match &variable.value {
                        Variable::Reference(reference) => Some((reference, &variable.at)),
                        Variable::Text(_) => None,
                    });
                references.collect()
            }
            Action::Forward(forward) => match &forward.sign {
                Some(Value { value: Sign::With(reference), at }) => vec![(reference, at)],
                _ => Vec::new(),
            },
        }
    }
}

#[derive(PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Action {
    Command(Box<Command>),
    Forward(Box<Forward>),
}

#[derive(PartialEq, Serialize)]
pub(crate) struct Forward {
    #[serde(rename = "forward", serialize_with = "shown::text")]
    pub(crate) target: Target,
    /// Whether and how its requests are signed anew; `None` if the key is missing.
    pub(crate) sign: Option<Value<Sign>>,
    #[serde(flatten)]
    pub(crate) request: Request,
}

/// The value of `sign`.
#[derive(PartialEq, Eq)]
pub(crate) enum Sign {
    /// The requests keep the signature that they came with.
    No,
    /// The requests are signed with the first secret of the event's source.
    Source,
    /// The requests are signed with this secret.
    With(Reference),
}

impl Serialize for Sign {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Sign::No => serializer.serialize_str("no"),
            Sign::Source => serializer.serialize_str("yes"),
            Sign::With(secret) => serializer.collect_str(&format_args!("{secret} {STARS}")),
        }
    }
}

#[derive(PartialEq, Serialize)]
pub(crate) struct Command {
    /// Program and arguments; a program with a slash is absolute.
    #[serde(rename = "command")]
    pub(crate) argv: Value<Vec<String>>,
    /// The program as it is written.
    #[serde(skip)]
    pub(super) program: String,
    /// The arguments behind the program, split at the handler's values; empty if it has none.
    #[serde(skip)]
    pub(super) arguments: Vec<Template>,
    pub(crate) cwd: Option<Value<PathBuf>>,
    #[serde(serialize_with = "shown::variables")]
    pub(crate) env: Vec<(String, Value<Variable>)>,
    pub(crate) pass_env: Vec<Value<String>>,
    #[serde(serialize_with = "shown::duration")]
    pub(crate) grace: Duration,
    pub(crate) runner: Value<RunnerName>,
}

/// The keys that only handlers of one kind have, and why the other kind does not have them.
const COMMAND_KEYS: [(&str, &str); 6] = [
    ("cwd", "a forward runs no program"),
    ("env", "a forward runs no program"),
    ("pass_env", "a forward runs no program"),
    ("grace", "a forward's request is dropped at its time-out"),
    ("max_attempts", "forwards are retried by time: use give_up_after"),
    ("runner", "the receiver itself makes a forward's requests"),
];
const FORWARD_KEYS: [(&str, &str); 4] = [
    ("give_up_after", "commands are retried by count: use max_attempts"),
    ("sign", "a command gets no request that could be signed"),
    ("headers", "a command has its values as variables"),
    ("part", "a command reads the whole body; take the part as a value"),
];

/// The keys that look at an event's values.
const CHOOSING_KEYS: [&str; 4] = ["when", "order_by", "coalesce_by", "on_dead"];

/// Reads one handler; `None` if required keys are missing or wrong. Problems go to the section's.
pub(super) fn read(name: &Name, section: Section<'_>, context: &Context<'_>) -> Option<Handler> {
    let sources = read_sources(&section, context);
    let events = read_events(&section);
    let when = condition::read_when(&section);
    let grouping = grouping::read(&section);
    let on_unknown = parsed::<OnUnknown>(&section, "on_unknown").map(|written| written.value);
    let values = values::read(&section);
    let work = read_work(&section, context, &values);
    let replies = |source: &&Value<String>| context.replying.contains(&source.value);
    let answers = sources.iter().flatten().any(|source| replies(&source));
    if answers {
        let other = sources.iter().flatten().find(|source| !replies(source));
        check_answers(&section, other, events.as_deref(), on_unknown);
    }
    let is_internal = |source: &Value<String>| source.value == INTERNAL_SOURCE;
    let is_internal = sources.iter().flatten().any(is_internal);
    for key in CHOOSING_KEYS {
        if answers {
            let help = "remove it: its caller waits for an answer";
            section.refuse(key, "a handler that answers runs once for each key", help);
        } else if is_internal {
            let message = "the receiver's own events are few, and are not chosen by their values";
            section.refuse(key, message, "remove it, and name the types in events");
        }
    }
    let pace = pace::read(&section, answers);
    let spread = database::read_spread(&section, context.has_url);
    section.finish();
    let Work { action, timeout, concurrency, give_up } = work?;
    Some(Handler {
        name: name.clone(),
        sources: sources?,
        events: events?,
        when,
        grouping,
        on_unknown: match (on_unknown, &action) {
            (Some(written), _) => written,
            (None, Action::Forward(_)) if !answers => OnUnknown::Rerun,
            (None, _) => OnUnknown::Hold,
        },
        values,
        answers,
        pace,
        action,
        timeout,
        concurrency,
        spread,
        // The caller's next request with the same key is the next attempt.
        give_up: if answers { GiveUp::Attempts(1) } else { give_up },
    })
}

/// Reports what a handler that answers cannot say: it runs once for each key, for everything that its
/// sources are sent, and runs again only if its caller or an operator says so. `other` is a source of it
/// that waits for no answer.
fn check_answers(
    section: &Section<'_>,
    other: Option<&Value<String>>,
    events: Option<&[Value<String>]>,
    on_unknown: Option<OnUnknown>,
) {
    if let Some(Value { value: other, at }) = other {
        let message =
            format!("source '{other}' waits for no answer, and another of this handler does");
        let help = "make two handlers: one that answers, and one that does not";
        section.reject(at, message, help);
    }
    for key in ["max_attempts", "give_up_after"] {
        let help =
            "remove it: a request with the same key runs it again if it is known to have failed";
        section.refuse(key, "a handler that answers is tried once", help);
    }
    if on_unknown == Some(OnUnknown::Rerun) {
        let help = "remove it: a job whose outcome is unknown is held, and the caller gets that as the answer";
        section.refuse("on_unknown", "a handler that answers is not run again by itself", help);
    }
    if events.is_some_and(|events| events.iter().all(|event| event.value != "*")) {
        let help = "write events = [\"*\"], and look at the type in the handler";
        section.refuse("events", "a handler that answers takes every event of its sources", help);
    }
}

/// What commands and forwards read differently.
struct Work {
    action: Action,
    timeout: Duration,
    concurrency: usize,
    give_up: GiveUp,
}

fn read_work(section: &Section<'_>, context: &Context<'_>, values: &Rules) -> Option<Work> {
    let fault = match (section.has("command"), section.has("forward")) {
        (true, false) => {
            for (key, help) in FORWARD_KEYS {
                section.refuse(key, "is for forwards, and this handler is a command", help);
            }
            return read_command(section, context, values);
        }
        (false, true) => {
            for (key, help) in COMMAND_KEYS {
                section.refuse(key, "is for commands, and this handler is a forward", help);
            }
            return read_forward(section, context, values);
        }
        (true, true) => Fault::new(
            "both 'command' and 'forward' are given",
            "a handler does one of them; for both, make two handlers of the same events",
        ),
        (false, false) => Fault::new(
            "neither 'command' nor 'forward' is given",
            "add command = [\"/path/to/program\"] or forward = \"http://127.0.0.1:PORT/PATH\"",
        ),
    };
    section.problem(fault);
    // They are known keys of a handler of either kind.
    let either = COMMAND_KEYS.iter().chain(&FORWARD_KEYS).map(|(key, _)| *key);
    for key in either.chain(["timeout", "concurrency"]) {
        section.has(key);
    }
    None
}

fn read_sources(section: &Section<'_>, context: &Context<'_>) -> Option<Vec<Value<String>>> {
    section.demand("source", "add source = \"NAME\", a source's name or a list of them");
    let sources = section.texts("source")?;
    if sources.is_empty() {
        section.problem("no source can reach this handler: 'source' is empty");
        return None;
    }
    for (n, Value { value: source, at }) in sources.iter().enumerate() {
        if sources[..n].iter().any(|other| other.value == *source) {
            section.report(at, format!("source '{source}' is there twice"));
        } else if let Some(known) = context.sources
            && source != INTERNAL_SOURCE
            && !known.keys().any(|name| name.as_str() == source)
        {
            let help = match known.is_empty() {
                true => "no source is configured".to_owned(),
                false => did_you_mean(source, known.keys().map(Name::as_str), "the sources"),
            };
            section.reject(at, format!("there is no source '{source}'"), help);
        }
    }
    Some(sources)
}

fn read_events(section: &Section<'_>) -> Option<Vec<Value<String>>> {
    section.demand("events", "add events = [\"TYPE\"], or events = [\"*\"] for all of them");
    let events = section.texts("events")?;
    if events.is_empty() {
        let help = "name the types it wants, or \"*\" for all of them";
        section.problem(Fault::new("this handler wants no event: 'events' is empty", help));
    }
    for Value { value: event, at } in &events {
        let fixed = event.bytes().filter(|&b| b != b'*');
        if event.is_empty()
            || event.trim() != event
            || fixed.clone().count() > EVENT_TYPE_MAX_BYTES
            || !fixed.clone().all(|b| b.is_ascii_graphic() || b == b' ')
        {
            let help = format!(
                "types are 1 to {EVENT_TYPE_MAX_BYTES} visible ASCII characters and spaces"
            );
            section.reject(at, format!("'{event}' can never match"), help);
        }
    }
    Some(events)
}

fn read_command(section: &Section<'_>, context: &Context<'_>, values: &Rules) -> Option<Work> {
    let argv = read_argv(section, context.folder);
    let cwd = path(section, "cwd", context.folder);
    let env = variables::read_env(section, context.folder);
    let pass_env = variables::read_pass_env(section, &env);
    let grace = context.duration(section, "grace", "command_grace_millis");
    let timeout = context.duration(section, "timeout", "command_timeout_millis");
    let concurrency = context.number(section, "concurrency", "command_concurrency_count");
    let attempts = context.number(section, "max_attempts", "max_attempts_count");
    let runner = parsed(section, "runner")
        .unwrap_or_else(|| Value::new(RunnerName::default(), section.here()));
    let (argv, program) = argv?;
    let arguments = Vec::new();
    let mut command = Command { argv, program, arguments, cwd, env, pass_env, grace, runner };
    if !values.is_empty() {
        let written = section.texts("command").unwrap_or_default();
        check_fixed(section, &written, values, &command);
        command.arguments = values::arguments(section, &written, values);
    }
    Some(Work {
        action: Action::Command(Box::new(command)),
        timeout,
        concurrency: size(concurrency),
        give_up: GiveUp::Attempts(u32::try_from(attempts).unwrap_or(u32::MAX)),
    })
}

/// Reports values in the program, the folder and the environment, and those that are set there too.
fn check_fixed(section: &Section<'_>, argv: &[Value<String>], rules: &Rules, command: &Command) {
    let program = argv.first().map(|word| (word.value.as_str(), &word.at));
    let cwd = command.cwd.as_ref().and_then(|cwd| Some((cwd.value.to_str()?, &cwd.at)));
    let texts = command.env.iter().filter_map(|(_, variable)| match &variable.value {
        Variable::Text(text) => Some((text.as_str(), &variable.at)),
        Variable::Reference(_) => None,
    });
    for (text, at) in program.into_iter().chain(cwd).chain(texts) {
        if let Some(rule) =
            rules.iter().find(|rule| text.contains(&format!("{{{}}}", rule.value.name)))
        {
            let name = &rule.value.name;
            let message = format!("{{{name}}} is replaced in arguments only");
            let help = format!("the command has it as its variable {name} already");
            section.reject(at, message, help);
        }
    }
    for Value { value: rule, at } in rules {
        let set = command.env.iter().any(|(name, _)| *name == rule.name);
        if set || command.pass_env.iter().any(|name| name.value == rule.name) {
            let key = if set { "env" } else { "pass_env" };
            section.reject(at, format!("{} is also in {key}", rule.name), "remove one of them");
        }
    }
}

fn read_forward(section: &Section<'_>, context: &Context<'_>, values: &Rules) -> Option<Work> {
    let target = section.parse("forward", |text: String| Target::parse(&text));
    let request = requests::read(section, target.as_ref(), values);
    let timeout = context.duration(section, "timeout", "forward_timeout_millis");
    let concurrency = context.number(section, "concurrency", "forward_concurrency_count");
    let age = context.duration(section, "give_up_after", "give_up_after_millis");
    let sign = section.parse("sign", |Signed(signed)| match signed {
        Ok(false) => Ok(Sign::No),
        Ok(true) => Ok(Sign::Source),
        Err(text) => Reference::parse(&text, context.folder).map(Sign::With),
    });
    Some(Work {
        action: Action::Forward(Box::new(Forward {
            target: target?.value,
            sign,
            request: request?,
        })),
        timeout,
        concurrency: size(concurrency),
        give_up: GiveUp::After(age),
    })
}

/// The value of `sign` as written: true, false, or a text that should be a reference.
struct Signed(Result<bool, String>);

impl FromToml for Signed {
    const EXPECTED: &'static str = "true, false or a reference such as \"file:/path\"";
    fn from_toml(value: &toml::de::DeValue<'_>) -> Option<Result<Self, String>> {
        Some(Ok(Signed(match value.as_bool() {
            Some(signs) => Ok(signs),
            None => Err(value.as_str()?.to_owned()),
        })))
    }
}

/// How a command line is written as a list. It names a shell if the line has a shell's special characters.
pub(super) fn as_list(line: &str) -> String {
    let of_shell = line.contains(|c: char| "&|;<>$`\"'\\*?()~#\n".contains(c));
    let words = if of_shell { vec!["sh", "-c", line] } else { line.split_whitespace().collect() };
    format!("{words:?}")
}

/// The command, and its program as it is written. A program with a slash is a path, from the configuration
/// file's folder where it is relative; one without is looked up in `PATH`.
fn read_argv(section: &Section<'_>, folder: &Path) -> Option<(Value<Vec<String>>, String)> {
    let written = section.raw("command")?;
    if let Some(line) = written.get().as_str() {
        let help = format!("write {}", as_list(line));
        written.reject("expected a list of strings, found string", help);
        return None;
    }
    let read = written.parse(|mut argv: Vec<String>| {
        let Some(program) = argv.first().cloned() else {
            let help = "write the program and its arguments: [\"/path\", \"--flag\"]";
            return Err(Fault::new("the command is empty", help));
        };
        if let Some(wrong) = bad_text(&program) {
            let help = "its name or path comes first";
            return Err(Fault::new(format!("the program {wrong}"), help));
        }
        if argv.iter().any(|argument| argument.contains('\0')) {
            let help = "no program can be given one";
            return Err(Fault::new("an argument has a NUL character", help));
        }
        if program.contains('/') {
            let help = "rename the configuration's folder";
            let path = normal(&folder.join(&program)).into_os_string().into_string();
            argv[0] = path.map_err(|_| Fault::new("the program's path is not UTF-8", help))?;
        }
        Ok((argv, program))
    })?;
    let Value { value: (argv, program), at } = read;
    Some((Value { value: argv, at }, program))
}
