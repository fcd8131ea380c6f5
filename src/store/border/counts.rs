//! Counts of the jobs that are not settled, or that wait for a person.

use serde::{Deserialize, Serialize};

use crate::model::{JobId, Name, State, Timestamp};

use super::rows::JobRow;

/// Unsettled jobs of one handler in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    pub handler: Name,
    /// How many jobs, of ready ones 10,000 at most, except in the metrics.
    pub jobs: u64,
    /// When the oldest became ready; when the next waiting job is due; when the oldest live attempt began.
    pub since: Timestamp,
}

/// Jobs of one handler that wait for a person for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedJobs {
    pub handler: Name,
    /// `held` or `dead`.
    pub state: State,
    pub reason: String,
    pub jobs: u64,
    /// The oldest one's event arrived then.
    pub oldest_at: Timestamp,
}

/// Groups of one handler in which nothing runs until a person has settled their first job, which is held or dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedGroups {
    pub handler: Name,
    /// How many groups, of those that have other jobs behind the first one.
    pub groups: u64,
    /// The first job of one of them.
    pub job: JobId,
}

/// Jobs that are not settled, or that wait for a person.
#[derive(Debug, Clone)]
pub struct JobCounts {
    pub ready: Vec<Backlog>,
    pub waiting: Vec<Backlog>,
    pub running: Vec<Backlog>,
    /// The held and dead jobs, by handler and reason, held ones first.
    pub stuck: Vec<StoppedJobs>,
    pub blocked: Vec<BlockedGroups>,
}

impl JobCounts {
    /// How many jobs of this handler are in this state; 0 for a settled one other than dead.
    pub fn count(&self, handler: &Name, state: State) -> u64 {
        let backlogs = match state {
            State::Ready => &self.ready,
            State::Waiting => &self.waiting,
            State::Running => &self.running,
            State::Held | State::Dead | State::Succeeded | State::Dropped => {
                let of = |stuck: &&StoppedJobs| stuck.handler == *handler && stuck.state == state;
                return self.stuck.iter().filter(of).map(|stuck| stuck.jobs).sum();
            }
        };
        backlogs.iter().filter(|backlog| backlog.handler == *handler).map(|one| one.jobs).sum()
    }

    /// The handlers that have such jobs, some of them several times.
    pub fn handlers(&self) -> impl Iterator<Item = &Name> {
        let backlogs = [&self.ready, &self.waiting, &self.running].into_iter().flatten();
        let stuck = self.stuck.iter().map(|stuck| &stuck.handler);
        backlogs.map(|backlog| &backlog.handler).chain(stuck)
    }
}

/// Held or dead jobs with the same handler, reason and last text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StuckGroup {
    /// The newest of them: its `handler`, `state`, `reason` and `last_detail` are those of all.
    pub newest: JobRow,
    pub jobs: u64,
    /// The oldest one's event arrived then.
    pub oldest_at: Timestamp,
}

/// Held and dead jobs by cause.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StuckJobs {
    /// Held ones first; those with the newest job first.
    pub groups: Vec<StuckGroup>,
    /// The states that have more jobs than the newest 2,000, which alone are counted here.
    pub more: Vec<State>,
}
