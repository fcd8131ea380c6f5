//! The nodes of a database.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::model::{Name, Timestamp};

/// A node looks at the server every 2 s. After so long a silence people are told; it decides nothing (N23).
pub const NODE_SILENCE: Duration = Duration::from_mins(5);

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
    /// A change of the tables by a newer program waits until this node is upgraded (N32).
    #[serde(default)]
    pub outdated: bool,
    /// What an active node has published, by name.
    pub handlers: Vec<NodeHandler>,
    /// Handlers of other active nodes that an active node has not published, by name. What it accepts gets no job for them.
    #[serde(default)]
    pub lacks: Vec<Name>,
}

/// A handler in a node's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHandler {
    pub handler: Name,
    /// The sources whose events it takes.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Not all active nodes that have it configure it in the same way.
    pub differs: bool,
    /// The keys that differ between the nodes, with this node's values. Values of `env` are not published, and may differ
    /// too.
    #[serde(default)]
    pub keys: BTreeMap<String, String>,
}

impl NodeRow {
    /// `connected`, `lost`, `not connected` or `awaited`. The last two need attention.
    pub fn condition(&self) -> &str {
        match (self.state.as_str(), self.connections) {
            _ if self.awaited => "awaited",
            ("active", 0) => "not connected",
            ("active", _) => "connected",
            (state, _) => state,
        }
    }

    /// It should be heard of, and is not.
    pub fn is_silent(&self) -> bool {
        self.state == "active" && self.connections == 0 && self.silence() >= NODE_SILENCE
    }

    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.silent_millis.try_into().unwrap_or(0))
    }
}
