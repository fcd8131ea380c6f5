//! The moves of one job, and the event that it is of: puts it back, or drops it.
//!
//! What must stay true: a move starts only from the states that its verb names; a job that has answered its caller,
//! or whose payload is gone, never runs again; a running job is never dropped, since its attempt would end
//! unseen (R19). A replayed job keeps its key (R22) unless a new one is asked for, and its attempt numbers go
//! on. A held job keeps its payload until it is resolved or dropped (S12).

use rusqlite::{Connection, Row, params};

use crate::model::{DropReason, EventId, JobId, Name, State, Timestamp};
use crate::store::border::{AuditSubject, Error, Group, NewJob};
use crate::store::engine::verb::VerbError;
use crate::store::tables::answer::key_of;
use crate::store::tables::codec;
use crate::store::tables::codec::change_one;
use crate::store::tables::group;
use crate::store::tables::job::{FoundJob, put_back};

use super::decide::Decided;
use super::list::find_by_id;

/// The move of a job.
#[derive(Clone, Copy)]
pub(super) enum Move<'d> {
    /// As its handler's condition and group decide now; without them also where the condition does not hold, and where
    /// a newer event has taken its place.
    Replay(Option<&'d Decided>),
    Drop,
}

impl FoundJob {
    /// Its event and handler, if it has to be decided before it is put back.
    pub(super) fn open(self) -> Option<(i64, Name)> {
        self.undecided.then_some((self.event, self.handler))
    }

    /// Refuses a job whose last attempt is not the one that the operator saw, where that is said.
    pub(super) fn is_as(&self, seen: Option<u32>) -> Result<(), Error> {
        let &FoundJob { job, attempt, .. } = self;
        match seen.filter(|seen| *seen != attempt) {
            Some(seen) => Err(Error::NewerAttempt { job, seen, attempt }),
            None => Ok(()),
        }
    }

    /// What the audit list says of it.
    pub(super) fn subject(&self) -> AuditSubject {
        let (job, attempt) = (Some(self.job), Some(self.attempt));
        AuditSubject { job, attempt, ..AuditSubject::default() }
    }

    /// Refuses a move that this job does not allow.
    pub(super) fn check(&self, tx: &Connection, verb: Move<'_>) -> Result<(), VerbError> {
        let &FoundJob { row, job, state, event, grouped, undecided, .. } = self;
        let Move::Replay(decided) = verb else {
            return match state {
                State::Ready | State::Waiting | State::Held | State::Dead => Ok(()),
                State::Running | State::Succeeded | State::Dropped => {
                    Err(Error::WrongState { job, state, verb: "dropped" }.into())
                }
            };
        };
        if !matches!(state, State::Held | State::Dead | State::Succeeded) {
            return Err(Error::WrongState { job, state, verb: "replayed" }.into());
        }
        if !key_of(tx, event)?.may_run() {
            return Err(Error::Answered { job }.into());
        }
        if let Some(decided) = decided {
            let made = if undecided { decided.job(event, &self.handler) } else { None };
            let newer = match &made {
                _ if grouped => group::newer(tx, row)?,
                Some(made) => group::newer_than(tx, made, event)?,
                None => None,
            };
            if let Some(newer) = newer {
                return Err(Error::Superseded { job, newer }.into());
            }
            if let Some(why) = made.and_then(|made| made.undecided) {
                return Err(Error::Undecided { job, why }.into());
            }
        }
        // The job's event exists, by its foreign key.
        let event = tx
            .prepare_cached(&format!("{FOUND} WHERE e.row = ?1"))?
            .query_row([event], FoundEvent::read)?;
        if event.payload_kept { Ok(()) } else { Err(event.gone().into()) }
    }

    /// Makes a checked move. Returns the job's state after it.
    pub(super) fn go(
        &self,
        tx: &Connection,
        verb: Move<'_>,
        now: Timestamp,
    ) -> rusqlite::Result<State> {
        let reason = match verb {
            Move::Replay(decided) => {
                let job = match decided.filter(|_| self.undecided) {
                    Some(decided) => decided.job(self.event, &self.handler),
                    None => Some(NewJob::of(self.handler.clone())),
                };
                match job {
                    Some(job) => {
                        self.join(tx, job.group.as_ref())?;
                        put_back(tx, self.row, now)?;
                        return Ok(State::Ready);
                    }
                    None => DropReason::ConditionFalse,
                }
            }
            Move::Drop => DropReason::Operator,
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
    fn join(&self, tx: &Connection, group: Option<&Group>) -> rusqlite::Result<()> {
        let Some(group) = group.filter(|_| !self.grouped) else { return Ok(()) };
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

/// The SELECT of the rows that [`FoundEvent::read`] reads.
pub(crate) const FOUND: &str =
    "SELECT e.row, e.source, e.event_id, EXISTS (SELECT 1 FROM payload p WHERE p.event = e.row),
    e.removed_succeeded + e.removed_dropped > 0 FROM event e";

/// An event whose jobs may be put back.
pub(super) struct FoundEvent {
    pub(super) row: i64,
    pub(super) source: Name,
    pub(super) event: EventId,
    pub(super) payload_kept: bool,
    /// Its jobs were removed with its payload.
    pub(super) removed: bool,
}

impl FoundEvent {
    fn read(row: &Row<'_>) -> rusqlite::Result<FoundEvent> {
        Ok(FoundEvent {
            row: row.get(0)?,
            source: codec::text(row, 1)?,
            event: codec::event_id(row, 2)?,
            payload_kept: row.get(3)?,
            removed: row.get(4)?,
        })
    }

    pub(super) fn gone(&self) -> Error {
        let (source_name, event) = (self.source.clone(), self.event.clone());
        match self.removed {
            true => Error::JobsGone { source_name, event },
            false => Error::PayloadGone { source_name, event },
        }
    }

    /// The one event with this id, in this source or in all of them.
    pub(super) fn find(
        tx: &Connection,
        source: Option<&Name>,
        event: &EventId,
    ) -> Result<FoundEvent, VerbError> {
        let mut events = find_by_id(tx, source.cloned(), event, (FOUND, FoundEvent::read))?;
        let mut sources: Vec<&str> = events.iter().map(|found| found.source.as_str()).collect();
        sources.dedup();
        if sources.len() > 1 {
            let sources = sources.join(", ");
            return Err(Error::Ambiguous { event: event.clone(), sources }.into());
        }
        // One of the bodies may be forged, so the operator names the job.
        if events.len() > 1 {
            return Err(Error::Variants { event: event.clone(), bodies: events.len() }.into());
        }
        Ok(events.pop().ok_or_else(|| Error::NoEvent(event.clone()))?)
    }
}
