//! What deliveries become, at one node and at several at once.

use std::time::Duration;

use bytes::Bytes;
use hooklatch::clock::Clock;
use hooklatch::limits::Limits;
use hooklatch::model::{HeldReason, OnRedelivery, State, Timestamp};
use hooklatch::store::postgres::{Registrar, Writer};
use hooklatch::store::{Accept, Accepted, Delay, NewJob, Refused};
use tokio::time::{Instant, timeout};

use super::cluster::{
    CREATED, Cluster, START, accept, begin, delivery, duplicate, github, new, ready, stripe,
};
use super::server::PATIENCE;
use super::site::{node, target};

const SUSPECTED: Accepted =
    Accepted::Created { jobs: 1, held: Some(HeldReason::SuspectedReplay), flagged: false };
const REUSED: Accepted =
    Accepted::Created { jobs: 1, held: Some(HeldReason::IdReused), flagged: false };
const FLAGGED: Accepted = Accepted::Created { jobs: 1, held: None, flagged: true };

/// Its disk is full, say: no event is at fault.
#[tokio::test]
async fn what_a_server_in_trouble_does_not_store_is_stored_once_it_can_be() {
    let cluster = Cluster::new(&[]).await;
    let a = cluster.node("a").await;
    cluster
        .run(
            "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE disk_full; END $$;
             CREATE TRIGGER no_space BEFORE INSERT ON event EXECUTE FUNCTION no_space()",
        )
        .await;
    let accepting = begin(&a, stripe("e", "{}")).await;
    while a.ready().is_ok() {
        assert!(!accepting.is_finished(), "{:?}", accepting.await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    cluster.run("DROP TRIGGER no_space ON event").await;
    assert_eq!(accepting.await.unwrap(), Ok(CREATED));
    ready(&a).await;
    assert_eq!(accept(&a, stripe("f", "{}")).await, Ok(CREATED));
}

/// As where nothing can be read any more: each transaction locks the node's row.
#[tokio::test]
async fn a_node_whose_row_cannot_be_marked_is_not_ready() {
    let cluster = Cluster::new(&[]).await;
    let a = cluster.node("a").await;
    cluster
        .run(
            "CREATE FUNCTION unread() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE 'could not read block 3' USING ERRCODE = '58030'; END $$;
             CREATE TRIGGER unread BEFORE UPDATE ON node FOR EACH ROW WHEN (NEW.mark <> OLD.mark)
                EXECUTE FUNCTION unread()",
        )
        .await;
    assert_eq!(accept(&a, stripe("e", "{}")).await, Ok(CREATED));
    let until = Instant::now() + PATIENCE;
    while a.ready().is_ok() {
        assert!(Instant::now() < until, "it goes on");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    cluster.run("DROP TRIGGER unread ON node").await;
    ready(&a).await;
    assert_eq!(accept(&a, stripe("f", "{}")).await, Ok(CREATED));
}

#[tokio::test]
async fn a_hundred_equal_deliveries_to_three_nodes_are_one_event_and_one_job() {
    let cluster = Cluster::new(&[]).await;
    let nodes = [cluster.node("a").await, cluster.node("b").await, cluster.node("c").await];
    // All three flights meet: the first deliveries at the nodes are sent when all wait.
    let gate = cluster.hold().await;
    let mut tasks = Vec::new();
    for number in 0..100 {
        tasks.push(begin(&nodes[number % 3], stripe("e", "{}")).await);
    }
    cluster.blocked(3).await;
    drop(gate);
    let mut created = 0;
    for task in tasks {
        match task.await.unwrap().unwrap() {
            told @ Accepted::Created { .. } => created += i32::from(told == CREATED),
            told => assert_eq!(told, duplicate(State::Ready)),
        }
    }
    assert_eq!(created, 1);
    assert_eq!((cluster.count("event").await, cluster.count("job").await), (1, 1));
    assert_eq!(cluster.get::<i64>("SELECT duplicates FROM event").await, 99);
}

#[tokio::test]
async fn overlapping_batches_in_opposite_order_do_not_deadlock() {
    let cluster = Cluster::new(&["deadlock_timeout=50ms"]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    for round in 0..3 {
        // Signed ids; then bodies under new ids each; then duplicates and known bodies, which go the slow way.
        let delivery = |number: i32, node: &str| match round {
            0 => stripe(&format!("e{number}"), "{}"),
            1 => github(&format!("{node}{number}"), "push", &format!("{number}")),
            _ => github(&format!("n{number}"), "push", &format!("{number}")),
        };
        let gate = cluster.hold().await;
        // Alone, so that the next ones wait for one batch.
        let mut tasks = vec![
            begin(&a, stripe(&format!("first_a_{round}"), "{}")).await,
            begin(&b, stripe(&format!("first_b_{round}"), "{}")).await,
        ];
        cluster.blocked(2).await;
        for number in 0..200 {
            tasks.push(begin(&a, delivery(number, "a")).await);
            tasks.push(begin(&b, delivery(199 - number, "b")).await);
        }
        drop(gate);
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    }
    assert_eq!(cluster.count("event WHERE source = 'stripe'").await, 6 + 200);
    assert_eq!(cluster.count("event WHERE source = 'github'").await, 400 + 200);
    // Of each body one event runs.
    assert_eq!(cluster.count("job WHERE state = 'ready'").await, 6 + 200 + 200);
    assert_eq!(
        cluster.count("(SELECT event FROM job GROUP BY event HAVING count(*) > 1) d").await,
        0
    );
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'app'";
    assert_eq!(cluster.get::<i64>(deadlocks).await, 0);
}

#[tokio::test]
async fn of_one_body_under_two_ids_at_two_nodes_one_runs() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    for round in 0..5 {
        let gate = cluster.hold().await;
        let body = format!("body {round}");
        let first = begin(&a, github(&format!("a{round}"), "push", &body)).await;
        let second = begin(&b, github(&format!("b{round}"), "push", &body)).await;
        cluster.blocked(2).await;
        drop(gate);
        let told = [first.await.unwrap().unwrap(), second.await.unwrap().unwrap()];
        assert!(told.contains(&CREATED) && told.contains(&SUSPECTED), "{told:?}");
    }
    assert_eq!(cluster.count("job WHERE state = 'ready'").await, 5);
    assert_eq!(cluster.count("job WHERE state = 'held'").await, 5);
    assert_eq!(cluster.count("event WHERE repeated").await, 5);
}

#[tokio::test]
async fn one_unsigned_id_with_two_bodies_at_two_nodes_is_an_event_and_a_held_variant() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    for round in 0..5 {
        let gate = cluster.hold().await;
        let first = begin(&a, github(&format!("d{round}"), "push", &format!("1{round}"))).await;
        let second = begin(&b, github(&format!("d{round}"), "push", &format!("2{round}"))).await;
        cluster.blocked(2).await;
        drop(gate);
        let told = [first.await.unwrap().unwrap(), second.await.unwrap().unwrap()];
        assert!(told.contains(&CREATED) && told.contains(&REUSED), "{told:?}");
    }
    assert_eq!(cluster.count("event WHERE variant = 1").await, 5);
}

#[tokio::test]
async fn another_body_under_a_signed_id_is_evidence() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    assert_eq!(accept(&a, stripe("e", "0")).await, Ok(CREATED));
    for (number, data) in ["1", "2", "2", "3", "4", "5"].into_iter().enumerate() {
        let node = if number % 2 == 0 { &a } else { &b };
        let told = accept(node, stripe("e", data)).await.unwrap();
        assert!(matches!(told, Accepted::Duplicate { conflict: true, .. }), "{told:?}");
    }
    // The limit keeps the last one out.
    assert_eq!(cluster.count("evidence").await, 4);
    assert_eq!(cluster.get::<i64>("SELECT conflicts FROM event").await, 6);
    assert_eq!((cluster.count("event").await, cluster.count("job").await), (1, 1));
}

#[tokio::test]
async fn bodies_and_ids_that_come_again_are_judged_as_on_one_machine() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let table = [
        (github("d1", "push", "1"), CREATED),
        (github("d2", "push", "1"), SUSPECTED),
        (github("d3", "push", "2"), CREATED),
        // Types that honestly repeat run, marked.
        (github("l1", "label", "L"), CREATED),
        (github("l2", "label", "L"), FLAGGED),
        (github("l3", "label", "L"), FLAGGED),
        // The same body under another type is held whatever the type says, now and for ever after.
        (github("l4", "star", "L"), SUSPECTED),
        (github("l5", "label", "L"), SUSPECTED),
        // Variants: another body, or another type.
        (github("d1", "push", "3"), REUSED),
        (github("d1", "ping", "1"), REUSED),
        // Each has its own duplicates.
        (github("d1", "push", "1"), duplicate(State::Ready)),
        (github("d1", "push", "3"), duplicate(State::Held)),
        (github("d2", "push", "1"), duplicate(State::Held)),
    ];
    for (number, (delivery, expected)) in table.into_iter().enumerate() {
        let node = if number % 2 == 0 { &a } else { &b };
        assert_eq!(accept(node, delivery).await, Ok(expected), "{number}");
    }
    // When the first of a body is forgotten, those that repeat it still say that it came.
    cluster.run("DELETE FROM event WHERE event_id = 'l1'").await;
    assert_eq!(accept(&a, github("l6", "star", "L")).await, Ok(SUSPECTED));
    // Another source's secret signed it: nothing to do with this one.
    let mut other = new(github("d9", "push", "1"));
    other.source = "other".parse().unwrap();
    assert_eq!(a.accept(other, Instant::now() + PATIENCE).await, Ok(CREATED));
}

#[tokio::test]
async fn a_redelivery_puts_dead_jobs_back_if_the_source_says_so() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    assert_eq!(accept(&node, stripe("e", "1")).await, Ok(CREATED));
    let dead = |reason: &str| {
        format!(
            "UPDATE job SET state = 'dead', reason = '{reason}', settled_at = 1, attempt = attempt + 1"
        )
    };
    let redeliver = async |data: &str| {
        let mut again = new(stripe("e", data));
        again.on_redelivery = OnRedelivery::ReplayDead;
        match node.accept(again, Instant::now() + PATIENCE).await.unwrap() {
            Accepted::Duplicate { state, replayed, .. } => (state, replayed),
            created => panic!("{created:?}"),
        }
    };
    cluster.run(&dead("attempts exhausted")).await;
    assert_eq!(accept(&node, stripe("e", "1")).await, Ok(duplicate(State::Dead)));
    assert_eq!(redeliver("2").await, (Some(State::Dead), 0), "another body");
    assert_eq!(redeliver("1").await, (Some(State::Ready), 1));
    assert_eq!(redeliver("1").await, (Some(State::Ready), 0));
    cluster.run(&dead("resolved as failed")).await;
    assert_eq!(redeliver("1").await, (Some(State::Dead), 0), "a person's word");
    cluster.run(&format!("{}; DELETE FROM payload", dead("rejected"))).await;
    assert_eq!(redeliver("1").await, (Some(State::Dead), 0), "nothing to run with");
    assert_eq!(cluster.get::<i64>("SELECT replays FROM job").await, 1);
}

#[tokio::test]
async fn a_body_of_25_mib_and_odd_texts_are_kept_as_they_came() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    // Random, so that it cannot be compressed.
    let mut body = vec![0; 25 << 20];
    let mut word = 88_172_645_463_325_252_u64;
    for bytes in body.chunks_exact_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let large = delivery("github", "test", "large", "push", Bytes::from(body.clone()));
    assert_eq!(accept(&node, large).await, Ok(CREATED));
    let stored: Vec<u8> = cluster.get("SELECT body FROM payload").await;
    assert!(zstd::bulk::decompress(&stored, body.len()).unwrap() == body);

    // A NUL, which the server's text has not, in the type and in what could not be decided.
    let odd = r#"{"id":"odd","object":"event","type":"a\u0000b","data":{}}"#;
    let odd = || {
        let mut odd = new(delivery("stripe", "whsec_test", "odd", "", Bytes::from(odd)));
        odd.jobs[0].undecided = Some("\0 is odd".to_owned());
        odd
    };
    assert_eq!(node.accept(odd(), Instant::now() + PATIENCE).await, Ok(CREATED));
    assert_eq!(
        cluster.get::<String>("SELECT detail FROM job WHERE state = 'held'").await,
        "\u{fffd} is odd"
    );
    let told = node.accept(odd(), Instant::now() + PATIENCE).await;
    assert_eq!(told, Ok(duplicate(State::Held)));
    // An empty body.
    assert_eq!(accept(&node, github("empty", "push", "")).await, Ok(CREATED));
    assert_eq!(accept(&node, github("empty", "push", "")).await, Ok(duplicate(State::Ready)));
}

#[tokio::test]
async fn a_delayed_job_waits_by_the_clock_of_the_database() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    let mut delayed = new(stripe("e", "{}"));
    let wait = Duration::from_secs(60);
    delayed.jobs[0].delay = Some(Delay { wait, most: wait });
    // Arrived long ago, by the node's clock.
    assert_eq!(node.accept(delayed, Instant::now() + PATIENCE).await, Ok(CREATED));
    let is_due =
        "SELECT state = 'waiting' AND due_at - now_ms() BETWEEN 1 AND 60000 AND since = due_at
        AND wait_since = created_at AND due_at - created_at = 60000 FROM job";
    assert!(cluster.get::<bool>(is_due).await);
}

#[tokio::test]
async fn the_last_match_of_a_secret_is_noted_once_a_minute_and_no_accept_waits_for_it() {
    let cluster = Cluster::new(&[]).await;
    let clock = Clock::manual(START);
    let registrar = Registrar::new(node("a"));
    let target = target(cluster.server.port, false);
    let (a, _) = Writer::start(target, registrar, &Limits::default(), clock.clone());
    ready(&a).await;
    // A clock that was ahead has left a time in the future.
    cluster.run("INSERT INTO secret_use VALUES ('stripe', 'test', now_ms() + 99999)").await;
    let age = "SELECT now_ms() - last_matched_at FROM secret_use";
    let mut event = 0;
    let mut next = async |later: Duration| {
        clock.advance(later);
        event += 1;
        let told = accept(&a, stripe(&format!("e{event}"), "{}")).await;
        assert_eq!(told, Ok(CREATED));
        // The use is written behind the accept, and before the next one.
        event += 1;
        let told = accept(&a, stripe(&format!("e{event}"), "{}")).await;
        assert_eq!(told, Ok(CREATED));
        let age: i64 = cluster.get(age).await;
        cluster.run("UPDATE secret_use SET last_matched_at = 0").await;
        (0..60_000).contains(&age)
    };
    assert!(next(Duration::ZERO).await);
    assert!(!next(Duration::from_secs(59)).await);
    assert!(next(Duration::from_secs(1)).await);
    assert!(!next(Duration::ZERO).await);

    // Its row is locked, as by a node that was cut off in the middle.
    let gate = cluster.admin().await;
    gate.batch_execute("BEGIN; SELECT FROM secret_use FOR UPDATE").await.unwrap();
    clock.advance(Duration::from_secs(60));
    for id in ["l1", "l2"] {
        assert_eq!(accept(&a, stripe(id, "{}")).await, Ok(CREATED));
    }
}

/// Waits shorter than the caller's deadline for others, whatever one of them waits for.
#[tokio::test]
async fn one_locked_row_stops_no_other_accept() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    assert_eq!(accept(&node, stripe("locked", "{}")).await, Ok(CREATED));
    let psql = cluster.admin().await;
    psql.batch_execute("BEGIN; SELECT FROM event FOR UPDATE").await.unwrap();
    // In one batch with those that it must not stop: known ones too.
    let gate = cluster.hold().await;
    let first = begin(&node, stripe("first", "{}")).await;
    cluster.blocked(1).await;
    let mut others = vec![first];
    let locked = begin(&node, stripe("locked", "{}")).await;
    for number in 0..40 {
        others.push(begin(&node, stripe(&format!("e{}", number / 2), "{}")).await);
    }
    drop(gate);
    let begun = Instant::now();
    let accepted = async {
        for other in others {
            other.await.unwrap().unwrap();
        }
        // Later ones wait for one try of it at most.
        for number in 0..20 {
            let told = accept(&node, stripe(&format!("later{number}"), "{}")).await;
            assert_eq!(told, Ok(CREATED));
        }
    };
    // If a try waited as long as its session may, which is 5 s, the later ones alone would take 100 s.
    timeout(PATIENCE, accepted).await.expect("accepts wait for a row that is not theirs");
    let took = begun.elapsed();
    assert!(!locked.is_finished());
    // Past its deadline it is refused, and until then tried.
    let until = Instant::now() + Duration::from_secs(1);
    let late = node.accept(new(stripe("locked", "{}")), until).await;
    assert!(matches!(late, Err(Refused::Unconfirmed(_))), "{late:?}");
    psql.batch_execute("COMMIT").await.unwrap();
    assert_eq!(locked.await.unwrap(), Ok(duplicate(State::Ready)));
    println!("{took:?}");
}

/// They leave the queue, and take as much memory as before.
#[tokio::test]
async fn accepts_that_wait_for_a_locked_row_count_against_the_queues_bound() {
    let cluster = Cluster::new(&[]).await;
    let limits = Limits { writer_queue_count: 4, ..Limits::default() };
    let node = cluster.node_with("a", cluster.server.port, false, &limits).await;
    assert_eq!(accept(&node, stripe("locked", "{}")).await, Ok(CREATED));
    let psql = cluster.admin().await;
    psql.batch_execute("BEGIN; SELECT FROM event FOR UPDATE").await.unwrap();
    let mut locked = Vec::new();
    loop {
        assert!(locked.len() < 12, "the bound is not met");
        locked.push(begin(&node, stripe("locked", "{}")).await);
        // In a transaction behind it.
        match accept(&node, stripe(&format!("e{}", locked.len()), "{}")).await {
            Ok(created) => assert_eq!(created, CREATED),
            refused => break assert_eq!(refused, Err(Refused::QueueFull)),
        }
    }
    psql.batch_execute("COMMIT").await.unwrap();
    let mut stored = 0;
    for locked in locked {
        match locked.await.unwrap() {
            Ok(told) => stored += i32::from(told == duplicate(State::Ready)),
            refused => assert_eq!(refused, Err(Refused::QueueFull)),
        }
    }
    assert!((4..=5).contains(&stored), "{stored}");
    let until = Instant::now() + PATIENCE;
    while accept(&node, stripe("last", "{}")).await == Err(Refused::QueueFull) {
        assert!(Instant::now() < until, "the queue stays full");
    }
}

/// The server closes the connection over one item, each time that it comes.
#[tokio::test]
async fn an_item_that_ends_the_connection_takes_no_other_with_it() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    cluster
        .run(
            "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
            CREATE TRIGGER poison BEFORE INSERT ON event FOR EACH ROW
                WHEN (NEW.event_id = 'bad') EXECUTE FUNCTION poison();",
        )
        .await;
    let gate = cluster.hold().await;
    let mut others = vec![begin(&node, stripe("first", "{}")).await];
    cluster.blocked(1).await;
    let until = Instant::now() + Duration::from_secs(20);
    let bad = {
        let node = node.clone();
        tokio::spawn(async move { node.accept(new(stripe("bad", "{}")), until).await })
    };
    tokio::task::yield_now().await;
    for number in 0..30 {
        others.push(begin(&node, stripe(&format!("e{number}"), "{}")).await);
    }
    drop(gate);
    for other in others {
        assert_eq!(other.await.unwrap(), Ok(CREATED));
    }
    assert!(!bad.is_finished());
    let refused = bad.await.unwrap();
    assert!(matches!(refused, Err(Refused::Unconfirmed(_))), "{refused:?}");
    assert_eq!(cluster.count("event").await, 31);
}

/// Numbers, variants and the first event of a body follow arrival, not the order of the locks.
#[tokio::test]
async fn the_first_to_arrive_is_the_first_in_the_fast_way_and_in_the_slow_one() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    // Several events in one request go the slow way.
    for is_slow in [false, true] {
        let name = |id: &str| format!("{id}{is_slow}");
        // Of one body, then of one id, each with the larger key first, in either order of their digests.
        let deliveries = [
            github(&name("z"), "push", &name("same")),
            github(&name("a"), "push", &name("same")),
            github(&name("id"), "push", &name("1")),
            github(&name("id"), "push", &name("2")),
            github(&name("di"), "push", &name("4")),
            github(&name("di"), "push", &name("3")),
            github(&name("di"), "push", &name("5")),
        ];
        let mut told = Vec::new();
        if is_slow {
            let all = deliveries.map(new).into();
            told = node.accept_all(all, Instant::now() + PATIENCE).await.unwrap();
        } else {
            let gate = cluster.hold().await;
            let first = begin(&node, stripe("first", "{}")).await;
            cluster.blocked(1).await;
            let mut tasks = Vec::new();
            for delivery in deliveries {
                tasks.push(begin(&node, delivery).await);
            }
            drop(gate);
            assert_eq!(first.await.unwrap(), Ok(CREATED));
            for task in tasks {
                told.push(task.await.unwrap().unwrap());
            }
        }
        let expected = [CREATED, SUSPECTED, CREATED, REUSED, CREATED, REUSED, REUSED];
        assert_eq!(told, expected, "slow: {is_slow}");
    }
    let in_order =
        "SELECT string_agg(event_id, ' ' ORDER BY row) FROM event WHERE event_id LIKE '%true'";
    let order: String = cluster.get(in_order).await;
    assert_eq!(order, "ztrue atrue idtrue idtrue ditrue ditrue ditrue");
}

/// A sender makes any number of variants of one unsigned id; each delivery looks at a few of them.
#[tokio::test]
async fn a_thousand_variants_of_an_id_are_not_all_locked_and_read() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    let odd = |number: i32| github("d", &format!("odd {number}"), "body");
    assert_eq!(accept(&node, github("d", "push", "0")).await, Ok(CREATED));
    for number in 0..300 {
        assert_eq!(accept(&node, odd(number)).await, Ok(REUSED));
    }
    // Another transaction has all but the first, the last, and the one that comes again.
    let psql = cluster.admin().await;
    psql.batch_execute(
        "BEGIN; SELECT FROM event WHERE variant NOT IN (0, 150, 300) FOR NO KEY UPDATE",
    )
    .await
    .unwrap();
    assert_eq!(accept(&node, odd(149)).await, Ok(duplicate(State::Held)));
    assert_eq!(accept(&node, odd(300)).await, Ok(REUSED));
    assert_eq!(accept(&node, github("d", "push", "0")).await, Ok(duplicate(State::Ready)));
    let dup = "SELECT variant FROM event WHERE duplicates = 1 AND variant > 0";
    assert_eq!(cluster.get::<i64>(dup).await, 150);
}

#[tokio::test]
async fn a_request_that_fails_does_not_take_its_batch_with_it() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    for (sql, what) in [
        ("ALTER TABLE event ADD CHECK (event_id <> 'bad1')", "new events"),
        ("ALTER TABLE event ADD CHECK (event_id <> 'good1_3' OR duplicates = 0)", "duplicates"),
    ] {
        cluster.run(sql).await;
        let gate = cluster.hold().await;
        let mut tasks = vec![begin(&node, stripe(&format!("first_{}", &what[..3]), "{}")).await];
        cluster.blocked(1).await;
        for number in 0..6 {
            tasks.push(begin(&node, stripe(&format!("good1_{number}"), "{}")).await);
            if number == 3 && what == "new events" {
                tasks.push(begin(&node, stripe("bad1", "{}")).await);
            }
        }
        drop(gate);
        let mut refused = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => {}
                Err(Refused::Failed(why)) => {
                    assert!(why.contains("violates check constraint"), "{why}");
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(refused, 1, "{what}");
    }
    assert_eq!(cluster.count("event").await, 8);
    assert_eq!(cluster.get::<i64>("SELECT sum(duplicates)::bigint FROM event").await, 5);
}

#[tokio::test]
async fn the_events_of_one_delivery_are_stored_together_or_not_at_all() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    cluster.run("ALTER TABLE event ADD CHECK (event_id <> 'bad')").await;
    let all = |ids: &[&str]| ids.iter().map(|id| new(stripe(id, "{}"))).collect();
    let until = Instant::now() + PATIENCE;
    let told = node.accept_all(all(&["e2", "bad", "e1"]), until).await;
    assert!(matches!(told, Err(Refused::Failed(_))), "{told:?}");
    assert_eq!(cluster.count("event").await, 0);
    // In their order, also where one comes twice.
    let told = node.accept_all(all(&["e2", "e1", "e2"]), until).await;
    assert_eq!(told, Ok(vec![CREATED, CREATED, duplicate(State::Ready)]));
    assert_eq!((cluster.count("event").await, cluster.count("job").await), (2, 2));
}

#[tokio::test]
async fn a_full_queue_refuses_and_a_closed_one_stores_what_waits() {
    let cluster = Cluster::new(&[]).await;
    let limits = Limits { writer_queue_count: 2, ..Limits::default() };
    let node = cluster.node_with("a", cluster.server.port, false, &limits).await;
    let gate = cluster.hold().await;
    let first = begin(&node, stripe("e0", "{}")).await;
    cluster.blocked(1).await;
    let waiting = [begin(&node, stripe("e1", "{}")).await, begin(&node, stripe("e2", "{}")).await];
    assert_eq!(accept(&node, stripe("e3", "{}")).await, Err(Refused::QueueFull));
    // A caller that has left cancels nothing.
    first.abort();
    node.close();
    assert_eq!(accept(&node, stripe("e4", "{}")).await, Err(Refused::Stopping));
    drop(gate);
    for task in waiting {
        assert_eq!(task.await.unwrap(), Ok(CREATED));
    }
    assert_eq!(cluster.count("event").await, 3);
}

#[tokio::test]
async fn a_handler_with_several_jobs_and_an_event_without_one_are_stored() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    let mut event = new(stripe("two", "{}"));
    event.jobs.push(NewJob::of("i".parse().unwrap()));
    let told = node.accept(event, Instant::now() + PATIENCE).await;
    assert_eq!(told, Ok(Accepted::Created { jobs: 2, held: None, flagged: false }));
    let mut event = new(stripe("none", "{}"));
    event.jobs.clear();
    let told = node.accept(event, Instant::now() + PATIENCE).await;
    assert_eq!(told, Ok(Accepted::Created { jobs: 0, held: None, flagged: false }));
    let told = accept(&node, stripe("none", "{}")).await.unwrap();
    assert!(matches!(told, Accepted::Duplicate { state: None, .. }), "{told:?}");
    assert_eq!(cluster.count("job").await, 2);
    ready(&node).await;
}

/// Retention would delete the first event at once, and the second one never.
#[tokio::test]
async fn an_arrival_by_a_clock_that_is_far_off_is_an_hour_from_the_servers_time() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    for (id, received_at) in [("past", START), ("future", Timestamp(9_000_000_000_000))] {
        let event = Accept { received_at, ..new(stripe(id, "{}")) };
        assert_eq!(node.accept(event, Instant::now() + PATIENCE).await, Ok(CREATED));
    }
    let hours = "SELECT array_agg(round((received_at - now_ms()) / 3.6e6, 1)::float8 ORDER BY row) FROM event";
    assert_eq!(cluster.get::<Vec<f64>>(hours).await, [-1.0, 1.0]);
}
