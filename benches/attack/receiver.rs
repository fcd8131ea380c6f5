//! The attacked receiver: the real program with a separate folder; measures its cost.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The path of its only source.
pub(crate) const PATH: &str = "/github";

pub(crate) const SECRET: &str = "a secret for tests only";

const CONFIGURATION: &str = r#"
[server]
listen = "127.0.0.1:0"
[storage]
path = "store.db"
[sources.github]
provider = "github"
path = "/github"
secrets = ["file:secret"]
"#;

/// How often its open files are counted.
const LOOK: Duration = Duration::from_millis(500);

/// A clock tick of `/proc`: a hundredth of a second on every Linux (`getconf CLK_TCK`).
const TICK_MILLIS: f64 = 10.0;

/// A running receiver with an empty store. Dropping it ends the process.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("hooklatch.toml"), CONFIGURATION).unwrap();
        fs::write(path("secret"), SECRET).unwrap();
        fs::set_permissions(path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let log = File::create(path("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_hooklatch"))
            .args(["serve", "--config"])
            .arg(path("hooklatch.toml"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let address = loop {
            let log = fs::read_to_string(path("log")).unwrap();
            let serving = log.lines().find(|line| line.contains(r#""message":"serving""#));
            if let Some(line) = serving {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                break line["address"].as_str().unwrap().parse().unwrap();
            }
            assert_eq!(child.try_wait().unwrap(), None, "it ended: {log}");
            std::thread::sleep(Duration::from_millis(10));
        };
        Receiver { child, address, folder }
    }

    /// The program with this receiver's configuration.
    pub(crate) fn command(&self, word: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hooklatch"));
        command.arg(word).arg("--config").arg(self.folder.path().join("hooklatch.toml"));
        command
    }

    pub(crate) fn reading_socket(&self) -> PathBuf {
        hooklatch::admin::reading_socket_path(&self.folder.path().join("store.db"))
    }

    /// The peak resident memory since the last call, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let process = self.child.id();
        let peak = kib(process, "VmHWM:");
        // The number that begins a new peak (proc_pid_clear_refs(5)).
        fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
        peak
    }

    /// The resident memory now, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        kib(self.child.id(), "VmRSS:")
    }

    /// Begins to measure the receiver's cost.
    pub(crate) fn watch(&self) -> Watched {
        let process = self.child.id();
        let (start, ticks) = (Instant::now(), ticks(process));
        let end = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            let mut files = 0;
            while !ending.load(Ordering::Relaxed) {
                files = files.max(fs::read_dir(format!("/proc/{process}/fd")).unwrap().count());
                std::thread::park_timeout(LOOK);
            }
            let cpu_millis = (self::ticks(process) - ticks) * TICK_MILLIS;
            let cpu_percent = cpu_millis / start.elapsed().as_millis() as f64 * 100.0;
            Cost { peak_kib: kib(process, "VmHWM:"), files, cpu_percent }
        });
        Watched { end, thread }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A measurement of a receiver.
pub(crate) struct Watched {
    end: Arc<AtomicBool>,
    thread: JoinHandle<Cost>,
}

impl Watched {
    pub(crate) fn stop(self) -> Cost {
        self.end.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap()
    }
}

/// The cost of a receiver.
pub(crate) struct Cost {
    /// The peak resident memory since its start.
    pub(crate) peak_kib: u64,
    /// The most open files during the measurement.
    pub(crate) files: usize,
    /// The CPU time as a share of one core.
    pub(crate) cpu_percent: f64,
}

fn kib(process: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// User and system time of a process so far.
fn ticks(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The process name, in brackets, may contain any characters.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    [11, 12].iter().map(|&at: &usize| fields[at].parse::<f64>().unwrap()).sum()
}
