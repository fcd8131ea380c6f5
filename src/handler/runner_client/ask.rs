//! What an operator asks of running attempts: that they end, and what they have printed so far.
//!
//! What must stay true: a wish that was accepted holds until its attempt ends, whether its Start was
//! written before it or not, and over a lost connection. One question about an output is under way at
//! a time; whoever else asks meanwhile gets its answer.

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::RUNNER_WAIT;
use crate::runner::client::Sender;
use crate::runner::message::{Key, Stream};
use crate::store::Captured;

use super::RunnerClient;

/// Why the runner cannot be asked about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotAsk {
    /// No connection, or it was lost before the answer.
    #[error(
        "the runner cannot be reached now, and its commands go on (the receiver's log says why)"
    )]
    NoRunner,
    /// It has been claimed this moment, or its outcome is being committed.
    #[error("{0} is only just beginning or ending (ask again)")]
    NotThere(Key),
}

/// An answer: nothing where the runner has no such attempt.
type Answer = Option<Captured>;

/// Who waits for answers over the present connection. Dropped with it, which is their answer.
#[derive(Debug, Default)]
pub(super) struct Peeks(Vec<(Key, Stream, oneshot::Sender<Answer>)>);

impl Peeks {
    /// Waits for an answer; true where the runner has to be asked for it.
    fn wait(&mut self, key: Key, stream: Stream) -> (bool, oneshot::Receiver<Answer>) {
        // Whoever gave up leaves no question behind that others would wait for.
        self.0.retain(|(.., waiting)| !waiting.is_closed());
        let first = !self.0.iter().any(|(of, which, _)| (*of, *which) == (key, stream));
        let (waiting, answer) = oneshot::channel();
        self.0.push((key, stream, waiting));
        (first, answer)
    }

    /// Gives an answer to all who wait for it.
    pub(super) fn answer(&mut self, key: Key, stream: Stream, answer: Answer) {
        for (.., waiting) in self.0.extract_if(.., |(of, which, _)| (*of, *which) == (key, stream))
        {
            drop(waiting.send(answer.clone()));
        }
    }
}

impl RunnerClient {
    /// Asks the running command of an attempt to end. Once this has returned, the wish holds until the
    /// attempt ends or this receiver does, a lost connection included. What comes of it is the
    /// attempt's outcome.
    ///
    /// # Errors
    /// Nobody was asked.
    pub fn cancel(&self, key: Key) -> Result<(), CannotAsk> {
        let mut state = self.lock();
        let line = state.connection.clone().ok_or(CannotAsk::NoRunner)?;
        let attempt = state.attempts.get_mut(&key).ok_or(CannotAsk::NotThere(key))?;
        attempt.cancelled = true;
        // One whose Start is still to be written is asked after it.
        if attempt.start_may_be_sent {
            kill(line, key);
        }
        Ok(())
    }

    /// What one output of an attempt holds so far: its beginning, its end, and how much there was.
    /// Nothing where the runner has no such attempt: it never began, or its outcome is committed.
    ///
    /// # Errors
    /// The runner cannot be reached, or was lost before it answered: ask again.
    pub async fn peek(&self, key: Key, stream: Stream) -> Result<Option<Captured>, CannotAsk> {
        let answer = {
            let mut state = self.lock();
            let line = state.connection.clone().ok_or(CannotAsk::NoRunner)?;
            let (first, answer) = state.peeks.wait(key, stream);
            if first {
                // Beside whoever asks: half a question would spoil the connection.
                tokio::spawn(async move { drop(line.peek(key, stream).await) });
            }
            answer
        };
        match timeout(RUNNER_WAIT, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(CannotAsk::NoRunner),
        }
    }
}

/// Asks for an end beside whoever wishes it: half a Kill would spoil the connection. Where that is lost,
/// the next list brings it about.
pub(super) fn kill(line: Sender, key: Key) {
    tracing::info!(%key, "cancelled by the operator: asking it to end");
    tokio::spawn(async move { drop(line.kill(key).await) });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{Blob, Timestamp};

    fn key(attempt: u32) -> Key {
        Key { job: crate::random::job_id(Timestamp(0)), attempt }
    }

    #[test]
    fn an_answer_is_for_all_who_asked_and_for_nobody_else() {
        let (mut peeks, key, other) = (Peeks::default(), key(1), key(2));
        let (asks, mut first) = peeks.wait(key, Stream::Stdout);
        let (asks_too, mut second) = peeks.wait(key, Stream::Stdout);
        let (asks_err, mut err) = peeks.wait(key, Stream::Stderr);
        let (asks_other, mut other_out) = peeks.wait(other, Stream::Stdout);
        assert_eq!([asks, asks_too, asks_err, asks_other], [true, false, true, true]);
        let (head, tail) = (Blob(b"head".to_vec()), Blob(b"tail".to_vec()));
        peeks.answer(key, Stream::Stdout, Some(Captured { head, tail, total: 99 }));
        for answer in [&mut first, &mut second] {
            let got = answer.try_recv().unwrap().unwrap();
            assert_eq!((&*got.head, &*got.tail, got.total), (&b"head"[..], &b"tail"[..], 99));
        }
        assert!(err.try_recv().is_err() && other_out.try_recv().is_err());
        assert!(peeks.wait(key, Stream::Stdout).0, "answered: the next one asks anew");
        peeks.answer(key, Stream::Stderr, None);
        assert_eq!(err.try_recv().unwrap(), None);
        drop(peeks);
        assert!(other_out.try_recv().is_err());
    }

    #[test]
    fn nobody_waits_for_the_question_of_one_who_left() {
        let mut peeks = Peeks::default();
        drop(peeks.wait(key(1), Stream::Stdout));
        assert!(peeks.wait(key(1), Stream::Stdout).0);
        assert_eq!(peeks.0.len(), 1);
    }
}
