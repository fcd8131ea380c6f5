//! COMPLETE: settles the running attempt of a claimant.
//!
//! What must stay true: a report that is not of the running attempt changes nothing. It is a repeat of an end that
//! its claimant has settled, or a late end, which is kept. What becomes of a job is decided behind the locks of its
//! group, its row and its answer (N36).

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::model::{JobId, Outcome, State, Timestamp};
use crate::retry::Next;
use crate::store::answer::StoredAnswer;
use crate::store::border::{Completion, Record};
use crate::store::codec;
use crate::store::decide::end::{End, EndAnswer, JobAfter, may_be_superseded};
use crate::store::decide::key::KeyOf;
use crate::store::decide::notice::of_state;

use super::claim::{NodeAttempt, uuid};
use super::flight::{Flight, Param};
use super::group::{LOCK_OF_JOBS, RELEASE_OF_JOBS};
use super::notices::NodeNotices;

/// Locks these jobs ($1 ids), in the order of their ids.
const LOCK_JOBS: &str = "SELECT FROM job WHERE id = ANY ($1::uuid[]) ORDER BY id FOR NO KEY UPDATE";

/// Locks their keys' rows.
const LOCK_ANSWERS: &str = "
    SELECT FROM job JOIN answer a ON a.event = job.event WHERE job.id = ANY ($1::uuid[])
    ORDER BY a.event FOR NO KEY UPDATE OF a";

/// What the ends of these jobs depend on: the state of the event's key, whether the job has a group, and the newest
/// job that waits behind it and will run in its place, where the latest wins.
const FACTS: &str = "
    SELECT j.id, coalesce(e.has_key, false), a.event IS NOT NULL, a.answered_at IS NOT NULL, j.group_key IS NOT NULL, (
        SELECT n.id FROM job n WHERE n.handler = j.handler AND n.group_key = j.group_key AND n.behind
            AND n.event > j.event AND j.group_rule = 'latest' AND n.group_rule = 'latest'
            AND n.state IN ('ready', 'waiting')
        ORDER BY n.event DESC LIMIT 1)
    FROM job j LEFT JOIN event e ON e.row = j.event LEFT JOIN answer a ON a.event = j.event
    WHERE j.id = ANY ($1::uuid[])";

/// Settles the attempt ($1, $2) of claimant $3 and its job, if it is the running one; both rows name it. Writes its
/// answer, where there is one. Keeps the report of any other as a late end, unless the claimant has settled the
/// attempt: then this is a repeat. A process that does not know the claimant gives none (nil): what its node ($30) has
/// settled, or what is kept already, is a repeat then. Either way a roll call waits for it no longer (N40). Returns
/// whether it was settled, and whether the attempt was the claimant's. $23: the node is declared lost, so that its own
/// report comes late; its runner is kept, which may still have the attempt.
///
/// Times are the database's: those of the completion come as differences to its end.
///
/// `found` has no condition but the keys, or the server may search the index of running jobs, or that of live attempts:
/// while a transaction is open elsewhere, these keep an entry of every attempt since.
const SETTLE: &str = "
    WITH found AS MATERIALIZED (
        SELECT job.row, state, job.attempt AS last, claimant, outcome
        FROM job JOIN attempt ON attempt.job = job.row AND number = $2 WHERE id = $1 FOR NO KEY UPDATE
    ), live AS MATERIALIZED (
        SELECT row FROM found WHERE state = 'running' AND last = $2 AND claimant = $3 AND outcome IS NULL
    ), own AS MATERIALIZED (
        SELECT FROM attempt WHERE number = $2
            AND job IN (SELECT row FROM job WHERE id = $1 UNION ALL SELECT job FROM former_key WHERE id = $1)
            AND (claimant = $3 OR claimant IS NOT NULL AND outcome IS NOT NULL AND node = $30
                AND $3 = '00000000-0000-0000-0000-000000000000')
    ), ended AS (
        UPDATE attempt SET outcome = $4, finished_at = now_ms() + $5, detail = $6, exit_code = $7, signal = $8,
            http_status = $9, stdout_head = $10, stdout_tail = $11, stdout_total = $12, stderr_head = $13,
            stderr_tail = $14, stderr_total = $15, cpu_millis = $16, memory_bytes = $17,
            incarnation = CASE WHEN $23 THEN incarnation END, runner = CASE WHEN $23 THEN runner END,
            claimant = CASE WHEN NOT $23 THEN claimant END
        FROM live WHERE job = live.row AND number = $2
    ), settled AS (
        UPDATE job SET state = $18, reason = $19, due_at = now_ms() + $20, due_from = now_ms(),
            settled_at = CASE WHEN $21 THEN now_ms() END, counted = counted + $22, superseded_by = $24
        FROM live WHERE job.row = live.row
        RETURNING job.row, job.event
    ), answered AS (
        UPDATE answer SET answered_at = now_ms(), status = $25::integer, headers = $26, body = $27, body_bytes = $28,
            error_until = CASE WHEN $29 THEN now_ms() + keep_errors END
        FROM settled WHERE answer.event = settled.event AND answered_at IS NULL AND $25::integer IS NOT NULL
    ), late AS (
        INSERT INTO late_end (job, attempt, claimant, outcome, detail, received_at)
        SELECT $1, $2, $3, $4, $6, now_ms() WHERE NOT EXISTS (SELECT FROM own)
            AND NOT ($3 = '00000000-0000-0000-0000-000000000000'
                AND EXISTS (SELECT FROM late_end WHERE job = $1 AND attempt = $2))
        ON CONFLICT DO NOTHING
    ), called AS (
        DELETE FROM roll_call WHERE job = $1 AND attempt = $2 AND node = $30
    )
    SELECT EXISTS (SELECT FROM settled), EXISTS (SELECT FROM own)";

/// The end of an attempt of this node.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    pub done: Arc<Completion>,
    /// The session that claimed the attempt.
    pub claimant: Uuid,
}

impl AttemptEnd {
    /// Makes the end of an attempt that has not begun. The attempt does not count.
    pub(super) fn unstarted(own: &NodeAttempt, next: Next, detail: &str, now: Timestamp) -> Self {
        let (job, attempt) = own.key();
        let record = Record { detail: detail.to_owned(), ..Record::default() };
        let (outcome, counts, finished_at, answer) = (Outcome::NotStarted, false, now, None);
        let done = Completion { job, attempt, outcome, counts, next, finished_at, record, answer };
        AttemptEnd { done: Arc::new(done), claimant: own.claimant }
    }
}

/// What became of an end. Each is committed, so the runner may forget the attempt (R9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndResult {
    /// This end has settled the attempt, and left the job in this state.
    Settled(State),
    /// The claimant has settled the attempt before. No row has changed.
    Repeated,
    /// The attempt was settled without its claimant, or is not in the database any more. The report is kept.
    Late,
}

/// An end with its answer in stored form.
pub(super) struct PreparedEnd {
    pub(super) end: AttemptEnd,
    answer: Option<StoredAnswer>,
}

impl PreparedEnd {
    pub(super) async fn new(end: AttemptEnd) -> Self {
        let AttemptEnd { done, .. } = &end;
        let answer = match done.answer.clone() {
            Some(answer) => StoredAnswer::of(answer).await.map_err(|error| {
                tracing::error!(job = %done.job, attempt = done.attempt, %error, "an answer cannot be stored");
            }),
            None => Err(()),
        };
        PreparedEnd { end, answer: answer.ok() }
    }

    /// Its size in memory, without what all ends have.
    pub(super) fn bytes(&self) -> usize {
        let record = &self.end.done.record;
        let excerpts =
            [&record.stdout, &record.stderr].map(|out| out.head.0.len() + out.tail.0.len());
        excerpts.iter().sum::<usize>() + self.answer.as_ref().map_or(0, |answer| answer.body.len())
    }
}

/// What an end depends on.
struct JobFacts {
    key: KeyOf,
    grouped: bool,
    successor: Option<JobId>,
}

/// The facts of the jobs of one flight's ends.
pub(super) struct EndFacts(HashMap<Uuid, JobFacts>);

impl EndFacts {
    /// Locks the groups, jobs and answers of these jobs, and reads. None where a statement has failed.
    pub(super) async fn lock(flight: &mut Flight, jobs: Vec<Uuid>) -> Option<Self> {
        let mut facts = 0;
        for sql in [LOCK_OF_JOBS, LOCK_JOBS, LOCK_ANSWERS, FACTS] {
            facts = flight.send(sql, vec![Box::new(jobs.clone())]).await;
        }
        let read = |row: &Row| -> Result<(Uuid, JobFacts), Error> {
            let key = KeyOf::of(row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            let successor: Option<Uuid> = row.try_get(5)?;
            let successor = successor.map(|id| JobId::from_bytes(*id.as_bytes()));
            Ok((row.try_get(0)?, JobFacts { key, grouped: row.try_get(4)?, successor }))
        };
        flight.rows(facts).await?.iter().map(read).collect::<Result<_, _>>().map(EndFacts).ok()
    }

    /// Sends the ends of a node, and lets the next jobs of their groups go on. `lost`: the node is declared lost.
    pub(super) async fn settle(
        &self,
        flight: &mut Flight,
        node: Uuid,
        ends: &[&PreparedEnd],
        lost: bool,
    ) -> Vec<SentEnd> {
        let mut sent = Vec::with_capacity(ends.len());
        for end in ends {
            let facts = self.0.get(&uuid(&end.end.done.job));
            sent.push(send(flight, end, facts, (node, lost)).await);
        }
        let grouped = self.0.iter().filter(|(_, facts)| facts.grouped).map(|(job, _)| *job);
        let grouped: Vec<Uuid> = grouped.collect();
        if !grouped.is_empty() {
            flight.send(RELEASE_OF_JOBS, vec![Box::new(grouped)]).await;
        }
        sent
    }
}

/// An end in its flight.
pub(super) struct SentEnd {
    pub(super) statement: usize,
    job: Uuid,
    state: State,
    /// Other nodes may have something to do: a job that is ready, or a caller who waits.
    pub(super) concerns_others: bool,
}

async fn send(
    flight: &mut Flight,
    PreparedEnd { end: AttemptEnd { done, claimant }, answer }: &PreparedEnd,
    facts: Option<&JobFacts>,
    (node, lost): (Uuid, bool),
) -> SentEnd {
    let record = &done.record;
    // Without its job, the end is late.
    let key = facts.map_or(KeyOf::Nobody, |facts| facts.key);
    let decided = End::of(done.outcome, done.next, key, answer.is_some());
    let after = JobAfter::of(decided.next, facts.and_then(|facts| facts.successor));
    let is_kept = matches!(decided.answer, EndAnswer::Stored | EndAnswer::StoredAsError);
    let answer = answer.as_ref().filter(|_| is_kept);
    let since_end = |millis: i64| millis.saturating_sub(done.finished_at.0);
    let ended = record.ended_at.map_or(0, |ended| since_end(ended.0).min(0));
    // The type text has no NUL, and the detail may quote one.
    let detail = decided.detail(&record.detail).replace('\0', "\u{fffd}");
    let usage = record.usage;
    let params: Vec<Param> = vec![
        Box::new(uuid(&done.job)),
        Box::new(i64::from(done.attempt)),
        Box::new(*claimant),
        Box::new(decided.outcome.as_str()),
        Box::new(ended),
        Box::new(detail),
        Box::new(record.exit_code),
        Box::new(record.signal),
        Box::new(record.http_status.map(i32::from)),
        Box::new(record.stdout.head.0.to_vec()),
        Box::new(record.stdout.tail.0.to_vec()),
        Box::new(codec::size(record.stdout.total)),
        Box::new(record.stderr.head.0.to_vec()),
        Box::new(record.stderr.tail.0.to_vec()),
        Box::new(codec::size(record.stderr.total)),
        Box::new(usage.map(|usage| codec::size(usage.cpu_millis))),
        Box::new(usage.map(|usage| codec::size(usage.memory_bytes))),
        Box::new(after.state.as_str()),
        Box::new(after.reason),
        Box::new(after.due_at.map(|due| since_end(due.0))),
        Box::new(after.is_settled()),
        Box::new(i64::from(done.counts)),
        Box::new(lost),
        Box::new(after.superseded_by.as_ref().map(uuid)),
        Box::new(answer.map(|answer| i32::from(answer.status))),
        Box::new(answer.map(|answer| answer.headers.clone())),
        Box::new(answer.map(|answer| answer.body.clone())),
        Box::new(answer.map(|answer| codec::size(answer.body_bytes))),
        Box::new(decided.answer == EndAnswer::StoredAsError),
        Box::new(node),
    ];
    let concerns_others = key != KeyOf::Nobody
        || facts.is_some_and(|facts| facts.grouped)
        || may_be_superseded(decided.next);
    let statement = flight.send(SETTLE, params).await;
    SentEnd { statement, job: uuid(&done.job), state: after.state, concerns_others }
}

/// Counts the jobs that these ends have made dead or held: behind all else, since notices are locked last (N8).
pub(super) async fn note(flight: &mut Flight, sent: &[SentEnd], notices: &NodeNotices) {
    let mut jobs = Vec::new();
    for end in sent {
        if of_state(end.state).is_some_and(|kind| notices.want(kind))
            && let Some(rows) = flight.rows(end.statement).await
            && matches!(end.read(rows), EndResult::Settled(_))
        {
            jobs.push(end.job);
        }
    }
    notices.note_jobs(flight, jobs).await;
}

impl SentEnd {
    /// What the statement says. It is committed, or the transaction is rolled back unless it has settled the attempt.
    pub(super) fn read(&self, rows: &[Row]) -> EndResult {
        let value = |column: usize| rows.first().and_then(|row| row.try_get(column).ok());
        match (value(0), value(1)) {
            (Some(true), _) => EndResult::Settled(self.state),
            (_, Some(false)) => EndResult::Late,
            _ => EndResult::Repeated,
        }
    }
}
