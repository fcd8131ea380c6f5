//! A store for a test, on any engine.
use std::num::NonZeroU32;

use super::*;

/// An engine that a store of a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineKind {
    Sqlite,
    Postgres,
}

/// A store of its own in a directory of its own.
pub(crate) struct Bench {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
    /// The test's database; `None` on SQLite.
    database: Option<TestDatabase>,
    _dir: TempDir,
}

/// Limits that leave the test's own disk out of it.
pub(crate) fn limits() -> Limits {
    Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() }
}

/// Opens a store on SQLite.
pub(crate) fn bench() -> Bench {
    bench_with(limits())
}

/// Opens a store on SQLite with these limits.
pub(crate) fn bench_with(limits: Limits) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("hooklatch.db"), limits };
    open(settings, dir)
}

/// Opens a store on SQLite, in this place.
pub(crate) fn bench_at(settings: Settings) -> Bench {
    open(settings, tempfile::tempdir().unwrap())
}

fn open(settings: Settings, dir: TempDir) -> Bench {
    let clock = Clock::manual(START);
    let store = Store::open(&settings, clock.clone()).unwrap();
    Bench { store, clock, settings, database: None, _dir: dir }
}

pub(crate) async fn bench_on(engine: EngineKind, limits: Limits) -> Bench {
    if engine == EngineKind::Sqlite {
        return bench_with(limits);
    }
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { path: dir.path().join("hooklatch.db"), limits };
    let (clock, database) = (Clock::manual(START), TestDatabase::make(START).await);
    let store = database.open(&settings, &clock).await;
    Bench { store, clock, settings, database: Some(database), _dir: dir }
}

/// What an engine keeps of a store for a restore.
pub(crate) enum Backup {
    Sqlite(std::fs::File),
    Postgres(TestDatabase),
}

impl Store {
    /// A store on SQLite.
    pub(crate) fn sqlite(&self) -> &SqliteStore {
        let Engine::Sqlite(store) = &self.engine else { panic!("a store on PostgreSQL") };
        store
    }
}

/// What is done behind the store's back, as each engine does it.
impl Bench {
    /// Lets time pass.
    pub(crate) async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.set_database_clock().await;
    }

    /// Sets the wall clock.
    pub(crate) async fn set_wall(&self, to: Timestamp) {
        self.clock.set_wall(to);
        self.set_database_clock().await;
    }

    async fn set_database_clock(&self) {
        if let Some(database) = &self.database {
            database.set_clock(self.clock.now()).await;
        }
    }

    /// Closes the store, changes its rows, and opens it again. The SQL is plain; of functions it has `randomblob` and
    /// `zeroblob` only.
    pub(crate) async fn change_rows(&mut self, sql: &str) {
        match &self.database {
            None => self.with_file(|conn| conn.execute_batch(sql).unwrap()).await,
            Some(database) => {
                self.store.close().await;
                database.run(sql).await;
                // By it, an event whose id is another one is missed as if the database had gone back.
                std::fs::remove_file(self.beside(".accepted")).unwrap();
                self.store = self.open_again().await;
            }
        }
    }

    /// Bytes as they are written in the engine's SQL.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match &self.database {
            None => format!("x'{hex}'"),
            Some(_) => format!("'\\x{hex}'"),
        }
    }

    /// The number that this plain query finds.
    pub(crate) async fn number(&self, query: &'static str) -> i64 {
        match &self.database {
            None => {
                let query = move |conn: &Connection| conn.query_row(query, [], |row| row.get(0));
                self.store.sqlite().engine.read(query).await.unwrap()
            }
            Some(database) => database.number(query).await,
        }
    }

    /// From now on the engine refuses a change, such as `INSERT ON job`, of rows for which `when` is true.
    pub(crate) async fn refuse(&mut self, change: &str, when: &str) {
        match &self.database {
            None => {
                let refuse = format!(
                    "CREATE TRIGGER refuse BEFORE {change} WHEN {when} BEGIN SELECT RAISE(ABORT, 'no'); END"
                );
                self.change_rows(&refuse).await;
            }
            Some(database) => database.refuse(change, when).await,
        }
    }

    /// Ends a refusal.
    pub(crate) async fn allow(&mut self) {
        match &self.database {
            None => self.change_rows("DROP TRIGGER refuse").await,
            Some(database) => database.allow().await,
        }
    }

    /// The store is closed for repair, as after an I/O error, or its connections have ended.
    pub(crate) async fn break_down(&self) {
        match &self.database {
            None => {
                self.store.sqlite().engine.queue.report_broken("an I/O error of a test".to_owned());
            }
            Some(database) => database.cut().await,
        }
    }

    /// Breaks the store down until [`Bench::repair`].
    pub(crate) async fn take_away(&self) {
        match &self.database {
            None => std::fs::rename(&self.settings.path, self.beside(".away")).unwrap(),
            Some(database) => database.admit(false).await,
        }
        self.break_down().await;
    }

    pub(crate) async fn repair(&self) {
        match &self.database {
            None => std::fs::rename(self.beside(".away"), &self.settings.path).unwrap(),
            Some(database) => database.admit(true).await,
        }
    }

    /// No caller waits for an answer.
    pub(crate) fn nobody_waits(&self) -> bool {
        match &self.store.intake {
            Intake::Sqlite(intake) => intake.subscriptions.is_empty(),
            Intake::Postgres(intake, _) => intake.writer.subscriptions.is_empty(),
        }
    }

    /// Keeps the writer waiting until what it returns is dropped.
    pub(crate) async fn hold_writer(&self) -> Box<dyn std::any::Any> {
        match &self.database {
            None => Box::new(hold_writer(&self.store).await),
            Some(database) => Box::new(database.hold_writer().await),
        }
    }

    /// On PostgreSQL the store is closed for it: the server copies no database that is in use.
    pub(crate) async fn back_up(&mut self) -> Backup {
        match &mut self.database {
            None => {
                let copy = self.store.admin.copy().unwrap().finished().await.unwrap();
                Backup::Sqlite(copy.file)
            }
            Some(database) => {
                self.store.close().await;
                let copy = database.copy().await;
                self.store = self.open_again().await;
                Backup::Postgres(copy)
            }
        }
    }

    /// The store as a restore in its place makes it, on a machine with this clock.
    pub(crate) async fn restored(self, backup: Backup, clock: Clock) -> Bench {
        self.store.close().await;
        let bench = match backup {
            Backup::Sqlite(mut file) => {
                restore(&self.settings, "backup.db".as_ref(), &mut file, true, &clock).unwrap();
                Bench { clock, ..self }
            }
            Backup::Postgres(copy) => Bench { clock, database: Some(copy), ..self },
        };
        bench.set_database_clock().await;
        let store = bench.open_again().await;
        if let Some(database) = &bench.database {
            // Its node runs nothing any more.
            database.run("DELETE FROM roll_call").await;
        }
        Bench { store, ..bench }
    }

    async fn open_again(&self) -> Store {
        match &self.database {
            None => Store::open(&self.settings, self.clock.clone()).unwrap(),
            Some(database) => database.open(&self.settings, &self.clock).await,
        }
    }
}

impl Bench {
    pub(crate) async fn accept(
        &self,
        source: &str,
        delivery: Verified,
        handlers: &[&str],
    ) -> Accepted {
        self.try_accept(source, delivery, handlers).await.unwrap()
    }

    pub(crate) async fn try_accept(
        &self,
        source: &str,
        delivery: Verified,
        handlers: &[&str],
    ) -> Result<Accepted, Refused> {
        self.accept_as(OnRedelivery::Ignore, source, delivery, handlers).await
    }

    pub(crate) async fn accept_as(
        &self,
        on_redelivery: OnRedelivery,
        source: &str,
        delivery: Verified,
        handlers: &[&str],
    ) -> Result<Accepted, Refused> {
        let jobs = handlers.iter().copied().map(name).map(NewJob::of).collect();
        let (source, received_at) = (name(source), self.clock.now());
        let new = Accept { source, received_at, delivery, jobs, on_redelivery };
        self.store.intake.accept(new).await
    }

    /// A stored event with one ready job for `h`, claimed.
    pub(crate) async fn running(&self, event: &str) -> Claimed {
        self.accept("stripe", stripe(event, "a.b", "{}"), &["h"]).await;
        self.claim_one().await
    }

    pub(crate) async fn claim_one(&self) -> Claimed {
        let mut claimed = self.store.jobs.claim(&name("h"), 1, None).await.unwrap().jobs;
        assert_eq!(claimed.len(), 1, "one job to claim");
        claimed.remove(0)
    }

    pub(crate) async fn complete(&self, claimed: &Claimed, outcome: Outcome, next: Next) -> bool {
        self.store
            .jobs
            .complete(completion(claimed, outcome, next, self.clock.now()))
            .await
            .unwrap()
    }

    pub(crate) async fn job(&self, job: JobId) -> JobRow {
        let jobs = self.store.admin.jobs(JobFilter::default()).await.unwrap().rows;
        jobs.into_iter().find(|row| row.job == job).unwrap()
    }

    pub(crate) async fn attempts(&self, event: &str) -> Vec<(u32, Option<Outcome>)> {
        let shown = self.store.admin.show(None, id(event), None).await.unwrap();
        shown[0].jobs[0].attempts.iter().map(|a| (a.number, a.outcome)).collect()
    }

    /// Waits for what the store settles by itself behind a claim, as it does where a payload is gone.
    pub(crate) async fn until_nothing_runs(&self) {
        let come = async {
            while !self.store.jobs.running().await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), come).await.unwrap();
    }

    /// Resolves a job after its last attempt.
    pub(crate) async fn resolve(&self, job: JobId, how: Resolution) -> Result<State, Error> {
        let attempt = self.store.admin.job(job).await?.attempt;
        self.store.admin.resolve(job, attempt, how).await
    }

    /// Closes the store and opens it again, as a restart does.
    pub(crate) async fn restart(&mut self) {
        self.store.close().await;
        self.store = self.open_again().await;
    }

    /// Closes the store and changes its file by hand.
    pub(crate) async fn with_file(&mut self, change: impl FnOnce(&Connection)) {
        self.store.close().await;
        change(&Connection::open(&self.settings.path).unwrap());
        self.store = Store::open(&self.settings, self.clock.clone()).unwrap();
    }

    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        path::beside(&self.settings.path, suffix)
    }
}

/// What the tests of groups use.
impl Bench {
    pub(crate) async fn take(&self, delivery: Verified, job: NewJob) -> Accepted {
        let (source, received_at) = (name("stripe"), self.clock.now());
        let on_redelivery = OnRedelivery::ReplayDead;
        let new = Accept { source, received_at, delivery, jobs: vec![job], on_redelivery };
        self.store.intake.accept(new).await.unwrap()
    }

    /// A new event with a job for `h` in the group `key`.
    pub(crate) async fn event(&self, event: &str, key: &str, rule: GroupRule) {
        self.take(stripe(event, "a", "{}"), grouped(key, rule)).await;
    }

    /// Claims all that may run.
    pub(crate) async fn claim_all(&self) -> Vec<Claimed> {
        self.store.jobs.claim(&name("h"), 99, None).await.unwrap().jobs
    }

    /// Claims all that may run, and names their events.
    pub(crate) async fn starts(&self) -> Vec<String> {
        self.claim_all().await.iter().map(|one| one.facts.event_id.to_string()).collect()
    }

    pub(crate) async fn of_event(&self, event: &str) -> JobRow {
        let mut shown = self.store.admin.show(None, id(event), None).await.unwrap();
        shown.remove(0).jobs.remove(0).job
    }

    pub(crate) async fn state(&self, event: &str) -> (State, Option<String>) {
        let job = self.of_event(event).await;
        (job.state, job.reason)
    }

    /// Ends the one running attempt.
    pub(crate) async fn end(&self, outcome: Outcome, next: Next) {
        let mut running = self.store.jobs.running().await.unwrap();
        assert_eq!(running.len(), 1, "one runs");
        let RunningAttempt { job, attempt, .. } = running.remove(0);
        let done = Completion {
            job,
            attempt,
            outcome,
            counts: true,
            next,
            finished_at: self.clock.now(),
            record: Record::default(),
            answer: None,
        };
        assert!(self.store.jobs.complete(done).await.unwrap());
        self.whole().await;
    }

    pub(crate) async fn succeed(&self) {
        self.end(Outcome::Succeeded, Next::Succeeded).await;
    }

    /// Lets retention delete what it may.
    pub(crate) async fn expire_all(&self) {
        self.advance(DAY).await;
        let now = self.clock.now();
        let before = Cutoffs { payloads: now, ids: now, dead: now };
        self.store.jobs.expire(before).await.unwrap();
        self.store.jobs.expire(before).await.unwrap();
    }

    /// Every group has a job that holds it, or none behind.
    pub(crate) async fn whole(&self) {
        // One pass: SQLite's indexes want conditions that PostgreSQL does not read.
        let stuck = "SELECT count(*) FROM (
                SELECT handler FROM job WHERE group_key IS NOT NULL GROUP BY handler, group_key
                HAVING max(CASE WHEN behind THEN 1 ELSE 0 END) = 1
                    AND max(CASE WHEN holds AND NOT behind THEN 1 ELSE 0 END) = 0
            ) s";
        let stuck = self.number(stuck).await;
        assert_eq!(stuck, 0, "jobs are behind, and none holds their group");
    }
}

/// What the tests of rates use.
impl Bench {
    /// How many attempts start now, and for how long no other one may.
    pub(crate) async fn start(
        &self,
        limit: usize,
        rate: Option<Rate>,
    ) -> (usize, Option<Duration>) {
        let claim =
            Claim { handler: name("h"), limit, runner: None, rate, cluster_concurrency: None };
        let claims = self.store.jobs.complete_and_claim(&[], Some(claim)).await.1.await.unwrap();
        (claims.jobs.len(), claims.pause)
    }

    pub(crate) async fn ready(&self, count: usize) {
        for number in 0..count {
            self.accept("stripe", stripe(&format!("e{number}"), "a", "{}"), &["h"]).await;
        }
    }
}

/// A job for `h` in the group `key`.
pub(crate) fn grouped(key: &str, rule: GroupRule) -> NewJob {
    let key = GroupKey::of(&name("stripe"), &[Some(key)]);
    NewJob { group: Some(Group { key, rule }), ..NewJob::of(name("h")) }
}

pub(crate) fn rate(starts: u32, per: Duration, burst: u32) -> Option<Rate> {
    let [starts, burst] = [starts, burst].map(|number| NonZeroU32::new(number).unwrap());
    Some(Rate { starts, per, burst })
}
