//! What an operator is told of nodes whose configurations are not the same.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::node_site::NodeSite;
use super::support::{Receiver, stripe_event};

const EMAIL: &str = "[handlers.email]\nsource = \"stripe\"\nevents = [\"*\"]\ntimeout = \"30s\"\n\
    forward = \"http://127.0.0.1:9/\"\nheaders = { \"X-Key\" = \"first-key\" }\n";

const LATER: &str = "no job: the handler came, or was changed, after the event";

/// Delivers an event that gets no job.
async fn deliver(cluster: &Cluster, receiver: &Receiver) {
    assert_eq!(receiver.stripe(&stripe_event("evt_1", "a.b", ""), 0).0, 200);
    assert_eq!(cluster.count("event").await, 1);
    assert_eq!(cluster.count("job").await, 0);
}

/// The explanation of the event, and its part about the only handler.
async fn explained(node: &NodeSite) -> (Value, Value) {
    let explained = node.json(&["explain", "evt_1"]).await[0].clone();
    assert_eq!(explained["handlers"].as_array().unwrap().len(), 1, "{explained}");
    let email = explained["handlers"][0].clone();
    assert_eq!(email["handler"], "email");
    (explained, email)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_a_node_lacks_is_named_and_explains_an_event_without_a_job() {
    let cluster = Cluster::new(&[]).await;
    let (a, b) = (NodeSite::new(&cluster, "a", EMAIL), NodeSite::new(&cluster, "b", ""));
    let (_at_a, at_b) = (a.start(), b.start());
    deliver(&cluster, &at_b).await;

    for node in [&a, &b] {
        let status = node.status().await;
        let said = "node b lacks handler email: an event that b accepts gets no job for it";
        assert_eq!((&status["verdict"], &status["notes"]), (&json!("well"), &json!([said])));
        let lacks = [&status["nodes"][0]["lacks"], &status["nodes"][1]["lacks"]];
        assert_eq!(lacks, [&json!([]), &json!(["email"])]);
        let screen = node.output(&["status"]).await;
        assert_eq!(screen.status.code(), Some(0));
        let screen = String::from_utf8(screen.stdout).unwrap();
        assert!(screen.contains("node b lacks handler email"), "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    }

    let (_, email) = explained(&a).await;
    let said = format!("{LATER}, or it came to a node that lacks the handler: b");
    assert_eq!((&email["wants"], &email["next"]["what"]), (&json!(true), &json!(said)));
    let (whole, email) = explained(&b).await;
    let said = "the configuration here lacks it, and that in force on node a has it: explain the event there";
    assert_eq!((&email["wants"], &email["why"]), (&json!(false), &json!(said)));
    assert_eq!(whole["next"], Value::Null, "a handler may want it");

    b.configure(EMAIL);
    b.run(&["reload"]).await;
    assert_eq!(a.status().await["notes"], json!([]));
    for node in [&a, &b] {
        assert_eq!(explained(node).await.1["next"]["what"], LATER);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_handler_that_differ_are_named_with_their_values_and_secrets_are_not_stored() {
    let cluster = Cluster::new(&[]).await;
    let shorter = EMAIL.replace("30s", "10s");
    let (a, b) = (NodeSite::new(&cluster, "a", EMAIL), NodeSite::new(&cluster, "b", &shorter));
    let (_at_a, at_b) = (a.start(), b.start());
    let status = a.status().await;
    assert_eq!(status["notes"], json!(["handler email: timeout 30s on a, 10s on b"]));
    assert_eq!(status["nodes"][1]["handlers"][0]["keys"], json!({ "timeout": "10s" }));
    assert_eq!(a.output(&["status"]).await.status.code(), Some(0));

    b.configure(&EMAIL.replace("[\"*\"]", "[\"c\", \"d\"]"));
    b.run(&["reload"]).await;
    let said = "handler email: events [\"*\"] on a, [\"c\", \"d\"] on b";
    assert_eq!(a.status().await["notes"], json!([said]));
    deliver(&cluster, &at_b).await;
    let (_, email) = explained(&a).await;
    let what = email["next"]["what"].as_str().unwrap();
    let said = ", or it came to a node whose handler chooses other events (`hooklatch status";
    assert!(what.starts_with(&format!("{LATER}{said}")), "{what}");

    // Only the digests of the handlers show that variables have other values.
    let command = "[handlers.email]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"/bin/true\"]\n\
        env = { TOKEN = \"first-key\", PATH = \"/first-key\" }\n";
    a.configure(command);
    a.run(&["reload"]).await;
    b.configure(&command.replace("TOKEN = \"first", "TOKEN = \"other"));
    b.run(&["reload"]).await;
    let said = "handler email: the nodes differ in what they do not publish, such as values of env";
    assert_eq!(a.status().await["notes"], json!([said]));
    b.configure(EMAIL);
    b.run(&["reload"]).await;
    let stored = "SELECT string_agg(settings, ' ' ORDER BY settings) FROM handler";
    let stored: String = cluster.get(stored).await;
    assert!(stored.contains("/bin/true") && stored.contains("X-Key"), "{stored}");
    assert!(!stored.contains("first-key"), "{stored}");
}
