//! What a server says of a block that it cannot read, and what verbs make of changed rows.
use futures_util::future::join;

use super::{tokio, *};
use crate::condition::{Condition, Line, Scalar, Test};
use crate::pattern::Pattern;
use crate::payload::Place;
use crate::routing::{Route, Router, Routes};

/// In place of the payloads there is a view of them: reading the body of event 1 fails with this code, and where
/// `at_all`, looking at its row does. Each row is found by its index, as in a large table.
fn unread(code: &str, at_all: bool) -> String {
    let (body, rows) = match at_all {
        true => ("body", "CASE WHEN event = 1 THEN unread(body) IS NULL ELSE true END"),
        false => ("CASE WHEN event = 1 THEN unread(body) ELSE body END", "true"),
    };
    // A volatile function would be run for all rows of the view.
    format!(
        "CREATE FUNCTION unread(bytea) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
             BEGIN RAISE 'could not read block 3' USING ERRCODE = '{code}'; END $$;
         ALTER TABLE payload RENAME TO kept_payload;
         CREATE VIEW payload AS SELECT event, headers, sum, {body} AS body FROM kept_payload WHERE {rows};
         GRANT SELECT ON payload TO PUBLIC;
         DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET enable_seqscan = off', current_database());
         END $$;"
    )
}

/// A changed bit has made the number of a job's event one that no event has.
#[tokio::test]
async fn a_job_whose_event_is_not_there_is_held_and_a_running_one_ends() {
    if engine() == EngineKind::Sqlite {
        return;
    }
    let mut bench = bench().await;
    let running = bench.running("e1").await;
    for event in ["e2", "e3"] {
        bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
    }
    // Without the check of the foreign key.
    let change = "SET session_replication_role = replica;
        UPDATE job SET event = event + 1000 WHERE event < 3;
        RESET session_replication_role";
    bench.change_rows(change).await;
    let wanted = vec![(name("alert"), vec![Pattern::new("job.held", true)])];
    bench.store.admin.set_interest(NoticeSubscribers::new(wanted));
    let claimed = bench.claim_all().await;
    let started: Vec<&str> = claimed.iter().map(|one| one.facts.event_id.as_str()).collect();
    assert_eq!(started, ["e3"]);
    assert!(bench.complete(&claimed[0], Outcome::Succeeded, Next::Succeeded).await);
    let unknown = Next::Held(HeldReason::UnknownOutcome);
    assert!(bench.complete(&running, Outcome::Unknown, unknown).await);
    bench.until_nothing_runs().await;
    assert_eq!(bench.number("SELECT count(*) FROM notice WHERE type = 'job.held'").await, 2);
    bench.store.jobs.tell_notices().await.unwrap();
    let held = JobFilter { state: Some(State::Held), ..JobFilter::default() };
    let held = bench.store.admin.jobs(held).await.unwrap().rows;
    let reasons: Vec<_> = held.iter().filter_map(|job| job.reason.as_deref()).collect();
    assert_eq!(reasons, ["payload unreadable", "unknown outcome"]);
    for job in held {
        assert_eq!(job.source.as_str(), "unreadable");
        bench.store.admin.drop_job(job.job, None).await.unwrap();
    }
}

/// The server's own errors (XX000) and those of its disk or memory say nothing of the data.
#[tokio::test]
async fn only_what_the_server_calls_damaged_counts_as_damaged() {
    if engine() == EngineKind::Sqlite {
        return;
    }
    for (code, is_damaged) in
        [("XX001", true), ("XX002", true), ("XX000", false), ("58030", false), ("53200", false)]
    {
        let mut bench = bench().await;
        for event in ["e1", "e2"] {
            bench.accept("stripe", stripe(event, "a", "{}"), &["h"]).await;
        }
        bench.change_rows(&unread(code, false)).await;
        let checked = bench.store.admin.check_payloads(PayloadCheck { after: None }).await;
        assert_eq!(checked.is_ok(), is_damaged, "{code}: {checked:?}");
        let damaged = checked.map_or(Vec::new(), |checked| checked.damaged);
        assert_eq!(damaged, vec!["stripe e1"; usize::from(is_damaged)], "{code}");
        let of = BodyOf { source: name("stripe"), event: id("e1"), variant: 0, answer: false };
        let error = bench.store.admin.check_body(of).await.unwrap_err();
        assert_eq!(matches!(error, Error::Damaged(_)), is_damaged, "{code}: {error}");
        let claimed = bench.claim_all().await;
        let started: Vec<&str> = claimed.iter().map(|one| one.facts.event_id.as_str()).collect();
        assert_eq!(started, ["e2"], "{code}");
        assert!(bench.complete(&claimed[0], Outcome::Succeeded, Next::Succeeded).await);
        bench.until_nothing_runs().await;
        let damaged = "SELECT count(*) FROM job WHERE event = 1 AND reason = 'payload damaged'";
        assert_eq!(bench.number(damaged).await, i64::from(is_damaged), "{code}");
        let held = "SELECT count(*) FROM job WHERE event = 1 AND state = 'held'";
        assert_eq!(bench.number(held).await, 1, "{code}");
    }
}

/// An end is tried again without end.
#[tokio::test]
async fn a_block_that_an_end_needs_keeps_no_delivery_out() {
    if engine() == EngineKind::Sqlite {
        return;
    }
    let mut bench = bench().await;
    let running = bench.running("e1").await;
    // A sequence goes on in transactions that are rolled back.
    let change = "
        CREATE SEQUENCE tries;
        CREATE FUNCTION unread() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = hooklatch AS $$
            BEGIN PERFORM nextval('tries'); RAISE 'could not read block 3' USING ERRCODE = '58030'; END $$;
        CREATE TRIGGER unread BEFORE UPDATE ON attempt FOR EACH ROW WHEN (NEW.outcome IS NOT NULL)
            EXECUTE FUNCTION unread();
        CREATE FUNCTION repair() RETURNS bigint LANGUAGE plpgsql AS $$
            BEGIN DROP TRIGGER unread ON attempt; RETURN 1; END $$";
    bench.change_rows(change).await;
    let ending = bench.complete(&running, Outcome::Succeeded, Next::Succeeded);
    let accepting = async {
        let tries = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tries";
        // Of the first one the writer has the answer then.
        while bench.number(tries).await < 2 {
            tokio::task::yield_now().await;
        }
        let accepted = bench.try_accept("stripe", stripe("e2", "a", "{}"), &["h"]).await;
        bench.number("SELECT repair()").await;
        accepted
    };
    let (ended, accepted) = join(ending, accepting).await;
    assert!(matches!(accepted, Ok(Accepted::Created { .. })), "{accepted:?}");
    assert!(ended);
}

/// A part that fails at the first look, and one behind it.
#[tokio::test]
async fn retention_goes_on_behind_a_part_that_fails() {
    if engine() == EngineKind::Sqlite {
        return;
    }
    let mut bench = bench().await;
    bench.accept("stripe", stripe("e1", "a", "{}"), &[]).await;
    let late = "INSERT INTO late_end (job, attempt, claimant, outcome, detail, received_at)
        VALUES (gen_random_uuid(), 1, gen_random_uuid(), 'unknown', '', 0)";
    bench.change_rows(&(unread("58030", true) + late)).await;
    bench.advance(DAY).await;
    let now = bench.clock.now();
    let before = Cutoffs { payloads: now, ids: now, dead: now };
    assert!(bench.store.jobs.expire(before).await.is_err());
    assert_eq!(bench.number("SELECT count(*) FROM late_end").await, 0);
    assert_eq!(bench.number("SELECT count(*) FROM kept_payload").await, 1);
}

/// By a changed type, id or header a condition could drop the job of an accepted event for good.
#[tokio::test]
async fn no_condition_is_decided_by_what_was_not_accepted() {
    for (place, value, change) in [
        ("type", "a", "UPDATE event SET type = 'c'"),
        ("id", "e1", "UPDATE event SET event_id = 'e9'"),
        ("header:Content-Type", "application/json", "UPDATE payload SET headers = zeroblob(1)"),
    ] {
        let mut bench = bench().await;
        let undecided = NewJob { undecided: Some("no JSON".to_owned()), ..NewJob::of(name("h")) };
        bench.take(stripe("e1", "a", "{}"), undecided).await;
        let job = bench.of_event("e1").await.job;
        bench.change_rows(change).await;
        let route = |handler: &str| {
            let test = Test::Is(vec![Scalar::Text(value.to_owned())]);
            let line = Line { place: Place::parse(place).unwrap(), not: false, test };
            let when = Some(Condition { tables: vec![vec![line]] });
            Route { when, ..Route::new(name(handler), vec![Pattern::new("*", true)]) }
        };
        let routes = Routes {
            source: name("stripe"),
            form_field: None,
            inflated_bytes: 1000,
            kept_bytes: 1000,
            routes: ["h", "late"].map(route).into(),
        };
        bench.store.admin.set_router(Router::new([Arc::new(routes)]));
        let refused = bench.store.admin.replay(Replay::Job(job, None), false).await.unwrap_err();
        let why = "the stored payload is damaged".to_owned();
        assert_eq!(refused, Error::Undecided { job, why }, "{change}");
        let types = vec![Pattern::new("*", true)];
        let wanted = vec![EventMatcher { sources: vec![name("stripe")], types, only: None }];
        let (handler, since) = (name("late"), START);
        let ask = Backfill { handler, since, wanted, dry_run: false, from: None };
        let made = bench.store.admin.make_missing(ask).await.unwrap();
        assert_eq!((made.made, made.held, made.unwanted), (1, 1, 0), "{change}");
    }
}
