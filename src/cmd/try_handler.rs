//! `hooklatch try`: shows what a handler would do with an event. Nothing is run, stored or sent.

use serde::Serialize;

use crate::cli;
use crate::config::{Config, Handler};
use crate::exit::{Exit, Failure};
use crate::model::{EventId, Name};
use crate::pattern::Pattern;
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
    /// `None` if it cannot be decided.
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
    let [only] = &found[..] else {
        let message = format!("{} events have this id", found.len());
        return Err(Failure::new(Exit::WrongState, message)
            .help(format!("hooklatch show {typed} lists them; --source names one")));
    };
    Delivered::of(only).ok_or_else(|| {
        Failure::new(Exit::NotFound, "the payload of this event has been deleted")
            .help("storage.keep_payloads says how long payloads are kept")
    })
}

/// The delivery that the command line describes.
fn named(args: &cli::Try, config: &Config, handler: &Handler) -> Result<Delivered, Failure> {
    let wrong = |message: String| Failure::new(Exit::Usage, message);
    let takes: Vec<&Name> = config.source_names().filter(|source| handler.takes(source)).collect();
    let source = match (&args.source, &takes[..]) {
        (Some(source), _) if takes.contains(&source) => source,
        (Some(source), _) => {
            let message = format!("handler {} takes no events of source '{source}'", handler.name);
            return Err(
                Failure::new(Exit::NotFound, message).help("its `source` key says of which")
            );
        }
        (None, [only]) => only,
        (None, _) => {
            let message =
                format!("handler {} takes events of {} sources", handler.name, takes.len());
            return Err(wrong(message).help("name one: --source NAME"));
        }
    };
    let body = match &args.body {
        Some(file) => input::read(file, config.limits().bodies_in_flight_bytes)?,
        None => Vec::new(),
    };
    let headers = super::verify::headers(&args.headers)?;
    let scheme = config.scheme_of(source);
    let of_body = || verify::claimed_type(scheme?, &headers, &body).map(|found| found.to_string());
    let event_type = args.event_type.clone().or_else(of_body).ok_or_else(|| {
        wrong("neither the body nor a header says the event's type".to_owned())
            .help("name it: --type TYPE")
    })?;
    let id = scheme.and_then(|scheme| verify::claimed_id(scheme, &headers, &body));
    let id = id.map_or("(new)".to_owned(), |id| id.to_string());
    Ok(Delivered { source: source.clone(), id, event_type, headers, body })
}

impl Trial {
    fn of(config: &Config, handler: &Handler, delivered: &Delivered) -> Self {
        let two_levels = config.two_levels(&delivered.source);
        let matches = handler
            .patterns()
            .find(|text| Pattern::new(*text, two_levels).matches(&delivered.event_type));
        let judgement = delivered.judged_by(handler, config);
        let would_run = if matches.is_some() { judgement.holds } else { Some(false) };
        Trial {
            handler: handler.name.clone(),
            source: delivered.source.clone(),
            event: delivered.id.clone(),
            event_type: delivered.event_type.clone(),
            matches: matches.map(str::to_owned),
            judgement,
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
        for (nth, line) in judgement.lines().iter().enumerate() {
            output::fact(if nth == 0 { "when" } else { "" }, escape(line))?;
        }
        if let Some(group) = &judgement.group {
            output::fact("group", escape(group))?;
        }
        let verdict = match (self.would_run, &judgement.undecided) {
            (Some(true), _) => "would run".to_owned(),
            (Some(false), _) => "would not run".to_owned(),
            (None, why) => format!(
                "cannot be decided: {}; its job would be held",
                why.as_deref().unwrap_or_default()
            ),
        };
        output::fact("handler", escape(&format!("{handler} {verdict}")))
    }
}
