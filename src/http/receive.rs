//! Receives one delivery: refuse early, read within limits, verify the raw bytes, store, answer.
//!
//! The order matters. Refusals that need no body come before the body is read. After that, the delivery runs to
//! its end in a separate task. If the client hangs up, or the commit takes longer than the provider waits, the
//! event is still stored, and the redelivery is a duplicate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::dev::{Payload, RequestHead, ServiceRequest};
use actix_web::http::header::{HOST, HeaderMap, ORIGIN};
use actix_web::{rt, web};
use bytes::Bytes;
use tokio::time::timeout;
use tracing::info;

use super::body::{self, BodyError};
use super::budget::Permit;
use super::chunks;
use super::connection::Gate;
use super::keyed;
use super::refusal::{Cause, Origin, headers, refuse, reject};
use super::reply::Answer;
use super::shared::Shared;
use super::snapshot::Snapshot;
use super::source::{ServedSource, Source};
use crate::limits::HEADERS_KEPT_BYTES;
use crate::model::{Headers, Timestamp, host};
use crate::panics::{contain, contained};
use crate::routing::{Decision, Decisions, Route};
use crate::store::{Accept, Accepted};
use crate::verify;

/// Larger bodies are verified and decided on a blocking thread: HMAC takes about 1 GB/s, so a larger body would occupy a worker,
/// with all its connections, for more than a quarter of a millisecond.
const VERIFY_INLINE_BYTES: usize = 256 * 1024;

/// The same, where a handler's condition looks into bodies: a pattern takes up to 2 ms for each text of 4 KiB.
const DECIDE_INLINE_BYTES: usize = 16 * 1024;

/// A delivery before its body is read.
pub(super) struct Admitted {
    origin: Origin,
    /// Only those that are needed later, because a stalled body keeps them in memory.
    headers: Headers,
}

/// Refuses a delivery by its head if possible. The source is of `snapshot`.
pub(super) fn admit(
    shared: &Shared,
    snapshot: &Snapshot,
    served: &ServedSource,
    head: &RequestHead,
    declared: Option<u64>,
) -> Result<Admitted, Answer> {
    let source = &served.source;
    let origin = Origin::of(snapshot, source, head);
    let refuse = |answer, reason, detail| {
        refuse(shared, served, Cause::new(answer, reason, detail), origin.address)
    };
    if source.refuse_proxied
        && let Some((reason, detail)) = untrusted(&head.headers)
    {
        return Err(refuse(Answer::Refused(detail), reason, detail));
    }
    let needs = verify::needs(&source.scheme);
    let named = source.reply.iter().flat_map(|reply| {
        reply.caller_header.iter().chain(&reply.certificate_header).map(String::as_str)
    });
    let named: Vec<&str> = named.collect();
    let headers = headers(&head.headers, |name| {
        needs(name) || named.iter().any(|known| known.eq_ignore_ascii_case(name))
    });
    // Checked before verification, because those of a rejected delivery are kept too.
    if verify::evidence_bytes(&source.scheme, &headers) > HEADERS_KEPT_BYTES {
        let reason = "headers_too_large";
        return Err(refuse(
            Answer::Malformed(reason),
            reason,
            "the headers to keep are over 16 KiB",
        ));
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

/// Receives the delivery of `request` and returns its answer. The source is of `snapshot`.
pub(super) async fn receive(
    shared: &Arc<Shared>,
    snapshot: &Snapshot,
    served: &Arc<ServedSource>,
    request: &mut ServiceRequest,
    gate: &Gate,
    payload: &mut Payload,
) -> Answer {
    let begun = Instant::now();
    let source = &served.source;
    let declared = chunks::declared(request);
    let admitted = admit(shared, snapshot, served, request.head(), declared);
    let Admitted { origin, headers } = match admitted {
        Ok(admitted) => admitted,
        Err(answer) => return answer,
    };
    let address = origin.address;
    let refuse = |cause| refuse(shared, served, cause, address);
    // Free all other headers: 90 short ones take 34 KiB.
    drop(std::mem::take(&mut request.head_mut().headers));
    let limit = source.body_limit_bytes;
    let mut permit = snapshot.budget.permit();
    let read = body::read(payload, declared, limit, snapshot.pace, &mut permit, gate).await;
    let body = match read {
        Ok(body) => {
            // The connection reads nothing more until this request is answered.
            gate.body_ended();
            body
        }
        Err(unread) => {
            let (answer, reason, detail) = match unread {
                BodyError::TooLarge => {
                    (Answer::TooLarge(limit), "too_large", "body over the limit")
                }
                BodyError::TooSlow => (Answer::TooSlow, "too_slow", "body too slow"),
                BodyError::NoRoom => {
                    (Answer::Unavailable("busy"), "no_room", "bodies in flight use up the budget")
                }
                BodyError::Broken => {
                    (Answer::Malformed("broken_body"), "broken_body", "the body ended early")
                }
            };
            return refuse(Cause::new(answer, reason, detail));
        }
    };
    let delivery = Delivery {
        shared: Arc::clone(shared),
        served: Arc::clone(served),
        begun,
        // The time when the body is complete, so that a stalled body does not extend the tolerance of a signature.
        received_at: shared.clock.now(),
        method: request.method().to_string(),
        url: source.signed_url(&source.path, request.uri().query()),
        origin,
        sent: source.reply.as_ref().map(|_| keyed::Sent::of(snapshot, request.head())),
        headers,
        body,
        permit,
    };
    // The wait for a handler's answer has its own bounds.
    let patience = if source.reply.is_none() { source.accept_wait } else { Duration::MAX };
    match timeout(patience, rt::spawn(contained(delivery.take()))).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => refuse(Cause::unavailable("failed", "the delivery's task broke off")),
        Err(_) => refuse(Cause::unavailable("slow", "not committed in time; it may still be")),
    }
}

/// A delivery with its body.
struct Delivery {
    shared: Arc<Shared>,
    served: Arc<ServedSource>,
    /// When its head had arrived.
    begun: Instant,
    received_at: Timestamp,
    method: String,
    url: Option<String>,
    origin: Origin,
    /// `Some` if the source returns its handler's answer.
    sent: Option<keyed::Sent>,
    headers: Headers,
    body: Bytes,
    permit: Permit,
}

impl Delivery {
    /// Verifies and stores it, and counts and logs its refusal.
    async fn take(self) -> Answer {
        let (shared, served) = (Arc::clone(&self.shared), Arc::clone(&self.served));
        let address = self.origin.address;
        let answer = self.verify_and_store(&shared, &served).await;
        answer.unwrap_or_else(|cause| refuse(&shared, &served, cause, address))
    }

    async fn verify_and_store(
        self,
        shared: &Shared,
        served: &Arc<ServedSource>,
    ) -> Result<Answer, Cause> {
        let Delivery {
            begun, received_at, method, url, origin, sent, headers, body, permit, ..
        } = self;
        let evidence = body.clone();
        let inline = match served.source.routes.routes.iter().any(Route::decides) {
            true => DECIDE_INLINE_BYTES,
            false => VERIFY_INLINE_BYTES,
        };
        let large = body.len() > inline;
        let for_check = Arc::clone(served);
        let check = move || {
            let request =
                verify::Request { method: &method, url: url.as_deref(), headers: &headers, body };
            let source = &*for_check.source;
            let Source { scheme, keys, .. } = source;
            let verified = verify::verify(scheme, keys, request, received_at);
            (verified.map(|delivery| source.accept(delivery, received_at)), headers)
        };
        let checked = if large {
            let _turn = shared.hashing.acquire().await;
            web::block(move || contain(check)).await.ok()
        } else {
            Some(check())
        };
        let no_thread = || Cause::unavailable("failed", "no thread to verify on");
        let (verdict, headers) = checked.ok_or_else(no_thread)?;
        let (accept, decisions) = match verdict {
            Ok(accept) => accept,
            Err(rejection) => {
                let read = Some((received_at, evidence));
                return Ok(reject(shared, served, rejection, origin, &headers, read));
            }
        };
        drop(evidence);
        served.traffic.verified();
        if let (Some(sent), Some(reply)) = (sent, &served.source.reply) {
            let delivery = accept.delivery;
            let request = keyed::Request { sent, headers, delivery, received_at, begun, permit };
            return request.take(shared, served, reply).await;
        }
        let answer = store(shared, served, accept, &decisions, begun).await;
        // Held until here, because the body was in memory.
        drop(permit);
        answer
    }
}

/// Stores a genuine delivery with its jobs by this snapshot of the configuration.
async fn store(
    shared: &Shared,
    served: &ServedSource,
    accept: Accept,
    decisions: &Decisions,
    begun: Instant,
) -> Result<Answer, Cause> {
    let Accept { delivery, received_at, .. } = &accept;
    let received_at = *received_at;
    let event = delivery.event_id().clone();
    let event_type = delivery.event_type().clone();
    let bytes = delivery.body().len();
    let accepted = shared.store.accept(accept).await?;
    let took = begun.elapsed();
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let (name, event_type) = (&served.source.name, event_type.as_str());
    let is_duplicate = matches!(accepted, Accepted::Duplicate { .. });
    served.traffic.good(is_duplicate, received_at, took);
    Ok(match accepted {
        Accepted::Created { jobs, held, flagged } => {
            let held = held.map(|reason| reason.as_str());
            served.decided(decisions);
            let unwanted = decisions.count(Decision::False);
            let undecided = decisions.count(Decision::Failed);
            info!(source = %name, answer = "accepted", %event, r#type = event_type, jobs, bytes, millis,
                held, flagged, unwanted, undecided, "delivery");
            Answer::Accepted(event)
        }
        Accepted::Duplicate { state, removed, replayed, first_received_at, conflict } => {
            let state_word = state.map(|state| state.as_str());
            info!(source = %name, answer = "duplicate", %event, r#type = event_type, bytes, millis,
                state = state_word, first = %first_received_at, conflict, replayed, "delivery");
            Answer::Duplicate { event, state, removed, replayed }
        }
    })
}

/// Why a source without signatures refuses a request: a fixed word and a sentence. The presence of a proxy's header
/// is enough.
fn untrusted(headers: &HeaderMap) -> Option<(&'static str, &'static str)> {
    let proxied =
        |name: &str| name == "forwarded" || name == "via" || name.starts_with("x-forwarded-");
    if headers.keys().any(|name| proxied(name.as_str())) {
        let detail =
            "this source takes unsigned requests, so it takes none that came through a proxy";
        return Some(("proxied", detail));
    }
    let own = |site: &[u8]| matches!(site, b"none" | b"same-origin");
    let other_site = headers.get_all("sec-fetch-site").any(|site| !own(site.as_bytes()));
    if headers.contains_key(ORIGIN) || other_site {
        let detail = "this source takes unsigned requests, so it takes none of a web page";
        return Some(("from_browser", detail));
    }
    if !headers.get(HOST).is_some_and(|name| host::is_this_machine(name.as_bytes())) {
        let detail = "this source takes unsigned requests, so it takes none whose Host is not an IP address or localhost";
        return Some(("foreign_host", detail));
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn any_proxy_header_refuses_an_unsigned_request() {
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
