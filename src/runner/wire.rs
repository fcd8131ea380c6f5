//! Frames between receiver and runner: two lengths, a header in JSON, a raw body.
//!
//! Four bytes of header length and four of body length, both big-endian, then the header, then the body. JSON,
//! because the two ends may have different versions after an upgrade and must then fail with a clear message;
//! a raw body, because it may have 25 MiB. Must stay true: an incomplete frame has no effect (R14), and a
//! length alone makes the reader allocate no more than a small body needs.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::crash;
use crate::limits::{RUNNER_BODY_BYTES, RUNNER_WAIT, TO_RECEIVER_BYTES, TO_RUNNER_BYTES};

/// The size of the buffer for reading, and of the memory that is allocated before a body arrives: most frames
/// are smaller.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;

/// How large a frame may be, and how long it may take from its first byte to its last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) header_bytes: u64,
    pub(crate) body_bytes: u64,
    pub(crate) wait: Duration,
}

/// The bounds of a frame to the runner.
pub(super) const TO_RUNNER: Bounds = Bounds::with_header(TO_RUNNER_BYTES);

/// The bounds of a frame to the receiver.
pub(super) const TO_RECEIVER: Bounds = Bounds::with_header(TO_RECEIVER_BYTES);

impl Bounds {
    const fn with_header(header_bytes: u64) -> Self {
        Bounds { header_bytes, body_bytes: RUNNER_BODY_BYTES, wait: RUNNER_WAIT }
    }
}

/// Why a frame cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The frame is over a limit; none of it was kept or sent.
    #[error("a message whose {part} has {bytes} bytes; {limit} is the limit")]
    TooLarge { part: &'static str, bytes: u64, limit: u64 },
    /// The header is not a message of this protocol.
    #[error("a message that makes no sense: {0}")]
    Nonsense(#[from] serde_json::Error),
    /// The frame has begun and was not complete in time.
    #[error("a message that was not complete after {}", humantime::format_duration(*.0))]
    Slow(Duration),
}

/// Reads one frame; `None` at the end of the connection. Waits for the frame's first byte without a limit.
pub(crate) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    bounds: Bounds,
) -> Result<Option<(T, Vec<u8>)>, WireError> {
    let mut lengths = [0; 8];
    let begun = match from.read(&mut lengths).await {
        Ok(0) => return Ok(None),
        Ok(begun) => begun,
        Err(error) => return Err(error.into()),
    };
    let rest = async {
        from.read_exact(&mut lengths[begun..]).await?;
        let [h0, h1, h2, h3, b0, b1, b2, b3] = lengths;
        let header = u32::from_be_bytes([h0, h1, h2, h3]).into();
        let body = u32::from_be_bytes([b0, b1, b2, b3]).into();
        fits("header", header, bounds.header_bytes)?;
        fits("body", body, bounds.body_bytes)?;
        let header = exactly(from, header).await?;
        let header = serde_json::from_slice(&header)?;
        Ok(Some((header, exactly(from, body).await?)))
    };
    timeout(bounds.wait, rest).await.unwrap_or(Err(WireError::Slow(bounds.wait)))
}

/// Writes one frame to a buffered writer; [`flush`] sends it. Writes nothing if the frame is over a limit.
pub(crate) async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    message: &(impl Serialize + Debug),
    body: &[u8],
    bounds: Bounds,
) -> Result<(), WireError> {
    let mut frame = vec![0; 8];
    serde_json::to_writer(&mut frame, message)?;
    let header = fits("header", frame.len() as u64 - 8, bounds.header_bytes)?;
    let length = fits("body", body.len() as u64, bounds.body_bytes)?;
    frame[..4].copy_from_slice(&header.to_be_bytes());
    frame[4..8].copy_from_slice(&length.to_be_bytes());
    let (half, rest) = crash::halves(body);
    let sent = async {
        to.write_all(&frame).await?;
        to.write_all(half).await?;
        // Only for the fail point.
        if !rest.is_empty() {
            to.flush().await?;
        }
        crash::frame("half", message);
        Ok(to.write_all(rest).await?)
    };
    timeout(bounds.wait, sent).await.unwrap_or(Err(WireError::Slow(bounds.wait)))
}

/// Sends the frames that [`write`] has written.
pub(crate) async fn flush(
    to: &mut (impl AsyncWrite + Unpin),
    bounds: Bounds,
) -> Result<(), WireError> {
    match timeout(bounds.wait, to.flush()).await {
        Ok(flushed) => Ok(flushed?),
        Err(_) => Err(WireError::Slow(bounds.wait)),
    }
}

fn fits(part: &'static str, bytes: u64, limit: u64) -> Result<u32, WireError> {
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= limit);
    length.ok_or(WireError::TooLarge { part, bytes, limit })
}

/// Reads so many bytes. Beyond [`BUFFER_BYTES`] the memory grows with the bytes that arrive.
async fn exactly(from: &mut (impl AsyncRead + Unpin), bytes: u64) -> io::Result<Vec<u8>> {
    let small = usize::try_from(bytes).unwrap_or(usize::MAX).min(BUFFER_BYTES);
    let mut read = Vec::with_capacity(small);
    from.take(bytes).read_to_end(&mut read).await?;
    if (read.len() as u64) < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BOUNDS: Bounds = Bounds { header_bytes: 8, body_bytes: 4, wait: Duration::from_secs(60) };

    async fn read_text(wire: &[u8]) -> Result<Option<(String, Vec<u8>)>, WireError> {
        read(&mut &wire[..], BOUNDS).await
    }

    #[tokio::test]
    async fn a_frame_arrives_whole_or_not_at_all() {
        let mut wire = Vec::new();
        write(&mut wire, &"x", b"\0\xffy", BOUNDS).await.unwrap();
        assert_eq!(wire, b"\0\0\0\x03\0\0\0\x03\"x\"\0\xffy");
        let whole = read_text(&wire).await.unwrap();
        assert_eq!(whole, Some(("x".to_owned(), b"\0\xffy".to_vec())));
        assert_eq!(read_text(b"").await.unwrap(), None);
        for cut in 1..wire.len() {
            assert!(matches!(read_text(&wire[..cut]).await, Err(WireError::Io(_))), "{cut}");
        }
        let nonsense = read_text(b"\0\0\0\x01\0\0\0\0{").await;
        assert!(matches!(nonsense, Err(WireError::Nonsense(_))));
    }

    #[tokio::test]
    async fn frames_that_are_written_together_go_out_together() {
        let (to, mut from) = tokio::io::duplex(64);
        let mut to = tokio::io::BufWriter::new(to);
        for text in ["x", "y"] {
            write(&mut to, &text, b"", BOUNDS).await.unwrap();
        }
        let mut wire = [0; 64];
        let nothing = timeout(Duration::ZERO, from.read(&mut wire)).await;
        assert!(nothing.is_err(), "{nothing:?}");
        flush(&mut to, BOUNDS).await.unwrap();
        let both = from.read(&mut wire).await.unwrap();
        assert_eq!(wire[..both], *b"\0\0\0\x03\0\0\0\0\"x\"\0\0\0\x03\0\0\0\0\"y\"");
    }

    #[tokio::test]
    async fn neither_end_passes_its_limits() {
        let over = |wire: &'static [u8]| async move {
            match read_text(wire).await {
                Err(WireError::TooLarge { part, bytes, limit }) => (part, bytes, limit),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(over(b"\xff\xff\xff\xff\0\0\0\0").await, ("header", 0xffff_ffff, 8));
        assert_eq!(over(b"\0\0\0\x03\0\0\0\x05").await, ("body", 5, 4));
        let mut wire = Vec::new();
        let (long, large) = ("1234567", b"12345");
        assert!(write(&mut wire, &long, b"", BOUNDS).await.is_err());
        assert!(write(&mut wire, &"x", large, BOUNDS).await.is_err());
        assert!(wire.is_empty());
    }

    #[tokio::test]
    async fn an_incomplete_frame_times_out() {
        let (mut to, mut from) = tokio::io::duplex(64);
        to.write_all(b"\0\0").await.unwrap();
        let bounds = Bounds { wait: Duration::from_millis(1), ..BOUNDS };
        let read = read::<String>(&mut from, bounds).await;
        assert!(matches!(read, Err(WireError::Slow(_))));
    }
}
