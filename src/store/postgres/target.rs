//! Where the database is and how it is reached.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How long a connection may take to be made: name look-up, handshakes, login and settings.
pub(super) const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Idle time after which the kernel asks whether the server is still there; it asks every 5 s, three times.
/// The server is set to ask as often, so that it frees the locks of a machine that is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent bytes may stay unacknowledged by the other machine.
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// Why an address is refused. No text quotes it: it may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("the database's address cannot be read")]
    Unreadable,
    #[error("the database's address lacks its {0}")]
    Incomplete(&'static str),
    #[error("the database's address has a password, which is not shown here")]
    Password,
}

impl AddressError {
    /// What to do.
    pub fn help(self) -> &'static str {
        match self {
            AddressError::Password => {
                "change that password, put the new one into a file that only hooklatch can read, and write storage.password = \"file:/path\""
            }
            _ => "write \"postgresql://USER@HOST:PORT/DATABASE\"",
        }
    }
}

/// Errors of a connection attempt, each with what to do. No text contains the password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{}; {}", .0, .0.help())]
    Address(#[from] AddressError),
    #[error("the certificate authorities of the database cannot be read: {0}")]
    Authorities(String),
    #[error("failed to connect to the database: {0}")]
    Failed(String),
    #[error("failed to connect to the database within {} s; {UNREACHED}", .0.as_secs())]
    Slow(Duration),
    /// The server does not keep the store's promises.
    #[error("the server cannot hold a store: {0}")]
    Unfit(String),
}

pub(super) const UNREACHED: &str = "see whether the server runs, and listens where this machine reaches it (listen_addresses, port, firewall)";

/// Reads an address. It names host, user and database, and has no password.
fn parse(address: &str) -> Result<Config, AddressError> {
    if !["postgresql://", "postgres://"].iter().any(|scheme| address.starts_with(scheme)) {
        return Err(AddressError::Unreadable);
    }
    // The driver's own text may quote a part of a password.
    let config: Config = address.parse().map_err(|_| AddressError::Unreadable)?;
    if config.get_password().is_some() {
        return Err(AddressError::Password);
    }
    let parts = [
        ("host", config.get_hosts().is_empty() && config.get_hostaddrs().is_empty()),
        ("user", config.get_user().is_none_or(str::is_empty)),
        ("database", config.get_dbname().is_none_or(str::is_empty)),
    ];
    match parts.into_iter().find(|(_, is_missing)| *is_missing) {
        Some((part, _)) => Err(AddressError::Incomplete(part)),
        None => Ok(config),
    }
}

/// Checks an address. True if other machines can read what goes over the connection.
pub fn check_address(address: &str) -> Result<bool, AddressError> {
    let config = parse(address)?;
    Ok(config.get_ssl_mode() == SslMode::Disable && !is_local(&config))
}

/// Where the database is, how it is reached, and what its commits must wait for.
#[derive(Clone)]
pub struct Target {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// Commits wait for a standby, and one that did not is not known to be committed.
    pub(super) require_standby: bool,
}

impl Target {
    /// Reads an address as libpq writes it, as a URL without a password. `authorities` is a PEM file of the
    /// certificate authorities that sign the server's certificate, in place of the machine's.
    ///
    /// Without `sslmode=disable`, a server that is not on this machine is reached over TLS or not at all: the driver
    /// reserves up to 2 GiB for a message that a server announces, so a server must prove itself first.
    pub fn new(
        address: &str,
        password: Option<&str>,
        authorities: Option<&Path>,
        require_standby: bool,
    ) -> Result<Self, ConnectError> {
        let mut config = parse(address)?;
        if config.get_ssl_mode() == SslMode::Prefer && !is_local(&config) {
            config.ssl_mode(SslMode::Require);
        }
        if let Some(password) = password {
            config.password(password);
        }
        config
            .application_name("hooklatch")
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(CONNECT_WAIT)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(UNACKNOWLEDGED);
        let tls = MakeRustlsConnect::new(client(authorities).map_err(ConnectError::Authorities)?);
        Ok(Target { config, tls, require_standby })
    }

    /// The same for a node, by whose name its connections are known to the server.
    pub fn of_node(mut self, name: &str) -> Self {
        self.config.application_name(format!("hooklatch {name}"));
        self
    }
}

/// Whether every host is this machine.
fn is_local(config: &Config) -> bool {
    let names = config.get_hosts().iter().all(|host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
        }
    });
    names && config.get_hostaddrs().iter().all(|ip| ip.is_loopback())
}

fn client(authorities: Option<&Path>) -> Result<ClientConfig, String> {
    let certificates = match authorities {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    let (_, unreadable) = roots.add_parsable_certificates(certificates);
    if let Some(path) = authorities
        && (unreadable > 0 || roots.is_empty())
    {
        return Err(format!("{}: not a list of certificates in PEM", path.display()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
