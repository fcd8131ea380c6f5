//! Retention, by any node: payloads first, ids much later, and neither while a job may still need it (S12); keys as long
//! as their sources say, and never while their job is not settled (I4).
//!
//! A step is one short transaction. It looks for what is old and not needed, locks it, passes over what another
//! transaction has locked, and looks again behind the locks: every verb that makes a job run again locks the event
//! before. The caller has checked the clocks (K2).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::limits::BATCH_JOBS;
use crate::model::Timestamp;
use crate::store::border::{Cutoffs, Error};
use crate::store::codec;
use crate::store::columns::column;
use crate::store::mutex::lock;
use crate::store::sum::PASSED_OVER;

use super::super::flight::{Flight, Param};
use super::super::params::params;
use super::super::stop::{Stop, ask};
use super::change::{Change, Changer};
use super::repeat::is_repeat;

/// Which of the cutoffs counts.
type Cutoff = fn(&Cutoffs) -> Timestamp;

/// A walk over rows in the order of a number.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// The next numbers behind $1, $3 at most, each with whether it is old enough by the cutoff $2.
    page: &'static str,
    /// The numbers among these ($1) that are old enough, by the cutoff $2 and that of dead jobs $3, and are not needed.
    look: &'static str,
    /// Locks the rows ($1) that no other transaction has locked, and returns their numbers.
    lock: &'static str,
    /// Deletes what belongs to these rows ($1).
    delete: &'static [&'static str],
    cutoff: Cutoff,
}

const LOCK_EVENTS: &str = "
    SELECT row AS number FROM event WHERE row = ANY ($1::bigint[]) ORDER BY source, event_id, variant
    FOR UPDATE SKIP LOCKED";

/// Remembers that a job which ran and whose event was the latest of its group is removed: no older one may run any more.
/// This also applies if the job itself is kept.
const REMEMBER_NEWEST: &str = "
    UPDATE meta SET newest_removed = removed.event
    FROM (SELECT max(event) AS event FROM job
        WHERE event = ANY ($1::bigint[]) AND group_rule = 'latest' AND attempt > 0) removed
    WHERE newest_removed < removed.event";

pub(super) const PAYLOADS: Walk = Walk {
    page: "SELECT e.row AS number, e.received_at < $2 AS is_old FROM payload p JOIN event e ON e.row = p.event
        WHERE p.event > $1 ORDER BY p.event LIMIT $3",
    // A repeat of a request with a key may put its job back.
    look: "SELECT e.row AS number FROM payload p JOIN event e ON e.row = p.event
        WHERE p.event = ANY ($1::bigint[]) AND e.received_at < $2
            AND NOT EXISTS (SELECT FROM answer a WHERE a.event = e.row)
            AND NOT EXISTS (SELECT FROM job j WHERE j.event = e.row AND (j.settled_at IS NULL
                OR j.settled_at >= CASE j.state WHEN 'dead' THEN $3::bigint ELSE $2 END))",
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
    page: "SELECT row AS number, received_at < $2 AS is_old FROM event WHERE row > $1 ORDER BY row LIMIT $3",
    // An id is remembered while one of its bodies is too young, has its payload, or has a job that is not settled, or
    // dead and not old enough as such. A dead job that holds its group stays. Requests with the same key are separate
    // events, and so are later events of requests equal to the first one's.
    look: concat!(
        "SELECT e.row AS number FROM event e CROSS JOIN LATERAL (SELECT e.has_key OR ",
        is_repeat!(),
        " AS alone) own
        WHERE e.row = ANY ($1::bigint[]) AND e.received_at < $2
            AND NOT EXISTS (SELECT FROM event v WHERE v.source = e.source AND v.event_id = e.event_id
                    AND v.variant BETWEEN CASE WHEN own.alone THEN e.variant ELSE 0 END
                        AND CASE WHEN own.alone THEN e.variant ELSE 9223372036854775807 END
                    AND (v.received_at >= $2 OR EXISTS (SELECT FROM payload p WHERE p.event = v.row)
                        OR EXISTS (SELECT FROM job j WHERE j.event = v.row AND j.state NOT IN ('succeeded', 'dropped')
                            AND NOT (j.state = 'dead' AND j.settled_at < $3 AND NOT j.holds))))"
    ),
    lock: LOCK_EVENTS,
    delete: &[REMEMBER_NEWEST, "DELETE FROM event WHERE row = ANY ($1::bigint[])"],
    cutoff: |before| before.ids,
};

/// Expired keys, in the order of their events: few events have a key.
pub(super) const KEYS: Walk = Walk {
    page: "SELECT event AS number, true AS is_old FROM answer WHERE event > $1 AND expires_at < $2
        ORDER BY event LIMIT $3",
    look: "SELECT a.event AS number FROM answer a
        WHERE a.event = ANY ($1::bigint[]) AND a.expires_at < $2 AND $3::bigint IS NOT NULL
            AND NOT EXISTS (SELECT FROM job j WHERE j.event = a.event AND j.settled_at IS NULL)",
    lock: "SELECT event AS number FROM answer WHERE event = ANY ($1::bigint[]) ORDER BY event FOR UPDATE SKIP LOCKED",
    delete: &["DELETE FROM answer WHERE event = ANY ($1::bigint[])"],
    cutoff: |before| before.ids,
};

/// The numbers that are passed over, because the server cannot read what it has of them: [`PASSED_OVER`] at most.
pub(super) type Unreadable = Mutex<BTreeSet<i64>>;

/// One step behind a place.
struct Step {
    walk: Walk,
    before: Cutoffs,
    after: i64,
    /// How many numbers it looks at.
    most: usize,
}

/// Takes step after step. Returns how much was deleted.
pub(super) async fn walk(
    changer: &Arc<Changer>,
    walk: Walk,
    before: Cutoffs,
    unreadable: &Unreadable,
) -> Result<u64, Error> {
    let (mut deleted, mut place) = (0, Some(i64::MIN));
    while let Some(after) = place {
        let step = Step { walk, before, after, most: BATCH_JOBS };
        let (gone, next) = match changer.make_or_say(step).await {
            Err((_, true)) => one_by_one(changer, walk, before, after, unreadable).await?,
            made => made.map_err(|(error, _)| error)?,
        };
        // It may have been passed over before.
        lock(unreadable).retain(|number| !gone.contains(number));
        deleted += gone.len() as u64;
        place = next;
    }
    Ok(deleted)
}

/// Takes the step behind a place in steps of one number each. Returns what the step would have.
async fn one_by_one(
    changer: &Arc<Changer>,
    walk: Walk,
    before: Cutoffs,
    after: i64,
    unreadable: &Unreadable,
) -> Result<(Vec<i64>, Option<i64>), Error> {
    let (cutoff, most) = ((walk.cutoff)(&before).0, codec::size(BATCH_JOBS));
    let rows = changer.look(walk.page, &[&after, &cutoff, &most]).await?;
    let (mut deleted, mut last, mut has_old) = (Vec::new(), None, false);
    for row in &rows {
        let number: i64 = column(row, "number")?;
        last = Some(number);
        has_old |= column::<bool>(row, "is_old")?;
        let step = Step { walk, before, after: number - 1, most: 1 };
        match changer.make_or_say(step).await {
            Ok((gone, _)) => deleted.extend(gone),
            Err((error, true)) if pass_over(unreadable, number, &error) => {}
            Err((error, _)) => return Err(error),
        }
    }
    Ok((deleted, last.filter(|_| rows.len() == BATCH_JOBS && has_old)))
}

/// Whether this one is passed over. Says so once.
fn pass_over(unreadable: &Unreadable, event: i64, error: &Error) -> bool {
    let mut unreadable = lock(unreadable);
    let is_known = unreadable.contains(&event);
    if !is_known && unreadable.len() < PASSED_OVER {
        unreadable.insert(event);
        tracing::error!(event, %error, "an old event is not deleted: the server cannot read it");
        return true;
    }
    is_known
}

impl Change for Step {
    /// What was deleted, and where to go on; none at the end.
    type Done = (Vec<i64>, Option<i64>);

    async fn run(&self, flight: &mut Flight, _: Timestamp) -> Result<Self::Done, Stop> {
        let (walk, dead) = (self.walk, self.before.dead);
        let cutoff = (walk.cutoff)(&self.before);
        let (mut last, mut old, mut looked_at) = (None, Vec::new(), 0);
        for row in ask(flight, walk.page, params![self.after, cutoff, self.most]).await? {
            let number: i64 = column(row, "number")?;
            (last, looked_at) = (Some(number), looked_at + 1);
            old.extend(column::<bool>(row, "is_old")?.then_some(number));
        }
        // Rows are in the order of arrival but for the clocks: a whole step without an old one is the end.
        let next = last.filter(|_| looked_at == self.most && !old.is_empty());
        let found = numbers(flight, walk.look, params![old, cutoff, dead]).await?;
        if found.is_empty() {
            return Ok((Vec::new(), next));
        }
        let locked = numbers(flight, walk.lock, params![found]).await?;
        let found = numbers(flight, walk.look, params![locked, cutoff, dead]).await?;
        for sql in walk.delete {
            flight.send(sql, params![found.clone()]).await;
        }
        Ok((found, next))
    }
}

async fn numbers(
    flight: &mut Flight,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<Vec<i64>, Stop> {
    let mut numbers = Vec::new();
    for row in ask(flight, sql, params).await? {
        numbers.push(column(row, "number")?);
    }
    Ok(numbers)
}

/// The job is dead, by the completion that wrote the answer.
const FORGET_ERRORS: &str = "
    UPDATE answer SET answered_at = NULL, status = NULL, headers = NULL, body = NULL, body_bytes = NULL,
        error_until = NULL
    WHERE event IN (SELECT event FROM answer WHERE error_until < $1 ORDER BY error_until LIMIT $2
        FOR UPDATE SKIP LOCKED) RETURNING event";

/// Forgets the answers that said "not now": the same request may have its job run again.
pub(super) async fn forget_errors(changer: &Arc<Changer>, before: Timestamp) -> Result<(), Error> {
    let forget = || changer.send(FORGET_ERRORS, move || params![before, BATCH_JOBS]);
    while forget().await?.len() == BATCH_JOBS {}
    Ok(())
}

/// Rows that belong to neither a payload nor an event, a few of each kind, and the cutoff that counts for each.
const REST: [(&str, Cutoff); 5] = [
    // Other bodies that came when the first one was deleted already.
    (
        "DELETE FROM evidence WHERE received_at < $1
            AND NOT EXISTS (SELECT FROM payload p WHERE p.event = evidence.event)",
        |before| before.payloads,
    ),
    (
        "DELETE FROM late_end WHERE received_at < $1
            AND NOT EXISTS (SELECT FROM job WHERE job.id = late_end.job)",
        |before| before.ids,
    ),
    // A source that has an event is not gone.
    (
        "DELETE FROM secret_use WHERE last_matched_at < $1
            AND NOT EXISTS (SELECT FROM event e WHERE e.source = secret_use.source)",
        |before| before.ids,
    ),
    // Notices without a newer occurrence.
    (
        "DELETE FROM notice WHERE greatest(coalesce(last_at, 0), coalesce(reported_at, 0)) < $1",
        |before| before.ids,
    ),
    // The oldest first, in the order of time but for corrections of the clock.
    (
        "DELETE FROM audit WHERE row < (SELECT min(row) FROM audit WHERE at >= $1)
            OR NOT EXISTS (SELECT FROM audit WHERE at >= $1)",
        |before| before.ids,
    ),
];

/// Deletes each kind, also where another one fails. Returns the first error.
pub(super) async fn rest(changer: &Arc<Changer>, before: Cutoffs) -> Result<(), Error> {
    let mut all = Ok(());
    for (sql, cutoff) in REST {
        let deleted = changer.send(sql, move || params![cutoff(&before)]).await;
        all = all.and(deleted.map(drop));
    }
    all
}

/// Deletes the group rows, among the next $3 behind ($1, $2), of which no job has begun or is to begin. They are only
/// locks; a later transaction that needs one makes it again. A locked row is passed over.
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

pub(super) async fn forget_groups(changer: &Arc<Changer>) -> Result<(), Error> {
    let (mut handler, mut key) = (String::new(), String::new());
    loop {
        let after = (handler, key);
        let next = move || params![&after.0[..], &after.1[..], BATCH_JOBS];
        let rows = changer.send(FORGET_GROUPS, next).await?;
        let Some(last) = rows.last().filter(|_| rows.len() == BATCH_JOBS) else { return Ok(()) };
        (handler, key) = (column(last, "handler")?, column(last, "key")?);
    }
}
