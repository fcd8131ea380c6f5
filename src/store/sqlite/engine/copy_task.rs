//! The request for a copy, from the caller to the writer: its progress, and its result.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::ErrorCode;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::model::Timestamp;
use crate::store::border::Refused;

/// What a copy contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The store's identity.
    pub store: Uuid,
    /// When the copy began; it contains everything that was answered before.
    pub copied_at: Timestamp,
    /// The number of the last event that was ever stored.
    pub last_event: i64,
    /// The file's size.
    pub bytes: u64,
}

/// A whole copy in a file without a name: its space is free again when it is closed.
#[derive(Debug)]
pub struct StoreCopy {
    /// The file, at its beginning.
    pub file: File,
    /// What it contains.
    pub manifest: Manifest,
}

/// Why a copy was not made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// Another copy is being made.
    #[error("another backup is being made; try again when it is done")]
    Busy,
    /// The copy would leave less space than the floor.
    #[error("too little space for a copy beside the store: {0}")]
    NoSpace(String),
    /// A batch could not be committed, and that matters more.
    #[error(
        "the copy gave way to the store's own trouble: {0}; try again when `hooklatch status` is well"
    )]
    GaveWay(String),
    /// The store is no file.
    #[error("the store is on PostgreSQL; back it up with pg_dump or pg_basebackup on its server")]
    OnServer,
    /// The store accepts nothing now.
    #[error("the store is not available: {0}")]
    Refused(#[from] Refused),
    /// The system or SQLite failed.
    #[error("failed to copy the store: {0}")]
    Failed(String),
}

impl From<rusqlite::Error> for CopyError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => CopyError::NoSpace(error.to_string()),
            _ => CopyError::Failed(error.to_string()),
        }
    }
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull => CopyError::NoSpace(error.to_string()),
            _ => CopyError::Failed(error.to_string()),
        }
    }
}

/// A copy that is being made. Dropping it ends the copy.
#[derive(Debug)]
pub struct CopyInProgress {
    pub(crate) progress: Arc<CopyProgress>,
    pub(crate) answer: oneshot::Receiver<Result<StoreCopy, CopyError>>,
}

#[derive(Debug, Default)]
pub(crate) struct CopyProgress {
    pub(crate) done_bytes: AtomicU64,
    pub(crate) all_bytes: AtomicU64,
}

impl CopyInProgress {
    /// Bytes copied so far, and bytes to copy in all.
    pub fn progress(&self) -> (u64, u64) {
        let CopyProgress { done_bytes, all_bytes } = &*self.progress;
        (done_bytes.load(Ordering::Relaxed), all_bytes.load(Ordering::Relaxed))
    }

    /// Waits for the end. May be dropped and called again until then.
    pub async fn finished(&mut self) -> Result<StoreCopy, CopyError> {
        (&mut self.answer).await.unwrap_or(Err(CopyError::Refused(Refused::Stopping)))
    }
}

/// The writer's end of the request.
pub(crate) struct CopyTask {
    pub(crate) progress: Arc<CopyProgress>,
    pub(crate) answer: oneshot::Sender<Result<StoreCopy, CopyError>>,
}
