//! The nodes of the database, and what runs under one: for the operator who decides whether one is lost.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::model::JobId;

use super::connection::{Connection, describe};

/// Every node, with the backends that it is connected by. The server cuts an application's name at 63 bytes.
const LIST: &str = "
    SELECT row_to_json(t)::text FROM (
        SELECT n.name, n.state, n.machine, n.version, now_ms() - n.seen_at AS silent_millis,
            (SELECT count(*) FROM attempt a WHERE a.node = n.id AND a.outcome IS NULL) AS running,
            (SELECT count(*) FROM pg_stat_activity s WHERE n.state = 'active' AND s.datname = current_database()
                AND s.application_name = left('hooklatch ' || n.name, 63)) AS connections
        FROM node n) t
    ORDER BY t.name, t.state, t.silent_millis";

/// What runs under the active node of a name, and what its handlers do after an attempt of unknown outcome.
const WORK: &str = "
    SELECT row_to_json(t)::text FROM (
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
    pub name: String,
    /// `active` or `lost`.
    pub state: String,
    pub machine: String,
    pub version: String,
    /// The time since it looked at the database.
    pub silent_millis: i64,
    /// Attempts.
    pub running: u64,
    /// Backends of the server.
    pub connections: u64,
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

/// All nodes, by name. An `Err` says why they cannot be read.
pub async fn nodes(connection: &Connection) -> Result<Vec<NodeRow>, String> {
    read(connection, LIST, &[]).await
}

/// What runs under the active node of this name. An `Err` says why it cannot be read.
pub async fn work_of(connection: &Connection, name: &str) -> Result<Vec<NodeWork>, String> {
    read(connection, WORK, &[&name]).await
}

async fn read<T: DeserializeOwned>(
    connection: &Connection,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<T>, String> {
    let rows = connection.client.query(sql, params).await.map_err(|error| describe(&error))?;
    let parse = |row: &Row| {
        let text: &str = row.try_get(0).map_err(|error| describe(&error))?;
        serde_json::from_str(text).map_err(|error| error.to_string())
    };
    rows.iter().map(parse).collect()
}
