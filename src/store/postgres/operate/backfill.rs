//! BACKFILL: makes the jobs that a handler lacks among the stored events, in bounded steps.

use std::sync::Arc;

use crate::limits::{BATCH_JOBS, SELECTED_JOBS};
use crate::model::{AuditVerb, Timestamp};
use crate::routing::Router;
use crate::store::border::{AuditSubject, Backfill, BackfillCursor, BackfillResult, Error};
use crate::store::codec;
use crate::store::columns::{column, readable};
use crate::store::decide::backfill::EventCandidate;
use crate::store::decide::delivery::held_at_arrival;

use super::super::admin::handle::Admin;
use super::super::flight::Flight;
use super::super::notices::NodeNotices;
use super::super::params::params;
use super::super::stop::{Stop, ask, ask_one};
use super::audit::{Operated, Operation};
use super::change::Change;
use super::conditions::{decide, groups};
use super::found::{facts, lock_rows};
use super::new_job::{insert_jobs, latest};
use super::repeat::is_repeat;
use super::roll_call;

/// Waits for the transaction of each node that is under way: an event in it has its number already, and cannot be seen.
const LOCK_NODES: &str = "SELECT FROM node WHERE state = 'active' ORDER BY id FOR NO KEY UPDATE";

/// The newest event's row; 0 in an empty store.
const NEWEST: &str = "SELECT coalesce(max(row), 0) FROM event";

/// The oldest event of the page before this row, and the first of that page that arrived then or later.
const PAGE: &str = "
    SELECT min(row) AS oldest, min(row) FILTER (WHERE received_at >= $2) AS first
    FROM (SELECT row, received_at FROM event WHERE row < $1 ORDER BY row DESC LIMIT $3) page";

/// The next events in the order of arrival. An event of an equal request was not held.
const NEXT: &str = concat!(
    "SELECT e.row, e.source, e.type, e.received_at >= $3 AS new_enough, e.variant > 0 AND NOT ",
    is_repeat!(),
    " AS is_variant, e.repeated, e.flagged,
        EXISTS (SELECT FROM payload p WHERE p.event = e.row) AS payload_kept,
        e.removed_succeeded + e.removed_dropped > 0 OR e.has_key
            OR EXISTS (SELECT FROM job j WHERE j.event = e.row AND j.handler = $4) AS present
    FROM event e WHERE e.row > $1 AND e.row <= $2 ORDER BY e.row LIMIT $5"
);

impl Admin {
    /// REPLAY --handler: makes the jobs that are missing among the next events, or only counts them. Call again with the
    /// answer's `next` until it is none.
    pub async fn make_missing(&self, ask: Backfill) -> Result<BackfillResult, Error> {
        let place = match ask.from {
            Some(place) => place,
            None => self.beginning(ask.since).await?,
        };
        let router = self.router.load_full();
        self.change(
            AuditVerb::MakeMissing,
            MissingJobs { ask, place, router, notices: self.notices() },
        )
        .await
    }

    /// The place before the first event since then. Rows are in the order of arrival but for corrections of the clocks:
    /// from the newest back, a whole page of older ones is the end.
    async fn beginning(&self, since: Timestamp) -> Result<BackfillCursor, Error> {
        let last = self.changer.make(Newest).await?;
        let mut place = BackfillCursor { after: last, last };
        let mut before = last.saturating_add(1);
        loop {
            let page = (before, since.0, codec::size(SELECTED_JOBS));
            let rows = self.changer.look(PAGE, &[&page.0, &page.1, &page.2]).await?;
            let Some(row) = rows.first() else { return Ok(place) };
            let oldest: Option<i64> = column(row, "oldest")?;
            let first: Option<i64> = column(row, "first")?;
            let (Some(oldest), Some(first)) = (oldest, first) else { return Ok(place) };
            place.after = first - 1;
            before = oldest;
        }
    }
}

/// The row of the newest event, when all older ones can be seen.
struct Newest;

impl Change for Newest {
    type Done = i64;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<i64, Stop> {
        flight.send(LOCK_NODES, params![]).await;
        Ok(ask_one(flight, NEWEST, params![]).await?.try_get(0)?)
    }
}

struct MissingJobs {
    ask: Backfill,
    place: BackfillCursor,
    router: Arc<Router>,
    notices: NodeNotices,
}

impl Operation for MissingJobs {
    type Done = BackfillResult;

    async fn operate(&self, flight: &mut Flight, now: Timestamp) -> Operated<BackfillResult> {
        let handler = &self.ask.handler;
        roll_call::check(flight).await?;
        let (events, _) = self.next(flight).await?;
        let decided = decide(flight, &self.router, self.ask.open(&events)).await?;
        if !self.ask.dry_run {
            let events = events.iter().map(|event| event.row).collect();
            lock_rows(flight, &groups(&decided), events).await;
        }
        let (events, next) = self.next(flight).await?;
        let mut made = BackfillResult { next, ..BackfillResult::default() };
        let mut new = Vec::new();
        for event in events {
            if event.payload_kept && !event.present && !decided.has(event.row, handler) {
                // Retention has moved the page meanwhile: the next call begins here.
                made.next = Some(BackfillCursor { after: event.row - 1, ..self.place });
                break;
            }
            let Some(job) = event.missing(handler, &decided, &mut made) else { continue };
            let newer = match latest(&job) {
                Some(key) => facts(flight, event.row, handler, Some(key)).await?.newer,
                None => None,
            };
            if event.is_made(&job, newer, &mut made) {
                new.push((event.row, job, event.held));
            }
        }
        if self.ask.dry_run {
            return Ok((made, AuditSubject::default(), 0));
        }
        let jobs = insert_jobs(flight, &new, now, &self.notices).await?;
        let jobs = jobs.into_iter().map(|job| (job, 0)).collect();
        let count = made.made;
        Ok((made, AuditSubject { jobs, ..self.ask.subject() }, count))
    }
}

impl MissingJobs {
    /// The next events that are meant, and the place behind those that were looked at: none at the end.
    async fn next(
        &self,
        flight: &mut Flight,
    ) -> Result<(Vec<EventCandidate>, Option<BackfillCursor>), Stop> {
        let (BackfillCursor { after, last }, Backfill { handler, since, .. }) =
            (self.place, &self.ask);
        let page = params![after, last, *since, handler, BATCH_JOBS];
        let rows = ask(flight, NEXT, page).await?.iter().map(|row| {
            let (is_variant, repeats) = (column(row, "is_variant")?, column(row, "repeated")?);
            Ok(EventCandidate {
                row: column(row, "row")?,
                source: readable(row, "source")?,
                event_type: column(row, "type")?,
                new_enough: column(row, "new_enough")?,
                held: held_at_arrival(is_variant, repeats, column(row, "flagged")?),
                payload_kept: column(row, "payload_kept")?,
                present: column(row, "present")?,
            })
        });
        Ok(self.ask.meant(rows.collect::<Result<_, Error>>()?, self.place))
    }
}
