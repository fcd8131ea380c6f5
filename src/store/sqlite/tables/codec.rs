//! The stored forms: words, names and ids in columns.

use std::error::Error as StdError;
use std::str::FromStr;

use rusqlite::types::{Type, Value, ValueRef};
use rusqlite::{Connection, Params, Row};
use uuid::Uuid;

use crate::model::{Blob, EventId, JobId, Name, Timestamp};
use crate::store::border::Error;
use crate::store::columns::{self, At, Cell, Cells, Column, FromRow};

pub(crate) use crate::store::codec::{compress, header_lines, size};
use crate::store::codec::{decompress_now, if_whole};

impl Cells for Row<'_> {
    fn cell(&self, at: impl At) -> Result<Cell<'_>, Error> {
        let stored = self.get_ref(at).map_err(|error| columns::unreadable(at, error))?;
        Ok(match stored {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(number) => Cell::Integer(number),
            ValueRef::Blob(bytes) => Cell::Bytes(bytes),
            text @ ValueRef::Text(_) => {
                Cell::Text(text.as_str().map_err(|error| columns::unreadable(at, error))?)
            }
            ValueRef::Real(_) => return Err(columns::unreadable(at, "it is a fraction")),
        })
    }
}

/// A row by the names of its columns.
pub(crate) fn read<T: FromRow>(row: &Row<'_>) -> rusqlite::Result<T> {
    T::from_row(row).map_err(|error| unreadable(0, Type::Null, error))
}

/// All rows of a statement, by the names of their columns.
pub(crate) fn all<T: FromRow>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
) -> rusqlite::Result<Vec<T>> {
    conn.prepare_cached(sql)?.query_map(params, read)?.collect()
}

/// A column that holds a word, name or id in its text form.
pub(crate) fn text<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: FromStr<Err: StdError + Send + Sync + 'static>,
{
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|error| unreadable(column, Type::Text, error))
}

/// Reads a column as [`text`] does; `None` if it is NULL.
pub(crate) fn maybe_text<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>>
where
    T: FromStr<Err: StdError + Send + Sync + 'static>,
{
    match row.get_ref(column)?.as_str_or_null()? {
        Some(text) => text.parse().map(Some).map_err(|error| unreadable(column, Type::Text, error)),
        None => Ok(None),
    }
}

/// An event's id as it is stored: a UUID in its canonical lower-case form as its 16 bytes, every other text
/// as it is. Each id has one form, so two are the same where their columns are equal.
pub(crate) fn stored_id(id: &EventId) -> Value {
    let text = id.as_str();
    match Uuid::try_parse(text) {
        Ok(uuid) if uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text => {
            Value::Blob(uuid.as_bytes().to_vec())
        }
        _ => Value::Text(text.to_owned()),
    }
}

/// A column that holds an event's id.
pub(crate) fn event_id(row: &Row<'_>, column: usize) -> rusqlite::Result<EventId> {
    let ValueRef::Blob(bytes) = row.get_ref(column)? else { return text(row, column) };
    let id = Uuid::from_slice(bytes).map_err(|error| unreadable(column, Type::Blob, error))?;
    id.to_string().parse().map_err(|error| unreadable(column, Type::Blob, error))
}

/// An event's source, id or type where people are told of it, or where its job is settled.
pub(crate) fn readable<T: Column + FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    columns::readable(row, column).map_err(|error| unreadable(column, Type::Text, error))
}

/// A column that holds a job's id.
pub(crate) fn job_id(row: &Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    row.get(column).map(JobId::from_bytes)
}

/// A column that holds a time.
pub(crate) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp)
}

/// Reads a column as [`time`] does; `None` if it is NULL.
pub(crate) fn maybe_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    row.get::<_, Option<i64>>(column).map(|time| time.map(Timestamp))
}

/// A column that holds a size or count; the schema lets none be negative.
pub(crate) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let count: i64 = row.get(column)?;
    u64::try_from(count).map_err(|error| unreadable(column, Type::Integer, error))
}

/// What an unreadable column means to SQLite's callers.
pub(crate) fn unreadable(
    column: usize,
    kind: Type,
    error: impl StdError + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(error))
}

/// A stored body of so many bytes; `None` where it is damaged.
pub(crate) fn body(stored: &[u8], bytes: i64) -> rusqlite::Result<Option<Blob>> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if_whole(decompress_now(stored, bytes)).map_err(|error| unreadable(0, Type::Blob, error))
}

/// Each name of an index once, by one look-up each: `next` finds the first one after `?1`.
pub(crate) fn names(conn: &Connection, next: &str) -> rusqlite::Result<Vec<Name>> {
    let mut select = conn.prepare_cached(next)?;
    let mut found: Vec<Name> = Vec::new();
    loop {
        let after = found.last().map_or("", Name::as_str);
        match select.query_row([after], |row| maybe_text(row, 0))? {
            Some(name) => found.push(name),
            None => return Ok(found),
        }
    }
}

/// Runs a guarded statement, which changes exactly one row: another number is a broken promise, and the
/// transaction must not stand.
pub(crate) fn change_one(tx: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<()> {
    match tx.prepare_cached(sql)?.execute(params)? {
        1 => Ok(()),
        changed => Err(rusqlite::Error::StatementChangedRows(changed)),
    }
}
