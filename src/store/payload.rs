//! The stored form of a payload, and the way there and back.

use std::borrow::Cow;
use std::io;

use bytes::Bytes;
use rusqlite::Row;

use crate::model::{EventType, Headers, Name};

use super::codec;
use super::pattern::Patterns;

/// The columns of a payload but for its event.
#[derive(Debug)]
pub(super) struct Stored {
    /// As HTTP writes them. Empty where they are in the body's frame.
    pub(super) headers: Vec<u8>,
    /// Under zstd.
    pub(super) body: Vec<u8>,
    /// What it was made with, where its type has one.
    pub(super) pattern: Option<i64>,
}

impl Patterns {
    /// The stored form of a payload: by the pattern of its type, where that has one.
    pub(super) async fn pack(
        &self,
        source: &Name,
        event_type: &EventType,
        headers: Vec<u8>,
        body: &Bytes,
    ) -> io::Result<Stored> {
        if body.len() <= codec::INLINE_BYTES
            && let Some(pattern) = self.of(source, event_type.as_str())
            && let Ok(frame) = pattern.compress(&headers, body)
        {
            return Ok(Stored { headers: Vec::new(), body: frame, pattern: Some(pattern.row) });
        }
        let body = codec::compress(body.clone()).await?;
        Ok(Stored { headers, body, pattern: None })
    }

    /// The headers and the body, whose size its event knows, off the caller's thread where it is large.
    pub(super) async fn unpack(
        &self,
        stored: Stored,
        bytes: usize,
    ) -> io::Result<(Headers, Vec<u8>)> {
        match stored.pattern {
            Some(_) => self.unpack_now(&stored, bytes),
            None => {
                let headers = Headers::from_wire(&stored.headers);
                Ok((headers, codec::decompress(stored.body, bytes).await?))
            }
        }
    }

    /// The same here.
    pub(super) fn unpack_now(
        &self,
        stored: &Stored,
        bytes: usize,
    ) -> io::Result<(Headers, Vec<u8>)> {
        let Some(row) = stored.pattern else {
            let headers = Headers::from_wire(&stored.headers);
            return Ok((headers, codec::decompress_now(&stored.body, bytes)?));
        };
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the pattern that it was made with");
        self.at(row).ok_or_else(gone)?.decompress(&stored.body, bytes)
    }
}

impl Stored {
    /// Reads the columns headers, body and pattern from this one on.
    pub(super) fn read(row: &Row<'_>, column: usize) -> rusqlite::Result<Self> {
        let (headers, body) = (row.get(column)?, row.get(column + 1)?);
        Ok(Stored { headers, body, pattern: row.get(column + 2)? })
    }

    /// The body without a pattern, for what is kept elsewhere. `raw` is the body itself: small, where there is a
    /// pattern.
    pub(super) fn plain(&self, raw: &[u8]) -> io::Result<Cow<'_, [u8]>> {
        match self.pattern {
            None => Ok(Cow::Borrowed(&self.body)),
            Some(_) => codec::compress_now(raw).map(Cow::Owned),
        }
    }
}
