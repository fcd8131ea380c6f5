//! BACKFILL: makes the jobs that a handler lacks among the stored events.
//!
//! A call looks at a bounded number of events, and says how far it looked and where to go on. The walk may end at any
//! call: the same walk again finds the rest.

use rusqlite::{Connection, params};

use crate::limits::{BATCH_JOBS, SELECTED_JOBS};
use crate::model::{AuditVerb, JobId, Timestamp};
use crate::store::border::{AuditSubject, Backfill, BackfillCursor, BackfillResult, Error};
use crate::store::decide::backfill::EventCandidate;
use crate::store::decide::conditions::Decided;
use crate::store::decide::delivery::held_at_arrival;
use crate::store::sqlite::tables::codec;
use crate::store::sqlite::tables::group::newer_than;
use crate::store::sqlite::tables::job::insert_job;
use crate::store::sqlite::tables::repeat::IS_REPEAT;

use super::handle::Admin;

impl Admin {
    pub async fn make_missing(&self, ask: Backfill) -> Result<BackfillResult, Error> {
        let place = match ask.from {
            Some(place) => place,
            None => self.beginning(ask.since).await?,
        };
        let asked = ask.clone();
        let open = move |conn: &Connection| Ok(asked.open(&next(&asked, conn, place)?.0));
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
            let subject = AuditSubject { jobs, ..ask.subject() };
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
    let (events, next) = next(ask, conn, place)?;
    let mut made = BackfillResult { next, ..BackfillResult::default() };
    let mut jobs = Vec::new();
    for event in events {
        if event.payload_kept && !event.present && !decided.has(event.row, &ask.handler) {
            // Retention has moved the page meanwhile: the next call begins here.
            made.next = Some(BackfillCursor { after: event.row - 1, ..place });
            break;
        }
        let Some(job) = event.missing(&ask.handler, decided, &mut made) else { continue };
        let newer = newer_than(conn, &job, event.row)?;
        if event.is_made(&job, newer, &mut made) && !ask.dry_run {
            jobs.push((insert_job(conn, event.row, &job, event.held, now)?, 0));
        }
    }
    Ok((made, jobs))
}

/// The next events that are meant, and the place behind those that were looked at: none at the end.
fn next(
    ask: &Backfill,
    conn: &Connection,
    place: BackfillCursor,
) -> rusqlite::Result<(Vec<EventCandidate>, Option<BackfillCursor>)> {
    let (since, handler) = (ask.since.0, ask.handler.as_str());
    // The next events in the order of arrival. An event of an equal request was not held. The guard held an event that
    // repeats the signed body of an earlier one, and flagged it where its type may honestly repeat.
    let events = conn
        .prepare_cached(&format!(
            "SELECT e.row, e.source, e.type, e.received_at >= ?3, e.variant > 0 AND NOT {IS_REPEAT},
                 e.repeated = 1, e.flagged = 1,
                 EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row),
                 e.removed_succeeded + e.removed_dropped > 0
                     OR EXISTS (SELECT 1 FROM job j WHERE j.event = e.row AND j.handler = ?4)
                     OR e.has_key = 1
             FROM event e WHERE e.row > ?1 AND e.row <= ?2 ORDER BY e.row LIMIT ?5",
        ))?
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
    Ok(ask.meant(events, place))
}
