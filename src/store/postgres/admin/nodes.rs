//! The nodes of the database, and what runs under one: for `node list`, `node lost`, `status` and the metrics.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{JobId, Name, Timestamp};
use crate::store::border::Error;

use super::super::columns::Columns;
use super::handle::Admin;

/// Every node, with its backends: those of an application with the node's name, which the server cuts at 63 bytes.
const NODES: &str = "
    SELECT n.id, n.name, n.state, n.machine, n.version, n.count, n.seen_at, now_ms() - n.seen_at AS silent,
        (SELECT count(*) FROM attempt a WHERE a.node = n.id AND a.outcome IS NULL) AS running,
        (SELECT count(*) FROM pg_stat_activity s WHERE n.state = 'active' AND s.datname = current_database()
            AND s.application_name = left('hooklatch ' || n.name, 63)) AS connections,
        EXISTS (SELECT FROM roll_call r WHERE r.node = n.id) AS awaited
    FROM node n ORDER BY n.name, n.state, n.seen_at DESC, n.id";

/// What the active nodes publish, and whether another one publishes something else under the name.
const HANDLERS: &str = "
    SELECT h.node, h.handler, min(h.digest::text) OVER same <> max(h.digest::text) OVER same AS differs
    FROM handler h JOIN node n ON n.id = h.node WHERE n.state = 'active'
    WINDOW same AS (PARTITION BY h.handler) ORDER BY h.node, h.handler";

/// What runs under the active node of a name, and what its handlers do after an attempt of unknown outcome.
const WORK: &str = "
    SELECT row_to_json(t)::text AS work FROM (
        SELECT j.id AS job, j.handler, a.number AS attempt, e.source, e.event_id AS event,
            now_ms() - a.started_at AS running_millis, coalesce(h.on_unknown, 'hold') AS on_unknown
        FROM node n JOIN attempt a ON a.node = n.id AND a.outcome IS NULL
        JOIN job j ON j.row = a.job JOIN event e ON e.row = j.event
        LEFT JOIN handler h ON h.node = n.id AND h.handler = j.handler
        WHERE n.name = $1 AND n.state = 'active') t
    ORDER BY t.handler, t.job";

/// A node. Times are by the database's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    pub id: Uuid,
    pub name: String,
    /// `active` or `lost`.
    pub state: String,
    pub machine: String,
    pub version: String,
    /// Its registrations.
    pub sessions: u64,
    /// When it last looked at the server. It decides nothing.
    pub seen_at: Timestamp,
    /// The time since then.
    pub silent_millis: i64,
    /// Attempts that run under it.
    pub running: u64,
    /// Backends of the server that serve an active node.
    pub connections: u64,
    /// A roll call waits for it: it may run attempts that the database has lost.
    pub awaited: bool,
    /// What an active node has published, by name.
    pub handlers: Vec<NodeHandler>,
}

/// A handler in a node's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHandler {
    pub handler: Name,
    /// Not all active nodes that have it configure it in the same way.
    pub differs: bool,
}

/// A running attempt of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWork {
    pub job: JobId,
    pub handler: String,
    pub attempt: u32,
    pub source: String,
    pub event: String,
    /// The time since it was claimed.
    pub running_millis: i64,
    /// `hold` or `rerun`.
    pub on_unknown: String,
}

impl Admin {
    /// All nodes, by name; those that were declared lost too.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        let mut reading = self.look().snapshot().await?;
        let mut handlers: HashMap<Uuid, Vec<NodeHandler>> = HashMap::new();
        for row in reading.rows(HANDLERS, &[]).await? {
            let own = NodeHandler { handler: row.word("handler")?, differs: row.value("differs")? };
            handlers.entry(row.value("node")?).or_default().push(own);
        }
        let read = |row: &Row| {
            let id = row.value("id")?;
            Ok(NodeRow {
                id,
                name: row.value("name")?,
                state: row.value("state")?,
                machine: row.value("machine")?,
                version: row.value("version")?,
                sessions: row.number("count")?,
                seen_at: row.time("seen_at")?,
                silent_millis: row.value("silent")?,
                running: row.number("running")?,
                connections: row.number("connections")?,
                awaited: row.value("awaited")?,
                handlers: handlers.remove(&id).unwrap_or_default(),
            })
        };
        reading.all(NODES, &[], read).await
    }

    /// What runs under the active node of this name.
    pub async fn node_work(&self, name: &str) -> Result<Vec<NodeWork>, Error> {
        let mut reading = self.look().read().await?;
        let read = |row: &Row| {
            let work: String = row.value("work")?;
            serde_json::from_str(&work).map_err(|error| Error::Unavailable(error.to_string()))
        };
        reading.all(WORK, &[&name], read).await
    }
}
