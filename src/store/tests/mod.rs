//! The store through its front: real files, the real writer, a clock that the test owns.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]
#![allow(clippy::duplicate_mod, reason = "each engine has the suite")]

mod bench;
mod copy;
#[path = "../../../tests/postgres/database.rs"]
mod database;
mod disk;
mod folders;
mod ids;
mod if_installed;
mod large;
#[cfg(debug_assertions)]
mod migration;
mod opening;
mod plans;
mod replay_index;
mod restore;
mod schema;
#[allow(dead_code, reason = "tests of PostgreSQL alone use more of it")]
#[path = "../../../tests/postgres/server.rs"]
mod server;
mod uncertain;
mod writing;

/// The suite on SQLite.
#[path = "."]
mod sqlite {
    use super::*;

    use ::tokio;

    fn engine() -> EngineKind {
        EngineKind::Sqlite
    }

    mod conformance;
}

/// The suite on PostgreSQL. Where that is missing, each test notes the need and ends.
#[path = "."]
mod postgres {
    use super::*;

    use super::if_installed as tokio;

    fn engine() -> EngineKind {
        EngineKind::Postgres
    }

    mod conformance;
}

pub(super) use bench::*;
pub(crate) use writing::hold_writer;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::model::*;
use crate::provider::Scheme;
use crate::retry::{GiveUp, Next, Policy};
use crate::runner::tests::needs;
use crate::verify::{self, Draft, Verified};

use super::decide::job_move::FoundJob;
use super::node::path;
use super::sqlite::engine::migration_backup;
use super::sqlite::engine::queue::Priority;
use super::sqlite::tables::codec;
use super::*;
use database::TestDatabase;

pub(super) const START: Timestamp = Timestamp(1_700_000_000_000);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// A delivery whose signature covers the id (scheme `stripe`).
pub(super) fn stripe(id: &str, event_type: &str, data: &str) -> Verified {
    let body = format!(r#"{{"id":"{id}","object":"event","type":"{event_type}","data":{data}}}"#);
    delivery("stripe", "whsec_test", id, event_type, body)
}

/// A delivery whose signature covers only the body (scheme `github`): the same body under a new id is
/// held, or flagged for the types that honestly repeat, such as `label`.
pub(super) fn github(id: &str, event: &str, body: &str) -> Verified {
    delivery("github", "test", id, event, body.to_owned())
}

/// A delivery signed and verified as the provider would.
pub(super) fn delivery(
    provider: &str,
    secret: &str,
    id: &str,
    event_type: &str,
    body: String,
) -> Verified {
    delivery_of(&Scheme::embedded(provider).unwrap(), secret, id, event_type, body)
}

/// A delivery to a source with this scheme, signed and verified as the provider would.
pub(super) fn delivery_of(
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

pub(super) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(super) fn id(text: &str) -> EventId {
    text.parse().unwrap()
}

/// A delivery to `source` from `address` that failed at [`START`].
pub(super) fn failed(source: &str, address: &str, body: &str) -> FailedDelivery {
    static GITHUB: LazyLock<Arc<Scheme>> =
        LazyLock::new(|| Arc::new(Scheme::embedded("github").unwrap()));
    FailedDelivery {
        source: name(source),
        scheme: Arc::clone(&GITHUB),
        received_at: START,
        address: Some(address.parse().unwrap()),
        reason: "bad_signature",
        detail: "no secret matches".to_owned(),
        path: format!("/{source}"),
        headers: Headers::new(),
        body_bytes: body.len() as u64,
        body: Some(Bytes::copy_from_slice(body.as_bytes())),
    }
}

/// Payloads and events that retention deletes where dead jobs are kept for ever.
pub(super) async fn expired(bench: &Bench, payloads: Timestamp, ids: Timestamp) -> (u64, u64) {
    let before = Cutoffs { payloads, ids, dead: Timestamp(i64::MIN) };
    let expired = bench.store.jobs.expire(before).await.unwrap();
    (expired.payloads, expired.events)
}

pub(super) fn completion(
    claimed: &Claimed,
    outcome: Outcome,
    next: Next,
    finished_at: Timestamp,
) -> Completion {
    Completion {
        job: claimed.facts.job,
        attempt: claimed.facts.attempt,
        outcome,
        counts: outcome != Outcome::NotStarted,
        next,
        finished_at,
        record: Record::default(),
        answer: None,
    }
}

/// Asserts that the end of a job that is not there settles nothing. On PostgreSQL its row may be of a history that is
/// gone, and its end comes late.
pub(super) fn assert_settles_nothing(completed: Result<bool, Error>) {
    assert!(matches!(completed, Ok(false) | Err(Error::NoJob(_))), "{completed:?}");
}

/// A job of handler `h` in this state after its second attempt, in no group, as a transaction finds it.
pub(super) fn found_job(state: State) -> FoundJob {
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

pub(super) fn policy(on_unknown: OnUnknown, attempts: u32) -> Policy {
    Policy {
        on_unknown,
        give_up: GiveUp::Attempts(attempts),
        backoff_base: Duration::from_secs(10),
        backoff_max: HOUR,
        answers: false,
        pauses: Vec::new(),
    }
}
