//! NOTICE: what a node reports about its jobs becomes an event of the internal source.
//!
//! The transaction that makes a job dead or held counts it in the notice's row, so the notice is as durable as what it
//! is about. A later transaction, of any node, makes the event of a notice that is due, once.

use tokio_postgres::Row;

use crate::model::{Blob, INTERNAL_SOURCE, JobId, Name, Timestamp};
use crate::random;
use crate::store::border::{Error, OutputExcerpt};
use crate::store::columns::{column, readable};
use crate::store::decide::notice::{
    Due, JobDetails, Notice, NoticeEvent, NoticeJob, NoticeSubscribers, due,
};

use super::super::flight::{Flight, Param};
use super::super::notices::NodeNotices;
use super::super::params::params;
use super::super::stop::{Stop, ask, change_one};
use super::change::Change;

/// Most jobs behind another one that a notice counts.
const NOTICE_BEHIND: i64 = 1_000;

/// Counts a notice as it is. The first time of what is not reported yet stays.
pub(super) const NOTE: &str = "
    INSERT INTO notice (type, subject, reason, count, first_at, last_at, source, event_id, job)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (type, subject, reason) DO UPDATE SET count = notice.count + excluded.count,
        first_at = coalesce(notice.first_at, excluded.first_at), last_at = excluded.last_at,
        source = excluded.source, event_id = excluded.event_id, job = excluded.job";

/// All notices: a few rows. One that another node tells of, or counts, is left to it.
const LOCK: &str = "
    SELECT type, subject, reason, count, first_at, last_at, source, event_id, job, reported_at FROM notice
    ORDER BY type, subject, reason FOR NO KEY UPDATE SKIP LOCKED";

/// The count and the last report of each notice, read without locks.
pub(super) const LOOK: &str = "SELECT count, reported_at, now_ms() AS now FROM notice";

const FORGET: &str =
    "DELETE FROM notice WHERE type = $1 AND subject = $2 AND reason = $3 RETURNING count";

/// Reported: the count begins again.
const REPORTED: &str = "
    UPDATE notice SET reported_at = now_ms(), count = 0, first_at = NULL, last_at = NULL
    WHERE type = $1 AND subject = $2 AND reason = $3 RETURNING count";

/// A job with the end of its last attempt that has one, and how many jobs it keeps waiting, up to $2.
const DETAILS: &str = "
    SELECT j.attempt, nullif(a.detail, '') AS detail, a.exit_code, a.stderr_head, a.stderr_tail,
        CASE WHEN j.group_key IS NOT NULL THEN (SELECT count(*) FROM (SELECT FROM job n
            WHERE n.handler = j.handler AND n.group_key = j.group_key AND n.behind AND j.holds AND NOT j.behind
            LIMIT $2) waiting) END AS behind
    FROM job j LEFT JOIN attempt a ON a.job = j.row AND a.outcome IS NOT NULL
    WHERE j.id = $1 ORDER BY a.number DESC NULLS LAST LIMIT 1";

/// Makes an event of the internal source, with its payload and a job for each handler. No provider sends it again and
/// no signature covers it: the replay guard ignores it.
const TELL: &str = "
    WITH told AS (
        INSERT INTO event (source, event_id, variant, type, digest, guarded, repeated, flagged, received_at, body_bytes)
        VALUES ($1, $2, 0, $3, $4, false, false, false, now_ms(), $5) RETURNING row
    ), payloads AS (
        INSERT INTO payload (event, headers, body, sum) SELECT row, $6, $7, $8::bigint + now_ms() FROM told
    )
    INSERT INTO job (id, event, handler, state, since, created_at)
    SELECT id, told.row, handler, 'ready', now_ms(), now_ms()
    FROM told, unnest($9::uuid[], $10::text[]) AS given (id, handler)";

/// Whether a notice is to become an event or to be forgotten now, by rows of [`LOOK`]. Never if no handler wants
/// notices.
pub(super) fn is_due(notices: &NodeNotices, rows: &[Row]) -> Result<bool, Error> {
    for row in rows {
        if due_of(row, column(row, "now")?)? != Due::Later {
            return Ok(!notices.0.load().is_empty());
        }
    }
    Ok(false)
}

/// The parameters of [`NOTE`].
pub(super) fn note_of(notice: &Notice) -> Vec<Param> {
    let (kind, count) = (notice.kind.as_str(), notice.count.max(1));
    let (first, last) = (notice.first_at, notice.last_at);
    let subject = notice.subject.as_ref().map_or("", Name::as_str);
    // PostgreSQL's text cannot have NUL.
    let reason = notice.reason.replace('\0', "\u{fffd}");
    let of_job = notice.job.as_ref();
    let (source, id) = of_job.map(|job| (&job.source, &job.event_id)).unzip();
    let job = of_job.map(|job| job.job);
    params![kind, subject, reason, count, first, last, source, id, job]
}

fn due_of(row: &Row, now: Timestamp) -> Result<Due, Error> {
    Ok(due(column(row, "count")?, column(row, "reported_at")?, now))
}

/// Makes an event of each notice that is due. Returns how many those are.
pub(super) struct DueNotices(pub(super) NodeNotices);

impl Change for DueNotices {
    type Done = u64;

    const WAKES: bool = true;

    async fn run(&self, flight: &mut Flight, now: Timestamp) -> Result<u64, Stop> {
        let subscribers = self.0.0.load_full();
        let mut told = 0;
        for row in ask(flight, LOCK, params![]).await?.to_vec() {
            let due = due_of(&row, now)?;
            let part = |name| column::<String>(&row, name);
            let key = params![part("type")?, part("subject")?, part("reason")?];
            match due {
                Due::Later => {}
                Due::Forget => change_one(flight, FORGET, key).await?,
                Due::Report => {
                    let notice = read(&row)?;
                    // Another node's configuration may have a handler for it.
                    if subscribers.takers(notice.kind).next().is_some() {
                        change_one(flight, REPORTED, key).await?;
                        tell(flight, &notice, &subscribers, now).await?;
                        told += 1;
                    }
                }
            }
        }
        Ok(told)
    }
}

/// Reads a notice, of which something is counted, so the times are there.
fn read(row: &Row) -> Result<Notice, Error> {
    let job: Option<JobId> = column(row, "job")?;
    let of_job = |job| {
        let (source, event_id) = (readable(row, "source")?, readable(row, "event_id")?);
        Ok::<_, Error>(NoticeJob { job, source, event_id })
    };
    Ok(Notice {
        kind: column(row, "type")?,
        // Empty for the store.
        subject: column::<String>(row, "subject")?.parse().ok(),
        reason: column(row, "reason")?,
        count: column(row, "count")?,
        first_at: column(row, "first_at")?,
        last_at: column(row, "last_at")?,
        job: job.map(of_job).transpose()?,
    })
}

async fn tell(
    flight: &mut Flight,
    notice: &Notice,
    subscribers: &NoticeSubscribers,
    now: Timestamp,
) -> Result<(), Stop> {
    let takers = subscribers.of(notice);
    if takers.is_empty() {
        return Ok(());
    }
    let details = match &notice.job {
        Some(job) => details(flight, job).await?,
        None => JobDetails::default(),
    };
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    // Random like a job's id: a sender cannot make an event of this id.
    let (id, kind) = (random::job_id(now).to_string(), notice.kind.as_str());
    let new = NoticeEvent::of(&id, notice, details, subscribers, &host);
    let new = new.map_err(|error| Error::Unavailable(error.to_string()))?;
    let (digest, bytes, headers) = (new.digest, new.body_bytes, new.headers);
    let jobs: Vec<JobId> = takers.iter().map(|_| random::job_id(now)).collect();
    let source = INTERNAL_SOURCE;
    let row = params![source, id, kind, digest, bytes, headers, new.body, new.sum, jobs, takers];
    flight.send(TELL, row).await;
    Ok(())
}

/// Reads the details of a notice's job; empty if the job was put back under a new key.
async fn details(flight: &mut Flight, job: &NoticeJob) -> Result<JobDetails, Stop> {
    let rows = ask(flight, DETAILS, params![job.job, NOTICE_BEHIND]).await?;
    let Some(row) = rows.first() else { return Ok(JobDetails::default()) };
    let part = |name| column::<Option<Blob>>(row, name).map(Option::unwrap_or_default);
    let printed =
        OutputExcerpt { head: part("stderr_head")?, tail: part("stderr_tail")?, total: 0 };
    Ok(JobDetails {
        attempts: Some(column(row, "attempt")?),
        behind: column(row, "behind")?,
        detail: column(row, "detail")?,
        exit_code: column(row, "exit_code")?,
        stderr: printed.last_line(),
    })
}
