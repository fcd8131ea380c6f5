//! What became of an event and why, in sentences: a pure function of the configuration, what the store
//! has of the event, and the time.
//!
//! What must stay true: nothing is said that neither of the two shows. The configuration is today's: where
//! it may have been another when the event came, the sentence is about today.

use std::time::Duration;

use serde::Serialize;

use crate::config::{Config, Described};
use crate::model::{
    Broken, DeadReason, HeldReason, INTERNAL_SOURCE, JobId, Name, OnUnknown, ReplayGuard, State,
    Timestamp,
};
use crate::pattern::Pattern;
use crate::retry::GiveUp;
use crate::store::{AttemptRow, EventDetail, EventRow, JobDetail, JobRow, KeyRow};

use crate::cmd::events::jobs;
use crate::cmd::output::{count, span};

/// One event explained.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Story {
    pub(super) source: Name,
    pub(super) event: String,
    pub(super) event_type: String,
    /// Why it was accepted, and what came after it.
    pub(super) arrival: Vec<String>,
    /// What the replay guard made of it.
    pub(super) replay_guard: String,
    /// Every handler of its source, and every one that has a job of it.
    pub(super) handlers: Vec<HandlerStory>,
    /// Where no handler wants it: what can be done.
    pub(super) next: Option<Next>,
}

/// What one handler has to do with the event.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct HandlerStory {
    pub(super) handler: Name,
    /// Whether it wants the event by today's configuration.
    pub(super) wants: bool,
    pub(super) why: String,
    pub(super) job: Option<JobStory>,
    /// Where it wants the event and has no job of it.
    pub(super) next: Option<Next>,
}

/// One job.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct JobStory {
    pub(super) job: JobId,
    pub(super) state: State,
    pub(super) reason: Option<String>,
    pub(super) attempts: Vec<String>,
    pub(super) next: Next,
}

/// What happens next.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Next {
    pub(super) what: String,
    /// When, where that is known.
    pub(super) at: Option<Timestamp>,
    /// What to type, where something is to be done.
    pub(super) command: Option<String>,
}

/// What the sentences are made with.
pub(super) struct Telling<'a> {
    pub(super) config: &'a Config,
    pub(super) now: Timestamp,
    /// How times are written.
    pub(super) time: fn(Timestamp) -> String,
    /// What a command needs to find this configuration.
    pub(super) suffix: &'a str,
}

impl Telling<'_> {
    /// Explains one event.
    pub(super) fn story(&self, detail: &EventDetail) -> Story {
        let event = &detail.event;
        let mut handlers: Vec<HandlerStory> = self
            .config
            .described()
            .filter(|handler| handler.sources.contains(&event.source.as_str()))
            .map(|handler| self.configured(detail, &handler))
            .collect();
        for job in &detail.jobs {
            if handlers.iter().all(|told| told.handler != job.job.handler) {
                handlers.push(self.not_its_own(detail, job));
            }
        }
        let known = self.config.mistakes().is_empty();
        let idle = known && event.jobs.is_empty() && !handlers.iter().any(|handler| handler.wants);
        Story {
            source: event.source.clone(),
            event: event.event_id.to_string(),
            event_type: type_of(event).to_owned(),
            arrival: self.arrival(detail),
            replay_guard: self.guard(detail),
            next: idle.then(|| self.nobody(event)),
            handlers,
        }
    }

    /// How a sentence about a missing handler or source begins.
    fn lacks(&self) -> &'static str {
        match self.config.mistakes() {
            [] => "the configuration no longer has",
            _ => "what could be read of the configuration does not have",
        }
    }

    fn command(&self, typed: String) -> Option<String> {
        Some(format!("hooklatch {typed}{}", self.suffix))
    }

    fn arrival(&self, detail: &EventDetail) -> Vec<String> {
        let mut said = self.came(detail);
        said.extend(detail.restores.iter().map(|restored| {
            let (at, made) = ((self.time)(restored.restored_at), (self.time)(restored.made_at));
            format!(
                "the store was restored {at} from a backup of {made}: what its handlers did with it in \
                 between is not known, and what was not finished is held"
            )
        }));
        said
    }

    fn came(&self, detail: &EventDetail) -> Vec<String> {
        let event = &detail.event;
        let (first, source) = ((self.time)(event.received_at), &event.source);
        if source.as_str() == INTERNAL_SOURCE {
            return vec![format!("made by the receiver itself {first}: nobody delivered it")];
        }
        let proof = match self.config.scheme_of(source) {
            Some(scheme) if scheme.is_unsigned() => "the source takes unsigned deliveries",
            _ => "its signature was good",
        };
        let replies = self.config.replies(source);
        let mut said = match (event.variant, &detail.key) {
            (_, Some(key)) => self.keyed(event, key, proof),
            (_, None) if replies => vec![format!(
                "accepted {first}: {proof}, and its key was new; the key has been given up since: a request \
                 with it would be a new one"
            )],
            (0, None) => {
                vec![format!("accepted {first}: {proof}, and its id was new to source {source}")]
            }
            (variant, None) => vec![format!(
                "accepted {first} as an event of its own (variant {variant}): {proof}, its id had come \
                 before with another body or type, and the signature does not cover the id"
            )],
        };
        if let (duplicates @ 1.., Some(last)) = (event.duplicates, event.last_duplicate_at) {
            let (times, last) = (count(duplicates, "time"), (self.time)(last));
            let then = if self.config.replays_dead(source) {
                "which puts back what is dead"
            } else {
                "and nothing was run for it"
            };
            said.push(format!(
                "delivered again {times}, the last {last}: answered as a duplicate of the delivery of \
                 {first}, {then}"
            ));
        }
        if event.conflicts > 0 {
            let conflicts = count(event.conflicts, "duplicate");
            said.push(format!(
                "{conflicts} had another body under the same signed id: kept as evidence, not run"
            ));
        }
        if !event.payload_kept {
            said.push("its payload has been deleted by retention: it cannot run again".to_owned());
            if were_removed(detail) {
                let jobs = jobs(event);
                said.push(format!(
                    "its jobs were removed with the payload, as they had ended: {jobs}"
                ));
            }
        }
        said
    }

    /// A request whose handler's answer its caller gets.
    fn keyed(&self, event: &EventRow, key: &KeyRow, proof: &str) -> Vec<String> {
        let first = (self.time)(event.received_at);
        let until = (self.time)(key.error_until.unwrap_or(key.expires_at));
        let caller = match key.caller.as_str() {
            "" => String::new(),
            caller => format!(" of caller {caller}"),
        };
        let mut said = vec![format!(
            "accepted {first}: {proof}, and the key{caller} was new to source {}",
            event.source
        )];
        said.push(match (key.status, key.answered_at) {
            (Some(status), Some(at)) => format!(
                "answered with {status}, {}: the same request gets the same answer until {until}, and \
                 another one with this key is refused",
                (self.time)(at)
            ),
            _ => "not answered yet: another request with this key is refused, and the same one waits for \
                  the answer, or is told how it stands"
                .to_owned(),
        });
        said
    }

    fn guard(&self, detail: &EventDetail) -> String {
        let event = &detail.event;
        if event.source.as_str() == INTERNAL_SOURCE {
            return "not needed: nobody outside can make such an event".to_owned();
        }
        let Some(scheme) = self.config.scheme_of(&event.source) else {
            return format!("not known: {} the source", self.lacks());
        };
        if scheme.signs_id() {
            return "not needed: the signature covers the event id".to_owned();
        }
        if event.variant > 0 {
            return "not asked: a reused id holds every job by itself".to_owned();
        }
        let earlier = detail.twins.iter().find(|twin| twin.received_at <= event.received_at);
        let first = earlier.map(|twin| {
            let at = (self.time)(twin.received_at);
            format!(
                "the same signed body came first as event {} of type {}, {at}",
                twin.event_id, twin.event_type
            )
        });
        let held = HeldReason::SuspectedReplay.as_str();
        let is_held = detail.jobs.iter().any(|job| job.job.reason.as_deref() == Some(held));
        let guard = scheme.guard_for(&event.event_type);
        match (first, is_held, event.flagged) {
            (first, true, _) => {
                let first = first.unwrap_or_else(|| "the same signed body came before".to_owned());
                format!("held: {first}, and the id is not signed, so this may be a replay")
            }
            (first, _, true) => {
                let first = first.unwrap_or_else(|| "the same signed body came before".to_owned());
                format!("let it run, marked: {first}; bodies of this type honestly repeat")
            }
            (None, ..) if guard == ReplayGuard::Off => "off for this provider".to_owned(),
            (None, ..) => {
                "passed: no earlier event of the source has the same signed body".to_owned()
            }
            (Some(first), ..) if event.jobs.is_empty() => {
                format!("{first}; there was no job to hold")
            }
            (Some(first), ..) => format!("{first}; no job is held for it now"),
        }
    }

    fn configured(&self, detail: &EventDetail, handler: &Described<'_>) -> HandlerStory {
        let (event, name) = (&detail.event, handler.name);
        let two_levels = self.config.two_levels(&event.source);
        let matches = |text: &&&str| Pattern::new(**text, two_levels).matches(&event.event_type);
        let matching = handler.events.iter().find(matches);
        let job = detail.jobs.iter().find(|job| job.job.handler == *name);
        let event_type = type_of(event);
        let why = match (matching, job) {
            (Some(pattern), _) => {
                let matches = match *pattern == event_type {
                    true => String::new(),
                    false => format!(", which matches {event_type}"),
                };
                format!("its events include \"{pattern}\"{matches}")
            }
            (None, None) => {
                format!("none of its events matches {event_type}: {}", listed(&handler.events))
            }
            (None, Some(_)) => format!(
                "none of its events matches {event_type} now ({}), but the job was made",
                listed(&handler.events)
            ),
        };
        let missing = matching.is_some() && job.is_none();
        let next = missing.then(|| {
            let id = event.event_id.shell_word();
            let source = &event.source;
            let typed = format!("replay {id} --source {source} --handler {name}");
            let what = match were_removed(detail) {
                true => "no job any more: where it had one, that has ended, and was removed",
                false => "no job: the handler came, or was changed, after the event",
            };
            // Without its payload nothing of it can run.
            let command = self.command(typed).filter(|_| event.payload_kept);
            Next { what: what.to_owned(), at: None, command }
        });
        HandlerStory {
            handler: name.clone(),
            wants: matching.is_some(),
            why,
            job: job.map(|job| self.job(detail, job, Some(handler))),
            next,
        }
    }

    /// A handler with a job of the event, and without its source or not there at all.
    fn not_its_own(&self, detail: &EventDetail, job: &JobDetail) -> HandlerStory {
        let handler = self.config.described().find(|known| *known.name == job.job.handler);
        let why = match handler {
            Some(_) => {
                "it takes no events of this source any more, but the job was made".to_owned()
            }
            None => format!("{} it", self.lacks()),
        };
        HandlerStory {
            handler: job.job.handler.clone(),
            wants: false,
            why,
            job: Some(self.job(detail, job, handler.as_ref())),
            next: None,
        }
    }

    fn nobody(&self, event: &EventRow) -> Next {
        let id = event.event_id.shell_word();
        Next {
            what: "nothing: no handler wants it. Add its type to a handler's events, reload, and make the \
                   job"
                .to_owned(),
            at: None,
            command: self.command(format!("replay {id} --source {} --handler HANDLER", event.source)),
        }
    }

    fn job(
        &self,
        event: &EventDetail,
        detail: &JobDetail,
        handler: Option<&Described<'_>>,
    ) -> JobStory {
        let row = &detail.job;
        let waited_for = event.key.as_ref().is_some_and(|key| key.answered_at.is_none());
        JobStory {
            job: row.job,
            state: row.state,
            reason: row.reason.clone(),
            attempts: detail.attempts.iter().map(|attempt| self.attempt(attempt)).collect(),
            next: self.next(&event.event, detail, handler, waited_for),
        }
    }

    fn attempt(&self, row: &AttemptRow) -> String {
        let (number, start) = (row.number, (self.time)(row.started_at));
        match (row.outcome, row.finished_at) {
            (Some(outcome), Some(end)) => {
                let took = end.since(row.started_at).as_secs_f64();
                let detail = &row.record.detail;
                let said = if detail.is_empty() { String::new() } else { format!(": {detail}") };
                format!("attempt {number}, {start}: {outcome} after {took:.1} s{said}")
            }
            _ => format!("attempt {number}, {start}: still runs"),
        }
    }

    /// `waited_for`: its caller has no answer yet.
    fn next(
        &self,
        event: &EventRow,
        detail: &JobDetail,
        handler: Option<&Described<'_>>,
        waited_for: bool,
    ) -> Next {
        let (row, job) = (&detail.job, detail.job.job);
        let next = |what: String, command| Next { what, at: None, command };
        match row.state {
            State::Ready | State::Waiting if row.paused => next(
                "waits until its handler is resumed".to_owned(),
                self.command(format!("resume {}", row.handler)),
            ),
            State::Ready | State::Waiting if let Some(broken) = &row.broken => {
                self.tries_again(row, broken)
            }
            State::Ready => next("runs as soon as its handler has a free slot".to_owned(), None),
            State::Waiting => self.again(row, handler),
            State::Running => {
                let id = event.event_id.shell_word();
                let show = self.command(format!("show {id} --source {} --follow", event.source));
                let unknown = handler.map_or("", |handler| match handler.on_unknown {
                    OnUnknown::Hold => "; if it ends without a word, the job is held",
                    OnUnknown::Rerun => "; if it ends without a word, it runs again",
                });
                next(
                    format!("attempt {} runs, and its end is recorded{unknown}", row.attempt),
                    show.filter(|_| handler.is_none_or(|handler| handler.is_command)),
                )
            }
            State::Succeeded => next("nothing: it is done".to_owned(), None),
            State::Dropped => {
                next("nothing: it was taken out and never runs again".to_owned(), None)
            }
            _ if !event.payload_kept => next(
                "it cannot run again without its payload: drop it".to_owned(),
                self.command(format!("drop {job}")),
            ),
            State::Held if waited_for => next(
                format!(
                    "nothing until you say how it ended, and its caller is told to ask you: look at what it \
                     should have done, then `resolve {job} --succeeded --answer FILE` with the answer, or \
                     `resolve {job} --failed`, which frees its key, or run it again (`replay --job {job}`)"
                ),
                self.command(format!(
                    "show {} --source {}",
                    event.event_id.shell_word(),
                    event.source
                )),
            ),
            State::Dead if waited_for => next(
                "runs again when its caller sends the request again".to_owned(),
                self.command(format!("replay --job {job}")),
            ),
            State::Held => self.held(event, row),
            State::Dead => {
                let resolved = row.reason.as_deref() == Some(DeadReason::Resolved.as_str());
                let what = if resolved {
                    "nothing: you have resolved it as failed"
                } else {
                    "nothing by itself: fix the cause, then replay it"
                };
                next(what.to_owned(), self.command(format!("replay --job {job}")))
            }
        }
    }

    /// A job whose handler cannot run.
    fn tries_again(&self, row: &JobRow, broken: &Broken) -> Next {
        let at = row.due_at.max(Some(broken.next_try_at));
        let wait = at.map_or(Duration::ZERO, |at| at.since(self.now));
        let when = match wait.is_zero() {
            true => "now".to_owned(),
            false => format!("in {}", span(wait)),
        };
        Next { what: format!("tries again {when}: {}", broken.cause), at, command: None }
    }

    /// A job that waits for its next attempt.
    fn again(&self, row: &JobRow, handler: Option<&Described<'_>>) -> Next {
        let bound = handler.map_or(String::new(), |handler| match handler.give_up {
            GiveUp::Attempts(most) => format!(", of {most} that count"),
            GiveUp::After(time) => {
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                format!(", tried for {} in all", span(Duration::from_millis(millis)))
            }
        });
        let number = row.attempt + 1;
        let what = match row.due_at {
            Some(due) if due > self.now => {
                let wait = u64::try_from(due.0.saturating_sub(self.now.0)).unwrap_or(0);
                format!(
                    "attempt {number}{bound}, in {} ({})",
                    span(Duration::from_millis(wait)),
                    (self.time)(due)
                )
            }
            _ => format!(
                "attempt {number}{bound}, now that it is due, as soon as its handler has a free slot"
            ),
        };
        Next { what, at: row.due_at, command: None }
    }

    /// A job that waits for a person. Where something has to be found out first, the command is one that
    /// only looks: a pasted one must not settle what nobody has looked at.
    fn held(&self, event: &EventRow, row: &JobRow) -> Next {
        let job = row.job;
        let reason = row.reason.as_deref().and_then(|reason| reason.parse::<HeldReason>().ok());
        let look = format!("show {} --source {}", event.event_id.shell_word(), event.source);
        let replay = format!("replay --job {job}");
        let (what, typed) = match reason {
            Some(HeldReason::UnknownOutcome) => (
                format!(
                    "nothing until you say how it ended: look at what it should have done, then \
                     `resolve {job}` as --succeeded or --failed, or run it again (`{replay}`)"
                ),
                look,
            ),
            Some(HeldReason::SuspectedReplay | HeldReason::IdReused) => (
                format!(
                    "nothing until you decide: look at it, then run it if it is genuine (`{replay}`), \
                     else `drop {job}`"
                ),
                look,
            ),
            Some(HeldReason::Cancelled) => {
                (format!("nothing until you decide: run it again, or `drop {job}`"), replay)
            }
            Some(HeldReason::HandlerGone) => (
                format!(
                    "nothing while its handler is missing: configure it again, reload, and put \
                     the job back, or `drop {job}`"
                ),
                replay,
            ),
            Some(HeldReason::Restored) | None => (
                format!(
                    "nothing until you decide: it may have run after the backup was made; look, then \
                     run it again (`{replay}`), or `drop {job}`"
                ),
                look,
            ),
        };
        Next { what, at: None, command: self.command(typed) }
    }
}

/// Whether retention has removed its jobs: they had succeeded or been dropped.
fn were_removed(detail: &EventDetail) -> bool {
    detail.jobs.is_empty() && !detail.event.jobs.is_empty()
}

/// The type as the provider gave it.
fn type_of(event: &EventRow) -> &str {
    event.raw_type.as_deref().unwrap_or(&event.event_type)
}

fn listed(events: &[&str]) -> String {
    events.iter().map(|event| format!("\"{event}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
