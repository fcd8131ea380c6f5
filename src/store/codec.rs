//! The stored forms that no engine changes: bodies under zstd, headers, sizes.

use std::cell::RefCell;
use std::io;

use bytes::Bytes;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, compress_bound, get_error_name, get_frame_content_size,
};

use crate::model::Headers;

/// Level 1 took the accept path from 17,000 to 21,000 events a second, and no higher level paid.
const LEVEL: i32 = 1;

/// Larger bodies are compressed on a blocking thread: a worker serves all its connections (H2).
pub(crate) const INLINE_BYTES: usize = 256 * 1024;

thread_local! {
    /// Each thread's compressor, made at its first body: making one costs as much as compressing a usual body.
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    /// Each thread's decompressor, made at its first body: making one costs twice as much as decompressing a usual
    /// body.
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Compresses a body, off the caller's thread where it is large.
pub(crate) async fn compress(body: Bytes) -> io::Result<Vec<u8>> {
    if body.len() <= INLINE_BYTES {
        return compress_now(&body);
    }
    // For a large body the compressor takes more memory than a thread that may never see another is to
    // keep.
    tokio::task::spawn_blocking(move || frame(&mut compressor()?, &body))
        .await
        .map_err(io::Error::other)?
}

pub(crate) fn compress_now(body: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => frame(compressor, body),
        None => frame(kept.insert(compressor()?), body),
    })
}

/// Its frames end with a checksum of the body, which each decompression compares.
fn compressor() -> io::Result<CCtx<'static>> {
    let mut compressor = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
    for parameter in [CParameter::CompressionLevel(LEVEL), CParameter::ChecksumFlag(true)] {
        compressor.set_parameter(parameter).map_err(failed)?;
    }
    Ok(compressor)
}

fn frame(compressor: &mut CCtx<'static>, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(compress_bound(body.len()));
    compressor.compress2(&mut frame, body).map_err(failed)?;
    Ok(frame)
}

/// What zstd's own code says.
fn failed(code: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, get_error_name(code))
}

/// Gets a body of exactly `bytes` bytes back, off the caller's thread where it is large.
pub(crate) async fn decompress(stored: Vec<u8>, bytes: usize) -> io::Result<Vec<u8>> {
    if bytes <= INLINE_BYTES {
        return decompress_now(&stored, bytes);
    }
    tokio::task::spawn_blocking(move || decompress_now(&stored, bytes))
        .await
        .map_err(io::Error::other)?
}

/// Gets a body of exactly `bytes` bytes back, here.
pub(crate) fn decompress_now(stored: &[u8], bytes: usize) -> io::Result<Vec<u8>> {
    // A damaged number of bytes reserves no memory: the frame has to say the same one.
    let said = get_frame_content_size(stored).ok().flatten();
    let room = if said == u64::try_from(bytes).ok() { bytes } else { 0 };
    let mut body = Vec::with_capacity(room);
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?),
        };
        decompressor.decompress(&mut body, stored).map_err(failed)
    })?;
    if body.len() == bytes {
        return Ok(body);
    }
    Err(other_size(body.len() as u64, bytes))
}

fn other_size(found: u64, bytes: usize) -> io::Error {
    let detail = format!("the stored body has {found} bytes, its event says {bytes}");
    io::Error::new(io::ErrorKind::InvalidData, detail)
}

/// Stored headers as people read them.
pub(crate) fn header_lines(wire: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Headers::from_wire(wire).iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

/// A size or count, which fits SQLite's signed integers for any real one.
pub(crate) fn size(bytes: impl TryInto<i64>) -> i64 {
    bytes.try_into().unwrap_or(i64::MAX)
}
