//! `hooklatch try`: shows what a handler would do with an event. Nothing is run, stored or sent.

use std::iter;

use serde::Serialize;

use crate::cli;
use crate::clock::Clock;
use crate::config::{Config, Handler, Plan, Start};
use crate::exit::{Exit, Failure};
use crate::model::{EventId, EventType, Facts, Name, shell_word};
use crate::store::IdKind;
use crate::verify;

use super::delivered::{Delivered, Judgement};
use super::output::{self, escape};
use super::{ids, input, show, store};

/// What the handler would do.
#[derive(Debug, Serialize)]
struct Trial {
    handler: Name,
    source: Name,
    event: String,
    event_type: String,
    /// The entry of the handler's `events` that matches the type.
    matches: Option<String>,
    #[serde(flatten)]
    judgement: Judgement,
    /// What an attempt would get and start.
    plan: Option<Plan>,
    /// The value that is refused, and why.
    refused: Option<String>,
    /// `None` if it cannot be decided, or a value is refused.
    would_run: Option<bool>,
}

/// Exits with 0 if the handler would run, with 1 if not, and with 65 if that cannot be decided.
pub(super) fn run(args: &cli::Try) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    let handler =
        config.handler(&args.handler).ok_or_else(|| store::no_handler(&config, &args.handler))?;
    let delivered = match &args.event {
        Some(event) => stored(args, &config, event)?,
        None => named(args, &config, handler)?,
    };
    store::need_taken(handler, &delivered.source)?;
    let trial = Trial::of(&config, handler, &delivered);
    output::either(&args.options.format, &trial, || trial.print())?;
    Ok(match trial.would_run {
        Some(true) => Exit::Ok,
        Some(false) => Exit::No,
        None => Exit::WrongState,
    })
}

/// The stored event with this id.
fn stored(args: &cli::Try, config: &Config, typed: &EventId) -> Result<Delivered, Failure> {
    let found = store::with_client(config, async |client| {
        let target = ids::target(client, IdKind::Event, args.source.as_ref(), typed).await?;
        show::find(client, &target).await
    })?;
    let event = show::only(&found, typed)?;
    Delivered::of(event).ok_or_else(|| show::without_body(event))
}

/// The delivery that the command line describes.
fn named(args: &cli::Try, config: &Config, handler: &Handler) -> Result<Delivered, Failure> {
    let takes: Vec<&Name> = config.source_names().filter(|source| handler.takes(source)).collect();
    let source = match (&args.source, &takes[..]) {
        (Some(source), _) => source.clone(),
        (None, [only]) => (*only).clone(),
        (None, _) => {
            let sources = takes.len();
            let message = format!("handler {} takes events of {sources} sources", handler.name);
            return Err(Exit::Usage.failure(message).help("name one: --source NAME"));
        }
    };
    store::need_taken(handler, &source)?;
    let body = match &args.body {
        Some(file) => input::read(file, config.limits().bodies_in_flight_bytes)?.into(),
        None => bytes::Bytes::new(),
    };
    let headers = super::verify::headers(&args.headers)?;
    let scheme = config.scheme_of(&source);
    let of_body = || verify::claimed_type(scheme?, &headers, &body).map(|found| found.to_string());
    let event_type = args.event_type.clone().or_else(of_body).ok_or_else(|| {
        Exit::Usage
            .failure("neither the body nor a header says the event's type")
            .help("name it: --type TYPE")
    })?;
    let id = scheme.and_then(|scheme| verify::claimed_id(scheme, &headers, &body));
    let id = id.or_else(|| "new".parse().ok());
    let id = id.ok_or_else(|| Exit::Usage.failure("the event has no id"))?;
    let event_type = EventType::from_raw(&event_type).as_str().to_owned();
    // The receiver keeps no others.
    let headers = scheme.map(|scheme| verify::kept(scheme, &headers)).unwrap_or_default();
    Ok(Delivered { source, id, event_type, headers, body })
}

impl Trial {
    fn of(config: &Config, handler: &Handler, delivered: &Delivered) -> Self {
        let matches = config.matching(handler, &delivered.source, &delivered.event_type);
        let judgement = delivered.judged_by(handler, config);
        let plan = config.plan(handler, &facts(handler, delivered));
        let would_run = match judgement.holds {
            _ if matches.is_none() => Some(false),
            Some(true) => plan.is_ok().then_some(true),
            other => other,
        };
        let (plan, refused) = match plan {
            Ok(plan) => (Some(plan), None),
            Err(refused) => (None, Some(refused.to_string())),
        };
        Trial {
            handler: handler.name.clone(),
            source: delivered.source.clone(),
            event: delivered.id.to_string(),
            event_type: delivered.event_type.clone(),
            matches: matches.map(str::to_owned),
            judgement,
            plan,
            refused,
            would_run,
        }
    }

    fn print(&self) -> Result<(), Failure> {
        let Trial { handler, source, event, event_type, judgement, .. } = self;
        output::fact("event", escape(&format!("{event} of type {event_type}, source {source}")))?;
        match &self.matches {
            Some(pattern) => output::fact("events", format!("include \"{pattern}\""))?,
            None => output::fact("events", escape(&format!("none matches {event_type}")))?,
        }
        output::list("when", judgement.lines())?;
        output::list("group", &judgement.group)?;
        if let Some(plan) = &self.plan {
            print_plan(plan)?;
        }
        let undecided = judgement.undecided.as_ref().map(|why| format!("cannot be decided: {why}"));
        let refused = self.refused.as_ref().map(|why| format!("would not start: {why}"));
        let verdict = match self.would_run {
            Some(true) => "would run".to_owned(),
            Some(false) => "would not run".to_owned(),
            None => format!("{}; its job would be held", undecided.or(refused).unwrap_or_default()),
        };
        output::fact("handler", escape(&format!("{handler} {verdict}")))
    }
}

fn print_plan(Plan { values, start }: &Plan) -> Result<(), Failure> {
    let values = values.iter();
    output::list("values", values.map(|(name, text)| format!("{name}={}", shell_word(text))))?;
    match start {
        Start::Command { command, env } => {
            let words: Vec<_> = command.iter().map(|word| shell_word(word)).collect();
            output::fact("command", escape(&words.join(" ")))?;
            output::list("env", env.iter().map(|(name, text)| format!("{name}={text}")))
        }
        Start::Forward { forward, headers, part } => {
            let headers = headers.iter().map(|(name, text)| format!("{name}: {text}"));
            let part = part.then(|| "a part of the body in place of all of it".to_owned());
            output::list("forward", iter::once(forward.clone()).chain(headers).chain(part))
        }
    }
}

/// What the values look at; the rest is that of a first attempt now.
fn facts(handler: &Handler, delivered: &Delivered) -> Facts {
    let now = Clock::system().now();
    Facts {
        handler: handler.name.clone(),
        job: crate::random::job_id(now),
        attempt: 1,
        replays: 0,
        source: delivered.source.clone(),
        caller: None,
        event_id: delivered.id.clone(),
        event_type: EventType::from_raw(&delivered.event_type),
        received_at: now,
        headers: delivered.headers.clone(),
        body: delivered.body.clone(),
    }
}
