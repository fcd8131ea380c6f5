//! Pages of events, jobs and the audit list, newest first.
//!
//! A page looks back over a window of a bounded number of rows, and says where to go on. Row numbers have gaps, so a
//! window is a number of rows, and not a range of numbers.

use tokio_postgres::Row;

use crate::limits::PAGE_LOOK_ROWS;
use crate::model::{AuditVerb, Name, State, Timestamp};
use crate::store::border::{
    AuditFilter, AuditRow, Error, EventFilter, EventRow, JobFilter, JobRow, Page, PageCursor,
    SecretUse,
};

use super::super::columns::{Columns, unreadable};
use super::super::reader::Reading;
use super::filter::{EventValues, JobValues, Values, event_filters, job_filters};
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

/// The same of jobs, by their events, and by the index of state $4 where that is given. Jobs of given events are put in
/// order by their place, so that the server does not walk the whole table in the order of its numbers to find them.
macro_rules! jobs {
    () => {
        "(SELECT *, CASE WHEN $3::bigint[] IS NULL THEN row ELSE row + 0 END AS place FROM job
            WHERE CASE WHEN $3::bigint[] IS NULL THEN row ELSE row + 0 END < $1
            AND ($3::bigint[] IS NULL OR event = ANY ($3)) AND ($4::text IS NULL OR state = $4)
            ORDER BY place DESC LIMIT $2) j"
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

const JOBS: Listing = Listing {
    page: concat!(
        "SELECT ",
        job_columns!(),
        " FROM ",
        jobs!(),
        job_joins!(),
        job_filters!(),
        "ORDER BY j.place DESC LIMIT $12"
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
