//! A node's session: the right to write, renewed after each start and each lost connection.
//!
//! A registration locks the node's row, so it waits for what an earlier session has in flight. What it reads behind
//! the lock is therefore complete, and a later transaction of that session fails in its fence.

use std::fmt;

use tokio_postgres::Row;
use uuid::Uuid;

use super::claim::{self, NodeAttempt};
use super::connection::Connection;
use super::flight::{Doubt, Flight, FlightOutcome, Refusal, Session};
use super::handlers::{PublishedHandler, publish};
use super::node_file::NodeFile;
use crate::random;

/// Gives the node its row. Another node may be active under the name: the unique index refuses it.
const ADD: &str = "INSERT INTO node (id, name, machine, session, count, version, state)
    VALUES ($1, $2, $3, $4, 0, '', 'active') ON CONFLICT (id) DO NOTHING";

/// Locks the row until the end of the transaction.
const LOCK: &str = "SELECT machine, session, state FROM node WHERE id = $1 FOR NO KEY UPDATE";

/// The history that the database says it has, and the one that the server has. `pg_control_checkpoint()` would name the
/// timeline of before a promotion.
const HISTORY: &str = "
    SELECT meta.system, meta.timeline, control.system_identifier::text,
        substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
    FROM meta, pg_control_system() control";

/// After a failover to a server that has each commit.
const NEW_TIMELINE: &str = "UPDATE meta SET timeline = $1 WHERE timeline < $1";

/// Replaces the session. Every later transaction of the earlier one fails.
const RENEW: &str = "UPDATE node SET name = $2, session = $3, count = greatest(count, $4) + 1,
    version = $5, state = 'active', seen_at = now_ms() WHERE id = $1 RETURNING count";

/// Of the only unique index that is not resolved by a conflict clause: the name of an active node.
const UNIQUE_VIOLATION: &str = "23505";

/// A receiver with its state folder.
#[derive(Debug, Clone)]
pub struct Node {
    /// Random, made in the state folder.
    pub id: Uuid,
    pub name: String,
    /// The identity of the machine.
    pub machine: String,
    /// The count of the last session that the state folder knows of. A database that was put back knows fewer.
    pub count: i64,
}

/// What one line of commits has stored (N25).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHistory {
    /// The server's identifier, which its standbys have too.
    pub system: String,
    /// Eight hexadecimal digits, which grow with each promotion and restore.
    pub timeline: String,
}

impl fmt::Display for ServerHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system {} at timeline {}", self.system, self.timeline)
    }
}

/// Why a node has no session.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(
        "another node is active as '{0}'; give this one another name, or declare that one lost (`hooklatch node lost {0}`)"
    )]
    NameTaken(String),
    #[error(
        "node '{name}' is on machine {machine}: this state folder was copied; declare that node lost (`hooklatch node lost {name}`), or delete the copy"
    )]
    OtherMachine { name: String, machine: String },
    /// Two processes take turns in one row, which must not go on.
    #[error(
        "another process has registered as node '{name}' (session {session}); stop one of the two"
    )]
    Replaced { name: String, session: Uuid },
    /// Claims and ends may be lost, so jobs might run twice.
    #[error(
        "the database is not what it was: its rows are of {known}, and the server is {found}; it was restored, promoted or copied, and is not used"
    )]
    OtherHistory { known: ServerHistory, found: ServerHistory },
    #[error(
        "the server is {found}, and this node has used {seen}: another server has taken its place; connect to that one"
    )]
    EarlierHistory { seen: ServerHistory, found: ServerHistory },
    #[error(transparent)]
    NotCommitted(Refusal),
    /// The session may have been written. The next registration finds out.
    #[error(transparent)]
    Unknown(Doubt),
}

/// A session with what ran under the node when it began, whichever session has claimed it. At the first one also what
/// ran when the node was declared lost, until its end has come: only this process can find that.
#[derive(Debug, Clone)]
pub struct Registered {
    pub session: Session,
    pub running: Vec<NodeAttempt>,
}

/// Registers the sessions of one process.
#[derive(Debug)]
pub struct Registrar {
    pub node: Node,
    /// What the next registration publishes.
    pub handlers: Vec<PublishedHandler>,
    /// The last history in which it has registered.
    pub seen: Option<ServerHistory>,
    /// Until then the row has the session of an earlier process.
    is_registered: bool,
    /// The sessions that this process may have written since the last one that is known to be committed.
    written: Vec<Uuid>,
    file: Option<NodeFile>,
}

impl Registrar {
    /// The first registration replaces any session in the row: the process holds the state folder's lock, so
    /// no other one of this node runs.
    pub fn new(node: Node) -> Self {
        Registrar {
            node,
            handlers: Vec::new(),
            seen: None,
            is_registered: false,
            written: Vec::new(),
            file: None,
        }
    }

    /// The same for the node of a state folder, whose file keeps the count of its sessions.
    pub fn of_folder(file: NodeFile, name: String, machine: String) -> Self {
        let node = Node { id: file.id, name, machine, count: file.count };
        Registrar { file: Some(file), ..Registrar::new(node) }
    }

    /// Writes a new session to the node's row, and reads what runs under it. A node that was declared lost is
    /// active again.
    pub async fn register(
        &mut self,
        connection: Connection,
    ) -> Result<(Connection, Registered), RegisterError> {
        let node = self.node.clone();
        let id = Uuid::from_bytes(random::id());
        let require_standby = connection.require_standby;
        let mut flight = Flight::unfenced(connection);
        let values = (node.name.clone(), node.machine.clone());
        flight
            .send(
                ADD,
                vec![Box::new(node.id), Box::new(values.0), Box::new(values.1), Box::new(id)],
            )
            .await;
        let lock = flight.send(LOCK, vec![Box::new(node.id)]).await;
        let history = flight.send(HISTORY, Vec::new()).await;
        let row = flight.rows(lock).await.and_then(|rows| rows.first());
        // Without a row something has failed, which `commit` reports.
        let mut checked = row.map_or(Ok(()), |row| self.check(row, id));
        let mut found = self.seen.clone();
        if let (Ok(()), Some([row])) = (&checked, flight.rows(history).await) {
            let read = self.check_history(row, require_standby);
            checked = read.map(|history| found = Some(history));
        }
        if let Err(refused) = checked {
            flight.roll_back().await;
            return Err(refused);
        }
        if let Some(ServerHistory { timeline, .. }) = found.clone().filter(|_| require_standby) {
            flight.send(NEW_TIMELINE, vec![Box::new(timeline)]).await;
        }
        let renew = flight
            .send(
                RENEW,
                vec![
                    Box::new(node.id),
                    Box::new(node.name.clone()),
                    Box::new(id),
                    Box::new(node.count),
                    Box::new(env!("CARGO_PKG_VERSION")),
                ],
            )
            .await;
        publish(&mut flight, node.id, &self.handlers).await;
        let list = flight
            .send(claim::RUNNING, vec![Box::new(node.id), Box::new(!self.is_registered)])
            .await;
        self.written.push(id);
        match flight.commit().await {
            FlightOutcome::Committed(connection, rows) => {
                let count = rows.get(renew).and_then(|rows| rows.first());
                let count = count.and_then(|row| row.try_get(0).ok()).unwrap_or(node.count);
                self.written = vec![id];
                self.is_registered = true;
                self.seen = found;
                self.node.count = count;
                self.keep(count).await;
                let session = Session { node: node.id, id, count };
                let running = claim::read(rows.get(list).map_or(&[], Vec::as_slice));
                Ok((connection, Registered { session, running }))
            }
            FlightOutcome::NotCommitted(Refusal::Failed { code, .. }, _)
                if code == UNIQUE_VIOLATION =>
            {
                Err(RegisterError::NameTaken(node.name))
            }
            FlightOutcome::NotCommitted(refusal, _) => Err(RegisterError::NotCommitted(refusal)),
            FlightOutcome::Unknown(doubt) => Err(RegisterError::Unknown(doubt)),
        }
    }

    /// Writes the count to the folder's file. Without it nothing breaks but the discovery of a database that was put
    /// back, so a full disk must not keep the node from working.
    async fn keep(&self, count: i64) {
        let Some(file) = self.file.clone() else { return };
        let kept = tokio::task::spawn_blocking(move || file.keep(count)).await;
        if let Ok(Err(error)) = kept {
            tracing::warn!("{error}");
        }
    }

    /// Refuses a row of another machine or process.
    fn check(&self, row: &Row, id: Uuid) -> Result<(), RegisterError> {
        let unreadable = |error| RegisterError::NotCommitted(Refusal::of(&error));
        let name = self.node.name.clone();
        let machine: String = row.try_get(0).map_err(unreadable)?;
        let session: Uuid = row.try_get(1).map_err(unreadable)?;
        let is_active = row.try_get::<_, &str>(2).map_err(unreadable)? == "active";
        if machine != self.node.machine {
            return Err(RegisterError::OtherMachine { name, machine });
        }
        let is_own = session == id || !self.is_registered || self.written.contains(&session);
        match is_active && !is_own {
            true => Err(RegisterError::Replaced { name, session }),
            false => Ok(()),
        }
    }
    /// Refuses a history that is not the database's. Where commits wait for a standby and a failover promotes only one
    /// that has each of them, a later timeline changes nothing (N26).
    fn check_history(
        &self,
        row: &Row,
        require_standby: bool,
    ) -> Result<ServerHistory, RegisterError> {
        let text = |column: usize| -> Result<String, RegisterError> {
            row.try_get(column).map_err(|error| RegisterError::NotCommitted(Refusal::of(&error)))
        };
        let known = ServerHistory { system: text(0)?, timeline: text(1)? };
        let found = ServerHistory { system: text(2)?, timeline: text(3)? };
        let is_earlier =
            |seen: &&ServerHistory| found.system == seen.system && found.timeline < seen.timeline;
        if let Some(seen) = self.seen.clone().as_ref().filter(is_earlier) {
            return Err(RegisterError::EarlierHistory { seen: seen.clone(), found });
        }
        let is_later = found.system == known.system && found.timeline > known.timeline;
        match found == known || (is_later && require_standby) {
            true => Ok(found),
            false => Err(RegisterError::OtherHistory { known, found }),
        }
    }
}
