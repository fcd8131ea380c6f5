//! Where the database is and how it is reached.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::store::mutex::lock;

use super::server_history::ServerHistory;

/// How long a connection may take to be made: name look-up, handshakes, login and settings. Several hosts share it.
pub(super) const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Idle time after which the kernel asks whether the server is still there; it asks every 5 s, three times.
/// The server is set to ask as often, so that it frees the locks of a machine that is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent bytes may stay unacknowledged by the other machine.
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// How long `status` shows a warning of the server, which repeats it as long as its cause is there.
const REMARK_AGE: Duration = Duration::from_secs(600);

/// Why an address is refused. No text quotes it: it may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("the database's address cannot be read")]
    Unreadable,
    #[error("the database's address has '{0}'")]
    Unused(&'static str, &'static str),
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
            AddressError::Unused(_, help) => help,
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
    #[error(
        "failed to connect to the database: the server is a standby; name the primary in storage.url, or both"
    )]
    Standby,
    /// What is set on a connection would reach other clients of the pooler.
    #[error(
        "failed to connect to the database: PgBouncer or another pooler is in front of the server, and is not in session mode; name the server itself in storage.url, or set pool_mode = session for this database"
    )]
    Pooled,
    #[error(
        "failed to connect to the database: default_transaction_read_only is on, as some services set it when a disk is full; see why, and reset it"
    )]
    ReadOnly,
    /// Another server has taken this one's place, and this one does not know it; or the database was put back.
    #[error(
        "the server is {found}, and this node has used {used}: another server has taken its place; stop this one, or connect to that one"
    )]
    OtherHistory { used: Arc<ServerHistory>, found: ServerHistory },
    /// The server does not keep the store's promises.
    #[error("the server cannot hold a store: {0}")]
    Unfit(String),
}

pub(super) const UNREACHED: &str = "see whether the server runs, and listens where this machine reaches it (listen_addresses, port, firewall)";

/// Parameters of libpq (15.18, and `require_auth` of later ones) that the driver does not know, each with what to write.
const UNUSED: [(&str, &str); 16] = [
    ("sslrootcert", "remove it, and name the file in storage.ca"),
    ("sslcert", "remove it: the server asks for a password, storage.password"),
    ("sslkey", "remove it: the server asks for a password, storage.password"),
    ("sslpassword", "remove it: the server asks for a password, storage.password"),
    ("sslcrl", "remove it: lists of revoked certificates are not read"),
    ("sslcompression", "remove it: nothing is compressed"),
    ("sslsni", "remove it: the server's name is sent"),
    ("ssl_min_protocol_version", "remove it: TLS 1.2 is the least"),
    ("gssencmode", "remove it: TLS is used, and no GSSAPI"),
    ("krbsrvname", "remove it: TLS is used, and no GSSAPI"),
    ("service", "remove it, and write host, port and database"),
    ("passfile", "remove it, and set storage.password"),
    ("require_auth", "remove it: what the server asks for is used"),
    ("client_encoding", "remove it: UTF8 is set"),
    ("replication", "remove it"),
    ("fallback_application_name", "remove it: the node's name is used"),
];

/// The address as the driver reads it. The server's name is checked in any case, as `verify-full` asks; each server is asked
/// whether it takes writes.
///
/// # Errors
/// Names a known parameter that has no meaning here. Any other text may be a part of a password.
fn readable(address: &str) -> Result<String, AddressError> {
    let Some((place, query)) = address.split_once('?') else { return Ok(address.to_owned()) };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let Some((key, help)) = UNUSED.iter().find(|(known, _)| *known == key) {
            return Err(AddressError::Unused(key, help));
        }
        match (key, value) {
            ("sslmode", "verify-full" | "verify-ca") => kept.push("sslmode=require"),
            ("sslmode", "allow") => {
                let help = "write sslmode=disable, or require";
                return Err(AddressError::Unused("sslmode=allow", help));
            }
            ("target_session_attrs", _) => {}
            _ => kept.push(pair),
        }
    }
    Ok(format!("{place}?{}", kept.join("&")))
}

/// Reads an address. It names host, user and database, and has no password.
fn parse(address: &str) -> Result<Config, AddressError> {
    if !["postgresql://", "postgres://"].iter().any(|scheme| address.starts_with(scheme)) {
        return Err(AddressError::Unreadable);
    }
    let address = readable(address)?;
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

/// Where the database is, how it is reached, which history it must have, and what its commits must wait for.
#[derive(Clone)]
pub struct Target {
    /// One for each host, in the order of the address. None names the application: a pooler would keep the name on the
    /// server's side.
    pub(super) hosts: Vec<Config>,
    /// The name by which the server knows the connections.
    pub(super) name: String,
    pub(super) tls: MakeRustlsConnect,
    /// Commits wait for a standby, and one that did not is not known to be committed.
    pub(super) require_standby: bool,
    /// What the node's session speaks to. All clones share it.
    used: Arc<ArcSwapOption<ServerHistory>>,
    /// Whether a later history is accepted too: for a registration, which decides what that means, and for a command
    /// without a session.
    takes_later: bool,
    /// The server's last warning that says nothing about a commit, on any of its connections.
    remark: Arc<Mutex<Option<(Instant, String)>>>,
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
        let tls = MakeRustlsConnect::new(client(authorities).map_err(ConnectError::Authorities)?);
        let (used, takes_later, remark) = (Arc::default(), false, Arc::default());
        let (hosts, name) = (each_host(&config), "hooklatch".to_owned());
        Ok(Target { hosts, name, tls, require_standby, used, takes_later, remark })
    }

    /// Names the connections after a node: the server knows them by this name.
    pub fn of_node(self, name: &str) -> Self {
        Target { name: format!("hooklatch {name}"), ..self }
    }

    /// Returns a target that also accepts a later history, for connections that register or that belong to a command
    /// without a session.
    pub(super) fn taking_later(&self) -> Self {
        Target { takes_later: true, ..self.clone() }
    }

    /// What lets the role make its tables.
    pub(super) fn grant(&self) -> String {
        let host = self.hosts.first();
        let name =
            |name: Option<&str>| format!("\"{}\"", name.unwrap_or_default().replace('"', "\"\""));
        let role = name(host.and_then(|host| host.get_user()));
        let database = name(host.and_then(|host| host.get_dbname()));
        format!(
            "run as an administrator in the database {database}: CREATE SCHEMA hooklatch AUTHORIZATION {role}"
        )
    }

    /// From now on connections are to this history alone.
    pub(super) fn use_history(&self, history: ServerHistory) {
        self.used.store(Some(Arc::new(history)));
    }

    pub(super) fn used(&self) -> Option<Arc<ServerHistory>> {
        self.used.load_full()
    }

    /// Whether a server must have the rows of the session's store: a registration makes or mends them.
    pub(super) fn knows_store(&self) -> bool {
        self.used().is_some() && !self.takes_later
    }

    /// # Errors
    /// A server with this history is not the session's.
    pub(super) fn check(&self, found: &ServerHistory) -> Result<(), ConnectError> {
        let Some(used) = self.used() else { return Ok(()) };
        let is_right = match self.takes_later {
            true => !found.is_before(&used),
            false => *found == *used,
        };
        match is_right {
            true => Ok(()),
            false => Err(ConnectError::OtherHistory { used, found: found.clone() }),
        }
    }

    /// Keeps a warning, and logs one that is not the same as the last but for its numbers.
    pub(super) fn note(&self, warning: String) {
        let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        let last = lock(&self.remark).replace((Instant::now(), warning.clone()));
        if last.is_none_or(|(_, last)| words(&last) != words(&warning)) {
            tracing::warn!(warning, "the database's server warns");
        }
    }

    /// The server's last warning, if it is young.
    pub(super) fn remark(&self) -> Option<String> {
        let remark = lock(&self.remark);
        let young = remark.as_ref().filter(|(at, _)| at.elapsed() < REMARK_AGE);
        young.map(|(_, warning)| warning.clone())
    }

    /// How long a connection to one host may take.
    pub(super) fn wait(&self) -> Duration {
        CONNECT_WAIT / u32::try_from(self.hosts.len()).unwrap_or(1).max(1)
    }
}

/// How each host is reached alone: the driver's own choice among several knows no history. Which servers are standbys is
/// asked with the settings.
fn each_host(config: &Config) -> Vec<Config> {
    let (names, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let one = |at: usize| {
        let mut one = Config::new();
        match names.get(at) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            Some(Host::Unix(path)) => drop(one.host_path(path)),
            None => {}
        }
        if let Some(address) = addresses.get(at) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or(ports.first()) {
            one.port(*port);
        }
        if let Some(password) = config.get_password() {
            one.password(password);
        }
        if let Some(options) = config.get_options() {
            one.options(options);
        }
        one.user(config.get_user().unwrap_or_default())
            .dbname(config.get_dbname().unwrap_or_default())
            .ssl_mode(config.get_ssl_mode())
            .ssl_negotiation(config.get_ssl_negotiation())
            .channel_binding(config.get_channel_binding())
            .target_session_attrs(TargetSessionAttrs::Any)
            .connect_timeout(CONNECT_WAIT)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .tcp_user_timeout(UNACKNOWLEDGED);
        one
    };
    (0..names.len().max(addresses.len())).map(one).collect()
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
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    // What a server asks for where TLS begins at once (sslnegotiation=direct); older ones ignore it.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(config)
}
