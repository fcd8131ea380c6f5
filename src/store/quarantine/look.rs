//! What is read from the quarantine's file: listings, and what is to be judged.

use std::collections::BTreeMap;

use bytes::Bytes;
use rusqlite::{Row, params};

use crate::model::{Headers, Name};
use crate::store::codec;

use super::file::{File, unusable};
use super::types::{Kept, LeftOut, Quarantine, QuarantineFilter, QuarantinedRow};

/// Most rows of one [`File::next`], and most bytes of their bodies but for the first: an answer in far
/// less than `control_wait_millis`.
const STEP_COUNT: usize = 128;
const STEP_BYTES: u64 = 4 << 20;

/// Some of what is meant.
#[derive(Default)]
pub(super) struct Step {
    /// Oldest first, with its source; nothing where it has no body.
    pub(super) found: Vec<(Name, Option<Kept>)>,
    /// Where to go on; none at the end.
    pub(super) next: Option<i64>,
}

impl File {
    /// What is kept, newest first, with the counts of all that is meant.
    pub(super) fn list(
        &self,
        filter: &QuarantineFilter,
        limit: i64,
    ) -> rusqlite::Result<Quarantine> {
        let meant = Meant::of(filter);
        // Newest first by the row's number; a few thousand rows at most.
        let sql = format!("{LISTED} WHERE {MEANT} ORDER BY id DESC LIMIT ?5");
        let deliveries = self
            .conn
            .prepare_cached(&sql)?
            .query_map(params![meant.source, meant.reason, meant.since, meant.upto, limit], listed)?
            .collect::<rusqlite::Result<_>>()?;
        // The same rows, counted.
        let sql = format!("SELECT count(*) FROM delivery WHERE {MEANT}");
        let matching = self
            .conn
            .prepare_cached(&sql)?
            .query_row(params![meant.source, meant.reason, meant.since, meant.upto], |row| {
                codec::count(row, 0)
            })?;
        let mut left_out: BTreeMap<Name, BTreeMap<LeftOut, u64>> = BTreeMap::new();
        // One row for each source and reason.
        let mut counts = self
            .conn
            .prepare_cached("SELECT source, why, deliveries FROM left_out ORDER BY source, why")?;
        let mut rows = counts.query([])?;
        while let Some(row) = rows.next()? {
            let word: String = row.get(1)?;
            let why = LeftOut::ALL.iter().find(|why| why.as_str() == word);
            if let Some(why) = why {
                let count = codec::count(row, 2)?;
                left_out.entry(codec::text(row, 0)?).or_default().insert(*why, count);
            }
        }
        let bytes = u64::try_from(self.bytes).unwrap_or(0);
        Ok(Quarantine { deliveries, matching, bytes, left_out })
    }

    /// The newest of each source, and how many of it have a body.
    pub(super) fn latest(&self) -> rusqlite::Result<Vec<(QuarantinedRow, u64)>> {
        // By the index of each source's own. With max() the plain columns are of the row that has it
        // (SQLite's SELECT, section 2.5).
        self.conn
            .prepare_cached(
                "SELECT max(id), source, received_at, address, reason, detail, claimed_id, body_bytes,
                     body IS NOT NULL, count(body) FROM delivery GROUP BY source ORDER BY source",
            )?
            .query_map([], |row| Ok((listed(row)?, codec::count(row, 9)?)))?
            .collect()
    }

    /// The next that are meant.
    pub(super) fn next(&self, filter: &QuarantineFilter, after: i64) -> rusqlite::Result<Step> {
        let meant = Meant::of(filter);
        // In the order of arrival, by the row's number.
        let sql = format!(
            "SELECT id, source, received_at, path, headers, body_bytes, body FROM delivery
             WHERE {MEANT} AND id > ?5 ORDER BY id LIMIT ?6"
        );
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query(params![
            meant.source,
            meant.reason,
            meant.since,
            meant.upto,
            after,
            codec::size(STEP_COUNT)
        ])?;
        let (mut found, mut last, mut bytes) = (Vec::new(), after, 0);
        while let Some(row) = rows.next()? {
            let body_bytes = codec::count(row, 5)?;
            if bytes > 0 && bytes + body_bytes > STEP_BYTES {
                return Ok(Step { found, next: Some(last) });
            }
            last = row.get(0)?;
            let kept = kept(row)?;
            bytes += kept.as_ref().map_or(0, |_| body_bytes);
            found.push((codec::text(row, 1)?, kept));
        }
        let more = found.len() == STEP_COUNT;
        Ok(Step { found, next: Some(last).filter(|_| more) })
    }
}

/// The columns of a [`QuarantinedRow`].
const LISTED: &str =
    "SELECT id, source, received_at, address, reason, detail, claimed_id, body_bytes,
     body IS NOT NULL FROM delivery";

/// What a [`QuarantineFilter`] means, with the values of [`Meant`] in their order.
pub(super) const MEANT: &str = "(?1 IS NULL OR source = ?1) AND (?2 IS NULL OR reason = ?2)
     AND (?3 IS NULL OR received_at >= ?3) AND (?4 IS NULL OR id <= ?4)";

pub(super) struct Meant<'a> {
    pub(super) source: Option<&'a str>,
    pub(super) reason: Option<&'a str>,
    pub(super) since: Option<i64>,
    pub(super) upto: Option<i64>,
}

impl<'a> Meant<'a> {
    pub(super) fn of(filter: &'a QuarantineFilter) -> Self {
        Meant {
            source: filter.source.as_ref().map(Name::as_str),
            reason: filter.reason.as_deref(),
            since: filter.since.map(|since| since.0),
            upto: filter.upto,
        }
    }
}

fn listed(row: &Row<'_>) -> rusqlite::Result<QuarantinedRow> {
    Ok(QuarantinedRow {
        id: row.get(0)?,
        source: codec::text(row, 1)?,
        received_at: codec::time(row, 2)?,
        address: row.get(3)?,
        reason: row.get(4)?,
        detail: row.get(5)?,
        unproven_event_id: row.get(6)?,
        body_bytes: codec::count(row, 7)?,
        body_kept: row.get(8)?,
    })
}

fn kept(row: &Row<'_>) -> rusqlite::Result<Option<Kept>> {
    let Some(stored) = row.get::<_, Option<Vec<u8>>>(6)? else { return Ok(None) };
    let bytes = usize::try_from(codec::count(row, 5)?).unwrap_or(usize::MAX);
    let body =
        codec::decompress_now(&stored, bytes).map_err(|error| unusable(error.to_string()))?;
    Ok(Some(Kept {
        id: row.get(0)?,
        source: codec::text(row, 1)?,
        received_at: codec::time(row, 2)?,
        path: row.get(3)?,
        headers: Headers::from_wire(row.get_ref(4)?.as_blob()?),
        body: Bytes::from(body),
    }))
}
