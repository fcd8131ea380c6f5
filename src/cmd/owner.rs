//! Root becomes the store's owner, so that nothing it leaves in the store's folder is root's and shuts
//! the receiver out.
//!
//! For every command that may open a stopped store, before the first of its files is touched and before
//! there is another thread. There is no way back, and none is needed: the owner may do all that a
//! command does.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setgroups, setuid};

use crate::exit::{Exit, Failure};

/// Run as root, gives it up for the owner of the database, or of its folder where there is none yet.
/// True where the process is somebody else now.
pub(super) fn assume(database: &Path) -> Result<bool, Failure> {
    if !Uid::effective().is_root() {
        return Ok(false);
    }
    // Without one nothing will be opened, and the command says so.
    let Some(owner) = owner(database) else { return Ok(false) };
    let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
    if uid.is_root() {
        return Ok(false);
    }
    switch(uid, gid).map(|()| true).map_err(|error| {
        let message = format!("failed to become user {uid}, who owns the store: {error}");
        Failure::new(Exit::Unavailable, message)
            .help(format!("run this command as that user: {}", database.display()))
    })
}

fn owner(database: &Path) -> Option<fs::Metadata> {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::metadata(database).or_else(|_| fs::metadata(folder.unwrap_or(Path::new(".")))).ok()
}

/// What to say where [`is_root_alone`], or a runner is root, and there are commands to run.
pub(super) const AS_ROOT: &str = "handlers run as root: the store belongs to root";

/// What to do about it.
pub(super) const NOT_AS_ROOT: &str =
    "give the store's folder to a user without rights (chown -R USER FOLDER): README, Install";

/// Whether this process is root, and [`assume`] leaves it so.
pub(super) fn is_root_alone(database: &Path) -> bool {
    Uid::effective().is_root() && owner(database).is_some_and(|owner| owner.uid() == 0)
}

/// Executes this program again as whom it has become, without root's home in its environment: commands
/// would be run in there. Returns only where that fails.
pub(super) fn begin_again() -> Failure {
    let failed = |error| {
        Failure::new(Exit::Io, format!("failed to begin again as the store's owner: {error}"))
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
