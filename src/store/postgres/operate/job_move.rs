//! The moves of one locked job: puts it back, or drops it.
//!
//! What must stay true: a replayed job keeps its key (R22) unless a new one is asked for, and its attempt numbers go
//! on. Each move names the state that it expects.

use crate::model::{JobId, State, Timestamp};
use crate::random;
use crate::store::decide::job_move::{FoundJob, JobMove, Move, ReplayFacts, drop_job, replay};

use super::super::flight::Flight;
use super::super::group::RELEASE_OF_JOBS;
use super::super::params::params;
use super::super::stop::{Stop, change_one};
use super::found::{EventFacts, LockedJob, facts};
use super::new_job::latest;

/// Puts a job back to ready, for another attempt, in the group $2 by the rule $3 if it had none; behind the job that
/// holds its group, if another one does.
const PUT_BACK: &str = r#"
    UPDATE job SET state = 'ready', reason = NULL, detail = NULL, due_at = NULL, settled_at = NULL, counted = 0,
        since = now_ms(), replays = replays + 1, wait_since = NULL, group_key = coalesce(group_key, $2::text),
        group_rule = coalesce(group_rule, $3::text),
        behind = EXISTS (SELECT FROM job h WHERE h.handler = job.handler
            AND h.group_key = coalesce(job.group_key, $2::text) COLLATE "C" AND h.holds AND NOT h.behind
            AND h.row <> job.row)
    WHERE row = $1 AND state IN ('held', 'dead', 'succeeded') RETURNING row"#;

/// Drops a job in the state and after the attempt that were read.
const DROP: &str = "
    UPDATE job SET state = 'dropped', reason = $4, due_at = NULL, settled_at = now_ms(), behind = false
    WHERE row = $1 AND state = $2 AND attempt = $3 AND state IN ('ready', 'waiting', 'held', 'dead') RETURNING row";

/// Records the key that a job had. The primary key refuses one that was replaced before.
const FORMER_KEY: &str = "
    INSERT INTO former_key (id, job, attempt, replaced_at) VALUES ($1, $2, $3, now_ms()) RETURNING id";

const NEW_KEY: &str = "
    UPDATE job SET id = $3 WHERE row = $1 AND id = $2 AND attempt = $4 AND state IN ('held', 'dead', 'succeeded')
    RETURNING row";

impl LockedJob {
    /// What a move makes of this job; refused where the job does not allow it.
    pub(super) async fn check(&self, flight: &mut Flight, verb: Move<'_>) -> Result<JobMove, Stop> {
        let found = &self.found;
        let Move::Replay(decided) = verb else { return Ok(drop_job(found)?) };
        let routed = found.routed(decided);
        let of_group = match decided {
            Some(_) if found.grouped => self.latest.as_deref(),
            Some(_) => routed.as_ref().and_then(latest),
            None => None,
        };
        let EventFacts { event, key, newer } =
            facts(flight, found.event, &found.handler, of_group).await?;
        Ok(replay(found, ReplayFacts { event: &event, key, newer, routed })?)
    }

    /// Makes a checked move. Returns the job's state after it. [`release`] must follow.
    pub(super) async fn go(&self, flight: &mut Flight, checked: JobMove) -> Result<State, Stop> {
        let FoundJob { row, state, attempt, .. } = self.found;
        match checked {
            JobMove::PutBack(group) => {
                let group = group.as_ref().map(|of| (of.key.as_str(), of.rule.as_str()));
                let (key, rule) = group.unzip();
                change_one(flight, PUT_BACK, params![row, key, rule]).await?;
                Ok(State::Ready)
            }
            JobMove::Drop(reason) => {
                let dropped = params![row, state.as_str(), attempt, reason.as_str()];
                change_one(flight, DROP, dropped).await?;
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
        let FoundJob { row, job, attempt, .. } = self.found;
        let new = random::job_id(now);
        change_one(flight, FORMER_KEY, params![job, row, attempt]).await?;
        change_one(flight, NEW_KEY, params![row, job, new, attempt]).await?;
        Ok(new)
    }
}

/// Lets the groups go on that the moved jobs have left.
pub(super) async fn release(flight: &mut Flight, moved: Vec<JobId>) {
    flight.send(RELEASE_OF_JOBS, params![moved]).await;
}
