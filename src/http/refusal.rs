//! Refuses deliveries: the answer is a fixed word, the reason goes to the log, the counters and quarantine.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use actix_web::dev::RequestHead;
use actix_web::http::header::HeaderMap;
use bytes::Bytes;
use tracing::warn;

use super::client;
use super::problem::Problem;
use super::reply::{self, Answer};
use super::shared::Shared;
use super::snapshot::Snapshot;
use super::source::{ServedSource, Source};
use crate::model::{Headers, Timestamp};
use crate::notify;
use crate::store::{self, FailedDelivery};
use crate::traffic::{Refusal, Refused};
use crate::verify::{self, Rejection};

/// The client's address and the path that it asked for.
pub(super) struct Origin {
    pub(super) address: Option<IpAddr>,
    /// With the query only if the provider signs the URL, because a query may contain secrets.
    path: String,
}

impl Origin {
    pub(super) fn of(snapshot: &Snapshot, source: &Source, head: &RequestHead) -> Self {
        let address = address(snapshot, head);
        let mut path = source.path.clone();
        if let Some(query) = head.uri.query().filter(|_| source.scheme.signs_url()) {
            path.push('?');
            path.push_str(query);
        }
        Origin { address, path }
    }
}

/// The client's address, as a trusted proxy reports it if there is one.
pub(super) fn address(snapshot: &Snapshot, head: &RequestHead) -> Option<IpAddr> {
    let forwarded = headers(&head.headers, |name| name == "x-forwarded-for");
    let proxies = snapshot.sources.proxies();
    head.peer_addr.map(|peer| client::address(peer.ip(), &forwarded, proxies))
}

/// Why a delivery is refused, other than for its signature.
pub(super) struct Cause {
    answer: Answer,
    /// One of a few words, for the log and the counters.
    reason: &'static str,
    /// A sentence for the operator.
    detail: Cow<'static, str>,
}

impl Cause {
    pub(super) fn new(answer: Answer, reason: &'static str, detail: &'static str) -> Self {
        Cause { answer, reason, detail: detail.into() }
    }

    /// The delivery cannot be stored now.
    pub(super) fn unavailable(reason: &'static str, detail: &'static str) -> Self {
        Cause::new(Answer::Unavailable(reason), reason, detail)
    }
}

impl From<store::Refused> for Cause {
    fn from(refused: store::Refused) -> Self {
        let reason = reply::word(&refused);
        Cause { answer: Answer::Unavailable(reason), reason, detail: refused.to_string().into() }
    }
}

/// Counts and logs a refusal, and returns its answer.
pub(super) fn refuse(
    shared: &Shared,
    served: &ServedSource,
    cause: Cause,
    address: Option<IpAddr>,
) -> Answer {
    record(shared, served, &cause, &cause.detail, false, address);
    cause.answer
}

/// Counts a refusal, logs it if it is the first of a burst, and notifies of a source that begins to fail. `told` is
/// what `status` shows of it, and has no text from the request.
fn record(
    shared: &Shared,
    served: &ServedSource,
    cause: &Cause,
    told: &str,
    unproven: bool,
    address: Option<IpAddr>,
) {
    let (source, now) = (&served.source.name, shared.clock.now());
    let Cause { answer, reason, detail } = cause;
    let refusal = Refusal { answer: answer.name(), reason, told, unproven };
    let Refused { first, failing } = served.traffic.refused(refusal, now);
    if first {
        let address = address.map(tracing::field::display);
        warn!(%source, answer = answer.name(), reason, detail = &**detail, address, "delivery");
        shared.traffic.wake_refusal_log();
    }
    if let Some((count, first_at)) = failing {
        notify::failing(&shared.store, source, reason, count, first_at, now);
    }
}

/// Rejects a delivery that is not proven. The client learns only that; the log gets the reason, and quarantine
/// the reason and the evidence.
pub(super) fn reject(
    shared: &Shared,
    served: &ServedSource,
    rejection: Rejection,
    origin: Origin,
    headers: &Headers,
    read: Option<(Timestamp, Bytes)>,
) -> Answer {
    let source = &served.source;
    let Rejection { reason, detail, malformed } = rejection;
    let answer = match malformed {
        true if source.reply.is_some() => Answer::Problem(Problem::Malformed(reason)),
        true => Answer::Malformed(reason),
        false => Answer::Rejected,
    };
    let cause = Cause { answer, reason, detail: detail.clone().into() };
    record(shared, served, &cause, reason, !malformed, origin.address);
    // A caller that waits for an answer gets the refusal, and can repeat the request.
    if !source.scheme.is_unsigned() && source.reply.is_none() {
        let received_at = read.as_ref().map_or_else(|| shared.clock.now(), |(at, _)| *at);
        let body = read.map(|(_, body)| body);
        let body_bytes = body.as_ref().map_or(0, |body| body.len() as u64);
        shared.store.quarantine(FailedDelivery {
            source: source.name.clone(),
            scheme: Arc::clone(&source.scheme),
            received_at,
            address: origin.address,
            reason,
            detail,
            path: origin.path,
            headers: verify::evidence(&source.scheme, headers),
            body_bytes,
            // A body that no secret can prove later is not kept.
            body: body.filter(|_| verify::can_be_judged_again(&source.scheme)),
        });
    }
    cause.answer
}

pub(super) fn headers(map: &HeaderMap, wanted: impl Fn(&str) -> bool) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in map {
        if wanted(name.as_str()) {
            headers.push(name.as_str(), value.as_bytes());
        }
    }
    headers
}
