//! Copies every table, and compares what the database has with what was read.
//!
//! The columns are those of the database's own tables, so a column that the file lacks is an error and not a loss. A row
//! goes in the binary form of COPY (postgresql.org/docs/current/sql-copy.html). Each table's sum is over all bytes of all
//! its rows: `record_send` makes the same bytes on the server as [`CopiedColumn::write`] does here.

use std::pin::pin;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use sha2::{Digest, Sha256};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::random;
use crate::store::postgres::Node;
use crate::store::sqlite::tables::codec;

use super::error::MoveError;

/// Each table of the database, and what has its rows in the file; those that others refer to come first.
const TABLES: [(&str, &str); 13] = [
    ("event", "event"),
    ("payload", "payload"),
    ("evidence", "evidence"),
    (
        "job_group",
        "(SELECT DISTINCT handler, group_key AS key FROM job WHERE group_key IS NOT NULL)",
    ),
    ("job", "job"),
    ("former_key", "former_key"),
    // Settled attempts have their claimant too: a report that the runner repeats is then known as a repeat.
    ("attempt", "(SELECT *, 0 AS cancel_asked FROM attempt, temp.claimed)"),
    (
        "lane",
        "(SELECT handler, since AS paused_at, busy_to FROM paused FULL JOIN pace USING (handler))",
    ),
    ("secret_use", "secret_use"),
    ("answer", "answer"),
    ("notice", "notice"),
    ("restored", "(SELECT *, 0 AS lost FROM restored)"),
    ("audit", "audit"),
];

/// The identity of the database. Locked, so that an earlier move has ended, and so that the commit proves to have
/// reached the standbys: a lock is written to the log (N5).
pub(super) const IDENTITY: &str = "SELECT store_id FROM meta WHERE one = 1 FOR UPDATE";

/// Keeps other receivers from registering until the end of the transaction.
const LOCK: &str = "LOCK TABLE node IN SHARE ROW EXCLUSIVE MODE";

const OTHER_TABLES: &str = "SELECT oid::regclass::text FROM pg_class
    WHERE relnamespace = 'hooklatch'::regnamespace AND relkind = 'r' AND relname <> 'meta'";

/// The columns of a table that are not generated.
const COLUMNS: &str = "SELECT attname::text, atttypid FROM pg_attribute
    WHERE attrelid = ('hooklatch.' || $1::text)::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    ORDER BY attnum";

const ADD_NODE: &str =
    "INSERT INTO node (id, name, machine, session, count, version, schema, state)
    VALUES ($1, $2, $3, $4, $5, $6, (SELECT schema FROM meta), 'active')";

const NUMBER_ON: &str =
    "SELECT setval(pg_get_serial_sequence('hooklatch.' || $1::text, 'row'), $2)";

const RENAME: &str =
    "UPDATE meta SET store_id = $1, origin = $1, newest_removed = $2 WHERE one = 1";

/// Rows are sent in pieces of this size, or of one row.
const PIECE_BYTES: usize = 256 * 1024;

/// The begin of a binary COPY: signature, flags, length of extensions.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Copies all rows to the database of this identity, which then has that of the store. Returns each table's rows.
pub(super) async fn all(
    client: &Client,
    conn: &Connection,
    database: Uuid,
    node: &Node,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<(&'static str, u64)>, MoveError> {
    need_empty(client, database).await?;
    let session = Uuid::from_bytes(random::id());
    let made = "CREATE TEMP TABLE claimed AS SELECT ?1 AS node, ?2 AS claimant";
    let of_meta = |error| unreadable("meta", error);
    conn.execute(made, [node.id.as_bytes(), session.as_bytes()]).map_err(of_meta)?;
    let tx = conn.unchecked_transaction().map_err(of_meta)?;
    let meta = Meta::read(&tx).map_err(of_meta)?;
    // A session's count is its receiver's epoch, and a runner refuses one that is not above the last (R3).
    let count = node.count.max(meta.epoch);
    let version = env!("CARGO_PKG_VERSION");
    client
        .execute(ADD_NODE, &[&node.id, &node.name, &node.machine, &session, &count, &version])
        .await?;

    let mut all = 0;
    for (table, from) in TABLES {
        // One pass over each table.
        let count = format!("SELECT count(*) FROM {from}");
        let rows = tx.query_row(&count, [], |row| codec::count(row, 0));
        all += rows.map_err(|error| unreadable(table, error))?;
    }
    let (mut copied, mut done) = (Vec::new(), 0);
    let mut add = |rows| {
        done += rows;
        progress(done, all);
    };
    for (table, from) in TABLES {
        let columns = columns(client, table).await?;
        let sum = copy(client, &tx, (table, from), &columns, &mut add).await?;
        copied.push((table, columns, sum));
    }
    for (table, number) in numbers(&tx).map_err(of_meta)? {
        client.query_one(NUMBER_ON, &[&table, &number]).await?;
    }
    client.execute(RENAME, &[&meta.store, &meta.newest_removed]).await?;

    let mut tables = Vec::new();
    for (table, columns, sum) in copied {
        if stored(client, table, &columns).await? != sum {
            return Err(MoveError::Differs(table));
        }
        tables.push((table, sum.rows));
    }
    Ok(tables)
}

/// Refuses a database in which a receiver has run, and keeps others from registering meanwhile.
async fn need_empty(client: &Client, database: Uuid) -> Result<(), MoveError> {
    client.batch_execute(LOCK).await?;
    let found: Uuid = client.query_one(IDENTITY, &[]).await?.try_get(0)?;
    // Otherwise another store has moved here since the last look.
    if found != database {
        return Err(MoveError::NotEmpty("meta".to_owned()));
    }
    for row in client.query(OTHER_TABLES, &[]).await? {
        let table: String = row.try_get(0)?;
        let rows = client.query(&format!("SELECT FROM {table} LIMIT 1"), &[]).await?;
        if !rows.is_empty() {
            return Err(MoveError::NotEmpty(table));
        }
    }
    Ok(())
}

/// What moves of the file's facts about itself.
struct Meta {
    store: Uuid,
    newest_removed: i64,
    epoch: i64,
}

impl Meta {
    fn read(tx: &Connection) -> rusqlite::Result<Self> {
        // The one row.
        let meta = "SELECT store_id, newest_removed, epoch FROM meta WHERE one = 1";
        tx.query_row(meta, [], |row| {
            let store = row.get(0).map(Uuid::from_bytes)?;
            Ok(Meta { store, newest_removed: row.get(1)?, epoch: row.get(2)? })
        })
    }
}

fn unreadable(table: &str, error: rusqlite::Error) -> MoveError {
    MoveError::Row { table: table.to_owned(), detail: error.to_string() }
}

/// The last numbers that SQLite has given: one of a deleted row is not given again.
fn numbers(tx: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    // SQLite's own table, with a row for each AUTOINCREMENT.
    tx.prepare("SELECT name, seq FROM sqlite_sequence WHERE seq > 0")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// The number of a table's rows, and the sum of their digests' first 7 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TableSum {
    rows: u64,
    digests: u128,
}

struct CopiedColumn {
    name: String,
    oid: u32,
}

async fn columns(client: &Client, table: &str) -> Result<Vec<CopiedColumn>, MoveError> {
    let rows = client.query(COLUMNS, &[&table]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(CopiedColumn { name: row.try_get(0)?, oid: row.try_get(1)? })
    };
    rows.iter().map(read).collect()
}

fn names(columns: &[CopiedColumn]) -> String {
    columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
}

async fn copy(
    client: &Client,
    tx: &Connection,
    (table, from): (&str, &str),
    columns: &[CopiedColumn],
    progress: &mut dyn FnMut(u64),
) -> Result<TableSum, MoveError> {
    let unreadable = |error| unreadable(table, error);
    let names = names(columns);
    let into = format!("COPY {table} ({names}) FROM STDIN BINARY");
    let mut sink = pin!(client.copy_in::<_, Bytes>(&into).await?);
    let mut select = tx.prepare(&format!("SELECT {names} FROM {from}")).map_err(unreadable)?;
    let mut rows = select.query([]).map_err(unreadable)?;
    let (mut sum, mut told) = (TableSum::default(), 0);
    let mut piece = BytesMut::from(HEADER);
    while let Some(row) = rows.next().map_err(unreadable)? {
        piece.put_i16(columns.len() as i16);
        let mut digest = Sha256::new_with_prefix((columns.len() as i32).to_be_bytes());
        for (number, column) in columns.iter().enumerate() {
            let begin = piece.len();
            let value = row.get_ref(number).map_err(unreadable)?;
            column.write(value, &mut piece).map_err(|detail| MoveError::Row {
                table: table.to_owned(),
                detail: format!("{}: {detail}", column.name),
            })?;
            digest.update(column.oid.to_be_bytes());
            digest.update(&piece[begin..]);
        }
        let first = digest.finalize()[..8].try_into().unwrap_or_default();
        sum.digests += u128::from(u64::from_be_bytes(first) >> 8);
        sum.rows += 1;
        if piece.len() >= PIECE_BYTES {
            sink.send(piece.split().freeze()).await?;
            progress(sum.rows - told);
            told = sum.rows;
        }
    }
    piece.put_i16(-1);
    sink.send(piece.freeze()).await?;
    sink.finish().await?;
    progress(sum.rows - told);
    Ok(sum)
}

impl CopiedColumn {
    /// Writes length and bytes of a value.
    fn write(&self, value: ValueRef<'_>, to: &mut BytesMut) -> Result<(), String> {
        let mut put = |bytes: &[u8]| {
            to.put_i32(i32::try_from(bytes.len()).map_err(|error| error.to_string())?);
            to.put_slice(bytes);
            Ok(())
        };
        match (Type::from_oid(self.oid), value) {
            (_, ValueRef::Null) => {
                to.put_i32(-1);
                Ok(())
            }
            (Some(Type::INT8), ValueRef::Integer(number)) => put(&number.to_be_bytes()),
            (Some(Type::INT4), ValueRef::Integer(number)) => {
                let number = i32::try_from(number).map_err(|error| error.to_string())?;
                put(&number.to_be_bytes())
            }
            (Some(Type::BOOL), ValueRef::Integer(number)) => put(&[u8::from(number != 0)]),
            (Some(Type::UUID | Type::BYTEA), ValueRef::Blob(bytes))
            | (Some(Type::BYTEA), ValueRef::Text(bytes)) => put(bytes),
            // An event's id.
            (Some(Type::TEXT), ValueRef::Blob(bytes)) => {
                let id = Uuid::from_slice(bytes).map_err(|error| error.to_string())?;
                put(id.to_string().as_bytes())
            }
            // PostgreSQL's text cannot have NUL.
            (Some(Type::TEXT), ValueRef::Text(text)) if text.contains(&0) => {
                put(String::from_utf8_lossy(text).replace('\0', "\u{fffd}").as_bytes())
            }
            (Some(Type::TEXT), ValueRef::Text(text)) => put(text),
            (_, value) => Err(format!("it is {}", value.data_type())),
        }
    }
}

/// The sum of what the database has.
async fn stored(
    client: &Client,
    table: &str,
    columns: &[CopiedColumn],
) -> Result<TableSum, MoveError> {
    let sum = format!(
        "SELECT count(*), coalesce(sum(('x' || encode(substr(sha256(record_send(ROW({}))), 1, 7), 'hex'))::bit(56)::bigint), 0)::text
         FROM {table}",
        names(columns)
    );
    let row = client.query_one(&sum, &[]).await?;
    let (rows, digests): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
    Ok(TableSum { rows: rows.unsigned_abs(), digests: digests.parse().unwrap_or(u128::MAX) })
}
