//! The request a forward sends: the provider's body and headers, and ours.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::model::{Facts, Headers};

use super::Target;

/// Headers of a delivery that belong to its connection (RFC 9110, section 7.6.1, and the older
/// `Keep-Alive` and `Proxy-Connection`), to its framing, or to us.
const NOT_FORWARDED: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// The prefix of headers that only this program may set.
const OURS: &str = "hooklatch-";

/// What is sent of one event.
pub(crate) struct Filled {
    /// Path and query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// A part of the delivery's JSON; `None` for the delivery's own body.
    pub(crate) body: Option<Bytes>,
}

/// The request of one attempt. `from`: the headers of the delivery. `filled`: what takes the place of its own.
pub(super) fn build(
    target: &Target,
    facts: &Facts,
    from: &Headers,
    filled: Option<&Filled>,
) -> Result<Request<Full<Bytes>>, String> {
    let path = filled.map_or(target.path(), |filled| filled.path.as_str());
    let mut request = Request::post(path)
        .body(Full::new(facts.body.clone()))
        .map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    copy(from, headers);
    if filled.is_some_and(|filled| filled.body.is_some()) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // A part is sent as plain text.
        headers.remove(header::CONTENT_ENCODING);
    }
    for (name, value) in filled.iter().flat_map(|filled| &filled.headers) {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        let value = HeaderValue::from_str(value).map_err(|error| format!("{name}: {error}"))?;
        headers.insert(name, value);
    }
    let caller = facts.caller.iter().map(|caller| ("hooklatch-caller", caller.as_str()));
    let sender_id = facts.headers.sender_id();
    let sender_id = sender_id.iter().map(|id| ("hooklatch-sender-id", id.as_ref()));
    for (name, value) in [
        ("host", target.host()),
        // It serves this attempt alone (RFC 9112, section 9.6).
        ("connection", "close"),
        // Also for an empty body: many servers answer a POST without it with 411.
        ("content-length", &facts.body.len().to_string()),
        ("idempotency-key", &facts.job.to_string()),
        ("hooklatch-source", facts.source.as_str()),
        ("hooklatch-event-id", facts.event_id.as_str()),
        ("hooklatch-event-type", facts.event_type.as_str()),
        ("hooklatch-job", &facts.job.to_string()),
        ("hooklatch-attempt", &facts.attempt.to_string()),
        ("hooklatch-replay", &facts.replays.to_string()),
        ("hooklatch-received-at", &facts.received_at.to_string()),
        ("hooklatch-handler", facts.handler.as_str()),
    ]
    .into_iter()
    .chain(caller)
    .chain(sender_id)
    {
        let value = HeaderValue::from_str(value).map_err(|error| format!("{name}: {error}"))?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(request)
}

/// Whether a request's own headers may have one of this name: it is not the connection's, the body's or ours.
pub fn is_free_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !NOT_FORWARDED.contains(&name.as_str())
        && !name.starts_with(OURS)
        && !name.starts_with("content-")
}

/// Whether a header that is set may have this text: printable ASCII.
pub fn is_header_text(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn copy(from: &Headers, to: &mut HeaderMap) {
    // The headers that the delivery's Connection header names belong to its connection too.
    let connection: Vec<String> = from
        .all(header::CONNECTION.as_str())
        .flat_map(|value| value.split(|&b| b == b','))
        .map(|option| String::from_utf8_lossy(option).trim().to_ascii_lowercase())
        .collect();
    for (name, value) in from.iter() {
        let name = name.to_ascii_lowercase();
        // A parameter of the query that is kept with the headers.
        let stays = name.starts_with('?')
            || NOT_FORWARDED.contains(&name.as_str())
            || name.starts_with(OURS)
            || connection.contains(&name);
        if stays {
            continue;
        }
        match (HeaderName::try_from(&name), HeaderValue::from_bytes(value)) {
            (Ok(name), Ok(value)) => _ = to.append(name, value),
            _ => tracing::warn!(header = name, "not forwarded: not a valid header"),
        }
    }
}
