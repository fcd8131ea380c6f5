//! Explains an event in sentences. It is pure: it uses only the configuration, what the nodes of a database publish of
//! theirs, the store's record of the event, and the time.
//!
//! `hooklatch explain` calls it. Must stay true: every sentence follows from those four. It has today's
//! configurations only, so a sentence must not claim what a configuration was when the event arrived. The record does not
//! say which node accepted the event.

use crate::config::{Config, Handler};
use crate::model::{
    HeldReason, INTERNAL_SOURCE, Name, OnRedelivery, Repeats, ReplayGuard, SENDER_ID, Timestamp,
};
use crate::store::{AttemptRow, EventDetail, EventRow, JobDetail, KeyRow, NodeRow};

use super::explanation::{Explanation, HandlerPart, JobPart, Next};
use crate::cmd::delivered::Delivered;
use crate::cmd::events::{jobs, type_of};
use crate::cmd::output::count;

/// What the operator can do if no handler wants the event.
const UNWANTED: &str =
    "nothing: no handler wants it. Add its type to a handler's events, reload, and make the job";

/// The keys by which a handler chooses its events.
const CHOOSING: [&str; 3] = ["events", "sources", "when"];

pub(crate) struct Explainer<'a> {
    pub(crate) config: &'a Config,
    /// The nodes of the database; empty for a store in a file.
    pub(crate) nodes: &'a [NodeRow],
    pub(crate) now: Timestamp,
    /// Writes a time for the chosen output.
    pub(crate) time: fn(Timestamp) -> String,
    /// The arguments that a command needs to find this configuration; may be empty.
    pub(crate) suffix: &'a str,
}

impl Explainer<'_> {
    pub(crate) fn explain(&self, detail: &EventDetail) -> Explanation {
        let event = &detail.event;
        let handlers = self.handlers(detail);
        let whole = self.config.mistakes().is_empty();
        let is_open = |one: &HandlerPart| one.wants || self.is_elsewhere(&one.handler);
        let idle = whole && event.jobs.is_empty() && !handlers.iter().any(is_open);
        Explanation {
            source: event.source.clone(),
            event: event.event_id.to_string(),
            event_type: type_of(event).to_owned(),
            arrival: self.arrival(detail),
            replay_guard: self.guard(detail),
            next: idle.then(|| self.next(UNWANTED, Some(make_job(event, "HANDLER")))),
            handlers,
        }
    }

    pub(crate) fn next(&self, what: impl Into<String>, typed: Option<String>) -> Next {
        let command = typed.map(|typed| format!("hooklatch {typed}{}", self.suffix));
        Next { what: what.into(), at: None, command }
    }

    /// The beginning of a sentence about a missing handler or source.
    fn lacks(&self) -> &'static str {
        match self.config.mistakes() {
            [] => "the configuration no longer has",
            _ => "what could be read of the configuration does not have",
        }
    }

    fn arrival(&self, detail: &EventDetail) -> Vec<String> {
        let event = &detail.event;
        let mut lines = vec![self.acceptance(detail)];
        lines.extend(self.naming(detail));
        lines.extend(detail.key.as_ref().map(|key| self.answer(key)));
        lines.extend(self.repeats(event));
        if event.conflicts > 0 {
            let conflicts = count(event.conflicts, "duplicate");
            lines.push(format!(
                "{conflicts} had another body under the same signed id: kept as evidence, not run"
            ));
        }
        if detail.damaged {
            let damaged =
                "its payload is damaged: no job of it starts, and a later delivery may mend it";
            lines.push(damaged.to_owned());
        }
        if !event.payload_kept {
            lines.push("its payload has been deleted by retention: it cannot run again".to_owned());
            let removed = "its jobs were removed with the payload, as they had ended";
            lines.extend(were_removed(detail).then(|| format!("{removed}: {}", jobs(event))));
        }
        lines.extend(detail.restores.iter().map(|restored| {
            let event = restored.event(self.time);
            format!(
                "the store was restored {event}: what its handlers did with it in between is not known, \
                 and what was not finished is held"
            )
        }));
        lines
    }

    /// Why the event's id is a digest, unless its provider's file says so.
    fn naming(&self, detail: &EventDetail) -> Option<String> {
        let (event, scheme) = (&detail.event, self.config.scheme_of(&detail.event.source));
        let own = detail.headers.iter().find(|(name, _)| name == SENDER_ID);
        match own {
            _ if !event.event_id.is_derived() => None,
            Some((_, own)) => Some(format!(
                "its id is the SHA-256 of the sender's, which is not an event id: {own}"
            )),
            None if scheme.is_some_and(|scheme| scheme.identity().id_is_digest()) => None,
            None => {
                Some("its id is the SHA-256 of its body: the sender gave none, or two".to_owned())
            }
        }
    }

    fn acceptance(&self, detail: &EventDetail) -> String {
        let event = &detail.event;
        let (at, source) = ((self.time)(event.received_at), &event.source);
        if source.as_str() == INTERNAL_SOURCE {
            return format!("made by the receiver itself {at}: no provider delivered it");
        }
        let proof = match self.config.scheme_of(source) {
            Some(scheme) if scheme.proof().is_absent() => "the source takes unsigned deliveries",
            _ => "its signature was good",
        };
        let caller = match &detail.key {
            Some(key) if !key.caller.is_empty() => format!(" of caller {}", key.caller),
            _ => String::new(),
        };
        let replies = self.config.source(source).is_some_and(|own| own.replies.is_some());
        match event.variant {
            _ if detail.key.is_some() => {
                format!("accepted {at}: {proof}, and the key{caller} was new to source {source}")
            }
            _ if replies => format!(
                "accepted {at}: {proof}, and its key was new; the key has been given up since: a \
                 request with it would be a new one"
            ),
            0 => format!("accepted {at}: {proof}, and its id was new to source {source}"),
            variant if self.repeats_are_events(event) => format!(
                "accepted {at} as a separate event (variant {variant}): {proof}; it equals an earlier \
                 request, and `repeats` of source {source} allows that"
            ),
            variant => format!(
                "accepted {at} as an event of its own (variant {variant}): {proof}, its id had come \
                 before with another body or type, and the signature does not cover the id"
            ),
        }
    }

    /// The answer that the caller of a request with a key gets.
    fn answer(&self, key: &KeyRow) -> String {
        let until = (self.time)(key.error_until.unwrap_or(key.expires_at));
        match (key.status, key.answered_at) {
            (Some(status), Some(at)) => format!(
                "answered with {status}, {}: the same request gets the same answer until {until}, and \
                 another one with this key is refused",
                (self.time)(at)
            ),
            _ => "not answered yet: another request with this key is refused, and the same one waits for \
                  the answer, or is answered with its state"
                .to_owned(),
        }
    }

    fn repeats(&self, event: &EventRow) -> Option<String> {
        let last = event.last_duplicate_at.filter(|_| event.duplicates > 0)?;
        let times = count(event.duplicates, "time");
        let (first, last) = ((self.time)(event.received_at), (self.time)(last));
        let policy = self.config.source(&event.source).map(|source| source.on_redelivery);
        let effect = match policy {
            Some(OnRedelivery::ReplayDead) => "which puts back what is dead",
            _ => "and nothing was run for it",
        };
        Some(format!(
            "delivered again {times}, the last {last}: answered as a duplicate of the delivery of \
             {first}, {effect}"
        ))
    }

    /// Whether an equal request may be another event with this event's id.
    fn repeats_are_events(&self, event: &EventRow) -> bool {
        let scheme = self.config.scheme_of(&event.source);
        event.event_id.is_derived()
            && scheme.is_some_and(|scheme| scheme.identity().repeats != Repeats::Duplicate)
    }

    fn guard(&self, detail: &EventDetail) -> String {
        let event = &detail.event;
        if event.source.as_str() == INTERNAL_SOURCE {
            return "not needed: only the receiver can make such an event".to_owned();
        }
        let Some(scheme) = self.config.scheme_of(&event.source) else {
            return format!("not known: {} the source", self.lacks());
        };
        if scheme.proof().covers_id() {
            return "not needed: the signature covers the event id".to_owned();
        }
        if event.variant > 0 && !self.repeats_are_events(event) {
            return "not asked: a reused id holds every job by itself".to_owned();
        }
        let earlier = detail.twins.iter().find(|twin| twin.received_at <= event.received_at);
        let body = match earlier {
            Some(twin) => {
                let (id, kind, at) =
                    (&twin.event_id, &twin.event_type, (self.time)(twin.received_at));
                format!("the same signed body came first as event {id} of type {kind}, {at}")
            }
            None => "the same signed body came before".to_owned(),
        };
        let held = Some(HeldReason::SuspectedReplay.as_str());
        if detail.jobs.iter().any(|job| job.job.reason.as_deref() == held) {
            return format!("held: {body}, and the id is not signed, so this may be a replay");
        }
        match earlier {
            _ if event.flagged => {
                format!("let it run, marked: {body}; bodies of this type honestly repeat")
            }
            Some(_) if event.jobs.is_empty() => format!("{body}; there was no job to hold"),
            Some(_) => format!("{body}; no job is held for it now"),
            None if scheme.identity().guard_for(&event.event_type) == ReplayGuard::Off => {
                "off for this provider".to_owned()
            }
            None => "passed: no earlier event of the source has the same signed body".to_owned(),
        }
    }

    /// The handlers of the event's source, followed by other handlers that have a job for it, and by handlers of the source
    /// that only other nodes have.
    fn handlers(&self, detail: &EventDetail) -> Vec<HandlerPart> {
        let delivered = Delivered::of(detail);
        let own = self.config.takers(&detail.event.source).map(|handler| &handler.name);
        let mut names: Vec<&Name> = own.collect();
        for JobDetail { job, .. } in &detail.jobs {
            if !names.contains(&&job.handler) {
                names.push(&job.handler);
            }
        }
        for own in self.nodes.iter().flat_map(|node| &node.handlers) {
            let takes = own.sources.iter().any(|source| source == detail.event.source.as_str());
            if takes && self.is_elsewhere(&own.handler) && !names.contains(&&own.handler) {
                names.push(&own.handler);
            }
        }
        names.into_iter().map(|name| self.handler(detail, delivered.as_ref(), name)).collect()
    }

    fn handler(
        &self,
        detail: &EventDetail,
        delivered: Option<&Delivered>,
        name: &Name,
    ) -> HandlerPart {
        let (event, event_type) = (&detail.event, type_of(&detail.event));
        let handler = self.config.handler(name);
        let taker = handler.filter(|handler| handler.takes(&event.source));
        let matching =
            taker.and_then(|taker| self.config.matching(taker, &event.source, &event.event_type));
        let judged = delivered.zip(taker).filter(|_| matching.is_some());
        let conditions = judged.map(|(own, taker)| own.judged_by(taker, self.config));
        let conditions = conditions.unwrap_or_default();
        let refuses = conditions.holds == Some(false);
        // A page reads no long body.
        let reads = taker.is_some_and(|taker| taker.places().next().is_some());
        let is_unread = reads && event.payload_kept && delivered.is_none();
        let job = detail.jobs.iter().find(|job| job.job.handler == *name);
        let (now, made) = match job {
            Some(_) => (" now", ", but the job was made"),
            None => ("", ""),
        };
        let why = match (taker, matching) {
            (None, _) if handler.is_none() => self.absent(name),
            (None, _) => format!("it takes no events of this source any more{made}"),
            (_, Some(_)) if refuses => format!("its condition does not hold{now}{made}"),
            (_, Some(_)) if is_unread && detail.damaged => {
                "its condition reads the payload, which is damaged".to_owned()
            }
            (_, Some(_)) if is_unread => {
                "the body is too long for a page, and its condition reads it: `hooklatch explain` does"
                    .to_owned()
            }
            (_, Some(pattern)) if pattern == event_type => {
                format!("its events include \"{pattern}\"")
            }
            (_, Some(pattern)) => {
                format!("its events include \"{pattern}\", which matches {event_type}")
            }
            (Some(taker), None) => {
                let events: Vec<_> = taker.patterns().map(|event| format!("\"{event}\"")).collect();
                let events = events.join(", ");
                let events = match job {
                    Some(_) => format!(" now ({events})"),
                    None => format!(": {events}"),
                };
                format!("none of its events matches {event_type}{events}{made}")
            }
        };
        let wants = matching.is_some() && !refuses;
        let missing = wants && !is_unread && job.is_none();
        HandlerPart {
            handler: name.clone(),
            wants,
            why,
            conditions,
            job: job.map(|job| self.job(detail, job, handler)),
            next: missing.then(|| self.missing(detail, name)),
        }
    }

    /// Whether this configuration lacks the handler, and one that is in force on a node has it.
    fn is_elsewhere(&self, handler: &Name) -> bool {
        let whole = self.config.mistakes().is_empty();
        whole && self.config.handler(handler).is_none() && !self.nodes_with(handler).is_empty()
    }

    fn nodes_with(&self, handler: &Name) -> String {
        let has = |node: &&NodeRow| node.handlers.iter().any(|own| own.handler == *handler);
        names(self.nodes.iter().filter(has))
    }

    /// A handler that this configuration lacks.
    fn absent(&self, handler: &Name) -> String {
        if !self.is_elsewhere(handler) {
            return format!("{} it", self.lacks());
        }
        let nodes = self.nodes_with(handler);
        format!(
            "the configuration here lacks it, and that in force on node {nodes} has it: explain the event there"
        )
    }

    /// What to do where a handler wants the event and has no job of it.
    fn missing(&self, detail: &EventDetail, handler: &Name) -> Next {
        let event = &detail.event;
        let what = match were_removed(detail) {
            true => "no job any more: where it had one, that has ended, and was removed".to_owned(),
            false => format!(
                "no job: the handler came, or was changed, after the event{}",
                self.accepted_elsewhere(handler)
            ),
        };
        // Without its payload it cannot run.
        self.next(what, event.payload_kept.then(|| make_job(event, handler.as_str())))
    }

    /// How another node may have accepted an event without a job for the handler.
    fn accepted_elsewhere(&self, handler: &Name) -> String {
        let lacking = names(self.nodes.iter().filter(|node| node.lacks.contains(handler)));
        let published = self.nodes.iter().flat_map(|node| &node.handlers);
        let published = published.filter(|own| own.handler == *handler);
        let mut keys = published.flat_map(|own| own.keys.keys());
        let chooses = |key: &str| CHOOSING.contains(&key);
        let differs = keys.any(|key| key.split('.').next().is_some_and(chooses));
        let mut ways = String::new();
        if !lacking.is_empty() {
            ways += &format!(", or it came to a node that lacks the handler: {lacking}");
        }
        if differs {
            let status = format!("hooklatch status{}", self.suffix);
            ways +=
                &format!(", or it came to a node whose handler chooses other events (`{status}`)");
        }
        ways
    }

    fn job(&self, event: &EventDetail, detail: &JobDetail, handler: Option<&Handler>) -> JobPart {
        let row = &detail.job;
        JobPart {
            job: row.job,
            state: row.state,
            reason: match (&row.reason, &row.detail) {
                (Some(reason), Some(detail)) => Some(format!("{reason}: {detail}")),
                (reason, _) => reason.clone(),
            },
            attempts: detail.attempts.iter().map(|attempt| self.attempt(attempt)).collect(),
            next: self.after(event, row, handler),
        }
    }

    fn attempt(&self, row: &AttemptRow) -> String {
        let (number, start) = (row.number, (self.time)(row.started_at));
        let (Some(outcome), Some(end)) = (row.outcome, row.finished_at) else {
            return format!("attempt {number}, {start}: still runs");
        };
        let took = end.since(row.started_at).as_secs_f64();
        let text = format!("attempt {number}, {start}: {outcome} after {took:.1} s");
        match row.record.detail.as_str() {
            "" => text,
            detail => format!("{text}: {detail}"),
        }
    }
}

/// The names of nodes, in their order.
fn names<'n>(nodes: impl Iterator<Item = &'n NodeRow>) -> String {
    nodes.map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Whether retention has removed the event's jobs, which had succeeded or been dropped.
fn were_removed(detail: &EventDetail) -> bool {
    detail.jobs.is_empty() && !detail.event.jobs.is_empty()
}

/// The command that creates a job for `handler`.
fn make_job(event: &EventRow, handler: &str) -> String {
    let id = event.event_id.shell_word();
    format!("replay {id} --source {} --handler {handler}", event.source)
}
