//! Receivers as processes, with runners and commands, on a server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::dispatching;
use super::server::{PASSWORD, PATIENCE, ROLE, Server};
use super::support::{Receiver, Site, stripe_event};

/// One attempt, on one node.
const ONCE: &str = "[handlers.h]\nsource = \"stripe\"\nevents = [\"*\"]\ncommand = [\"./work\"]\nmax_attempts = 1\n\
    concurrency = 1\n";

/// Runs until it is ended, or until the test has made the file `go`.
const WORK: &str =
    "echo $$ >> \"$SITE/begun\"\nwhile [ ! -e \"$SITE/go\" ]; do sleep 0.02; done\nexit 1";

/// The folder of a node.
struct NodeSite {
    site: Site,
    name: &'static str,
    port: u16,
}

impl NodeSite {
    fn new(cluster: &Cluster, name: &'static str, handlers: &str) -> Self {
        let node = NodeSite { site: Site::new(""), name, port: cluster.server.port };
        fs::write(node.site.path("pg"), PASSWORD).unwrap();
        fs::set_permissions(node.site.path("pg"), fs::Permissions::from_mode(0o600)).unwrap();
        node.site.script("work", WORK);
        node.configure(handlers);
        node
    }

    fn configure(&self, handlers: &str) {
        let NodeSite { name, port, .. } = self;
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[storage]\npath = \"store.db\"\n\
             url = \"postgresql://{ROLE}@127.0.0.1:{port}/app?sslmode=disable\"\npassword = \"file:pg\"\n\
             [node]\nname = \"{name}\"\nmachine = \"m\"\n[limits]\nrunner_idle_millis = \"300ms\"\n\
             [sources.stripe]\nprovider = \"stripe\"\npath = \"/stripe\"\nsecrets = [\"file:secret\"]\n{handlers}"
        );
        fs::write(self.site.config(), text).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.site.command(words);
        command.env("HOOKLATCH_UNRELEASED", "1");
        command
    }

    fn start(&self) -> Receiver {
        Receiver::of(self.command(&["serve"])).unwrap()
    }

    async fn output(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs a command, which must succeed.
    async fn run(&self, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.output(words).await;
        assert!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// The runners that the receiver needs.
    async fn runners(&self) -> Value {
        let status = self.output(&["status", "--json"]).await.stdout;
        serde_json::from_slice::<Value>(&status).unwrap()["runners"].take()
    }

    async fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[words, &["--json"]].concat()).await).unwrap()
    }

    /// Waits until as many commands have begun here, and returns the process of the last.
    async fn begun(&self, commands: usize) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let lines = self.site.lines("begun");
            if lines.len() == commands {
                return lines[commands - 1].clone();
            }
            assert!(lines.len() < commands && Instant::now() < until, "{lines:?} have begun");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// Delivers an event, and returns the key of its job.
async fn deliver(cluster: &Cluster, receiver: &Receiver, event: &str) -> String {
    assert_eq!(receiver.stripe(&stripe_event(event, "a.b", ""), 0).0, 200);
    let job = format!(
        "SELECT job.id FROM job JOIN event ON event.row = job.event WHERE event_id = '{event}'"
    );
    cluster.get::<uuid::Uuid>(&job).await.to_string()
}

/// Waits until the job is so: state, reason and attempt.
async fn becomes(cluster: &Cluster, job: &str, expected: &str) {
    let until = Instant::now() + PATIENCE;
    let shape =
        format!("SELECT concat_ws(' ', state, reason, attempt) FROM job WHERE id = '{job}'");
    loop {
        let found: String = cluster.get(&shape).await;
        if found == expected {
            return;
        }
        assert!(Instant::now() < until, "{found}, not {expected}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn lives(process: &str) -> bool {
    fs::metadata(format!("/proc/{process}")).is_ok()
}

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
    fs::write(b.site.path("go"), "").unwrap();
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
        fs::write(a.site.path("go"), "").unwrap();
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
    while a.runners().await[0]["connected"] != true {
        assert!(Instant::now() < until, "the runner has not listed its attempts");
    }
    // Behind what it has answered.
    a.run(&["reload"]).await;
    assert!(cluster.get::<bool>(&listed).await);
    let refused = a.output(&["replay", "--job", &job]).await;
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("node a runs attempt 1 of job"), "{refused}");
    becomes(&cluster, &job, "held restored 0").await;

    fs::write(a.site.path("go"), "").unwrap();
    dispatching::becomes(&cluster, "SELECT count(*) = 1 FROM late_end WHERE outcome = 'failed'")
        .await;
    assert_eq!(cluster.count("roll_call").await, 0);
    // Nothing calls this process, so it asks the runners that it needs.
    at_a.kill();
    let at_a = a.start();
    assert_eq!(a.runners().await, json!([]));
    let file = fs::read_to_string(a.site.path("store.db.node")).unwrap();
    assert!(!file.contains("default"), "{file}");
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
