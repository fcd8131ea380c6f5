//! Requests with keys: begun once, answered once, and the same to whoever asks.
use super::writing::queued;
use super::*;

const KEEP: Duration = DAY;
const KEEP_ERRORS: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);

/// A request of the source's only caller.
fn request(bench: &Bench, key: &str, data: &str) -> Ask {
    let delivery = stripe(key, "pay", data);
    Ask {
        source: name("pay"),
        caller: String::new(),
        request: delivery.digest(),
        received_at: bench.clock.now(),
        delivery,
        handler: name("h"),
        keep: KEEP,
        keep_errors: KEEP_ERRORS,
    }
}

async fn ask(bench: &Bench, key: &str) -> Asked {
    bench.store.ask(request(bench, key, "{}")).await.unwrap()
}

/// What a look without a queue says.
fn look(bench: &Bench, key: &str) -> Option<Asked> {
    let Ask { source, caller, request, .. } = request(bench, key, "{}");
    bench.store.known_key(&source, &caller, &id(key), request)
}

fn begun(asked: Asked) -> JobId {
    let Asked::Begun { job, again: false } = asked else { panic!("{asked:?}") };
    job
}

fn known(job: JobId, state: KeyState) -> Asked {
    Asked::Known { job, state }
}

fn answer(status: u16, body: &str) -> Answer {
    let mut headers = Headers::new();
    headers.push("X-Charge", b"\xff1".as_slice());
    headers.push("X-Charge", "2");
    Answer::new(status, &headers, Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

/// A request that is begun and whose job runs.
async fn running(bench: &Bench, key: &str) -> Claimed {
    let job = begun(ask(bench, key).await);
    let claimed = bench.claim_one().await;
    assert_eq!(claimed.facts.job, job);
    claimed
}

async fn succeed(bench: &Bench, claimed: &Claimed, answer: Option<Answer>) {
    let done = completion(claimed, Outcome::Succeeded, Next::Succeeded, bench.clock.now());
    assert!(bench.store.complete(Completion { answer, ..done }).await.unwrap());
}

const FAILED: (Outcome, Next) = (Outcome::Failed, Next::Dead(DeadReason::Exhausted));
const UNKNOWN: (Outcome, Next) = (Outcome::Unknown, Next::Held(HeldReason::UnknownOutcome));

/// A request whose job has ended like this.
async fn ended(bench: &Bench, key: &str, (outcome, next): (Outcome, Next)) -> JobId {
    let claimed = running(bench, key).await;
    assert!(bench.complete(&claimed, outcome, next).await);
    claimed.facts.job
}

#[tokio::test]
async fn a_request_runs_once_and_its_answer_is_the_same_to_whoever_asks() {
    let mut bench = bench();
    assert_eq!(look(&bench, "k"), None);
    let job = begun(ask(&bench, "k").await);
    let pending = known(job, KeyState::Pending);
    assert_eq!(ask(&bench, "k").await, pending);
    assert_eq!(look(&bench, "k"), Some(pending.clone()));
    let claimed = bench.claim_one().await;
    assert_eq!((claimed.facts.job, claimed.facts.event_id.as_str()), (job, "k"));
    assert_eq!(look(&bench, "k"), Some(pending));

    // From the commit on, also after a restart; the empty body and a large one too.
    let answered = known(job, KeyState::Answered(answer(402, "no money")));
    succeed(&bench, &claimed, Some(answer(402, "no money"))).await;
    for restarted in [false, true] {
        assert_eq!(look(&bench, "k"), Some(answered.clone()), "{restarted}");
        assert_eq!(ask(&bench, "k").await, answered, "{restarted}");
        bench.restart().await;
    }
    let large = "x".repeat(300 * 1024);
    for (key, body) in [("empty", ""), ("large", &large)] {
        let claimed = running(&bench, key).await;
        succeed(&bench, &claimed, Some(answer(200, body))).await;
        let answered = known(claimed.facts.job, KeyState::Answered(answer(200, body)));
        assert_eq!(ask(&bench, key).await, answered);
        // A long one is unpacked elsewhere.
        assert_eq!(look(&bench, key), (key == "empty").then_some(answered));
    }
    assert!(bench.store.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    assert_eq!(bench.job(job).await.state, State::Succeeded);
}

#[tokio::test]
async fn another_request_with_the_key_is_a_conflict_and_another_caller_s_is_not() {
    let bench = bench();
    let job = begun(ask(&bench, "k").await);
    let other = || request(&bench, "k", r#"{"amount":2}"#);
    assert_eq!(bench.store.ask(other()).await, Ok(Asked::Conflict));
    assert_eq!(
        bench.store.known_key(&name("pay"), "", &id("k"), other().request),
        Some(Asked::Conflict)
    );
    // Of another caller, and of another source.
    let shop = Ask { caller: "shop".to_owned(), ..other() };
    assert_ne!(begun(bench.store.ask(shop).await.unwrap()), job);
    let elsewhere = Ask { source: name("refund"), ..request(&bench, "k", "{}") };
    assert_ne!(begun(bench.store.ask(elsewhere).await.unwrap()), job);
    let variants = |source| bench.store.show(Some(name(source)), id("k"));
    let variants: Vec<_> =
        variants("pay").await.unwrap().into_iter().map(|shown| shown.event).collect();
    assert_eq!(variants.iter().map(|event| event.variant).collect::<Vec<_>>(), [0, 1]);
    assert!(variants.iter().all(|event| event.duplicates == 0 && event.conflicts == 0));
    // A failed one, too, is not begun by another request.
    let claimed = bench.claim_one().await;
    bench.complete(&claimed, FAILED.0, FAILED.1).await;
    assert_eq!(bench.store.ask(other()).await, Ok(Asked::Conflict));
    assert_eq!(bench.job(job).await.state, State::Dead);
}

#[tokio::test]
async fn neither_guard_nor_reused_id_holds_a_request() {
    let bench = bench();
    // The same signed body under other ids, and an id that came before.
    for (key, body) in [("k1", "{}"), ("k2", "{}"), ("seen", "{}")] {
        if key == "seen" {
            bench.accept("pay", github("seen", "push", "{}"), &[]).await;
        }
        let delivery = github(key, "push", body);
        let new = Ask { delivery, ..request(&bench, key, body) };
        let job = begun(bench.store.ask(new).await.unwrap());
        assert_eq!(bench.job(job).await.state, State::Ready, "{key}");
    }
}

#[tokio::test]
async fn of_ten_repeats_of_a_failed_request_one_begins_it() {
    let bench = bench();
    let job = ended(&bench, "k", FAILED).await;
    assert_eq!(look(&bench, "k"), None, "there is something to do");
    let release = hold_writer(&bench.store).await;
    let mut asking = Vec::new();
    for _ in 0..10 {
        let (store, new) = (bench.store.clone(), request(&bench, "k", "{}"));
        asking.push(queued(async move { store.ask(new).await.unwrap() }).await);
    }
    drop(release);
    let mut asked = Vec::new();
    for asking in asking {
        asked.push(asking.await.unwrap());
    }
    let first = asked.iter().filter(|asked| **asked == Asked::Begun { job, again: true }).count();
    let pending = asked.iter().filter(|asked| **asked == known(job, KeyState::Pending)).count();
    assert_eq!((first, pending), (1, 9));
    let again = bench.claim_one().await;
    assert_eq!((again.facts.job, again.facts.attempt, again.facts.replays), (job, 2, 1));
    assert!(bench.store.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    succeed(&bench, &again, Some(answer(200, ""))).await;
    assert_eq!(ask(&bench, "k").await, known(job, KeyState::Answered(answer(200, ""))));
}

#[tokio::test]
async fn nothing_runs_again_while_nobody_knows_how_it_ended() {
    let bench = bench();
    let held = Next::Held(HeldReason::UnknownOutcome);
    for (key, outcome, timed_out) in
        [("k1", Outcome::Unknown, false), ("k2", Outcome::TimedOut, true)]
    {
        let job = ended(&bench, key, (outcome, held)).await;
        let unknown = known(job, KeyState::Unknown { timed_out });
        assert_eq!(look(&bench, key), Some(unknown.clone()));
        assert_eq!(ask(&bench, key).await, unknown);
        assert_eq!(bench.store.await_answer(job, HOUR).await, Ok(KeyState::Unknown { timed_out }));
    }
    let job = begun(ask(&bench, "k3").await);
    bench.store.drop_job(job).await.unwrap();
    assert_eq!(look(&bench, "k3"), Some(known(job, KeyState::Dropped)));
    assert_eq!(ask(&bench, "k3").await, known(job, KeyState::Dropped));
    assert!(bench.store.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
}

#[tokio::test]
async fn who_waits_is_told_by_the_commit() {
    let bench = bench();
    let claimed = running(&bench, "k").await;
    let job = claimed.facts.job;
    assert_eq!(bench.store.await_answer(job, Duration::ZERO).await, Ok(KeyState::Pending));
    let wait = || {
        let store = bench.store.clone();
        queued(async move { store.await_answer(job, HOUR).await })
    };
    let (one, two) = (wait().await, wait().await);
    wait().await.abort();
    let begun = std::time::Instant::now();
    succeed(&bench, &claimed, Some(answer(201, "made"))).await;
    let answered = Ok(KeyState::Answered(answer(201, "made")));
    assert_eq!((one.await.unwrap(), two.await.unwrap()), (answered.clone(), answered.clone()));
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    assert_eq!(bench.store.await_answer(job, Duration::ZERO).await, answered);
    // Who comes back has forgotten nobody.
    assert!(bench.store.inner.waiters.is_empty());
    let nobody = JobId::new(START);
    assert!(matches!(bench.store.await_answer(nobody, HOUR).await, Err(Refused::Failed(_))));
}

#[tokio::test]
async fn what_succeeded_without_its_answer_is_held() {
    let bench = bench();
    for (key, outcome, next) in [
        ("k1", Outcome::Succeeded, Next::Succeeded),
        ("k2", Outcome::Rejected, Next::Dead(DeadReason::Rejected)),
    ] {
        let claimed = running(&bench, key).await;
        let mut done = completion(&claimed, outcome, next, START);
        done.record.detail = "exit status 0".to_owned();
        assert!(bench.store.complete(done).await.unwrap());
        let job = bench.job(claimed.facts.job).await;
        assert_eq!((job.state, job.reason.as_deref()), (State::Held, Some("unknown outcome")));
        assert_eq!(bench.attempts(key).await, [(1, Some(Outcome::Unknown))]);
        let detail = job.last_detail.unwrap();
        assert_eq!(detail, "exit status 0, but no answer for the caller who waits for one");
        assert_eq!(ask(&bench, key).await, known(job.job, KeyState::Unknown { timed_out: false }));
    }
    // Who waits for nothing has succeeded, and its answer is nobody's.
    let claimed = bench.running("plain").await;
    succeed(&bench, &claimed, Some(answer(200, ""))).await;
    let claimed = bench.running("other").await;
    succeed(&bench, &claimed, None).await;
    assert_eq!(bench.job(claimed.facts.job).await.state, State::Succeeded);
}
