//! What the server must be for the store's promises, looked at after each connect and at each tick.

use super::connection::{ConnectError, Connection, Target, describe};
use crate::clock::Clock;

/// The oldest version that has what the store uses.
const OLDEST: i32 = 150_000;

/// What to do about a commit that has no answer.
pub(super) const SLOW: &str =
    "see whether its commits wait for a standby (synchronous_standby_names), or for a lock";

/// How far the clocks of the server and of this machine may be apart, in milliseconds.
const CLOCK_MILLIS: i64 = 1000;

/// The server itself warns from 40 million before the end of the 2,147 million transaction ids on, and stops at 3 million
/// (PostgreSQL 18, access/transam/varsup.c). Autovacuum works against it from 200 million on.
const IDS: i64 = 1_500_000_000;

/// Everything in one row. Any role may read it.
const LOOK: &str = "
    SELECT current_setting('server_version_num')::int,
        version() LIKE 'PostgreSQL %' AND version() NOT LIKE '%-YB-%',
        current_setting('fsync') = 'on',
        NOT EXISTS (SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
            WHERE nspname = 'hooklatch' AND relpersistence <> 'p'),
        current_setting('server_encoding') = 'UTF8',
        pg_is_in_recovery(),
        current_setting('client_min_messages') = 'warning',
        current_setting('synchronous_standby_names') <> '',
        current_setting('full_page_writes') = 'on',
        current_setting('data_checksums') = 'on',
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        (SELECT max(age(datfrozenxid))::bigint FROM pg_database)";

/// What a finding means for the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing may be stored on this server.
    Refused,
    /// Nothing may be accepted until it is fixed.
    Unready,
    Warned,
}

/// Something that the server is not, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    pub text: String,
}

/// Connects to a server that can hold a store, for statements that change it. Also returns the findings that are warnings.
pub(in crate::store) async fn connect(
    target: &Target,
    clock: &Clock,
) -> Result<(Connection, Vec<String>), ConnectError> {
    let connection = Connection::open(target).await?;
    let warnings = inspect(&connection, clock).await.map_err(ConnectError::Unfit)?;
    Ok((connection, warnings))
}

/// Fails with the worst finding that keeps the store from being written. Otherwise returns the warnings.
pub(super) async fn inspect(connection: &Connection, clock: &Clock) -> Result<Vec<String>, String> {
    let findings = check(connection, clock).await?;
    if let Some(bad) = findings.iter().find(|finding| finding.severity != Severity::Warned) {
        return Err(bad.text.clone());
    }
    Ok(findings.into_iter().map(|finding| finding.text).collect())
}

/// Everything that is wrong with the server, the worst first. An `Err` says why it could not be looked at.
pub async fn check(connection: &Connection, clock: &Clock) -> Result<Vec<Finding>, String> {
    let before = clock.now().0;
    let row = connection.client.query_one(LOOK, &[]).await.map_err(|error| describe(&error))?;
    let after = clock.now().0;
    let unreadable = |error| describe(&error);
    let is = |column: usize| row.try_get::<_, bool>(column).map_err(unreadable);
    let version: i32 = row.try_get(0).map_err(unreadable)?;
    let time: i64 = row.try_get(10).map_err(unreadable)?;
    let ids: i64 = row.try_get(11).map_err(unreadable)?;
    let is_timely = (before - CLOCK_MILLIS..=after + CLOCK_MILLIS).contains(&time);
    use Severity::{Refused, Unready, Warned};
    let table = [
        (version >= OLDEST, Refused, "the server is older than PostgreSQL 15; upgrade it"),
        (
            is(1)?,
            Refused,
            "the server is not PostgreSQL itself, and locks and commits in another way; use PostgreSQL",
        ),
        (is(2)?, Refused, "fsync is off, so a power cut loses commits; set fsync = on"),
        (
            is(3)?,
            Refused,
            "a table of the store is unlogged, so a crash empties it; run ALTER TABLE ... SET LOGGED",
        ),
        (
            is(4)?,
            Refused,
            "the database's encoding is not UTF8; create it with ENCODING 'UTF8' TEMPLATE template0",
        ),
        (!is(5)?, Refused, "the server is a standby; name the primary"),
        (
            is(6)?,
            Refused,
            "the connection's settings are lost between transactions; connect without a pooler, or with one in session mode",
        ),
        (
            !connection.require_standby || is(7)?,
            Unready,
            "a synchronous standby is required and the server names none; set synchronous_standby_names",
        ),
        (
            is(8)?,
            Warned,
            "full_page_writes is off, so a power cut can damage pages on most file systems; set full_page_writes = on",
        ),
        (
            is(9)?,
            Warned,
            "data checksums are off, so damage of the disk is not found; enable them with pg_checksums",
        ),
        (
            is_timely,
            Warned,
            "the clocks of the server and of this machine are more than 1 s apart; synchronise both",
        ),
        (
            ids < IDS,
            Warned,
            "over 1.5 of 2.1 billion transaction ids are used, and at the end the server stores nothing; find what keeps its vacuum back: SELECT datname, age(datfrozenxid) FROM pg_database",
        ),
    ];
    let wrong = table.into_iter().filter(|(is_right, ..)| !is_right);
    Ok(wrong.map(|(_, severity, text)| Finding { severity, text: text.to_owned() }).collect())
}
