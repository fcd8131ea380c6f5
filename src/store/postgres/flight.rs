//! A transaction whose outcome is never guessed.
//!
//! The statements of a flight leave as soon as they are sent, from `BEGIN` to `COMMIT` in one piece where no
//! statement needs the result of another. The driver's answer to `COMMIT` proves nothing by itself: it is `Ok`
//! for a transaction that had failed, and for a commit whose wait for a standby was cancelled.
//!
//! - **Committed:** every statement and `COMMIT` were answered without an error, no warning came meanwhile, and,
//!   where standbys are required, the server named them just before `COMMIT` and behind it, with no change of
//!   its configuration between.
//! - **Not committed:** `COMMIT` was never sent, or the server answered a statement before it with an error.
//! - **Unknown:** everything else. The connection is gone with it.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::TryStreamExt;
use futures_util::future::{BoxFuture, FutureExt, MaybeDone, maybe_done};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::connection::{Connection, describe};

/// A parameter of a statement.
pub type Param = Box<dyn ToSql + Sync + Send>;

/// Locks the node's row while it has this session and is active, and fails with the code [`FENCED`] otherwise: a
/// result of no rows would not stop the statements that are on their way behind it.
const FENCE: &str = "SELECT fence($1, $2)";

/// The error that `fence` raises.
const FENCED: &str = "HL001";

/// Whether the server names standbys, and when this connection last read the configuration. The server ends all waits
/// when the names are emptied, which two equal answers around `COMMIT` rule out.
///
/// They do not show that a wait began. The server's checkpointer tells the backends to wait, so for as long as it
/// has not read names that were just set (it is in a checkpoint), commits do not wait, and the answers are the same.
const STANDBYS: &str =
    "SELECT current_setting('synchronous_standby_names') <> '', pg_conf_load_time()::text";

/// The right of one node to write, until its next registration or until it is declared lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    pub node: Uuid,
    /// Random, and written to the node's row.
    pub id: Uuid,
    /// Grows with each session of the node.
    pub count: i64,
}

/// How a flight ended.
pub enum Outcome {
    /// Flushed by the server, and by a standby where one is required. The rows of each sent statement, by the
    /// number that [`Flight::send`] gave.
    Committed(Connection, Vec<Vec<Row>>),
    /// Nothing of it is stored, and nothing will be. The connection, where it can be used further.
    NotCommitted(Refusal, Option<Connection>),
    /// It may be stored, now or a moment later. The next registration of the node makes it certain.
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
    /// `code` is the SQLSTATE, empty where the server did not answer.
    #[error("{text}")]
    Failed { code: String, text: String },
}

impl Refusal {
    pub(super) fn of(error: &Error) -> Self {
        let text = describe(error);
        match error.code().map_or("", SqlState::code) {
            FENCED => Refusal::Fenced,
            "40P01" | "40001" => Refusal::Conflict(text),
            "55P03" => Refusal::LockTimeout(text),
            code => Refusal::Failed { code: code.to_owned(), text },
        }
    }
}

/// Why it is not known whether a flight is committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// An answer is missing, or `COMMIT` was answered with an error.
    #[error("the connection was lost: {0}")]
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
/// transaction that has no `COMMIT` yet.
pub struct Flight {
    /// Of every statement, in the order in which they were sent.
    answers: Vec<Answer>,
    /// The statements in front of the caller's.
    own: usize,
    connection: Connection,
}

impl Flight {
    /// Begins a transaction that locks the session's row first.
    pub async fn begin(connection: Connection, session: &Session) -> Self {
        let mut flight = Flight::unfenced(connection);
        flight.send(FENCE, vec![Box::new(session.node), Box::new(session.id)]).await;
        flight.own += 1;
        flight
    }

    /// Begins a transaction of no session: a registration or a migration.
    pub(super) fn unfenced(connection: Connection) -> Self {
        connection.clear_warning();
        let mut flight = Flight { answers: Vec::new(), own: 1, connection };
        flight.run("BEGIN READ WRITE");
        flight
    }

    /// Sends a statement without waiting for earlier ones, and returns its number, from 0. Only where this
    /// connection sends it for the first time is it prepared, which takes a round trip.
    pub async fn send(&mut self, sql: &'static str, params: Vec<Param>) -> usize {
        let statement = self.connection.statement(sql).await;
        let client = Arc::clone(&self.connection.client);
        self.push(Box::pin(async move {
            client.query_raw(&statement?, params).await?.try_collect().await
        }));
        self.answers.len() - self.own - 1
    }

    /// Sends SQL that takes no parameters and returns no rows.
    pub(super) fn run(&mut self, sql: &'static str) {
        let client = Arc::clone(&self.connection.client);
        self.push(Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) }));
    }

    /// The first poll of an answer encodes its statement and hands it to the connection's driver.
    fn push(&mut self, answer: BoxFuture<'static, Result<Vec<Row>, Error>>) {
        let mut answer = maybe_done(answer);
        let _ = (&mut answer).now_or_never();
        self.answers.push(answer);
    }

    /// Waits for the rows of statement `number`. `None` where a statement has failed: [`Flight::commit`] then
    /// tells how.
    pub async fn rows(&mut self, number: usize) -> Option<&[Row]> {
        let answer = self.answers.get_mut(self.own + number)?;
        (&mut *answer).await;
        Pin::new(answer).output_mut()?.as_deref().ok()
    }

    /// Ends the transaction, and waits for everything that decides how it ended.
    pub async fn commit(mut self) -> Outcome {
        let is_failed = |answer: &mut Answer| matches!(Pin::new(answer).output_mut(), Some(Err(_)));
        // A statement that cannot be encoded never leaves, and the rest would be committed without it.
        if self.answers.iter_mut().any(is_failed) {
            return self.roll_back().await;
        }
        if self.connection.require_standby {
            self.send(STANDBYS, Vec::new()).await;
        }
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
                return Outcome::NotCommitted(
                    Refusal::of(error),
                    is_usable.then_some(self.connection),
                );
            }
        }
        let mut rows = Vec::new();
        for answer in answers.into_iter().chain(after) {
            match answer {
                Ok(answer) => rows.push(answer),
                Err(error) => return Outcome::Unknown(self.lost(&error)),
            }
        }
        if let Some(warning) = self.connection.warning() {
            return Outcome::Unknown(Doubt::Warned(warning));
        }
        if self.connection.require_standby && !waited(&rows) {
            return Outcome::Unknown(Doubt::NoStandby);
        }
        rows.truncate(sent - usize::from(self.connection.require_standby));
        rows.drain(..self.own);
        Outcome::Committed(self.connection, rows)
    }

    /// Ends the transaction without a commit.
    pub async fn roll_back(mut self) -> Outcome {
        self.run("ROLLBACK");
        let answers = self.answers().await;
        let is_usable = answers.last().is_some_and(Result::is_ok);
        let refusal = answers.iter().find_map(|answer| answer.as_ref().err()).map(Refusal::of);
        let refusal = refusal.unwrap_or_else(|| Refusal::Failed {
            code: String::new(),
            text: "rolled back by this program".to_owned(),
        });
        Outcome::NotCommitted(refusal, is_usable.then_some(self.connection))
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

/// Whether the two looks say that standbys were named throughout: before `COMMIT`, and as the last statement.
fn waited(rows: &[Vec<Row>]) -> bool {
    let look = |rows: &Vec<Row>| -> Option<(bool, String)> {
        let row = rows.first()?;
        Some((row.try_get(0).ok()?, row.try_get(1).ok()?))
    };
    let [.., before, _, behind] = rows else { return false };
    match (look(before), look(behind)) {
        (Some((true, before)), Some((true, behind))) => before == behind,
        _ => false,
    }
}
