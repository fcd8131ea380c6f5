//! Pages of events, jobs and the audit list, newest first.
//!
//! A page looks back over a window of a bounded number of rows, and says where to go on. Row numbers have gaps, so a
//! window is a number of rows, and not a range of numbers.

use crate::limits::PAGE_LOOK_ROWS;
use crate::model::{Name, State, Timestamp};
use crate::store::border::{
    AuditFilter, AuditRow, Error, EventFilter, EventRow, JobFilter, JobRow, Page, PageCursor,
    SecretUse,
};
use crate::store::columns::{Cells, FromRow, column};
use crate::store::decide::listing::{ListedEvent, page_limit};

use super::super::reader::Reading;
use super::filter::{
    Value, event_filters, event_values, for_events, for_jobs, job_filters, job_values,
};
use super::handle::Admin;
use super::rows::{event_columns, job_columns, job_joins, with_jobs};

/// So few rows are all taken from an index; among more of them the newest are soon met on the way back through the
/// table.
const FEW_ROWS: i64 = 5_000;

/// A table in the order of arrival, but for corrections of the clock `at`.
struct Listing {
    page: &'static str,
    /// If the page's window is full: its oldest row with its time, and the latest time.
    window: &'static str,
}

macro_rules! listing {
    ($columns:expr, $rows:literal, $filters:expr) => {
        Listing {
            page: concat!("SELECT ", $columns, " FROM ", $rows, $filters),
            window: concat!(
                "SELECT min(row), (array_agg(at ORDER BY row))[1], max(at) FROM ",
                $rows,
                " HAVING count(*) = $2"
            ),
        }
    };
}

/// The window before row $1 of $2 rows, of the events $3 where they are given.
const EVENTS: Listing = listing!(
    event_columns!(),
    "(SELECT *, received_at AS at FROM event
        WHERE row < $1 AND ($3::bigint[] IS NULL OR row = ANY ($3)) ORDER BY row DESC LIMIT $2) e",
    concat!(event_filters!(), "ORDER BY e.row DESC LIMIT $9")
);

/// The window before row $1 of $2 jobs: those of the events $3 and those in the state $4, by its index, where these are
/// given. Jobs of given events are put in order by their place, so that the server does not walk the whole table in the
/// order of its numbers to find them.
const JOBS: Listing = listing!(
    job_columns!(),
    "(SELECT *, created_at AS at,
            CASE WHEN $3::bigint[] IS NULL THEN row ELSE row + 0 END AS place FROM job
        WHERE CASE WHEN $3::bigint[] IS NULL THEN row ELSE row + 0 END < $1
        AND ($3::bigint[] IS NULL OR event = ANY ($3)) AND ($4::text IS NULL OR state = $4)
        ORDER BY place DESC LIMIT $2) j",
    concat!(job_joins!(), job_filters!(), "ORDER BY j.place DESC LIMIT $12")
);

const AUDIT: Listing = listing!(
    "*",
    "(SELECT * FROM audit WHERE row < $1 ORDER BY row DESC LIMIT $2) a",
    " WHERE ($3::text IS NULL OR a.verb = $3) AND ($4::bigint IS NULL OR a.at >= $4)
    ORDER BY a.row DESC LIMIT $5"
);

/// The events with jobs of state $1, $2 at most; or more of them. Jobs behind others of their group are few, and taken
/// all: no index has them by state.
const FEW_OF_STATE: &str = "
    (SELECT event FROM job WHERE state = $1 AND (NOT behind OR $1 IN ('held', 'dead')) LIMIT $2)
    UNION ALL (SELECT event FROM job WHERE behind AND $1 NOT IN ('held', 'dead') LIMIT $2)";

/// The events of source $1, $2 at most, by the index of the unique ids.
const FEW_OF_SOURCE: &str = "SELECT row AS event FROM event WHERE source = $1 LIMIT $2";

/// A few rows: one per configured secret.
pub(super) const SECRETS: &str =
    "SELECT source, reference, last_matched_at FROM secret_use ORDER BY source, reference";

impl Admin {
    /// A page of events, newest first.
    pub async fn events(&self, filter: EventFilter) -> Result<Page<EventRow>, Error> {
        let limit = page_limit(self.limits(), filter.limit)?;
        let mut reading = self.listing(limit).await?;
        let before = filter.before.map_or(i64::MAX, |before| before.0);
        let found = newest_events(&mut reading, &for_events(filter), before, limit).await?;
        let (next, looked_back_to) = (found.next, found.looked_back_to);
        Ok(Page { rows: with_jobs(&mut reading, found.rows).await?, next, looked_back_to })
    }

    /// A page of jobs, newest first.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Page<JobRow>, Error> {
        let limit = page_limit(self.limits(), filter.limit)?;
        let mut reading = self.listing(limit).await?;
        let before = filter.before.map_or(i64::MAX, |before| before.0);
        let walked = filter.state.filter(|state| matches!(state, State::Held | State::Dead));
        let few = match walked {
            Some(_) => None,
            None => few(&mut reading, filter.state, filter.source.as_ref()).await?,
        };
        let filter = for_jobs(filter);
        let window: [Value<'_>; 4] = [&before, &PAGE_LOOK_ROWS, &few, &walked];
        let values = (&window[..], &job_values(&filter)[..]);
        page(&mut reading, &JOBS, values, (filter.since, limit)).await
    }

    /// A page of the audit list, newest first.
    pub async fn audit(&self, filter: AuditFilter) -> Result<Page<AuditRow>, Error> {
        let limit = page_limit(self.limits(), filter.limit)?;
        let mut reading = self.listing(limit).await?;
        let before = filter.before.map_or(i64::MAX, |before| before.0);
        let window: [Value<'_>; 2] = [&before, &PAGE_LOOK_ROWS];
        let filters: [Value<'_>; 2] = [&filter.verb, &filter.since];
        page(&mut reading, &AUDIT, (&window, &filters), (filter.since, limit)).await
    }

    /// When each secret last matched.
    pub async fn secrets(&self) -> Result<Vec<SecretUse>, Error> {
        self.look().read().await?.all(SECRETS, &[]).await
    }
}

/// A page of the events before this row.
pub(super) async fn newest_events(
    reading: &mut Reading<'_>,
    filter: &EventFilter,
    before: i64,
    limit: i64,
) -> Result<Page<ListedEvent>, Error> {
    let few = few(reading, filter.state, filter.source.as_ref()).await?;
    let window: [Value<'_>; 3] = [&before, &PAGE_LOOK_ROWS, &few];
    let values = (&window[..], &event_values(filter)[..]);
    page(reading, &EVENTS, values, (filter.since, limit)).await
}

/// The events in question, where they are few by the state of their jobs or by their source.
async fn few(
    reading: &mut Reading<'_>,
    state: Option<State>,
    source: Option<&Name>,
) -> Result<Option<Vec<i64>>, Error> {
    let state = state.filter(|state| !matches!(state, State::Succeeded | State::Dropped));
    let state = state.as_ref().map(|state| (FEW_OF_STATE, state as Value<'_>));
    let source = source.map(|source| (FEW_OF_SOURCE, source as Value<'_>));
    for (sql, value) in state.into_iter().chain(source) {
        let events: Vec<(i64,)> = reading.all(sql, &[value, &(FEW_ROWS + 1)]).await?;
        if events.len() as i64 <= FEW_ROWS {
            return Ok(Some(events.into_iter().map(|(row,)| row).collect()));
        }
    }
    Ok(None)
}

/// A row with its place in a listing.
struct Placed<T> {
    row: i64,
    at: Timestamp,
    of: T,
}

impl<T: FromRow> FromRow for Placed<T> {
    fn from_row(row: &impl Cells) -> Result<Self, Error> {
        Ok(Placed { row: column(row, "row")?, at: column(row, "at")?, of: T::from_row(row)? })
    }
}

/// No index has the times, so with `since` the walk ends behind a window whose rows are all older.
async fn page<T: FromRow>(
    reading: &mut Reading<'_>,
    listing: &Listing,
    (window, filters): (&[Value<'_>], &[Value<'_>]),
    (since, limit): (Option<Timestamp>, i64),
) -> Result<Page<T>, Error> {
    let one_more = limit.saturating_add(1);
    let values = [window, filters, &[&one_more]].concat();
    let mut found: Vec<Placed<T>> = reading.all(listing.page, &values).await?;
    let mut end = None;
    if found.len() as i64 > limit {
        found.pop();
        end = found.last().map(|last| (last.row, last.at));
    } else if let Some((row, at, latest)) = reading.one(listing.window, window).await?
        && since.is_none_or(|since| since <= latest)
    {
        end = Some((row, at));
    }
    let (next, looked_back_to) = end.map(|(row, at)| (PageCursor(row), at)).unzip();
    Ok(Page { rows: found.into_iter().map(|placed| placed.of).collect(), next, looked_back_to })
}
