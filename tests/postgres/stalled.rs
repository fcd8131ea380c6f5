//! What a receiver says while nothing moves: on every screen, and no job twice.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::node_site::{NodeSite, becomes, deliver};
use super::server::PATIENCE;
use super::support::stripe_event;

/// Two handlers of all events.
const HANDLERS: &str = "[handlers.h]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"./work\"]\nmax_attempts = 1\n\
    [handlers.i]\nsource = \"stripe\"\nevents = [\"later\"]\ncommand = [\"true\"]\n";

/// Ends the connection that reads payloads. Another one is refused as long as the role has too many.
const END_PAYLOADS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE usename = 'app' AND query LIKE '%JOIN payload ON payload.event%'";

/// Waits until `status` has another verdict, and returns it.
async fn status_after(node: &NodeSite, verdict: &str) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = node.status().await;
        if status["verdict"] != verdict {
            return status;
        }
        assert!(Instant::now() < until, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_gets_too_few_connections_does_not_start_and_says_how_many_it_needs() {
    let cluster = Cluster::new(&[]).await;
    let node = NodeSite::new(&cluster, "a", HANDLERS);
    // It makes the tables.
    drop(node.start());
    for limit in [3, 5, 7] {
        cluster.run(&format!("ALTER ROLE app CONNECTION LIMIT {limit}")).await;
        let output = node.output(&["serve"]).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{said}");
        assert!(said.contains("each node needs eight connections"), "{said}");
    }
    cluster.run("ALTER ROLE app CONNECTION LIMIT 8").await;
    let receiver = node.start();
    deliver(&cluster, &receiver, "evt_1").await;
    node.begun(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_that_cannot_be_read_is_first_on_every_screen_and_nothing_else_is_claimed() {
    let cluster = Cluster::new(&[]).await;
    let node = NodeSite::new(&cluster, "a", HANDLERS);
    let receiver = node.start();
    node.finish();
    let first = deliver(&cluster, &receiver, "evt_1").await;
    becomes(&cluster, &first, "dead attempts exhausted 1").await;
    assert_eq!(receiver.readyz(), (200, json!({ "status": "ready" })));

    cluster.run("ALTER ROLE app CONNECTION LIMIT 1").await;
    cluster.run(END_PAYLOADS).await;
    let second = deliver(&cluster, &receiver, "evt_2").await;
    becomes(&cluster, &second, "running 1").await;
    let status = status_after(&node, "well").await;
    assert_eq!(status["verdict"], "needs_a_person");
    assert_eq!(status["stalls"][0]["what"], "payloads");
    let why = status["why"][0].as_str().unwrap();
    assert!(why.starts_with("claimed jobs do not begin: "), "{why}");
    assert!(why.contains("each node needs eight connections"), "{why}");
    let doctor = node.output(&["doctor", "--json"]).await;
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(said.contains("claimed jobs do not begin"), "{said}");
    let reason = "claimed jobs do not begin";
    assert_eq!(receiver.readyz(), (200, json!({ "status": "ready", "reason": reason })));
    assert_eq!(receiver.stripe(&stripe_event("evt_3", "later", ""), 0).0, 200);
    // A claim of the other handler would have come before this answer.
    assert_eq!(node.status().await["stalls"][0]["what"], "payloads");
    let third: uuid::Uuid = cluster.get("SELECT id FROM job WHERE handler = 'i'").await;
    becomes(&cluster, &third.to_string(), "ready 0").await;

    cluster.run("ALTER ROLE app CONNECTION LIMIT -1").await;
    becomes(&cluster, &second, "dead attempts exhausted 1").await;
    becomes(&cluster, &third.to_string(), "succeeded 1").await;
    node.begun(3).await;
    assert_eq!(receiver.readyz(), (200, json!({ "status": "ready" })));
    assert_eq!(node.status().await["stalls"], json!([]));
}
