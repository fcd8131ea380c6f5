//! Common parts of the tests: a separate site and receiver process for each test, and deliveries that are
//! signed as by GitHub or Stripe. Everything is real: processes, sockets and SQLite files.

pub(crate) mod account;
pub(crate) mod caller;
pub(crate) mod damage;
pub(crate) mod disk;
pub(crate) mod front;
pub(crate) mod made;
pub(crate) mod needs;
pub(crate) mod random;
pub(crate) mod raw;
pub(crate) mod runner;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

/// The longest wait for an event: far longer than a slow machine takes, so that only a fault reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The secret of every source in these tests.
pub(crate) const SECRET: &str = "a secret for tests only";

/// A folder with a configuration, handlers and a store.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    store: PathBuf,
}

impl Site {
    /// A site with a `github` and a `stripe` source and the handlers of `handlers` (TOML).
    pub(crate) fn new(handlers: &str) -> Self {
        Self::with("", handlers)
    }

    /// Like [`Site::new`], with additional tables before the handlers.
    pub(crate) fn with(tables: &str, handlers: &str) -> Self {
        Self::storing("store.db".into(), tables, handlers)
    }

    /// Like [`Site::with`], with the store at another path.
    pub(crate) fn storing(store: PathBuf, tables: &str, handlers: &str) -> Self {
        let site = Site { folder: tempfile::tempdir().unwrap(), store };
        fs::write(site.path("secret"), format!("{SECRET}\n")).unwrap();
        fs::set_permissions(site.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        site.configure(tables, handlers);
        site
    }

    /// Replaces the configuration.
    pub(crate) fn configure(&self, tables: &str, handlers: &str) {
        let store = self.store.display();
        // A runner that is not needed any more exits soon.
        let idle = "[limits]\nrunner_idle_millis = \"300ms\"\n";
        let tables = match tables.contains("[limits]\n") {
            true => tables.replace("[limits]\n", idle),
            false => format!("{tables}\n{idle}"),
        };
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[storage]\npath = \"{store}\"\n\
             [sources.github]\nprovider = \"github\"\npath = \"/github\"\nsecrets = [\"file:secret\"]\n\
             [sources.stripe]\nprovider = \"stripe\"\npath = \"/stripe\"\nsecrets = [\"file:secret\"]\n\
             {tables}\n{handlers}\n"
        );
        self.write_config(text);
    }

    /// Replaces the configuration at once: a runner that starts meanwhile must not read half of it.
    pub(crate) fn write_config(&self, text: impl AsRef<[u8]>) {
        let new = self.path("hooklatch.toml.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.config()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The path of the database.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join(&self.store)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("hooklatch.toml")
    }

    /// Writes an executable shell script, in which `$SITE` is the site's folder.
    pub(crate) fn script(&self, name: &str, body: &str) {
        let site = self.folder.path().display();
        install(format!("#!/bin/sh\nSITE='{site}'\n{body}\n").as_bytes(), &self.path(name));
    }

    /// The lines that handlers appended to a file; empty if the file does not exist yet.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Starts the receiver and waits until it serves.
    pub(crate) fn start(&self) -> Receiver {
        self.start_with(&[])
    }

    /// Like [`Site::start`], with additional environment variables.
    pub(crate) fn start_with(&self, environment: &[(&str, &str)]) -> Receiver {
        self.try_start(environment)
            .unwrap_or_else(|log| panic!("the receiver does not serve: {log}"))
    }

    /// Like [`Site::start_with`]; an `Err` is the log of a receiver that ended before it served.
    pub(crate) fn try_start(&self, environment: &[(&str, &str)]) -> Result<Receiver, String> {
        let mut command = self.command(&["serve"]);
        command.envs(environment.iter().copied());
        Receiver::of(command)
    }

    /// A command of the binary on this site's configuration.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hooklatch"));
        command.args(args).stdin(Stdio::null());
        command.env("HOOKLATCH_CONFIG", self.config()).env("TZ", "UTC").env_remove("HOOKLATCH_LOG");
        command.env_remove("COLUMNS");
        // If a service manager runs the tests, these processes must not believe that they are its units.
        command.env_remove("INVOCATION_ID");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must succeed, and reads its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs a command that may have any exit code, and reads its JSON.
    pub(crate) fn json_of_any_exit(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Waits until the site's jobs satisfy `wanted`, and returns them.
    pub(crate) fn jobs_when(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let end = Instant::now() + PATIENCE;
        loop {
            // The store's limit `list_count` bounds the list.
            let jobs = self.json(&["jobs", "--limit", "100000"]);
            let jobs = jobs.as_array().unwrap();
            if wanted(jobs) {
                return jobs.clone();
            }
            assert!(Instant::now() < end, "gave up waiting; the jobs are {jobs:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until there are `count` jobs and all are in `state`.
    pub(crate) fn all_jobs(&self, count: usize, state: &str) -> Vec<Value> {
        self.jobs_when(|jobs| jobs.len() == count && jobs.iter().all(|job| job["state"] == state))
    }

    /// Waits until every job has succeeded or is held. Fails if no job finishes for [`PATIENCE`].
    pub(crate) fn until_settled(&self) {
        let (mut left, mut end) = (usize::MAX, Instant::now());
        while left > 0 {
            let jobs = self.json(&["jobs", "--limit", "100000"]);
            let under_way = |job: &&Value| job["state"] != "succeeded" && job["state"] != "held";
            let unsettled: Vec<_> = jobs.as_array().unwrap().iter().filter(under_way).collect();
            if unsettled.len() < left {
                (left, end) = (unsettled.len(), Instant::now() + PATIENCE);
            }
            assert!(Instant::now() < end, "no job finishes any more: {unsettled:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        runner::end_runner(&self.store());
    }
}

/// A receiver that serves. Dropping it kills the process.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) address: SocketAddr,
    lines: Mutex<mpsc::Receiver<String>>,
}

impl Receiver {
    /// Runs a `serve` command and waits until it serves; an `Err` is its log if it ends before that.
    pub(crate) fn of(mut command: Command) -> Result<Receiver, String> {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (log, lines) = mpsc::channel();
        let stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                let Ok(line) = line else { return };
                if std::env::var_os("HOOKLATCH_TEST_LOG").is_some() {
                    eprintln!("{line}");
                }
                let _ = log.send(line);
            }
        });
        let mut seen = String::new();
        let address = loop {
            let Ok(line) = lines.recv_timeout(PATIENCE) else {
                let _ = child.kill();
                let _ = child.wait();
                return Err(seen);
            };
            let fields: Value = serde_json::from_str(&line).unwrap_or_default();
            if fields["message"] == "serving" {
                break fields["address"].as_str().unwrap().parse().unwrap();
            }
            seen.push_str(&line);
            seen.push('\n');
        };
        Ok(Receiver { child, address, lines: Mutex::new(lines) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM, waits until the process has ended, and returns the exit code.
    pub(crate) fn stop(self) -> Option<i32> {
        self.terminate();
        self.ended()
    }

    /// Waits until the process has ended, and returns the exit code; `None` if a signal killed it.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Sends SIGTERM and does not wait.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Sends SIGHUP, which reloads the configuration.
    pub(crate) fn hang_up(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    /// Waits for a log line that satisfies `wanted`.
    pub(crate) fn log_when(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.lock().unwrap().recv_timeout(left);
            let line = line.expect("the log line did not come");
            let fields: Value = serde_json::from_str(&line).unwrap_or_default();
            if wanted(&fields) {
                return fields;
            }
        }
    }

    /// Delivers a signed GitHub event and returns the status and the JSON of the answer.
    pub(crate) fn github(&self, id: &str, event: &str, body: &str) -> (u16, Value) {
        github_at(self.address, id, event, body)
    }

    /// Delivers a signed Stripe event, stamped `age` seconds ago.
    pub(crate) fn stripe(&self, body: &str, age: i64) -> (u16, Value) {
        post(self.address, "/stripe", &stripe_header(body, age), body.as_bytes())
    }

    /// Whether the receiver reports that it accepts events.
    pub(crate) fn is_ready(&self) -> bool {
        self.readyz().0 == 200
    }

    /// The status and the JSON of `/readyz`.
    pub(crate) fn readyz(&self) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = b"GET /readyz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.get(9..12).unwrap();
        assert!(["200", "503"].contains(&status), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Delivers a signed GitHub event to `address` and returns the status and the JSON of the answer.
pub(crate) fn github_at(address: SocketAddr, id: &str, event: &str, body: &str) -> (u16, Value) {
    let signature = hex(&hmac(SECRET, body.as_bytes()));
    let headers = format!(
        "X-GitHub-Delivery: {id}\r\nX-GitHub-Event: {event}\r\nX-Hub-Signature-256: sha256={signature}\r\n"
    );
    post(address, "/github", &headers, body.as_bytes())
}

/// The header line that signs `body` as Stripe does, stamped `age` seconds ago.
pub(crate) fn stripe_header(body: &str, age: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let stamp = now.as_secs() as i64 - age;
    let signature = hex(&hmac(SECRET, format!("{stamp}.{body}").as_bytes()));
    format!("Stripe-Signature: t={stamp},v1={signature}\r\n")
}

/// The body of a Stripe event; `extra` is appended to its members.
pub(crate) fn stripe_event(id: &str, event_type: &str, extra: &str) -> String {
    format!(r#"{{"id":"{id}","object":"event","type":"{event_type}","data":{{}}{extra}}}"#)
}

/// Makes a file that can be executed. A process of its own writes it: a descriptor of this one would be inherited by what
/// another test starts just then, and while that has not executed its program, this one is "busy".
pub(crate) fn install(mut content: impl Read, to: &Path) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(to).stdin(Stdio::piped());
    let mut install = install.spawn().unwrap();
    std::io::copy(&mut content, &mut install.stdin.take().unwrap()).unwrap();
    assert!(install.wait().unwrap().success());
}

pub(crate) fn hmac(secret: impl AsRef<[u8]>, bytes: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_ref()).unwrap();
    mac.update(bytes);
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// Posts one request on a new connection; `headers` are whole lines.
pub(crate) fn post(address: SocketAddr, path: &str, headers: &str, body: &[u8]) -> (u16, Value) {
    try_post(address, path, headers, body).expect("no answer")
}

/// Like [`post`], for a receiver that may be killed at any moment.
pub(crate) fn try_post(
    address: SocketAddr,
    path: &str,
    headers: &str,
    body: &[u8],
) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.get(9..12).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("no status line"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((status, serde_json::from_str(body).unwrap_or_else(|_| facts(head))))
}

/// What the headers `Hooklatch-NAME` say happened, in the form of the JSON that the operator's own callers get.
fn facts(head: &str) -> Value {
    let fact = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        let name = name.to_lowercase().strip_prefix("hooklatch-")?.replace('-', "_");
        let number = ["events", "created", "replayed", "limit_bytes"].contains(&name.as_str());
        let value = if number { value.parse::<u64>().unwrap().into() } else { value.into() };
        Some((name, value))
    };
    let facts: serde_json::Map<String, Value> = head.lines().filter_map(fact).collect();
    if facts.is_empty() { Value::Null } else { facts.into() }
}

/// The resident memory of a process in bytes, without the pages of its program's file, which depend on the build.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status =
        fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
