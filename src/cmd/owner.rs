//! Root becomes the store's owner, so that no file of root's stays in the store's folder and locks the receiver
//! out. It does not follow links that another user can place.
//!
//! Every command that may open a stopped store calls this before it touches the first of its files, and while the
//! process has one thread. The process cannot become root again, and need not: the owner may do all that a
//! command does.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setgroups, setuid};

use crate::exit::{Exit, Failure};

use super::input::unread;

/// If this process is root, it becomes the owner of the store. True if it has changed its user.
pub(super) fn assume(database: &Path) -> Result<bool, Failure> {
    if !Uid::effective().is_root() {
        return Ok(false);
    }
    let Some((uid, gid)) = of(database)? else { return Ok(false) };
    switch(uid, gid).map(|()| true).map_err(|error| {
        let message = format!("failed to become user {uid}, who owns the store: {error}");
        Exit::Unavailable
            .failure(message)
            .help(format!("run this command as that user: {}", database.display()))
    })
}

/// The warning where [`is_root_alone`], or where a runner is root, if commands are configured.
pub(super) const AS_ROOT: &str = "handlers run as root: the store belongs to root";

/// The fix for [`AS_ROOT`].
pub(super) const NOT_AS_ROOT: &str =
    "give the store's folder to a user without rights: chown -R USER FOLDER";

/// Whether this process is root, and [`assume`] leaves it so. Not where the store's folder is missing.
pub(super) fn is_root_alone(database: &Path) -> bool {
    let folder = std::path::absolute(database).ok();
    let is_there = folder.as_deref().and_then(Path::parent).is_some_and(Path::is_dir);
    Uid::effective().is_root() && is_there && matches!(of(database), Ok(None))
}

/// The owner of the database's folder or, if that is root, of the database. `None` if both are root's or missing.
pub(super) fn of(database: &Path) -> Result<Option<(Uid, Gid)>, Failure> {
    let (real, links) = resolve(database).map_err(|error| unread(database, &error))?;
    let found = [real.parent().unwrap_or(&real), &real].map(|path| fs::symlink_metadata(path).ok());
    let owner = found.iter().flatten().find(|found| found.uid() != 0);
    refuse_foreign(&links, owner.map_or(0, MetadataExt::uid))?;
    Ok(owner.map(|owner| (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()))))
}

/// Opens a file for reading. Root refuses a file that another user has placed a link to.
pub(super) fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| unread(path, &error))?;
    if Uid::effective().is_root() {
        let (real, links) = resolve(path).map_err(|error| unread(path, &error))?;
        let (opened, named) = (file.metadata(), fs::symlink_metadata(real));
        let (Ok(opened), Ok(named)) = (opened, named) else {
            return Err(unread(path, &io::ErrorKind::NotFound.into()));
        };
        refuse_foreign(&links, opened.uid())?;
        // Exchanged between the two looks: the links are not those that were followed.
        if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
            return Err(unread(path, &io::ErrorKind::ResourceBusy.into()));
        }
    }
    Ok(file)
}

/// Where a path leads, and each link on the way with its owner. Also where the file is not there.
fn resolve(path: &Path) -> io::Result<(PathBuf, Vec<(PathBuf, u32)>)> {
    // The kernel follows 40 links at most (path_resolution(7)).
    const LINKS: usize = 40;
    let steps = |path: &Path| -> Vec<PathBuf> {
        path.components().rev().map(|step| PathBuf::from(step.as_os_str())).collect()
    };
    let (mut real, mut links) = (PathBuf::new(), Vec::new());
    let mut left = steps(&std::path::absolute(path)?);
    while let Some(step) = left.pop() {
        if step == Path::new("..") {
            real.pop();
            continue;
        }
        real.push(step);
        let Ok(target) = fs::read_link(&real) else { continue };
        links.push((real.clone(), fs::symlink_metadata(&real)?.uid()));
        if links.len() > LINKS {
            return Err(Errno::ELOOP.into());
        }
        real.pop();
        left.extend(steps(&target));
    }
    Ok((real, links))
}

/// Refuses, as root, links of other users than root and the owner of what they lead to.
fn refuse_foreign(links: &[(PathBuf, u32)], owner: u32) -> Result<(), Failure> {
    let foreign = links.iter().find(|(_, by)| *by != 0 && *by != owner);
    let Some((link, by)) = foreign.filter(|_| Uid::effective().is_root()) else { return Ok(()) };
    let message = format!(
        "{} is a link of user {by} to what user {owner} owns: root does not follow it",
        link.display()
    );
    Err(Exit::Unavailable
        .failure(message)
        .help("name the file that it leads to, or run this command as that user"))
}

/// Executes this program again as its new user, without root's home in the environment, in which commands would
/// run. Returns only on failure.
pub(super) fn execute_again() -> Failure {
    let failed = |error: io::Error| {
        Failure::io("execute this program again as the store's owner")(error)
            .help("run this command as that user, who must be able to execute this program")
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(error),
    };
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    for of_root in ["HOME", "USER", "LOGNAME", "SHELL"] {
        command.env_remove(of_root);
    }
    failed(command.exec())
}

/// Groups first: without root's rights they could not be given up.
fn switch(uid: Uid, gid: Gid) -> Result<(), Errno> {
    // A user without an entry has the groups of its file, and no other.
    let gid = match User::from_uid(uid)? {
        Some(user) => {
            let name = CString::new(user.name).map_err(|_| Errno::EINVAL)?;
            initgroups(&name, user.gid)?;
            user.gid
        }
        None => {
            setgroups(&[gid])?;
            gid
        }
    };
    setgid(gid)?;
    setuid(uid)
}
