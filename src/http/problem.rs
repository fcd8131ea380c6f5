//! What a caller is told where it does not get its handler's answer: problem documents (RFC 9457).
//!
//! For sources that answer with what their handler answers; `reply` has the answers of all others. The
//! statuses are those of draft-ietf-httpapi-idempotency-key-header where it names one. Nothing of a handler's
//! output is in them, and nothing that is not the caller's own.

use std::time::Duration;

use actix_web::http::StatusCode;
use serde_json::{Value, json};

/// A request without an answer of its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    /// It has no key, or none that can be one, or does not say for whom it is; a fixed word says what.
    Malformed(&'static str),
    /// Its key is another request's.
    Conflict,
    /// The first request with its key is still at work.
    InProgress,
    /// It is the first, and the wait for its answer is over.
    Slow,
    /// It is the first, and its handler is known to have failed.
    Failed,
    /// It is the first, and its handler ended without an answer, having done nobody knows what.
    Lost,
    /// The same, and its time-out ended it.
    TimedOut,
    /// Nobody knows whether the first did what it should.
    Unknown,
    /// The operator has given the first up.
    Dropped,
    /// Its caller asks too often; after so long it may.
    Limited(Duration),
}

/// What a caller is told to wait for an answer that is being made, in seconds. The repeat waits by itself.
const SOON_SECONDS: u64 = 1;

impl Problem {
    /// The fixed word in logs, and for programs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Problem::Malformed(reason) => reason,
            Problem::Conflict => "conflict",
            Problem::InProgress => "in_progress",
            Problem::Slow => "slow",
            Problem::Failed => "failed",
            Problem::Lost => "lost",
            Problem::TimedOut => "timed_out",
            Problem::Unknown => "unknown",
            Problem::Dropped => "dropped",
            Problem::Limited(_) => "limited",
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Problem::Malformed(_) => StatusCode::BAD_REQUEST,
            Problem::InProgress | Problem::Unknown | Problem::Dropped => StatusCode::CONFLICT,
            Problem::Conflict => StatusCode::UNPROCESSABLE_ENTITY,
            Problem::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Problem::Failed | Problem::Lost => StatusCode::BAD_GATEWAY,
            Problem::Slow | Problem::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// After how many seconds it is worth while to ask again; nothing where nobody can say.
    pub(super) fn retry_after(self) -> Option<u64> {
        match self {
            Problem::InProgress | Problem::Slow => Some(SOON_SECONDS),
            Problem::Limited(wait) => Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)),
            _ => None,
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Problem::Malformed("missing_id") => {
                "There is no idempotency key: send one that is new for each request, and the same when it is repeated."
            }
            Problem::Malformed("bad_id") => {
                "The idempotency key is not 1 to 200 visible ASCII characters, bare or as a string in quotes, that begin with no '-'."
            }
            Problem::Malformed(_) => {
                "The header that says for whom the request is is missing, there twice, or not 1 to 200 visible ASCII characters."
            }
            Problem::Conflict => {
                "The idempotency key was used for another request. Nothing was run for this one: send it with a key of its own."
            }
            Problem::InProgress => {
                "The first request with this idempotency key is still being worked on. The same request again gets its answer."
            }
            Problem::Slow => {
                "The request is still being worked on. The same request again, with the same idempotency key, gets its answer."
            }
            Problem::Failed => {
                "The handler failed without an answer. The same request again, with the same idempotency key, runs it again."
            }
            Problem::Lost => {
                "The handler ended without an answer, and it is not known what it has done. The same idempotency key runs nothing again until a person has resolved it."
            }
            Problem::TimedOut => {
                "The handler took too long and was ended, and it is not known what it has done. The same idempotency key runs nothing again until a person has resolved it."
            }
            Problem::Unknown => {
                "It is not known what the handler has done for the first request with this idempotency key. A person must resolve it; until then nothing runs again."
            }
            Problem::Dropped => {
                "The operator has given up the first request with this idempotency key, and it is not run."
            }
            Problem::Limited(_) => "This caller asks too often.",
        }
    }

    /// The document. Of the type `about:blank`, the title is the status' own (RFC 9457, section 4.2.1); programs
    /// go by `reason`.
    pub(super) fn json(self) -> Value {
        let status = self.status();
        json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "reason": self.word(),
            "detail": self.detail(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_says_what_it_is_and_whether_asking_again_helps() {
        let limited = Problem::Limited(Duration::from_millis(1_001));
        for (problem, status, reason, retry_after) in [
            (Problem::Malformed("missing_id"), 400, "missing_id", None),
            (Problem::Malformed("bad_id"), 400, "bad_id", None),
            (Problem::Malformed("bad_caller"), 400, "bad_caller", None),
            (Problem::Conflict, 422, "conflict", None),
            (Problem::InProgress, 409, "in_progress", Some(1)),
            (Problem::Slow, 504, "slow", Some(1)),
            (Problem::Failed, 502, "failed", None),
            (Problem::Lost, 502, "lost", None),
            (Problem::TimedOut, 504, "timed_out", None),
            (Problem::Unknown, 409, "unknown", None),
            (Problem::Dropped, 409, "dropped", None),
            (limited, 429, "limited", Some(2)),
        ] {
            let json = problem.json();
            assert_eq!((&json["status"], &json["reason"]), (&status.into(), &reason.into()));
            assert_eq!(json["type"], "about:blank");
            assert!(json["title"].is_string() && json["detail"].is_string(), "{json}");
            assert_eq!(problem.retry_after(), retry_after, "{json}");
        }
    }
}
