//! The measured product: the real program, with a store on the disk of the build.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use hooklatch::runner::folder;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

use super::requests::SECRET;

/// Both kinds of sources; each measurement adds its handlers and limits.
const CONFIGURATION: &str = r#"
[server]
listen = "127.0.0.1:0"
[storage]
path = "store.db"
[sources.github]
provider = "github"
path = "/github"
secrets = ["file:secret"]
[sources.stripe]
provider = "stripe"
path = "/stripe"
secrets = ["file:secret"]
"#;

/// A handler for all events, which [`Site::pause`] pauses.
pub(crate) const HANDLER: &str = r#"
[handlers.job]
source = "SOURCE"
events = ["*"]
command = ["/bin/true"]
concurrency = 4
"#;

/// The memory for a receiver's log, enough for most of a measurement.
const LOG_BYTES: u64 = 64 << 20;

/// The longest wait before the bench fails.
const PATIENCE: Duration = Duration::from_secs(600);

/// A folder with a configuration and a store. Dropping it deletes the folder.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    /// The log of the last receiver. It is in memory: on the store's disk, the kernel would write tens of
    /// megabytes of it at once, and a flush would wait for that. A service manager's log is not there either.
    log: Mutex<File>,
}

impl Site {
    /// Creates a site with `more` added to the configuration.
    pub(crate) fn new(more: &str) -> Self {
        // The build is on a disk; the system's folder for temporary files may be in memory.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let site = Site { folder, log: Mutex::new(memory()) };
        fs::write(site.path("hooklatch.toml"), format!("{CONFIGURATION}{more}")).unwrap();
        fs::write(site.path("secret"), SECRET).unwrap();
        fs::set_permissions(site.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("store.db")
    }

    /// The size of the store's log in bytes; 0 without one.
    pub(crate) fn log_bytes(&self) -> u64 {
        fs::metadata(self.path("store.db-wal")).map_or(0, |meta| meta.len())
    }

    pub(crate) fn start(&self) -> Receiver {
        self.start_by(&mut Command::new(env!("CARGO_BIN_EXE_hooklatch")))
    }

    /// Starts `program`, which is or executes hooklatch, with the arguments of a receiver.
    pub(crate) fn start_by(&self, program: &mut Command) -> Receiver {
        let log = memory();
        let mut child = program
            .args(["serve", "--config"])
            .arg(self.path("hooklatch.toml"))
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .spawn()
            .unwrap();
        *self.log.lock().unwrap() = log;
        let begun = Instant::now();
        let address = loop {
            if let Some(address) = self.address(r#""message":"serving""#) {
                break address;
            }
            let log = self.logged();
            assert_eq!(child.try_wait().unwrap(), None, "it ended: {log}");
            assert!(begun.elapsed() < PATIENCE, "it does not serve: {log}");
            std::thread::sleep(Duration::from_millis(1));
        };
        Receiver { child, address, store: self.store() }
    }

    /// The address in the log line with these words, when the line is complete.
    pub(crate) fn address(&self, words: &str) -> Option<SocketAddr> {
        let log = self.logged();
        let mut lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let line = lines.find(|line| line.contains(words))?;
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        Some(line["address"].as_str().unwrap().parse().unwrap())
    }

    fn logged(&self) -> String {
        let mut text = String::new();
        // A new descriptor: a duplicate would share the receiver's position in the file.
        let log = self.log.lock().unwrap();
        let mut reader = File::open(format!("/proc/self/fd/{}", log.as_raw_fd())).unwrap();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    /// Runs a command of the product, which must succeed, and returns its output.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_hooklatch"))
            .args(args)
            .arg("--config")
            .arg(self.path("hooklatch.toml"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Pauses the handler until [`Site::resume`].
    pub(crate) fn pause(&self) {
        self.run(&["pause", "job"]);
    }

    pub(crate) fn resume(&self) {
        self.run(&["resume", "job"]);
    }
}

/// A file in memory for a log. The bench touches its pages first, so that its control group is charged with
/// them and not the receiver's.
fn memory() -> File {
    let file = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, LOG_BYTES).unwrap();
    file.into()
}

/// A running receiver. Dropping it ends the receiver and its runner.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) address: SocketAddr,
    store: PathBuf,
}

impl Receiver {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process id of its runner, if one runs.
    pub(crate) fn runner(&self) -> Option<Pid> {
        let peer = UnixStream::connect(folder::socket(&folder::of(&self.store))).ok()?;
        Some(rustix::net::sockopt::socket_peercred(&peer).ok()?.pid)
    }

    /// Stops the receiver as a service manager does; it then writes the log into the database.
    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(runner) = self.runner() {
            let _ = kill_process(runner, Signal::KILL);
        }
    }
}

/// The resident memory of a process in KiB: now (`VmRSS`) or the peak (`VmHWM`).
pub(crate) fn memory_kib(process: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// The body of the answer to `GET path`.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}
