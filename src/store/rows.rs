//! How the rows are read that both engines list: by the names that the statements of either give their columns.

use crate::model::{Blob, Digest};

use super::border::{
    AttemptRow, AuditRow, Backlog, BlockedGroups, Error, EventRow, FormerKey, HandlerJob, JobRow,
    KeyRow, LateEnd, MendedPayloads, OutputExcerpt, PausedRow, Record, RestoredRow, SameBodyEvent,
    SecretUse, StoppedJobs, Usage,
};
use super::columns::{Cell, Cells, column, from_row, readable};
use super::decide::listing::{ListedEvent, removed_jobs};

from_row! {
    AuditRow { at, verb, subject, count, result, reason, uid, name, via }
    SecretUse { source, reference, last_matched_at }
    HandlerJob { handler, state }
    ListedEvent { row, digest; columns => event: EventRow::from_row(columns)? }
    EventRow {
        variant, received_at, body_bytes, duplicates, last_duplicate_at, conflicts, flagged,
        payload_kept; columns =>
        source: readable(columns, "source")?,
        event_id: readable(columns, "event_id")?,
        event_type: readable(columns, "event_type")?,
        raw_type: raw_type(columns)?,
        jobs: removed_jobs(column(columns, "removed_succeeded")?, column(columns, "removed_dropped")?),
        handlers: Vec::new()
    }
    JobRow {
        job, handler, state, reason, detail, group, behind, superseded_by, attempt, replays, created_at,
        due_at, settled_at, paused, stopped_at, last_detail; columns =>
        source: readable(columns, "source")?,
        event_id: readable(columns, "event_id")?,
        event_type: readable(columns, "event_type")?,
        broken: None
    }
    AttemptRow {
        number, started_at, finished_at, outcome; columns =>
        record: Record::from_row(columns)?,
        late_end: column::<Option<_>>(columns, "late_outcome")?
            .zip(column(columns, "late_detail")?)
            .zip(column(columns, "received_at")?)
            .map(|((outcome, detail), received_at)| LateEnd { outcome, detail, received_at })
    }
    Record {
        detail, exit_code, signal, http_status; columns =>
        ended_at: None,
        stdout: output(columns, ["stdout_head", "stdout_tail", "stdout_total"])?,
        stderr: output(columns, ["stderr_head", "stderr_tail", "stderr_total"])?,
        usage: column::<Option<_>>(columns, "cpu_millis")?
            .zip(column(columns, "memory_bytes")?)
            .map(|(cpu_millis, memory_bytes)| Usage { cpu_millis, memory_bytes })
    }
    FormerKey { key, attempt, replaced_at }
    SameBodyEvent { event_id, event_type, received_at }
    RestoredRow { from_store, made_at, restored_at, held, lost }
    KeyRow {
        caller, created_at, expires_at, answered_at, error_until, status; columns =>
        request: column::<Digest>(columns, "request")?.to_string(),
        headers: Vec::new(),
        body: None,
        damaged: false
    }
    Backlog { handler, jobs, since }
    MendedPayloads { payloads, last_at }
    BlockedGroups { handler, groups, job }
    PausedRow { handler, since }
    StoppedJobs { handler, state, reason, jobs, oldest_at }
}

/// PostgreSQL has it as UTF-8, because its text cannot contain NUL.
pub(crate) fn raw_type(row: &impl Cells) -> Result<Option<String>, Error> {
    match row.cell("raw_type")? {
        Cell::Bytes(bytes) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
        _ => column(row, "raw_type"),
    }
}

fn output(row: &impl Cells, [head, tail, total]: [&str; 3]) -> Result<OutputExcerpt, Error> {
    let [head, tail]: [Blob; 2] = [column(row, head)?, column(row, tail)?];
    Ok(OutputExcerpt { head, tail, total: column(row, total)? })
}
