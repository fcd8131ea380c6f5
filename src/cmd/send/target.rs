//! Where a test delivery goes: directly to the receiver, or to the source's public URL as the provider's do,
//! through name resolution, TLS and the proxy. An error names the step that failed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Uri;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::kit::provider::{Answer, exchange};
use crate::model::Headers;

/// The timeout of a delivery to a public URL: longer than any provider waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// An absolute `http` or `https` URL.
pub(super) struct Target {
    /// Whether it is a public URL, and not the receiver's address.
    pub(super) is_public: bool,
    /// The value of the header `Host`.
    authority: String,
    host: String,
    port: u16,
    tls: bool,
    path: String,
}

impl Target {
    /// Reads a URL. `path` replaces a missing path.
    pub(super) fn parse(text: &str, path: &str, is_public: bool) -> Result<Self, String> {
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
    pub(super) async fn post(&self, headers: &Headers, body: Bytes) -> Result<Answer, String> {
        let post = self.try_post(headers, body);
        if !self.is_public {
            return post.await;
        }
        let posted = timeout(PATIENCE, post).await;
        posted.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))?
    }

    async fn try_post(&self, headers: &Headers, body: Bytes) -> Result<Answer, String> {
        let Target { authority, host, path, .. } = self;
        let found = lookup_host((host.as_str(), self.port)).await;
        let found = found.map_err(|error| format!("name {host} has no address: {error}"))?;
        let found: Vec<SocketAddr> = found.collect();
        let stream = TcpStream::connect(&found[..]).await;
        let stream = stream.map_err(|error| {
            let found: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
            format!("nothing answers at {}: {error}", found.join(", "))
        })?;
        let answer = match self.tls {
            false => exchange(stream, authority, path, headers, body).await,
            true => {
                let failed = |error: String| format!("TLS with {host} failed: {error}");
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|error| failed(error.to_string()))?;
                let connector = TlsConnector::from(Arc::new(client().map_err(failed)?));
                let stream = connector.connect(name, stream).await;
                let stream = stream.map_err(|error| failed(error.to_string()))?;
                exchange(stream, authority, path, headers, body).await
            }
        };
        answer.map_err(|error| format!("no answer: {error}"))
    }
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
