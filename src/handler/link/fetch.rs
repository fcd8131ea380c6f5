//! Fetches the outputs of settled attempts that were not told with their ends, one at a time, so that a
//! burst of ends costs the memory of one (R18). Whoever needs no fetch waits for none.

use std::collections::VecDeque;

use crate::runner::client::Sender;
use crate::runner::message::{Key, Stream, Summary};
use crate::runner::{Captured, Ended, Exited};

/// What is to be fetched over one connection, and what has come.
#[derive(Debug)]
pub(super) struct Fetches {
    line: Sender,
    waiting: VecDeque<(Key, Exited)>,
    current: Option<Current>,
    done: VecDeque<(Key, Ended)>,
}

#[derive(Debug)]
struct Current {
    key: Key,
    exited: Exited,
    stream: Stream,
}

/// An output as it comes: head and tail, where the tail begins, and all there was, if that is known.
pub(super) type Output = (Vec<u8>, u64, Option<u64>);

impl Fetches {
    pub(super) fn new(line: Sender) -> Self {
        Fetches { line, waiting: VecDeque::new(), current: None, done: VecDeque::new() }
    }

    /// An attempt has ended. What it printed is fetched where it was not told.
    pub(super) fn add(&mut self, key: Key, end: Summary, printed: Option<[Captured; 2]>) {
        let fetched = printed.is_none();
        let [stdout, stderr] = printed.unwrap_or_default();
        match end {
            Summary::Lost(reason) => self.done.push_back((key, Ended::Lost(reason))),
            Summary::Exited { status, asked_by, usage } => {
                let exited = Exited { status, asked_by, usage, stdout, stderr };
                if fetched {
                    self.waiting.push_back((key, exited));
                    self.go_on();
                } else {
                    self.done.push_back((key, Ended::Exited(exited)));
                }
            }
        }
    }

    /// An output has come. One that nobody asked for is thrown away.
    pub(super) fn output(&mut self, key: Key, stream: Stream, output: Output) {
        let Some(mut current) = self.current.take_if(|one| (one.key, one.stream) == (key, stream))
        else {
            return tracing::warn!(%key, ?stream, "an output that nobody asked for");
        };
        match stream {
            Stream::Stdout => {
                current.exited.stdout = captured(output);
                current.stream = Stream::Stderr;
                self.ask(key, Stream::Stderr);
                self.current = Some(current);
            }
            Stream::Stderr => {
                current.exited.stderr = captured(output);
                self.done.push_back((key, Ended::Exited(current.exited)));
                self.go_on();
            }
        }
    }

    /// The next attempt of which all has come.
    pub(super) fn next(&mut self) -> Option<(Key, Ended)> {
        self.done.pop_front()
    }

    fn go_on(&mut self) {
        if self.current.is_none()
            && let Some((key, exited)) = self.waiting.pop_front()
        {
            self.current = Some(Current { key, exited, stream: Stream::Stdout });
            self.ask(key, Stream::Stdout);
        }
    }

    /// Beside the reading, so that two full sockets cannot wait for each other. Where the connection is
    /// lost, the next list begins anew.
    fn ask(&self, key: Key, stream: Stream) {
        let line = self.line.clone();
        tokio::spawn(async move { drop(line.fetch(key, stream).await) });
    }
}

pub(super) fn captured((mut head, head_bytes, total): Output) -> Captured {
    let tail = head.split_off(usize::try_from(head_bytes).unwrap_or(usize::MAX).min(head.len()));
    Captured { head, tail, total }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    use tokio::net::{UnixListener, UnixStream};
    use uuid::Uuid;

    use crate::limits::Limits;
    use crate::model::{JobId, Timestamp};
    use crate::runner::client::connect;
    use crate::runner::message::{Hello, HelloOk, ToReceiver, ToRunner, VERSION};
    use crate::runner::wire::{self, Bounds};
    use crate::runner::{Status, Usage, incarnation};

    const BOUNDS: Bounds =
        Bounds { header_bytes: 4096, body_bytes: 0, wait: Duration::from_secs(60) };

    /// Fetches over a connection, and its runner's end.
    async fn fetches() -> (Fetches, UnixStream) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let runner = async {
            let mut runner = listener.accept().await.unwrap().0;
            wire::read::<ToRunner>(&mut runner, BOUNDS).await.unwrap();
            let list = HelloOk {
                version: VERSION,
                incarnation: incarnation::new().unwrap(),
                draining: false,
                free: 9,
                answers_for: Vec::new(),
                attempts: Vec::new(),
            };
            let admitted = ToReceiver::HelloOk(Box::new(list));
            wire::write(&mut runner, &admitted, b"", BOUNDS).await.unwrap();
            runner
        };
        let hello =
            Hello { version: VERSION, store: Uuid::from_bytes([1; 16]), epoch: 1, runner: None };
        let limits = Limits::default();
        let (runner, line) = tokio::join!(runner, connect(&socket, &hello, &limits));
        (Fetches::new(line.unwrap().1), runner)
    }

    async fn asked(runner: &mut UnixStream) -> (Key, Stream) {
        match wire::read(runner, BOUNDS).await.unwrap().unwrap().0 {
            ToRunner::Fetch { key, stream } => (key, stream),
            other => panic!("{other:?}"),
        }
    }

    fn key(attempt: u32) -> Key {
        Key { job: JobId::new(Timestamp(0)), attempt }
    }

    fn end() -> Summary {
        Summary::Exited { status: Status::Code(0), asked_by: None, usage: Usage::default() }
    }

    fn printed(text: &str) -> Captured {
        Captured { head: text.into(), tail: Vec::new(), total: Some(text.len() as u64) }
    }

    fn outputs(ended: (Key, Ended)) -> (Key, [Captured; 2]) {
        match ended {
            (key, Ended::Exited(exited)) => (key, [exited.stdout, exited.stderr]),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_needs_no_fetch_waits_for_none_and_the_others_are_fetched_in_turn() {
        let (mut fetches, mut runner) = fetches().await;
        let [first, second, little, lost] = [1, 2, 3, 4].map(key);
        fetches.add(first, end(), None);
        fetches.add(second, end(), None);
        let told = [printed("out"), printed("err")];
        fetches.add(little, end(), Some(told.clone()));
        fetches.add(lost, Summary::Lost("gone".to_owned()), None);
        assert_eq!(outputs(fetches.next().unwrap()), (little, told));
        assert_eq!(fetches.next(), Some((lost, Ended::Lost("gone".to_owned()))));
        for key in [first, second] {
            for (stream, text) in [(Stream::Stdout, "one"), (Stream::Stderr, "two")] {
                assert_eq!(fetches.next(), None);
                assert_eq!(asked(&mut runner).await, (key, stream));
                fetches.output(key, stream, (text.into(), 3, Some(3)));
            }
            let fetched = [printed("one"), printed("two")];
            assert_eq!(outputs(fetches.next().unwrap()), (key, fetched));
        }
        // Nothing else was asked for.
        drop(fetches);
        assert!(wire::read::<ToRunner>(&mut runner, BOUNDS).await.unwrap().is_none());
    }
}
