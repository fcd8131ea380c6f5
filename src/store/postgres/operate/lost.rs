//! A node is declared lost, by a person who says that nothing of it runs any more. Never by time: a node that was
//! silent for a while may run its attempts on.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{AuditVerb, JobId, Name, State, Timestamp};
use crate::random;
use crate::retry::History;
use crate::store::border::{AuditSubject, Completion, Error, Record};
use crate::store::columns::column;
use crate::store::decide::recovery;

use super::super::admin::handle::Admin;
use super::super::claim::uuid;
use super::super::complete::{AttemptEnd, EndFacts, EndResult, PreparedEnd, note};
use super::super::flight::Flight;
use super::super::handlers;
use super::super::notices::NodeNotices;
use super::super::params::params;
use super::super::stop::{Stop, ask};
use super::audit::{Operated, Operation};

/// Whether the server has the history that its rows are of, or a later one that changes nothing ($1: commits wait for a
/// standby, and a failover promotes only one that has them).
const IS_KNOWN: &str = "
    SELECT is_in_place() AND meta.system = control.system_identifier::text AND (timeline = now OR $1 AND timeline < now)
    FROM meta, pg_control_system() control, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) now";

/// Locks the node's row, behind the node's transaction that is under way. A roll call also waits for a node that was
/// lost in an earlier history (N40).
const LOCK: &str = "
    SELECT name FROM node WHERE id = $1 AND (state = 'active' OR EXISTS (SELECT FROM roll_call WHERE node = id))
    FOR NO KEY UPDATE";

/// Every later transaction of the node fails in its fence, until it registers again.
const LOSE: &str = "UPDATE node SET state = 'lost', session = $2 WHERE id = $1";

/// Ends the roll call of node $1: nothing of it runs any more.
const NOT_AWAITED: &str = "DELETE FROM roll_call WHERE node = $1";

/// What runs under the node, each with the policy that the node has published. Behind the lock of the node's row, only
/// this transaction settles it.
const CUT_OFF: &str = "
    SELECT j.id, j.attempt, j.handler, j.counted, j.since, a.claimant,
        h.on_unknown, h.give_up_attempts, h.give_up_after, h.backoff_base, h.backoff_max, h.pauses
    FROM attempt a JOIN job j ON j.row = a.job AND j.attempt = a.number
    LEFT JOIN handler h ON h.node = a.node AND h.handler = j.handler
    WHERE a.node = $1 AND a.outcome IS NULL AND j.state = 'running'
    ORDER BY j.id";

/// The column where the policy begins.
const POLICY: usize = 6;

/// A node that has been declared lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostNode {
    pub name: String,
    /// The attempts that ran there, settled as unknown: (job, attempt, state after).
    pub unknown: Vec<(JobId, u32, State)>,
}

struct Declaration {
    node: Uuid,
    notices: NodeNotices,
    require_standby: bool,
}

impl Admin {
    /// Declares a node lost, and settles what runs there: each attempt is unknown, and its job follows the policy of its
    /// handler as that node has published it, and is held where it has not. The groups of its jobs go on. None if it is
    /// lost already and no roll call waits for it.
    pub async fn declare_lost(
        &self,
        node: Uuid,
        notices: NodeNotices,
    ) -> Result<Option<LostNode>, Error> {
        let require_standby = self.target.require_standby;
        self.change(AuditVerb::NodeLost, Declaration { node, notices, require_standby }).await
    }
}

impl Operation for Declaration {
    type Done = Option<LostNode>;

    async fn operate(&self, flight: &mut Flight, now: Timestamp) -> Operated<Option<LostNode>> {
        let is_known = ask(flight, IS_KNOWN, params![self.require_standby]).await?;
        if !is_known.first().map_or(Ok(false), |row| row.try_get(0))? {
            let why = "the server was restored, promoted or copied, and no receiver has registered there since";
            return Err(Error::Unavailable(why.to_owned()).into());
        }
        let node = ask(flight, LOCK, params![self.node]).await?;
        let Some(node) = node.first() else { return Ok((None, AuditSubject::default(), 0)) };
        let name: String = node.try_get(0)?;
        let subject = AuditSubject { node: Some(name.clone()), ..AuditSubject::default() };
        ask(flight, LOSE, params![self.node, Uuid::from_bytes(random::id())]).await?;
        flight.send(NOT_AWAITED, params![self.node]).await;
        let rows = ask(flight, CUT_OFF, params![self.node]).await?;
        // What cannot be read cannot be settled, and nothing may be left out.
        let found: Vec<_> = rows.iter().map(|row| cut_off(row, now)).collect::<Result<_, _>>()?;
        let mut ends = Vec::with_capacity(found.len());
        for end in found {
            ends.push(PreparedEnd::new(end).await);
        }
        let ends: Vec<&PreparedEnd> = ends.iter().collect();
        let jobs = ends.iter().map(|end| uuid(&end.end.done.job)).collect();
        let facts = EndFacts::lock(flight, jobs).await.ok_or(Stop::Failed)?;
        let sent = facts.settle(flight, self.node, &ends, true).await;
        let mut unknown = Vec::with_capacity(ends.len());
        for (PreparedEnd { end: AttemptEnd { done, .. }, .. }, sent) in ends.iter().zip(&sent) {
            let rows = flight.rows(sent.statement).await.ok_or(Stop::Failed)?;
            let EndResult::Settled(state) = sent.read(rows) else {
                let why = format!("job {} cannot be settled", done.job);
                return Err(Error::Unavailable(why).into());
            };
            unknown.push((done.job, done.attempt, state));
        }
        note(flight, &sent, &self.notices).await;
        Ok((Some(LostNode { name, unknown }), subject, 1))
    }
}

/// Reads a row of [`CUT_OFF`], and decides.
fn cut_off(row: &Row, now: Timestamp) -> Result<AttemptEnd, Stop> {
    let handler: Name = column(row, 2)?;
    let before = History { counted: column(row, 3)?, since: column(row, 4)? };
    let policy = handlers::policy(row, POLICY)?;
    let policies: Vec<_> = policy.map(|policy| (handler.clone(), policy)).into_iter().collect();
    let done =
        recovery::cut_off((column(row, 0)?, column(row, 1)?), &handler, before, &policies, now);
    let detail = "its node was declared lost while the attempt ran".to_owned();
    let done = Completion { record: Record { detail, ..Record::default() }, ..done };
    Ok(AttemptEnd { done: done.into(), claimant: row.try_get(5)? })
}
