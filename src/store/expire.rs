//! Retention: payloads first, ids much later, and neither while a job may still need it (S12).

use rusqlite::{Connection, OptionalExtension, params};

use crate::model::{INTERNAL_SOURCE, Timestamp};

use super::queue::Lane;
use super::types::Error;
use super::{Store, codec};

/// Rows looked at in one transaction: small, so that accepts wait no longer than for a usual batch.
const STEP: usize = 200;

/// Pages given back to the file system after a step that deleted something.
const VACUUM_PAGES: u32 = 256;

/// One step's result: how many were deleted, and the row to go on after.
type Step = (u64, Option<i64>);

impl Store {
    /// Deletes payloads of settled events that arrived before `payloads`, and whole events that
    /// arrived before `ids`, in small batches; the caller has checked the clock (K2). A payload stays
    /// while a job of its event is not settled, or is dead and not dropped; an id stays as long as
    /// one payload of its bodies, and while one of them is younger.
    /// Returns (payloads, events).
    pub async fn expire(&self, payloads: Timestamp, ids: Timestamp) -> Result<(u64, u64), Error> {
        let payloads = self.walk(payloads, expire_payloads).await?;
        let events = self.walk(ids, expire_events).await?;
        Ok((payloads, events))
    }

    /// When the newest delivery arrived, or none where there is none. The receiver's own events are no
    /// word about the clock: it stamps them with the very time that is in question (K2).
    pub async fn newest_delivery(&self) -> Result<Option<Timestamp>, Error> {
        self.read(|conn| {
            // From the newest row back; the internal source's are few.
            conn.prepare_cached(
                "SELECT received_at FROM event WHERE source <> ?1 ORDER BY row DESC LIMIT 1",
            )?
            .query_row([INTERNAL_SOURCE], |row| codec::time(row, 0))
            .optional()
        })
        .await
    }

    async fn walk(
        &self,
        before: Timestamp,
        step: fn(&Connection, Timestamp, i64) -> rusqlite::Result<Step>,
    ) -> Result<u64, Error> {
        let (mut deleted, mut after) = (0, Some(0));
        while let Some(row) = after {
            let (more, next) = self.submit(Lane::Verb, move |tx| step(tx, before, row)).await?;
            deleted += more;
            after = next;
        }
        Ok(deleted)
    }
}

fn expire_payloads(tx: &Connection, before: Timestamp, after: i64) -> rusqlite::Result<Step> {
    // The next payloads in the order of arrival, and whether each may go.
    let rows = look(
        tx,
        "SELECT e.row, e.received_at < ?2, NOT EXISTS (SELECT 1 FROM job j WHERE j.event = e.row
             AND j.state NOT IN ('succeeded', 'dropped'))
         FROM payload p JOIN event e ON e.row = p.event
         WHERE p.event > ?1 ORDER BY p.event LIMIT ?3",
        before,
        after,
    )?;
    // Other bodies under the same id are payload too.
    delete(
        tx,
        &rows,
        &["DELETE FROM evidence WHERE event = ?1", "DELETE FROM payload WHERE event = ?1"],
    )
}

fn expire_events(tx: &Connection, before: Timestamp, after: i64) -> rusqlite::Result<Step> {
    // The next events in the order of arrival, and whether each may go: an id is remembered while one
    // of its bodies is too young, has its payload, or has a job that is not settled, or dead and not
    // dropped. With the first body gone another one's redelivery would be a new event.
    let rows = look(
        tx,
        "SELECT e.row, e.received_at < ?2,
             NOT EXISTS (SELECT 1 FROM event v WHERE v.source = e.source AND v.event_id = e.event_id
                 AND (v.received_at >= ?2
                     OR EXISTS (SELECT 1 FROM payload p WHERE p.event = v.row)
                     OR EXISTS (SELECT 1 FROM job j WHERE j.event = v.row
                         AND j.state NOT IN ('succeeded', 'dropped'))))
         FROM event e WHERE e.row > ?1 ORDER BY e.row LIMIT ?3",
        before,
        after,
    )?;
    // Its jobs, attempts and evidence go with it, by their foreign keys.
    delete(tx, &rows, &["DELETE FROM event WHERE row = ?1"])
}

/// (row, old enough, not needed any more)
type Candidate = (i64, bool, bool);

fn look(
    tx: &Connection,
    sql: &str,
    before: Timestamp,
    after: i64,
) -> rusqlite::Result<Vec<Candidate>> {
    tx.prepare_cached(sql)?
        .query_map(params![after, before.0, codec::size(STEP)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect()
}

fn delete(tx: &Connection, rows: &[Candidate], statements: &[&str]) -> rusqlite::Result<Step> {
    let mut deleted = 0;
    for &(row, old, unneeded) in rows {
        if old && unneeded {
            for sql in statements {
                tx.prepare_cached(sql)?.execute([row])?;
            }
            deleted += 1;
        }
    }
    if deleted > 0 {
        tx.execute_batch(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    }
    // Rows are in the order of arrival but for corrections of the clock: a whole step without an old
    // one is the end.
    let more = rows.len() == STEP && rows.iter().any(|&(_, old, _)| old);
    Ok((deleted, rows.last().filter(|_| more).map(|&(row, ..)| row)))
}
