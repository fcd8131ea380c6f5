//! `hooklatch explain`: prints what happened to an event, why, and what happens next. The store's record
//! comes from the receiver or the database; `explainer` and `next` write the sentences.

mod explainer;
mod next;

use serde::Serialize;

use crate::cli;
use crate::clock::Clock;
use crate::exit::{Exit, Failure};
use crate::model::{JobId, Name, State, Timestamp};

use super::output::{self, escape, local};
use super::{ids, store};
use explainer::Explainer;

/// One event explained.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Explanation {
    source: Name,
    event: String,
    event_type: String,
    /// Why it was accepted, and what happened to it since.
    arrival: Vec<String>,
    /// What the replay guard decided, and why.
    replay_guard: String,
    /// Every handler of its source, and every handler that has a job for it.
    handlers: Vec<HandlerPart>,
    /// What the operator can do if no handler wants the event.
    next: Option<Next>,
}

/// How a handler treats the event.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct HandlerPart {
    handler: Name,
    /// Whether the current configuration gives this event to the handler.
    wants: bool,
    why: String,
    job: Option<JobPart>,
    /// What to do if the handler wants the event and has no job for it.
    next: Option<Next>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct JobPart {
    job: JobId,
    state: State,
    reason: Option<String>,
    attempts: Vec<String>,
    next: Next,
}

/// What happens next.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Next {
    what: String,
    /// When it happens, if known.
    at: Option<Timestamp>,
    /// The command to type, if the operator has to act.
    command: Option<String>,
}

/// Explains every event with the given id: variants, or events of several sources. For the id of a job,
/// explains the job's event.
pub(super) fn run(args: &cli::Explain) -> Result<Exit, Failure> {
    let config = store::load(&args.file.config)?;
    let found = store::with_client(&config, async |client| {
        let target = ids::event_or_job(client, args.source.as_ref(), &args.event).await?;
        ids::shown(client, &target).await
    })?;
    let suffix = output::config_suffix(&args.file.config);
    let time = if args.format.json { |time: Timestamp| time.to_string() } else { local };
    let explainer =
        Explainer { config: &config, now: Clock::system().now(), time, suffix: &suffix };
    let all: Vec<Explanation> = found.iter().map(|detail| explainer.explain(detail)).collect();
    if args.format.json {
        output::json(&all)?;
    } else {
        for (nth, facts) in all.iter().flat_map(paragraphs).enumerate() {
            if nth > 0 {
                output::line("")?;
            }
            facts.iter().try_for_each(|(about, text)| output::fact(about, escape(text)))?;
        }
    }
    Ok(Exit::Ok)
}

/// A line of output: its label, which is empty if it continues the line before, and its text.
type Fact = (&'static str, String);

/// The explanation as text: one paragraph for the event, then one for each handler.
fn paragraphs(all: &Explanation) -> Vec<Vec<Fact>> {
    let Explanation { event, event_type, source, .. } = all;
    let mut facts = vec![("event", format!("{event} of type {event_type}, source {source}"))];
    let about = std::iter::once("arrival").chain(std::iter::repeat(""));
    facts.extend(about.zip(all.arrival.iter().cloned()));
    facts.push(("", format!("replay guard: {}", all.replay_guard)));
    facts.extend(all.next.iter().flat_map(Next::facts));
    let handlers = all.handlers.iter().map(HandlerPart::facts);
    std::iter::once(facts).chain(handlers).collect()
}

impl HandlerPart {
    fn facts(&self) -> Vec<Fact> {
        let wants = if self.wants { "wants it" } else { "does not want it" };
        let mut facts = vec![("handler", format!("{} {wants}: {}", self.handler, self.why))];
        if let Some(JobPart { job, state, reason, attempts, next }) = &self.job {
            let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            facts.push(("job", format!("{job} is {state}{reason}")));
            facts.extend(attempts.iter().map(|attempt| ("", attempt.clone())));
            facts.extend(next.facts());
        }
        facts.extend(self.next.iter().flat_map(Next::facts));
        facts
    }
}

impl Next {
    fn facts(&self) -> Vec<Fact> {
        let mut facts = vec![("next", self.what.clone())];
        facts.extend(self.command.iter().map(|command| ("", command.clone())));
        facts
    }
}

#[cfg(test)]
mod tests;
