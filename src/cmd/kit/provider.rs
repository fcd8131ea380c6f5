//! A fake provider: it signs as the real one does and delivers over real HTTP.
//!
//! `demo`, `drill`, `send` and the tests use it. It must sign with the product's own scheme, so that
//! its deliveries pass only if the scheme is right.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::exit::{Exit, Failure};
use crate::model::{Headers, Timestamp};
use crate::provider::Scheme;
use crate::verify::{self, Draft, Key};

/// The reason why a delivery got no answer.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A built-in provider with a secret.
#[derive(Debug)]
pub struct Provider {
    /// The provider's name, which is also the name of the source that it delivers to.
    pub(crate) name: &'static str,
    scheme: Scheme,
    key: Key,
}

impl Provider {
    /// The built-in provider `name`. Whitespace at the end of `secret` is ignored.
    pub fn new(name: &'static str, secret: &str) -> Result<Self, Failure> {
        let unusable = |why| Exit::Config.failure(format!("cannot sign as {name}: {why}"));
        let scheme = Scheme::embedded(name).ok_or_else(|| unusable("no such provider".into()))?;
        let key = verify::key(&scheme, "kit", secret.trim_end()).map_err(unusable)?;
        Ok(Provider { name, scheme, key })
    }

    /// The headers for a delivery of `body`, signed at the time `at`.
    pub fn sign(
        &self,
        id: &str,
        event_type: &str,
        body: &Bytes,
        at: Timestamp,
    ) -> Result<Headers, Failure> {
        let draft =
            Draft { method: "POST", id, event_type, body: body.clone(), ..Draft::default() };
        let mut headers =
            verify::sign(&self.scheme, Some(&self.key), &draft, at).map_err(|why| {
                Exit::Config.failure(format!("failed to sign as {}: {why}", self.name))
            })?;
        headers.push("Content-Type", "application/json");
        Ok(headers)
    }
}

/// The answer to a delivery.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The value of the header `Idempotency-Result`.
    pub(crate) result: Option<String>,
    /// What the headers `Hooklatch-NAME` say happened, by name in lower case.
    pub(crate) facts: BTreeMap<String, String>,
    /// Whether the whole body was received.
    pub is_complete: bool,
    /// Null if the body was cut off, is empty or is not JSON.
    pub body: serde_json::Value,
}

impl Answer {
    /// What happened, such as `accepted`; `None` if this is not the answer of a receiver to a delivery.
    pub fn status_word(&self) -> Option<&str> {
        self.fact("status")
    }

    /// The value of the header `Hooklatch-NAME`.
    pub(crate) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }
}

/// Posts `body` to `path` on a new connection. Returns the status even if the rest of the answer is cut
/// off, because a provider decides by the status.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &Headers,
    body: Bytes,
) -> Result<Answer, Error> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    exchange(stream, &address.to_string(), path, headers, body).await
}

/// Like [`post`], over an established connection to `host`, which it closes.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    path: &str,
    headers: &Headers,
    body: Bytes,
) -> Result<Answer, Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut headers = headers.clone();
    headers.push("Connection", "close");
    let answer = send(&mut sender, host, path, &headers, body).await?;
    // The answer is complete. This waits for the connection's task, whose result does not matter.
    let _ = connection.await;
    Ok(answer)
}

/// Sends one request over a connection that stays open.
pub async fn send(
    connection: &mut SendRequest<Full<Bytes>>,
    host: &str,
    path: &str,
    headers: &Headers,
    body: Bytes,
) -> Result<Answer, Error> {
    let mut target = path.to_owned();
    let parameters =
        headers.iter().filter_map(|(name, value)| Some((name.strip_prefix('?')?, value)));
    for (name, value) in parameters {
        let value: String = form_urlencoded::byte_serialize(value).collect();
        target.push_str(&format!("{}{name}={value}", if target.contains('?') { "&" } else { "?" }));
    }
    let mut request = hyper::Request::post(target).header("Host", host);
    for (name, value) in headers.iter().filter(|(name, _)| !name.starts_with('?')) {
        request = request.header(name, value);
    }
    let response = connection.send_request(request.body(Full::new(body))?).await?;
    let status = response.status().as_u16();
    let result = response.headers().get("Idempotency-Result");
    let result = result.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let fact = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
        let name = name.as_str().strip_prefix("hooklatch-")?;
        Some((name.to_owned(), value.to_str().ok()?.to_owned()))
    };
    let facts = response.headers().iter().filter_map(fact).collect();
    let bytes = response.into_body().collect().await.map(|body| body.to_bytes());
    let is_complete = bytes.is_ok();
    let body = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or_default();
    Ok(Answer { status, result, facts, is_complete, body })
}
