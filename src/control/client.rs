//! The command's end of the admin socket.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::backup::{FetchError, Stage, fetch};
use super::wire::{self, WireError};
use super::{Failure, Reply, Request};
use crate::limits::Limits;
use crate::store::Manifest;

/// A connection to a running receiver. After an error it is of no more use.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    request_bytes: u64,
    answer_bytes: u64,
    wait: Duration,
}

/// Why a request has no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It was understood and not carried out.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The receiver ended in mid-request: whether it carried it out is not known.
    #[error(
        "the receiver at {path} went away before it answered: {reason} (whether it carried out the request shows in `hooklatch jobs`)"
    )]
    Gone {
        /// The socket.
        path: PathBuf,
        /// What was seen.
        reason: String,
    },
    /// No answer in time: whether it was carried out is not known.
    #[error("the receiver at {path} did not answer within {} s (is it suspended, or its disk? its log says)", wait.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        wait: Duration,
    },
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The receiver, or the stopped store, cannot make one.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It cannot be written where it should be.
    #[error("failed to write the backup: {0}")]
    Sink(io::Error),
}

/// Connects to the receiver listening at `path`. An error of kind `NotFound` or `ConnectionRefused`
/// means that none is listening.
pub async fn connect(path: &Path, limits: &Limits) -> io::Result<Client> {
    let wait = Limits::duration(limits.control_wait_millis);
    let stream = timeout(wait, UnixStream::connect(path)).await??;
    Ok(Client {
        stream,
        path: path.to_owned(),
        request_bytes: limits.control_request_bytes,
        answer_bytes: limits.control_answer_bytes,
        // The receiver's own bounds for reading, and for writing a large answer, come one after
        // the other; its sentence is better than ours.
        wait: wait * 2,
    })
}

impl Client {
    /// Sends one request and waits for its reply.
    pub async fn call(&mut self, request: &Request) -> Result<Reply, CallError> {
        let exchange = async {
            wire::write(&mut self.stream, request, self.request_bytes).await?;
            wire::read::<Result<Reply, Failure>>(&mut self.stream, self.answer_bytes).await
        };
        let gone = |reason: String| CallError::Gone { path: self.path.clone(), reason };
        match timeout(self.wait, exchange).await {
            Err(_) => Err(CallError::Silent { path: self.path.clone(), wait: self.wait }),
            Ok(Ok(Some(answer))) => Ok(answer?),
            Ok(Ok(None)) => Err(gone("the connection was closed".to_owned())),
            Ok(Err(WireError::Io(error))) => Err(gone(error.to_string())),
            Ok(Err(error)) => Err(Failure::unavailable(format!("got {error}")).into()),
        }
    }

    /// Has the receiver copy its store, and puts the copy into `sink`, unflushed. `tell` hears where it
    /// is, and how many bytes of how many are done.
    pub async fn backup(
        &mut self,
        sink: &mut File,
        tell: impl FnMut(Stage, u64, u64),
    ) -> Result<Manifest, BackupError> {
        wire::write(&mut self.stream, &Request::Backup, self.request_bytes)
            .await
            .map_err(|error| self.lost(&error))?;
        let fetched = fetch(&mut self.stream, sink, self.wait, self.answer_bytes, tell).await;
        fetched.map_err(|error| match error {
            FetchError::Failed(failure) => BackupError::Failed(failure),
            FetchError::Sink(error) => BackupError::Sink(error),
            FetchError::Wire(error) => self.lost(&error),
        })
    }

    fn lost(&self, error: &WireError) -> BackupError {
        let path = self.path.display();
        BackupError::Failed(Failure::unavailable(format!(
            "the receiver at {path} went away before the backup was whole: {error}"
        )))
    }
}
