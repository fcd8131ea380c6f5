//! Requests with keys: begun once, answered once, and the same to whoever asks.
use futures_util::FutureExt;

use super::{tokio, *};
use crate::store::node::subscriptions::Subscription;
use crate::store::tests::writing::queued;

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
    bench.store.intake.ask(request(bench, key, "{}")).await.unwrap()
}

/// What a look without a queue says.
fn look(bench: &Bench, key: &str) -> Option<Asked> {
    let Ask { source, caller, request, .. } = request(bench, key, "{}");
    bench.store.intake.known_key(&source, &caller, &id(key), request)
}

/// The state of a key that is used, without a change: on PostgreSQL a question says it.
async fn known_of(bench: &Bench, key: &str) -> Option<Asked> {
    match engine() {
        EngineKind::Sqlite => look(bench, key),
        EngineKind::Postgres => Some(ask(bench, key).await),
    }
}

/// A question would begin something. On PostgreSQL only the question says so.
fn is_open(bench: &Bench, key: &str) -> bool {
    look(bench, key).is_none()
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
    assert!(bench.store.jobs.complete(Completion { answer, ..done }).await.unwrap());
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
    let mut bench = bench().await;
    assert!(is_open(&bench, "k"));
    let job = begun(ask(&bench, "k").await);
    let pending = known(job, KeyState::Pending);
    assert_eq!(ask(&bench, "k").await, pending);
    assert_eq!(known_of(&bench, "k").await, Some(pending.clone()));
    let claimed = bench.claim_one().await;
    assert_eq!((claimed.facts.job, claimed.facts.event_id.as_str()), (job, "k"));
    assert_eq!(known_of(&bench, "k").await, Some(pending));

    // From the commit on, also after a restart; the empty body and a large one too.
    let answered = known(job, KeyState::Answered(answer(402, "no money")));
    succeed(&bench, &claimed, Some(answer(402, "no money"))).await;
    for restarted in [false, true] {
        assert_eq!(known_of(&bench, "k").await, Some(answered.clone()), "{restarted}");
        assert_eq!(ask(&bench, "k").await, answered, "{restarted}");
        bench.restart().await;
    }
    let large = "x".repeat(300 * 1024);
    for (key, body) in [("empty", ""), ("large", &large)] {
        let claimed = running(&bench, key).await;
        succeed(&bench, &claimed, Some(answer(200, body))).await;
        let answered = known(claimed.facts.job, KeyState::Answered(answer(200, body)));
        assert_eq!(ask(&bench, key).await, answered);
        if engine() == EngineKind::Sqlite {
            // A long one is unpacked elsewhere.
            assert_eq!(look(&bench, key), (key == "empty").then_some(answered));
        }
    }
    assert!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    assert_eq!(bench.job(job).await.state, State::Succeeded);
}

#[tokio::test]
async fn another_request_with_the_key_is_a_conflict_and_another_caller_s_is_not() {
    let bench = bench().await;
    let job = begun(ask(&bench, "k").await);
    let other = || request(&bench, "k", r#"{"amount":2}"#);
    assert_eq!(bench.store.intake.ask(other()).await, Ok(Asked::Conflict));
    if engine() == EngineKind::Sqlite {
        let known = bench.store.intake.known_key(&name("pay"), "", &id("k"), other().request);
        assert_eq!(known, Some(Asked::Conflict));
    }
    // Of another caller, and of another source.
    let shop = Ask { caller: "shop".to_owned(), ..other() };
    assert_ne!(begun(bench.store.intake.ask(shop).await.unwrap()), job);
    let elsewhere = Ask { source: name("refund"), ..request(&bench, "k", "{}") };
    assert_ne!(begun(bench.store.intake.ask(elsewhere).await.unwrap()), job);
    let variants = |source| bench.store.admin.show(Some(name(source)), id("k"), None);
    let variants: Vec<_> =
        variants("pay").await.unwrap().into_iter().map(|shown| shown.event).collect();
    assert_eq!(variants.iter().map(|event| event.variant).collect::<Vec<_>>(), [0, 1]);
    assert!(variants.iter().all(|event| event.duplicates == 0 && event.conflicts == 0));
    // A failed one, too, is not begun by another request.
    let (claimed, of_shop) = (bench.claim_one().await, bench.claim_one().await);
    // Its handler is told whose it is.
    let callers = [&claimed, &of_shop].map(|claimed| claimed.facts.caller.as_deref());
    assert_eq!(callers, [None, Some("shop")]);
    bench.complete(&claimed, FAILED.0, FAILED.1).await;
    assert_eq!(bench.store.intake.ask(other()).await, Ok(Asked::Conflict));
    assert_eq!(bench.job(job).await.state, State::Dead);
}

#[tokio::test]
async fn neither_guard_nor_reused_id_holds_a_request() {
    let bench = bench().await;
    // The same signed body under other ids, and an id that came before.
    for (key, body) in [("k1", "{}"), ("k2", "{}"), ("seen", "{}")] {
        if key == "seen" {
            bench.accept("pay", github("seen", "push", "{}"), &[]).await;
        }
        let delivery = github(key, "push", body);
        let new = Ask { delivery, ..request(&bench, key, body) };
        let job = begun(bench.store.intake.ask(new).await.unwrap());
        assert_eq!(bench.job(job).await.state, State::Ready, "{key}");
    }
}

#[tokio::test]
async fn of_ten_repeats_of_a_failed_request_one_begins_it() {
    let bench = bench().await;
    let job = ended(&bench, "k", FAILED).await;
    assert!(is_open(&bench, "k"), "there is something to do");
    let release = bench.hold_writer().await;
    let mut asking = Vec::new();
    for _ in 0..10 {
        let (store, new) = (bench.store.clone(), request(&bench, "k", "{}"));
        asking.push(queued(async move { store.intake.ask(new).await.unwrap() }).await);
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
    assert!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
    succeed(&bench, &again, Some(answer(200, ""))).await;
    assert_eq!(ask(&bench, "k").await, known(job, KeyState::Answered(answer(200, ""))));
}

#[tokio::test]
async fn nothing_runs_again_while_nobody_knows_how_it_ended() {
    let bench = bench().await;
    let held = Next::Held(HeldReason::UnknownOutcome);
    for (key, outcome, timed_out) in
        [("k1", Outcome::Unknown, false), ("k2", Outcome::TimedOut, true)]
    {
        let job = ended(&bench, key, (outcome, held)).await;
        let unknown = known(job, KeyState::Unknown { timed_out });
        assert_eq!(known_of(&bench, key).await, Some(unknown.clone()));
        assert_eq!(ask(&bench, key).await, unknown);
        assert_eq!(
            bench.store.intake.await_answer(job, HOUR).await,
            Ok(KeyState::Unknown { timed_out })
        );
    }
    let job = begun(ask(&bench, "k3").await);
    bench.store.admin.drop_job(job, None).await.unwrap();
    assert_eq!(known_of(&bench, "k3").await, Some(known(job, KeyState::Dropped)));
    assert_eq!(ask(&bench, "k3").await, known(job, KeyState::Dropped));
    assert!(bench.store.jobs.claim(&name("h"), 9, None).await.unwrap().jobs.is_empty());
}

/// Subscribes to a job's final state, as a caller who waits for it does.
fn subscribe(bench: &Bench, job: JobId) -> Subscription {
    match &bench.store.intake {
        Intake::Sqlite(intake) => intake.subscriptions.subscribe(job),
        Intake::Postgres(intake, _) => intake.writer.subscriptions.subscribe(job),
    }
}

#[tokio::test]
async fn who_waits_is_told_by_the_commit() {
    let bench = bench().await;
    let claimed = running(&bench, "k").await;
    let job = claimed.facts.job;
    assert_eq!(bench.store.intake.await_answer(job, Duration::ZERO).await, Ok(KeyState::Pending));
    let wait = || {
        let store = bench.store.clone();
        queued(async move { store.intake.await_answer(job, HOUR).await })
    };
    let (one, two) = (wait().await, wait().await);
    wait().await.abort();
    let mut subscription = subscribe(&bench, job);
    assert_eq!(subscription.changed().now_or_never(), None);
    succeed(&bench, &claimed, Some(answer(201, "made"))).await;
    // By the time of the commit's answer, and not by the next look of those who wait.
    assert_eq!(subscription.changed().now_or_never(), Some(()));
    drop(subscription);
    let answered = Ok(KeyState::Answered(answer(201, "made")));
    assert_eq!((one.await.unwrap(), two.await.unwrap()), (answered.clone(), answered.clone()));
    assert_eq!(bench.store.intake.await_answer(job, Duration::ZERO).await, answered);
    // Who comes back has forgotten nobody.
    assert!(bench.nobody_waits());
    let nobody = crate::random::job_id(START);
    assert!(matches!(bench.store.intake.await_answer(nobody, HOUR).await, Err(Refused::Failed(_))));
}

#[tokio::test]
async fn what_succeeded_without_its_answer_is_held() {
    let bench = bench().await;
    for (key, outcome, next) in [
        ("k1", Outcome::Succeeded, Next::Succeeded),
        ("k2", Outcome::Rejected, Next::Dead(DeadReason::Rejected)),
    ] {
        let claimed = running(&bench, key).await;
        let mut done = completion(&claimed, outcome, next, START);
        done.record.detail = "exit status 0".to_owned();
        assert!(bench.store.jobs.complete(done).await.unwrap());
        let job = bench.job(claimed.facts.job).await;
        assert_eq!((job.state, job.reason.as_deref()), (State::Held, Some("unknown outcome")));
        assert_eq!(bench.attempts(key).await, [(1, Some(Outcome::Unknown))]);
        let detail = job.last_detail.unwrap();
        assert_eq!(detail, "exit status 0, but no answer for the caller who waits for one");
        assert_eq!(ask(&bench, key).await, known(job.job, KeyState::Unknown { timed_out: false }));
    }
    // Nothing began, so its caller knows that nothing was done.
    let claimed = running(&bench, "k3").await;
    let refused = Next::Dead(DeadReason::Rejected);
    let done = completion(&claimed, Outcome::NotStarted, refused, START);
    assert!(bench.store.jobs.complete(done).await.unwrap());
    let job = bench.job(claimed.facts.job).await;
    assert_eq!((job.state, job.reason.as_deref()), (State::Dead, Some("rejected")));
    assert_eq!(bench.attempts("k3").await, [(1, Some(Outcome::NotStarted))]);
    let state = bench.store.intake.await_answer(job.job, HOUR).await;
    assert_eq!(state, Ok(KeyState::Failed));
    // Who waits for nothing has succeeded, and its answer is nobody's.
    let claimed = bench.running("plain").await;
    succeed(&bench, &claimed, Some(answer(200, ""))).await;
    let claimed = bench.running("other").await;
    succeed(&bench, &claimed, None).await;
    assert_eq!(bench.job(claimed.facts.job).await.state, State::Succeeded);
}

/// Retention of keys alone, at this time. Returns how many it freed.
async fn expire_keys(bench: &Bench, keys: Timestamp) -> u64 {
    bench.store.jobs.expire_keys(keys).await.unwrap()
}

/// The event's key, as it is shown.
#[tokio::test]
async fn a_request_whose_answer_is_damaged_is_shown_without_it() {
    let mut bench = bench().await;
    let claimed = running(&bench, "k").await;
    succeed(&bench, &claimed, Some(answer(201, "made"))).await;
    bench.change_rows("UPDATE answer SET body = substr(body, 1, 9)").await;
    let row = shown(&bench, "k").await.unwrap();
    assert_eq!((row.status, row.body, row.damaged), (Some(201), None, true));
}

async fn shown(bench: &Bench, key: &str) -> Option<KeyRow> {
    bench.store.admin.show(Some(name("pay")), id(key), None).await.unwrap().remove(0).key
}

#[tokio::test]
async fn a_key_and_its_answer_are_shown() {
    let bench = bench().await;
    let claimed = running(&bench, "k").await;
    let row = KeyRow {
        caller: String::new(),
        request: request(&bench, "k", "{}").request.to_string(),
        created_at: START,
        expires_at: START.after(KEEP),
        error_until: None,
        answered_at: None,
        status: None,
        headers: Vec::new(),
        body: None,
        damaged: false,
    };
    assert_eq!(shown(&bench, "k").await, Some(row.clone()));
    bench.advance(HOUR).await;
    succeed(&bench, &claimed, Some(answer(402, "no"))).await;
    let line = |value: &str| ("X-Charge".to_owned(), value.to_owned());
    let answered = KeyRow {
        answered_at: Some(bench.clock.now()),
        status: Some(402),
        headers: vec![line("\u{fffd}1"), line("2")],
        body: Some(Blob(b"no".to_vec())),
        ..row
    };
    assert_eq!(shown(&bench, "k").await, Some(answered));
    // What an older receiver shows has none.
    let shown = bench.store.admin.show(None, id("k"), None).await.unwrap().remove(0);
    let mut json = serde_json::to_value(shown).unwrap();
    json.as_object_mut().unwrap().remove("key").unwrap();
    assert_eq!(serde_json::from_value::<EventDetail>(json).unwrap().key, None);
}

#[tokio::test]
async fn a_key_expires_by_retention_and_never_before_its_job_is_settled() {
    let bench = bench().await;
    let margin = Duration::from_secs(60);
    let claimed = running(&bench, "done").await;
    succeed(&bench, &claimed, Some(answer(200, "first"))).await;
    ended(&bench, "dead", FAILED).await;
    let held = ended(&bench, "held", UNKNOWN).await;
    let live = running(&bench, "live").await;
    let ready = begun(ask(&bench, "ready").await);

    // However old it is, a row that is there counts; a clock that is a minute wrong takes nothing.
    bench.advance(KEEP + margin).await;
    assert_eq!(expire_keys(&bench, bench.clock.now()).await, 0);
    assert!(matches!(ask(&bench, "done").await, Asked::Known { state: KeyState::Answered(_), .. }));
    bench.advance(SECOND).await;
    assert_eq!(expire_keys(&bench, bench.clock.now()).await, 2);
    for (key, job) in [("held", held), ("live", live.facts.job), ("ready", ready)] {
        let Some(Asked::Known { job: found, .. }) = known_of(&bench, key).await else {
            panic!("{key}")
        };
        assert_eq!(found, job);
    }

    // The same key is another generation; the event before it stays what it was.
    let again = begun(ask(&bench, "done").await);
    assert_ne!(again, claimed.facts.job);
    let generations = bench.store.admin.show(None, id("done"), None).await.unwrap();
    let seen: Vec<_> = generations
        .iter()
        .map(|shown| (shown.event.variant, shown.key.is_some(), shown.jobs[0].job.state))
        .collect();
    assert_eq!(seen, [(0, false, State::Succeeded), (1, true, State::Ready)]);
    assert_eq!(bench.store.intake.await_answer(again, Duration::ZERO).await, Ok(KeyState::Pending));
    // The old job's end is nobody's answer any more.
    succeed(&bench, &live, Some(answer(200, "late"))).await;
    assert_eq!(expire_keys(&bench, bench.clock.now()).await, 1);
}

#[tokio::test]
async fn a_walk_over_many_keys_ends_and_passes_by_those_that_stay() {
    let mut bench = bench().await;
    let first = begun(ask(&bench, "k0").await);
    // 500 more, every tenth of them not settled; all expire at the same time.
    let more =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
         INSERT INTO event (row, source, event_id, variant, type, digest, guarded, repeated, flagged, received_at,
                 body_bytes)
             SELECT 100 + i, 'pay', 'k' || i, 0, 'a.b', zeroblob(32), false, false, false, 1, 0 FROM n;
         INSERT INTO job (id, event, handler, state, since, created_at, settled_at)
             SELECT randomblob(16), row, 'h', CASE WHEN row % 10 > 0 THEN 'succeeded' ELSE 'ready' END, 1, 1,
                 CASE WHEN row % 10 > 0 THEN 1 END
             FROM event WHERE row > 100;
         INSERT INTO answer (event, source, caller, key, request, created_at, expires_at, keep_errors)
             SELECT row, source, '', event_id, zeroblob(32), 1, 2, 0 FROM event WHERE row > 100;";
    bench.change_rows(more).await;
    assert_eq!(expire_keys(&bench, START).await, 450);
    assert_eq!(expire_keys(&bench, START).await, 0);
    assert_eq!(known_of(&bench, "k0").await, Some(known(first, KeyState::Pending)));
}

#[tokio::test]
async fn an_error_is_forgotten_after_a_while_and_the_same_job_runs_again() {
    let bench = bench().await;
    let claimed = running(&bench, "k").await;
    let other = running(&bench, "other").await;
    succeed(&bench, &other, Some(answer(499, ""))).await;
    let job = claimed.facts.job;
    let done = completion(&claimed, FAILED.0, FAILED.1, bench.clock.now());
    let later = answer(503, "later");
    let answer = Some(later.clone());
    assert!(bench.store.jobs.complete(Completion { answer, ..done }).await.unwrap());
    let answered = known(job, KeyState::Answered(later));
    let until = bench.clock.now().after(KEEP_ERRORS);
    assert_eq!(shown(&bench, "k").await.unwrap().error_until, Some(until));
    bench.advance(KEEP_ERRORS + KEY_MARGIN).await;
    expire_keys(&bench, bench.clock.now()).await;
    assert_eq!(known_of(&bench, "k").await, Some(answered));
    assert!(
        bench.store.admin.replay(Replay::Job(job, None), false).await.is_err(),
        "its caller has an answer"
    );
    bench.advance(SECOND).await;
    expire_keys(&bench, bench.clock.now()).await;
    assert!(is_open(&bench, "k"));
    let conflict = bench.store.intake.ask(request(&bench, "k", r#"{"n":2}"#)).await.unwrap();
    assert_eq!(conflict, Asked::Conflict, "the key is still this request's");
    assert_eq!(ask(&bench, "k").await, Asked::Begun { job, again: true });
    assert!(known_of(&bench, "other").await.is_some());
}

/// A minute, as retention has it.
const KEY_MARGIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn whatever_its_handler_s_policy_is_by_now_a_request_has_one_attempt() {
    let wait = Next::Wait { due_at: START.after(HOUR) };
    for (outcome, state) in [
        (Outcome::Failed, State::Dead),
        (Outcome::Unknown, State::Held),
        (Outcome::TimedOut, State::Held),
    ] {
        let bench = bench().await;
        let job = ended(&bench, "k", (outcome, wait)).await;
        assert_eq!(bench.job(job).await.state, state, "{outcome}");
        let plain = bench.running("plain").await;
        bench.complete(&plain, outcome, wait).await;
        assert_eq!(bench.job(plain.facts.job).await.state, State::Waiting, "{outcome}");
    }
    // What a crash cut off, where the handler runs again by itself since.
    let mut bench = bench().await;
    let job = running(&bench, "k").await.facts.job;
    bench.restart().await;
    let rerun = vec![(name("h"), policy(OnUnknown::Rerun, 5))];
    bench.store.jobs.recover(rerun).await.unwrap();
    assert_eq!(bench.job(job).await.state, State::Held);
}

#[tokio::test]
async fn what_was_asked_is_not_run_again_once_its_key_is_given_up() {
    let bench = bench().await;
    let rejected = (Outcome::Rejected, Next::Dead(DeadReason::Rejected));
    let claimed = running(&bench, "k").await;
    let done = completion(&claimed, rejected.0, rejected.1, bench.clock.now());
    let answer = Some(answer(422, "no"));
    assert!(bench.store.jobs.complete(Completion { answer, ..done }).await.unwrap());
    bench.advance(2 * KEEP).await;
    assert_eq!(expire_keys(&bench, bench.clock.now()).await, 1);
    let job = claimed.facts.job;
    assert_eq!(
        bench.store.admin.replay(Replay::Job(job, None), false).await,
        Err(Error::Answered { job })
    );
    assert_eq!(bench.job(job).await.state, State::Dead);
}

#[tokio::test]
async fn a_key_keeps_what_it_belongs_to() {
    let bench = bench().await;
    let claimed = running(&bench, "k").await;
    succeed(&bench, &claimed, Some(answer(200, "yes"))).await;
    bench.advance(HOUR).await;
    let later = bench.clock.now();
    assert_eq!(expired(&bench, later, later).await, (0, 0));
    let answered = known(claimed.facts.job, KeyState::Answered(answer(200, "yes")));
    assert_eq!(known_of(&bench, "k").await, Some(answered));
    // With the key both may go.
    bench.advance(2 * KEEP).await;
    let now = bench.clock.now();
    assert_eq!(expire_keys(&bench, now).await, 1);
    assert_eq!(expired(&bench, now, now).await, (1, 1));
    assert!(is_open(&bench, "k"));
}

#[tokio::test]
async fn resolve_brings_the_answer_or_frees_the_key() {
    let mut bench = bench().await;
    let plain = bench.running("plain").await;
    bench.complete(&plain, UNKNOWN.0, UNKNOWN.1).await;
    let plain = plain.facts.job;
    let resolve = async |job, how| bench.resolve(job, how).await;
    let answered = |body: &str| Resolution::Answered(answer(201, body));
    assert_eq!(resolve(plain, answered("")).await, Err(Error::NobodyWaits { job: plain }));
    assert_eq!(resolve(plain, Resolution::Succeeded).await, Ok(State::Succeeded));

    let job = ended(&bench, "k", UNKNOWN).await;
    assert_eq!(resolve(job, Resolution::Succeeded).await, Err(Error::AnswerNeeded { job }));
    assert_eq!(
        known_of(&bench, "k").await,
        Some(known(job, KeyState::Unknown { timed_out: false }))
    );
    assert_eq!(resolve(job, answered("made")).await, Ok(State::Succeeded));
    let error = Error::WrongState { job, state: State::Succeeded, verb: "resolved" };
    assert_eq!(resolve(job, answered("other")).await, Err(error));

    let failed = ended(&bench, "f", UNKNOWN).await;
    assert_eq!(resolve(failed, Resolution::Failed).await, Ok(State::Dead));
    assert!(is_open(&bench, "f"));
    assert_ne!(begun(ask(&bench, "f").await), failed);

    bench.restart().await;
    let told = known(job, KeyState::Answered(answer(201, "made")));
    assert_eq!(known_of(&bench, "k").await, Some(told));
}

#[tokio::test]
async fn nothing_puts_back_what_has_answered() {
    let bench = bench().await;
    let claimed = running(&bench, "k").await;
    let rejected = Next::Dead(DeadReason::Rejected);
    let done = completion(&claimed, Outcome::Rejected, rejected, START);
    let done = Completion { answer: Some(answer(422, "no")), ..done };
    assert!(bench.store.jobs.complete(done).await.unwrap());
    let job = claimed.facts.job;
    let answered = Err(Error::Answered { job });
    for what in [
        Replay::Job(job, None),
        Replay::NewKey(job, None),
        Replay::Event { source: None, event: id("k"), handler: None },
        Replay::Event { source: None, event: id("k"), handler: Some(name("h")) },
    ] {
        assert_eq!(bench.store.admin.replay(what, false).await, answered);
    }
    // Nor does another handler get a job of it.
    let (source_name, event) = (name("pay"), id("k"));
    let other = Replay::Event { source: None, event: id("k"), handler: Some(name("late")) };
    let error = Error::OneHandler { source_name, event };
    assert_eq!(bench.store.admin.replay(other, false).await, Err(error));
    let wanted = EventMatcher {
        sources: vec![name("pay")],
        types: vec![crate::pattern::Pattern::new("*", true)],
        only: None,
    };
    let since = Timestamp(0);
    let missing =
        Backfill { handler: name("late"), since, wanted: vec![wanted], dry_run: false, from: None };
    let made = bench.store.admin.make_missing(missing).await.unwrap();
    assert_eq!((made.made, made.present), (0, 1));
    // Nor many at once, also where it was chosen before, nor a redelivery.
    let filter = JobFilter { state: Some(State::Dead), ..JobFilter::default() };
    let select = JobSelection { filter, after: None, verb: Verb::Replay };
    let selected = bench.store.admin.select(select.clone()).await.unwrap();
    assert_eq!((selected.jobs.len(), selected.answered), (0, 1));
    let batch = JobBatch {
        verb: Verb::Replay,
        state: State::Dead,
        regardless: false,
        jobs: vec![(job, 1)],
    };
    assert_eq!(bench.store.admin.move_batch(batch).await.unwrap().changed, 1);
    let again = stripe("k", "pay", "{}");
    let again = bench.accept_as(OnRedelivery::ReplayDead, "pay", again, &["h"]).await;
    assert!(matches!(again, Ok(Accepted::Duplicate { replayed: 0, .. })), "{again:?}");
    assert_eq!(bench.job(job).await.state, State::Dead);

    // It may be dropped, and its caller is told the same.
    let select = JobSelection { verb: Verb::Drop, ..select };
    assert_eq!(bench.store.admin.select(select).await.unwrap().jobs.len(), 1);
    bench.store.admin.drop_job(job, None).await.unwrap();
    assert_eq!(ask(&bench, "k").await, known(job, KeyState::Answered(answer(422, "no"))));
}

#[tokio::test]
async fn the_operator_puts_back_what_has_no_answer() {
    let bench = bench().await;
    for (key, end) in [("dead", FAILED), ("held", UNKNOWN)] {
        let job = ended(&bench, key, end).await;
        assert_eq!(
            bench
                .store
                .admin
                .replay(Replay::NewKey(job, None), false)
                .await
                .map(|done| done.jobs.len()),
            Ok(1)
        );
        let claimed = bench.claim_one().await;
        assert_eq!(known_of(&bench, key).await, Some(known(claimed.facts.job, KeyState::Pending)));
        succeed(&bench, &claimed, Some(answer(200, key))).await;
        let told = known(claimed.facts.job, KeyState::Answered(answer(200, key)));
        assert_eq!(known_of(&bench, key).await, Some(told));
    }
}

#[tokio::test]
async fn nobody_is_told_anything_while_the_store_is_closed_for_repair() {
    let bench = bench().await;
    let claimed = running(&bench, "k").await;
    let job = claimed.facts.job;
    let mut changes = bench.store.admin.changes();
    bench.take_away().await;
    while bench.store.intake.ready().is_ok() || !is_open(&bench, "k") {
        changes.changed().await.unwrap();
    }
    let away = |refused: Refused| {
        let is_right = match engine() {
            EngineKind::Sqlite => matches!(refused, Refused::Degraded(_)),
            EngineKind::Postgres => matches!(refused, Refused::Unreachable(_)),
        };
        assert!(is_right, "{refused}");
    };
    away(bench.store.intake.ask(request(&bench, "k", "{}")).await.unwrap_err());
    away(bench.store.intake.await_answer(job, Duration::ZERO).await.unwrap_err());
    // Who waits meanwhile is told once it is committed.
    let store = bench.store.clone();
    let waiting = queued(async move { store.intake.await_answer(job, HOUR).await }).await;
    let done = completion(&claimed, Outcome::Succeeded, Next::Succeeded, START);
    let done = Completion { answer: Some(answer(200, "")), ..done };
    let store = bench.store.clone();
    let completing = queued(async move { store.jobs.complete(done).await }).await;
    bench.repair().await;
    assert_eq!(completing.await.unwrap(), Ok(true));
    assert_eq!(waiting.await.unwrap(), Ok(KeyState::Answered(answer(200, ""))));
    assert!(matches!(known_of(&bench, "k").await, Some(Asked::Known { .. })));
    bench.store.close().await;
    assert!(is_open(&bench, "k"));
    assert_eq!(bench.store.intake.await_answer(job, HOUR).await, Err(Refused::Stopping));
}

#[tokio::test]
async fn a_restored_store_has_the_answers_and_knows_nothing_of_what_was_unfinished() {
    let mut bench = bench().await;
    let done = running(&bench, "done").await;
    succeed(&bench, &done, Some(answer(200, "yes"))).await;
    let failed = ended(&bench, "failed", FAILED).await;
    let claimed = running(&bench, "not-now").await;
    let not_now = claimed.facts.job;
    let done_so = completion(&claimed, FAILED.0, FAILED.1, bench.clock.now());
    let answer_so = Some(answer(503, "later"));
    assert!(bench.store.jobs.complete(Completion { answer: answer_so, ..done_so }).await.unwrap());
    let ready = begun(ask(&bench, "ready").await);
    let backup = bench.back_up().await;
    let clock = bench.clock.clone();
    let bench = bench.restored(backup, clock).await;
    let look = async |key| known_of(&bench, key).await;
    let answered = KeyState::Answered(answer(200, "yes"));
    assert_eq!(look("done").await, Some(known(done.facts.job, answered)));
    // Its repeat may have run it since the backup was made.
    let unknown = |job| known(job, KeyState::Unknown { timed_out: false });
    let unfinished = [("ready", ready), ("failed", failed), ("not-now", not_now)];
    for (key, job) in unfinished {
        assert_eq!(look(key).await, Some(unknown(job)), "{key}");
    }
    bench.advance(KEEP).await;
    bench.store.jobs.expire_keys(bench.clock.now()).await.unwrap();
    for (key, job) in unfinished {
        assert_eq!(ask(&bench, key).await, unknown(job), "{key}");
    }
}

#[tokio::test]
async fn what_a_crash_cut_off_is_unknown_to_its_caller() {
    let mut bench = bench().await;
    let claimed = running(&bench, "k").await;
    bench.restart().await;
    bench.store.jobs.recover(vec![(name("h"), policy(OnUnknown::Hold, 1))]).await.unwrap();
    let unknown = known(claimed.facts.job, KeyState::Unknown { timed_out: false });
    assert_eq!(ask(&bench, "k").await, unknown);
}
