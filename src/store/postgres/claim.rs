//! CLAIM: jobs become `running`, each with a new attempt, before anything starts.
//!
//! What must stay true: no attempt is in the answers of two claims, on any node. An attempt whose claim was not
//! answered is in the list of the node's next registration.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::model::{JobId, Name, Runner, RunnerName, Timestamp};
use crate::store::border::{Claim, RunningAttempt};
use crate::store::codec;
use crate::store::decide::pace::Pace;

use super::claim_start::ClaimStart;
use super::flight::{Flight, Param, Session};

/// Keeps the handler from being paused until the end of the transaction.
const LANE: &str = "SELECT FROM lane WHERE handler = $1 FOR SHARE";

/// The same for a claim that counts or takes shares: no other one of the handler does so meanwhile. A row where another
/// transaction has the lock, which its commit may keep for long: all accepts of this node would wait for it, too.
const LANE_ALONE: &str = "
    WITH own AS MATERIALIZED (SELECT FROM lane WHERE handler = $1 FOR NO KEY UPDATE SKIP LOCKED)
    SELECT FROM lane WHERE handler = $1 AND NOT EXISTS (SELECT FROM own)";

/// When a claim is asked again that found its lane locked.
const LANE_PAUSE: Duration = Duration::from_millis(100);

/// To when the rate of these handlers ($1) is used up, in microseconds, and the time in milliseconds. A statement begins
/// behind the lock of the lane, and its clock is not that of the transaction's begin (N41).
const PACE: &str = "
    SELECT handler, busy_to, clock_ms() FROM lane WHERE handler = ANY ($1)";

/// Takes the shares of the attempts that this transaction starts.
const TAKE_SHARES: &str = "UPDATE lane SET busy_to = $2 WHERE handler = $1";

/// Makes the oldest jobs run that are ready, or waiting and due, up to $2 and up to $3 running ones in the cluster:
/// none of the jobs $4, none of the groups $9, none before the start $10 and $11, and none of any group during a roll
/// call (N40). Jobs that another node is claiming are passed over, and with them their groups: no other job of a group
/// is ready and not behind. The CTEs are materialized, or a LIMIT might be evaluated twice. Without a lane, or with a
/// paused one, the limit is 0.
///
/// Only the index of ready jobs has the order in which `ready` asks for them. By `row` alone the server may take the
/// primary key, if nearly all jobs were ready when it counted them, and walk over all that have ended since.
const CLAIM: &str = "
    WITH room AS MATERIALIZED (
        SELECT CASE WHEN $3::bigint IS NULL THEN $2::bigint ELSE greatest(0, least($2::bigint,
            $3::bigint - (SELECT count(*) FROM job WHERE handler = $1 AND state = 'running'))) END AS jobs
        FROM lane WHERE handler = $1 AND paused_at IS NULL
    ), ready AS MATERIALIZED (
        SELECT row FROM job WHERE (handler, row) >= ($1, $10::bigint) AND handler <= $1
            AND state = 'ready' AND NOT behind AND id <> ALL ($4::uuid[])
            AND (group_key IS NULL OR group_key <> ALL ($9::text[]) AND NOT EXISTS (SELECT FROM roll_call))
        ORDER BY handler, row LIMIT coalesce((SELECT jobs FROM room), 0) FOR UPDATE SKIP LOCKED
    ), due AS MATERIALIZED (
        SELECT row FROM job WHERE handler = $1 AND state = 'waiting' AND NOT behind
            AND due_at BETWEEN $11 AND now_ms() AND id <> ALL ($4::uuid[])
            AND (group_key IS NULL OR group_key <> ALL ($9::text[]) AND NOT EXISTS (SELECT FROM roll_call))
        ORDER BY due_at, row LIMIT coalesce((SELECT jobs FROM room), 0) FOR UPDATE SKIP LOCKED
    ), chosen AS MATERIALIZED (
        SELECT row FROM (SELECT row FROM ready UNION ALL SELECT row FROM due) found
        ORDER BY row LIMIT coalesce((SELECT jobs FROM room), 0)
    ), taken AS (
        UPDATE job SET state = 'running', attempt = attempt + 1, due_at = NULL
        FROM chosen WHERE job.row = chosen.row AND state IN ('ready', 'waiting')
        RETURNING job.row, id, attempt, event, counted, since, group_key
    ), begun AS (
        INSERT INTO attempt (job, number, started_at, node, claimant, incarnation, runner)
        SELECT row, attempt, now_ms(), $5, $6, $7, $8 FROM taken
    )
    SELECT id, attempt, $1, source, event_id, counted, since, $7::text, $8::text, $6::uuid, group_key, now_ms() - since
    FROM taken JOIN event ON event.row = taken.event ORDER BY taken.row";

/// How long until the next waiting job is due, in milliseconds. Jobs that are due already are claimed, or kept from
/// it by something else than time.
const NEXT_DUE: &str = "
    SELECT min(due_at) - now_ms() FROM job WHERE handler = $1 AND state = 'waiting' AND NOT behind AND due_at > now_ms()
        AND EXISTS (SELECT FROM lane WHERE handler = $1 AND paused_at IS NULL)";

/// The attempts that run under a node. $2: also those with which it was declared lost, without a claimant, until their
/// ends have come: a runner may have them, by the key of that time. Read behind the lock on the node's row.
pub(super) const RUNNING: &str = "
    SELECT key.id, a.number, j.handler, e.source, e.event_id, j.counted, j.since, a.incarnation, a.runner,
        coalesce(a.claimant, '00000000-0000-0000-0000-000000000000'), j.group_key, now_ms() - j.since
    FROM attempt a JOIN job j ON j.row = a.job JOIN event e ON e.row = j.event CROSS JOIN LATERAL (
        SELECT coalesce((SELECT f.id FROM former_key f WHERE f.job = j.row AND f.attempt >= a.number
            ORDER BY f.attempt LIMIT 1), j.id) AS id) key
    WHERE a.node = $1 AND (a.outcome IS NULL OR $2 AND a.claimant IS NULL
        AND NOT EXISTS (SELECT FROM late_end l WHERE l.job = key.id AND l.attempt = a.number))
    ORDER BY a.job, a.number";

/// An attempt by its job and number.
pub(super) type AttemptKey = (JobId, u32);

/// An attempt that runs under this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAttempt {
    pub running: RunningAttempt,
    /// The session that claimed it. Nil where it was declared lost.
    pub claimant: Uuid,
    /// The time from `running.since`, which is the database's, to the claim or the registration.
    pub age: Duration,
    /// The group of its job.
    pub group: Option<String>,
}

impl NodeAttempt {
    pub(super) fn key(&self) -> AttemptKey {
        (self.running.job, self.running.attempt)
    }

    /// Whether both are one attempt: after the database has gone back, another one may have its number.
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
    /// In how long the next waiting job of the handler is due. `None` if no job waits, if the handler is paused,
    /// and if as many were claimed as were asked for: more may be ready.
    pub due: Option<Duration>,
    /// For how long the rate lets no other attempt start, or until the claim is to be asked again because its lane was
    /// locked; `None` if an attempt may start now.
    pub pause: Option<Duration>,
}

impl NodeClaims {
    /// Of a claim that found its lane locked. Its number is that of no claim: it knows nothing of due jobs.
    pub(super) fn locked_out() -> Self {
        NodeClaims { pause: Some(LANE_PAUSE), ..NodeClaims::default() }
    }
}

/// Locks the lane of the claim's handler. Lanes come before jobs, sorted. Returns the statement that has a row where
/// another transaction has locked it.
pub(super) async fn lock_lane(flight: &mut Flight, claim: &Claim) -> Option<usize> {
    let is_alone = claim.cluster_concurrency.is_some() || claim.rate.is_some();
    let sql = if is_alone { LANE_ALONE } else { LANE };
    let number = flight.send(sql, vec![Box::new(claim.handler.as_str().to_owned())]).await;
    is_alone.then_some(number)
}

/// Asks for the rates of these claims, whose lanes are locked.
pub(super) async fn send_paces(flight: &mut Flight, claims: &[&Claim]) -> Option<usize> {
    let limited = claims.iter().filter(|claim| claim.rate.is_some());
    let handlers: Vec<String> = limited.map(|claim| claim.handler.as_str().to_owned()).collect();
    if handlers.is_empty() {
        return None;
    }
    Some(flight.send(PACE, vec![Box::new(handlers)]).await)
}

/// Reads the rows of [`send_paces`].
pub(super) fn read_paces(rows: &[Row], claims: &[&Claim]) -> BTreeMap<Name, Pace> {
    let read = |row: &Row| {
        let name: &str = row.try_get(0).ok()?;
        let claim = claims.iter().find(|claim| claim.handler.as_str() == name)?;
        let now = Timestamp(row.try_get(2).ok()?);
        Some((claim.handler.clone(), Pace::of(row.try_get(1).ok()?, claim.rate?, now)))
    };
    rows.iter().filter_map(read).collect()
}

/// A claim whose lane is locked, in its flight.
pub(super) struct ClaimFlight<'a> {
    pub(super) claim: &'a Claim,
    pace: Option<Pace>,
    /// Its statements.
    claimed: usize,
    due: usize,
}

impl<'a> ClaimFlight<'a> {
    /// `pace`: of its handler's rate. The last: jobs and groups of which it claims nothing.
    pub(super) async fn send(
        (claim, start): (&'a Claim, ClaimStart),
        pace: Option<Pace>,
        (jobs, groups): (Vec<Uuid>, Vec<String>),
        flight: &mut Flight,
        session: &Session,
    ) -> Self {
        let limit = match pace {
            Some(pace) => pace.starts().min(claim.limit),
            // Without its lane.
            None if claim.rate.is_some() => 0,
            None => claim.limit,
        };
        let handler = || Box::new(claim.handler.as_str().to_owned());
        let incarnation = claim.runner.as_ref().map(|runner| runner.incarnation.to_string());
        let runner = claim.runner.as_ref().map(|runner| runner.name.as_str().to_owned());
        let params: Vec<Param> = vec![
            handler(),
            Box::new(codec::size(limit)),
            Box::new(claim.cluster_concurrency.map(codec::size)),
            Box::new(jobs),
            Box::new(session.node),
            Box::new(session.id),
            Box::new(incarnation),
            Box::new(runner),
            Box::new(groups),
            Box::new(start.row),
            Box::new(start.due_at),
        ];
        let claimed = flight.send(CLAIM, params).await;
        let due = flight.send(NEXT_DUE, vec![handler()]).await;
        ClaimFlight { claim, pace, claimed, due }
    }

    /// Takes the shares of what was claimed, where the handler has a rate.
    pub(super) async fn take_shares(&mut self, flight: &mut Flight) {
        let Some(pace) = self.pace else { return };
        let Some(starts) = flight.rows(self.claimed).await.map(<[Row]>::len) else { return };
        if let Some(busy_to) = pace.after(starts) {
            let handler = self.claim.handler.as_str().to_owned();
            flight.send(TAKE_SHARES, vec![Box::new(handler), Box::new(busy_to)]).await;
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
    let claimant = row.try_get(9).map_err(unreadable)?;
    let age: i64 = row.try_get(11).map_err(unreadable)?;
    let age = Duration::from_millis(age.try_into().unwrap_or(0));
    Ok(NodeAttempt { running, claimant, age, group: row.try_get(10).map_err(unreadable)? })
}
