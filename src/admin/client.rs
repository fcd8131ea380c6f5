//! The command's end of the API: one connection for each request.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, BodyStream, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::by;
use super::failure::{ApiProblem, Failure};
use super::operation::{Method, Operation, encode};
use super::stream::{ByteStream, StreamOperation, StreamReader};
use crate::limits;
use crate::store::By;

/// The receiver's own bounds for reading and for carrying out come one after the other; its sentence is
/// better than ours.
const WAIT: Duration = limits::ADMIN_WAIT.saturating_mul(2);

/// The way to a running receiver.
#[derive(Debug, Clone)]
pub struct Client {
    path: PathBuf,
    by: By,
}

/// Why a request has no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It was understood and not carried out.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It was not sent.
    #[error("the receiver at {path} went away: {reason}")]
    Unreached { path: PathBuf, reason: String },
    /// The receiver ended during the request: it is not known whether it carried it out.
    #[error(
        "the receiver at {path} went away before it answered: {reason} (whether it carried out the request shows in `hooklatch jobs`)"
    )]
    Gone { path: PathBuf, reason: String },
    /// No answer in time: it is not known whether it was carried out.
    #[error(
        "the receiver at {path} did not answer within {} s (is it suspended, or its disk? its log says)",
        WAIT.as_secs()
    )]
    Silent { path: PathBuf },
}

impl Client {
    /// Finds the receiver that listens at `path`. An error of kind `NotFound` or `ConnectionRefused` means
    /// that none listens.
    pub async fn connect(path: &Path) -> io::Result<Client> {
        let client = Client { path: path.to_owned(), by: By::default() };
        client.stream().await?;
        Ok(client)
    }

    /// Returns a client whose changes are in the audit list as asked for by this caller.
    #[must_use]
    pub fn by(self, by: By) -> Client {
        Client { by, ..self }
    }

    async fn stream(&self) -> io::Result<UnixStream> {
        timeout(limits::ADMIN_WAIT, UnixStream::connect(&self.path)).await?
    }

    /// Sends one request and waits for its reply.
    pub async fn call<O: Operation>(&self, operation: &O) -> Result<O::Reply, CallError> {
        let exchange = async {
            let response = self.send(operation, O::METHOD, O::PATH).await?;
            let body = self.read(response).await?;
            serde_json::from_slice(&body).map_err(|error| not_understood(error).into())
        };
        timeout(WAIT, exchange).await.unwrap_or_else(|_| Err(self.silent()))
    }

    /// Opens a stream to be read.
    pub async fn stream_of<O: StreamOperation>(
        &self,
        operation: &O,
    ) -> Result<StreamReader, CallError> {
        Ok(StreamReader::new(self.open(operation).await?))
    }

    /// Opens a stream.
    pub(super) async fn open<O: StreamOperation>(
        &self,
        operation: &O,
    ) -> Result<ByteStream, CallError> {
        let opening = timeout(WAIT, self.send(operation, Method::Get, O::PATH)).await;
        let opened = opening.unwrap_or_else(|_| Err(self.silent()))?;
        Ok(Box::pin(BodyStream::new(opened.into_body()).filter_map(async |frame| match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(error) => Some(Err(io::Error::other(error))),
        })))
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Bytes, CallError> {
        let body = Limited::new(response.into_body(), limits::ADMIN_ANSWER_BYTES).collect();
        Ok(body.await.map_err(|error| self.gone(error))?.to_bytes())
    }

    /// Sends a request. An answer without success is an error.
    async fn send(
        &self,
        operation: &impl Serialize,
        method: Method,
        path: &str,
    ) -> Result<Response<Incoming>, CallError> {
        let (target, body) = encode(operation, method, path).map_err(unwritten)?;
        let request = Request::builder()
            .method(method.as_str())
            .uri(target)
            .header(HOST, "hooklatch")
            .header(CONTENT_TYPE, "application/json")
            .header(by::HEADER, by::write(&self.by).map_err(unwritten)?)
            .body(Full::new(Bytes::from(body)))
            .map_err(unwritten)?;
        let stream = self.stream().await.map_err(|error| self.unreached(error))?;
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(|error| self.unreached(error))?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| self.gone(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(failure(&self.read(response).await?).into())
    }

    fn unreached(&self, reason: impl ToString) -> CallError {
        CallError::Unreached { path: self.path.clone(), reason: reason.to_string() }
    }

    fn gone(&self, reason: impl ToString) -> CallError {
        CallError::Gone { path: self.path.clone(), reason: reason.to_string() }
    }

    fn silent(&self) -> CallError {
        CallError::Silent { path: self.path.clone() }
    }
}

fn unwritten(error: impl Display) -> Failure {
    Failure::unavailable(format!("failed to write the request: {error}"))
}

fn failure(body: &[u8]) -> Failure {
    match serde_json::from_slice::<ApiProblem>(body) {
        Ok(problem) => Failure::new(problem.kind, problem.detail),
        Err(error) => not_understood(error),
    }
}

fn not_understood(error: impl ToString) -> Failure {
    let error = error.to_string();
    Failure::unavailable(format!(
        "the receiver's answer cannot be read: {error} (is it of another version? restart it)"
    ))
}
