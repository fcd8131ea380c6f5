//! BACKFILL: makes the jobs that a handler lacks among the stored events.
//!
//! A call looks at a bounded number of events, and says how far it looked and where to go on. The walk may end at any
//! call: the same walk again finds the rest.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::limits::{BATCH_JOBS, SELECTED_JOBS};
use crate::model::{AuditVerb, HeldReason, JobId, Name, Timestamp};
use crate::pattern::Pattern;
use crate::store::border::{AuditSubject, Error};
use crate::store::decide::delivery::held_at_arrival;
use crate::store::tables::codec;
use crate::store::tables::group::newer_than;
use crate::store::tables::job::insert_job;

use super::conditions::Decided;
use super::handle::Admin;

/// Which stored events are to get a job that they lack: the handler was not there, or did not want them, when
/// they came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backfill {
    /// Whose jobs are made.
    pub handler: Name,
    /// Only of events that arrived then or later.
    pub since: Timestamp,
    /// Only of what it wants, matched by one snapshot of the configuration (S6).
    pub wanted: Vec<EventMatcher>,
    /// Only count.
    pub dry_run: bool,
    /// Where the last answer said to go on; the beginning otherwise.
    pub from: Option<BackfillCursor>,
}

/// What a handler wants of some of its sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMatcher {
    pub sources: Vec<Name>,
    pub types: Vec<Pattern>,
    pub only: Option<Pattern>,
}

impl EventMatcher {
    /// Whether the handler wants events of this type from this source.
    pub(in crate::store) fn matches(&self, source: &Name, event_type: &str) -> bool {
        let of = |pattern: &Pattern| pattern.matches(event_type);
        self.sources.contains(source) && self.types.iter().any(of) && self.only.iter().all(of)
    }
}

/// A place in the walk over the events: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillCursor {
    pub(in crate::store) after: i64,
    /// The newest event when the walk began: it ends even while events arrive.
    pub(in crate::store) last: i64,
}

/// What one step did with the events that the handler wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillResult {
    /// Jobs made, the held ones included, and those that the next one of their group has superseded.
    pub made: u64,
    /// Of those, held: accepting the event would have held them.
    pub held: u64,
    /// Events that have a job of this handler already, events whose jobs were removed with their payload (some
    /// handler had them), and requests that their one handler answers.
    pub present: u64,
    /// Events skipped because their payload has been deleted and no job of theirs is known.
    pub payload_gone: u64,
    /// Events for which the handler's condition does not hold.
    pub unwanted: u64,
    /// Events in whose group a newer one has run or is to run, where only the latest counts.
    pub superseded: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<BackfillCursor>,
}

impl Admin {
    /// REPLAY --handler: makes the jobs that are missing among the next events, or only counts them.
    /// Call again with the answer's `next` until it is none. Unless it only counts, it is refused
    /// like an accept while there is too little space.
    pub async fn make_missing(&self, ask: Backfill) -> Result<BackfillResult, Error> {
        let place = match ask.from {
            Some(place) => place,
            None => self.beginning(ask.since).await?,
        };
        let asked = ask.clone();
        let open = move |conn: &Connection| {
            let missing = |event: &EventCandidate| event.payload_kept && !event.present;
            let events = asked.next(conn, place)?.0.into_iter().filter(missing);
            Ok(events.map(|event| (event.row, asked.handler.clone())).collect())
        };
        let decided = self.decide(self.engine.read(open).await?).await?;
        if ask.dry_run {
            let now = self.engine.clock.now();
            return self
                .engine
                .read(move |conn| Ok(make_missing(conn, &ask, place, &decided, now)?.0))
                .await;
        }
        self.engine.ready()?;
        self.change(AuditVerb::MakeMissing, move |tx, now| {
            let (made, jobs) = make_missing(tx, &ask, place, &decided, now)?;
            let (handler, since) = (Some(ask.handler.clone()), Some(ask.since));
            let subject = AuditSubject { handler, since, jobs, ..AuditSubject::default() };
            let count = made.made;
            Ok((made, subject, count))
        })
        .await
    }

    /// The place before the first event since then. Rows are in the order of arrival but for
    /// corrections of the clock: from the newest back, a whole page of older ones is the end.
    async fn beginning(&self, since: Timestamp) -> Result<BackfillCursor, Error> {
        // The newest event's row; 0 in an empty store.
        let newest = "SELECT coalesce(max(row), 0) FROM event";
        let last: i64 =
            self.engine.read(|conn| conn.query_row(newest, [], |found| found.get(0))).await?;
        let mut place = BackfillCursor { after: last, last };
        let mut before = last.saturating_add(1);
        loop {
            let page = move |conn: &Connection| {
                // The oldest event of the page before this row, and the first of that page since then: by the primary
                // key.
                conn.prepare_cached(
                    "SELECT min(row), min(CASE WHEN received_at >= ?2 THEN row END) FROM
                         (SELECT row, received_at FROM event WHERE row < ?1 ORDER BY row DESC LIMIT ?3)",
                )?
                .query_row(params![before, since.0, codec::size(SELECTED_JOBS)], |row| row.try_into())
            };
            let (oldest, first): (Option<i64>, Option<i64>) = self.engine.read(page).await?;
            let (Some(oldest), Some(first)) = (oldest, first) else { return Ok(place) };
            place.after = first - 1;
            before = oldest;
        }
    }
}

/// Makes the missing jobs of the next events, or only counts them; returns those made, before their first attempt. What accepting the event would have held, for
/// the replay guard or a reused id, is made held.
fn make_missing(
    conn: &Connection,
    ask: &Backfill,
    place: BackfillCursor,
    decided: &Decided,
    now: Timestamp,
) -> rusqlite::Result<(BackfillResult, Vec<(JobId, u32)>)> {
    let (events, next) = ask.next(conn, place)?;
    let mut made = BackfillResult { next, ..BackfillResult::default() };
    let mut jobs = Vec::new();
    for event in events {
        if event.present {
            made.present += 1;
        } else if !event.payload_kept {
            made.payload_gone += 1;
        } else if !decided.has(event.row, &ask.handler) {
            // Retention has moved the page meanwhile: the next call begins here.
            made.next = Some(BackfillCursor { after: event.row - 1, ..place });
            break;
        } else if let Some(job) = decided.job(event.row, &ask.handler) {
            if newer_than(conn, &job, event.row)?.is_some() {
                made.superseded += 1;
                continue;
            }
            if !ask.dry_run {
                jobs.push((insert_job(conn, event.row, &job, event.held, now)?, 0));
            }
            made.made += 1;
            made.held += u64::from(event.held.is_some() || job.undecided.is_some());
        } else {
            made.unwanted += 1;
        }
    }
    Ok((made, jobs))
}

/// An event looked at.
struct EventCandidate {
    row: i64,
    source: Name,
    event_type: String,
    new_enough: bool,
    held: Option<HeldReason>,
    payload_kept: bool,
    /// It has a job of this handler, had jobs that were removed, or is answered by another handler.
    present: bool,
}

impl Backfill {
    /// The next events that are meant, and the place behind those that were looked at: none at the end.
    fn next(
        &self,
        conn: &Connection,
        place: BackfillCursor,
    ) -> rusqlite::Result<(Vec<EventCandidate>, Option<BackfillCursor>)> {
        let (since, handler) = (self.since.0, self.handler.as_str());
        // The next events in the order of arrival. The guard held an event that repeats the signed body of an
        // earlier one, and flagged it where its type may honestly repeat.
        let mut events = conn
            .prepare_cached(
                "SELECT e.row, e.source, e.type, e.received_at >= ?3, e.variant > 0,
                     e.repeated = 1, e.flagged = 1,
                     EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row),
                     e.removed_succeeded + e.removed_dropped > 0
                         OR EXISTS (SELECT 1 FROM job j WHERE j.event = e.row AND j.handler = ?4)
                         OR e.has_key = 1
                 FROM event e WHERE e.row > ?1 AND e.row <= ?2 ORDER BY e.row LIMIT ?5",
            )?
            .query_map(
                params![place.after, place.last, since, handler, codec::size(BATCH_JOBS)],
                |row| {
                    let held = held_at_arrival(row.get(4)?, row.get(5)?, row.get(6)?);
                    Ok(EventCandidate {
                        row: row.get(0)?,
                        source: codec::text(row, 1)?,
                        event_type: row.get(2)?,
                        new_enough: row.get(3)?,
                        held,
                        payload_kept: row.get(7)?,
                        present: row.get(8)?,
                    })
                },
            )?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let more = events.last().filter(|_| events.len() == BATCH_JOBS);
        let next = more.map(|event| BackfillCursor { after: event.row, ..place });
        events.retain(|event| {
            let wants = |wanted: &EventMatcher| wanted.matches(&event.source, &event.event_type);
            event.new_enough && self.wanted.iter().any(wants)
        });
        Ok((events, next))
    }
}
