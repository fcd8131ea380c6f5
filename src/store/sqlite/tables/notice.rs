//! NOTICE: what the receiver reports about itself becomes an event of the internal source, with jobs for the handlers
//! that subscribe to it.
//!
//! A job's notice is written by the very transaction that makes the job dead or held, so it is as
//! durable as what it tells of. What must stay true: nothing is written where no handler wants it; a job of an internal
//! event never causes another one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::model::{Blob, EventId, INTERNAL_SOURCE, Name, NoticeType, Timestamp};
use crate::store::border::{NewJob, OutputExcerpt};
use crate::store::decide::notice::{
    Due, JobDetails, Notice, NoticeEvent, NoticeJob, NoticeSubscribers, due, of_state,
};

use super::codec::{self, change_one};
use super::job::insert_job;

/// Most jobs behind another one that a notice counts.
const NOTICE_BEHIND: u32 = 1_000;

/// The notices of one store, shared by all verbs that move a job.
#[derive(Clone, Default)]
pub(crate) struct Notices(Arc<ArcSwap<NoticeSubscribers>>);

impl Notices {
    /// Whether a handler wants these; none does in a store that a command has opened.
    pub(crate) fn want(&self, kind: NoticeType) -> bool {
        self.0.load().takers(kind).next().is_some()
    }

    /// Counts a notice of the job in `row`, which this transaction has made dead or held.
    pub(crate) fn job(&self, tx: &Connection, row: i64, now: Timestamp) -> rusqlite::Result<()> {
        if !self.want(NoticeType::JobDead) && !self.want(NoticeType::JobHeld) {
            return Ok(());
        }
        // The job as this transaction left it. A job of the internal source makes no notice.
        let moved = tx
            .prepare_cached(
                "SELECT j.state, j.handler, j.reason, j.id, e.source, e.event_id
                 FROM job j JOIN event e ON e.row = j.event WHERE j.row = ?1 AND e.source <> ?2",
            )?
            .query_row(params![row, INTERNAL_SOURCE], |found| {
                let job = NoticeJob {
                    job: codec::job_id(found, 3)?,
                    source: codec::readable(found, 4)?,
                    event_id: codec::readable(found, 5)?,
                };
                let reason: Option<String> = found.get(2)?;
                let kind = of_state(codec::text(found, 0)?);
                Ok((kind, codec::text(found, 1)?, reason.unwrap_or_default(), job))
            })
            .optional()?;
        let Some((Some(kind), handler, reason, job)) = moved else { return Ok(()) };
        self.note(tx, &Notice::of_jobs(kind, handler, reason, 1, now, job), now)
    }

    /// Counts a notice, and makes the events that are due with it.
    pub(crate) fn note(
        &self,
        tx: &Connection,
        notice: &Notice,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        if !self.want(notice.kind) {
            return Ok(());
        }
        let job = notice.job.as_ref();
        // Adds to the count that is not reported yet; its first time stays.
        tx.prepare_cached(
            "INSERT INTO notice (type, subject, reason, count, first_at, last_at, source, event_id, job)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
             ON CONFLICT (type, subject, reason) DO UPDATE SET
                 count = count + excluded.count, first_at = coalesce(first_at, excluded.first_at),
                 last_at = excluded.last_at, source = excluded.source, event_id = excluded.event_id,
                 job = excluded.job",
        )?
        .execute(params![
            notice.kind.as_str(),
            notice.subject.as_ref().map_or("", Name::as_str),
            notice.reason,
            i64::try_from(notice.count.max(1)).unwrap_or(i64::MAX),
            notice.first_at.0,
            notice.last_at.0,
            job.map(|job| job.source.as_str()),
            job.map(|job| job.event_id.as_str()),
            job.map(|job| job.job.as_bytes()),
        ])?;
        self.tell_due(tx, now).map(drop)
    }

    pub(crate) fn set(&self, interest: NoticeSubscribers) {
        self.0.store(Arc::new(interest));
    }

    /// Whether a notice is to become an event or to be forgotten now. Never if no handler wants notices.
    pub(crate) fn is_due(&self, conn: &Connection, now: Timestamp) -> rusqlite::Result<bool> {
        Ok(!self.0.load().is_empty() && !find_due(conn, now)?.is_empty())
    }

    /// Makes an event of each notice that is due, and returns how many those are.
    pub(crate) fn tell_due(&self, tx: &Connection, now: Timestamp) -> rusqlite::Result<u64> {
        let mut told = 0;
        for (key, notice) in find_due(tx, now)? {
            let key = params![key.0, key.1, key.2, now.0];
            let Some(notice) = notice else {
                // By the primary key.
                let forget = "DELETE FROM notice WHERE type = ?1 AND subject = ?2 AND reason = ?3";
                change_one(tx, forget, &key[..3])?;
                continue;
            };
            // Reported: the count begins again.
            change_one(
                tx,
                "UPDATE notice SET reported_at = ?4, count = 0, first_at = NULL, last_at = NULL
                 WHERE type = ?1 AND subject = ?2 AND reason = ?3",
                key,
            )?;
            self.tell(tx, &notice, now)?;
            told += 1;
        }
        Ok(told)
    }

    /// Makes the event of a notice.
    fn tell(&self, tx: &Connection, notice: &Notice, now: Timestamp) -> rusqlite::Result<()> {
        let subscribers = self.0.load_full();
        let takers = subscribers.of(notice);
        if takers.is_empty() {
            return Ok(());
        }
        let event = insert_event(tx, notice, &subscribers, now)?;
        for handler in takers {
            insert_job(tx, event, &NewJob::of(handler.clone()), None, now)?;
        }
        Ok(())
    }
}

/// The primary key of a notice: type, subject and reason.
type NoticeKey = (String, String, String);

/// The notices that become events now, and those that are forgotten, without what they said.
fn find_due(
    conn: &Connection,
    now: Timestamp,
) -> rusqlite::Result<Vec<(NoticeKey, Option<Notice>)>> {
    // A few rows, by a scan.
    let mut all = conn.prepare_cached(
        "SELECT type, subject, reason, count, first_at, last_at, source, event_id, job, reported_at FROM notice",
    )?;
    let (mut rows, mut found) = (all.query([])?, Vec::new());
    while let Some(row) = rows.next()? {
        let notice = match due(codec::count(row, 3)?, codec::maybe_time(row, 9)?, now) {
            Due::Later => continue,
            Due::Report => Some(read(row)?),
            Due::Forget => None,
        };
        found.push(((row.get(0)?, row.get(1)?, row.get(2)?), notice));
    }
    Ok(found)
}

/// Reads a notice, of which something is counted, so the times are there.
fn read(row: &Row<'_>) -> rusqlite::Result<Notice> {
    let job = match (codec::maybe_text(row, 6)?, codec::maybe_text(row, 7)?) {
        (Some(source), Some(event_id)) => {
            Some(NoticeJob { job: codec::job_id(row, 8)?, source, event_id })
        }
        _ => None,
    };
    Ok(Notice {
        kind: codec::text(row, 0)?,
        // Empty for the store.
        subject: row.get_ref(1)?.as_str()?.parse().ok(),
        reason: row.get(2)?,
        count: codec::count(row, 3)?,
        first_at: codec::time(row, 4)?,
        last_at: codec::time(row, 5)?,
        job,
    })
}

/// Reads the details of a notice's job, with the end of its last attempt that has one; empty if the job was put back
/// under a new key.
fn details(tx: &Connection, job: &NoticeJob) -> rusqlite::Result<JobDetails> {
    let found = tx
        .prepare_cached(
            "SELECT j.attempt, nullif(a.detail, ''), a.exit_code, a.stderr_head, a.stderr_tail,
                 CASE WHEN j.group_key IS NOT NULL THEN (SELECT count(*) FROM (SELECT 1 FROM job n
                     WHERE n.handler = j.handler AND n.group_key = j.group_key AND n.behind = 1
                         AND j.holds = 1 AND j.behind = 0 LIMIT ?2)) END
             FROM job j LEFT JOIN attempt a ON a.job = j.row AND a.outcome IS NOT NULL
             WHERE j.id = ?1 ORDER BY a.number DESC LIMIT 1",
        )?
        .query_row(params![job.job.as_bytes(), NOTICE_BEHIND], |row| {
            let part = |column| {
                row.get(column).map(|bytes: Option<Vec<u8>>| Blob(bytes.unwrap_or_default()))
            };
            let printed = OutputExcerpt { head: part(3)?, tail: part(4)?, total: 0 };
            Ok(JobDetails {
                attempts: row.get(0)?,
                behind: row.get(5)?,
                detail: row.get(1)?,
                exit_code: row.get(2)?,
                stderr: printed.last_line(),
            })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

fn insert_event(
    tx: &Connection,
    notice: &Notice,
    subscribers: &NoticeSubscribers,
    now: Timestamp,
) -> rusqlite::Result<i64> {
    let unstorable = |error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::ToSqlConversionFailure(error)
    };
    let details = match &notice.job {
        Some(job) => details(tx, job)?,
        None => JobDetails::default(),
    };
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    // Random like a job's id: a sender cannot make an event of this id.
    let id: Result<EventId, _> = crate::random::job_id(now).to_string().parse();
    let id = id.map_err(|error| unstorable(Box::new(error)))?;
    let stored = NoticeEvent::of(id.as_str(), notice, details, subscribers, &host)
        .map_err(|error| unstorable(error.into()))?;
    // No provider sends it again and no signature covers it: the replay guard ignores it.
    tx.prepare_cached(
        "INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
         VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6)",
    )?
    .execute(params![
        INTERNAL_SOURCE,
        codec::stored_id(&id),
        notice.kind.as_str(),
        stored.digest.0,
        now.0,
        codec::size(stored.body_bytes),
    ])?;
    let event = tx.last_insert_rowid();
    // Kept as long as any payload.
    tx.prepare_cached("INSERT INTO payload (event, headers, body, sum) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![event, stored.headers, stored.body, stored.sum + now.0])?;
    Ok(event)
}
