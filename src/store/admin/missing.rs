//! REPLAY --handler: makes the jobs that stored events lack, for a handler that was not there, or did
//! not want them, when they came.
//!
//! One call looks at [`STEP`] events and commits what it made, so accepts wait no longer than for a
//! usual batch; the caller goes on where the answer says. It may stop at any point: what is made has
//! its job, so the same request again makes only the rest. A job is made as `accept` would have made
//! it: what the replay guard or a reused id would have held is held, and none is made without its
//! payload (S12).

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::model::{HeldReason, Name, State, Timestamp};
use crate::pattern::Pattern;
use crate::store::engine::queue::Priority;
use crate::store::tables::codec;
use crate::store::tables::job::insert_job;
use crate::store::types::Error;

use super::handle::Admin;

/// Events looked at in one transaction.
const STEP: usize = 200;

/// Events looked at in one read while the walk's beginning is looked for.
const PAGE: usize = 1_000;

/// Which events shall get a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Whose jobs are made.
    pub handler: Name,
    /// Only of events that arrived then or later.
    pub since: Timestamp,
    /// Only of what it wants, matched by one snapshot of the configuration (S6).
    pub wanted: Vec<Wanted>,
    /// Only count.
    pub dry_run: bool,
    /// Where the last answer said to go on; the beginning otherwise.
    pub from: Option<Place>,
}

/// What a handler wants of some of its sources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub sources: Vec<Name>,
    pub types: Vec<Pattern>,
    pub only: Option<Pattern>,
}

impl Wanted {
    fn matches(&self, event: &Event) -> bool {
        let of = |pattern: &Pattern| pattern.matches(&event.event_type);
        self.sources.contains(&event.source)
            && self.types.iter().any(of)
            && self.only.iter().all(of)
    }
}

/// A place in the walk over the events: to be handed back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    after: i64,
    /// The newest event when the walk began: it ends even while events arrive.
    last: i64,
}

/// What came of the events looked at, all of them wanted and new enough.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Jobs made, the held ones included.
    pub made: u64,
    /// Of those, held: accepting the event would have held them.
    pub held: u64,
    /// Events that have a job of this handler already, in whatever state, and those whose jobs were
    /// removed with their payload: they were handled, though nobody knows by whom any more. So are requests
    /// that their one handler answers.
    pub present: u64,
    /// Events skipped because their payload has been deleted, and not handled as far as is known.
    pub payload_gone: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<Place>,
}

impl Admin {
    /// REPLAY --handler: makes the jobs that are missing among the next events, or only counts them.
    /// Call again with the answer's `next` until there is none. Refused like an accept while there is
    /// too little space.
    pub async fn make_missing(&self, ask: Missing) -> Result<Made, Error> {
        let place = match ask.from {
            Some(place) => place,
            None => self.beginning(ask.since).await?,
        };
        let now = self.engine.clock.now();
        if ask.dry_run {
            return self.engine.read(move |conn| step(conn, &ask, place, now)).await;
        }
        self.engine.ready()?;
        Ok(self.engine.submit(Priority::Verb, move |tx| step(tx, &ask, place, now)).await?)
    }

    /// The place before the first event since then. Rows are in the order of arrival but for
    /// corrections of the clock: from the newest back, a whole page of older ones is the end.
    async fn beginning(&self, since: Timestamp) -> Result<Place, Error> {
        // The newest event's row; 0 where there is none.
        let newest = "SELECT coalesce(max(row), 0) FROM event";
        let last: i64 =
            self.engine.read(|conn| conn.query_row(newest, [], |found| found.get(0))).await?;
        let mut place = Place { after: last, last };
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
    .query_row(params![before, since.0, codec::size(PAGE)], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// An event looked at.
struct Event {
    row: i64,
    source: Name,
    event_type: String,
    new_enough: bool,
    held: Option<HeldReason>,
    payload_kept: bool,
    /// It has a job of this handler, had jobs that were removed, or is answered by another handler.
    present: bool,
}

fn step(conn: &Connection, ask: &Missing, place: Place, now: Timestamp) -> rusqlite::Result<Made> {
    let events = look(conn, ask, place)?;
    let mut made = Made::default();
    let wanted =
        |event: &&Event| event.new_enough && ask.wanted.iter().any(|wanted| wanted.matches(event));
    for event in events.iter().filter(wanted) {
        if event.present {
            made.present += 1;
        } else if !event.payload_kept {
            made.payload_gone += 1;
        } else {
            let state = if event.held.is_some() { State::Held } else { State::Ready };
            if !ask.dry_run {
                insert_job(conn, event.row, &ask.handler, state, event.held, now)?;
            }
            made.made += 1;
            made.held += u64::from(event.held.is_some());
        }
    }
    made.next = match events.last() {
        Some(event) if events.len() == STEP => Some(Place { after: event.row, ..place }),
        _ => None,
    };
    Ok(made)
}

fn look(conn: &Connection, ask: &Missing, place: Place) -> rusqlite::Result<Vec<Event>> {
    // The next events in the order of arrival. The guard held an event that repeats the signed body of an
    // earlier one, and flagged it where its type may honestly repeat.
    conn.prepare_cached(
        "SELECT e.row, e.source, e.type, e.received_at >= ?3, e.variant > 0,
             e.repeated = 1 AND e.flagged = 0,
             EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row),
             e.removed_succeeded + e.removed_dropped > 0
                 OR EXISTS (SELECT 1 FROM job j WHERE j.event = e.row AND j.handler = ?4)
                 OR e.asked = 1
         FROM event e WHERE e.row > ?1 AND e.row <= ?2 ORDER BY e.row LIMIT ?5",
    )?
    .query_map(
        params![place.after, place.last, ask.since.0, ask.handler.as_str(), codec::size(STEP)],
        |row| {
            let held = match (row.get(4)?, row.get(5)?) {
                (true, _) => Some(HeldReason::IdReused),
                (false, true) => Some(HeldReason::SuspectedReplay),
                (false, false) => None,
            };
            Ok(Event {
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
