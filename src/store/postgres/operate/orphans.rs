//! Jobs of handlers that are gone, and due times that a clock has moved away (K1, N29).

use crate::model::{HeldReason, JobId, Name, Timestamp};
use crate::store::border::Error;
use crate::store::columns::column;

use super::super::claim::uuid;
use super::super::flight::Flight;
use super::super::group::RELEASE_OF_JOBS;
use super::super::notices::NodeNotices;
use super::super::params::params;
use super::super::stop::{Stop, ask};
use super::change::Change;

/// The handlers that have ready or waiting jobs, and that no node publishes that is not lost, but for $1: one look at an
/// index leads from one handler to the next. A job behind another one is found with that one, or when it comes free.
const ORPHANED: &str = r#"
    WITH RECURSIVE ready (handler) AS (
        SELECT min(handler) FROM job WHERE state = 'ready' AND NOT behind
        UNION ALL
        SELECT (SELECT min(job.handler) FROM job WHERE state = 'ready' AND NOT behind AND job.handler > ready.handler)
        FROM ready WHERE handler IS NOT NULL
    ), waiting (handler) AS (
        SELECT min(handler) FROM job WHERE state = 'waiting' AND NOT behind
        UNION ALL
        SELECT (SELECT min(job.handler) FROM job
            WHERE state = 'waiting' AND NOT behind AND job.handler > waiting.handler)
        FROM waiting WHERE handler IS NOT NULL
    )
    SELECT handler FROM (SELECT handler FROM ready UNION SELECT handler FROM waiting) found
    WHERE handler IS NOT NULL AND handler <> ALL ($1::text[]) AND NOT EXISTS (SELECT FROM handler published
        JOIN node ON node.id = published.node
        WHERE node.state = 'active' AND published.handler = found.handler)
    ORDER BY handler"#;

/// The groups of a handler's ready and waiting jobs.
const LOCK_GROUPS: &str = "
    INSERT INTO job_group (handler, key)
    SELECT DISTINCT handler, group_key FROM job WHERE handler = $1 AND group_key IS NOT NULL
        AND (state = 'ready' AND NOT behind OR state = 'waiting' AND NOT behind
            OR behind AND state IN ('ready', 'waiting'))
    ORDER BY handler, group_key
    ON CONFLICT (handler, key) DO UPDATE SET key = excluded.key WHERE false";

/// Holds the jobs of a handler that could be claimed. A held job of which the latest wins keeps no other waiting.
const HOLD: &str = "
    UPDATE job SET state = 'held', reason = $2, due_at = NULL,
        behind = behind AND group_rule IS DISTINCT FROM 'latest'
    WHERE handler = $1 AND (state = 'ready' AND NOT behind OR state = 'waiting' AND NOT behind
        OR behind AND state IN ('ready', 'waiting'))
    RETURNING id";

/// Whether a wait begins in the future. By the end of an index: a million jobs may wait.
pub(super) const IS_AHEAD: &str =
    "SELECT coalesce(max(due_from) > now_ms(), false) AS is_ahead FROM job WHERE state = 'waiting'";

/// Lets each wait that begins in the future begin now, as long as it was. What the statement sees was written before its
/// time, which is not that of the transaction's begin.
const CLAMP: &str = "
    WITH clock AS MATERIALIZED (SELECT clock_ms() AS now)
    UPDATE job SET due_at = clock.now + (due_at - due_from), due_from = clock.now
    FROM clock WHERE state = 'waiting' AND due_from > clock.now
    RETURNING row";

/// Holds the ready and waiting jobs of handlers that are gone, each handler's in one statement: a million may wait.
pub(super) struct Orphans {
    /// The handlers of this node, which may not have published them yet.
    pub(super) known: Vec<Name>,
    pub(super) notices: NodeNotices,
}

impl Change for Orphans {
    type Done = u64;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<u64, Stop> {
        let known: Vec<&Name> = self.known.iter().collect();
        let found = ask(flight, ORPHANED, params![known]).await?.iter();
        let handlers = found.map(|row| column(row, "handler")).collect::<Result<Vec<Name>, _>>()?;
        for name in &handlers {
            flight.send(LOCK_GROUPS, params![name]).await;
        }
        let mut held: Vec<JobId> = Vec::new();
        for name in &handlers {
            let reason = HeldReason::HandlerGone.as_str();
            let rows = ask(flight, HOLD, params![name, reason]).await?.iter();
            held.extend(rows.map(|row| column(row, "id")).collect::<Result<Vec<JobId>, Error>>()?);
        }
        let count = held.len() as u64;
        if count > 0 {
            flight.send(RELEASE_OF_JOBS, params![held.clone()]).await;
            self.notices.note_jobs(flight, held.iter().map(uuid).collect()).await;
        }
        Ok(count)
    }
}

/// Moves due times that a clock set back has put off (K1). The nodes sleep until the times that they know.
pub(super) struct ClampDue;

impl Change for ClampDue {
    type Done = u64;

    const WAKES: bool = true;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<u64, Stop> {
        Ok(ask(flight, CLAMP, params![]).await?.len() as u64)
    }
}
