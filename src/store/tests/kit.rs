//! What the tests of pure decisions need of the store's kit: genuine deliveries, and values.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use bytes::Bytes;

use crate::model::{EventId, Headers, JobId, Name, OnUnknown, State, Timestamp};
use crate::provider::Scheme;
use crate::retry::{GiveUp, Policy};
use crate::store::decide::job_move::FoundJob;
use crate::verify::{self, Draft, Verified};

pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A delivery whose signature covers the id (scheme `stripe`).
pub(crate) fn stripe(id: &str, event_type: &str, data: &str) -> Verified {
    let body = format!(r#"{{"id":"{id}","object":"event","type":"{event_type}","data":{data}}}"#);
    delivery("stripe", "whsec_test", id, event_type, body)
}

/// A delivery whose signature covers only the body (scheme `github`): the same body under a new id is
/// held, or flagged for the types that honestly repeat, such as `label`.
pub(crate) fn github(id: &str, event: &str, body: &str) -> Verified {
    delivery("github", "test", id, event, body.to_owned())
}

/// A delivery signed and verified as the provider would.
pub(crate) fn delivery(
    provider: &str,
    secret: &str,
    id: &str,
    event_type: &str,
    body: String,
) -> Verified {
    delivery_of(&Scheme::embedded(provider).unwrap(), secret, id, event_type, body)
}

/// A delivery to a source with this scheme, signed and verified as the provider would.
pub(crate) fn delivery_of(
    scheme: &Scheme,
    secret: &str,
    id: &str,
    event_type: &str,
    body: String,
) -> Verified {
    let has_key = !scheme.proof().is_absent();
    let key = has_key.then(|| verify::key(scheme, "test", secret).unwrap());
    let body = Bytes::from(body);
    let mut headers = Headers::new();
    headers.push("Content-Type", "application/json");
    let draft = Draft { method: "POST", id, event_type, headers, body: body.clone(), url: None };
    let headers = verify::sign(scheme, key.as_ref(), &draft, START).unwrap();
    let request = verify::Request { method: "POST", url: None, headers: &headers, body };
    verify::verify(scheme, key.as_slice(), request, START).unwrap()
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn id(text: &str) -> EventId {
    text.parse().unwrap()
}

/// A job of handler `h` in this state after its second attempt, in no group, as a transaction finds it.
pub(crate) fn found_job(state: State) -> FoundJob {
    FoundJob {
        row: 1,
        job: JobId::from_bytes([7; 16]),
        event: 1,
        handler: name("h"),
        state,
        attempt: 2,
        grouped: false,
        undecided: false,
    }
}

pub(crate) fn policy(on_unknown: OnUnknown, attempts: u32) -> Policy {
    Policy {
        on_unknown,
        give_up: GiveUp::Attempts(attempts),
        backoff_base: Duration::from_secs(10),
        backoff_max: HOUR,
        answers: false,
        pauses: Vec::new(),
    }
}
