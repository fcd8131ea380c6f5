//! CHECK: compares stored payloads with what was accepted, for both engines.

use std::io::{self, Read, Seek, SeekFrom};

use crate::limits::{CHECKED_BYTES, CHECKED_EVENTS};
use crate::model::{EventId, EventType, Name};
use crate::store::border::{Error, PayloadCursor};
use crate::store::codec;
use crate::store::columns::{Cell, Cells, column};
use crate::store::rows::raw_type;
use crate::store::sum::{FRAME_CHECKSUM_BYTES, Given};

/// Picks, from the next events (row and bytes of the body), those that one call compares. Also returns where the next
/// call begins; `None` at the end.
pub(crate) fn together(found: &[(i64, i64)]) -> (Vec<i64>, Option<PayloadCursor>) {
    let mut bytes = 0_u64;
    let next = found.iter().take_while(|(_, of)| {
        let fits = bytes < CHECKED_BYTES;
        bytes = bytes.saturating_add(of.unsigned_abs());
        fits
    });
    let rows: Vec<i64> = next.map(|(row, _)| *row).collect();
    let may_follow = rows.len() < found.len() || found.len() == CHECKED_EVENTS;
    let next = rows.last().filter(|_| may_follow).copied().map(PayloadCursor);
    (rows, next)
}

/// Whether the payload is what was accepted, of which this row has all but the body, and `stored` the body's stored form.
/// A column that cannot be read is not.
///
/// # Errors
/// Where that cannot be said, because the body cannot be read now or there is too little memory.
pub(crate) fn is_whole(row: &impl Cells, stored: impl Read + Seek) -> io::Result<bool> {
    match compare(row, stored) {
        Err(error) if is_damage(&error) => Ok(false),
        whole => whole,
    }
}

fn compare(row: &impl Cells, mut stored: impl Read + Seek) -> io::Result<bool> {
    let mut end = [0; FRAME_CHECKSUM_BYTES];
    stored.seek(SeekFrom::End(-(FRAME_CHECKSUM_BYTES as i64)))?;
    stored.read_exact(&mut end)?;
    match with_sum(row, &end) {
        Ok(Some(bytes)) => has_bytes(stored, bytes),
        Ok(None) | Err(_) => Ok(false),
    }
}

/// Whether it is one of zstd's, or of a body that ends too early: even before it begins.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

/// The number of the body's bytes, which ends with these; `None` where the sum is another one.
fn with_sum(row: &impl Cells, end: &[u8]) -> Result<Option<usize>, Error> {
    let (source, event_id): (String, EventId) = (column(row, "source")?, column(row, "event_id")?);
    let (text, raw): (String, _) = (column(row, "type")?, raw_type(row)?);
    let Cell::Bytes(headers) = row.cell("headers")? else { return Ok(None) };
    let given = Given {
        source: &source,
        event_id: event_id.as_str(),
        event_type: &EventType::from_parts(&text, raw.as_deref()),
        headers,
        body: end,
    };
    let sum: i64 = column(row, "sum")?;
    let is_same = sum == given.sum(column(row, "received_at")?);
    let bytes = column(row, "body_bytes")?;
    Ok(is_same.then_some(bytes))
}

/// Whether a body of so many bytes is got back. A large one never is in memory as a whole.
fn has_bytes(mut stored: impl Read + Seek, bytes: usize) -> io::Result<bool> {
    stored.rewind()?;
    if bytes > codec::INLINE_BYTES {
        return Ok(codec::unpacked_bytes(stored)? == bytes as u64);
    }
    let mut whole = Vec::new();
    stored.read_to_end(&mut whole)?;
    codec::decompress_now(&whole, bytes).map(|_| true)
}

/// The event in this row, as its source and id; as the number of its row where they cannot be read.
pub(crate) fn event_of(number: i64, row: Option<&impl Cells>) -> String {
    let named = row.and_then(|row| {
        let (source, id) = (column::<Name>(row, "source"), column::<EventId>(row, "event_id"));
        Some(format!("{} {}", source.ok()?, id.ok()?))
    });
    named.unwrap_or_else(|| format!("row {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_compares_a_bounded_number_of_bytes_and_one_event_at_least() {
        let large = i64::try_from(CHECKED_BYTES).unwrap_or(i64::MAX);
        assert_eq!(together(&[]), (Vec::new(), None));
        assert_eq!(together(&[(7, i64::MIN)]), (vec![7], None));
        assert_eq!(together(&[(7, large), (9, 1)]), (vec![7], Some(PayloadCursor(7))));
        assert_eq!(together(&[(7, large - 1), (9, large)]), (vec![7, 9], None));
        let full: Vec<_> = (1..).map(|row| (row, 1)).take(CHECKED_EVENTS).collect();
        let (rows, next) = together(&full);
        assert_eq!(rows.len(), CHECKED_EVENTS);
        assert_eq!(next, rows.last().copied().map(PayloadCursor));
    }
}
