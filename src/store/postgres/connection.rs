//! The one place that opens a connection to PostgreSQL and sets what it depends on.

use std::collections::{HashMap, HashSet};
use std::error::Error as _;
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::poll_fn;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::store::mutex::lock;

/// How long a connection may take to be made: name look-up, handshakes, login and settings.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// Idle time after which the kernel asks whether the server is still there; it asks every 5 s, three times.
/// The server is set to ask as often, so that it frees the locks of a machine that is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent bytes may stay unacknowledged by the other machine.
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// Set after the login, so that neither the role's nor the database's own settings remain.
///
/// - A commit waits for the flush, and for the standbys that the server names. The role may ask for more.
/// - Warnings are sent: a wait for a standby that was cancelled is known by its warning alone.
/// - Outside of an explicit `BEGIN READ WRITE` nothing is written. If `BEGIN` itself fails, the statements that
///   are on their way behind it would otherwise commit one by one.
/// - `lock_timeout` and `idle_in_transaction_session_timeout` end a transaction that waits for others or keeps
///   others waiting. `statement_timeout` would end slow statements and not the wait for a standby.
/// - Temporary tables come last, so that none hides a table of the store.
const SETTINGS: &str = "
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
    SET client_min_messages = warning;
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = on;
    SET default_transaction_deferrable = off;
    SET search_path = hooklatch, pg_temp;
    SET lock_timeout = '5s';
    SET idle_in_transaction_session_timeout = '10s';
    SET idle_session_timeout = 0;
    SET statement_timeout = 0;
    SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = '25s';";

/// Errors of a connection attempt. No text contains the password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The driver's own text may quote a part of the password, so it is not shown.
    #[error(
        "the database's address cannot be read; write it as postgresql://USER@HOST:PORT/DATABASE, with special characters of a password percent-encoded"
    )]
    Address,
    #[error("the certificate authorities of the database cannot be read: {0}")]
    Authorities(String),
    #[error("failed to connect to the database: {0}")]
    Failed(String),
    #[error("failed to connect to the database within {} s", .0.as_secs())]
    Slow(Duration),
}

/// Where the database is, how it is reached, and what its commits must wait for.
#[derive(Clone)]
pub struct Target {
    config: Config,
    tls: MakeRustlsConnect,
    /// Commits wait for a standby, and one that did not is not known to be committed.
    require_standby: bool,
}

impl Target {
    /// Reads an address as libpq writes it, URL or key-value. `authorities` is a PEM file of the certificate
    /// authorities that sign the server's certificate, in place of the machine's.
    ///
    /// Without `sslmode=disable`, a server that is not on this machine is reached over TLS or not at all.
    pub fn new(
        address: &str,
        authorities: Option<&Path>,
        require_standby: bool,
    ) -> Result<Self, ConnectError> {
        let mut config: Config = address.parse().map_err(|_| ConnectError::Address)?;
        if config.get_ssl_mode() == SslMode::Prefer && !is_local(&config) {
            config.ssl_mode(SslMode::Require);
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

/// What the server said outside of its answers.
#[derive(Default)]
struct Heard {
    /// The first message of severity WARNING or above, or of a severity that this program does not know.
    warning: Option<String>,
    /// Why the connection ended.
    end: Option<String>,
    /// The backends that have sent a wake-up.
    woken_by: HashSet<i32>,
}

/// One connection with its driver. Dropping it closes the socket at once.
pub struct Connection {
    pub(super) client: Arc<Client>,
    pub(super) require_standby: bool,
    heard: Arc<Mutex<Heard>>,
    woken: Arc<Notify>,
    statements: HashMap<&'static str, Statement>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects to a server that takes writes, and makes the settings.
    pub async fn open(target: &Target) -> Result<Self, ConnectError> {
        let made = async {
            let (client, connection) = target.config.connect(target.tls.clone()).await?;
            let (heard, woken) = (Arc::default(), Arc::default());
            let connection = Connection {
                client: Arc::new(client),
                require_standby: target.require_standby,
                driver: tokio::spawn(drive(connection, Arc::clone(&heard), Arc::clone(&woken))),
                heard,
                woken,
                statements: HashMap::new(),
            };
            connection.client.batch_execute(SETTINGS).await?;
            Ok(connection)
        };
        let made = timeout(CONNECT_WAIT, made).await;
        let made = made.map_err(|_| ConnectError::Slow(CONNECT_WAIT))?;
        made.map_err(|error: Error| ConnectError::Failed(describe(&error)))
    }

    /// The prepared statement, which is prepared when it is first asked for.
    pub(super) async fn statement(&mut self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Forgets a warning that came before.
    pub(super) fn clear_warning(&self) {
        lock(&self.heard).warning = None;
    }

    /// The first warning since [`Connection::clear_warning`]. It is here before the answer of the statement
    /// that it belongs to.
    pub(super) fn warning(&self) -> Option<String> {
        lock(&self.heard).warning.clone()
    }

    /// Waits for wake-ups. Returns the process ids of the backends that sent them: none once the connection has ended.
    pub(super) async fn woken(&self) -> HashSet<i32> {
        self.woken.notified().await;
        std::mem::take(&mut lock(&self.heard).woken_by)
    }

    /// Why the connection ended, as far as the server or the system has said it.
    pub(super) fn end(&self) -> Option<String> {
        lock(&self.heard).end.clone()
    }
}

/// Moves bytes until the connection ends. The driver's own loop only logs the warnings.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    heard: Arc<Mutex<Heard>>,
    woken: Arc<Notify>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) => {
                let is_harmless = matches!(
                    notice.parsed_severity(),
                    Some(Severity::Debug | Severity::Log | Severity::Info | Severity::Notice)
                );
                if !is_harmless {
                    let warning = format!("{} ({})", notice.message(), notice.code().code());
                    lock(&heard).warning.get_or_insert(warning);
                }
            }
            Ok(AsyncMessage::Notification(notification)) => {
                lock(&heard).woken_by.insert(notification.process_id());
                woken.notify_one();
            }
            Ok(_) => {}
            Err(error) => {
                lock(&heard).end = Some(describe(&error));
                break;
            }
        }
    }
    woken.notify_one();
}

/// What an error says, with its causes: the driver's own text may be "db error" alone.
pub(super) fn describe(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let detail = error.to_string();
        if !text.ends_with(&detail) {
            // Writing to a string does not fail.
            let _ = write!(text, ": {detail}");
        }
        cause = error.source();
    }
    text
}
