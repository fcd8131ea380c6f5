//! BACKFILL: makes the jobs that a handler lacks among the stored events, in bounded steps.

use std::sync::Arc;

use tokio_postgres::Row;

use crate::limits::{BATCH_JOBS, SELECTED_JOBS};
use crate::model::{AuditVerb, HeldReason, JobId, Name, Timestamp};
use crate::routing::Router;
use crate::store::border::{
    AuditSubject, Backfill, BackfillCursor, BackfillResult, Error, EventMatcher,
};
use crate::store::codec;
use crate::store::decide::conditions::Decided;
use crate::store::decide::delivery::held_at_arrival;

use super::super::admin::handle::Admin;
use super::super::connection::describe;
use super::super::flight::{Flight, Param};
use super::audit::Operation;
use super::change::{Change, Stop, ask};
use super::conditions::{decide, groups};
use super::found::{facts, lock_rows, text};
use super::new_job::{insert_job, latest};
use super::roll_call;

/// Waits for the transaction of each node that is under way: an event in it has its number already, and cannot be seen.
const LOCK_NODES: &str = "SELECT FROM node WHERE state = 'active' ORDER BY id FOR NO KEY UPDATE";

/// The newest event's row; 0 in an empty store.
const NEWEST: &str = "SELECT coalesce(max(row), 0) FROM event";

/// The oldest event of the page before this row, and the first of that page that arrived then or later.
const PAGE: &str = "
    SELECT min(row), min(row) FILTER (WHERE received_at >= $2)
    FROM (SELECT row, received_at FROM event WHERE row < $1 ORDER BY row DESC LIMIT $3) page";

/// The next events in the order of arrival.
const NEXT: &str = r#"
    SELECT e.row, e.source, e.type, e.received_at >= $3, e.variant > 0, e.repeated, e.flagged,
        EXISTS (SELECT FROM payload p WHERE p.event = e.row),
        e.removed_succeeded + e.removed_dropped > 0 OR e.has_key
            OR EXISTS (SELECT FROM job j WHERE j.event = e.row AND j.handler = $4)
    FROM event e WHERE e.row > $1 AND e.row <= $2 ORDER BY e.row LIMIT $5"#;

impl Admin {
    /// REPLAY --handler: makes the jobs that are missing among the next events, or only counts them. Call again with the
    /// answer's `next` until it is none.
    pub async fn make_missing(&self, ask: Backfill) -> Result<BackfillResult, Error> {
        let place = match ask.from {
            Some(place) => place,
            None => self.beginning(ask.since).await?,
        };
        self.change(MissingJobs { ask, place, router: self.router.load_full() }).await
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
            let read = |column| match rows.first() {
                Some(row) => row.try_get::<_, Option<i64>>(column),
                None => Ok(None),
            };
            let unreadable = |error| Error::Unavailable(describe(&error));
            let oldest = read(0).map_err(unreadable)?;
            let first = read(1).map_err(unreadable)?;
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
        flight.send(LOCK_NODES, Vec::new()).await;
        let row = ask(flight, NEWEST, Vec::new()).await?.first();
        Ok(row.ok_or_else(|| Stop::Broken("no answer".to_owned()))?.try_get(0)?)
    }
}

struct MissingJobs {
    ask: Backfill,
    place: BackfillCursor,
    router: Arc<Router>,
}

impl Operation for MissingJobs {
    type Done = BackfillResult;

    fn verb(&self) -> AuditVerb {
        AuditVerb::MakeMissing
    }

    async fn operate(
        &self,
        flight: &mut Flight,
        now: Timestamp,
    ) -> Result<(BackfillResult, AuditSubject, u64), Stop> {
        let handler = &self.ask.handler;
        roll_call::check(flight).await?;
        let (events, _) = self.next(flight).await?;
        let missing = events.iter().filter(|event| event.payload_kept && !event.present);
        let open = missing.map(|event| (event.row, handler.clone())).collect();
        let decided = decide(flight, &self.router, open).await?;
        if !self.ask.dry_run {
            let events = events.iter().map(|event| event.row).collect();
            lock_rows(flight, &groups(&decided), events).await;
        }
        let (result, jobs) = self.make(flight, &decided, now).await?;
        let count = if self.ask.dry_run { 0 } else { result.made };
        let (handler, since) = (Some(handler.clone()), Some(self.ask.since));
        Ok((result, AuditSubject { handler, since, jobs, ..AuditSubject::default() }, count))
    }
}

impl MissingJobs {
    /// Makes the missing jobs of the next events, or only counts them; returns those made, before their first attempt.
    /// What accepting the event would have held, for the replay guard or a reused id, is made held.
    async fn make(
        &self,
        flight: &mut Flight,
        decided: &Decided,
        now: Timestamp,
    ) -> Result<(BackfillResult, Vec<(JobId, u32)>), Stop> {
        let handler = &self.ask.handler;
        let (events, next) = self.next(flight).await?;
        let mut made = BackfillResult { next, ..BackfillResult::default() };
        let mut jobs = Vec::new();
        for event in events {
            if event.present {
                made.present += 1;
            } else if !event.payload_kept {
                made.payload_gone += 1;
            } else if !decided.has(event.row, handler) {
                // Retention has moved the page meanwhile: the next call begins here.
                made.next = Some(BackfillCursor { after: event.row - 1, ..self.place });
                break;
            } else if let Some(job) = decided.job(event.row, handler) {
                if let Some(key) = latest(&job)
                    && facts(flight, event.row, handler, Some(key)).await?.newer.is_some()
                {
                    made.superseded += 1;
                    continue;
                }
                if !self.ask.dry_run {
                    jobs.push((insert_job(flight, event.row, &job, event.held, now).await?, 0));
                }
                made.made += 1;
                made.held += u64::from(event.held.is_some() || job.undecided.is_some());
            } else {
                made.unwanted += 1;
            }
        }
        Ok((made, jobs))
    }

    /// The next events that are meant, and the place behind those that were looked at: none at the end.
    async fn next(
        &self,
        flight: &mut Flight,
    ) -> Result<(Vec<EventFound>, Option<BackfillCursor>), Stop> {
        let params: Vec<Param> = vec![
            Box::new(self.place.after),
            Box::new(self.place.last),
            Box::new(self.ask.since.0),
            Box::new(self.ask.handler.as_str().to_owned()),
            Box::new(codec::size(BATCH_JOBS)),
        ];
        let rows = ask(flight, NEXT, params).await?;
        let mut events = rows.iter().map(EventFound::read).collect::<Result<Vec<_>, _>>()?;
        let more = events.last().filter(|_| events.len() == BATCH_JOBS);
        let next = more.map(|event| BackfillCursor { after: event.row, ..self.place });
        events.retain(|event| {
            let wants = |wanted: &EventMatcher| wanted.matches(&event.source, &event.event_type);
            event.new_enough && self.ask.wanted.iter().any(wants)
        });
        Ok((events, next))
    }
}

/// An event looked at.
struct EventFound {
    row: i64,
    source: Name,
    event_type: String,
    new_enough: bool,
    held: Option<HeldReason>,
    payload_kept: bool,
    /// It has a job of this handler, had jobs that were removed, or is answered by another handler.
    present: bool,
}

impl EventFound {
    fn read(row: &Row) -> Result<Self, Stop> {
        Ok(EventFound {
            row: row.try_get(0)?,
            source: text(row, 1)?,
            event_type: row.try_get(2)?,
            new_enough: row.try_get(3)?,
            held: held_at_arrival(row.try_get(4)?, row.try_get(5)?, row.try_get(6)?),
            payload_kept: row.try_get(7)?,
            present: row.try_get(8)?,
        })
    }
}
