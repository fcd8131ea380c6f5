//! The stored form of answers, which no engine changes.

use std::io;

use bytes::Bytes;

use crate::model::{Answer, Headers};
use crate::store::border::{Error, KeyState};
use crate::store::codec;

/// An answer as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct StoredAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) body_bytes: usize,
}

impl StoredAnswer {
    /// The stored form, off the writer's thread.
    pub(crate) async fn of(answer: Answer) -> io::Result<StoredAnswer> {
        let Answer { status, headers, body } = answer;
        let (headers, body_bytes) = (headers.to_wire(), body.len());
        Ok(StoredAnswer { status, headers, body: codec::compress(body).await?, body_bytes })
    }

    /// The stored form of the operator's answer, where he gives one.
    pub(crate) async fn given(answer: Option<&Answer>) -> Result<Option<StoredAnswer>, Error> {
        let Some(answer) = answer else { return Ok(None) };
        let stored = StoredAnswer::of(answer.clone()).await;
        stored.map(Some).map_err(|error| Error::Unavailable(error.to_string()))
    }

    /// The answer, byte for byte.
    async fn open(mut self) -> io::Result<Answer> {
        let body = codec::decompress(std::mem::take(&mut self.body), self.body_bytes).await?;
        Ok(self.with(body))
    }

    /// The same here and now; none where that would take long, or where it cannot be read.
    pub(crate) fn open_now(self) -> Option<Answer> {
        let short = self.body_bytes <= codec::INLINE_BYTES;
        let body = short.then(|| codec::decompress_now(&self.body, self.body_bytes).ok())??;
        Some(self.with(body))
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
    /// Without an answer.
    Other(KeyState),
}

impl Fate {
    /// The same with its answer's body, which is got back off the caller's thread where it is large.
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
