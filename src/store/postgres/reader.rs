//! Connections that only read. Each connects when it is first asked, and again after it was lost.
//!
//! A reading may see what no standby has yet (N5): what is told to a provider or a caller is not read here.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::ErrorKind;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::store::border::Error;
use crate::store::columns::{Column, FromRow, Numbered};

use super::connection::{Connection, Target, describe};

/// How long a reading waits for those before it: as long as a connection may take to be made.
const TURN: Duration = Duration::from_secs(10);

/// How the codes begin of errors that the server has with what it reads, and what they mean, the first one that fits:
/// damaged data (XX001) and a damaged index (XX002); what else is wrong inside of it (XX000), of its disk (58030), and
/// no memory, for which a damaged length asks: these say nothing of the data, and may pass.
pub(super) const UNREAD: [(&str, ErrorKind); 5] = [
    ("XX001", ErrorKind::InvalidData),
    ("XX002", ErrorKind::InvalidData),
    ("XX", ErrorKind::Other),
    ("58", ErrorKind::Other),
    ("53200", ErrorKind::Other),
];

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A reading connection. Its readings take turns.
pub(super) struct Reader {
    target: Target,
    kept: Mutex<Option<Connection>>,
}

impl Reader {
    pub(super) fn new(target: Target) -> Self {
        Reader { target, kept: Mutex::new(None) }
    }

    /// Whether a reading would begin at once.
    pub(super) fn is_free(&self) -> bool {
        self.kept.try_lock().is_ok()
    }

    /// Statements, of which each sees what is committed when it begins.
    pub(super) async fn read(&self) -> Result<Reading<'_>, Error> {
        let turn = timeout(TURN, self.kept.lock()).await;
        let mut kept = turn.map_err(|_| {
            Error::Unavailable("other readings wait for the database's answers".to_owned())
        })?;
        if kept.as_ref().is_none_or(|kept| !kept.is_usable(&self.target)) {
            *kept = None;
            *kept = Some(self.connect().await?);
        }
        let (in_transaction, is_idle) = (false, true);
        Ok(Reading { kept, most: None, in_transaction, is_idle, unread: None })
    }

    /// Statements that see one snapshot, and take at most so long, each. They are planned anew for their values: a filter
    /// that is not given costs nothing, and a state finds its partial index.
    pub(super) async fn snapshot(&self, most: Option<Duration>) -> Result<Reading<'_>, Error> {
        let mut reading = self.read().await?;
        (reading.most, reading.in_transaction) = (most, true);
        // Sent in front of the first statement. It fails only where that fails too: the connection is lost.
        reading.send(&format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
             SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL statement_timeout = {}",
            most.map_or(0, |most| most.as_millis().max(1))
        ));
        Ok(reading)
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let connection = Connection::open(&self.target).await;
        connection.map_err(|error| Error::Unavailable(error.to_string()))
    }
}

/// A turn on the connection. Its end ends the transaction, and closes a connection that was lost or still waits for an
/// answer.
pub(super) struct Reading<'a> {
    kept: MutexGuard<'a, Option<Connection>>,
    /// A statement's longest time.
    most: Option<Duration>,
    in_transaction: bool,
    is_idle: bool,
    /// What the last error means, if it says that the server cannot read what it has.
    pub(super) unread: Option<ErrorKind>,
}

impl Reading<'_> {
    fn send(&self, sql: &str) {
        if let Some(connection) = self.kept.as_ref() {
            let _ = connection.client.batch_execute(sql).now_or_never();
        }
    }

    pub(super) async fn rows(
        &mut self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.is_idle = false;
        let Some(connection) = self.kept.as_mut() else {
            return Err(Error::Unavailable("the connection is closed".to_owned()));
        };
        let rows = match connection.statement(sql).await {
            Ok(statement) => connection.client.query(&statement, params).await,
            Err(error) => Err(error),
        };
        let error = match rows {
            Ok(rows) => {
                self.is_idle = true;
                return Ok(rows);
            }
            Err(error) => error,
        };
        let code = error.code().map_or("", SqlState::code);
        let unread = UNREAD.iter().find(|(begin, _)| code.starts_with(begin));
        self.unread = unread.map(|(_, kind)| *kind);
        // A migration has changed a table whose columns a prepared statement returns.
        let has_changed = error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED);
        // The server goes on after an error of its own.
        self.is_idle = error.as_db_error().is_some() && !has_changed;
        Err(match (self.most, error.code() == Some(&SqlState::QUERY_CANCELED)) {
            (Some(most), true) => Error::TooSlow(most),
            _ if has_changed => Error::Unavailable("its tables were changed; ask again".to_owned()),
            _ => Error::Unavailable(connection.end().unwrap_or_else(|| describe(&error))),
        })
    }

    pub(super) async fn all<T: FromRow>(
        &mut self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<T>, Error> {
        self.rows(sql, params).await?.iter().map(T::from_row).collect()
    }

    /// The only row, if there is one.
    pub(super) async fn one<T: FromRow>(
        &mut self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Option<T>, Error> {
        Ok(self.all(sql, params).await?.pop())
    }

    /// The rows that belong to each other row.
    pub(super) async fn by_row<T: FromRow, K: Column + Eq + Hash>(
        &mut self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<HashMap<K, Vec<T>>, Error> {
        let mut found: HashMap<K, Vec<T>> = HashMap::new();
        for Numbered { row, of } in self.all(sql, params).await? {
            found.entry(row).or_default().push(of);
        }
        Ok(found)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.is_idle {
            *self.kept = None;
        } else if self.in_transaction {
            self.send("COMMIT");
        }
    }
}
