//! BODY: the next bytes of a body's stored form, by itself: a slow reader keeps no snapshot of the store.

use rusqlite::{Connection, ErrorCode, MAIN_DB, OptionalExtension, params};

use crate::limits::BODY_PIECE_BYTES;
use crate::store::border::{BodyOf, Error};
use crate::store::sqlite::tables::codec;

use super::handle::Admin;

/// By the unique (source, id, variant), and by the primary key.
const PAYLOAD: &str = "SELECT e.row FROM event e JOIN payload p ON p.event = e.row
    WHERE e.source = ?1 AND e.event_id = ?2 AND e.variant = ?3";
const ANSWER: &str = "SELECT e.row FROM event e JOIN answer a ON a.event = e.row
    WHERE e.source = ?1 AND e.event_id = ?2 AND e.variant = ?3 AND a.status IS NOT NULL";

impl Admin {
    pub async fn body_piece(&self, of: BodyOf, from: u64) -> Result<Option<Vec<u8>>, Error> {
        let read = move |conn: &Connection| match piece(conn, &of, from) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
                Ok(Err(Error::Damaged(error.to_string())))
            }
            piece => piece.map(Ok),
        };
        self.engine.read(read).await?
    }
}

fn piece(conn: &Connection, of: &BodyOf, from: u64) -> rusqlite::Result<Option<Vec<u8>>> {
    let (table, select) = if of.answer { ("answer", ANSWER) } else { ("payload", PAYLOAD) };
    let key = params![of.source.as_str(), codec::stored_id(&of.event), of.variant];
    let row: Option<i64> =
        conn.prepare_cached(select)?.query_row(key, |row| row.get(0)).optional()?;
    let Some(row) = row else { return Ok(None) };
    let stored = conn.blob_open(MAIN_DB, table, "body", row, true)?;
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(stored.len());
    let mut piece = vec![0; BODY_PIECE_BYTES.min(stored.len() - from)];
    stored.read_at_exact(&mut piece, from)?;
    Ok(Some(piece))
}
