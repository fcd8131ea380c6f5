//! Reads a command's output to the end and keeps its beginning and its end.
//!
//! Must stay true: the runner never stops reading, however much it keeps, so that a full pipe does not block
//! the command; and it does not wait for a pipe that a process outside the command's group keeps open.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::{Errno, ioctl_fionbio, read};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Head and tail of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    #[serde(with = "base64")]
    pub head: Vec<u8>,
    /// The end, if the head did not hold everything.
    #[serde(with = "base64")]
    pub tail: Vec<u8>,
    /// How many bytes the command printed; `None` if the output was lost with a dead runner.
    pub total: Option<u64>,
}

impl Captured {
    /// The output of a command that has printed nothing yet.
    pub(super) fn empty() -> Self {
        Captured { total: Some(0), ..Captured::default() }
    }

    /// Whether head and tail are the complete output.
    fn is_whole(&self) -> bool {
        self.total == Some((self.head.len() + self.tail.len()) as u64)
    }

    /// Cuts the output to at most so many bytes of its head and of its tail.
    pub(crate) fn cut(mut self, (head_bytes, tail_bytes): (usize, usize)) -> Self {
        let whole = self.is_whole();
        let mut rest = self.head.split_off(head_bytes.min(self.head.len()));
        if whole {
            rest.append(&mut self.tail);
            self.tail = rest;
        }
        self.tail.drain(..self.tail.len().saturating_sub(tail_bytes));
        self
    }
}

/// Bytes read at once: a quarter of a pipe's usual 64 KiB (pipe(7)).
const READ_BYTES: usize = 16 * 1024;

/// Standard output or standard error of a command.
#[derive(Debug)]
pub(super) struct Output {
    /// Does not block.
    pipe: AsyncFd<OwnedFd>,
    kept: Mutex<Kept>,
}

impl Output {
    /// Reads from `pipe`, keeping at most (head, tail) bytes, and continues after `kept`.
    pub(super) fn new(
        pipe: OwnedFd,
        (head_bytes, tail_bytes): (usize, usize),
        Captured { head, tail, total }: Captured,
    ) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        // SAFETY: an `OwnedFd` stays open, as the same descriptor, for as long as it lives, and nothing takes
        // it out of the `AsyncFd`.
        let pipe = unsafe { AsyncFd::register_with_interest(pipe, Interest::READABLE) }?;
        let (tail, total) = (tail.into(), total.unwrap_or_default());
        Ok(Output { pipe, kept: Mutex::new(Kept { head_bytes, tail_bytes, head, tail, total }) })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the bytes that are kept so far.
    pub(super) fn now(&self) -> Captured {
        self.lock().captured()
    }

    /// How many bytes of the head and of the tail are kept at most.
    pub(super) fn kept_bytes(&self) -> (usize, usize) {
        let kept = self.lock();
        (kept.head_bytes, kept.tail_bytes)
    }

    /// The pipe's descriptor.
    pub(super) fn number(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Reads until every writer has closed the pipe. Dropping the future loses nothing.
    pub(super) async fn drain(&self) {
        loop {
            // An error means that the runtime is shutting down.
            let Ok(mut ready) = self.pipe.readable().await else { return };
            // A command that always has something to print must not keep the thread from the others.
            tokio::task::coop::consume_budget().await;
            match self.read() {
                Ok(1..) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready.clear_ready(),
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Reads the bytes that are in the pipe now. Returns all that is kept.
    pub(super) fn finish(&self) -> Captured {
        // What the command wrote fits into the pipe. More than that comes from a process that has left its
        // group and still writes: the runner does not wait for it.
        let mut left = rustix::pipe::fcntl_getpipe_size(&self.pipe).unwrap_or(READ_BYTES);
        while left > 0 {
            match self.read() {
                Ok(0) => break,
                // Less than was asked for does not mean the end: a pipe of packets gives one at a time.
                Ok(count) => left = left.saturating_sub(count),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.now()
    }

    /// Reads once. The buffer is on the stack: a hundred commands that print nothing need no memory for it.
    fn read(&self) -> Result<usize, Errno> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let (bytes, _) = read(&self.pipe, &mut buffer)?;
        self.lock().push(bytes);
        Ok(bytes.len())
    }
}

#[derive(Debug, Default)]
struct Kept {
    head_bytes: usize,
    tail_bytes: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) =
            bytes.split_at(bytes.len().min(self.head_bytes.saturating_sub(self.head.len())));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.tail_bytes)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_bytes);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    fn captured(&self) -> Captured {
        let (front, back) = self.tail.as_slices();
        let (head, tail) = (self.head.clone(), [front, back].concat());
        Captured { head, tail, total: Some(self.total) }
    }
}

/// The form of bytes in JSON.
mod base64 {
    use data_encoding::BASE64;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&BASE64.encode_display(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        BASE64.decode(String::deserialize(d)?.as_bytes()).map_err(Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{OFlags, fcntl_setfl};
    use std::io::Write;

    fn output(pipe: std::io::PipeReader) -> Output {
        Output::new(pipe.into(), (usize::MAX, 0), Captured::empty()).unwrap()
    }

    #[tokio::test]
    async fn finish_returns_what_no_drain_has_read() {
        for size in [READ_BYTES, 4 * READ_BYTES, 16 * READ_BYTES] {
            for bytes in [0, 1, READ_BYTES - 1, READ_BYTES, size - 1, size] {
                let (read, write) = std::io::pipe().unwrap();
                rustix::pipe::fcntl_setpipe_size(&write, size).unwrap();
                (&write).write_all(&vec![b'x'; bytes]).unwrap();
                // The writer stays until the end; the call does not wait for it.
                let captured = output(read).finish();
                assert_eq!((captured.head.len(), captured.total), (bytes, Some(bytes as u64)));
            }
        }
    }

    #[tokio::test]
    async fn finish_returns_all_packets_of_a_packet_pipe() {
        let (read, write) = std::io::pipe().unwrap();
        // A command can do this to its own output.
        fcntl_setfl(&write, OFlags::DIRECT).unwrap();
        for written in [b"one ", b"two "] {
            (&write).write_all(written).unwrap();
        }
        assert_eq!(output(read).finish().head, b"one two ");
    }

    #[tokio::test]
    async fn a_drain_that_is_dropped_loses_nothing_and_the_last_one_ends_with_the_writers() {
        let (read, write) = std::io::pipe().unwrap();
        let output = output(read);
        for written in [b"one ".as_slice(), b"two "] {
            (&write).write_all(written).unwrap();
            let seen = async {
                while !output.now().head.ends_with(written) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                () = output.drain() => panic!("the writer still has the pipe open"),
                () = seen => {}
            }
        }
        drop(write);
        output.drain().await;
        assert_eq!(output.finish().head, b"one two ");
    }

    proptest! {
        #[test]
        fn head_and_tail_are_the_two_ends(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            head_bytes in 0usize..40,
            tail_bytes in 0usize..40,
        ) {
            let mut kept = Kept { head_bytes, tail_bytes, ..Kept::default() };
            for chunk in &chunks {
                kept.push(chunk);
            }
            let all = chunks.concat();
            let got = kept.captured();
            prop_assert_eq!(got.total, Some(all.len() as u64));
            prop_assert_eq!(&got.head, &all[..all.len().min(head_bytes)]);
            let rest = &all[got.head.len()..];
            prop_assert_eq!(&got.tail, &rest[rest.len().saturating_sub(tail_bytes)..]);
            prop_assert_eq!(got.is_whole(), all.len() <= head_bytes + tail_bytes);
            // More of the beginning was kept, and is cut: the same.
            let mut kept = Kept { head_bytes: head_bytes + 50, tail_bytes, ..Kept::default() };
            kept.push(&all);
            prop_assert_eq!(kept.captured().cut((head_bytes, tail_bytes)), got);
        }
    }
}
