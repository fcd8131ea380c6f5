//! The store: three handles over one of two engines.
//!
//! A caller gets [`Intake`], [`Jobs`] or [`Admin`], and sees no verb of another. `handles` lists their verbs, each
//! with what it promises; an engine has a file for each. All SQL is in this folder: only domain types cross its border.
//! What the facts of a transaction lead to is decided in `decide` alone; the engines read the facts and make the
//! writes. `rows` says how what both of them list is read. The rules S1 to S13 are in `docs/protocol.md`, N1 and on in
//! `docs/cluster.md`; each file names those that it keeps.
//!
//! ```text
//! handles ──▶ sqlite, postgres ──▶ quarantine ──▶ node ──▶ decide ──▶ border
//! sqlite: admin ──▶ intake, jobs ──▶ engine ──▶ tables
//! ```
//!
//! [`transfer`] moves a store from SQLite to PostgreSQL.

mod answer;
mod body;
mod border;
mod check;
mod codec;
mod columns;
mod decide;
mod handles;
mod mutex;
mod node;
pub mod postgres;
mod quarantine;
mod rows;
mod sqlite;
mod sum;
#[cfg(test)]
mod tests;
mod transfer;

#[cfg(test)]
pub(crate) use tests::hold_writer;

use std::sync::Arc;

use crate::clock::Clock;

use postgres::store::PostgresStore;
use postgres::{ClusterNode, PublishedHandler, Target};
use sqlite::store::SqliteStore;

pub use body::BodyParts;
pub use border::*;

pub use decide::notice::{Notice, NoticeJob, NoticeSubscribers};
pub use decide::resolve::Resolution;
pub use handles::{Admin, Intake, Jobs};
pub use node::durable::give_name;
pub use node::open_error::OpenError;
pub(crate) use quarantine::handle::holder;
pub use sqlite::engine::copy_task::{CopyError, CopyInProgress, Manifest, StoreCopy};
pub use sqlite::engine::inspect::{BackupInfo, InspectError, inspect, refuse_log};
pub use sqlite::engine::restore::{RestoreError, RestoreResult, is_there, restore};
pub use transfer::{HeldStore, MoveError, MoveResult};

/// An open store with its three handles. The writer ends when all clones and handles are dropped;
/// [`Store::close`] waits for its end.
#[derive(Clone)]
pub struct Store {
    pub intake: Intake,
    pub jobs: Jobs,
    pub admin: Admin,
    engine: Engine,
}

#[derive(Clone)]
enum Engine {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

impl Store {
    /// Opens the SQLite file, which it makes or migrates where that is needed, under its lock. Blocking.
    pub fn open(settings: &Settings, clock: Clock) -> Result<Store, OpenError> {
        let store = SqliteStore::open(settings, clock)?;
        Ok(Store {
            intake: Intake::Sqlite(store.intake.clone()),
            jobs: Jobs::Sqlite(store.jobs.clone()),
            admin: Admin::Sqlite(store.admin.clone()),
            engine: Engine::Sqlite(Arc::new(store)),
        })
    }

    /// Opens the database as this node, under the lock of its state folder. The folder has the file's place, without the
    /// file: a store that is still there is refused.
    pub async fn connect(
        settings: &Settings,
        node: ClusterNode,
        handlers: Vec<PublishedHandler>,
        clock: Clock,
    ) -> Result<Store, OpenError> {
        let (settings, held) = transfer::hold(settings, clock.clone()).await?;
        Ok(PostgresStore::open(&settings, node, handlers, held, clock).await?.into())
    }

    /// Opens the database for a command where no receiver runs: it registers no node, and takes no delivery and no job.
    pub async fn visit(
        settings: &Settings,
        target: Target,
        clock: Clock,
    ) -> Result<Store, OpenError> {
        let (settings, held) = transfer::hold(settings, clock.clone()).await?;
        Ok(PostgresStore::visit(&settings, target, held, clock).await?.into())
    }

    /// Replaces the handlers that other nodes know of this one. A file has no other node.
    pub async fn publish(&self, handlers: Vec<PublishedHandler>) {
        match &self.engine {
            Engine::Sqlite(_) => {}
            Engine::Postgres(store) => store.publish(handlers).await,
        }
    }

    /// Refuses new requests, commits and answers the queued ones, closes, and releases the lock. Afterwards
    /// everything is refused.
    pub async fn close(&self) {
        self.stop(std::future::pending()).await;
    }

    /// Closes the store as [`Store::close`] does. Once `hurry` resolves, a database on another machine is not waited
    /// for: what it has not answered is refused as unconfirmed.
    pub async fn stop(&self, hurry: impl Future<Output = ()>) {
        match &self.engine {
            Engine::Sqlite(store) => store.close().await,
            Engine::Postgres(store) => store.close(hurry).await,
        }
    }
}

impl From<PostgresStore> for Store {
    fn from(store: PostgresStore) -> Self {
        Store {
            intake: Intake::Postgres(store.intake.clone(), Arc::clone(&store.quarantine)),
            jobs: Jobs::Postgres(store.jobs.clone()),
            admin: Admin::Postgres(Box::new(store.admin.clone())),
            engine: Engine::Postgres(Arc::new(store)),
        }
    }
}
