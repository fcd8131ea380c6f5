//! Deaths around the commits of a request with a key: the request begins at most once, and its answer is
//! stored completely or not at all.
//!
//! The process that dies is this test's own binary, which runs [`the_process_that_dies`].

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

/// Deaths during a request with a new key, or with the key of a failed request; then whether the request
/// has begun.
const OF_ASKING: &[(&str, bool)] = &[("ask.commit.before", false), ("ask.commit.after", true)];

/// Deaths during the completion with an answer; then whether the answer is stored.
const OF_ANSWERING: &[(&str, bool)] =
    &[("complete.commit.before", false), ("complete.commit.after", true)];

/// The points of this file that no other file uses.
pub(crate) const POINTS: &[&str] = &[OF_ASKING[0].0, OF_ASKING[1].0];

/// The variable with the store's path, for the process that dies.
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

/// Claims the only ready job and completes it.
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

/// The process that dies: it makes a request with a key and completes its job. As a normal test it does
/// nothing.
#[test]
fn the_process_that_dies() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(Path::new(&path));
        arm(&std::env::var(VARIABLE).unwrap());
        ask(&store).await;
        end(&store, Outcome::Succeeded, Some(answer())).await;
    });
    panic!("the process has survived {}", std::env::var(VARIABLE).unwrap());
}

fn die(path: &Path, point: &str) {
    use std::os::unix::process::ExitStatusExt;
    let token = path.with_extension("token");
    let died = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::keys::the_process_that_dies"])
        .env(STORE, path)
        .env(VARIABLE, format!("{point} 1 {}", token.display()))
        .output()
        .unwrap();
    assert_eq!(died.status.signal(), Some(9), "{point}: {died:?}");
    assert!(token.exists());
}

#[tokio::test]
async fn a_death_during_a_keyed_request_begins_it_at_most_once() {
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
            // There is exactly one job, and it runs one more time.
            end(&store, Outcome::Succeeded, Some(answer())).await;
            assert!(store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
            assert_eq!(known(&store), Some(KeyState::Answered(answer())));
        }
    }
}

#[tokio::test]
async fn a_death_during_a_completion_stores_the_answer_or_leaves_it_unknown() {
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
            pauses: Vec::new(),
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
