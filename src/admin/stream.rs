//! Answers that come in parts: lines of JSON, and bytes.

use std::io;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, future, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::budget;
use super::failure::Failure;
use super::operation::{Context, Effect};
use crate::limits;
use crate::panics::contained;

/// A GET whose answer comes in parts.
pub trait StreamOperation: Serialize + DeserializeOwned + Send + 'static {
    const PATH: &'static str;
    const EFFECT: Effect;
    const CONTENT_TYPE: &'static str;

    /// Begins the answer, or says why there is none; then sends it. The future that sends it ends when the reader is gone,
    /// and is dropped when the receiver stops.
    fn send(
        self,
        context: &Context,
        to: Sender,
    ) -> impl Future<
        Output = Result<impl Future<Output = Result<(), ReaderGone>> + Send + 'static, Failure>,
    > + Send;
}

/// The bytes of an answer as they come.
pub(super) type ByteStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The reader of a stream has closed its connection.
#[derive(Debug)]
pub struct ReaderGone;

/// Parts that wait for their reader, and the longest of a line.
const WAITING_PARTS: usize = 2;
const PART_BYTES: usize = 64 * 1024;

/// The sending end of a stream.
pub struct Sender(mpsc::Sender<io::Result<Bytes>>);

impl Sender {
    /// Waits until the reader has room.
    pub(super) async fn bytes(&self, bytes: Bytes) -> Result<(), ReaderGone> {
        self.0.send(Ok(bytes)).await.map_err(|_| ReaderGone)
    }

    /// Pays for a long line, and passes it on in parts.
    pub(super) async fn line(&self, line: impl Serialize) -> Result<(), ReaderGone> {
        let text = serde_json::to_vec(&line);
        // It may have a page of events, which is not to wait for the reader beside its text.
        drop(line);
        let mut text = match text {
            Ok(text) => text,
            Err(error) => return self.end(error.into()).await,
        };
        text.push(b'\n');
        let _paid = match budget::pay(text.len() as u64).await {
            Ok(paid) => paid,
            Err(failure) => return self.end(io::Error::other(failure)).await,
        };
        for part in text.chunks(PART_BYTES) {
            // A part of its own: it may wait for longer than what is paid.
            self.bytes(Bytes::copy_from_slice(part)).await?;
        }
        Ok(())
    }

    async fn end(&self, error: io::Error) -> Result<(), ReaderGone> {
        self.fail(error).await;
        Err(ReaderGone)
    }

    /// Ends the stream so that its reader notices that it is not whole.
    pub(super) async fn fail(&self, error: io::Error) {
        // A reader that is gone needs no error.
        let _ = self.0.send(Err(error)).await;
    }
}

/// Starts a stream in a separate task, which ends when the stream is dropped.
pub(super) async fn start<O: StreamOperation>(
    operation: O,
    context: &Context,
) -> Result<ByteStream, Failure> {
    let (sender, parts) = mpsc::channel(WAITING_PARTS);
    let reader = sender.clone();
    let sending = operation.send(context, Sender(sender)).await?;
    Ok(sent_by(sending, reader, parts))
}

/// What a separate task sends. A panic ends that task alone, and the stream so that its reader notices that it is not
/// whole.
fn sent_by(
    sending: impl Future<Output = Result<(), ReaderGone>> + Send + 'static,
    reader: mpsc::Sender<io::Result<Bytes>>,
    mut parts: mpsc::Receiver<io::Result<Bytes>>,
) -> ByteStream {
    let task = tokio::spawn(contained(async move {
        tokio::select! {
            _ = sending => {}
            () = reader.closed() => {}
        }
    }));
    let end = async move {
        let ended = task.await;
        ended.err().map(|_| Err(io::Error::other("the answer ended before it was whole")))
    };
    let end = stream::once(end).filter_map(future::ready);
    Box::pin(stream::poll_fn(move |cx| parts.poll_recv(cx)).chain(end))
}

/// Reads the lines and bytes of a stream.
pub struct StreamReader {
    stream: ByteStream,
    buffer: BytesMut,
}

impl StreamReader {
    pub(super) fn new(stream: ByteStream) -> Self {
        StreamReader { stream, buffer: BytesMut::new() }
    }

    /// The next line; none at the end of the stream. An error where the end is inside a line, or nothing
    /// came in time.
    pub async fn line<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + end + 1);
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            searched = self.buffer.len();
            if searched > limits::ADMIN_ANSWER_BYTES {
                return Err(io::Error::other("a line is too long"));
            }
            if !self.fill().await? {
                let is_whole = self.buffer.is_empty();
                return if is_whole { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// Some of the next bytes, at least one and at most `most`. An error at the end of the stream.
    pub(super) async fn bytes(&mut self, most: u64) -> io::Result<Bytes> {
        if self.buffer.is_empty() && !self.fill().await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.buffer.len());
        Ok(self.buffer.split_to(most).freeze())
    }

    /// The next bytes; none at the end of the stream.
    pub async fn part(&mut self) -> io::Result<Option<Bytes>> {
        if self.buffer.is_empty() && !self.fill().await? {
            return Ok(None);
        }
        Ok(Some(self.buffer.split().freeze()))
    }

    /// Waits for more bytes. False at the end of the stream.
    async fn fill(&mut self) -> io::Result<bool> {
        let next = timeout(limits::ADMIN_WAIT, self.stream.next()).await;
        match next.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))? {
            Some(part) => {
                self.buffer.extend_from_slice(&part?);
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;

    /// The test runs its own program as a child, in which a panic outside of what is contained ends the process.
    #[test]
    fn a_panic_while_an_answer_is_sent_cuts_that_answer_alone() {
        const CHILD: &str = "HOOKLATCH_TEST_STREAM_PANICS";
        if std::env::var_os(CHILD).is_some() {
            crate::panics::install();
            return tokio::runtime::Runtime::new().unwrap().block_on(cut());
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "admin::stream::tests::a_panic_while_an_answer_is_sent_cuts_that_answer_alone",
        ]);
        let ended = child.env(CHILD, "1").output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }

    async fn cut() {
        let (sender, parts) = mpsc::channel(WAITING_PARTS);
        let reader = sender.clone();
        let mut stream = sent_by(panicking(Sender(sender)), reader, parts);
        assert_eq!(stream.next().await.unwrap().unwrap(), "some");
        assert!(stream.next().await.unwrap().is_err());
        assert!(stream.next().await.is_none());
    }

    async fn panicking(to: Sender) -> Result<(), ReaderGone> {
        to.bytes(Bytes::from_static(b"some")).await?;
        panic!("on purpose")
    }
}
