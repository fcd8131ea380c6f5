//! The file of a store that moves, held by its lock.

use std::panic::resume_unwind;
use std::path::PathBuf;

use rusqlite::MAIN_DB;
use rusqlite::wal::CheckpointMode;
use uuid::Uuid;

use crate::clock::Clock;
use crate::crash;
use crate::store::border::Settings;
use crate::store::node::lock::StoreLock;
use crate::store::node::open_error::OpenError;
use crate::store::node::path;
use crate::store::postgres::{
    ConnectError, Connection, Flight, FlightOutcome, Node, Target, check_schema, connect, migrate,
};
use crate::store::sqlite::engine::connection::close;
use crate::store::sqlite::engine::moved::{self, Mark};
use crate::store::sqlite::engine::{open, restore, schema};

use super::copy;
use super::error::MoveError;

/// What a move came to.
#[derive(Debug)]
pub struct MoveResult {
    /// The store's identity, which stays.
    pub store: Uuid,
    /// The tables of the database with their rows. Empty where an earlier run had committed the move.
    pub rows: Vec<(&'static str, u64)>,
}

/// A store that no other process uses.
pub struct HeldStore {
    settings: Settings,
    path: PathBuf,
    clock: Clock,
    _lock: StoreLock,
}

impl HeldStore {
    /// Takes the lock. Blocking, for a moment.
    pub fn take(settings: &Settings, clock: Clock) -> Result<Self, OpenError> {
        let path = path::real(&settings.path);
        let lock = StoreLock::take(&path, clock.now())?;
        restore::finish(&path).map_err(|error| OpenError::from_io(&path, &path, &error))?;
        Ok(HeldStore { settings: settings.clone(), path, clock, _lock: lock })
    }

    /// Moves the store to an empty database, or finishes a move that was cut off. Running attempts become those of
    /// `node`, to be judged at its first registration. `address` names the target without a password. `progress` gets
    /// the rows copied so far and those in all. Reads the file on the caller's thread.
    pub async fn move_to(
        self,
        target: &Target,
        address: &str,
        node: &Node,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<MoveResult, MoveError> {
        let HeldStore { settings, path, clock, .. } = &self;
        let sql = |error| OpenError::from_sql(path, error);
        let conn = open::begin(path, &settings.limits)?;
        let mark = Mark::read(&conn).map_err(sql)?;
        if let Some(mark) = mark.clone().filter(|mark| mark.done) {
            return Err(mark.refusal(path).into());
        }
        let (connection, _) = connect(target, clock).await?;
        let (connection, _) = committed(migrate(connection, None).await)?;
        let mut flight = Flight::unfenced(connection);
        flight.send(copy::IDENTITY, Vec::new()).await;
        check_schema(&mut flight).await;
        let (connection, rows) = committed(flight.commit().await)?;
        let row = rows.first().and_then(|rows| rows.first());
        let database = row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
        let store = schema::store_id(&conn).map_err(sql)?;
        match mark {
            Some(_) if database == store => {
                finish(&conn, address)?;
                return Ok(MoveResult { store, rows: Vec::new() });
            }
            None if database == store => return Err(MoveError::Old),
            Some(mark) if mark.database != database => {
                return Err(MoveError::OtherDatabase { path: path.clone(), to: mark.address });
            }
            Some(_) => moved::take_back(&conn).map_err(sql)?,
            None => {}
        }
        close(conn);

        let conn = open::open(path, &settings.limits, false, clock.now())?.writer;
        let flight = Flight::unfenced(connection);
        let copying = async |client: &_| copy::all(client, &conn, database, node, progress).await;
        let (flight, rows) = flight.with(copying).await?;
        crash::point("move.copied");
        if let Err(error) = moved::mark(&conn, database, address) {
            flight.roll_back().await;
            return Err(sql(error).into());
        }
        crash::point("move.marked");
        match flight.commit().await {
            FlightOutcome::Committed(..) => {}
            FlightOutcome::NotCommitted(refusal, _) => {
                moved::take_back(&conn).map_err(sql)?;
                return Err(MoveError::NotCommitted(refusal));
            }
            FlightOutcome::Unknown(doubt) => return Err(MoveError::Unknown(doubt)),
        }
        crash::point("move.committed");
        finish(&conn, address)?;
        Ok(MoveResult { store, rows })
    }
}

/// Takes the lock of a state folder whose store is in a database, and returns it with the real path. A file whose store has not
/// moved there is refused.
pub(in super::super) async fn hold(
    settings: &Settings,
    clock: Clock,
) -> Result<(Settings, StoreLock), OpenError> {
    let settings = settings.clone();
    let held = move || {
        let HeldStore { path, _lock: lock, .. } = HeldStore::take(&settings, clock)?;
        if !restore::is_there(&path) {
            return Ok((Settings { path, ..settings }, lock));
        }
        let conn = open::begin(&path, &settings.limits)?;
        match Mark::read(&conn).map_err(|error| OpenError::from_sql(&path, error))? {
            Some(mark) if mark.done => Ok((Settings { path, ..settings }, lock)),
            Some(mark) => Err(mark.refusal(&path)),
            None => Err(OpenError::NotMoved { path }),
        }
    };
    tokio::task::spawn_blocking(held)
        .await
        .unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
}

/// What a flight has committed that changes nothing of the store.
fn committed(
    outcome: FlightOutcome,
) -> Result<(Connection, Vec<Vec<tokio_postgres::Row>>), MoveError> {
    match outcome {
        FlightOutcome::Committed(connection, rows) => Ok((connection, rows)),
        FlightOutcome::NotCommitted(refusal, _) => Err(MoveError::NotCommitted(refusal)),
        FlightOutcome::Unknown(doubt) => Err(ConnectError::Unfit(doubt.to_string()).into()),
    }
}

/// Marks the file of a store whose move is committed.
fn finish(conn: &rusqlite::Connection, address: &str) -> Result<(), MoveError> {
    moved::finish(conn, address).map_err(|error| MoveError::Unmarked(error.to_string()))?;
    crash::point("move.finished");
    // Without its log, a copy of the file would not be marked. If this fails, the log is read at the next open.
    let _ = conn.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::TRUNCATE);
    Ok(())
}
