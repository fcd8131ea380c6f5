//! A transaction of no session: an operator's verb or a step of housekeeping, on a connection of its own.
//!
//! Its first statement writes to the log, so its commit waits for the flush and the standbys even if the rest changes
//! nothing: what its caller hears was read before such a commit (N5). A refusal rolls back, and is told after an empty
//! transaction of the same kind.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::Row;

use crate::clock::Clock;
use crate::model::Timestamp;
use crate::store::border::Error;

use super::super::connection::{Connection, Target, describe};
use super::super::flight::{Flight, FlightOutcome, Param, Refusal};
use super::super::server::{Severity, check};
use super::super::task::PLANS;
use super::super::wake::NOTIFY;

/// Fails if the connection has lost its settings. Writes to the log by a lock that keeps nobody out. Returns the
/// database's time in milliseconds.
const GUEST: &str = "SELECT guest()";

/// How often a change is tried that is in conflict with other transactions. A try waits for each lock for 5 s at most.
const TRIES: u32 = 5;

/// The wait before the second try; each later one is longer by as much.
const PAUSE: Duration = Duration::from_millis(50);

/// Between two rounds of [`Changer::keep`].
const KEEP_PAUSE: Duration = Duration::from_secs(2);

/// What one transaction does.
pub(in super::super) trait Change: Send + Sync + 'static {
    type Done: Send + 'static;

    /// Whether the nodes are woken behind it.
    const WAKES: bool = false;

    /// Sends the statements. After a conflict it runs again in another transaction. `now` is the database's time.
    fn run(
        &self,
        flight: &mut Flight,
        now: Timestamp,
    ) -> impl Future<Output = Result<Self::Done, Stop>> + Send;
}

/// Why a change ends without a commit.
pub(in super::super) enum Stop {
    Refused(Error),
    /// A statement failed. The flight has the error.
    Failed,
    /// Another transaction changed the rows before they were locked.
    Changed,
    /// A row cannot be read, or is not as the locks promise.
    Broken(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Stop {
    fn from(error: tokio_postgres::Error) -> Self {
        Stop::Broken(describe(&error))
    }
}

/// Sends a statement and waits for its rows.
pub(super) async fn ask<'f>(
    flight: &'f mut Flight,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<&'f [Row], Stop> {
    let number = flight.send(sql, params).await;
    flight.rows(number).await.ok_or(Stop::Failed)
}

/// The same of a guarded statement, which returns the one row that it changes. Another number is a broken promise.
pub(super) async fn change_one(
    flight: &mut Flight,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<(), Stop> {
    match ask(flight, sql, params).await?.len() {
        1 => Ok(()),
        changed => Err(Stop::Broken(format!("{changed} rows changed instead of one"))),
    }
}

/// Makes changes one after the other.
pub(in super::super) struct Changer {
    target: Target,
    clock: Clock,
    /// None before the first change, and after one that ended the connection.
    connection: Mutex<Option<Connection>>,
}

impl Changer {
    pub(in super::super) fn new(target: Target, clock: Clock) -> Arc<Self> {
        Arc::new(Changer { target, clock, connection: Mutex::default() })
    }

    /// Makes the change. It goes on if the caller is gone: its connection is not dropped in the middle.
    ///
    /// # Errors
    /// Only [`Error::Unconfirmed`] leaves open whether it is made.
    pub(super) async fn make<C: Change>(self: &Arc<Self>, change: C) -> Result<C::Done, Error> {
        let own = Arc::clone(self);
        let task = tokio::spawn(async move { own.try_often(&change).await });
        task.await.unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
    }

    /// Makes the change as soon as the database can be written. If it is not known whether it is made, it is not tried
    /// again.
    pub(super) fn keep<C: Change>(self: &Arc<Self>, change: C) -> JoinHandle<()> {
        let own = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                match own.try_often(&change).await {
                    Err(Error::Unavailable(why)) => {
                        tracing::debug!(why, "a change waits for the database");
                        sleep(KEEP_PAUSE).await;
                    }
                    Err(error) => return tracing::warn!(%error, "a change may be missing"),
                    Ok(_) => return,
                }
            }
        })
    }

    /// The rows of a query outside of a transaction. What they say may be on no standby (N5): nobody may
    /// promise anything by it.
    pub(super) async fn look(
        &self,
        sql: &'static str,
        params: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let failed = |error| Error::Unavailable(describe(&error));
        let mut kept = self.connection.lock().await;
        let mut connection = self.take(&mut kept).await?;
        let statement = connection.statement(sql).await.map_err(failed)?;
        let rows = connection.client.query(&statement, params).await.map_err(failed)?;
        *kept = Some(connection);
        Ok(rows)
    }

    async fn try_often<C: Change>(&self, change: &C) -> Result<C::Done, Error> {
        let mut kept = self.connection.lock().await;
        let mut tries = 1;
        loop {
            let connection = self.take(&mut kept).await?;
            let (outcome, done) = attempt(connection, change).await;
            let (why, connection) = match outcome {
                FlightOutcome::Committed(connection, _) => {
                    // Alone in its transaction (N20). A node that misses it looks at its next tick.
                    if C::WAKES && done.is_ok() {
                        let woken = connection.client.batch_execute(NOTIFY).await;
                        *kept = woken.is_ok().then_some(connection);
                    } else {
                        *kept = Some(connection);
                    }
                    return done;
                }
                FlightOutcome::Unknown(doubt) => return Err(Error::Unconfirmed(doubt.to_string())),
                FlightOutcome::NotCommitted(why, connection) => (why, connection),
            };
            // The connection ended, perhaps while it was not used, and COMMIT was not sent.
            let is_old = connection.is_none() && matches!(why, Refusal::Failed { .. });
            let is_met = matches!(why, Refusal::Conflict(_) | Refusal::LockTimeout(_));
            *kept = connection.filter(|_| !why.ends_the_session());
            if tries == TRIES || !(is_old || is_met) {
                return Err(Error::Unavailable(format!("nothing was changed: {why}")));
            }
            sleep(PAUSE * tries).await;
            tries += 1;
        }
    }

    /// The kept connection, or another one to a server that is as it must be.
    async fn take(&self, kept: &mut Option<Connection>) -> Result<Connection, Error> {
        let away = |why: String| Error::Unavailable(why);
        if let Some(connection) = kept.take().filter(|kept| kept.end().is_none()) {
            return Ok(connection);
        }
        let connection = Connection::open(&self.target).await;
        let connection = connection.map_err(|error| away(error.to_string()))?;
        let findings = check(&connection, &self.clock).await.map_err(away)?;
        let bad = findings.into_iter().find(|finding| finding.severity != Severity::Warned);
        if let Some(bad) = bad {
            return Err(away(bad.text));
        }
        let planned = connection.client.batch_execute(PLANS).await;
        planned.map_err(|error| away(describe(&error)))?;
        Ok(connection)
    }
}

/// Runs the change once. Its result counts where the outcome is a commit.
async fn attempt<C: Change>(
    connection: Connection,
    change: &C,
) -> (FlightOutcome, Result<C::Done, Error>) {
    let nothing = || Err(Error::Unavailable("nothing was changed".to_owned()));
    let mut flight = Flight::unfenced(connection);
    let stop = match begin(&mut flight).await {
        Ok(now) => match change.run(&mut flight, now).await {
            Ok(done) => return (flight.commit().await, Ok(done)),
            Err(stop) => stop,
        },
        Err(stop) => stop,
    };
    let outcome = flight.roll_back().await;
    let FlightOutcome::NotCommitted(why, connection) = outcome else { return (outcome, nothing()) };
    let why = match (stop, connection) {
        (Stop::Refused(error), Some(connection)) => {
            let mut flight = Flight::unfenced(connection);
            flight.send(GUEST, Vec::new()).await;
            return (flight.commit().await, Err(error));
        }
        (Stop::Changed, connection) => {
            let why = Refusal::Conflict("another transaction changed the same jobs".to_owned());
            return (FlightOutcome::NotCommitted(why, connection), nothing());
        }
        (Stop::Broken(text), connection) => {
            let why = Refusal::Failed { code: String::new(), text };
            return (FlightOutcome::NotCommitted(why, connection), nothing());
        }
        (Stop::Failed | Stop::Refused(_), connection) => (why, connection),
    };
    (FlightOutcome::NotCommitted(why.0, why.1), nothing())
}

async fn begin(flight: &mut Flight) -> Result<Timestamp, Stop> {
    let rows = ask(flight, GUEST, Vec::new()).await?;
    let row = rows.first().ok_or_else(|| Stop::Broken("no answer".to_owned()))?;
    Ok(Timestamp(row.try_get(0)?))
}
