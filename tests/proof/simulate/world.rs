//! One run: the real store on a real file or database, the model and the ledger, and the steps that change all three.

mod arrivals;
mod engine;
mod jobs;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{
    GroupRule, Incarnation, JobId, OnUnknown, Runner, RunnerName, State, Timestamp,
};
use hooklatch::retry::{GiveUp, Policy};
use hooklatch::store::{Accepted, Cutoffs, QuarantineFilter, Store};
use tempfile::TempDir;

use super::crash::{self, Copier};
use super::deliveries::{Keys, SOURCES};
use super::model::Model;
use super::promises::Ledger;
use super::{History, compare, shrink};
use crate::database::TestDatabase;
use crate::random::Random;
use engine::Cut;

pub(crate) use engine::EngineKind;

const START: Timestamp = Timestamp(1_700_000_000_000);
const HANDLERS: [&str; 4] = ["bill", "mail", "build", "tell"];

/// The number of steps between two comparisons of the whole store; each start has one too.
const COMPARE_EVERY: usize = 50;

/// An attempt that this receiver claimed.
#[derive(Debug, Clone)]
struct Running {
    row: u64,
    job: JobId,
    number: u32,
    counted: u32,
    since: Timestamp,
    handler: &'static str,
}

/// The receiver's memory and the test's knowledge. A crash deletes the receiver's memory.
#[derive(Clone)]
struct Memory {
    model: Model,
    ledger: Ledger,
    running: Vec<Running>,
    /// Attempts that ended, or that an earlier receiver claimed.
    past: Vec<Running>,
}

pub(crate) struct World<'c> {
    copier: &'c Copier,
    random: Random,
    keys: Keys,
    dir: TempDir,
    folder: PathBuf,
    starts: usize,
    clock: Clock,
    /// The run's database; `None` on SQLite.
    database: Option<TestDatabase>,
    store: Store,
    cut: Cut,
    memory: Memory,
    policies: Vec<(&'static str, Policy)>,
    /// What the jobs of a group do to each other, of the handlers that have groups.
    rules: Vec<(&'static str, GroupRule)>,
    /// The quarantined deliveries, with their reasons.
    refused: Vec<(&'static str, &'static str)>,
    /// The number of ids in use. It grows, so that later steps still use new ids.
    pool: usize,
    /// How often each kind of event happened.
    seen: Seen,
    trace: Trace,
}

/// The kinds of events that a run reached, with their counts.
pub(crate) type Seen = BTreeMap<&'static str, u64>;

/// The kinds of events that all runs together must have reached; otherwise they prove nothing about them.
pub(crate) const MUST_BE_SEEN: &[&str] = &[
    "created",
    "id reused",
    "suspected replay",
    "flagged",
    "duplicate",
    "conflict",
    "made at once",
    "refused",
    "claimed",
    "claimed after a wait",
    "succeeded",
    "waiting",
    "ready again",
    "attempts exhausted",
    "rejected",
    "unknown outcome",
    "cancelled",
    "late result",
    "result of a deleted job",
    "put back",
    "not found",
    "wrong state",
    "ambiguous",
    "variants",
    "payload gone",
    "clamped",
    "payload deleted",
    "id deleted",
    "cut off",
    "durable, unanswered",
    "killed",
    "held by a start",
    "waits after a start",
    "handler gone",
    "adopted",
    "behind",
    "superseded",
    "superseded after an attempt",
    "a newer one has run",
    "condition failed",
    "dropped",
    "resolved as failed",
];

/// The kinds of events that few runs may miss: fewer than half of the histories reach one.
pub(crate) const RARE: &[&str] = &[
    "flagged",
    "cancelled",
    "result of a deleted job",
    "ambiguous",
    "payload gone",
    "clamped",
    "superseded after an attempt",
    "a newer one has run",
];

/// The last steps, which are printed if the run fails.
struct Trace {
    seed: u64,
    /// The number of the step that runs; 0 is the first start.
    number: usize,
    steps: Vec<String>,
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() && !shrink::is_quiet() {
            eprintln!("the last steps of seed {}, of {}:", self.seed, self.steps.len());
            self.steps.iter().rev().take(12).rev().for_each(|step| eprintln!("  {step}"));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Deliver,
    DeliverAtOnce,
    DeliverRefused,
    Claim,
    Complete,
    CompleteLate,
    Replay,
    Drop,
    Resolve,
    Pass,
    Jump,
    Clamp,
    Expire,
    Kill,
    CutOff,
    Restart,
}

const STEPS: &[(usize, Step)] = &[
    (28, Step::Deliver),
    (6, Step::DeliverAtOnce),
    (8, Step::DeliverRefused),
    (22, Step::Claim),
    (26, Step::Complete),
    (6, Step::CompleteLate),
    (8, Step::Replay),
    (4, Step::Drop),
    (5, Step::Resolve),
    (12, Step::Pass),
    (3, Step::Jump),
    (2, Step::Clamp),
    (4, Step::Expire),
    (2, Step::Kill),
    (3, Step::CutOff),
    (1, Step::Restart),
];

/// The steps with exactly one commit, during which a crash can be simulated.
const COMMITS: &[(usize, Step)] = &[
    (3, Step::Deliver),
    (3, Step::Claim),
    (3, Step::Complete),
    (1, Step::Replay),
    (1, Step::Drop),
];

/// Runs a history.
pub(crate) async fn run(history: &History, copier: &Copier) -> Seen {
    let mut seeds = Random::new(history.seed);
    let mut world = World::new(history, Random::new(seeds.next()), copier).await;
    world.start().await;
    for number in 1..=history.steps.iter().copied().max().unwrap_or(0) {
        // A step draws the same, whichever others are left out.
        world.random = Random::new(seeds.next());
        if !history.steps.contains(&number) {
            continue;
        }
        world.trace.number = number;
        let step = world.random.weighted(STEPS);
        world.pool = 3 + number / 12;
        world.step(step).await;
        world.check().await;
        if number % COMPARE_EVERY == 0 {
            world.compare().await;
        }
    }
    world.compare().await;
    world.store.close().await;
    world.check_integrity().await;
    std::mem::take(&mut world.seen)
}

impl<'c> World<'c> {
    async fn new(history: &History, random: Random, copier: &'c Copier) -> Self {
        let &History { engine, seed, fault, .. } = history;
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("0");
        std::fs::create_dir(&folder).unwrap();
        let clock = Clock::manual(START);
        let database = match engine {
            EngineKind::Sqlite => None,
            EngineKind::Postgres => Some(TestDatabase::make(START).await),
        };
        let mut store = engine::open(&folder, &clock, database.as_ref()).await;
        if let Some(sql) = fault {
            store.close().await;
            crash::plant(&folder, sql);
            store = engine::open(&folder, &clock, database.as_ref()).await;
        }
        World {
            copier,
            random,
            keys: Keys::new(),
            dir,
            folder,
            starts: 0,
            clock,
            database,
            store,
            cut: Cell::new(None),
            memory: Memory {
                model: Model::of(engine),
                ledger: Ledger::default(),
                running: Vec::new(),
                past: Vec::new(),
            },
            policies: Vec::new(),
            rules: Vec::new(),
            refused: Vec::new(),
            pool: 3,
            seen: Seen::new(),
            trace: Trace { seed, number: 0, steps: Vec::new() },
        }
    }

    fn now(&self) -> i64 {
        self.clock.now().0
    }

    fn saw(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            *self.seen.entry(what).or_default() += times;
        }
    }

    fn saw_answer(&mut self, answer: &Accepted) {
        let what = match answer {
            Accepted::Created { held: Some(reason), .. } => reason.as_str(),
            Accepted::Created { flagged: true, .. } => "flagged",
            Accepted::Created { .. } => "created",
            Accepted::Duplicate { conflict: true, .. } => "conflict",
            Accepted::Duplicate { .. } => "duplicate",
        };
        self.saw(what, 1);
    }

    fn note(&mut self, what: String) {
        self.trace.steps.push(format!("{}: {what}", self.trace.number));
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Deliver => self.deliver().await,
            Step::DeliverAtOnce => self.deliver_at_once().await,
            Step::DeliverRefused => self.deliver_refused(),
            Step::Claim => self.claim().await,
            Step::Complete => self.complete().await,
            Step::CompleteLate => self.complete_late().await,
            Step::Replay => self.replay().await,
            Step::Drop => self.drop_job().await,
            Step::Resolve => self.resolve().await,
            Step::Pass => self.pass().await,
            Step::Jump => self.jump().await,
            Step::Clamp => self.clamp().await,
            Step::Expire => self.expire().await,
            Step::Kill => self.kill(None).await,
            Step::CutOff => self.cut_off().await,
            Step::Restart => self.restart().await,
        }
    }

    /// Compares the running jobs, after each step.
    async fn check(&mut self) {
        compare::running(&self.store, &self.memory.model).await;
        let behind = compare::groups(&self.store).await;
        self.saw("behind", behind);
        for reason in ["superseded", "condition failed"] {
            let has = self.memory.model.jobs.values().any(|job| job.reason == Some(reason));
            self.saw(reason, u64::from(has));
        }
    }

    async fn compare(&mut self) {
        let stored = compare::all(&self.store, &mut self.memory.model).await;
        self.memory.ledger.check(&stored);
        for (source, _) in SOURCES {
            let filter = QuarantineFilter {
                source: Some(source.parse().unwrap()),
                ..QuarantineFilter::default()
            };
            let kept = self.store.admin.quarantined(filter).await.unwrap();
            assert!(kept.bytes <= limits().quarantine_bytes, "{} bytes kept", kept.bytes);
            // No caller waits for these counts, so a crash or an early read may miss some.
            let mut sent = self.refused.iter().rev().filter(|(of, _)| of == source);
            for row in &kept.deliveries {
                let found = sent.any(|(_, reason)| *reason == row.reason);
                assert!(found, "{source} kept a failed delivery that was not: {row:?}");
            }
        }
    }

    async fn pass(&mut self) {
        let most = self.random.weighted(&[(6, 60), (3, 600), (2, 36_000)]);
        let by = Duration::from_millis(self.random.below(most * 1000) as u64);
        self.note(format!("{by:?} pass"));
        self.clock.advance(by);
        self.set_database_clock().await;
    }

    async fn jump(&mut self) {
        let by = Duration::from_secs(self.random.below(3 * 86_400) as u64);
        let now = self.clock.now();
        let to = if self.random.one_in(2) { now.after(by) } else { now.before(by) };
        self.note(format!("the wall clock jumps from {now} to {to}"));
        self.clock.set_wall(to);
        self.set_database_clock().await;
    }

    async fn clamp(&mut self) {
        self.note("clamp".to_owned());
        let moved = self.store.jobs.clamp_due().await.unwrap();
        let expected = self.memory.model.clamp(self.clock.now().0);
        self.saw("clamped", moved);
        assert_eq!(moved, expected, "how many waits began in the future");
        self.compare().await;
    }

    async fn expire(&mut self) {
        let mut before = || {
            let most = *self.random.pick(&[1, 60, 3600, 4 * 3600]);
            self.clock.now().before(Duration::from_secs(self.random.below(most) as u64))
        };
        let (payloads, mut ids) = (before(), before());
        if self.random.one_in(2) {
            // As in the configuration, ids are kept much longer than payloads.
            ids = payloads.before(Duration::from_secs(12 * 3600));
        }
        self.note(format!("expire payloads before {payloads}, ids before {ids}"));
        let expected = self.memory.model.expire(payloads.0, ids.0);
        let dead = Timestamp(i64::MIN);
        let expired = self.store.jobs.expire(Cutoffs { payloads, ids, dead }).await.unwrap();
        let deleted = (expired.payloads, expired.events);
        assert_eq!(deleted, expected, "how many payloads and events were deleted");
        self.saw("payload deleted", deleted.0);
        self.saw("id deleted", deleted.1);
        self.memory.ledger.expired(ids.0);
    }

    /// Kills the receiver between two commits, or while it writes one, of which `bytes` are in the log.
    async fn kill(&mut self, bytes: Option<u64>) {
        self.note(format!("kill, with {bytes:?} bytes of log left"));
        self.saw("killed", 1);
        if let Some(database) = &self.database {
            self.cut_all(database).await;
        } else {
            self.starts += 1;
            let to = self.dir.path().join(self.starts.to_string());
            crash::copy(self.copier, &self.folder, &to, bytes);
            self.store.close().await;
            std::fs::remove_dir_all(&self.folder).unwrap();
            self.folder = to;
        }
        self.reopen().await;
        self.start().await;
    }

    /// Kills the receiver during one of a few commits: the earlier ones are stored, this one and later ones
    /// are not. Or kills it right after one, before its answer is seen: then that commit is stored.
    async fn cut_off(&mut self) {
        if self.database.is_some() {
            return self.cut_request().await;
        }
        // Empties the log, so that its length is the position of the next commit.
        self.restart().await;
        let mut commits = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let (before, start) = (self.memory.clone(), crash::log_bytes(&self.folder));
            let step = self.random.weighted(COMMITS);
            Box::pin(self.step(step)).await;
            let end = crash::log_bytes(&self.folder);
            if end > start {
                commits.push((step, before, start, end, self.memory.clone()));
            }
        }
        if commits.is_empty() {
            return self.kill(None).await;
        }
        let at = self.random.below(commits.len());
        let (step, before, start, end, after) = commits.swap_remove(at);
        if self.random.one_in(3) {
            self.saw("durable, unanswered", 1);
            self.note(format!("{step:?} is durable, and its answer is never seen"));
            // The handler's result and the operator's command were known before the commit.
            let asked = matches!(step, Step::Complete | Step::Replay | Step::Drop);
            let ledger = if asked { after.ledger.clone() } else { before.ledger };
            self.memory = Memory { ledger, ..after };
            return self.kill(Some(end)).await;
        }
        self.saw("cut off", 1);
        self.note(format!("{step:?} is cut off"));
        self.memory = before;
        let within = self.random.below((end - start) as usize) as u64;
        self.kill(Some(start + within)).await;
    }

    /// Adopts the attempts that still run under the runner.
    async fn adopt(&mut self) {
        let mut found = self.store.jobs.running().await.unwrap();
        let model = &self.memory.model;
        let mut rows = model.in_state(State::Running);
        // PostgreSQL sorts them by job, and SQLite by arrival.
        found.sort_by_key(|found| found.job);
        rows.sort_by_key(|row| model.jobs[row].id);
        assert_eq!(found.len(), rows.len(), "what is running after a start");
        for (found, row) in found.iter().zip(rows) {
            let job = &model.jobs[&row];
            let number = job.attempts.len() as u32;
            let expected = (job.id, number, job.handler, Some(runner()));
            let handler = found.handler.as_str();
            assert_eq!((Some(found.job), found.attempt, handler, found.runner.clone()), expected);
            let (job, counted, handler) = (found.job, found.counted, job.handler);
            self.memory.running.push(Running {
                row,
                job,
                number,
                counted,
                since: found.since,
                handler,
            });
        }
        // Ids are random, and a later step picks one of these by its place.
        self.memory.running.sort_by_key(|running| running.row);
        let running: Vec<_> =
            self.memory.running.iter().map(|one| (one.job, one.number, one.handler)).collect();
        self.saw("adopted", running.len() as u64);
        self.memory.ledger.adopted(&running);
    }

    async fn restart(&mut self) {
        self.note("restart".to_owned());
        self.store.close().await;
        self.reopen().await;
        self.start().await;
    }

    /// Starts as a receiver does, with a configuration that may have changed.
    async fn start(&mut self) {
        let mut before = std::mem::take(&mut self.memory.running);
        self.compare().await;
        if self.random.one_in(3) {
            self.deliver().await;
        }
        self.policies = any_policies(&mut self.random);
        self.rules = any_rules(&mut self.random);
        self.note(format!("recover with {:?}", self.policies));
        let named =
            self.policies.iter().map(|(name, policy)| (name.parse().unwrap(), policy.clone()));
        let mut recovered = self.store.jobs.recover(named.collect()).await.unwrap();
        let (unknown, orphaned) = self.memory.model.recover(&self.policies, self.clock.now().0);
        let jobs = &self.memory.model.jobs;
        let mut expected: Vec<_> = unknown
            .into_iter()
            .map(|(row, state)| (jobs[&row].id.unwrap(), jobs[&row].attempts.len() as u32, state))
            .collect();
        // PostgreSQL settles them in any order.
        recovered.unknown.sort_unstable();
        expected.sort_unstable();
        assert_eq!(recovered.unknown, expected, "the attempts that were cut off");
        assert_eq!(recovered.orphaned, orphaned, "the jobs whose handler is gone");
        let after = |state| expected.iter().filter(|settled| settled.2 == state).count() as u64;
        let (held, waiting) = (after(State::Held), after(State::Waiting));
        self.saw("held by a start", held);
        self.saw("waits after a start", waiting);
        self.saw("handler gone", orphaned);
        let policy = |handler: &str| {
            let found = self.policies.iter().find(|(name, _)| *name == handler);
            found.map(|(_, policy)| policy.clone())
        };
        self.memory.ledger.recovered(&recovered, policy);
        self.adopt().await;
        let running = &self.memory.running;
        before
            .retain(|old| running.iter().all(|one| (one.job, one.number) != (old.job, old.number)));
        self.memory.past.extend(before);
        if !recovered.unknown.is_empty() || recovered.orphaned > 0 {
            self.compare().await;
        }
    }
}

/// The policy for an attempt whose handler is not configured any more.
const GONE: Policy = Policy {
    on_unknown: OnUnknown::Hold,
    give_up: GiveUp::Attempts(u32::MAX),
    backoff_base: Duration::ZERO,
    backoff_max: Duration::ZERO,
    answers: false,
    pauses: Vec::new(),
};

/// The only runner of these stores, which does not die.
pub(crate) fn runner() -> Runner {
    let incarnation = Incarnation::from_parts(uuid::Uuid::from_u128(1), 2);
    Runner { name: RunnerName::default(), incarnation }
}

fn limits() -> Limits {
    // The space on the test's disk does not matter. The quarantine is small, so that it evicts deliveries.
    Limits { ballast_bytes: 0, disk_floor_bytes: 0, quarantine_bytes: 20_000, ..Limits::default() }
}

/// Most of the handlers, each with a random policy.
fn any_policies(random: &mut Random) -> Vec<(&'static str, Policy)> {
    let mut policies = Vec::new();
    for handler in HANDLERS {
        if random.one_in(16) {
            continue;
        }
        let hold = random.one_in(2);
        let policy = Policy {
            on_unknown: if hold { OnUnknown::Hold } else { OnUnknown::Rerun },
            give_up: if random.one_in(3) {
                GiveUp::After(Duration::from_secs(random.below(3600) as u64))
            } else {
                GiveUp::Attempts(1 + random.below(4) as u32)
            },
            backoff_base: Duration::from_secs(1 + random.below(30) as u64),
            backoff_max: Duration::from_secs(30 + random.below(600) as u64),
            answers: false,
            pauses: Vec::new(),
        };
        policies.push((handler, policy));
    }
    policies
}

/// What the groups of each handler do. The last handler has none, and the others mostly what they had.
fn any_rules(random: &mut Random) -> Vec<(&'static str, GroupRule)> {
    let usual = [GroupRule::Block, GroupRule::StepOver, GroupRule::Latest];
    let rule = |usual| if random.one_in(5) { *random.pick(GroupRule::ALL) } else { usual };
    HANDLERS.into_iter().zip(usual.map(rule)).collect()
}
