//! Pages of events, jobs and the audit list, newest first.
//!
//! A page looks back over a window of a bounded number of rows, and says where to go on. Row numbers have gaps, so a
//! window is a number of rows, and not a range of numbers.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::limits::PAGE_LOOK_ROWS;
use crate::model::{AuditVerb, Name, State, Timestamp};
use crate::store::border::{
    AuditFilter, AuditRow, Error, EventFilter, EventRow, JobFilter, JobRow, Page, PageCursor,
    SecretUse,
};

use super::super::columns::{Columns, unreadable};
use super::super::reader::Reading;
use super::handle::Admin;
use super::rows::{
    ListedEvent, event_columns, event_row, job_columns, job_joins, job_row, with_jobs,
};

/// So few rows are all taken from an index; among more of them the newest are soon met on the way back through the
/// table.
const FEW_ROWS: i64 = 5_000;

/// A table in the order of arrival, but for corrections of the clock.
struct Listing {
    page: &'static str,
    /// What the page's window has: its rows, the oldest of them with its time, and the latest time.
    window: &'static str,
    /// The column with the time.
    time: &'static str,
}

/// The window before row $1 of $2 rows, of the events $3 where they are given.
macro_rules! events {
    () => {
        "(SELECT * FROM event WHERE row < $1 AND ($3::bigint[] IS NULL OR row = ANY ($3)) ORDER BY row DESC LIMIT $2) e"
    };
}

/// The same of jobs, by their events, and by the index of state $4 where that is given.
macro_rules! jobs {
    () => {
        "(SELECT * FROM job WHERE row < $1 AND ($3::bigint[] IS NULL OR event = ANY ($3))
            AND ($4::text IS NULL OR state = $4) ORDER BY row DESC LIMIT $2) j"
    };
}

macro_rules! audit {
    () => {
        "(SELECT * FROM audit WHERE row < $1 ORDER BY row DESC LIMIT $2) a"
    };
}

macro_rules! window {
    ($rows:expr, $time:literal) => {
        concat!(
            "SELECT count(*) AS looked_at, min(row) AS oldest, max(",
            $time,
            ") AS latest, (array_agg(",
            $time,
            " ORDER BY row))[1] AS oldest_at FROM ",
            $rows
        )
    };
}

/// What a filter of events asks for: source $4, type $5, time $6, handler $7, state $8. Jobs that were removed with the
/// payload have lost their handler.
macro_rules! event_filters {
    () => {
        " WHERE ($4::text IS NULL OR e.source = $4) AND ($5::text IS NULL OR e.type LIKE $5)
            AND ($6::bigint IS NULL OR e.received_at >= $6)
            AND (($7::text IS NULL AND $8::text IS NULL)
                OR (SELECT true FROM job j WHERE j.event = e.row AND ($7 IS NULL OR j.handler = $7)
                    AND ($8 IS NULL OR j.state = $8) LIMIT 1)
                OR ($7 IS NULL AND $8 = 'succeeded' AND e.removed_succeeded > 0)
                OR ($7 IS NULL AND $8 = 'dropped' AND e.removed_dropped > 0)) "
    };
}
pub(super) use event_filters;

const EVENTS: Listing = Listing {
    page: concat!(
        "SELECT ",
        event_columns!(),
        " FROM ",
        events!(),
        event_filters!(),
        "ORDER BY e.row DESC LIMIT $9"
    ),
    window: window!(events!(), "received_at"),
    time: "received_at",
};

/// What a filter of jobs asks for: handler $5, reason $6, last text $7, time $8, source $9, type $10, state $11.
macro_rules! job_filters {
    () => {
        " WHERE ($5::text IS NULL OR j.handler = $5) AND ($6::text IS NULL OR j.reason = $6)
            AND ($7::text IS NULL OR coalesce(a.detail, '') = $7) AND ($8::bigint IS NULL OR j.created_at >= $8)
            AND ($9::text IS NULL OR e.source = $9) AND ($10::text IS NULL OR e.type LIKE $10)
            AND ($11::text IS NULL OR j.state = $11) "
    };
}
pub(super) use job_filters;

const JOBS: Listing = Listing {
    page: concat!(
        "SELECT ",
        job_columns!(),
        " FROM ",
        jobs!(),
        job_joins!(),
        job_filters!(),
        "ORDER BY j.row DESC LIMIT $12"
    ),
    window: window!(jobs!(), "created_at"),
    time: "created_at",
};

const AUDIT: Listing = Listing {
    page: concat!(
        "SELECT * FROM ",
        audit!(),
        " WHERE ($3::text IS NULL OR a.verb = $3) AND ($4::bigint IS NULL OR a.at >= $4)
          ORDER BY a.row DESC LIMIT $5"
    ),
    window: window!(audit!(), "at"),
    time: "at",
};

/// The events with jobs of state $1, $2 at most; or more of them. Jobs behind others of their group are few, and taken
/// all: no index has them by state.
const FEW_OF_STATE: &str = "
    (SELECT event FROM job WHERE state = $1 AND (NOT behind OR $1 IN ('held', 'dead')) LIMIT $2)
    UNION ALL (SELECT event FROM job WHERE behind AND $1 NOT IN ('held', 'dead') LIMIT $2)";

/// The events of source $1, $2 at most, by the index of the unique ids.
const FEW_OF_SOURCE: &str = "SELECT row AS event FROM event WHERE source = $1 LIMIT $2";

/// A few rows: one per configured secret.
const SECRETS: &str =
    "SELECT source, reference, last_matched_at FROM secret_use ORDER BY source, reference";

type Values<'a> = Vec<&'a (dyn ToSql + Sync)>;

impl Admin {
    /// A page of events, newest first.
    pub async fn events(&self, filter: EventFilter) -> Result<Page<EventRow>, Error> {
        let limit = self.page_limit(filter.limit)?;
        let mut reading = self.listing(limit).await?;
        let before = filter.before.map_or(i64::MAX, |before| before.0);
        let page = newest_events(&mut reading, &filter, before, limit).await?;
        let Page { rows, next, looked_back_to } = page;
        Ok(Page { rows: with_jobs(&mut reading, rows).await?, next, looked_back_to })
    }

    /// A page of jobs, newest first.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Page<JobRow>, Error> {
        let limit = self.page_limit(filter.limit)?;
        let mut reading = self.listing(limit).await?;
        let before = filter.before.map_or(i64::MAX, |before| before.0);
        let walked = filter.state.filter(|state| matches!(state, State::Held | State::Dead));
        let walked = walked.map(State::as_str);
        let few = match walked {
            Some(_) => None,
            None => few(&mut reading, filter.state, filter.source.as_ref()).await?,
        };
        let of = JobValues::of(&filter);
        let window: Values<'_> = vec![&before, &PAGE_LOOK_ROWS, &few, &walked];
        page(&mut reading, &JOBS, (window, of.values()), (filter.since, limit), job_row).await
    }

    /// A page of the audit list, newest first.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Page<AuditRow>, Error> {
        let limit = self.page_limit(filter.limit)?;
        let mut reading = self.listing(limit).await?;
        let before = filter.before.map_or(i64::MAX, |before| before.0);
        let (verb, since) = (filter.verb.map(AuditVerb::as_str), filter.since.map(|at| at.0));
        let values: (Values<'_>, Values<'_>) =
            (vec![&before, &PAGE_LOOK_ROWS], vec![&verb, &since]);
        page(&mut reading, &AUDIT, values, (filter.since, limit), audit_row).await
    }

    /// When each secret last matched.
    pub async fn secrets(&self) -> Result<Vec<SecretUse>, Error> {
        secrets(&mut self.look().read().await?).await
    }
}

pub(super) async fn secrets(reading: &mut Reading<'_>) -> Result<Vec<SecretUse>, Error> {
    let read = |row: &Row| {
        Ok(SecretUse {
            source: row.word("source")?,
            reference: row.value("reference")?,
            last_matched_at: row.time("last_matched_at")?,
        })
    };
    reading.all(SECRETS, &[], read).await
}

/// A page of the events before this row.
pub(super) async fn newest_events(
    reading: &mut Reading<'_>,
    filter: &EventFilter,
    before: i64,
    limit: i64,
) -> Result<Page<ListedEvent>, Error> {
    let few = few(reading, filter.state, filter.source.as_ref()).await?;
    let of = EventValues::of(filter);
    let window: Values<'_> = vec![&before, &PAGE_LOOK_ROWS, &few];
    page(reading, &EVENTS, (window, of.values()), (filter.since, limit), event_row).await
}

/// The events in question, where they are few by the state of their jobs or by their source.
async fn few(
    reading: &mut Reading<'_>,
    state: Option<State>,
    source: Option<&Name>,
) -> Result<Option<Vec<i64>>, Error> {
    let state = state.filter(|state| !matches!(state, State::Succeeded | State::Dropped));
    let looks =
        [(FEW_OF_STATE, state.map(State::as_str)), (FEW_OF_SOURCE, source.map(Name::as_str))];
    for (sql, value) in looks {
        let Some(value) = value else { continue };
        let read = |row: &Row| row.value("event");
        let events: Vec<i64> = reading.all(sql, &[&value, &(FEW_ROWS + 1)], read).await?;
        if events.len() as i64 <= FEW_ROWS {
            return Ok(Some(events));
        }
    }
    Ok(None)
}

async fn page<T>(
    reading: &mut Reading<'_>,
    listing: &Listing,
    (window, filters): (Values<'_>, Values<'_>),
    (since, limit): (Option<Timestamp>, i64),
    read: fn(&Row) -> Result<T, Error>,
) -> Result<Page<T>, Error> {
    let one_more = limit.saturating_add(1);
    let values: Values<'_> = [&window[..], &filters, &[&one_more]].concat();
    let mut found = reading.rows(listing.page, &values).await?;
    let is_full = found.len() as i64 > limit;
    if is_full {
        found.pop();
    }
    let rows = found.iter().map(read).collect::<Result<_, _>>()?;
    let (mut next, mut looked_back_to) = (None, None);
    if let Some(last) = found.last().filter(|_| is_full) {
        (next, looked_back_to) = (Some(last.value("row")?), Some(last.time(listing.time)?));
    } else if let Some(seen) = reading.row(listing.window, &window).await? {
        let is_older = seen.maybe_time("latest")?.zip(since).is_some_and(|(at, since)| at < since);
        if seen.value::<i64>("looked_at")? == PAGE_LOOK_ROWS && !is_older {
            (next, looked_back_to) = (seen.value("oldest")?, seen.maybe_time("oldest_at")?);
        }
    }
    Ok(Page { rows, next: next.map(PageCursor), looked_back_to })
}

/// The values of [`event_filters!`].
pub(super) struct EventValues<'a> {
    source: Option<&'a str>,
    event_type: Option<String>,
    since: Option<i64>,
    handler: Option<&'a str>,
    state: Option<&'static str>,
}

impl<'a> EventValues<'a> {
    pub(super) fn of(filter: &'a EventFilter) -> Self {
        EventValues {
            source: filter.source.as_ref().map(Name::as_str),
            event_type: filter.event_type.as_deref().map(like),
            since: filter.since.map(|at| at.0),
            handler: filter.handler.as_ref().map(Name::as_str),
            state: filter.state.map(State::as_str),
        }
    }

    pub(super) fn values(&self) -> Values<'_> {
        vec![&self.source, &self.event_type, &self.since, &self.handler, &self.state]
    }
}

/// The values of [`job_filters!`].
pub(super) struct JobValues<'a> {
    handler: Option<&'a str>,
    reason: Option<String>,
    last_detail: Option<String>,
    since: Option<i64>,
    source: Option<&'a str>,
    event_type: Option<String>,
    state: Option<&'static str>,
}

impl<'a> JobValues<'a> {
    pub(super) fn of(filter: &'a JobFilter) -> Self {
        JobValues {
            handler: filter.handler.as_ref().map(Name::as_str),
            reason: filter.reason.as_deref().map(text),
            last_detail: filter.last_detail.as_deref().map(text),
            since: filter.since.map(|at| at.0),
            source: filter.source.as_ref().map(Name::as_str),
            event_type: filter.event_type.as_deref().map(like),
            state: filter.state.map(State::as_str),
        }
    }

    pub(super) fn values(&self) -> Values<'_> {
        let [handler, source] = [&self.handler, &self.source];
        let [reason, last_detail, event_type] = [&self.reason, &self.last_detail, &self.event_type];
        vec![handler, reason, last_detail, &self.since, source, event_type, &self.state]
    }
}

/// The type text has no NUL; a detail that had one was stored so.
fn text(value: &str) -> String {
    value.replace('\0', "\u{fffd}")
}

/// A pattern in which `*` stands for any run of characters, and everything else for itself.
fn like(pattern: &str) -> String {
    let mut like = String::with_capacity(pattern.len());
    for character in text(pattern).chars() {
        match character {
            '*' => like.push('%'),
            '%' | '_' | '\\' => like.extend(['\\', character]),
            other => like.push(other),
        }
    }
    like
}

fn audit_row(row: &Row) -> Result<AuditRow, Error> {
    let subject = serde_json::from_str(row.value("subject")?);
    Ok(AuditRow {
        at: row.time("at")?,
        verb: row.word("verb")?,
        subject: subject.map_err(|error| unreadable("subject", error))?,
        count: row.number("count")?,
        result: row.value("result")?,
        reason: row.value("reason")?,
        uid: row.number("uid")?,
        name: row.value("name")?,
        via: row.word("via")?,
    })
}
