//! Receivers as processes, with runners and commands, on a server.

use std::fs;
use std::time::Instant;

use serde_json::json;

use super::cluster::Cluster;
use super::dispatching;
use super::node_site::{NodeSite, Place, becomes, deliver, lives};
use super::server::{PATIENCE, Server};

/// One attempt, on one node.
const ONCE: &str = "[handlers.h]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"./work\"]\nmax_attempts = 1\n\
    concurrency = 1\n";

async fn last_audit(cluster: &Cluster) -> String {
    cluster
        .get("SELECT concat_ws(' ', verb, count, result, subject) FROM audit ORDER BY row DESC LIMIT 1")
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_cancelled_through_another_node_and_without_a_receiver() {
    let cluster = Cluster::new(&[]).await;
    let handler = format!("{ONCE}nodes = [\"b\"]\n");
    let (a, b) = (NodeSite::new(&cluster, "a", &handler), NodeSite::new(&cluster, "b", &handler));
    let (at_a, at_b) = (a.start(), b.start());

    // It waits for the end, as on the command's own node.
    let job = deliver(&cluster, &at_a, "evt_1").await;
    let process = b.begun(1).await;
    let said = a.json(&["cancel", &job]).await;
    let held =
        json!({ "job": job, "attempt": 1, "state": "held", "reason": "cancelled", "node": "b" });
    assert_eq!(said, held);
    assert!(!lives(&process));
    let row = format!(r#"cancel 1 done {{"job":"{job}","attempt":1,"node":"b"}}"#);
    assert_eq!(last_audit(&cluster).await, row);

    // The mark is of one attempt.
    a.run(&["replay", "--job", &job]).await;
    let process = b.begun(2).await;
    becomes(&cluster, &job, "running 2").await;
    b.finish();
    becomes(&cluster, &job, "dead attempts exhausted 2").await;
    assert!(!lives(&process));
    fs::remove_file(b.site.path("go")).unwrap();

    // Its receiver is away: the next one ends the command, which runs on meanwhile.
    let job = deliver(&cluster, &at_a, "evt_2").await;
    let process = b.begun(3).await;
    becomes(&cluster, &job, "running 1").await;
    at_b.kill();
    let said = a.run(&["cancel", &job, "--no-wait"]).await;
    let asked = format!(
        "job {job} is asked to end; it runs attempt 1 on node b, which ends it as soon as its receiver reaches the database\n"
    );
    assert_eq!(said, asked);
    assert!(lives(&process));
    let at_b = b.start();
    becomes(&cluster, &job, "held cancelled 1").await;
    assert!(!lives(&process));

    // No receiver runs where the operator is.
    let job = deliver(&cluster, &at_b, "evt_3").await;
    b.begun(4).await;
    at_a.kill();
    assert_eq!(a.json(&["cancel", &job]).await["node"], "b");
    becomes(&cluster, &job, "held cancelled 1").await;

    // Where it runs, the runner is asked directly.
    let job = deliver(&cluster, &at_b, "evt_4").await;
    b.begun(5).await;
    assert_eq!(b.json(&["cancel", &job]).await.get("node"), None);
    assert_eq!(cluster.count("audit WHERE verb = 'cancel' AND result = 'asked'").await, 1);
}

/// Node b accepts for the handler, and only publishes it. At node a it is gone: by a reload, and by another start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_another_node_publishes_is_not_gone_and_its_attempts_end_by_their_policy() {
    for by_reload in [true, false] {
        let cluster = Cluster::new(&[]).await;
        let handler = format!("{ONCE}nodes = [\"a\"]\n");
        let b = NodeSite::new(&cluster, "b", &handler);
        let a = NodeSite::new(&cluster, "a", &handler);
        let (at_b, mut at_a) = (b.start(), a.start());
        let first = deliver(&cluster, &at_b, "evt_1").await;
        a.begun(1).await;
        let second = deliver(&cluster, &at_b, "evt_2").await;
        a.configure("");
        if by_reload {
            let reloaded = a.json(&["reload"]).await;
            assert_eq!(reloaded["handlers"]["gone"], json!(["h"]));
            assert_eq!(reloaded["orphaned"], json!([]));
        } else {
            at_a.kill();
            at_a = a.start();
        }
        let checked = a.json(&["config", "check"]).await.to_string();
        assert!(!checked.contains("will be held"), "{checked}");
        a.finish();
        becomes(&cluster, &first, "dead attempts exhausted 1").await;
        becomes(&cluster, &second, "ready 0").await;

        // Once no node publishes it, it is gone.
        at_b.kill();
        cluster.run("UPDATE node SET state = 'lost' WHERE name = 'b'").await;
        a.run(&["reload"]).await;
        becomes(&cluster, &second, "held handler gone 0").await;
        drop(at_a);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_claims_where_the_database_is_away() {
    let mut cluster = Cluster::new(&[]).await;
    // A stop that waited for claims as for forwards would reach this limit, and the log line that ends it would not come.
    let place = Place { limits: "stop_wait_millis = \"1h\"\n", ..Place::of_the_test() };
    let handler = ONCE.replace("concurrency = 1", "concurrency = 2");
    let a = NodeSite::at(place, &cluster, "a", &handler);
    let receiver = a.start();
    // It keeps its runner, which has room for another one.
    deliver(&cluster, &receiver, "evt_1").await;
    a.begun(1).await;
    cluster.server.crash();
    // By then the handler's claim waits for a session.
    receiver.log_when(|line| line["message"] == "no session at the database");
    receiver.terminate();
    receiver.log_when(|line| line["message"] == "commands go on under the runner");
    assert_eq!(tokio::task::spawn_blocking(|| receiver.ended()).await.unwrap(), Some(0));
    a.finish();
}

/// The claim is younger than the dump that another server has loaded, and its command runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_another_history_asks_its_runner_and_starts_nothing_that_runs() {
    let mut cluster = Cluster::new(&[]).await;
    let mut a = NodeSite::new(&cluster, "a", ONCE);
    let at_a = a.start();
    a.run(&["pause", "h"]).await;
    let job = deliver(&cluster, &at_a, "evt_1").await;
    let other = Server::made();
    cluster.server.copy_to(&other);
    a.run(&["resume", "h"]).await;
    a.begun(1).await;
    at_a.kill();

    // The command has left the configuration. Its runner is asked all the same, by each process until the end has come.
    cluster.server = other;
    a.port = cluster.server.port;
    a.configure("");
    let at_a = a.start();
    let listed = format!(
        "SELECT count(*) = 1 AND coalesce(bool_and(job = '{job}' AND attempt = 1), false) FROM roll_call"
    );
    dispatching::becomes(&cluster, &listed).await;
    at_a.kill();
    let at_a = a.start();
    let until = Instant::now() + PATIENCE;
    while a.status().await["runners"][0]["connected"] != true {
        assert!(Instant::now() < until, "the runner has not listed its attempts");
    }
    // Behind what it has answered.
    a.run(&["reload"]).await;
    assert!(cluster.get::<bool>(&listed).await);
    let refused = a.output(&["replay", "--job", &job]).await;
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("node a runs attempt 1 of job"), "{refused}");
    becomes(&cluster, &job, "held restored 0").await;

    a.finish();
    dispatching::becomes(&cluster, "SELECT count(*) = 1 FROM late_end WHERE outcome = 'failed'")
        .await;
    assert_eq!(cluster.count("roll_call").await, 0);
    // Nothing calls this process, so it asks the runners that it needs.
    at_a.kill();
    let at_a = a.start();
    assert_eq!(a.status().await["runners"], json!([]));
    a.configure(ONCE);
    a.run(&["reload"]).await;
    a.run(&["replay", "--job", &job]).await;
    a.run(&["resume", "h"]).await;
    becomes(&cluster, &job, "dead attempts exhausted 1").await;
    assert_eq!(a.site.lines("begun").len(), 2);

    // If an end is committed and not acknowledged, the next report of it is a repeat.
    at_a.kill();
    let at_a = a.start();
    deliver(&cluster, &at_a, "evt_2").await;
    a.begun(3).await;
    assert_eq!(cluster.count("late_end").await, 1);
}
