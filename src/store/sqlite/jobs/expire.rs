//! Retention: payloads first, ids much later, and neither while a job may still need it (S12); keys as long as
//! their sources say, and never while their job is not settled (I4).
//!
//! The writer does it in short steps, each one transaction that other requests join: a request waits for one
//! step at most. What must stay true: the caller has checked the clock (K2); a
//! pass that is cut off anywhere has deleted whole payloads and whole events, and the next one goes on. An event that
//! cannot be deleted because of a page that cannot be read is tried twice, then passed over until the process ends, so that
//! the walk goes on. Such a page met while looking ends that walk, and not the other parts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, params};

use crate::limits::BATCH_JOBS;
use crate::model::{INTERNAL_SOURCE, Timestamp};
use crate::store::border::{ClockWatch, Cutoffs, Error, Refused, RetentionResult};
use crate::store::decide::notice::Notice;
use crate::store::mutex::lock;
use crate::store::sqlite::engine::queue::Priority;
use crate::store::sqlite::engine::writer::is_in_vain;
use crate::store::sqlite::tables::repeat::IS_REPEAT;
use crate::store::sqlite::tables::{answer, audit, codec};
use crate::store::sum::{PASSED_OVER, UNDELETED};

use super::handle::Jobs;

/// How long one step goes on deleting, or giving pages back: what an accept in the same batch waits for
/// beside its own commit. One row is never divided, so a body of 25 MiB takes what it takes.
const BUDGET: Duration = Duration::from_millis(10);

/// How long a key, or an answer "not now", is kept beyond its time: as much as the clock may be off unnoticed (`TOLERANCE`
/// of the dispatcher's retention).
const KEY_MARGIN: Duration = Duration::from_secs(60);

/// The result of one step of a walk, which goes in the order of places.
struct Step<P> {
    deleted: u64,
    /// Where to go on; none at the end.
    next: Option<P>,
}

/// A row looked at.
struct Candidate<P> {
    place: P,
    row: i64,
    old: bool,
    needed: bool,
}

/// The events that are passed over, and the one whose deletion has failed on a bad page in the last try of a step; 0 for
/// none.
#[derive(Clone)]
struct Skips {
    events: Arc<Mutex<BTreeSet<i64>>>,
    last: Arc<AtomicI64>,
}

impl Skips {
    fn has(&self, event: i64) -> bool {
        lock(&self.events).contains(&event)
    }

    fn note(&self, event: i64, error: &rusqlite::Error) {
        if is_in_vain(error) {
            self.last.store(event, Ordering::Relaxed);
        }
    }
}

impl Jobs {
    pub async fn expire(&self, before: Cutoffs) -> Result<RetentionResult, Error> {
        // Each part, whatever became of the others.
        let payloads =
            self.walk(0, move |tx, after, known| expire_payloads(tx, before, after, known)).await;
        let events =
            self.walk(0, move |tx, after, known| expire_events(tx, before, after, known)).await;
        let audit = self.run_all(move |tx| audit::expire(tx, before.ids)).await;
        let mut rest = Ok(());
        for (sql, before) in expire_rest(before) {
            let delete = move |tx: &Connection| tx.prepare_cached(sql)?.execute([before.0]);
            rest = rest.and(self.run(delete).await.map(drop));
        }
        // Also what a pass that was cut off, or an earlier version, has left.
        let given = self.give_back().await;
        let ((payloads, of_payloads), (events, of_events)) = (payloads?, events?);
        audit.and(rest)?;
        Ok(RetentionResult { payloads, events, bytes: of_payloads + of_events + given })
    }

    pub async fn clock_watch(&self) -> Result<Option<ClockWatch>, Error> {
        self.engine
            .read(|conn| {
                // The one row.
                conn.prepare_cached(
                    "SELECT clock_checked_at, clock_checked_monotonic, retention_paused_until FROM meta
                 WHERE clock_checked_at IS NOT NULL",
                )?
                .query_row([], |row| {
                    let millis = |column| codec::count(row, column).map(Duration::from_millis);
                    let (monotonic, quiet_until) = (millis(1)?, millis(2)?);
                    Ok(ClockWatch { wall: codec::time(row, 0)?, monotonic, quiet_until })
                })
                .optional()
            })
            .await
    }

    pub async fn keep_clock_watch(&self, watch: ClockWatch) -> Result<(), Error> {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let columns = (watch.wall.0, millis(watch.monotonic), millis(watch.quiet_until));
        let keep = move |tx: &Connection| {
            tx.prepare_cached(
                "UPDATE meta SET clock_checked_at = ?1, clock_checked_monotonic = ?2, retention_paused_until = ?3
                 WHERE one = 1",
            )?
            .execute(columns)
        };
        Ok(self.engine.submit(Priority::Verb, keep).await.map(drop)?)
    }

    pub async fn newest_delivery(&self) -> Result<Option<Timestamp>, Error> {
        self.engine
            .read(|conn| {
                // From the newest row back; the internal source's are few.
                conn.prepare_cached(
                    "SELECT received_at FROM event WHERE source <> ?1 ORDER BY row DESC LIMIT 1",
                )?
                .query_row([INTERNAL_SOURCE], |row| codec::time(row, 0))
                .optional()
            })
            .await
    }

    pub async fn expire_keys(&self, now: Timestamp) -> Result<u64, Error> {
        let before = now.before(KEY_MARGIN);
        let forget =
            move |tx: &Connection| answer::forget_errors(tx, before, codec::size(BATCH_JOBS));
        let forgotten = self.run_all(forget).await;
        // By the time at which a key expires, and its event.
        let first = (i64::MIN, 0);
        let step =
            move |tx: &Connection, after, known: &Skips| expire_keys(tx, before, after, known);
        let keys = self.walk(first, step).await?.0;
        Ok(forgotten.map(|()| keys)?)
    }

    /// Runs a step once. After a failure it waits for the end of a repair, where one is under way.
    async fn run<T, F>(&self, step: F) -> Result<T, Refused>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let done = self.engine.submit(Priority::Verb, step).await;
        if done.is_err() {
            self.until_open().await;
        }
        done
    }

    /// Runs a step until it changes fewer than [`BATCH_JOBS`] rows, the most that it takes at once.
    async fn run_all(
        &self,
        step: impl FnMut(&Connection) -> rusqlite::Result<usize> + Copy + Send + 'static,
    ) -> Result<(), Refused> {
        while self.run(step).await? == BATCH_JOBS {}
        Ok(())
    }

    /// Takes step after step from this place on. Returns how much was deleted, and the bytes given back.
    async fn walk<P: Copy + Send + 'static>(
        &self,
        first: P,
        step: impl Fn(&Connection, P, &Skips) -> rusqlite::Result<Step<P>> + Copy + Send + 'static,
    ) -> Result<(u64, u64), Error> {
        let (mut deleted, mut bytes, mut after) = (0, 0, Some(first));
        let mut tried = BTreeSet::new();
        while let Some(place) = after {
            let known = Skips { events: Arc::clone(&self.unreadable), last: Arc::default() };
            let own = known.clone();
            let again = move |tx: &Connection| {
                // An earlier try may have failed for another reason than this one.
                own.last.store(0, Ordering::Relaxed);
                step(tx, place, &own)
            };
            let done = self.run(again).await;
            let done = match (done, known.last.load(Ordering::Relaxed)) {
                (Ok(done), _) => done,
                // The disk may give the page again.
                (Err(_), event) if event > 0 && tried.insert(event) => continue,
                // The same step, without that event.
                (Err(why), event) if event > 0 && self.pass_over(event, &why) => continue,
                (Err(why), _) => return Err(why.into()),
            };
            if done.deleted > 0 {
                // At once: to find one page among many free ones costs more than among few.
                bytes += self.give_back().await;
            }
            deleted += done.deleted;
            after = done.next;
        }
        Ok((deleted, bytes))
    }

    /// Whether the event is passed over from now on. Says so once.
    fn pass_over(&self, event: i64, why: &Refused) -> bool {
        if lock(&self.unreadable).len() >= PASSED_OVER {
            return false;
        }
        lock(&self.unreadable).insert(event);
        tracing::error!(event, %why, "an old event is not deleted: its page cannot be read");
        let now = self.engine.clock.now();
        self.engine.notify(Notice::of_store(UNDELETED, now, now));
        true
    }

    /// Waits for the end of a repair.
    async fn until_open(&self) {
        let mut changes = self.engine.stirred.subscribe();
        while matches!(self.engine.queue.door(), Err(Refused::Degraded(_))) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Gives all free pages back to the file system, in steps. Returns how many bytes they had. A page that cannot be read
    /// may keep the others from it, and keeps nothing from being deleted.
    async fn give_back(&self) -> u64 {
        let mut bytes = 0;
        loop {
            match self.run(give_back).await {
                Ok((given, left)) => {
                    bytes += given;
                    if given == 0 || left == 0 {
                        return bytes;
                    }
                }
                Err(why) => {
                    tracing::debug!(%why, "failed to give free pages back");
                    return bytes;
                }
            }
        }
    }
}

fn expire_keys(
    tx: &Connection,
    before: Timestamp,
    after: (i64, i64),
    known: &Skips,
) -> rusqlite::Result<Step<(i64, i64)>> {
    // By the index of their times, each with its job by the unique (event, handler).
    let keys = tx
        .prepare_cached(
            "SELECT expires_at, event,
                 EXISTS (SELECT 1 FROM job j WHERE j.event = a.event AND j.settled_at IS NULL)
             FROM answer a WHERE (expires_at, event) > (?1, ?2) AND expires_at < ?3
             ORDER BY expires_at, event LIMIT ?4",
        )?
        .query_map(params![after.0, after.1, before.0, codec::size(BATCH_JOBS)], |row| {
            let (expires_at, event) = (row.get(0)?, row.get(1)?);
            let place = (expires_at, event);
            Ok(Candidate { place, row: event, old: true, needed: row.get(2)? })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    delete(tx, &keys, known, &["DELETE FROM answer WHERE event = ?1"])
}

/// Remembers the newest event of which a job under the rule `latest` has begun, before that job may go: jobs of older
/// events count as out of date then. Written also where the job stays.
const REMEMBER_NEWEST: &str =
    "UPDATE meta SET newest_removed = ?1 WHERE newest_removed < ?1 AND EXISTS
    (SELECT 1 FROM job WHERE event = ?1 AND group_rule = 'latest' AND attempt > 0)";

fn expire_payloads(
    tx: &Connection,
    before: Cutoffs,
    after: i64,
    known: &Skips,
) -> rusqlite::Result<Step<i64>> {
    // The next payloads in the order of arrival, and whether each is still needed: by a job that is not settled or
    // not long enough, or by a key, of which a repeated request may put the job back.
    let rows = look(
        tx,
        "SELECT e.row, e.received_at < ?2, EXISTS (SELECT 1 FROM job j WHERE j.event = e.row
             AND (j.settled_at IS NULL
                 OR j.settled_at >= CASE j.state WHEN 'dead' THEN ?4 ELSE ?2 END))
             OR EXISTS (SELECT 1 FROM answer a WHERE a.event = e.row)
         FROM payload p JOIN event e ON e.row = p.event
         WHERE p.event > ?1 ORDER BY p.event LIMIT ?3",
        before.payloads,
        before.dead,
        after,
    )?;
    // Other bodies under the same id are payload too. Jobs go where all of them are done for good: no verb
    // could put one back without its payload, and the event's own counts answer for them. Where they stay,
    // what a handler printed goes, which may repeat the payload; how much that was stays.
    delete(
        tx,
        &rows,
        known,
        &[
            "DELETE FROM evidence WHERE event = ?1",
            "UPDATE event SET
                 removed_succeeded = (SELECT count(*) FROM job WHERE event = ?1 AND state = 'succeeded'),
                 removed_dropped = (SELECT count(*) FROM job WHERE event = ?1 AND state = 'dropped')
             WHERE row = ?1 AND EXISTS (SELECT 1 FROM job WHERE event = ?1) AND NOT EXISTS
                 (SELECT 1 FROM job WHERE event = ?1 AND state NOT IN ('succeeded', 'dropped'))",
            REMEMBER_NEWEST,
            "DELETE FROM job WHERE event = ?1 AND NOT EXISTS
                 (SELECT 1 FROM job WHERE event = ?1 AND state NOT IN ('succeeded', 'dropped'))",
            "UPDATE attempt SET stdout_head = x'', stdout_tail = x'', stderr_head = x'', stderr_tail = x''
             WHERE job IN (SELECT row FROM job WHERE event = ?1) AND stdout_total + stderr_total > 0",
            "DELETE FROM payload WHERE event = ?1",
        ],
    )
}

fn expire_events(
    tx: &Connection,
    before: Cutoffs,
    after: i64,
    known: &Skips,
) -> rusqlite::Result<Step<i64>> {
    // The next events in the order of arrival, and whether each is still needed: an id is remembered while one
    // of its bodies is too young, has its payload, or has a job that is not settled, or dead for too short a
    // time. A dead job that holds its group stays until the operator drops or replays it. With the first body gone another
    // one's redelivery would be a new event. Events with a key, and repeats of the first request, are checked alone: no
    // redelivery depends on the others of their id, of which a trigger may have a million.
    let rows = look(
        tx,
        &format!(
            "SELECT e.row, e.received_at < ?2,
             EXISTS (SELECT 1 FROM event v WHERE v.source = e.source AND v.event_id = e.event_id
                 AND v.variant BETWEEN iif(e.alone, e.variant, 0)
                     AND iif(e.alone, e.variant, 9223372036854775807)
                 AND (v.received_at >= ?2
                     OR EXISTS (SELECT 1 FROM payload p WHERE p.event = v.row)
                     OR EXISTS (SELECT 1 FROM job j WHERE j.event = v.row
                         AND j.state NOT IN ('succeeded', 'dropped')
                         AND NOT (j.state = 'dead' AND j.settled_at < ?4 AND j.holds = 0))))
         FROM (SELECT e.*, e.has_key OR {IS_REPEAT} AS alone
             FROM event e WHERE e.row > ?1 ORDER BY e.row LIMIT ?3) e"
        ),
        before.ids,
        before.dead,
        after,
    )?;
    // Its jobs, attempts and evidence go with it, by their foreign keys.
    delete(tx, &rows, known, &[REMEMBER_NEWEST, "DELETE FROM event WHERE row = ?1"])
}

/// What deletes the other rows that are older than the time beside it: few of each kind, so one statement takes all.
fn expire_rest(before: Cutoffs) -> [(&'static str, Timestamp); 3] {
    [
        // Other bodies that came when the first one was deleted already.
        (
            "DELETE FROM evidence WHERE received_at < ?1
                 AND NOT EXISTS (SELECT 1 FROM payload p WHERE p.event = evidence.event)",
            before.payloads,
        ),
        // One row per secret that ever matched. A source that has an event is not gone.
        (
            "DELETE FROM secret_use WHERE last_matched_at < ?1
                 AND NOT EXISTS (SELECT 1 FROM event e WHERE e.source = secret_use.source)",
            before.ids,
        ),
        // Notices without a newer occurrence.
        (
            "DELETE FROM notice WHERE max(coalesce(last_at, 0), coalesce(reported_at, 0)) < ?1",
            before.ids,
        ),
    ]
}

fn look(
    tx: &Connection,
    sql: &str,
    before: Timestamp,
    dead: Timestamp,
    after: i64,
) -> rusqlite::Result<Vec<Candidate<i64>>> {
    tx.prepare_cached(sql)?
        .query_map(params![after, before.0, codec::size(BATCH_JOBS), dead.0], |found| {
            let row = found.get(0)?;
            Ok(Candidate { place: row, row, old: found.get(1)?, needed: found.get(2)? })
        })?
        .collect()
}

fn delete<P: Copy>(
    tx: &Connection,
    rows: &[Candidate<P>],
    known: &Skips,
    statements: &[&str],
) -> rusqlite::Result<Step<P>> {
    let (mut deleted, begun) = (0, Instant::now());
    let may_go = |one: &&Candidate<P>| one.old && !one.needed && !known.has(one.row);
    for candidate in rows.iter().filter(may_go) {
        for sql in statements {
            let done = tx.prepare_cached(sql)?.execute([candidate.row]);
            done.inspect_err(|error| known.note(candidate.row, error))?;
        }
        deleted += 1;
        if begun.elapsed() > BUDGET {
            return Ok(Step { deleted, next: Some(candidate.place) });
        }
    }
    // Rows are in the order of arrival but for corrections of the clock: a whole step without an old
    // one is the end.
    let more = rows.len() == BATCH_JOBS && rows.iter().any(|candidate| candidate.old);
    Ok(Step { deleted, next: rows.last().filter(|_| more).map(|last| last.place) })
}

/// Gives free pages back. Returns the bytes of those given, and how many pages are left to give.
fn give_back(tx: &Connection) -> rusqlite::Result<(u64, u64)> {
    let pragma = |name| tx.pragma_query_value(None, name, |row| codec::count(row, 0));
    let (mut pages, begun) = (0, Instant::now());
    if pragma("freelist_count")? > 0 {
        // One page with each row of the answer.
        let mut vacuum = tx.prepare_cached("PRAGMA incremental_vacuum")?;
        let mut rows = vacuum.query([])?;
        while rows.next()?.is_some() {
            pages += 1;
            if begun.elapsed() > BUDGET {
                break;
            }
        }
    }
    Ok((pages * pragma("page_size")?, pragma("freelist_count")?))
}
