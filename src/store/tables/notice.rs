//! NOTICE: what the receiver reports about itself becomes an event of the internal source, with jobs for the handlers
//! that subscribe to it.
//!
//! A job's notice is written by the very transaction that makes the job dead or held, so it is as
//! durable as what it tells of. What must stay true: nothing is written where no handler wants it; one
//! event per type, subject and reason in [`NOTICE_WINDOW`], restarts included, and repetitions within it are counted in the
//! next; a job of an internal event never causes another one.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::limits::NOTICE_WINDOW;
use crate::model::{
    Blob, EventId, Headers, INTERNAL_SOURCE, JobId, Name, NoticeType, State, Timestamp,
};
use crate::pattern::Pattern;
use crate::store::border::{NewJob, OutputExcerpt, Refused};

use super::codec;
use super::job::insert_job;

/// Most jobs behind another one that a notice counts.
const NOTICE_BEHIND: u32 = 1_000;

/// Last reported before the window, which begins at ?2, at the time ?1. A time in the future came from a wrong
/// clock.
macro_rules! due {
    () => {
        "(reported_at IS NULL OR reported_at <= ?2 OR reported_at > ?1)"
    };
}

/// Which handlers take which of the receiver's own events: one snapshot of the configuration (S6).
#[derive(Debug, Clone, Default)]
pub struct NoticeSubscribers {
    handlers: Vec<(Name, Vec<Pattern>)>,
    /// The option that a command needs to find the configuration; empty for its usual place.
    config_option: String,
}

impl NoticeSubscribers {
    /// Of these handlers, each with the types it wants.
    pub fn new(handlers: Vec<(Name, Vec<Pattern>)>) -> Self {
        NoticeSubscribers { handlers, config_option: String::new() }
    }

    /// The same with the option that a command needs to find the configuration.
    pub fn with_config_option(self, config_option: String) -> Self {
        NoticeSubscribers { config_option, ..self }
    }

    fn takers(&self, kind: NoticeType) -> impl Iterator<Item = &Name> {
        let wants = move |patterns: &[Pattern]| patterns.iter().any(|p| p.matches(kind.as_str()));
        self.handlers
            .iter()
            .filter(move |(_, patterns)| wants(patterns))
            .map(|(handler, _)| handler)
    }
}

/// Something that happened, perhaps several times, and that a person may want to hear of.
#[derive(Debug, Clone)]
pub struct Notice {
    pub kind: NoticeType,
    /// The handler or source it is about; none for the store.
    pub subject: Option<Name>,
    /// Why, in one of a few fixed texts: each is a separate notice.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// When first, of those counted.
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// The last job it happened to, where it happens to jobs.
    pub job: Option<NoticeJob>,
}

/// The job a notice is about.
#[derive(Debug, Clone)]
pub struct NoticeJob {
    pub job: JobId,
    /// Its event's source.
    pub source: Name,
    /// Its event's id.
    pub event_id: EventId,
}

/// The job of a notice, and how its last attempt ended. The texts are untrusted.
#[derive(Default)]
struct JobDetails {
    attempts: Option<u32>,
    /// How many jobs it keeps waiting, if it is of a group: so many at most.
    behind: Option<u32>,
    detail: Option<String>,
    exit_code: Option<i32>,
    stderr: Option<String>,
}

/// The notices of one store, shared by all verbs that move a job.
#[derive(Clone, Default)]
pub(crate) struct Notices(Arc<ArcSwap<NoticeSubscribers>>);

impl Notices {
    /// Whether a handler wants these; none does in a store that a command has opened.
    pub(crate) fn want(&self, kind: NoticeType) -> bool {
        self.0.load().takers(kind).next().is_some()
    }

    /// Of the job in `row`, which this transaction has made dead or held.
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
                    source: codec::text(found, 4)?,
                    event_id: codec::event_id(found, 5)?,
                };
                let reason: Option<String> = found.get(2)?;
                let state: State = codec::text(found, 0)?;
                Ok((state, codec::text(found, 1)?, reason.unwrap_or_default(), job))
            })
            .optional()?;
        let Some((state, handler, reason, job)) = moved else { return Ok(()) };
        let kind = match state {
            State::Dead => NoticeType::JobDead,
            State::Held => NoticeType::JobHeld,
            _ => return Ok(()),
        };
        self.note(tx, &of_jobs(kind, handler, reason, 1, now, job), now)
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

    /// Whether a notice is to become an event now. Never if no handler wants notices.
    pub(crate) fn is_due(&self, conn: &Connection, now: Timestamp) -> rusqlite::Result<bool> {
        if self.0.load().handlers.is_empty() {
            return Ok(false);
        }
        // A few rows, by a scan.
        conn.prepare_cached(concat!("SELECT 1 FROM notice WHERE ", due!(), " LIMIT 1"))?
            .exists([now.0, now.before(NOTICE_WINDOW).0])
    }

    /// Makes an event of each notice that is due, and returns how many those are.
    pub(crate) fn tell_due(&self, tx: &Connection, now: Timestamp) -> rusqlite::Result<u64> {
        let window = [now.0, now.before(NOTICE_WINDOW).0];
        // Reported and not repeated since: deleted. A few rows, by a scan.
        tx.prepare_cached(concat!("DELETE FROM notice WHERE count = 0 AND ", due!()))?
            .execute(window)?;
        let notices = tx
            .prepare_cached(concat!(
                "SELECT type, subject, reason, count, first_at, last_at, source, event_id, job
                 FROM notice WHERE ",
                due!()
            ))?
            .query_map(window, read)?
            .collect::<rusqlite::Result<Vec<Notice>>>()?;
        // Reported: the counts begin again.
        tx.prepare_cached(concat!(
            "UPDATE notice SET reported_at = ?1, count = 0, first_at = NULL, last_at = NULL WHERE ",
            due!()
        ))?
        .execute(window)?;
        for notice in &notices {
            self.tell(tx, notice, now)?;
        }
        Ok(notices.len() as u64)
    }

    /// Makes the event of a notice.
    fn tell(&self, tx: &Connection, notice: &Notice, now: Timestamp) -> rusqlite::Result<()> {
        let subscribers = self.0.load_full();
        let mut takers: Vec<&Name> = subscribers.takers(notice.kind).collect();
        if notice.kind == NoticeType::HandlerBroken {
            // A handler that cannot run is not notified that it cannot.
            takers.retain(|taker| Some(*taker) != notice.subject.as_ref());
        }
        if takers.is_empty() {
            return Ok(());
        }
        let event = insert_event(tx, notice, &subscribers.config_option, now)?;
        for handler in takers {
            insert_job(tx, event, &NewJob::of(handler.clone()), None, now)?;
        }
        Ok(())
    }
}

/// A notice about jobs of a handler.
pub(crate) fn of_jobs(
    kind: NoticeType,
    handler: Name,
    reason: String,
    count: u64,
    now: Timestamp,
    job: NoticeJob,
) -> Notice {
    let (subject, job) = (Some(handler), Some(job));
    Notice { kind, subject, reason, count, first_at: now, last_at: now, job }
}

/// A notice that the store could not store.
pub(crate) fn of_store(reason: &str, first_at: Timestamp, last_at: Timestamp) -> Notice {
    let (kind, reason) = (NoticeType::StoreDegraded, reason.to_owned());
    Notice { kind, subject: None, reason, count: 1, first_at, last_at, job: None }
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

/// With the end of the job's last attempt that has one. Nothing of a job that was put back under a new key.
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
    config_option: &str,
    now: Timestamp,
) -> rusqlite::Result<i64> {
    let unstorable = |error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::ToSqlConversionFailure(error)
    };
    let details = match &notice.job {
        Some(job) => details(tx, job)?,
        None => JobDetails::default(),
    };
    let body = body(notice, details, config_option).to_string().into_bytes();
    // Random like a job's id: a sender cannot make an event of this id.
    let id: Result<EventId, _> = crate::random::job_id(now).to_string().parse();
    let id = codec::stored_id(&id.map_err(|error| unstorable(Box::new(error)))?);
    // No provider sends it again and no signature covers it: the replay guard ignores it.
    tx.prepare_cached(
        "INSERT INTO event (source, event_id, type, digest, guarded, received_at, body_bytes)
         VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6)",
    )?
    .execute(params![
        INTERNAL_SOURCE,
        id,
        notice.kind.as_str(),
        <[u8; 32]>::from(Sha256::digest(&body)),
        now.0,
        codec::size(body.len()),
    ])?;
    let event = tx.last_insert_rowid();
    let mut headers = Headers::new();
    headers.push("Content-Type", "application/json");
    let stored = codec::compress_now(&body).map_err(|error| unstorable(error.into()))?;
    // Kept as long as any payload.
    tx.prepare_cached("INSERT INTO payload (event, headers, body) VALUES (?1, ?2, ?3)")?
        .execute(params![event, headers.to_wire(), stored])?;
    Ok(event)
}

/// The body of an internal event. Its fields are documented and only ever added to.
fn body(notice: &Notice, of_job: JobDetails, config_option: &str) -> Value {
    let (subject, job) = (notice.subject.as_ref(), notice.job.as_ref());
    let about_source = notice.kind == NoticeType::SourceFailing;
    json!({
        "type": notice.kind,
        "handler": subject.filter(|_| !about_source),
        "source": if about_source { subject } else { job.map(|job| &job.source) },
        "event_id": job.map(|job| &job.event_id),
        "job": job.map(|job| job.job),
        "reason": notice.reason,
        "attempts": of_job.attempts,
        "behind": of_job.behind,
        "detail": of_job.detail,
        "exit_code": of_job.exit_code,
        "stderr": of_job.stderr,
        "count": notice.count,
        "first_at": notice.first_at,
        "last_at": notice.last_at,
        "command": command(notice) + config_option,
        "host": rustix::system::uname().nodename().to_string_lossy(),
    })
}

/// What to run next, to see what it is about.
fn command(notice: &Notice) -> String {
    let jobs = |state: State| match (&notice.subject, &notice.job) {
        (Some(handler), _) if notice.count > 1 => {
            format!("hooklatch jobs --state {state} --handler {handler}")
        }
        (_, Some(job)) => format!("hooklatch show {}", job.event_id.shell_word()),
        _ => format!("hooklatch jobs --state {state}"),
    };
    match notice.kind {
        NoticeType::JobDead => jobs(State::Dead),
        NoticeType::JobHeld => jobs(State::Held),
        NoticeType::StoreDegraded | NoticeType::SourceFailing => "hooklatch status".to_owned(),
        NoticeType::HandlerBroken => match &notice.job {
            Some(job) => format!("hooklatch explain {}", job.event_id.shell_word()),
            None => "hooklatch status".to_owned(),
        },
    }
}

/// The reason of a degraded store, in one of three texts.
pub(crate) fn degraded(why: &Refused) -> Option<&'static str> {
    match why {
        Refused::NoSpace(_) => Some("no space"),
        Refused::Degraded(_) => Some("I/O error"),
        Refused::Gone(_) => Some("database file gone"),
        Refused::QueueFull | Refused::Stopping | Refused::Failed(_) => None,
    }
}
