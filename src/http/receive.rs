//! Receives one delivery: refuse early, read within limits, verify the raw bytes, store, answer.
//!
//! The order matters. Refusals that need no body come before the body is read. After that, the delivery runs to
//! its end in a separate task. If the client hangs up, or the commit takes longer than the provider waits, the
//! event is still stored, and the redelivery is a duplicate.

use std::sync::Arc;
use std::time::Duration;

use actix_http::Request;
use actix_web::dev::Payload;
use actix_web::http::header::{HOST, HeaderMap, ORIGIN};
use actix_web::{rt, web};
use bytes::Bytes;
use tokio::time::timeout;
use tracing::info;

use super::body;
use super::budget::Permit;
use super::cause::Cause;
use super::chunks;
use super::connection::Gate;
use super::delivery::Delivery;
use super::keyed;
use super::reply::Answer;
use super::shared::{Shared, Snapshot};
use super::source::ServedSource;
use crate::limits::{CHALLENGE_BYTES, HEADERS_KEPT_BYTES};
use crate::model::{Timestamp, host};
use crate::panics::{contain, contained};
use crate::payload::is_compressed;
use crate::random;
use crate::routing::{Decision, Decisions, Route};
use crate::store::{Accept, Accepted};
use crate::verify::{self, Genuine};

/// Larger bodies are verified and decided on a blocking thread: HMAC takes about 1 GB/s, so a larger body would occupy
/// a worker, with all its connections, for more than a quarter of a millisecond.
const VERIFY_INLINE_BYTES: usize = 256 * 1024;

/// The largest body that is verified and decided inline for a source with a handler whose condition or key reads
/// bodies: a pattern takes up to 2 ms for each text of 4 KiB.
const DECIDE_INLINE_BYTES: usize = 16 * 1024;

/// Begins a delivery to `served`, a source of `snapshot`. The error is the answer to a delivery that is refused by its
/// head.
pub(super) fn admit(
    shared: &Arc<Shared>,
    snapshot: &Snapshot,
    served: &Arc<ServedSource>,
    request: &Request,
) -> Result<Delivery, Answer> {
    let mut delivery = Delivery::new(shared, snapshot, served, request.head());
    delivery.declared_bytes = chunks::declared(request);
    let (source, headers) = (&served.source, &delivery.headers);
    let refuse = |answer, reason, detail| Err(delivery.refuse(Cause::new(answer, reason, detail)));
    let method = delivery.method.as_str();
    let is_delivery = source.methods.contains(&method);
    let may_be_challenge = verify::may_be_challenge(&source.scheme, delivery.as_challenge(&[]));
    if !is_delivery && !may_be_challenge {
        if source.scheme.challenge().methods().any(|known| known == method) {
            let verify::Rejection { reason, detail, .. } = verify::no_challenge();
            let answer = Answer::Malformed(reason);
            return Err(delivery.refuse(Cause { answer, reason, detail: detail.into() }));
        }
        let answer = Answer::Method(source.allowed().into());
        return refuse(answer, "method", "the source takes no such method");
    }
    if source.refuse_proxied
        && let Some((reason, detail)) = why_untrusted(&request.head().headers)
    {
        return refuse(Answer::Refused(detail), reason, detail);
    }
    // Checked before verification, because those of a rejected delivery are kept too.
    if verify::evidence_bytes(&source.scheme, headers) > HEADERS_KEPT_BYTES {
        let reason = "headers_too_large";
        return refuse(Answer::Malformed(reason), reason, "the headers to keep are over 16 KiB");
    }
    let proof = verify::precheck(&source.scheme, headers);
    let is_without_proof = proof.is_err();
    // A delivery with a signature, good or bad, is not taken for a challenge without one.
    let may_be_challenge =
        may_be_challenge && (!is_delivery || verify::is_bare(&source.scheme, headers));
    if let Err(rejection) = proof
        && !may_be_challenge
    {
        return Err(delivery.reject(rejection, None));
    }
    delivery.may_be_challenge = may_be_challenge;
    if !is_delivery || is_without_proof {
        delivery.body_limit_bytes = delivery.body_limit_bytes.min(CHALLENGE_BYTES);
    }
    let limit = delivery.body_limit_bytes;
    if delivery.declared_bytes.is_some_and(|declared| declared > limit) {
        return Err(delivery.refuse(Cause::too_large(limit)));
    }
    Ok(delivery)
}

/// Reads the body of an admitted delivery, and returns the delivery's answer.
pub(super) async fn receive(
    delivery: Delivery,
    snapshot: &Snapshot,
    request: &mut Request,
    gate: &Gate,
    payload: &mut Payload,
) -> Answer {
    let declared = delivery.declared_bytes;
    // Free all headers that are not needed: 90 short ones take 34 KiB.
    drop(std::mem::take(&mut request.head_mut().headers));
    let limit = delivery.body_limit_bytes;
    let mut permit = snapshot.budget.permit();
    let read = body::read(payload, declared, limit, snapshot.pace, &mut permit, gate).await;
    let body = match read {
        Ok(body) => body,
        Err(cause) => return delivery.refuse(cause),
    };
    // For the plain text, once the delivery is proven.
    if is_compressed(&body) && !permit.add(delivery.served.source.body_limit_bytes).await {
        return delivery.refuse(Cause::no_room());
    }
    // The connection reads nothing more until this request is answered.
    gate.body_ended();
    // The time when the body is complete, so that a stalled body does not extend the tolerance of a signature.
    let received_at = delivery.shared.clock.now();
    let delivery = Arc::new(delivery);
    let source = &delivery.served.source;
    // The wait for a handler's answer has its own bounds.
    let patience = if source.reply.is_none() { source.accept_wait } else { Duration::MAX };
    let finished = Arc::clone(&delivery).finish(body, permit, received_at);
    match timeout(patience, rt::spawn(contained(finished))).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => {
            delivery.refuse(Cause::unavailable("failed", "the delivery's task broke off"))
        }
        Err(_) => delivery.refuse(Cause::slow()),
    }
}

impl Delivery {
    /// Verifies and stores the delivery. A refusal is counted and logged here, because the client may have hung up.
    async fn finish(
        self: Arc<Self>,
        body: Bytes,
        permit: Permit,
        received_at: Timestamp,
    ) -> Answer {
        let answer = self.verify_and_store(body, permit, received_at).await;
        answer.unwrap_or_else(|cause| self.refuse(cause))
    }

    async fn verify_and_store(
        self: &Arc<Self>,
        body: Bytes,
        permit: Permit,
        received_at: Timestamp,
    ) -> Result<Answer, Cause> {
        let source = &self.served.source;
        // Quarantine keeps the body of a delivery that is not genuine.
        let evidence = body.clone();
        let delivery = Arc::clone(self);
        let is_generated = source.scheme.identity().id_is_generated();
        let own_id = is_generated.then(|| random::job_id(received_at).to_string());
        let check = move || {
            let Delivery { method, headers, .. } = &*delivery;
            let source = &delivery.served.source;
            if delivery.may_be_challenge
                && let Some(answered) = source.challenge(delivery.as_challenge(&body))
            {
                return Ok(Genuine::Challenge(answered));
            }
            if !source.methods.contains(&method.as_str()) {
                return Err(verify::no_challenge());
            }
            let url = source.signed_url(&source.path, delivery.query());
            let request = verify::Request { method, url: url.as_deref(), headers, body };
            source.verify(&source.keys, request, received_at, own_id.as_deref())
        };
        let decides = source.routes.routes.iter().any(Route::decides);
        let inline_bytes = if decides { DECIDE_INLINE_BYTES } else { VERIFY_INLINE_BYTES };
        let verdict = if evidence.len() > inline_bytes || is_compressed(&evidence) {
            let _turn = self.shared.hashing.acquire().await;
            let no_thread = |_| Cause::unavailable("failed", "no thread to verify on");
            web::block(move || contain(check)).await.map_err(no_thread)?
        } else {
            check()
        };
        let (events, left_out) = match verdict {
            Ok(Genuine::Event(events, left_out)) => (events, left_out),
            Ok(Genuine::Challenge(answered)) => {
                let bytes = evidence.len() as u64;
                if !answered.signed && bytes > CHALLENGE_BYTES {
                    return Err(Cause::too_large(CHALLENGE_BYTES));
                }
                return self.answer_challenge(answered).await;
            }
            Err(rejection) => {
                // Without a well-formed signature the body cannot be proven later.
                let has_proof = verify::precheck(&source.scheme, &self.headers).is_ok();
                let read = has_proof.then_some((received_at, evidence));
                return Ok(self.reject(rejection, read));
            }
        };
        drop(evidence);
        let (mut accepts, decisions): (Vec<_>, Vec<_>) = events.into_iter().unzip();
        self.served.traffic.verified();
        if let Some(reply) = &source.reply
            && let Some(accept) = accepts.pop()
        {
            // Its callers choose their keys: two requests without one must not get one answer.
            if let Some(fault) = accept.delivery.id_fault() {
                return Ok(self.reject(fault.clone(), None));
            }
            return keyed::answer(self, reply, accept, permit).await;
        }
        let answer = self.store(received_at, accepts, &decisions).await;
        // Only now: the body was in memory until the commit.
        drop(permit);
        // The sender gets the answer for the proven elements; the others are refused on their own.
        if let (Ok(_), Some(rejection)) = (&answer, left_out) {
            self.reject(rejection, None);
        }
        answer
    }

    /// Stores the events of a genuine delivery with their jobs by this snapshot of the configuration.
    async fn store(
        &self,
        received_at: Timestamp,
        mut accepts: Vec<Accept>,
        decisions: &[Decisions],
    ) -> Result<Answer, Cause> {
        if self.served.source.scheme.identity().has_lists() {
            return self.store_all(received_at, accepts, decisions).await;
        }
        let (Some(accept), [decisions]) = (accepts.pop(), decisions) else {
            return Err(Cause::unavailable("failed", "a delivery without an event"));
        };
        let event = accept.delivery.event_id().clone();
        let event_type = accept.delivery.event_type().clone();
        let bytes = accept.delivery.body().len();
        let id_fault = accept.delivery.id_fault().map(|fault| fault.reason);
        let accepted = self.shared.store.accept(accept).await?;
        let (source, event_type) = (&self.served.source.name, event_type.as_str());
        let is_duplicate = matches!(accepted, Accepted::Duplicate { .. });
        let millis = self.count_good(is_duplicate, received_at);
        Ok(match accepted {
            Accepted::Created { jobs, held, flagged } => {
                let held = held.map(|reason| reason.as_str());
                self.served.count(decisions);
                let unwanted = decisions.count(Decision::False);
                let undecided = decisions.count(Decision::Failed);
                info!(%source, answer = "accepted", %event, r#type = event_type, jobs, bytes, millis,
                    held, flagged, unwanted, undecided, id_fault, "delivery");
                Answer::Accepted(event)
            }
            Accepted::Duplicate { state, removed, replayed, first_received_at, conflict } => {
                let state_word = state.map(|state| state.as_str());
                info!(%source, answer = "duplicate", %event, r#type = event_type, bytes, millis,
                    state = state_word, first = %first_received_at, conflict, replayed, id_fault, "delivery");
                Answer::Duplicate { event, state, removed, replayed }
            }
        })
    }
}

impl Delivery {
    /// Stores the events of a list, all or none of them.
    async fn store_all(
        &self,
        received_at: Timestamp,
        accepts: Vec<Accept>,
        decisions: &[Decisions],
    ) -> Result<Answer, Cause> {
        let bytes: usize = accepts.iter().map(|accept| accept.delivery.body().len()).sum();
        let only = match &accepts[..] {
            [one] => Some(one.delivery.event_id().clone()),
            _ => None,
        };
        let faults = accepts.iter().filter_map(|accept| accept.delivery.id_fault());
        let id_faults = faults.clone().count();
        let id_fault = faults.map(|fault| fault.reason).next();
        let accepted = match accepts.is_empty() {
            true => Vec::new(),
            false => self.shared.store.accept_all(accepts, received_at).await?,
        };
        let (mut created, mut jobs, mut held) = (0_usize, 0, 0);
        for (accepted, decisions) in accepted.iter().zip(decisions) {
            if let Accepted::Created { jobs: made, held: why, .. } = accepted {
                self.served.count(decisions);
                (created, jobs) = (created + 1, jobs + made);
                held += usize::from(why.is_some());
            }
        }
        let events = accepted.len();
        let millis = self.count_good(created == 0 && events > 0, received_at);
        let answer = Answer::Listed { events, created, only };
        info!(source = %self.served.source.name, answer = answer.name(), events, created, jobs, held, bytes,
            millis, id_faults, id_fault, "delivery");
        Ok(answer)
    }
}

/// Why a source without signatures refuses a request: a fixed word and a sentence. Any header that a proxy adds is a
/// reason.
fn why_untrusted(headers: &HeaderMap) -> Option<(&'static str, &'static str)> {
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
            assert_eq!(why_untrusted(&headers).is_some(), marked, "{name}");
        }
    }
}
