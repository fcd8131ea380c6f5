//! Accepts whose connection, server or session is lost on the way.

use std::time::Duration;

use hooklatch::limits::Limits;
use hooklatch::model::{OnRedelivery, State};
use hooklatch::store::postgres::Writer;
use hooklatch::store::{Accepted, Refused};
use hooklatch::verify::Verified;
use tokio::time::Instant;

use super::cluster::{CREATED, Cluster, accept, begin, duplicate, new, ready, stripe, trigger};
use super::proxy::{Act, Proxy, Side};
use super::server::PATIENCE;

/// A server with one node, and a proxy that can cut the connection of another.
async fn behind_proxy() -> (Cluster, Writer, Proxy) {
    let cluster = Cluster::new(&[]).await;
    let other = cluster.node("other").await;
    let proxy = Proxy::start(&cluster.server).await;
    (cluster, other, proxy)
}

/// Accepts a delivery, once more where a cut came before it was queued.
async fn queued(node: &Writer, delivery: Verified) -> Result<Accepted, Refused> {
    loop {
        match accept(node, delivery.clone()).await {
            Err(Refused::Unreachable(_)) => ready(node).await,
            told => return told,
        }
    }
}

/// Cuts an accept behind each message of either side, with statements that are still to be prepared and without. It
/// is sent again within its caller's deadline, finds what the first try stored, and says that it stored it.
#[tokio::test]
async fn an_accept_cut_at_any_message_is_stored_once_and_says_so() {
    let (cluster, other, proxy) = behind_proxy().await;
    let mut node = cluster.node_with("cut", proxy.port, false, &Limits::default()).await;
    let mut event = 0;
    let mut next = || {
        event += 1;
        stripe(&format!("e{event}"), "{}")
    };
    for is_warm in [false, true] {
        for side in [Side::Client, Side::Server] {
            let mut number = 0;
            loop {
                if is_warm {
                    assert_eq!(queued(&node, next()).await, Ok(CREATED));
                } else {
                    node.close();
                    let name = format!("{side:?}{number}");
                    node = cluster.node_with(&name, proxy.port, false, &Limits::default()).await;
                }
                let delivery = next();
                proxy.arm(side, number, Act::Cut);
                if number == 0 {
                    // Both connections close before a message is sent.
                    ready(&node).await;
                }
                let told = queued(&node, delivery.clone()).await;
                let passed = proxy.passed(side);
                proxy.watch();
                ready(&node).await;
                let at = format!("{side:?} {number} {:?}", passed.get(number.wrapping_sub(1)));
                assert_eq!(told, Ok(CREATED), "{at}");
                // Delivered again, at another node, it is a duplicate: the first one, so nothing was counted before.
                assert_eq!(accept(&other, delivery.clone()).await, Ok(duplicate(State::Ready)));
                let id = delivery.event_id();
                let stored = format!(
                    "SELECT count(*) || ' ' || sum(duplicates) || ' ' || (SELECT count(*) FROM job
                        JOIN event ON event.row = job.event WHERE event_id = '{id}')
                    FROM event WHERE event_id = '{id}'"
                );
                assert_eq!(cluster.get::<String>(&stored).await, "1 1 1", "{at}");
                println!("{at}");
                number += 1;
                if number > passed.len() {
                    break;
                }
            }
            assert!(number > 5, "{number} messages");
        }
    }
}

/// A trigger that comes again while its first run goes on, over a connection that is cut, makes one more run and says
/// so. The second try finds the job of the first one running, too.
#[tokio::test]
async fn a_trigger_cut_at_any_message_makes_one_more_run() {
    let (cluster, other, proxy) = behind_proxy().await;
    let node = cluster.node_with("cut", proxy.port, false, &Limits::default()).await;
    cluster
        .run(
            "CREATE FUNCTION begin_at_once() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN NEW.state := 'running'; NEW.attempt := 1; RETURN NEW; END $$;
            CREATE TRIGGER begin_at_once BEFORE INSERT ON job FOR EACH ROW EXECUTE FUNCTION begin_at_once();",
        )
        .await;
    for side in [Side::Client, Side::Server] {
        let mut number = 0;
        loop {
            let body = format!("{side:?} {number}");
            assert_eq!(accept(&other, trigger(&body)).await, Ok(CREATED));
            proxy.arm(side, number, Act::Cut);
            if number == 0 {
                ready(&node).await;
            }
            let told = queued(&node, trigger(&body)).await;
            let passed = proxy.passed(side);
            proxy.watch();
            ready(&node).await;
            let at = format!("{body} {:?}", passed.get(number.wrapping_sub(1)));
            assert_eq!(told, Ok(CREATED), "{at}");
            let id = trigger(&body).event_id().clone();
            let stored = format!(
                "SELECT count(*) || ' ' || sum(duplicates) FROM event WHERE event_id = '{id}'"
            );
            assert_eq!(cluster.get::<String>(&stored).await, "2 0", "{at}");
            println!("{at}");
            number += 1;
            if number > passed.len() {
                break;
            }
        }
        assert!(number > 5, "{number} messages");
    }
}

/// A redelivery over a connection that is cut puts a dead job back once, whatever becomes of the job meanwhile.
#[tokio::test]
async fn a_redelivery_cut_at_any_message_puts_a_dead_job_back_once() {
    let (cluster, other, proxy) = behind_proxy().await;
    let node = cluster.node_with("cut", proxy.port, false, &Limits::default()).await;
    // Before the node sends anything again, it registers: by then the job has run and is dead again.
    cluster
        .run(
            "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                UPDATE job SET state = 'dead', reason = 'rejected', settled_at = 2, attempt = attempt + 1
                WHERE replays = 1 AND state = 'ready';
                RETURN NULL;
            END $$;
            CREATE TRIGGER die AFTER UPDATE OF session ON node EXECUTE FUNCTION die();",
        )
        .await;
    let mut replayed_once = [0, 0];
    for side in [Side::Client, Side::Server] {
        let mut number = 1;
        loop {
            let delivery = stripe(&format!("{side:?}{number}"), "{}");
            assert_eq!(accept(&other, delivery.clone()).await, Ok(CREATED));
            let dead =
                "UPDATE job SET state = 'dead', reason = 'rejected', settled_at = 1, attempt = 1
                WHERE state = 'ready' AND replays = 0";
            cluster.run(dead).await;
            proxy.arm(side, number, Act::Cut);
            let told = loop {
                let mut again = new(delivery.clone());
                again.on_redelivery = OnRedelivery::ReplayDead;
                match node.accept(again, Instant::now() + PATIENCE).await {
                    Err(Refused::Unreachable(_)) => ready(&node).await,
                    told => break told.unwrap(),
                }
            };
            let passed = proxy.passed(side);
            proxy.watch();
            ready(&node).await;
            let at = format!("{side:?} {number} {:?}", passed.get(number - 1));
            let Accepted::Duplicate { replayed, .. } = told else { panic!("{at}: {told:?}") };
            println!("{at}: {replayed}");
            replayed_once[replayed] += 1;
            let id = delivery.event_id();
            let replays = format!(
                "SELECT replays FROM job JOIN event ON event.row = job.event WHERE event_id = '{id}'"
            );
            assert_eq!(cluster.get::<i64>(&replays).await, 1, "{at}");
            number += 1;
            if number > passed.len() {
                break;
            }
        }
    }
    // Both were met: a commit whose answer was lost, and none.
    assert!(replayed_once.iter().all(|count| *count > 0), "{replayed_once:?}");
}

#[tokio::test]
async fn an_accept_outlives_its_backend_and_its_server() {
    let mut cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    let gate = cluster.hold().await;
    let task = begin(&node, stripe("e1", "{}")).await;
    cluster.blocked(1).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE usename = 'app' AND wait_event_type = 'Lock'";
    cluster.run(kill).await;
    drop(gate);
    assert_eq!(task.await.unwrap(), Ok(CREATED));

    let gate = cluster.hold().await;
    let task = begin(&node, stripe("e2", "{}")).await;
    cluster.blocked(1).await;
    cluster.server.crash();
    drop(gate);
    cluster.server.launch();
    assert_eq!(task.await.unwrap(), Ok(CREATED));

    // An idle node finds out by itself.
    cluster.server.crash();
    let until = Instant::now() + PATIENCE;
    while node.ready().is_ok() {
        assert!(Instant::now() < until, "the loss is not noticed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = accept(&node, stripe("e3", "{}")).await;
    assert!(matches!(refused, Err(Refused::Unreachable(_))), "{refused:?}");
    cluster.server.launch();
    ready(&node).await;
    assert_eq!(accept(&node, stripe("e3", "{}")).await, Ok(CREATED));
    assert_eq!((cluster.count("event").await, cluster.count("job").await), (3, 3));
}

#[tokio::test]
async fn a_session_that_another_process_takes_in_the_middle_stores_nothing() {
    let cluster = Cluster::new(&[]).await;
    let node = cluster.node("a").await;
    let gate = cluster.hold().await;
    let task = begin(&node, stripe("e1", "{}")).await;
    cluster.blocked(1).await;
    // Declared lost, and back: the process registers again.
    gate.batch_execute("UPDATE node SET session = gen_random_uuid(), state = 'lost'; COMMIT")
        .await
        .unwrap();
    assert_eq!(task.await.unwrap(), Ok(CREATED));
    // Behind the note that its secret has matched, which the gate would block as well.
    assert_eq!(accept(&node, stripe("e1", "{}")).await, Ok(duplicate(State::Ready)));

    let gate = cluster.hold().await;
    let task = begin(&node, stripe("e2", "{}")).await;
    cluster.blocked(1).await;
    gate.batch_execute("UPDATE node SET session = gen_random_uuid(); COMMIT").await.unwrap();
    let refused = task.await.unwrap();
    assert!(
        matches!(&refused, Err(Refused::Unconfirmed(why)) if why.contains("another process")),
        "{refused:?}"
    );
    // It stays up, names the other, and takes nothing back.
    let session: String = cluster.get("SELECT session::text FROM node").await;
    let refused = accept(&node, stripe("e2", "{}")).await;
    assert!(
        matches!(&refused, Err(Refused::Unreachable(why)) if why.contains(&session)),
        "{refused:?}"
    );
    assert_eq!(cluster.count("event").await, 1);
}

#[tokio::test]
async fn an_accept_whose_wait_for_a_standby_is_cancelled_is_not_acknowledged() {
    let cluster = Cluster::new(&[]).await;
    let standby = cluster.server.standby("s1");
    cluster.server.set("synchronous_standby_names", "s1").await;
    let node = cluster.node_with("a", cluster.server.port, true, &Limits::default()).await;
    // The use of the secret is written behind the first accept and before the second, and must not be what waits.
    for id in ["e0", "e1"] {
        assert_eq!(accept(&node, stripe(id, "{}")).await, Ok(CREATED));
    }
    cluster.server.set("synchronous_standby_names", "absent").await;

    let until = Instant::now() + Duration::from_secs(5);
    let waiting = {
        let node = node.clone();
        tokio::spawn(async move { node.accept(new(stripe("e2", "{}")), until).await })
    };
    let backend = cluster.server.waiting().await;
    cluster.run(&format!("SELECT pg_cancel_backend({backend})")).await;
    let told = waiting.await.unwrap();
    assert!(matches!(told, Err(Refused::Unconfirmed(_))), "{told:?}");
    assert_eq!(cluster.count("event").await, 3, "committed on the primary alone");
    // Nor is a duplicate of it.
    let told =
        node.accept(new(stripe("e2", "{}")), Instant::now() + Duration::from_millis(300)).await;
    assert!(matches!(told, Err(Refused::Unconfirmed(_) | Refused::Unreachable(_))), "{told:?}");
    assert!(node.ready().is_err());

    cluster.server.set("synchronous_standby_names", "s1").await;
    ready(&node).await;
    assert_eq!(accept(&node, stripe("e2", "{}")).await, Ok(duplicate(State::Ready)));
    drop(standby);
}

/// The answer to the COMMIT of a batch is lost: each request hears what became of it, whether it was stored or
/// skipped.
#[tokio::test]
async fn each_request_of_a_batch_in_doubt_gets_its_own_answer() {
    let cluster = Cluster::new(&[]).await;
    let proxy = Proxy::start(&cluster.server).await;
    let node = cluster.node_with("cut", proxy.port, false, &Limits::default()).await;
    for id in ["known", "dead", "warm"] {
        proxy.watch();
        assert_eq!(accept(&node, stripe(id, "{}")).await, Ok(CREATED));
    }
    let commit = proxy.passed(Side::Client).iter().position(|name| name == "Query COMMIT").unwrap();
    let dead = "UPDATE job SET state = 'dead', reason = 'rejected', settled_at = 1, attempt = 1
        FROM event WHERE event.row = job.event AND event_id = 'dead'";
    cluster.run(dead).await;

    let gate = cluster.hold().await;
    let first = begin(&node, stripe("first", "{}")).await;
    cluster.blocked(1).await;
    let mut tasks = Vec::new();
    for id in ["new", "known", "dead", "other"] {
        let mut request = new(stripe(id, "{}"));
        request.on_redelivery = OnRedelivery::ReplayDead;
        let node = node.clone();
        let until = Instant::now() + PATIENCE;
        tasks.push(tokio::spawn(async move { node.accept(request, until).await.unwrap() }));
    }
    tokio::task::yield_now().await;
    proxy.arm(Side::Client, commit + 1, Act::Cut);
    drop(gate);
    assert_eq!(first.await.unwrap(), Ok(CREATED));
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    let replayed = |answer: &Accepted| match answer {
        Accepted::Duplicate { replayed, .. } => Some(*replayed),
        Accepted::Created { .. } => None,
    };
    assert_eq!(answers.iter().map(replayed).collect::<Vec<_>>(), [None, Some(0), Some(1), None]);
    assert_eq!(cluster.get::<i64>("SELECT sum(duplicates)::bigint FROM event").await, 2);
    assert_eq!((cluster.count("event").await, cluster.count("job").await), (6, 6));
}
