//! A transaction whose outcome is never guessed.
//!
//! A flight hands each statement to the socket at once, without waiting for earlier answers. The driver's answer to
//! `COMMIT` proves nothing by itself: it is `Ok` for a transaction that had failed, and for a commit whose wait for a
//! standby was cancelled.
//!
//! - **Committed:** every statement and `COMMIT` were answered without an error, no warning came between the answer to the
//!   last statement and that of `COMMIT`, and, if standbys are required, `synchronous_standby_names` was not empty just before `COMMIT` and just after it, and the
//!   backend did not load its configuration in between. [`STANDBYS`] says what this does not show.
//! - **Not committed:** `COMMIT` was never sent, or the server answered a statement before it with an error.
//! - **Unknown:** everything else. The connection is dropped.
//!
//! If `BEGIN` itself fails, the statements behind it cannot write: outside of `BEGIN READ WRITE` a connection only
//! reads.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::TryStreamExt;
use futures_util::future::{BoxFuture, FutureExt, MaybeDone, maybe_done};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use crate::model::Timestamp;

use super::connection::{Connection, describe};
use super::reader::UNREAD;

/// A parameter of a statement.
pub type Param = Box<dyn ToSql + Sync + Send>;

/// Locks the node's row while it has this session and is active. Otherwise it fails with the code [`FENCED`], or with
/// [`UNSET`] if the connection has lost its settings: a result of no rows would not stop the statements behind it.
const FENCE: &str = "SELECT fence($1, $2)";

/// The errors that `fence` raises.
const FENCED: &str = "HL001";
const UNSET: &str = "HL002";

/// The error that `check_schema` raises.
const UNUSABLE: &str = "HL003";

/// The classes of errors that pass: the server has too few resources, is stopped, has I/O errors, or only reads.
const PASSING: [&str; 4] = ["53", "57", "58", "25"];

/// Whether the server names standbys, and when this connection last loaded the configuration. When the names are
/// emptied, the server ends all waits; two equal answers around `COMMIT` prove that this did not happen.
///
/// They do not prove that a wait began. Until the server's checkpointer has loaded names that were just set,
/// commits do not wait, and the answers are equal all the same.
const STANDBYS: &str =
    "SELECT current_setting('synchronous_standby_names') <> '', pg_conf_load_time()::text";

/// Tells the driver that no later warning is about a statement.
const COMMIT_FOLLOWS: &str = "SELECT commit_follows()";

/// The right of one node to write, until its next registration or until it is declared lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    pub node: Uuid,
    /// Random, and written to the node's row.
    pub id: Uuid,
    /// Grows with each session of the node. The fence does not compare it: it tells a copied state folder.
    pub count: i64,
    /// When the database was last restored. A restore ends all sessions.
    pub restored_at: Option<Timestamp>,
}

/// How a flight ended.
pub enum FlightOutcome {
    /// Flushed by the server, and by a standby where one is required. The rows of each sent statement, at the
    /// index that [`Flight::send`] returned.
    Committed(Connection, Vec<Vec<Row>>),
    /// Nothing of it is stored, and nothing will be. It has the connection, where that can be used further.
    NotCommitted(Refusal, Option<Connection>),
    /// It may be stored, now or a moment later. After the node's next registration the rows show whether it is, and
    /// that changes no more.
    Unknown(Doubt),
}

/// Why a flight is not committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The node has a newer session, or has been declared lost.
    #[error("another session of this node has taken over, or the node has been declared lost")]
    Fenced,
    /// A deadlock or a serialization failure: the same flight can succeed when it is repeated.
    #[error("in conflict with another transaction: {0}")]
    Conflict(String),
    /// A lock was not free within `lock_timeout`. The same flight can succeed when it is repeated.
    #[error("waited too long for another transaction: {0}")]
    LockTimeout(String),
    /// The connection has lost its settings: a pooler in transaction mode is in between.
    #[error("{0}")]
    Unset(String),
    /// `code` is the SQLSTATE, empty if the error is not the server's.
    #[error("{text}")]
    Failed { code: String, text: String },
}

impl Refusal {
    pub(crate) fn of(error: &Error) -> Self {
        let text = describe(error);
        match error.code().map_or("", SqlState::code) {
            FENCED => Refusal::Fenced,
            UNSET => Refusal::Unset(text),
            "40P01" | "40001" => Refusal::Conflict(text),
            "55P03" => Refusal::LockTimeout(text),
            code => Refusal::Failed { code: code.to_owned(), text },
        }
    }

    /// Whether the server as a whole is the cause, and the same flight may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Refusal::Failed { code, .. } if PASSING.iter().any(|class| code.starts_with(class)))
    }

    /// Whether the server cannot read what it has.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self, Refusal::Failed { code, .. } if UNREAD.iter().any(|(begin, _)| code.starts_with(begin)))
    }

    /// Whether this program cannot use the tables as they are.
    pub(super) fn is_of_schema(&self) -> bool {
        matches!(self, Refusal::Failed { code, .. } if code == UNUSABLE)
    }

    /// Whether no later flight of this session, or on this connection, can succeed.
    pub(super) fn ends_the_session(&self) -> bool {
        matches!(self, Refusal::Fenced | Refusal::Unset(_))
    }
}

/// Why it is not known whether a flight is committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// An answer is missing, or `COMMIT` was answered with an error.
    #[error("COMMIT has no valid answer: {0}")]
    Lost(String),
    #[error("the server warned: {0}")]
    Warned(String),
    /// The server names no standby, or its configuration changed while the commit waited.
    #[error(
        "the commit may not have waited for a standby: synchronous_standby_names is empty or was changed"
    )]
    NoStandby,
}

type Answer = MaybeDone<BoxFuture<'static, Result<Vec<Row>, Error>>>;

/// A transaction under way. It owns its connection: dropping it closes the connection, and the server rolls back a
/// transaction that has no `COMMIT` yet. The future of [`Flight::commit`] is not to be dropped: the outcome would
/// be lost.
pub struct Flight {
    /// The answers to all statements, in the order in which they were sent.
    answers: Vec<Answer>,
    /// How many statements come before the caller's: `BEGIN` and the fence.
    leading: usize,
    connection: Connection,
}

impl Flight {
    /// Begins a transaction that locks the session's row first.
    pub async fn begin(connection: Connection, session: &Session) -> Self {
        let mut flight = Flight::unfenced(connection);
        flight.send(FENCE, vec![Box::new(session.node), Box::new(session.id)]).await;
        flight.leading += 1;
        flight
    }

    /// Begins a transaction of no session: a registration or a migration.
    pub(crate) fn unfenced(connection: Connection) -> Self {
        connection.clear_warning();
        let mut flight = Flight { answers: Vec::new(), leading: 1, connection };
        flight.run("BEGIN READ WRITE");
        flight
    }

    /// Sends a statement, and returns its number, from 0. The first use on a connection prepares it, which waits for
    /// one round trip behind all earlier statements.
    pub async fn send(&mut self, sql: &'static str, params: Vec<Param>) -> usize {
        if !self.connection.has_prepared(sql) {
            self.read(self.answers.len()).await;
        }
        let statement = self.connection.statement(sql).await;
        let client = Arc::clone(&self.connection.client);
        self.push(Box::pin(async move {
            client.query_raw(&statement?, params).await?.try_collect().await
        }));
        self.answers.len() - self.leading - 1
    }

    pub(super) fn require_standby(&self) -> bool {
        self.connection.require_standby
    }

    /// Sends SQL that takes no parameters and returns no rows.
    pub(super) fn run(&mut self, sql: &'static str) {
        let client = Arc::clone(&self.connection.client);
        self.push(Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) }));
    }

    /// Does work within the transaction that needs answers on its way, as a COPY does. After an error the transaction
    /// is rolled back, and the flight is gone: it cannot be committed without the work.
    pub(crate) async fn with<T, E>(
        self,
        work: impl AsyncFnOnce(&Client) -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        match work(&self.connection.client).await {
            Ok(value) => Ok((self, value)),
            Err(error) => {
                self.roll_back().await;
                Err(error)
            }
        }
    }

    /// Polls an answer once, which encodes its statement and queues it for the socket. So an error of encoding is
    /// known before `COMMIT` is sent.
    fn push(&mut self, answer: BoxFuture<'static, Result<Vec<Row>, Error>>) {
        let mut answer = maybe_done(answer);
        let _ = (&mut answer).now_or_never();
        self.answers.push(answer);
    }

    /// Waits for the rows of statement `number`. `None` where a statement has failed: [`Flight::commit`] then
    /// tells how.
    pub async fn rows(&mut self, number: usize) -> Option<&[Row]> {
        let place = self.leading + number;
        self.read(place + 1).await;
        Pin::new(self.answers.get_mut(place)?).output_mut()?.as_deref().ok()
    }

    /// Waits for the first `count` answers, in their order. The driver buffers a few parts of each unread answer, and
    /// then stops reading the socket: waiting for a later answer alone may deadlock.
    async fn read(&mut self, count: usize) {
        for answer in self.answers.iter_mut().take(count) {
            answer.await;
        }
    }

    /// Ends the transaction, and waits for everything that decides how it ended.
    pub async fn commit(mut self) -> FlightOutcome {
        let is_failed = |answer: &mut Answer| matches!(Pin::new(answer).output_mut(), Some(Err(_)));
        // A statement that cannot be encoded never leaves, and the rest would be committed without it.
        if self.answers.iter_mut().any(is_failed) {
            return self.roll_back().await;
        }
        if self.connection.require_standby {
            self.send(STANDBYS, Vec::new()).await;
        }
        self.send(COMMIT_FOLLOWS, Vec::new()).await;
        let sent = self.answers.len();
        self.run("COMMIT");
        if self.connection.require_standby {
            self.send(STANDBYS, Vec::new()).await;
        }
        let mut answers = self.answers().await;
        let after = answers.split_off(sent);
        for answer in &answers {
            if let Err(error) = answer
                && error.as_db_error().is_some()
            {
                let is_usable = after.iter().all(Result::is_ok);
                return FlightOutcome::NotCommitted(
                    Refusal::of(error),
                    is_usable.then_some(self.connection),
                );
            }
        }
        let mut rows = Vec::new();
        for answer in answers.into_iter().chain(after) {
            match answer {
                Ok(answer) => rows.push(answer),
                Err(error) => return FlightOutcome::Unknown(self.lost(&error)),
            }
        }
        if let Some(warning) = self.connection.warning() {
            return FlightOutcome::Unknown(Doubt::Warned(warning));
        }
        if self.connection.require_standby && !has_standbys_throughout(&rows) {
            return FlightOutcome::Unknown(Doubt::NoStandby);
        }
        rows.truncate(sent - 1 - usize::from(self.connection.require_standby));
        rows.drain(..self.leading);
        FlightOutcome::Committed(self.connection, rows)
    }

    /// Ends the transaction without a commit.
    pub async fn roll_back(mut self) -> FlightOutcome {
        self.run("ROLLBACK");
        let answers = self.answers().await;
        let is_usable = answers.last().is_some_and(Result::is_ok);
        let refusal = answers.iter().find_map(|answer| answer.as_ref().err()).map(Refusal::of);
        let refusal = refusal.unwrap_or_else(|| Refusal::Failed {
            code: String::new(),
            text: "rolled back by this program".to_owned(),
        });
        FlightOutcome::NotCommitted(refusal, is_usable.then_some(self.connection))
    }

    async fn answers(&mut self) -> Vec<Result<Vec<Row>, Error>> {
        let mut answers = Vec::new();
        for mut answer in self.answers.drain(..) {
            (&mut answer).await;
            answers.extend(Pin::new(&mut answer).take_output());
        }
        answers
    }

    fn lost(&self, error: &Error) -> Doubt {
        Doubt::Lost(self.connection.end().unwrap_or_else(|| describe(error)))
    }
}

/// Whether the answers to [`STANDBYS`] before `COMMIT` and behind it are equal, and name standbys.
fn has_standbys_throughout(rows: &[Vec<Row>]) -> bool {
    let look = |rows: &Vec<Row>| -> Option<(bool, String)> {
        let row = rows.first()?;
        Some((row.try_get(0).ok()?, row.try_get(1).ok()?))
    };
    let [.., before, _follows, _commit, behind] = rows else { return false };
    match (look(before), look(behind)) {
        (Some((true, before)), Some((true, behind))) => before == behind,
        _ => false,
    }
}
