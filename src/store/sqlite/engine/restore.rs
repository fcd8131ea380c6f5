//! RESTORE: a backup becomes the store, under a new identity, with every unfinished job held.
//!
//! A backup does not know what happened after it was made: events were answered, jobs ran. So no job starts by
//! itself, and the gap is recorded. What must stay true: the lock is held from before the first look to the end; the
//! backup itself is never changed; one rename decides, whenever a process is killed: before it the store is the old
//! one, after it the complete new file under `PATH.restored` is the store, and the next process that opens the store
//! finishes the restore. Nothing of the old store is deleted.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytesize::ByteSize;
use uuid::Uuid;

use crate::clock::Clock;
use crate::crash;
use crate::model::Timestamp;
use crate::store::border::{RestoredRow, Settings};
use crate::store::node::durable;
use crate::store::node::lock::StoreLock;
use crate::store::node::open_error::OpenError;
use crate::store::node::path::{MARK, beside, real};
use crate::store::node::space::Space;

use super::connection::{close, connect_alone};
use super::hold_all::hold_all;
use super::inspect::{BackupInfo, InspectError, inspect_copy};
use super::{copy, schema};

/// The suffixes of the new store: while it is made, and once it is complete.
const RESTORING: &str = ".restoring";
const RESTORED: &str = ".restored";

/// What a restore came to.
#[derive(Debug)]
pub struct RestoreResult {
    /// The store's new identity.
    pub store: Uuid,
    /// The gap.
    pub row: RestoredRow,
    pub backup: BackupInfo,
    /// Where the old store lies now, where there was one.
    pub aside: Option<PathBuf>,
}

/// Why nothing was restored. The store is as it was, but where it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It may be wanted.
    #[error("there is a store at {path}: --replace moves it aside, and deletes nothing of it")]
    Exists { path: PathBuf },
    /// The file is not a backup.
    #[error(transparent)]
    Backup(#[from] InspectError),
    /// It does not fit.
    #[error("too little space for the backup beside {path}: {} are needed, {} are free", ByteSize(*needed), ByteSize(*free))]
    NoSpace {
        path: PathBuf,
        /// Bytes of the backup and the floor.
        needed: u64,
        free: u64,
    },
    /// The place of the store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The new store is made and has not got its place yet.
    #[error(
        "the restore of {path} is made and could not be ended: {detail}; the next process that opens the store, as `hooklatch serve`, ends it"
    )]
    NotEnded { path: PathBuf, detail: String },
}

/// Makes the backup in `file` the store of `settings`; errors name it by `name`. Blocking. The caller has asked
/// [`refuse_log`](super::inspect::refuse_log), as a user who can see the file's folder.
///
/// # Errors
/// As above; the store is then as it was, or the next to open it finds the new one.
pub fn restore(
    settings: &Settings,
    name: &Path,
    file: &mut File,
    replace: bool,
    clock: &Clock,
) -> Result<RestoreResult, RestoreError> {
    let path = &real(&settings.path);
    if path.is_dir() {
        return Err(OpenError::IsDirectory { path: path.clone() }.into());
    }
    let io = |error: io::Error| RestoreError::Store(OpenError::from_io(path, path, &error));
    let _lock = StoreLock::take(path, clock.now())?;
    finish(path).map_err(io)?;
    remove_leftover(path).map_err(io)?;
    copy::remove_leftover(path);
    if path.exists() && !replace {
        return Err(RestoreError::Exists { path: path.clone() });
    }
    let restoring = beside(path, RESTORING);
    let made = make(settings, (name, file), path, &restoring, clock.now());
    if made.is_err() {
        // The first error is the one that matters.
        let _ = remove_leftover(path);
    }
    let (store, row, backup) = made?;
    // From here on the new store is the store.
    fs::rename(&restoring, beside(path, RESTORED)).map_err(io)?;
    let ended = durable::sync_folder(path).and_then(|()| {
        crash::point("restore.decided");
        finish(path)
    });
    let aside = ended.map_err(|error| RestoreError::NotEnded {
        path: path.clone(),
        detail: error.to_string(),
    })?;
    Ok(RestoreResult { store, row, backup, aside })
}

/// Whether there is a store at `path`, or one that only waits for its place.
pub fn is_there(path: &Path) -> bool {
    path.exists() || beside(&real(path), RESTORED).exists()
}

/// Removes what a restore that was killed before it decided has left: as large as the backup. The caller
/// holds the lock.
pub(crate) fn remove_leftover(path: &Path) -> io::Result<()> {
    durable::remove_database(&beside(path, RESTORING))
}

/// Finishes a restore that has decided: the old store goes aside, the new one gets its place. Returns where
/// the old one is, where there was one. The caller holds the lock, and nothing of the store is open.
pub(crate) fn finish(path: &Path) -> io::Result<Option<PathBuf>> {
    let ready = beside(path, RESTORED);
    let made = match fs::symlink_metadata(&ready) {
        Ok(made) => made,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // Killed between the two steps by which some file systems give a name.
    if path.exists() && durable::is_same(&ready, path)? {
        durable::remove(&ready)?;
        durable::sync_folder(path)?;
        return Ok(None);
    }
    // Named by the new file's own time, so that a process that goes on after a kill chooses the same name.
    let aside = beside(path, &format!(".replaced-{}", stamp(&made)));
    let mut is_aside = None;
    if path.exists() {
        durable::give_name(path, &aside)?;
        is_aside = Some(aside.clone());
    }
    crash::point("restore.aside");
    // Neither the old log nor an old journal may meet the new database: SQLite would write it with them. A
    // journal is left by a process that was killed before it turned the log on. After an orderly stop both are
    // empty; the log's index can be made again.
    for suffix in ["-wal", "-journal"] {
        let log = beside(path, suffix);
        match fs::metadata(&log) {
            Ok(log_of) if log_of.len() > 0 => durable::give_name(&log, &beside(&aside, suffix))?,
            _ => durable::remove(&log)?,
        }
    }
    durable::remove(&beside(path, "-shm"))?;
    durable::remove(&beside(path, MARK))?;
    crash::point("restore.log.aside");
    durable::give_name(&ready, path)?;
    crash::point("restore.named");
    tracing::info!(store = %path.display(), "restored the store from a backup");
    Ok(is_aside)
}

/// When a file was last changed, fit for a file name: 20260131T235959.123Z.
fn stamp(file: &fs::Metadata) -> String {
    let millis = file.mtime().saturating_mul(1000).saturating_add(file.mtime_nsec() / 1_000_000);
    let time = Timestamp(millis).to_string();
    time.chars().filter(|c| !matches!(c, '-' | ':')).collect()
}

/// Makes the new store, complete and flushed, under its first name.
fn make(
    settings: &Settings,
    (name, file): (&Path, &mut File),
    path: &Path,
    restoring: &Path,
    now: Timestamp,
) -> Result<(Uuid, RestoredRow, BackupInfo), RestoreError> {
    let io = |error: io::Error| RestoreError::Store(OpenError::from_io(path, restoring, &error));
    let sql = |error| RestoreError::Store(OpenError::from_sql(restoring, error));
    let floor = settings.limits.disk_floor_bytes;
    let free = Space::new(path, &settings.limits).free_bytes().unwrap_or(u64::MAX);
    let changed_at = file.metadata().and_then(|file| file.modified()).map_err(io)?;
    match durable::copy(file, restoring, free.saturating_sub(floor)) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::StorageFull => {
            let needed = file.metadata().map_err(io)?.len().saturating_add(floor);
            return Err(RestoreError::NoSpace { path: path.to_owned(), needed, free });
        }
        Err(error) => return Err(io(error)),
    }
    crash::point("restore.copied");
    // The copy and not the file, which may change while it is read.
    let backup = inspect_copy(restoring, name)?;
    let mut conn = connect_alone(restoring).map_err(sql)?;
    schema::check(&conn, path)?;
    schema::migrate(&mut conn, restoring, now)?;
    let from_store = backup.store;
    let made_at = made_at(&backup, changed_at, now);
    let gap = RestoredRow { from_store, made_at, restored_at: now, held: 0, lost: 0 };
    let changed = hold_all(&mut conn, gap).and_then(|row| Ok((schema::store_id(&conn)?, row)));
    close(conn);
    let (store, row) = changed.map_err(sql)?;
    File::open(restoring).and_then(|file| file.sync_all()).map_err(io)?;
    crash::point("restore.changed");
    Ok((store, row, backup))
}

/// The time since when the backup knows nothing. A copy that no backup made has only its file's time; an event in it
/// shows that it is not older.
fn made_at(backup: &BackupInfo, changed_at: SystemTime, now: Timestamp) -> Timestamp {
    let changed_at = changed_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed_at = Timestamp(i64::try_from(changed_at.as_millis()).unwrap_or(i64::MAX));
    let told = backup.copied_at.unwrap_or(changed_at);
    told.max(backup.newest_event_at.unwrap_or(told)).min(now)
}
