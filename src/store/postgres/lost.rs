//! A node is declared lost, by a person who says that nothing of it runs any more. Never by time: a node that was
//! silent for a while may run its attempts on.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{JobId, Name, State, Timestamp};
use crate::random;
use crate::retry::{History, Policy};
use crate::store::border::{Completion, Record};
use crate::store::decide::recovery;

use super::claim::uuid;
use super::complete::{AttemptEnd, EndFacts, EndResult, PreparedEnd};
use super::connection::Connection;
use super::flight::{Doubt, Flight, FlightOutcome, Refusal};
use super::handlers;

/// Locks the node's row, behind the node's transaction that is under way. A roll call also waits for a node that was
/// lost in an earlier history; its name may be another one's by now, which then stays active (N40).
const LOCK: &str = "
    SELECT id FROM node WHERE name = $1 AND (state = 'active' OR EXISTS (SELECT FROM roll_call WHERE node = id))
    ORDER BY EXISTS (SELECT FROM roll_call WHERE node = id) DESC, state LIMIT 1 FOR NO KEY UPDATE";

/// Every later transaction of the node fails in its fence, until it registers again.
const LOSE: &str = "UPDATE node SET state = 'lost', session = $2 WHERE id = $1";

/// Nothing of it runs any more, nor of nodes that had its name before.
const NOT_AWAITED: &str = "
    DELETE FROM roll_call USING node
    WHERE roll_call.node = node.id AND node.name = $1 AND node.state = 'lost'";

/// What runs under the node, each with the policy that the node has published. Behind the lock of the node's row, only
/// this transaction settles it.
const CUT_OFF: &str = "
    SELECT j.id, j.attempt, j.handler, j.counted, j.since, a.claimant, now_ms(),
        h.on_unknown, h.give_up_attempts, h.give_up_after, h.backoff_base, h.backoff_max, h.pauses
    FROM attempt a JOIN job j ON j.row = a.job AND j.attempt = a.number
    LEFT JOIN handler h ON h.node = a.node AND h.handler = j.handler
    WHERE a.node = $1 AND a.outcome IS NULL AND j.state = 'running'
    ORDER BY j.id";

/// The column where the policy begins.
const POLICY: usize = 7;

/// A node that has been declared lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostNode {
    pub id: Uuid,
    /// The attempts that ran there, settled as unknown: (job, attempt, state after).
    pub unknown: Vec<(JobId, u32, State)>,
}

/// Why a node is not known to be declared lost.
#[derive(Debug, thiserror::Error)]
pub enum LostError {
    #[error("no active node has the name '{0}'")]
    NotActive(String),
    #[error("the node is not declared lost: {0}")]
    NotCommitted(Refusal),
    /// To declare it again is harmless.
    #[error("not known whether the node is declared lost ({0}); look with `hooklatch node list`")]
    Unknown(Doubt),
}

/// Declares the active node of this name lost, and settles what runs there: each attempt is unknown, and its job
/// follows the policy of its handler as that node has published it, and is held where it has not. The groups of its jobs
/// go on.
pub async fn declare_lost(
    connection: Connection,
    name: &str,
) -> Result<(Connection, LostNode), LostError> {
    let mut flight = Flight::unfenced(connection);
    let lock = flight.send(LOCK, vec![Box::new(name.to_owned())]).await;
    let rows = flight.rows(lock).await;
    let is_answered = rows.is_some();
    let id: Option<Uuid> = rows.and_then(|rows| rows.first()?.try_get(0).ok());
    let Some(id) = id else {
        return Err(match flight.roll_back().await {
            FlightOutcome::NotCommitted(refusal, _) if !is_answered => {
                LostError::NotCommitted(refusal)
            }
            _ => LostError::NotActive(name.to_owned()),
        });
    };
    flight.send(LOSE, vec![Box::new(id), Box::new(Uuid::from_bytes(random::id()))]).await;
    flight.send(NOT_AWAITED, vec![Box::new(name.to_owned())]).await;
    let list = flight.send(CUT_OFF, vec![Box::new(id)]).await;
    let cut_off = flight.rows(list).await.unwrap_or_default().iter().map(cut_off);
    // What cannot be read cannot be settled, and nothing may be left out.
    let cut_off: Vec<AttemptEnd> = match cut_off.collect::<Result<_, _>>() {
        Ok(cut_off) => cut_off,
        Err(text) => return Err(give_up(flight, text).await),
    };
    let mut ends = Vec::with_capacity(cut_off.len());
    for end in cut_off {
        ends.push(PreparedEnd::new(end).await);
    }
    let ends: Vec<&PreparedEnd> = ends.iter().collect();
    let jobs = ends.iter().map(|end| uuid(&end.end.done.job)).collect();
    let Some(facts) = EndFacts::lock(&mut flight, jobs).await else {
        return Err(give_up(flight, "what runs there cannot be read".to_owned()).await);
    };
    let sent = facts.settle(&mut flight, &ends, true).await;
    let mut unknown = Vec::with_capacity(ends.len());
    for (PreparedEnd { end: AttemptEnd { done, .. }, .. }, sent) in ends.iter().zip(&sent) {
        // Without an answer, the commit fails too.
        let Some(rows) = flight.rows(sent.statement).await else { break };
        let EndResult::Settled(state) = sent.read(rows) else {
            return Err(give_up(flight, format!("job {} cannot be settled", done.job)).await);
        };
        unknown.push((done.job, done.attempt, state));
    }
    match flight.commit().await {
        FlightOutcome::Committed(connection, _) => Ok((connection, LostNode { id, unknown })),
        FlightOutcome::NotCommitted(refusal, _) => Err(LostError::NotCommitted(refusal)),
        FlightOutcome::Unknown(doubt) => Err(LostError::Unknown(doubt)),
    }
}

/// Nothing of it is stored.
async fn give_up(flight: Flight, text: String) -> LostError {
    match flight.roll_back().await {
        FlightOutcome::NotCommitted(
            refusal @ (Refusal::Conflict(_) | Refusal::LockTimeout(_)),
            _,
        ) => LostError::NotCommitted(refusal),
        _ => LostError::NotCommitted(Refusal::Failed { code: String::new(), text }),
    }
}

/// Reads a row of [`CUT_OFF`], and decides.
fn cut_off(row: &Row) -> Result<AttemptEnd, String> {
    let unreadable = |error: tokio_postgres::Error| error.to_string();
    let number = |column: usize| -> Result<u32, String> {
        let number: i64 = row.try_get(column).map_err(unreadable)?;
        u32::try_from(number).map_err(|error| error.to_string())
    };
    let job: Uuid = row.try_get(0).map_err(unreadable)?;
    let job = JobId::from_bytes(*job.as_bytes());
    let handler: &str = row.try_get(2).map_err(unreadable)?;
    let handler: Name = handler.parse().map_err(|error| format!("a handler's name: {error}"))?;
    let since = Timestamp(row.try_get(4).map_err(unreadable)?);
    let before = History { counted: number(3)?, since };
    let claimant = row.try_get(5).map_err(unreadable)?;
    let now = Timestamp(row.try_get(6).map_err(unreadable)?);
    let policy: Option<Policy> = handlers::policy(row, POLICY).map_err(unreadable)?;
    let policies: Vec<_> = policy.map(|policy| (handler.clone(), policy)).into_iter().collect();
    let done = recovery::cut_off((job, number(1)?), &handler, before, &policies, now);
    let detail = "its node was declared lost while the attempt ran".to_owned();
    let done = Completion { record: Record { detail, ..Record::default() }, ..done };
    Ok(AttemptEnd { done: done.into(), claimant })
}
