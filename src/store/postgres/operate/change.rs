//! A transaction of no session: an operator's verb or a step of housekeeping, on a connection of its own.
//!
//! Its first statement writes to the log, so its commit waits for the flush and the standbys even if the rest changes
//! nothing: the caller gets only what was read before such a commit (N5). A refusal rolls back, and the caller gets it
//! after the commit of an empty transaction of the same kind.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::clock::Clock;
use crate::model::Timestamp;
use crate::store::border::Error;

use super::super::connection::{Connection, Target, describe};
use super::super::flight::{Flight, FlightOutcome, Param, Refusal};
use super::super::params::params;
use super::super::schema;
use super::super::server::connect;
use super::super::stop::{Stop, ask, ask_one};
use super::super::wake::NOTIFY;

/// Fails if the connection has lost its settings, or the program does not know the schema. Writes to the log by a lock
/// that keeps nobody out. Returns the database's time in milliseconds.
const GUEST: &str = "SELECT guest($1, $2)";

/// How often a change is tried that is in conflict with other transactions. A try waits for each lock for 5 s at most.
const TRIES: u32 = 5;

/// The wait before the second try; each later one is longer by as much.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause between two rounds of [`Changer::keep`].
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

/// One statement, and its rows.
pub(super) struct Statement(
    pub(super) &'static str,
    pub(super) Box<dyn Fn() -> Vec<Param> + Send + Sync>,
);

impl Change for Statement {
    type Done = Vec<Row>;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<Vec<Row>, Stop> {
        Ok(ask(flight, self.0, (self.1)()).await?.to_vec())
    }
}

/// Makes changes one after the other.
pub(in super::super) struct Changer {
    target: Target,
    pub(super) clock: Clock,
    /// The open connection; `None` before the first change, and after one that ended the connection.
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
        self.make_or_say(change).await.map_err(|(error, _)| error)
    }

    /// Makes the change as [`Changer::make`] does. An error comes with whether the server cannot read what it has.
    pub(super) async fn make_or_say<C: Change>(
        self: &Arc<Self>,
        change: C,
    ) -> Result<C::Done, (Error, bool)> {
        let own = Arc::clone(self);
        let task = tokio::spawn(async move {
            let mut is_unread = false;
            let made = own.try_often(&change, &mut is_unread).await;
            let made = made.unwrap_or_else(|away| Err(Error::Unavailable(away)));
            made.map_err(|error| (error, is_unread))
        });
        task.await.unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
    }

    /// The rows of one statement, as a change. Boxed: the compiler finds no `Send` in a future that has the closure's type.
    pub(super) fn send(
        self: &Arc<Self>,
        sql: &'static str,
        params: impl Fn() -> Vec<Param> + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<Vec<Row>, Error>> {
        let own = Arc::clone(self);
        let statement = Statement(sql, Box::new(params));
        Box::pin(async move { own.make(statement).await })
    }

    /// Makes the change as soon as the database can be written. One that the server refuses, or of which it is not
    /// known whether it is made, is not tried again. `what` names it in the log.
    pub(super) fn keep<C: Change>(
        self: &Arc<Self>,
        what: &'static str,
        change: C,
    ) -> JoinHandle<Result<(), Error>> {
        let own = Arc::clone(self);
        tokio::spawn(async move {
            let made = loop {
                match own.try_often(&change, &mut false).await {
                    Ok(made) => break made,
                    Err(why) => tracing::debug!(what, why, "a change waits for the database"),
                }
                sleep(KEEP_PAUSE).await;
            };
            made.map(drop).inspect_err(|error| {
                tracing::error!(what, %error, "a change was given up; it may be missing");
            })
        })
    }

    /// The rows of a query outside of a transaction. What they say may be on no standby (N5): nobody may
    /// promise anything by it.
    pub(super) async fn look(
        &self,
        sql: &'static str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        let failed = |error| Error::Unavailable(describe(&error));
        let mut kept = self.connection.lock().await;
        let mut connection = self.take(&mut kept).await.map_err(Error::Unavailable)?;
        let statement = connection.statement(sql).await.map_err(failed)?;
        let rows = connection.client.query(&statement, params).await.map_err(failed)?;
        *kept = Some(connection);
        Ok(rows)
    }

    /// What became of the change. Fails where it is not made, and a later try may make it. `is_unread`: whether the last try
    /// was refused because the server cannot read what it has.
    async fn try_often<C: Change>(
        &self,
        change: &C,
        is_unread: &mut bool,
    ) -> Result<Result<C::Done, Error>, String> {
        let mut kept = self.connection.lock().await;
        let mut tries = 1;
        loop {
            let connection = self.take(&mut kept).await?;
            let (outcome, done) = attempt(connection, change).await;
            let (why, connection) = match outcome {
                FlightOutcome::Committed(connection, _) => {
                    // Alone in its transaction (N20). A node that misses it looks at its next tick.
                    let is_usable = !C::WAKES
                        || done.is_err()
                        || connection.client.batch_execute(NOTIFY).await.is_ok();
                    *kept = is_usable.then_some(connection);
                    return Ok(done);
                }
                FlightOutcome::Unknown(doubt) => {
                    return Ok(Err(Error::Unconfirmed(doubt.to_string())));
                }
                FlightOutcome::NotCommitted(why, connection) => (why, connection),
            };
            *is_unread = why.is_unread();
            let text = format!("nothing was changed: {why}");
            // A connection may have ended while it was not used.
            if let (Refusal::Failed { .. }, Some(_)) = (&why, &connection)
                && !why.is_passing()
            {
                *kept = connection;
                return Ok(Err(Error::Unavailable(text)));
            }
            *kept = connection.filter(|_| !why.ends_the_session());
            if tries == TRIES {
                return Err(text);
            }
            sleep(PAUSE * tries).await;
            tries += 1;
        }
    }

    /// Connects, where it is not connected.
    pub(in super::super) async fn connect(&self) -> Result<(), Error> {
        let mut kept = self.connection.lock().await;
        *kept = Some(self.take(&mut kept).await.map_err(Error::Unavailable)?);
        Ok(())
    }

    /// The kept connection, or another one to a server that is as it must be.
    async fn take(&self, kept: &mut Option<Connection>) -> Result<Connection, String> {
        let is_usable = |kept: &Connection| kept.end().is_none() && kept.is_usable(&self.target);
        if let Some(connection) = kept.take().filter(is_usable) {
            return Ok(connection);
        }
        let connected = connect(&self.target, &self.clock).await;
        Ok(connected.map_err(|error| error.to_string())?.0)
    }
}

/// Runs the change once. Its result counts where the outcome is a commit.
async fn attempt<C: Change>(
    connection: Connection,
    change: &C,
) -> (FlightOutcome, Result<C::Done, Error>) {
    let mut flight = Flight::unfenced(connection);
    let nothing = Error::Unavailable(String::new());
    let error = match run(&mut flight, change).await {
        Ok(done) => return (flight.commit().await, Ok(done)),
        Err(Stop::Refused(error)) => error,
        Err(stop) => return (stop.end(flight).await, Err(nothing)),
    };
    let mut outcome = flight.roll_back().await;
    if let FlightOutcome::NotCommitted(_, Some(connection)) = outcome {
        let mut flight = Flight::unfenced(connection);
        flight.send(GUEST, guest()).await;
        outcome = flight.commit().await;
    }
    (outcome, Err(error))
}

fn guest() -> Vec<Param> {
    let (known, needed) = schema::migration_counts();
    params![known, needed]
}

async fn run<C: Change>(flight: &mut Flight, change: &C) -> Result<C::Done, Stop> {
    let now = Timestamp(ask_one(flight, GUEST, guest()).await?.try_get(0)?);
    change.run(flight, now).await
}
