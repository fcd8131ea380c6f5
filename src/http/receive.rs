//! Takes one delivery: refuse early, read within limits, verify the raw bytes, store, answer.
//!
//! The order of the steps is the point. Everything that can be refused is refused before the body
//! is read. Once it has been read, the delivery runs to its end in a task of its own: a client that
//! hangs up, or a commit slower than the provider's patience, never loses it (it is stored, and the
//! redelivery is a duplicate).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::dev::{Payload, RequestHead, ServiceRequest};
use actix_web::http::header::{CONTENT_LENGTH, HOST, HeaderMap, ORIGIN, UPGRADE};
use actix_web::{HttpMessage, rt, web};
use bytes::Bytes;
use tokio::time::timeout;
use tracing::{info, warn};

use super::body::{self, Unread};
use super::budget::Permit;
use super::client;
use super::connection::Gate;
use super::keyed;
use super::problem::Problem;
use super::reply::{self, Answer};
use super::server::Shared;
use super::snapshot::Snapshot;
use super::{ServedSource, Source};
use crate::model::{Headers, Timestamp, host};
use crate::notify;
use crate::panics::{contain, contained};
use crate::store::{Accept, Accepted, Quarantined};
use crate::traffic::{Refusal, Refused};
use crate::verify::{self, Rejection, Verified};

/// Bodies over this size are verified on a blocking thread: at 1 GB/s or so of HMAC a larger one
/// would keep a worker, and all its connections, for over a quarter of a millisecond.
const VERIFY_INLINE_BYTES: usize = 256 * 1024;

/// What is known of a delivery before its body is read.
pub(super) struct Admitted {
    origin: Origin,
    /// Those that are needed further on, and no others: a stalled body holds them.
    headers: Headers,
}

/// Refuses a delivery for its head alone, where that is possible. The source is of `snapshot`.
pub(super) fn admit(
    shared: &Shared,
    snapshot: &Snapshot,
    served: &ServedSource,
    head: &RequestHead,
    declared: Option<u64>,
) -> Result<Admitted, Answer> {
    let source = &served.source;
    let origin = Origin::of(snapshot, source, head);
    let refuse =
        |answer, reason, told| refuse(shared, served, answer, reason, told, origin.address);
    if source.refuse_proxied
        && let Some((reason, told)) = untrusted(&head.headers)
    {
        return Err(refuse(Answer::Refused(told), reason, told));
    }
    let needs = verify::needs(&source.scheme);
    let named = source.reply.iter().flat_map(|reply| {
        reply.caller_header.iter().chain(&reply.certificate_header).map(String::as_str)
    });
    let named: Vec<&str> = named.collect();
    let headers = headers(&head.headers, |name| {
        needs(name) || named.iter().any(|known| known.eq_ignore_ascii_case(name))
    });
    // Before anything is proven, since a failed delivery's are kept too.
    if verify::evidence_bytes(&source.scheme, &headers) > snapshot.headers_kept {
        let (reason, told) =
            ("headers_too_large", "the headers to keep are over limits.headers_kept_bytes");
        return Err(refuse(Answer::Malformed(reason), reason, told));
    }
    if let Err(rejection) = verify::precheck(&source.scheme, &headers) {
        return Err(reject(shared, served, rejection, origin, &headers, None));
    }
    let limit = source.body_limit_bytes;
    if declared.is_some_and(|declared| declared > limit) {
        return Err(refuse(Answer::TooLarge(limit), "too_large", "body over the limit"));
    }
    Ok(Admitted { origin, headers })
}

/// Takes the delivery that `request` makes to a source, and says what to answer. The source is of
/// `snapshot`.
pub(super) async fn receive(
    shared: &Arc<Shared>,
    snapshot: &Snapshot,
    served: &Arc<ServedSource>,
    request: &mut ServiceRequest,
    gate: Option<&Gate>,
    payload: &mut Payload,
) -> Answer {
    let begun = Instant::now();
    let source = &served.source;
    let declared = declared(request);
    let admitted = admit(shared, snapshot, served, request.head(), declared);
    let Admitted { origin, headers } = match admitted {
        Ok(admitted) => admitted,
        Err(answer) => return answer,
    };
    let address = origin.address;
    let refuse = |answer, reason, told| refuse(shared, served, answer, reason, told, address);
    // All others are given up: 90 short ones take 34 KiB here.
    drop(std::mem::take(&mut request.head_mut().headers));
    let limit = source.body_limit_bytes;
    let mut permit = snapshot.budget.permit();
    let read = body::read(payload, declared, limit, snapshot.pace, &mut permit, gate).await;
    let body = match read {
        Ok(body) => {
            // What follows on the connection waits there until this one is answered.
            if let Some(gate) = gate {
                gate.read_to_end();
            }
            body
        }
        Err(Unread::TooLarge) => {
            return refuse(Answer::TooLarge(limit), "too_large", "body over the limit");
        }
        Err(Unread::TooSlow) => return refuse(Answer::TooSlow, "too_slow", "body too slow"),
        Err(Unread::NoRoom) => {
            let told = "bodies in flight use up the budget";
            return refuse(Answer::Unavailable("busy"), "no_room", told);
        }
        Err(Unread::Broken) => {
            let reason = "broken_body";
            return refuse(Answer::Malformed(reason), reason, "the body ended early");
        }
    };
    let delivery = Delivery {
        shared: Arc::clone(shared),
        served: Arc::clone(served),
        begun,
        // The whole request is here only now; a stalled body must not stretch a signature's tolerance.
        received_at: shared.clock.now(),
        method: request.method().to_string(),
        url: signed_url(source, request.uri().query()),
        origin,
        sent: source.reply.as_ref().map(|_| keyed::Sent::of(snapshot, request.head())),
        headers,
        body,
        permit,
    };
    // The wait for a handler's answer has bounds of its own.
    let patience = if source.reply.is_none() { source.accept_wait } else { Duration::MAX };
    match timeout(patience, rt::spawn(contained(delivery.take()))).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => {
            refuse(Answer::Unavailable("failed"), "failed", "the delivery's task broke off")
        }
        Err(_) => {
            refuse(Answer::Unavailable("slow"), "slow", "not committed in time; it may still be")
        }
    }
}

/// A delivery whose body is there.
struct Delivery {
    shared: Arc<Shared>,
    served: Arc<ServedSource>,
    /// When its head was there.
    begun: Instant,
    received_at: Timestamp,
    method: String,
    url: Option<String>,
    origin: Origin,
    /// Where its handler's answer is waited for.
    sent: Option<keyed::Sent>,
    headers: Headers,
    body: Bytes,
    permit: Permit,
}

impl Delivery {
    /// Verifies and stores it. The permit is held to the end: as long, the body is in memory.
    async fn take(self) -> Answer {
        let Delivery {
            shared,
            served,
            begun,
            received_at,
            method,
            url,
            origin,
            sent,
            headers,
            body,
            permit,
        } = self;
        let (address, evidence) = (origin.address, body.clone());
        let large = body.len() > VERIFY_INLINE_BYTES;
        let door = Arc::clone(&served);
        let check = move || {
            let request =
                verify::Request { method: &method, url: url.as_deref(), headers: &headers, body };
            let Source { scheme, keys, .. } = &*door.source;
            (verify::verify(scheme, keys, request, received_at), headers)
        };
        let checked = if large {
            let _turn = shared.hashing.acquire().await;
            web::block(move || contain(check)).await.ok()
        } else {
            Some(check())
        };
        let Some((verdict, headers)) = checked else {
            let answer = Answer::Unavailable("failed");
            let told = "no thread to verify on";
            return refuse(&shared, &served, answer, "failed", told, origin.address);
        };
        let answer = match verdict {
            Err(rejection) => {
                let at = Some((received_at, evidence));
                reject(&shared, &served, rejection, origin, &headers, at)
            }
            Ok(verified) => {
                drop(evidence);
                served.traffic.verified();
                if let (Some(sent), Some(reply)) = (sent, &served.source.reply) {
                    let delivery = verified;
                    let asked = keyed::Request {
                        sent,
                        headers,
                        delivery,
                        received_at,
                        begun,
                        permit,
                        address,
                    };
                    return asked.take(&shared, &served, reply).await;
                }
                store(&shared, &served, verified, received_at, begun, address).await
            }
        };
        drop(permit);
        answer
    }
}

/// Stores a genuine delivery with the jobs this snapshot of the configuration makes of it.
async fn store(
    shared: &Shared,
    served: &ServedSource,
    delivery: Verified,
    received_at: Timestamp,
    begun: Instant,
    address: Option<IpAddr>,
) -> Answer {
    let source = &served.source;
    let event = delivery.event_id().clone();
    let event_type = delivery.event_type().clone();
    let bytes = delivery.body().len();
    let handlers = source.handlers(event_type.as_str());
    let new = Accept {
        source: source.name.clone(),
        received_at,
        delivery,
        handlers,
        on_redelivery: source.on_redelivery,
    };
    let outcome = shared.store.accept(new).await;
    let took = begun.elapsed();
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let (name, event_type) = (&source.name, event_type.as_str());
    match outcome {
        Ok(Accepted::Created { jobs, held, flagged }) => {
            served.traffic.good(false, received_at, took);
            let held = held.map(|reason| reason.as_str());
            info!(source = %name, answer = "accepted", %event, r#type = event_type, jobs, bytes, millis,
                held, flagged, "delivery");
            Answer::Accepted(event)
        }
        Ok(Accepted::Duplicate { state, removed, replayed, first_received_at, conflict }) => {
            served.traffic.good(true, received_at, took);
            let state_word = state.map(|state| state.as_str());
            info!(source = %name, answer = "duplicate", %event, r#type = event_type, bytes, millis,
                state = state_word, first = %first_received_at, conflict, replayed, "delivery");
            Answer::Duplicate { event, state, removed, replayed }
        }
        Err(refused) => {
            let reason = reply::word(&refused);
            let answer = Answer::Unavailable(reason);
            refuse(shared, served, answer, reason, &refused.to_string(), address)
        }
    }
}

/// The outside learns only that; the reason goes to the log and, with the evidence, to quarantine.
fn reject(
    shared: &Shared,
    served: &ServedSource,
    rejection: Rejection,
    origin: Origin,
    headers: &Headers,
    read: Option<(Timestamp, Bytes)>,
) -> Answer {
    let (source, now) = (&served.source, shared.clock.now());
    let Rejection { reason, detail, malformed } = rejection;
    let answer = match malformed {
        true if source.reply.is_some() => Answer::Problem(Problem::Malformed(reason)),
        true => Answer::Malformed(reason),
        false => Answer::Rejected,
    };
    let refusal = Refusal { answer: answer.name(), reason, told: reason, unproven: !malformed };
    let Refused { first, failing } = served.traffic.refused(refusal, now);
    if first {
        let address = origin.address.map(tracing::field::display);
        warn!(source = %source.name, answer = answer.name(), reason, detail, address, "delivery");
        shared.traffic.begin_summing();
    }
    if let Some((count, first_at)) = failing {
        notify::failing(&shared.store, &source.name, reason, count, first_at, now);
    }
    // A caller that waits is told, and asks again itself.
    if !source.scheme.is_unsigned() && source.reply.is_none() {
        let received_at = read.as_ref().map_or(now, |(at, _)| *at);
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
    fn of(snapshot: &Snapshot, source: &Source, head: &RequestHead) -> Self {
        let address = address(snapshot, head);
        let mut path = source.path.clone();
        if let Some(query) = head.uri.query().filter(|_| source.scheme.signs_url()) {
            path.push('?');
            path.push_str(query);
        }
        Origin { address, path }
    }
}

/// The client's address, by the word of a trusted proxy where there is one.
pub(super) fn address(snapshot: &Snapshot, head: &RequestHead) -> Option<IpAddr> {
    let forwarded = headers(&head.headers, |name| name == "x-forwarded-for");
    let proxies = snapshot.sources.proxies();
    head.peer_addr.map(|peer| client::address(peer.ip(), &forwarded, proxies))
}

/// A refusal that says nothing about the signature: `reason` is one of a few words, `told` for people.
pub(super) fn refuse(
    shared: &Shared,
    served: &ServedSource,
    answer: Answer,
    reason: &'static str,
    told: &str,
    address: Option<IpAddr>,
) -> Answer {
    let refusal = Refusal { answer: answer.name(), reason, told, unproven: false };
    if served.traffic.refused(refusal, shared.clock.now()).first {
        let source = &served.source.name;
        let address = address.map(tracing::field::display);
        warn!(%source, answer = answer.name(), reason, detail = told, address, "delivery");
        shared.traffic.begin_summing();
    }
    answer
}

fn headers(map: &HeaderMap, wanted: impl Fn(&str) -> bool) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in map {
        if wanted(name.as_str()) {
            headers.push(name.as_str(), value.as_bytes());
        }
    }
    headers
}

/// Why a source without signatures does not take a request: a fixed word, and a sentence. Of a proxy's mark
/// only the presence counts.
fn untrusted(headers: &HeaderMap) -> Option<(&'static str, &'static str)> {
    let proxied =
        |name: &str| name == "forwarded" || name == "via" || name.starts_with("x-forwarded-");
    if headers.keys().any(|name| proxied(name.as_str())) {
        let told =
            "this source takes unsigned requests, so it takes none that came through a proxy";
        return Some(("proxied", told));
    }
    let own = |site: &[u8]| matches!(site, b"none" | b"same-origin");
    let other_site = headers.get_all("sec-fetch-site").any(|site| !own(site.as_bytes()));
    if headers.contains_key(ORIGIN) || other_site {
        let told = "this source takes unsigned requests, so it takes none of a web page";
        return Some(("from_browser", told));
    }
    if !headers.get(HOST).is_some_and(|name| host::is_this_machine(name.as_bytes())) {
        let told = "this source takes unsigned requests, so it takes none whose Host is not an IP address or localhost";
        return Some(("foreign_host", told));
    }
    None
}

/// The body's declared length; `None` where it comes in chunks, or none is declared. Whoever asks for a WebSocket has none: to
/// the HTTP server (`actix-http`'s `h1::decoder`) its body ends with the connection, whatever is declared.
pub(crate) fn declared(request: &impl HttpMessage) -> Option<u64> {
    if request.chunked().unwrap_or(true) {
        return None;
    }
    let mut upgrades = request.headers().get_all(UPGRADE);
    if upgrades.any(|to| to.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket")) {
        return Some(0);
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
    #![allow(clippy::unwrap_used)]
    use actix_web::http::header::{HeaderName, HeaderValue};

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
            let value = |text| HeaderValue::from_static(text);
            let mut headers = HeaderMap::new();
            headers.insert(HOST, value("localhost"));
            headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value(""));
            assert_eq!(untrusted(&headers).is_some(), marked, "{name}");
        }
    }
}
