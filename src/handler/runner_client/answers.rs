//! The callers that wait for a runner's answers over the present connection.

use tokio::sync::oneshot;

use crate::runner::message::{CommandDigest, Key, Stream};
use crate::store::OutputExcerpt;

/// The callers that wait for an output.
#[derive(Debug, Default)]
pub(super) struct Peeks(Vec<(Key, Stream, oneshot::Sender<Option<OutputExcerpt>>)>);

impl Peeks {
    /// Waits for an answer. It fails if the connection is lost.
    pub(super) fn wait(
        &mut self,
        key: Key,
        stream: Stream,
    ) -> oneshot::Receiver<Option<OutputExcerpt>> {
        // Callers that have given up.
        self.0.retain(|(.., waiting)| !waiting.is_closed());
        let (waiting, answer) = oneshot::channel();
        self.0.push((key, stream, waiting));
        answer
    }

    /// Gives an answer to all callers that wait for it: each has asked, and the first answer is for all.
    pub(super) fn answer(&mut self, key: Key, stream: Stream, answer: Option<OutputExcerpt>) {
        for (.., waiting) in self.0.extract_if(.., |(of, which, _)| (*of, *which) == (key, stream))
        {
            drop(waiting.send(answer.clone()));
        }
    }
}

/// The commands that a runner has loaded; otherwise why it cannot.
pub(super) type LoadAnswer = Result<Vec<CommandDigest>, String>;

/// The loads of a runner.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// The number of the last load; 0 if there was none. A connection whose Hello came before the last load is
    /// made again.
    pub(super) number: u64,
    /// The load whose commands the receiver uses; 0 for the commands that the runner read for the Hello.
    pub(super) in_use: u64,
    /// The reload that waits for the runner's answer.
    pub(super) waiting: Option<oneshot::Sender<LoadAnswer>>,
}

impl Loads {
    /// Gives the runner's answer to the reload, unless that has given up.
    pub(super) fn answer(&mut self, number: u64, answer: LoadAnswer) {
        if let Some(waiting) = self.waiting.take_if(|_| number == self.number) {
            drop(waiting.send(answer));
        }
    }
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
    fn an_answer_is_for_all_who_asked_for_that_output() {
        let (mut peeks, key, other) = (Peeks::default(), key(1), key(2));
        let mut first = peeks.wait(key, Stream::Stdout);
        let mut second = peeks.wait(key, Stream::Stdout);
        let mut err = peeks.wait(key, Stream::Stderr);
        let mut other_out = peeks.wait(other, Stream::Stdout);
        let (head, tail) = (Blob(b"head".to_vec()), Blob(b"tail".to_vec()));
        peeks.answer(key, Stream::Stdout, Some(OutputExcerpt { head, tail, total: 99 }));
        for answer in [&mut first, &mut second] {
            let got = answer.try_recv().unwrap().unwrap();
            assert_eq!((&*got.head, &*got.tail, got.total), (&b"head"[..], &b"tail"[..], 99));
        }
        assert!(err.try_recv().is_err() && other_out.try_recv().is_err());
        peeks.answer(key, Stream::Stderr, None);
        assert_eq!(err.try_recv().unwrap(), None);
        drop(peeks);
        assert!(other_out.try_recv().is_err());
    }

    #[test]
    fn a_caller_that_gave_up_is_forgotten() {
        let mut peeks = Peeks::default();
        drop(peeks.wait(key(1), Stream::Stdout));
        let _waiting = peeks.wait(key(1), Stream::Stdout);
        assert_eq!(peeks.0.len(), 1);
    }
}
