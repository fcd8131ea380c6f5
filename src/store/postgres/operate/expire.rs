//! Retention, by any node: payloads first, ids much later, and neither while a job may still need it (S12); keys as long
//! as their sources say, and never while their job is not settled (I4).
//!
//! A step is one short transaction. It looks for what is old and not needed, locks it, passes over what another
//! transaction has locked, and looks again behind the locks: every verb that makes a job run again locks the event
//! before. The caller has checked the clocks (K2).

use std::sync::Arc;

use crate::limits::BATCH_JOBS;
use crate::model::Timestamp;
use crate::store::border::{Cutoffs, Error};
use crate::store::codec;

use super::super::flight::{Flight, Param};
use super::change::{Change, Changer, Stop, ask};

/// A walk over rows in the order of a number. Each SELECT returns the number, whether the row is old enough, and whether
/// it is needed. Its parameters: $1 the place to begin behind, $2 the cutoff, $3 that of dead jobs, $4 at most so many.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    look: &'static str,
    /// The same of these rows ($1).
    again: &'static str,
    /// Locks the rows ($1) that no other transaction has locked, and returns their numbers.
    lock: &'static str,
    /// Deletes what belongs to these rows ($1).
    delete: &'static [&'static str],
    cutoff: fn(&Cutoffs) -> Timestamp,
}

macro_rules! payloads {
    ($where:literal) => {
        concat!(
            // A repeat of a request with a key may put its job back.
            "SELECT e.row, e.received_at < $2, EXISTS (SELECT FROM job j WHERE j.event = e.row
                AND (j.settled_at IS NULL OR j.settled_at >= CASE j.state WHEN 'dead' THEN $3::bigint ELSE $2 END))
                OR EXISTS (SELECT FROM answer a WHERE a.event = e.row)
            FROM payload p JOIN event e ON e.row = p.event ",
            $where
        )
    };
}

macro_rules! events {
    ($where:literal) => {
        concat!(
            // An id is remembered while one of its bodies is too young, has its payload, or has a job that is not
            // settled, or dead and not old enough as such. A dead job that holds its group stays. Requests with the
            // same key are separate events.
            "SELECT e.row, e.received_at < $2, EXISTS (SELECT FROM event v
                WHERE v.source = e.source AND v.event_id = e.event_id
                    AND v.variant BETWEEN CASE WHEN e.has_key THEN e.variant ELSE 0 END
                        AND CASE WHEN e.has_key THEN e.variant ELSE 9223372036854775807 END
                    AND (v.received_at >= $2 OR EXISTS (SELECT FROM payload p WHERE p.event = v.row)
                        OR EXISTS (SELECT FROM job j WHERE j.event = v.row AND j.state NOT IN ('succeeded', 'dropped')
                            AND NOT (j.state = 'dead' AND j.settled_at < $3 AND NOT j.holds))))
            FROM event e ",
            $where
        )
    };
}

macro_rules! keys {
    ($where:literal) => {
        concat!(
            "SELECT a.event, a.expires_at < $2, $3::bigint IS NULL
                OR EXISTS (SELECT FROM job j WHERE j.event = a.event AND j.settled_at IS NULL)
            FROM answer a ",
            $where
        )
    };
}

const LOCK_EVENTS: &str = "
    SELECT row FROM event WHERE row = ANY ($1::bigint[]) ORDER BY source, event_id, variant FOR UPDATE SKIP LOCKED";

/// Remembers that a job which ran and whose event was the latest of its group is removed: no older one may run any more.
/// This also applies if the job itself is kept.
const REMEMBER_NEWEST: &str = "
    UPDATE meta SET newest_removed = removed.event
    FROM (SELECT max(event) AS event FROM job
        WHERE event = ANY ($1::bigint[]) AND group_rule = 'latest' AND attempt > 0) removed
    WHERE newest_removed < removed.event";

pub(super) const PAYLOADS: Walk = Walk {
    look: payloads!("WHERE p.event > $1 ORDER BY p.event LIMIT $4"),
    again: payloads!("WHERE p.event = ANY ($1::bigint[])"),
    lock: LOCK_EVENTS,
    // Other bodies under the same id are payload too. Jobs go where all of them are done for good: no verb could put
    // one back without its payload, and the event's own counts answer for them. Where they stay, what a handler printed
    // goes, which may repeat the payload; how much that was stays.
    delete: &[
        "DELETE FROM evidence WHERE event = ANY ($1::bigint[])",
        "UPDATE event SET
            removed_succeeded = (SELECT count(*) FROM job WHERE event = event.row AND state = 'succeeded'),
            removed_dropped = (SELECT count(*) FROM job WHERE event = event.row AND state = 'dropped')
        WHERE row = ANY ($1::bigint[]) AND EXISTS (SELECT FROM job WHERE event = event.row) AND NOT EXISTS
            (SELECT FROM job WHERE event = event.row AND state NOT IN ('succeeded', 'dropped'))",
        REMEMBER_NEWEST,
        "DELETE FROM job WHERE event = ANY ($1::bigint[]) AND NOT EXISTS
            (SELECT FROM job kept WHERE kept.event = job.event AND kept.state NOT IN ('succeeded', 'dropped'))",
        "UPDATE attempt SET stdout_head = '', stdout_tail = '', stderr_head = '', stderr_tail = ''
        WHERE job IN (SELECT row FROM job WHERE event = ANY ($1::bigint[])) AND stdout_total + stderr_total > 0",
        "DELETE FROM payload WHERE event = ANY ($1::bigint[])",
    ],
    cutoff: |before| before.payloads,
};

/// Jobs, attempts and evidence go with the event, by their foreign keys. Of a body that came several times the first
/// event may go: the later ones are stored as repeated, and by them the guard knows it.
pub(super) const EVENTS: Walk = Walk {
    look: events!("WHERE e.row > $1 ORDER BY e.row LIMIT $4"),
    again: events!("WHERE e.row = ANY ($1::bigint[])"),
    lock: LOCK_EVENTS,
    delete: &[REMEMBER_NEWEST, "DELETE FROM event WHERE row = ANY ($1::bigint[])"],
    cutoff: |before| before.ids,
};

/// In the order of their events, of which those with a key are few.
pub(super) const KEYS: Walk = Walk {
    look: keys!("WHERE a.event > $1 AND a.expires_at < $2 ORDER BY a.event LIMIT $4"),
    again: keys!("WHERE a.event = ANY ($1::bigint[])"),
    lock: "SELECT event FROM answer WHERE event = ANY ($1::bigint[]) ORDER BY event FOR UPDATE SKIP LOCKED",
    delete: &["DELETE FROM answer WHERE event = ANY ($1::bigint[])"],
    cutoff: |before| before.ids,
};

/// One step behind a place.
struct Step {
    walk: Walk,
    before: Cutoffs,
    after: i64,
}

/// Takes step after step. Returns how much was deleted.
pub(super) async fn walk(
    changer: &Arc<Changer>,
    walk: Walk,
    before: Cutoffs,
) -> Result<u64, Error> {
    let (mut deleted, mut after) = (0, Some(i64::MIN));
    while let Some(place) = after {
        let (more, next) = changer.make(Step { walk, before, after: place }).await?;
        deleted += more;
        after = next;
    }
    Ok(deleted)
}

impl Change for Step {
    /// How much was deleted, and where to go on; none at the end.
    type Done = (u64, Option<i64>);

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<Self::Done, Stop> {
        let cutoffs = || -> [Param; 2] {
            [Box::new((self.walk.cutoff)(&self.before).0), Box::new(self.before.dead.0)]
        };
        let [cutoff, dead] = cutoffs();
        let params = vec![Box::new(self.after), cutoff, dead, Box::new(codec::size(BATCH_JOBS))];
        let (mut last, mut any_old, mut rows) = (None, false, Vec::new());
        let looked = ask(flight, self.walk.look, params).await?;
        for row in looked {
            let (number, is_old): (i64, bool) = (row.try_get(0)?, row.try_get(1)?);
            last = Some(number);
            any_old |= is_old;
            if is_old && !row.try_get::<_, bool>(2)? {
                rows.push(number);
            }
        }
        // Rows are in the order of arrival but for the clocks: a whole step without an old one is the end.
        let next = last.filter(|_| looked.len() == BATCH_JOBS && any_old);
        if rows.is_empty() {
            return Ok((0, next));
        }
        let mut locked: Vec<i64> = Vec::new();
        for row in ask(flight, self.walk.lock, vec![Box::new(rows)]).await? {
            locked.push(row.try_get(0)?);
        }
        let [cutoff, dead] = cutoffs();
        let mut rows: Vec<i64> = Vec::new();
        for row in ask(flight, self.walk.again, vec![Box::new(locked), cutoff, dead]).await? {
            if row.try_get(1)? && !row.try_get::<_, bool>(2)? {
                rows.push(row.try_get(0)?);
            }
        }
        for sql in self.walk.delete {
            flight.send(sql, vec![Box::new(rows.clone())]).await;
        }
        Ok((rows.len() as u64, next))
    }
}

/// Forgets the next answers that said "not now": the same request may have its job run again. Whether there may be more.
pub(super) struct ForgottenErrors(pub(super) Timestamp);

impl Change for ForgottenErrors {
    type Done = bool;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<bool, Stop> {
        // The job is dead, by the completion that wrote the answer.
        let sql = "
            UPDATE answer SET answered_at = NULL, status = NULL, headers = NULL, body = NULL, body_bytes = NULL,
                error_until = NULL
            WHERE event IN (SELECT event FROM answer WHERE error_until < $1 ORDER BY error_until LIMIT $2
                FOR UPDATE SKIP LOCKED) RETURNING event";
        let params: Vec<Param> = vec![Box::new(self.0.0), Box::new(codec::size(BATCH_JOBS))];
        Ok(ask(flight, sql, params).await?.len() == BATCH_JOBS)
    }
}

/// What hangs on no payload and no event: a few rows each.
pub(super) struct Rest(pub(super) Cutoffs);

impl Change for Rest {
    type Done = ();

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<(), Stop> {
        let Cutoffs { payloads, ids, .. } = self.0;
        for (sql, before) in [
            // Other bodies that came when the first one was deleted already.
            (
                "DELETE FROM evidence WHERE received_at < $1
                    AND NOT EXISTS (SELECT FROM payload p WHERE p.event = evidence.event)",
                payloads,
            ),
            (
                "DELETE FROM late_end WHERE received_at < $1
                    AND NOT EXISTS (SELECT FROM job WHERE job.id = late_end.job)",
                ids,
            ),
            // A source that has an event is not gone.
            (
                "DELETE FROM secret_use WHERE last_matched_at < $1
                    AND NOT EXISTS (SELECT FROM event e WHERE e.source = secret_use.source)",
                ids,
            ),
            // Notices without a newer occurrence.
            (
                "DELETE FROM notice WHERE greatest(coalesce(last_at, 0), coalesce(reported_at, 0)) < $1",
                ids,
            ),
            // The oldest first, in the order of time but for corrections of the clock.
            (
                "DELETE FROM audit WHERE row < (SELECT min(row) FROM audit WHERE at >= $1)
                    OR NOT EXISTS (SELECT FROM audit WHERE at >= $1)",
                ids,
            ),
        ] {
            flight.send(sql, vec![Box::new(before.0)]).await;
        }
        Ok(())
    }
}

/// The next groups behind one, of which none of the jobs has begun or is to begin.
struct EmptyGroups(Option<(String, String)>);

/// A row is only a lock: whoever needs it makes it again. One that is locked is passed over.
const FORGET_GROUPS: &str = r#"
    WITH next AS MATERIALIZED (
        SELECT handler, key FROM job_group
        WHERE (handler, key) > ($1::text COLLATE "C", $2::text COLLATE "C") ORDER BY handler, key LIMIT $3
    ), empty AS MATERIALIZED (
        SELECT handler, key FROM job_group g
        WHERE (handler, key) IN (SELECT handler, key FROM next) AND NOT EXISTS (SELECT FROM job
            WHERE job.handler = g.handler AND job.group_key = g.key AND (attempt > 0 OR holds))
        ORDER BY handler, key FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM job_group g USING empty WHERE g.handler = empty.handler AND g.key = empty.key
    )
    SELECT handler, key FROM next ORDER BY handler, key"#;

impl Change for EmptyGroups {
    type Done = Option<(String, String)>;

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<Self::Done, Stop> {
        let (handler, key) = self.0.clone().unwrap_or_default();
        let params: Vec<Param> =
            vec![Box::new(handler), Box::new(key), Box::new(codec::size(BATCH_JOBS))];
        let rows = ask(flight, FORGET_GROUPS, params).await?;
        let last = rows.last().filter(|_| rows.len() == BATCH_JOBS);
        last.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
    }
}

pub(super) async fn forget_groups(changer: &Arc<Changer>) -> Result<(), Error> {
    let mut after = changer.make(EmptyGroups(None)).await?;
    while after.is_some() {
        after = changer.make(EmptyGroups(after)).await?;
    }
    Ok(())
}
