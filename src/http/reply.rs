//! Every answer this server gives, in one table: status, headers, body.
//!
//! The headers `Hooklatch-*` say what happened, because many providers read the body. The body is the text of the
//! source's provider file, or empty, or the same facts as JSON for the operator's own callers. Rules: never 410 (several
//! providers then unsubscribe the endpoint), never 409 or 422 for a stored event (it only causes days of retries), and
//! no detail of a failed verification. For sources that return their handler's answer, `problem` has the answers
//! without one.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_http::Response;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use actix_web::http::{ConnectionType, StatusCode};
use bytes::Bytes;
use serde_json::{Value, json};

use super::problem::Problem;
use super::unread::UnreadBody;
use crate::model::{self, EventId, State};
use crate::provider::{AnswerText, Answers};
use crate::store::Refused;

/// When a client should try again, in seconds: long enough for a checkpoint or a restart, short enough for
/// providers whose first retry comes after a minute.
const RETRY_AFTER_SECONDS: &str = "10";

/// The IETF draft's header that says whether the work was done for this request or an earlier one.
const IDEMPOTENCY_RESULT: HeaderName = HeaderName::from_static("idempotency-result");

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// A new event, durable.
    Accepted(EventId),
    /// The event was stored before.
    Duplicate {
        event: EventId,
        /// The most important state of its jobs, if it has any.
        state: Option<State>,
        /// The payload and its jobs were deleted.
        removed: bool,
        /// How many dead jobs this delivery replays.
        replayed: usize,
    },
    /// The events of a list, all durable; `created` of them are new.
    Listed {
        events: usize,
        created: usize,
        /// The id of a list's only event.
        only: Option<EventId>,
    },
    /// The answer of the source's handler.
    Answered {
        answer: model::Answer,
        /// The handler ran for this request, not for an earlier one.
        created: bool,
    },
    /// The answer to a challenge.
    Handshake(model::Answer),
    /// The handler still runs at the provider's deadline, and the provider file says what to answer then.
    Pending,
    /// The handler has no answer; the problem says why.
    Problem(Problem),
    /// The delivery is not proven genuine.
    Rejected,
    /// It cannot be an event, even if it is genuine. A fixed word says why.
    Malformed(&'static str),
    /// It is genuine and has no id, which this header carries.
    NoId(String),
    /// A source without signatures refuses it. A fixed sentence says why.
    Refused(&'static str),
    /// The head is over `limits.head_bytes`.
    HeadTooLarge,
    /// No such path.
    NotFound,
    /// The path has only these methods.
    Method(Cow<'static, str>),
    /// The body took too long.
    TooSlow,
    /// The body is over the source's limit in bytes.
    TooLarge(u64),
    /// It cannot be stored now. A fixed word says why.
    Unavailable(&'static str),
    /// The process serves.
    Alive,
    /// Deliveries are accepted. A fixed sentence says what stands still.
    Ready(Option<&'static str>),
    /// Deliveries are not accepted. A fixed word says why.
    Unready(&'static str),
}

fn status(answer: &model::Answer) -> StatusCode {
    StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY)
}

/// The fixed word of a refusal.
pub(super) fn word(refused: &Refused) -> &'static str {
    match refused {
        Refused::QueueFull => "busy",
        Refused::NoSpace(_) => "no_space",
        Refused::Degraded(_)
        | Refused::Gone(_)
        | Refused::Unreachable(_)
        | Refused::Unconfirmed(_) => "degraded",
        Refused::Stopping => "stopping",
        Refused::Failed(_) => "failed",
    }
}

impl Answer {
    /// The table: the answer's name in logs and documents, and its status.
    fn row(&self) -> (&'static str, StatusCode) {
        match self {
            Answer::Accepted(_) => ("accepted", StatusCode::OK),
            Answer::Duplicate { .. } => ("duplicate", StatusCode::OK),
            Answer::Listed { created: 0, events: 1.., .. } => ("duplicate", StatusCode::OK),
            Answer::Listed { .. } => ("accepted", StatusCode::OK),
            Answer::Answered { answer, .. } => ("answered", status(answer)),
            Answer::Handshake(answer) => ("handshake", status(answer)),
            Answer::Pending => ("pending", StatusCode::OK),
            Answer::Problem(problem @ Problem::Malformed(_)) => ("malformed", problem.status()),
            Answer::Problem(problem) => (problem.word(), problem.status()),
            Answer::Rejected => ("rejected", StatusCode::UNAUTHORIZED),
            Answer::Malformed(_) | Answer::NoId(_) => ("malformed", StatusCode::BAD_REQUEST),
            Answer::Refused(_) => ("refused", StatusCode::FORBIDDEN),
            Answer::HeadTooLarge => ("head_too_large", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            Answer::NotFound => ("not_found", StatusCode::NOT_FOUND),
            Answer::Method(_) => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED),
            Answer::TooSlow => ("too_slow", StatusCode::REQUEST_TIMEOUT),
            Answer::TooLarge(_) => ("too_large", StatusCode::PAYLOAD_TOO_LARGE),
            Answer::Unavailable(_) => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
            Answer::Alive => ("alive", StatusCode::OK),
            Answer::Ready(_) => ("ready", StatusCode::OK),
            Answer::Unready(_) => ("unready", StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.row().0
    }

    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = match self {
            Answer::Listed { created: 0, events: 1.., .. } => (IDEMPOTENCY_RESULT, "reused"),
            Answer::Accepted(_)
            | Answer::Listed { .. }
            | Answer::Answered { created: true, .. } => (IDEMPOTENCY_RESULT, "created"),
            Answer::Duplicate { .. } | Answer::Answered { created: false, .. } => {
                (IDEMPOTENCY_RESULT, "reused")
            }
            Answer::Method(allowed) => {
                return HeaderValue::from_str(allowed).ok().map(|allowed| (ALLOW, allowed));
            }
            Answer::Unavailable(_) | Answer::Unready(_) => (RETRY_AFTER, RETRY_AFTER_SECONDS),
            Answer::Problem(problem) => {
                return problem.retry_after().map(|seconds| (RETRY_AFTER, seconds.into()));
            }
            _ => return None,
        };
        Some((name, HeaderValue::from_static(value)))
    }

    /// The text that the provider file has for this answer. 408, 413 and 503 are the receiver's own.
    fn text<'a>(&self, answers: &'a Answers) -> Option<&'a AnswerText> {
        match self.name() {
            "accepted" => Some(&answers.accepted),
            "duplicate" => Some(&answers.duplicate),
            "rejected" | "malformed" | "refused" => Some(&answers.refused),
            "pending" => answers.pending.as_ref(),
            _ => None,
        }
    }

    /// The body and its media type. A handler's answer has its own type. `answers` are those of the source's provider
    /// file, `None` for a request to no source.
    fn body(&self, answers: Option<&Answers>) -> (Bytes, Option<Cow<'static, str>>) {
        match self {
            // These statuses have no content (RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5).
            Answer::Answered { answer, .. } | Answer::Handshake(answer)
                if [204, 205, 304].contains(&answer.status) =>
            {
                return (Bytes::new(), None);
            }
            Answer::Answered { answer, .. } | Answer::Handshake(answer) => {
                return (answer.body.clone(), None);
            }
            _ => {}
        }
        let text = answers.and_then(|answers| self.text(answers));
        if let Some((kind, body)) = text.and_then(|text| text.content.clone()) {
            return (body, Some(kind.into()));
        }
        match self {
            _ if answers.is_some_and(|answers| !answers.details) => (Bytes::new(), None),
            Answer::Problem(problem) => {
                (problem.json().to_string().into(), Some("application/problem+json".into()))
            }
            _ => (self.json().to_string().into(), Some("application/json".into())),
        }
    }

    /// What happened, as the members of the JSON and as the headers `Hooklatch-NAME`.
    fn facts(&self) -> Vec<(&'static str, Value)> {
        let mut facts = vec![("status", self.name().into())];
        match self {
            Answer::Accepted(event) => facts.push(("event", json!(event))),
            Answer::Duplicate { event, state, removed, replayed } => {
                let hint = hint(event, *state, *removed, *replayed);
                facts.extend([
                    ("event", json!(event)),
                    ("state", json!(state)),
                    ("hint", hint.into()),
                ]);
                if *replayed > 0 {
                    facts.push(("replayed", (*replayed).into()));
                }
            }
            Answer::Listed { events, created, only } => {
                facts.extend([("events", (*events).into()), ("created", (*created).into())]);
                facts.extend(only.iter().map(|event| ("event", json!(event))));
            }
            Answer::Malformed(reason)
            | Answer::Refused(reason)
            | Answer::Unavailable(reason)
            | Answer::Ready(Some(reason))
            | Answer::Unready(reason) => facts.push(("reason", (*reason).into())),
            Answer::NoId(header) => {
                let hint = format!(
                    "send the header {header}: a new value with each request, and the same one when it is repeated"
                );
                facts.extend([("reason", "missing_id".into()), ("hint", hint.into())]);
            }
            Answer::Problem(problem) => facts.push(("reason", problem.word().into())),
            Answer::Method(allowed) => facts.push(("allow", json!(allowed))),
            Answer::TooLarge(limit) => facts.push(("limit_bytes", (*limit).into())),
            _ => {}
        }
        facts
    }

    fn json(&self) -> Value {
        self.facts().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The facts as headers. A handler's answer and that to a challenge stay as they are.
    fn fact_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        if matches!(self, Answer::Answered { .. } | Answer::Handshake(_)) {
            return Vec::new();
        }
        let header = |(name, value): (&str, Value)| {
            let name = format!("hooklatch-{}", name.replace('_', "-"));
            let text = match value {
                Value::Null => return None,
                Value::String(text) => text,
                other => other.to_string(),
            };
            // An id is visible ASCII, and all other texts are fixed.
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(text).ok()?))
        };
        self.facts().into_iter().filter_map(header).collect()
    }

    /// `unread` keeps the request's payload until the response is sent. `close` asks the client for a new connection.
    /// `answers` are those of the source's provider file, `None` for a request to no source.
    pub(super) fn respond(
        self,
        answers: Option<&Answers>,
        unread: UnreadBody,
        close: bool,
    ) -> Response<BoxBody> {
        let (text, kind) = self.body(answers);
        let written = answers.and_then(|answers| self.text(answers)?.status);
        let status = written.and_then(|status| StatusCode::from_u16(status).ok());
        let text = BoxBody::new(Text { text, _unread: unread });
        let mut response = Response::with_body(status.unwrap_or(self.row().1), text);
        let headers = response.headers_mut();
        if let Some(kind) = kind.and_then(|kind| HeaderValue::try_from(&*kind).ok()) {
            headers.insert(CONTENT_TYPE, kind);
        }
        if answers.is_some() {
            for (name, value) in self.fact_headers() {
                headers.insert(name, value);
            }
        }
        if let Answer::Answered { answer, .. } | Answer::Handshake(answer) = &self {
            for (name, value) in answer.headers.iter() {
                // Skip what HTTP cannot carry.
                let name = HeaderName::from_bytes(name.as_bytes());
                if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                    headers.append(name, value);
                }
            }
        }
        if let Some((name, value)) = self.header() {
            headers.insert(name, value);
        }
        if close || matches!(self, Answer::TooSlow | Answer::TooLarge(_)) {
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        response
    }
}

/// What the operator, who reads this in the provider's console, can do next.
fn hint(event: &EventId, state: Option<State>, removed: bool, replayed: usize) -> String {
    let event = event.shell_word();
    if replayed > 0 {
        let jobs = if replayed == 1 { "job is" } else { "jobs are" };
        return format!(
            "stored before; {replayed} {jobs} put back and will run again; see `hooklatch show {event}`"
        );
    }
    match state {
        None => format!(
            "stored before, and no handler wanted it; `hooklatch replay {event} --handler NAME` runs one"
        ),
        Some(State::Ready | State::Running | State::Waiting) => {
            format!("stored before, and not yet done; see `hooklatch show {event}`")
        }
        Some(State::Held | State::Dead) => format!(
            "stored before; see `hooklatch show {event}`, and `hooklatch replay {event}` runs it again"
        ),
        Some(State::Succeeded) if removed => format!(
            "stored before, and done; its payload has been deleted, so it cannot run again; see `hooklatch show {event}`"
        ),
        Some(State::Succeeded) => format!(
            "stored before, and done; `hooklatch replay {event} --handler NAME` runs it again"
        ),
        Some(State::Dropped) => format!("stored before, and dropped; see `hooklatch show {event}`"),
    }
}

/// A response body that keeps the request's payload alive.
struct Text {
    text: Bytes,
    _unread: UnreadBody,
}

impl MessageBody for Text {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.text.len() as u64)
    }

    fn poll_next(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let text = std::mem::take(&mut self.get_mut().text);
        Poll::Ready((!text.is_empty()).then_some(Ok(text)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn every() -> Vec<Answer> {
        let event: EventId = "evt_1".parse().unwrap();
        let mut all = vec![
            Answer::Accepted(event.clone()),
            Answer::Duplicate { event: event.clone(), state: None, removed: false, replayed: 0 },
            Answer::Rejected,
            Answer::Malformed("no_event_id"),
            Answer::Refused("not from a browser"),
            Answer::HeadTooLarge,
            Answer::NotFound,
            Answer::Method("POST".into()),
            Answer::TooSlow,
            Answer::TooLarge(7),
            Answer::Unavailable("busy"),
            Answer::Alive,
            Answer::Ready(None),
            Answer::Unready("stopping"),
        ];
        all.extend(State::ALL.iter().map(|state| {
            let (event, state) = (event.clone(), Some(*state));
            Answer::Duplicate { event, state, removed: false, replayed: 0 }
        }));
        let state = Some(State::Succeeded);
        all.push(Answer::Duplicate { event: event.clone(), state, removed: true, replayed: 0 });
        let state = Some(State::Ready);
        all.extend([1, 2].map(|replayed| Answer::Duplicate {
            event: event.clone(),
            state,
            removed: false,
            replayed,
        }));
        all
    }

    #[test]
    fn no_answer_unsubscribes_an_endpoint_or_causes_retries_of_a_stored_event() {
        for answer in every() {
            assert!(![409, 410, 422].contains(&answer.row().1.as_u16()), "{answer:?}");
            assert_eq!(
                answer.row().1 == 503,
                answer.header().is_some_and(|(name, _)| name == RETRY_AFTER),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn every_fact_of_an_answer_is_a_header() {
        for answer in every() {
            let facts = answer.facts().into_iter().filter(|(_, value)| !value.is_null()).count();
            assert_eq!(answer.fact_headers().len(), facts, "{answer:?}");
        }
        let limit = Answer::TooLarge(7).fact_headers().pop().unwrap();
        assert_eq!((limit.0.as_str(), limit.1.as_bytes()), ("hooklatch-limit-bytes", &b"7"[..]));
    }

    #[test]
    fn answers_have_the_documented_json() {
        let lines: Vec<String> = every()
            .iter()
            .map(|answer| format!("{} {}", answer.row().1.as_u16(), answer.json()))
            .collect();
        let wanted = [
            r#"200 {"event":"evt_1","status":"accepted"}"#,
            r#"200 {"event":"evt_1","hint":"stored before, and no handler wanted it; `hooklatch replay evt_1 --handler NAME` runs one","state":null,"status":"duplicate"}"#,
            r#"401 {"status":"rejected"}"#,
            r#"400 {"reason":"no_event_id","status":"malformed"}"#,
            r#"403 {"reason":"not from a browser","status":"refused"}"#,
            r#"431 {"status":"head_too_large"}"#,
            r#"404 {"status":"not_found"}"#,
            r#"405 {"allow":"POST","status":"method_not_allowed"}"#,
            r#"408 {"status":"too_slow"}"#,
            r#"413 {"limit_bytes":7,"status":"too_large"}"#,
            r#"503 {"reason":"busy","status":"unavailable"}"#,
            r#"200 {"status":"alive"}"#,
            r#"200 {"status":"ready"}"#,
            r#"503 {"reason":"stopping","status":"unready"}"#,
        ];
        assert_eq!(lines[..wanted.len()], wanted);
        assert!(lines.iter().any(|line| line.contains(r#""state":"dead""#)));
        let duplicates: Vec<_> = lines.iter().filter(|line| line.contains("duplicate")).collect();
        assert_eq!(duplicates.len(), State::ALL.len() + 4);
        for line in &duplicates {
            assert!(line.contains(r#""state":"#) && line.contains("`hooklatch "), "{line}");
        }
        let replayed = r#"200 {"event":"evt_1","hint":"stored before; 1 job is put back and will run again; see `hooklatch show evt_1`","replayed":1,"state":"ready","status":"duplicate"}"#;
        assert_eq!(lines[lines.len() - 2], replayed);
        let removed = r#"200 {"event":"evt_1","hint":"stored before, and done; its payload has been deleted, so it cannot run again; see `hooklatch show evt_1`","state":"succeeded","status":"duplicate"}"#;
        assert_eq!(lines[lines.len() - 3], removed);
    }
}
