//! The layout of a command's outputs in a frame's body.
//!
//! The outputs are bytes and not JSON: they may be 19 MiB (limits `answer_whole_bytes`,
//! `output_head_bytes` and `output_tail_bytes`), and base64 would add a third.

use serde::{Deserialize, Serialize};

use super::{Key, Stream, ToReceiver};
use crate::runner::{Captured, Ended, Exited};

/// The extents of standard output and of standard error, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outputs([Extent; 2]);

/// The place of one output in a body: its head, followed by its tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    head_bytes: usize,
    tail_bytes: usize,
    /// The output's [`Captured::total`].
    total: Option<u64>,
}

impl Extent {
    /// Appends `output` to `body`.
    fn append(output: &Captured, body: &mut Vec<u8>) -> Self {
        let Captured { head, tail, total } = output;
        body.extend_from_slice(head);
        body.extend_from_slice(tail);
        Extent { head_bytes: head.len(), tail_bytes: tail.len(), total: *total }
    }

    /// Removes the output from the front of `body`. `None` if the body is shorter.
    fn take(self, body: &mut Vec<u8>) -> Option<Captured> {
        let mut front = |bytes| {
            let rest = (bytes <= body.len()).then(|| body.split_off(bytes))?;
            Some(std::mem::replace(body, rest))
        };
        let (head, tail) = (front(self.head_bytes)?, front(self.tail_bytes)?);
        Some(Captured { head, tail, total: self.total })
    }

    /// The output, if `body` is exactly that.
    pub fn read(self, mut body: Vec<u8>) -> Option<Captured> {
        self.take(&mut body).filter(|_| body.is_empty())
    }
}

impl Outputs {
    /// Completes `end` with the outputs in `body`. `None` if `body` is not exactly these outputs.
    pub fn read(self, end: Ended, mut body: Vec<u8>) -> Option<Ended> {
        let Outputs([stdout, stderr]) = self;
        let (stdout, stderr) = (stdout.take(&mut body)?, stderr.take(&mut body)?);
        let end = match end {
            Ended::Exited(exited) => Ended::Exited(Exited { stdout, stderr, ..exited }),
            lost @ Ended::Lost(_) => lost,
        };
        body.is_empty().then_some(end)
    }
}

impl ToReceiver {
    /// The message about the end of an attempt, and its body.
    pub(in crate::runner) fn ended(key: Key, end: &Ended) -> (Self, Vec<u8>) {
        let (nothing, mut body) = (Captured::default(), Vec::new());
        let outputs = end.outputs().unwrap_or([&nothing; 2]);
        let outputs = Outputs(outputs.map(|output| Extent::append(output, &mut body)));
        (ToReceiver::Ended { key, end: Box::new(end.without_outputs()), outputs }, body)
    }

    /// The answer to a Peek, and its body.
    pub(in crate::runner) fn peeked(
        key: Key,
        stream: Stream,
        output: Option<Captured>,
    ) -> (Self, Vec<u8>) {
        let mut body = Vec::new();
        let output = output.map(|output| Extent::append(&output, &mut body));
        (ToReceiver::Peeked { key, stream, output }, body)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::JobId;
    use crate::runner::{AskedBy, Status, Usage};

    fn end(stdout: [usize; 2], stderr: [usize; 2]) -> Ended {
        let captured = |[head, tail]: [usize; 2], byte| Captured {
            head: vec![byte; head],
            tail: vec![byte + 1; tail],
            total: Some((head + 2 * tail) as u64),
        };
        Ended::Exited(Exited {
            stdout: captured(stdout, b'1'),
            stderr: captured(stderr, b'3'),
            ..Exited::without_outputs(Status::Code(3), Some(AskedBy::Stop), Usage::default())
        })
    }

    /// Returns what the receiver reads of what the runner writes about this end.
    fn sent(end: &Ended) -> (Ended, Outputs, Vec<u8>) {
        let key = Key { job: JobId::from_bytes([7; 16]), attempt: 1 };
        let (message, body) = ToReceiver::ended(key, end);
        let header = serde_json::to_string(&message).unwrap();
        match serde_json::from_str(&header).unwrap() {
            ToReceiver::Ended { end, outputs, .. } => (*end, outputs, body),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_end_arrives_with_its_outputs() {
        let gone = Exited::without_outputs(Status::Signal(9), None, Usage::default());
        for expected in [
            end([0, 0], [0, 0]),
            end([3, 0], [0, 0]),
            end([1, 2], [3, 4]),
            end([0, 0], [0, 100_000]),
            Ended::Exited(gone),
            Ended::Lost("gone".to_owned()),
        ] {
            let (end, outputs, body) = sent(&expected);
            assert_eq!(outputs.read(end, body), Some(expected));
        }
    }

    #[test]
    fn a_body_of_another_length_is_refused() {
        let (end, outputs, body) = sent(&end([1, 2], [3, 4]));
        for wrong in [0, 1, 9, 11] {
            let mut body = body.clone();
            body.resize(wrong, b'x');
            assert_eq!(outputs.read(end.clone(), body), None, "{wrong}");
        }
        let vast = Extent { head_bytes: usize::MAX, tail_bytes: 1, total: Some(1) };
        assert_eq!(vast.read(body), None);
    }
}
