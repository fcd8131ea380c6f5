//! The schema: made by the first node that comes, behind a lock that the others wait for.

use super::connection::Connection;
use super::flight::{Flight, FlightOutcome};

const MIGRATION: &str = include_str!("../../../migrations/postgres/0001.sql");

/// Held to the end of the transaction, so that one node at a time looks and migrates. A random number.
const LOCK: &str = "SELECT pg_advisory_xact_lock(5021884360728612993)";

/// Whether the schema is there.
const IS_THERE: &str = "SELECT to_regclass('hooklatch.meta') IS NOT NULL";

/// Makes the schema where it is missing.
pub async fn migrate(connection: Connection) -> FlightOutcome {
    let mut flight = Flight::unfenced(connection);
    flight.run(LOCK);
    let look = flight.send(IS_THERE, Vec::new()).await;
    let rows = flight.rows(look).await;
    let is_there =
        rows.and_then(|rows| rows.first()).and_then(|row| row.try_get(0).ok()).unwrap_or(false);
    if !is_there {
        flight.run(MIGRATION);
    }
    flight.commit().await
}
