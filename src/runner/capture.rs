//! Reads a command's output to the end and keeps its beginning and its end.
//!
//! What must stay true: once begun, reading never pauses, whatever is kept, so that a full pipe holds no
//! child; and nothing here waits for a pipe that some grandchild keeps open.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::{Errno, ioctl_fionbio, read};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Head and tail of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// Its beginning.
    #[serde(with = "base64")]
    pub head: Vec<u8>,
    /// Its end, where the head did not hold all.
    #[serde(with = "base64")]
    pub tail: Vec<u8>,
    /// All bytes there were; nothing where the output is gone with a dead runner.
    pub total: Option<u64>,
}

impl Captured {
    /// An output without a byte, which is no more than is known.
    pub(super) fn empty() -> Self {
        Captured { total: Some(0), ..Captured::default() }
    }

    /// Whether nothing between its beginning and its end is left out.
    fn is_whole(&self) -> bool {
        self.total == Some((self.head.len() + self.tail.len()) as u64)
    }

    /// So much of its beginning and of its end at most.
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

/// One output stream of a child.
#[derive(Debug)]
pub(super) struct Stream {
    /// Does not block.
    pipe: OwnedFd,
    kept: Shared,
    /// Every writer has closed it: nothing more comes.
    ended: bool,
}

/// What is kept of a stream so far, for whoever looks while it is read.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Kept>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of it.
    pub(super) fn now(&self) -> Captured {
        self.lock().captured()
    }

    /// How much of the head and of the tail is kept at most.
    pub(super) fn most(&self) -> (usize, usize) {
        let kept = self.lock();
        (kept.head_bytes, kept.tail_bytes)
    }
}

impl Stream {
    /// Reads from `pipe`, keeping (head, tail) bytes, and goes on from what was kept of it.
    pub(super) fn new(
        pipe: OwnedFd,
        (head_bytes, tail_bytes): (usize, usize),
        Captured { head, tail, total }: Captured,
    ) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        let (tail, total) = (tail.into(), total.unwrap_or_default());
        let kept = Kept { head_bytes, tail_bytes, head, tail, total };
        Ok(Stream { pipe, kept: Shared(Arc::new(Mutex::new(kept))), ended: false })
    }

    /// What is kept of it, now and later.
    pub(super) fn kept(&self) -> Shared {
        self.kept.clone()
    }

    /// Its pipe's descriptor, open until it is finished.
    pub(super) fn number(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Reads until every writer has closed the pipe. May be cancelled at any time without loss.
    ///
    /// # Errors
    /// The runtime cannot watch the pipe now.
    pub(super) async fn drain(&mut self) -> io::Result<()> {
        // SAFETY: borrowed from the pipe, which stays open and the same for as long as it is watched; no one
        // takes it out of the `AsyncFd`.
        let watched =
            unsafe { AsyncFd::register_with_interest(self.pipe.as_fd(), Interest::READABLE) }?;
        loop {
            let mut ready = watched.readable().await?;
            // One that always has something to say does not keep the thread from the others.
            tokio::task::coop::consume_budget().await;
            match self.read() {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(_) => return Ok(()),
            }
        }
        drop(watched);
        self.ended = true;
        Ok(())
    }

    /// Reads what is in the pipe now and closes it.
    pub(super) fn finish(self) -> Captured {
        // What was written before the end fits into the pipe. More than that comes from a process
        // which left the group and still writes: it is not waited for.
        let size = || rustix::pipe::fcntl_getpipe_size(&self.pipe).unwrap_or(READ_BYTES);
        let mut left = None;
        while !self.ended && left != Some(0) {
            match self.read() {
                Ok(0) => break,
                // Less than was asked for is no sign of the end: a pipe of packets gives one at a time.
                Ok(count) => left = Some(left.unwrap_or_else(size).saturating_sub(count)),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        // A copy: whoever looks until the end is in the table must not see less than before.
        self.kept.now()
    }

    /// Reads once. The buffer is nobody's for longer: a hundred commands that print nothing have none.
    fn read(&self) -> Result<usize, Errno> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let (bytes, _) = read(&self.pipe, &mut buffer)?;
        self.kept.lock().push(bytes);
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

/// Bytes as JSON writes them.
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

    /// What is found at the end of a stream that nobody has drained: so many bytes in a pipe of this size.
    fn undrained(size: usize, bytes: usize) -> Captured {
        let (read, write) = std::io::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&write, size).unwrap();
        let stream = Stream::new(read.into(), (usize::MAX, 0), Captured::empty()).unwrap();
        (&write).write_all(&vec![b'x'; bytes]).unwrap();
        // The writer is there until the end, and is not waited for.
        stream.finish()
    }

    #[test]
    fn what_nobody_has_looked_at_is_there_at_the_end() {
        for size in [READ_BYTES, 4 * READ_BYTES, 16 * READ_BYTES] {
            for bytes in [0, 1, READ_BYTES - 1, READ_BYTES, size - 1, size] {
                let captured = undrained(size, bytes);
                assert_eq!((captured.head.len(), captured.total), (bytes, Some(bytes as u64)));
            }
        }
    }

    #[test]
    fn packets_that_nobody_has_looked_at_are_there_at_the_end() {
        let (read, write) = std::io::pipe().unwrap();
        // As its command can make it.
        fcntl_setfl(&write, OFlags::DIRECT).unwrap();
        let stream = Stream::new(read.into(), (usize::MAX, 0), Captured::empty()).unwrap();
        for written in [b"one ", b"two "] {
            (&write).write_all(written).unwrap();
        }
        assert_eq!(stream.finish().head, b"one two ");
    }

    #[tokio::test]
    async fn a_stream_is_drained_as_its_writers_go_on_and_to_their_end() {
        let (read, write) = std::io::pipe().unwrap();
        let mut stream = Stream::new(read.into(), (usize::MAX, 0), Captured::empty()).unwrap();
        let kept = stream.kept();
        for written in [b"one ".as_slice(), b"two "] {
            (&write).write_all(written).unwrap();
            // Dropped in the middle it begins again where it was.
            let seen = async {
                while !kept.now().head.ends_with(written) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                drained = stream.drain() => panic!("its writer is there: {drained:?}"),
                () = seen => {}
            }
        }
        drop(write);
        stream.drain().await.unwrap();
        assert!(stream.ended);
        assert_eq!(stream.finish().head, b"one two ");
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
