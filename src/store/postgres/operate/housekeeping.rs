//! The handle of a node's housekeeping: what it does from time to time, on a connection of its own. Any node does it for
//! all of them.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSqlOwned;
use uuid::Uuid;

use crate::clock::Clock;
use crate::model::{INTERNAL_SOURCE, Name, Timestamp};
use crate::store::border::{ClockWatch, Cutoffs, Error, RetentionResult};
use crate::store::codec;
use crate::store::decide::notice::Notice;

use super::super::connection::{Target, describe};
use super::super::flight::{Flight, Param};
use super::change::{Change, Changer, Stop, ask};
use super::expire::{self, EVENTS, ForgottenErrors, KEYS, PAYLOADS, Rest};
use super::notice::{DueNotices, LOOK, NodeNotices};
use super::orphans::{ClampedDue, Orphans};

const CLOCK_WATCH: &str = "
    SELECT clock_checked_at, clock_checked_monotonic, retention_paused_until FROM node
    WHERE id = $1 AND clock_checked_at IS NOT NULL";

const KEEP_CLOCK_WATCH: &str = "
    UPDATE node SET clock_checked_at = $2, clock_checked_monotonic = $3, retention_paused_until = $4 WHERE id = $1";

/// From the newest row back; the internal source's are few.
const NEWEST_DELIVERY: &str =
    "SELECT received_at FROM event WHERE source <> $1 ORDER BY row DESC LIMIT 1";

const NOW: &str = "SELECT now_ms()";

/// How long a key is kept beyond its time.
const KEY_MARGIN: Duration = Duration::from_secs(60);

/// Housekeeping of one node. Its times are the database's ([`Housekeeping::now`]).
#[derive(Clone)]
pub struct Housekeeping {
    changer: Arc<Changer>,
    notices: NodeNotices,
    node: Uuid,
}

impl Housekeeping {
    pub fn new(target: Target, clock: Clock, notices: NodeNotices, node: Uuid) -> Self {
        Housekeeping { changer: Changer::new(target, clock), notices, node }
    }

    /// The database's time.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        let rows = self.changer.look(NOW, &[]).await?;
        Ok(Timestamp(rows.first().map_or(Ok(0), |row| get(row, 0))?))
    }

    /// Holds the ready and waiting jobs of every handler that is not among these, and that no node publishes that is not
    /// lost: no claim would take them. Returns how many were held.
    pub async fn hold_orphans(&self, handlers: Vec<Name>) -> Result<u64, Error> {
        let notices = self.notices.clone();
        self.changer.make(Orphans { known: handlers, notices }).await
    }

    /// K1: no due time of `handler` later than now + `most`. Returns how many were moved.
    pub async fn clamp_due(&self, handler: &Name, most: Duration) -> Result<u64, Error> {
        let (handler, most) = (handler.clone(), codec::size(most.as_millis()));
        self.changer.make(ClampedDue { handler, most }).await
    }

    /// Makes the internal events of the notices that are due. Returns how many.
    pub async fn tell_notices(&self) -> Result<u64, Error> {
        // Nearly always none is due, and a look costs no flush.
        let rows = self.changer.look(LOOK, &[]).await?;
        if !self.notices.is_due(&rows).map_err(unreadable)? {
            return Ok(0);
        }
        self.changer.make(DueNotices(self.notices.clone())).await
    }

    /// Counts a notice as soon as the database can be written. Returns at once.
    pub fn notify(&self, notice: Notice) {
        if self.notices.want(notice.kind) {
            // It goes on by itself.
            drop(self.changer.keep(Noted { notices: self.notices.clone(), notice }));
        }
    }

    /// EXPIRE, as on SQLite: payloads, and whole events, that are old enough, and are needed by nothing. Other nodes may
    /// do it at the same time. A pass that is cut off anywhere has deleted whole payloads and whole events.
    pub async fn expire(&self, before: Cutoffs) -> Result<RetentionResult, Error> {
        let payloads = expire::walk(&self.changer, PAYLOADS, before).await?;
        let events = expire::walk(&self.changer, EVENTS, before).await?;
        expire::forget_groups(&self.changer).await?;
        self.changer.make(Rest(before)).await?;
        // The server's autovacuum gives the space back.
        Ok(RetentionResult { payloads, events, bytes: 0 })
    }

    /// EXPIRE of keys, each with its answer: those whose time had come a minute before `now`, and whose jobs are
    /// settled. Returns how many. Answers that said "not now" are forgotten without their keys.
    pub async fn expire_keys(&self, now: Timestamp) -> Result<u64, Error> {
        let keys = now.before(KEY_MARGIN);
        while self.changer.make(ForgottenErrors(keys)).await? {}
        let before = Cutoffs { payloads: keys, ids: keys, dead: keys };
        expire::walk(&self.changer, KEYS, before).await
    }

    /// The watch that this node kept last, also by an earlier process.
    pub async fn clock_watch(&self) -> Result<Option<ClockWatch>, Error> {
        let rows = self.changer.look(CLOCK_WATCH, &[&self.node]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let millis = |column| -> Result<Duration, Error> {
            Ok(Duration::from_millis(get::<i64>(row, column)?.try_into().unwrap_or(0)))
        };
        let (monotonic, quiet_until) = (millis(1)?, millis(2)?);
        Ok(Some(ClockWatch { wall: Timestamp(get(row, 0)?), monotonic, quiet_until }))
    }

    /// Keeps it for the node's next process.
    pub async fn keep_clock_watch(&self, watch: ClockWatch) -> Result<(), Error> {
        self.changer.make(KeptWatch { node: self.node, watch }).await
    }

    /// When the newest delivery arrived, at any node.
    pub async fn newest_delivery(&self) -> Result<Option<Timestamp>, Error> {
        let rows = self.changer.look(NEWEST_DELIVERY, &[&INTERNAL_SOURCE]).await?;
        rows.first().map(|row| get(row, 0).map(Timestamp)).transpose()
    }
}

fn unreadable(error: tokio_postgres::Error) -> Error {
    Error::Unavailable(describe(&error))
}

fn get<T: FromSqlOwned>(row: &Row, column: usize) -> Result<T, Error> {
    row.try_get(column).map_err(unreadable)
}

struct Noted {
    notices: NodeNotices,
    notice: Notice,
}

impl Change for Noted {
    type Done = ();

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<(), Stop> {
        self.notices.note(flight, &self.notice).await;
        Ok(())
    }
}

struct KeptWatch {
    node: Uuid,
    watch: ClockWatch,
}

impl Change for KeptWatch {
    type Done = ();

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<(), Stop> {
        let ClockWatch { wall, monotonic, quiet_until } = self.watch;
        let millis = |time: Duration| Box::new(codec::size(time.as_millis()));
        let params: Vec<Param> =
            vec![Box::new(self.node), Box::new(wall.0), millis(monotonic), millis(quiet_until)];
        ask(flight, KEEP_CLOCK_WATCH, params).await.map(drop)
    }
}
