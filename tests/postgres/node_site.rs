//! A node as an operator has it: a folder, its receiver as a process, its runner and commands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::cluster::Cluster;
use super::server::{PASSWORD, PATIENCE, ROLE};
use super::support::{Receiver, Site, stripe_event};

/// Runs until it is ended, or until the test has made the file `go`.
const WORK: &str =
    "echo $$ >> \"$SITE/begun\"\nwhile [ ! -e \"$SITE/go\" ]; do sleep 0.02; done\nexit 1";

/// Where a node is.
pub(crate) struct Place {
    /// The address of the node, and that of the server as it sees it.
    pub(crate) own: String,
    pub(crate) server: String,
    /// The network namespace of all its processes, where that is not the test's.
    pub(crate) namespace: Option<String>,
    /// Limits of its configuration, each a line.
    pub(crate) limits: &'static str,
}

impl Place {
    /// Where the test is.
    pub(crate) fn of_the_test() -> Self {
        let [own, server] = ["127.0.0.1"; 2].map(str::to_owned);
        Place { own, server, namespace: None, limits: "" }
    }
}

/// The folder of a node.
pub(crate) struct NodeSite {
    pub(crate) site: Site,
    name: &'static str,
    pub(crate) port: u16,
    place: Place,
    /// Its program knows two migrations more.
    pub(crate) is_newer: bool,
}

impl NodeSite {
    /// One where the test is.
    pub(crate) fn new(cluster: &Cluster, name: &'static str, handlers: &str) -> Self {
        Self::at(Place::of_the_test(), cluster, name, handlers)
    }

    /// One at another place.
    pub(crate) fn at(place: Place, cluster: &Cluster, name: &'static str, handlers: &str) -> Self {
        let node = NodeSite {
            site: Site::new(""),
            name,
            port: cluster.server.port,
            place,
            is_newer: false,
        };
        fs::write(node.site.path("pg"), PASSWORD).unwrap();
        fs::set_permissions(node.site.path("pg"), fs::Permissions::from_mode(0o600)).unwrap();
        node.site.script("work", WORK);
        node.configure(handlers);
        node
    }

    /// Replaces the configuration's handlers.
    pub(crate) fn configure(&self, handlers: &str) {
        let NodeSite { name, port, place: Place { own, server, limits, .. }, .. } = self;
        let text = format!(
            "[server]\nlisten = \"{own}:0\"\n[storage]\npath = \"store.db\"\n\
             url = \"postgresql://{ROLE}@{server}:{port}/app?sslmode=disable\"\npassword = \"file:pg\"\n\
             [node]\nname = \"{name}\"\nmachine = \"m\"\n[limits]\nrunner_idle_millis = \"300ms\"\n{limits}\
             [sources.stripe]\nprovider = \"stripe\"\npath = \"/stripe\"\nsecrets = [\"file:secret\"]\n{handlers}"
        );
        self.site.write_config(text);
    }

    /// A command of the binary at this node.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.site.command(words);
        if self.is_newer {
            command.env("HOOKLATCH_MIGRATE", "1");
        }
        match &self.place.namespace {
            Some(namespace) => inside(namespace, &command),
            None => command,
        }
    }

    /// Starts the receiver and waits until it serves.
    pub(crate) fn start(&self) -> Receiver {
        Receiver::of(self.command(&["serve"])).unwrap()
    }

    pub(crate) async fn output(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Runs a command, which must succeed.
    pub(crate) async fn run(&self, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.output(words).await;
        assert!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// What `status` knows, whatever its verdict.
    pub(crate) async fn status(&self) -> Value {
        serde_json::from_slice(&self.output(&["status", "--json"]).await.stdout).unwrap()
    }

    /// Runs a command, which must succeed, and returns its JSON.
    pub(crate) async fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[words, &["--json"]].concat()).await).unwrap()
    }

    /// Lets its commands end.
    pub(crate) fn finish(&self) {
        fs::write(self.site.path("go"), "").unwrap();
    }

    /// Waits until as many commands have begun here, and returns the process of the last.
    pub(crate) async fn begun(&self, commands: usize) -> String {
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

/// Puts a command into a network namespace. `nsenter` becomes the program, and so has its process id.
fn inside(namespace: &str, command: &Command) -> Command {
    let mut within = Command::new("nsenter");
    within.arg(format!("--net=/run/netns/{namespace}")).arg(command.get_program());
    within.args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => within.env(name, value),
            None => within.env_remove(name),
        };
    }
    within
}

/// Delivers an event, and returns the key of its job.
pub(crate) async fn deliver(cluster: &Cluster, receiver: &Receiver, event: &str) -> String {
    assert_eq!(receiver.stripe(&stripe_event(event, "a.b", ""), 0).0, 200);
    let job = format!(
        "SELECT job.id FROM job JOIN event ON event.row = job.event WHERE event_id = '{event}'"
    );
    cluster.get::<uuid::Uuid>(&job).await.to_string()
}

/// Waits until the job is so: state, reason and attempt.
pub(crate) async fn becomes(cluster: &Cluster, job: &str, expected: &str) {
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

/// Whether a process runs.
pub(crate) fn lives(process: &str) -> bool {
    fs::metadata(format!("/proc/{process}")).is_ok()
}
