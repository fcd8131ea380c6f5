//! The handle of a node's housekeeping: what it does from time to time, on a connection of its own. Any node does it for
//! all of them.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Clock;
use crate::model::{INTERNAL_SOURCE, JobId, Name, NoticeType, Timestamp};
use crate::retry::Policy;
use crate::store::border::{ClockWatch, Cutoffs, Error, NODE_SILENCE, RetentionResult};
use crate::store::codec;
use crate::store::columns::column;
use crate::store::decide::notice::Notice;
use crate::store::mutex::lock;
use crate::store::sum::UNDELETED;

use super::super::connection::{Target, describe};
use super::super::handlers::{self, ELSEWHERE};
use super::super::notices::NodeNotices;
use super::super::params::params;
use super::change::{Changer, Statement};
use super::expire::{self, EVENTS, KEYS, PAYLOADS, Unreadable, Walk};
use super::notice::{DueNotices, LOOK, NOTE, is_due, note_of};
use super::orphans::{ClampDue, IS_AHEAD, Orphans};
use super::unclaimable::Unclaimable;

const CLOCK_WATCH: &str = "
    SELECT clock_checked_at, clock_checked_monotonic, retention_paused_until FROM node
    WHERE id = $1 AND clock_checked_at IS NOT NULL";

const KEEP_CLOCK_WATCH: &str = "
    UPDATE node SET clock_checked_at = $2, clock_checked_monotonic = $3, retention_paused_until = $4 WHERE id = $1";

/// The arrival of the newest delivery. It walks from the newest row back; few rows are of the internal source.
const NEWEST_DELIVERY: &str =
    "SELECT received_at FROM event WHERE source <> $1 ORDER BY row DESC LIMIT 1";

/// The other nodes that were not seen for $1, have no connection and have running attempts, and of whose silence no notice
/// is counted.
const SILENT: &str = "
    SELECT id, name, seen_at FROM node
    WHERE state = 'active' AND id <> $2 AND seen_at < now_ms() - $1::bigint AND silence_told IS DISTINCT FROM seen_at
        AND EXISTS (SELECT FROM attempt WHERE node = node.id AND outcome IS NULL)
        AND NOT EXISTS (SELECT FROM pg_stat_activity s WHERE s.datname = current_database()
            AND s.application_name = left('hooklatch ' || name, 63))";

/// Counts the notice of a silence, once.
const NOTE_SILENCE: &str = "
    WITH told AS (
        UPDATE node SET silence_told = seen_at WHERE id = $1 AND seen_at = $2 AND silence_told IS DISTINCT FROM seen_at
        RETURNING name
    )
    INSERT INTO notice (type, subject, reason, count, first_at, last_at)
    SELECT 'node.silent', name, 'its attempts may run, and it does not look at the database', 1, now_ms(), now_ms()
    FROM told
    ON CONFLICT (type, subject, reason) DO UPDATE SET count = notice.count + 1,
        first_at = coalesce(notice.first_at, excluded.first_at), last_at = excluded.last_at";

const NOW: &str = "SELECT now_ms() AS now";

/// How long a key is kept beyond its time.
const KEY_MARGIN: Duration = Duration::from_secs(60);

/// Housekeeping of one node. Its times are the database's ([`Housekeeping::now`]).
#[derive(Clone)]
pub struct Housekeeping {
    changer: Arc<Changer>,
    notices: NodeNotices,
    node: Uuid,
    /// The events that retention passes over, because the server cannot read them.
    unreadable: Arc<Unreadable>,
}

impl Housekeeping {
    pub fn new(target: Target, clock: Clock, notices: NodeNotices, node: Uuid) -> Self {
        let (changer, unreadable) = (Changer::new(target, clock), Arc::default());
        Housekeeping { changer, notices, node, unreadable }
    }

    pub(in super::super) async fn connect(&self) -> Result<(), Error> {
        self.changer.connect().await
    }

    /// The database's time.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        let rows = self.changer.look(NOW, &[]).await?;
        rows.first().map_or(Ok(Timestamp(0)), |row| column(row, "now"))
    }

    /// Holds the ready and waiting jobs of every handler that is not among these, and that no node publishes that is not
    /// lost: no claim would take them. Returns how many were held.
    pub async fn hold_orphans(&self, handlers: Vec<Name>) -> Result<u64, Error> {
        let (known, notices) = (handlers, self.notices.clone());
        self.changer.make(Orphans { known, notices }).await
    }

    /// Holds those of these jobs that a claim may take: it cannot read what it looks at.
    pub(in super::super) async fn hold_unclaimable(&self, jobs: Vec<JobId>) -> Result<(), Error> {
        self.changer.make(Unclaimable(jobs)).await
    }

    /// The policy of a handler that another node publishes which is not lost, first of all one that runs its jobs.
    pub async fn policy_elsewhere(&self, handler: &Name) -> Result<Option<Policy>, Error> {
        let rows = self.changer.look(ELSEWHERE, &[&handler.as_str(), &self.node]).await?;
        let policy = rows.first().map_or(Ok(None), |row| handlers::policy(row, 0));
        policy.map_err(|error| Error::Unavailable(describe(&error)))
    }

    /// K1: a wait that begins in the future begins now, and is as long as it was. Returns how many were moved.
    pub async fn clamp_due(&self) -> Result<u64, Error> {
        // Nearly always none does, and a look costs no flush.
        let rows = self.changer.look(IS_AHEAD, &[]).await?;
        match rows.first().map(|row| column(row, "is_ahead")).transpose()? {
            Some(true) => self.changer.make(ClampDue).await,
            _ => Ok(0),
        }
    }

    /// Makes the internal events of the notices that are due, and counts one for each silence of a node. Returns how many
    /// events.
    pub async fn tell_notices(&self) -> Result<u64, Error> {
        if self.notices.want(NoticeType::NodeSilent) {
            let silence = codec::size(NODE_SILENCE.as_millis());
            for row in self.changer.look(SILENT, &[&silence, &self.node]).await? {
                let (id, seen): (Uuid, Timestamp) = (column(&row, "id")?, column(&row, "seen_at")?);
                self.changer.send(NOTE_SILENCE, move || params![id, seen]).await?;
            }
        }
        // Nearly always none is due, and a look costs no flush.
        let rows = self.changer.look(LOOK, &[]).await?;
        if !is_due(&self.notices, &rows)? {
            return Ok(0);
        }
        self.changer.make(DueNotices(self.notices.clone())).await
    }

    /// Counts a notice as soon as the database can be written. Returns at once.
    pub fn notify(&self, notice: Notice) {
        if self.notices.want(notice.kind) {
            // It goes on by itself.
            let noted = Statement(NOTE, Box::new(move || note_of(&notice)));
            drop(self.changer.keep("a notice", noted));
        }
    }

    /// EXPIRE, as on SQLite: payloads, and whole events, that are old enough, and are needed by nothing. Other nodes may
    /// do it at the same time. A pass that is cut off anywhere has deleted whole payloads and whole events. Where a
    /// part fails, the others are done all the same, and the first error is returned.
    pub async fn expire(&self, before: Cutoffs) -> Result<RetentionResult, Error> {
        let payloads = self.walk(PAYLOADS, before).await;
        let events = self.walk(EVENTS, before).await;
        let groups = expire::forget_groups(&self.changer).await;
        let rest = expire::rest(&self.changer, before).await;
        let (payloads, events) = (payloads?, events?);
        groups.and(rest)?;
        // The server's autovacuum gives the space back.
        Ok(RetentionResult { payloads, events, bytes: 0 })
    }

    /// EXPIRE of keys, each with its answer: those whose time had come a minute before `now`, and whose jobs are
    /// settled. Returns how many. Answers that said "not now" are forgotten without their keys.
    pub async fn expire_keys(&self, now: Timestamp) -> Result<u64, Error> {
        let keys = now.before(KEY_MARGIN);
        let forgotten = expire::forget_errors(&self.changer, keys).await;
        let expired = self.walk(KEYS, Cutoffs::all(keys)).await;
        forgotten.and(expired)
    }

    async fn walk(&self, walk: Walk, before: Cutoffs) -> Result<u64, Error> {
        let known = lock(&self.unreadable).clone();
        let deleted = expire::walk(&self.changer, walk, before, &self.unreadable).await;
        let is_known = lock(&self.unreadable).is_subset(&known);
        if !is_known {
            let now = self.changer.clock.now();
            self.notify(Notice::of_store(UNDELETED, now, now));
        }
        deleted
    }

    /// The watch that this node kept last, also by an earlier process.
    pub async fn clock_watch(&self) -> Result<Option<ClockWatch>, Error> {
        let rows = self.changer.look(CLOCK_WATCH, &[&self.node]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let millis = |name| column(row, name).map(Duration::from_millis);
        Ok(Some(ClockWatch {
            wall: column(row, "clock_checked_at")?,
            monotonic: millis("clock_checked_monotonic")?,
            quiet_until: millis("retention_paused_until")?,
        }))
    }

    /// Keeps it for the node's next process.
    pub async fn keep_clock_watch(&self, watch: ClockWatch) -> Result<(), Error> {
        let (node, quiet) = (self.node, watch.quiet_until);
        let kept = move || params![node, watch.wall, watch.monotonic, quiet];
        self.changer.send(KEEP_CLOCK_WATCH, kept).await.map(drop)
    }

    /// When the newest delivery arrived, at any node.
    pub async fn newest_delivery(&self) -> Result<Option<Timestamp>, Error> {
        let rows = self.changer.look(NEWEST_DELIVERY, &[&INTERNAL_SOURCE]).await?;
        rows.first().map(|row| column(row, "received_at")).transpose()
    }
}
