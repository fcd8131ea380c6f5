//! Finds the running receiver and runners of this store by the locks that they hold for life, and checks
//! their versions, limits and control groups.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::admin::{Client, GetStatus, ListListeners, Operation, ReceiverStatus, socket_path};
use crate::config::Config;
use crate::handler::runner_client::RunnerStatus;
use crate::model::RunnerName;
use crate::runner::folder;
use crate::store::Settings;

use super::super::runtime::block_on;
use super::{Finding, Machine};

/// The parent of the runtime folders of the packaged runner units, one folder for each runner.
const UNIT_RUNNERS: &str = "/run/hooklatch-runner";

/// The hard limit on open files in the packaged unit; the receiver raises its soft limit to it. Each
/// connection takes one, and a flood of slow connections takes thousands.
const OPEN_FILES: u64 = 65_536;

/// A running receiver or runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// The effective user id.
    pub(super) uid: u32,
    /// The path of its control group; `None` if the kernel does not report one.
    pub(super) group: Option<String>,
}

impl Process {
    /// The service unit that its control group belongs to, if any.
    pub(super) fn unit(&self) -> Option<&str> {
        let last = self.group.as_deref()?.rsplit('/').next()?;
        last.ends_with(".service").then_some(last)
    }
}

/// The processes of the configured store.
#[derive(Debug, Default)]
pub(super) struct Running {
    pub(super) receiver: Option<Process>,
    pub(super) runners: BTreeMap<RunnerName, Process>,
    /// The addresses at which the receiver accepts deliveries; empty if it does not answer this user.
    pub(super) listening: Vec<SocketAddr>,
    /// The receiver's own report; `None` if it does not answer this user.
    status: Option<ReceiverStatus>,
}

/// Finds the processes of the configured store.
pub(super) fn find(config: &Config) -> Running {
    let store = config.store();
    let receiver = holder(&store.path.with_added_extension("lock"));
    let of_units = fs::read_dir(UNIT_RUNNERS).into_iter().flatten().flatten();
    let of_units = of_units.filter_map(|entry| {
        let name = entry.file_name().to_str()?.parse().ok()?;
        Some((name, entry.path()))
    });
    let folders = [(RunnerName::default(), folder::of(&store.path))].into_iter().chain(of_units);
    let runners =
        folders.filter_map(|(name, folder)| Some((name, holder(&folder.join("lock"))?))).collect();
    let status = ask(&store, GetStatus { sources: Vec::new() }).and_then(|status| status.receiver);
    let listening = ask(&store, ListListeners {}).map(|list| list.addresses).unwrap_or_default();
    Running { receiver, runners, listening, status }
}

/// The reply of the receiver; `None` where none runs, or it does not answer this user.
fn ask<O: Operation>(store: &Settings, request: O) -> Option<O::Reply> {
    let asked = async {
        let client = Client::connect(&socket_path(&store.path)).await.ok()?;
        client.call(&request).await.ok()
    };
    block_on(asked).ok()?
}

/// The receiver or runner that holds the lock on `file`. `/proc/locks` (proc(5)) has a line for every
/// lock of the machine, with the file's inode number and the holder's process id.
fn holder(file: &Path) -> Option<Process> {
    let inode = fs::metadata(file).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, pid, place) = (words.next()?, words.nth(2)?, words.next()?);
        let locked: u64 = place.rsplit(':').next()?.parse().ok()?;
        if kind != "FLOCK" || locked != inode {
            return None;
        }
        process(pid.parse().ok()?)
    })
}

fn process(pid: u32) -> Option<Process> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    // The lock may be on a file of another file system with the same inode number, so the holder must be
    // this program. A downloaded binary may have any name, so this process's own name counts too.
    let name = fs::read_to_string(proc.join("comm")).ok()?;
    let ours = fs::read_to_string("/proc/self/comm").ok()?;
    let status = fs::read_to_string(proc.join("status")).ok()?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // The line has the real, effective, saved and file system user id.
    let uid = uids.split_whitespace().nth(1)?.parse().ok()?;
    let groups = fs::read_to_string(proc.join("cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let group = group.map(str::to_owned);
    (name == ours || name == "hooklatch\n").then_some(Process { pid, uid, group })
}

pub(super) fn receiver(machine: &Machine<'_>) -> Vec<Finding> {
    let Running { receiver, status, .. } = &machine.running;
    let Some(Process { pid, .. }) = receiver else {
        return vec![Finding::unknown("none runs: what only a running one shows was not checked")];
    };
    let ours = env!("CARGO_PKG_VERSION");
    vec![match status.as_ref().map(|status| &status.version) {
        None => {
            Finding::unknown(format!("pid {pid}, which does not answer this user (run as root)"))
        }
        Some(version) if version != ours => Finding::unwise(
            format!("pid {pid} is version {version}, this command {ours}"),
            "systemctl restart hooklatch.service",
        ),
        Some(_) => Finding::ok(format!("pid {pid}, version {ours}")),
    }]
}

pub(super) fn runners(machine: &Machine<'_>) -> Vec<Finding> {
    let views = machine.running.status.iter().flat_map(|status| &status.runners);
    views.map(runner).collect()
}

fn runner(view: &RunnerStatus) -> Finding {
    let (name, unit) = (&view.name, view.name.unit());
    if view.connected {
        return Finding::ok(format!("{name}: connected, {} running", view.running));
    }
    let why = view.why.as_deref().unwrap_or("not connected yet");
    let socket = unit.replace(".service", ".socket");
    let fix = format!("systemctl start {socket} {unit}");
    Finding::bad(format!("{name}: no command can run: {why}"), fix)
}

pub(super) fn control_groups(machine: &Machine<'_>) -> Vec<Finding> {
    let Running { receiver, runners, .. } = &machine.running;
    let Some(receiver) = receiver else { return Vec::new() };
    let together = runners.values().filter_map(|runner| together(receiver, runner));
    let mut findings: Vec<_> = together.collect();
    if findings.is_empty() && !runners.is_empty() {
        findings.push(Finding::ok("a stop of the receiver ends no runner"));
    }
    findings
}

/// Reports a receiver and a runner in one unit: stopping a service ends its whole control group
/// (systemd.kill(5)), including the runner with every command.
fn together(receiver: &Process, runner: &Process) -> Option<Finding> {
    let unit = receiver.unit().filter(|_| receiver.group == runner.group)?;
    let seen = format!("{unit} holds receiver and runner: its stop ends every running command");
    let fix = "run `hooklatch runner` as a unit of its own: hooklatch-runner.service";
    Some(Finding::bad(seen, fix))
}

pub(super) fn open_files(machine: &Machine<'_>) -> Vec<Finding> {
    let Some(receiver) = &machine.running.receiver else { return Vec::new() };
    let limits = fs::read_to_string(format!("/proc/{}/limits", receiver.pid));
    let soft = limits.ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    vec![match soft {
        None => Finding::unknown("the receiver's limit cannot be read (run as root)"),
        Some(soft) if soft < OPEN_FILES => Finding::unwise(
            format!("{soft} at most: a slow flood of connections could shut every client out"),
            format!("LimitNOFILE={OPEN_FILES} in the receiver's unit, or ulimit -Hn {OPEN_FILES}"),
        ),
        Some(soft) => Finding::ok(format!("{soft} at most")),
    }]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::super::Verdict;
    use super::*;

    fn process(group: &str) -> Process {
        Process { pid: 1, uid: 0, group: Some(group.to_owned()) }
    }

    #[test]
    fn receiver_and_runner_in_one_service_is_bad() {
        let one = "/system.slice/web.service";
        let found = together(&process(one), &process(one)).unwrap();
        assert_eq!(found.verdict, Verdict::Bad);
        assert!(found.seen.contains("web.service"), "{}", found.seen);
        assert_eq!(together(&process(one), &process("/system.slice/run.service")), None);
        let session = "/user.slice/session-1.scope";
        assert_eq!(together(&process(session), &process(session)), None);
    }

    #[test]
    fn a_lock_held_by_another_program_is_not_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let file = fs::File::create(&path).unwrap();
        file.lock().unwrap();
        assert_eq!(holder(&path).unwrap().pid, std::process::id());
        drop(file);
        let mut other = Command::new("flock");
        other.arg(&path).args(["sh", "-c", "echo; read -r line"]);
        let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        other.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        assert_eq!(holder(&path), None);
        drop(other.stdin.take());
        other.wait().unwrap();
        assert_eq!(holder(&folder.path().join("missing")), None);
    }
}
