//! The account of falsified evidence reports each broken promise and names its event.

#![allow(clippy::unwrap_used)]

use super::*;

const LEDGER: &str = "\
start work e1 1
start work e2 1
start retry e2 1
end work e1 1
fail retry e2 1
start retry e2 2
end work e2 1
end retry e2 2
";

fn job(handler: &str, state: State, outcomes: &[Outcome]) -> Job {
    let numbered = outcomes.iter().enumerate();
    Job {
        handler: handler.to_owned(),
        state,
        reason: None,
        attempts: numbered.map(|(nth, outcome)| (nth as u32 + 1, Some(*outcome))).collect(),
    }
}

fn held(handler: &str, reason: HeldReason, outcome: Outcome) -> Job {
    Job { reason: Some(reason.to_string()), ..job(handler, State::Held, &[outcome]) }
}

/// Evidence without a broken promise: two events, of which the second also goes to a handler that
/// fails at first.
fn good() -> Evidence {
    let sent = |event: &str, handlers: &'static [_]| Sent {
        event: event.to_owned(),
        handlers,
        answer: Answered::Acknowledged,
    };
    let work = || job("work", State::Succeeded, &[Outcome::Succeeded]);
    let retry = job("retry", State::Succeeded, &[Outcome::Failed, Outcome::Succeeded]);
    Evidence {
        sent: vec![sent("e1", &["work"]), sent("e2", &["work", "retry"])],
        stored: vec![
            Stored { event: "e1".to_owned(), jobs: vec![work()] },
            Stored { event: "e2".to_owned(), jobs: vec![work(), retry] },
        ],
        ledger: Ledger::read(LEDGER),
        runner_kills: 0,
    }
}

/// The kinds and texts of the broken promises, which must all be about `event`.
fn broken(evidence: &Evidence, event: &str) -> Vec<(Kind, String)> {
    let account = Account::of(evidence);
    let about = |broken: Broken| {
        assert_eq!(broken.event, event, "{broken:?}");
        (broken.kind, broken.what)
    };
    account.broken.into_iter().map(about).collect()
}

fn one(kind: Kind, what: &str) -> Vec<(Kind, String)> {
    vec![(kind, what.to_owned())]
}

/// The ledger without the lines that contain `words`.
fn without(words: &str) -> Ledger {
    let lines = LEDGER.lines().filter(|line| !line.contains(words));
    Ledger::read(&lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn evidence_of_a_correct_run_breaks_no_promise() {
    let account = Account::of(&good());
    let wanted = Account {
        sent: 2,
        acknowledged: 2,
        stored: 2,
        started: 4,
        finished: 4,
        ..Account::default()
    };
    assert_eq!(account, wanted);
}

#[test]
fn an_acknowledged_event_that_is_not_stored_is_lost() {
    let mut evidence = good();
    evidence.stored.remove(0);
    evidence.ledger = without("e1");
    assert_eq!(broken(&evidence, "e1"), one(Kind::Lost, "answered 2xx and not stored"));
    let lost = Account::of(&evidence);
    assert_eq!((lost.acknowledged, lost.stored, lost.lost), (2, 1, 1));
    // An event that was not acknowledged may be missing; only the missing answer is reported.
    evidence.sent[0].answer = Answered::Never;
    assert_eq!(broken(&evidence, "e1"), one(Kind::Unfinished, "never answered 2xx"));
    evidence.sent[0].answer = Answered::Refused(401);
    assert_eq!(broken(&evidence, "e1"), one(Kind::Unfinished, "answered 401"));
}

#[test]
fn an_event_without_one_of_its_jobs_is_lost() {
    let mut evidence = good();
    evidence.stored[1].jobs.pop();
    evidence.ledger = without("retry");
    assert_eq!(broken(&evidence, "e2"), one(Kind::Lost, "stored without its job for retry"));
    assert_eq!(Account::of(&evidence).lost, 1);
}

#[test]
fn an_event_or_a_job_that_is_stored_twice_is_doubled() {
    let mut evidence = good();
    let twin = Stored { event: "e1".to_owned(), jobs: Vec::new() };
    evidence.stored.insert(0, twin);
    assert_eq!(broken(&evidence, "e1"), one(Kind::Doubled, "stored twice"));
    assert_eq!(Account::of(&evidence).doubled, 1);

    let mut evidence = good();
    let twin = job("work", State::Succeeded, &[Outcome::Succeeded]);
    evidence.stored[0].jobs.push(twin);
    assert_eq!(broken(&evidence, "e1"), one(Kind::Doubled, "2 jobs for work"));
}

#[test]
fn an_attempt_that_begins_twice_is_doubled() {
    let mut evidence = good();
    evidence.ledger = Ledger::read(&format!("{LEDGER}start work e1 1\n"));
    assert_eq!(broken(&evidence, "e1"), one(Kind::Doubled, "attempt 1 of work was begun 2 times"));
    let account = Account::of(&evidence);
    assert_eq!((account.started, account.doubled), (5, 1));
}

#[test]
fn a_second_attempt_is_allowed_only_after_a_known_failure() {
    let rerun = format!("{LEDGER}start work e1 2\nend work e1 2\n");
    let with_first = |outcome, ledger: &str| {
        let mut evidence = good();
        evidence.ledger = Ledger::read(ledger);
        evidence.stored[0].jobs[0] = job("work", State::Succeeded, &[outcome, Outcome::Succeeded]);
        broken(&evidence, "e1")
    };
    for outcome in [Outcome::Succeeded, Outcome::Unknown, Outcome::TimedOut] {
        let wanted = format!("attempt 2 of work was begun, and attempt 1 was {outcome}");
        assert_eq!(with_first(outcome, &rerun), one(Kind::Doubled, &wanted));
    }
    let never_began: String = rerun
        .lines()
        .filter(|l| !l.ends_with("e1 1"))
        .fold(String::new(), |text, line| text + line + "\n");
    assert_eq!(with_first(Outcome::NotStarted, &never_began), []);
    assert_eq!(
        with_first(Outcome::NotStarted, &rerun),
        one(Kind::Contradicted, "attempt 1 of work is recorded as never started, and it was")
    );
}

#[test]
fn two_concurrent_attempts_are_doubled() {
    let mut evidence = good();
    let late = LEDGER
        .replace("fail retry e2 1\nstart retry e2 2\n", "start retry e2 2\nfail retry e2 1\n");
    evidence.ledger = Ledger::read(&late);
    let wanted = "attempt 2 of retry was begun, and attempt 1 still ran";
    assert_eq!(broken(&evidence, "e2"), one(Kind::Doubled, wanted));
}

#[test]
fn an_unknown_outcome_needs_a_killed_runner_and_a_held_job() {
    let mut evidence = good();
    evidence.ledger = without("end work e1");
    evidence.stored[0].jobs[0] = held("work", HeldReason::UnknownOutcome, Outcome::Unknown);
    let wanted = "work is held (unknown outcome)";
    assert_eq!(broken(&evidence, "e1"), one(Kind::Unknown, wanted));
    assert_eq!(Account::of(&evidence).unknown, 1);

    evidence.runner_kills = 1;
    assert_eq!(broken(&evidence, "e1"), []);
    let allowed = Account::of(&evidence);
    assert_eq!((allowed.unknown, allowed.started, allowed.finished), (1, 4, 3));

    // A killed runner does not explain a job that is held for another reason, or that succeeded with an
    // unknown outcome.
    evidence.stored[0].jobs[0] = held("work", HeldReason::Cancelled, Outcome::Unknown);
    assert_eq!(broken(&evidence, "e1"), one(Kind::Unknown, "work is held (cancelled)"));
    evidence.stored[0].jobs[0] = held("work", HeldReason::UnknownOutcome, Outcome::Failed);
    assert!(broken(&evidence, "e1").contains(&(Kind::Unknown, wanted.to_owned())));
    evidence.stored[0].jobs[0] = job("work", State::Succeeded, &[Outcome::Unknown]);
    assert_eq!(broken(&evidence, "e1"), one(Kind::Unknown, "work is succeeded"));
}

#[test]
fn a_job_that_has_not_succeeded_is_unfinished() {
    for state in [State::Ready, State::Running, State::Waiting, State::Dead, State::Dropped] {
        let mut evidence = good();
        evidence.stored[0].jobs[0].state = state;
        let wanted = format!("work is {state}");
        assert_eq!(broken(&evidence, "e1"), one(Kind::Unfinished, &wanted));
    }
}

#[test]
fn an_outcome_that_the_ledger_denies_is_contradicted() {
    let mut evidence = good();
    evidence.ledger = without("end work e1");
    let wanted = "attempt 1 of work is recorded as succeeded, and did not end";
    assert_eq!(broken(&evidence, "e1"), one(Kind::Contradicted, wanted));

    let mut evidence = good();
    evidence.ledger = Ledger::read(&LEDGER.replace("fail retry", "end retry"));
    let wanted = "attempt 1 of retry is recorded as failed, and did not say so";
    assert_eq!(broken(&evidence, "e2"), one(Kind::Contradicted, wanted));
}

#[test]
fn an_attempt_still_running_in_a_finished_job_is_contradicted() {
    let mut evidence = good();
    evidence.stored[0].jobs[0].attempts.insert(1, None);
    let wanted = "attempt 1 of work is recorded as running, and its job is not";
    assert_eq!(broken(&evidence, "e1"), one(Kind::Contradicted, wanted));
    evidence.stored[0].jobs[0].state = State::Running;
    assert_eq!(broken(&evidence, "e1"), one(Kind::Unfinished, "work is running"));
}

#[test]
fn unsent_events_and_unclaimed_attempts_are_contradicted() {
    let mut evidence = good();
    evidence.stored.push(Stored { event: "e3".to_owned(), jobs: Vec::new() });
    assert_eq!(broken(&evidence, "e3"), one(Kind::Contradicted, "stored, and not sent"));

    let mut evidence = good();
    evidence.ledger = Ledger::read(&format!("{LEDGER}start work e3 1\n"));
    let wanted = "attempt 1 of work was begun and is not stored";
    assert_eq!(broken(&evidence, "e3"), one(Kind::Contradicted, wanted));
}

#[test]
fn a_malformed_ledger_line_is_reported() {
    for torn in
        ["start work", "end work e1", "star work e1 1", "start work e1 one", "end work e9 1"]
    {
        let mut evidence = good();
        evidence.ledger = Ledger::read(&format!("{LEDGER}{torn}\n"));
        assert!(!Account::of(&evidence).broken.is_empty(), "{torn}");
    }
}
