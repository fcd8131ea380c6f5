//! An explained event, for programs and for people.

use serde::Serialize;

use crate::cmd::delivered::Judgement;
use crate::model::{JobId, Name, State, Timestamp};

/// One event explained.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Explanation {
    pub(crate) source: Name,
    pub(crate) event: String,
    pub(crate) event_type: String,
    /// Why it was accepted, and what happened to it since.
    pub(crate) arrival: Vec<String>,
    /// What the replay guard decided, and why.
    pub(crate) replay_guard: String,
    /// Every handler of its source, and every handler that has a job for it.
    pub(crate) handlers: Vec<HandlerPart>,
    /// What the operator can do if no handler wants the event.
    pub(crate) next: Option<Next>,
}

/// How a handler treats the event.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HandlerPart {
    pub(crate) handler: Name,
    /// Whether the current configuration gives this event to the handler.
    pub(crate) wants: bool,
    pub(crate) why: String,
    /// What its condition reads of the event, by the current configuration.
    pub(crate) conditions: Judgement,
    pub(crate) job: Option<JobPart>,
    /// What to do if the handler wants the event and has no job for it.
    pub(crate) next: Option<Next>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct JobPart {
    pub(crate) job: JobId,
    pub(crate) state: State,
    pub(crate) reason: Option<String>,
    pub(crate) attempts: Vec<String>,
    pub(crate) next: Next,
}

/// What happens next.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Next {
    pub(crate) what: String,
    /// When it happens, if known.
    pub(crate) at: Option<Timestamp>,
    /// The command to type, if the operator has to act.
    pub(crate) command: Option<String>,
}

/// A line of output: its label, which is empty if it continues the line before, and its text.
pub(crate) type Fact = (&'static str, String);

/// The explanation as text: one paragraph for the event, then one for each handler.
pub(crate) fn paragraphs(all: &Explanation) -> Vec<Vec<Fact>> {
    let (event, source) = (&all.event, &all.source);
    let mut facts = vec![("event", format!("{event} of type {}, source {source}", all.event_type))];
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
        facts.extend(self.conditions.lines().into_iter().map(|line| ("", line)));
        let undecided = self.conditions.undecided.iter();
        let open = "by the configuration of now it cannot be decided";
        facts.extend(undecided.map(|why| ("", format!("{open}: {why}"))));
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
