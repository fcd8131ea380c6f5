//! A node is declared lost, by a person who says that nothing of it runs any more. Never by time: a node that was
//! silent for a while may run its attempts on.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{JobId, State, Timestamp};
use crate::random;
use crate::retry::{History, Policy};
use crate::store::border::{Completion, Record};
use crate::store::decide::job_move::FoundJob;
use crate::store::decide::recovery;

use super::complete::{self, AttemptEnd, EndResult};
use super::connection::Connection;
use super::flight::{Doubt, Flight, FlightOutcome, Refusal};
use super::handlers;

/// Locks the node's row, behind the node's transaction that is under way.
const LOCK: &str = "SELECT id FROM node WHERE name = $1 AND state = 'active' FOR NO KEY UPDATE";

/// Every later transaction of the node fails in its fence, until it registers again.
const LOSE: &str = "UPDATE node SET state = 'lost', session = $2 WHERE id = $1";

/// What runs under the node, each with the policy that the node has published. Jobs are locked in the order of
/// their ids.
const CUT_OFF: &str = "
    SELECT j.id, j.row, j.event, j.handler, j.attempt, j.counted, j.since, a.claimant, now_ms(),
        h.on_unknown, h.give_up_attempts, h.give_up_after, h.backoff_base, h.backoff_max, h.pauses
    FROM attempt a JOIN job j ON j.row = a.job AND j.attempt = a.number
    LEFT JOIN handler h ON h.node = a.node AND h.handler = j.handler
    WHERE a.node = $1 AND a.outcome IS NULL AND j.state = 'running'
    ORDER BY j.id FOR UPDATE OF j";

/// The column where the policy begins.
const POLICY: usize = 9;

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

/// An attempt that the declaration settles, with what follows.
struct CutOff {
    end: AttemptEnd,
    state: State,
}

/// Declares the active node of this name lost, and settles what runs there: each attempt is unknown, and its job
/// follows the policy of its handler as that node has published it, and is held where it has not.
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
    let list = flight.send(CUT_OFF, vec![Box::new(id)]).await;
    let cut_off = flight.rows(list).await.unwrap_or_default().iter().map(cut_off);
    // What cannot be read cannot be settled, and nothing may be left out.
    let cut_off: Vec<CutOff> = match cut_off.collect::<Result<_, _>>() {
        Ok(cut_off) => cut_off,
        Err(text) => {
            flight.roll_back().await;
            let code = String::new();
            return Err(LostError::NotCommitted(Refusal::Failed { code, text }));
        }
    };
    let mut unknown = Vec::with_capacity(cut_off.len());
    for CutOff { end, state } in cut_off {
        let number = complete::send(&mut flight, &end, true).await;
        let settled = flight.rows(number).await.map(complete::read);
        if let Some(settled) = settled
            && settled != Some(EndResult::Settled)
        {
            flight.roll_back().await;
            let (code, text) = (String::new(), format!("job {} cannot be settled", end.done.job));
            return Err(LostError::NotCommitted(Refusal::Failed { code, text }));
        }
        unknown.push((end.done.job, end.done.attempt, state));
    }
    match flight.commit().await {
        FlightOutcome::Committed(connection, _) => Ok((connection, LostNode { id, unknown })),
        FlightOutcome::NotCommitted(refusal, _) => Err(LostError::NotCommitted(refusal)),
        FlightOutcome::Unknown(doubt) => Err(LostError::Unknown(doubt)),
    }
}

/// Reads a row of [`CUT_OFF`], and decides.
fn cut_off(row: &Row) -> Result<CutOff, String> {
    let unreadable = |error: tokio_postgres::Error| error.to_string();
    let number = |column: usize| -> Result<u32, String> {
        let number: i64 = row.try_get(column).map_err(unreadable)?;
        u32::try_from(number).map_err(|error| error.to_string())
    };
    let handler: &str = row.try_get(3).map_err(unreadable)?;
    let job: Uuid = row.try_get(0).map_err(unreadable)?;
    let job = FoundJob {
        row: row.try_get(1).map_err(unreadable)?,
        job: JobId::from_bytes(*job.as_bytes()),
        event: row.try_get(2).map_err(unreadable)?,
        handler: handler.parse().map_err(|error| format!("a handler's name: {error}"))?,
        state: State::Running,
        attempt: number(4)?,
        grouped: false,
        undecided: false,
    };
    let before =
        History { counted: number(5)?, since: Timestamp(row.try_get(6).map_err(unreadable)?) };
    let claimant = row.try_get(7).map_err(unreadable)?;
    let now = Timestamp(row.try_get(8).map_err(unreadable)?);
    let policy: Option<Policy> = handlers::policy(row, POLICY).map_err(unreadable)?;
    let policies: Vec<_> = policy.map(|policy| (job.handler.clone(), policy)).into_iter().collect();
    let done = recovery::cut_off(&job, before, &policies, now);
    let detail = "its node was declared lost while the attempt ran".to_owned();
    let done = Completion { record: Record { detail, ..Record::default() }, ..done };
    let state = done.next.state();
    Ok(CutOff { end: AttemptEnd { done: done.into(), claimant }, state })
}
