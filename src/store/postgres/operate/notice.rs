//! NOTICE: what a node reports about its jobs becomes an event of the internal source.
//!
//! The transaction that makes a job dead or held counts it in the notice's row, so the notice is as durable as what it
//! is about. A later transaction, of any node, makes the event of a notice that is due, once.

use std::sync::Arc;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::model::{Blob, Headers, INTERNAL_SOURCE, Name, NoticeType, State, Timestamp};
use crate::random;
use crate::store::border::OutputExcerpt;
use crate::store::codec;
use crate::store::decide::notice::{
    Due, JobDetails, Notice, NoticeJob, NoticeSubscribers, body, due, of_state,
};

use super::super::claim::uuid;
use super::super::flight::{Flight, Param};
use super::change::{Change, Stop, ask, change_one};
use super::found::{job_id, text};

/// Most jobs behind another one that a notice counts.
const NOTICE_BEHIND: i64 = 1_000;

/// Counts those of these jobs ($1 ids) that are dead ($2: they are wanted) or held ($3), as this transaction left them.
/// A job of the internal source ($4) makes no notice. The first time of what is not reported yet stays.
const NOTE_JOBS: &str = r#"
    INSERT INTO notice (type, subject, reason, count, first_at, last_at, source, event_id, job)
    SELECT CASE state WHEN 'dead' THEN 'job.dead' ELSE 'job.held' END AS kind, handler, reason, count(*), now_ms(),
        now_ms(), (array_agg(source ORDER BY job.row DESC))[1], (array_agg(event_id ORDER BY job.row DESC))[1],
        (array_agg(id ORDER BY job.row DESC))[1]
    FROM job JOIN event ON event.row = job.event
    WHERE id = ANY ($1::uuid[]) AND (state = 'dead' AND $2 OR state = 'held' AND $3) AND source <> $4
    GROUP BY state, handler, reason ORDER BY state, handler, reason
    ON CONFLICT (type, subject, reason) DO UPDATE SET count = notice.count + excluded.count,
        first_at = coalesce(notice.first_at, excluded.first_at), last_at = excluded.last_at,
        source = excluded.source, event_id = excluded.event_id, job = excluded.job"#;

/// The same of a notice as it is.
const NOTE: &str = "
    INSERT INTO notice (type, subject, reason, count, first_at, last_at, source, event_id, job)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    ON CONFLICT (type, subject, reason) DO UPDATE SET count = notice.count + excluded.count,
        first_at = coalesce(notice.first_at, excluded.first_at), last_at = excluded.last_at,
        source = excluded.source, event_id = excluded.event_id, job = excluded.job";

/// All notices: a few rows. One that another node tells of, or counts, is left to it.
const LOCK: &str = "
    SELECT type, subject, reason, count, first_at, last_at, source, event_id, job, reported_at FROM notice
    ORDER BY type, subject, reason FOR NO KEY UPDATE SKIP LOCKED";

/// The same without locks.
pub(super) const LOOK: &str = "SELECT count, reported_at, now_ms() FROM notice";

const FORGET: &str =
    "DELETE FROM notice WHERE type = $1 AND subject = $2 AND reason = $3 RETURNING count";

/// Reported: the count begins again.
const REPORTED: &str = "
    UPDATE notice SET reported_at = now_ms(), count = 0, first_at = NULL, last_at = NULL
    WHERE type = $1 AND subject = $2 AND reason = $3 RETURNING count";

/// A job with the end of its last attempt that has one, and how many jobs it keeps waiting, up to $2.
const DETAILS: &str = "
    SELECT j.attempt, nullif(a.detail, ''), a.exit_code, a.stderr_head, a.stderr_tail,
        CASE WHEN j.group_key IS NOT NULL THEN (SELECT count(*) FROM (SELECT FROM job n
            WHERE n.handler = j.handler AND n.group_key = j.group_key AND n.behind AND j.holds AND NOT j.behind
            LIMIT $2) waiting) END
    FROM job j LEFT JOIN attempt a ON a.job = j.row AND a.outcome IS NOT NULL
    WHERE j.id = $1 ORDER BY a.number DESC NULLS LAST LIMIT 1";

/// Makes an event of the internal source, with its payload and a job for each handler. No provider sends it again and
/// no signature covers it: the replay guard ignores it.
const TELL: &str = "
    WITH told AS (
        INSERT INTO event (source, event_id, variant, type, digest, guarded, repeated, flagged, received_at, body_bytes)
        VALUES ($1, $2, 0, $3, $4, false, false, false, now_ms(), $5) RETURNING row
    ), payloads AS (
        INSERT INTO payload (event, headers, body) SELECT row, $6, $7 FROM told
    )
    INSERT INTO job (id, event, handler, state, since, created_at)
    SELECT id, told.row, handler, 'ready', now_ms(), now_ms()
    FROM told, unnest($8::uuid[], $9::text[]) AS given (id, handler)";

/// Which handlers of this node's configuration take notices. All verbs that move a job share it.
#[derive(Clone, Default)]
pub struct NodeNotices(Arc<ArcSwap<NoticeSubscribers>>);

impl NodeNotices {
    /// From now on notices go by these.
    pub fn set(&self, interest: NoticeSubscribers) {
        self.0.store(Arc::new(interest));
    }

    pub(in super::super) fn want(&self, kind: NoticeType) -> bool {
        self.0.load().takers(kind).next().is_some()
    }

    /// Counts those of these jobs that this flight has made dead or held: behind all its moves, since notices are
    /// locked last (N8).
    pub(in super::super) async fn note_jobs(&self, flight: &mut Flight, jobs: Vec<Uuid>) {
        let [dead, held] = [State::Dead, State::Held]
            .map(|state| of_state(state).is_some_and(|kind| self.want(kind)));
        if jobs.is_empty() || !(dead || held) {
            return;
        }
        let params: Vec<Param> =
            vec![Box::new(jobs), Box::new(dead), Box::new(held), Box::new(INTERNAL_SOURCE)];
        flight.send(NOTE_JOBS, params).await;
    }

    /// Counts a notice, if a handler wants it.
    pub(in super::super) async fn note(&self, flight: &mut Flight, notice: &Notice) {
        if !self.want(notice.kind) {
            return;
        }
        let job = notice.job.as_ref();
        let params: Vec<Param> = vec![
            Box::new(notice.kind.as_str()),
            Box::new(notice.subject.as_ref().map_or("", Name::as_str).to_owned()),
            Box::new(notice.reason.replace('\0', "\u{fffd}")),
            Box::new(codec::size(notice.count.max(1))),
            Box::new(notice.first_at.0),
            Box::new(notice.last_at.0),
            Box::new(job.map(|job| job.source.as_str().to_owned())),
            Box::new(job.map(|job| job.event_id.as_str().to_owned())),
            Box::new(job.map(|job| uuid(&job.job))),
        ];
        flight.send(NOTE, params).await;
    }

    /// Whether a notice is to become an event or to be forgotten now, by rows of [`LOOK`]. Never if no handler wants
    /// notices.
    pub(super) fn is_due(&self, rows: &[Row]) -> Result<bool, tokio_postgres::Error> {
        for row in rows {
            let reported: Option<i64> = row.try_get(1)?;
            let now = Timestamp(row.try_get(2)?);
            if due(count(row, 0)?, reported.map(Timestamp), now) != Due::Later {
                return Ok(!self.0.load().is_empty());
            }
        }
        Ok(false)
    }
}

fn count(row: &Row, column: usize) -> Result<u64, tokio_postgres::Error> {
    // The schema lets none be negative.
    row.try_get::<_, i64>(column).map(|count| count.try_into().unwrap_or(0))
}

/// Makes an event of each notice that is due. Returns how many those are.
pub(super) struct DueNotices(pub(super) NodeNotices);

impl Change for DueNotices {
    type Done = u64;

    const WAKES: bool = true;

    async fn run(&self, flight: &mut Flight, now: Timestamp) -> Result<u64, Stop> {
        let subscribers = self.0.0.load_full();
        let mut found = Vec::new();
        for row in ask(flight, LOCK, Vec::new()).await? {
            let key: [String; 3] = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
            let reported: Option<i64> = row.try_get(9)?;
            match due(count(row, 3)?, reported.map(Timestamp), now) {
                Due::Later => {}
                Due::Report => found.push((key, Some(read(row)?))),
                Due::Forget => found.push((key, None)),
            }
        }
        let mut told = 0;
        for (key, notice) in found {
            let key = || key.iter().map(|part| Box::new(part.clone()) as Param).collect();
            let Some(notice) = notice else {
                change_one(flight, FORGET, key()).await?;
                continue;
            };
            // Another node's configuration may have a handler for it.
            if subscribers.takers(notice.kind).next().is_none() {
                continue;
            }
            change_one(flight, REPORTED, key()).await?;
            tell(flight, &notice, &subscribers, now).await?;
            told += 1;
        }
        Ok(told)
    }
}

/// Reads a notice, of which something is counted, so the times are there.
fn read(row: &Row) -> Result<Notice, Stop> {
    let job = match row.try_get::<_, Option<&str>>(6)? {
        Some(_) => {
            Some(NoticeJob { job: job_id(row, 8)?, source: text(row, 6)?, event_id: text(row, 7)? })
        }
        None => None,
    };
    Ok(Notice {
        kind: text(row, 0)?,
        // Empty for the store.
        subject: row.try_get::<_, &str>(1)?.parse().ok(),
        reason: row.try_get(2)?,
        count: count(row, 3)?,
        first_at: Timestamp(row.try_get(4)?),
        last_at: Timestamp(row.try_get(5)?),
        job,
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
    let body = body(notice, details, subscribers, &host.nodename().to_string_lossy());
    let body = body.to_string().into_bytes();
    let stored = codec::compress_now(&body).map_err(|error| Stop::Broken(error.to_string()))?;
    let mut headers = Headers::new();
    headers.push("Content-Type", "application/json");
    let ids: Vec<Uuid> = takers.iter().map(|_| uuid(&random::job_id(now))).collect();
    let handlers: Vec<String> = takers.iter().map(|taker| taker.as_str().to_owned()).collect();
    let params: Vec<Param> = vec![
        Box::new(INTERNAL_SOURCE),
        // Random like a job's id: a sender cannot make an event of this id.
        Box::new(random::job_id(now).to_string()),
        Box::new(notice.kind.as_str()),
        Box::new(Sha256::digest(&body).to_vec()),
        Box::new(codec::size(body.len())),
        Box::new(headers.to_wire()),
        Box::new(stored),
        Box::new(ids),
        Box::new(handlers),
    ];
    flight.send(TELL, params).await;
    Ok(())
}

/// Nothing of a job that was put back under a new key.
async fn details(flight: &mut Flight, job: &NoticeJob) -> Result<JobDetails, Stop> {
    let params: Vec<Param> = vec![Box::new(uuid(&job.job)), Box::new(NOTICE_BEHIND)];
    let Some(row) = ask(flight, DETAILS, params).await?.first() else {
        return Ok(JobDetails::default());
    };
    let part = |column| -> Result<Blob, Stop> {
        Ok(Blob(row.try_get::<_, Option<Vec<u8>>>(column)?.unwrap_or_default()))
    };
    let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    let printed = OutputExcerpt { head: part(3)?, tail: part(4)?, total: 0 };
    Ok(JobDetails {
        attempts: Some(number(row.try_get(0)?)),
        behind: row.try_get::<_, Option<i64>>(5)?.map(number),
        detail: row.try_get(1)?,
        exit_code: row.try_get(2)?,
        stderr: printed.last_line(),
    })
}
