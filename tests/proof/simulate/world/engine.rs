//! What depends on the engine of a run's store: opening it, its clock, requests that are cut off, and a last check.

use std::cell::Cell;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use hooklatch::clock::Clock;
use hooklatch::store::{Settings, Store};
use tokio::task::yield_now;
use tokio::{join, select};

use super::super::crash;
use super::super::model::Model;
use super::{COMMITS, Step, World, limits};
use crate::database::TestDatabase;

/// An engine that the store of a run is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Sqlite,
    Postgres,
}

/// A number that any commit of [`COMMITS`] changes.
const ROWS: &str = "
    SELECT coalesce(bit_xor(hashtextextended(rows::text, 0)), 0) FROM (
        SELECT event::text AS rows FROM event UNION ALL SELECT job::text FROM job
        UNION ALL SELECT attempt::text FROM attempt) of_all";

/// What no constraint refuses: a running job without its live attempt, a live attempt of a job that does not run, and a
/// group that stands still.
const BROKEN: &str = "
    SELECT count(*) FROM job WHERE
        (state = 'running') <> EXISTS (SELECT FROM attempt WHERE attempt.job = job.row AND outcome IS NULL)
        OR behind AND NOT EXISTS (SELECT FROM job front WHERE front.handler = job.handler
            AND front.group_key = job.group_key AND front.holds AND NOT front.behind)";

pub(super) async fn open(folder: &Path, clock: &Clock, database: Option<&TestDatabase>) -> Store {
    let settings = Settings { path: folder.join(crash::DATABASE), limits: limits() };
    match database {
        None => Store::open(&settings, clock.clone()).unwrap(),
        Some(database) => database.open(&settings, clock).await,
    }
}

/// After how long the next request is cut off.
pub(super) type Cut = Cell<Option<Duration>>;

impl World<'_> {
    pub(super) async fn reopen(&mut self) {
        // Ids are deleted here sooner than a configuration lets them be: a missing one proves nothing.
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "accepted") {
                std::fs::remove_file(path).unwrap();
            }
        }
        self.store = open(&self.folder, &self.clock, self.database.as_ref()).await;
    }

    /// Sets the database's clock to the receiver's.
    pub(super) async fn set_database_clock(&self) {
        if let Some(database) = &self.database {
            database.set_clock(self.clock.now()).await;
        }
    }

    /// The store's answer, or nothing if this is the request that is cut off: then the connections end while it is
    /// under way, and the store.
    pub(super) async fn ask<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let Some(after) = self.cut.take() else { return Some(request.await) };
        let (began, mut request) = (Instant::now(), pin!(request));
        // The runtime's timers are too coarse: a transaction takes a millisecond.
        let is_answered = loop {
            select! { biased; _ = &mut request => break true, () = yield_now() => {} }
            if began.elapsed() >= after {
                break false;
            }
        };
        self.database.as_ref().unwrap().cut().await;
        if !is_answered {
            // Until the store is closed, the request is tried again.
            join!(request, self.store.close());
        }
        None
    }

    /// Kills the receiver during a request: its connections end, and it gets no others. Whether the request was
    /// committed depends on the moment, and not on the seed alone. The rows say which of the two it is.
    pub(super) async fn cut_request(&mut self) {
        let database = self.database.as_ref().unwrap();
        let (before, rows) = (self.memory.clone(), database.number(ROWS).await);
        // The first request of an operator makes their connection.
        let unknown = hooklatch::random::job_id(self.clock.now());
        self.store.admin.drop_job(unknown, None).await.unwrap_err();
        database.admit(false).await;
        let most = if self.random.one_in(3) { 50_000 } else { 2000 };
        self.cut.set(Some(Duration::from_micros(self.random.below(most) as u64)));
        let step = self.random.weighted(COMMITS);
        Box::pin(self.step(step)).await;
        self.cut.set(None);
        let is_committed = self.database.as_ref().unwrap().number(ROWS).await != rows;
        let changes = format!("{:?}", before.model) != format!("{:?}", self.memory.model);
        assert!(changes || !is_committed, "{step:?} has changed rows");
        let mut replayed = Vec::new();
        if is_committed {
            self.saw("durable, unanswered", 1);
            self.note(format!("{step:?} is durable, and its answer is never seen"));
            if matches!(step, Step::Replay) {
                let replays = |model: &Model, row: &u64| model.jobs.get(row).map(|job| job.replays);
                let now = &self.memory.model;
                let rows = now.jobs.keys().copied();
                replayed
                    .extend(rows.filter(|row| replays(&before.model, row) != replays(now, row)));
            }
            // The handler's result was known before the commit.
            if !matches!(step, Step::Complete) {
                self.memory.ledger = before.ledger;
            }
        } else {
            self.saw("cut off", u64::from(changes));
            self.note(format!("{step:?} is cut off"));
            self.memory = before;
        }
        self.kill(None).await;
        // The start has seen the ids of new jobs.
        for row in replayed {
            let job = &self.memory.model.jobs[&row];
            self.memory.ledger.replayed(&[job.id.unwrap()], &[job.handler]);
        }
    }

    /// Kills the receiver: the database hears nothing more of it.
    pub(super) async fn cut_all(&self, database: &TestDatabase) {
        database.admit(false).await;
        database.cut().await;
        self.store.close().await;
        database.admit(true).await;
    }

    /// Checks what the closed store leaves.
    pub(super) async fn check_integrity(&self) {
        match &self.database {
            None => crash::check_integrity(&self.folder),
            Some(database) => {
                assert_eq!(database.number(BROKEN).await, 0, "jobs whose rows contradict others");
            }
        }
    }
}
