//! The one place that opens a connection to PostgreSQL and sets what it depends on.

use std::collections::{HashMap, HashSet};
use std::error::Error as _;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use futures_util::future::poll_fn;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Error, Statement};

use crate::store::mutex::lock;

pub(super) use super::target::{ConnectError, Target};

use super::target::{CONNECT_WAIT, UNREACHED};

/// Set after the login, so that neither the role's nor the database's own settings remain.
///
/// - A commit waits for the flush, and for the standbys that the server names. The role may ask for more.
/// - Warnings are sent: a wait for a standby that was cancelled is known by its warning alone.
/// - Outside of an explicit `BEGIN READ WRITE` nothing is written. If `BEGIN` itself fails, the statements that
///   are on their way behind it would otherwise commit one by one.
/// - `lock_timeout` and `idle_in_transaction_session_timeout` end a transaction that waits for others or keeps
///   others waiting. `statement_timeout` would end slow statements and not the wait for a standby.
/// - No plan is compiled. Where one needs a step that is switched off, it costs so much on paper that the server would
///   compile it at each run, for up to 300 ms; statements here take less than one.
/// - Each statement finds its rows by an index, one row after the other, and no plan depends on how many rows the server
///   believes a table to have. It may have counted the jobs when there were none, or when all were ready.
/// - A page of a listing costs the same wherever it lies: the server does not read a whole index in the order of the
///   table.
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
    SET jit = off;
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET random_page_cost = 1;
    SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = '25s';";

/// What to do about a failed connection, by what its text contains. The server's code ends its text.
const FIXES: [(&str, &str); 12] = [
    ("(28P01)", "set storage.password to the password of the role that storage.url names"),
    ("password missing", "the server asks for a password: set storage.password"),
    (
        "(28000)",
        "add this to the server's pg_hba.conf, and reload it: hostssl DATABASE ROLE ADDRESS scram-sha-256",
    ),
    ("(3D000)", "create the database, or correct storage.url: CREATE DATABASE NAME OWNER ROLE"),
    ("(42501)", "let the role connect: GRANT CONNECT ON DATABASE NAME TO ROLE"),
    ("(53300)", "raise max_connections of the server: each node needs three"),
    ("(57P03)", "wait until the server has started, or see its log"),
    (
        "does not support TLS",
        "give the server a certificate and set ssl = on; on a network that is yours alone, add ?sslmode=disable to storage.url",
    ),
    (
        "invalid peer certificate",
        "set storage.ca to the authority that signed the server's certificate, and name the host in storage.url as the certificate does",
    ),
    ("does not allow writes", "it is a standby: name the primary in storage.url, or both"),
    ("lookup address", "correct the host in storage.url"),
    ("error connecting to server", UNREACHED),
];

/// What is said of a failed connection.
fn explain(error: &Error) -> String {
    let text = describe(error);
    match FIXES.iter().find(|(part, _)| text.contains(part)) {
        Some((_, fix)) => format!("{text}; {fix}"),
        None => text,
    }
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
        made.map_err(|error: Error| ConnectError::Failed(explain(&error)))
    }

    pub(super) fn has_prepared(&self, sql: &'static str) -> bool {
        self.statements.contains_key(sql)
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
