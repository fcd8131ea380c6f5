//! A receiver and its runner, as processes, over a database that has lost a claim.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hooklatch::model::JobId;
use uuid::Uuid;

use super::cluster::Cluster;
use super::runner::end_runner;
use super::server::{PASSWORD, PATIENCE, ROLE, Server};

const HANDLER: &str = "#!/bin/sh
echo run >> runs
while [ ! -e go ]; do sleep 0.05; done
";

/// A state folder with a configuration whose command runs until the file `go` is there.
struct Site {
    folder: tempfile::TempDir,
    receiver: Option<Child>,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), "whsec_test\n").unwrap();
        fs::write(folder.path().join("pg"), PASSWORD).unwrap();
        let handler = folder.path().join("handler");
        fs::write(&handler, HANDLER).unwrap();
        fs::set_permissions(&handler, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Site { folder, receiver: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hooklatch"));
        command.args(words).arg("--config").arg(self.path("hooklatch.toml"));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("HOOKLATCH_UNRELEASED", "1");
        command
    }

    /// Starts the receiver on this server, and returns when it answers deliveries.
    fn start(&mut self, server: &Server) {
        let port = server.port;
        let text = format!(
            r#"
            [server]
            listen = "127.0.0.1:0"
            [storage]
            path = "h.db"
            url = "postgresql://{ROLE}@127.0.0.1:{port}/app?sslmode=disable"
            password = "file:pg"
            [node]
            name = "a"
            [sources.stripe]
            provider = "stripe"
            path = "/stripe"
            secrets = ["file:secret"]
            [handlers.work]
            source = "stripe"
            events = ["*"]
            command = ["./handler"]
            cwd = "."
            "#
        );
        fs::write(self.path("hooklatch.toml"), text).unwrap();
        let mut receiver = self.command(&["serve"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(receiver.stderr.take().unwrap()).lines();
        self.receiver = Some(receiver);
        assert!(log.by_ref().any(|line| line.unwrap().contains("serving")), "it ended");
        // Its later lines must not fill the pipe.
        std::thread::spawn(move || log.for_each(drop));
    }

    fn kill(&mut self) {
        let mut receiver = self.receiver.take().unwrap();
        receiver.kill().unwrap();
        receiver.wait().unwrap();
    }

    /// Runs a command of an operator, and returns the exit code and what it said.
    fn run(&self, words: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let said = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (status.code().unwrap(), said)
    }

    fn done(&self, words: &[&str]) {
        let (code, said) = self.run(words);
        assert_eq!(code, 0, "{words:?}: {said}");
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.path("runs")).unwrap_or_default().lines().count()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.receiver.is_some() {
            self.kill();
        }
        end_runner(&self.path("h.db"));
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The claim is younger than the dump that another server has loaded, and its command runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_another_history_asks_its_runner_and_starts_nothing_that_runs() {
    let mut cluster = Cluster::new(&[]).await;
    let mut site = Site::new();
    site.start(&cluster.server);
    site.done(&["pause", "work"]);
    let (_, said) = site.run(&["send", "stripe", "a.b"]);
    assert!(said.contains("200 accepted"), "{said}");
    let other = Server::made();
    cluster.server.copy_to(&other);
    site.done(&["resume", "work"]);
    until("the command runs", async || site.runs() == 1).await;
    let job: Uuid = cluster.get("SELECT id FROM job").await;
    let job = JobId::from_bytes(*job.as_bytes()).to_string();
    site.kill();

    cluster.server = other;
    site.start(&cluster.server);
    until("the roll call is answered", async || {
        cluster.count("roll_call").await == cluster.count("roll_call WHERE job IS NOT NULL").await
    })
    .await;
    assert_eq!(cluster.count("roll_call WHERE attempt = 1").await, 1);
    let (code, said) = site.run(&["replay", "--job", &job]);
    assert!(code != 0 && said.contains("node a runs attempt 1 of job"), "{code} {said}");
    assert_eq!(cluster.get::<String>("SELECT state FROM job").await, "held");

    fs::write(site.path("go"), "").unwrap();
    until("the end is kept", async || cluster.count("late_end").await == 1).await;
    assert_eq!(cluster.get::<String>("SELECT outcome FROM late_end").await, "succeeded");
    assert_eq!(cluster.count("roll_call").await, 0);
    site.done(&["replay", "--job", &job]);
    site.done(&["resume", "work"]);
    until("it runs again", async || {
        cluster.get::<String>("SELECT state FROM job").await == "succeeded"
    })
    .await;
    assert_eq!(site.runs(), 2);

    // An end that is committed and not acknowledged is no late one.
    site.kill();
    site.start(&cluster.server);
    site.done(&["send", "stripe", "a.b"]);
    until("the next one runs", async || site.runs() == 3).await;
    assert_eq!(cluster.count("late_end").await, 1);
}
