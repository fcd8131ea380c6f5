//! CLAIM: jobs become `running`, each with a new attempt, before anything starts.
//!
//! What must stay true: no attempt is in the answers of two claims, on any node. An attempt whose claim was not
//! answered is in the list of the node's next registration.
//!
//! A handler's row of `lane` is what its claims lock: to count the cluster's running jobs, to keep the rate, and so that
//! none commits after a pause. The *claimant* of an attempt is the session that claimed it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{JobId, Name, Runner, Timestamp};
use crate::store::border::{Claim, RunningAttempt};
use crate::store::columns::{FromRow, column, from_row, readable};
use crate::store::decide::pace::Pace;

use super::claim_start::ClaimStart;
use super::flight::{Flight, Session};
use super::params::params;

/// Keeps the handler from being paused until the end of the transaction.
const LANE: &str = "SELECT FROM lane WHERE handler = $1 FOR SHARE";

/// Takes the handler's lane exclusively, for a claim that counts running jobs or takes shares: no other claim of the
/// handler does so meanwhile. Returns a row if another transaction has the lock: its commit may keep it for long, and
/// all accepts of this node would wait, too.
const LANE_ALONE: &str = "
    WITH own AS MATERIALIZED (SELECT FROM lane WHERE handler = $1 FOR NO KEY UPDATE SKIP LOCKED)
    SELECT FROM lane WHERE handler = $1 AND NOT EXISTS (SELECT FROM own)";

/// When a claim is asked again that found its lane locked.
const LANE_PAUSE: Duration = Duration::from_millis(100);

/// The time to which the rate of these handlers ($1) is used up, in microseconds, and the time now in milliseconds. A
/// statement begins behind the lock of the lane, and its clock is not that of the transaction's begin (N41).
const PACE: &str = "
    SELECT handler, busy_to, clock_ms() AS now FROM lane WHERE handler = ANY ($1)";

/// Takes the shares of the rate that the attempts of this transaction use.
const TAKE_SHARES: &str = "UPDATE lane SET busy_to = $2 WHERE handler = $1";

/// Makes up to $2 jobs of handler $1 run, and lets no more than $3 of them run in the cluster: the oldest ones that are
/// ready or due. It takes none of the jobs $4 or the groups $5, none before the start ($6, $7), and none of any group
/// during a roll call (N40). Jobs that another node is claiming are passed over, and with them their groups: no other
/// job of a group is ready and not behind. The CTEs are materialized, or a LIMIT might be evaluated twice. A handler
/// without a lane or with a paused one has no room. A job whose event is not there is claimed too, and cannot begin: its
/// payload is not read.
///
/// Only the index of ready jobs has the order in which `ready` asks for them. By `row` alone the server may take the
/// primary key, if nearly all jobs were ready when it counted them, and walk over all that have ended since.
const CLAIM: &str = "
    WITH room AS MATERIALIZED (
        SELECT coalesce((
            SELECT CASE WHEN $3::bigint IS NULL THEN $2::bigint ELSE greatest(0, least($2::bigint,
                $3::bigint - (SELECT count(*) FROM job WHERE handler = $1 AND state = 'running'))) END
            FROM lane WHERE handler = $1 AND paused_at IS NULL), 0) AS jobs
    ), ready AS MATERIALIZED (
        SELECT row FROM job WHERE (handler, row) >= ($1, $6::bigint) AND handler <= $1
            AND state = 'ready' AND NOT behind AND id <> ALL ($4::uuid[])
            AND (group_key IS NULL OR group_key <> ALL ($5::text[]) AND NOT EXISTS (SELECT FROM roll_call))
        ORDER BY handler, row LIMIT (SELECT jobs FROM room) FOR UPDATE SKIP LOCKED
    ), due AS MATERIALIZED (
        SELECT row FROM job WHERE handler = $1 AND state = 'waiting' AND NOT behind
            AND due_at BETWEEN $7 AND now_ms() AND id <> ALL ($4::uuid[])
            AND (group_key IS NULL OR group_key <> ALL ($5::text[]) AND NOT EXISTS (SELECT FROM roll_call))
        ORDER BY due_at, row LIMIT (SELECT jobs FROM room) FOR UPDATE SKIP LOCKED
    ), chosen AS MATERIALIZED (
        SELECT row FROM (SELECT row FROM ready UNION ALL SELECT row FROM due) found
        ORDER BY row LIMIT (SELECT jobs FROM room)
    ), taken AS (
        UPDATE job SET state = 'running', attempt = attempt + 1, due_at = NULL
        FROM chosen WHERE job.row = chosen.row AND state IN ('ready', 'waiting')
        RETURNING job.row, id, attempt, event, counted, since, group_key
    ), begun AS (
        INSERT INTO attempt (job, number, started_at, node, claimant, incarnation, runner)
        SELECT row, attempt, now_ms(), $8, $9, $10, $11 FROM taken
    )
    SELECT id AS job, attempt, $1 AS handler, source, event_id, counted, since, $10::text AS incarnation,
        $11::text AS runner, $9::uuid AS claimant, group_key AS group, now_ms() - since AS age,
        event.row IS NULL OR EXISTS (SELECT FROM payload WHERE payload.event = taken.event) AS has_payload
    FROM taken LEFT JOIN event ON event.row = taken.event ORDER BY taken.row";

/// How long until the next waiting job is due, in milliseconds. Jobs that are due already are claimed, or kept from
/// it by something else than time.
const NEXT_DUE: &str = "
    SELECT min(due_at) - now_ms() FROM job WHERE handler = $1 AND state = 'waiting' AND NOT behind AND due_at > now_ms()
        AND EXISTS (SELECT FROM lane WHERE handler = $1 AND paused_at IS NULL)";

/// The attempts that run under node $1. With $2 also those with which it was declared lost until their ends have come: a
/// runner may have them, by the key that the job had at that time. Read behind the lock on the node's row.
pub(super) const RUNNING: &str = "
    SELECT key.id AS job, a.number AS attempt, j.handler, e.source, e.event_id, j.counted, j.since, a.incarnation,
        a.runner, coalesce(a.claimant, '00000000-0000-0000-0000-000000000000') AS claimant, j.group_key AS group,
        now_ms() - j.since AS age, true AS has_payload
    FROM attempt a JOIN job j ON j.row = a.job LEFT JOIN event e ON e.row = j.event CROSS JOIN LATERAL (
        SELECT coalesce((SELECT f.id FROM former_key f WHERE f.job = j.row AND f.attempt >= a.number
            ORDER BY f.attempt LIMIT 1), j.id) AS id) key
    WHERE a.node = $1 AND (a.outcome IS NULL OR $2 AND a.claimant IS NULL
        AND NOT EXISTS (SELECT FROM late_end l WHERE l.job = key.id AND l.attempt = a.number))
    ORDER BY a.job, a.number";

/// An attempt by its job and number.
pub(super) type AttemptKey = (JobId, u32);

/// An attempt that runs under this node, or with which it was declared lost and whose end has not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAttempt {
    pub running: RunningAttempt,
    /// The session that claimed it; the nil UUID if the node was declared lost with the attempt, whose row then names
    /// no claimant.
    pub claimant: Uuid,
    /// The time from `running.since`, which is the database's, to the claim or the registration.
    pub age: Duration,
    /// The group of its job.
    pub group: Option<String>,
    /// What the claim itself saw; true where the event is not there, which is damage. Another connection may be to a
    /// server that lacks it.
    pub has_payload: bool,
}

from_row! {
    NodeAttempt {
        claimant, group, has_payload; columns =>
        running: RunningAttempt::from_row(columns)?,
        age: Duration::from_millis(column::<i64>(columns, "age")?.try_into().unwrap_or(0))
    }
    RunningAttempt {
        job, attempt, handler, counted, since; columns =>
        source: readable(columns, "source")?,
        event_id: readable(columns, "event_id")?,
        runner: match column(columns, "incarnation")? {
            Some(incarnation) => {
                let name = column::<Option<_>>(columns, "runner")?.unwrap_or_default();
                Some(Runner { name, incarnation })
            }
            None => None,
        }
    }
}

impl NodeAttempt {
    pub(super) fn key(&self) -> AttemptKey {
        (self.running.job, self.running.attempt)
    }

    /// Whether both are one attempt: after the database was put back to an earlier state, another one may have its number.
    pub(super) fn is(&self, other: &NodeAttempt) -> bool {
        self.key() == other.key() && self.claimant == other.claimant
    }
}

/// The result of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeClaims {
    /// Grows with each committed claim of this process.
    pub number: u64,
    /// The attempts that run now, oldest job first.
    pub attempts: Vec<NodeAttempt>,
    /// How long it is until the next waiting job of the handler is due. `None` if no job waits, if the handler is
    /// paused, and if as many were claimed as were asked for: more may be ready.
    pub due: Option<Duration>,
    /// How long the rate lets no other attempt start, or how long to wait before the claim is asked again because its
    /// lane was locked; `None` if an attempt may start now.
    pub pause: Option<Duration>,
}

impl NodeClaims {
    /// Returns the result of a claim that found its lane locked. Its number is that of no claim: it knows nothing of
    /// due jobs.
    pub(super) fn locked_out() -> Self {
        NodeClaims { pause: Some(LANE_PAUSE), ..NodeClaims::default() }
    }
}

/// Locks the lane of the claim's handler. Lanes come before jobs, sorted (N8). Returns the statement that has a row if
/// another transaction has locked it.
pub(super) async fn lock_lane(flight: &mut Flight, claim: &Claim) -> Option<usize> {
    let is_alone = claim.cluster_concurrency.is_some() || claim.rate.is_some();
    let sql = if is_alone { LANE_ALONE } else { LANE };
    let number = flight.send(sql, params![&claim.handler]).await;
    is_alone.then_some(number)
}

/// Asks for the rates of these claims, whose lanes are locked.
pub(super) async fn send_paces(flight: &mut Flight, claims: &[&Claim]) -> Option<usize> {
    let limited = claims.iter().filter(|claim| claim.rate.is_some());
    let handlers: Vec<&Name> = limited.map(|claim| &claim.handler).collect();
    if handlers.is_empty() {
        return None;
    }
    Some(flight.send(PACE, params![handlers]).await)
}

/// Reads the rows of [`send_paces`].
pub(super) fn read_paces(rows: &[Row], claims: &[&Claim]) -> BTreeMap<Name, Pace> {
    let read = |row: &Row| {
        let handler: Name = column(row, "handler").ok()?;
        let claim = claims.iter().find(|claim| claim.handler == handler)?;
        let now: Timestamp = column(row, "now").ok()?;
        Some((handler, Pace::of(column(row, "busy_to").ok()?, claim.rate?, now)))
    };
    rows.iter().filter_map(read).collect()
}

/// What a claim takes nothing of: a runner may still have attempts of these jobs and groups (N15, N39).
pub(super) struct Taken {
    pub(super) jobs: Vec<JobId>,
    pub(super) groups: Vec<String>,
}

/// A claim whose statements are sent, behind the lock of its lane.
pub(super) struct SentClaim<'a> {
    pub(super) claim: &'a Claim,
    pace: Option<Pace>,
    /// Its statements.
    claimed: usize,
    due: usize,
}

impl<'a> SentClaim<'a> {
    /// `pace`: of its handler's rate.
    pub(super) async fn send(
        claim: &'a Claim,
        start: ClaimStart,
        pace: Option<Pace>,
        taken: Taken,
        flight: &mut Flight,
        session: &Session,
    ) -> Self {
        let limit = match pace {
            Some(pace) => pace.starts().min(claim.limit),
            // The handler has no lane yet.
            None if claim.rate.is_some() => 0,
            None => claim.limit,
        };
        let runner = claim.runner.as_ref();
        let params = params![
            &claim.handler,
            limit,
            claim.cluster_concurrency,
            taken.jobs,
            taken.groups,
            start.row,
            start.due_at,
            session.node,
            session.id,
            runner.map(|runner| runner.incarnation.to_string()),
            runner.map(|runner| runner.name.as_str()),
        ];
        let claimed = flight.send(CLAIM, params).await;
        let due = flight.send(NEXT_DUE, params![&claim.handler]).await;
        SentClaim { claim, pace, claimed, due }
    }

    /// Takes the shares of what was claimed, where the handler has a rate.
    pub(super) async fn take_shares(&mut self, flight: &mut Flight) {
        let Some(pace) = self.pace else { return };
        let Some(starts) = flight.rows(self.claimed).await.map(<[Row]>::len) else { return };
        if let Some(busy_to) = pace.after(starts) {
            flight.send(TAKE_SHARES, params![&self.claim.handler, busy_to]).await;
            self.pace = Some(pace.taken(starts));
        }
    }

    /// What the committed statements say.
    pub(super) fn read(&self, rows: &[Vec<Row>]) -> NodeClaims {
        let attempts = read(rows.get(self.claimed).map_or(&[], Vec::as_slice));
        let millis = rows.get(self.due).and_then(|rows| rows.first()?.try_get(0).ok()?);
        let more = attempts.len() == self.claim.limit;
        let millis = millis.and_then(|millis: i64| u64::try_from(millis).ok());
        NodeClaims {
            number: 0,
            attempts,
            due: millis.filter(|_| !more).map(Duration::from_millis),
            pause: self.pace.and_then(|pace| pace.pause()),
        }
    }
}

pub(super) fn uuid(job: &JobId) -> Uuid {
    Uuid::from_bytes(*job.as_bytes())
}

/// Reads rows of [`CLAIM`] or [`RUNNING`]. One that cannot be read stays `running` and is logged: nothing is known of
/// its outcome.
pub(super) fn read(rows: &[Row]) -> Vec<NodeAttempt> {
    let read = |row: &Row| match NodeAttempt::from_row(row) {
        Ok(attempt) => Some(attempt),
        Err(error) => {
            tracing::error!(%error, "a running attempt cannot be read");
            None
        }
    };
    rows.iter().filter_map(read).collect()
}
