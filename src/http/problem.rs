//! Problem documents (RFC 9457) for callers that do not get their handler's answer.
//!
//! Sources that return their handler's answer send them; `reply` has all other answers. The statuses follow
//! draft-ietf-httpapi-idempotency-key-header. A document contains no output of a handler and nothing of another caller.

use std::time::Duration;

use actix_web::http::StatusCode;
use serde_json::{Value, json};

/// Why a request does not get its handler's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    /// The key or the caller is missing or malformed. A fixed word says which.
    Malformed(&'static str),
    /// The key belongs to another request.
    Conflict,
    /// The first request with this key is still running.
    InProgress,
    /// The first request waited too long for its answer.
    Slow,
    /// The handler failed.
    Failed,
    /// The handler of the first request ended without an answer; its effects are unknown.
    Lost,
    /// The time-out ended the handler of the first request; its effects are unknown.
    TimedOut,
    /// A repeat: the effects of the first request are unknown.
    Unknown,
    /// The operator dropped the job.
    Dropped,
    /// The caller is over its rate, and must wait this long.
    Limited(Duration),
}

/// When to repeat a request whose answer is pending, in seconds. The repeat then waits too.
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

    /// The value of `Retry-After`, in seconds; `None` if a repeat does not help or the time is unknown.
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

    /// The type is `about:blank`, whose title is that of the status (RFC 9457, section 4.2.1). Programs read `reason`.
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
    fn each_problem_says_what_is_wrong_and_whether_a_repeat_helps() {
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
