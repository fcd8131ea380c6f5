//! `hooklatch backup`: a checked copy of the store, of a running receiver's too.
//!
//! Must stay true: a file gets the given name only when it is whole, checked and flushed. No existing file is
//! touched, except the unfinished one of a backup that was killed.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::ProgressBar;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde_json::json;

use crate::admin::{BackupStage, StoreClient};
use crate::cli;
use crate::clock::Clock;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::store::{self as kept, BackupInfo, Manifest};

use super::output::{self, count, local, size, thousands};
use super::runtime::block_on;
use super::{owner, progress, store};

/// Makes the backup and says what is in it.
pub(super) fn run(args: &cli::Backup) -> Result<Exit, Failure> {
    let config = store::load(&args.options)?;
    store::need_file(&config)?;
    if fs::symlink_metadata(&args.to).is_ok() {
        return Err(exists(&args.to));
    }
    let begun = Instant::now();
    let bar = progress::bar(0, "{bytes}/{total_bytes}  {msg}");
    let (partial, manifest) = fetch(&config, &args.to, &bar)?;
    bar.set_message("checking the backup");
    let checked = check(&partial, &manifest)?;
    bar.finish_and_clear();
    partial.give_name()?;
    let json = json!({
        "file": args.to,
        "store": manifest.store,
        "made_at": manifest.copied_at,
        "bytes": manifest.bytes,
        "events": checked.events,
        "newest_event_at": checked.newest_event_at,
        "jobs": checked.jobs,
        "damaged": checked.damaged,
        "damaged_events": checked.damaged_events,
        "took_millis": u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    output::either(&args.options.format, &json, || print(&args.to, &manifest, &checked))
}

fn print(file: &Path, manifest: &Manifest, checked: &BackupInfo) -> Result<(), Failure> {
    let size = size(manifest.bytes);
    output::fact("backup", format!("{}, {size}, checked", file.display()))?;
    output::fact("store", manifest.store.simple())?;
    let made = local(manifest.copied_at);
    output::fact("made", format!("{made}: everything answered before is in it"))?;
    let newest = checked.newest_event_at.map(|at| format!(", the newest of {}", local(at)));
    let newest = newest.unwrap_or_default();
    output::fact("events", format!("{}{newest}", thousands(checked.events)))?;
    let jobs = checked.jobs.iter().map(|(state, jobs)| format!("{} {state}", thousands(*jobs)));
    let jobs = jobs.collect::<Vec<_>>().join(", ");
    output::fact("jobs", if jobs.is_empty() { "none" } else { &jobs })?;
    if checked.damaged > 0 {
        let payloads = count(checked.damaged, "payload");
        let events = checked.damaged_events.join(", ");
        output::fact("damaged", format!("{payloads}, of {events}: let them be sent again"))?;
    }
    Ok(())
}

/// Copies the store into the unfinished file. Root asks a running receiver as root, because root may write
/// anywhere; only the store's owner opens a stopped store.
fn fetch(config: &Config, to: &Path, bar: &ProgressBar) -> Result<(Partial, Manifest), Failure> {
    let settings = config.store();
    let of_receiver = block_on(StoreClient::of_receiver(&settings))?;
    let of_receiver = of_receiver?;
    let became = of_receiver.is_none() && owner::assume(&settings.path)?;
    let mut partial = Partial::make(to).map_err(|failure| match became {
        true => failure.help(
            "no receiver runs, so this is done as the store's owner, who must be able to write there",
        ),
        false => failure,
    })?;
    let manifest = block_on(async {
        let client = match of_receiver {
            Some(client) => client,
            None => StoreClient::open(&settings, None, Clock::system()).await?,
        };
        let show = |stage, done, all| {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(match stage {
                BackupStage::Copying => "copying the store",
                BackupStage::Fetching => "fetching the copy",
            });
        };
        let fetched = client.backup(&mut partial.file, show).await;
        client.close().await;
        Ok::<_, Failure>(fetched?)
    })??;
    partial.file.sync_all().map_err(|error| unwritten(&partial.path, &error))?;
    Ok((partial, manifest))
}

/// Checks that the file is the copy that was sent, and that SQLite finds it whole.
fn check(partial: &Partial, manifest: &Manifest) -> Result<BackupInfo, Failure> {
    let damaged = |why: &str| {
        Exit::Io
            .failure(format!("the backup is not good and was removed: {why}"))
            .help("check both disks; `hooklatch status` tells of the store")
    };
    let checked = kept::inspect(&partial.path).map_err(|error| damaged(&error.to_string()))?;
    let is_that = checked.store == manifest.store
        && checked.copied_at == Some(manifest.copied_at)
        && checked.last_event == manifest.last_event;
    match is_that {
        true => Ok(checked),
        false => Err(damaged("it is of another store, or of another moment")),
    }
}

/// The file while it is not finished: removed on drop.
struct Partial {
    file: File,
    path: PathBuf,
    target: PathBuf,
    named: bool,
}

impl Partial {
    /// Makes `FILE.partial`, or takes over that of a backup that was killed.
    fn make(target: &Path) -> Result<Self, Failure> {
        let mut name = target.as_os_str().to_owned();
        name.push(".partial");
        let path = PathBuf::from(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let (file, found) = match options.clone().create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (options.open(&path), true)
            }
            made => (made, false),
        };
        let file = file.map_err(|error| match fs::symlink_metadata(&path) {
            Ok(there) if !there.is_file() => foreign(&path),
            _ => unwritten(&path, &error),
        })?;
        let busy = || {
            let message = format!("another backup is writing {}", path.display());
            Exit::Unavailable.failure(message)
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy()),
            Err(TryLockError::Error(error)) => return Err(unwritten(&path, &error)),
        }
        // Between the two looks another backup may have finished with this very file.
        let is_it = fs::metadata(&path)
            .and_then(|there| Ok(there.ino() == file.metadata()?.ino()))
            .unwrap_or(false);
        if !is_it {
            return Err(busy());
        }
        // Another owner could read the payloads, and a second name may be that of a finished backup.
        let there = file.metadata().map_err(|error| unwritten(&path, &error))?;
        let is_ours = there.is_file() && there.nlink() == 1 && there.uid() == geteuid().as_raw();
        if found && !is_ours {
            return Err(foreign(&path));
        }
        file.set_permissions(Permissions::from_mode(0o600))
            .and_then(|()| file.set_len(0))
            .map_err(|error| unwritten(&path, &error))?;
        Ok(Partial { file, path, target: target.to_owned(), named: false })
    }

    /// Gives it the name that was asked for, where nothing has that.
    fn give_name(mut self) -> Result<(), Failure> {
        kept::give_name(&self.path, &self.target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&self.target),
            _ => unwritten(&self.target, &error),
        })?;
        self.named = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.named {
            // The failure that led here is reported.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn exists(path: &Path) -> Failure {
    Exit::Io
        .failure(format!("{} exists, and a backup replaces nothing", path.display()))
        .help("name a new file")
}

/// `FILE.partial` is not an unfinished backup of this user.
fn foreign(path: &Path) -> Failure {
    let message = format!("{} is not an unfinished backup of this user's", path.display());
    Exit::Io.failure(message).help("remove it, or name another file")
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Exit::Io.failure(format!("failed to write {}: {error}", path.display()))
}
