//! Frames on the admin socket: four bytes of length, big end first, then that much JSON.
//!
//! Both ends bound what they read before they allocate it. JSON, because the two ends may be of
//! different versions for a while after an upgrade, and must then fail with a sentence.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Why a frame cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a message of {bytes} bytes; {limit} is the limit")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("a message that makes no sense: {0}")]
    Nonsense(#[from] serde_json::Error),
}

/// Reads one message of at most `limit` bytes; `None` where the peer is done.
pub(crate) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    limit: u64,
) -> Result<Option<T>, WireError> {
    let mut length = [0; 4];
    match from.read(&mut length).await? {
        0 => return Ok(None),
        4 => {}
        n => drop(from.read_exact(&mut length[n..]).await?),
    }
    let bytes = u64::from(u32::from_be_bytes(length));
    if bytes > limit {
        return Err(WireError::TooLarge { bytes, limit });
    }
    // Grows with what arrives: a length alone buys no memory.
    let mut text = Vec::new();
    from.take(bytes).read_to_end(&mut text).await?;
    if (text.len() as u64) < bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(Some(serde_json::from_slice(&text)?))
}

/// Writes one message of at most `limit` bytes; nothing is written where it is larger.
pub(crate) async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
    limit: u64,
) -> Result<(), WireError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let bytes = frame.len() as u64 - 4;
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= limit);
    let length = length.ok_or(WireError::TooLarge { bytes, limit })?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    to.write_all(&frame).await?;
    Ok(to.flush().await?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_message_arrives_whole_or_not_at_all() {
        let mut wire = Vec::new();
        write(&mut wire, &"x", 3).await.unwrap();
        assert_eq!(wire, b"\0\0\0\x03\"x\"");
        let read_text = async |wire: &[u8], limit| read::<String>(&mut &wire[..], limit).await;
        assert_eq!(read_text(&wire, 3).await.unwrap(), Some("x".to_owned()));
        assert_eq!(read_text(b"", 3).await.unwrap(), None);
        for cut in 1..wire.len() {
            assert!(matches!(read_text(&wire[..cut], 3).await, Err(WireError::Io(_))), "{cut}");
        }
        assert!(matches!(read_text(b"\0\0\0\x01{", 9).await, Err(WireError::Nonsense(_))));
    }

    #[tokio::test]
    async fn neither_end_passes_its_limit() {
        let huge = b"\xff\xff\xff\xff";
        let read = read::<String>(&mut &huge[..], 64).await;
        assert!(matches!(read, Err(WireError::TooLarge { bytes: 0xffff_ffff, limit: 64 })));
        let mut wire = Vec::new();
        let written = write(&mut wire, &"xyz", 4).await;
        assert!(matches!(written, Err(WireError::TooLarge { bytes: 5, limit: 4 })));
        assert!(wire.is_empty());
    }
}
