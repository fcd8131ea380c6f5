//! An operator's requests about running attempts: to end, and to show what they have printed so far.
//!
//! Must stay true: an accepted cancellation holds until its attempt ends, whether its Start was sent before it
//! or not, and over a lost connection.

use tokio::time::timeout;

use crate::limits::RUNNER_WAIT;
use crate::runner::message::{Key, Stream, ToRunner};
use crate::store::OutputExcerpt;

use super::client::{RunnerClient, kill};

/// Why the runner cannot be asked about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotAsk {
    /// The connection is missing, or was lost before the answer.
    #[error(
        "the runner cannot be reached now, and its commands go on (the receiver's log says why)"
    )]
    NoRunner,
    /// It has just been claimed, or its outcome is being committed.
    #[error("{0} is only just beginning or ending (ask again)")]
    NotThere(Key),
}

impl RunnerClient {
    /// Asks the running command of an attempt to end. Once this has returned, the request holds until the attempt
    /// or this receiver ends, also if the connection is lost. The result is the attempt's outcome.
    ///
    /// # Errors
    /// The runner was not asked.
    pub fn cancel(&self, key: Key) -> Result<(), CannotAsk> {
        let mut state = self.lock();
        let line = state.line().ok_or(CannotAsk::NoRunner)?;
        let attempt = state.attempts.get_mut(&key).ok_or(CannotAsk::NotThere(key))?;
        attempt.cancelled = true;
        // An attempt whose Start is still to be sent is asked after it.
        if attempt.start_may_be_sent {
            kill(&line, key);
        }
        Ok(())
    }

    /// What an output of an attempt holds so far. `None` if the runner does not have the attempt: it never began, or
    /// its outcome is committed.
    ///
    /// # Errors
    /// The runner cannot be reached, or was lost before it answered: ask again.
    pub async fn peek(&self, key: Key, stream: Stream) -> Result<Option<OutputExcerpt>, CannotAsk> {
        let answer = {
            let mut state = self.lock();
            let line = state.line().ok_or(CannotAsk::NoRunner)?;
            line.send_in_background(ToRunner::Peek { key, stream });
            state.peeks.wait(key, stream)
        };
        match timeout(RUNNER_WAIT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(CannotAsk::NoRunner),
        }
    }
}
