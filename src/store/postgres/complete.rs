//! COMPLETE: settles the running attempt of a claimant.
//!
//! What must stay true: a report that is not of the running attempt changes nothing. It is a repeat of an end that
//! its claimant has settled, or a late end, which is kept.

use std::sync::Arc;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::store::border::Completion;
use crate::store::codec;
use crate::store::decide::end::{End, JobAfter};
use crate::store::decide::key::KeyOf;

use super::claim::uuid;
use super::flight::{Flight, Param};

/// Settles the attempt ($1, $2) of claimant $3 and its job, if it is the running one; both rows name it. Keeps the
/// report of any other as a late end, unless the claimant has settled the attempt: then this is a repeat. Returns
/// whether it was settled, and whether the attempt was the claimant's. $23: the node is declared lost, so that its
/// own report comes late.
///
/// Times are the database's: those of the completion come as differences to its end.
const SETTLE: &str = "
    WITH live AS MATERIALIZED (
        SELECT job.row FROM job JOIN attempt ON attempt.job = job.row AND number = $2
        WHERE id = $1 AND state = 'running' AND attempt = $2 AND claimant = $3 AND outcome IS NULL
        FOR UPDATE
    ), own AS MATERIALIZED (
        SELECT FROM job JOIN attempt ON attempt.job = job.row WHERE id = $1 AND number = $2 AND claimant = $3
    ), ended AS (
        UPDATE attempt SET outcome = $4, finished_at = now_ms() + $5, detail = $6, exit_code = $7, signal = $8,
            http_status = $9, stdout_head = $10, stdout_tail = $11, stdout_total = $12, stderr_head = $13,
            stderr_tail = $14, stderr_total = $15, cpu_millis = $16, memory_bytes = $17,
            incarnation = NULL, runner = NULL, claimant = CASE WHEN $23 THEN NULL ELSE claimant END
        FROM live WHERE job = live.row AND number = $2 AND outcome IS NULL
    ), settled AS (
        UPDATE job SET state = $18, reason = $19, due_at = now_ms() + $20,
            settled_at = CASE WHEN $21 THEN now_ms() END, counted = counted + $22
        FROM live WHERE job.row = live.row AND state = 'running' AND attempt = $2
        RETURNING job.row
    ), late AS (
        INSERT INTO late_end (job, attempt, claimant, outcome, detail, received_at)
        SELECT $1, $2, $3, $4, $6, now_ms() WHERE NOT EXISTS (SELECT FROM own)
        ON CONFLICT DO NOTHING
    )
    SELECT EXISTS (SELECT FROM settled), EXISTS (SELECT FROM own)";

/// The end of an attempt of this node.
#[derive(Debug, Clone)]
pub struct AttemptEnd {
    pub done: Arc<Completion>,
    /// The session that claimed the attempt.
    pub claimant: Uuid,
}

/// What became of an end. Each is committed, so the runner may forget the attempt (R9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndResult {
    Settled,
    /// The claimant has settled the attempt before. No row has changed.
    Repeated,
    /// The attempt was settled without its claimant, or is not in the database any more. The report is kept.
    Late,
}

/// Sends one end. `lost`: its node is declared lost.
pub(super) async fn send(flight: &mut Flight, end: &AttemptEnd, lost: bool) -> usize {
    let AttemptEnd { done, claimant } = end;
    let record = &done.record;
    // Accept stores no event with a key and no job of a group.
    let decided = End::of(done.outcome, done.next, KeyOf::Nobody, false);
    let after = JobAfter::of(decided.next, None);
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
    ];
    flight.send(SETTLE, params).await
}

/// What the statement says. None where it cannot be read.
pub(super) fn read(rows: &[Row]) -> Option<EndResult> {
    let row = rows.first()?;
    Some(match (row.try_get(0).ok()?, row.try_get(1).ok()?) {
        (true, _) => EndResult::Settled,
        (false, true) => EndResult::Repeated,
        (false, false) => EndResult::Late,
    })
}
