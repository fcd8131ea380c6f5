//! Fetches the outputs of settled attempts, one at a time, so that a burst of ends costs the memory of
//! one (R18).

use std::collections::VecDeque;

use crate::runner::client::Sender;
use crate::runner::message::{Key, Stream, Summary};
use crate::runner::{Captured, Ended, Exited};

/// What is to be fetched over one connection, and what has come.
#[derive(Debug)]
pub(super) struct Fetches {
    line: Sender,
    waiting: VecDeque<(Key, Summary)>,
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

    /// An attempt has ended.
    pub(super) fn add(&mut self, key: Key, end: Summary) {
        self.waiting.push_back((key, end));
        self.go_on();
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
        while self.current.is_none()
            && let Some((key, end)) = self.waiting.pop_front()
        {
            match end {
                Summary::Lost(reason) => self.done.push_back((key, Ended::Lost(reason))),
                Summary::Exited { status, asked_by, usage } => {
                    let (stdout, stderr) = Default::default();
                    let exited = Exited { status, asked_by, usage, stdout, stderr };
                    self.current = Some(Current { key, exited, stream: Stream::Stdout });
                    self.ask(key, Stream::Stdout);
                }
            }
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
    Captured { head, tail, total: total.unwrap_or_default() }
}
