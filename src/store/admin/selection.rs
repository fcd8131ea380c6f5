//! SELECT: the one selection of what a bulk verb means: held and dead jobs by a filter, or stored events that
//! lack a handler's job.
//!
//! A call looks at a bounded number of rows, and says how far it looked and where to go on. It changes nothing:
//! the mover checks each job again, so the walk may end at any call, and the same walk again finds the rest.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::limits::{BATCH_JOBS, PAGE_LOOK_ROWS, SELECTED_JOBS};
use crate::model::{HeldReason, JobId, Name, State, Timestamp};
use crate::pattern::Pattern;
use crate::store::border::{Error, JobFilter};
use crate::store::tables::answer::key_of;
use crate::store::tables::codec;

use super::clauses::Clauses;
use super::handle::Admin;

/// What a bulk command does to its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Held or dead to ready.
    Replay,
    /// Held or dead to dropped.
    Drop,
}

/// Which jobs are meant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobSelection {
    /// Its state must be held or dead; its limit has no meaning here.
    pub filter: JobFilter,
    /// Where the last answer said to go on; the beginning otherwise.
    pub after: Option<SelectionCursor>,
    /// For a replay: what a person has to look at first is left out unless its reason is named.
    pub verb: Verb,
}

/// A place in the walk over the jobs: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectionCursor(i64);

/// One chosen job, as it was when it was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedJob {
    pub job: JobId,
    /// Its last attempt.
    pub attempt: u32,
    pub handler: Name,
}

/// The next of the jobs that are meant.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SelectedJobs {
    /// Oldest first.
    pub jobs: Vec<SelectedJob>,
    /// Held or dead jobs that were looked at, the same bound for every call.
    pub looked_at: u64,
    /// Left out: suspected replays and reused ids, which might be forged.
    pub suspected: u64,
    /// Left out of a replay: they have answered their callers, who get those answers again.
    pub answered: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<SelectionCursor>,
}

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
    fn matches(&self, event: &EventCandidate) -> bool {
        let of = |pattern: &Pattern| pattern.matches(&event.event_type);
        self.sources.contains(&event.source)
            && self.types.iter().any(of)
            && self.only.iter().all(of)
    }
}

/// A place in the walk over the events: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillCursor {
    after: i64,
    /// The newest event when the walk began: it ends even while events arrive.
    last: i64,
}

impl BackfillCursor {
    /// The place in the same walk before this event.
    pub(crate) fn before(event: i64, walk: BackfillCursor) -> Self {
        BackfillCursor { after: event - 1, ..walk }
    }
}

impl Admin {
    /// The next jobs that a bulk verb means. Call again with the answer's `next` until it is none.
    pub async fn select(&self, ask: JobSelection) -> Result<SelectedJobs, Error> {
        self.engine.list(codec::size(SELECTED_JOBS), move |conn| select(conn, &ask)).await
    }

    /// The place before the first event since then. Rows are in the order of arrival but for
    /// corrections of the clock: from the newest back, a whole page of older ones is the end.
    pub(crate) async fn beginning(&self, since: Timestamp) -> Result<BackfillCursor, Error> {
        // The newest event's row; 0 in an empty store.
        let newest = "SELECT coalesce(max(row), 0) FROM event";
        let last: i64 =
            self.engine.read(|conn| conn.query_row(newest, [], |found| found.get(0))).await?;
        let mut place = BackfillCursor { after: last, last };
        let mut before = last.saturating_add(1);
        loop {
            let (oldest, first) =
                self.engine.read(move |conn| page_before(conn, before, since)).await?;
            let (Some(oldest), Some(first)) = (oldest, first) else { return Ok(place) };
            place.after = first - 1;
            before = oldest;
        }
    }
}

fn select(conn: &Connection, ask: &JobSelection) -> rusqlite::Result<SelectedJobs> {
    let after = ask.after.map_or(0, |cursor| cursor.0);
    // A literal state, which a partial index needs: only these two wait for a person.
    let waits = match ask.filter.state {
        Some(state @ (State::Held | State::Dead)) => format!("state = '{state}'"),
        _ => "state IN ('held', 'dead')".to_owned(),
    };
    // By the index of that state, in the order of rows.
    let (looked_at, last): (u64, i64) = conn
        .prepare_cached(&format!(
            "SELECT count(*), coalesce(max(row), 0) FROM
                 (SELECT row FROM job WHERE {waits} AND row > ?1 ORDER BY row LIMIT ?2)"
        ))?
        .query_row([after, PAGE_LOOK_ROWS], |row| Ok((codec::count(row, 0)?, row.get(1)?)))?;
    let mut clauses = Clauses::default();
    clauses.job(conn, &ask.filter)?;
    clauses.raw("j.state IN ('held', 'dead')");
    clauses.raw(&format!("j.row <= {last}"));
    clauses.after("j.row", after);
    // The next in the order of their making, so that a page ends where the following one begins.
    let sql = format!(
        "SELECT j.row, j.id, j.attempt, j.handler, coalesce(j.reason, ''), j.event FROM job j
         JOIN event e ON e.row = j.event {} ORDER BY j.row LIMIT {SELECTED_JOBS}",
        clauses.sql()
    );
    let found = conn
        .prepare(&sql)?
        .query_map(clauses.values().as_slice(), |row| {
            let chosen = SelectedJob {
                job: codec::job_id(row, 1)?,
                attempt: row.get(2)?,
                handler: codec::text(row, 3)?,
            };
            Ok((row.get(0)?, chosen, row.get(4)?, row.get(5)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, SelectedJob, String, i64)>>>()?;
    let mut selected = SelectedJobs { looked_at, ..SelectedJobs::default() };
    if found.len() == SELECTED_JOBS {
        selected.next = found.last().map(|(row, ..)| SelectionCursor(*row));
    } else if looked_at == PAGE_LOOK_ROWS.unsigned_abs() {
        selected.next = Some(SelectionCursor(last));
    }
    let guarded = ask.verb == Verb::Replay && ask.filter.reason.is_none();
    for (_, chosen, reason, event) in found {
        if guarded && is_suspected(&reason) {
            selected.suspected += 1;
        } else if ask.verb == Verb::Replay && !key_of(conn, event)?.may_run() {
            selected.answered += 1;
        } else {
            selected.jobs.push(chosen);
        }
    }
    Ok(selected)
}

/// Whether a job held for this reason may be a forgery, which must not run because others are put back.
fn is_suspected(reason: &str) -> bool {
    [HeldReason::SuspectedReplay, HeldReason::IdReused].iter().any(|held| held.as_str() == reason)
}

/// The oldest event of the page before this row, and the first of that page since then.
fn page_before(
    conn: &Connection,
    before: i64,
    since: Timestamp,
) -> rusqlite::Result<(Option<i64>, Option<i64>)> {
    // By the primary key from this row back, no further than a page.
    conn.prepare_cached(
        "SELECT min(row), min(CASE WHEN received_at >= ?2 THEN row END) FROM
             (SELECT row, received_at FROM event WHERE row < ?1 ORDER BY row DESC LIMIT ?3)",
    )?
    .query_row(params![before, since.0, codec::size(SELECTED_JOBS)], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })
}

/// An event looked at.
pub(crate) struct EventCandidate {
    pub(crate) row: i64,
    source: Name,
    event_type: String,
    new_enough: bool,
    pub(crate) held: Option<HeldReason>,
    pub(crate) payload_kept: bool,
    /// It has a job of this handler, had jobs that were removed, or is answered by another handler.
    pub(crate) present: bool,
}

impl Backfill {
    /// The next events that are meant, and the place behind those that were looked at: none at the end.
    pub(crate) fn next(
        &self,
        conn: &Connection,
        place: BackfillCursor,
    ) -> rusqlite::Result<(Vec<EventCandidate>, Option<BackfillCursor>)> {
        let mut events = look(conn, self, place)?;
        let next = match events.last() {
            Some(event) if events.len() == BATCH_JOBS => {
                Some(BackfillCursor { after: event.row, ..place })
            }
            _ => None,
        };
        let wanted =
            |event: &EventCandidate| self.wanted.iter().any(|wanted| wanted.matches(event));
        events.retain(|event| event.new_enough && wanted(event));
        Ok((events, next))
    }
}

fn look(
    conn: &Connection,
    ask: &Backfill,
    place: BackfillCursor,
) -> rusqlite::Result<Vec<EventCandidate>> {
    // The next events in the order of arrival. The guard held an event that repeats the signed body of an
    // earlier one, and flagged it where its type may honestly repeat.
    conn.prepare_cached(
        "SELECT e.row, e.source, e.type, e.received_at >= ?3, e.variant > 0,
             e.repeated = 1 AND e.flagged = 0,
             EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row),
             e.removed_succeeded + e.removed_dropped > 0
                 OR EXISTS (SELECT 1 FROM job j WHERE j.event = e.row AND j.handler = ?4)
                 OR e.has_key = 1
         FROM event e WHERE e.row > ?1 AND e.row <= ?2 ORDER BY e.row LIMIT ?5",
    )?
    .query_map(
        params![
            place.after,
            place.last,
            ask.since.0,
            ask.handler.as_str(),
            codec::size(BATCH_JOBS)
        ],
        |row| {
            let held = match (row.get(4)?, row.get(5)?) {
                (true, _) => Some(HeldReason::IdReused),
                (false, true) => Some(HeldReason::SuspectedReplay),
                (false, false) => None,
            };
            Ok(EventCandidate {
                row: row.get(0)?,
                source: codec::text(row, 1)?,
                event_type: row.get(2)?,
                new_enough: row.get(3)?,
                held,
                payload_kept: row.get(6)?,
                present: row.get(7)?,
            })
        },
    )?
    .collect()
}
