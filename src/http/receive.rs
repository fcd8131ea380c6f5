//! Takes one delivery: refuse early, read within limits, verify the raw bytes, store, answer.
//!
//! The order of the steps is the point. Everything that can be refused is refused before the body
//! is read. Once it has been read, the delivery runs to its end in a task of its own: a client that
//! hangs up, or a commit slower than the provider's patience, never loses it (it is stored, and the
//! redelivery is a duplicate).

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::http::header::{CONTENT_LENGTH, HeaderMap};
use actix_web::{HttpMessage, HttpRequest, rt, web};
use bytes::Bytes;
use tokio::time::timeout;
use tracing::{info, warn};

use super::Source;
use super::body::{self, Unread};
use super::budget::Permit;
use super::client;
use super::connection::Gate;
use super::reply::{self, Answer};
use super::server::Shared;
use super::snapshot::Snapshot;
use crate::model::{Headers, Timestamp};
use crate::store::{Accept, Accepted, Quarantined};
use crate::verify::{self, Rejection, Verified};

/// Bodies over this size are verified on a blocking thread: at 1 GB/s or so of HMAC a larger one
/// would keep a worker, and all its connections, for over a quarter of a millisecond.
const VERIFY_INLINE_BYTES: usize = 256 * 1024;

/// Takes the delivery that `request` makes to `source`, and says what to answer. The source is of
/// `snapshot`.
pub(super) async fn receive(
    shared: &Arc<Shared>,
    snapshot: &Snapshot,
    source: &Arc<Source>,
    request: &HttpRequest,
    payload: &mut web::Payload,
) -> Answer {
    let headers = headers(request.headers());
    if source.refuse_proxied && came_through_proxy(&headers) {
        return refuse(shared, source, Answer::Proxied, "came through a proxy");
    }
    if kept_bytes(source, &headers) > snapshot.headers_kept {
        let answer = Answer::Malformed("headers_too_large");
        return refuse(
            shared,
            source,
            answer,
            "the headers to keep are over limits.headers_kept_bytes",
        );
    }
    let origin = Origin::of(snapshot, source, request, &headers);
    if let Err(rejection) = verify::precheck(&source.scheme, &headers) {
        return reject(shared, source, rejection, origin, &headers, None);
    }
    let limit = source.body_limit_bytes;
    let mut permit = snapshot.budget.permit();
    let read = body::read(payload, declared(request), limit, snapshot.pace, &mut permit).await;
    let body = match read {
        Ok(body) => {
            // What follows on the connection waits there until this one is answered.
            if let Some(gate) = Gate::of(request) {
                gate.read_to_end();
            }
            body
        }
        Err(Unread::TooLarge) => {
            return refuse(shared, source, Answer::TooLarge(limit), "body over the limit");
        }
        Err(Unread::TooSlow) => return refuse(shared, source, Answer::TooSlow, "body too slow"),
        Err(Unread::NoRoom) => {
            return refuse(
                shared,
                source,
                Answer::Unavailable("busy"),
                "bodies in flight use up the budget",
            );
        }
        Err(Unread::Broken) => {
            return refuse(
                shared,
                source,
                Answer::Malformed("broken_body"),
                "the body ended early",
            );
        }
    };
    let delivery = Delivery {
        shared: Arc::clone(shared),
        source: Arc::clone(source),
        // The whole request is here only now; a stalled body must not stretch a signature's tolerance.
        received_at: shared.clock.now(),
        method: request.method().to_string(),
        url: signed_url(source, request.uri().query()),
        origin,
        headers,
        body,
        permit,
    };
    match timeout(source.accept_wait, rt::spawn(delivery.take())).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => {
            refuse(shared, source, Answer::Unavailable("failed"), "the delivery's task broke off")
        }
        Err(_) => refuse(
            shared,
            source,
            Answer::Unavailable("slow"),
            "not committed in time; it may still be",
        ),
    }
}

/// A delivery whose body is there.
struct Delivery {
    shared: Arc<Shared>,
    source: Arc<Source>,
    received_at: Timestamp,
    method: String,
    url: Option<String>,
    origin: Origin,
    headers: Headers,
    body: Bytes,
    permit: Permit,
}

impl Delivery {
    /// Verifies and stores it. The permit is held to the end: as long, the body is in memory.
    async fn take(self) -> Answer {
        let Delivery { shared, source, received_at, method, url, origin, headers, body, permit } =
            self;
        let evidence = body.clone();
        let large = body.len() > VERIFY_INLINE_BYTES;
        let door = Arc::clone(&source);
        let check = move || {
            let request =
                verify::Request { method: &method, url: url.as_deref(), headers: &headers, body };
            let verdict = verify::verify(&door.scheme, &door.keys, request, received_at);
            (verdict, headers)
        };
        let checked = if large {
            let _turn = shared.hashing.acquire().await;
            web::block(check).await.ok()
        } else {
            Some(check())
        };
        let Some((verdict, headers)) = checked else {
            return refuse(
                &shared,
                &source,
                Answer::Unavailable("failed"),
                "no thread to verify on",
            );
        };
        let answer = match verdict {
            Err(rejection) => {
                let at = Some((received_at, evidence));
                reject(&shared, &source, rejection, origin, &headers, at)
            }
            Ok(verified) => {
                drop(evidence);
                shared.watched.verified(&source.name);
                store(&shared, &source, verified, received_at).await
            }
        };
        drop(permit);
        answer
    }
}

/// Stores a genuine delivery with the jobs this snapshot of the configuration makes of it.
async fn store(
    shared: &Shared,
    source: &Source,
    delivery: Verified,
    received_at: Timestamp,
) -> Answer {
    let event = delivery.event_id().clone();
    let event_type = delivery.event_type().clone();
    let handlers = source.handlers(event_type.as_str());
    let new = Accept {
        source: source.name.clone(),
        received_at,
        delivery,
        handlers,
        on_redelivery: source.on_redelivery,
    };
    let outcome = shared.store.accept(new).await;
    let (source, event_type) = (&source.name, event_type.as_str());
    match &outcome {
        Ok(Accepted::Created { .. }) => shared.traffic.good(source, false, received_at),
        Ok(Accepted::Duplicate { .. }) => shared.traffic.good(source, true, received_at),
        Err(refused) => shared.traffic.refused(source, &refused.to_string(), received_at),
    }
    match outcome {
        Ok(Accepted::Created { jobs, held, flagged }) => {
            let held = held.map(|reason| reason.as_str());
            info!(%source, answer = "accepted", %event, r#type = event_type, jobs, held, flagged, "delivery");
            Answer::Accepted(event)
        }
        Ok(Accepted::Duplicate { state, replayed, first_received_at, conflict }) => {
            let state_word = state.map(|state| state.as_str());
            info!(%source, answer = "duplicate", %event, r#type = event_type, state = state_word,
                first = %first_received_at, conflict, replayed, "delivery");
            Answer::Duplicate { event, state, replayed }
        }
        Err(refused) => {
            warn!(%source, answer = "unavailable", %event, r#type = event_type, reason = %refused, "delivery");
            Answer::Unavailable(reply::word(&refused))
        }
    }
}

/// The outside learns only that; the reason goes to the log and, with the evidence, to quarantine.
fn reject(
    shared: &Shared,
    source: &Source,
    rejection: Rejection,
    origin: Origin,
    headers: &Headers,
    read: Option<(Timestamp, Bytes)>,
) -> Answer {
    let Rejection { reason, detail, malformed } = rejection;
    let answer = if malformed { Answer::Malformed(reason) } else { Answer::Rejected };
    // The detail may quote what came from outside, so it is escaped.
    warn!(source = %source.name, answer = answer.name(), reason, ?detail, "delivery");
    shared.traffic.refused(&source.name, reason, shared.clock.now());
    if !malformed {
        shared.watched.failed(&shared.store, &shared.clock, &source.name, reason);
    }
    if !source.scheme.is_unsigned() {
        let received_at = read.as_ref().map_or_else(|| shared.clock.now(), |(at, _)| *at);
        let body = read.map(|(_, body)| body);
        let body_bytes = body.as_ref().map_or(0, |body| body.len() as u64);
        shared.store.quarantine(Quarantined {
            source: source.name.clone(),
            scheme: Arc::clone(&source.scheme),
            received_at,
            address: origin.address,
            reason,
            detail,
            path: origin.path,
            headers: verify::evidence(&source.scheme, headers),
            body_bytes,
            // What nothing can prove later is not worth its space.
            body: body.filter(|_| verify::can_be_judged_again(&source.scheme)),
        });
    }
    answer
}

/// Where a request came from and to.
struct Origin {
    address: Option<IpAddr>,
    /// With the query where the provider signs the URL, and only then: it may hold anything.
    path: String,
}

impl Origin {
    fn of(snapshot: &Snapshot, source: &Source, request: &HttpRequest, headers: &Headers) -> Self {
        let peer = request.peer_addr().map(|peer| peer.ip());
        let address = peer.map(|peer| client::address(peer, headers, snapshot.sources.proxies()));
        let mut path = source.path.clone();
        if let Some(query) = request.uri().query().filter(|_| source.scheme.signs_url()) {
            path.push('?');
            path.push_str(query);
        }
        Origin { address, path }
    }
}

/// A refusal that says nothing about the signature.
fn refuse(shared: &Shared, source: &Source, answer: Answer, reason: &'static str) -> Answer {
    shared.traffic.refused(&source.name, reason, shared.clock.now());
    warn!(source = %source.name, answer = answer.name(), reason, "delivery");
    answer
}

fn headers(map: &HeaderMap) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in map {
        headers.push(name.as_str(), value.as_bytes());
    }
    headers
}

/// What the headers worth keeping of this delivery take, names included. Counted before anything is
/// proven, since a failed delivery's are kept too.
fn kept_bytes(source: &Source, headers: &Headers) -> u64 {
    let kept = verify::evidence(&source.scheme, headers);
    kept.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
}

/// Whether any proxy left its mark. Only its presence counts: what it says is not believed.
fn came_through_proxy(headers: &Headers) -> bool {
    headers.iter().any(|(name, _)| {
        let name = name.to_ascii_lowercase();
        name == "forwarded" || name == "via" || name.starts_with("x-forwarded-")
    })
}

/// The body's declared length; `None` where it comes in chunks.
pub(super) fn declared(request: &HttpRequest) -> Option<u64> {
    if request.chunked().unwrap_or(true) {
        return None;
    }
    request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// The URL as the provider signed it: the configured one with the request's query. A configured URL
/// without a path stands for a proxy that keeps the path.
fn signed_url(source: &Source, query: Option<&str>) -> Option<String> {
    let configured = source.public_url.as_deref().filter(|_| source.scheme.signs_url())?;
    Some(public_url(configured, &source.path, query))
}

pub(crate) fn public_url(configured: &str, path: &str, query: Option<&str>) -> String {
    let mut url = configured.split(['?', '#']).next().unwrap_or(configured).to_owned();
    let authority = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    if authority.find('/').is_none_or(|at| at + 1 == authority.len()) {
        url.truncate(url.trim_end_matches('/').len());
        url.push_str(path);
    }
    if let Some(query) = query {
        url.push('?');
        url.push_str(query);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_url_is_the_configured_one_with_the_query() {
        let cases = [
            ("https://example.com/in", Some("a=%2F"), "https://example.com/in?a=%2F"),
            ("https://example.com/in?old=1", None, "https://example.com/in"),
            ("https://example.com", None, "https://example.com/hooks/x"),
            ("https://example.com/", Some(""), "https://example.com/hooks/x?"),
            ("https://example.com/in/", None, "https://example.com/in/"),
        ];
        for (configured, query, wanted) in cases {
            assert_eq!(public_url(configured, "/hooks/x", query), wanted);
        }
    }

    #[test]
    fn every_mark_of_a_proxy_is_seen() {
        for (name, marked) in [
            ("Forwarded", true),
            ("X-Forwarded-For", true),
            ("x-forwarded-anything", true),
            ("VIA", true),
            ("X-GitHub-Delivery", false),
        ] {
            let mut headers = Headers::new();
            headers.push(name, b"".as_slice());
            assert_eq!(came_through_proxy(&headers), marked, "{name}");
        }
    }
}
