//! Which jobs a handler lacks among stored events.

use crate::limits::BATCH_JOBS;
use crate::model::{HeldReason, Name};
use crate::store::border::{
    AuditSubject, Backfill, BackfillCursor, BackfillResult, EventMatcher, NewJob, Newer,
};

use super::conditions::Decided;

/// An event looked at.
pub(crate) struct EventCandidate {
    pub(crate) row: i64,
    pub(crate) source: Name,
    pub(crate) event_type: String,
    pub(crate) new_enough: bool,
    pub(crate) held: Option<HeldReason>,
    pub(crate) payload_kept: bool,
    /// It has a job of this handler, had jobs that were removed, or is answered by another handler.
    pub(crate) present: bool,
}

impl Backfill {
    /// Keeps those of the next events of the walk that are meant. Also returns the place behind all of them; `None` at
    /// the end.
    pub(crate) fn meant(
        &self,
        mut events: Vec<EventCandidate>,
        place: BackfillCursor,
    ) -> (Vec<EventCandidate>, Option<BackfillCursor>) {
        let more = events.last().filter(|_| events.len() == BATCH_JOBS);
        let next = more.map(|event| BackfillCursor { after: event.row, ..place });
        events.retain(|event| {
            let wants = |wanted: &EventMatcher| wanted.matches(&event.source, &event.event_type);
            event.new_enough && self.wanted.iter().any(wants)
        });
        (events, next)
    }

    /// The events that lack the job, each with the handler.
    pub(crate) fn open(&self, events: &[EventCandidate]) -> Vec<(i64, Name)> {
        let missing = events.iter().filter(|event| event.payload_kept && !event.present);
        missing.map(|event| (event.row, self.handler.clone())).collect()
    }

    pub(crate) fn subject(&self) -> AuditSubject {
        let (handler, since) = (Some(self.handler.clone()), Some(self.since));
        AuditSubject { handler, since, ..AuditSubject::default() }
    }
}

impl EventCandidate {
    /// The job that is missing, or counts why none is. What accepting the event would have held is held.
    pub(crate) fn missing(
        &self,
        handler: &Name,
        decided: &Decided,
        result: &mut BackfillResult,
    ) -> Option<NewJob> {
        let counted = match decided.job(self.row, handler) {
            _ if self.present => &mut result.present,
            _ if !self.payload_kept => &mut result.payload_gone,
            None => &mut result.unwanted,
            Some(job) => return Some(job),
        };
        *counted += 1;
        None
    }

    /// Whether the missing job is made, which is counted.
    pub(crate) fn is_made(
        &self,
        job: &NewJob,
        newer: Option<Newer>,
        result: &mut BackfillResult,
    ) -> bool {
        match newer {
            Some(_) => result.superseded += 1,
            None => {
                result.made += 1;
                result.held += u64::from(self.held.is_some() || job.undecided.is_some());
            }
        }
        newer.is_none()
    }
}
