//! Claims, and the attempts that they begin.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::model::{EventId, Facts, JobId, Name, Runner, State, Timestamp};

use super::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub handler: Name,
    /// Most jobs.
    pub limit: usize,
    /// The runner that will be asked to start them; `None` if the receiver runs them itself.
    pub runner: Option<Runner>,
    /// How fast attempts of the handler may start; `None` for no limit.
    pub rate: Option<Rate>,
    /// Most attempts of the handler at any time on all nodes of a cluster together; `None` for no limit.
    pub cluster_concurrency: Option<usize>,
}

/// A limit on the starts of a handler's attempts, retries included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Starts in each `per`, spread evenly.
    pub starts: NonZeroU32,
    pub per: Duration,
    /// How many may start at once after a pause.
    pub burst: NonZeroU32,
}

/// Claims that may be committed already: it must not be dropped.
pub type ClaimsFuture = BoxFuture<'static, Result<Claims, Error>>;

/// The result of a claim.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// Grows with each committed claim since the store was opened.
    pub number: u64,
    /// The jobs that run now, oldest first.
    pub jobs: Vec<Claimed>,
    /// When the next waiting job of the handler is due. `None` if no job waits, if the handler is paused, and if as many
    /// were claimed as were asked for: more may be ready.
    pub due: Option<Timestamp>,
    /// How long the rate lets no other attempt start, or how long to wait before the claim is asked again because
    /// another node was claiming; `None` if an attempt may start now.
    pub pause: Option<Duration>,
}

/// A job that is now `running`, with what its handler needs.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub facts: Facts,
    /// Counted attempts before this one, since made or last replayed.
    pub counted: u32,
    /// When the job was made or last replayed.
    pub since: Timestamp,
}

/// An attempt that is `running` in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningAttempt {
    pub job: JobId,
    pub attempt: u32,
    pub handler: Name,
    pub source: Name,
    pub event_id: EventId,
    /// Counted attempts before this one, since made or last replayed.
    pub counted: u32,
    /// When the job was made or last replayed.
    pub since: Timestamp,
    /// The runner that it was claimed for; `None` if the receiver runs it itself.
    pub runner: Option<Runner>,
}

/// What a recovery has settled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryResult {
    /// Attempts settled as unknown: (job, attempt, state after).
    pub unknown: Vec<(JobId, u32, State)>,
    /// Jobs held because their handler is gone.
    pub orphaned: u64,
}
