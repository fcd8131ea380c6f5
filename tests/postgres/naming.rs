//! The nodes as an operator sees them: `node list`, `node lost` and `doctor`, as processes, and the file that makes a
//! folder a node's.

use std::fs;
use std::process::{Command, Output};

use hooklatch::model::OnUnknown;
use hooklatch::store::postgres::{Connection, NodeFile, RegisterError, Registered, Registrar};
use serde_json::Value;

use super::cluster::Cluster;
use super::server::{PASSWORD, ROLE};
use super::site::target;
use super::working::{add_jobs, claim, holder, job, worker};

/// A configuration of the cluster's database, in its own folder.
struct Operator(tempfile::TempDir);

impl Operator {
    fn new(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("secrets")).unwrap();
        fs::write(folder.path().join("secrets/pg"), PASSWORD).unwrap();
        let operator = Operator(folder);
        operator.write(cluster.server.port, "");
        operator
    }

    fn write(&self, port: u16, more: &str) {
        let text = format!(
            "[storage]\npath = \"h.db\"\nurl = \"postgresql://{ROLE}@127.0.0.1:{port}/app\"\n\
             password = \"credential:pg\"\n{more}[node]\nname = \"a\"\nmachine = \"m\"\n"
        );
        fs::write(self.0.path().join("hooklatch.toml"), text).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hooklatch"));
        command.args(words).arg("--config").arg(self.0.path().join("hooklatch.toml"));
        command.env("COLUMNS", "80").env("SUDO_USER", "ann");
        command
    }

    /// The exit code, standard output and standard error.
    async fn run(&self, words: &[&str]) -> (i32, String, String) {
        let mut command = self.command(words);
        // The nodes of this test go on meanwhile.
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let Output { status, stdout, stderr } = output;
        let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        for text in [&out, &err] {
            assert!(!text.contains(PASSWORD), "{text}");
        }
        (status.code().unwrap(), out, err)
    }

    async fn json(&self, words: &[&str]) -> Value {
        let (code, out, err) = self.run(&[words, &["--json"]].concat()).await;
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }
}

#[tokio::test]
async fn an_operator_lists_the_nodes_and_declares_one_lost() {
    let cluster = Cluster::new(&[]).await;
    let operator = Operator::new(&cluster);
    assert_eq!(operator.json(&["node", "list"]).await, Value::Array(Vec::new()));
    let a = worker(&cluster, "a", 0, OnUnknown::Rerun).await;
    let b = holder(&cluster, "b").await;
    add_jobs(&a, 0, 3).await;
    let (of_a, of_b) = (claim(&a, 1).await.remove(0), claim(&b, 1).await.remove(0));
    let connected = cluster.connected("b").await;
    let list = operator.json(&["node", "list"]).await;
    drop(connected);
    assert_eq!([&list[0]["connections"], &list[1]["connections"]], [0, 1]);
    let row = |list: &Value, nth: usize| {
        let node = &list[nth];
        (node["name"].clone(), node["state"].clone(), node["running"].clone())
    };
    assert_eq!(row(&list, 0), ("a".into(), "active".into(), 1.into()));
    assert_eq!(row(&list, 1), ("b".into(), "active".into(), 1.into()));
    let (_, table, _) = operator.run(&["node", "list"]).await;
    assert!(table.starts_with("NODE") && table.lines().all(|line| line.len() <= 80), "{table}");

    // Nobody can be asked, and nothing is changed.
    let (code, _, err) = operator.run(&["node", "lost", "a"]).await;
    assert!(code == 2 && err.contains("--yes"), "{code} {err}");
    let (code, _, err) = operator.run(&["node", "lost", "c", "--yes"]).await;
    assert!(code == 66 && err.contains("hooklatch node list"), "{code} {err}");
    assert_eq!(job(&cluster, of_a.running.job).await, "running 1 0");

    // Declared while it is connected: that takes a second word. It says what the policy brings.
    cluster.run("UPDATE handler SET on_unknown = 'rerun'").await;
    let connected = cluster.connected("a").await;
    let (code, _, err) = operator.run(&["node", "lost", "a", "--yes"]).await;
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("node 'a' is alive: it has 1 connection"), "{err}");
    assert_eq!(job(&cluster, of_a.running.job).await, "running 1 0");
    let (code, out, err) = operator.run(&["node", "lost", "a", "--yes", "--connected"]).await;
    drop(connected);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("1 job with on_unknown = \"rerun\""), "{err}");
    assert!(out.contains("node a is lost; 1 attempt of it ended as unknown"), "{out}");
    assert_eq!(job(&cluster, of_a.running.job).await, "waiting 1 1");
    assert_eq!(job(&cluster, of_b.running.job).await, "running 1 0");
    a.close();

    cluster.run("UPDATE handler SET on_unknown = 'hold'").await;
    let lost = operator.json(&["node", "lost", "b", "--yes", "--note", "power is off"]).await;
    assert_eq!(lost["unknown"][0]["job"], of_b.running.job.to_string());
    assert_eq!(lost["unknown"][0]["state"], "held");
    let audit =
        "SELECT string_agg(concat_ws(' ', verb, name, uid, reason), ', ' ORDER BY row) FROM audit";
    let uid = rustix::process::geteuid().as_raw();
    let rows = format!("node-lost ann {uid}, node-lost ann {uid} power is off");
    assert_eq!(cluster.get::<String>(audit).await, rows);
}

#[tokio::test]
async fn an_operator_sees_the_history_and_whom_a_roll_call_awaits() {
    let cluster = Cluster::new(&[]).await;
    let operator = Operator::new(&cluster);
    let _a = holder(&cluster, "a").await;
    let history = async || {
        let (_, out, _) = operator.run(&["doctor", "--json"]).await;
        let report: Value = serde_json::from_str(&out).unwrap();
        let findings = report["findings"].as_array().unwrap().iter();
        let own = findings.filter(|found| found["check"] == "history").cloned();
        own.collect::<Vec<Value>>()
    };
    let status = async || {
        let (_, out, _) = operator.run(&["status", "--json"]).await;
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let known =
        "SELECT format('system %s, timeline %s, store %s', system, timeline, store_id) FROM meta";
    let known: String = cluster.get(known).await;
    let well = history().await;
    assert_eq!(well.len(), 1, "{well:?}");
    assert_eq!((&well[0]["verdict"], &well[0]["seen"]), (&"ok".into(), &known.into()));
    assert_eq!(status().await.get("awaited"), None);

    let job = "00000000-0000-0000-0000-00000000000a";
    let calls = format!(
        "INSERT INTO roll_call (node) SELECT id FROM node;
         INSERT INTO roll_call (node, job, attempt) SELECT id, '{job}', 2 FROM node"
    );
    cluster.run(&calls).await;
    let awaited = history().await;
    let of =
        |at: usize| (awaited[at]["seen"].as_str().unwrap(), awaited[at]["fix"].as_str().unwrap());
    assert_eq!(awaited.len(), 3, "{awaited:?}");
    let silent = "node a has not said since the failover what it runs";
    let help = "start it with all its runners, or, if its machine is gone: hooklatch node lost a";
    assert_eq!(of(1), (silent, help));
    let running = format!("node a runs attempt 2 of job {job}, which the database has lost");
    assert_eq!(of(2), (running.as_str(), "wait for its end, or end it there"));

    let seen = status().await;
    let silence = serde_json::json!({ "node": "a", "lost": false, "job": null, "attempt": null });
    let lost = serde_json::json!({ "node": "a", "lost": false, "job": job, "attempt": 2 });
    assert_eq!(seen["awaited"], Value::Array(vec![silence, lost]));
    let (_, text, _) = operator.run(&["status"]).await;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("nothing is replayed yet, because {silent}")), "{text}");
}

/// A terminal of `script(1)`, on which each answer but yes is no.
#[tokio::test]
async fn a_person_is_asked_before_a_node_is_lost() {
    let cluster = Cluster::new(&[]).await;
    let operator = Operator::new(&cluster);
    let a = worker(&cluster, "a", 0, OnUnknown::Hold).await;
    add_jobs(&a, 0, 1).await;
    let attempt = claim(&a, 1).await.remove(0);
    for (answer, code, state) in [("n", 1, "running 1 0"), ("y", 0, "held 1 1")] {
        let inner = operator.command(&["node", "lost", "a"]);
        let words = std::iter::once(inner.get_program()).chain(inner.get_args());
        let line = words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ");
        let output = tokio::task::spawn_blocking(move || {
            let script = format!("echo {answer} | script -qec '{line}' /dev/null");
            Command::new("sh").args(["-c", &script]).output().unwrap()
        });
        let output = output.await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        let job_id = attempt.running.job.to_string();
        assert!(said.contains("declare node 'a' lost") && said.contains(&job_id), "{said}");
        assert_eq!(job(&cluster, attempt.running.job).await, state);
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_said_with_what_to_do() {
    let cluster = Cluster::new(&[]).await;
    let operator = Operator::new(&cluster);
    let (_, shown, _) = operator.run(&["config", "show"]).await;
    let keys = ["node.name", "node.machine", "storage.url", "storage.password.reference"];
    assert!(keys.iter().all(|key| shown.contains(key)), "{shown}");
    let database = |report: &Value| -> Vec<Value> {
        let findings = report["findings"].as_array().unwrap().iter();
        findings.filter(|found| found["check"] == "database").cloned().collect()
    };
    let doctor = async || {
        let (_, out, _) = operator.run(&["doctor", "--json"]).await;
        database(&serde_json::from_str(&out).unwrap())
    };
    let usual = doctor().await;
    let expected = match cluster.server.has_checksums().await {
        true => ("ok", ""),
        false => ("unwise", "pg_checksums"),
    };
    assert_eq!((usual.len(), &usual[0]["verdict"]), (1, &expected.0.into()), "{usual:?}");
    assert!(usual[0]["fix"].as_str().unwrap_or_default().contains(expected.1), "{usual:?}");
    operator.write(cluster.server.port, "require_synchronous_standby = true\n");
    cluster.server.set("fsync", "off").await;
    let bad = doctor().await;
    let fixes: Vec<&str> = bad
        .iter()
        .filter(|found| found["verdict"] == "bad")
        .map(|found| found["fix"].as_str().unwrap())
        .collect();
    assert_eq!(fixes, ["set fsync = on", "set synchronous_standby_names"]);

    fs::write(operator.0.path().join("secrets/pg"), "wrong-and-not-to-be-shown").unwrap();
    let hba = format!("local all all trust\nhost all {ROLE} all scram-sha-256\n");
    cluster.server.write("data/pg_hba.conf", &hba);
    cluster.server.reload().await;
    let wrong = doctor().await;
    assert!(wrong[0]["fix"].as_str().unwrap().starts_with("set storage.password"), "{wrong:?}");
    let (code, _, err) = operator.run(&["node", "list"]).await;
    assert!(code == 69 && err.contains("(28P01)"), "{code} {err}");
    assert!(!err.contains("not-to-be-shown"), "{err}");

    for words in [["backup", "/nowhere/b"], ["restore", "/nowhere/b"]] {
        let (code, _, err) = operator.run(&words).await;
        assert!(code == 78 && err.contains("pg_basebackup"), "{code} {err}");
    }

    // A file store has no nodes; a mistake that may hide the database is said instead.
    let path = operator.0.path().join("hooklatch.toml");
    for (text, expected) in [("", "several machines need a database"), ("[storage\n", "problem")] {
        fs::write(&path, format!("[storage]\npath = \"h.db\"\n{text}")).unwrap();
        let (code, _, err) = operator.run(&["node", "list"]).await;
        assert!(code == 78 && err.contains(expected), "{code} {err}");
    }
}

async fn register(
    cluster: &Cluster,
    registrar: &mut Registrar,
) -> Result<Registered, RegisterError> {
    let connection = Connection::open(&target(cluster.server.port, false)).await.unwrap();
    registrar.register(connection).await.map(|(_, registered)| registered)
}

/// The database has gone back behind the folder: the folder's count goes on.
#[tokio::test]
async fn the_folders_count_of_sessions_is_a_floor_over_starts() {
    let cluster = Cluster::new(&[]).await;
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let file = NodeFile::open(&folder.path().join("h.db")).unwrap();
        Registrar::of_folder(file, "a".to_owned(), "m".to_owned())
    };
    let counts = [register(&cluster, &mut start()).await, register(&cluster, &mut start()).await];
    assert_eq!(counts.map(|found| found.unwrap().session.count), [1, 2]);
    cluster.run("UPDATE node SET count = 0").await;
    let third = register(&cluster, &mut start()).await.unwrap().session;
    assert_eq!((third.count, NodeFile::open(&folder.path().join("h.db")).unwrap().count), (3, 3));
    assert_eq!(cluster.count("node").await, 1);

    // The copy of the folder on another machine is refused, and takes nothing.
    let file = NodeFile::open(&folder.path().join("h.db")).unwrap();
    let mut copy = Registrar::of_folder(file, "a".to_owned(), "other".to_owned());
    let error = register(&cluster, &mut copy).await.unwrap_err();
    assert!(matches!(error, RegisterError::OtherMachine { .. }), "{error}");
    assert_eq!(cluster.get::<i64>("SELECT count FROM node").await, 3);
}
