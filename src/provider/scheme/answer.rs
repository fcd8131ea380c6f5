//! What the provider reads in the answers to its deliveries: status, media type and body of each.
//!
//! `http` answers with it. Must stay true: every text is fixed by the provider file, so that no byte of a request
//! comes back; accepted, duplicate and pending are 2xx, and a refusal is 4xx and never 410.

use bytes::Bytes;

use crate::provider::place::Place;

/// The answers to the deliveries of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// Whether an answer without a text of the file has what happened as JSON, for callers that are the operator's own
    /// programs. All others get an empty body.
    pub(crate) details: bool,
    pub(crate) accepted: AnswerText,
    pub(crate) duplicate: AnswerText,
    /// The answer to a delivery that is not proven, or is proven and unusable.
    pub(crate) refused: AnswerText,
    /// The answer of a source that returns its handler's answer, while the handler still runs at the provider's
    /// deadline. `None` if the provider takes no such answer: it then gets 504.
    pub(crate) pending: Option<AnswerText>,
    /// What tells one request from another for such a source, if it is not the event id.
    pub(crate) key: Option<Place>,
}

/// One answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AnswerText {
    /// `None` for the receiver's own.
    pub(crate) status: Option<u16>,
    /// The body and its media type; `None` if the file has no body.
    pub(crate) content: Option<(String, Bytes)>,
}
