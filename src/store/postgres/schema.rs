//! The schema: made by the first node or `store move` that comes, and changed by the first node of a newer version, behind
//! a lock that the others wait for (N32).
//!
//! A migration *expands* the schema, and older programs run on. Or it *contracts* the schema: what it takes away, older
//! programs use, so it waits until no node that is not lost runs one. The migrations behind it wait with it.

use uuid::Uuid;

use super::connection::Connection;
use super::flight::{Flight, FlightOutcome};
use super::params::params;
use super::stop::{Stop, ask, ask_one, limit_lock_wait};
use crate::crash;
use crate::store::border::Error;

#[derive(Clone, Copy)]
struct Migration {
    sql: &'static str,
    contracts: bool,
}

/// Migration n leads from schema n - 1 to n.
const MIGRATIONS: &[Migration] =
    &[Migration { sql: include_str!("../../../migrations/postgres/0001.sql"), contracts: false }];

/// Held to the end of the transaction, so that one node at a time looks and migrates. A random number.
const LOCK: &str = "SELECT pg_advisory_xact_lock(5021884360728612993)";

/// Whether the tables are there, and whether a development build has made them: they lack what was added to the first
/// migration last.
const IS_THERE: &str = "
    SELECT to_regclass('hooklatch.meta') IS NOT NULL, NOT EXISTS (SELECT FROM pg_attribute
        WHERE attrelid = to_regclass('hooklatch.payload') AND attname = 'sum' AND NOT attisdropped)";

const DEVELOPMENT: &str =
    "the database was made by a development build; nothing reads it: keep it, start with a new one";

const SCHEMA: &str = "SELECT schema FROM meta";

/// Keeps operators' changes and registrations that act on a history waiting.
const LOCK_META: &str = "SELECT FROM meta FOR UPDATE";

/// Keeps registrations waiting, which could make a node of an older program active.
const LOCK_NODES: &str = "LOCK TABLE node IN SHARE ROW EXCLUSIVE MODE";

/// A node whose program does not know migration $1, other than node $2 of machine $3.
const OLDER: &str = "
    SELECT name, version FROM node
    WHERE state = 'active' AND schema < $1 AND (id <> $2 OR machine <> $3) LIMIT 1";

/// Ends the last session of this node: a transaction of an older program that is on its way fails.
const END_SESSION: &str =
    "UPDATE node SET session = gen_random_uuid() WHERE id = $1 AND machine = $2";

const MIGRATED: &str = "UPDATE meta SET schema = $1, oldest = CASE WHEN $2 THEN $1 ELSE oldest END";

/// Fails where this program cannot use the schema: it knows $1 migrations, and needs the first $2.
pub(super) const CHECK: &str = "SELECT check_schema($1, $2)";

/// The program's migrations, and those that a test may add.
fn migrations() -> impl Iterator<Item = Migration> {
    let added = crash::cluster_migrations().into_iter().flatten();
    let added = added.map(|(sql, contracts)| Migration { sql, contracts });
    MIGRATIONS.iter().copied().chain(added)
}

/// How many migrations this program knows, and how many of them it needs: all up to the last one that expands.
pub(super) fn migration_counts() -> (i64, i64) {
    let (mut known, mut needed) = (0, 0);
    for migration in migrations() {
        known += 1;
        needed = if migration.contracts { needed } else { known };
    }
    (known, needed)
}

/// Fails the flight where this program cannot use the schema.
pub(in crate::store) async fn check(flight: &mut Flight) {
    let (known, needed) = migration_counts();
    flight.send(CHECK, params![known, needed]).await;
}

/// Makes the schema where it is missing. For a receiver, the node and machine whose state folder it has locked, it also
/// changes one that is older than this program.
pub async fn migrate(connection: Connection, own: Option<(Uuid, &str)>) -> FlightOutcome {
    let mut flight = Flight::unfenced(connection);
    flight.run(LOCK);
    match apply_pending(&mut flight, own).await {
        Ok(()) => flight.commit().await,
        Err(stop) => stop.end(flight).await,
    }
}

async fn apply_pending(flight: &mut Flight, own: Option<(Uuid, &str)>) -> Result<(), Stop> {
    let row = ask_one(flight, IS_THERE, Vec::new()).await?;
    let (is_there, is_unfinished): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    if is_there && is_unfinished {
        return Err(Error::Unavailable(DEVELOPMENT.to_owned()).into());
    }
    let schema: i64 = match is_there {
        true => ask_one(flight, SCHEMA, Vec::new()).await?.try_get(0)?,
        false => 0,
    };
    let pending = (1_i64..).zip(migrations()).filter(|(number, _)| *number > schema);
    let pending: Vec<(i64, Migration)> = pending.collect();
    if is_there {
        if own.is_none() || pending.is_empty() {
            return Ok(());
        }
        // While a migration waits for a table, later statements on that table wait behind it, accepts too.
        limit_lock_wait(flight).await;
        flight.send(LOCK_META, Vec::new()).await;
        if pending.iter().any(|(_, migration)| migration.contracts) {
            flight.run(LOCK_NODES);
        }
    }
    for (number, Migration { sql, contracts }) in pending {
        if let (true, Some((node, machine))) = (contracts && is_there, own) {
            let older = ask(flight, OLDER, params![number, node, machine.to_owned()]).await?;
            if let Some(older) = older.first() {
                let (node, version): (&str, &str) = (older.try_get(0)?, older.try_get(1)?);
                tracing::warn!(
                    node,
                    version,
                    "a change of the tables waits until this node is upgraded, or declared lost: hooklatch node lost {node}"
                );
                return Ok(());
            }
            flight.send(END_SESSION, params![node, machine.to_owned()]).await;
        }
        flight.run(sql);
        flight.send(MIGRATED, params![number, contracts]).await;
    }
    Ok(())
}
