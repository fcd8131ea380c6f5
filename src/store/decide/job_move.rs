//! Which moves of a job the operator may make, and which jobs he may have made.
//!
//! What must stay true: a move starts only from the states that its verb names; a job that has answered its caller,
//! or whose payload is gone, never runs again; a running job is never dropped, since its attempt would end
//! unseen (R19).

use crate::model::{DropReason, EventId, JobId, Name, State};
use crate::store::border::{AuditSubject, Error, Group, NewJob, Newer};

use super::conditions::Decided;
use super::key::KeyOf;

/// A job as a transaction finds it.
#[derive(Debug, Clone)]
pub(crate) struct FoundJob {
    pub(crate) row: i64,
    pub(crate) job: JobId,
    pub(crate) event: i64,
    pub(crate) handler: Name,
    pub(crate) state: State,
    pub(crate) attempt: u32,
    /// It is of a group.
    pub(crate) grouped: bool,
    /// It is held, and its handler's condition could not be decided when it was made.
    pub(crate) undecided: bool,
}

impl FoundJob {
    /// The error that its state does not allow a verb, such as "replayed".
    pub(crate) fn wrong_state(&self, verb: &'static str) -> Error {
        Error::WrongState { job: self.job, state: self.state, verb }
    }

    /// Refuses a job whose last attempt is not the one that the operator saw, where that is said.
    pub(crate) fn is_as(&self, seen: Option<u32>) -> Result<(), Error> {
        let &FoundJob { job, attempt, .. } = self;
        match seen.filter(|seen| *seen != attempt) {
            Some(seen) => Err(Error::NewerAttempt { job, seen, attempt }),
            None => Ok(()),
        }
    }

    /// What the audit list says of it.
    pub(crate) fn subject(&self) -> AuditSubject {
        let (job, attempt) = (Some(self.job), Some(self.attempt));
        AuditSubject { job, attempt, ..AuditSubject::default() }
    }

    /// The job that its handler gets of the event, decided again where it was undecided; none where the condition does
    /// not hold.
    pub(crate) fn routed(&self, decided: Option<&Decided>) -> Option<NewJob> {
        match decided.filter(|_| self.undecided) {
            Some(decided) => decided.job(self.event, &self.handler),
            None => Some(NewJob::of(self.handler.clone())),
        }
    }
}

/// An event whose jobs may be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundEvent {
    pub(crate) row: i64,
    pub(crate) source: Name,
    pub(crate) event: EventId,
    pub(crate) payload_kept: bool,
    /// Its jobs were removed with its payload.
    pub(crate) removed: bool,
}

impl FoundEvent {
    /// Why nothing of it can run, where its payload is gone.
    pub(crate) fn gone(&self) -> Error {
        let (source_name, event) = (self.source.clone(), self.event.clone());
        match self.removed {
            true => Error::JobsGone { source_name, event },
            false => Error::PayloadGone { source_name, event },
        }
    }

    /// What the audit list says of it, or of its job of this handler.
    pub(crate) fn subject(&self, handler: Option<&Name>) -> AuditSubject {
        AuditSubject {
            event: Some(self.event.clone()),
            source: Some(self.source.clone()),
            handler: handler.cloned(),
            ..AuditSubject::default()
        }
    }

    /// The one event of those that have the id `asked`, by their sources.
    pub(crate) fn only(mut found: Vec<FoundEvent>, asked: &EventId) -> Result<FoundEvent, Error> {
        let event = asked.clone();
        let mut sources: Vec<&str> = found.iter().map(|found| found.source.as_str()).collect();
        sources.dedup();
        if sources.len() > 1 {
            return Err(Error::Ambiguous { sources: sources.join(", "), event });
        }
        // One of the bodies may be forged, so the operator names the job.
        if found.len() > 1 {
            return Err(Error::Variants { event, bodies: found.len() });
        }
        found.pop().ok_or(Error::NoEvent(event))
    }
}

/// The move of a job.
#[derive(Clone, Copy)]
pub(crate) enum Move<'d> {
    /// A replay, as its handler's condition and group decide now. Without a decision, the job is also put back where
    /// the condition does not hold, and where a newer event has taken its place.
    Replay(Option<&'d Decided>),
    Drop,
}

/// What a move makes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobMove {
    /// Ready again; first in the group that could not be read when the job was made.
    PutBack(Option<Group>),
    Drop(DropReason),
}

/// What a replay goes by.
#[derive(Debug)]
pub(crate) struct ReplayFacts<'a> {
    pub(crate) event: &'a FoundEvent,
    pub(crate) key: KeyOf,
    /// What makes the job out of date. None where the operator replays it regardless.
    pub(crate) newer: Option<Newer>,
    /// The job that [`FoundJob::routed`] returns.
    pub(crate) routed: Option<NewJob>,
}

/// REPLAY of a held, dead or succeeded job.
pub(crate) fn replay(found: &FoundJob, facts: ReplayFacts<'_>) -> Result<JobMove, Error> {
    let job = found.job;
    if !matches!(found.state, State::Held | State::Dead | State::Succeeded) {
        return Err(found.wrong_state("replayed"));
    }
    if !facts.key.may_run() {
        return Err(Error::Answered { job });
    }
    if let Some(newer) = facts.newer {
        return Err(Error::Superseded { job, newer });
    }
    let group = match facts.routed {
        Some(NewJob { undecided: Some(why), .. }) => return Err(Error::Undecided { job, why }),
        Some(routed) => Some(routed.group),
        None => None,
    };
    if !facts.event.payload_kept {
        return Err(facts.event.gone());
    }
    Ok(match group {
        Some(group) => JobMove::PutBack(group.filter(|_| !found.grouped)),
        None => JobMove::Drop(DropReason::ConditionFalse),
    })
}

/// DROP of a job that does not run and has not succeeded.
pub(crate) fn drop_job(found: &FoundJob) -> Result<JobMove, Error> {
    match found.state {
        State::Running | State::Succeeded | State::Dropped => Err(found.wrong_state("dropped")),
        State::Ready | State::Waiting | State::Held | State::Dead => {
            Ok(JobMove::Drop(DropReason::Operator))
        }
    }
}

/// The job that `handler` gets of an event that lacks it: `routed`, none where its condition does not hold. `newer`
/// makes it out of date, but where the operator has it made regardless.
pub(crate) fn make(
    handler: &Name,
    event: &FoundEvent,
    key: KeyOf,
    routed: Option<NewJob>,
    newer: Option<Newer>,
) -> Result<NewJob, Error> {
    let (source_name, id) = (event.source.clone(), event.event.clone());
    let handler = handler.clone();
    if key != KeyOf::Nobody {
        return Err(Error::OneHandler { source_name, event: id });
    }
    if !event.payload_kept {
        return Err(event.gone());
    }
    match (routed, newer) {
        (None, _) => Err(Error::Unwanted { handler, event: id }),
        (Some(NewJob { undecided: Some(why), .. }), _) => {
            Err(Error::UndecidedEvent { handler, event: id, why })
        }
        (Some(_), Some(newer)) => Err(Error::OutOfDate { handler, event: id, newer }),
        (Some(job), None) => Ok(job),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{GroupKey, GroupRule};
    use crate::store::tests::{found_job as found, id, name};

    fn event(payload_kept: bool, removed: bool) -> FoundEvent {
        FoundEvent { row: 1, source: name("s"), event: id("e"), payload_kept, removed }
    }

    fn group() -> Group {
        Group { key: GroupKey::kept("k".to_owned()), rule: GroupRule::Block }
    }

    fn undecided() -> NewJob {
        NewJob { undecided: Some("why".to_owned()), ..NewJob::of(name("h")) }
    }

    #[test]
    fn a_job_is_moved_only_after_the_attempt_seen() {
        let found = found(State::Held);
        for (seen, is_as) in [(None, true), (Some(2), true), (Some(1), false), (Some(3), false)] {
            assert_eq!(found.is_as(seen).is_ok(), is_as, "{seen:?}");
        }
        let error = Error::NewerAttempt { job: found.job, seen: 1, attempt: 2 };
        assert_eq!(found.is_as(Some(1)), Err(error));
    }

    #[test]
    fn a_move_starts_from_the_states_of_its_verb() {
        use State::{Dead, Dropped, Held, Ready, Running, Succeeded, Waiting};
        for (state, replays, drops) in [
            (Ready, false, true),
            (Running, false, false),
            (Waiting, false, true),
            (Held, true, true),
            (Succeeded, true, false),
            (Dead, true, true),
            (Dropped, false, false),
        ] {
            let found = found(state);
            let job = found.job;
            let wrong = |verb| Err(Error::WrongState { job, state, verb });
            let (event, routed) = (event(true, false), Some(NewJob::of(name("h"))));
            let facts = ReplayFacts { event: &event, key: KeyOf::Nobody, newer: None, routed };
            let put_back = if replays { Ok(JobMove::PutBack(None)) } else { wrong("replayed") };
            assert_eq!(replay(&found, facts), put_back, "{state}");
            let dropped =
                if drops { Ok(JobMove::Drop(DropReason::Operator)) } else { wrong("dropped") };
            assert_eq!(drop_job(&found), dropped, "{state}");
        }
    }

    #[test]
    fn a_replay_goes_by_key_order_condition_and_payload() {
        let dead = found(State::Dead);
        let job = dead.job;
        let grouped = FoundJob { grouped: true, ..dead.clone() };
        let plain = || Some(NewJob::of(name("h")));
        let with_group = || Some(NewJob { group: Some(group()), ..NewJob::of(name("h")) });
        let newer = Some(Newer::Removed);
        let back = |group| Ok(JobMove::PutBack(group));
        let superseded = || Err(Error::Superseded { job, newer: Newer::Removed });
        let unanswered = [KeyOf::Nobody, KeyOf::Unanswered];
        for (found, newer, routed, expected) in [
            (&dead, None, plain(), back(None)),
            (&dead, None, with_group(), back(Some(group()))),
            // It is in its group already.
            (&grouped, None, with_group(), back(None)),
            (&dead, None, None, Ok(JobMove::Drop(DropReason::ConditionFalse))),
            (&dead, None, Some(undecided()), Err(Error::Undecided { job, why: "why".to_owned() })),
            (&dead, newer, plain(), superseded()),
            (&grouped, newer, None, superseded()),
            (&dead, newer, Some(undecided()), superseded()),
        ] {
            let replay = |key, payload_kept, removed| {
                let event = event(payload_kept, removed);
                replay(found, ReplayFacts { event: &event, key, newer, routed: routed.clone() })
            };
            for key in unanswered {
                assert_eq!(replay(key, true, false), expected, "{newer:?} {routed:?}");
            }
            for key in [KeyOf::Answered, KeyOf::GivenUp] {
                assert_eq!(replay(key, true, false), Err(Error::Answered { job }));
            }
            for removed in [false, true] {
                let gone = if expected.is_ok() {
                    Err(event(false, removed).gone())
                } else {
                    replay(KeyOf::Nobody, true, false)
                };
                assert_eq!(replay(KeyOf::Nobody, false, removed), gone);
            }
        }
        let (source_name, event_id) = (name("s"), id("e"));
        let (source, of) = (source_name.clone(), event_id.clone());
        assert_eq!(event(false, true).gone(), Error::JobsGone { source_name: source, event: of });
        assert_eq!(event(false, false).gone(), Error::PayloadGone { source_name, event: event_id });
    }

    #[test]
    fn a_missing_job_is_made_of_an_event_that_may_run() {
        let (handler, id) = (name("h"), id("e"));
        let plain = NewJob::of(handler.clone());
        let why = "why".to_owned();
        let unwanted = || Error::Unwanted { handler: handler.clone(), event: id.clone() };
        let unclear = Error::UndecidedEvent { handler: handler.clone(), event: id.clone(), why };
        let newer = Newer::Removed;
        let late = Error::OutOfDate { handler: handler.clone(), event: id.clone(), newer };
        for (routed, newer, expected) in [
            (Some(plain.clone()), None, Ok(plain.clone())),
            (None, None, Err(unwanted())),
            (None, Some(newer), Err(unwanted())),
            (Some(undecided()), Some(newer), Err(unclear)),
            (Some(plain.clone()), Some(newer), Err(late)),
        ] {
            let make = |key, payload_kept| {
                make(&handler, &event(payload_kept, false), key, routed.clone(), newer)
            };
            assert_eq!(make(KeyOf::Nobody, true), expected);
            assert_eq!(make(KeyOf::Nobody, false), Err(event(false, false).gone()));
            for key in [KeyOf::Unanswered, KeyOf::Answered, KeyOf::GivenUp] {
                let one = Error::OneHandler { source_name: name("s"), event: id.clone() };
                assert_eq!(make(key, true), Err(one));
            }
        }
    }

    #[test]
    fn an_id_names_one_event_or_is_refused() {
        let of = |source| FoundEvent { source: name(source), ..event(true, false) };
        let event = id("e");
        let ambiguous = || Error::Ambiguous { event: event.clone(), sources: "a, b".to_owned() };
        for (found, expected) in [
            (vec![], Err(Error::NoEvent(event.clone()))),
            (vec![of("a")], Ok(of("a"))),
            (vec![of("a"), of("a")], Err(Error::Variants { event: event.clone(), bodies: 2 })),
            (vec![of("a"), of("b")], Err(ambiguous())),
            (vec![of("a"), of("a"), of("b")], Err(ambiguous())),
        ] {
            assert_eq!(FoundEvent::only(found, &event), expected);
        }
    }
}
