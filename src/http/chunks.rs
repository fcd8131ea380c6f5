//! Finds the end of a body, so that nothing after it is read while its request is handled.
//!
//! Only `connection` uses the chunk scanner. It follows the HTTP server's decoder (`actix-http`'s `h1::chunked`)
//! byte for byte; the fuzz target `pipeline` compares the two. Must stay true: it finds an end no later than the
//! decoder, and skips the data of a chunk in one step.

use actix_web::HttpMessage;
use actix_web::http::header::{CONTENT_LENGTH, UPGRADE};

/// The position in a chunked body (RFC 9112, section 7.1).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// The beginning of a size.
    #[default]
    Begin,
    Size(u64),
    /// The blanks after the size.
    Blank(u64),
    /// An extension, which is ignored.
    Extension(u64),
    /// The end of a size's line, of which the last byte is missing.
    SizeEnd(u64),
    /// The data of a chunk, with this many bytes left.
    Data(u64),
    /// The end of a chunk's data, before its line end.
    DataEnd,
    /// The line end after a chunk, of which the last byte is missing.
    DataEndRest,
    /// The beginning of a line after the last chunk.
    Line,
    /// The rest of such a line: a trailer, which is ignored.
    Trailer,
    /// The line end of a trailer, of which the last byte is missing.
    TrailerEnd,
    /// The line end of the empty line, of which the last byte is missing.
    Last,
    Ended,
    /// Not a chunked body.
    Broken,
}

impl Chunks {
    /// How many of `bytes` belong to the body. A malformed body ends at the first wrong byte.
    pub(crate) fn pass_on(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_over() {
            *self = match *self {
                Chunks::Data(left) => {
                    let here = left.min((bytes.len() - at) as u64);
                    at += here as usize;
                    if here < left { Chunks::Data(left - here) } else { Chunks::DataEnd }
                }
                state => {
                    at += 1;
                    state.step(bytes[at - 1])
                }
            };
        }
        at
    }

    pub(crate) fn is_over(self) -> bool {
        matches!(self, Chunks::Ended | Chunks::Broken)
    }

    fn step(self, byte: u8) -> Self {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        match (self, byte) {
            (Chunks::Begin, _) => digit.map_or(Chunks::Broken, Chunks::Size),
            (Chunks::Size(size), _) if digit.is_some() => {
                let longer = size.checked_mul(16).zip(digit).map(|(size, digit)| size + digit);
                longer.map_or(Chunks::Broken, Chunks::Size)
            }
            (Chunks::Size(size) | Chunks::Blank(size), b' ' | b'\t') => Chunks::Blank(size),
            (Chunks::Size(size) | Chunks::Blank(size), b';') => Chunks::Extension(size),
            (Chunks::Size(size) | Chunks::Blank(size) | Chunks::Extension(size), b'\r') => {
                Chunks::SizeEnd(size)
            }
            (Chunks::Extension(size), b'\t' | b' '..=b'~' | 0x80..) => Chunks::Extension(size),
            (Chunks::SizeEnd(0), b'\n') => Chunks::Line,
            (Chunks::SizeEnd(size), b'\n') => Chunks::Data(size),
            (Chunks::DataEnd, b'\r') => Chunks::DataEndRest,
            (Chunks::DataEndRest, b'\n') => Chunks::Begin,
            (Chunks::Line, b'\r') => Chunks::Last,
            (Chunks::Trailer, b'\r') => Chunks::TrailerEnd,
            (Chunks::Line | Chunks::Trailer, _) => Chunks::Trailer,
            (Chunks::TrailerEnd, b'\n') => Chunks::Line,
            (Chunks::Last, b'\n') => Chunks::Ended,
            _ => Chunks::Broken,
        }
    }
}

/// The body's declared length; `None` if it comes in chunks or declares none. A request for a WebSocket has no
/// length, because the HTTP server (`actix-http`'s `h1::decoder`) reads its body to the connection's end.
pub(crate) fn declared(request: &impl HttpMessage) -> Option<u64> {
    if request.chunked().unwrap_or(true) {
        return None;
    }
    let mut upgrades = request.headers().get_all(UPGRADE);
    if upgrades.any(|to| to.as_bytes().trim_ascii().eq_ignore_ascii_case(b"websocket")) {
        return Some(0);
    }
    request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_chunked_body_is_found_however_it_is_split() {
        let bodies: [&[u8]; 4] = [
            b"5\r\nhello\r\n0\r\n\r\n",
            b"A;x=y\r\n\r\n\r\n\n\n0\r\n\n\r\n0\r\n\r\n",
            b"0 \t;z\r\nX: y\n\r\n\r\n",
            b"001\r\n\r\r\n00\r\nTrailer\r\nTrailer\r\n\r\n",
        ];
        for body in bodies {
            let whole = [body, b"GET / HTTP/1.1\r\n\r\n"].concat();
            for step in 1..=whole.len() {
                let (mut chunks, mut at) = (Chunks::default(), 0);
                for block in whole.chunks(step) {
                    at += chunks.pass_on(block);
                }
                assert_eq!((at, chunks), (body.len(), Chunks::Ended), "in steps of {step}");
            }
        }
    }

    #[test]
    fn a_malformed_chunk_ends_the_body_at_once() {
        for bad in ["\r\n", "g", "5x", "5;\x07", "1\r\nab", "0\r\n\rx", "10000000000000000", "5\n"]
        {
            let mut chunks = Chunks::default();
            let bytes = chunks.pass_on(format!("{bad} and more").as_bytes());
            assert_eq!(chunks, Chunks::Broken, "{bad:?}");
            assert!(bytes <= bad.len(), "{bad:?}");
        }
    }
}
