//! CLAIM: jobs become `running`, each with a new attempt, before anything starts.
//!
//! What must stay true: no attempt is in the answers of two claims, on any node. An attempt whose claim was not
//! answered is in the list of the node's next registration.

use std::time::Duration;

use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::model::{JobId, Name, Runner, RunnerName, Timestamp};
use crate::store::border::RunningAttempt;
use crate::store::codec;

use super::flight::{Flight, Param, Session};

/// Keeps the handler from being paused until the end of the transaction.
const LANE: &str = "SELECT FROM lane WHERE handler = $1 FOR SHARE";

/// The same, and keeps every other claim of the handler waiting, so that it counts this one's attempts.
const LANE_ALONE: &str = "SELECT FROM lane WHERE handler = $1 FOR NO KEY UPDATE";

/// Makes the oldest jobs run that are ready, or waiting and due, up to $2 and up to $3 running ones in the cluster,
/// and none of $4. Jobs that another node is claiming are passed over. The CTEs are materialized, or a LIMIT might
/// be evaluated twice. Without a lane, or with a paused one, the limit is 0.
const CLAIM: &str = "
    WITH room AS MATERIALIZED (
        SELECT CASE WHEN $3::bigint IS NULL THEN $2::bigint ELSE greatest(0, least($2::bigint,
            $3::bigint - (SELECT count(*) FROM job WHERE handler = $1 AND state = 'running'))) END AS jobs
        FROM lane WHERE handler = $1 AND paused_at IS NULL
    ), ready AS MATERIALIZED (
        SELECT row FROM job WHERE handler = $1 AND state = 'ready' AND NOT behind AND id <> ALL ($4::uuid[])
        ORDER BY row LIMIT coalesce((SELECT jobs FROM room), 0) FOR UPDATE SKIP LOCKED
    ), due AS MATERIALIZED (
        SELECT row FROM job WHERE handler = $1 AND state = 'waiting' AND NOT behind AND due_at <= now_ms()
            AND id <> ALL ($4::uuid[])
        ORDER BY due_at LIMIT coalesce((SELECT jobs FROM room), 0) FOR UPDATE SKIP LOCKED
    ), chosen AS MATERIALIZED (
        SELECT row FROM (SELECT row FROM ready UNION ALL SELECT row FROM due) found
        ORDER BY row LIMIT coalesce((SELECT jobs FROM room), 0)
    ), taken AS (
        UPDATE job SET state = 'running', attempt = attempt + 1, due_at = NULL
        FROM chosen WHERE job.row = chosen.row AND state IN ('ready', 'waiting')
        RETURNING job.row, id, attempt, event, counted, since
    ), begun AS (
        INSERT INTO attempt (job, number, started_at, node, claimant, incarnation, runner)
        SELECT row, attempt, now_ms(), $5, $6, $7, $8 FROM taken
    )
    SELECT id, attempt, $1, source, event_id, counted, since, $7::text, $8::text, $6::uuid
    FROM taken JOIN event ON event.row = taken.event ORDER BY taken.row";

/// How long until the next waiting job is due, in milliseconds. Jobs that are due already are claimed, or kept from
/// it by something else than time.
const NEXT_DUE: &str = "
    SELECT min(due_at) - now_ms() FROM job WHERE handler = $1 AND state = 'waiting' AND NOT behind AND due_at > now_ms()
        AND EXISTS (SELECT FROM lane WHERE handler = $1 AND paused_at IS NULL)";

/// The attempts that run under a node, by the index of live attempts. Read behind the lock on the node's row.
pub(super) const RUNNING: &str = "
    SELECT j.id, j.attempt, j.handler, e.source, e.event_id, j.counted, j.since, a.incarnation, a.runner, a.claimant
    FROM attempt a JOIN job j ON j.row = a.job AND j.attempt = a.number JOIN event e ON e.row = j.event
    WHERE a.node = $1 AND a.outcome IS NULL AND j.state = 'running' ORDER BY a.job";

/// A claim of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeClaim {
    pub handler: Name,
    /// Most jobs.
    pub limit: usize,
    /// The runner that will be asked to start them; `None` if the receiver runs them itself.
    pub runner: Option<Runner>,
    /// Most attempts of the handler at any time on all nodes together; `None` for no limit.
    pub cluster_concurrency: Option<usize>,
    /// The jobs of which the runner still lists an attempt. They are not claimed: after a wrong declaration the job
    /// may be ready while its attempt runs.
    pub listed: Vec<JobId>,
    /// The session whose list of running attempts has been judged. In a later session nothing is claimed.
    pub session: Uuid,
}

/// An attempt that runs under this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAttempt {
    pub running: RunningAttempt,
    /// The session that claimed it.
    pub claimant: Uuid,
}

/// The result of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeClaims {
    /// The attempts that run now, oldest job first.
    pub attempts: Vec<NodeAttempt>,
    /// In how long the next waiting job of the handler is due. `None` if no job waits, if the handler is paused,
    /// and if as many were claimed as were asked for: more may be ready.
    pub due: Option<Duration>,
}

/// The statements of a claim in its flight.
pub(super) struct Sent {
    claim: usize,
    due: usize,
}

impl NodeClaim {
    /// Locks the lane. Lanes come before jobs, sorted.
    pub(super) async fn lock_lane(flight: &mut Flight, handler: &Name, alone: bool) {
        let sql = if alone { LANE_ALONE } else { LANE };
        flight.send(sql, vec![Box::new(handler.as_str().to_owned())]).await;
    }

    pub(super) async fn send(&self, flight: &mut Flight, session: &Session) -> Sent {
        let handler = || Box::new(self.handler.as_str().to_owned());
        let listed: Vec<Uuid> = self.listed.iter().map(uuid).collect();
        let incarnation = self.runner.as_ref().map(|runner| runner.incarnation.to_string());
        let runner = self.runner.as_ref().map(|runner| runner.name.as_str().to_owned());
        let params: Vec<Param> = vec![
            handler(),
            Box::new(codec::size(self.limit)),
            Box::new(self.cluster_concurrency.map(codec::size)),
            Box::new(listed),
            Box::new(session.node),
            Box::new(session.id),
            Box::new(incarnation),
            Box::new(runner),
        ];
        let claim = flight.send(CLAIM, params).await;
        Sent { claim, due: flight.send(NEXT_DUE, vec![handler()]).await }
    }

    /// What the committed statements say.
    pub(super) fn read(&self, sent: &Sent, rows: &[Vec<Row>]) -> NodeClaims {
        let attempts = read(rows.get(sent.claim).map_or(&[], Vec::as_slice));
        let millis = rows.get(sent.due).and_then(|rows| rows.first()?.try_get(0).ok()?);
        let more = attempts.len() == self.limit;
        let millis = millis.and_then(|millis: i64| u64::try_from(millis).ok());
        NodeClaims { attempts, due: millis.filter(|_| !more).map(Duration::from_millis) }
    }
}

pub(super) fn uuid(job: &JobId) -> Uuid {
    Uuid::from_bytes(*job.as_bytes())
}

/// Reads rows of [`CLAIM`] or [`RUNNING`]. One that cannot be read stays `running` and is logged: nothing is known of
/// its outcome.
pub(super) fn read(rows: &[Row]) -> Vec<NodeAttempt> {
    let read = |row: &Row| match attempt(row) {
        Ok(attempt) => Some(attempt),
        Err(error) => {
            tracing::error!(error, "a running attempt cannot be read");
            None
        }
    };
    rows.iter().filter_map(read).collect()
}

fn attempt(row: &Row) -> Result<NodeAttempt, String> {
    let unreadable = |error: Error| error.to_string();
    let text = |column: usize| row.try_get::<_, &str>(column).map_err(unreadable);
    let number = |column: usize| -> Result<u32, String> {
        let number: i64 = row.try_get(column).map_err(unreadable)?;
        u32::try_from(number).map_err(|error| error.to_string())
    };
    let bad = |error: &dyn std::fmt::Display| error.to_string();
    let job: Uuid = row.try_get(0).map_err(unreadable)?;
    let incarnation: Option<&str> = row.try_get(7).map_err(unreadable)?;
    let name: Option<&str> = row.try_get(8).map_err(unreadable)?;
    let name: Option<RunnerName> = name.map(str::parse).transpose().map_err(|e| bad(&e))?;
    let incarnation = incarnation.map(str::parse).transpose().map_err(|e| bad(&e))?;
    let runner =
        incarnation.map(|incarnation| Runner { name: name.unwrap_or_default(), incarnation });
    let running = RunningAttempt {
        job: JobId::from_bytes(*job.as_bytes()),
        attempt: number(1)?,
        handler: text(2)?.parse().map_err(|e| bad(&e))?,
        source: text(3)?.parse().map_err(|e| bad(&e))?,
        event_id: text(4)?.parse().map_err(|e| bad(&e))?,
        counted: number(5)?,
        since: Timestamp(row.try_get(6).map_err(unreadable)?),
        runner,
    };
    Ok(NodeAttempt { running, claimant: row.try_get(9).map_err(unreadable)? })
}
