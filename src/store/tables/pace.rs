//! The rate of a handler's starts, by the generic cell rate algorithm: each start takes its share of the time, and
//! may begin so far ahead of the shares taken as the burst allows.
//!
//! What must stay true: what is taken is written in the transaction that makes the attempts, so neither a restart nor a
//! claim that is tried again gives more. A clock that was set back delays a start by a burst at most.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use crate::model::{Name, Timestamp};
use crate::store::border::Rate;

use super::codec::change_one;

const MILLI: i64 = 1000;

/// The state of a handler's rate at one time, in microseconds.
pub(crate) struct Pace {
    now: i64,
    /// The share of one start, and of all but one of a burst.
    share: i64,
    ahead: i64,
    /// When the shares taken so far end.
    busy_to: i64,
    /// What is stored is later than any rate could have made it now.
    is_off: bool,
}

impl Pace {
    pub(crate) fn read(
        tx: &Connection,
        handler: &Name,
        rate: Rate,
        now: Timestamp,
    ) -> rusqlite::Result<Pace> {
        // By the primary key.
        let busy_to: Option<i64> = tx
            .prepare_cached("SELECT busy_to FROM pace WHERE handler = ?1")?
            .query_row([handler.as_str()], |row| row.get(0))
            .optional()?;
        let now = now.0.saturating_mul(MILLI);
        let per = i64::try_from(rate.per.as_micros()).unwrap_or(i64::MAX);
        let share = (per / i64::from(rate.starts.get())).max(1);
        let ahead = share.saturating_mul(i64::from(rate.burst.get()) - 1);
        // A later end is of another rate, or of a clock that was ahead.
        let most = now.saturating_add(ahead).saturating_add(share);
        let is_off = busy_to.is_some_and(|busy_to| busy_to > most);
        let busy_to = busy_to.unwrap_or(now).clamp(now, most);
        Ok(Pace { now, share, ahead, busy_to, is_off })
    }

    /// How many attempts may start now.
    pub(crate) fn starts(&self) -> usize {
        let room = self.now.saturating_add(self.ahead) - self.busy_to;
        if room < 0 { 0 } else { usize::try_from(room / self.share + 1).unwrap_or(usize::MAX) }
    }

    /// Until the next one may start; `None` if one may now. Rounded up: who asks then may start it.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let micros = u64::try_from(self.busy_to - self.ahead - self.now).unwrap_or(0);
        (micros > 0).then(|| Duration::from_millis(micros.div_ceil(MILLI.unsigned_abs())))
    }

    /// Takes the shares of attempts that this transaction starts. Writes nothing where none starts, unless what is stored
    /// has to be put right: it would stay too late until the clock has caught up.
    pub(crate) fn take(
        &mut self,
        tx: &Connection,
        handler: &Name,
        starts: usize,
    ) -> rusqlite::Result<()> {
        if starts == 0 && !self.is_off {
            return Ok(());
        }
        let starts = i64::try_from(starts).unwrap_or(i64::MAX);
        self.busy_to = self.busy_to.saturating_add(self.share.saturating_mul(starts));
        change_one(
            tx,
            "INSERT INTO pace (handler, busy_to) VALUES (?1, ?2)
             ON CONFLICT (handler) DO UPDATE SET busy_to = excluded.busy_to",
            params![handler.as_str(), self.busy_to],
        )
    }
}
