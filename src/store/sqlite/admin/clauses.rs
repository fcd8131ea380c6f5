//! The conditions of a listing as SQL, and which index serves them.

use rusqlite::types::{ToSql, Value};
use rusqlite::{Connection, OptionalExtension, Params};

use crate::limits::PAGE_LOOK_ROWS;
use crate::model::{AuditVerb, Name, State, Timestamp};
use crate::store::border::{AuditFilter, EventFilter, JobFilter};

/// What a listing walks over.
#[derive(Default)]
pub(super) enum Walk {
    /// The rows of the table.
    #[default]
    Table,
    /// The index of the jobs in this state, in the order of rows.
    StateIndex(State),
    /// The index of the jobs of a cause, in the order of rows, of which a listing shows all.
    CauseIndex,
    /// So few rows that they are all taken from an index.
    Few,
}

/// So few rows are all taken from an index and put in order; among more of them the newest are soon met on
/// the way back through the table.
const FEW_ROWS: i64 = 5_000;

/// What the last attempt of a job said at its end: one look at the primary key of the attempts.
const LAST_DETAIL: &str =
    "coalesce((SELECT l.detail FROM attempt l WHERE l.job = j.row AND l.number = j.attempt), '')";

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
        // Written out: a partial index serves a literal only. The text is a literal of this program, never user input.
        state => format!("SELECT row FROM job WHERE state = '{state}'"),
    };
    Ok(few(conn, &rows, [])?.then_some(rows))
}

/// The WHERE of a listing: only the conditions that the filter has, so that an index can serve them.
#[derive(Default)]
pub(crate) struct Clauses {
    pub(super) clauses: Vec<String>,
    pub(super) values: Vec<Value>,
    pub(super) walk: Walk,
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
        let mut of_handler = String::new();
        if let Some(handler) = &filter.handler {
            self.values.push(Value::Text(handler.to_string()));
            of_handler = format!(" AND j.handler = ?{}", self.values.len());
        }
        let has = format!("EXISTS (SELECT 1 FROM job j WHERE j.event = e.row{of_handler}");
        match filter.state {
            None if of_handler.is_empty() => {}
            None => self.raw(&format!("{has})")),
            Some(state) => {
                if let Some(rows) = few_jobs(conn, state)? {
                    let events = format!("SELECT event FROM job j WHERE row IN ({rows})");
                    self.raw(&format!("e.row IN ({events}{of_handler})"));
                    self.walk = Walk::Few;
                    return Ok(());
                }
                let has = format!("{has} AND j.state = '{state}')");
                let is_counted = matches!(state, State::Succeeded | State::Dropped);
                self.raw(&match is_counted && of_handler.is_empty() {
                    true => format!("({has} OR e.removed_{state} > 0)"),
                    false => has,
                });
            }
        }
        Ok(())
    }

    /// What a listing of jobs asks for.
    pub(crate) fn job(&mut self, conn: &Connection, filter: &JobFilter) -> rusqlite::Result<()> {
        self.clauses.extend(filter.state.map(|state| format!("j.state = '{state}'")));
        let is_cause = filter.handler.is_some() && filter.reason.is_some();
        match filter.state {
            Some(state @ (State::Held | State::Dead)) => {
                // The index of causes has all jobs of a cause in the order of rows, so the first ones are a page,
                // unless another condition leaves some of them out.
                let others = filter.source.is_some() || filter.event_type.is_some();
                let others = others || filter.last_detail.is_some() || filter.since.is_some();
                let is_all = is_cause && !others;
                self.walk = if is_all { Walk::CauseIndex } else { Walk::StateIndex(state) };
            }
            Some(state @ (State::Ready | State::Waiting | State::Running)) => {
                if let Some(rows) = few_jobs(conn, state)? {
                    self.raw(&format!("j.row IN ({rows})"));
                    self.walk = Walk::Few;
                }
            }
            Some(State::Succeeded | State::Dropped) | None => {}
        }
        // With the plus SQLite does not read and sort all held or dead jobs of the handler.
        let is_walk = matches!(self.walk, Walk::StateIndex(_)) && !is_cause;
        let column = if is_walk { "+j.handler" } else { "j.handler" };
        self.equals(column, filter.handler.as_ref().map(Name::as_str));
        self.equals("j.reason", filter.reason.as_deref());
        self.equals(LAST_DETAIL, filter.last_detail.as_deref());
        self.from("j.created_at", filter.since);
        self.source(conn, filter.source.as_ref())?;
        self.like("e.type", filter.event_type.as_deref());
        Ok(())
    }

    /// What a listing of the audit list asks for.
    pub(super) fn audit(&mut self, filter: &AuditFilter) {
        self.equals("a.verb", filter.verb.map(AuditVerb::as_str));
        self.from("a.at", filter.since);
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
    pub(super) fn first_row(&self, conn: &Connection, last: i64) -> rusqlite::Result<i64> {
        let state = match self.walk {
            Walk::Few | Walk::CauseIndex => return Ok(i64::MIN),
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

    /// Adds the condition that rows are behind this one.
    pub(crate) fn after(&mut self, column: &str, row: i64) {
        self.push(column, ">", Some(Value::Integer(row)));
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

    /// Adds the condition that a text is exactly the pattern, or matches it with `*` for any run of characters. GLOB's
    /// other signs are made to mean themselves.
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

    /// The WHERE clause. There must be at least one condition.
    pub(crate) fn sql(&self) -> String {
        format!("WHERE {}", self.clauses.join(" AND "))
    }

    pub(crate) fn values(&self) -> Vec<&dyn ToSql> {
        self.values.iter().map(|value| value as &dyn ToSql).collect()
    }
}
