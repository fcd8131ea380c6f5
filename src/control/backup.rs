//! A backup over the admin socket: the copy goes to the caller, who may write where the receiver may not.
//!
//! It is too large for a frame, so the answer is several: how far the copy is, again and again until it is
//! made; what it is; then its bytes as they are, and a last frame with their digest. Each is sent and
//! awaited within `control_wait_millis`, so a caller or a receiver that is gone is noticed, and what was
//! copied for it is gone too.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::wire::{self, WireError};
use super::{Failure, FailureKind, Reply};
use crate::limits::Limits;
use crate::store::{Admin, Copied, CopyError, Copying, Manifest};

/// Between two words of how far the copy is: often enough for a bar, and to notice a caller that left.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// What is read and sent at once.
const PIECE_BYTES: usize = 256 * 1024;

/// What an answer to [`super::Request::Backup`] is made of, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backup {
    /// The receiver copies; any number of them.
    Copying {
        /// So far.
        done_bytes: u64,
        /// In all, as of now.
        all_bytes: u64,
    },
    /// The copy is made, and its bytes follow this.
    Made(Manifest),
    /// They were all.
    Sent {
        /// Of all bytes, in hex.
        sha256: String,
    },
}

/// Where a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The store is copied.
    Copying,
    /// The copy is fetched.
    Fetching,
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        Failure { kind: FailureKind::Unavailable, message: error.to_string() }
    }
}

/// Waits for a copy until it is made, or it is time to tell how far it is.
pub(super) async fn made(copying: &mut Copying) -> Option<Result<Copied, CopyError>> {
    timeout(TELL_EVERY, copying.finished()).await.ok()
}

/// The receiver's part. An error means that the caller is gone, or too slow.
pub(super) async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    store: &Admin,
    limits: &Limits,
) -> Result<(), WireError> {
    let copied = match store.copy() {
        Ok(mut copying) => loop {
            if let Some(copied) = made(&mut copying).await {
                break copied;
            }
            let (done_bytes, all_bytes) = copying.progress();
            say(to, Ok(Backup::Copying { done_bytes, all_bytes }), limits).await?;
        },
        Err(error) => Err(error),
    };
    let Copied { file, manifest } = match copied {
        Ok(copied) => copied,
        Err(error) => return say(to, Err(error.into()), limits).await,
    };
    let mut left = manifest.bytes;
    say(to, Ok(Backup::Made(manifest)), limits).await?;
    let (mut file, mut hash) = (file, Sha256::new());
    while left > 0 {
        // A disk may make it wait, and a worker serves others.
        let read = tokio::task::spawn_blocking(move || read_piece(file, left)).await;
        let piece;
        (file, piece) = read.map_err(io::Error::other)??;
        left -= piece.len() as u64;
        hash.update(&piece);
        in_time(limits, async { Ok(to.write_all(&piece).await?) }).await?;
    }
    let sha256 = data_encoding::HEXLOWER.encode(&hash.finalize());
    say(to, Ok(Backup::Sent { sha256 }), limits).await
}

fn read_piece(mut file: File, left: u64) -> io::Result<(File, Vec<u8>)> {
    let most = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
    let mut piece = vec![0; most];
    file.read_exact(&mut piece)?;
    Ok((file, piece))
}

async fn say(
    to: &mut (impl AsyncWrite + Unpin),
    what: Result<Backup, Failure>,
    limits: &Limits,
) -> Result<(), WireError> {
    let answer = what.map(Reply::Backup);
    in_time(limits, wire::write(to, &answer, limits.control_answer_bytes)).await
}

async fn in_time<T>(
    limits: &Limits,
    work: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    let done = timeout(Limits::duration(limits.control_wait_millis), work).await;
    done.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

/// Why a backup did not arrive.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("failed to write the backup: {0}")]
    Sink(io::Error),
}

/// The caller's part: puts the bytes into `sink`, which it does not flush.
pub(super) async fn fetch(
    from: &mut (impl AsyncRead + Unpin),
    sink: &mut File,
    wait: Duration,
    answer_bytes: u64,
    mut tell: impl FnMut(Stage, u64, u64),
) -> Result<Manifest, FetchError> {
    let timed_out = || WireError::Io(io::ErrorKind::TimedOut.into());
    let next = async |from: &mut _| -> Result<Backup, FetchError> {
        let read = timeout(wait, wire::read::<Result<Reply, Failure>>(from, answer_bytes)).await;
        match read.unwrap_or_else(|_| Err(timed_out()))? {
            Some(Ok(Reply::Backup(news))) => Ok(news),
            Some(Ok(_)) => Err(Failure::unavailable("the receiver answered something else").into()),
            Some(Err(failure)) => Err(failure.into()),
            None => Err(WireError::Io(io::ErrorKind::UnexpectedEof.into()).into()),
        }
    };
    let manifest = loop {
        match next(from).await? {
            Backup::Copying { done_bytes, all_bytes } => {
                tell(Stage::Copying, done_bytes, all_bytes)
            }
            Backup::Made(manifest) => break manifest,
            Backup::Sent { .. } => return Err(Failure::unavailable(CUT).into()),
        }
    };
    let (mut done, mut hash) = (0, Sha256::new());
    let mut piece = vec![0; PIECE_BYTES];
    while done < manifest.bytes {
        let most = usize::try_from(manifest.bytes - done).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let read = timeout(wait, from.read(&mut piece[..most])).await;
        let read =
            read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(WireError::Io)?;
        if read == 0 {
            return Err(WireError::Io(io::ErrorKind::UnexpectedEof.into()).into());
        }
        hash.update(&piece[..read]);
        sink.write_all(&piece[..read]).map_err(FetchError::Sink)?;
        done += read as u64;
        tell(Stage::Fetching, done, manifest.bytes);
    }
    let own = data_encoding::HEXLOWER.encode(&hash.finalize());
    match next(from).await? {
        Backup::Sent { sha256 } if sha256 == own => Ok(manifest),
        _ => Err(Failure::unavailable(CUT).into()),
    }
}

const CUT: &str = "what arrived is not what the receiver sent; try again";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::Timestamp;

    const BYTES: &[u8] = b"a whole copy";

    fn manifest() -> Manifest {
        let bytes = BYTES.len() as u64;
        Manifest { store: uuid::Uuid::nil(), copied_at: Timestamp(1), last_event: 2, bytes }
    }

    async fn answer(parts: &[&[u8]], sha256: &str) -> Vec<u8> {
        let mut wire = Vec::new();
        let limits = Limits::default();
        say(&mut wire, Ok(Backup::Copying { done_bytes: 1, all_bytes: 2 }), &limits).await.unwrap();
        say(&mut wire, Ok(Backup::Made(manifest())), &limits).await.unwrap();
        wire.extend(parts.concat());
        say(&mut wire, Ok(Backup::Sent { sha256: sha256.to_owned() }), &limits).await.unwrap();
        wire
    }

    async fn fetched(mut wire: &[u8]) -> Result<Vec<u8>, FetchError> {
        let mut sink = tempfile::tempfile().unwrap();
        fetch(&mut wire, &mut sink, Duration::from_secs(9), 1 << 20, |_, _, _| {}).await?;
        let mut got = Vec::new();
        io::Seek::rewind(&mut sink).unwrap();
        sink.read_to_end(&mut got).unwrap();
        Ok(got)
    }

    #[tokio::test]
    async fn what_is_cut_or_changed_on_the_way_is_no_backup() {
        let sha256 = data_encoding::HEXLOWER.encode(&Sha256::digest(BYTES));
        let wire = answer(&[BYTES], &sha256).await;
        assert_eq!(fetched(&wire).await.unwrap(), BYTES);
        for cut in 0..wire.len() {
            assert!(fetched(&wire[..cut]).await.is_err(), "{cut}");
        }
        let changed = answer(&[&BYTES[1..], b"!"], &sha256).await;
        let error = fetched(&changed).await.unwrap_err().to_string();
        assert!(error.contains("is not what the receiver sent"), "{error}");
    }
}
