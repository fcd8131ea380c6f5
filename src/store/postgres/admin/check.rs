//! CHECK: compares stored payloads with what was accepted, a bounded number at each call.

use std::io::{Cursor, ErrorKind};

use tokio::task::spawn_blocking;
use tokio_postgres::Row;

use crate::limits::CHECKED_EVENTS;
use crate::store::border::{CheckedPayloads, Error, PayloadCheck};
use crate::store::check::{event_of, is_whole, together};
use crate::store::columns::{Cell, Cells as _, column, unreadable};

use super::handle::Admin;

const MOST: i64 = CHECKED_EVENTS as i64;

/// The next $2 events behind row $1, by the primary key.
const NEXT: &str = "SELECT row, body_bytes FROM event WHERE row > $1 ORDER BY row LIMIT $2";

/// The last row of the table.
const NEWEST: &str = "SELECT coalesce(max(row), 0) FROM event";

/// The payloads of the events $1 with all that a handler is given, by the primary keys.
const READ: &str = "
    SELECT e.row, e.source, e.event_id, e.type, e.raw_type, e.received_at, e.body_bytes, p.headers, p.body, p.sum
    FROM event e JOIN payload p ON p.event = e.row WHERE e.row = ANY ($1::bigint[])
    ORDER BY e.row";

/// The source and the id of event $1, by the primary key.
const NAME: &str = "SELECT source, event_id FROM event WHERE row = $1";

impl Admin {
    /// Compares the payloads of the next events. Call again with the answer's `next` until it is none.
    pub async fn check_payloads(&self, ask: PayloadCheck) -> Result<CheckedPayloads, Error> {
        let after = ask.after.map_or(0, |after| after.0);
        let mut reading = self.listing(MOST).await?;
        let found: Vec<(i64, i64)> = reading.all(NEXT, &[&after, &MOST]).await?;
        let newest: Option<(i64,)> = reading.one(NEWEST, &[]).await?;
        drop(reading);
        let (rows, next) = together(&found);
        let last = rows.last().copied().unwrap_or(after);
        let newest = newest.map_or(0, |(newest,)| newest);
        let left = u64::try_from(newest.saturating_sub(last)).unwrap_or(0);
        let compared = match self.compare(&rows).await? {
            Some(all) => all,
            None => {
                let mut each = Vec::new();
                for row in rows {
                    let one = self.compare(&[row]).await?;
                    each.extend(one.unwrap_or_else(|| vec![(row, false)]));
                }
                each
            }
        };
        let mut damaged = Vec::new();
        for (row, _) in compared.iter().filter(|(_, whole)| !whole) {
            let named = self.listing(1).await?.rows(NAME, &[row]).await.unwrap_or_default();
            damaged.push(event_of(*row, named.first()));
        }
        Ok(CheckedPayloads { checked: compared.len() as u64, damaged, left, next })
    }

    /// Whether the payload of each of these events is whole, of those that have one. None where the server itself says
    /// that one of them is damaged. Fails where it cannot read one for another reason.
    async fn compare(&self, rows: &[i64]) -> Result<Option<Vec<(i64, bool)>>, Error> {
        let mut reading = self.listing(MOST).await?;
        let found = reading.rows(READ, &[&rows]).await;
        if found.is_err() && reading.unread == Some(ErrorKind::InvalidData) {
            return Ok(None);
        }
        let found = found?;
        drop(reading);
        let compare = move || -> Result<Vec<(i64, bool)>, Error> {
            let each = |row: &Row| -> Result<(i64, bool), Error> {
                let whole = match row.cell("body")? {
                    Cell::Bytes(stored) => is_whole(row, Cursor::new(stored))
                        .map_err(|error| unreadable("body", error))?,
                    _ => false,
                };
                Ok((column(row, "row")?, whole))
            };
            found.iter().map(each).collect()
        };
        // A body may be large, and this thread serves others.
        let compared = spawn_blocking(compare).await;
        compared.map_err(|error| Error::Unavailable(error.to_string()))?.map(Some)
    }
}
