//! Why a transaction that reads before it writes ends without a commit.

use tokio_postgres::{Error, Row};

use super::flight::{Flight, FlightOutcome, Param, Refusal};

/// For how long a request with a deadline waits for another transaction's lock. The requests behind it wait as long.
const LOCK_WAIT: &str = "SELECT set_config('lock_timeout', '200ms', true)";

pub(super) enum Stop {
    /// A statement failed. The flight has the error.
    Failed,
    /// Another transaction changed the rows after they were read.
    Changed,
    /// A dead job that is to be put back has this group (handler, key), which is not locked.
    Unlocked(String, String),
    Unreadable(String),
}

impl Stop {
    pub(super) async fn end(self, flight: Flight) -> FlightOutcome {
        let outcome = flight.roll_back().await;
        let why = match self {
            Stop::Failed => return outcome,
            Stop::Changed | Stop::Unlocked(..) => {
                Refusal::Conflict("another transaction has changed these rows".to_owned())
            }
            Stop::Unreadable(text) => Refusal::Failed { code: String::new(), text },
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
        Stop::Unreadable(error.to_string())
    }
}

/// The rows of a statement.
pub(super) async fn ask<'a>(
    flight: &'a mut Flight,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<&'a [Row], Stop> {
    let number = flight.send(sql, params).await;
    flight.rows(number).await.ok_or(Stop::Failed)
}

/// Lets the statements that follow wait for a lock for a short time only.
pub(super) async fn wait_briefly(flight: &mut Flight) {
    flight.send(LOCK_WAIT, Vec::new()).await;
}
