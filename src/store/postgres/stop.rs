//! Why a transaction that reads before it writes ends without a commit.

use tokio_postgres::Row;

use crate::store::border::Error;

use super::connection::describe;
use super::flight::{Flight, FlightOutcome, Param, Refusal};
use super::params::params;

/// Limits how long a request with a deadline waits for another transaction's lock. The requests behind it wait as long.
const LOCK_WAIT: &str = "SELECT set_config('lock_timeout', '200ms', true)";

pub(super) enum Stop {
    /// A rule refuses it, or a row cannot be read.
    Refused(Error),
    /// A statement failed. The flight has the error.
    Failed,
    /// Another transaction changed the rows before they were locked.
    Changed,
    /// A dead job that is to be put back has this group (handler, key), which is not locked.
    Unlocked(String, String),
}

impl Stop {
    pub(super) async fn end(self, flight: Flight) -> FlightOutcome {
        let outcome = flight.roll_back().await;
        let why = match self {
            Stop::Failed => return outcome,
            Stop::Changed | Stop::Unlocked(..) => {
                Refusal::Conflict("another transaction has changed these rows".to_owned())
            }
            Stop::Refused(error) => {
                Refusal::Failed { code: String::new(), text: error.to_string() }
            }
        };
        match outcome {
            FlightOutcome::NotCommitted(_, connection) => {
                FlightOutcome::NotCommitted(why, connection)
            }
            other => other,
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Stop {
    fn from(error: tokio_postgres::Error) -> Self {
        Stop::Refused(Error::Unavailable(describe(&error)))
    }
}

/// The rows of a statement.
pub(super) async fn ask<'f>(
    flight: &'f mut Flight,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<&'f [Row], Stop> {
    let number = flight.send(sql, params).await;
    flight.rows(number).await.ok_or(Stop::Failed)
}

/// The row of a statement that always returns one.
pub(super) async fn ask_one<'f>(
    flight: &'f mut Flight,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<&'f Row, Stop> {
    let no_row = || Error::Unavailable("a statement returned no row".to_owned());
    Ok(ask(flight, sql, params).await?.first().ok_or_else(no_row)?)
}

/// Sends a guarded statement, which returns the one row that it changes. Another number is a broken promise.
pub(super) async fn change_one(
    flight: &mut Flight,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<(), Stop> {
    match ask(flight, sql, params).await?.len() {
        1 => Ok(()),
        changed => Err(Error::Unavailable(format!("{changed} rows changed instead of one")).into()),
    }
}

/// Lets the statements that follow wait for a lock for a short time only.
pub(super) async fn limit_lock_wait(flight: &mut Flight) {
    flight.send(LOCK_WAIT, params![]).await;
}
