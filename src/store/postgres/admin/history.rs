//! Reads which history the rows are of (N25) and what a roll call waits for (N40), for `status` and `doctor`.

use uuid::Uuid;

use crate::store::border::{AwaitedNode, Error};
use crate::store::columns::from_row;

use super::handle::Admin;

const HISTORY: &str = "SELECT system, timeline, store_id AS store FROM meta";

/// The nodes and attempts that a roll call waits for, mostly none. A failover may lose many attempts of a node: the
/// first $1 in all.
pub(in super::super) const AWAITED: &str = "
    SELECT node.name AS node, node.state = 'lost' AS lost, roll_call.job, roll_call.attempt FROM roll_call JOIN node ON node.id = roll_call.node
    ORDER BY node.name, roll_call.job NULLS FIRST, roll_call.attempt LIMIT $1";

pub(super) const MOST_AWAITED: i64 = 20;

/// The history of the database, as its last registration found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryStatus {
    /// The server's identifier, and its timeline in hexadecimal.
    pub system: String,
    pub timeline: String,
    pub store: Uuid,
    pub awaited: Vec<AwaitedNode>,
}

from_row! {
    AwaitedNode { node, lost, job, attempt }
    HistoryStatus { system, timeline, store; _columns => awaited: Vec::new() }
}

impl Admin {
    pub async fn history(&self) -> Result<Option<HistoryStatus>, Error> {
        let mut reading = self.look().snapshot(None).await?;
        let Some(history) = reading.one::<HistoryStatus>(HISTORY, &[]).await? else {
            return Ok(None);
        };
        let awaited = reading.all(AWAITED, &[&MOST_AWAITED]).await?;
        Ok(Some(HistoryStatus { awaited, ..history }))
    }
}
