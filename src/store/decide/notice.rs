//! When a notice becomes an event of the internal source, who gets it, and what it says.
//!
//! What must stay true: one event per type, subject and reason in [`NOTICE_WINDOW`], restarts included, and repetitions
//! within it are counted in the next.

use std::io;

use serde_json::{Value, json};

use crate::limits::NOTICE_WINDOW;
use crate::model::{
    Digest, EventId, EventType, Headers, INTERNAL_SOURCE, JobId, Name, NoticeType, State, Timestamp,
};
use crate::pattern::Pattern;
use crate::store::border::Refused;
use crate::store::codec;
use crate::store::sum::Given;

/// Which handlers take which of the receiver's own events: one snapshot of the configuration (S6).
#[derive(Debug, Clone, Default)]
pub struct NoticeSubscribers {
    handlers: Vec<(Name, Vec<Pattern>)>,
    /// The option that a command needs to find the configuration; empty for its usual place.
    config_option: String,
}

impl NoticeSubscribers {
    /// Makes the subscribers from these handlers, each with the types it wants.
    pub fn new(handlers: Vec<(Name, Vec<Pattern>)>) -> Self {
        NoticeSubscribers { handlers, config_option: String::new() }
    }

    /// Sets the option that a command needs to find the configuration.
    pub fn with_config_option(self, config_option: String) -> Self {
        NoticeSubscribers { config_option, ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }

    /// The handlers that want these.
    pub(crate) fn takers(&self, kind: NoticeType) -> impl Iterator<Item = &Name> {
        let wants = move |patterns: &[Pattern]| patterns.iter().any(|p| p.matches(kind.as_str()));
        self.handlers
            .iter()
            .filter(move |(_, patterns)| wants(patterns))
            .map(|(handler, _)| handler)
    }

    /// The handlers that get the event of a notice. A handler that cannot run is not notified that it cannot.
    pub(crate) fn of(&self, notice: &Notice) -> Vec<&Name> {
        let broken = notice.subject.as_ref().filter(|_| notice.kind == NoticeType::HandlerBroken);
        self.takers(notice.kind).filter(|taker| Some(*taker) != broken).collect()
    }
}

/// Something that happened, perhaps several times, and that a person may want to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub kind: NoticeType,
    /// The handler or source it is about; none for the store.
    pub subject: Option<Name>,
    /// Why, in one of a few fixed texts: each is a separate notice.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// When first, of those counted.
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// The last job it happened to, where it happens to jobs.
    pub job: Option<NoticeJob>,
}

/// The job a notice is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeJob {
    pub job: JobId,
    /// Its event's source.
    pub source: Name,
    /// Its event's id.
    pub event_id: EventId,
}

impl Notice {
    /// Makes a notice about jobs of a handler.
    pub(crate) fn of_jobs(
        kind: NoticeType,
        handler: Name,
        reason: String,
        count: u64,
        now: Timestamp,
        job: NoticeJob,
    ) -> Notice {
        let (subject, job) = (Some(handler), Some(job));
        Notice { kind, subject, reason, count, first_at: now, last_at: now, job }
    }

    /// Makes the notice that the store could not store.
    pub(crate) fn of_store(reason: &str, first_at: Timestamp, last_at: Timestamp) -> Notice {
        let (kind, reason) = (NoticeType::StoreDegraded, reason.to_owned());
        Notice { kind, subject: None, reason, count: 1, first_at, last_at, job: None }
    }
}

/// The notice of a job in this state, which it has just reached.
pub(crate) fn of_state(state: State) -> Option<NoticeType> {
    match state {
        State::Dead => Some(NoticeType::JobDead),
        State::Held => Some(NoticeType::JobHeld),
        _ => None,
    }
}

/// The reason of a degraded store, in one of three texts.
pub(crate) fn degraded(why: &Refused) -> Option<&'static str> {
    match why {
        Refused::NoSpace(_) => Some("no space"),
        Refused::Degraded(_) => Some("I/O error"),
        Refused::Gone(_) => Some("database file gone"),
        Refused::QueueFull
        | Refused::Unreachable(_)
        | Refused::Unconfirmed(_)
        | Refused::Stopping
        | Refused::Failed(_) => None,
    }
}

/// What becomes of a stored notice now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// It was reported within the window.
    Later,
    /// It becomes an event.
    Report,
    /// It has not happened again since it was reported: its row goes.
    Forget,
}

/// `count`: how often it happened since it was reported. A report in the future came from a wrong clock.
pub(crate) fn due(count: u64, reported_at: Option<Timestamp>, now: Timestamp) -> Due {
    let is_recent = |at: Timestamp| at > now.before(NOTICE_WINDOW) && at <= now;
    match (reported_at, count) {
        (Some(at), _) if is_recent(at) => Due::Later,
        (_, 0) => Due::Forget,
        (_, 1..) => Due::Report,
    }
}

/// The job of a notice, and how its last attempt ended. The texts are untrusted.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobDetails {
    pub(crate) attempts: Option<u32>,
    /// How many jobs it keeps waiting, if it is of a group: so many at most as are counted.
    pub(crate) behind: Option<u32>,
    pub(crate) detail: Option<String>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) stderr: Option<String>,
}

/// The internal event of a notice, as it is stored.
pub(crate) struct NoticeEvent {
    pub(crate) digest: Digest,
    pub(crate) body_bytes: usize,
    /// The headers, as HTTP writes them.
    pub(crate) headers: Vec<u8>,
    /// The body, compressed with zstd.
    pub(crate) body: Vec<u8>,
    /// The sum of the payload without the event's time, which is added to it.
    pub(crate) sum: i64,
}

impl NoticeEvent {
    pub(crate) fn of(
        event_id: &str,
        notice: &Notice,
        of_job: JobDetails,
        subscribers: &NoticeSubscribers,
        host: &str,
    ) -> io::Result<NoticeEvent> {
        let body = body(notice, of_job, subscribers, host).to_string().into_bytes();
        let mut headers = Headers::new();
        headers.push("Content-Type", "application/json");
        let (digest, body_bytes) = (Digest::of(&body), body.len());
        let (headers, body) = (headers.to_wire(), codec::compress_now(&body)?);
        let event_type = EventType::from_parts(notice.kind.as_str(), None);
        let (source, event_type) = (INTERNAL_SOURCE, &event_type);
        let given = Given { source, event_id, event_type, headers: &headers, body: &body };
        let sum = given.sum(Timestamp(0));
        Ok(NoticeEvent { digest, body_bytes, headers, body, sum })
    }
}

/// The body of an internal event. Its fields are documented and only ever added to.
fn body(notice: &Notice, of_job: JobDetails, subscribers: &NoticeSubscribers, host: &str) -> Value {
    let (subject, job) = (notice.subject.as_ref(), notice.job.as_ref());
    let about_source = matches!(notice.kind, NoticeType::SourceFailing | NoticeType::StoreLost);
    let about_node = notice.kind == NoticeType::NodeSilent;
    json!({
        "type": notice.kind,
        "handler": subject.filter(|_| !about_source && !about_node),
        "source": if about_source { subject } else { job.map(|job| &job.source) },
        "node": subject.filter(|_| about_node),
        "event_id": job.map(|job| &job.event_id),
        "job": job.map(|job| job.job),
        "reason": notice.reason,
        "attempts": of_job.attempts,
        "behind": of_job.behind,
        "detail": of_job.detail,
        "exit_code": of_job.exit_code,
        "stderr": of_job.stderr,
        "count": notice.count,
        "first_at": notice.first_at,
        "last_at": notice.last_at,
        "command": command(notice) + &subscribers.config_option,
        "host": host,
    })
}

/// What to run next, to see what it is about.
fn command(notice: &Notice) -> String {
    let jobs = |state: State| match (&notice.subject, &notice.job) {
        (Some(handler), _) if notice.count > 1 => {
            format!("hooklatch jobs --state {state} --handler {handler}")
        }
        (_, Some(job)) => format!("hooklatch show {}", job.event_id.shell_word()),
        _ => format!("hooklatch jobs --state {state}"),
    };
    match notice.kind {
        NoticeType::JobDead => jobs(State::Dead),
        NoticeType::JobHeld => jobs(State::Held),
        NoticeType::StoreDegraded | NoticeType::StoreLost | NoticeType::SourceFailing => {
            "hooklatch status".to_owned()
        }
        NoticeType::NodeSilent => "hooklatch node list".to_owned(),
        NoticeType::HandlerBroken => match &notice.job {
            Some(job) => format!("hooklatch explain {}", job.event_id.shell_word()),
            None => "hooklatch status".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::tests::{START, id, name};

    fn notice(kind: NoticeType) -> Notice {
        let at = START;
        Notice {
            kind,
            subject: None,
            reason: "why".to_owned(),
            count: 1,
            first_at: at,
            last_at: at,
            job: None,
        }
    }

    fn job() -> NoticeJob {
        NoticeJob { job: JobId::from_bytes([7; 16]), source: name("s"), event_id: id("e") }
    }

    #[test]
    fn a_notice_is_reported_once_in_its_window() {
        let now = START.after(NOTICE_WINDOW);
        let millisecond = std::time::Duration::from_millis(1);
        for (reported_at, is_due) in [
            (None, true),
            (Some(START.before(millisecond)), true),
            (Some(START), true),
            (Some(START.after(millisecond)), false),
            (Some(now), false),
            // A wrong clock.
            (Some(now.after(millisecond)), true),
        ] {
            for (count, expected) in [(0, Due::Forget), (1, Due::Report), (u64::MAX, Due::Report)] {
                let expected = if is_due { expected } else { Due::Later };
                assert_eq!(due(count, reported_at, now), expected, "{reported_at:?} {count}");
            }
        }
    }

    #[test]
    fn a_notice_goes_to_the_handlers_that_want_it_but_not_to_the_broken_one() {
        let takes = |handler, pattern| (name(handler), vec![Pattern::new(pattern, true)]);
        let all =
            NoticeSubscribers::new(vec![takes("a", "*"), takes("b", "*"), takes("jobs", "job")]);
        assert!(!all.is_empty() && NoticeSubscribers::default().is_empty());
        for kind in NoticeType::ALL.iter().copied() {
            let of_a = Notice { subject: Some(name("a")), ..notice(kind) };
            let takers: Vec<&str> = all.of(&of_a).into_iter().map(Name::as_str).collect();
            let expected: &[&str] = match kind {
                NoticeType::JobDead | NoticeType::JobHeld => &["a", "b", "jobs"],
                NoticeType::HandlerBroken => &["b"],
                NoticeType::StoreDegraded
                | NoticeType::StoreLost
                | NoticeType::SourceFailing
                | NoticeType::NodeSilent => &["a", "b"],
            };
            assert_eq!(takers, expected, "{kind}");
            assert!(NoticeSubscribers::default().takers(kind).next().is_none());
            assert!(all.of(&notice(kind)).contains(&&name("a")), "about no handler");
        }
    }

    #[test]
    fn dead_and_held_jobs_are_told_and_so_is_a_store_that_cannot_store() {
        for state in State::ALL.iter().copied() {
            let expected = match state {
                State::Dead => Some(NoticeType::JobDead),
                State::Held => Some(NoticeType::JobHeld),
                _ => None,
            };
            assert_eq!(of_state(state), expected, "{state}");
        }
        let text = String::new;
        for (why, expected) in [
            (Refused::NoSpace(text()), Some("no space")),
            (Refused::Degraded(text()), Some("I/O error")),
            (Refused::Gone(text()), Some("database file gone")),
            (Refused::QueueFull, None),
            (Refused::Stopping, None),
            (Refused::Failed(text()), None),
        ] {
            assert_eq!(degraded(&why), expected, "{why:?}");
        }
        let later = START.after(NOTICE_WINDOW);
        let of_store = Notice { last_at: later, ..notice(NoticeType::StoreDegraded) };
        assert_eq!(Notice::of_store("why", START, later), of_store);
    }

    #[test]
    fn an_event_says_what_to_run_next() {
        let (show, explain, status) =
            ("hooklatch show e", "hooklatch explain e", "hooklatch status");
        let of_h = "hooklatch jobs --state dead --handler h";
        use NoticeType::{HandlerBroken, JobDead, JobHeld, SourceFailing, StoreDegraded};
        for (kind, count, subject, of_job, expected) in [
            (JobDead, 1, true, true, show),
            (JobDead, 2, true, true, of_h),
            (JobDead, 2, false, true, show),
            (JobDead, 1, true, false, "hooklatch jobs --state dead"),
            (JobHeld, 1, false, false, "hooklatch jobs --state held"),
            (StoreDegraded, 2, false, false, status),
            (SourceFailing, 2, true, false, status),
            (HandlerBroken, 1, true, true, explain),
            (HandlerBroken, 1, true, false, status),
        ] {
            let (subject, of_job) = (subject.then(|| name("h")), of_job.then(job));
            let notice = Notice { count, subject, job: of_job, ..notice(kind) };
            assert_eq!(command(&notice), expected, "{kind} {count}");
            let option = NoticeSubscribers::default().with_config_option(" --config f".to_owned());
            let body = body(&notice, JobDetails::default(), &option, "box");
            assert_eq!(body["command"], format!("{expected} --config f"));
            let about_source = kind == SourceFailing;
            let handler = notice.subject.as_ref().filter(|_| !about_source);
            assert_eq!(body["handler"], serde_json::json!(handler));
            let source = if about_source { Some("h") } else { notice.job.as_ref().map(|_| "s") };
            assert_eq!(
                (&body["source"], &body["host"]),
                (&serde_json::json!(source), &"box".into())
            );
        }
    }
}
