//! The stored form of answers, which no engine changes.

use std::io;

use bytes::Bytes;

use crate::model::{Answer, Headers};
use crate::store::border::{Error, KeyState};
use crate::store::codec;
use crate::store::sum::{ANSWER_FRAME_BYTES, answer_frame};

/// An answer as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) body_bytes: usize,
}

impl StoredAnswer {
    /// The stored form, with its sum, off the writer's thread.
    pub(crate) async fn of(answer: Answer) -> io::Result<StoredAnswer> {
        let Answer { status, headers, body } = answer;
        let (headers, body_bytes) = (headers.to_wire(), body.len());
        let mut body = codec::compress(body).await?;
        body.extend(answer_frame(status, &headers, &body));
        Ok(StoredAnswer { status, headers, body, body_bytes })
    }

    /// The stored form of the operator's answer, where he gives one.
    pub(crate) async fn given(answer: Option<&Answer>) -> Result<Option<StoredAnswer>, Error> {
        let Some(answer) = answer else { return Ok(None) };
        let stored = StoredAnswer::of(answer.clone()).await;
        stored.map(Some).map_err(|error| Error::Unavailable(error.to_string()))
    }

    /// The answer, byte for byte.
    async fn open(mut self) -> io::Result<Answer> {
        if !self.is_whole() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its sum is another one"));
        }
        let body = codec::decompress(std::mem::take(&mut self.body), self.body_bytes).await?;
        Ok(self.with(body))
    }

    /// Unpacks the answer on this thread; `None` if that would take long, or if the answer cannot be read.
    pub(crate) fn open_now(self) -> Option<Answer> {
        let short = self.body_bytes <= codec::INLINE_BYTES && self.is_whole();
        let body = short.then(|| codec::decompress_now(&self.body, self.body_bytes).ok())??;
        Some(self.with(body))
    }

    /// Whether status, headers and the end of the body are what was stored. The rest of it is zstd's to compare.
    fn is_whole(&self) -> bool {
        let parts = self.body.split_last_chunk::<ANSWER_FRAME_BYTES>();
        parts.is_some_and(|(body, end)| *end == answer_frame(self.status, &self.headers, body))
    }

    fn with(self, body: Vec<u8>) -> Answer {
        let headers = Headers::from_wire(&self.headers);
        Answer { status: self.status, headers, body: Bytes::from(body) }
    }
}

/// The stored state of a job whose caller waits for an answer.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    Answered(StoredAnswer),
    /// The state of a job without an answer.
    Other(KeyState),
}

impl Fate {
    /// Unpacks the answer's body, off the caller's thread where it is large.
    pub(crate) async fn open(self) -> io::Result<KeyState> {
        match self {
            Fate::Answered(stored) => stored.open().await.map(KeyState::Answered),
            Fate::Other(state) => Ok(state),
        }
    }
}

/// What an answer's error says where its body cannot be got back.
pub(crate) fn unreadable(error: &io::Error) -> String {
    format!("the stored answer cannot be read: {error}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns the answer with this bit of its status, headers and body changed.
    fn changed(answer: &StoredAnswer, bit: usize) -> StoredAnswer {
        let mut changed = answer.clone();
        let (byte, bit) = (bit / 8, bit % 8);
        match byte {
            0 | 1 => changed.status ^= 1 << (byte * 8 + bit),
            byte => match changed.headers.get_mut(byte - 2) {
                Some(found) => *found ^= 1 << bit,
                None => changed.body[byte - 2 - answer.headers.len()] ^= 1 << bit,
            },
        }
        changed
    }

    #[tokio::test]
    async fn no_changed_bit_of_an_answer_reaches_its_caller() {
        let mut headers = Headers::new();
        headers.push("Content-Type", "text/plain");
        let given = Answer { status: 201, headers, body: Bytes::from_static(b"order 7") };
        let stored = StoredAnswer::of(given.clone()).await.unwrap();
        assert_eq!(stored.clone().open().await.unwrap(), given);
        assert_eq!(stored.clone().open_now(), Some(given.clone()));
        let bits = (2 + stored.headers.len() + stored.body.len()) * 8;
        let mut found = 0;
        for bit in 0..bits {
            let changed = changed(&stored, bit);
            assert!(changed.clone().open_now().is_none_or(|answer| answer == given), "bit {bit}");
            match changed.open().await {
                Ok(answer) => assert_eq!(answer, given, "bit {bit}"),
                Err(_) => found += 1,
            }
        }
        // zstd does not read each bit of its head.
        assert!(found > bits - 8, "{found} of {bits}");
        for cut in 1..=stored.body.len() {
            let body = stored.body[..stored.body.len() - cut].to_vec();
            assert!(StoredAnswer { body, ..stored.clone() }.open().await.is_err(), "{cut} bytes");
        }
    }
}
