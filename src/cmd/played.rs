//! A provider as `demo` and `drill` play it: it signs, and delivers over real HTTP.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::exit::{Exit, Failure};
use crate::model::{Headers, Timestamp};
use crate::provider::Scheme;
use crate::verify::{self, Draft, Key};

/// An embedded provider with a secret, and the source of the same name that it delivers to.
pub(super) struct Provider {
    pub(super) source: &'static str,
    pub(super) path: &'static str,
    scheme: Scheme,
    key: Key,
}

impl Provider {
    /// The provider called `source`, which delivers to `path`. A line end after the secret is not
    /// part of it, as in a secret's file.
    pub(super) fn new(
        source: &'static str,
        path: &'static str,
        secret: &str,
    ) -> Result<Self, Failure> {
        let unusable =
            |why: String| Failure::new(Exit::Config, format!("cannot play {source}: {why}"));
        let scheme =
            Scheme::embedded(source).ok_or_else(|| unusable("no such provider".to_owned()))?;
        let key = verify::key(&scheme, "played", secret.trim_end()).map_err(unusable)?;
        Ok(Provider { source, path, scheme, key })
    }

    /// The headers of a delivery of `body`, signed at `at`.
    pub(super) fn signed(
        &self,
        id: &str,
        kind: &str,
        body: &Bytes,
        at: Timestamp,
    ) -> Result<Headers, Failure> {
        let draft =
            Draft { method: "POST", id, event_type: kind, body: body.clone(), ..Draft::default() };
        let mut headers =
            verify::sign(&self.scheme, Some(&self.key), &draft, at).map_err(|why| {
                Failure::new(Exit::Config, format!("failed to sign as {}: {why}", self.source))
            })?;
        headers.push("Content-Type", "application/json");
        Ok(headers)
    }
}

/// What was answered.
pub(super) struct Answer {
    pub(super) status: u16,
    /// Its `Idempotency-Result`.
    pub(super) result: Option<String>,
    /// Null where it was cut or is no JSON.
    pub(super) body: serde_json::Value,
}

/// Posts `body` to `path` on a connection of its own. A status that was read counts, whatever becomes
/// of the rest: that is how a provider sees it.
pub(super) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &Headers,
    body: Bytes,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    exchange(stream, &address.to_string(), path, headers, body).await
}

/// The same over a connection to `host` that is made.
pub(super) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    path: &str,
    headers: &Headers,
    body: Bytes,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = hyper::Request::post(path).header("Host", host).header("Connection", "close");
    for (name, value) in headers.iter() {
        request = request.header(name, value);
    }
    let response = sender.send_request(request.body(Full::new(body))?).await?;
    let status = response.status().as_u16();
    let result = response.headers().get("Idempotency-Result");
    let result = result.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = response.into_body().collect().await.map(|body| body.to_bytes());
    // It has said all that counts; its end is waited for so that nothing of it stays behind.
    let _ = connection.await;
    let body = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
    Ok(Answer { status, result, body })
}
