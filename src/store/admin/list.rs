//! Reads: short transactions on blocking threads. In WAL with full flushes a reader sees flushed commits
//! only (S3).
//!
//! Listings have two connections to themselves: a slow one does not hold up another. A page of one looks at a
//! bounded number of rows, even where its filter matches few, and says where to go on. It is interrupted after
//! `list_millis`; look-ups and `status` do not wait for it.

use rusqlite::types::{ToSql, Type, Value};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::model::{Blob, Digest, EventId, Name, State, Timestamp};
use crate::store::rows::{
    AttemptRow, EventDetail, EventFilter, EventRow, FormerKey, JobDetail, JobFilter, JobRow, Page,
    PageCursor, SecretUse,
};
use crate::store::tables::{answer, codec, replay_index, restored};
use crate::store::types::{Captured, Error, Record, Usage};

use super::handle::Admin;

impl Admin {
    /// A page of events, newest first.
    pub async fn event_page(&self, filter: EventFilter) -> Result<Page<EventRow>, Error> {
        let limit = self.engine.list_limit(filter.limit);
        let query = move |conn: &Connection| {
            let Page { rows, next, looked_back_to } = newest_events(conn, &filter, limit)?;
            let rows = rows.into_iter().map(|event| with_jobs(conn, event));
            Ok(Page { rows: rows.collect::<rusqlite::Result<_>>()?, next, looked_back_to })
        };
        self.engine.list(limit, query).await
    }

    /// Events, newest first: all pages, up to the limit.
    pub async fn events(&self, mut filter: EventFilter) -> Result<Vec<EventRow>, Error> {
        let limit = usize::try_from(self.engine.list_limit(filter.limit)).unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        loop {
            filter.limit = Some(limit - rows.len());
            let page = self.event_page(filter.clone()).await?;
            rows.extend(page.rows);
            filter.before = page.next;
            if filter.before.is_none() || rows.len() >= limit {
                return Ok(rows);
            }
        }
    }

    /// Everything about the events with this id (several: variants, or several sources).
    pub async fn show(
        &self,
        source: Option<Name>,
        event: EventId,
    ) -> Result<Vec<EventDetail>, Error> {
        self.engine
            .read(move |conn| {
                let mut events = Vec::new();
                for source in sources(conn, source)? {
                    let mut select = conn.prepare_cached(&by_id(EVENT))?;
                    let key = params![source.as_str(), codec::stored_id(&event)];
                    let found = select.query_map(key, event_row)?;
                    events.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
                }
                events.into_iter().map(|event| detail(conn, event)).collect()
            })
            .await
    }

    /// A page of jobs, newest first.
    pub async fn job_page(&self, filter: JobFilter) -> Result<Page<JobRow>, Error> {
        let limit = self.engine.list_limit(filter.limit);
        self.engine.list(limit, move |conn| newest_jobs(conn, &filter, limit)).await
    }

    /// Jobs, newest first: all pages, up to the limit.
    pub async fn jobs(&self, mut filter: JobFilter) -> Result<Vec<JobRow>, Error> {
        let limit = usize::try_from(self.engine.list_limit(filter.limit)).unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        loop {
            filter.limit = Some(limit - rows.len());
            let page = self.job_page(filter.clone()).await?;
            rows.extend(page.rows);
            filter.before = page.next;
            if filter.before.is_none() || rows.len() >= limit {
                return Ok(rows);
            }
        }
    }

    /// When each secret last matched.
    pub async fn secrets(&self) -> Result<Vec<SecretUse>, Error> {
        self.engine.read(|conn| {
            // A few rows: one per configured secret.
            conn.prepare_cached(
                "SELECT source, reference, last_matched_at FROM secret_use ORDER BY source, reference",
            )?
            .query_map([], |row| {
                Ok(SecretUse {
                    source: codec::text(row, 0)?,
                    reference: row.get(1)?,
                    last_matched_at: codec::time(row, 2)?,
                })
            })?
            .collect()
        })
        .await
    }
}

/// The columns of [`event_row`].
pub(crate) const EVENT: &str =
    "SELECT e.source, e.event_id, e.variant, e.type, e.raw_type, e.received_at,
    e.body_bytes, e.duplicates, e.last_duplicate_at, e.conflicts, e.flagged,
    EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row), e.row AS row, e.digest,
    e.removed_succeeded, e.removed_dropped FROM event e";

/// The columns of [`job_row`].
pub(crate) const JOB: &str = "SELECT j.id, e.source, e.event_id, e.type, j.handler, j.state, j.reason,
    j.attempt, j.replays, j.created_at, j.due_at, j.settled_at,
    EXISTS (SELECT 1 FROM paused p WHERE p.handler = j.handler),
    CASE j.state WHEN 'dead' THEN j.settled_at WHEN 'held' THEN max(j.since, coalesce(a.finished_at, 0)) END,
    nullif(a.detail, ''), j.row AS row
    FROM job j JOIN event e ON e.row = j.event
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
    if let Some(only) = only {
        return Ok(vec![only]);
    }
    let mut select = conn.prepare_cached(NEXT_SOURCE)?;
    let mut found: Vec<Name> = Vec::new();
    loop {
        let after = found.last().map_or("", Name::as_str);
        match select.query_row([after], |row| codec::maybe_text(row, 0))? {
            Some(next) => found.push(next),
            None => return Ok(found),
        }
    }
}

/// Most rows that one page of a listing looks at: some 50 ms of reading.
pub(super) const PAGE_LOOK_ROWS: i64 = 50_000;

/// A table whose rows are in the order of arrival, but for corrections of the clock.
pub(crate) struct Arrivals {
    select: &'static str,
    row: &'static str,
    /// By the primary key: its first and its last row.
    pub(crate) ends: &'static str,
    /// By the primary key: the latest time in rows `?1` to `?2`.
    pub(crate) latest: &'static str,
    /// By the primary key: the time of the first row from `?1` on.
    time: &'static str,
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
    fn page<T>(
        &self,
        conn: &Connection,
        clauses: &Clauses,
        (since, before): (Option<Timestamp>, Option<PageCursor>),
        limit: i64,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
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
            .query_map(rusqlite::params_from_iter(values), |row| Ok((row.get("row")?, read(row)?)))?
            .collect::<rusqlite::Result<Vec<(i64, T)>>>()?;
        let is_full = found.len() as i64 >= limit;
        let end = found.last().filter(|_| is_full).map_or(from, |(row, _)| *row);
        let mut is_over = end <= first;
        if let (Some(since), Walk::Table, false) = (since, &clauses.walk, is_full || is_over) {
            let latest: Option<i64> =
                conn.prepare_cached(self.latest)?.query_row([from, last], |row| row.get(0))?;
            is_over = latest.is_some_and(|latest| latest < since.0);
        }
        let mut page = Page { rows: Vec::new(), next: None, looked_back_to: None };
        page.rows.extend(found.into_iter().map(|(_, row)| row));
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
    EVENTS.page(conn, &clauses, (filter.since, filter.before), limit, event_row)
}

fn newest_jobs(
    conn: &Connection,
    filter: &JobFilter,
    limit: i64,
) -> rusqlite::Result<Page<JobRow>> {
    let mut clauses = Clauses::default();
    clauses.job(conn, filter)?;
    JOBS.page(conn, &clauses, (filter.since, filter.before), limit, job_row)
}

/// What a listing walks over.
#[derive(Default)]
enum Walk {
    /// The rows of the table.
    #[default]
    Table,
    /// The index of the jobs in this state, in the order of rows.
    StateIndex(State),
    /// So few rows that they are all taken from an index.
    Few,
}

/// So few rows are all taken from an index and put in order; among more of them the newest are soon met on
/// the way back through the table.
const FEW_ROWS: i64 = 5_000;

/// Whether this SELECT, of an index alone, has few rows.
fn few(conn: &Connection, rows: &str, values: impl Params) -> rusqlite::Result<bool> {
    let sql = format!("SELECT count(*) <= {FEW_ROWS} FROM ({rows} LIMIT {FEW_ROWS} + 1)");
    conn.prepare_cached(&sql)?.query_row(values, |row| row.get(0))
}

/// The rows of the jobs in this state, where an index has them and they are few.
fn few_jobs(conn: &Connection, state: State) -> rusqlite::Result<Option<String>> {
    let rows = match state {
        State::Succeeded | State::Dropped => return Ok(None),
        // No index has the running ones, but one has their live attempts.
        State::Running => "SELECT job FROM attempt WHERE outcome IS NULL".to_owned(),
        // Written out: a partial index serves a literal only. It is one of our own words.
        state => format!("SELECT row FROM job WHERE state = '{state}'"),
    };
    Ok(few(conn, &rows, [])?.then_some(rows))
}

/// An event with its row number and digest, for the queries that follow.
pub(crate) struct ListedEvent {
    pub(crate) row: i64,
    digest: Digest,
    event: EventRow,
}

pub(crate) fn event_row(row: &Row<'_>) -> rusqlite::Result<ListedEvent> {
    let removed =
        [(State::Succeeded, codec::count(row, 14)?), (State::Dropped, codec::count(row, 15)?)];
    let event = EventRow {
        source: codec::text(row, 0)?,
        event_id: codec::event_id(row, 1)?,
        variant: row.get(2)?,
        event_type: row.get(3)?,
        raw_type: row.get(4)?,
        received_at: codec::time(row, 5)?,
        body_bytes: codec::count(row, 6)?,
        duplicates: codec::count(row, 7)?,
        last_duplicate_at: codec::maybe_time(row, 8)?,
        conflicts: codec::count(row, 9)?,
        flagged: row.get(10)?,
        payload_kept: row.get(11)?,
        jobs: removed.into_iter().filter(|&(_, jobs)| jobs > 0).collect(),
    };
    Ok(ListedEvent { row: row.get("row")?, digest: Digest(row.get(13)?), event })
}

pub(crate) fn with_jobs(conn: &Connection, listed: ListedEvent) -> rusqlite::Result<EventRow> {
    let ListedEvent { row, mut event, .. } = listed;
    // How many of its jobs are in which state; none where they were removed.
    let jobs = conn
        .prepare_cached("SELECT state, count(*) FROM job WHERE event = ?1 GROUP BY state")?
        .query_map([row], |found| Ok((codec::text::<State>(found, 0)?, codec::count(found, 1)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    event.jobs.extend(jobs);
    Ok(event)
}

pub(crate) fn job_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        job: codec::job_id(row, 0)?,
        source: codec::text(row, 1)?,
        event_id: codec::event_id(row, 2)?,
        event_type: row.get(3)?,
        handler: codec::text(row, 4)?,
        state: codec::text(row, 5)?,
        reason: row.get(6)?,
        attempt: row.get(7)?,
        replays: row.get(8)?,
        created_at: codec::time(row, 9)?,
        due_at: codec::maybe_time(row, 10)?,
        settled_at: codec::maybe_time(row, 11)?,
        paused: row.get(12)?,
        broken: None,
        stopped_at: codec::maybe_time(row, 13)?,
        last_detail: row.get(14)?,
    })
}

fn detail(conn: &Connection, listed: ListedEvent) -> rusqlite::Result<EventDetail> {
    let (row, digest) = (listed.row, listed.digest);
    let event = with_jobs(conn, listed)?;
    let bytes = usize::try_from(event.body_bytes).unwrap_or(0);
    let (headers, body) = payload(conn, row, bytes)?;
    // Its jobs in the order of their making.
    let jobs = conn
        .prepare_cached(&format!("{JOB} WHERE j.event = ?1 ORDER BY j.row"))?
        .query_map([row], |found| Ok((job_row(found)?, found.get("row")?)))?
        .collect::<rusqlite::Result<Vec<(JobRow, i64)>>>()?;
    let jobs = jobs
        .into_iter()
        .map(|(job, row)| {
            let (attempts, former_keys) = (attempts(conn, row)?, former_keys(conn, row)?);
            Ok(JobDetail { job, attempts, former_keys })
        })
        .collect::<rusqlite::Result<_>>()?;
    let twins = replay_index::twins(conn, &event.source, digest, row)?;
    // Those of a backup in which the event was.
    let restores = restored::restores(conn, event.received_at, None)?;
    let (body, key) = (body.map(Blob), answer::key_row(conn, row)?);
    let digest = digest.to_string();
    Ok(EventDetail { event, digest, headers, body, jobs, twins, restores, key })
}

type Payload = (Vec<(String, String)>, Option<Vec<u8>>);

fn payload(conn: &Connection, event: i64, bytes: usize) -> rusqlite::Result<Payload> {
    // None once retention has deleted it.
    let mut select = conn.prepare_cached("SELECT headers, body FROM payload WHERE event = ?1")?;
    let mut rows = select.query([event])?;
    let Some(row) = rows.next()? else { return Ok((Vec::new(), None)) };
    let body = codec::decompress_now(row.get_ref(1)?.as_blob()?, bytes)
        .map_err(|error| codec::unreadable(1, Type::Blob, error))?;
    Ok((codec::header_lines(row.get_ref(0)?.as_blob()?), Some(body)))
}

fn former_keys(conn: &Connection, job: i64) -> rusqlite::Result<Vec<FormerKey>> {
    // All that the job ever had but its present one; two are never replaced after the same attempt
    // at the same moment, and keys are in the order of their making.
    conn.prepare_cached(
        "SELECT id, attempt, replaced_at FROM former_key WHERE job = ?1 ORDER BY attempt, id",
    )?
    .query_map([job], |row| {
        Ok(FormerKey {
            key: codec::job_id(row, 0)?,
            attempt: row.get(1)?,
            replaced_at: codec::time(row, 2)?,
        })
    })?
    .collect()
}

fn attempts(conn: &Connection, job: i64) -> rusqlite::Result<Vec<AttemptRow>> {
    // All attempts of one job by number.
    conn.prepare_cached(
        "SELECT number, started_at, finished_at, outcome, detail, exit_code, signal, http_status,
             stdout_head, stdout_tail, stdout_total, stderr_head, stderr_tail, stderr_total,
             cpu_millis, memory_bytes
         FROM attempt WHERE job = ?1 ORDER BY number",
    )?
    .query_map([job], |row| {
        let captured = |from: usize| {
            Ok::<_, rusqlite::Error>(Captured {
                head: Blob(row.get(from)?),
                tail: Blob(row.get(from + 1)?),
                total: codec::count(row, from + 2)?,
            })
        };
        let usage = match row.get::<_, Option<i64>>(14)? {
            Some(_) => {
                let (cpu_millis, memory_bytes) = (codec::count(row, 14)?, codec::count(row, 15)?);
                Some(Usage { cpu_millis, memory_bytes })
            }
            None => None,
        };
        Ok(AttemptRow {
            number: row.get(0)?,
            started_at: codec::time(row, 1)?,
            finished_at: codec::maybe_time(row, 2)?,
            outcome: codec::maybe_text(row, 3)?,
            record: Record {
                ended_at: None,
                detail: row.get(4)?,
                exit_code: row.get(5)?,
                signal: row.get(6)?,
                http_status: row.get(7)?,
                stdout: captured(8)?,
                stderr: captured(11)?,
                usage,
            },
        })
    })?
    .collect()
}

/// The WHERE of a listing: only the conditions that the filter has, so that an index can serve them.
#[derive(Default)]
pub(crate) struct Clauses {
    clauses: Vec<String>,
    values: Vec<Value>,
    walk: Walk,
}

impl Clauses {
    /// What a listing of events asks for.
    pub(crate) fn event(
        &mut self,
        conn: &Connection,
        filter: &EventFilter,
    ) -> rusqlite::Result<()> {
        self.source(conn, filter.source.as_ref())?;
        self.like("e.type", filter.event_type.as_deref());
        self.from("e.received_at", filter.since);
        let Some(state) = filter.state else { return Ok(()) };
        if let Some(rows) = few_jobs(conn, state)? {
            self.raw(&format!("e.row IN (SELECT event FROM job WHERE row IN ({rows}))"));
            self.walk = Walk::Few;
            return Ok(());
        }
        let has =
            format!("EXISTS (SELECT 1 FROM job j WHERE j.event = e.row AND j.state = '{state}')");
        self.clauses.push(match state {
            State::Succeeded | State::Dropped => format!("({has} OR e.removed_{state} > 0)"),
            _ => has,
        });
        Ok(())
    }

    /// What a listing of jobs asks for.
    pub(crate) fn job(&mut self, conn: &Connection, filter: &JobFilter) -> rusqlite::Result<()> {
        self.clauses.extend(filter.state.map(|state| format!("j.state = '{state}'")));
        match filter.state {
            Some(state @ (State::Held | State::Dead)) => self.walk = Walk::StateIndex(state),
            Some(state @ (State::Ready | State::Waiting | State::Running)) => {
                if let Some(rows) = few_jobs(conn, state)? {
                    self.raw(&format!("j.row IN ({rows})"));
                    self.walk = Walk::Few;
                }
            }
            Some(State::Succeeded | State::Dropped) | None => {}
        }
        self.equals("j.handler", filter.handler.as_ref().map(Name::as_str));
        self.equals("j.reason", filter.reason.as_deref());
        self.from("j.created_at", filter.since);
        self.source(conn, filter.source.as_ref())?;
        self.like("e.type", filter.event_type.as_deref());
        Ok(())
    }

    /// Only of this source. The index of unique ids leads to a source's events in another order than that of
    /// their arrival: with the plus SQLite does not use it.
    fn source(&mut self, conn: &Connection, source: Option<&Name>) -> rusqlite::Result<()> {
        let Some(source) = source.map(Name::as_str) else { return Ok(()) };
        let few = few(conn, "SELECT 1 FROM event WHERE source = ?1", [source])?;
        if few && matches!(self.walk, Walk::Table) {
            self.walk = Walk::Few;
        }
        self.equals(if few { "e.source" } else { "+e.source" }, Some(source));
        Ok(())
    }

    /// The first row of the page that ends with the row `last`: so many rows before it.
    fn first_row(&self, conn: &Connection, last: i64) -> rusqlite::Result<i64> {
        let state = match self.walk {
            Walk::Few => return Ok(i64::MIN),
            Walk::Table => return Ok(last.saturating_sub(PAGE_LOOK_ROWS - 1)),
            Walk::StateIndex(state) => state,
        };
        // By the index of that state, which a literal in the query lets SQLite use.
        let sql = format!(
            "SELECT row FROM job WHERE state = '{state}' AND row <= ?1
             ORDER BY row DESC LIMIT 1 OFFSET {}",
            PAGE_LOOK_ROWS - 1
        );
        let row = conn.prepare_cached(&sql)?.query_row([last], |row| row.get(0)).optional()?;
        Ok(row.unwrap_or(i64::MIN))
    }

    /// Only after this row.
    pub(crate) fn after(&mut self, column: &str, row: Option<i64>) {
        self.push(column, ">", row.map(Value::Integer));
    }

    /// A condition in our own words.
    pub(crate) fn raw(&mut self, clause: &str) {
        self.clauses.push(clause.to_owned());
    }

    fn equals(&mut self, column: &str, value: Option<&str>) {
        self.push(column, "=", value.map(|value| Value::Text(value.to_owned())));
    }

    fn from(&mut self, column: &str, time: Option<Timestamp>) {
        self.push(column, ">=", time.map(|time| Value::Integer(time.0)));
    }

    /// Exactly, or with `*` for any run of characters. GLOB's other signs are made to mean themselves.
    fn like(&mut self, column: &str, pattern: Option<&str>) {
        let Some(pattern) = pattern else { return };
        if !pattern.contains('*') {
            return self.equals(column, Some(pattern));
        }
        let escaped = pattern.replace('[', "[[]").replace('?', "[?]");
        self.push(column, "GLOB", Some(Value::Text(escaped)));
    }

    fn push(&mut self, column: &str, how: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.values.push(value);
            self.clauses.push(format!("{column} {how} ?{}", self.values.len()));
        }
    }

    pub(crate) fn sql(&self) -> String {
        if self.clauses.is_empty() {
            return String::new();
        }
        format!("WHERE {}", self.clauses.join(" AND "))
    }

    pub(crate) fn values(&self) -> Vec<&dyn ToSql> {
        self.values.iter().map(|value| value as &dyn ToSql).collect()
    }
}
