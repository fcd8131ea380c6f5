//! The one place that opens a connection to PostgreSQL and sets what it depends on.

use std::collections::{HashMap, HashSet};
use std::error::Error as _;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use futures_util::future::{join_all, poll_fn};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Config, Error, SimpleQueryRow, Statement};
use uuid::Uuid;

use crate::limits::LISTINGS;
use crate::store::mutex::lock;

pub(super) use super::target::{ConnectError, Target};

use super::pooler;
use super::server_history::ServerHistory;
use super::target::UNREACHED;

/// Set after the login, so that neither the role's nor the database's own settings remain.
///
/// - A commit waits for the flush, and for the standbys that the server names. The role may ask for more.
/// - Warnings are sent: a wait for a standby that was cancelled is known by its warning alone.
/// - Outside of an explicit `BEGIN READ WRITE` nothing is written. If `BEGIN` itself fails, the statements that
///   are on their way behind it would otherwise commit one by one.
/// - `lock_timeout` and `idle_in_transaction_session_timeout` end a transaction that waits for others or keeps
///   others waiting. `statement_timeout` would end slow statements and not the wait for a standby.
/// - A query whose client is gone ends within a second, so that a node that was killed starts again without waiting for
///   it. Asked for on Linux alone: the documentation also names macOS, illumos and BSD, and others refuse any value but 0.
/// - No plan is compiled. Where one needs a step that is switched off, it costs so much on paper that the server would
///   compile it at each run, for up to 300 ms; statements here take less than one.
/// - Each statement finds its rows by an index, one row after the other, and no plan depends on how many rows the server
///   believes a table to have. It may have counted the jobs when there were none, or when all were ready.
/// - A page of a listing costs the same wherever it lies: the server does not read a whole index in the order of the
///   table.
/// - Temporary tables come last, so that none hides a table of the store.
///
/// Nothing is set unless the backend is process $1 (see [`pooler`]); $2 is the application's name. The first row says
/// which process it is, and what the server is; of a standby, no timeline.
const SETTINGS: &str = "
    SELECT pg_backend_pid(), current_setting('default_transaction_read_only'),
        system_identifier, CASE WHEN NOT pg_is_in_recovery()
            THEN substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END
    FROM pg_control_system();
    SELECT count(set_config(name, value, false)) FROM (VALUES
        ('synchronous_commit', CASE current_setting('synchronous_commit')
            WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END),
        ('application_name', '$2'),
        ('client_connection_check_interval', CASE WHEN version() LIKE '%linux%' THEN '1s' ELSE '0' END),
        ('client_min_messages', 'warning'),
        ('default_transaction_isolation', 'read committed'),
        ('default_transaction_read_only', 'on'),
        ('default_transaction_deferrable', 'off'),
        ('search_path', 'hooklatch, pg_temp'),
        ('lock_timeout', '5s'),
        ('idle_in_transaction_session_timeout', '10s'),
        ('idle_session_timeout', '0'),
        ('statement_timeout', '0'),
        ('jit', 'off'),
        ('enable_seqscan', 'off'),
        ('enable_bitmapscan', 'off'),
        ('enable_hashjoin', 'off'),
        ('enable_mergejoin', 'off'),
        ('random_page_cost', '1'),
        ('tcp_keepalives_idle', '10'),
        ('tcp_keepalives_interval', '5'),
        ('tcp_keepalives_count', '3'),
        ('tcp_user_timeout', '25s')
    ) AS setting (name, value) WHERE pg_backend_pid() = $1;";

/// Reads the identity of the store, behind the settings, once the node has used a store there.
const STORE: &str = "SELECT store_id FROM hooklatch.meta";

/// A node's connections: the writer's; those of payloads, wake-ups, housekeeping, operators' changes and look-ups; and
/// those of listings.
const _: () = assert!(6 + LISTINGS == 8, "as the hint below and docs/several-machines.md say");

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
    (
        "(53300)",
        "each node needs eight connections: raise max_connections of the server, or the role's CONNECTION LIMIT",
    ),
    ("(57P03)", "wait until the server has started, or see its log"),
    (
        "does not support TLS",
        "give the server a certificate and set ssl = on; on a network that is yours alone, add ?sslmode=disable to storage.url",
    ),
    (
        "invalid peer certificate",
        "set storage.ca to the authority that signed the server's certificate, and name the host in storage.url as the certificate does",
    ),
    (
        "early eof",
        "a proxy in front of the server has no primary now, or the server ended: wait, or see their logs",
    ),
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

/// The code of `commit_follows`.
const COMMIT_FOLLOWS: &str = "HL100";

/// What the server said outside of its answers.
#[derive(Default)]
struct Heard {
    /// A flight's statements are answered, and COMMIT is not.
    at_commit: bool,
    /// The first message since then of severity WARNING or above, or of a severity that this program does not know.
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
    /// What the server said when the connection was made. Without a store that was used before, its `store` is nil.
    pub(super) history: ServerHistory,
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
    /// Connects to the first host that takes writes and has the history that the node uses, and makes the settings. A
    /// node that has used none yet looks at all hosts, and takes the one from which no other has gone on: an old primary
    /// that is up again takes writes too.
    pub async fn open(target: &Target) -> Result<Self, ConnectError> {
        if target.used().is_none() {
            let all = target.hosts.iter().map(|host| Connection::reach(target, host));
            return best(join_all(all).await);
        }
        let mut tried = Vec::new();
        for host in &target.hosts {
            tried.push(Connection::reach(target, host).await);
            if matches!(tried.last(), Some(Ok(_))) {
                break;
            }
        }
        best(tried)
    }

    async fn reach(target: &Target, host: &Config) -> Result<Self, ConnectError> {
        let made = timeout(target.wait(), Connection::make(target, host)).await;
        let connection = made.unwrap_or(Err(ConnectError::Slow(target.wait())))?;
        target.check(&connection.history)?;
        Ok(connection)
    }

    async fn make(target: &Target, host: &Config) -> Result<Self, ConnectError> {
        let failed = |error: Error| ConnectError::Failed(explain(&error));
        let (client, connection) = host.connect(target.tls.clone()).await.map_err(failed)?;
        let (heard, woken) = (Arc::default(), Arc::default());
        let driving = drive(connection, target.clone(), Arc::clone(&heard), Arc::clone(&woken));
        let driver = tokio::spawn(driving);
        let (system, timeline, store) = (String::new(), String::new(), Uuid::nil());
        let mut connection = Connection {
            client: Arc::new(client),
            require_standby: target.require_standby,
            history: ServerHistory { system, timeline, store },
            driver,
            heard,
            woken,
            statements: HashMap::new(),
        };
        let mut process = pooler::login_process(&connection.client).unwrap_or_default();
        let mut rows = connection.set_up(target, process).await.map_err(failed)?;
        let is_primary = text(&rows, 0, 3).is_some();
        if is_primary && !is_of(&rows, process) {
            let found = pooler::find_backend(host, &target.tls, &connection.client).await;
            process = found.map_err(failed)?.ok_or(ConnectError::Pooled)?;
            rows = connection.set_up(target, process).await.map_err(failed)?;
            if !is_of(&rows, process) {
                return Err(ConnectError::Pooled);
            }
        }
        let history = &mut connection.history;
        history.system = text(&rows, 0, 2).unwrap_or_default();
        history.timeline = text(&rows, 0, 3).ok_or(ConnectError::Standby)?;
        history.store = text(&rows, 2, 0).and_then(|id| id.parse().ok()).unwrap_or_default();
        match text(&rows, 0, 1).as_deref() {
            Some("off") => Ok(connection),
            _ => Err(ConnectError::ReadOnly),
        }
    }

    /// Makes the settings if the backend is this process. Returns a row of each statement.
    async fn set_up(&self, target: &Target, process: i32) -> Result<Vec<SimpleQueryRow>, Error> {
        let name = target.name.replace('\'', "''");
        let mut sql = SETTINGS.replace("$1", &process.to_string()).replace("$2", &name);
        if target.knows_store() {
            sql.push_str(STORE);
        }
        let said = self.client.simple_query(&sql).await?.into_iter();
        Ok(said.filter_map(pooler::row).collect())
    }

    /// Whether it is open, and to the history that the node uses now: a server that another one has replaced may go on.
    pub(super) fn is_usable(&self, target: &Target) -> bool {
        !self.client.is_closed() && target.check(&self.history).is_ok()
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

    /// A flight begins.
    pub(super) fn clear_warning(&self) {
        let mut heard = lock(&self.heard);
        (heard.at_commit, heard.warning) = (false, None);
    }

    /// The first warning about the commit of the flight. It is here before the answer of COMMIT.
    pub(super) fn warning(&self) -> Option<String> {
        let heard = lock(&self.heard);
        match heard.at_commit {
            true => heard.warning.clone(),
            false => Some("the server did not say where its COMMIT begins".to_owned()),
        }
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

/// What [`Connection::set_up`] returns in one place.
fn text(rows: &[SimpleQueryRow], row: usize, column: usize) -> Option<String> {
    rows.get(row)?.try_get(column).ok()?.map(str::to_owned)
}

/// Whether the settings are made: the backend is this process.
fn is_of(rows: &[SimpleQueryRow], process: i32) -> bool {
    text(rows, 0, 0) == Some(process.to_string())
}

/// Picks the connection to the latest history of the first one's system. Without a connection, returns the first error
/// that is not of a standby, next to which a primary was looked for.
fn best(tried: Vec<Result<Connection, ConnectError>>) -> Result<Connection, ConnectError> {
    let (mut found, mut error) = (None::<Connection>, None);
    for one in tried {
        match (one, &found, &error) {
            (Ok(one), None, _) => found = Some(one),
            (Ok(one), Some(first), _) if first.history.is_before(&one.history) => found = Some(one),
            (Err(one), _, None | Some(ConnectError::Standby)) => error = Some(one),
            _ => {}
        }
    }
    found.ok_or_else(|| error.unwrap_or(ConnectError::Standby))
}

/// Moves bytes until the connection ends. The driver's own loop only logs the warnings.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    target: Target,
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
                let mut heard = lock(&heard);
                if notice.code().code() == COMMIT_FOLLOWS {
                    heard.at_commit = true;
                } else if !is_harmless {
                    let text = format!("{} ({})", notice.message(), notice.code().code());
                    match heard.at_commit {
                        true => drop(heard.warning.get_or_insert(text)),
                        false => target.note(text),
                    }
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
