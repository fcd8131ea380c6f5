//! What the checks look at: the configuration, and the running receiver and runners of its store, which are
//! found by the locks that they hold for life.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::admin::{Client, GetStatus, ListListeners, Operation, ReceiverStatus, socket_path};
use crate::config::Config;
use crate::model::RunnerName;
use crate::runner::folder;
use crate::store::{Settings, Stall};

use super::super::runtime::block_on;

/// The parent of the runtime folders of the packaged runner units, one folder for each runner.
const UNIT_RUNNERS: &str = "/run/hooklatch-runner";

/// The input of the checks: the configuration and the processes of its store.
pub(super) struct Machine<'a> {
    /// The path of the configuration.
    pub(super) path: &'a Path,
    pub(super) config: &'a Config,
    pub(super) receiver: Option<Process>,
    pub(super) runners: BTreeMap<RunnerName, Process>,
    /// The addresses at which the receiver accepts deliveries; empty if it does not answer this user.
    pub(super) listening: Vec<SocketAddr>,
    /// The receiver's own report; `None` if it does not answer this user.
    pub(super) status: Option<ReceiverStatus>,
    /// What stands still in it.
    pub(super) stalls: Vec<Stall>,
    /// What the database's server has warned it of.
    pub(super) warning: Option<String>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(path: &'a Path, config: &'a Config) -> Self {
        let store = config.store();
        let receiver = holder(&store.path.with_added_extension("lock"));
        let of_units = fs::read_dir(UNIT_RUNNERS).into_iter().flatten().flatten();
        let of_units = of_units.filter_map(|entry| {
            let name = entry.file_name().to_str()?.parse().ok()?;
            Some((name, entry.path()))
        });
        let own = (RunnerName::default(), folder::of(&store.path));
        let runners = iter::once(own)
            .chain(of_units)
            .filter_map(|(name, folder)| Some((name, holder(&folder.join("lock"))?)))
            .collect();
        let status = ask(&store, GetStatus { sources: Vec::new() });
        let (status, stalls, kept) = match status {
            Some(status) => (status.receiver, status.stalls, status.store),
            None => (None, Vec::new(), None),
        };
        let warning = kept.and_then(|kept| kept.server_warning);
        let listening = ask(&store, ListListeners {}).map(|list| list.addresses);
        let listening = listening.unwrap_or_default();
        Machine { path, config, receiver, runners, listening, status, stalls, warning }
    }
}

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

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
