//! A simple HTTP/1.1 client with at most one connection, like a provider's.

use std::time::Duration;

use bytes::Bytes;
use hooklatch::cmd::kit::provider::send;
use hooklatch::model::Headers;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// GitHub's timeout for an answer (docs.github.com, "Handling failed webhook deliveries").
const DEADLINE: Duration = Duration::from_secs(10);

/// A client of one target.
pub(crate) struct Client {
    authority: String,
    path: String,
    fresh: bool,
    kept: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// `target` is HOST:PORT/PATH; with `fresh`, each delivery uses a new connection.
    pub(crate) fn new(target: &str, fresh: bool) -> Result<Self, String> {
        let at = target.find('/').ok_or_else(|| format!("'{target}' has no path"))?;
        let (authority, path) = target.split_at(at);
        Ok(Client { authority: authority.to_owned(), path: path.to_owned(), fresh, kept: None })
    }

    /// The status of the answer, or what went wrong.
    pub(crate) async fn post(&mut self, headers: Headers, body: Bytes) -> Result<u16, String> {
        match timeout(DEADLINE, self.exchange(headers, body)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {DEADLINE:?}")),
        }
    }

    async fn exchange(&mut self, mut headers: Headers, body: Bytes) -> Result<u16, String> {
        let mut connection = self.connection().await?;
        headers.push("Connection", if self.fresh { "close" } else { "keep-alive" });
        let answer = send(&mut connection, &self.authority, &self.path, &headers, body).await;
        let answer = answer.map_err(|error| {
            let cause = error.source().map(|cause| format!(": {cause}"));
            format!("no answer: {error}{}", cause.unwrap_or_default())
        })?;
        if !self.fresh {
            self.kept = Some(connection);
        }
        match answer.status {
            200..=299 if !answer.is_complete => Err("the answer was cut off".to_owned()),
            status => Ok(status),
        }
    }

    /// The open connection if the other end has not closed it, otherwise a new one.
    async fn connection(&mut self) -> Result<SendRequest<Full<Bytes>>, String> {
        if let Some(mut kept) = self.kept.take()
            && kept.ready().await.is_ok()
        {
            return Ok(kept);
        }
        let failed = |error: &dyn std::error::Error| format!("no connection: {error}");
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| failed(&error))?;
        // Without this, loopback delays small segments.
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
