//! A node's session: the right to write, renewed after each start and each lost connection.
//!
//! A registration locks the node's row, so it waits for what an earlier session has in flight. What it reads behind
//! the lock is therefore complete, and a later transaction of that session fails in its fence.

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

/// Replaces the session. Every later transaction of the earlier one fails.
const RENEW: &str = "UPDATE node SET name = $2, session = $3, count = greatest(count, $4) + 1,
    version = $5, state = 'active' WHERE id = $1 RETURNING count";

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
    #[error(transparent)]
    NotCommitted(Refusal),
    /// The session may have been written. The next registration finds out.
    #[error(transparent)]
    Unknown(Doubt),
}

/// A session with what ran under the node when it began, whichever session has claimed it.
#[derive(Debug, Clone)]
pub struct Registered {
    pub session: Session,
    pub running: Vec<NodeAttempt>,
}

impl Registered {
    /// Whether an attempt may begin in this session (N16). One that was claimed before it and is not in its list
    /// has been settled, and its job may run elsewhere.
    pub fn may_begin(&self, attempt: &NodeAttempt) -> bool {
        attempt.claimant == self.session.id || self.running.contains(attempt)
    }
}

/// Registers the sessions of one process.
#[derive(Debug)]
pub struct Registrar {
    pub node: Node,
    /// What the next registration publishes.
    pub handlers: Vec<PublishedHandler>,
    /// The sessions that this process may have written since the last one that is known to be committed.
    written: Vec<Uuid>,
    file: Option<NodeFile>,
}

impl Registrar {
    /// The first registration replaces any session in the row: the process holds the state folder's lock, so
    /// no other one of this node runs.
    pub fn new(node: Node) -> Self {
        Registrar { node, handlers: Vec::new(), written: Vec::new(), file: None }
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
        let mut flight = Flight::unfenced(connection);
        let values = (node.name.clone(), node.machine.clone());
        flight
            .send(
                ADD,
                vec![Box::new(node.id), Box::new(values.0), Box::new(values.1), Box::new(id)],
            )
            .await;
        let lock = flight.send(LOCK, vec![Box::new(node.id)]).await;
        let row = flight.rows(lock).await.and_then(|rows| rows.first());
        // Without a row something has failed, which `commit` reports.
        if let Some(row) = row
            && let Err(refused) = self.check(row, id)
        {
            flight.roll_back().await;
            return Err(refused);
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
        let list = flight.send(claim::RUNNING, vec![Box::new(node.id)]).await;
        self.written.push(id);
        match flight.commit().await {
            FlightOutcome::Committed(connection, rows) => {
                let count = rows.get(renew).and_then(|rows| rows.first());
                let count = count.and_then(|row| row.try_get(0).ok()).unwrap_or(node.count);
                self.written = vec![id];
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
        let is_own = session == id || self.written.is_empty() || self.written.contains(&session);
        match is_active && !is_own {
            true => Err(RegisterError::Replaced { name, session }),
            false => Ok(()),
        }
    }
}
