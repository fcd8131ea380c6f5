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
mod kit;
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
pub(super) use kit::*;
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
use crate::retry::Next;
use crate::runner::tests::needs;
use crate::verify::Verified;

use super::node::path;
use super::sqlite::engine::migration_backup;
use super::sqlite::engine::queue::Priority;
use super::sqlite::tables::codec;
use super::*;
use database::TestDatabase;

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
