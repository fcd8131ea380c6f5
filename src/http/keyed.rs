//! Answers a verified request with an idempotency key: finds the caller, checks its rate, and returns the stored
//! answer of the handler or waits for it.
//!
//! Only sources that return their handler's answer use it. `receive` calls it in a task that continues if the client
//! hangs up. Must stay true: an answer is sent only after it is committed (I1), and only to the caller that owns the
//! key; a request that waits holds no body in memory.

use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use tracing::info;

use super::budget::Permit;
use super::cause::Cause;
use super::delivery::Delivery;
use super::problem::Problem;
use super::reply::Answer;
use super::source::Reply;
use crate::limits::CALLER_BYTES;
use crate::model::{Digest, EventType, Headers};
use crate::store::{Accept, Ask, Asked, KeyState};
use crate::traffic::Keyed;
use crate::verify::extract::add_part;

/// Separates the parts of a caller's name, for handlers too. No part can contain it.
const BETWEEN: &str = "\t";

/// Returns the handler's answer to a verified request, or the problem in its place.
///
/// # Errors
/// The request is refused: its handler is not asked.
pub(super) async fn answer(
    request: &Delivery,
    reply: &Reply,
    accept: Accept,
    permit: Permit,
) -> Result<Answer, Cause> {
    let (shared, served, source) = (&request.shared, &request.served, &request.served.source);
    let (delivery, received_at) = (accept.delivery, accept.received_at);
    let caller = caller(reply, delivery.secret(), &request.headers, request.by_proxy)?;
    admit(request, reply, &caller)?;
    let key = delivery.event_id().clone();
    let body = delivery.request(&source.scheme, &reply.fields);
    let digest = digest(&request.method, &request.target, delivery.event_type(), body);
    let asked = match shared.store.known_key(&source.name, &caller, &key, digest) {
        Some(asked) => {
            drop(delivery);
            asked
        }
        None => {
            let ask = Ask {
                source: source.name.clone(),
                caller: caller.clone(),
                request: digest,
                received_at,
                delivery,
                handler: reply.handler.clone(),
                keep: reply.keep,
                keep_errors: reply.keep_errors,
            };
            let asked = timeout(source.accept_wait, shared.store.ask(ask)).await;
            asked.map_err(|_| Cause::slow())??
        }
    };
    drop(permit);
    let (job, created, again, state) = match asked {
        Asked::Begun { job, again } => (job, true, again, KeyState::Pending),
        Asked::Known { job, state } => (job, false, true, state),
        Asked::Conflict => {
            served.traffic.keyed(Keyed::Conflict);
            let detail = "a key was used again for another request";
            return Err(Cause::problem(Problem::Conflict, detail));
        }
    };
    let wait = if created { reply.first_wait } else { reply.repeat_wait };
    let state = match state {
        KeyState::Pending => {
            // The job continues without the request that is refused here.
            let detail = "limits.callers_waiting_count requests wait for an answer";
            let busy = |_| Cause::unavailable("busy", detail);
            let _place = shared.waiting.try_acquire().map_err(busy)?;
            shared.store.await_answer(job, wait).await?
        }
        settled => settled,
    };
    let can_be_pending = source.scheme.answers().pending.is_some();
    let (answer, result) = outcome(state, created, can_be_pending);
    let millis = request.count_good(again, received_at);
    served.traffic.keyed(result);
    let (name, result) = (answer.name(), result.as_str());
    let caller = (!caller.is_empty()).then_some(caller);
    info!(source = %source.name, answer = name, result, %key, caller, %job, millis, "delivery");
    Ok(answer)
}

/// Counts a request against the rate of its caller.
fn admit(request: &Delivery, reply: &Reply, caller: &str) -> Result<(), Cause> {
    let Some(per_minute) = reply.requests_per_minute else { return Ok(()) };
    let (shared, served) = (&request.shared, &request.served);
    let bucket = format!("{}{BETWEEN}{caller}", served.source.name);
    shared.rates.take(bucket, per_minute, shared.clock.monotonic()).map_err(|wait| {
        served.traffic.keyed(Keyed::Limited);
        Cause::problem(Problem::Limited(wait), "a caller is over requests_per_minute")
    })
}

/// The answer for the state of a key. `created` if this request began the run; `can_be_pending` if the provider file says
/// what to answer while it goes on.
fn outcome(state: KeyState, created: bool, can_be_pending: bool) -> (Answer, Keyed) {
    let (problem, result) = match (state, created) {
        (KeyState::Pending, _) if can_be_pending => return (Answer::Pending, Keyed::InProgress),
        (KeyState::Answered(answer), true) => {
            return (Answer::Answered { answer, created }, Keyed::Created);
        }
        (KeyState::Answered(answer), false) => {
            return (Answer::Answered { answer, created }, Keyed::Reused);
        }
        (KeyState::Pending, true) => (Problem::Slow, Keyed::InProgress),
        (KeyState::Pending, false) => (Problem::InProgress, Keyed::InProgress),
        (KeyState::Failed, _) => (Problem::Failed, Keyed::Failed),
        (KeyState::Unknown { timed_out: true }, true) => (Problem::TimedOut, Keyed::Unknown),
        (KeyState::Unknown { timed_out: false }, true) => (Problem::Lost, Keyed::Unknown),
        (KeyState::Unknown { .. }, false) => (Problem::Unknown, Keyed::Unknown),
        (KeyState::Dropped, _) => (Problem::Dropped, Keyed::Unknown),
    };
    (Answer::Problem(problem), result)
}

/// Identifies the request: a digest of its parts, each after its length.
fn digest(method: &str, target: &str, event_type: &EventType, body: Digest) -> Digest {
    let mut hash = Sha256::new();
    let event_type = event_type.raw().unwrap_or(event_type.as_str());
    for part in [method.as_bytes(), target.as_bytes(), event_type.as_bytes(), &body.0] {
        add_part(&mut hash, part);
    }
    Digest(hash.finalize().into())
}

/// The caller's name: the owner of the matching secret, the name of the certificate, and the value of the caller's
/// header, as far as each is configured. Empty if the source has one caller.
fn caller(
    reply: &Reply,
    secret: Option<&str>,
    headers: &Headers,
    by_proxy: bool,
) -> Result<String, Cause> {
    let named = reply.callers.iter().find(|(reference, _)| Some(reference.as_str()) == secret);
    let mut parts: Vec<&str> = named.iter().map(|(_, name)| name.as_str()).collect();
    if let Some(header) = &reply.certificate_header {
        if !by_proxy {
            let detail =
                "did not come straight from a trusted proxy, which alone can name certificates";
            return Err(Cause::new(Answer::Rejected, "no_proxy", detail));
        }
        // Names of certificates contain spaces.
        let name = only(headers, header, |byte| (b' '..=b'~').contains(&byte));
        let detail = "no certificate is named, or several, or not in 1 to 200 bytes of ASCII";
        parts.push(name.ok_or_else(|| Cause::new(Answer::Rejected, "no_certificate", detail))?);
    }
    if let Some(header) = &reply.caller_header {
        let name = only(headers, header, |byte| byte.is_ascii_graphic());
        let detail = "caller_header is not there once, in 1 to 200 bytes of visible ASCII";
        let bad_caller = Problem::Malformed("bad_caller");
        parts.push(name.ok_or_else(|| Cause::problem(bad_caller, detail))?);
    }
    Ok(parts.join(BETWEEN))
}

/// A header's value, if it came once and every byte fits.
fn only<'h>(headers: &'h Headers, name: &'h str, fits: fn(u8) -> bool) -> Option<&'h str> {
    let mut lines = headers.all(name);
    let (value, None) = (lines.next()?.trim_ascii(), lines.next()) else { return None };
    let sound = (1..=CALLER_BYTES).contains(&value.len()) && value.iter().all(|&byte| fits(byte));
    std::str::from_utf8(value).ok().filter(|_| sound)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn reply() -> Reply {
        Reply {
            handler: "pay".parse().unwrap(),
            callers: Vec::new(),
            caller_header: None,
            certificate_header: None,
            fields: Vec::new(),
            first_wait: Duration::ZERO,
            repeat_wait: Duration::ZERO,
            keep: Duration::ZERO,
            keep_errors: Duration::ZERO,
            requests_per_minute: None,
        }
    }

    fn named(
        reply: &Reply,
        secret: &str,
        lines: &[(&str, &str)],
        by_proxy: bool,
    ) -> Option<String> {
        let mut headers = Headers::new();
        lines.iter().for_each(|(name, value)| headers.push(*name, *value));
        caller(reply, Some(secret), &headers, by_proxy).ok()
    }

    #[test]
    fn a_caller_is_named_by_its_secret_certificate_and_header() {
        let pair = |reference: &str, name: &str| (reference.to_owned(), name.parse().unwrap());
        let callers = vec![pair("env:A", "a"), pair("env:A2", "a"), pair("env:B", "b")];
        assert_eq!(named(&reply(), "env:A", &[], false).as_deref(), Some(""));
        let reply = Reply { callers, ..reply() };
        let plain = |secret| named(&reply, secret, &[], false).unwrap();
        assert_eq!([plain("env:A"), plain("env:A2"), plain("env:B")], ["a", "a", "b"]);
        let reply = Reply {
            caller_header: Some("X-Tenant".to_owned()),
            certificate_header: Some("X-Client-Cert".to_owned()),
            ..reply
        };
        let (tenant, other) = (("x-tenant", "t-1"), ("X-Tenant", "t-2"));
        let certificate = ("X-Client-Cert", "CN=till 7,O=Shop");
        let all = |lines: &[(&str, &str)], by_proxy| named(&reply, "env:B", lines, by_proxy);
        let whole = "b\tCN=till 7,O=Shop\tt-1";
        assert_eq!(all(&[tenant, certificate], true).as_deref(), Some(whole));
        assert_eq!(all(&[tenant, certificate], false), None, "anybody can write such a header");
        assert_eq!(all(&[tenant], true), None);
        assert_eq!(all(&[tenant, certificate, certificate], true), None);
        assert_eq!(all(&[certificate], true), None);
        assert_eq!(all(&[certificate, tenant, other], true), None);
        let long = "x".repeat(201);
        for odd in ["", "a b", "a\tb", "ä", "\u{7f}", &long] {
            assert_eq!(all(&[certificate, ("X-Tenant", odd)], true), None, "{odd}");
        }
        assert!(all(&[certificate, ("X-Tenant", &long[..200])], true).is_some());
        assert_eq!(all(&[tenant, ("X-Client-Cert", "a\tb")], true), None);
    }

    #[test]
    fn a_request_with_another_method_target_type_or_body_conflicts() {
        let typed = EventType::from_raw;
        let one = digest("POST", "/pay?a=1", &typed("pay"), Digest([1; 32]));
        assert_eq!(one, digest("POST", "/pay?a=1", &typed("pay"), Digest([1; 32])));
        for other in [
            digest("POS", "T/pay?a=1", &typed("pay"), Digest([1; 32])),
            digest("POST", "/pay?a=2", &typed("pay"), Digest([1; 32])),
            digest("POST", "/pay", &typed("pay"), Digest([1; 32])),
            digest("POST", "/pay?a=1", &typed("pay"), Digest([2; 32])),
            digest("POST", "/pay?a=1", &typed("refund"), Digest([1; 32])),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn only_the_request_that_began_a_run_learns_how_it_failed() {
        let pending = outcome(KeyState::Pending, false, true);
        assert_eq!(pending, (Answer::Pending, Keyed::InProgress));
        let outcome = |state: &KeyState, created| outcome(state.clone(), created, false);
        let lost = KeyState::Unknown { timed_out: false };
        let late = KeyState::Unknown { timed_out: true };
        for (state, first, repeat, result) in [
            (KeyState::Pending, Problem::Slow, Problem::InProgress, Keyed::InProgress),
            (KeyState::Failed, Problem::Failed, Problem::Failed, Keyed::Failed),
            (lost, Problem::Lost, Problem::Unknown, Keyed::Unknown),
            (late, Problem::TimedOut, Problem::Unknown, Keyed::Unknown),
            (KeyState::Dropped, Problem::Dropped, Problem::Dropped, Keyed::Unknown),
        ] {
            assert_eq!(outcome(&state, true), (Answer::Problem(first), result));
            assert_eq!(outcome(&state, false), (Answer::Problem(repeat), result));
        }
    }
}
