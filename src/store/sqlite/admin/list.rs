//! Reads: short transactions on blocking threads. In WAL with full flushes a reader sees flushed commits
//! only (S3).
//!
//! Listings have two connections to themselves: a slow one does not hold up another. A page of one looks at a
//! bounded number of rows, even where its filter matches few, and says where to go on. It is interrupted after
//! `list_millis`; look-ups and `status` do not wait for it.

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::model::{EventId, JobId, Name, Timestamp};
use crate::store::border::{
    Error, EventFilter, EventRow, JobFilter, JobRow, Page, PageCursor, SecretUse,
};
use crate::store::columns::{FromRow, Numbered};
use crate::store::decide::listing::{ListedEvent, page_limit};
use crate::store::sqlite::tables::codec;

use super::clauses::{Clauses, Walk};
use super::handle::Admin;

impl Admin {
    pub async fn events(&self, filter: EventFilter) -> Result<Page<EventRow>, Error> {
        let limit = page_limit(&self.engine.settings.limits, filter.limit)?;
        let query = move |conn: &Connection| {
            let Page { rows, next, looked_back_to } = newest_events(conn, &filter, limit)?;
            let rows = rows.into_iter().map(|event| with_jobs(conn, event));
            Ok(Page { rows: rows.collect::<rusqlite::Result<_>>()?, next, looked_back_to })
        };
        self.engine.list(limit, query).await
    }

    pub async fn jobs(&self, filter: JobFilter) -> Result<Page<JobRow>, Error> {
        let limit = page_limit(&self.engine.settings.limits, filter.limit)?;
        let query = move |conn: &Connection| {
            let mut clauses = Clauses::default();
            clauses.job(conn, &filter)?;
            JOBS.page(conn, &clauses, (filter.since, filter.before), limit)
        };
        self.engine.list(limit, query).await
    }

    pub async fn secrets(&self) -> Result<Vec<SecretUse>, Error> {
        // A few rows: one per configured secret.
        const SECRETS: &str =
            "SELECT source, reference, last_matched_at FROM secret_use ORDER BY source, reference";
        self.engine.read(|conn| codec::all(conn, SECRETS, [])).await
    }
}

/// The columns of a [`ListedEvent`].
pub(crate) const EVENT: &str =
    "SELECT e.source, e.event_id, e.variant, e.type AS event_type, e.raw_type, e.received_at,
    e.body_bytes, e.duplicates, e.last_duplicate_at, e.conflicts, e.flagged,
    EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row) AS payload_kept, e.row AS row, e.digest,
    e.removed_succeeded, e.removed_dropped FROM event e";

/// The columns of a [`JobRow`]. A changed byte may have left a job without its event.
pub(crate) const JOB: &str = "SELECT j.id AS job, e.source, e.event_id, e.type AS event_type, j.handler, j.state,
    j.reason, j.attempt, j.replays, j.created_at, j.due_at, j.settled_at,
    EXISTS (SELECT 1 FROM paused p WHERE p.handler = j.handler) AS paused,
    CASE j.state WHEN 'dead' THEN j.settled_at WHEN 'held' THEN max(j.since, coalesce(a.finished_at, 0)) END
        AS stopped_at,
    nullif(a.detail, '') AS last_detail, j.row AS row, j.detail AS detail, j.group_key AS \"group\", j.behind,
    j.superseded_by
    FROM job j LEFT JOIN event e ON e.row = j.event
        LEFT JOIN attempt a ON a.job = j.row AND a.number = j.attempt";

/// An event's variants, the first one first: `?1` is its source, `?2` its id in stored form. By the unique
/// (source, id, variant), which cannot find an id without its source.
pub(crate) fn by_id(select: &str) -> String {
    format!("{select} WHERE e.source = ?1 AND e.event_id = ?2 ORDER BY e.variant")
}

/// The next source by name, from the index of the unique ids.
pub(crate) const NEXT_SOURCE: &str = "SELECT min(source) FROM event WHERE source > ?1";

/// This source, or each that has an event, by name: one look at an index for each.
pub(crate) fn sources(conn: &Connection, only: Option<Name>) -> rusqlite::Result<Vec<Name>> {
    only.map_or_else(|| codec::names(conn, NEXT_SOURCE), |only| Ok(vec![only]))
}

/// What `select` finds of the events with this id, of one source or of all.
pub(crate) fn find_by_id<T>(
    conn: &Connection,
    source: Option<Name>,
    event: &EventId,
    (select, read): (&str, fn(&Row<'_>) -> rusqlite::Result<T>),
) -> rusqlite::Result<Vec<T>> {
    let mut found = Vec::new();
    for source in sources(conn, source)? {
        let mut select = conn.prepare_cached(&by_id(select))?;
        let key = params![source.as_str(), codec::stored_id(event)];
        found.extend(select.query_map(key, read)?.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    Ok(found)
}

/// A table whose rows are in the order of arrival, but for corrections of the clock.
pub(crate) struct Arrivals {
    pub(super) select: &'static str,
    pub(super) row: &'static str,
    /// The statement for its first and its last row, by the primary key.
    pub(crate) ends: &'static str,
    /// The statement for the latest time in rows `?1` to `?2`, by the primary key.
    pub(crate) latest: &'static str,
    /// The statement for the time of the first row from `?1` on, by the primary key.
    pub(super) time: &'static str,
}

pub(crate) const EVENTS: Arrivals = Arrivals {
    select: EVENT,
    row: "e.row",
    ends: "SELECT coalesce((SELECT min(row) FROM event), 0), coalesce((SELECT max(row) FROM event), 0)",
    latest: "SELECT max(received_at) FROM event WHERE row BETWEEN ?1 AND ?2",
    time: "SELECT received_at FROM event WHERE row >= ?1 ORDER BY row LIMIT 1",
};

pub(crate) const JOBS: Arrivals = Arrivals {
    select: JOB,
    row: "j.row",
    ends: "SELECT coalesce((SELECT min(row) FROM job), 0), coalesce((SELECT max(row) FROM job), 0)",
    latest: "SELECT max(created_at) FROM job WHERE row BETWEEN ?1 AND ?2",
    time: "SELECT created_at FROM job WHERE row >= ?1 ORDER BY row LIMIT 1",
};

impl Arrivals {
    /// What lists a range of rows, newest first: the last three values are its first and last row, and the limit.
    pub(crate) fn sql(&self, clauses: &Clauses) -> String {
        let (select, row, next) = (self.select, self.row, clauses.values.len() + 1);
        // With the plus SQLite does not walk over the range where another index has few rows.
        let plus = if matches!(clauses.walk, Walk::Few) { "+" } else { "" };
        let range = format!("{plus}{row} BETWEEN ?{next} AND ?{}", next + 1);
        let filters: Vec<&str> =
            clauses.clauses.iter().chain([&range]).map(String::as_str).collect();
        let filters = filters.join(" AND ");
        format!("{select} WHERE {filters} ORDER BY {row} DESC LIMIT ?{}", next + 2)
    }

    /// Lists a page of them. No index has the times, so with `since` the walk ends behind a page whose rows are
    /// all older.
    pub(super) fn page<T: FromRow>(
        &self,
        conn: &Connection,
        clauses: &Clauses,
        (since, before): (Option<Timestamp>, Option<PageCursor>),
        limit: i64,
    ) -> rusqlite::Result<Page<T>> {
        let (first, newest): (i64, i64) =
            conn.prepare_cached(self.ends)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let last = before.map_or(newest, |before| before.0.saturating_sub(1).min(newest));
        let from = clauses.first_row(conn, last)?.max(first);
        let range = [from, last, limit];
        let values = clauses.values().into_iter();
        let values = values.chain(range.iter().map(|number| number as &dyn ToSql));
        let found = conn
            .prepare_cached(&self.sql(clauses))?
            .query_map(rusqlite::params_from_iter(values), codec::read)?
            .collect::<rusqlite::Result<Vec<Numbered<T>>>>()?;
        let is_full = found.len() as i64 >= limit;
        let end = found.last().filter(|_| is_full).map_or(from, |last| last.row);
        let mut is_over = end <= first;
        if let (Some(since), Walk::Table, false) = (since, &clauses.walk, is_full || is_over) {
            let latest: Option<i64> =
                conn.prepare_cached(self.latest)?.query_row([from, last], |row| row.get(0))?;
            is_over = latest.is_some_and(|latest| latest < since.0);
        }
        let mut page = Page { rows: Vec::new(), next: None, looked_back_to: None };
        page.rows.extend(found.into_iter().map(|found| found.of));
        if !is_over {
            page.next = Some(PageCursor(end));
            let time = conn.prepare_cached(self.time)?.query_row([end], |row| codec::time(row, 0));
            page.looked_back_to = time.optional()?;
        }
        Ok(page)
    }
}

pub(crate) fn newest_events(
    conn: &Connection,
    filter: &EventFilter,
    limit: i64,
) -> rusqlite::Result<Page<ListedEvent>> {
    let mut clauses = Clauses::default();
    clauses.event(conn, filter)?;
    EVENTS.page(conn, &clauses, (filter.since, filter.before), limit)
}

pub(crate) fn with_jobs(conn: &Connection, listed: ListedEvent) -> rusqlite::Result<EventRow> {
    // Its jobs, by the unique (event, handler); none where they were removed.
    const JOBS: &str = "SELECT handler, state FROM job WHERE event = ?1 ORDER BY handler";
    let jobs = codec::all(conn, JOBS, [listed.row])?;
    Ok(listed.with_jobs(jobs))
}

/// The job with this id.
pub(crate) fn find_row(conn: &Connection, job: JobId) -> rusqlite::Result<Option<JobRow>> {
    // By the unique id.
    Ok(codec::all(conn, &format!("{JOB} WHERE j.id = ?1"), [job.as_bytes()])?.pop())
}
