//! The stored forms that no engine changes: bodies under zstd, headers, sizes.

use std::cell::RefCell;
use std::io;

use bytes::{Buf as _, Bytes};
use zstd::stream::read::Decoder;
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, compress_bound, get_error_name,
    get_frame_content_size, is_error_kind,
};

use crate::model::{Blob, Headers};

/// Level 1 took the accept path from 17,000 to 21,000 events a second, and no higher level paid.
const LEVEL: i32 = 1;

/// The longest part of an [`Unpacker`].
const PART_BYTES: usize = 64 * 1024;

/// The longest window of a frame that is read in parts, as a power of two. Those of the level have 512 KiB; a damaged one
/// may ask for more.
const WINDOW_LOG: u32 = 20;

/// zstd's code where it gets no memory, which says nothing of the body.
const NO_MEMORY: ZSTD_ErrorCode = ZSTD_ErrorCode::ZSTD_error_memory_allocation;

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

/// What zstd's own code says: the body is damaged, or there is no memory.
fn failed(code: usize) -> io::Error {
    let kind = match is_error_kind(code, NO_MEMORY) {
        true => io::ErrorKind::OutOfMemory,
        false => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, get_error_name(code))
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

/// A body that was got back; `None` where it is damaged.
///
/// # Errors
/// Where there is too little memory to say.
pub(crate) fn if_whole(body: io::Result<Vec<u8>>) -> io::Result<Option<Blob>> {
    match body {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        body => body.map(|body| Some(Blob(body))),
    }
}

/// How many bytes a stored body has that is read to its end, in parts. An error of reading it stays as it is.
pub(crate) fn unpacked_bytes(stored: impl io::Read) -> io::Result<u64> {
    let unpack = || -> io::Result<u64> {
        let mut body = Decoder::new(stored)?;
        body.window_log_max(WINDOW_LOG)?;
        io::copy(&mut body, &mut io::sink())
    };
    unpack().map_err(|error| {
        let of_zstd = error.get_ref().and_then(|inner| inner.downcast_ref::<zstd::Error>());
        match of_zstd.map(|of_zstd| of_zstd.is(NO_MEMORY)) {
            Some(true) => io::ErrorKind::OutOfMemory.into(),
            Some(false) => io::Error::new(io::ErrorKind::InvalidData, error),
            None => error,
        }
    })
}

/// Gets a body back in parts: it takes some 1 MiB of memory, whatever the body's size.
pub(crate) struct Unpacker {
    decompressor: DCtx<'static>,
    is_whole: bool,
}

impl Unpacker {
    pub(crate) fn new() -> io::Result<Self> {
        let mut decompressor = DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        decompressor.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).map_err(failed)?;
        Ok(Unpacker { decompressor, is_whole: false })
    }

    /// Takes the next part out of what is `stored` next. It is empty once all of that is taken.
    pub(crate) fn part(&mut self, stored: &mut Bytes) -> io::Result<Vec<u8>> {
        let mut part = Vec::with_capacity(PART_BYTES);
        // Behind a whole frame there is nothing to take out.
        if self.is_whole && stored.is_empty() {
            return Ok(part);
        }
        let (mut from, mut to) = (InBuffer::around(stored), OutBuffer::around(&mut part));
        loop {
            let wanted = self.decompressor.decompress_stream(&mut to, &mut from).map_err(failed)?;
            self.is_whole = wanted == 0;
            // Another frame may follow.
            if !self.is_whole || from.pos == from.src.len() || to.pos() == to.capacity() {
                break;
            }
        }
        let taken = from.pos;
        stored.advance(taken);
        Ok(part)
    }

    /// Whether what was taken ends with a frame.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::HeldReason;
    use crate::store::sum::unread;

    /// As zstd returns a code: negated (zstd_errors.h).
    fn code(of: ZSTD_ErrorCode) -> usize {
        (of as usize).wrapping_neg()
    }

    #[test]
    fn a_lack_of_memory_is_never_taken_for_damage() {
        let error = failed(code(NO_MEMORY));
        assert_eq!(error.to_string(), get_error_name(code(NO_MEMORY)));
        assert_eq!(unread(&error).0, HeldReason::PayloadUnreadable);
        let mut stored = compress_now(b"{\"amount\": 1}").unwrap();
        assert_eq!(unpacked_bytes(&stored[..]).unwrap(), 13);
        // The last byte of its checksum.
        *stored.last_mut().unwrap() ^= 1;
        let damaged = decompress_now(&stored, 13).unwrap_err();
        assert_eq!(
            damaged.to_string(),
            get_error_name(code(ZSTD_ErrorCode::ZSTD_error_checksum_wrong))
        );
        assert_eq!(unread(&damaged).0, HeldReason::PayloadDamaged);
        assert_eq!(unpacked_bytes(&stored[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
