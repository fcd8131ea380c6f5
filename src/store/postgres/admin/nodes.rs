//! The nodes of the database, and what runs under one: for `node list`, `node lost`, `status` and the metrics.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::JobId;
use crate::store::border::{Error, NodeHandler, NodeRow};
use crate::store::columns::from_row;
use crate::store::decide::nodes::compare;

use super::super::reader::Reading;
use super::handle::Admin;

/// Every node, with its backends: those of an application with the node's name, which the server cuts at 63 bytes.
const NODES: &str = "
    SELECT n.*, n.count AS sessions, now_ms() - n.seen_at AS silent_millis,
        (SELECT count(*) FROM attempt a WHERE a.node = n.id AND a.outcome IS NULL) AS running,
        (SELECT count(*) FROM pg_stat_activity s WHERE n.state = 'active'
            AND s.datname = current_database()
            AND s.application_name = left('hooklatch ' || n.name, 63)) AS connections,
        EXISTS (SELECT FROM roll_call r WHERE r.node = n.id) AS awaited,
        n.state = 'active' AND newest > n.schema AND newest > (SELECT schema FROM meta) AS outdated
    FROM node n, (SELECT max(schema) AS newest FROM node WHERE state = 'active') known ORDER BY n.name, n.state, n.seen_at DESC, n.id";

/// What the active nodes publish, whether another one publishes something else under the name, and then their keys.
const HANDLERS: &str = "
    SELECT node AS row, handler, sources, differs, CASE WHEN differs THEN settings ELSE '{}' END AS keys
    FROM (SELECT h.*, min(h.digest::text) OVER same <> max(h.digest::text) OVER same AS differs
        FROM handler h JOIN node n ON n.id = h.node WHERE n.state = 'active'
        WINDOW same AS (PARTITION BY h.handler)) published
    ORDER BY node, handler";

/// What runs under a node, and what its handlers do after an attempt of unknown outcome.
const WORK: &str = "
    SELECT j.id AS job, j.handler, a.number AS attempt, coalesce(e.source, '') AS source,
        coalesce(e.event_id, '') AS event, now_ms() - a.started_at AS running_millis,
        coalesce(h.on_unknown, 'hold') AS on_unknown
    FROM attempt a JOIN job j ON j.row = a.job LEFT JOIN event e ON e.row = j.event
    LEFT JOIN handler h ON h.node = a.node AND h.handler = j.handler
    WHERE a.node = $1 AND a.outcome IS NULL ORDER BY j.handler, j.id";

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

from_row! {
    NodeRow {
        id, name, state, machine, version, sessions, seen_at, silent_millis, running, connections,
        awaited, outdated;
        _columns => handlers: Vec::new(), lacks: Vec::new()
    }
    NodeHandler { handler, sources, differs, keys }
    NodeWork { job, handler, attempt, source, event, running_millis, on_unknown }
}

impl Admin {
    /// All nodes, by name; those that were declared lost too.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        nodes(&mut self.look().snapshot(None).await?).await
    }

    /// What runs under this node.
    pub async fn node_work(&self, node: Uuid) -> Result<Vec<NodeWork>, Error> {
        self.look().read().await?.all(WORK, &[&node]).await
    }
}

pub(super) async fn nodes(reading: &mut Reading<'_>) -> Result<Vec<NodeRow>, Error> {
    let mut handlers: HashMap<Uuid, _> = reading.by_row(HANDLERS, &[]).await?;
    let mut nodes: Vec<NodeRow> = reading.all(NODES, &[]).await?;
    for node in &mut nodes {
        node.handlers = handlers.remove(&node.id).unwrap_or_default();
    }
    compare(&mut nodes);
    Ok(nodes)
}
