//! The moves of one locked job: puts it back, or drops it.
//!
//! What must stay true: a replayed job keeps its key (R22) unless a new one is asked for, and its attempt numbers go
//! on. Each move names the state that it expects.

use uuid::Uuid;

use crate::model::{JobId, State, Timestamp};
use crate::random;
use crate::store::border::{AuditSubject, NewJob};
use crate::store::decide::conditions::Decided;
use crate::store::decide::job_move::{JobMove, ReplayFacts, drop_job, replay};

use super::super::claim::uuid;
use super::super::flight::{Flight, Param};
use super::super::group::RELEASE_OF_JOBS;
use super::change::{Stop, change_one};
use super::found::{LockedJob, facts};
use super::new_job::latest;

/// Back to ready, for another attempt, in the group $2 by the rule $3 if it had none; behind the job that holds its
/// group, if another one does.
const PUT_BACK: &str = r#"
    UPDATE job SET state = 'ready', reason = NULL, detail = NULL, due_at = NULL, settled_at = NULL, counted = 0,
        since = now_ms(), replays = replays + 1, wait_since = NULL, group_key = coalesce(group_key, $2::text),
        group_rule = coalesce(group_rule, $3::text),
        behind = EXISTS (SELECT FROM job h WHERE h.handler = job.handler
            AND h.group_key = coalesce(job.group_key, $2::text) COLLATE "C" AND h.holds AND NOT h.behind
            AND h.row <> job.row)
    WHERE row = $1 AND state IN ('held', 'dead', 'succeeded') RETURNING row"#;

/// From the state that was read, after that attempt.
const DROP: &str = "
    UPDATE job SET state = 'dropped', reason = $4, due_at = NULL, settled_at = now_ms(), behind = false
    WHERE row = $1 AND state = $2 AND attempt = $3 AND state IN ('ready', 'waiting', 'held', 'dead') RETURNING row";

/// Records the key that a job had. The primary key refuses one that was replaced before.
const FORMER_KEY: &str = "
    INSERT INTO former_key (id, job, attempt, replaced_at) VALUES ($1, $2, $3, now_ms()) RETURNING id";

const NEW_KEY: &str = "
    UPDATE job SET id = $3 WHERE row = $1 AND id = $2 AND attempt = $4 AND state IN ('held', 'dead', 'succeeded')
    RETURNING row";

/// The move of a job.
#[derive(Clone, Copy)]
pub(super) enum Move<'d> {
    /// As its handler's condition and group decide now; without them also where the condition does not hold, and where
    /// a newer event has taken its place.
    Replay(Option<&'d Decided>),
    Drop,
}

impl LockedJob {
    /// What the audit list says of it.
    pub(super) fn subject(&self) -> AuditSubject {
        let (job, attempt) = (Some(self.found.job), Some(self.found.attempt));
        AuditSubject { job, attempt, ..AuditSubject::default() }
    }

    /// What a move makes of this job; refused where the job does not allow it.
    pub(super) async fn check(&self, flight: &mut Flight, verb: Move<'_>) -> Result<JobMove, Stop> {
        let found = &self.found;
        let Move::Replay(decided) = verb else { return Ok(drop_job(found)?) };
        let routed = match decided.filter(|_| found.undecided) {
            Some(decided) => decided.job(found.event, &found.handler),
            None => Some(NewJob::of(found.handler.clone())),
        };
        let of_group = match (decided, &routed) {
            (None, _) => None,
            _ if found.grouped => self.latest.as_deref(),
            (_, routed) => routed.as_ref().and_then(latest),
        };
        let facts = facts(flight, found.event, &found.handler, of_group).await?;
        let (event, key, newer) = (&facts.event, facts.key, facts.newer);
        Ok(replay(found, ReplayFacts { event, key, newer, routed })?)
    }

    /// Makes a checked move. Returns the job's state after it. [`release`] must follow.
    pub(super) async fn go(&self, flight: &mut Flight, checked: JobMove) -> Result<State, Stop> {
        let found = &self.found;
        match checked {
            JobMove::PutBack(group) => {
                let (key, rule) =
                    group.map(|of| (of.key.as_str().to_owned(), of.rule.as_str())).unzip();
                let params: Vec<Param> = vec![Box::new(found.row), Box::new(key), Box::new(rule)];
                change_one(flight, PUT_BACK, params).await?;
                Ok(State::Ready)
            }
            JobMove::Drop(reason) => {
                let params: Vec<Param> = vec![
                    Box::new(found.row),
                    Box::new(found.state.as_str()),
                    Box::new(i64::from(found.attempt)),
                    Box::new(reason.as_str()),
                ];
                change_one(flight, DROP, params).await?;
                Ok(State::Dropped)
            }
        }
    }

    /// Gives the job a new key and records the old one: every attempt up to this one carried it.
    pub(super) async fn replace_key(
        &self,
        flight: &mut Flight,
        now: Timestamp,
    ) -> Result<JobId, Stop> {
        let (found, new) = (&self.found, random::job_id(now));
        let (old, attempt) = (uuid(&found.job), i64::from(found.attempt));
        let params: Vec<Param> = vec![Box::new(old), Box::new(found.row), Box::new(attempt)];
        change_one(flight, FORMER_KEY, params).await?;
        let params: Vec<Param> =
            vec![Box::new(found.row), Box::new(old), Box::new(uuid(&new)), Box::new(attempt)];
        change_one(flight, NEW_KEY, params).await?;
        Ok(new)
    }
}

/// Lets the groups go on that the moved jobs have left.
pub(super) async fn release<'j>(flight: &mut Flight, moved: impl Iterator<Item = &'j JobId>) {
    let moved: Vec<Uuid> = moved.map(uuid).collect();
    flight.send(RELEASE_OF_JOBS, vec![Box::new(moved)]).await;
}
