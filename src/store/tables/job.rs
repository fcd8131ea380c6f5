//! The row of a job: makes it, finds it by its id, and puts it back.

use rusqlite::{Connection, OptionalExtension, params};

use crate::model::{GroupRule, HeldReason, JobId, State, Timestamp};
use crate::store::border::{Delay, NewJob};

use super::codec::{self, change_one};
use super::group;

/// Makes a job of an event that is not new, or that no other job concerns: `ready`, or `held` for a reason or because it
/// cannot be decided. It takes no other job's place, and has no delay (I7). Returns its id.
pub(crate) fn insert_job(
    tx: &Connection,
    event: i64,
    job: &NewJob,
    held: Option<HeldReason>,
    now: Timestamp,
) -> rusqlite::Result<JobId> {
    let id = crate::random::job_id(now);
    insert(tx, event, (id, job), reason(job, held), None, now)?;
    Ok(id)
}

/// Why a job is held. What the guard says comes first.
fn reason(job: &NewJob, held: Option<HeldReason>) -> Option<HeldReason> {
    held.or(job.undecided.as_ref().map(|_| HeldReason::ConditionFailed))
}

/// Makes a job of a new event. If it may run, it takes the place of older ones of its group, where the latest wins, and
/// it waits for its delay. Returns whether it is held.
pub(crate) fn insert_new_job(
    tx: &Connection,
    event: i64,
    job: &NewJob,
    held: Option<HeldReason>,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let id = crate::random::job_id(now);
    let held = reason(job, held);
    let mut wait = None;
    if held.is_none() {
        let first = match &job.group {
            Some(group) => group::supersede(tx, &job.handler, group, id, now)?,
            None => None,
        };
        wait = job.delay.map(|delay| Wait::of(delay, first, now));
    }
    insert(tx, event, (id, job), held, wait, now)?;
    Ok(held.is_some())
}

/// A delay as it is stored.
struct Wait {
    since: Timestamp,
    due_at: Timestamp,
}

impl Wait {
    /// Of a job that replaces others, the first of which came at `first`. That time is not trusted: the clock may have
    /// been set back.
    fn of(delay: Delay, first: Option<Timestamp>, now: Timestamp) -> Self {
        let since = first.unwrap_or(now).min(now);
        let most = if first.is_some() { since.after(delay.most) } else { Timestamp(i64::MAX) };
        Wait { since, due_at: now.after(delay.wait).min(most).max(now) }
    }
}

fn insert(
    tx: &Connection,
    event: i64,
    (id, job): (JobId, &NewJob),
    held: Option<HeldReason>,
    wait: Option<Wait>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let state = match (held, &wait) {
        (Some(_), _) => State::Held,
        (None, Some(_)) => State::Waiting,
        (None, None) => State::Ready,
    };
    let detail = &job.undecided;
    let due_at = wait.as_ref().map(|wait| wait.due_at);
    // One job per event and handler: the unique index refuses a second.
    tx.prepare_cached(
        "INSERT INTO job (id, event, handler, state, reason, detail, since, created_at, due_at, wait_since,
             group_key, group_rule,
             behind)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,
             ?13 AND EXISTS (SELECT 1 FROM job INDEXED BY job_holder WHERE handler = ?3 AND group_key = ?11 AND holds = 1 AND behind = 0))",
    )?
    .execute(params![
        id.as_bytes(),
        event,
        job.handler.as_str(),
        state.as_str(),
        held.map(HeldReason::as_str),
        detail,
        // Of a delayed job: what it may take begins when it is due.
        due_at.unwrap_or(now).0,
        now.0,
        due_at.map(|due| due.0),
        wait.map(|wait| wait.since.0),
        job.group.as_ref().map(|group| group.key.as_str()),
        job.group.as_ref().map(|group| group.rule.as_str()),
        job.group.as_ref().is_some_and(|group| keeps_place(group.rule, held)),
    ])?;
    Ok(())
}

/// Whether a new job takes part in its group's order: what may be forged, and under [`GroupRule::Latest`] what is
/// held, keeps no other waiting. As the schema's `holds`.
fn keeps_place(rule: GroupRule, held: Option<HeldReason>) -> bool {
    match held {
        None => true,
        Some(HeldReason::SuspectedReplay | HeldReason::IdReused) => false,
        Some(_) => rule != GroupRule::Latest,
    }
}

/// A job as a transaction finds it by its id.
pub(crate) struct FoundJob {
    pub(crate) row: i64,
    pub(crate) state: State,
    pub(crate) attempt: u32,
    pub(crate) event: i64,
    /// It is of a group.
    pub(crate) grouped: bool,
}

pub(crate) fn find_job(tx: &Connection, job: JobId) -> rusqlite::Result<Option<FoundJob>> {
    // By the unique id.
    tx.prepare_cached(
        "SELECT row, state, attempt, event, group_key IS NOT NULL FROM job WHERE id = ?1",
    )?
    .query_row([job.as_bytes()], |row| {
        Ok(FoundJob {
            row: row.get(0)?,
            state: codec::text(row, 1)?,
            attempt: row.get(2)?,
            event: row.get(3)?,
            grouped: row.get(4)?,
        })
    })
    .optional()
}

/// Whether a job had this key before it was put back under another.
pub(crate) fn was_key(tx: &Connection, job: JobId) -> rusqlite::Result<bool> {
    // By the primary key.
    tx.prepare_cached("SELECT 1 FROM former_key WHERE id = ?1")?.exists([job.as_bytes()])
}

/// Back to ready, for another attempt; behind the job that holds its group, where another one does.
pub(crate) fn put_back(tx: &Connection, row: i64, now: Timestamp) -> rusqlite::Result<()> {
    // From these three states only; attempts are counted anew and their numbers go on.
    change_one(
        tx,
        "UPDATE job SET state = 'ready', reason = NULL, detail = NULL, due_at = NULL, settled_at = NULL,
                 counted = 0, since = ?2, replays = replays + 1, wait_since = NULL,
                 behind = group_key IS NOT NULL AND EXISTS (SELECT 1 FROM job h INDEXED BY job_holder WHERE h.handler = job.handler
                     AND h.group_key = job.group_key AND h.holds = 1 AND h.behind = 0 AND h.row <> job.row)
             WHERE row = ?1 AND state IN ('held', 'dead', 'succeeded')",
        params![row, now.0],
    )
}
