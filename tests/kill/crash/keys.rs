//! Deaths around the commits of a request with a key: it is begun once, and its answer is there or it is not.
//!
//! The process that dies is this test's own binary, started again as whoever asks, or completes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use hooklatch::clock::Clock;
use hooklatch::crash::{VARIABLE, arm};
use hooklatch::limits::Limits;
use hooklatch::model::{Answer, Digest, EventId, Headers, JobId, Name, OnUnknown, Outcome};
use hooklatch::provider::Scheme;
use hooklatch::retry::{GiveUp, Next, Policy};
use hooklatch::store::{Ask, Asked, Completion, KeyState, Record, Settings, Store};
use hooklatch::verify::{Request, Verified, verify};

/// Whoever asks with a new key, or again after a failure; whether the request is begun then.
const OF_ASKING: &[(&str, bool)] = &[("ask.commit.before", false), ("ask.commit.after", true)];

/// Whoever completes with an answer; whether it is there then.
const OF_ANSWERING: &[(&str, bool)] =
    &[("complete.commit.before", false), ("complete.commit.after", true)];

/// Those that no other test dies at.
pub(crate) const POINTS: &[&str] = &[OF_ASKING[0].0, OF_ASKING[1].0];

/// Names the store's file to the process that is to die.
const STORE: &str = "HOOKLATCH_TEST_STORE";

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn open(path: &Path) -> Store {
    let limits = Limits { ballast_bytes: 0, disk_floor_bytes: 0, ..Limits::default() };
    Store::open(&Settings { path: path.to_owned(), limits }, Clock::system()).unwrap()
}

fn delivery() -> Verified {
    let mut headers = Headers::new();
    headers.push("Idempotency-Key", "k");
    headers.push("X-Event-Type", "pay");
    let request = Request { method: "POST", url: None, headers: &headers, body: "{}".into() };
    verify(&Scheme::embedded("none").unwrap(), &[], request, Clock::system().now()).unwrap()
}

async fn ask(store: &Store) -> Asked {
    let ask = Ask {
        source: name("pay"),
        caller: String::new(),
        request: Digest([7; 32]),
        received_at: Clock::system().now(),
        delivery: delivery(),
        handler: name("h"),
        keep: Duration::from_secs(3600),
        keep_errors: Duration::from_secs(60),
    };
    store.intake.ask(ask).await.unwrap()
}

fn known(store: &Store) -> Option<KeyState> {
    let key: EventId = "k".parse().unwrap();
    match store.intake.known_key(&name("pay"), "", &key, Digest([7; 32])) {
        Some(Asked::Known { state, .. }) => Some(state),
        other => panic!("{other:?}"),
    }
}

fn answer() -> Answer {
    Answer::new(201, &Headers::new(), Bytes::from_static(b"made")).unwrap()
}

/// Claims the one ready job and ends it.
async fn end(store: &Store, outcome: Outcome, answer: Option<Answer>) -> JobId {
    let claimed = store.jobs.claim(&name("h"), 1, None).await.unwrap().jobs.remove(0);
    let (job, attempt) = (claimed.facts.job, claimed.facts.attempt);
    let next = match outcome {
        Outcome::Succeeded => Next::Succeeded,
        _ => Next::Dead(hooklatch::model::DeadReason::Exhausted),
    };
    let finished_at = Clock::system().now();
    let record = Record::default();
    let done =
        Completion { job, attempt, outcome, counts: true, next, finished_at, record, answer };
    assert!(store.jobs.complete(done).await.unwrap());
    job
}

/// The process that dies: it asks, and completes where there is something to run.
#[test]
fn whoever_is_to_die() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(Path::new(&path));
        arm(&std::env::var(VARIABLE).unwrap());
        ask(&store).await;
        end(&store, Outcome::Succeeded, Some(answer())).await;
    });
    panic!("it has outlived {}", std::env::var(VARIABLE).unwrap());
}

fn die(path: &Path, point: &str) {
    use std::os::unix::process::ExitStatusExt;
    let token = path.with_extension("token");
    let died = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::keys::whoever_is_to_die"])
        .env(STORE, path)
        .env(VARIABLE, format!("{point} 1 {}", token.display()))
        .output()
        .unwrap();
    assert_eq!(died.status.signal(), Some(9), "{point}: {died:?}");
    assert!(token.exists());
}

#[tokio::test]
async fn whoever_dies_around_an_asking_has_begun_it_once_or_not_at_all() {
    for (point, is_begun) in OF_ASKING {
        for failed_before in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("store.db");
            let mut failed = None;
            if failed_before {
                let store = open(&path);
                ask(&store).await;
                failed = Some(end(&store, Outcome::Failed, None).await);
                store.close().await;
            }
            die(&path, point);
            let store = open(&path);
            match ask(&store).await {
                Asked::Begun { job, again } if !is_begun => {
                    assert_eq!((again, failed.is_none_or(|it| it == job)), (failed_before, true));
                }
                Asked::Known { job, state: KeyState::Pending } if *is_begun => {
                    assert!(failed.is_none_or(|it| it == job));
                }
                other => panic!("{point}: {other:?}"),
            }
            // There is one job, and it runs once more.
            end(&store, Outcome::Succeeded, Some(answer())).await;
            assert!(store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
            assert_eq!(known(&store), Some(KeyState::Answered(answer())));
        }
    }
}

#[tokio::test]
async fn whoever_dies_around_an_answering_has_the_answer_or_nobody_knows() {
    for (point, is_answered) in OF_ANSWERING {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        die(&path, point);
        let store = open(&path);
        let policy = Policy {
            on_unknown: OnUnknown::Hold,
            give_up: GiveUp::Attempts(1),
            backoff_base: Duration::from_secs(1),
            backoff_max: Duration::from_secs(1),
            answers: true,
        };
        store.jobs.recover(vec![(name("h"), policy)]).await.unwrap();
        let state = match is_answered {
            true => KeyState::Answered(answer()),
            false => KeyState::Unknown { timed_out: false },
        };
        assert_eq!(known(&store), Some(state), "{point}");
        assert!(store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    }
}
