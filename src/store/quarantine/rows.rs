//! What is written to the quarantine's file: deliveries in, the bounds, deliveries out.

use rusqlite::params;

use crate::limits::Limits;
use crate::model::{Name, Timestamp};
use crate::store::codec;

use super::file::File;
use super::look::{MEANT, Meant};
use super::tally::Counts;
use super::types::{LeftOut, QuarantineFilter, Quarantined};

/// What a delivery is charged beside its texts: the page of 4,096 bytes that it begins, so that the
/// sum is about what the file takes.
const ROW_BYTES: usize = 4096;

/// A delivery in its stored form.
pub(super) struct Prepared {
    failed: Quarantined,
    holder: String,
    claimed_id: Option<String>,
    headers: Vec<u8>,
    body: Option<Vec<u8>>,
}

impl Prepared {
    /// Compresses the body. `claimed_id`: what it claims to be.
    pub(super) fn new(failed: Quarantined, holder: String, claimed_id: Option<String>) -> Self {
        let headers = failed.headers.to_wire();
        let body = failed.body.as_ref().and_then(|body| codec::compress_now(body).ok());
        Prepared { failed, holder, claimed_id, headers, body }
    }

    /// The source it came through.
    pub(super) fn source(&self) -> &Name {
        &self.failed.source
    }

    fn stored_bytes(&self) -> usize {
        let texts = self.failed.detail.len() + self.failed.path.len() + self.headers.len();
        ROW_BYTES + texts + self.body.as_ref().map_or(0, Vec::len)
    }
}

impl File {
    /// Keeps `batch`, then gives up whatever is too old or over the bound, all in one transaction.
    /// Returns what was given up; after an error nothing of it has happened.
    pub(super) fn keep(
        &mut self,
        batch: &[Prepared],
        limits: &Limits,
        oldest: Timestamp,
    ) -> rusqlite::Result<Counts> {
        self.transact(|file| {
            let mut given_up = Counts::default();
            for delivery in batch {
                file.insert(delivery)?;
            }
            file.expire(oldest, &mut given_up)?;
            file.evict(limits, &mut given_up)?;
            Ok(given_up)
        })
    }

    fn insert(&mut self, delivery: &Prepared) -> rusqlite::Result<()> {
        let (failed, bytes) = (&delivery.failed, codec::size(delivery.stored_bytes()));
        // The triggers charge its holder.
        self.conn
            .prepare_cached(
                "INSERT INTO delivery (source, received_at, address, holder, reason, detail, claimed_id,
                     path, headers, body_bytes, body, stored_bytes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute(params![
                failed.source.as_str(),
                failed.received_at.0,
                failed.address.map(|address| address.to_string()),
                delivery.holder,
                failed.reason,
                failed.detail,
                delivery.claimed_id,
                failed.path,
                delivery.headers,
                codec::signed(failed.body_bytes),
                delivery.body,
                bytes,
            ])?;
        self.bytes += bytes;
        Ok(())
    }

    /// The address with most bytes gives up its oldest first, so that a flooder evicts itself.
    fn evict(&mut self, limits: &Limits, given_up: &mut Counts) -> rusqlite::Result<()> {
        let most = codec::signed(limits.quarantine_bytes);
        while self.bytes > most {
            // Both by an index: the largest holder, and its oldest delivery.
            let (source, bytes): (Name, i64) = self
                .conn
                .prepare_cached(
                    "DELETE FROM delivery WHERE id = (SELECT min(id) FROM delivery WHERE holder =
                         (SELECT holder FROM holder ORDER BY bytes DESC LIMIT 1))
                     RETURNING source, stored_bytes",
                )?
                .query_row([], |row| Ok((codec::text(row, 0)?, row.get(1)?)))?;
            self.bytes -= bytes;
            given_up.add(&source, LeftOut::Evicted, 1);
        }
        Ok(())
    }

    fn expire(&mut self, oldest: Timestamp, given_up: &mut Counts) -> rusqlite::Result<()> {
        // By the index of arrivals.
        let gone = self
            .conn
            .prepare_cached(
                "DELETE FROM delivery WHERE received_at < ?1 RETURNING source, stored_bytes",
            )?
            .query_map([oldest.0], |row| Ok((codec::text(row, 0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(Name, i64)>>>()?;
        for (source, bytes) in gone {
            self.bytes -= bytes;
            given_up.add(&source, LeftOut::Expired, 1);
        }
        Ok(())
    }

    /// Adds to what was left out.
    pub(super) fn count(&mut self, counts: &Counts) -> rusqlite::Result<()> {
        self.transact(|file| {
            for (source, why, deliveries) in counts.iter() {
                // One row for each source and reason.
                file.conn
                    .prepare_cached(
                        "INSERT INTO left_out (source, why, deliveries) VALUES (?1, ?2, ?3)
                         ON CONFLICT (source, why) DO UPDATE SET deliveries = deliveries + excluded.deliveries",
                    )?
                    .execute(params![source.as_str(), why.as_str(), codec::signed(deliveries)])?;
            }
            Ok(())
        })
    }

    /// Forgets these.
    pub(super) fn remove(&mut self, ids: &[i64]) -> rusqlite::Result<()> {
        self.transact(|file| {
            for id in ids {
                // Gone already is as good.
                file.conn.prepare_cached("DELETE FROM delivery WHERE id = ?1")?.execute([id])?;
            }
            file.count_bytes()
        })?;
        self.give_back()
    }

    /// Forgets all that are meant; returns how many.
    pub(super) fn drop_meant(&mut self, filter: &QuarantineFilter) -> rusqlite::Result<u64> {
        let meant = Meant::of(filter);
        let dropped = self.transact(|file| {
            // The triggers take them off their holders.
            let dropped = file
                .conn
                .prepare_cached(&format!("DELETE FROM delivery WHERE {MEANT}"))?
                .execute(params![meant.source, meant.reason, meant.since, meant.upto])?;
            file.count_bytes()?;
            Ok(dropped as u64)
        })?;
        self.give_back()?;
        Ok(dropped)
    }
}
