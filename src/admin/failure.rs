//! Why a request was not carried out, and its problem document (RFC 9457).

use actix_web::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::store;

/// Why a request was not carried out: a kind for programs, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

/// The kinds of failures. Their names are stable: programs and exit codes go by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The request cannot be read, or a parameter is unknown or wrong.
    Malformed,
    /// This socket does not serve what changes something.
    Forbidden,
    /// No event, job or handler has that name.
    NotFound,
    /// This version has no such route.
    NoRoute,
    /// The route has another method.
    WrongMethod,
    /// Its state does not allow it, retention has deleted what it needs, what it needs is damaged, or the answer for
    /// its caller is missing or not wanted.
    WrongState,
    /// Several things have that name: say which.
    Ambiguous,
    /// The body is too large.
    TooLarge,
    /// The configuration of the receiver or of its runner is wrong.
    Config,
    /// The store or the receiver cannot do it now.
    Unavailable,
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

impl FailureKind {
    pub fn status(self) -> StatusCode {
        match self {
            FailureKind::Malformed => StatusCode::BAD_REQUEST,
            FailureKind::Forbidden => StatusCode::FORBIDDEN,
            FailureKind::NotFound | FailureKind::NoRoute => StatusCode::NOT_FOUND,
            FailureKind::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            FailureKind::WrongState | FailureKind::Ambiguous => StatusCode::CONFLICT,
            FailureKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FailureKind::Config => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::Unavailable | FailureKind::Unknown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A problem document. Of the type `about:blank`, the title is the status' own (RFC 9457, section 4.2.1).
#[derive(Debug, Serialize, Deserialize)]
pub struct ApiProblem {
    #[serde(rename = "type", default)]
    pub kind_uri: String,
    pub title: String,
    pub status: u16,
    /// One sentence for people.
    pub detail: String,
    /// What programs go by.
    pub kind: FailureKind,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Failure { kind, message: message.into() }
    }

    pub(super) fn unavailable(message: impl ToString) -> Self {
        Failure::new(FailureKind::Unavailable, message.to_string())
    }

    pub(super) fn problem(self) -> ApiProblem {
        let status = self.kind.status();
        ApiProblem {
            kind_uri: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            status: status.as_u16(),
            detail: self.message,
            kind: self.kind,
        }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        let kind = match error {
            store::Error::NoRows { .. } | store::Error::LargeBatch { .. } => FailureKind::Malformed,
            store::Error::NoEvent(_) | store::Error::NoJob(_) | store::Error::NoId { .. } => {
                FailureKind::NotFound
            }
            store::Error::WrongState { .. }
            | store::Error::NewerAttempt { .. }
            | store::Error::PayloadGone { .. }
            | store::Error::JobsGone { .. }
            | store::Error::Answered { .. }
            | store::Error::Superseded { .. }
            | store::Error::OutOfDate { .. }
            | store::Error::Undecided { .. }
            | store::Error::UndecidedEvent { .. }
            | store::Error::Unwanted { .. }
            | store::Error::AnswerNeeded { .. }
            | store::Error::NobodyWaits { .. }
            | store::Error::OneHandler { .. }
            | store::Error::Awaited(_)
            | store::Error::Damaged(_) => FailureKind::WrongState,
            store::Error::Ambiguous { .. }
            | store::Error::Variants { .. }
            | store::Error::SeveralIds { .. } => FailureKind::Ambiguous,
            store::Error::Unavailable(_)
            | store::Error::Unconfirmed(_)
            | store::Error::TooSlow(_) => FailureKind::Unavailable,
        };
        Failure::new(kind, error.to_string())
    }
}
