//! A provider's side of the wire: one real HTTP request.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::model::Headers;

/// What was answered.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: serde_json::Value,
}

/// Posts `body` to `path` on a connection of its own.
pub(super) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &Headers,
    body: Bytes,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = hyper::Request::post(path)
        .header("Host", address.to_string())
        .header("Connection", "close");
    for (name, value) in headers.iter() {
        request = request.header(name, value);
    }
    let response = sender.send_request(request.body(Full::new(body))?).await?;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await?.to_bytes();
    connection.await??;
    Ok(Answer { status, body: serde_json::from_slice(&bytes).unwrap_or_default() })
}
