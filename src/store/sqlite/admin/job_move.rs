//! The moves of one job, and the event that it is of: puts it back, or drops it.
//!
//! What must stay true: a replayed job keeps its key (R22) unless a new one is asked for, and its attempt numbers go
//! on. A held job keeps its payload until it is resolved or dropped (S12).

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::model::{EventId, JobId, Name, State, Timestamp};
use crate::store::border::{Error, Group};
use crate::store::decide::job_move::{
    FoundEvent, FoundJob, JobMove, Move, ReplayFacts, drop_job, replay,
};
use crate::store::sqlite::engine::verb::VerbError;
use crate::store::sqlite::tables::answer::key_of;
use crate::store::sqlite::tables::codec;
use crate::store::sqlite::tables::codec::change_one;
use crate::store::sqlite::tables::group;
use crate::store::sqlite::tables::job::put_back;

use super::list::find_by_id;

impl FoundJob {
    /// Its event and handler, if it has to be decided before it is put back.
    pub(super) fn open(self) -> Option<(i64, Name)> {
        self.undecided.then_some((self.event, self.handler))
    }

    /// What a move makes of this job; refused where the job does not allow it.
    pub(super) fn check(&self, tx: &Connection, verb: Move<'_>) -> Result<JobMove, VerbError> {
        let Move::Replay(decided) = verb else { return Ok(drop_job(self)?) };
        let routed = self.routed(decided);
        let newer = match (decided, &routed) {
            (None, _) => None,
            _ if self.grouped => group::newer(tx, self.row)?,
            (_, Some(job)) => group::newer_than(tx, job, self.event)?,
            (_, None) => None,
        };
        let key = key_of(tx, self.event)?;
        let event = tx
            .prepare_cached(&format!("{FOUND} WHERE e.row = ?1"))?
            .query_row([self.event], read_event)
            .optional()?;
        // It exists, by the foreign key, unless a byte has changed.
        let none = || Error::Damaged(format!("job {} is of no event", self.job));
        let event = event.ok_or_else(none)?;
        Ok(replay(self, ReplayFacts { event: &event, key, newer, routed })?)
    }

    /// Makes a checked move. Returns the job's state after it.
    pub(super) fn go(
        &self,
        tx: &Connection,
        checked: JobMove,
        now: Timestamp,
    ) -> rusqlite::Result<State> {
        let reason = match checked {
            JobMove::PutBack(group) => {
                self.join(tx, group)?;
                put_back(tx, self.row, now)?;
                return Ok(State::Ready);
            }
            JobMove::Drop(reason) => reason,
        };
        // From the state just read, after this attempt, and never from running or succeeded.
        change_one(
            tx,
            "UPDATE job SET state = 'dropped', reason = ?4, due_at = NULL, settled_at = ?5,
                     behind = 0
                 WHERE row = ?1 AND state = ?2 AND attempt = ?3
                   AND state IN ('ready', 'waiting', 'held', 'dead')",
            params![self.row, self.state.as_str(), self.attempt, reason.as_str(), now.0],
        )?;
        if self.grouped {
            group::release(tx, self.row)?;
        }
        Ok(State::Dropped)
    }

    /// Notes the group that could not be read when the job was made.
    fn join(&self, tx: &Connection, group: Option<Group>) -> rusqlite::Result<()> {
        let Some(group) = group else { return Ok(()) };
        // Behind the job that holds the group, where one does.
        change_one(
            tx,
            "UPDATE job SET group_key = ?2, group_rule = ?3, behind = ?3 <> 'latest' AND EXISTS (SELECT 1 FROM job h
                 INDEXED BY job_holder WHERE h.handler = job.handler AND h.group_key = ?2 AND h.holds = 1 AND h.behind = 0)
             WHERE row = ?1 AND state = 'held' AND group_key IS NULL",
            params![self.row, group.key.as_str(), group.rule.as_str()],
        )
    }

    /// Gives the job a new key and records the old one: every attempt up to this one carried it.
    pub(super) fn replace_key(&self, tx: &Connection, now: Timestamp) -> rusqlite::Result<JobId> {
        let new = crate::random::job_id(now);
        // The primary key refuses a key that was replaced before.
        change_one(
            tx,
            "INSERT INTO former_key (id, job, attempt, replaced_at) VALUES (?1, ?2, ?3, ?4)",
            params![self.job.as_bytes(), self.row, self.attempt, now.0],
        )?;
        // Only of a job that has this key, does not run, and has made no other attempt.
        change_one(
            tx,
            "UPDATE job SET id = ?3 WHERE row = ?1 AND id = ?2 AND attempt = ?4
                     AND state IN ('held', 'dead', 'succeeded')",
            params![self.row, self.job.as_bytes(), new.as_bytes(), self.attempt],
        )?;
        Ok(new)
    }
}

/// The SELECT of the rows that [`read_event`] reads.
pub(crate) const FOUND: &str =
    "SELECT e.row, e.source, e.event_id, EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row),
    e.removed_succeeded + e.removed_dropped > 0 FROM event e";

fn read_event(row: &Row<'_>) -> rusqlite::Result<FoundEvent> {
    Ok(FoundEvent {
        row: row.get(0)?,
        source: codec::readable(row, 1)?,
        event: codec::readable(row, 2)?,
        payload_kept: row.get(3)?,
        removed: row.get(4)?,
    })
}

/// The one event with this id, in this source or in all of them.
pub(super) fn find_event(
    tx: &Connection,
    source: Option<&Name>,
    event: &EventId,
) -> Result<FoundEvent, VerbError> {
    let found = find_by_id(tx, source.cloned(), event, (FOUND, read_event))?;
    Ok(FoundEvent::only(found, event)?)
}
