//! The stored forms: bodies under zstd, words, names and ids in columns.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::io;
use std::str::FromStr;

use bytes::Bytes;
use rusqlite::types::{Type, Value, ValueRef};
use rusqlite::{Connection, Params, Row};
use uuid::Uuid;
use zstd::zstd_safe::{CCtx, DCtx, compress_bound, get_error_name};

use crate::model::{EventId, Headers, JobId, Name, Timestamp};

/// Level 1 took the accept path from 17,000 to 21,000 events a second, and no higher level paid.
const LEVEL: i32 = 1;

/// Larger bodies are compressed on a blocking thread: a worker serves all its connections (H2).
pub(crate) const INLINE_BYTES: usize = 256 * 1024;

thread_local! {
    /// Each thread's own, made at its first body: making one costs as much as compressing a usual body.
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    /// The same for getting bodies back, of which it costs twice as much.
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Compresses a body, off the caller's thread where it is large.
pub(crate) async fn compress(body: Bytes) -> io::Result<Vec<u8>> {
    if body.len() <= INLINE_BYTES {
        return compress_now(&body);
    }
    // For a large body the compressor takes more memory than a thread that may never see another is to
    // keep.
    tokio::task::spawn_blocking(move || zstd::bulk::compress(&body, LEVEL))
        .await
        .map_err(io::Error::other)?
}

pub(crate) fn compress_now(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(compress_bound(body.len()));
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => kept.insert(CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?),
        };
        compressor.compress(&mut frame, body, LEVEL).map_err(failed)
    })?;
    Ok(frame)
}

/// What zstd's own code says.
fn failed(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, get_error_name(code))
}

/// Gets a body of exactly `bytes` bytes back, off the caller's thread where it is large.
pub(crate) async fn decompress(stored: Vec<u8>, bytes: usize) -> io::Result<Vec<u8>> {
    if bytes <= INLINE_BYTES {
        return decompress_now(&stored, bytes);
    }
    tokio::task::spawn_blocking(move || decompress_now(&stored, bytes))
        .await
        .map_err(io::Error::other)?
}

/// Gets a body of exactly `bytes` bytes back, here.
pub(crate) fn decompress_now(stored: &[u8], bytes: usize) -> io::Result<Vec<u8>> {
    let mut body = Vec::with_capacity(bytes);
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?),
        };
        decompressor.decompress(&mut body, stored).map_err(failed)
    })?;
    if body.len() == bytes {
        return Ok(body);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the stored body has {} bytes, its event says {bytes}", body.len()),
    ))
}

/// Stored headers as people read them.
pub(crate) fn header_lines(wire: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Headers::from_wire(wire).iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

/// A column that holds a word, name or id in its text form.
pub(crate) fn text<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: FromStr<Err: StdError + Send + Sync + 'static>,
{
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|error| unreadable(column, Type::Text, error))
}

/// The same, where the column may be NULL.
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

/// A column that holds a job's id.
pub(crate) fn job_id(row: &Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    row.get(column).map(JobId::from_bytes)
}

/// A column that holds a time.
pub(crate) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp)
}

/// The same, where the column may be NULL.
pub(crate) fn maybe_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    row.get::<_, Option<i64>>(column).map(|time| time.map(Timestamp))
}

/// A column that holds a size or count; the schema lets none be negative.
pub(crate) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let count: i64 = row.get(column)?;
    u64::try_from(count).map_err(|error| unreadable(column, Type::Integer, error))
}

/// A size or count, which fits SQLite's signed integers for any real one.
pub(crate) fn size(bytes: impl TryInto<i64>) -> i64 {
    bytes.try_into().unwrap_or(i64::MAX)
}

/// What an unreadable column means to SQLite's callers.
pub(crate) fn unreadable(
    column: usize,
    kind: Type,
    error: impl StdError + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(error))
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
