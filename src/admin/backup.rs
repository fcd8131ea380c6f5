//! A backup over the API: the copy goes to the caller, who may write where the receiver may not.
//!
//! The answer is lines of JSON, then the file, then one more line: how far the copy is, repeatedly;
//! what it contains; its bytes as they are; and their digest. A caller that does not get the last line,
//! or computes another digest, has no backup. When the caller is gone, the copy is deleted.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::client::CallError;
use super::failure::{ApiProblem, Failure};
use super::operation::{Context, Effect};
use super::stream::{ReaderGone, Sender, StreamOperation, StreamReader};
use crate::panics::contain;
use crate::store::{CopyInProgress, Manifest, StoreCopy};

/// The pause between two reports of progress: often enough for a bar, and to notice a caller that left.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Bytes that are read and sent at once.
const PIECE_BYTES: usize = 256 * 1024;

/// A copy of the store, while the receiver goes on writing: lines of JSON, the file, and a last line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetBackup {}

/// A line of a backup, in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackupLine {
    /// The receiver copies; any number of them.
    Copying {
        /// The bytes that are copied so far.
        done_bytes: u64,
        /// The bytes of the whole copy, as of now.
        all_bytes: u64,
    },
    /// The copy is made, and its bytes follow this line.
    Made(Manifest),
    /// The end, behind the bytes.
    Sent {
        /// The digest of all bytes, in hex.
        sha256: String,
    },
    /// The copy failed: the only line after those of its progress.
    Failed(ApiProblem),
}

/// Where a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupStage {
    /// The store is copied.
    Copying,
    /// The copy is fetched.
    Fetching,
}

impl StreamOperation for GetBackup {
    const PATH: &'static str = "/v1/backup";
    // It takes disk space, and holds every payload.
    const EFFECT: Effect = Effect::Changes;
    const CONTENT_TYPE: &'static str = "application/octet-stream";

    async fn send(
        self,
        context: &Context,
        to: Sender,
    ) -> Result<impl Future<Output = Result<(), ReaderGone>> + Send + 'static, Failure> {
        let copying = context.store.copy().map_err(Failure::unavailable)?;
        Ok(async move { send(copying, &to).await })
    }
}

async fn send(mut copying: CopyInProgress, to: &Sender) -> Result<(), ReaderGone> {
    let copied = loop {
        match timeout(REPORT_EVERY, copying.finished()).await {
            Ok(copied) => break copied,
            Err(_) => {
                let (done_bytes, all_bytes) = copying.progress();
                to.line(&BackupLine::Copying { done_bytes, all_bytes }).await?;
            }
        }
    };
    let StoreCopy { mut file, manifest } = match copied {
        Ok(copied) => copied,
        Err(error) => {
            return to.line(&BackupLine::Failed(Failure::unavailable(error).problem())).await;
        }
    };
    let mut left = manifest.bytes;
    to.line(&BackupLine::Made(manifest)).await?;
    let mut hash = Sha256::new();
    while left > 0 {
        // A disk may make it wait, and a worker serves others.
        let read = tokio::task::spawn_blocking(move || contain(|| read_piece(file, left))).await;
        let piece;
        (file, piece) = match read.map_err(io::Error::other).and_then(|read| read) {
            Ok(read) => read,
            Err(error) => {
                to.fail(error).await;
                return Err(ReaderGone);
            }
        };
        left -= piece.len() as u64;
        hash.update(&piece);
        to.bytes(piece).await?;
    }
    to.line(&BackupLine::Sent { sha256: data_encoding::HEXLOWER.encode(&hash.finalize()) }).await
}

fn read_piece(mut file: File, left: u64) -> io::Result<(File, Bytes)> {
    let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
    file.read_exact(&mut piece)?;
    Ok((file, piece.into()))
}

/// Why a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The receiver, or the stopped store, cannot make one.
    #[error(transparent)]
    Failed(#[from] CallError),
    #[error("the backup ended before it was whole: {0}")]
    Cut(io::Error),
    /// It cannot be written where it should be.
    #[error("failed to write the backup: {0}")]
    Sink(io::Error),
}

/// The caller's part: writes the file to `sink`, unflushed.
pub(super) async fn fetch(
    mut from: StreamReader,
    sink: &mut File,
    mut report: impl FnMut(BackupStage, u64, u64),
) -> Result<Manifest, BackupError> {
    let manifest = loop {
        match from.line().await.map_err(BackupError::Cut)? {
            Some(BackupLine::Copying { done_bytes, all_bytes }) => {
                report(BackupStage::Copying, done_bytes, all_bytes);
            }
            Some(BackupLine::Made(manifest)) => break manifest,
            Some(BackupLine::Failed(problem)) => {
                return Err(CallError::from(Failure::new(problem.kind, problem.detail)).into());
            }
            Some(BackupLine::Sent { .. }) | None => return Err(changed()),
        }
    };
    let (mut done, mut hash) = (0, Sha256::new());
    while done < manifest.bytes {
        let piece = from.bytes(manifest.bytes - done).await.map_err(BackupError::Cut)?;
        hash.update(&piece);
        sink.write_all(&piece).map_err(BackupError::Sink)?;
        done += piece.len() as u64;
        report(BackupStage::Fetching, done, manifest.bytes);
    }
    let own = data_encoding::HEXLOWER.encode(&hash.finalize());
    match from.line().await.map_err(BackupError::Cut)? {
        Some(BackupLine::Sent { sha256 }) if sha256 == own => Ok(manifest),
        _ => Err(changed()),
    }
}

fn changed() -> BackupError {
    let message = "what arrived is not what the receiver sent; try again";
    CallError::from(Failure::unavailable(message)).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::Timestamp;

    const BYTES: &[u8] = b"a whole copy";

    fn answer(parts: &[&[u8]], sha256: &str) -> Vec<u8> {
        let manifest = Manifest {
            store: uuid::Uuid::nil(),
            copied_at: Timestamp(1),
            last_event: 2,
            bytes: BYTES.len() as u64,
        };
        let line = |line: &BackupLine| [serde_json::to_vec(line).unwrap(), b"\n".to_vec()].concat();
        let mut answer = line(&BackupLine::Copying { done_bytes: 1, all_bytes: 2 });
        answer.extend(line(&BackupLine::Made(manifest)));
        answer.extend(parts.concat());
        answer.extend(line(&BackupLine::Sent { sha256: sha256.to_owned() }));
        answer
    }

    async fn fetched(answer: &[u8]) -> Result<Vec<u8>, BackupError> {
        // A byte at a time, so that every boundary is inside something.
        let parts: Vec<_> =
            answer.iter().map(|byte| Ok(Bytes::copy_from_slice(&[*byte]))).collect();
        let mut sink = tempfile::tempfile().unwrap();
        let reader = StreamReader::new(Box::pin(futures_util::stream::iter(parts)));
        fetch(reader, &mut sink, |_, _, _| {}).await?;
        let mut got = Vec::new();
        io::Seek::rewind(&mut sink).unwrap();
        sink.read_to_end(&mut got).unwrap();
        Ok(got)
    }

    #[tokio::test]
    async fn a_backup_that_is_cut_or_changed_on_the_way_is_refused() {
        let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(BYTES));
        let whole = answer(&[BYTES], &sha256);
        assert_eq!(fetched(&whole).await.unwrap(), BYTES);
        for cut in 0..whole.len() {
            assert!(fetched(&whole[..cut]).await.is_err(), "{cut}");
        }
        let changed = answer(&[&BYTES[1..], b"!"], &sha256);
        let error = fetched(&changed).await.unwrap_err().to_string();
        assert!(error.contains("is not what the receiver sent"), "{error}");
    }
}
