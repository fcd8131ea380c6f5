//! One HTTP/1.1 client with at most one connection, as simple as a provider's.

use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// GitHub gives up after 10 s (docs.github.com, "Handling failed webhook deliveries").
const DEADLINE: Duration = Duration::from_secs(10);

/// A body of about the size of a small push.
const PADDING: usize = 2000;

/// One signed request.
pub(crate) struct Delivery {
    id: String,
    event: String,
    body: Bytes,
    signature: String,
}

impl Delivery {
    /// The body names the id, so that no two are the same.
    pub(crate) fn new(id: &str, event: &str, secret: &[u8]) -> Self {
        let padding = "x".repeat(PADDING);
        let body = format!(r#"{{"ref":"refs/heads/main","number":"{id}","padding":"{padding}"}}"#);
        // HMAC takes a key of any length.
        let mac = Hmac::<Sha256>::new_from_slice(secret).map(|mac| mac.chain_update(&body));
        let signature = mac.map(|mac| HEXLOWER.encode(&mac.finalize().into_bytes()));
        Delivery {
            id: id.to_owned(),
            event: event.to_owned(),
            body: body.into(),
            signature: format!("sha256={}", signature.unwrap_or_default()),
        }
    }
}

/// A client of one target.
pub(crate) struct Client {
    authority: String,
    path: String,
    fresh: bool,
    kept: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// For HOST:PORT/PATH.
    pub(crate) fn new(target: &str, fresh: bool) -> Result<Self, String> {
        let at = target.find('/').ok_or_else(|| format!("'{target}' has no path"))?;
        let (authority, path) = target.split_at(at);
        Ok(Client { authority: authority.to_owned(), path: path.to_owned(), fresh, kept: None })
    }

    /// The status of the answer, or what went wrong.
    pub(crate) async fn post(&mut self, delivery: Delivery) -> Result<u16, String> {
        match timeout(DEADLINE, self.exchange(delivery)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {DEADLINE:?}")),
        }
    }

    async fn exchange(&mut self, delivery: Delivery) -> Result<u16, String> {
        let mut connection = self.connection().await?;
        let request = Request::post(&self.path)
            .header("Host", &self.authority)
            .header("User-Agent", "hooklatch-load")
            .header("Content-Type", "application/json")
            .header("X-GitHub-Event", delivery.event)
            .header("X-GitHub-Delivery", delivery.id)
            .header("X-Hub-Signature-256", delivery.signature)
            .header("Connection", if self.fresh { "close" } else { "keep-alive" })
            .body(Full::new(delivery.body))
            .map_err(|error| error.to_string())?;
        let answer = connection.send_request(request).await.map_err(described("no answer"))?;
        let status = answer.status().as_u16();
        answer.into_body().collect().await.map_err(described("a cut answer"))?;
        if !self.fresh {
            self.kept = Some(connection);
        }
        Ok(status)
    }

    /// The kept connection where the other end has not closed it, else a new one.
    async fn connection(&mut self) -> Result<SendRequest<Full<Bytes>>, String> {
        if let Some(mut kept) = self.kept.take()
            && kept.ready().await.is_ok()
        {
            return Ok(kept);
        }
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.map_err(|error| format!("no connection: {error}"))?;
        // Loopback would wait for more of a small segment.
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(described("no connection"))?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn described(what: &'static str) -> impl Fn(hyper::Error) -> String {
    move |error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{what}: {error}{}", cause.unwrap_or_default())
    }
}
