//! The dispatcher with a real store, real commands and a real endpoint.

use std::cell::RefCell;
use std::fs;
use std::future::{pending, poll_fn, ready};
use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::support::runner;
use hooklatch::clock::Clock;
use hooklatch::config::{self, Environment};
use hooklatch::dispatcher::{Dispatcher, Worker};
use hooklatch::handler::runner_pool::{PoolSettings, RunnerPool, Runners};
use hooklatch::handler::{Command, ForwardSettings, Handler, Target};
use hooklatch::limits::Limits;
use hooklatch::model::{Headers, OnRedelivery, OnUnknown, Outcome, State};
use hooklatch::provider::Scheme;
use hooklatch::retry::{GiveUp, Policy};
use hooklatch::runner::folder;
use hooklatch::runner::launch::Launch;
use hooklatch::runner::message::Key;
use hooklatch::store::{
    Accept, Accepted, AttemptRow, EventDetail, JobFilter, JobRow, NewJob, Replay, Settings, Store,
};
use hooklatch::traffic::Traffic;
use hooklatch::verify::{Request, verify};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

const MINUTE: Duration = Duration::from_secs(60);

/// A separate store, with a folder in which its commands work.
struct Bench {
    folder: tempfile::TempDir,
    store: Store,
    clock: Clock,
    limits: Limits,
    /// The configuration of the commands, which their runner reads.
    commands: RefCell<String>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        runner::end_runner(&self.file("hooklatch.db"));
    }
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            handler_backoff_base_millis: 100,
            handler_backoff_max_millis: 200,
            // Over every bound here: nothing may happen only because of a tick.
            tick_millis: 600_000,
            ..Limits::default()
        };
        let (path, clock) = (folder.path().join("hooklatch.db"), Clock::system());
        let store = Store::open(&Settings { path, limits: limits.clone() }, clock.clone()).unwrap();
        let text = "[limits]\nrunner_idle_millis = \"300ms\"\n[sources.shop]\nprovider = \"none\"\n\
                    allow_unsigned = true\n";
        Bench { folder, store, clock, limits, commands: RefCell::new(text.to_owned()) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A configured command that works in the folder.
    fn command(&self, name: &str, argv: &[&str]) -> Worker {
        let mut text = self.commands.borrow_mut();
        text.push_str(&format!(
            "[handlers.{name}]\nsource = \"shop\"\nevents = [\"*\"]\ngrace = \"200ms\"\n\
             cwd = {:?}\ncommand = {argv:?}\n",
            self.folder.path()
        ));
        fs::write(self.file("hooklatch.toml"), &*text).unwrap();
        let config = config::load(&self.file("hooklatch.toml")).unwrap();
        let workers = config.resolve(&Environment::capture()).unwrap().workers;
        let known = workers.into_iter().find(|worker| worker.name.as_str() == name).unwrap();
        worker(name, known.handler)
    }

    fn script(&self, name: &str, text: &str) -> Worker {
        self.command(name, &["/bin/sh", "-c", text])
    }

    /// A forward to a listener of the test.
    async fn forward(&self, name: &str) -> (Worker, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}/", listener.local_addr().unwrap());
        let forward = Handler::Forward(ForwardSettings {
            target: Target::parse(&target).unwrap(),
            resigners: std::sync::Arc::default(),
            timeout: MINUTE,
            connect_timeout: MINUTE,
            answer_bytes: 1024,
            whole_answer_bytes: None,
            request: None,
        });
        (worker(name, forward), listener)
    }

    fn start(&self, workers: Vec<Worker>) -> Dispatcher {
        self.start_linked(workers).0
    }

    /// Starts a dispatcher and returns it with its pool of runners.
    fn start_linked(&self, workers: Vec<Worker>) -> (Dispatcher, RunnerPool) {
        let (store, limits) = (self.store.clone(), self.limits.clone());
        let database = self.file("hooklatch.db");
        let launch = Launch {
            program: env!("CARGO_BIN_EXE_hooklatch").into(),
            config: self.file("hooklatch.toml"),
            store: database.clone(),
            log: self.file("runner.log"),
            inside_a_unit: false,
            files: rustix::process::getrlimit(rustix::process::Resource::Nofile),
        };
        let links = RunnerPool::new(PoolSettings {
            runners: Runners::BesideStore(Some(launch)),
            database,
            store: store.admin.id(),
        });
        let clock = self.clock.clone();
        let traffic = Traffic::default();
        (Dispatcher::start(store.jobs, workers, links.clone(), &traffic, limits, clock), links)
    }

    async fn accept(&self, id: &str, handlers: &[&str]) {
        let scheme = Scheme::embedded("none").unwrap();
        let mut headers = Headers::new();
        headers.push("Idempotency-Key", id);
        headers.push("X-Event-Type", "thing.made");
        let (now, body) = (self.clock.now(), format!("body of {id}").into());
        let request = Request { method: "POST", url: None, headers: &headers, body };
        let delivery = verify(&scheme, &[], request, now).unwrap();
        let made = handlers.len();
        let jobs = handlers.iter().map(|name| NewJob::of(name.parse().unwrap())).collect();
        let source = "shop".parse().unwrap();
        let new = Accept {
            source,
            received_at: now,
            delivery,
            jobs,
            on_redelivery: OnRedelivery::Ignore,
        };
        let accepted = self.store.intake.accept(new).await.unwrap();
        assert_eq!(accepted, Accepted::Created { jobs: made, held: None, flagged: false });
    }

    /// Waits until the handler's jobs are as wanted, and returns them, the newest first. The store
    /// rings its bell for the dispatcher alone, so a test has to look.
    async fn until(&self, handler: &str, wanted: impl Fn(&[JobRow]) -> bool) -> Vec<JobRow> {
        let begun = Instant::now();
        loop {
            let filter =
                JobFilter { handler: Some(handler.parse().unwrap()), ..JobFilter::default() };
            let jobs = self.store.admin.jobs(filter).await.unwrap().rows;
            if wanted(&jobs) {
                return jobs;
            }
            assert!(begun.elapsed() < MINUTE, "{handler}: {jobs:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until the commands have written so many lines.
    async fn until_lines(&self, name: &str, count: usize) {
        let begun = Instant::now();
        while self.lines(name).len() < count {
            assert!(begun.elapsed() < MINUTE, "{name}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn until_all(&self, handler: &str, state: State) -> Vec<JobRow> {
        self.until(handler, |jobs| jobs.iter().all(|job| job.state == state)).await
    }

    /// The attempts of the only job of the event.
    async fn attempts(&self, id: &str) -> Vec<AttemptRow> {
        let mut found = self.store.admin.show(None, id.parse().unwrap(), None).await.unwrap();
        let EventDetail { mut jobs, .. } = found.pop().expect("the event must be there");
        assert_eq!(jobs.len(), 1);
        jobs.pop().unwrap().attempts
    }

    /// What the runner has noted.
    fn ledger(&self) -> String {
        let files = fs::read_dir(folder::of(&self.file("hooklatch.db"))).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let mut ledgers = paths.filter(|path| path.to_str().unwrap().contains("ledger-"));
        fs::read_to_string(ledgers.next().unwrap()).unwrap()
    }

    async fn outcomes(&self, id: &str) -> Vec<Option<Outcome>> {
        self.attempts(id).await.iter().map(|attempt| attempt.outcome).collect()
    }
}

fn worker(name: &str, handler: Handler) -> Worker {
    let policy = Policy {
        on_unknown: OnUnknown::Hold,
        give_up: GiveUp::Attempts(3),
        backoff_base: Duration::from_millis(20),
        backoff_max: Duration::from_millis(50),
        answers: false,
        pauses: Vec::new(),
    };
    Worker {
        name: name.parse().unwrap(),
        handler,
        policy,
        concurrency: 1,
        cluster_concurrency: None,
        runs: true,
        rate: None,
    }
}

/// Makes a worker whose answers a client waits for.
fn answering(worker: Worker) -> Worker {
    let handler = match worker.handler {
        Handler::Command(command) => Handler::Command(Command { answers: true, ..command }),
        Handler::Forward(forward) => {
            Handler::Forward(ForwardSettings { whole_answer_bytes: Some(1024), ..forward })
        }
    };
    let policy = Policy { give_up: GiveUp::Attempts(1), answers: true, ..worker.policy };
    Worker { handler, policy, ..worker }
}

fn rerun(worker: Worker) -> Worker {
    let policy = Policy { on_unknown: OnUnknown::Rerun, ..worker.policy };
    Worker { policy, ..worker }
}

#[tokio::test]
async fn a_hundred_events_run_once_each_and_one_at_a_time() {
    let bench = Bench::new();
    // A second one at the same time would find the folder, and reject its event.
    let text = "mkdir busy || exit 65; echo $HOOKLATCH_EVENT_ID $(cat) >>ran; rmdir busy";
    let handle = bench.start(vec![bench.script("once", text)]);
    let accepts = (0..100).map(|n| {
        let bench = &bench;
        async move { bench.accept(&format!("e{n}"), &["once"]).await }
    });
    futures_util::future::join_all(accepts).await;
    bench.until_all("once", State::Succeeded).await;
    handle.stop(MINUTE, pending()).await;
    let mut ran = bench.lines("ran");
    ran.sort_unstable();
    let mut expected: Vec<String> = (0..100).map(|n| format!("e{n} body of e{n}")).collect();
    expected.sort_unstable();
    assert_eq!(ran, expected);
}

#[tokio::test]
async fn a_paused_handler_is_not_asked_for_and_a_resume_runs_it() {
    let bench = Bench::new();
    let items = || bench.store.admin.writer_gauges().batch_items.sum;
    let handler = "once".parse().unwrap();
    bench.store.admin.pause(&handler).await.unwrap();
    let handle = bench.start(vec![bench.script("once", "true")]);
    // What recovery and the first look at the store ask of the writer falls into the first rounds. The claims of a handler
    // that is not taken for paused would fall into each.
    let mut rounds = 0..10;
    loop {
        let round = rounds.next().expect("something is asked for with each accept");
        let before = items();
        for n in 0..20 {
            bench.accept(&format!("e{round}-{n}"), &["once"]).await;
        }
        if items() - before == 20.0 {
            break;
        }
    }
    bench.store.admin.resume(&handler).await.unwrap();
    bench.until_all("once", State::Succeeded).await;
    handle.stop(MINUTE, pending()).await;
}

#[tokio::test]
async fn an_end_and_the_next_claim_are_committed_together() {
    const JOBS: u64 = 30;
    let bench = Bench::new();
    let commits = || bench.store.admin.writer_gauges().batch_items.buckets.last().unwrap().1;
    let handler = "once".parse().unwrap();
    bench.store.admin.pause(&handler).await.unwrap();
    for n in 0..JOBS {
        bench.accept(&format!("e{n}"), &["once"]).await;
    }
    let handle = bench.start(vec![bench.script("once", "true")]);
    let before = commits();
    bench.store.admin.resume(&handler).await.unwrap();
    bench.until_all("once", State::Succeeded).await;
    // One for each, and some for the start, the first claim and the last.
    let made = commits() - before;
    assert!(made < JOBS + JOBS / 2, "{made} commits");
    handle.stop(MINUTE, pending()).await;
}

#[tokio::test]
async fn a_failure_is_tried_again_until_it_succeeds_or_none_are_left() {
    let bench = Bench::new();
    bench.accept("heals", &["heals"]).await;
    bench.accept("never", &["never"]).await;
    bench.accept("wrong", &["wrong"]).await;
    let handle = bench.start(vec![
        bench.script("heals", "echo $HOOKLATCH_JOB >>keys; [ $HOOKLATCH_ATTEMPT = 2 ]"),
        bench.script("never", "echo why; exit 3"),
        bench.script("wrong", "exit 65"),
    ]);
    let healed = bench.until_all("heals", State::Succeeded).await;
    let never = bench.until_all("never", State::Dead).await;
    let wrong = bench.until_all("wrong", State::Dead).await;
    handle.stop(MINUTE, pending()).await;
    let (failed, succeeded) = (Some(Outcome::Failed), Some(Outcome::Succeeded));
    assert_eq!(bench.outcomes("heals").await, [failed, succeeded]);
    let key = healed[0].job.to_string();
    assert_eq!(bench.lines("keys"), [key.clone(), key], "every attempt has the job's key");
    assert_eq!(bench.outcomes("never").await, [failed; 3]);
    assert_eq!(never[0].reason.as_deref(), Some("attempts exhausted"));
    let first = &bench.attempts("never").await[0].record;
    assert_eq!((first.exit_code, &first.stdout.head[..]), (Some(3), b"why\n".as_slice()));
    assert_eq!(bench.outcomes("wrong").await, [Some(Outcome::Rejected)]);
    assert_eq!(wrong[0].reason.as_deref(), Some("rejected"));
}

#[tokio::test]
async fn jobs_that_are_due_at_once_run_again_without_a_refused_attempt() {
    let bench = Bench::new();
    let ids: Vec<String> = (0..60).map(|n| format!("e{n}")).collect();
    for id in &ids {
        bench.accept(id, &["heals"]).await;
    }
    // The runner refuses the second attempt of a job until the first one is acknowledged.
    let heals = bench.script("heals", "[ $HOOKLATCH_ATTEMPT = 2 ]");
    let policy = Policy { backoff_base: Duration::ZERO, ..heals.policy };
    let handle = bench.start(vec![Worker { policy, concurrency: 16, ..heals }]);
    bench.until_all("heals", State::Succeeded).await;
    handle.stop(MINUTE, pending()).await;
    for id in ids {
        let expected = [Some(Outcome::Failed), Some(Outcome::Succeeded)];
        assert_eq!(bench.outcomes(&id).await, expected, "{id}");
    }
}

#[tokio::test]
async fn a_broken_handler_pauses_loses_no_attempts_and_delays_no_other() {
    let bench = Bench::new();
    let program = bench.file("program");
    for id in ["b1", "b2"] {
        bench.accept(id, &["broken"]).await;
    }
    bench.accept("n1", &["not-found"]).await;
    let handle = bench.start(vec![
        bench.command("broken", &[program.to_str().unwrap()]),
        bench.script("not-found", "[ -e program ] || exec no-such-program"),
        bench.script("fine", "exit 0"),
    ]);
    // More attempts than the policy has, by probes alone.
    bench.until("broken", |jobs| jobs.iter().map(|job| job.attempt).sum::<u32>() > 4).await;
    bench.until("not-found", |jobs| jobs[0].attempt > 3).await;
    bench.accept("f1", &["fine"]).await;
    bench.until_all("fine", State::Succeeded).await;
    std::os::unix::fs::symlink("/bin/true", &program).unwrap();
    bench.until_all("broken", State::Succeeded).await;
    bench.until_all("not-found", State::Succeeded).await;
    handle.stop(MINUTE, pending()).await;
    let attempts = bench.attempts("b1").await;
    let (last, broken) = attempts.split_last().unwrap();
    assert_eq!(last.outcome, Some(Outcome::Succeeded));
    assert!(broken.iter().all(|attempt| attempt.outcome == Some(Outcome::NotStarted)));
    assert!(broken[0].record.detail.contains("/program: No such file"), "{:?}", broken[0]);
    assert!(bench.attempts("n1").await[0].record.detail.contains("127"));
}

#[tokio::test]
async fn if_a_client_waits_a_handler_that_cannot_run_fails_without_a_pause() {
    let mut bench = Bench::new();
    // Longer than every other bound here: a handler that runs was not paused.
    bench.limits.handler_backoff_base_millis = 600_000;
    bench.limits.handler_backoff_max_millis = 600_000;
    let (refused, listener) = bench.forward("refused").await;
    drop(listener);
    let workers = [
        bench.command("missing", &["/nowhere/program"]),
        bench.script("not-found", "exec no-such-program"),
        refused,
    ];
    let handle = bench.start(workers.into_iter().map(answering).collect());
    for handler in ["missing", "not-found", "refused"] {
        for nth in 0..3 {
            let id = format!("{handler}-{nth}");
            bench.accept(&id, &[handler]).await;
            let dead = bench.until_all(handler, State::Dead).await;
            assert_eq!(dead[0].reason.as_deref(), Some("attempts exhausted"));
            assert_eq!(bench.outcomes(&id).await, [Some(Outcome::Failed)]);
        }
    }
    handle.stop(MINUTE, pending()).await;
}

#[tokio::test]
async fn an_answer_that_died_with_its_runner_is_not_an_empty_one() {
    let bench = Bench::new();
    let waits = "echo begun >>begun; while ! [ -e go ]; do sleep 0.01; done; echo paid";
    let (pays, notes) = (answering(bench.script("pays", waits)), bench.script("notes", waits));
    bench.accept("pays", &["pays"]).await;
    bench.accept("notes", &["notes"]).await;
    let handle = bench.start(vec![pays.clone(), notes.clone()]);
    bench.until_lines("begun", 2).await;
    handle.stop(Duration::ZERO, pending()).await;
    fs::write(bench.file("go"), "").unwrap();
    // Both have ended without a receiver.
    let begun = Instant::now();
    while bench.ledger().matches("\"exit\"").count() < 2 {
        assert!(begun.elapsed() < MINUTE, "{}", bench.ledger());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    runner::kill_runner(&bench.file("hooklatch.db"));
    let handle = bench.start(vec![pays, notes]);
    // It has no key, so no caller waits for its answer; where one does, the store holds the job.
    bench.until_all("pays", State::Succeeded).await;
    let record = bench.attempts("pays").await.pop().unwrap().record;
    assert_eq!(record.detail, "exit status 0, and no answer: its output died with its runner");
    assert_eq!(record.exit_code, Some(0));
    // No client waits for this answer.
    bench.until_all("notes", State::Succeeded).await;
    handle.stop(MINUTE, pending()).await;
}

#[tokio::test]
async fn a_slow_handler_delays_no_other_even_if_it_could_use_all_slots() {
    let mut bench = Bench::new();
    bench.limits.jobs_in_flight_count = 2;
    for n in 0..5 {
        bench.accept(&format!("s{n}"), &["slow"]).await;
    }
    let slow = Worker { concurrency: 5, ..bench.script("slow", "exec sleep 1000") };
    let handle = bench.start(vec![slow, bench.script("fine", "exit 0")]);
    bench.until("slow", |jobs| jobs.iter().any(|job| job.state == State::Running)).await;
    for n in 0..5 {
        bench.accept(&format!("f{n}"), &["fine"]).await;
    }
    let fine = bench.until_all("fine", State::Succeeded).await;
    assert_eq!(fine.len(), 5);
    handle.stop(Duration::ZERO, pending()).await;
}

#[tokio::test]
async fn a_stop_waits_and_then_cancels_forwards_without_an_answer() {
    let bench = Bench::new();
    let (forward, listener) = bench.forward("mute").await;
    bench.accept("mute", &["mute"]).await;
    bench.accept("later", &["mute"]).await;
    let handle = bench.start(vec![forward]);
    let (_unanswered, _) = listener.accept().await.unwrap();
    // The second signal ends an hour's wait.
    let begun = Instant::now();
    handle.stop(60 * MINUTE, ready(())).await;
    assert!(begun.elapsed() < MINUTE);
    assert_eq!(bench.store.jobs.running().await.unwrap(), []);
    assert_eq!(bench.outcomes("mute").await, [Some(Outcome::Unknown)]);
    assert_eq!(bench.outcomes("later").await, [], "nothing is claimed in a stop");
}

#[tokio::test]
async fn commands_outlive_a_stop_and_the_next_dispatcher_records_their_ends() {
    let bench = Bench::new();
    let text = "echo begun >>$HOOKLATCH_HANDLER; while ! [ -e go ]; do sleep 0.01; done; exit $1";
    let start = || {
        let command = |name, code| bench.command(name, &["/bin/sh", "-c", text, "sh", code]);
        bench.start(vec![command("good", "0"), command("wrong", "65"), command("bad", "3")])
    };
    for handler in ["good", "wrong", "bad"] {
        bench.accept(handler, &[handler]).await;
    }
    let handle = start();
    for handler in ["good", "wrong", "bad"] {
        bench.until_lines(handler, 1).await;
    }
    handle.stop(60 * MINUTE, pending()).await;
    let running = bench.store.jobs.running().await.unwrap();
    assert!(running.len() == 3 && running.iter().all(|attempt| attempt.runner.is_some()));
    fs::write(bench.file("go"), "").unwrap();

    // One is no longer configured: its end counts all the same, and it does not run again.
    bench.commands.replace_with(|text| text.split("[handlers").next().unwrap().to_owned());
    let command = |name| bench.command(name, &["/bin/sh", "-c", "exit 1"]);
    let handle = bench.start(vec![command("good"), command("wrong")]);
    bench.until_all("good", State::Succeeded).await;
    bench.until_all("wrong", State::Dead).await;
    // Held, if the look for jobs without a handler comes after its end.
    let has_ended = |job: &JobRow| matches!(job.state, State::Waiting | State::Held);
    bench.until("bad", |jobs| jobs.iter().all(has_ended)).await;
    handle.stop(MINUTE, pending()).await;
    for (handler, outcome) in
        [("good", Outcome::Succeeded), ("wrong", Outcome::Rejected), ("bad", Outcome::Failed)]
    {
        assert_eq!(bench.outcomes(handler).await, [Some(outcome)]);
        assert_eq!(bench.lines(handler).len(), 1, "begun again");
    }
}

#[tokio::test]
async fn a_stop_waits_for_forwards_that_end_in_time() {
    let bench = Bench::new();
    let (forward, listener) = bench.forward("forward").await;
    bench.accept("f", &["forward"]).await;
    let handle = bench.start(vec![forward]);
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.read_exact(&mut [0; 64]).await.unwrap();
    let answer = async {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        stream
    };
    tokio::join!(handle.stop(MINUTE, pending()), answer);
    assert_eq!(bench.outcomes("f").await, [Some(Outcome::Succeeded)]);
}

#[tokio::test]
async fn after_a_runners_death_its_commands_end_before_anything_runs_again() {
    let bench = Bench::new();
    bench.accept("held", &["careful"]).await;
    bench.accept("again", &["idempotent"]).await;
    // A zombie has no command line: where one is read, the first attempt still lives.
    let text = "if [ $HOOKLATCH_ATTEMPT = 1 ]; then echo $$ >>pids; exec sleep 1000; fi
                for pid in $(cat pids); do grep -q . /proc/$pid/cmdline && echo beside >>beside; done
                echo >>ran";
    let handle =
        bench.start(vec![bench.script("careful", text), rerun(bench.script("idempotent", text))]);
    bench.until_lines("pids", 2).await;
    runner::kill_runner(&bench.file("hooklatch.db"));
    bench.until_all("idempotent", State::Succeeded).await;
    let held = bench.until_all("careful", State::Held).await;
    assert_eq!(held[0].reason.as_deref(), Some("unknown outcome"));
    let (unknown, succeeded) = (Some(Outcome::Unknown), Some(Outcome::Succeeded));
    assert_eq!(bench.outcomes("held").await, [unknown]);
    assert_eq!(bench.outcomes("again").await, [unknown, succeeded]);
    assert_eq!((bench.lines("ran").len(), bench.lines("beside").len()), (1, 0));

    // The operator puts the held one back: the store wakes the dispatcher.
    bench.store.admin.replay(Replay::Job(held[0].job, None), false).await.unwrap();
    bench.until_all("careful", State::Succeeded).await;
    assert_eq!(bench.outcomes("held").await, [unknown, succeeded]);
    handle.stop(MINUTE, pending()).await;
}

#[tokio::test]
async fn a_job_without_a_configured_handler_is_held() {
    let bench = Bench::new();
    bench.accept("o", &["gone"]).await;
    let handle = bench.start(vec![bench.script("other", "exit 0")]);
    let held = bench.until_all("gone", State::Held).await;
    assert_eq!(held[0].reason.as_deref(), Some("handler gone"));
    handle.stop(MINUTE, pending()).await;
}

#[tokio::test]
async fn a_job_put_back_for_a_handler_that_is_not_configured_does_not_sleep() {
    let mut bench = Bench::new();
    bench.limits.tick_millis = 100;
    bench.accept("o", &[]).await;
    let handle = bench.start(vec![bench.script("other", "exit 0")]);
    // The first claims come after recovery, which is over when this one has run.
    bench.accept("first", &["other"]).await;
    bench.until_all("other", State::Succeeded).await;
    let (event, handler) = ("o".parse().unwrap(), Some("othr".parse().unwrap()));
    bench.store.admin.replay(Replay::Event { source: None, event, handler }, false).await.unwrap();
    let held = bench.until("othr", |jobs| jobs[0].state == State::Held).await;
    assert_eq!(held[0].reason.as_deref(), Some("handler gone"));
    handle.stop(MINUTE, pending()).await;
}

#[tokio::test]
async fn a_cancel_holds_whether_its_start_was_asked_for_or_not() {
    let bench = Bench::new();
    for nth in 0..20 {
        bench.accept(&format!("e{nth}"), &["long"]).await;
    }
    let jobs = bench.until("long", |jobs| jobs.len() == 20).await;
    let long = Worker { concurrency: 20, ..bench.script("long", "exec sleep 1000") };
    let (handle, links) = bench.start_linked(vec![long]);
    // As soon as there is an attempt, before the task that asks for its start has its turn: these
    // wait in the same queue.
    let cancels = jobs.iter().map(|job| {
        let (links, key) = (links.clone(), Key { job: job.job, attempt: 1 });
        tokio::spawn(poll_fn(move |context| match links.cancel(key) {
            Ok(()) => Poll::Ready(()),
            Err(_not_yet) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }))
    });
    futures_util::future::join_all(cancels).await;
    let held = bench.until_all("long", State::Held).await;
    handle.stop(MINUTE, pending()).await;
    let of_cancel = |job: &JobRow| job.attempt == 1 && job.reason.as_deref() == Some("cancelled");
    assert!(held.iter().all(of_cancel), "{held:#?}");
}

#[tokio::test]
async fn a_runner_that_fails_to_execute_itself_again_is_asked_again() {
    let bench = Bench::new();
    let handle = bench.start(vec![bench.script("once", "echo ran >>ran")]);
    bench.accept("first", &["once"]).await;
    bench.until_all("once", State::Succeeded).await;
    // It drains before it finds that it cannot.
    let database = bench.file("hooklatch.db");
    fs::create_dir(folder::of(&database).join("new-ledger")).unwrap();
    let runner = runner::runner(&database).unwrap();
    rustix::process::kill_process(runner, rustix::process::Signal::USR2).unwrap();
    let begun = Instant::now();
    while !fs::read_to_string(bench.file("runner.log")).unwrap().contains("cannot execute itself") {
        assert!(begun.elapsed() < MINUTE);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    bench.accept("second", &["once"]).await;
    bench.until("once", |jobs| jobs.iter().all(|job| job.state == State::Succeeded)).await;
    handle.stop(MINUTE, pending()).await;
    assert_eq!(bench.lines("ran").len(), 2);
}

#[tokio::test]
async fn attempts_of_an_unknown_handler_at_a_full_runner_are_awaited() {
    let bench = Bench::new();
    let limits = "[limits]\nrunner_attempts_count = 1\n";
    bench.commands.replace_with(|text| text.replace("[limits]\n", limits));
    bench.accept("long", &["long"]).await;
    let wait = "echo begun >>begun; while ! [ -e go ]; do sleep 0.01; done";
    let handle = bench.start(vec![bench.script("long", wait)]);
    bench.until_lines("begun", 1).await;
    handle.stop(MINUTE, pending()).await;

    bench.commands.replace_with(|text| text.split("[handlers").next().unwrap().to_owned());
    bench.accept("next", &["next"]).await;
    let (forward, listener) = bench.forward("probe").await;
    let (handle, links) = bench.start_linked(vec![bench.script("next", "exit 0"), forward]);
    // The receiver knows what its runner has.
    let begun = Instant::now();
    while links.capacities().is_empty() {
        assert!(begun.elapsed() < MINUTE);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // The wake-up that claims this job would claim the next command too, and record its end before that of the forward.
    bench.accept("probe", &["probe"]).await;
    let (mut stream, _) = timeout(MINUTE, listener.accept()).await.unwrap().unwrap();
    stream.read_exact(&mut [0; 64]).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    bench.until_all("probe", State::Succeeded).await;
    assert_eq!(bench.outcomes("next").await, [], "it is claimed while its runner is full");
    fs::write(bench.file("go"), "").unwrap();
    bench.until_all("next", State::Succeeded).await;
    handle.stop(MINUTE, pending()).await;
    assert_eq!(bench.outcomes("next").await, [Some(Outcome::Succeeded)]);
}
