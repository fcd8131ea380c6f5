//! The nodes of the database: for `node list`, `status` and the metrics.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{Name, Timestamp};
use crate::store::border::Error;

use super::super::columns::Columns;
use super::handle::Admin;

/// Every node, with its backends: those of an application with the node's name, which the server cuts at 63 bytes.
const NODES: &str = "
    SELECT n.id, n.name, n.state, n.machine, n.version, n.count, n.seen_at, now_ms() - n.seen_at AS silent,
        (SELECT count(*) FROM attempt a WHERE a.node = n.id AND a.outcome IS NULL) AS running,
        (SELECT count(*) FROM pg_stat_activity s WHERE n.state = 'active' AND s.datname = current_database()
            AND s.application_name = left('hooklatch ' || n.name, 63)) AS connections
    FROM node n ORDER BY n.name, n.state, n.seen_at DESC, n.id";

/// What the active nodes publish, and whether another one publishes something else under the name.
const HANDLERS: &str = "
    SELECT h.node, h.handler, min(h.digest::text) OVER same <> max(h.digest::text) OVER same AS differs
    FROM handler h JOIN node n ON n.id = h.node WHERE n.state = 'active'
    WINDOW same AS (PARTITION BY h.handler) ORDER BY h.node, h.handler";

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
                handlers: handlers.remove(&id).unwrap_or_default(),
            })
        };
        reading.all(NODES, &[], read).await
    }
}
