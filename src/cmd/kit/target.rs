//! A URL and one request to it, through name resolution and TLS: a test delivery, directly to the receiver or to the
//! source's public URL as the provider's do, or a provider's published key. An error names the step that failed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::provider::{Answer, Error, exchange};
use crate::model::Headers;

/// The timeout of a delivery to a public URL: longer than any provider waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The timeout of [`Target::get`].
const GET_PATIENCE: Duration = Duration::from_secs(10);

/// An absolute `http` or `https` URL.
pub(crate) struct Target {
    /// Whether it is a public URL, and not the receiver's address.
    pub(crate) is_public: bool,
    /// The value of the header `Host`.
    authority: String,
    host: String,
    port: u16,
    tls: bool,
    path: String,
}

impl Target {
    /// Reads a URL. `path` replaces a missing path.
    pub(crate) fn parse(text: &str, path: &str, is_public: bool) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a URL such as https://hooks.example.org{path}");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?.as_str();
        if authority.contains('@') {
            return Err(wrong());
        }
        let host = uri.host().unwrap_or_default();
        let path = match uri.path_and_query().map(|path| path.as_str()) {
            None | Some("/") => path,
            Some(given) => given,
        };
        Ok(Target {
            is_public,
            authority: authority.to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            tls,
            path: path.to_owned(),
        })
    }

    /// Posts `body` on a new connection. An `Err` says which step failed.
    pub(crate) async fn post(&self, headers: &Headers, body: Bytes) -> Result<Answer, String> {
        let post = self.try_post(headers, body);
        if !self.is_public {
            return post.await;
        }
        let posted = timeout(PATIENCE, post).await;
        posted.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))?
    }

    /// The body at the URL, of at most `most` bytes. A redirect is not followed.
    pub(crate) async fn get(&self, most: usize) -> Result<Bytes, String> {
        let got = timeout(GET_PATIENCE, async {
            let answer = fetch(self.connect().await?, &self.authority, &self.path, most);
            answer.await.map_err(|error| format!("no answer: {error}"))
        });
        match got.await.map_err(|_| format!("no answer within {} s", GET_PATIENCE.as_secs()))?? {
            (200, body) => Ok(body),
            (status, _) => Err(format!("the answer is {status}")),
        }
    }

    async fn try_post(&self, headers: &Headers, body: Bytes) -> Result<Answer, String> {
        let answer = exchange(self.connect().await?, &self.authority, &self.path, headers, body);
        answer.await.map_err(|error| format!("no answer: {error}"))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let host = &self.host;
        let found = lookup_host((host.as_str(), self.port)).await;
        let found = found.map_err(|error| format!("name {host} has no address: {error}"))?;
        let found: Vec<SocketAddr> = found.collect();
        let stream = TcpStream::connect(&found[..]).await;
        let stream = stream.map_err(|error| {
            let found: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
            format!("nothing answers at {}: {error}", found.join(", "))
        })?;
        if !self.tls {
            return Ok(Box::new(stream));
        }
        let failed = |error: String| format!("TLS with {host} failed: {error}");
        let name = ServerName::try_from(host.clone()).map_err(|error| failed(error.to_string()))?;
        let connector = TlsConnector::from(Arc::new(client().map_err(failed)?));
        let stream = connector.connect(name, stream).await;
        Ok(Box::new(stream.map_err(|error| failed(error.to_string()))?))
    }
}

/// A connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

async fn fetch(
    stream: Box<dyn Stream>,
    host: &str,
    path: &str,
    most: usize,
) -> Result<(u16, Bytes), Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = hyper::Request::get(path).header("Host", host).header("Connection", "close");
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = answer.status().as_u16();
    Ok((status, Limited::new(answer.into_body(), most).collect().await?.to_bytes()))
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

/// A TLS client that trusts the certificate authorities of this machine, or those in `SSL_CERT_FILE`.
fn client() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine has no certificate authorities: install ca-certificates".into());
    }
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(client.with_root_certificates(roots).with_no_client_auth())
}
